"""Longer contexts: frequency scalings, clamps, layers that differ, and the study's pieces."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import torch

from posenc import extension
from posenc.absolute import frequencies
from posenc.contexts import (
    ClampedRotary,
    Layer,
    ScaledRotary,
    Temperature,
    by_parts,
    dynamic_base,
    interpolated,
    keys_seen,
    llama3,
    longrope,
    longrope_factor,
    ntk_base,
    reach,
    repeated,
    temperature,
    turns,
    yarn_factor,
    yarn_in_code,
)
from posenc.encoding import Together
from posenc.language import book
from posenc.masks import Causal, Chunked
from posenc.model import Block, build
from posenc.rotary import Rotary, rotate
from posenc.symmetry import difference, must_break, translation_error
from posenc.tasks import NOT_ASKED
from posenc.train import accuracy, cross_entropy


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- frequencies


def test_interpolating_positions_and_slowing_pairs_are_the_same():
    x, positions = normal(5, 8), torch.tensor([0, 1, 7, 100, 255])
    slowed = rotate(x, positions, frequencies=interpolated(frequencies(8), 4))
    assert difference(slowed, rotate(x, positions / 4)) < 1e-12


@pytest.mark.parametrize("head_dim", [4, 16, 128])
@pytest.mark.parametrize("scale", [1.0, 2.0, 8.0])
def test_ntk_keeps_the_fastest_pair_and_interpolates_the_slowest(head_dim, scale):
    before, after = frequencies(head_dim), frequencies(head_dim, ntk_base(10_000.0, scale, head_dim))
    assert after[0] == before[0]
    assert after[-1].item() == pytest.approx(before[-1].item() / scale, rel=1e-12)
    assert (after <= before + 1e-15).all()


@pytest.mark.parametrize("head_dim", [2, 3])
def test_one_pair_has_no_ntk_base(head_dim):
    with pytest.raises(ValueError, match="at least 4"):
        ntk_base(10_000.0, 2.0, head_dim)


@pytest.mark.parametrize("head_dim", [16, 64, 128])
@pytest.mark.parametrize("trained_length", [64, 4096, 8192])
def test_llama3_is_by_parts_from_one_to_four_turns(head_dim, trained_length):
    plain = frequencies(head_dim, 500_000.0)
    assert difference(llama3(plain, 8, trained_length), by_parts(plain, 8, trained_length, 1, 4)) < 1e-15
    assert difference(llama3(plain, 8, trained_length, 2, 5), by_parts(plain, 8, trained_length, 2, 5)) < 1e-15


def test_by_parts_keeps_slows_and_blends():
    plain = 2 * math.pi / 100 * torch.tensor([64.0, 32.0, 16.5, 1.0, 0.5], dtype=torch.float64)  # turns in 100
    share = (by_parts(plain, 4, 100) / plain).tolist()
    assert share == pytest.approx([1, 1, (1 + 0.25) / 2, 0.25, 0.25])
    assert turns(plain, 100).tolist() == pytest.approx([64, 32, 16.5, 1, 0.5])
    with pytest.raises(ValueError, match="below"):
        by_parts(plain, 4, 100, slow=4, fast=4)


def test_scale_one_changes_nothing():
    plain = frequencies(64)
    for same in (interpolated(plain, 1), by_parts(plain, 1, 4096), llama3(plain, 1, 8192)):
        assert difference(same, plain) < 1e-15
    assert difference(yarn_in_code(10_000.0, 64, 1, 4096), plain) < 1e-15
    assert yarn_factor(1) == longrope_factor(1, 4096) == 1


def test_the_papers_ramp_and_the_codes_ramp_agree_at_both_ends_and_not_between():
    plain, code = frequencies(128, 1e6), yarn_in_code(1e6, 128, 4, 32_768, truncate=False)
    paper = by_parts(plain, 4, 32_768)
    count = turns(plain, 32_768)
    outside = (count < 1) | (count > 32)
    assert difference(paper[outside], code[outside]) < 1e-12
    gap = ((paper - code) / code).abs().max().item()
    assert 0.3 < gap < 0.5


@pytest.mark.parametrize(
    ("trained_length", "fast", "stretched"),
    [
        (100, 32.0, [0, 1 / 3, 2 / 3, 1, 1, 1, 1, 1]),  # no pair makes 32 turns: the ramp begins at the first
        (3, 32.0, [0, 1, 1, 1, 1, 1, 1, 1]),  # nor one: a ramp of no length
        (1e9, 1e6, [0, 0, 0, 0, 0, 1 / 11, 2 / 11, 3 / 11]),  # every pair turns often: it ends at number 15
    ],
)
def test_yarns_ramp_in_code_stays_between_the_first_pair_and_the_width_of_the_head(trained_length, fast, stretched):
    share = yarn_in_code(10_000.0, 16, 4, trained_length, fast=fast) / frequencies(16)
    assert share.tolist() == pytest.approx([1 - s + s / 4 for s in stretched])


def test_factors_are_one_without_stretching_and_grow_with_the_logarithm():
    for scale in (0.5, 1):
        assert yarn_factor(scale) == longrope_factor(scale, 4096) == 1
    for scale in (1.5, 8):
        assert yarn_factor(scale) == pytest.approx(1 + 0.1 * math.log(scale))
        assert yarn_factor(scale, 0.5) == pytest.approx(1 + 0.05 * math.log(scale))
        assert longrope_factor(scale, 4096) == pytest.approx((1 + math.log(scale, 4096)) ** 0.5)


def test_dynamic_base_is_unchanged_up_to_the_trained_length():
    assert dynamic_base(1e4, 64, 10, 4096, 2.0) == dynamic_base(1e4, 64, 4096, 4096, 2.0) == 1e4
    assert dynamic_base(1e4, 64, 8192, 4096) == pytest.approx(ntk_base(1e4, 2.0, 64))


def test_longrope_divides_pair_by_pair():
    assert longrope(torch.tensor([1.0, 0.1]), torch.tensor([1.0, 4.0])).tolist() == pytest.approx([1, 0.025])
    with pytest.raises(ValueError, match="one factor a pair"):
        longrope(frequencies(8), torch.ones(3))


def test_temperature_is_one_up_to_the_floor_and_grows_by_steps():
    got = temperature(torch.tensor([0, 8190, 8191, 16_383]))
    assert got.tolist() == pytest.approx([1, 1, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(3)])


# --- encodings


def test_attention_factor_multiplies_scores_by_its_square():
    queries, keys, positions = normal(2, 5, 8), normal(2, 5, 8, seed=1), torch.arange(5)
    plain = Rotary().queries_and_keys(queries, keys, positions, positions)
    scaled = ScaledRotary(frequencies(8), 1.3).queries_and_keys(queries, keys, positions, positions)
    scores = [q @ k.mT for q, k in (plain, scaled)]
    assert difference(1.69 * scores[0], scores[1]) < 1e-12


def test_scaled_rotary_is_rotary_of_its_frequencies_unless_a_factor_is_given():
    x, positions = normal(3, 8), torch.arange(3)
    slowed = interpolated(frequencies(8), 4)
    for turned in ScaledRotary(slowed).queries_and_keys(x, x, positions, positions):
        assert torch.equal(turned, rotate(x, positions, frequencies=slowed))


def test_clamped_rotary_without_limits_is_rotary_and_with_limits_is_not():
    x, places = normal(12, 8), torch.arange(12)

    def layer(encoding):
        torch.manual_seed(0)
        return Block(8, 1, Together(Causal(), encoding)).double()

    expected = layer(Rotary())(x)
    free = torch.full((4,), math.inf)
    assert difference(layer(ClampedRotary(frequencies(8), free))(x), expected) < 1e-12
    assert difference(layer(ClampedRotary(frequencies(8), free.fill_(11)))(x), expected) < 1e-12
    tight = layer(ClampedRotary(frequencies(8), torch.full((4,), 5.0)))
    assert difference(tight(x)[:6], expected[:6]) < 1e-12  # no offset above 5 yet
    must_break(difference(tight(x)[6:], expected[6:]))
    assert translation_error(tight, x, places, 17) < 1e-12


@pytest.mark.parametrize("positions", [torch.arange(12), torch.arange(5, 17).expand(2, 1, 12)], ids=["(n,)", "batch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clamped_rotary_pair_by_pair(dtype, positions):
    queries, keys = normal(2, 3, 12, 8).to(dtype), normal(2, 3, 12, 8, seed=1).to(dtype)
    limits = torch.tensor([2.0, math.inf, 5.0, 2.0], dtype=torch.float64)
    got = ClampedRotary(frequencies(8), limits).scores(
        torch.zeros(2, 3, 12, 12, dtype=dtype), queries, keys, positions, positions
    )
    assert got.dtype == dtype
    for i in range(12):
        for j in range(i + 1):
            expected = 0
            for k, (frequency, limit) in enumerate(zip(frequencies(8), limits, strict=True)):
                q = torch.view_as_complex(queries[..., i, 2 * k : 2 * k + 2].double().contiguous())
                key = torch.view_as_complex(keys[..., j, 2 * k : 2 * k + 2].double().contiguous())
                angle = frequency * min(i - j, limit.item())
                expected = expected + (q * key.conj() * torch.polar(torch.ones_like(angle), angle)).real
            assert difference(got[..., i, j].double(), expected / 8**0.5) < (1e-12 if dtype == torch.float64 else 1e-5)


def test_temperature_sharpens_late_queries_alone():
    queries, keys, positions = normal(4, 8), normal(4, 8), torch.tensor([0, 1, 63, 64])
    warmed, kept = Temperature(64).queries_and_keys(queries, keys, positions, positions)
    assert difference(kept, keys) == 0
    assert difference(warmed[:2], queries[:2]) == 0
    assert difference(warmed[2:], (1 + 0.1 * math.log(2)) * queries[2:]) < 1e-6
    late = torch.tensor([8190, 8191, 16_382, 16_383])
    as_released = temperature(late).unsqueeze(-1).double() * queries
    assert torch.equal(Temperature().queries_and_keys(queries, keys, late, late)[0], as_released)


# --- layers

STACKS = {
    "windows": [Layer(window=3)] * 3,
    "chunks": [Layer(chunk=4)] * 3,
    "chunk over window": [Layer(window=3), Layer(chunk=4)],
    "window over chunk": [Layer(chunk=4), Layer(window=3)],
    "a full layer": repeated((Layer(chunk=4), Layer(chunk=4), Layer(rope=False)), 4),
}


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("position", [0, 3, 8, 9, 14])
def test_reach_is_what_the_gradient_says(name, position):
    torch.manual_seed(0)
    blocks = [Block(8, 1, layer.encoding(Rotary())).double() for layer in STACKS[name]]
    firsts = reach(STACKS[name], position)
    assert len(firsts) == len(blocks)
    for depth, expected in enumerate(firsts, start=1):
        x = normal(15, 8).requires_grad_()
        y = x
        for block in blocks[:depth]:
            y = block(y)
        y[position].sum().backward()
        seen = (x.grad.abs().sum(dim=-1) > 1e-12).nonzero().squeeze(-1).tolist()
        assert seen == list(range(expected, position + 1))


def test_keys_seen_and_bounded():
    layers = [Layer(window=4), Layer(chunk=8), Layer()]
    assert keys_seen(layers, 9) == 4 + 2 + 10
    assert [layer.is_bounded for layer in layers] == [True, True, False]
    with pytest.raises(ValueError, match="not both"):
        Layer(window=3, chunk=4)


def test_a_layer_rotates_unless_it_is_told_not_to():
    x, positions = normal(3, 8), torch.arange(3)
    for layer in (Layer(), Layer(window=2), Layer(chunk=2)):
        turned, _ = layer.encoding(Rotary()).queries_and_keys(x, x, positions, positions)
        assert torch.equal(turned, rotate(x, positions))
        left, _ = dataclasses.replace(layer, rope=False).encoding(Rotary()).queries_and_keys(x, x, positions, positions)
        assert torch.equal(left, x)


def test_a_stack_of_chunks_keeps_chunks_apart_and_a_nope_layer_joins_them():
    settings = {"vocabulary": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_outputs": 9}
    tokens = extension.one_needle(3, 4, 2, seed=0).tokens
    other = tokens.clone()
    other[:, :4] = (other[:, :4] + 1) % 9  # another first chunk
    local = Together(Chunked(4), Rotary())
    apart, joined = (build(0, **settings, encoding=e).double() for e in ([local, local], [local, Causal()]))
    assert difference(apart(tokens)[:, 4:], apart(other)[:, 4:]) < 1e-12
    must_break(difference(joined(tokens)[:, -1], joined(other)[:, -1]))


# --- the study


def in_text(tokens: torch.Tensor, ids: torch.Tensor, changed: torch.Tensor) -> bool:
    """Whether a passage is in the text, except for the tokens that were changed. tokens, changed: (n,)."""
    pieces = ["." if c else chr(65 + t) for t, c in zip(tokens.tolist(), changed.tolist(), strict=True)]
    return re.search("".join(pieces), "".join(chr(65 + i) for i in ids.tolist())) is not None


def test_passages_hold_their_needles():
    ids, generator = book()[0][:300], torch.Generator().manual_seed(0)
    task = extension.with_needles(ids, 20, 300, generator)
    assert torch.equal(task.labels[:, :-1], task.tokens[:, 1:])
    text = torch.cat([task.tokens, task.labels[:, -1:]], dim=1)  # (300, 21)
    marks = text == extension.MARK
    after = marks.roll(1, dims=1)
    assert (marks.sum(dim=1) == 4).all()
    assert not (marks & after).any()
    letters = text[after].view(300, 4)  # the same letter after each mark, and no space
    assert (letters == letters[:, :1]).all()
    assert letters.unique().tolist() == list(range(1, 27))
    assert marks[:, :20].any(dim=0).all()  # anywhere
    assert all(in_text(row, ids, change) for row, change in zip(text, marks | after, strict=True))
    assert not in_text(text[0].flip(0), ids, (marks | after)[0].flip(0))
    two = extension.with_needles(ids, 20, 30, generator, needles=2).tokens
    assert (two == extension.MARK).sum(dim=1).max() == 2
    assert extension.with_needles(ids[:14], 12, 9, generator).tokens.shape == (9, 12)


@pytest.mark.parametrize(("depth", "place"), [(0.0, 0), (0.5, 4), (0.6, 4), (1.0, 8)])
def test_a_needle_lies_at_its_depth_and_is_asked_for_at_the_end(depth, place):
    ids = book()[1][:300]
    task = extension.needle_at(ids, 12, depth, 300, seed=0)
    letters = task.tokens[:, place + 1]
    assert (task.tokens[:, [place, -1]] == extension.MARK).all()
    assert letters.unique().tolist() == list(range(1, 27))
    assert torch.equal(task.labels[:, -1], letters)
    assert (task.labels[:, :-1] == NOT_ASKED).all()
    changed = torch.isin(torch.arange(12), torch.tensor([place, place + 1, 11]))
    assert all(in_text(row, ids, changed) for row in task.tokens)
    starts = {tuple(row) for row in extension.needle_at(torch.arange(14), 12, 0.0, 99, seed=0).tokens[:, 2:4].tolist()}
    assert starts == {(2, 3), (3, 4)}


def test_chunks_hold_one_needle_each():
    task = extension.needle_a_chunk(4, 8, 400, seed=0)
    marks = task.tokens == 0
    assert (marks.view(400, 4, 8).sum(dim=-1) == 1).all()
    assert marks.view(400, 4, 8).any(dim=0).tolist() == [[True] * 7 + [False]] * 4  # the letter fits too
    letters = task.tokens[marks.roll(1, dims=1)].view(400, 4)
    assert (letters == letters[:, :1]).all()
    fillers = task.tokens[~(marks | marks.roll(1, dims=1))]
    assert letters.unique().tolist() == fillers.unique().tolist() == list(range(1, 9))
    asked = task.labels != NOT_ASKED
    assert torch.equal(asked, marks & (torch.arange(32) >= 8))  # all but the first
    assert torch.equal(task.labels[asked].view(400, 3), letters[:, 1:])


def test_the_test_of_chunks_holds_one_needle_in_any_but_the_last():
    task = extension.one_needle(4, 8, 600, seed=0)
    marks = task.tokens == 0
    assert (marks.sum(dim=1) == 2).all()
    assert marks[:, -1].all()
    early = marks[:, :24].view(600, 3, 8)
    assert early.any(dim=0).tolist() == [[True] * 7 + [False]] * 3
    assert not marks[:, 24:-1].any()
    letters = task.tokens[marks[:, :-1].nonzero(as_tuple=True)[0], marks[:, :-1].nonzero(as_tuple=True)[1] + 1]
    assert torch.equal(task.labels[:, -1], letters)
    fillers = task.tokens[~(marks | marks.roll(1, dims=1))]
    assert letters.unique().tolist() == fillers.unique().tolist() == list(range(1, 9))
    assert (task.labels[:, :-1] == NOT_ASKED).all()


def small(seed: int = 0, encoding=None):
    """A model of the study's sizes, untrained."""
    return build(
        seed, **extension.SETTINGS, encoding=encoding if encoding is not None else Together(Causal(), Rotary())
    )


