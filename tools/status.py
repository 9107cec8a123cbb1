"""How the book is: each notebook's last run, and how far its checks and its library can be trusted (`make pages`).

`make notebooks` notes each run in `book/status.json`. The page also says how far the chapters' assertions are from
their limits, from `posenc/data/margins.json`, counts the mutants of the exercises and of the library, from
`posenc/data/mutants.json` and `library_mutants.json`, and the tests that compare with other libraries, from the tests.
"""

import ast
import json
import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path

from tools import files

RUNS = "book/status.json"
MUTANTS = "posenc/data/mutants.json"
BROKEN = "posenc/data/library_mutants.json"
MARGINS = "posenc/data/margins.json"
VERSIONS = ("numpy", "torch", "matplotlib", "transformers")
LIBRARIES = {
    "transformers": "transformers",
    "timm": "timm",
    "x_transformers": "x-transformers",
    "rotary_embedding_torch": "rotary-embedding-torch",
    "positional_encodings": "positional-encodings",
}
NOTICED = ("tests", "exercises", "chapters")
INTRO = """\
# Status

<!-- Made by `make pages` from book/status.json, margins.json, mutants.json and library_mutants.json in posenc/data, \
and the tests. Do not edit. -->

Every notebook is run again, and what it prints compared, before a change is published. Here is what the last runs \
took, and what stands behind the word *checked*."""
NOTEBOOKS = """\
## Notebooks

On {machine}. Two notebooks ran side by side. Times are for comparing notebooks with one another: another machine has \
others."""
DISTANCES = """\
## How far from their limits?

The chapters assert {assertions} things, and compare {comparisons:,} numbers in them. Would other seeds, or another \
machine, give the same answers? `make margins` runs each chapter {shifts} times, each time with all its seeds moved. \
The distance of a number from its limit is counted in standard deviations over these runs. None may be closer than 2. \
Not asked are {excused} assertions that say something of the book's own seeds, or rest on a theorem or a clock. \
`tools/margins.toml` gives each its reason.

With the book's own seeds each chapter then runs on two threads in place of one, and with other kernels ({kernels} in \
torch's words). Every assertion holds each time. *Moved* is how far a number went at most, as a share of its way to \
the limit."""
MUTATION = """\
## Do the checks notice a mistake?

Each solution was changed in one place, in every way that we know: an operator, a number, an argument, a statement. \
`make mutants` asks the check of the exercise about each. Those that do the same as the solution are excused, each \
with its reason in `tools/mutants.toml`. Of {mutants:,} changed solutions {excused:,} are excused; of the others the \
checks find fault with **{share:.1%}**. (Run on {date}, with torch {torch}.)"""
BREAKING = """\
## Does anyone notice if the library is wrong?

The library was changed the same way, {mutants:,} times, and `make broken` asked the tests, then the checks of the \
exercises, then the chapters' own assertions. {excused:,} changes are excused, by a rule or with a reason in \
`tools/library_mutants.toml`; of the others **{share:.1%}** are noticed. (Run on {date}, with torch {torch}.)"""
PARITY = """\
## Compared with others

What other libraries compute too is compared with them in every test run: the same inputs, small random settings, no \
stored weights."""


def note(runs: Iterable[tuple[str, float, int, float]], root: Path = files.ROOT) -> None:
    """Add runs to `book/status.json`: notebook, seconds, peak memory in kB, size of the stored file in kB each."""
    path = root / RUNS
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    today, machine = date.today().isoformat(), this_machine()
    for name, seconds, peak, stored in runs:
        known[name] = {
            "seconds": round(seconds, 1),
            "peak_mb": round(peak / 1000),
            "stored_kb": round(stored),
            "date": today,
            "machine": machine,
        }
    kept = {name: known[name] for name in map(files.name, files.notebooks(root)) if name in known}
    files.write_text(json.dumps(kept, indent=1) + "\n", path)


