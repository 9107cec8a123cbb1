"""Measurements that can fail, shown to fail."""

import pytest
import torch

from posenc.attention import Attention
from posenc.masks import Causal
from posenc.symmetry import (
    difference,
    equivariance_error,
    invariance_error,
    leak,
    must_break,
    permute,
    random_permutation,
    translation_error,
)

X = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CYCLE = torch.arange(6).roll(1)


def test_permute_takes_row_permutation_i_to_place_i():
    assert permute(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1, 2, 0])).flatten().tolist() == [2, 3, 1]


def test_row_wise_and_symmetric_layers_pass():
    assert equivariance_error(torch.tanh, X, CYCLE) == 0
    assert equivariance_error(lambda x: x - x.mean(-2, keepdim=True), X, CYCLE) < 1e-14
    assert invariance_error(lambda x: x.mean(-2), X, CYCLE) < 1e-14


def test_layers_that_know_places_fail():
    must_break(equivariance_error(lambda x: x.cumsum(-2), X, CYCLE))
    must_break(invariance_error(lambda x: x[..., 0, :], X, CYCLE))
    must_break(equivariance_error(lambda x: x.sort(-2).values, X, CYCLE))  # invariant, so not equivariant


def test_translation_moves_labels_not_tokens():
    layer = Attention(4, 1, Causal()).double()  # a mask of offsets
    assert translation_error(layer, X, torch.arange(6), shift=9) == 0
    must_break(translation_error(lambda x, positions: x * positions[:, None], X, torch.arange(6), shift=9))
    assert translation_error(lambda x, positions: positions.square() * 1.0, X, torch.arange(6), shift=9) == 14**2 - 5**2


def test_must_break_returns_a_large_error_and_refuses_a_small_one():
    assert must_break(0.5) == 0.5
    assert must_break(1e-3) == 1e-3
    for blind in (0.0, 1e-15, 0.00099, float("nan")):
        with pytest.raises(AssertionError, match="the test may be blind"):
            must_break(blind)


def test_shapes_are_compared_first():
    with pytest.raises(ValueError, match=r"shapes differ: \(3,\) and \(2, 3\)"):
        difference(torch.ones(3), torch.ones(2, 3))
    with pytest.raises(ValueError, match="use invariance_error"):
        equivariance_error(lambda x: x.mean(-2), X, CYCLE)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_random_permutation_moves_something(n):
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        permutation = random_permutation(n, generator)
        assert sorted(permutation.tolist()) == list(range(n))
        assert permutation.tolist() != list(range(n))
    with pytest.raises(ValueError, match="no order to change"):
        random_permutation(1)


def test_a_generator_decides_the_permutation_alone():
    state = torch.get_rng_state()
    first, again = (random_permutation(50, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("seen", [1, 2, 4, 5])
def test_a_leak_of_any_one_row_is_found(seen):
    def layer(x: torch.Tensor) -> torch.Tensor:
        output = x.clone()
        output[..., 0, :] = x[..., seen, :]  # the first row sees another
        return output

    must_break(leak(layer, X[..., :1]))
    assert leak(lambda x: x.cumsum(-2), X[..., :1]) == 0
