"""What it costs: formulas against counters, three ways to one ALiBi, caches, score_mods, and the Triton kernel."""

import importlib
import importlib.util
import math
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
import triton_stand_in
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from posenc import costs, kernels
from posenc.absolute import Sinusoidal, frequencies
from posenc.attention import Attention, Cache, attention, masked_softmax
from posenc.checks.chapter_14 import (
    ATTENTION_FLOPS,
    RING_WRITE,
    TRUTH,
    WINDOW_BY_BLOCKS,
    attention_flops,
    ring_write,
    window_by_blocks,
)
from posenc.checks.examine import examine
from posenc.contexts import Layer
from posenc.encoding import NoPE
from posenc.learned import Learned
from posenc.masks import Chunked, SlidingWindow, causal, same_document, sliding_window
from posenc.model import build
from posenc.offsets import Shaw, ShawKeys, TransformerXL, offset_rows
from posenc.relative import ALiBi, T5Bias, alibi_slopes
from posenc.rotary import Rotary, rotate, turn
from posenc.symmetry import difference, must_break
from posenc.windows import WindowBias


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- the meter


def test_the_meter_counts_what_is_known():
    x = torch.zeros(10, 100, dtype=torch.float32)
    meter = costs.metered(lambda: (x + x) + x)
    assert (meter.peak, meter.moved, meter.largest, meter.live) == (8000, 24000, 4000, 0)
    assert costs.metered(lambda: x.T.unsqueeze(0)).moved == 0
    assert (costs.metered(lambda: x.add_(1)).peak, costs.metered(lambda: x.add_(1)).moved) == (0, 8000)


def test_the_meter_frees_what_is_dropped_and_keeps_what_is_not():
    x, kept = torch.zeros(250, dtype=torch.float32), []
    for _ in range(2):
        with costs.Meter() as meter:
            for _ in range(5):
                x + 1
        assert (meter.peak, meter.live) == (1000, 0)
    with costs.Meter() as meter:
        for _ in range(5):
            kept.append(x + 1)
    assert (meter.peak, meter.live) == (5000, 5000)


def test_the_meter_counts_what_comes_where_something_was_freed():
    x, kept = torch.zeros(250, dtype=torch.float32), []
    with costs.Meter() as meter:
        for _ in range(5):
            x + 1
        for _ in range(5):
            kept.append(x + 1)
    assert (meter.peak, meter.live) == (5000, 5000)


def test_the_meter_counts_a_part_as_a_part_and_what_is_repeated_once():
    x = torch.zeros(100, dtype=torch.float32)
    assert costs.metered(lambda: x[:10] + 1).moved == 40 + 40
    one = torch.zeros(1, dtype=torch.float32)
    assert costs.metered(lambda: one.expand(50) + 1).moved == 4 + 200


def test_the_meter_counts_two_results_in_one_storage_once():
    def two_in_one() -> tuple[torch.Tensor, torch.Tensor]:
        both = torch.zeros(20, dtype=torch.float32)
        return both[:5], both[5:]

    two_in_one._schema = SimpleNamespace(is_mutable=False)
    meter = costs.Meter()
    results = meter.__torch_dispatch__(two_in_one, ())
    assert (meter.peak, meter.live, meter.moved, meter.largest) == (80, 80, 80, 60)
    del results
    assert (meter.peak, meter.live) == (80, 0)


def test_a_meter_that_counts_views_would_fail():
    x = torch.zeros(64, 64, dtype=torch.float32)
    assert costs.metered(lambda: x.T.reshape(-1)).peak == x.nbytes  # this reshape is a copy
    assert costs.metered(lambda: x.reshape(-1)).peak == 0


def test_slope_finds_the_power_and_refuses_one_point():
    assert costs.slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert costs.slope([2, 8], [5, 10]) == pytest.approx(0.5)
    for sizes, amounts in (([1], [1]), ([], []), ([1, 2], [1]), ([1, 2, 3], [1, 2])):
        with pytest.raises(ValueError, match=f"two sizes or more, got {len(sizes)} and {len(amounts)}"):
            costs.slope(sizes, amounts)


# --- formulas


ENCODINGS = {
    "none": lambda: NoPE(),
    "sinusoids": lambda: Sinusoidal(),
    "learned": lambda: Learned(costs.ROWS, 64),
    "Shaw keys": lambda: ShawKeys(16, costs.CLIP),
    "Shaw": lambda: Shaw(16, costs.CLIP),
    "Transformer-XL": lambda: TransformerXL(64, 4),
    "T5": lambda: T5Bias(4, costs.BUCKETS),
    "ALiBi": lambda: ALiBi(4),
    "rotary": lambda: Rotary(),
    "Swin": lambda: WindowBias(costs.SIDE, costs.SIDE, 4),
    "window": lambda: SlidingWindow(8),
    "chunks": lambda: Chunked(8),
}


def scheme_of(name: str) -> costs.Scheme:
    return next(s for s in costs.SCHEMES if s.name == name)


