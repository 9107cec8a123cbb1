"""Inside the walls: no files, no network, no other process, and nothing that outlives the worker."""

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from posenc.checks.exercise import Case, Exercise
from posenc.checks.registry import all_exercises
from posenc.grading import sandbox
from posenc.grading.effort import family
from posenc.grading.limits import Limits
from posenc.grading.marking import Gone, Mark, Nursery, Worker, mark
from posenc.grading.reading import Notebook
from posenc.grading.sandbox import NoSandbox

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


SMALL = Limits(
    seconds_a_cell=1,
    seconds_for_cells=6,
    seconds_an_exercise=4,
    cpu_seconds=2,
    memory=2_000_000_000,
    file=1_000_000,
    open_files=64,
    processes=40,
)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(unsafe=False, limits=SMALL) as opened:
        yield opened


def ask(nursery: Nursery, body: str, *arguments: object) -> object:
    """Run `def probe(*arguments)` with this body inside the walls and return its value."""
    indented = "\n".join("    " + line for line in body.splitlines())
    worker = Worker(Notebook((f"import os\ndef probe(*arguments):\n{indented}",)), nursery)
    try:
        _, function = worker.begin(SimpleNamespace(name="probe"))
        return function(*arguments)
    finally:
        worker.close()


TRY = "try:\n    {}\n    return 'done'\nexcept BaseException as error:\n    return type(error).__name__"


@pytest.mark.parametrize(
    "path",
    [ROOT / "posenc" / "checks" / "chapter_01.py", ROOT / "README.md", "/etc/passwd", "/etc/shadow", "/home", "/var"],
)
def test_no_file_of_the_host_is_there(nursery, path):
    assert Path(path).exists()
    assert ask(nursery, "return os.path.exists(arguments[0])", str(path)) is False


def test_python_the_library_and_an_empty_folder_are_there(nursery):
    assert ask(nursery, "return os.getcwd(), os.listdir()") == (sandbox.WORK, [])
    assert ask(nursery, "import posenc.masks\nreturn posenc.masks.__file__").startswith(sandbox.LIBRARY)
    assert ask(nursery, TRY.format("import posenc.checks.registry")) == "ModuleNotFoundError"


def test_what_one_worker_writes_no_other_sees(nursery):
    for folder in sandbox.PRIVATE:
        seen = f"return sorted(os.listdir('{folder}'))"
        before = ask(nursery, seen)
        assert ask(nursery, f"open('{folder}/note', 'w').write('x')\n{seen}") == sorted([*before, "note"])
        assert ask(nursery, seen) == before


def test_python_is_there_even_if_the_book_lies_in_a_folder_that_each_worker_gets_empty(monkeypatch):
    around = str(Path(sys.prefix).parent)
    if not any(around.startswith(folder) for folder in sandbox.PRIVATE):
        monkeypatch.setattr(sandbox, "PRIVATE", (*sandbox.PRIVATE, around))
    with Nursery(unsafe=False, limits=SMALL) as nursery:
        assert ask(nursery, f"return os.listdir('{around}')") == [Path(sys.prefix).name]
        assert ask(nursery, "import sys, xml.dom.minidom\nreturn os.path.exists(sys.executable)") is True
        assert ask(nursery, TRY.format(f"open('{sys.prefix}/note', 'w')")) in ("OSError", "PermissionError")


@pytest.mark.parametrize("folder", [sandbox.LIBRARY, "/usr", "/", "/dev"])
def test_nothing_else_can_be_written(nursery, folder):
    if folder in ("/", "/dev"):  # tmpfs of the walls' own: what matters is that no other worker sees it
        ask(nursery, TRY.format(f"open('{folder}/note', 'w').write('x')"))
        assert ask(nursery, f"return os.path.exists('{folder}/note')") is False
    else:
        assert ask(nursery, TRY.format(f"open('{folder}/note', 'w')")) == "OSError"


def test_no_network(nursery):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        body = "import socket\n" + TRY.format(f"socket.create_connection(('127.0.0.1', {address[1]}), 2)")
        assert ask(nursery, body) in ("OSError", "ConnectionRefusedError")
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_no_other_process_is_seen(nursery):
    assert ask(nursery, "return os.listdir('/proc')") == []
    assert ask(nursery, "return os.getpid() < 10")
    others = "found = 0\nfor pid in range(1, 5000):\n    try: os.kill(pid, 0)\n    except OSError: continue\n"
    others += "    found += 1\nreturn found"
    assert ask(nursery, others) <= 3  # itself and the process that runs the cells


