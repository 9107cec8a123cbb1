"""Studies that take longer than a page may: a command measures, a small file keeps, the page reads.

The file says how it was made. It is written after every measurement, in one step, so a study can be stopped at any
time and goes on where it stopped.
"""

import json
import platform
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path

import torch

Measurement = tuple[tuple[str, ...], Callable[[], object]]


def fill(path: Path, command: str, measurements: Iterable[Measurement], report: Callable[[str], None] = print) -> None:
    """Make every measurement that the file does not have yet.

    Each comes with the keys under which its result is kept: ("seeds", "0", "as trained") becomes
    file["seeds"]["0"]["as trained"]. file["made"] holds the command, the date and the versions of the last one made.
    """
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for (*outer, last), measure in measurements:
        place = found
        for key in outer:
            place = place.setdefault(key, {})
        if last in place:
            continue
        place[last] = measure()
        found["made"] = {
            "command": command,
            "date": date.today().isoformat(),
            "python": platform.python_version(),
            "torch": torch.__version__,
        }
        _replace(path, json.dumps(found, separators=(",", ":")) + "\n")
        report(f"made: {', '.join((*outer, last))}")


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