@pytest.mark.parametrize("name", list(ENCODINGS))
@pytest.mark.parametrize("n", [16, 49])
def test_formulas_are_what_counters_find(name, n):
    scheme = scheme_of(name)
    sizes, encoding = costs.Sizes(n=n, d_model=64, n_heads=4), ENCODINGS[scheme.name]()
    assert sum(p.numel() for p in encoding.parameters()) == scheme.parameters(sizes)
    positions = torch.stack([torch.arange(n) // 7, torch.arange(n) % 7]) if scheme.name == "Swin" else torch.arange(n)
    layer, x = Attention(64, 4), normal(n, 64).float()
    with FlopCounterMode(display=False) as plain:
        layer.float()(x)
    assert plain.get_total_flops() == 8 * n * 64**2 + costs.grid_flops(n, 64)
    if scheme.name == "Swin":
        assert scheme.flops(sizes) == 0
        with FlopCounterMode(display=False) as counter:
            encoding.float().scores(torch.zeros(4, n, n), x, x, positions, positions)
        assert counter.get_total_flops() == 0
        return
    layer.encoding = encoding.float()
    with FlopCounterMode(display=False) as counter:
        layer(x, positions)
    assert counter.get_total_flops() - plain.get_total_flops() == scheme.flops(sizes)


def test_parameters_grow_with_the_layers_unless_they_are_shared():
    one, many = (costs.Sizes(n=8, d_model=64, n_heads=4, n_layers=layers) for layers in (1, 12))
    ratio = {s.name: s.parameters(many) / s.parameters(one) for s in costs.SCHEMES if s.parameters(one)}
    assert {name for name, r in ratio.items() if r == 1} == {"learned", "T5"}
    assert set(ratio.values()) == {1, 12}
    assert [s.name for s in costs.SCHEMES] == list(ENCODINGS)
    by_hand = {"learned": 1024 * 64, "Shaw keys": 33 * 16, "Shaw": 2 * 33 * 16, "T5": 32 * 4, "Swin": 13 * 13 * 4}
    by_hand["Transformer-XL"] = 64 * 64 + 2 * 64
    assert {s.name: s.parameters(one) for s in costs.SCHEMES if s.parameters(one)} == by_hand
    assert costs.Sizes(n=8, d_model=64, n_heads=4) == one
    assert type(one.head_dim) is int
    assert costs.layer_bytes(NoPE(), 8) > 0


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_doors_before_the_scores_add_bytes_like_n_and_the_others_like_n_squared(name):
    if name in ("none", "Swin"):
        pytest.skip("adds nothing, or is for grids")
    lengths = (128, 256, 512)
    more = [costs.layer_bytes(ENCODINGS[name](), n) - costs.layer_bytes(NoPE(), n) for n in lengths]
    door = scheme_of(name).door
    power = costs.slope(lengths, more)
    assert power < 1.1 if door in ("tokens", "queries, keys") else 1.8 < power < 2.1


@pytest.mark.parametrize(("n", "window"), [(1, None), (7, None), (7, 3), (7, 7), (7, 20), (7, 1)])
def test_pairs_are_what_the_mask_shows(n, window):
    at = torch.arange(n)
    shown = causal(at, at) if window is None else sliding_window(at, at, window)
    assert costs.pairs(n, window) == int(shown.sum())


def test_pairs_refuse_a_window_that_shows_nothing():
    with pytest.raises(ValueError, match="at least 1"):
        costs.pairs(4, 0)


# --- one ALiBi, three ways


@pytest.mark.parametrize("way", list(costs.ALIBI_WAYS))
def test_three_ways_agree_with_the_door(way):
    q, k, v = (normal(2, 4, 20, 8, seed=s) for s in range(3))
    at = torch.arange(20)
    scores = ALiBi(4).scores(q @ k.mT / 8**0.5, q, k, at, at)
    expected = masked_softmax(scores, causal(at, at)) @ v
    assert difference(costs.ALIBI_WAYS[way](q, k, v, alibi_slopes(4)), expected) < 1e-12
    must_break(difference(costs.ALIBI_WAYS[way](q, k, v, alibi_slopes(4).flip(0)), expected))


def test_one_feature_leaves_its_arguments_alone_and_needs_the_causal_mask():
    q, k, v = (normal(1, 2, 9, 4, seed=s) for s in range(3))
    before = [x.clone() for x in (q, k, v)]
    costs.by_one_feature(q, k, v, alibi_slopes(2))
    assert all(torch.equal(a, b) for a, b in zip(before, (q, k, v), strict=True))
    at, m = torch.arange(9), alibi_slopes(2).view(-1, 1, 1)
    symmetric = (q @ k.mT / 2 - m * (at[:, None] - at).abs()).softmax(-1)
    one_sided = (q @ k.mT / 2 + m * at).softmax(-1)  # without a mask the trick is another bias
    must_break(difference(symmetric, one_sided))


def test_one_feature_takes_two_tokens_and_hands_over_eight_features_more(monkeypatch):
    q, k, v = (normal(1, 2, 2, 4, seed=s) for s in range(3))
    widths, attend = [], F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", lambda *x, **how: widths.append(x) or attend(*x, **how))
    found = costs.by_one_feature(q, k, v, alibi_slopes(2))
    assert [x.shape[-1] for x in widths[0]] == [12] * 3
    assert difference(found, costs.by_grid(q, k, v, alibi_slopes(2))) < 1e-12


def test_one_feature_before_a_cache():
    """One query, the newest, needs no mask; `is_causal` would show it the first key only. Other numbers are refused."""
    q, k, v = (normal(1, 2, 9, 4, seed=s) for s in range(3))
    expected = costs.by_grid(q, k, v, alibi_slopes(2))[..., -1:, :]
    assert difference(costs.by_one_feature(q[..., -1:, :], k, v, alibi_slopes(2)), expected) < 1e-12
    flagged = F.scaled_dot_product_attention(q[..., -1:, :], k, v, is_causal=True)
    assert difference(flagged, v[..., :1, :]) < 1e-12
    must_break(difference(flagged, expected))
    with pytest.raises(ValueError, match="as many queries as keys"):
        costs.by_one_feature(q[..., -3:, :], k, v, alibi_slopes(2))


def test_a_gaussian_bias_is_two_products():
    """-(i - j)² / (2 w²) = row's own - j² / (2 w²) + i j / w²: the statement with r = 2, and no mask."""
    q, k, v, width, at = *(normal(1, 9, 4, seed=s) for s in range(3)), 3.0, torch.arange(9, dtype=torch.float64)
    bias = -((at[:, None] - at) ** 2) / (2 * width**2)
    expected = (q @ k.mT / 2 + bias).softmax(-1) @ v
    of_query = 2 * torch.stack([torch.ones(9), at], dim=-1).expand(1, 9, 2)
    of_key = torch.stack([-at * at / (2 * width**2), at / width**2], dim=-1).expand(1, 9, 2)
    longer = torch.cat([q, of_query], dim=-1) @ torch.cat([k, of_key], dim=-1).mT / 2
    assert difference(longer.softmax(-1) @ v, expected) < 1e-12


def test_only_the_feature_needs_no_grid():
    peaks = {
        name: [costs.metered(way, *costs.random_inputs(n, 2, 16, torch.device("cpu"))).peak for n in (256, 512)]
        for name, way in costs.ALIBI_WAYS.items()
    }
    for name, (short, long) in peaks.items():
        assert long < 2.2 * short if name == "one more feature" else long > 3.5 * short


@pytest.mark.parametrize(
    ("values", "batched", "grid"),
    [(16, True, False), (8, True, True), (16, False, tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14))],
)
def test_when_there_is_a_grid_after_all(values, batched, grid):
    n = 256
    q, k, v = (normal(1, 2, n, width, seed=s).float() for s, width in enumerate((16, 16, values)))
    given = (q, k, v) if batched else (q[0], k[0], v[0])
    made = costs.metered(lambda: F.scaled_dot_product_attention(*given, is_causal=True))
    assert (made.largest >= n * n * 4) == grid


@pytest.mark.parametrize(
    ("axes", "learns", "dropout", "fused"),
    [
        (4, False, 0.0, True),
        (2, False, 0.0, True),
        (3, False, 0.0, False),
        (4, True, 0.0, False),
        (4, False, 0.1, False),
    ],
)
def test_which_bias_keeps_the_fused_kernel_of_the_cpu(axes, learns, dropout, fused):
    n = 256
    q, k, v = (normal(1, 2, n, 16, seed=s).float() for s in range(3))
    bias = torch.zeros(1, 2, n, n)[(0,) * (4 - axes)].clone().requires_grad_(learns)
    with costs.Meter() as meter:
        F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout)
    assert (meter.peak < n * n * 4) == fused