def test_the_models_of_the_study_are_small():
    model = extension.copy_with(small(), Causal())
    assert (model.embedding.num_embeddings, model.embedding.embedding_dim) == (28, 64)  # 27 letters and the mark
    assert (len(model.blocks), model.blocks[0].attention.n_heads, model.to_logits.out_features) == (2, 4, 28)
    assert (extension.HEAD_DIM, extension.TRAINED, extension.MARK) == (16, 64, 27)
    assert extension.PLAIN.tolist() == pytest.approx([10_000 ** (-k / 8) for k in range(8)])


def test_to_fit_is_to_take_steps_of_adam_on_fresh_passages(monkeypatch):
    drawn, given = [], extension.with_needles

    def note(ids, length, examples, generator):
        drawn.append((ids, length, examples, generator.initial_seed(), given(ids, length, examples, generator)))
        return drawn[-1][-1]

    monkeypatch.setattr(extension, "with_needles", note)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    model, start = small(), small()
    extension.fit(model, length=10, steps=3, batch=5, learning_rate=0.0, seed=11)
    assert torch.equal(torch.get_rng_state(), before)
    assert [each[:4] for each in drawn] == [(book()[0], 10, 5, 11)] * 3
    assert not torch.equal(drawn[0][-1].tokens, drawn[1][-1].tokens)
    cross_entropy(start(drawn[2][-1].tokens), drawn[2][-1].labels).backward()  # what is left is of the last step alone
    for one, other in zip(model.parameters(), start.parameters(), strict=True):
        assert torch.equal(one, other)
        assert difference(one.grad, other.grad) < 1e-6
    extension.fit(model, length=10, steps=1, batch=5, learning_rate=0.01, seed=11)
    moved = (model.to_logits.weight - start.to_logits.weight).abs()  # Adam's first step is the learning rate
    assert moved.median().item() == pytest.approx(0.01, rel=1e-3)
    loss = [cross_entropy(each(drawn[-1][-1].tokens), drawn[-1][-1].labels).item() for each in (model, start)]
    assert loss[0] < loss[1]


