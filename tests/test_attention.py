"""The formula and the layer, against PyTorch's own implementations."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from posenc.attention import Attention, attention, masked_softmax
from posenc.encoding import NoPE, PositionEncoding, RowNumber, Together
from posenc.grids import Flattened, traversal
from posenc.masks import Causal, Given, causal, chunked, sliding_window
from posenc.relative import ALiBi
from posenc.symmetry import difference, equivariance_error, random_permutation
from posenc.windows import ALiBi2D


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(5, 4), (2, 5, 4), (2, 3, 7, 8)])
@pytest.mark.parametrize("masked", [False, True])
def test_formula_equals_scaled_dot_product_attention(shape, masked):
    queries, keys, values = (normal(*shape, seed=s) for s in range(3))
    n = shape[-2]
    mask = torch.ones(n, n, dtype=torch.bool).tril() if masked else None
    theirs = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    assert difference(attention(queries, keys, values, mask), theirs) < 1e-12


def test_more_keys_than_queries_and_wider_values():
    queries, keys, values = normal(3, 4), normal(7, 4, seed=1), normal(7, 9, seed=2)
    assert attention(queries, keys, values).shape == (3, 9)


def test_a_row_that_may_see_nothing_gives_zeros_and_finite_gradients():
    scores = normal(2, 3).requires_grad_()
    mask = torch.tensor([[True, False, True], [False, False, False]])
    weights = masked_softmax(scores, mask)
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    assert weights[0, 1] == 0
    assert weights[0].sum().item() == pytest.approx(1)
    weights.square().sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_layer_equals_torch_multihead_attention_with_the_same_weights(n_heads):
    ours = Attention(8, n_heads).double()
    theirs = nn.MultiheadAttention(8, n_heads, bias=False, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in (ours.to_queries, ours.to_keys, ours.to_values)]))
        theirs.out_proj.weight.copy_(ours.to_output.weight)
    x = normal(3, 6, 8)
    assert difference(ours(x), theirs(x, x, x, need_weights=False)[0]) < 1e-12


def test_causal_layer_equals_the_fused_causal_kernel():
    layer = Attention(8, 2, Causal()).double()
    x = normal(3, 6, 8)
    queries, keys, values = (layer._split(f(x)) for f in (layer.to_queries, layer.to_keys, layer.to_values))
    fused = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    assert difference(layer(x), layer.to_output(fused.transpose(1, 2).flatten(2))) < 1e-12


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Attention(10, 4), "d_model=10 must be a multiple of n_heads=4"),
        (lambda: Attention(8)(torch.zeros(3, 7)), r"expected x of shape \(..., n, 8\), got \(3, 7\)"),
        (lambda: Attention(8)(torch.zeros(8)), r"got \(8,\)"),
        (lambda: sliding_window(torch.arange(3), torch.arange(3), 0), "window must be at least 1"),
        (lambda: chunked(torch.arange(3), torch.arange(3), 0), "chunk must be at least 1"),
    ],
)
def test_bad_input_gets_an_error_that_says_what_to_do(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_layer_is_four_matrices_and_one_head_unless_it_is_told():
    layer = Attention(8)
    assert (layer.n_heads, layer.head_dim) == (1, 8)
    names = [f"to_{name}.weight" for name in ("queries", "keys", "values", "output")]
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == dict.fromkeys(names, (8, 8))


# --- Masks


def test_masks_for_six_positions():
    i = torch.arange(6)
    assert torch.equal(causal(i, i), torch.ones(6, 6, dtype=torch.bool).tril())
    assert sliding_window(i, i, 2).int().tolist()[3] == [0, 0, 1, 1, 0, 0]
    assert chunked(i, i, 3).int().tolist()[4] == [0, 0, 0, 1, 1, 0]
    assert torch.equal(sliding_window(i, i, 6), causal(i, i))
    assert torch.equal(chunked(i, i, 6), causal(i, i))
    alone = torch.eye(6, dtype=torch.bool)
    assert torch.equal(chunked(i, i, 1), alone)
    assert torch.equal(sliding_window(i, i, 1), alone)


def test_masks_follow_positions_not_storage_order():
    positions = torch.tensor([2, 0, 1])
    assert causal(positions, positions).int().tolist() == [[1, 1, 1], [0, 1, 0], [0, 1, 1]]


def test_masks_take_positions_that_differ_in_a_batch():
    positions = torch.tensor([[0, 1, 2], [2, 1, 0]])
    assert causal(positions, positions).shape == (2, 3, 3)
    layer = Attention(4, 2, Causal()).double()
    x = normal(2, 3, 4)
    each = torch.stack([layer(x[b], positions[b]) for b in range(2)])
    assert difference(layer(x, positions), each) < 1e-12


# --- Doors


def test_the_base_class_opens_no_door():
    x = normal(2, 6, 8)
    shuffle = random_permutation(6, torch.Generator().manual_seed(0))
    layer = Attention(8, 2, PositionEncoding()).double()
    assert equivariance_error(layer, x, shuffle) < 1e-12
    assert difference(layer(x, torch.arange(6) + 100), layer(x)) == 0
    assert torch.equal(NoPE().tokens(x, torch.arange(6)), x)


class Everywhere(PositionEncoding):
    """Opens each door by a small step, so that a door that is not called shows."""

    def tokens(self, x, positions):
        return x + 1

    def queries_and_keys(self, queries, keys, query_positions, key_positions):
        return 2 * queries, keys

    def scores(self, scores, queries, keys, query_positions, key_positions):
        return scores - query_positions.unsqueeze(-1) * key_positions.unsqueeze(-2)

    def mask(self, query_positions, key_positions):
        return causal(query_positions, key_positions)

    def values(self, weights, values, query_positions, key_positions):
        return weights @ values + 3


def test_every_door_of_the_layer_is_called():
    x, n = normal(5, 4), torch.arange(5)
    layer = Attention(4, 1, Everywhere()).double()
    queries, keys, values = layer.to_queries(x), layer.to_keys(x), layer.to_values(x)
    scores = 2 * queries @ keys.mT / 2 - n.unsqueeze(-1) * n
    by_hand = masked_softmax(scores, causal(n, n)) @ values + 3
    assert difference(layer(x), layer.to_output(by_hand)) < 1e-12


def test_together_opens_the_doors_of_all():
    x, n = normal(5, 4), torch.arange(5)
    both = Together(Everywhere(), Causal(), RowNumber())
    assert difference(both.tokens(x, n), RowNumber().tokens(x + 1, n)) == 0
    assert torch.equal(both.mask(n, n), causal(n, n))
    alone, together = Attention(4, 1, Everywhere()).double(), Attention(4, 1, both).double()
    together.load_state_dict(alone.state_dict(), strict=False)
    assert difference(alone(x), together(x)) == 0
    assert Together(NoPE(), NoPE()).mask(n, n) is None


def test_together_refuses_two_value_doors():
    with pytest.raises(ValueError, match="only one encoding can open the value door, got Everywhere, Everywhere"):
        Together(Everywhere(), Everywhere())


def test_row_number_survives_layer_norm():
    x = normal(6, 8)
    moved = RowNumber().tokens(x, torch.arange(6))
    assert difference(F.layer_norm(moved, (8,)), F.layer_norm(x, (8,))) > 0.1


def test_row_number_goes_into_the_first_feature_alone():
    moved = RowNumber().tokens(torch.ones(2, 3, 4), torch.tensor([0, 5, -2]))
    assert moved[..., 0].tolist() == [[1, 6, -1]] * 2
    assert torch.equal(moved[..., 1:], torch.ones(2, 3, 3))
    assert RowNumber().tokens(torch.zeros(1, 2), torch.tensor([7])).tolist() == [[7, 0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Given(torch.ones(3, 3, dtype=torch.bool)),
        lambda: ALiBi(2),
        lambda: ALiBi2D(2),
        lambda: Flattened(NoPE(), traversal(2, 2, "snake"), columns=2),
    ],
    ids=["given", "ALiBi", "2-D ALiBi", "flattened"],
)
def test_what_is_given_or_computed_goes_along_and_is_not_stored_with_the_weights(make):
    encoding = make()
    assert encoding.state_dict() == {}
    assert list(encoding.buffers()), "it would stay behind when the model moves to another device"