def test_a_bias_that_learns_costs_more_than_one_that_does_not_unless_it_is_a_feature():
    n, peak = 256, {}
    for name, way in costs.ALIBI_WAYS.items():
        for learns in (False, True):
            q, k, v, slopes = costs.random_inputs(n, 2, 16, torch.device("cpu"))
            q.requires_grad_()
            slopes.requires_grad_(learns)
            with costs.Meter() as meter:
                way(q, k, v, slopes).sum().backward()
            peak[name, learns] = meter.peak / (2 * n * n * 4)
    assert peak["bias written down", True] > peak["bias written down", False] + 1
    assert max(peak["one more feature", learns] for learns in (False, True)) < 1


@pytest.mark.parametrize("n", [16_384, 131_072])
def test_the_feature_in_float32_wants_a_near_origin(n):
    q, k, at = normal(1, 32).float(), normal(n, 32, seed=1).float(), torch.arange(n, dtype=torch.float64)
    exact = (q.double() @ k.double().mT / 32**0.5 + 0.5 * (at - n + 1)).softmax(-1)

    def error(origin: int) -> float:
        price = (32**0.5 * 0.5 * (at - origin)).float()
        longer = torch.cat([q, torch.ones(1, 1)], -1) @ torch.cat([k, price[:, None]], -1).mT
        return difference((longer / 32**0.5).softmax(-1), exact)

    assert error(n - 1) < 1e-6 < 1e-5 < error(0)


def test_the_fused_kernel_of_the_cpu_allocates_no_grid_inside():
    """What the meter cannot see, the profiler can: memory that the kernel takes for itself does not grow like n²."""
    from torch.profiler import ProfilerActivity, profile

    most = []
    for n in (512, 2048):
        q, k, v = normal(3, 1, 2, n, 16).float()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
            F.scaled_dot_product_attention(q, k, v, is_causal=True)
        names = [event.key for event in found.key_averages()]
        assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
        most.append(max(event.self_cpu_memory_usage for event in found.key_averages()))
    assert most[1] < 2048**2


# --- score_mods and mask_mods


def flex(queries, keys, values, score_mod=None, mask_mod=None):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    n = queries.shape[-2]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        mask = create_block_mask(mask_mod, None, None, n, n, device="cpu") if mask_mod else None
        return flex_attention(queries, keys, values, score_mod, mask, enable_gqa=True)


@pytest.fixture(scope="module")
def qkv():
    return [normal(1, 4, 24, 8, seed=s) for s in range(3)]


def test_shaws_keys_as_a_score_mod(qkv):
    q, k, v = qkv
    at, clip, shaw = torch.arange(24), 3, ShawKeys(8, 3).double()
    by_row = (q @ shaw.key_table.mT / 8**0.5).detach()

    def mod(score, b, h, i, j):
        return score + by_row[b, h, i, (j - i).clamp(-clip, clip) + clip]

    def turned_round(score, b, h, i, j):
        return score + by_row[b, h, i, (i - j).clamp(-clip, clip) + clip]

    with torch.no_grad():
        expected = shaw.scores(q @ k.mT / 8**0.5, q, k, at, at).softmax(-1) @ v
    assert difference(flex(q, k, v, mod), expected) < 1e-12
    must_break(difference(flex(q, k, v, turned_round), expected))


