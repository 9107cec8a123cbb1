"""The declarations prove themselves: right answers pass, every known mistake fails and is named."""

import time

import pytest
import torch

from posenc.checks import calling
from posenc.checks.compare import compare
from posenc.checks.examine import PUBLIC_SEED, examine
from posenc.checks.notebook import as_html, as_text, check, lines_of, scoreboard, with_code
from posenc.checks.registry import all_exercises

EXERCISES = list(all_exercises().values())
SEEDS = (PUBLIC_SEED, 1, 2, 3)


def pairs(attribute: str) -> list:
    return [
        pytest.param(e, item, id=f"{e.name}-{getattr(item, 'name', getattr(item, '__name__', '?'))}")
        for e in EXERCISES
        for item in getattr(e, attribute)
    ]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_the_reference_earns_all_points(exercise, seed):
    report = examine(exercise.reference, exercise, seed)
    assert report.status == "correct", as_text(lines_of(report))
    assert report.points == exercise.points


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("exercise", "answer"), pairs("also_right"))
def test_other_right_answers_earn_all_points(exercise, answer, seed):
    report = examine(answer, exercise, seed)
    assert report.status == "correct", as_text(lines_of(report))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("exercise", "mistake"), pairs("mistakes"))
def test_known_mistakes_lose_points_and_are_named(exercise, mistake, seed):
    report = examine(mistake.function, exercise, seed)
    assert report.status in ("partly", "wrong")
    assert report.points < exercise.points
    assert report.mistake is mistake, f"named {report.mistake}"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("rotate_pairs", 1015),  # a score so small that a right answer's rounding was a thousandth of a percent of it
        ("rotate_axial", 1075),  # so was this one
        ("one_for_all", 1006),  # the largest difference above zero was the last layer's: two mistakes were the same
    ],
)
def test_draws_that_misled_a_check_once_do_so_no_more(name, seed):
    exercise = all_exercises()[name]
    assert all(examine(answer, exercise, seed).status == "correct" for answer in exercise.also_right)
    assert all(examine(mistake.function, exercise, seed).mistake is mistake for mistake in exercise.mistakes)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_stub_is_not_attempted_and_nonsense_earns_nothing(exercise):
    def stub(*_):
        raise NotImplementedError("your turn")

    assert examine(stub, exercise).status == "not attempted"
    for nonsense in (None, 12345, "hello", torch.zeros(7, 7, 7), [], {}, object()):
        report = examine(lambda *_, nonsense=nonsense: nonsense, exercise)
        assert report.status == "wrong", (nonsense, as_text(lines_of(report)))
        assert report.points == 0


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_declaration_is_complete(exercise):
    assert 1 <= exercise.difficulty <= 5
    assert exercise.points >= 1
    assert exercise.minutes >= 1
    assert len(exercise.mistakes) >= 2
    assert len(exercise.cases) + len(exercise.properties) >= 1
    assert len({m.name for m in exercise.mistakes}) == len(exercise.mistakes)
    assert exercise.learned.endswith(".")


# --- What a learner's function may do to us


def exercise_named(name: str):
    return all_exercises()[name]


def test_input_changed_in_place_is_named():
    def shuffle_rows(x, permutation):
        x.copy_(x[..., permutation, :])
        return x

    report = examine(shuffle_rows, exercise_named("shuffle_rows"))
    assert all("changed its input" in f.complaint for f in report.findings if f.name != "keeps the dtype")


def test_exceptions_become_words_with_the_line():
    def shuffle_rows(x, permutation):
        rows = x
        return rows.no_such_method()

    report = examine(shuffle_rows, exercise_named("shuffle_rows"))
    assert report.status == "wrong"
    assert "AttributeError" in report.findings[0].complaint
    assert "line 3 of your function: `return rows.no_such_method()`" in report.findings[0].complaint


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, RecursionError, MemoryError], ids=lambda e: e.__name__
)
def test_no_exception_escapes(error):
    def shuffle_rows(x, permutation):
        raise error

    assert examine(shuffle_rows, exercise_named("shuffle_rows")).status == "wrong"


