"""The small Transformer, its tasks and its training."""

import math

import pytest
import torch
from torch.nn import functional as F

from posenc.encoding import NoPE, RowNumber
from posenc.learned import Learned
from posenc.masks import Causal
from posenc.model import Block, Transformer, build
from posenc.symmetry import difference, invariance_error, must_break
from posenc.tasks import ANIMALS, all_sentences, encode, is_present, who_acts
from posenc.train import accuracy, train, train_side_by_side

SETTINGS = {"vocabulary": 9, "d_model": 16, "n_layers": 2, "n_heads": 2, "n_outputs": 2}


@pytest.mark.parametrize(("readout", "shape"), [("each", (3, 5, 2)), ("mean", (3, 2)), ("last", (3, 2))])
def test_shapes_of_the_readouts(readout, shape):
    tokens = torch.randint(9, (3, 5))
    assert build(0, readout=readout, **SETTINGS)(tokens).shape == shape


def test_a_readout_takes_the_mean_or_the_last_of_all_rows():
    tokens = torch.tensor([[4, 0, 7, 2, 7]])
    each = build(0, **SETTINGS).double()(tokens)
    assert difference(build(0, readout="each", **SETTINGS).double()(tokens), each) == 0
    assert difference(build(0, readout="mean", **SETTINGS).double()(tokens), each.mean(dim=1)) < 1e-12
    assert difference(build(0, readout="last", **SETTINGS).double()(tokens), each[:, -1]) < 1e-12


def test_a_block_is_attention_then_feed_forward_each_of_a_norm_and_added():
    torch.manual_seed(0)
    block, x = Block(8, 2, Causal()).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    places = torch.tensor([4, 0, 3, 1, 2])
    middle = x + block.attention(block.attention_norm(x), places)
    assert difference(block(x, places), middle + block.feed_forward(block.feed_forward_norm(middle))) < 1e-12
    widen, _, narrow = block.feed_forward
    assert (widen.in_features, widen.out_features, narrow.out_features) == (8, 32, 8)


def test_a_model_may_have_no_layers_and_still_opens_its_token_door():
    model, tokens = build(0, **(SETTINGS | {"n_layers": 0}), encoding=RowNumber()), torch.tensor([[3, 3, 1]])
    assert len(model.blocks) == 0
    moved = RowNumber().tokens(model.embedding(tokens), torch.arange(3))
    assert difference(model(tokens), model.to_logits(model.norm(moved))) == 0


def test_unknown_readout_is_refused():
    with pytest.raises(ValueError, match="readout must be 'mean', 'last' or 'each', got 'cls'"):
        Transformer(readout="cls", **SETTINGS)


def test_pooled_model_is_invariant_until_a_door_opens():
    def error(encoding):
        model = build(0, encoding=encoding, readout="mean", **SETTINGS).double()
        tokens = torch.tensor([[0, 1, 2, 3, 4, 5]])
        return difference(model(tokens), model(tokens[:, torch.tensor([3, 0, 5, 1, 2, 4])]))

    assert error(None) < 1e-12
    must_break(error(RowNumber()))
    must_break(error(Causal()))


def test_read_out_of_the_last_row_is_not_symmetric():
    model = build(0, readout="last", **SETTINGS).double()
    embedded = lambda rows: model.to_logits(model._read(rows))  # noqa: E731
    must_break(invariance_error(embedded, torch.randn(5, 16, dtype=torch.float64), torch.arange(5).roll(1)))


def test_one_seed_is_one_model_and_the_global_state_stays():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    a, b, c = build(1, **SETTINGS), build(1, **SETTINGS), build(2, **SETTINGS)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(a.embedding.weight, b.embedding.weight)
    assert not torch.equal(a.embedding.weight, c.embedding.weight)


def test_sentences_come_in_pairs_of_opposite_labels():
    task = who_acts()
    label = dict(zip(all_sentences(), task.labels.tolist(), strict=True))
    assert len(task) == 90
    for sentence, answer in label.items():
        a, verb, b = sentence.split()
        assert label[f"{b} {verb} {a}"] == 1 - answer
    assert label["dog bites man"] == (ANIMALS.index("dog") < ANIMALS.index("man"))
    assert is_present("dog").labels.sum() == 2 * 5 * 3


def test_unknown_word_is_named():
    with pytest.raises(ValueError, match="'whale' is not in the vocabulary"):
        encode("dog bites whale")


def test_training_is_reproducible_and_learns_what_can_be_learned():
    runs = []
    for _ in range(2):
        model = build(0, encoding=RowNumber(), readout="mean", **SETTINGS)
        runs.append(train(model, who_acts(), steps=60, learning_rate=1e-2))
    assert runs[0] == pytest.approx(runs[1], rel=1e-3)
    assert accuracy(model, who_acts()) > 0.9


def test_side_by_side_is_one_after_the_other():
    """Also where a table is registered twice, by the model for its token door and by its layers."""
    task, steps = who_acts(), {"steps": 20, "batch": 16, "learning_rate": 1e-2}

    def both():
        torch.manual_seed(0)
        return [build(s, **SETTINGS, readout="mean", encoding=Learned(3, 16)).double() for s in (1, 2)]

    apart, together, untrained = both(), both(), both()
    for seed, model in enumerate(apart):
        train(model, task, **steps, seed=seed)
    train_side_by_side(together, [task, task], **steps, seeds=[0, 1])
    for one, other, before in zip(apart, together, untrained, strict=True):
        assert difference(one(task.tokens), other(task.tokens)) < 1e-9
        must_break(difference(one.encoding.table, before.encoding.table))
    must_break(difference(together[0](task.tokens), together[1](task.tokens)))


def test_loss_of_a_set_model_never_falls_below_ln_2():
    model, task = build(0, readout="mean", **SETTINGS), who_acts()
    train(model, task, steps=30)
    model.double()
    assert F.cross_entropy(model(task.tokens), task.labels).item() >= math.log(2) - 1e-12
    assert accuracy(model, task) == pytest.approx(0.5, abs=0.1)


def test_each_layer_may_have_an_encoding_of_its_own():
    tokens = torch.tensor([[0, 1, 2, 3, 4, 5]])
    one = build(0, encoding=Causal(), **SETTINGS).double()
    both = build(0, encoding=[Causal(), Causal()], **SETTINGS).double()
    first_only = build(0, encoding=[Causal(), NoPE()], **SETTINGS).double()
    assert difference(one(tokens), both(tokens)) == 0
    must_break(difference(one(tokens), first_only(tokens)))
    assert [type(block.attention.encoding) for block in first_only.blocks] == [Causal, NoPE]


def test_the_token_door_is_the_first_layers():
    tokens = torch.tensor([[0, 1, 2]])
    first, second = ([RowNumber(), NoPE()], [NoPE(), RowNumber()])
    plain = build(0, **SETTINGS).double()(tokens)
    must_break(difference(build(0, encoding=first, **SETTINGS).double()(tokens), plain))
    assert difference(build(0, encoding=second, **SETTINGS).double()(tokens), plain) == 0


def test_a_wrong_number_of_encodings_is_refused():
    with pytest.raises(ValueError, match="got 3 for 2 layers"):
        build(0, encoding=[NoPE()] * 3, **SETTINGS)
