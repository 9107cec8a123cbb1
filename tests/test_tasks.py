"""What every task promises: its seed alone decides, all values occur equally often, and the answer follows from them.

What each asks is read again, from the tokens, in the test file of its chapter.
"""

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch

from posenc.extension import needle_a_chunk, needle_at, one_needle
from posenc.language import book
from posenc.recall import FIRST_SECRET, N_SECRETS, QUESTION, VOCABULARY, secret_first, with_secret
from posenc.tasks import (
    NOT_ASKED,
    Labelled,
    a_before_b,
    count_rows,
    encode,
    has_an_a,
    how_many_different,
    is_present,
    look_back,
    look_back_as_asked,
    look_back_by,
    more_a_than_b,
    ring_or_disc,
    spell,
    which_first,
    who_acts,
)

LENGTH = 12
TASKS: dict[str, Callable[[int, int], Labelled]] = {  # (examples, seed) -> texts of LENGTH tokens
    "which_first": partial(which_first, LENGTH),
    "look_back": partial(look_back, LENGTH),
    "count_rows": partial(count_rows, LENGTH, bos=True, constant=False),
    "a_before_b": a_before_b,
    "has_an_a": has_an_a,
    "more_a_than_b": more_a_than_b,
    "how_many_different": how_many_different,
    "ring_or_disc": lambda examples, seed: Labelled(*ring_or_disc(examples, seed, points=LENGTH)),
    "look_back_by": partial(look_back_by, 3, LENGTH),
    "look_back_as_asked": partial(look_back_as_asked, LENGTH),
    "with_secret": partial(with_secret, book()[0], LENGTH),
    "needle_at": partial(needle_at, book()[0], LENGTH, 0.5),
    "needle_a_chunk": partial(needle_a_chunk, 3, 4),
    "one_needle": partial(one_needle, 3, 4),
}


@pytest.mark.parametrize("name", list(TASKS))
def test_the_seed_alone_decides(name):
    """Torch's own generator is neither asked nor moved."""
    make = TASKS[name]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = make(50, 6)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    same, other = make(50, 6), make(50, 7)
    assert torch.equal(one.tokens, same.tokens)
    assert torch.equal(one.labels, same.labels)
    assert not torch.equal(one.tokens, other.tokens)
    assert one.tokens.shape[:2] == (50, LENGTH)
    assert len(one) == len(one.labels) == 50
    assert one.labels.dtype == torch.int64


@pytest.mark.parametrize("task", [a_before_b, has_an_a, more_a_than_b, how_many_different, ring_or_disc])
def test_what_nobody_says_is_seed_0_and_twelve_letters_or_sixteen_points(task):
    given = {"points": 16, "noise": 0.1} if task is ring_or_disc else {"length": 12}
    given |= {"letters": 4} if task is how_many_different else {}
    for short, long in zip(vars_of(task(20)), vars_of(task(20, seed=0, **given)), strict=True):
        assert torch.equal(short, long)


def vars_of(task) -> tuple[torch.Tensor, torch.Tensor]:
    return task if isinstance(task, tuple) else (task.tokens, task.labels)


def evenly(tokens: torch.Tensor, values: range) -> bool:
    """Whether these values occur, no others, and each about as often as the others."""
    counts = torch.stack([(tokens == value).sum() for value in values]).double()
    few = max(0.1 * counts.mean().item(), 4.5 * counts.mean().item() ** 0.5)  # so many more or fewer is chance
    return int(counts.sum()) == tokens.numel() and bool(((counts - counts.mean()).abs() < few).all())


def test_fillers_are_drawn_evenly():
    def drawn(name: str, seen: Callable[[torch.Tensor], torch.Tensor] = torch.ones_like) -> torch.Tensor:
        tokens = TASKS[name](1500, 1).tokens
        return tokens[seen(tokens).bool()]

    assert evenly(drawn("which_first", lambda t: t > 2), range(3, 9))
    assert evenly(drawn("look_back", lambda t: torch.arange(LENGTH) > 0 * t), range(1, 9))
    assert evenly(drawn("count_rows", lambda t: torch.arange(LENGTH) > 0 * t), range(1, 9))
    for name in ("a_before_b", "more_a_than_b"):
        assert evenly(drawn(name, lambda t: t > 1), range(2, 12))  # C to L
    assert evenly(drawn("has_an_a", lambda t: t > 0), range(1, 12))  # B to L
    assert evenly(drawn("how_many_different"), range(4))
    for name in ("look_back_by", "look_back_as_asked"):
        assert evenly(drawn(name), range(8))
    assert not evenly(torch.arange(800) % 8, range(9))
    assert not evenly(torch.arange(800) % 8, range(7))


def test_without_a_bos_the_first_row_holds_a_token_of_its_own():
    tokens = count_rows(6, 400, seed=0, bos=False, constant=False).tokens
    alike = [(tokens[:, 0] == tokens[:, k]).double().mean().item() for k in range(6)]
    assert alike[0] == 1
    assert max(alike[1:]) < 0.25  # by chance 1 in 8


# --- sentences and words


def test_words_are_numbered_as_they_are_listed():
    assert encode("dog bites cat").tolist() == [0, 6, 1]
    assert encode("fox sees hen man likes owl").tolist() == [2, 7, 3, 4, 8, 5]


def test_a_word_is_present_only_as_a_whole():
    task = is_present("owl")
    assert task.tokens.shape == (90, 3)
    assert task.labels.dtype == torch.int64
    assert task.labels.tolist() == [int(5 in row) for row in task.tokens.tolist()]
    assert is_present("he").labels.sum() == 0  # in "hen", but no word
    assert torch.equal(task.tokens, who_acts().tokens)


def test_no_letters_are_a_text_too():
    assert spell("").shape == (0,)
    assert spell("").dtype == spell("LOG").dtype == torch.int64


