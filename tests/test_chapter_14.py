"""What it costs: formulas against counters, three ways to one ALiBi, caches, score_mods, and the Triton kernel."""

import importlib
import importlib.util
import math
import os
import subprocess
import sys
import warnings

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from posenc import costs, kernels
from posenc.absolute import Sinusoidal
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


def test_a_meter_that_counts_views_would_fail():
    x = torch.zeros(64, 64, dtype=torch.float32)
    assert costs.metered(lambda: x.T.reshape(-1)).peak == x.nbytes  # this reshape is a copy
    assert costs.metered(lambda: x.reshape(-1)).peak == 0


def test_slope_finds_the_power_and_refuses_one_point():
    assert costs.slope([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    with pytest.raises(ValueError, match="two sizes"):
        costs.slope([1], [1])


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


def test_every_scheme_is_counted():
    assert list(ENCODINGS) == [scheme.name for scheme in costs.SCHEMES]


@pytest.mark.parametrize("scheme", costs.SCHEMES, ids=lambda s: s.name)
@pytest.mark.parametrize("n", [16, 49])
def test_formulas_are_what_counters_find(scheme, n):
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


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_doors_before_the_scores_add_bytes_like_n_and_the_others_like_n_squared(name):
    if name in ("none", "Swin"):
        pytest.skip("adds nothing, or is for grids")
    lengths = (128, 256, 512)
    more = [costs.layer_bytes(ENCODINGS[name](), n) - costs.layer_bytes(NoPE(), n) for n in lengths]
    door = next(s.door for s in costs.SCHEMES if s.name == name)
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
    gib = {m.name: costs.cache_bytes(m.layers, 131072, m.numbers) / 2**30 for m in costs.RELEASED}
    assert gib["Llama 3.1 8B"] == 16
    assert gib["Mistral 7B v0.1"] == 0.5
    gemma, scout = (next(m for m in costs.RELEASED if m.name == n) for n in ("Gemma 3 27B", "Llama 4 Scout"))
    assert sum(not layer.is_bounded for layer in gemma.layers) == 10
    assert [i for i, layer in enumerate(scout.layers) if not layer.rope] == list(range(3, 48, 4))
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


def test_in_place_moves_what_a_copy_moves():
    x = normal(4, 2, 256, 64, dtype=torch.float32)
    ways = costs.rotary_ways(x)
    moved = {name: costs.metered(way).moved / (2 * x.nbytes) for name, way in ways.items()}
    assert moved["one product, in place"] < 1.1
    assert moved["step by step"] > 4


def test_the_kernel_is_python_and_refuses_what_it_cannot_do():
    x, cos = torch.zeros(2, 4, 6), torch.zeros(4, 3)
    if kernels.triton is None:
        with pytest.raises(RuntimeError, match="not installed"):
            kernels.turn_in_place(x, cos, cos)
        return
    with pytest.raises(ValueError, match="contiguous"):
        kernels.turn_in_place(x.mT, cos, cos)
    with pytest.raises(ValueError, match="needs cos and sin"):
        kernels.turn_in_place(x, cos[:2], cos[:2])


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


def test_seconds_are_sorted_and_positive():
    found = costs.seconds(lambda: torch.ones(3), torch.device("cpu"), repeats=4)
    assert len(found) == 4
    assert found == sorted(found)
    assert found[0] > 0


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
