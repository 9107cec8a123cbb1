"""The book's letters: what `book/notation.toml` says, the page made from it (`make pages`), and what breaks it."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tools import prose

SOURCE = "book/notation.toml"
_COLUMNS = {"write": "symbol", "shape": "shape", "meaning": "meaning", "in_code": "in code"}
_RULES = ("never", "never_in_code")


class NotationError(ValueError):
    """`book/notation.toml` is not what it should be: where, and why."""


@dataclass(frozen=True)
class Rule:
    """What must not be written in place of a symbol: in a formula, or (`in_code`) between backticks."""

    symbol: str
    meaning: str
    pattern: re.Pattern[str]
    example: str
    in_code: bool


def breaches(text: str, rules: Iterable[Rule]) -> list[str]:
    """Each formula and each name of a Markdown text that breaks a rule, with what to write."""
    names, formulas = prose.inline_code(text), prose.formulas(text)
    return [
        f"{_shown(piece, rule)} has {found.group()!r}: write {rule.symbol} ({rule.meaning})"
        for rule in rules
        for piece in (names if rule.in_code else formulas)
        if (found := rule.pattern.search(piece))
    ]


def _shown(piece: str, rule: Rule) -> str:
    mark = "`" if rule.in_code else "$"
    return f"{mark}{' '.join(piece.split())}{mark}"


def declared(text: str) -> dict:
    """The tables of `book/notation.toml`, given as text. Raises NotationError for a field that nobody reads."""
    try:
        groups = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotationError(f"{SOURCE}: {error}") from None
    for group in groups["group"]:
        for symbol in group["symbol"]:
            if unknown := symbol.keys() - _COLUMNS.keys() - set(_RULES):
                raise NotationError(f"{SOURCE}: {symbol['write']} has {sorted(unknown)}, which nobody reads")
    return groups


def rules(text: str) -> Iterator[Rule]:
    """Every rule of `book/notation.toml`, given as text."""
    for group in declared(text)["group"]:
        for symbol in group["symbol"]:
            for field in _RULES:
                written = symbol.get("in_code", symbol["write"]) if field == "never_in_code" else symbol["write"]
                for pattern, example in symbol.get(field, []):
                    yield Rule(written, symbol["meaning"], re.compile(pattern), example, field == "never_in_code")


# ---- the page


def page(text: str) -> str:
    """`book/notation.md`. `text` is that of `book/notation.toml`."""
    book = declared(text)
    parts = ["# Notation", f"<!-- Made by `make pages` from {SOURCE}. Do not edit. -->", book["before"].strip()]
    for group in book["group"]:
        parts += [f"## {group['title']}", _table(group["symbol"])]
        parts += [group["after"].strip()] if "after" in group else []
    return "\n\n".join(parts) + "\n"


def _table(symbols: list[dict[str, str]]) -> str:
    used = [field for field in _COLUMNS if any(field in symbol for symbol in symbols)]
    rows = [[_COLUMNS[field] for field in used], ["---"] * len(used)]
    rows += [[symbol.get(field, "").replace("|", r"\|") for field in used] for symbol in symbols]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
