"""How far is every asserted margin of the chapters from its limit (`make margins`)?

Each notebook is run with ten sets of seeds: the book's own, then every seed plus 1000, plus 2000, and so on. Nothing
is demanded in these runs. `tools/assertions.py` turns each assertion into a recording. A margin's distance is its mean
over the ten runs in standard deviations: a number two standard deviations from its limit would break it on some
machine some day. What says something of the book's own seeds alone stands in `tools/margins.toml`, with its reason.

The book's own seeds are then run with two threads in place of one, and with AVX2's or plain kernels in place of the
machine's best: every assertion must hold, and no value may move by more than half its way to the limit.

The runs are kept in `_build/margins/`, so an interrupted survey goes on. A survey of all notebooks is stored in
`posenc/data/margins.json`.
"""

import argparse
import contextlib
import hashlib
import io
import json
import linecache
import math
import multiprocessing
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import tomllib
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from tools import files
from tools.assertions import RECORDER, Assertion, Key, Margin, Recorder, rewrite
from tools.reasons import listed, says

REASONS = Path(__file__).with_suffix(".toml")
RESULTS = files.ROOT / "posenc" / "data" / "margins.json"
RUNS = files.ROOT / "_build" / "margins"
SHIFTS = 10
STEP = 1000  # between the seeds of two runs; the book's own seeds lie within 1000
LEAST_DISTANCE = 2.0  # standard deviations
LARGEST_MOVE = 0.5  # of the way to the limit, between threads and kernels
KERNELS = {
    "best": {},
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "NPY_DISABLE_CPU_FEATURES": "AVX512",
    },
    "plain": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "NPY_DISABLE_CPU_FEATURES": "",
    },
}
UNSHIFTED = re.compile(r"np\.random|numpy\.random|^\s*(import|from) random\b", re.MULTILINE)


@dataclass(frozen=True)
class Settings:
    """How a notebook is run: what is added to its seeds, threads, and which kernels (a key of `KERNELS`)."""

    shift: int = 0
    threads: int = 1
    kernels: str = "best"


NEVER = Margin(math.nan, math.nan, -math.inf)  # of a comparison that was not made
SEEDS = [Settings(shift) for shift in range(SHIFTS)]
MACHINES = [Settings(threads=2), Settings(kernels="AVX2"), Settings(kernels="plain")]


@dataclass(frozen=True)
class Run:
    """What one run of a notebook recorded. errors: of cells that did not come to their end, by id."""

    assertions: list[Assertion]
    margins: dict[Key, Margin]
    held: dict[int, list[bool]]
    kinds: dict[int, set[str]]
    errors: dict[str, str]
    capability: str
    seconds: float


# ---- one run


def run(notebook: NotebookNode, folder: Path, settings: Settings) -> Run:
    """Run the notebook's code cells in this process, which ought to be one of its own: seeds stay shifted."""
    import torch

    torch.set_num_threads(settings.threads)
    shift_seeds(settings.shift * STEP)
    draw_nothing()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    recorder, assertions, errors = Recorder(), [], {}
    vars(main)[RECORDER] = recorder
    start = time.perf_counter()
    for cell in code_cells(notebook):
        name = f"<cell {cell.id}>"
        linecache.cache[name] = len(cell.source), None, cell.source.splitlines(keepends=True), name
        code = compile(rewrite(cell.source, cell.id, assertions), name, "exec")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(code, vars(main))
        except Exception as error:
            errors[cell.id] = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - start
    capability = torch.backends.cpu.get_cpu_capability()
    return Run(assertions, recorder.margins, recorder.held, recorder.kinds, errors, capability, seconds)


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """All but the one that fetches the library in Colab. Raises ValueError for a seed that `shift_seeds` misses."""
    cells = [c for c in notebook.cells if c.cell_type == "code" and "google.colab" not in c.source]
    if missed := [c.id for c in cells if UNSHIFTED.search(c.source)]:
        raise ValueError(f"cells {', '.join(missed)} draw from numpy's or Python's generators, which are not shifted")
    return cells


def shift_seeds(by: int) -> None:
    """Add a number to every seed that is given to torch from now on."""
    import torch

    plain = torch.manual_seed

    class Generator(torch.Generator):
        def manual_seed(self, seed: int) -> torch.Generator:
            return super().manual_seed(seed + by)

    torch.Generator = Generator
    torch.manual_seed = lambda seed: plain(seed + by)


def draw_nothing() -> None:
    """Figures are made and checked for their words, not drawn: that takes longest, and asserts nothing."""
    import matplotlib

    matplotlib.use("Agg")
    from posenc import explore, figures

    figures.display = explore.display = lambda *_, **__: None


