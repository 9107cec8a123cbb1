"""A folder of submissions becomes marks: one row a student, the same every time, nothing lost, whatever happens."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc import __main__
from posenc.checks.registry import exercises_of
from posenc.grading import batch, files, reports, sandbox, submissions
from posenc.grading.limits import Limits
from posenc.grading.marking import Nursery
from posenc.grading.records import clean, grade

ROOT = Path(__file__).resolve().parent.parent
MASTER = ROOT / "solutions" / "01_a_set_not_a_sequence.ipynb"
UNTOUCHED = ROOT / "exercises" / "01_a_set_not_a_sequence.ipynb"
UNSAFE = [] if shutil.which("bwrap") else ["--unsafe"]
SEED = ["--seed", "7", "--jobs", "1", *UNSAFE]
ALL_POINTS = sum(e.points for e in exercises_of(1))


def notebook(*cells: str) -> str:
    return json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": cell} for cell in cells]})


WRONG = "def shuffle_rows(x, permutation):\n    return x[..., permutation.argsort(), :]"
HOSTILE = "def shuffle_rows(x, permutation):\n    raise ValueError('<script>alert(1)</script>\\ud800\\x1b')"


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small class, marked once: the results of most tests here."""
    folder, out = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("out")
    shutil.copy(MASTER, folder / "ana.ipynb")
    shutil.copy(UNTOUCHED, folder / "ben (1).ipynb")
    (folder / "=cmd|calc.ipynb").write_text(notebook(HOSTILE))
    (folder / "Müller_Zoë_1234_5678_hw.ipynb").write_text(notebook("x = 1"))
    (folder / "Müller_Zoë_1234_5679_hw-1.ipynb").write_text(notebook(WRONG))
    for name, text in (("carl", ""), ("dora", "<html>"), ("emil", notebook("x = 1"))):
        (folder / name).mkdir()
        (folder / name / "final version.ipynb").write_text(text)
    (folder / "fritz").mkdir()
    (folder / "fritz" / "essay.pdf").write_bytes(b"%PDF-1.4")
    (folder / "gerd").mkdir()
    (folder / "hans.ipynb").symlink_to("/etc/passwd")
    (folder / ".DS_Store").write_bytes(b"\0")
    (folder / b"in\xffgo.ipynb".decode("utf-8", "surrogateescape")).write_text(notebook(WRONG))
    assert __main__.main(["grade", str(folder), "--out", str(out), *SEED]) == 0
    return out


def rows(out: Path) -> dict[str, dict[str, str]]:
    with (out / "grades.csv").open(encoding="utf-8", newline="") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


def test_one_row_a_student_and_nobody_is_lost(graded):
    got = {name: (row["status"], row["points"]) for name, row in rows(graded).items()}
    assert got == {
        "ana": ("correct", str(ALL_POINTS)),
        "ben (1)": ("not attempted", "0"),
        "'=cmd|calc": ("wrong", "0"),
        "Müller_Zoë": ("wrong", "0"),
        "carl": ("unreadable", "0"),
        "dora": ("unreadable", "0"),
        "emil": ("missing", "0"),
        "fritz": ("unreadable", "0"),
        "gerd": ("unreadable", "0"),
        "hans": ("unreadable", "0"),
        "in?go": ("wrong", "0"),
    }


def test_each_status_has_its_reason(graded):
    reasons = {name: row["reason"] for name, row in rows(graded).items()}
    assert "the file is empty" in reasons["carl"]
    assert "web page" in reasons["dora"]
    assert "essay.pdf" in reasons["fritz"]
    assert "the folder is empty" in reasons["gerd"]
    assert "a link" in reasons["hans"]
    assert "root:" not in (graded / "feedback" / "hans.html").read_text()


def test_the_newer_attempt_counts_and_the_other_is_named(graded):
    row = rows(graded)["Müller_Zoë"]
    assert (row["number"], row["shuffle_rows status"]) == ("1234", "wrong")
    page = (graded / "feedback" / "Müller_Zoë_1234.html").read_text(encoding="utf-8")
    assert "hw-1.ipynb: this file counts" in page
    assert "5678_hw.ipynb: another file counts" in page