def test_killing_everything_kills_only_itself(nursery):
    with pytest.raises((EOFError, Gone)):
        ask(nursery, "os.kill(os.getppid(), 9)\nos.kill(os.getpid(), 9)")
    assert ask(nursery, "return 5") == 5


def test_it_ends_at_any_moment_of_its_start(tmp_path):
    """With its first process killed alone, about one in twenty-five left the second one waiting for a word of it.

    A program that has started by then ends as the nursery does: when nobody is at the other end any more.
    """
    name = str(tmp_path / "library")
    (tmp_path / "library").mkdir()
    command = [*sandbox.command(Path(name)), "/usr/bin/cat"]
    for moment in range(100):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, stderr=subprocess.DEVNULL)
        time.sleep(6e-5 * moment)
        Nursery.end(SimpleNamespace(process=process))
        process.stdin.close()
        process.wait()
    deadline = time.monotonic() + 10
    while left := [p for p in Path("/proc").glob("[0-9]*/cmdline") if name in text_of(p)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def text_of(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def test_what_it_started_dies_with_it(nursery):
    mark = "posenc-orphan-7301"
    body = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', '{mark}'], start_new_session=True)\n"
        "return True"
    )
    assert ask(nursery, body)
    deadline = time.time() + 5
    while orphans := running(mark):
        assert time.time() < deadline, orphans
        time.sleep(0.05)


def running(mark: str) -> list[str]:
    """The processes of this machine whose command line holds the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in line:
            found.append(line)
    return found


# --- Limits: each is broken by a submission, and named in its result


def result(nursery: Nursery, body: str, before: str = "") -> Mark:
    indented = "\n".join("    " + line for line in body.splitlines())
    cells = ("import os, socket, threading, time, torch\n" + before, f"def shuffle_rows(x, permutation):\n{indented}")
    return mark(Notebook(cells), [all_exercises()["shuffle_rows"]], nursery).marks[0]


OVERRUNS = {
    "memory, asked of Python": ("b'x' * 10 ** 11", "memory", "more memory"),
    "memory, asked of torch": ("torch.ones(10 ** 10)", "memory", "more memory"),
    "room for files": ("open('large', 'wb').write(b'x' * 2_000_000)", "wrong", "more room for files"),
    "room for many files": (
        "for n in range(9):\n    open(str(n), 'wb').write(b'x' * 500_000)",
        "wrong",
        "more room for files",
    ),
    "open files": ("return [open('/dev/null') for _ in range(1000)]", "wrong", "more open files"),
    "processes": (
        "for _ in range(100):\n    if not os.fork():\n        time.sleep(60)\n        os._exit(0)",
        "wrong",
        "more processes",
    ),
    "threads": (
        "for _ in range(100):\n    threading.Thread(target=time.sleep, args=(9,)).start()",
        "wrong",
        "more processes",
    ),
    "the network": ("socket.create_connection(('127.0.0.1', 80), 1)", "wrong", "the network"),
    "output": ("return torch.zeros(10 ** 7, dtype=torch.float64)", "wrong", "more room for its result"),
    "processor time": ("while True:\n    pass", "timeout", "more than 2 seconds of processor time"),
    "time for a call": ("time.sleep(60)", "timeout", "took longer than"),
    "time for all calls": ("time.sleep(2.5)\nreturn x", "timeout", "together took longer than 4 seconds"),
}


@pytest.mark.parametrize("what", OVERRUNS)
def test_each_limit_is_named_by_the_result_of_whoever_breaks_it(nursery, monkeypatch, what):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 8)
    if what == "time for a call":
        monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 1)
    body, status, reason = OVERRUNS[what]
    got = result(nursery, body)
    assert (got.status, got.points) == (status, 0), got
    assert reason in got.reason
    assert ask(nursery, "return 5") == 5


def test_time_that_runs_out_while_the_function_calls_one_of_ours_cannot_be_caught_over_there(nursery, monkeypatch):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 1)
    monkeypatch.setattr("posenc.checks.calling.PATIENCE", 60)

    def apply_forever(slow: Callable) -> None:
        """The declaration's own function is never called: its only case hands out what takes long."""

    slow = Case("a slow function", lambda _: (lambda: work_for(0.3),))
    exercise = Exercise(1, "Slow", 1, 1, 1, reference=apply_forever, learned="", cases=(slow,))
    body = "while True:\n        try:\n            slow()\n        except BaseException:\n            pass"
    before = time.monotonic()
    got = mark(Notebook((f"def apply_forever(slow):\n    {body}",)), [exercise], nursery).marks[0]
    assert (got.status, got.points) == ("timeout", 0), got
    assert time.monotonic() - before < 60


def work_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


# --- A machine that is busy with something else: a right answer is right however long it took


@pytest.fixture
def starving() -> Iterator[Nursery]:
    """Its processes share one processor with ten others that are busy."""
    processor = {min(os.sched_getaffinity(0))}
    with Nursery(unsafe=False, limits=SMALL) as nursery:
        assert ask(nursery, "return 5") == 5  # all of them have started
        for pid in family(nursery.process.pid):
            os.sched_setaffinity(pid, processor)
        busy = ["timeout", "300", "sh", "-c", "while :; do :; done"]  # it ends even if this run is killed
        hogs = [subprocess.Popen(busy, start_new_session=True) for _ in range(10)]
        for hog in hogs:
            for pid in family(hog.pid):
                os.sched_setaffinity(pid, processor)
        yield nursery
        for hog in hogs:
            os.killpg(hog.pid, signal.SIGKILL)
            hog.wait()


TAKES_A_WHILE = """
done = []
def work():
    end = time.thread_time() + 0.3
    while not done and time.thread_time() < end: pass
    done.append(1)
"""


def test_what_others_do_on_this_machine_makes_no_right_answer_late(starving, monkeypatch):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 1)
    monkeypatch.setattr("posenc.checks.calling.PATIENCE", 60)
    before = time.monotonic()
    got = result(starving, "work()\nreturn x[..., permutation, :]", TAKES_A_WHILE)
    assert got.status == "correct", got
    assert time.monotonic() - before > 1.5