def test_alibi_with_grouped_queries_and_packed_documents_with_a_window(qkv):
    q, k, v = qkv
    at, slopes, documents = torch.arange(24), alibi_slopes(4), (torch.arange(24) >= 10).long()
    two, twice = k[:, :2], k[:, :2].repeat_interleave(2, dim=1)
    scores = ALiBi(4).scores(q @ twice.mT / 8**0.5, q, twice, at, at)
    found = flex(q, two, v[:, :2], lambda s, b, h, i, j: s - slopes[h] * (i - j).abs())
    assert difference(found, scores.softmax(-1) @ v[:, :2].repeat_interleave(2, dim=1)) < 1e-12

    whole = F.pad(documents, (0, 104))  # torch 2.5 asks about blocks of 128, past the end as well

    def packed(b, h, i, j):
        return (i >= j) & (i - j < 5) & (whole[i] == whole[j])

    seen = sliding_window(at, at, 5) & same_document(documents, documents)
    expected = masked_softmax(q @ k.mT / 8**0.5, seen) @ v
    assert difference(flex(q, k, v, None, packed), expected) < 1e-12
    must_break(difference(masked_softmax(q @ k.mT / 8**0.5, sliding_window(at, at, 5)) @ v, expected))


def test_a_block_mask_made_without_compiling_asks_about_every_pair():
    from torch.nn.attention.flex_attention import create_block_mask

    n = 512
    making = costs.metered(create_block_mask, lambda b, h, i, j: i - j < 64, None, None, n, n, "cpu")
    assert making.largest >= n * n


# --- caches


def test_cache_bytes_are_those_of_real_caches_and_the_model_says_the_same():
    layers = [Layer(window=8), Layer(chunk=16), Layer(rope=False), Layer(window=3)]
    doors = [layer.encoding(Rotary()) for layer in layers]
    model = build(0, vocabulary=20, d_model=32, n_layers=4, n_heads=2, n_outputs=20, encoding=doors).double()
    text = torch.randint(20, (1, 50), generator=torch.Generator().manual_seed(1))
    caches = [Cache(window=layer.window or layer.chunk) for layer in layers]
    with torch.no_grad():
        for i in range(50):
            logits = model(text[:, i : i + 1], torch.arange(i, i + 1), caches)
            held = sum(part.nbytes for cache in caches for part in cache.kept[:2])
            assert held == costs.cache_bytes(layers, i + 1, 2 * 32, 8)
        assert difference(logits[:, 0], model(text)[:, -1]) < 1e-12
        short = [Cache(window=2) for _ in layers]  # negative control: a cache that keeps too little
        for i in range(50):
            logits = model(text[:, i : i + 1], torch.arange(i, i + 1), short)
        must_break(difference(logits[:, 0], model(text)[:, -1]))


def test_released_models():
    """Keys and values in 16 bits, 131,072 tokens: by hand, from the layers that the sources tell."""
    n, sizes = 131_072, {m.name: costs.cache_bytes(m.layers, 131_072, m.numbers) for m in costs.RELEASED}
    assert sizes == {
        "Llama 3.1 8B": 32 * n * (2 * 8 * 128) * 2,
        "Mistral 7B v0.1": 32 * 4096 * (2 * 8 * 128) * 2,
        "Gemma 3 27B": (10 * n + 52 * 1024) * (2 * 16 * 128) * 2,
        "Llama 4 Scout": (12 * n + 36 * 8192) * (2 * 8 * 128) * 2,
        "DeepSeek-V3": 61 * n * (512 + 64) * 2,
    }
    assert list(sizes)[:2] == ["Llama 3.1 8B", "Mistral 7B v0.1"]
    assert (sizes["Llama 3.1 8B"] / 2**30, sizes["Mistral 7B v0.1"] / 2**30) == (16, 0.5)
    gemma, scout = (next(m for m in costs.RELEASED if m.name == n) for n in ("Gemma 3 27B", "Llama 4 Scout"))
    assert [i for i, layer in enumerate(gemma.layers) if not layer.is_bounded] == list(range(5, 62, 6))
    assert [i for i, layer in enumerate(scout.layers) if not layer.rope] == list(range(3, 48, 4))
    assert [i for i, layer in enumerate(scout.layers) if not layer.is_bounded] == list(range(3, 48, 4))
    for name in ("Llama 3.1 8B", "Mistral 7B v0.1", "Gemma 3 27B", "DeepSeek-V3"):
        assert all(layer.rope for m in costs.RELEASED if m.name == name for layer in m.layers)
    assert all(m.source.startswith("https://") for m in costs.RELEASED)


def test_sizes_are_those_of_the_configuration_classes():
    import transformers

    scout = transformers.models.llama4.Llama4TextConfig()
    sizes = (scout.num_hidden_layers, scout.num_key_value_heads, scout.head_dim, scout.attention_chunk_size)
    assert sizes == (48, 8, 128, 8192)
    deepseek = transformers.DeepseekV3Config()
    assert (deepseek.num_hidden_layers, deepseek.kv_lora_rank, deepseek.qk_rope_head_dim) == (61, 512, 64)


# --- rotary


def test_turning_in_place_is_turning():
    x = normal(2, 3, 12, 8, dtype=torch.float32)
    angles = torch.arange(12).unsqueeze(-1) * costs.frequencies(8)
    expected, spins = turn(x, angles), costs.spin(12, 8)
    assert difference(costs.turn_with(x, spins.real, spins.imag), expected) < 1e-6
    work = x.clone()
    assert costs.turn_in_place(work, spins).data_ptr() == work.data_ptr()
    assert difference(work, expected) < 1e-6
    must_break(difference(costs.turn_in_place(x.clone(), spins.conj()), expected))


class OnCuda(torch.Tensor):
    """A tensor that says that it lies on a GPU."""

    is_cuda = True