def test_feedback_names_the_mistake_and_the_class_page_counts_it(graded):
    page = (graded / "feedback" / "Müller_Zoë_1234.html").read_text(encoding="utf-8")
    assert "Your result equals a known mistake: the inverse permutation." in page
    lines = (graded / "index.html").read_text(encoding="utf-8")
    assert "<td><code>shuffle_rows</code></td><td>the inverse permutation</td><td>2</td>" in lines


def test_what_a_learner_writes_is_text_in_every_report(graded):
    for path in graded.rglob("*.html"):
        assert "<script" not in path.read_text(encoding="utf-8")
    hostile = next(p for p in (graded / "feedback").iterdir() if p.name.startswith("cmd_calc"))
    assert "&lt;script&gt;alert(1)" in hostile.read_text(encoding="utf-8")
    assert clean("a\x1b\ud800\0b") == "a�?�b"


def test_json_is_what_gradescope_documents(graded):
    """https://gradescope-autograders.readthedocs.io/en/latest/specs/"""
    for path in (graded / "gradescope").iterdir():
        result = json.loads(path.read_text())
        assert set(result) == {"score", "output", "visibility", "extra_data", "tests"}
        assert result["score"] == sum(test["score"] for test in result["tests"])
        assert sum(test["max_score"] for test in result["tests"]) == ALL_POINTS
        for test in result["tests"]:
            assert 0 <= test["score"] <= test["max_score"]
            assert test["status"] in ("passed", "failed")
            assert isinstance(test["name"], str)
            assert test["output"]
            assert test["visibility"] == "visible"


def test_reports_say_how_code_was_walled_off(graded, tmp_path):
    walls = {row["walls"] for row in rows(graded).values()}
    assert walls == {reports.UNSAFE if UNSAFE else "bubblewrap"}
    record = json.loads((graded / "records" / "ana.json").read_text()) | {"walls": reports.UNSAFE}
    (tmp_path / "ana.json").write_text(json.dumps(record))
    summary = reports.write_all(tmp_path, [tmp_path / "ana.json"])
    assert summary.unsafe
    for name in ("index.html", "feedback/ana.html", "gradescope/ana.json"):
        assert reports.LOUD.replace("'", "&#x27;") in (tmp_path / name).read_text().replace("'", "&#x27;")
    assert rows(tmp_path)["ana"]["walls"] == reports.UNSAFE


def test_a_failure_of_ours_is_never_a_zero(graded, tmp_path):
    record = json.loads((graded / "records" / "ana.json").read_text())
    record["exercises"][0] |= {"status": "ungraded", "points": None, "reason": "the grader failed"}
    record |= {"status": "ungraded", "points": None}
    (tmp_path / "ana.json").write_text(json.dumps(record))
    summary = reports.write_all(tmp_path, [tmp_path / "ana.json"])
    row = rows(tmp_path)["ana"]
    assert (row["points"], row["shuffle_rows"], row["shuffle_rows status"]) == ("", "", "ungraded")
    result = json.loads((tmp_path / "gradescope" / "ana.json").read_text())
    assert "score" not in result
    assert "score" not in result["tests"][0]
    assert summary.statuses["ungraded"] == 1
    assert not batch.is_record(tmp_path / "ana.json", record["key"])  # it is marked again next time


def test_results_are_for_the_teacher_alone(graded):
    assert graded.stat().st_mode & 0o077 == 0
    assert (graded / "seed.txt").read_text() == "7\n"
    everything = "".join(p.read_text() for folder in ("gradescope", "feedback") for p in (graded / folder).iterdir())
    assert '"seed"' not in everything


# --- Again


@pytest.fixture
def two(tmp_path: Path) -> Path:
    folder = tmp_path / "two"
    folder.mkdir()
    for name in ("ana", "ben"):
        (folder / f"{name}.ipynb").write_text(notebook(WRONG))
    return folder