def test_how_the_models_are_trained_and_tuned(monkeypatch):
    calls = []
    monkeypatch.setattr(extension, "fit", lambda model, **how: calls.append((model, how)))
    model = extension.trained(3)
    assert calls == [(model, {"length": 64, "steps": 400, "batch": 32, "learning_rate": 5e-3, "seed": 3})]
    tokens = torch.arange(28)[None]
    assert difference(model(tokens), small(3)(tokens)) == 0
    must_break(difference(model(tokens), small(3, Causal())(tokens)))
    must_break(difference(model(tokens), small(3, Rotary())(tokens)))
    extension.tune(model, 256, 3)
    extension.tune(model, 64, 2, steps=4)
    assert [how for _, how in calls[1:]] == [  # 32 times 64 letters a step, at every length
        {"length": 256, "steps": 20, "batch": 8, "learning_rate": 2e-3, "seed": 1003},
        {"length": 64, "steps": 4, "batch": 32, "learning_rate": 2e-3, "seed": 1002},
    ]
    assert all(type(how["batch"]) is int for _, how in calls)
    assert calls[1][0] is model


def test_a_copy_has_the_same_weights_and_another_encoding():
    model, tokens = small(3), torch.arange(28)[None]
    other = extension.copy_with(model, Causal())
    assert difference(other(tokens), small(3, Causal())(tokens)) == 0
    with torch.no_grad():
        other.embedding.weight.zero_()
    assert difference(model(tokens), small(3)(tokens)) == 0


