"""How far are the numbers that the tests compare from their limits? (`.venv/bin/python -m tools.margins_of_tests`)

As `tools/margins.py` asks of the chapters: the test files that draw numbers are run with ten sets of seeds, their
assertions turned into recordings. What lies within two standard deviations of its limit, or does not hold with other
seeds, is an open point, unless `tools/margins_of_tests.toml` has a reason. Checks draw their cases from the same
generators, so a right answer that other draws would make lose points is found here too.
"""

import argparse
import importlib.abc
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tools import files
from tools.assertions import RECORDER, Assertion, Recorder, rewrite
from tools.margins import (
    LEAST_DISTANCE,
    SHIFTS,
    STEP,
    Distance,
    Run,
    as_json,
    distances,
    environment,
    from_json,
    shift_seeds,
)
from tools.reasons import listed, says

TESTS = files.ROOT / "tests"
REASONS = Path(__file__).with_suffix(".toml")
DRAWS = re.compile(r"manual_seed|default_rng|torch\.rand|Generator\(")
SURVEYS = {"test_margins.py", "test_margins_of_tests.py"}  # shift seeds themselves
Reasons = Mapping[tuple[str, ...], str]  # by file and pattern of an assertion


def drawing(folder: Path = TESTS) -> list[Path]:
    """The test files that draw numbers."""
    paths = [path for path in sorted(folder.glob("test_*.py")) if path.name not in SURVEYS]
    return [path for path in paths if DRAWS.search(path.read_text(encoding="utf-8"))]


# ---- one run


class Recording(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports test files with recordings in place of their assertions, and hears which tests end with an error."""

    def __init__(self, paths: Sequence[Path]):
        self.paths = {path.stem: path for path in paths}
        self.recorder, self.assertions, self.errors = Recorder(), list[Assertion](), dict[str, str]()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self.paths:
            return None
        return importlib.util.spec_from_file_location(name, self.paths[name], loader=self)

    def exec_module(self, module: ModuleType) -> None:
        path = self.paths[module.__name__]
        vars(module)[RECORDER] = self.recorder
        tree = rewrite(path.read_text(encoding="utf-8"), path.name, self.assertions)
        exec(compile(tree, str(path), "exec", dont_inherit=True), vars(module))

    def pytest_exception_interact(self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo) -> None:
        self.errors[node.nodeid] = call.excinfo.exconly(tryshort=True)


def run(paths: Sequence[Path], shift: int) -> Run:
    """Run the quick tests of these files in this process, which ought to be one of its own: seeds stay shifted."""
    shift_seeds(shift * STEP)
    shift_numpy(shift * STEP)
    recording = Recording(paths)
    sys.meta_path.insert(0, recording)
    options = ["-q", "--assert=plain", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist"]
    start = time.perf_counter()
    code = pytest.main([*options, *map(str, paths)], plugins=[recording])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"the tests did not run: {code!r}")
    heard = recording.recorder
    seconds = time.perf_counter() - start
    return Run(recording.assertions, heard.margins, heard.held, heard.kinds, recording.errors, "", seconds)


def shift_numpy(by: int) -> None:
    """Add a number to every seed that is given to numpy's generators from now on."""
    plain = np.random.default_rng
    np.random.default_rng = lambda seed: plain(seed + by if isinstance(seed, int) else seed)


def runs_of(paths: Sequence[Path], processes: int) -> list[Run]:
    """One run for each set of seeds, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(processes) as pool:
        kept = [Path(folder) / f"{shift}.json" for shift in range(SHIFTS)]
        return list(pool.map(lambda each: _run_elsewhere(paths, *each), enumerate(kept)))


def _run_elsewhere(paths: Sequence[Path], shift: int, place: Path) -> Run:
    command = [sys.executable, "-m", "tools.margins_of_tests", "--run", str(shift), str(place), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(1, "best"), cwd=files.ROOT)
    if done.returncode:
        raise RuntimeError(f"seeds + {shift * STEP}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = from_json(json.loads(place.read_text(encoding="utf-8")))
    print(f"seeds + {shift * STEP}: {found.seconds:.0f} s, {len(found.errors)} errors", flush=True)
    return found


# ---- what the runs say


def open_points(runs: Sequence[Run], reasons: Reasons) -> Iterator[str]:
    """What has no reason: comparisons that are too close, assertions that do not hold, tests that end with an error.

    An entry that none of these needs is an open point too.
    """
    assertions, needed = runs[0].assertions, set[tuple[str, ...]]()
    near = {each.assertion: each for each in distances(list(runs)) if each.sds < LEAST_DISTANCE}
    broken = {a: [s for s, run in enumerate(runs) if not all(run.held.get(a, []))] for a in range(len(assertions))}
    for number, assertion in enumerate(assertions):
        if not broken[number] and number not in near:
            continue
        if found := {key for key in reasons if key[0] == assertion.cell and says(key[1], assertion.source)}:
            needed |= found
        elif broken[number]:
            seeds = ", ".join(f"+ {shift * STEP}" for shift in broken[number])
            yield f"{assertion.cell}: with seeds {seeds} not: {assertion.source}"
        else:
            yield f"{assertion.cell}: {words(near[number])}: {assertion.source}"
    for shift, run in enumerate(runs):
        for test, error in run.errors.items():
            if found := {key for key in reasons if key[0] == Path(test.split("::")[0]).name and says(key[1], error)}:
                needed |= found
            else:
                yield f"{test}, seeds + {shift * STEP}: {error}"
    yield from (f"not needed: {file}: {pattern}" for file, pattern in reasons if (file, pattern) not in needed)


def closest(runs: Sequence[Run]) -> Iterator[str]:
    """How much was compared, and what came closest to its limit."""
    assertions, found = runs[0].assertions, distances(list(runs))
    varying = sorted((each for each in found if each.sd > 0), key=lambda each: each.sds)
    yield f"{len(assertions)} assertions, {len(found)} comparisons of numbers, {len(varying)} depend on seeds; closest:"
    for each in varying[:10]:
        yield f"  {assertions[each.assertion].cell}: {words(each)}: {assertions[each.assertion].source}"


def words(distance: Distance) -> str:
    return f"{distance.sds:.2f} standard deviations from its limit (mean {distance.mean:.3g}, sd {distance.sd:.3g})"


def read_reasons(text: str) -> Reasons:
    """Raises ValueError if an entry is twice there, or has no reason."""
    return listed(tomllib.loads(text).get("excused", []), ["file"], "asserts")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="test files (all that draw numbers)")
    parser.add_argument("--jobs", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--run", nargs=2, metavar=("SHIFT", "PLACE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    paths = [path.resolve() for path in given.paths] or drawing()
    if given.run:
        made = run(paths, int(given.run[0]))
        files.write_text(json.dumps(as_json(made)), Path(given.run[1]))
        return 0
    names = {path.name for path in paths}
    reasons = {key: why for key, why in read_reasons(REASONS.read_text(encoding="utf-8")).items() if key[0] in names}
    runs = runs_of(paths, given.jobs)
    points = list(open_points(runs, reasons))
    print(*closest(runs), *points, f"{len(points)} open points", sep="\n")
    return len(points) > 0


if __name__ == "__main__":
    sys.exit(main())
