"""Files of results: written in one step, so that whoever is killed leaves the old one or the new one, never half."""

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Replace the file's content at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="")
    temporary.replace(path)


def sweep(folder: Path) -> None:
    """Remove what a killed run left half written."""
    for path in folder.rglob(".*.tmp"):
        path.unlink(missing_ok=True)


def file_names(students: Sequence[tuple[str, str]]) -> list[str]:
    """A file name for each (name, number): readable, safe on every system, and no two alike."""
    plain = [re.sub(r"[^\w.-]+", "_", "_".join(filter(None, student))).strip("._")[:60] for student in students]
    times = Counter(name.casefold() for name in plain)
    return [
        name
        if name == "_".join(filter(None, student)) and times[name.casefold()] == 1
        else f"{name}-{_digest(student)}"
        for name, student in zip(plain, students, strict=True)
    ]


def _digest(student: tuple[str, str]) -> str:
    return hashlib.sha256("\0".join(student).encode("utf-8", "surrogateescape")).hexdigest()[:8]
