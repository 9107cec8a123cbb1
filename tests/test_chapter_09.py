"""Longer contexts: frequency scalings, clamps, layers that differ, and the study's pieces."""

import dataclasses
import json
import math

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
from posenc.train import accuracy


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


def test_passages_hold_their_needles():
    generator = torch.Generator().manual_seed(0)
    task = extension.with_needles(book()[0], 64, 20, generator)
    marks = task.tokens == extension.MARK
    assert ((marks.sum(dim=1) >= 3) & (marks.sum(dim=1) <= 4)).all()
    for row, labels in zip(marks, task.labels, strict=True):
        assert len(labels[row].unique()) == 1  # the same letter after each mark
    needle = extension.needle_at(book()[1], 32, 0.5, 10, seed=0)
    assert ((needle.tokens == extension.MARK).sum(dim=1) == 2).all()
    places = (needle.tokens == extension.MARK).int().argmax(dim=1)
    letters = needle.tokens.gather(1, places.unsqueeze(1) + 1).squeeze(1)
    assert torch.equal(letters, needle.labels[:, -1])
    assert (needle.labels[:, :-1] == NOT_ASKED).all()


def test_chunks_hold_one_needle_each_and_the_test_only_one():
    task = extension.needle_a_chunk(4, 8, 30, seed=0)
    marks = (task.tokens == 0).view(30, 4, 8)
    assert (marks.sum(dim=-1) == 1).all()
    assert ((task.labels != NOT_ASKED).sum(dim=1) == 3).all()
    assert (task.labels[:, :8] == NOT_ASKED).all()
    single = extension.one_needle(4, 8, 30, seed=0)
    assert ((single.tokens == 0).sum(dim=1) == 2).all()
    assert (single.tokens[:, 24:-1] != 0).all()


def test_a_stored_model_is_loaded_without_pickle_and_reads(tmp_path):
    model = build(3, **extension.SETTINGS, encoding=Together(Causal(), Rotary()))
    extension.save(model, tmp_path / "model.npz")
    tokens = extension.needle_at(book()[1], 32, 0.5, 2, seed=0).tokens
    assert difference(extension.load(tmp_path / "model.npz")(tokens), model(tokens)) < 1e-2
    assert (tmp_path / "model.npz").stat().st_size < 300_000


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


def test_the_interventions_are_what_their_names_say():
    found = extension.interventions(4)
    assert set(extension.RETRIEVED) < set(found)
    limits = {name: each.encodings[1].limits for name, each in found.items() if "clamped" in name}
    assert [int((limit < math.inf).sum()) for limit in limits.values()] == [3, 5, 8, 1]
    assert limits["pair 3 clamped"][3] == extension.TRAINED - 1
    base = extension.SCHEMES[extension.FOR_PAIR_3](8).base
    assert frequencies(16, base)[3].item() == pytest.approx(extension.PLAIN[3].item() / 8)


def test_the_study_resumes_where_it_stopped(tmp_path, monkeypatch):
    made = []

    def measurements(seed):
        return {name: lambda model, name=name: made.append((seed, name)) or {"losses": []} for name in ("a", "b")}

    monkeypatch.setattr(extension, "measurements", measurements)
    monkeypatch.setattr(extension, "trained", lambda seed: build(seed, **extension.SETTINGS))
    extension.study(tmp_path, 1, report=lambda _: None)
    extension.study(tmp_path, 2, report=lambda _: None)
    assert made == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    stored = json.loads((tmp_path / "longer_contexts.json").read_text())
    assert set(stored["seeds"]) == {"0", "1"}
    assert stored["made"]["command"].endswith("--seeds 2")


def test_the_stored_study_is_complete():
    stored = extension.results()
    names = set(extension.measurements(0))
    assert len(stored["seeds"]) >= 5
    for seed, done in stored["seeds"].items():
        assert set(done) == names, seed
    assert set(stored["made"]) == {"command", "date", "python", "torch"}
