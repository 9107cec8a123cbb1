"""Marks of a notebook whose code runs in another process. Odd answers and cheats have a file of their own: the zoo."""

import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from posenc import __main__
from posenc.checks.exercise import Exercise
from posenc.checks.registry import all_exercises
from posenc.grading import stub
from posenc.grading.marking import Mark, Nursery, chapter_of, mark, mark_chapter
from posenc.grading.reading import Notebook, read

ROOT = Path(__file__).resolve().parent.parent
MASTERS = sorted((ROOT / "solutions").glob("*.ipynb"))

PRIVATE_SEED = 7
UNSAFE = shutil.which("bwrap") is None

# A right answer to a small exercise. Odd ones and cheats are in tests/zoo.
RIGHT = "def shuffle_rows(x, permutation):\n    return x[..., permutation, :]"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(unsafe=UNSAFE) as opened:
        yield opened


@pytest.fixture
def only(nursery: Nursery) -> Callable[[str, Sequence[str]], Mark]:
    """Mark one exercise of a notebook with these cells."""

    def marked(name: str, cells: Sequence[str]) -> Mark:
        return mark(Notebook(tuple(cells)), [all_exercises()[name]], nursery, PRIVATE_SEED).marks[0]

    return marked


@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_each_master_gets_all_points_with_private_cases(nursery, master):
    notebook = read(master.read_bytes())
    marks = mark_chapter(notebook, chapter_of(notebook), nursery, PRIVATE_SEED)
    assert [(m.exercise.name, m.status) for m in marks.marks if m.status != "correct"] == []
    assert marks.points == marks.of > 0
    assert marks.notes == ()


@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_each_untouched_exercise_notebook_is_not_attempted(nursery, master):
    notebook = read((ROOT / "exercises" / master.name).read_bytes())
    marks = mark_chapter(notebook, chapter_of(notebook), nursery, PRIVATE_SEED)
    assert {m.status for m in marks.marks} == {"not attempted"}
    assert marks.points == 0


def test_each_exercise_starts_from_the_same_state(nursery):
    cells = (
        "import torch\ndone = []\n"
        + RIGHT.replace("    return", "    done.append(1); torch.set_num_threads(1)\n    return"),
        "def log10_orders(letters):\n    assert not done\n    raise ValueError('fresh')",
    )
    exercises = [all_exercises()[name] for name in ("shuffle_rows", "log10_orders")]
    first, second = mark(Notebook(cells), exercises, nursery, PRIVATE_SEED).marks
    assert first.status == "correct"
    assert "ValueError: fresh" in (second.report.findings[0].complaint or "")


def test_a_crash_costs_its_own_exercise_only(nursery):
    cells = (
        "import os\ndef shuffle_rows(x, permutation):\n    os._exit(1)",
        "def what_commutes():\n    return {}",
    )
    exercises: list[Exercise] = [all_exercises()[name] for name in ("shuffle_rows", "what_commutes")]
    first, second = mark(Notebook(cells), exercises, nursery, PRIVATE_SEED).marks
    assert first.status == "crashed"
    assert second.status == "wrong"


def test_known_mistakes_are_named_across_the_process(only):
    wrong = ("def shuffle_rows(x, permutation):\n    return x[..., permutation.argsort(), :]",)
    assert only("shuffle_rows", wrong).report.mistake.name == "the inverse permutation"


def test_a_changed_input_is_named_across_the_process(only):
    cells = ("def shuffle_rows(x, permutation):\n    y = x[..., permutation, :]\n    x *= 2\n    return y",)
    complaints = [f.complaint for f in only("shuffle_rows", cells).report.findings]
    assert "your function changed its input; work on a copy" in complaints


def test_an_error_carries_its_line(only):
    cells = ("def shuffle_rows(x, permutation):\n    y = x\n    return y.nowhere",)
    complaint = only("shuffle_rows", cells).report.findings[0].complaint
    assert "AttributeError" in complaint
    assert "line 3 of your function: `return y.nowhere`" in complaint


def test_a_tensor_that_only_the_other_process_sees_is_noticed_by_its_size(only):
    right = inspect.getsource(all_exercises()["window_by_blocks"].reference)
    head, body = right.split(" -> Tensor:\n")
    grid = "    torch.ones(queries.shape[-2], queries.shape[-2], dtype=torch.bool)\n"
    imports = (
        "import torch\nfrom torch import Tensor\nfrom typing import Callable\nfrom posenc.masks import sliding_window"
    )
    got = only("window_by_blocks", [imports, f"{head} -> Tensor:\n{grid}{body}"])
    assert got.status == "partly"
    (wrong,) = (finding for finding in got.report.findings if finding.complaint)
    assert wrong.name.startswith("no tensor of n × n numbers")
    assert only("window_by_blocks", [imports, right]).status == "correct"


def test_what_is_missing_or_broken_is_said(only):
    assert only("shuffle_rows", ("x = 1",)).status == "missing"
    broken = only("shuffle_rows", ("def shuffle_rows(x, permutation:\n    return x",))
    assert broken.status == "error"
    assert broken.reason.startswith("cell 1: SyntaxError: ")
    assert "of your function" not in broken.reason
    assert only("shuffle_rows", ("shuffle_rows = 5",)).status == "error"
    twice = only("shuffle_rows", ("def shuffle_rows(x, p):\n    return x", RIGHT))
    assert twice.notes == ("defined in cells 1 and 2: the last one counts",)


def test_the_library_beside_the_learner_holds_no_answer(tmp_path):
    library = stub.build(tmp_path)
    names = set(all_exercises())
    for path in library.rglob("*.py"):
        defined = {line.split("(")[0].removeprefix("def ") for line in path.read_text().splitlines()}
        assert not names & defined, path
    assert not list(library.rglob("chapter_*.py"))
    assert "def causal(" in (library / "posenc" / "masks.py").read_text()
    assert "def equivariance_error(" not in (library / "posenc" / "symmetry.py").read_text()


def test_every_helper_can_be_imported_where_the_answers_are_gone(tmp_path):
    library = stub.build(tmp_path)
    modules = [p.stem for p in (library / "posenc").glob("*.py") if p.stem not in ("__init__", "__main__")]
    code = "import importlib\n" + "\n".join(f"importlib.import_module('posenc.{name}')" for name in sorted(modules))
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(library)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_command_prints_what_a_grader_would_see(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = ROOT / "exercises" / "01_a_set_not_a_sequence.ipynb"
    assert __main__.main(["check", str(file)]) == 0
    assert "0 of 18 points" in capsys.readouterr().out
    bad = tmp_path / "p (1).ipynb"
    bad.write_text("<html>")
    assert __main__.main(["check", str(bad)]) == 2
    assert "web page" in capsys.readouterr().err
    assert __main__.main(["check", str(tmp_path / "nowhere.ipynb")]) == 2