def this_machine() -> str:
    """Processors and versions, in words. Notebooks that find a GPU use it, so it is named too."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    packages = ", ".join(f"{name} {version(name).partition('+')[0]}" for name in VERSIONS)
    return (
        f"{os.cpu_count()} processors ({platform.machine()}), {device}, Python {platform.python_version()}, {packages}"
    )


def page(root: Path = files.ROOT) -> str:
    """`book/status.md`. Raises ValueError if a notebook has no run."""
    runs = json.loads((root / RUNS).read_text(encoding="utf-8"))
    if missing := [name for name in map(files.name, files.notebooks(root)) if name not in runs]:
        raise ValueError(f"{RUNS} has no run of {', '.join(missing)}: run `make notebooks`")
    machines = sorted({run["machine"] for run in runs.values()})
    parts = [INTRO, NOTEBOOKS.format(machine="; or ".join(machines)), _table(*notebook_rows(runs))]
    parts += [*distances(json.loads((root / MARGINS).read_text(encoding="utf-8")))]
    broken = json.loads((root / BROKEN).read_text(encoding="utf-8"))
    parts += [mutation(json.loads((root / MUTANTS).read_text(encoding="utf-8")))]
    parts += [breaking(broken), _table(*broken_rows(broken["modules"])), PARITY, _table(*parity_rows(root))]
    return "\n\n".join(parts) + "\n"


def notebook_rows(runs: dict[str, dict]) -> tuple[Sequence[str], list[list[str]]]:
    rows = []
    for name, run in runs.items():
        link = f"[{name.removesuffix('.ipynb')}](../{name})"
        rows.append([link, f"{run['seconds']:.0f}", f"{run['peak_mb']:,}", f"{run['stored_kb']:,}", run["date"]])
    return ("notebook", "seconds", "peak memory, MB", "stored, kB", "last run"), rows


def distances(stored: dict) -> tuple[str, str]:
    """How far the chapters' assertions are from their limits, in words and as a table."""
    rows = stored["notebooks"]
    words = DISTANCES.format(
        assertions=sum(row["assertions"] for row in rows.values()),
        comparisons=sum(row["comparisons"] for row in rows.values()),
        excused=sum(sum(row["excused"].values()) for row in rows.values()),
        shifts=stored["made"]["shifts"],
        kernels=", ".join(sorted({m["kernels"] for row in rows.values() for m in row["machines"].values()})),
    )
    head = "chapter", "assertions", "numbers", "closest, standard deviations", "moved", "run"
    return words, _table(head, [_distance_row(name, row) for name, row in rows.items()])


def _distance_row(name: str, row: dict) -> list[str]:
    closest, *_ = row["closest"]
    most = max((machine["most"] for machine in row["machines"].values()), key=lambda each: each["share"])
    return [
        f"[{name.removesuffix('.ipynb')}](../{name})",
        str(row["assertions"]),
        str(row["comparisons"]),
        f"[{closest['sds']:.1f}](../{name}#cell-{closest['cell']})",
        f"[{most['share']:.0%}](../{name}#cell-{most['cell']})",
        row["date"],
    ]


def mutation(stored: dict) -> str:
    counts = stored["exercises"].values()
    total, caught, excused = (sum(each[key] for each in counts) for key in ("mutants", "caught", "excused"))
    made = stored["made"]
    return MUTATION.format(
        mutants=total, excused=excused, share=caught / (total - excused), date=made["date"], torch=made["torch"]
    )


def breaking(stored: dict) -> str:
    counts, made = stored["modules"].values(), stored["made"]
    total, excused = (sum(each[key] for each in counts) for key in ("mutants", "excused"))
    noticed = sum(each[key] for each in counts for key in NOTICED)
    return BREAKING.format(
        mutants=total, excused=excused, share=noticed / (total - excused), date=made["date"], torch=made["torch"]
    )


def broken_rows(modules: dict[str, dict]) -> tuple[Sequence[str], list[list[str]]]:
    """For each module: its mutants, and who noticed how many."""
    keys = ("mutants", *NOTICED, "excused")
    rows = [
        [f"`{name}`", *(f"{row[key]:,}" for key in keys), str(len(row["survivors"]))] for name, row in modules.items()
    ]
    return ("module", "changes", "seen by tests", "by exercises", "by chapters", "excused", "unnoticed"), rows


def parity_rows(root: Path) -> tuple[Sequence[str], list[list[str]]]:
    """For each chapter: with which libraries it is compared, and in how many tests."""
    rows = []
    for path in sorted((root / "tests").glob("test_parity_*.py")):
        text = path.read_text(encoding="utf-8")
        tests = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]
        named = [words for name, words in LIBRARIES.items() if re.search(rf"\b{name}\b", text)]
        rows.append([str(int(path.stem[-2:])), ", ".join(named), str(len(tests))])
    return ("chapter", "compared with", "tests"), rows


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
