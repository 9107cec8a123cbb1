"""Any bytes to the code cells of a notebook, or to a reason why not. Nothing of the file is run here."""

import codecs
import json
import logging
import warnings
from dataclasses import dataclass

import nbformat

LARGEST = 50_000_000  # bytes; a notebook with its figures has one or two million

# The longer marks first: UTF-32 starts with the two bytes of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


class Unreadable(ValueError):
    """The file is no notebook. The message says what it is instead, and what its author can do."""


@dataclass(frozen=True)
class Notebook:
    """The code cells in order, and what was odd about the file though it could be read."""

    cells: tuple[str, ...]
    notes: tuple[str, ...] = ()


def read(data: bytes) -> Notebook:
    """The notebook in these bytes. Raises Unreadable, and nothing else, if there is none."""
    if len(data) > LARGEST:
        raise Unreadable(f"the file has {len(data):,} bytes; a notebook may have {LARGEST:,}. Clear its outputs")
    text, notes = _decode(data)
    raw = _parse(text)
    cells, more_notes = _code_cells(_newest_format(raw))
    return Notebook(tuple(cells), (*notes, *more_notes))


def _decode(data: bytes) -> tuple[str, list[str]]:
    for mark, encoding in MARKS:
        if data.startswith(mark):
            return data.removeprefix(mark).decode(encoding, errors="replace"), []
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace"), ["the file is not in UTF-8; some letters may be wrong"]


def _parse(text: str) -> dict:
    stripped = text.strip("\0 \t\r\n")
    if not stripped:
        raise Unreadable("the file is empty")
    if any(line.startswith(("<<<<<<< ", ">>>>>>> ")) for line in stripped.splitlines()):
        raise Unreadable("the file holds the marks of an unfinished merge (<<<<<<<); resolve it and hand in again")
    if stripped.startswith("<"):
        raise Unreadable("the file is a web page, not a notebook; download it with File > Download > .ipynb")
    try:
        raw = json.loads(stripped)
    except RecursionError:
        raise Unreadable("the file is nested too deeply for a notebook") from None
    except ValueError as error:
        where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"the file is not a notebook, or only part of one: no valid JSON{where}") from None
    if not isinstance(raw, dict):
        raise Unreadable(f"the file holds a {type(raw).__name__}, not a notebook")
    if "cells" not in raw and "worksheets" not in raw:
        raise Unreadable("the file has no cells; is it another kind of JSON file?")
    return raw


def _newest_format(raw: dict) -> dict:
    """Notebooks of format 1 to 3 become format 4. A file that only nearly is a notebook stays as it is."""
    version = raw.get("nbformat")
    if "cells" in raw or not isinstance(version, int):
        return raw if "cells" in raw else {"cells": _old_cells(raw)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.getLogger("traitlets").setLevel(logging.CRITICAL)
            return nbformat.convert(nbformat.from_dict(raw), to_version=4)
    except Exception:
        return {"cells": _old_cells(raw)}


def _old_cells(raw: dict) -> list:
    """The cells of a notebook of format 3, whose sheets are lists of cells and whose code stands under `input`."""
    sheets = raw.get("worksheets")
    sheets = [s for s in sheets if isinstance(s, dict)] if isinstance(sheets, list) else []
    cells = [c for s in sheets if isinstance(s.get("cells"), list) for c in s["cells"]]
    return [{**c, "source": c.get("input", c.get("source"))} for c in cells if isinstance(c, dict)]


def _code_cells(raw: dict) -> tuple[list[str], list[str]]:
    cells = raw["cells"]
    if not isinstance(cells, list):
        raise Unreadable(f"the notebook's cells are a {type(cells).__name__}, not a list")
    sources, odd = [], 0
    for cell in cells:
        if not isinstance(cell, dict):
            odd += 1
        elif cell.get("cell_type") == "code":
            source = _source(cell.get("source"))
            odd += source is None
            sources.append(source or "")
    return sources, [f"{odd} broken cell(s) were left out"] if odd else []


def _source(source: object) -> str | None:
    if isinstance(source, str):
        return source
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    return None