def as_json(run: Run) -> dict[str, Any]:
    return {
        "assertions": [[a.cell, a.source, a.comparisons] for a in run.assertions],
        "margins": [[*key, m.left, m.right, m.margin] for key, m in run.margins.items()],
        "held": list(run.held.items()),
        "kinds": [[assertion, sorted(kinds)] for assertion, kinds in run.kinds.items()],
        "errors": run.errors,
        "capability": run.capability,
        "seconds": run.seconds,
    }


def from_json(kept: dict[str, Any]) -> Run:
    return Run(
        [Assertion(*each) for each in kept["assertions"]],
        {(a, b, c): Margin(*numbers) for a, b, c, *numbers in kept["margins"]},
        dict(kept["held"]),
        {assertion: set(kinds) for assertion, kinds in kept["kinds"]},
        kept["errors"],
        kept["capability"],
        kept["seconds"],
    )


# ---- many runs


def digest(notebook: NotebookNode) -> str:
    """Differs as soon as the notebook's code does."""
    return hashlib.sha256("\0".join(c.source for c in code_cells(notebook)).encode()).hexdigest()[:12]


def asserting(paths: Iterable[Path]) -> list[Path]:
    """The notebooks among them that assert something in their code."""
    return [
        p for p in paths if any(re.search(r"^\s*assert ", c.source, re.MULTILINE) for c in code_cells(files.read(p)))
    ]


def kept_at(path: Path, settings: Settings) -> Path:
    how = f"{settings.threads}-{settings.kernels}-{settings.shift}"
    return RUNS / f"{path.parent.name}-{path.stem}" / f"{digest(files.read(path))}-{how}.json"


def kept(path: Path, settings: Settings) -> Run:
    return from_json(json.loads(kept_at(path, settings).read_text(encoding="utf-8")))


def make(paths: list[Path], wanted: list[Settings]) -> None:
    """Make the runs that are not kept yet. Threads and kernels are chosen before torch is loaded, so each such
    choice gets a process of its own."""
    machines = sorted({(s.threads, s.kernels) for s in wanted}, key=lambda machine: (machine != (1, "best"), machine))
    for threads, kernels in machines:
        shifts = [s.shift for s in wanted if (s.threads, s.kernels) == (threads, kernels)]
        missing = [(p, k) for k in shifts for p in paths if not kept_at(p, Settings(k, threads, kernels)).exists()]
        if missing:
            command = [sys.executable, "-m", "tools.margins", "--make", f"{threads}", kernels]
            given = json.dumps([[str(p), k, str(kept_at(p, Settings(k, threads, kernels)))] for p, k in missing])
            subprocess.run(
                command, input=given, text=True, check=True, env=environment(threads, kernels), cwd=files.ROOT
            )


def environment(threads: int, kernels: str) -> dict[str, str]:
    """Loops over sets run in the same order each time, so that runs can be compared time by time."""
    chosen = dict(KERNELS[kernels])
    if "NPY_DISABLE_CPU_FEATURES" in chosen:
        chosen["NPY_DISABLE_CPU_FEATURES"] = " ".join(numpy_features(above=chosen["ATEN_CPU_CAPABILITY"]))
    number = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0"}
    return os.environ | chosen | number | {"MPLBACKEND": "Agg"}


