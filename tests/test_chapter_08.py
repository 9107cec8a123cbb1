"""What chapter 8 adds: turning, layouts, given frequencies, the task that asks."""

import pytest
import torch
from torch.nn import functional as F

from posenc.attention import Attention
from posenc.encoding import Together
from posenc.masks import Causal
from posenc.model import build
from posenc.rotary import (
    Rotary,
    RotaryHalves,
    frequencies,
    rotate,
    turn,
    turn_halves,
    weights_to_halves,
    weights_to_neighbours,
)
from posenc.symmetry import difference, must_break, translation_error
from posenc.tasks import NOT_ASKED, look_back_as_asked


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def matrix_of(angles: torch.Tensor) -> torch.Tensor:
    """The block rotation, entry by entry."""
    n = 2 * len(angles)
    matrix = torch.zeros(n, n, dtype=torch.float64)
    for k, angle in enumerate(angles):
        matrix[2 * k, 2 * k] = matrix[2 * k + 1, 2 * k + 1] = angle.cos()
        matrix[2 * k, 2 * k + 1], matrix[2 * k + 1, 2 * k] = -angle.sin(), angle.sin()
    return matrix


# --- turning


@pytest.mark.parametrize("base", [100.0, 10_000.0, 500_000.0])
@pytest.mark.parametrize("head_dim", [2, 6, 128])
@pytest.mark.parametrize("start", [0, 31, 100_000])
def test_turn_is_the_block_rotation(base, head_dim, start):
    x, positions = normal(3, head_dim), torch.arange(start, start + 3)
    speeds = torch.tensor([base ** (-2 * k / head_dim) for k in range(head_dim // 2)], dtype=torch.float64)
    expected = torch.stack([matrix_of(p * speeds) @ v for p, v in zip(positions, x, strict=True)])
    assert difference(rotate(x, positions, base), expected) < 1e-9
    assert difference(frequencies(head_dim, base), speeds) < 1e-12


@pytest.mark.parametrize("turn_pairs", [turn, turn_halves])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_turning_keeps_shape_dtype_norm_and_angle_zero(turn_pairs, dtype):
    x, angles = normal(2, 3, 5, 8).to(dtype), torch.arange(5).unsqueeze(-1) * frequencies(8)
    turned = turn_pairs(x, angles)
    assert turned.shape == x.shape
    assert turned.dtype == dtype
    rounding = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    assert difference(turned.norm(dim=-1), x.norm(dim=-1)) < rounding
    assert torch.equal(turn_pairs(x, 0 * angles), x)


def test_layouts_are_one_function_up_to_the_order_of_features():
    x, angles = normal(4, 10), normal(4, 5, seed=1)
    order = torch.tensor([0, 2, 4, 6, 8, 1, 3, 5, 7, 9])
    assert difference(turn_halves(x[:, order], angles)[:, order.argsort()], turn(x, angles)) < 1e-12
    must_break(difference(turn_halves(x, angles), turn(x, angles)))


def test_angles_are_wide_even_where_vectors_are_not():
    x, positions = normal(1, 128), torch.tensor([100_001])
    exact = rotate(x.bfloat16().double(), positions)
    assert difference(rotate(x.bfloat16(), positions).double(), exact) < 0.05
    low = positions.bfloat16().unsqueeze(-1) * frequencies(128).bfloat16()
    must_break(difference(turn(x, low), exact), at_least=0.5)


@pytest.mark.parametrize("scheme", [Rotary, RotaryHalves])
@pytest.mark.parametrize("given", [None, torch.tensor([1.0, 0.3, 0.0, 0.0]), torch.rand(4)])
def test_layers_see_offsets_alone_whatever_the_frequencies(scheme, given):
    torch.manual_seed(0)
    layer = Attention(16, 2, Together(Causal(), scheme(frequencies=given))).double()
    x, positions = normal(2, 6, 16), torch.arange(6)
    assert translation_error(layer, x, positions, shift=1000) < 1e-10
    must_break(difference(layer(x, 2 * positions), layer(x, positions)))


def test_given_frequencies_replace_the_base_and_zero_leaves_a_pair_alone():
    x, positions = normal(5, 8), torch.arange(5)
    assert torch.equal(rotate(x, positions, frequencies=frequencies(8, 500.0)), rotate(x, positions, 500.0))
    some = torch.cat([frequencies(4), torch.zeros(2)])
    expected = torch.cat([rotate(x[:, :4], positions), x[:, 4:]], dim=-1)
    assert difference(rotate(x, positions, frequencies=some), expected) < 1e-12


def test_casting_a_model_does_not_round_the_frequencies():
    given = frequencies(8, 1234.5)
    model = build(0, vocabulary=5, d_model=8, n_layers=1, n_heads=1, n_outputs=5, encoding=Rotary(frequencies=given))
    assert torch.equal(model.to(torch.bfloat16).encoding.frequencies, frequencies(8, 1234.5))


def test_bad_input_says_what_to_do():
    for scheme in (Rotary(), RotaryHalves(), Rotary(frequencies=torch.ones(2))):
        with pytest.raises(ValueError, match="must be even"):
            scheme.queries_and_keys(normal(3, 5), normal(3, 5), torch.arange(3), torch.arange(3))
    with pytest.raises(ValueError, match=r"needs frequencies \(4,\), got \(3,\)"):
        rotate(normal(2, 8), torch.arange(2), frequencies=torch.ones(3))
    for convert in (weights_to_halves, weights_to_neighbours):
        for rows, head_dim in ((12, 8), (15, 5), (12, 3)):
            with pytest.raises(ValueError, match="not heads of an even head_dim"):
                convert(normal(rows, 4), head_dim)


# --- converting checkpoints


def test_conversion_is_the_one_of_the_llama_script_and_there_is_a_way_back():
    weight = normal(4 * 6, 10)
    by_script = weight.view(4, 3, 2, 10).transpose(1, 2).reshape(24, 10)
    assert torch.equal(weights_to_halves(weight, 6), by_script)
    for rows in (weight, normal(24), normal(6)):
        assert torch.equal(weights_to_neighbours(weights_to_halves(rows, 6), 6), rows)
        must_break(difference(weights_to_halves(rows, 6), rows))


@pytest.mark.parametrize("n_key_heads", [4, 2, 1])
def test_converted_projections_give_the_same_scores_in_halves(n_key_heads):
    head_dim, x = 8, normal(5, 12)
    angles = torch.arange(5).unsqueeze(-1) * frequencies(head_dim)
    weights = normal(4 * head_dim, 12, seed=1), normal(n_key_heads * head_dim, 12, seed=2)
    biases, norms = (normal(len(w), seed=3) for w in weights), (normal(head_dim, seed=4), normal(head_dim, seed=5))
    parts = list(zip(weights, biases, norms, strict=True))

    def scores(convert, turn_pairs):
        sides = []
        for weight, bias, norm in parts:
            heads = F.linear(x, convert(weight), convert(bias)).unflatten(-1, (-1, head_dim)).transpose(0, 1)
            sides.append(turn_pairs(F.rms_norm(heads, (head_dim,)) * convert(norm), angles))
        return sides[0] @ sides[1].repeat_interleave(4 // n_key_heads, dim=0).mT

    original = scores(lambda rows: rows, turn)
    assert difference(scores(lambda rows: weights_to_halves(rows, head_dim), turn_halves), original) < 1e-12
    must_break(difference(scores(lambda rows: rows, turn_halves), original))


def test_a_whole_model_can_be_converted():
    settings = {"vocabulary": 9, "d_model": 24, "n_layers": 2, "n_heads": 3, "n_outputs": 9}
    neighbours = build(0, **settings, encoding=Together(Causal(), Rotary())).double()
    halves = build(1, **settings, encoding=Together(Causal(), RotaryHalves())).double()
    tokens = torch.randint(9, (2, 7), generator=torch.Generator().manual_seed(0))
    halves.load_state_dict(neighbours.state_dict())
    must_break(difference(halves(tokens), neighbours(tokens)))
    state = {
        name: weights_to_halves(rows, 8) if "to_queries" in name or "to_keys" in name else rows
        for name, rows in neighbours.state_dict().items()
    }
    halves.load_state_dict(state)
    assert difference(halves(tokens), neighbours(tokens)) < 1e-12


# --- the task


def test_each_token_asks_for_its_own_distance():
    task = look_back_as_asked(9, 50, seed=0, furthest=3)
    assert task.tokens.shape == task.labels.shape == (50, 9)
    for tokens, labels in zip(task.tokens.tolist(), task.labels.tolist(), strict=True):
        for place, (token, label) in enumerate(zip(tokens, labels, strict=True)):
            wanted = place - 1 - token % 3
            assert label == (tokens[wanted] if wanted >= 0 else NOT_ASKED)