def test_a_stored_model_is_loaded_without_pickle_and_reads(tmp_path):
    model, path = small(3), tmp_path / "model.npz"
    extension.save(model, path)
    tokens = extension.needle_at(book()[1], 32, 0.5, 2, seed=0).tokens
    assert difference(extension.load(path)(tokens), model(tokens)) < 1e-2
    assert difference(extension.load(path, Causal())(tokens), small(3, Causal())(tokens)) < 1e-2
    must_break(difference(extension.load(path, Causal())(tokens), model(tokens)))
    assert path.stat().st_size < 300_000
    with np.load(path) as arrays:
        assert {arrays[name].dtype for name in arrays.files} == {np.dtype("float16")}


def test_a_file_with_pickles_in_it_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "model.npz", weight=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        extension.load(tmp_path / "model.npz")


def test_a_stored_model_is_loaded_in_float32_whatever_is_usual(tmp_path, monkeypatch):
    extension.save(small(3), tmp_path / "model.npz")
    try:
        torch.set_default_dtype(torch.float64)
        dtypes = {weight.dtype for weight in extension.load(tmp_path / "model.npz").parameters()}
    finally:
        torch.set_default_dtype(torch.float32)
    assert dtypes == {torch.float32}


def test_the_stored_checkpoint_knows_its_text_and_its_needles():
    model = extension.checkpoint()
    assert sum(extension.losses(model, 64, letters=1024)) / 8 < 1.9
    assert sum(extension.needles(model, 64, examples=8)) / 5 > 0.9