def numpy_features(above: str) -> list[str]:
    """The kernels that numpy would choose on this machine above AVX2's (avx2), or above the plain ones (default)."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    beyond = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    return [name for name in beyond if above == "default" or name not in ("AVX2", "FMA3", "X86_V3")]


def make_here(threads: int, kernels: str, missing: list[tuple[str, int, str]]) -> None:
    """Each run in a fork of this process, which has loaded the libraries and used none of them."""
    import torch  # noqa: F401

    from posenc import explore, figures, model  # noqa: F401

    for name, shift, place in missing:
        settings = Settings(shift, threads, kernels)
        if Path(place).exists() or not Path(place).name.startswith(digest(files.read(Path(name)))):
            continue  # another survey was quicker, or the notebook has changed
        given = Path(name), settings, Path(place)
        child = multiprocessing.get_context("fork").Process(target=_run_and_keep, args=given)
        child.start()
        child.join()
        if child.exitcode:
            raise RuntimeError(f"{name}, {settings} ended with {child.exitcode}")


def _run_and_keep(path: Path, settings: Settings, place: Path) -> None:
    made = run(files.read(path), path.parent, settings)
    files.write_text(json.dumps(as_json(made)), place)
    broken = sum(not all(times) for times in made.held.values())
    words = f"{settings.threads} threads, {made.capability}, seeds + {settings.shift * STEP}: {made.seconds:.0f} s"
    print(f"{files.name(path)}, {words}, {broken} broken, {len(made.errors)} errors", flush=True)


# ---- what the runs say


@dataclass(frozen=True)
class Distance:
    """How far a comparison is from its limit, over the seeds.

    sds: mean of its margin in standard deviations, infinite where no seed moves it. A positive number that has to stay
    above a positive limit is a size, and varies by factors (0.2, or 2, against 0.001): it is measured in logarithms
    too, and the farther counts.
    mean, sd, least: of its margin.
    """

    assertion: int
    comparison: int
    sds: float
    mean: float
    sd: float
    least: float


def distances(runs: list[Run]) -> list[Distance]:
    """Of every comparison. One that runs several times, in a loop, counts each time; here stands its closest."""
    closest: dict[tuple[int, int], Distance] = {}
    for (assertion, _, comparison), margins in _aligned(runs).items():
        values = [each.margin for each in margins]
        sds, mean, sd = _distance(values)
        if all(each.left > 0 and each.right > 0 for each in margins):
            sds = max(sds, _distance([_in_logarithms(each) for each in margins])[0])
        found = Distance(assertion, comparison, sds, mean, sd, min(values))
        place = assertion, comparison
        if place not in closest or (sds, mean) < (closest[place].sds, closest[place].mean):
            closest[place] = found
    return list(closest.values())


def _distance(values: list[float]) -> tuple[float, float, float]:
    """Mean in standard deviations, mean, standard deviation. Endless values are far if all are on one side."""
    if len(set(values)) == 1 or any(map(math.isinf, values)):
        return math.copysign(math.inf, min(values)), min(values), 0.0
    mean, sd = statistics.fmean(values), statistics.stdev(values)
    return mean / sd, mean, sd


def _in_logarithms(margin: Margin) -> float:
    return math.copysign(math.log(margin.left / margin.right), margin.margin)


def _aligned(runs: list[Run]) -> dict[Key, list[Margin]]:
    """The margins of each comparison over the runs: time by time if it ran as often in each, else the worst of each."""
    times = [{a: len(held) for a, held in run.held.items()} for run in runs]
    uneven = {a for run in times for a, n in run.items() if any(other.get(a) != n for other in times)}
    found: dict[Key, list[Margin]] = {}
    for run in runs:
        worst: dict[Key, Margin] = {}
        for (assertion, time_, comparison), margin in run.margins.items():
            key = assertion, 0 if assertion in uneven else time_, comparison
            worst[key] = min(margin, worst.get(key, margin), key=lambda each: each.margin)
        for key, margin in worst.items():
            found.setdefault(key, []).append(margin)
    return found


# ---- reasons


@dataclass(frozen=True)
class Reasons:
    """Assertions that the distance is not asked of, by (notebook's stem, cell, source), and why.

    tied: they say something of the book's own seeds, which stored results share.
    bounded: a theorem keeps them on their side of the limit, however close.
    timed: they compare durations, which no seed and no kernel decides.
    """

    tied: dict[tuple[str, str, str], str]
    bounded: dict[tuple[str, str, str], str]
    timed: dict[tuple[str, str, str], str]

    def kind(self, stem: str, assertion: Assertion) -> str:
        """tied, bounded, timed, or nothing."""
        found = [
            kind
            for kind in REASON_KINDS
            for notebook, cell, source in getattr(self, kind)
            if (notebook, cell) == (stem, assertion.cell) and says(source, assertion.source)
        ]
        return found[0] if found else ""


REASON_KINDS = ("tied", "bounded", "timed")


def read_reasons(text: str) -> Reasons:
    """What `margins.toml` says. Raises ValueError if an entry is twice there, or has no reason."""
    entries = tomllib.loads(text)
    found = {kind: listed(entries.get(kind, []), ["notebook", "cell"], "asserts") for kind in REASON_KINDS}
    keys = [key for known in found.values() for key in known]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{twice[0][1]}: {twice[0][2]!r} is excused twice")
    return Reasons(**found)


def idle(reasons: Reasons, stem: str, needing: set[tuple[str, str]]) -> list[str]:
    """Entries for a notebook that none of the assertions that need one, (cell, source), needs.

    A duration is one whether or not it came close this time.
    """
    return [
        f"{kind}: {stem}, {cell}: {source}"
        for kind in ("tied", "bounded")
        for notebook, cell, source in getattr(reasons, kind)
        if notebook == stem and not any(cell == c and says(source, said) for c, said in needing)
    ]


# ---- the survey of a notebook


@dataclass(frozen=True)
class Survey:
    """A notebook's row, as it is stored, and what is wrong with the reasons given for it."""

    row: dict[str, Any]
    unused: list[str]


def survey(stem: str, runs: list[Run], machines: dict[str, Run], reasons: Reasons) -> Survey:
    """What the runs say: `runs` with the book's own seeds first, then others; `machines` with its own seeds, by
    threads and kernels."""
    own = runs[0]
    kinds = {a: set().union(*(run.kinds.get(a, set()) for run in runs)) for a in range(len(own.assertions))}
    asked = distances(runs)
    near = {d.assertion for d in asked if d.sds < LEAST_DISTANCE}
    broken = {a for run in runs for a, held in run.held.items() if not all(held)}
    excused = {a: reasons.kind(stem, assertion) for a, assertion in enumerate(own.assertions)}
    counted = [d for d in asked if not excused[d.assertion]]
    moved = {name: moves(own, run) for name, run in machines.items()}
    needing = near | broken | {a for each in moved.values() for a, _, share in each if share > LARGEST_MOVE}
    row = {
        "assertions": len(own.assertions),
        "exact": sum(kind == {"exact"} for kind in kinds.values()),
        "opaque": [_where(own, a) for a, kind in kinds.items() if "opaque" in kind and "margin" not in kind],
        "comparisons": len(asked),
        "fixed": sum(d.sd == 0 for d in asked),
        "excused": {kind: sum(each == kind for each in excused.values()) for kind in REASON_KINDS},
        "closest": [_closest(own, d) for d in sorted(counted, key=lambda d: d.sds)[:3] if d.sds < math.inf],
        "machines": {name: _machine(own, machines[name], moved[name], excused) for name in machines},
        "open": [*_open(runs, counted, broken, excused)],
    }
    return Survey(row, idle(reasons, stem, {(own.assertions[a].cell, own.assertions[a].source) for a in needing}))


def _open(
    runs: list[Run], counted: list[Distance], broken: set[int], excused: dict[int, str]
) -> Iterator[dict[str, Any]]:
    """What has to be mended, in words."""
    own = runs[0]
    for distance in counted:
        if distance.sds < LEAST_DISTANCE:
            yield {**_where(own, distance.assertion, distance.comparison), "why": f"{distance.sds:.2f} sd"}
    for assertion in sorted(broken):
        shifts = [k for k, run in enumerate(runs) if not all(run.held.get(assertion, []))]
        if excused[assertion] not in ("tied", "timed") or 0 in shifts:
            yield {**_where(own, assertion), "why": f"broken with seeds + {', '.join(str(k * STEP) for k in shifts)}"}
    for k, run in enumerate(runs):
        for cell, error in run.errors.items():
            yield {"cell": cell, "says": error, "why": f"raised with seeds + {k * STEP}"}


def _where(run: Run, assertion: int, comparison: int | None = None) -> dict[str, Any]:
    found = run.assertions[assertion]
    return {"cell": found.cell, "says": found.source if comparison is None else found.comparisons[comparison]}


def _closest(run: Run, distance: Distance) -> dict[str, Any]:
    numbers = {name: _digits(getattr(distance, name)) for name in ("sds", "mean", "sd", "least")}
    return {**_where(run, distance.assertion, distance.comparison), **numbers}


def _digits(number: float, digits: int = 4) -> float:
    return float(f"{number:.{digits}g}")


def moves(own: Run, other: Run) -> list[tuple[int, int, float]]:
    """(assertion, comparison, share of the way to the limit that its value moved) between two runs. Sizes, as in
    `Distance`, are measured in logarithms too, and the smaller share counts."""
    found: dict[tuple[int, int], float] = {}
    for (assertion, _, comparison), margins in _aligned([own, other]).items():
        before, after = margins if len(margins) == 2 else [*margins, NEVER]
        share = _share(before.margin, after.margin)
        if all(each.left > 0 and each.right > 0 for each in (before, after)):
            share = min(share, _share(_in_logarithms(before), _in_logarithms(after)))
        found[assertion, comparison] = max(share, found.get((assertion, comparison), 0.0))
    return [(*place, share) for place, share in found.items()]


def _share(before: float, after: float) -> float:
    if before == after:
        return 0.0
    return abs(after - before) / before if before > 0 else math.inf


def _machine(own: Run, run: Run, moved: list[tuple[int, int, float]], excused: dict[int, str]) -> dict[str, Any]:
    """What a choice of threads and kernels changed."""
    asked = [each for each in moved if excused[each[0]] != "timed"]
    broken = [a for a, held in run.held.items() if not all(held) and excused[a] != "timed"]
    most = max(asked, key=lambda each: each[2], default=None)
    return {
        "kernels": run.capability,
        "broken": [_where(own, a) for a in broken] + [{"cell": c, "says": e} for c, e in run.errors.items()],
        "changed": sum(share > 0 for _, _, share in asked),
        "most": most and {**_where(own, *most[:2]), "share": _digits(most[2])},
        "far": [{**_where(own, a, c), "share": _digits(s)} for a, c, s in asked if s > LARGEST_MOVE],
    }


# ---- all of them


def surveyed(paths: list[Path], reasons: Reasons) -> dict[str, Survey]:
    """By notebook, from the runs that are kept."""
    return {files.name(path): _surveyed(path, reasons) for path in paths}


def _surveyed(path: Path, reasons: Reasons) -> Survey:
    runs = [kept(path, settings) for settings in SEEDS]
    machines = {f"{s.threads}, {s.kernels}": kept(path, s) for s in MACHINES}
    found = survey(path.stem, runs, machines, reasons)
    made = {
        "digest": digest(files.read(path)),
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": version("torch"),
    }
    return Survey(made | found.row, found.unused)


def problems(row: dict[str, Any]) -> list[str]:
    """What of a stored row must not be."""
    found = [f"{each['cell']}: {each['says']}: {each['why']}" for each in row["open"]]
    for name, machine in row["machines"].items():
        found += [f"{each['cell']}: {each['says']}: broken with {name}" for each in machine["broken"]]
        found += [f"{e['cell']}: {e['says']}: moved by {e['share']:.0%} with {name}" for e in machine["far"]]
    return found


def stored() -> dict[str, dict[str, Any]]:
    """The rows of the last surveys, by notebook."""
    return json.loads(RESULTS.read_text(encoding="utf-8"))["notebooks"]


def store(found: dict[str, Survey], paths: list[Path]) -> None:
    """Replace the rows of these notebooks. Rows of notebooks that are no more go."""
    rows = stored() if RESULTS.exists() else {}
    rows |= {name: each.row for name, each in found.items()}
    names = [files.name(path) for path in paths]
    kept_rows = {name: rows[name] for name in names if name in rows}
    made = {"command": "make margins", "shifts": SHIFTS, "step": STEP}
    files.write_text(json.dumps({"made": made, "notebooks": kept_rows}, indent=1, ensure_ascii=False) + "\n", RESULTS)


def report(found: dict[str, dict[str, Any]]) -> str:
    """The rows as a table, and the ten closest margins of all."""
    lines = [f"{'notebook':40} assertions  exact  margins  fixed  closest, sd"]
    for name, row in found.items():
        sds = f"{row['closest'][0]['sds']:.1f}" if row["closest"] else "-"
        counts = f"{row['assertions']:10} {row['exact']:6} {row['comparisons']:8} {row['fixed']:6}"
        lines.append(f"{Path(name).stem:40} {counts} {sds:>12}")
    closest = [(each, name) for name, row in found.items() for each in row["closest"]]
    for each, name in sorted(closest, key=lambda pair: pair[0]["sds"])[:10]:
        lines.append(f"{each['sds']:8.2f} sd  {Path(name).stem[:2]} {each['cell']}  {each['says']}")
    for name, row in found.items():
        for how, machine in row["machines"].items():
            most = machine["most"]
            words = f"{machine['changed']} changed"
            words += f", at most by {most['share']:.1%} of its way, {most['cell']}" if most else ""
            lines.append(f"{Path(name).stem[:2]}  threads and kernels {how} ({machine['kernels']}): {words}")
        lines += [f"{Path(name).stem[:2]}  no number in sight  {e['cell']}  {e['says']}" for e in row["opaque"]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (all that assert, if none is named)")
    parser.add_argument("--only", choices=("seeds", "threads"), help="make these runs only, and report nothing")
    parser.add_argument("--make", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        make_here(int(arguments.make[0]), arguments.make[1], json.load(sys.stdin))
        return 0
    everything = asserting(files.notebooks(folders=("chapters", "solutions")))
    paths = [path.resolve() for path in arguments.paths] or everything
    make(paths, {"seeds": SEEDS, "threads": MACHINES}.get(arguments.only, [*SEEDS, *MACHINES]))
    if arguments.only:
        return 0
    found = surveyed(paths, read_reasons(REASONS.read_text(encoding="utf-8")))
    store(found, everything)
    print(report({name: each.row for name, each in found.items()}))
    wrong = [f"{name}: {each}" for name, s in found.items() for each in problems(s.row)]
    wrong += [f"{REASONS.name} has a reason that nothing needs: {each}" for s in found.values() for each in s.unused]
    for each in wrong:
        print(f"error: {each}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
