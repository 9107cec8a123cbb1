"""What chapter 2 adds: tasks on bags and order, Deep Sets, the book's text, and the truth of its predictions."""

import math
from itertools import product

import pytest
import torch

from posenc.checks import chapter_02
from posenc.checks.examine import examine
from posenc.model import build
from posenc.sets import DeepSets, shares
from posenc.symmetry import difference, invariance_error, must_break
from posenc.tasks import (
    a_before_b,
    has_an_a,
    how_many_different,
    more_a_than_b,
    ring_or_disc,
    spell,
    swap_a_and_b,
)
from posenc.text import alice, clauses_of, letters_of, words_of

TASKS = (a_before_b, has_an_a, more_a_than_b, how_many_different)
LABELS = {  # an independent reading of each task, on the word as a string
    a_before_b: lambda w: w.index("A") < w.index("B"),
    has_an_a: lambda w: "A" in w,
    more_a_than_b: lambda w: w.count("A") > w.count("B"),
    how_many_different: lambda w: len(set(w)) - 1,
}


def read(tokens) -> str:
    return "".join("ABCDEFGHIJKL"[t] for t in tokens.tolist())


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.__name__)
def test_labels_say_what_the_words_say(task):
    made = task(300, seed=4)
    assert made.tokens.shape == (300, 12)
    assert made.labels.tolist() == [int(LABELS[task](read(row))) for row in made.tokens]


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.__name__)
def test_tasks_are_balanced_and_seeded(task):
    made = task(4000, seed=1)
    share = torch.bincount(made.labels, minlength=4 if task is how_many_different else 2) / len(made)
    assert torch.allclose(share, torch.full_like(share, 1 / len(share)), atol=0.05)
    assert torch.equal(made.tokens, task(4000, seed=1).tokens)
    assert not torch.equal(made.tokens, task(4000, seed=2).tokens)


def test_order_flips_under_swap_and_reversal_while_the_bag_stays():
    task = a_before_b(200, seed=3)
    for other in (swap_a_and_b(task.tokens), task.tokens.flip(1)):
        assert torch.equal(other.sort(dim=1).values, task.tokens.sort(dim=1).values)
        assert all(LABELS[a_before_b](read(row)) != label for row, label in zip(other, task.labels, strict=True))


def test_spell_counts_from_a_and_names_what_it_cannot_read():
    assert spell("BAD").tolist() == [1, 0, 3]
    with pytest.raises(ValueError, match="'a' is not one of the capital letters"):
        spell("Bad")


def test_clouds_lie_on_the_circle_or_fill_the_disc():
    clouds, labels = ring_or_disc(2000, seed=0, noise=0.0)
    radius = clouds.norm(dim=-1)
    assert torch.allclose(radius[labels == 1], torch.ones(()), atol=1e-5)
    assert radius[labels == 0].max() <= 1 + 1e-5
    assert radius[labels == 0].square().mean().item() == pytest.approx(0.5, abs=0.02)  # uniform over the disc


def test_deep_sets_is_invariant_and_sees_counts():
    torch.manual_seed(0)
    model, x = DeepSets(3, 2).double(), torch.randn(5, 7, 3, dtype=torch.float64)
    assert invariance_error(model, x, torch.randperm(7)) < 1e-12
    assert model(x).shape == (5, 2)
    must_break(difference(model(x), model(x.repeat(1, 2, 1))))
    below = -torch.ones(1, 4, 3, dtype=torch.float64)
    must_break(difference(model(below), model(2 * below)))


def test_shares_are_all_that_an_encoder_without_positions_sees():
    encoder = build(0, vocabulary=4, d_model=16, n_layers=3, n_heads=2, n_outputs=3, readout="mean").double()
    a, b, c = (torch.tensor(t) for t in ([0, 1, 1, 2], [1, 2, 0, 1, 1, 0, 2, 1], [0, 1, 2, 2]))
    assert torch.equal(shares(a, 4), shares(b, 4))
    assert difference(encoder(a[None]), encoder(b[None])) < 1e-12
    assert not torch.equal(shares(a, 4), shares(c, 4))
    must_break(difference(encoder(a[None]), encoder(c[None])))


def test_the_text_is_the_whole_book_in_plain_letters():
    text = alice()
    assert text.startswith("CHAPTER I.")
    assert text.count("CHAPTER") == 12
    assert "do bats eat cats" in " ".join(words_of(text))
    assert text.rstrip().endswith("the happy summer days.")
    assert text.isascii()
    assert set(letters_of(text)) == set("abcdefghijklmnopqrstuvwxyz ")
    assert words_of("Alice's cat--'Oh, DON'T!'") == ["alice's", "cat", "oh", "don't"]
    assert clauses_of("Do cats, then 'bats'; don't!") == [["do", "cats"], ["then"], ["bats"], ["don't"]]


@pytest.mark.parametrize("name", chapter_02.QUESTIONS)
def test_the_predictions_are_right_by_exhaustion(name):
    question, in_reach = chapter_02.QUESTIONS[name]
    answers: dict = {}
    for n in range(1, 7):
        for letters in product("ABC", repeat=n):
            counts = [letters.count(c) for c in "ABC"]
            key = tuple(c // math.gcd(*counts) for c in counts)
            answers.setdefault(key, set()).add(question("".join(letters)))
    assert all(len(found) == 1 for found in answers.values()) == in_reach


@pytest.mark.parametrize("kind", ["plain", "bos", "distance"])
def test_the_models_of_the_counterexamples_have_just_the_symmetries_that_they_should(kind):
    def gap(a, b):
        return difference(chapter_02.tie_logits(kind, a, 5), chapter_02.tie_logits(kind, b, 5))

    moves = {"shuffled": ("AACB", "ACAB"), "twice": ("AB", "ABAB"), "reversed": ("AACB", "BCAA")}
    kept = {"plain": {"shuffled", "twice", "reversed"}, "bos": {"shuffled", "reversed"}, "distance": {"reversed"}}
    for name, pair in moves.items():
        assert gap(*pair) < 1e-12 if name in kept[kind] else must_break(gap(*pair))


@pytest.mark.parametrize(
    "weights",
    [
        lambda: (torch.full((4, 4), torch.nan), torch.ones(4), torch.ones(4), 0.0),
        lambda: (-5 * torch.eye(4), torch.ones(4, 1), -torch.ones(4), 4.0),
        lambda: (-5 * torch.eye(4), torch.ones(4), -torch.ones(4), torch.ones(4)),
        lambda: (-5 * torch.eye(5), torch.ones(5), -torch.ones(5), 5.0),
        lambda: (torch.zeros(4, 0), torch.zeros(0), torch.zeros(0), 1.0),
        lambda: "weights",
    ],
)
def test_weights_of_the_wrong_shape_are_told_not_broadcast(weights):
    report = examine(weights, chapter_02.DISTINCT_WEIGHTS)
    assert report.points == 0
    assert all(f.complaint for f in report.findings)


@pytest.mark.parametrize("pair", [("AB", "ab"), ("", "A"), ("AB",), "AB", ("A" * 13, "A"), (1, 2), None])
def test_words_of_the_wrong_kind_are_told(pair):
    report = examine(lambda: dict.fromkeys(chapter_02.TIES, pair), chapter_02.THREE_TIES)
    assert report.points == 0
    assert all(f.complaint and "Error" not in f.complaint for f in report.findings)