def snapshot(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_the_same_seed_gives_the_same_bytes_and_nothing_is_marked_twice(two, tmp_path, monkeypatch):
    monkeypatch.setattr("posenc.grading.records.digest_of_the_book", lambda: "the same book")
    arguments = ["grade", str(two), *SEED]
    assert __main__.main([*arguments, "--out", str(tmp_path / "a")]) == 0
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir(mode=0o755)
    assert __main__.main([*arguments, "--out", str(tmp_path / "b")]) == 0
    assert list((tmp_path / "temporary").iterdir()) == []  # nothing is left lying about
    first = snapshot(tmp_path / "a")
    assert first == snapshot(tmp_path / "b")

    def not_again(*_: object, **__: object) -> None:
        raise AssertionError("marked again")

    monkeypatch.setattr("posenc.grading.marker.Marker.mark", not_again)
    (tmp_path / "a" / "records" / ".half.json.1.tmp").write_text("{")
    assert __main__.main([*arguments, "--out", str(tmp_path / "a")]) == 0
    assert snapshot(tmp_path / "a") == first

    (two / "ben.ipynb").write_text(notebook(WRONG + "  # newer"))
    with pytest.raises(AssertionError, match="marked again"):
        __main__.main([*arguments, "--out", str(tmp_path / "a")])


@pytest.mark.parametrize("change", ["files", "seed", "chapters", "book"])
def test_a_record_is_used_again_only_if_all_is_the_same(change, tmp_path, monkeypatch):
    def key(data: bytes = b"x", seed: int = 1, chapters: tuple = (1,)) -> str:
        return batch.task_of("ana", "", [("a.ipynb", data)], chapters, seed)["key"]

    before = key()
    assert before == key()
    if change == "book":
        monkeypatch.setattr("posenc.grading.records.digest_of_the_book", lambda: "another")
    after = {"files": {"data": b"y"}, "seed": {"seed": 2}, "chapters": {"chapters": (1, 2)}, "book": {}}[change]
    assert key(**after) != before


def test_killed_at_any_moment_the_next_run_goes_on_and_loses_nothing(two, tmp_path):
    out = tmp_path / "out"
    for i in range(6):
        (two / f"more{i}.ipynb").write_text(notebook(WRONG, f"x = {i}"))
    same_book = (
        "from posenc import __main__ as m; from posenc.grading import records as r; r.digest_of_the_book = str; "
    )
    command = [sys.executable, "-c", f"{same_book} raise SystemExit(m.main())"]
    command += ["grade", str(two), "--out", str(out), *SEED]
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT)
    deadline = time.monotonic() + 300  # a busy machine takes its time to start
    while len(list(out.glob("records/*.json"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    markers = children_of(run.pid)
    run.send_signal(signal.SIGKILL)
    run.wait()
    while any(path.exists() for path in markers):  # they do not mark on when nobody listens
        assert time.monotonic() < deadline + 10
        time.sleep(0.05)
    kept = {p: p.stat().st_mtime_ns for p in out.glob("records/*.json")}
    assert not (out / "grades.csv").exists()
    assert 2 <= len(kept) < 8
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(rows(out)) == 8
    assert {row["shuffle_rows status"] for row in rows(out).values()} == {"wrong"}
    assert {p: p.stat().st_mtime_ns for p in kept} == kept


def test_killed_at_its_start_nothing_that_it_started_lives_on(two, tmp_path):
    """The start of a sandbox is a chain of forks, each of which could miss that the one before it has died."""
    begin = time.monotonic()
    with start_in(tmp_path / "0", two) as first:
        while not running_in(tmp_path) and first.poll() is None and time.monotonic() < begin + 120:
            time.sleep(0.01)
        to_start = time.monotonic() - begin  # what it takes from nothing to a sandbox
        first.kill()
    assert to_start < 120
    for i in range(1, 5):
        with start_in(tmp_path / f"{i}", two) as run:
            time.sleep(to_start * (0.85 + 0.1 * i))
            run.kill()
    deadline = time.monotonic() + 60
    while left := running_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def start_in(folder: Path, submissions: Path) -> subprocess.Popen:
    """A batch whose sandboxes lie in this folder."""
    folder.mkdir()
    command = [sys.executable, "-m", "posenc", "grade", submissions, "--out", folder / "out", "--jobs", "1", *SEED]
    return subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(folder)},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def running_in(folder: Path) -> list[str]:
    """The command lines of processes in a sandbox, or about to be, whose library lies in there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_text(errors="replace").replace("\0", " ")
            found += [line] if f"{folder}/" in line and sandbox.LIBRARY in line else []
    return found


def children_of(pid: int) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += [path] if (path / "stat").read_text().rpartition(")")[2].split()[1] == str(pid) else []
    assert found
    return found


def test_a_marking_process_that_dies_costs_nothing(monkeypatch):
    unsafe = bool(UNSAFE)
    with batch.Marker(unsafe=unsafe) as marker:
        task = batch.task_of("ana", "", [("a.ipynb", notebook(WRONG).encode())], [1], 7)
        marker.process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert marker.mark(task)["status"] == "wrong"
        monkeypatch.setattr(marker, "_ask", lambda _: (_ for _ in ()).throw(ConnectionError))
        record = marker.mark(task)
    assert (record["status"], record["points"]) == ("ungraded", None)


def test_memory_of_the_batch_does_not_grow_with_the_class(graded, tmp_path, monkeypatch):
    record = json.loads((graded / "records" / "ana.json").read_text())
    monkeypatch.setattr("posenc.grading.marker.Marker.mark", lambda _, task: record | {"name": task["name"]})
    peaks = []
    for size in (1, 20, 200):  # the first makes what is made once
        folder = tmp_path / f"class{size}"
        folder.mkdir()
        for i in range(size):
            (folder / f"s{i}.ipynb").write_text(notebook(WRONG) + " " * 100_000)
        tracemalloc.start()
        summary = batch.grade_folder(folder, tmp_path / f"out{size}", chapters=[1], seed=7)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert summary.students == size
    assert peaks[2] < peaks[1] + 2_000_000  # a few hundred bytes a student, and not the hundred thousand handed in


# --- Whatever they hand in


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(unsafe=bool(UNSAFE), limits=Limits(seconds_a_cell=2, seconds_for_cells=5)) as opened:
        yield opened


PIECES = st.sampled_from(
    ["def shuffle_rows(x, permutation):", "    return x", "\n", "1 / 0", "(" * 200, '"""', "%%time", "!ls", "\0",
     "\ud800", "import os; os._exit(3)", "raise SystemExit", "async def f(): pass", "lambda: (yield)", "-" * 3000,
     "exit()", "raise BaseException", "print('é' * 10**5)", "shuffle_rows = 3", "x" * 5000, "return", "@"]
)  # fmt: skip
CELLS = st.lists(st.lists(PIECES | st.text(max_size=20), max_size=6).map("\n".join), max_size=4)


