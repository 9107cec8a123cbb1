"""Mutants of the solutions: the operators that make them, the reasons that excuse some, and what the checks caught."""

import ast
import json

import pytest

from posenc.checks import calling
from posenc.checks.registry import all_exercises
from tools import mutants, mutations
from tools.mutants import Reasons, Solution, Survey

STALE = "the solutions, their checks or the operators have changed: run make mutants"


def changes(code: str) -> list[str]:
    return [change for change, _ in mutations.mutants(ast.parse(code))]


# --- The operators


OPERATORS = [
    ("other_operator", "y = a + b", "y = a - b"),
    ("other_operator", "y += b", "y -= b"),
    ("other_operator", "y = a < b", "y = a <= b"),
    ("other_operator", "y = a and b", "y = a or b"),
    ("swapped_sides", "y = a / b", "y = b / a"),
    ("swapped_sides", "y = a if c else b", "y = b if c else a"),
    ("swapped_items", "y = f(a, b, c)", "y = f(b, a, c)"),
    ("swapped_items", "y = [a, b]", "y = [b, a]"),
    ("swapped_items", "y = x[..., a, :]", "y = x[..., :, a]"),
    ("swapped_items", "y = x[..., :, None]", "y = x[..., None, :]"),
    ("without_operator", "y = ~a", "y = a"),
    ("without_call", "y = x.abs()", "y = x"),
    ("without_keyword", "y = x.sum(dim=a)", "y = x.sum()"),
    ("without_bound", "y = x[a:]", "y = x[:]"),
    ("without_statement", "if c:\n    y = a", "without y = a"),
    ("other_number", "y = 5", "y = 6"),
    ("other_number", "y = 0.5", "y = -0.5"),
    ("other_number", "y = True", "y = False"),
    ("other_name", "y = x.float64", "y = x.float32"),
    ("other_name", "y = max(x)", "y = min(x)"),
]


@pytest.mark.parametrize(("operator", "code", "change"), OPERATORS)
def test_an_operator_makes_its_mutant(operator, code, change, monkeypatch):
    assert change in changes(code)
    others = tuple(each for each in mutations.OPERATORS if each.__name__ != operator)
    monkeypatch.setattr(mutations, "OPERATORS", others)
    assert change not in changes(code)


def test_every_operator_is_shown():
    assert {operator for operator, _, _ in OPERATORS} == {each.__name__ for each in mutations.OPERATORS}


@pytest.mark.parametrize(
    "code",
    [
        "y = torch.equal(a, b)",
        "y = x.item()",
        "y = x[a, ...]",
        "def f(x: Literal[1]):\n    'Add 1 to 2.'\n    return x",
    ],
)
def test_what_changes_nothing_is_left_alone(code):
    assert changes(code) == []


def test_an_axis_counted_from_the_back_gets_no_other_sign():
    assert changes("y = x.amax(-1)") == ["y = x.amin(-1)", "y = x.amax(-2)", "y = x.amax(-0)"]


def test_no_mutant_comes_twice_and_each_is_code_of_its_own():
    found = list(mutations.mutants(ast.parse("y = 1 + 1\nz = 2")))
    assert len({code for _, code in found}) == len(found)
    assert ("y = 1 - 1", "y = 1 - 1\nz = 2") in found


# --- A survey


def solution(code: str) -> Solution:
    return Solution(ast.parse(code), code, {})


def test_a_survey_counts_what_the_check_does_not_notice(monkeypatch):
    code = "def bag_key(word):\n    import math\n    counts = {letter: word.count(letter) for letter in word}\n"
    code += "    common = math.gcd(*counts.values())\n    return {a: n // common for a, n in counts.items()}"
    monkeypatch.setattr(mutants, "solutions", lambda: {"bag_key": solution(code)})
    found = mutants.survey("bag_key")
    assert found.survivors == ("return {a: n / common for a, n in counts.items()}",)
    assert found.mutants == len(changes(code)) > 2