def test_bands_of_pairs():
    slow, fast = (extension.from_pair(3, 4, slowed=band) / extension.PLAIN for band in ("slow", "fast"))
    assert slow.tolist() == [1, 1, 1, *[0.25] * 5]
    assert fast.tolist() == [0.25, 0.25, 0.25, *[1] * 5]


def test_needles_are_counted_in_parts_and_once_each():
    model, test = extension.checkpoint(), extension.needle_at(book()[1], 96, 0.5, 7, seed=9)
    found = extension._share_found(model, test)
    assert found == pytest.approx(accuracy(model, test))
    assert 7 * found == pytest.approx(round(7 * found))


def test_losses_are_means_over_equal_parts_of_the_positions(monkeypatch):
    asked = []

    def by_position(model, task):
        asked.append((model, task))
        return torch.arange(float(task.tokens.shape[1])) / 3

    monkeypatch.setattr(extension, "loss_by_position", by_position)
    assert extension.losses("model", 16) == [round((2 * k + 0.5) / 3, 4) for k in range(8)]
    model, task = asked[0]
    assert model == "model"
    assert torch.equal(task.tokens.flatten(), book()[1][:6144])
    assert torch.equal(task.labels.flatten(), book()[1][1:6145])
    assert extension.losses("model", 16, letters=40, parts=2) == [round(3.5 / 3, 4), round(11.5 / 3, 4)]
    assert asked[1][1].tokens.shape == (2, 16)
    with pytest.raises(ValueError, match="passage"):
        extension.losses("model", 16, letters=15)
    assert len(extension.losses("model", 16, letters=16)) == len(extension.losses("model", 80)) == 8
    extension.losses("model", 1)
    assert asked[-1][1].tokens.shape == (6144, 1)