def test_an_exception_inside_a_property_names_the_learners_line_not_ours():
    def same_pair_other_weight():
        return 1 / 0

    complaint = examine(same_pair_other_weight, exercise_named("same_pair_other_weight")).findings[0].complaint
    assert complaint == "ZeroDivisionError: division by zero (line 2 of your function: `return 1 / 0`)"


def test_an_endless_loop_is_stopped_once_and_named(monkeypatch):
    monkeypatch.setattr("posenc.checks.calling.SECONDS_A_CALL", 0.2)

    def shuffle_rows(x, permutation):
        while True:
            pass

    start = time.monotonic()
    report = examine(shuffle_rows, exercise_named("shuffle_rows"))
    assert time.monotonic() - start < 2
    assert report.status == "wrong"
    assert all("does a loop never end?" in f.complaint for f in report.findings)


class Standing(calling.Effort):
    """Of somebody whom a busy machine does not let work."""

    def __call__(self) -> float:
        return 0.0


def test_a_sleeper_is_late_and_who_cannot_work_is_not():
    start = time.monotonic()
    with pytest.raises(calling.OutOfTime) as late, calling.time_limit(0.3):
        time.sleep(60)
    assert late.type is calling.OutOfTime
    assert time.monotonic() - start < 2
    start = time.monotonic()
    with pytest.raises(calling.Starved), calling.time_limit(0.1, Standing()):
        time.sleep(60)
    assert 0.1 * calling.PATIENCE <= time.monotonic() - start < 5


def test_who_cannot_work_is_told_that_it_is_no_fault_of_theirs():
    def starve(*_):
        raise calling.Starved

    report = examine(starve, exercise_named("shuffle_rows"))
    assert {f.complaint for f in report.findings} == {calling.TOO_BUSY}


@pytest.mark.parametrize("name", ["shuffle_rows", "what_commutes"], ids=["cases", "properties only"])
def test_one_stop_by_the_learner_stops_the_whole_examination(name):
    calls = []

    def stopped(*_):
        calls.append(1)
        raise KeyboardInterrupt

    report = examine(stopped, exercise_named(name))
    assert len(calls) == 1
    assert report.points == 0
    assert all("you stopped it" in f.complaint for f in report.findings)


def test_a_forgotten_raise_below_real_code_is_not_taken_for_the_stub():
    def shuffle_rows(x, permutation):
        x = x[..., permutation, :]
        raise NotImplementedError("your turn")

    report = examine(shuffle_rows, exercise_named("shuffle_rows"))
    assert report.status == "wrong"
    assert "NotImplementedError" in report.findings[0].complaint


def test_global_state_is_put_back():
    def shuffle_rows(x, permutation):
        torch.manual_seed(5)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return x[..., permutation, :]

    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert examine(shuffle_rows, exercise_named("shuffle_rows")).status == "correct"
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert torch.equal(torch.rand(1), expected)


def test_prints_are_kept_for_the_report_and_do_not_flood_the_notebook(capsys):
    def shuffle_rows(x, permutation):
        print("debug", x.shape)
        return x[..., permutation, :]

    report = examine(shuffle_rows, exercise_named("shuffle_rows"))
    assert "debug" in report.printed
    assert capsys.readouterr().out == ""


# --- The comparison


