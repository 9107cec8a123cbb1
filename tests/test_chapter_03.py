"""What chapter 3 adds to the library: masks, the first encodings, probes, tasks. Parity with independent formulas."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from posenc.absolute import Sinusoidal, sinusoids
from posenc.attention import Attention, attention
from posenc.encoding import NoPE, Together
from posenc.masks import Causal, Chunked, Given, SlidingWindow, causal, chunked, padding, same_document, sliding_window
from posenc.model import Block, build
from posenc.probe import apply_probe, fit_probe, r_squared
from posenc.relative import ALiBi, alibi_slopes
from posenc.rotary import Rotary, rotate
from posenc.symmetry import difference, leak, must_break, translation_error
from posenc.tasks import count_rows, look_back, swap_a_and_b, which_first
from posenc.train import cross_entropy

HEADS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 71)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def double_layer(encoding, d_model: int = 8, n_heads: int = 2) -> Attention:
    torch.manual_seed(0)
    return Attention(d_model, n_heads, encoding).double()


# --- sinusoids


@pytest.mark.parametrize("d_model", [2, 6, 16])
@pytest.mark.parametrize("base", [100.0, 10_000.0])
def test_sinusoids_equal_the_papers_formula_entry_by_entry(d_model, base):
    positions = torch.tensor([0, 1, 5, 1000])
    got = sinusoids(positions, d_model, base)
    for row, position in enumerate(positions.tolist()):
        for feature in range(d_model):
            angle = position / base ** (2 * (feature // 2) / d_model)
            expected = math.cos(angle) if feature % 2 else math.sin(angle)
            assert got[row, feature].item() == pytest.approx(expected, abs=1e-6)


def test_sinusoids_take_a_batch_of_positions_and_refuse_an_odd_width():
    positions = torch.tensor([[0, 1, 2], [7, 8, 9]])
    got = sinusoids(positions, 4)
    assert got.shape == (2, 3, 4)
    assert difference(got[1], sinusoids(positions[1], 4)) == 0
    with pytest.raises(ValueError, match="even"):
        sinusoids(positions, 5)


def test_sinusoidal_adds_and_keeps_the_dtype():
    x = normal(2, 3, 4)
    added = Sinusoidal().tokens(x, torch.arange(3)) - x
    assert added.dtype == torch.float64
    assert difference(added, sinusoids(torch.arange(3), 4).double().expand(2, 3, 4)) < 1e-6


# --- ALiBi


def slopes_by_the_authors_recipe(n: int) -> list[float]:
    """Written from the description: a geometric sequence for powers of two, else interleaved from the next one."""
    if math.log2(n).is_integer():
        first = 2 ** (-8 / n)
        return [first ** (k + 1) for k in range(n)]
    closest = 2 ** math.floor(math.log2(n))
    return slopes_by_the_authors_recipe(closest) + slopes_by_the_authors_recipe(2 * closest)[0::2][: n - closest]


@pytest.mark.parametrize("n_heads", HEADS)
def test_slopes_equal_the_authors_recipe(n_heads):
    got, expected = alibi_slopes(n_heads), torch.tensor(slopes_by_the_authors_recipe(n_heads), dtype=torch.float64)
    assert difference(got, expected) < 1e-12


def test_slopes_of_eight_heads_are_halves_quarters_and_so_on():
    assert alibi_slopes(8).tolist() == [2.0**-k for k in range(1, 9)]
    assert alibi_slopes(2, 0.5).tolist() == [2**-0.25, 2**-0.5]
    with pytest.raises(ValueError, match="at least 1"):
        alibi_slopes(0)


@pytest.mark.parametrize("n_heads", [2, 3])
def test_alibi_under_a_causal_mask_equals_the_fused_kernel_with_the_papers_bias(n_heads):
    n, d_model = 6, 4 * n_heads
    layer = double_layer(Together(Causal(), ALiBi(n_heads)), d_model, n_heads)
    x = normal(2, n, d_model)
    queries, keys, values = (layer._split(f(x)) for f in (layer.to_queries, layer.to_keys, layer.to_values))
    places = torch.arange(n)
    slopes = torch.tensor(slopes_by_the_authors_recipe(n_heads), dtype=torch.float64)
    bias = slopes[:, None, None] * (places[None, :] - places[:, None])  # negative to the left, as in figure 3
    bias = bias.masked_fill(places[None, :] > places[:, None], -math.inf)
    fused = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
    assert difference(layer(x), layer.to_output(fused.transpose(1, 2).flatten(2))) < 1e-12


def test_alibi_refuses_another_number_of_heads():
    with pytest.raises(ValueError, match="4 heads, got 2"):
        double_layer(ALiBi(4))(normal(3, 8))
    with pytest.raises(ValueError, match="got 0"):
        ALiBi(1).scores(normal(3, 3), normal(3, 2), normal(3, 2), torch.arange(3), torch.arange(3))


# --- rotary


@pytest.mark.parametrize("head_dim", [2, 4, 8])
@pytest.mark.parametrize("base", [100.0, 10_000.0])
def test_rotation_equals_multiplication_by_complex_numbers(head_dim, base):
    x, positions = normal(2, 3, 5, head_dim), torch.tensor([0, 1, 2, 50, 4096])
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    frequencies = torch.tensor([base ** (-2 * k / head_dim) for k in range(head_dim // 2)], dtype=torch.float64)
    turned = pairs * torch.polar(torch.ones(5, head_dim // 2).double(), positions[:, None] * frequencies)
    assert difference(rotate(x, positions, base), torch.view_as_real(turned).flatten(-2)) < 1e-11


def test_rotation_keeps_norms_and_dtype_and_leaves_position_zero_alone():
    x = normal(4, 8)
    assert difference(rotate(x, torch.arange(4)).norm(dim=-1), x.norm(dim=-1)) < 1e-12
    assert difference(rotate(x, torch.zeros(4, dtype=torch.long)), x) == 0
    assert rotate(x.float(), torch.arange(4)).dtype == torch.float32
    with pytest.raises(ValueError, match="even"):
        rotate(normal(4, 5), torch.arange(4))


@pytest.mark.parametrize("encoding", [Rotary(), ALiBi(2)], ids=["rotary", "ALiBi"])
def test_relative_schemes_see_offsets_alone_and_sinusoids_do_not(encoding):
    x, places = normal(2, 6, 8), torch.arange(6)
    assert translation_error(double_layer(Together(Causal(), encoding)), x, places, shift=17) < 1e-12
    torch.manual_seed(0)
    absolute = build(0, vocabulary=9, d_model=8, n_layers=1, n_heads=2, n_outputs=3, encoding=Sinusoidal()).double()
    tokens = torch.arange(6).unsqueeze(0)
    must_break(translation_error(absolute, tokens, places, shift=17))


def test_rotary_and_alibi_depend_on_the_distance():
    x, order = normal(6, 8), torch.tensor([3, 0, 4, 1, 2, 5])
    for encoding in (Rotary(), ALiBi(2)):
        layer = double_layer(Together(Causal(), encoding))
        must_break(difference(layer(x[order])[-1], layer(x)[-1]))  # NoPE would tie here: one layer, last row


@pytest.mark.parametrize("encoding", [Rotary(), ALiBi(2), Sinusoidal()], ids=["rotary", "ALiBi", "sinusoids"])
def test_positions_may_differ_within_a_batch(encoding):
    settings = {"vocabulary": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_outputs": 3}
    model = build(0, **settings, encoding=Together(Causal(), encoding)).double()
    tokens, positions = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([[0, 1, 2], [3, 5, 9]])
    together = model(tokens, positions)
    alone = torch.stack([model(t.unsqueeze(0), p)[0] for t, p in zip(tokens, positions, strict=True)])
    assert difference(together, alone) < 1e-12


# --- masks


def test_masks_as_doors_equal_the_masks_as_functions():
    places = torch.arange(7)
    assert torch.equal(SlidingWindow(3).mask(places, places), sliding_window(places, places, 3))
    assert torch.equal(Chunked(3).mask(places, places), chunked(places, places, 3))


def test_padding_and_documents():
    real = torch.tensor([[True, True, False]])
    assert padding(real).tolist() == [[[True, True, False]]]
    documents = torch.tensor([4, 4, 1])
    expected = [[True, True, False], [True, True, False], [False, False, True]]
    assert same_document(documents, documents).tolist() == expected


def test_given_mask_is_intersected_and_hides_padding_from_every_head():
    x, real = normal(2, 5, 8), torch.tensor([[True] * 5, [False, False, True, True, True]])
    given = Given(padding(real).unsqueeze(1))  # (batch, 1, 1, n)
    layer = double_layer(Together(Causal(), given))
    alone = double_layer(Causal())(x[1:, 2:])
    assert difference(layer(x)[1:, 2:], alone) < 1e-12
    must_break(difference(double_layer(Causal())(x)[1:, 2:], alone))


# --- leaks, symmetry by depth


def stack(n_layers: int, encoding) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(*[Block(8, 2, encoding) for _ in range(n_layers)]).double()


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize("encoding", [Causal(), SlidingWindow(2), Chunked(3)], ids=lambda e: type(e).__name__)
def test_no_mask_of_ours_leaks_at_any_depth_and_the_test_can_fail(n_layers, encoding):
    assert leak(stack(n_layers, encoding), normal(2, 6, 8)) < 1e-12
    must_break(leak(stack(n_layers, NoPE()), normal(2, 6, 8)))


def test_leak_finds_a_mask_after_the_softmax():
    places = torch.arange(5)
    mask = causal(places, places)
    must_break(leak(lambda x: (x @ x.mT).softmax(-1) * mask @ x, normal(5, 3)))
    assert leak(lambda x: attention(x, x, x, mask), normal(5, 3)) < 1e-12


def test_one_layer_ties_the_twins_of_which_first_and_two_layers_do_not():
    tokens = which_first(7, 50, seed=0).tokens
    settings = {"vocabulary": 9, "d_model": 8, "n_heads": 2, "n_outputs": 2, "readout": "last", "encoding": Causal()}
    one, two = (build(0, n_layers=n, **settings).double() for n in (1, 2))
    assert difference(one(tokens), one(swap_a_and_b(tokens))) < 1e-12
    must_break(difference(two(tokens), two(swap_a_and_b(tokens))))


# --- tasks


def test_which_first_is_what_it_says():
    task = which_first(9, 200, seed=3)
    assert task.tokens.shape == (200, 9)
    assert (task.tokens[:, -1] == 2).all()
    for token in (0, 1, 2):
        assert ((task.tokens == token).sum(dim=1) == 1).all()
    a, b = ((task.tokens == token).int().argmax(dim=1) for token in (0, 1))
    assert torch.equal(task.labels, (a < b).long())
    assert 0.3 < task.labels.double().mean() < 0.7
    twins = swap_a_and_b(task.tokens)
    assert torch.equal(twins.sort(dim=1).values, task.tokens.sort(dim=1).values)
    assert torch.equal(((twins == 0).int().argmax(dim=1) < (twins == 1).int().argmax(dim=1)).long(), 1 - task.labels)
    with pytest.raises(ValueError, match="at least 3"):
        which_first(2, 5, seed=0)


def test_look_back_and_count_rows_are_what_they_say():
    task = look_back(6, 20, seed=0)
    assert (task.tokens[:, 0] == 0).all()
    assert (task.labels[:, 0] == 0).all()
    assert torch.equal(task.labels[:, 1:], task.tokens[:, :-1])
    for bos in (False, True):
        for constant in (False, True):
            task = count_rows(5, 30, seed=0, bos=bos, constant=constant)
            assert torch.equal(task.labels[7], torch.arange(5))
            assert ((task.tokens == 0).sum(dim=1) == int(bos)).all()
            assert (len(task.tokens[:, 1:].unique()) == 1) == constant


def test_cross_entropy_takes_one_label_an_example_or_one_a_row():
    logits, labels = normal(4, 5, 3), torch.randint(3, (4, 5), generator=torch.Generator().manual_seed(0))
    expected = F.cross_entropy(logits.transpose(1, 2), labels)
    assert difference(cross_entropy(logits, labels), expected) < 1e-12
    assert difference(cross_entropy(logits[:, 0], labels[:, 0]), F.cross_entropy(logits[:, 0], labels[:, 0])) < 1e-12


# --- probes


def test_probe_recovers_a_linear_map_and_finds_nothing_in_noise():
    features, weights = normal(200, 5), normal(5, seed=1)
    targets = features @ weights + 3
    probe = fit_probe(features[:100], targets[:100])
    assert difference(probe, torch.cat([weights, torch.tensor([3.0]).double()])) < 1e-10
    assert r_squared(apply_probe(probe, features[100:]), targets[100:]) == pytest.approx(1)
    noise = normal(200, seed=2)
    probe = fit_probe(features[:100], noise[:100])
    assert r_squared(apply_probe(probe, features[100:]), noise[100:]) < 0.1


def test_probe_bears_features_that_repeat_themselves():
    feature = normal(50, 1)
    probe = fit_probe(torch.cat([feature, feature, torch.ones(50, 1).double()], dim=1), 2 * feature[:, 0])
    doubled = torch.cat([feature, feature, torch.ones(50, 1).double()], dim=1)
    assert difference(apply_probe(probe, doubled), 2 * feature[:, 0]) < 1e-10


def test_r_squared_of_the_mean_is_zero():
    targets = torch.tensor([1.0, 2.0, 6.0])
    assert r_squared(torch.full((3,), 3.0), targets) == pytest.approx(0, abs=1e-6)
    assert r_squared(targets, targets) == 1