def test_needles_are_looked_for_at_five_depths(monkeypatch):
    asked = []
    monkeypatch.setattr(extension, "_share_found", lambda model, test: asked.append((model, test)) or 2 / 3)
    assert extension.needles("model", 20) == [0.6667] * 5
    for i, depth in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
        expected = extension.needle_at(book()[1], 20, depth, 16, 7 + i)
        assert asked[i][0] == "model"
        assert torch.equal(asked[i][1].tokens, expected.tokens)
        assert torch.equal(asked[i][1].labels, expected.labels)
    extension.needles("model", 20, examples=3, seed=50)
    assert torch.equal(asked[6][1].tokens, extension.needle_at(book()[1], 20, 0.25, 3, 51).tokens)


def read_off(encoding) -> tuple[torch.Tensor, float]:
    """The frequency of each pair, and the factor, of a rotary encoding: from what it does to a query at position 1."""
    query = torch.tensor([1.0, 0.0]).repeat(8).double()[None]
    turned, _ = encoding.queries_and_keys(query, query, torch.tensor([1]), torch.tensor([1]))
    even, odd = turned[0, 0::2], turned[0, 1::2]
    return torch.atan2(odd, even), torch.hypot(even, odd).mean().item()


@pytest.mark.parametrize("scale", [2, 4])
def test_the_schemes_slow_the_pairs_that_they_say(scale):
    plain = torch.tensor([10_000 ** (-k / 8) for k in range(8)], dtype=torch.float64)
    kept = ((64 * plain / (2 * math.pi) - 1) / 3).clamp(0, 1)  # all from 4 turns in 64 letters on, nothing below 1
    by_parts_ = kept * plain + (1 - kept) * plain / scale
    expected = {
        "as trained": plain,
        "PI": plain / scale,
        "NTK": plain * scale ** (-torch.arange(8) / 7),  # the first pair stays, the last is slowed by all of it
        "by parts": by_parts_,
        "YaRN": by_parts_,
        extension.FOR_PAIR_3: plain * scale ** (-torch.arange(8) / 3),
    }
    assert list(extension.SCHEMES) == list(expected)
    for name, make in extension.SCHEMES.items():
        found, factor = read_off(make(scale))
        assert difference(found, expected[name]) < 1e-7, name
        assert factor == pytest.approx(1 + 0.1 * math.log(scale) if name == "YaRN" else 1)