def test_the_ways_to_turn(monkeypatch):
    x, compiled = normal(2, 3, 12, 8, dtype=torch.float32), []
    expected = turn(x, torch.arange(12).unsqueeze(-1) * frequencies(8))
    monkeypatch.setattr(torch, "compile", lambda function: compiled.append(function) or function)
    monkeypatch.setattr(kernels, "triton", "Triton")
    monkeypatch.setattr(kernels, "turn_in_place", lambda x, cos, sin: x.copy_(costs.turn_with(x, cos, sin)))

    def names(x: torch.Tensor, *asked: bool) -> list[str]:
        ways = costs.rotary_ways(x.clone(), *asked)
        assert torch.equal(ways["copy"](), x)
        assert ways["copy"]().data_ptr() != ways["one product, in place"]().data_ptr()
        for name in list(ways)[1:]:
            assert difference(costs.rotary_ways(x.clone(), *asked)[name](), expected) < 1e-6, name
        return list(ways)

    always = ["copy", "step by step", "one product, in place"]
    assert names(x) == names(x, False) == always
    assert not compiled
    assert names(x, True) == [*always, "compiled"]
    assert set(compiled) == {costs.turn_with}
    on_gpu = x.as_subclass(OnCuda)
    assert names(on_gpu) == [*always, "compiled", "Triton, in place"]
    assert names(on_gpu, False) == [*always, "Triton, in place"]
    monkeypatch.setattr(kernels, "triton", None)
    assert names(on_gpu) == [*always, "compiled"]


def test_a_spin_is_the_cosine_and_the_sine_of_each_angle():
    base, angles = 100.0, torch.tensor([[0.0, 0.0], [1.0, 0.1], [2.0, 0.2]]).double()
    found = costs.spin(3, 4, base)
    assert found.dtype == torch.complex64
    assert difference(torch.view_as_real(found), torch.stack([angles.cos(), angles.sin()], dim=-1).float()) < 1e-6
    assert torch.equal(costs.spin(3, 4), costs.spin(3, 4, 10_000.0))


def test_in_place_moves_what_a_copy_moves():
    x = normal(4, 2, 256, 64, dtype=torch.float32)
    ways = costs.rotary_ways(x)
    moved = {name: costs.metered(way).moved / (2 * x.nbytes) for name, way in ways.items()}
    assert moved["one product, in place"] < 1.1
    assert moved["step by step"] > 4


@pytest.fixture
def kernel(monkeypatch):
    """The module, with Triton's words in plain PyTorch, whether Triton is installed or not."""
    fresh = importlib.util.module_from_spec(kernels.__spec__)
    with triton_stand_in.installed():
        kernels.__spec__.loader.exec_module(fresh)
    monkeypatch.setattr(kernels, "triton", fresh.triton)
    monkeypatch.setattr(kernels, "_turn", fresh._turn, raising=False)
    return kernels


