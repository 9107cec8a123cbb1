"""Mutants of the library: what is changed, who is asked, what excuses, and what the last whole run found."""

import ast
import json
import sys

import nbformat
import pytest
import torch

from posenc import masks, rotary
from tools import library_mutants, witnesses
from tools.library_mutants import Mutant, Reasons, mutants_of
from tools.witnesses import Measured, Witness

STALE = "the library, the operators or the reasons have changed: run make broken"
SOURCE = """
LIMIT = 3

def f(x, k=1):
    '''Add.'''
    if x > k:
        return x + k
    raise ValueError(f"{x - 1}")

class C:
    size = 2
    def g(self, x):
        return torch.zeros(x, device=x.device)
"""


def made(change: str) -> Mutant:
    return next(m for m in mutants_of("masks", SOURCE) if m.change == change)


# --- What is changed, and where


@pytest.mark.parametrize(
    ("change", "place", "lines", "broad"),
    [
        ("LIMIT = 4", "LIMIT", (2,), True),
        ("if x >= k:", "f", (6,), False),
        ("return x - k", "f", (7,), False),
        ("without return x + k", "f", (7,), False),
        ("def f(x, k=2):", "f", (5, 6, 7, 8), False),
        ("size = 3", "C", (11,), True),
        ("return torch.ones(x, device=x.device)", "C.g", (13,), False),
    ],
)
def test_a_mutant_says_where_it_is(change, place, lines, broad):
    mutant = made(change)
    assert (mutant.place, mutant.lines, mutant.broad, mutant.rule) == (place, lines, broad, "")


def test_a_mutant_of_a_table_says_which_entry_it_is():
    source = "ROWS = [Row('a', f, {'size': 2} | OTHERS, year=1990, copied=True), Row('b', f)]\nROWS |= {'c': 2 * 3}\n"
    names = [f"{m.place}: {m.change}" for m in mutants_of("masks", source)]
    assert {"ROWS.a.2.size: 3", "ROWS.a.year: 1991", "ROWS.a.copied: False", "ROWS.a.year: left out"} <= set(names)
    assert {"ROWS.c: 2 / 3", "ROWS.c: 2 * 4", "ROWS.b: Row(f, 'b')"} <= set(names)


def test_rules_excuse_the_words_of_an_error_and_where_a_tensor_lies():
    assert made("raise ValueError(f'{x + 1}')").rule == "the words of an error"
    assert made("return torch.zeros(x)").rule.startswith("where a tensor lies")


def test_commands_and_imports_are_left_alone():
    source = "import os\nX = 1\ndef main():\n    return 1\nif __name__ == '__main__':\n    sys.exit(2)\n"
    assert {m.place for m in mutants_of("masks", source)} == {"X"}


# --- Put in place


def test_a_mutant_is_seen_wherever_its_function_was_imported():
    mutant = next(m for m in mutants_of("rotary") if m.change == "return by_pair.transpose(1, 2).flatten(0, 1)")
    rows = torch.arange(8.0)
    weights_to_halves = rotary.weights_to_halves
    own = Witness("own", lambda _: weights_to_halves(rows, 4).shape != rows.shape)
    blind = Witness("blind", lambda _: False)
    asked = [(blind, 0.1), (own, 0.1)]
    assert witnesses.first_to_notice(asked, lambda: library_mutants.apply(mutant)) == "own"
    assert witnesses.first_to_notice(asked, lambda: True) == ""
    assert weights_to_halves(rows, 4).shape == rows.shape, "the fork has changed what is outside it"


def test_what_stands_under_a_condition_is_imported_afresh():
    """A kernel of Triton is there only with Triton, or with what a test puts in its place."""
    mutant = next(m for m in mutants_of("kernels") if m.place == "_turn")
    assert not library_mutants.apply(mutant)


def test_a_loop_without_end_is_noticed(monkeypatch):
    monkeypatch.setattr(witnesses, "PATIENCE", 0.0)

    def for_ever(_: Witness | None) -> bool:
        while True:
            pass

    assert witnesses.first_to_notice([(Witness("waits", for_ever), 0.0)], lambda: True) == "waits"


def test_who_runs_a_changed_line_is_asked_first_who_is_quick_and_runs_little_else():
    known = {
        "slow": Measured(2.0, {"masks": [6, 7]}),
        "quick": Measured(1.0, {"masks": [6, 7]}),
        "close": Measured(1.5, {"masks": [7]}),
        "elsewhere": Measured(0.1, {"masks": [2], "rotary": [7]}),
        "endless": Measured(1000.0, {"masks": [7]}),
    }
    assert library_mutants.in_question(made("return x - k"), known) == [("close", 1.5), ("quick", 1.0), ("slow", 2.0)]
    assert library_mutants.in_question(made("return x - k"), known, seconds=2) == [("close", 1.5)]
    everyone = [name for name, _ in library_mutants.in_question(made("LIMIT = 4"), known)]
    assert everyone == ["elsewhere", "close", "quick", "slow"]