def test_the_interventions_are_what_their_names_say():
    found, plain = extension.interventions(4), extension.PLAIN
    names = ["as trained", "fast pairs clamped", "slow pairs clamped", "all pairs clamped", "pair 3 clamped"]
    names += [f"{band} {k}" for k in range(9) for band in ("slow from", "fast before")]
    names += [*(f"pair {k} off" for k in range(8)), "window of 64"]
    assert list(found) == names
    assert set(extension.RETRIEVED) == {*names[:5], names[-1]}
    limits = {name: (each.encodings[1].limits < math.inf).tolist() for name, each in found.items() if "clamped" in name}
    assert limits["fast pairs clamped"] == [True] * 3 + [False] * 5  # those with a full turn in 64 letters
    assert limits["slow pairs clamped"] == [False] * 3 + [True] * 5
    assert limits["all pairs clamped"] == [True] * 8
    assert limits["pair 3 clamped"] == [k == 3 for k in range(8)]
    assert found["pair 3 clamped"].encodings[1].limits[3] == extension.TRAINED - 1
    assert torch.equal(found["pair 3 clamped"].encodings[1].frequencies, plain)
    for k in range(9):
        number = torch.arange(8)
        assert difference(read_off(found[f"slow from {k}"])[0], plain / (1 + 3 * (number >= k))) < 1e-12
        assert difference(read_off(found[f"fast before {k}"])[0], plain / (1 + 3 * (number < k))) < 1e-12
        if k < 8:
            assert difference(read_off(found[f"pair {k} off"])[0], plain * (number != k)) < 1e-12
    assert difference(read_off(found["as trained"])[0], plain) < 1e-12
    assert difference(read_off(found["window of 64"])[0], plain) < 1e-12
    at = torch.arange(100)
    for name, each in found.items():
        assert int(each.mask(at, at).sum(dim=1).max()) == (64 if name == "window of 64" else 100)
    assert list(extension.interventions()) == names
    assert difference(read_off(extension.interventions()["slow from 0"])[0], plain / 4) < 1e-12


@pytest.fixture
def noted(monkeypatch):
    """What `losses`, `needles` and `tune` are asked, in place of measuring."""
    calls = []

    def note(name):
        return lambda model, *given, **named: calls.append((name, model, given, named)) or [name]

    for name in ("losses", "needles", "tune"):
        monkeypatch.setattr(extension, name, note(name))
    return calls


