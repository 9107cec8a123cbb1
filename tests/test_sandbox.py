"""Inside the walls: no files, no network, no other process, and nothing that outlives the worker."""

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from posenc.grading import sandbox
from posenc.grading.marking import Gone, Nursery, Worker
from posenc.grading.reading import Notebook
from posenc.grading.sandbox import NoSandbox

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(unsafe=False) as opened:
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
        assert ask(nursery, f"open('{folder}/note', 'w').write('x')\nreturn os.listdir('{folder}')") == ["note"]
        assert ask(nursery, f"return os.listdir('{folder}')") == []


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


def test_memory_has_a_bound(nursery):
    assert ask(nursery, TRY.format("b'x' * 10 ** 11")) == "MemoryError"
    assert ask(nursery, "import torch\n" + TRY.format("torch.ones(10 ** 10)")) == "RuntimeError"


def test_files_have_a_bound(nursery):
    body = "f = open('large', 'wb')\nfor _ in range(1000):\n    f.write(b'x' * 1_000_000)\nreturn 'done'"
    with pytest.raises((OSError, EOFError)):
        ask(nursery, body)


def test_processes_have_a_bound(nursery):
    body = (
        "import time\nfor n in range(300):\n    try: child = os.fork()\n    except OSError: return n\n"
        "    if not child:\n        time.sleep(60)\n        os._exit(0)\nreturn n"
    )
    assert ask(nursery, body) < 200
    assert ask(nursery, "return 5") == 5


def test_no_walls_no_marks(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NoSandbox, match="apt-get install bubblewrap"):
        Nursery(unsafe=False)