def test_which_first_may_have_no_filler_and_a_and_b_stand_anywhere():
    assert {tuple(row) for row in which_first(3, 50, seed=0).tokens.tolist()} == {(0, 1, 2), (1, 0, 2)}
    tokens = which_first(6, 500, seed=0).tokens
    for letter in (0, 1):
        assert evenly((tokens == letter).int().argmax(dim=1), range(5))


def test_an_a_occurs_once_or_not_at_all_at_any_place():
    task = has_an_a(3000, seed=2)
    assert torch.equal((task.tokens == 0).sum(dim=1), task.labels)
    assert evenly((task.tokens == 0).int().argmax(dim=1)[task.labels == 1], range(12))


def test_a_majority_is_of_an_odd_number_of_any_size():
    tokens = more_a_than_b(3000, seed=2).tokens
    n_a, both = (tokens == 0).sum(dim=1), (tokens < 2).sum(dim=1)
    assert evenly(both // 2, range(6))
    assert (both % 2 == 1).all()
    for size in (1, 3, 5, 7, 9, 11):
        assert set(n_a[both == size].tolist()) == set(range(size + 1))


def test_each_letter_of_a_word_of_two_letters_comes_about_as_often():
    task = how_many_different(2000, seed=3)
    counts = torch.stack([(task.tokens == letter).sum(dim=1) for letter in range(4)], dim=1)
    rarer = counts[task.labels == 1].sort(dim=1).values[:, 2]
    assert 4 < rarer.double().mean() < 6  # of 12; a letter that hardly comes would be 1
    assert task.labels.max() == 3
    assert how_many_different(500, seed=3, letters=3).labels.unique().tolist() == [0, 1, 2]


def test_points_lie_in_every_direction_and_are_moved_by_the_noise_alone():
    clean, labels = ring_or_disc(2000, seed=0, noise=0.0)
    sector = (torch.atan2(clean[..., 1], clean[..., 0]) / torch.pi * 4).floor().long() + 4
    assert evenly(sector.clamp(0, 7), range(8))
    assert evenly(labels, range(2))
    moved, same = ring_or_disc(2000, seed=0, noise=0.3)
    assert torch.equal(same, labels)
    steps = (moved - clean).flatten()
    assert steps.std().item() == pytest.approx(0.3, rel=0.02)
    assert steps.mean().item() == pytest.approx(0, abs=0.01)


def test_the_row_next_door_may_be_asked_for():
    task = look_back_by(1, 2, 300, seed=0)
    assert (task.labels[:, 0] == NOT_ASKED).all()
    assert torch.equal(task.labels[:, 1], task.tokens[:, 0])


def test_a_token_asks_for_one_of_four_distances():
    task = look_back_as_asked(9, 200, seed=0)
    assert (task.labels[:, 4:] != NOT_ASKED).all()
    for token in range(8):
        rows, places = torch.nonzero(task.tokens == token, as_tuple=True)
        away = 1 + token % 4
        late = places >= away
        assert torch.equal(task.labels[rows, places][late], task.tokens[rows, places - away][late])
        assert (task.labels[rows, places][~late] == NOT_ASKED).all()


# --- the secret and the questions


def test_signs_are_letters_then_secrets_then_the_question():
    assert (FIRST_SECRET, N_SECRETS, QUESTION, VOCABULARY) == (27, 8, 35, 36)
    tokens = with_secret(book()[0], 60, 300, seed=0).tokens
    assert tokens.unique().tolist() == list(range(VOCABULARY))


def test_passages_with_a_secret_are_the_texts_own():
    ids = book()[0][:300]
    text = "".join(map(chr, 65 + ids))
    for row in with_secret(ids, 40, 60, seed=0, questions=3).tokens:
        (place,) = torch.nonzero((row >= FIRST_SECRET) & (row < QUESTION))[:, 0].tolist()
        letters = [chr(65 + letter) for letter in row.tolist()]
        assert re.search("".join(letters[:place]) + "." + "".join(map(re.escape, letters[place + 1 : 37])), text)
    starts = {tuple(row.tolist()[:2]) for row in with_secret(torch.arange(14), 12, 200, seed=0).tokens}
    assert {(0, 1), (1, 2)} < starts
    assert not {row[0] for row in starts} - {0, 1, *range(FIRST_SECRET, QUESTION)}


def test_six_questions_are_asked_unless_it_is_said():
    ids = book()[0]
    for task in (with_secret(ids, 20, 9, 0), secret_first(ids, 20, 9, longest=20)):
        assert ((task.tokens == QUESTION).sum(dim=1) == 6).all()
        assert (task.tokens[:, -6:] == QUESTION).all()


def test_test_passages_end_from_the_longest_on_to_the_end_of_the_text():
    ids = torch.arange(26)
    short, long = (secret_first(ids, n, 3, longest=9, questions=1).tokens for n in (4, 9))
    assert short[:, 1:-1].tolist() == [[7, 8], [15, 16], [23, 24]]
    assert long[:, 1:-1].tolist() == [[*range(2, 9)], [*range(10, 17)], [*range(18, 25)]]


def test_one_question_fits_and_one_letter_beside_the_secret():
    ids = book()[0]
    short = partial(secret_first, longest=50)
    for make in (lambda **kept: with_secret(ids, 8, 4, 0, **kept), lambda **kept: short(ids, 8, 4, **kept)):
        for questions in (1, 6):
            assert (make(questions=questions).tokens == QUESTION).sum() == 4 * questions
        for questions in (0, 7):
            wanted = f"8 tokens needs 1 to 6 question marks, and fewer than {len(ids)} tokens; got {questions}"
            with pytest.raises(ValueError, match=wanted):
                make(questions=questions)
