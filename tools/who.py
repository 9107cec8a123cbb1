"""The page that says which released model uses what (`make pages`): chapter 13's table, computed from the settings."""

import functools

from posenc.production import Row, survey

HEAD = ("model", "year", "scheme", "doors", "base", "layout", "features turned", "layers")
INTRO = """\
# Who uses what

<!-- Made by `make pages` from posenc/production.py and the released settings. Do not edit. -->

{count} released models and how positions enter them. [Chapter 13](../chapters/13_production_models.ipynb) rebuilds \
each from the book's doors, at a tiny size, and gets its numbers. From doors to layers, all is computed from the \
settings as released. A click on a column's name sorts by it.

*Features turned*: how many features of a head rotary turns, of how many. *Layout*: which two features make a pair. \
*Layers*: what each has, from the first on; a pattern repeats. Sizes, where there are several: Llama 3.1 8B, MPT 7B, \
Qwen2-VL 72B, Qwen 3.5 27B, and of those without linked settings the size of the class's defaults."""
NOTES = """\
## Settings that mislead, and where all this stands

*Copy*: the settings are published again by others; the original asks for an account, or we did not find it."""


@functools.cache
def rows() -> tuple[Row, ...]:
    """The table, with the transformers that requirements.txt pins. Raises RuntimeError if a model is missing there."""
    import transformers

    transformers.logging.set_verbosity_error()
    found, without = survey(transformers)
    if without:
        raise RuntimeError(f"this version of transformers lacks {', '.join(without)}: install requirements.txt")
    return tuple(found)


def page() -> str:
    lines = [_line(HEAD), _line(["---"] * len(HEAD)), *(_line(_cells(row)) for row in rows())]
    parts = [INTRO.format(count=len(rows())), "\n".join(lines), NOTES, "\n".join(map(_note, rows()))]
    return "\n\n".join(parts) + "\n"


def _cells(row: Row) -> list[str]:
    name = f"[{row.name}]({row.described_at})"
    scheme = f"{row.scheme}, {row.scaling} scaling" if row.scaling else row.scheme
    return [name, str(row.year), scheme, row.doors, row.base, row.layout, row.turned, f"{row.n_layers}: {row.layers}"]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cell or '–' for cell in cells)} |"


def _note(row: Row) -> str:
    links = [f"[code]({row.source})"]
    if row.released_at:
        links.append(f"[released settings]({row.released_at}){' (copy)' if row.second_hand else ''}")
    scope = "" if row.scope == "whole model" else f" Rebuilt: {row.scope}."
    return f"* **{row.name}.** {row.misleads}{' ' if row.misleads else ''}{', '.join(links)}.{scope}"