def test_what_is_measured_of_a_scheme(noted):
    model, tokens = small(1), torch.arange(28)[None]
    assert extension.measure(model, "PI", 4, tuned=False) == {"losses": ["losses"], "needles": ["needles"]}
    assert [(name, given) for name, _, given, _ in noted] == [("losses", (256,)), ("needles", (256,))]
    encoding = Together(Causal(), extension.SCHEMES["PI"](4))
    assert difference(noted[0][1](tokens), small(1, encoding)(tokens)) == 0
    noted.clear()
    extension.measure(model, "PI", 2, tuned=True)
    extension.measure(model, "PI", 2, tuned=True, seed=5)
    assert [(name, given) for name, _, given, _ in noted[::3]] == [("tune", (128, 0)), ("tune", (128, 5))]
    assert len({id(each) for _, each, _, _ in noted[:3]}) == 1
    assert all(each is not model for _, each, _, _ in noted)


def test_what_is_measured_of_an_intervention(noted):
    model, tokens = small(1), torch.arange(28)[None]
    assert extension.intervene(model, "pair 0 off", Causal()) == {"losses": ["losses"]}
    found = extension.intervene(model, "as trained", Causal())
    assert found == {"losses": ["losses"], "needles": ["needles"]}
    asked = [(name, given, named) for name, _, given, named in noted]
    assert asked == [("losses", (256,), {"letters": 2048})] * 2 + [("needles", (256,), {"examples": 64})]
    assert difference(noted[0][1](tokens), small(1, Causal())(tokens)) == 0


def test_every_measurement_asks_for_what_its_name_says(noted, monkeypatch):
    todo = extension.measurements(6)
    schemes = list(extension.SCHEMES)
    names = ["trained", *extension.interventions()]
    for scale in (4, 2, 8):  # the most telling first
        names += [f"{scheme} x{scale}" for scheme in schemes]
        names += [f"{scheme} x{scale} tuned" for scheme in schemes if scheme != "base for pair 3"]
    assert list(todo) == names
    assert todo["trained"]("model") == {"losses": ["losses"], "needles": ["needles"]}
    assert [each[:3] for each in noted] == [("losses", "model", (64,)), ("needles", "model", (64,))]
    monkeypatch.setattr(extension, "measure", lambda *given: given)
    monkeypatch.setattr(extension, "intervene", lambda model, name, encoding: (model, name, encoding))
    assert todo["YaRN x2 tuned"]("model") == ("model", "YaRN", 2, True, 6)
    assert todo["PI x8"]("model") == ("model", "PI", 8, False, 6)
    model, name, encoding = todo["slow from 2"]("model")
    assert (model, name) == ("model", "slow from 2")
    assert difference(read_off(encoding)[0], extension.from_pair(2, 4, slowed="slow")) < 1e-12


def test_the_study_resumes_where_it_stopped(tmp_path, monkeypatch):
    made, trained, said, tokens = [], [], [], torch.arange(28)[None]

    def measurements(seed):
        return {
            name: lambda model, name=name: made.append((seed, name, model)) or {"losses": []} for name in ("a", "b")
        }

    monkeypatch.setattr(extension, "measurements", measurements)
    monkeypatch.setattr(extension, "trained", lambda seed: trained.append(seed) or small(seed))
    extension.study(tmp_path, 1, report=said.append)
    extension.study(tmp_path, 2, report=said.append)
    assert trained == [0, 1]
    assert [each[:2] for each in made] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    for seed, _, model in made:  # the stored weights
        assert difference(model(tokens), extension.load(tmp_path / f"letters_64_{seed}.npz")(tokens)) == 0
        assert difference(model(tokens), small(seed)(tokens)) < 1e-2
    stored = json.loads((tmp_path / "longer_contexts.json").read_text())
    assert set(stored["seeds"]) == {"0", "1"}
    assert stored["made"]["command"] == "python -m posenc.extension study --seeds 2"
    assert len(said) == 4


def test_the_stored_study_is_complete():
    stored = extension.results()
    names = set(extension.measurements(0))
    assert len(stored["seeds"]) >= 5
    for seed, done in stored["seeds"].items():
        assert set(done) == names, seed
    assert set(stored["made"]) == {"command", "date", "python", "torch"}
