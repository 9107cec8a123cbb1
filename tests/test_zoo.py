"""The zoos: notebooks that are odd but right, and notebooks that cheat. Each is a file under tests/zoo; add your own.

A `.py` file holds cells after lines `# %%`. Its first lines say what it is, what must happen (`# must: full marks`,
`# must: earn nothing`) and, where needed, which exercise it answers (`# exercise: what_commutes`) or which
status it must get (`# say: crashed`). An `.ipynb` file says so under the keys `what` and `must`.
"""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from posenc.checks.registry import all_exercises
from posenc.grading.limits import Limits
from posenc.grading.marking import Mark, Nursery, mark
from posenc.grading.reading import Notebook, read

ZOO = Path(__file__).resolve().parent / "zoo"
INNOCENTS, ADVERSARIES = (sorted((ZOO / kind).iterdir()) for kind in ("innocents", "adversaries"))
PRIVATE_SEED = 7
TRACES = "posenc-zoo-"  # what an adversary's files and processes are called

walled = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@dataclass(frozen=True)
class Animal:
    """One case: its cells, and what its first lines say."""

    notebook: Notebook
    says: dict[str, str]

    @property
    def exercise(self) -> str:
        return self.says.get("exercise", "shuffle_rows")


def animal(path: Path) -> Animal:
    data = path.read_bytes()
    if path.suffix == ".ipynb":
        notebook = read(data)
        encoding = json.detect_encoding(data) if b"\xe9" not in data else "cp1252"
        return Animal(notebook, {"must": json.loads(data.decode(encoding))["must"]})
    head, *cells = data.decode().split("# %%\n")
    return Animal(Notebook(tuple(cells)), dict(re.findall(r"^# (\w+): (.+)$", head, re.MULTILINE)))


def name(path: Path) -> str:
    return path.name


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    limits = Limits(memory_in_all=800_000_000)  # what a test may take of this machine
    with Nursery(unsafe=shutil.which("bwrap") is None, limits=limits) as opened:
        yield opened


def marked(case: Animal, nursery: Nursery) -> Mark:
    return mark(case.notebook, [all_exercises()[case.exercise]], nursery, PRIVATE_SEED).marks[0]


def test_there_are_enough_of_them_and_each_says_what_must_happen():
    for paths, must in ((INNOCENTS, "full marks"), (ADVERSARIES, "earn nothing")):
        assert len(paths) >= 40
        assert {p.name: animal(p).says.get("must") for p in paths} == {p.name: must for p in paths}
        assert not [p.name for p in paths if p.suffix == ".py" and not re.match(r"# [A-Z].+\.\n# must:", p.read_text())]


@pytest.mark.parametrize("path", INNOCENTS, ids=name)
def test_odd_but_right_gets_full_marks(nursery, path):
    case = animal(path)
    result = marked(case, nursery)
    assert (result.status, result.points) == ("correct", all_exercises()[case.exercise].points), result


@walled
@pytest.mark.parametrize("path", ADVERSARIES, ids=name)
def test_a_cheat_earns_nothing_and_is_told_something(nursery, path, monkeypatch):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 3)  # on our side: who hangs shall not hang the tests
    case = animal(path)
    result = marked(case, nursery)
    assert result.points == 0, result
    assert result.status not in ("correct", "ungraded"), result
    assert result.status == case.says.get("say", result.status)
    assert result.reason or result.report or result.status in ("missing", "not attempted")


@walled
def test_the_cheats_left_nothing_behind(nursery):
    """Runs last in this file: what all of them tried to leave on this machine is not there."""
    folders = map(Path, ("/tmp", "/dev/shm", "/", "/home", "/root", "/usr", "/var/tmp", "/proc"))
    assert [path for folder in folders for path in folder.glob(f"{TRACES}*")] == []
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if f"{TRACES}orphan".encode() in line and b"pytest" not in line]
    right = Notebook(("def shuffle_rows(x, permutation):\n    return x[..., permutation, :]",))
    assert marked(Animal(right, {}), nursery).status == "correct"
