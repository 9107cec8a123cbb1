"""Who would notice if the library changed: tests, checks of exercises, cells of chapters, and which lines each runs.

`with_tests` collects the quick tests once, and `Witness.run` asks one of them, or one check. `Memory` remembers which
lines of `posenc` each runs, in `_build/` and as long as neither has changed. Chapters are asked cell by cell
(`ask_chapter`). Everything that is run is run in a fork (`in_fork`), so it leaves nothing behind.
"""

import ast
import contextlib
import hashlib
import importlib
import json
import os
import re
import resource
import sys
import time
import types
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools import files

LIBRARY = files.ROOT / "posenc"
REMEMBERED = files.ROOT / "_build" / "witnesses.json"
# Left out are the tests that hold a chapter's text equal to the library's: they notice any change, and do not say what
# it does. So are those that drive a browser or another process, the quiz, which belongs to the pages, and those that
# train, which take seconds each.
OTHERS = ("test_chapters", "test_quiz", "test_explore", "test_marking", "test_sandbox", "test_grade", "test_exercises")
OTHERS += ("test_who", "test_sweep", "test_bench")
OPTIONS = ("-q", "-s", "--tb=no", "--assert=plain", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist")
ENOUGH = 50  # calls of a function whose lines are noted
PATIENCE = 2.0  # seconds of processor time that a witness always has; a loop without end is noticed
LONGEST_CELL = 60.0  # seconds of processor time
MOST_MEMORY = 8_000_000_000

THEIRS = ("transformers.", "timm.", "x_transformers", "scipy.", "sklearn.")  # loaded when a test asks for them
LOADED: set[str] = set()  # by the tests that were measured

Lines = dict[str, list[int]]  # by module


@dataclass(frozen=True)
class Witness:
    """Something that may notice. run(next one, if any): whether it found fault."""

    name: str
    run: Callable[["Witness | None"], bool]
    item: Any = None


@dataclass(frozen=True)
class Measured:
    """What one run of a witness took, and which lines of the library it ran."""

    seconds: float
    lines: Lines

    @property
    def breadth(self) -> int:
        """How many lines it runs."""
        return sum(map(len, self.lines.values()))

    def runs(self, module: str, lines: Iterable[int]) -> bool:
        return not set(lines).isdisjoint(self.lines.get(module, ()))


class Tracer:
    """Notes which lines of the library run while it is entered."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = defaultdict(set)
        self._calls: Counter[types.CodeType] = Counter()
        self._modules = {str(path): path.stem for path in LIBRARY.glob("*.py")}

    def __enter__(self) -> "Tracer":
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def lines(self) -> Lines:
        return {module: sorted(seen) for module, seen in self.seen.items()}

    def _call(self, frame: types.FrameType, event: str, argument: object) -> Callable | None:
        module = self._modules.get(frame.f_code.co_filename)
        if module is None or self._calls[frame.f_code] >= ENOUGH:
            return None
        self._calls[frame.f_code] += 1
        seen = self.seen[module]
        seen.add(frame.f_lineno)

        def note(frame: types.FrameType, event: str, argument: object) -> Callable:
            seen.add(frame.f_lineno)
            return note

        return note


def in_fork(work: Callable[[Callable[[str], None]], str]) -> tuple[str, str]:
    """Run `work(say)` in a child: what it returned, and the last thing it said. Returns "ended" if it did not return.

    What the child prints is lost.
    """
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        with os.fdopen(write, "w", encoding="utf-8") as pipe:
            _silence()

            def say(words: str) -> None:
                pipe.write(f"say {words}\n")
                pipe.flush()

            try:
                said = f"return {work(say)}\n"
            except BaseException as error:
                said = f"return error: {error!r:.300}\n".replace("\n", " ") + "\n"
            with contextlib.suppress(BaseException):
                pipe.write(said)
                pipe.flush()
            os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as pipe:
        lines = pipe.read().splitlines()
    os.waitpid(child, 0)
    last = next((line[4:] for line in reversed(lines) if line.startswith("say ")), "")
    returned = lines[-1][7:] if lines and lines[-1].startswith("return ") else "ended"
    return returned, last


def _silence() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 (until the process ends)


def limit(seconds: float) -> None:
    """Let this process end if it takes so much more processor time, or too much memory."""
    allowed = int(time.process_time() + PATIENCE + 5 * seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (allowed, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def first_to_notice(witnesses: Sequence[tuple[Witness, float]], change: Callable[[], bool]) -> str:
    """The first of these that finds fault after the change, in a fork; "" if none does, "afresh" if it was impossible.

    Each comes with its seconds. Raises RuntimeError if the change itself fails.
    """
    if not witnesses:
        return ""

    def work(say: Callable[[str], None]) -> str:
        if not change():
            return "afresh"
        for k, (witness, seconds) in enumerate(witnesses):
            say(witness.name)
            limit(seconds)
            if witness.run(witnesses[k + 1][0] if k + 1 < len(witnesses) else None):
                return witness.name
        return ""

    returned, last = in_fork(work)
    if returned == "ended" or returned.startswith("error: "):
        if not last:
            raise RuntimeError(f"nothing could be changed: {returned}")
        return last
    return returned


# ---- tests


@dataclass(eq=False)
class Collector:
    """A pytest plugin: hands the collected tests over instead of running them, and sees whether one fails."""

    work: Callable[[list[Witness]], None]
    failed: str = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if not self.failed:
            self.work([Witness(item.nodeid, self._runner(item), item) for item in session.items])
        return True

    def _runner(self, item: pytest.Item) -> Callable[[Witness | None], bool]:
        def run(following: Witness | None) -> bool:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following and following.item)
            return bool(self.failed)

        return run


def with_tests(tests: Sequence[str], work: Callable[[list[Witness]], None]) -> str:
    """Collect these files or tests, and give them to `work`. Returns what could not be collected, or failed, first."""
    os.chdir(files.ROOT)
    collector = Collector(work)
    code = pytest.main([*OPTIONS, *tests], plugins=[collector])
    ended = code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
    return collector.failed or ("" if ended else f"pytest: {code!r}")


def test_files(modules: Iterable[str]) -> list[str]:
    """The test files that import one of the modules, without `OTHERS`."""
    any_of = "|".join(modules)
    imports = re.compile(rf"from posenc\.({any_of}) import|from posenc import [^\n]*\b({any_of})\b")
    found = sorted((files.ROOT / "tests").glob("test_*.py"))
    kept = [path for path in found if not path.stem.startswith(OTHERS) and path.stem != "test_library_mutants"]
    return [files.name(path) for path in kept if imports.search(path.read_text(encoding="utf-8"))]


# ---- checks of exercises


def exercises() -> list[Witness]:
    """One for each exercise: whether its check finds fault with its solution."""
    from tools import mutants

    def runner(name: str, solution: Any) -> Callable[[Witness | None], bool]:
        code = ast.unparse(solution.cell)
        return lambda _: mutants.is_caught(name, code, solution.names)

    return [Witness(f"exercise {name}", runner(name, solution)) for name, solution in mutants.solutions().items()]


# ---- chapters


@dataclass(frozen=True)
class Cell:
    """A code cell of a chapter. Its number counts from 0 among those that do something outside Colab."""

    chapter: str
    id: str
    source: str

    @property
    def name(self) -> str:
        return f"{self.chapter}#cell-{self.id}"


def cells(chapter: Path) -> list[Cell]:
    code = [c for c in files.read(chapter).cells if c.cell_type == "code" and "google.colab" not in c.source]
    return [Cell(files.name(chapter), c.id, c.source) for c in code]


def start_chapter() -> dict[str, Any]:
    """The names of a fresh notebook."""
    import matplotlib as mpl

    mpl.use("Agg")
    return {"__name__": "__main__"}


def run_cell(cell: Cell, names: dict[str, Any]) -> None:
    exec(compile(cell.source, cell.name, "exec"), names)


def measure_chapter(chapter: Path) -> dict[str, Measured]:
    """What each cell takes, and which lines it runs. Raises RuntimeError if a cell fails."""

    def work(say: Callable[[str], None]) -> str:
        found, names = {}, start_chapter()
        for cell in cells(chapter):
            say(cell.id)
            start = time.process_time()
            with Tracer() as tracer:
                run_cell(cell, names)
            found[cell.name] = [time.process_time() - start, tracer.lines()]
        return json.dumps(found)

    returned, last = in_fork(work)
    if not returned.startswith("{"):
        raise RuntimeError(f"cell {last} of {chapter.name}: {returned}")
    return {name: Measured(*each) for name, each in json.loads(returned).items()}


def ask_chapter(chapter: Path, due: dict[int, list[tuple[int, int, Callable[[], bool]]]]) -> dict[int, str]:
    """Run a chapter; before cell k, for each (which, last, change) of due[k], go on in a fork with that change.

    The fork ends after the cell `last`. Returns which changes were noticed, and the names of the cells that failed.
    """
    found, names, code = {}, start_chapter(), cells(chapter)
    for k, cell in enumerate(code):
        for which, last, change in due.get(k, []):

            def work(say: Callable[[str], None], k: int = k, last: int = last, change: Callable = change) -> str:
                if not change():
                    return ""
                for later in code[k : last + 1]:
                    say(later.name)
                    limit(LONGEST_CELL)
                    run_cell(later, names)
                return ""

            returned, at = in_fork(work)
            if returned:
                found[which] = at
        if k >= max(due):
            break
        run_cell(cell, names)
    return found


# ---- which lines each runs


class Memory:
    """What is known of the witnesses, as long as neither they nor the library have changed."""

    def __init__(self) -> None:
        text = REMEMBERED.read_text(encoding="utf-8") if REMEMBERED.exists() else "{}"
        self.known: dict[str, dict[str, Any]] = json.loads(text)

    def get(self, group: str, of: Sequence[Path], measure: Callable[[], dict[str, Measured]]) -> dict[str, Measured]:
        """What `measure` finds for a group of witnesses, or found when these files and what they ran were the same."""
        entry = self.known.get(group)
        if entry is None or entry["digest"] != _now(of, entry["modules"]):
            found = measure()
            modules = sorted({module for m in found.values() for module in m.lines})
            rows = {name: [m.seconds, m.lines] for name, m in found.items()}
            entry = self.known[group] = {"digest": _now(of, modules), "modules": modules, "witnesses": rows}
            files.write_text(json.dumps(self.known), REMEMBERED)
        return {name: Measured(*each) for name, each in entry["witnesses"].items()}

    @property
    def loaded(self) -> list[str]:
        """Which modules of other libraries the tests have loaded."""
        return self.known.get("loaded", {}).get("names", [])

    def note_loaded(self) -> None:
        self.known["loaded"] = {"names": sorted({*self.loaded, *LOADED})}
        files.write_text(json.dumps(self.known), REMEMBERED)


def measure(witnesses: Iterable[Witness]) -> dict[str, Measured]:
    """Run each alone. Raises RuntimeError if one finds fault with the library as it is."""

    def work(witness: Witness, say: Callable[[str], None]) -> str:
        start, there = time.process_time(), set(sys.modules)
        with Tracer() as tracer:
            fault = witness.run(None)
        loaded = [name for name in sys.modules if name.startswith(THEIRS) and name not in there]
        return "fault" if fault else json.dumps([time.process_time() - start, tracer.lines(), loaded])

    found = {}
    for witness in witnesses:
        returned, _ = in_fork(lambda say, witness=witness: work(witness, say))
        if not returned.startswith("["):
            raise RuntimeError(f"{witness.name} finds fault with the library as it is ({returned})")
        *measured, loaded = json.loads(returned)
        found[witness.name] = Measured(*measured)
        load(loaded)  # once here, and not in the fork of each that needs it
        LOADED.update(loaded)
    return found


def load(names: Iterable[str]) -> None:
    """Import what can be imported of these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _now(of: Sequence[Path], modules: Iterable[str]) -> str:
    return digest(*of, *(path for module in modules if (path := LIBRARY / f"{module}.py").exists()))


def digest(*paths: Path) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()[:12]
