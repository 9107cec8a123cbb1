"""What chapter 5 adds to the library: learned tables, their resizing, and a model of letters."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from posenc.absolute import Sinusoidal, sinusoids
from posenc.checks.chapter_05 import EXTENDED_TABLE, LIMIT, LIMIT_NEW, READ_ROWS, STRETCH, losses_with, stretch
from posenc.checks.examine import examine
from posenc.encoding import NoPE
from posenc.language import (
    ALPHABET,
    N_STORED,
    book,
    cut,
    ids_of,
    letter_model,
    loss_by_position,
    passages,
    stored_model,
    text_of,
    with_table,
)
from posenc.learned import Learned, bart_rows, check_positions, opt_rows, resize_table, roberta_rows
from posenc.model import build
from posenc.symmetry import difference, must_break
from posenc.text import alice, letters_of
from posenc.train import cross_entropy, train


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the table


def test_learned_equals_nn_embedding_and_keeps_the_dtype():
    encoding, x = Learned(7, 4), normal(2, 3, 4)
    positions = torch.tensor([[0, 1, 2], [6, 6, 3]])
    expected = x + nn.Embedding.from_pretrained(encoding.table.detach())(positions)
    assert difference(encoding.tokens(x, positions), expected) < 1e-12
    assert encoding.tokens(x, positions).dtype == torch.float64
    assert sum(p.numel() for p in encoding.parameters()) == 28


def test_it_starts_small():
    torch.manual_seed(0)
    assert Learned(1000, 64).table.std().item() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize(
    ("positions", "words"),
    [([0, 7], "position 7 has no row: the table has 7, for positions 0 to 6"), ([3, -1], "count from 0, got -1")],
)
def test_positions_without_a_row_are_refused_by_name(positions, words):
    with pytest.raises(ValueError, match=words):
        Learned(7, 4).tokens(normal(2, 4), torch.tensor(positions))


def test_all_rows_and_no_rows_are_accepted():
    check_positions(torch.arange(7), 7)
    check_positions(torch.zeros(0, dtype=torch.long), 7)


def test_gradients_reach_the_rows_that_were_read_and_no_others():
    encoding = Learned(9, 8)
    model = build(0, vocabulary=5, d_model=8, n_layers=1, n_heads=2, n_outputs=3, encoding=encoding)
    model(torch.randint(5, (2, 4), generator=torch.Generator().manual_seed(0))).square().sum().backward()
    norms = encoding.table.grad.norm(dim=-1)
    assert norms[4:].max() == 0 < norms[:4].min()


def test_relabelling_positions_and_rows_changes_nothing_and_sinusoids_notice():
    labels, ids = torch.tensor([3, 0, 5, 1, 4, 2]), torch.randint(9, (2, 6), generator=torch.Generator().manual_seed(0))
    sizes = {"vocabulary": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_outputs": 3}
    first, second = Learned(6, 8, std=1.0), Learned(6, 8)
    second.table.data[labels] = first.table.data
    ours, theirs = (build(0, **sizes, encoding=encoding).double() for encoding in (first, second))
    assert difference(ours(ids), theirs(ids, labels)) < 1e-12
    waves = build(0, **sizes, encoding=Sinusoidal()).double()
    must_break(difference(waves(ids), waves(ids, labels)))


# --- resizing


@pytest.mark.parametrize("reserved", [0, 2])
@pytest.mark.parametrize("n_new", [1, 3, 8, 13])
def test_linear_resizing_equals_numpys(n_new, reserved):
    table = normal(8 + reserved, 3)
    got = resize_table(table, n_new, reserved=reserved)
    places = np.linspace(0, 7, n_new)
    expected = [np.interp(places, np.arange(8), table[reserved:, k].numpy()) for k in range(3)]
    assert difference(got[reserved:], torch.tensor(np.stack(expected, axis=1))) < 1e-12
    assert torch.equal(got[:reserved], table[:reserved])


def cubic_by_hand(rows: torch.Tensor, place: float, a: float = -0.75) -> torch.Tensor:
    """Keys' cubic convolution, with torch's constant and its repeated edges."""
    left, total = int(np.floor(place)), torch.zeros(rows.shape[1], dtype=rows.dtype)
    for j in range(left - 1, left + 3):
        d = abs(place - j)
        weight = (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * (d**3 - 5 * d**2 + 8 * d - 4)
        total += weight * rows[min(max(j, 0), len(rows) - 1)]
    return total


def test_cubic_resizing_equals_keys_convolution():
    rows = normal(6, 3)
    got = resize_table(rows, 11, "cubic")
    expected = torch.stack([cubic_by_hand(rows, place) for place in np.linspace(0, 5, 11)])
    assert difference(got, expected) < 1e-12


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resizing_keeps_ends_dtype_and_a_table_of_the_right_size(mode):
    table = normal(6, 3).float()
    longer = resize_table(table, 13, mode)
    assert longer.dtype == torch.float32
    assert difference(longer[[0, -1]], table[[0, -1]]) < 1e-6
    assert difference(resize_table(table, 6, mode), table) < 1e-6


def test_resizing_the_reserved_rows_as_well_is_something_else():
    table = normal(8, 3)
    must_break(difference(resize_table(table, 11), resize_table(table, 9, reserved=2)))


def test_resizing_refuses_what_cannot_be():
    table = normal(4, 3)
    refused = [((6, "nearest"), "linear"), ((0,), "n_new >= 1")]
    refused += [((6, "linear", reserved), "0 <= reserved < 4") for reserved in (4, -1)]
    for arguments, words in refused:
        with pytest.raises(ValueError, match=words):
            resize_table(table, *arguments)


def test_the_middle_of_two_sinusoids_is_shorter_by_the_cosine_of_half_a_step():
    rows, turns = sinusoids(torch.arange(2), 8).double(), 10_000 ** (-torch.arange(0, 8, 2).double() / 8)
    lengths = resize_table(rows, 3)[1].unflatten(-1, (-1, 2)).norm(dim=-1)
    assert difference(lengths, (turns / 2).cos()) < 1e-6


# --- the conventions, by hand (parity with the real classes: test_parity_05)


def test_conventions_on_padded_texts():
    ids = torch.tensor([[1, 1, 7, 8], [7, 8, 9, 1]])
    assert roberta_rows(ids).tolist() == [[1, 1, 2, 3], [2, 3, 4, 1]]
    assert roberta_rows(ids - 1, padding=0).tolist() == [[0, 0, 1, 2], [1, 2, 3, 0]]
    assert opt_rows(ids != 1).tolist() == [[1, 1, 2, 3], [2, 3, 4, 1]]
    assert bart_rows(4).tolist() == [2, 3, 4, 5]


# --- the letters


def test_letters_go_to_numbers_and_back():
    assert ids_of("a cat").tolist() == [1, 0, 3, 1, 20]
    assert text_of(ids_of("the rabbit")) == "the rabbit"
    with pytest.raises(ValueError, match="'A' is not in the alphabet"):
        ids_of("Alice")


def test_the_book_is_cut_into_nine_tenths_and_one():
    train_ids, test_ids = book()
    assert text_of(torch.cat([train_ids, test_ids])) == letters_of(alice())
    assert len(train_ids) == 9 * (len(train_ids) + len(test_ids)) // 10


def test_passages_are_seeded_and_their_labels_are_the_next_letters():
    ids = torch.arange(50)
    first, again, other = passages(ids, 7, 20, 1), passages(ids, 7, 20, 1), passages(ids, 7, 20, 2)
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    assert torch.equal(first.labels, first.tokens + 1)
    assert passages(ids, 7, 2000, 0).labels.max() == 49  # the last letter is somebody's label


def test_cut_uses_every_letter_once():
    task = cut(torch.arange(22), 7)
    assert task.tokens.flatten().tolist() == list(range(21))
    assert torch.equal(task.labels, task.tokens + 1)
    assert len(cut(torch.arange(21), 7)) == 2


@pytest.mark.parametrize("length", [0, 22, 30])
def test_passages_that_do_not_fit_are_refused(length):
    for make in (lambda: passages(torch.arange(22), length, 3, 0), lambda: cut(torch.arange(22), length)):
        with pytest.raises(ValueError, match="1 to 21 letters"):
            make()


def test_loss_by_position_averages_to_the_cross_entropy():
    model, task = letter_model(0, NoPE(), d_model=8), cut(book()[1][:100], 9)
    by_position = loss_by_position(model, task)
    assert by_position.shape == (9,)
    with torch.no_grad():
        assert by_position.mean().item() == pytest.approx(
            cross_entropy(model(task.tokens), task.labels).item(), rel=1e-5
        )


def test_a_letter_model_learns():
    train_ids, test_ids = book()
    model, test = letter_model(0, Sinusoidal(), d_model=16), cut(test_ids[:2000], 16)
    before = loss_by_position(model, test).mean()
    train(model, passages(train_ids, 16, 512, 0), steps=40, batch=16, learning_rate=1e-2)
    assert loss_by_position(model, test).mean() < before - 0.5


# --- the stored model


def test_the_stored_model_is_trained_and_small():
    model = stored_model()
    assert model.embedding.num_embeddings == len(ALPHABET)
    assert loss_by_position(model, cut(book()[1], N_STORED)).mean() < 1.8


def test_another_table_leaves_the_model_alone():
    model, texts = stored_model(), cut(book()[1][:500], N_STORED)
    before = model(texts.tokens)
    table = model.encoding.encodings[1].table.detach()
    assert difference(with_table(model, table)(texts.tokens), before) == 0
    must_break(difference(with_table(model, table.flip(0))(texts.tokens), before))
    assert difference(model(texts.tokens), before) == 0
    with pytest.raises(ValueError, match="shape"):
        with_table(model, torch.zeros(5, 31))


def test_the_limits_of_the_last_exercise_lie_between_stretching_and_everything_else():
    for answer in (EXTENDED_TABLE.reference, *EXTENDED_TABLE.also_right):
        mean, _, new = losses_with(answer().float())
        assert mean < LIMIT - 0.01
        assert new < LIMIT_NEW - 0.02
    for mistake in EXTENDED_TABLE.mistakes:
        mean, _, new = losses_with(mistake.function())
        assert mean > LIMIT + 0.01 or new > LIMIT_NEW + 0.05, mistake.name


# --- the exercises' own checks


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize(("n", "n_new"), [(4, 7), (5, 1), (1, 4), (10, 3), (6, 6)])
def test_stretching_by_hand_equals_torch(n, n_new, align_corners):
    table = normal(n + 2, 3)
    expected = F.interpolate(table[2:].T[None], size=n_new, mode="linear", align_corners=align_corners)[0].T
    assert difference(stretch(table, n_new, 2, align_corners), torch.cat([table[:2], expected])) < 1e-12


def complaints(answer, exercise) -> list[str]:
    return [finding.name for finding in examine(answer, exercise).findings if finding.complaint]


def test_stretching_with_torch_is_noticed():
    def stretch(table, n_new, reserved, align_corners):
        rows = F.interpolate(table[reserved:].T[None], size=n_new, mode="linear", align_corners=align_corners)
        return torch.cat([table[:reserved], rows[0].T])

    assert complaints(stretch, STRETCH) == ["does without F.interpolate"]


@pytest.mark.parametrize(
    ("negative", "beyond"),
    [
        ("{highest_negative}", "{highest} {n_max}"),
        ("{lowest}", "{first_beyond} {n_max}"),
        ("{lowest}", "{highest} {rows}"),
        ("{lowest}", "{highest} {last}"),
        ("{all}", "{all} {n_max}"),
    ],
)
def test_a_refusal_must_name_the_worst_position(negative, beyond):
    def read_rows(table, positions, reserved):
        positions, n_max = positions.long(), len(table) - reserved
        below, above = positions[positions < 0], positions[positions >= n_max]
        if len(below):
            names = {"lowest": below.min(), "highest_negative": below.max(), "all": positions.tolist()}
            raise ValueError(negative.format(**names))
        if len(above):
            names = {"highest": above.max(), "first_beyond": above[0], "all": positions.tolist(), "n_max": n_max}
            raise ValueError(beyond.format(**names, rows=len(table), last=n_max - 1))
        return table[positions + reserved]

    report = examine(read_rows, READ_ROWS)
    assert report.status == "partly"
    assert report.mistake is None
    assert all("by name" in finding.name for finding in report.findings if finding.complaint)


def test_the_last_exercise_survives_strange_answers():
    for strange in ("x", [1, 2], torch.zeros(48, 32, dtype=torch.long), torch.full((48, 32), torch.nan)):
        assert examine(lambda strange=strange: strange, EXTENDED_TABLE).points == 0


def test_torch_itself_is_not_careful():
    """Negative control: what our check is for."""
    table = normal(6, 3)
    assert torch.equal(table[torch.tensor([-1])], table[5:])
    with pytest.raises(IndexError):
        F.embedding(torch.tensor([6]), table)