SAME = [
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0], requires_grad=True)),
    (torch.tensor([1.0, 2.0]), torch.nn.Parameter(torch.tensor([1.0, 2.0]))),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).to_sparse()),
    (torch.tensor([1.0, 2.0]), [1.0, 2.0]),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).numpy()),
    (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.nan])),
    (2.0, 2),
    (2, 2.0),
    (0.5, torch.tensor(0.5)),
    (1.7781512503836436, float(torch.tensor(1.7781512503836436))),  # through float32
    ((1, "a"), [1, "a"]),
    ({"a": 1.5}, {"a": 1.5}),
    (torch.tensor([1e8, 1.0]), torch.tensor([1e8 + 8, 1.0])),  # the last bit of float32
]
DIFFERENT = [
    (torch.ones(2, 3), torch.ones(3), "expected shape (2, 3), got (3,)"),
    (torch.ones(1, 1, 2, 2), torch.ones(2, 2), "expected shape (1, 1, 2, 2), got (2, 2)"),
    (torch.ones(2), torch.ones(0), "expected shape (2,), got (0,)"),
    (torch.ones(2), 1.0, "expected shape (2,), got ()"),
    (torch.ones(2), torch.ones(2, dtype=torch.int64), "expected floating-point values, got whole ones"),
    (torch.ones(2), None, "did you forget the `return`?"),
    (torch.ones(2), "1", "not made of numbers"),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, torch.nan]), "got NaN, 1 times"),
    (torch.tensor([1.0, torch.inf]), torch.tensor([1.0, -torch.inf]), "expected inf at [1], got -inf"),
    (torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1]), "expected 2 at [1], got 2.1"),
    (2, 2.5, "expected a whole number, got 2.5"),
    (1, True, "expected whole values, got true/false ones"),
    ({"a": 1}, {"b": 1}, "missing ['a']; not asked for ['b']"),
    ({"a": 1}, {"a": 2}, "expected 1 at ['a'], got 2"),
    ((1.0, 2.0), (1.0,), "expected 2 values, got 1"),
    ((torch.ones(3), torch.ones(3)), torch.ones(3, 2), "as in `return a, b`; got a tensor of shape (3, 2)"),
    (1.5, (1.5, 2), "expected one number, got (1.5, 2)"),
    (1.778151250, 1.778, "expected 1.778151, got 1.778"),
    (1_049_600, 1_048_576, "expected 1049600, got 1048576"),
    (1e-17, 2.9, "expected nearly 0, got 2.9"),
    (1.5, 10**400, "got infinity, 1 times"),
    (torch.tensor([True, False]), torch.tensor([True, True]), "expected False at [1], got True"),
    ("yes", "no", "expected 'yes', got 'no'"),
]


@pytest.mark.parametrize(("expected", "got"), SAME, ids=str)
def test_what_means_the_same_is_accepted(expected, got):
    assert compare(got, expected) is None


@pytest.mark.parametrize(("expected", "got", "words"), DIFFERENT, ids=str)
def test_what_differs_is_told_exactly(expected, got, words):
    assert words in compare(got, expected)


class EqualToEverything:
    def __eq__(self, other):
        return True

    __hash__ = None


class TensorEqualToEverything(torch.Tensor):
    def __eq__(self, other):
        return torch.ones(self.shape, dtype=torch.bool)

    __hash__ = None

    def abs(self):
        return torch.zeros(self.shape)

    __sub__ = abs


def test_an_answer_cannot_decide_that_it_is_equal():
    assert compare(EqualToEverything(), torch.ones(2)) is not None
    assert compare(torch.zeros(2).as_subclass(TensorEqualToEverything), torch.ones(2)) is not None


# --- What the learner sees


def test_check_shows_points_findings_and_the_named_mistake(capsys):
    def shuffle_rows(x, permutation):
        return x[permutation]

    check(shuffle_rows)
    shown = capsys.readouterr().out
    assert "shuffle_rows" in shown
    assert "✗ batch and heads" in shown
    assert "Your result equals a known mistake: the first axis." in shown
    assert "Count from the back" in shown


@pytest.mark.parametrize(
    ("thing", "words"),
    [(3, "check wants the function itself"), (lambda: 0, "no exercise called '<lambda>'"), (print, "'print'")],
)
def test_check_of_something_else_says_what_to_do(capsys, thing, words):
    check(thing)
    assert words in capsys.readouterr().out


def test_html_escapes_what_the_learner_wrote():
    def shuffle_rows(x, permutation):
        raise ValueError("<script>alert(1)</script>")

    page = as_html(lines_of(examine(shuffle_rows, exercise_named("shuffle_rows"))))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_backticks_become_code_in_html():
    assert with_code("put `a < b` here") == "put <code>a &lt; b</code> here"


def test_scoreboard_counts_the_best_try(capsys):
    def shuffle_rows(x, permutation):
        return x[..., permutation, :]

    check(shuffle_rows)
    scoreboard(1)
    total = sum(e.points for e in EXERCISES if e.chapter == 1)
    assert f"Chapter 1: 1 of {total} points" in capsys.readouterr().out
