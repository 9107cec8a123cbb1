"""The glossary: what `book/glossary.toml` says, and the page made from it (`make pages`).

`book/_ext/glossary_links.py` reads the same file when the site is built. It links each chapter's first use of a term,
and tells the search which section a term belongs to.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

SOURCE = "book/glossary.toml"
PAGE = "book/glossary"
_NEEDED = {"name", "says", "where", "forms"}
_ALLOWED = _NEEDED | {"not", "see", "search"}
_SIGNS = {
    "omega": "ω",
    "tau": "τ",
    "pi": "π",
    "varphi": "φ",
    "rho": "ρ",
    "sum": "Σ",
    "sqrt": "√",
    "pm": "±",
    "times": " × ",
    "cdot": " · ",
    "ln": "ln",
    "sin": "sin ",
    "cos": "cos ",
    ",": " ",
}


class GlossaryError(ValueError):
    """The glossary does not fit together, or does not fit the chapters: which entry, and why."""


@dataclass(frozen=True)
class Term:
    """An entry. `chapter` and `cell` are where it is shown, `forms` the strings that count as it in a chapter."""

    name: str
    says: str
    chapter: int
    cell: str
    forms: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    see: tuple[str, ...] = ()
    search: tuple[str, ...] = ()

    @property
    def anchor(self) -> str:
        return anchor(self.name)

    @property
    def hint(self) -> str:
        """The first sentence, without Markdown and LaTeX, for a title that a browser shows as it is."""
        return plain(re.split(r"(?<=[.)])\s+(?=[A-Z(])", self.says, maxsplit=1)[0])

    @property
    def phrases(self) -> list[str]:
        """What one may type into a search box to find it."""
        return sorted({each.lower() for each in (self.name, *self.forms, *self.search)})


@dataclass(frozen=True)
class Glossary:
    """The entries in the order of the file, and for each page what a search finds it by."""

    terms: tuple[Term, ...]
    pages: Mapping[str, tuple[str, ...]]


def anchor(name: str) -> str:
    """The address of an entry within its page: `term-kv-cache`."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"['’]", "", name.lower()))
    return "-".join(["term", *words])


def plain(text: str) -> str:
    """Markdown with formulas as plain text: `$q_i \\cdot k_j$` becomes `q_i · k_j`."""
    text = re.sub(r"\$(.+?)\$", lambda formula: _plain_formula(formula.group(1)), text)
    return re.sub(r"[*`]", "", text)


def _plain_formula(tex: str) -> str:
    tex = re.sub(r"\^\{(.{2,}?)\}", r"^(\1)", tex)
    tex = re.sub(r"\\([A-Za-z]+|,) *", lambda command: _SIGNS[command.group(1)], tex)
    return " ".join(re.sub(r"[{}]", "", tex).replace("-", "−").replace("^2", "²").split())


# ---- reading


def read(text: str) -> Glossary:
    """The glossary that `text` (TOML) declares. Raises GlossaryError for what cannot be one."""
    try:
        declared = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise GlossaryError(f"{SOURCE}: {error}") from None
    terms = tuple(map(_term, declared.get("term", [])))
    _demand_one_meaning(terms)
    names = {term.name for term in terms}
    for term in terms:
        for name in term.see:
            if name not in names - {term.name}:
                raise GlossaryError(f"{SOURCE}: {term.name} says to see {name}, which is no other entry")
    return Glossary(terms, {page: tuple(words) for page, words in declared.get("pages", {}).items()})


def _term(entry: dict) -> Term:
    if not entry.keys() >= _NEEDED or not entry.keys() <= _ALLOWED:
        name = entry.get("name", entry)
        raise GlossaryError(f"{SOURCE}: {name} needs {sorted(_NEEDED)}, may have {sorted(_ALLOWED - _NEEDED)}, no more")
    lists = [tuple(entry.get(field, ())) for field in ("forms", "not", "see", "search")]
    if not lists[0]:
        raise GlossaryError(f"{SOURCE}: {entry['name']} has no form by which a chapter could use it")
    return Term(entry["name"], entry["says"].strip(), *entry["where"], *lists)


def _demand_one_meaning(terms: Iterable[Term]) -> None:
    meant: dict[str, str] = {}
    for term in terms:
        for form in (term.anchor, *dict.fromkeys(form.lower() for form in term.forms)):
            if form in meant:
                raise GlossaryError(f"{SOURCE}: {form!r} means both {meant[form]} and {term.name}")
            meant[form] = term.name


# ---- finding terms in prose


class Finder:
    """Finds the terms in a piece of text: whole words, the longest form first.

    A form in small letters may also begin a sentence; one with a capital counts exactly as it is written.
    """

    def __init__(self, terms: Iterable[Term]) -> None:
        terms = tuple(terms)
        self._meant = {form.lower(): term for term in terms for form in term.forms}
        known = [form for term in terms for form in (*term.forms, *term.excluded)]
        words = "|".join(map(_pattern, sorted(known, key=len, reverse=True)))
        self._words = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])")

    def __call__(self, text: str) -> list[tuple[int, int, Term]]:
        """Each use of a term in the text: where it begins and ends, and which term it is."""
        found = []
        for match in self._words.finditer(text):
            form = re.sub(r"\s+", " ", match.group()).replace("’", "'").lower()
            if form in self._meant:
                found.append((*match.span(), self._meant[form]))
        return found


def _pattern(form: str) -> str:
    words = r"\s+".join(re.escape(word) for word in form.split()).replace("'", "['’]")
    return f"[{form[0]}{form[0].upper()}]{words[1:]}" if form[0].islower() else words


# ---- the page

_HEAD = """\
# Glossary

<!-- Made by `make pages` from {source}. Do not edit. -->

{count} words of this book, each in a sentence or two. The chapter's number leads to the place where it is built or \
shown. In a chapter, a dotted line marks the first use of each, and leads here."""


def page(glossary: Glossary, cells: Mapping[int, tuple[str, Iterable[str]]]) -> str:
    """`book/glossary.md`. cells: for each chapter its page and the ids of its cells. Raises GlossaryError."""
    terms = sorted(glossary.terms, key=lambda term: term.name.lower())
    parts = [_HEAD.format(source=SOURCE, count=len(terms))]
    for letter, group in groupby(terms, key=lambda term: term.name[0].upper()):
        parts += [f"## {letter}", *(_entry(term, cells) for term in group)]
    return "\n\n".join(parts) + "\n"


def _entry(term: Term, cells: Mapping[int, tuple[str, Iterable[str]]]) -> str:
    chapter, ids = cells.get(term.chapter, ("", ()))
    if term.cell not in ids:
        raise GlossaryError(
            f"{SOURCE}: {term.name} is shown in cell {term.cell} of chapter {term.chapter}, and there is no such cell"
        )
    shown = f"[Chapter {term.chapter}](../{chapter}.ipynb#cell-{term.cell})"
    see = ", ".join(f"[{name}](#{anchor(name)})" for name in term.see)
    return f"{term.name}\n: {term.says} {shown}." + (f" See {see}." if see else "")
