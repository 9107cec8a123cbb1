"""What a tool lets pass, each with its reason: entries of a TOML file, in which "…" stands for anything."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def says(pattern: str, text: str) -> bool:
    """Whether a pattern is the whole of a text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("…"))), text, re.DOTALL) is not None


def listed(entries: Iterable[Mapping[str, Any]], about: Sequence[str], what: str) -> dict[tuple[str, ...], str]:
    """The reasons, by what an entry is about (the values of these keys) and each pattern in its list `what`.

    Raises ValueError if a pattern is twice there, or has no reason.
    """
    found: dict[tuple[str, ...], str] = {}
    for entry in entries:
        for pattern in entry[what]:
            key = (*(entry[name] for name in about), pattern)
            if key in found:
                raise ValueError(f"{key[-2]}: {pattern!r} is excused twice")
            if not entry["because"].strip():
                raise ValueError(f"{key[-2]}: {pattern!r} has no reason")
            found[key] = entry["because"]
    return found