@settings(derandomize=True, database=None, deadline=None, max_examples=25)
@given(CELLS)
def test_any_cells_give_a_status_with_a_reason(nursery, cells):
    task = json.loads(json.dumps(batch.task_of("ana", "", [("a.ipynb", notebook(*cells).encode())], [1], 7)))
    record = json.loads(json.dumps(grade(task, nursery)))
    assert len(record["exercises"]) == len(exercises_of(1))
    for exercise in record["exercises"]:
        assert exercise["status"] in {"partly", "wrong", "not attempted", "missing", "error", "timeout", "crashed"}
        assert exercise["reason"] or exercise["lines"]
    assert reports.student_page(record).encode()
    assert json.dumps(reports.gradescope_json(record)).encode()


# --- Who handed in what


def found(folder: Path, *names: str) -> dict[tuple[str, str], list[str]]:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return {(s.name, s.number): [p.relative_to(folder).as_posix() for p in s.files] for s in submissions.find(folder)}


def test_flat_files_are_a_student_each(tmp_path):
    assert found(tmp_path, "ana.ipynb", "ana (1).ipynb", "ben-2.ipynb", "team_07_ben.ipynb", "team_07_carl.ipynb") == {
        ("ana", ""): ["ana.ipynb"],
        ("ana (1)", ""): ["ana (1).ipynb"],
        ("ben-2", ""): ["ben-2.ipynb"],
        ("team_07_ben", ""): ["team_07_ben.ipynb"],
        ("team_07_carl", ""): ["team_07_carl.ipynb"],
    }