def test_who_gets_no_processor_at_all_is_not_marked(starving, monkeypatch):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 1)
    monkeypatch.setattr("posenc.checks.calling.PATIENCE", 1)
    got = result(starving, "work()\nreturn x[..., permutation, :]", TAKES_A_WHILE)
    assert (got.status, got.report) == ("ungraded", None)
    assert "the computer is busy" in got.reason


@pytest.mark.parametrize(("body", "reason"), [("time.sleep(1e9)", "took longer"), ("while True: pass", "took longer")])
def test_who_sleeps_or_never_ends_is_late_even_there(starving, monkeypatch, body, reason):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 0.5)
    monkeypatch.setattr("posenc.checks.calling.PATIENCE", 60)
    got = result(starving, body)
    assert (got.status, got.points) == ("timeout", 0), got
    assert reason in got.reason


def test_memory_of_all_processes_together_is_bounded():
    limits = dataclasses.replace(SMALL, memory_in_all=600_000_000)
    body = "for _ in range(10):\n    if not os.fork():\n        kept = b'x' * 100_000_000\n        time.sleep(60)\n"
    body += "time.sleep(60)"
    with Nursery(unsafe=False, limits=limits) as nursery:
        got = result(nursery, body)
        assert (got.status, got.points) == ("memory", 0), got
        assert "together" in got.reason
        assert ask(nursery, "return 5") == 5


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.arange(12).view(3, 4).T,
        torch.ones(1, 3).expand(4, 3),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j, 3 - 1j]).conj().imag,  # a negative view
        torch.tensor([[1.5, -torch.inf, torch.nan]]).bfloat16(),
        torch.tensor([True, False]),
    ],
    ids=lambda value: f"{value.dtype} {tuple(value.shape)}",
)
def test_a_tensor_goes_there_and_comes_back_as_it_is(nursery, value):
    got = ask(nursery, "return arguments[0]", value)
    assert (got.dtype, got.shape) == (value.dtype, value.shape)
    assert torch.equal(torch.nan_to_num(got), torch.nan_to_num(value.resolve_conj().resolve_neg()))