# More and fewer rows than a program turns, and numbers of pairs that are no powers of 2.
SHAPES = [(2, 3, 10, 6), (7, 64), (3, 33, 12), (5, 1, 2), (1, 24)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_kernel_turns_each_pair_where_it_stands(kernel, shape, dtype):
    x, (n, head_dim) = normal(*shape).to(dtype), shape[-2:]
    angles = (torch.arange(n).unsqueeze(-1) * torch.linspace(1, 0.01, head_dim // 2)).float()
    work, cos, sin = x.clone(), angles.cos(), angles.sin()
    assert kernel.turn_in_place(work, cos, sin) is work
    expected = costs.turn_with(x.float(), cos, sin).to(dtype)  # products are float32
    assert torch.equal(work, expected)
    assert torch.equal(cos, angles.cos())
    assert torch.equal(kernel.turn_in_place(x.clone(), cos.mT.contiguous().mT, sin), expected)
    if n > 1:
        must_break(difference(kernel.turn_in_place(x.clone(), cos, -sin).double(), expected.double()))


def test_the_kernel_leaves_its_neighbours_alone(kernel):
    room, angles = normal(4, 9, 6), normal(9, 3, seed=1)
    before = room.clone()
    kernel.turn_in_place(room[1:3], angles.cos(), angles.sin())
    assert torch.equal(room[[0, 3]], before[[0, 3]])
    must_break(difference(room[1:3], before[1:3]))


def test_the_kernel_finds_rows_beyond_two_thousand_million_numbers(kernel):
    """Their addresses have more than 32 bits. Nobody touches the rest, so it takes no memory."""
    rows, head_dim = 2**25 + 2, 64
    x = torch.empty(rows, head_dim, dtype=torch.int8)
    x[-2:] = torch.arange(2).unsqueeze(-1)
    quarter = torch.tensor([[0.0], [1.0]]).expand(2, head_dim // 2).contiguous()  # row 1 turns by 90°
    sizes = {"HALF": head_dim // 2, "BLOCK": 32, "ROWS": kernels.ROWS}
    last = (rows - 1) // kernels.ROWS
    kernel._turn.run(range(last, last + 1), x, 1 - quarter, quarter, rows, 2, **sizes)
    assert x[-2].tolist() == [0] * head_dim
    assert x[-1].tolist() == [-1, 1] * (head_dim // 2)


def test_without_triton_the_kernel_says_what_to_call(monkeypatch):
    monkeypatch.setattr(kernels, "triton", None)
    with pytest.raises(RuntimeError, match=r"not installed; posenc\.rotary\.turn"):
        kernels.turn_in_place(torch.zeros(2, 4, 6), torch.zeros(4, 3), torch.zeros(4, 3))


def test_the_kernel_refuses_what_it_cannot_do(kernel):
    def refuses(words: str, x: torch.Tensor, cos: tuple[int, int], sin: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match=words):
            kernel.turn_in_place(x, torch.zeros(cos), torch.zeros(sin))

    x = torch.zeros(2, 4, 6)
    refuses("contiguous", x.mT, (6, 2), (6, 2))
    refuses("contiguous", x[..., ::2], (4, 1), (4, 1))
    refuses(r"needs cos and sin of \(4, 3\), got \(2, 3\) \(4, 3\)", x, (2, 3), (4, 3))
    refuses(r"got \(4, 3\) \(4, 2\)", x, (4, 3), (4, 2))
    refuses(r"got \(4, 6\) \(4, 6\)", x, (4, 6), (4, 6))
    refuses(r"needs cos and sin of \(4, 2\)", torch.zeros(2, 4, 5), (4, 2), (4, 2))  # a feature without a partner


IN_THE_INTERPRETER = """
import torch
from posenc import kernels
from posenc.rotary import turn
for shape, dtype in (((2, 3, 10, 6), torch.float32), ((7, 64), torch.float64), ((3, 33, 12), torch.bfloat16)):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    angles = torch.arange(shape[-2]).unsqueeze(-1) * torch.linspace(1, 0.01, shape[-1] // 2)
    work = x.clone()
    kernels.turn_in_place(work, angles.cos(), angles.sin())
    error = (work.double() - turn(x.double(), angles.float())).abs().max().item()
    assert error < (0.04 if dtype == torch.bfloat16 else 1e-5), (shape, dtype, error)
print("agreed")
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernel_in_tritons_interpreter():
    done = subprocess.run(
        [sys.executable, "-c", IN_THE_INTERPRETER],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == "agreed", done.stderr


# --- what is stored, and the study


def test_what_is_stored_says_how_and_where_it_was_measured():
    kept = costs.stored("cpu")
    assert kept["device"].startswith("CPU")
    assert kept["made"]["command"] == "python -m posenc.costs"
    assert set(kept["attention"]["1024"]) == {*costs.ALIBI_WAYS, "FlexAttention"}
    assert all(one["FlexAttention"]["error"] < 1e-3 for one in kept["attention"].values())
    assert "one more feature         1.0" in costs.summary("cpu")


def test_nothing_is_invented():
    assert costs.summary("abacus") == "abacus: not measured yet"


def test_the_summary_says_ratios_of_medians(monkeypatch):
    def seconds(*found: float) -> dict:
        return {"seconds": list(found)}

    kept = {
        "device": "CPU: an abacus",
        "made": {"torch": "9.9", "date": "1623-10-01"},
        "attention": {
            "1024": {"one more feature": seconds(2, 4, 90), "step by step": seconds(6, 10, 11)},
            "512": {"one more feature": seconds(1), "step by step": seconds(1)},
        },
        "rotary": {"compiled": [1.0, 1.5, 7.0]},
    }
    monkeypatch.setattr(costs, "stored", lambda device: kept)
    assert costs.summary("cpu").splitlines() == [
        "CPU: an abacus, torch 9.9, 1623-10-01",
        "  attention, 1024 tokens, time",
        "    one more feature         1.0",
        "    step by step             2.5",
        "  rotary, time, a copy = 1",
        "    compiled                 1.5",
    ]


def test_what_was_measured_is_read_from_the_librarys_data(tmp_path, monkeypatch):
    assert costs.where("cpu").is_file()
    assert costs.where("cuda").name == "costs_cuda.json"
    monkeypatch.setattr(costs, "where", lambda device: tmp_path / f"{device}.json")
    assert costs.stored("cpu") is None
    (tmp_path / "cpu.json").write_text('{"a": 1}')
    assert costs.stored("cpu") == {"a": 1}
    assert costs.stored("cuda") is None


class Clock:
    """Stands in for `time`: only what is measured takes time."""

    def __init__(self, *durations: float) -> None:
        self.now, self.durations = 100.0, iter(durations)

    def perf_counter(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += next(self.durations)


def test_seconds_are_in_order_of_size_and_the_first_call_only_warms_up(monkeypatch):
    clock = Clock(50, 4, 2, 8, 1)
    monkeypatch.setattr(costs, "time", clock)
    assert costs.seconds(clock.call, torch.device("cpu"), repeats=4) == [1, 2, 4, 8]
    monkeypatch.setattr(costs, "time", clock := Clock(*[1] * 6))
    assert costs.seconds(clock.call, torch.device("cpu")) == [1] * 5
    assert next(clock.durations, None) is None


@pytest.fixture
def cuda(monkeypatch):
    """What is asked of `torch.cuda`, in order, in place of a GPU; its memory has 100 bytes, and up to 350 in a call."""
    said, numbers = [], {"memory_allocated": 100, "max_memory_allocated": 350}
    for name in ("synchronize", "reset_peak_memory_stats", *numbers):
        monkeypatch.setattr(torch.cuda, name, lambda device, name=name: said.append(name) or numbers.get(name))
    return said


def test_a_gpu_has_done_its_work_before_the_clock_starts_and_before_it_stops(monkeypatch, cuda):
    clock = SimpleNamespace(perf_counter=lambda: cuda.append("clock") or 0.0)
    monkeypatch.setattr(costs, "time", clock)
    costs.seconds(lambda: cuda.append("call"), torch.device("cuda"), repeats=1)
    assert cuda == ["synchronize", "clock", "call", "synchronize", "clock"] * 2
    cuda.clear()
    costs.seconds(lambda: cuda.append("call"), torch.device("cpu"), repeats=0)
    assert cuda == ["clock", "call", "clock"]


def test_peak_bytes_are_the_allocators_on_a_gpu_and_the_meters_elsewhere(cuda):
    assert costs.peak_bytes(lambda: cuda.append("call"), torch.device("cuda")) == 250
    counted = ["reset_peak_memory_stats", "memory_allocated", "call", "synchronize", "max_memory_allocated"]
    assert cuda == ["synchronize", *counted]
    assert costs.peak_bytes(lambda: torch.ones(10, dtype=torch.float64), torch.device("cpu")) == 80
    assert len(cuda) == 6


def test_attention_is_measured_on_inputs_of_the_sizes_that_are_asked(monkeypatch):
    def noted(*given: torch.Tensor) -> torch.Tensor:
        assert not torch.is_grad_enabled()
        shapes.append([tuple(x.shape) for x in given])
        return given[0] + 1

    shapes: list = []
    monkeypatch.setitem(costs.ALIBI_WAYS, "noted", noted)
    monkeypatch.setattr(costs, "seconds", lambda call, device: [call().shape, device])
    cpu = torch.device("cpu")
    assert costs.measure_attention("noted", 7, cpu) == {"seconds": [(1, 4, 7, 32), cpu], "peak": 4 * 7 * 32 * 4}
    costs.measure_attention("noted", 5, cpu, 2, 8)
    assert shapes == [[(1, 4, 7, 32)] * 3 + [(4,)]] * 2 + [[(1, 2, 5, 8)] * 3 + [(2,)]] * 2


def test_random_inputs_are_the_same_each_time_and_float32():
    cpu, before = torch.device("cpu"), torch.get_rng_state()
    found = in_double(lambda: costs.random_inputs(6, 4, 8, cpu))
    assert torch.equal(torch.get_rng_state(), before)
    assert [tuple(x.shape) for x in found] == [(1, 4, 6, 8)] * 3 + [(4,)]
    assert {x.dtype for x in found} == {torch.float32}
    assert torch.equal(found[3], alibi_slopes(4).float())
    assert all(
        torch.equal(a, b) for a, b in zip(found, in_double(lambda: costs.random_inputs(6, 4, 8, cpu)), strict=True)
    )
    must_break(difference(found[0], found[1]))
    assert abs(torch.cat(found[:3]).std().item() - 1) < 0.1


def in_double(make):
    """What is made where float64 is usual, as in the chapters."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return make()
    finally:
        torch.set_default_dtype(usual)


def test_a_layer_of_64_with_4_heads_is_measured_in_float32_whatever_is_usual():
    expected = costs.layer_bytes(NoPE(), 16, 64, 4)
    assert costs.layer_bytes(NoPE(), 16) == expected
    assert in_double(lambda: costs.layer_bytes(NoPE(), 16)) == expected
    assert costs.layer_bytes(NoPE(), 16, 32, 2) < expected < costs.layer_bytes(NoPE(), 16, 64, 8)
    more = costs.layer_bytes(Sinusoidal(), 16) - expected
    assert more >= 3 * 16 * 64 * 4  # its token door: x and the sinusoids are read, their sum is written


@pytest.mark.parametrize("on_gpu", [False, True])
def test_flex_attention_is_measured_and_compared(monkeypatch, cuda, on_gpu):
    flex_attention = importlib.import_module("torch.nn.attention.flex_attention")
    block_mask, asked, mods = flex_attention.create_block_mask, [], []
    monkeypatch.setattr(
        flex_attention,
        "create_block_mask",
        lambda mod, *sizes, device: asked.append((*sizes, device)) or block_mask(mod, *sizes, device="cpu"),
    )
    real = torch.compile

    def compiled(function, **how):
        if how:  # torch's own, without which flex_attention does not run
            return real(function, **how)
        warnings.warn("torch.compile says this and that", stacklevel=2)
        asked.append("compiled")
        return lambda *qkv, score_mod, block_mask: mods.append(score_mod) or function(*qkv, score_mod, block_mask)

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(costs, "seconds", lambda call, device: [tuple(call().shape), device.type])
    inputs = costs.random_inputs(24, 4, 8, torch.device("cpu"))
    monkeypatch.setattr(costs, "random_inputs", lambda *sizes: asked.append(sizes) or inputs)
    device = torch.device("cuda" if on_gpu else "cpu")
    found = costs.measure_flex(24, device, 4, 8)
    assert asked == [(24, 4, 8, device), (None, None, 24, 24, device.type), "compiled"]
    assert found["seconds"] == [(1, 4, 24, 8), device.type]
    assert found["peak"] == (250 if on_gpu else None)
    assert found["error"] < 1e-5
    row, column = torch.tensor(5), torch.tensor(3)
    assert mods[0](2.0, 0, 1, row, column).item() == pytest.approx(2 - 2 * alibi_slopes(4)[1].item())
    off = costs.by_one_feature(*inputs)
    off[0, 2, 3, 4] += 0.5
    monkeypatch.setattr(costs, "by_one_feature", lambda *given: off)
    assert costs.measure_flex(24, device, 4, 8)["error"] == pytest.approx(0.5, abs=1e-5)


def test_rotary_is_measured_against_a_copy_made_in_turn(monkeypatch):
    said: list = []

    def ways(x: torch.Tensor, compiled: bool) -> dict:
        said.append((tuple(x.shape), x.dtype, compiled))
        return {"copy": "copy", "slow": lambda: said.append("warm"), "compiled": lambda: said.append("warm")}

    found = iter(
        [[3, 6, 100], [1, 2, 2], [3, 5, 6], [1, 1, 1], [1, 1, 1], [1, 2, 3], [1, 8, 8], [2, 2, 2], [3] * 3, [1] * 3]
    )
    monkeypatch.setattr(costs, "rotary_ways", ways)
    monkeypatch.setattr(costs, "seconds", lambda call, device: said.append((call, device.type)) or next(found))
    cpu = torch.device("cpu")
    assert in_double(lambda: costs.measure_rotary("slow", (2, 4, 8), cpu)) == [0.5, 3, 3, 4, 5]
    assert said[:2] == [((2, 4, 8), torch.float32, False), "warm"]
    assert [call == "copy" for call, _ in said[2:]] == [False, True] * 5
    said.clear()
    found = iter([[1]] * 10)
    costs.measure_rotary("compiled", (2, 4), cpu)
    assert said[:2] == [((2, 4), torch.float32, True), "warm"]


@pytest.mark.parametrize("gpu", ["no", "without Triton", "with Triton"])
def test_the_study_measures_every_way_at_every_length(monkeypatch, gpu):
    kept: list = []
    device = torch.device("cpu" if gpu == "no" else "cuda")
    lengths, heads, shape = (256, 512, 1024, 2048), (4, 32), (4, 8, 1024, 64)
    if gpu != "no":
        lengths, heads, shape = (1024, 2048, 4096, 8192), (8, 64), (16, 16, 4096, 128)
    for name in ("measure_attention", "measure_flex", "measure_rotary"):
        monkeypatch.setattr(costs, name, lambda *given, name=name: (name, *given))
    monkeypatch.setattr(costs, "describe", lambda device: f"a {device.type}")
    monkeypatch.setattr(kernels, "triton", None if gpu == "without Triton" else "Triton")
    monkeypatch.setattr(costs, "fill", lambda *given: kept.append(given))
    costs.study("path", device, "report")
    ((path, command, measurements, report),) = kept
    assert (path, command, report) == ("path", "python -m posenc.costs", "report")
    expected: list = [(("device",), f"a {device.type}")]
    expected.append((("sizes",), {"n_heads": heads[0], "head_dim": heads[1], "rotary": list(shape)}))
    for n in lengths:
        for way in ("step by step", "bias written down", "one more feature"):
            expected.append((("attention", str(n), way), ("measure_attention", way, n, device, *heads)))
        expected.append((("attention", str(n), "FlexAttention"), ("measure_flex", n, device, *heads)))
    ways = ["step by step", "one product, in place", "compiled"] + ["Triton, in place"] * (gpu == "with Triton")
    expected += [(("rotary", way), ("measure_rotary", way, shape, device)) for way in ways]
    assert [(keys, measure()) for keys, measure in measurements] == expected


# --- the exercises' truth is measured


@pytest.mark.parametrize("line", list(TRUTH))
def test_the_answers_of_the_prediction_are_measured(line):
    largest = []
    for n in (256, 512):
        q, k, v = (normal(1, 2, n, 8, seed=s).float() for s in range(3))
        names = {"F": F, "attention": attention, "causal": causal, "rotate": rotate, "offset_rows": offset_rows}
        names |= {"torch": torch, "q": q, "k": k, "v": v, "at": torch.arange(n), "n": n, "clip": 4}
        names |= {"shaw_table": normal(9, 8).float(), "t5_bias_of": lambda o: torch.zeros(32)[o.clamp(0, 31)]}
        largest.append(costs.metered(lambda names=names: eval(line, names)).largest)
    assert (math.log2(largest[1] / largest[0]) > 1.5) == TRUTH[line]
    if TRUTH[line]:
        assert largest[1] >= 512**2


def _complaints(function, exercise) -> dict[str, str]:
    return {f.name: f.complaint for f in examine(function, exercise).findings if f.complaint}


def _two_to_a_slot(slots, held, new, positions):
    slots, held = slots.clone(), held.clone()
    slots[..., positions % len(held), :] = new
    held[positions % len(held)] = positions
    return slots, held


def _one_by_one(slots, held, new, positions):
    slots, held = slots.clone(), held.clone()
    for i, p in enumerate(positions.tolist()):
        slots[..., p % len(held), :], held[p % len(held)] = new[..., i, :], p
    return slots, held


def _slices_of_one_mask(q, k, v, window, attend):
    n, at, pieces = q.shape[-2], torch.arange(q.shape[-2]), []
    mask = sliding_window(at, at, window)
    for start in range(0, n, window):
        stop, first = min(start + window, n), max(0, start - window + 1)
        seen = mask[start:stop, first:stop]
        pieces.append(attend(q[..., start:stop, :], k[..., first:stop, :], v[..., first:stop, :], seen))
    return torch.cat(pieces, dim=-2)


def _one_grid(q, k, v, window, attend):
    at = torch.arange(q.shape[-2])
    return attend(q, k, v, sliding_window(at, at, window))


def test_the_ring_must_not_write_two_tokens_to_one_slot():
    """PyTorch's CPU happens to keep the last one; nothing promises it, so the numbers alone cannot tell."""
    assert list(_complaints(_two_to_a_slot, RING_WRITE)) == ["no two tokens are written to one slot"]
    assert not _complaints(_one_by_one, RING_WRITE)
    assert not _complaints(torch.no_grad()(ring_write), RING_WRITE)


@pytest.mark.parametrize(("answer", "wrong"), [(_slices_of_one_mask, 1), (_one_grid, 2)])
def test_a_window_by_blocks_must_not_make_a_grid_of_its_own(answer, wrong):
    found = _complaints(answer, WINDOW_BY_BLOCKS)
    assert len(found) == wrong
    assert "no tensor of n × n numbers, masks included" in found


@pytest.mark.parametrize("kind", [float, lambda x: int(float(x)), lambda x: int(torch.tensor(x, dtype=torch.float32))])
def test_flops_that_went_through_a_float_lose_a_point(kind):
    assert list(_complaints(lambda *sizes: kind(attention_flops(*sizes)), ATTENTION_FLOPS)) == ["a whole number, exact"]


def test_blocks_make_no_grid():
    q, k, v = (normal(1, 1024, 8, seed=s).float() for s in range(3))
    by_blocks = costs.metered(window_by_blocks, q, k, v, 32, attention)
    at = torch.arange(1024)
    by_mask = costs.metered(lambda: attention(q, k, v, sliding_window(at, at, 32)))
    assert by_mask.largest >= 1024**2 * 4 > 20 * by_blocks.largest
