"""Any bytes become code cells or a reason; nothing else ever happens."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posenc.grading.reading import LARGEST, Notebook, Unreadable, read


def notebook(*cells: object, **more: object) -> dict:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": list(cells), **more}


def code(source: object, **more: object) -> dict:
    return {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source, **more}


PLAIN = json.dumps(notebook(code("x = 'é'")), ensure_ascii=False)

READABLE = {
    "a list of lines": (json.dumps(notebook(code(["x = 1\n", "y = 2"]))).encode(), ("x = 1\ny = 2",)),
    "markdown is no code": (json.dumps(notebook({"cell_type": "markdown", "source": "x"}, code("y"))).encode(), ("y",)),
    "a byte-order mark": (b"\xef\xbb\xbf" + PLAIN.encode(), ("x = 'é'",)),
    "UTF-16": (PLAIN.encode("utf-16"), ("x = 'é'",)),
    "UTF-32": (PLAIN.encode("utf-32"), ("x = 'é'",)),
    "Windows letters": (PLAIN.encode("cp1252"), ("x = 'é'",)),
    "space around": (b"\n\n" + PLAIN.encode() + b"\n\0\0", ("x = 'é'",)),
    "no metadata, no version": (json.dumps({"cells": [code("x")]}).encode(), ("x",)),
    "the same id twice": (json.dumps(notebook(code("x", id="a"), code("y", id="a"))).encode(), ("x", "y")),
    "no cell at all": (json.dumps(notebook()).encode(), ()),
    "broken cells among good ones": (json.dumps(notebook(3, None, code(7), code("x"))).encode(), ("", "x")),
    "format 3": (
        json.dumps(
            {
                "nbformat": 3,
                "nbformat_minor": 0,
                "metadata": {"name": ""},
                "worksheets": [{"cells": [{"cell_type": "code", "input": ["x = 1\n", "y"], "outputs": []}]}],
            }
        ).encode(),
        ("x = 1\ny",),
    ),
    "format 3 with holes": (json.dumps({"nbformat": 3, "worksheets": [{}, 5, {"cells": 4}]}).encode(), ()),
    "a version that does not exist": (json.dumps(notebook(code("x"), nbformat=99)).encode(), ("x",)),
    "NaN in the metadata": (json.dumps(notebook(code("x"), metadata={"a": float("nan")})).encode(), ("x",)),
}

UNREADABLE = {
    "empty": (b"", "empty"),
    "zeros": (b"\0" * 1000, "empty"),
    "a web page": (b"<!DOCTYPE html><html></html>", "web page"),
    "cut off": (PLAIN.encode()[:-9], "only part of one"),
    "merge marks": (b"{\n<<<<<<< HEAD\n}", "merge"),
    "text": (b"def f(): pass", "not a notebook"),
    "a list": (b"[1, 2]", "list"),
    "other JSON": (b'{"a": 1}', "no cells"),
    "cells that are none": (json.dumps({"cells": {"a": 1}}).encode(), "not a list"),
    "very deep": (b"[" * 100_000 + b"]" * 100_000, "deeply"),
    "deep inside": (b'{"cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeply"),
    "binary": (bytes(range(256)) * 4, "not a notebook"),
    "a zip": (b"PK\x03\x04" + bytes(100), "not a notebook"),
    "too large": (b" " * (LARGEST + 1), "Clear its outputs"),
}


@pytest.mark.parametrize("kind", READABLE)
def test_what_can_be_read_is_read(kind):
    data, cells = READABLE[kind]
    assert read(data).cells == cells


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_gets_a_reason(kind):
    data, reason = UNREADABLE[kind]
    with pytest.raises(Unreadable, match=reason):
        read(data)


def test_odd_files_are_noted():
    assert "UTF-8" in read(READABLE["Windows letters"][0]).notes[0]
    assert read(READABLE["broken cells among good ones"][0]).notes == ("3 broken cell(s) were left out",)
    assert read(PLAIN.encode()) == Notebook(("x = 'é'",))


@pytest.mark.parametrize("where", range(0, len(PLAIN.encode()), 3))
def test_a_file_damaged_anywhere_gives_cells_or_a_reason(where):
    data = bytearray(PLAIN.encode())
    for byte in (0, 0x22, 0x5B, 0xFF):
        data[where] = byte
        with contextlib.suppress(Unreadable):
            assert isinstance(read(bytes(data)), Notebook)


# --- Made up by a machine


def cells_or_reason(data: bytes) -> None:
    reason = "none, it could be read"
    try:
        assert all(isinstance(cell, str) for cell in read(data).cells)
    except Unreadable as error:
        reason = str(error)
    assert len(reason) > 10


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)
KEYS = (
    "cells",
    "worksheets",
    "nbformat",
    "nbformat_minor",
    "metadata",
    "cell_type",
    "source",
    "input",
    "outputs",
    "id",
)
ALMOST_CELL = st.dictionaries(st.sampled_from(KEYS), JSON | st.sampled_from(["code", "markdown"]), max_size=5) | JSON
ALMOST_CELLS = st.lists(ALMOST_CELL, max_size=4) | JSON
ALMOST_SHEETS = st.lists(st.fixed_dictionaries({}, optional={"cells": ALMOST_CELLS}) | JSON, max_size=3) | JSON
ALMOST_NOTEBOOK = st.fixed_dictionaries(
    {},
    optional={
        "cells": ALMOST_CELLS,
        "worksheets": ALMOST_SHEETS,
        "nbformat": st.integers(-1, 6) | JSON,
        "nbformat_minor": JSON,
        "metadata": JSON,
    },
)
machine = settings(derandomize=True, database=None, deadline=None, max_examples=200)


@machine
@given(ALMOST_NOTEBOOK | JSON, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"]))
def test_anything_that_is_nearly_a_notebook(raw, encoding):
    cells_or_reason(json.dumps(raw).encode(encoding))


@machine
@given(st.binary(max_size=300))
def test_any_bytes(data):
    cells_or_reason(data)


@machine
@given(st.data())
def test_a_notebook_with_pieces_cut_out_repeated_and_replaced(data):
    whole = PLAIN.encode()
    for _ in range(data.draw(st.integers(1, 4))):
        a, b = sorted(data.draw(st.tuples(st.integers(0, len(whole)), st.integers(0, len(whole)))))
        whole = whole[:a] + data.draw(st.sampled_from([b"", whole[a:b] * 2, b"\xff", b'"', b"{" * 50])) + whole[b:]
    cells_or_reason(whole)