def test_time_for_a_cell_is_bounded_and_the_next_cell_runs(nursery):
    worker = Worker(Notebook(("import time\ntime.sleep(20)", "x = 1")), nursery)
    worker.close()
    assert worker.complaints == ["cell 1: took longer than 1 seconds"]


def test_time_for_all_cells_is_bounded_and_named_once_for_all(nursery):
    stubborn = "while True:\n    try: time.sleep(60)\n    except BaseException: pass"
    exercises = [all_exercises()[name] for name in ("shuffle_rows", "what_commutes")]
    marks = mark(Notebook(("import time", stubborn)), exercises, nursery).marks
    assert {(m.status, m.reason) for m in marks} == {("timeout", "it did not answer within 6 seconds")}


def test_memory_taken_by_cells_is_named(nursery):
    worker = Worker(Notebook(("x = b'x' * 10 ** 11",)), nursery)
    worker.close()
    assert worker.complaints == ["cell 1: MemoryError (it asked for more memory than allowed)"]


# --- Where bubblewrap is missing


def test_no_walls_no_marks(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("os.getuid", lambda: 1000)
    with pytest.raises(NoSandbox, match="apt-get install bubblewrap"):
        Nursery(unsafe=False)


root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@root
def test_root_without_bubblewrap_wants_the_answers_closed(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sandbox, "closed_to_others", lambda path: False)
    with pytest.raises(NoSandbox, match=r"or: chmod 700 .*/checks"):
        Nursery(unsafe=False)
    monkeypatch.setattr(sandbox, "closed_to_others", lambda path: True)
    with pytest.raises(NoSandbox, match=r"chmod a\+rx"):
        Nursery(unsafe=False)


@root
def test_root_without_bubblewrap_wants_the_submissions_closed(monkeypatch, tmp_path):
    sandbox.check_submissions(Path("/usr"))
    monkeypatch.setenv("PATH", "")
    sandbox.check_submissions(tmp_path)  # pytest made a folder above it for us alone
    with pytest.raises(NoSandbox, match="chmod 700 /usr"):
        sandbox.check_submissions(Path("/usr"))


def test_a_folder_is_closed_to_others_if_one_above_it_is(tmp_path):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True, mode=0o755)
    (tmp_path / "a").chmod(0o750)
    assert sandbox.closed_to_others(inside)
    assert not sandbox.closed_to_others(Path("/usr"))


@root
def test_root_without_bubblewrap_runs_learners_code_as_nobody(monkeypatch, tmp_path):
    monkeypatch.setattr(sandbox, "command", lambda library: (_ for _ in ()).throw(NoSandbox()))
    monkeypatch.setattr(sandbox, "check_other_users", lambda: None)  # Python itself may be in a closed folder here
    tmp_path.chmod(0o700)
    secret = tmp_path / "seed.txt"
    secret.write_text("7")
    secret.chmod(0o644)
    with Nursery(unsafe=False, limits=SMALL) as nursery:
        assert nursery.walls.startswith(sandbox.ANOTHER_USER)
        right = "return x[..., permutation, :]"
        assert result(nursery, right).status == "correct"
        user = ask(nursery, "return os.getuid()")
        assert user != ask(nursery, "return os.getuid()")  # each worker is a nobody of its own
        assert user > 1_000_000
        assert ask(nursery, TRY.format(f"open('{secret}').read()")) == "PermissionError"
        assert ask(nursery, TRY.format(f"open('/proc/{os.getpid()}/environ').read()")) == "PermissionError"
        assert ask(nursery, TRY.format(f"os.kill({os.getpid()}, 0)")) == "PermissionError"
        body = "if not os.fork():\n    os.setsid()\n    import time\n    time.sleep(600)\n"
        body += "open('/tmp/posenc-left-behind', 'w').write('x')\nreturn os.getuid()"
        user = ask(nursery, body)
        deadline = time.time() + 5
        while processes_of(user) or Path("/tmp/posenc-left-behind").exists():
            assert time.time() < deadline
            time.sleep(0.05)


def processes_of(user: int) -> list[Path]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found += [path] if path.stat().st_uid == user else []
    return found