def test_a_solution_that_its_check_refuses_is_an_error(monkeypatch):
    wrong = solution("def bag_key(word):\n    return {}")
    monkeypatch.setattr(mutants, "solutions", lambda: {"bag_key": wrong})
    with pytest.raises(RuntimeError, match="finds fault with the solution of bag_key"):
        mutants.survey("bag_key")


@pytest.mark.parametrize("body", ["while True: pass", "return (", "raise SystemExit"])
def test_a_mutant_that_never_ends_or_does_not_run_is_caught(body, monkeypatch):
    monkeypatch.setattr(calling, "SECONDS_A_CALL", 0.2)
    assert mutants.is_caught("bag_key", f"def bag_key(word):\n    {body}", {})


def test_no_exercise_is_left_out():
    assert list(mutants.solutions()) == list(all_exercises())


# --- Reasons


ENTRY = """
[free]
looks_ahead = "any"
[[same]]
exercise = "bag_key"
because = "it is so"
changes = ["x = 1", "y = {…, 2}"]
"""


def test_a_reason_excuses_the_mutant_that_it_names():
    reasons = mutants.read_reasons(ENTRY)
    assert reasons.excuse("bag_key", "x = 1") == reasons.excuse("bag_key", "y = {a, b, 2}") == "it is so"
    assert reasons.excuse("bag_key", "x = 10") is reasons.excuse("bag_key", "y = {a, b, 3}") is None
    assert reasons.excuse("mean_pool", "x = 1") is None
    assert reasons.excuse("looks_ahead", "whatever") == "any"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"x = 1", ', '"x = 1", "x = 1", ', "excused twice"),
        ("bag_key", "looks_ahead", "excused twice"),
        ("it is so", " ", "no reason"),
        ('"any"', '""', "no reason"),
    ],
)
def test_a_careless_list_of_reasons_is_an_error(before, after, words):
    with pytest.raises(ValueError, match=words):
        mutants.read_reasons(ENTRY.replace(before, after))


def test_reasons_that_nothing_needs_are_named():
    reasons = mutants.read_reasons(ENTRY)
    found = {"bag_key": Survey(9, ("x = 1",)), "looks_ahead": Survey(9, ())}
    assert mutants.idle(reasons, found) == ["bag_key: y = {…, 2}", "looks_ahead: free"]
    assert mutants.idle(reasons, {}) == []
    assert mutants.idle(Reasons({"no_such": "any"}, {}), {}) == ["no_such: no such exercise"]


def test_the_share_leaves_out_what_is_excused():
    found = {"bag_key": Survey(10, ("x = 1", "z = 1")), "looks_ahead": Survey(5, ("w = 1",))}
    assert mutants.share_caught(found, mutants.read_reasons(ENTRY)) == 12 / 13


# --- What the last whole run found


@pytest.fixture(scope="module")
def reasons() -> Reasons:
    return mutants.read_reasons(mutants.REASONS.read_text(encoding="utf-8"))


def test_the_stored_run_is_of_the_present_checks(reasons):
    found, digests = mutants.stored()
    assert list(found) == list(all_exercises()), STALE
    assert not [name for name in found if digests[name] != mutants.digest(name)], STALE
    rows = json.loads(mutants.RESULTS.read_text(encoding="utf-8"))["exercises"]
    for name, row in rows.items():
        assert row["mutants"] >= 1
        assert row == mutants.row(name, found[name], reasons), STALE


def test_nearly_all_mutants_are_caught_and_every_reason_is_needed(reasons):
    found, _ = mutants.stored()
    assert mutants.share_caught(found, reasons) >= mutants.LEAST_SHARE
    assert mutants.idle(reasons, found) == []


def test_the_stored_run_is_found_again():
    found, _ = mutants.stored()
    names = ["shuffle_rows", "attention_pool", "oldest_token"]
    assert dict(mutants.survey_all(names, jobs=1)) == {name: found[name] for name in names}