def test_the_lines_that_run_are_traced():
    with witnesses.Tracer() as tracer:
        masks.Causal().mask(torch.arange(2), torch.arange(2))
    tree = ast.parse(library_mutants.path_of("masks").read_text(encoding="utf-8"))
    causal = next(node for node in tree.body if getattr(node, "name", "") == "Causal")
    seen = tracer.lines()["masks"]
    assert seen
    assert all(causal.lineno <= line <= causal.end_lineno or line in body_lines(tree) for line in seen)
    assert sys.gettrace() is None


def body_lines(tree: ast.Module) -> set[int]:
    """Lines of functions outside classes, which a method may call."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {line for f in functions for line in range(f.lineno, f.end_lineno + 1)}


def test_what_is_known_of_a_witness_lasts_until_it_or_what_it_runs_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(witnesses, "REMEMBERED", tmp_path / "known.json")
    monkeypatch.setattr(witnesses, "LIBRARY", tmp_path)
    test, library, other = tmp_path / "test_x.py", tmp_path / "masks.py", tmp_path / "rotary.py"
    for path in (test, library, other):
        path.write_text("1")
    asked = []

    def measure():
        asked.append(1)
        return {"a": Measured(0.5, {"masks": [1]})}

    for changed, times in ((None, 1), (None, 1), (other, 1), (library, 2), (test, 3)):
        if changed:
            changed.write_text(changed.read_text() + "2")
        assert witnesses.Memory().get("x", [test], measure) == {"a": Measured(0.5, {"masks": [1]})}
        assert len(asked) == times


def test_a_chapter_is_asked_from_the_first_cell_that_runs_the_change(tmp_path):
    sources = ["import torch", "from posenc.masks import causal"]
    sources += ["y = causal(torch.arange(2), torch.arange(2))", "assert y[1, 0]"]
    cells = [nbformat.v4.new_code_cell(source, id=f"cell-{k}") for k, source in enumerate(sources)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, tmp_path / "01_x.ipynb")
    mutant = next(m for m in mutants_of("masks") if m.place == "causal" and "<=" in m.change)
    known = witnesses.measure_chapter(tmp_path / "01_x.ipynb")
    assert [m.runs("masks", mutant.lines) for m in known.values()] == [False, False, True, False]
    due = {2: [(7, 3, lambda: library_mutants.apply(mutant)), (8, 3, lambda: True)]}
    assert witnesses.ask_chapter(tmp_path / "01_x.ipynb", due) == {7: list(known)[3]}


# --- Reasons


ENTRY = """
[free]
"masks.h" = "any"
[[same]]
place = "masks.f"
because = "it is so"
changes = ["if x >= k:", "return …, 2"]
"""


def test_a_reason_excuses_the_mutant_that_it_names():
    reasons = library_mutants.read_reasons(ENTRY)
    assert reasons.excuse(made("if x >= k:")) == "it is so"
    assert reasons.excuse(made("return x - k")) == ""
    assert reasons.excuse(made("return torch.zeros(x)")).startswith("where a tensor lies")


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [('"if x >= k:", ', '"if x >= k:", "if x >= k:", ', "excused twice"), ("it is so", " ", "no reason")],
)
def test_a_careless_list_of_reasons_is_an_error(before, after, words):
    with pytest.raises(ValueError, match=words):
        library_mutants.read_reasons(ENTRY.replace(before, after))


def test_reasons_that_nothing_needs_are_named():
    reasons = library_mutants.read_reasons(ENTRY)
    assert library_mutants.idle(reasons, [made("if x >= k:")], ["masks"]) == ["masks.h: free", "masks.f: return …, 2"]
    assert library_mutants.idle(reasons, [], ["rotary"]) == []


def test_a_row_counts_who_noticed():
    mutants = [made("if x >= k:"), made("return x - k"), made("LIMIT = 4"), made("size = 3"), made("def f(x, k=2):")]
    found = ["", "tests/test_a.py::test_b", "exercise e", "chapters/01_x.ipynb#cell-1", ""]
    row = library_mutants.row("masks", mutants, found, library_mutants.read_reasons(ENTRY))
    assert [row[key] for key in ("mutants", "tests", "exercises", "chapters", "excused")] == [5, 1, 1, 1, 1]
    assert row["survivors"] == ["f: def f(x, k=2):"]
    assert library_mutants.share_noticed([row]) == 3 / 4


# --- What the last whole run found


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads(library_mutants.RESULTS.read_text(encoding="utf-8"))


def test_the_stored_run_is_of_the_present_library(stored):
    rows = stored["modules"]
    assert tuple(rows) == library_mutants.MODULES, STALE
    assert [m for m in rows if rows[m]["digest"] != library_mutants.module_digest(m)] == [], STALE
    assert stored["made"]["reasons"] == witnesses.digest(library_mutants.REASONS), STALE
    for row in rows.values():
        counted = sum(row[key] for key in ("tests", "exercises", "chapters", "excused"))
        assert row["mutants"] >= counted > 0
        assert bool(row["survivors"]) == (counted < row["mutants"])


def test_nearly_all_mutants_are_noticed(stored):
    assert library_mutants.share_noticed(stored["modules"].values()) >= library_mutants.LEAST_SHARE
    assert library_mutants.read_reasons(library_mutants.REASONS.read_text(encoding="utf-8")) != Reasons({}, {})
