"""How the book is: each notebook's last run, and how far its checks and its library can be trusted (`make pages`).

`make notebooks` notes each run in `book/status.json`. The page also counts the mutants of the exercises, from
`posenc/data/mutants.json`, and the tests that compare with other libraries, from the tests themselves.
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
VERSIONS = ("numpy", "torch", "matplotlib", "transformers")
LIBRARIES = {
    "transformers": "transformers",
    "timm": "timm",
    "x_transformers": "x-transformers",
    "rotary_embedding_torch": "rotary-embedding-torch",
    "positional_encodings": "positional-encodings",
}
INTRO = """\
# Status

<!-- Made by `make pages` from book/status.json, posenc/data/mutants.json and the tests. Do not edit. -->

Every notebook is run again, and what it prints compared, before a change is published. Here is what the last runs \
took, and what stands behind the word *checked*."""
NOTEBOOKS = """\
## Notebooks

On {machine}. Two notebooks ran side by side. Times are for comparing notebooks with one another: another machine has \
others."""
MUTATION = """\
## Do the checks notice a mistake?

Each solution was changed in one place, in every way that we know: an operator, a number, an argument, a statement. \
`make mutants` asks the check of the exercise about each. Those that do the same as the solution are excused, each \
with its reason in `tools/mutants.toml`. Of {mutants:,} changed solutions {excused:,} are excused; of the others the \
checks find fault with **{share:.1%}**. (Run on {date}, with torch {torch}.)"""
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
    parts += [mutation(json.loads((root / MUTANTS).read_text(encoding="utf-8"))), PARITY, _table(*parity_rows(root))]
    return "\n\n".join(parts) + "\n"


def notebook_rows(runs: dict[str, dict]) -> tuple[Sequence[str], list[list[str]]]:
    rows = []
    for name, run in runs.items():
        link = f"[{name.removesuffix('.ipynb')}](../{name})"
        rows.append([link, f"{run['seconds']:.0f}", f"{run['peak_mb']:,}", f"{run['stored_kb']:,}", run["date"]])
    return ("notebook", "seconds", "peak memory, MB", "stored, kB", "last run"), rows


def mutation(stored: dict) -> str:
    counts = stored["exercises"].values()
    total, caught, excused = (sum(each[key] for each in counts) for key in ("mutants", "caught", "excused"))
    made = stored["made"]
    return MUTATION.format(
        mutants=total, excused=excused, share=caught / (total - excused), date=made["date"], torch=made["torch"]
    )


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