def test_a_folder_is_a_student_and_copies_with_higher_numbers_are_newer(tmp_path):
    names = ("ana/hw.ipynb", "ana/hw (2).ipynb", "ana/deep/hw (10).ipynb", "ana/.ipynb_checkpoints/hw.ipynb")
    assert found(tmp_path, *names) == {("ana", ""): ["ana/deep/hw (10).ipynb", "ana/hw (2).ipynb", "ana/hw.ipynb"]}


def test_canvas_and_moodle_names(tmp_path):
    names = ("bellana_123_4567_hw.ipynb", "bellana_123_4599_hw-1.ipynb", "bellana_LATE_124_4000_hw.ipynb")
    moodle = ("Ana Bell_321_assignsubmission_file_/hw.ipynb", "Ben Ode_322_assignsubmission_file_hw.ipynb")
    assert found(tmp_path, *names, *moodle) == {
        ("bellana", "123"): ["bellana_123_4599_hw-1.ipynb", "bellana_123_4567_hw.ipynb"],
        ("bellana", "124"): ["bellana_LATE_124_4000_hw.ipynb"],
        ("Ana Bell", "321"): ["Ana Bell_321_assignsubmission_file_/hw.ipynb"],
        ("Ben Ode", "322"): ["Ben Ode_322_assignsubmission_file_hw.ipynb"],
    }


def test_one_number_names_a_student_only_where_nobody_else_would_be_swallowed(tmp_path):
    assert found(tmp_path / "a", "bell_ana_123_hw.ipynb") == {("bell_ana", "123"): ["bell_ana_123_hw.ipynb"]}
    assert set(found(tmp_path / "b", "hw_2024_ana.ipynb", "hw_2024_ben.ipynb")) == {
        ("hw_2024_ana", ""),
        ("hw_2024_ben", ""),
    }


def test_result_files_are_safe_and_never_the_same():
    students = [("ana", ""), ("Ana", ""), ("../ana", ""), ("a" * 300, ""), ("", ""), ("ana", "1"), ("ana_1", "")]
    names = files.file_names(students)
    assert len({name.casefold() for name in names}) == len(students)
    assert all("/" not in name and len(name) < 80 for name in names)


# --- What a teacher may get wrong


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "holds no submission"),
        (lambda folder: (folder / "a.ipynb").write_text(notebook("x = 1")), "say which chapter it is: --chapter N"),
        (lambda folder: folder.rmdir(), "No such file"),
    ],
)
def test_what_cannot_begin_says_why(make: Callable, words, tmp_path, capsys):
    folder = tmp_path / "class"
    folder.mkdir()
    make(folder)
    assert __main__.main(["grade", str(folder), "--out", str(tmp_path / "out"), *SEED]) == 2
    assert words in capsys.readouterr().err


def test_results_must_lie_outside(two, capsys):
    assert __main__.main(["grade", str(two), "--out", str(two / "out"), *SEED]) == 2
    assert "choose another folder" in capsys.readouterr().err


def test_without_a_seed_one_is_drawn_and_kept(tmp_path):
    first = batch.seed_of(tmp_path, None)
    assert batch.seed_of(tmp_path, None) == first
    assert batch.seed_of(tmp_path, 5) == 5
    assert batch.seed_of(tmp_path, None) == 5
