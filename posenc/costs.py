"""What an encoding costs: parameters, operations, bytes. Formulas, counters that hold them, and two ways to save.

`Meter` counts bytes of tensors while a block runs. The formulas say what it must find. `cache_bytes` is for decoding.

    python -m posenc.costs    # time and memory of kernels on this machine, kept in posenc/data/costs_cpu.json or …_cuda

Times are never compared between machines: only ratios and slopes within one run are.
"""

import argparse
import json
import math
import statistics
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from posenc import kernels
from posenc.absolute import frequencies
from posenc.attention import Attention
from posenc.contexts import Layer, repeated
from posenc.device import best_device, describe
from posenc.encoding import PositionEncoding
from posenc.masks import causal
from posenc.relative import alibi_slopes
from posenc.study import fill

# --- Counting bytes


class Meter(TorchDispatchMode):
    """Count bytes of tensors: `peak` that lived at once, `moved` in and out of operations, `largest` single tensor.

    with Meter() as meter: …
    Counted are tensors made inside the block, once for each storage, on any device; what a kernel allocates for itself
    while it runs is not seen. Views move nothing. Every other operation reads its inputs and writes its outputs.
    """

    def __init__(self):
        super().__init__()
        self.live = self.peak = self.moved = self.largest = 0
        self.made: set[int] = set()  # storages that live

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        gone_in = {t.untyped_storage()._cdata for t in given}
        come_out = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        for t in come_out:
            storage = t.untyped_storage()
            if storage._cdata in gone_in and not operation._schema.is_mutable:
                return result  # a view: the same numbers under another shape
            if storage._cdata not in gone_in | self.made:
                self.made.add(storage._cdata)
                self.live += storage.nbytes()
                weakref.finalize(storage, self.free, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.live)
        sizes = [min(t.nbytes, t.untyped_storage().nbytes()) for t in given + come_out]
        self.moved += sum(sizes)
        self.largest = max([self.largest, *sizes])
        return result

    def free(self, storage: int, size: int) -> None:
        self.made.discard(storage)
        self.live -= size


def metered(function: Callable, *arguments: object) -> Meter:
    """Run a function under a meter, without gradients, and return the meter."""
    with torch.no_grad(), Meter() as meter:
        function(*arguments)
    return meter


def slope(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """The power with which amounts grow: least squares through (log size, log amount).

    Raises ValueError unless there are two sizes or more, with an amount each.
    """
    if len(sizes) != len(amounts) or len(sizes) < 2:
        raise ValueError(f"need an amount for each of two sizes or more, got {len(sizes)} and {len(amounts)}")
    return statistics.linear_regression([math.log(s) for s in sizes], [math.log(a) for a in amounts]).slope


# --- Formulas


def pairs(n: int, window: int | None = None) -> int:
    """How many pairs a causal mask shows among n tokens, or a causal window. ValueError if window < 1."""
    if window is not None and window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    w = n if window is None else min(window, n)
    return w * (w + 1) // 2 + (n - w) * w


def grid_flops(n: int, width: int) -> int:
    """Scores and mix over the whole (n, n) grid, all heads together `width` wide: a product and a sum each, twice."""
    return 4 * n * n * width


@dataclass(frozen=True)
class Sizes:
    """The sizes that a cost depends on."""

    n: int
    d_model: int
    n_heads: int
    n_layers: int = 1

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads


@dataclass(frozen=True)
class Scheme:
    """What a scheme adds: parameters to the model, flops to each layer (in matrix products, beyond plain attention)."""

    name: str
    door: str
    parameters: Callable[[Sizes], int]
    flops: Callable[[Sizes], int] = lambda s: 0


CLIP, BUCKETS, ROWS, SIDE = 16, 32, 1024, 7  # of the tables below; ROWS: positions of a learned table

SCHEMES = (
    Scheme("none", "none", lambda s: 0),
    Scheme("sinusoids", "tokens", lambda s: 0),
    Scheme("learned", "tokens", lambda s: ROWS * s.d_model),
    Scheme(
        "Shaw keys",
        "scores",
        lambda s: s.n_layers * (2 * CLIP + 1) * s.head_dim,
        lambda s: 2 * s.n * (2 * CLIP + 1) * s.d_model,
    ),
    Scheme(
        "Shaw",
        "scores, values",
        lambda s: 2 * s.n_layers * (2 * CLIP + 1) * s.head_dim,
        lambda s: 4 * s.n * (2 * CLIP + 1) * s.d_model,
    ),
    Scheme(
        "Transformer-XL",
        "scores",
        lambda s: s.n_layers * (s.d_model**2 + 2 * s.d_model),
        lambda s: 2 * (2 * s.n - 1) * s.d_model**2 + 2 * s.n * s.d_model + 2 * s.n * (2 * s.n - 1) * s.d_model,
    ),
    Scheme("T5", "scores", lambda s: BUCKETS * s.n_heads),  # one table for all layers
    Scheme("ALiBi", "scores", lambda s: 0),
    Scheme("rotary", "queries, keys", lambda s: 0),
    Scheme("Swin", "scores", lambda s: s.n_layers * (2 * SIDE - 1) ** 2 * s.n_heads),
    Scheme("window", "mask", lambda s: 0),
    Scheme("chunks", "mask", lambda s: 0),
)


def layer_bytes(encoding: PositionEncoding, n: int, d_model: int = 64, n_heads: int = 4) -> int:
    """Bytes that one layer of the book's attention moves with this encoding, its token door included. float32."""
    layer = Attention(d_model, n_heads, encoding).float()
    x, positions = torch.zeros(n, d_model, dtype=torch.float32), torch.arange(n)
    return metered(lambda: layer(encoding.tokens(x, positions), positions)).moved


# --- The cache of a decoder


def slots(layer: Layer, n: int) -> int:
    """How many tokens a layer must keep to decode the next after n: all, or what its window or chunk shows."""
    bound = layer.window or layer.chunk
    return n if bound is None else min(n, bound)


def cache_bytes(layers: Sequence[Layer], n: int, numbers: int, bytes_each: int = 2) -> int:
    """Bytes that a decoder keeps of a text of n tokens. numbers: kept a token and layer, keys and values together."""
    return sum(slots(layer, n) for layer in layers) * numbers * bytes_each


@dataclass(frozen=True)
class Released:
    """A released model: its layers, the numbers that each keeps of a token, and where that is written."""

    name: str
    layers: tuple[Layer, ...]
    numbers: int
    source: str


def _stack(n_layers: int, *period: Layer) -> tuple[Layer, ...]:
    return tuple(repeated(period, n_layers))


TRANSFORMERS = "https://github.com/huggingface/transformers/blob/main/src/transformers/models"
RELEASED = (
    Released(
        "Llama 3.1 8B",
        _stack(32, Layer()),
        2 * 8 * 128,
        "https://github.com/meta-llama/llama-models/blob/main/models/sku_list.py",
    ),
    Released("Mistral 7B v0.1", _stack(32, Layer(window=4096)), 2 * 8 * 128, "https://arxiv.org/abs/2310.06825"),
    Released(
        "Gemma 3 27B",
        _stack(62, *[Layer(window=1024)] * 5, Layer()),
        2 * 16 * 128,
        f"{TRANSFORMERS}/gemma3/convert_gemma3_weights.py",
    ),
    Released(
        "Llama 4 Scout",
        _stack(48, *[Layer(chunk=8192)] * 3, Layer(rope=False)),
        2 * 8 * 128,
        f"{TRANSFORMERS}/llama4/configuration_llama4.py",
    ),
    Released(  # one latent of 512 for all heads, and 64 rotary features
        "DeepSeek-V3", _stack(61, Layer()), 512 + 64, f"{TRANSFORMERS}/deepseek_v3/configuration_deepseek_v3.py"
    ),
)


# --- Attention with ALiBi, three ways


def by_grid(queries: Tensor, keys: Tensor, values: Tensor, slopes: Tensor) -> Tensor:
    """The formula, step by step: scores, bias, mask and weights are (..., heads, n, n) each.

    queries, keys, values: (..., heads, n, head_dim), slopes: (heads,). Causal.
    """
    at = torch.arange(queries.shape[-2], device=queries.device)
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    scores = scores - slopes.view(-1, 1, 1) * (at.unsqueeze(-1) - at).abs()
    return scores.masked_fill(~causal(at, at), -torch.inf).softmax(dim=-1) @ values


def by_written_bias(queries: Tensor, keys: Tensor, values: Tensor, slopes: Tensor) -> Tensor:
    """The bias written down once, mask included, and handed to PyTorch's fused kernel. Arguments as in `by_grid`.

    queries: (batch, heads, n, head_dim). On the CPU the kernel stays fused only if the bias has two or four axes and
    needs no gradient.
    """
    at = torch.arange(queries.shape[-2], device=queries.device)
    bias = -slopes.view(-1, 1, 1) * (at.unsqueeze(-1) - at).abs()
    bias = bias.masked_fill(~causal(at, at), -torch.inf).to(queries.dtype)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias[None])


def by_one_feature(queries: Tensor, keys: Tensor, values: Tensor, slopes: Tensor) -> Tensor:
    """The bias as one more feature of queries and keys: no grid. Arguments as in `by_grid`.

    Causal: i - j = |i - j|, and slope * i is the same for a whole row, so softmax drops it. slope * j is a product of
    a query's 1 and a key's slope * j. Scores are rounded at that size: too coarse in 16 bits; in float32 weights
    are off by 1e-3 or so at 100,000 tokens. Count j from a near origin there, anew for each block of queries.
    Eight features are added, seven of them 0: kernels on GPUs want widths that are multiples of 8.
    A single query is the newest one, before a cache of keys. Raises ValueError for any other number than that of keys.
    """
    *_, n_queries, head_dim = queries.shape
    if n_queries not in (1, keys.shape[-2]):
        raise ValueError("is_causal needs as many queries as keys, or one query")
    at = torch.arange(keys.shape[-2], device=keys.device)
    price = (slopes.view(-1, 1) * at).to(keys.dtype) * head_dim**0.5  # (heads, n)
    queries, keys, values = (F.pad(x, (0, 8)) for x in (queries, keys, values))
    queries[..., head_dim], keys[..., head_dim] = 1.0, price
    mixed = F.scaled_dot_product_attention(queries, keys, values, is_causal=n_queries > 1, scale=head_dim**-0.5)
    return mixed[..., :head_dim]


ALIBI_WAYS = {
    "step by step": by_grid,
    "bias written down": by_written_bias,
    "one more feature": by_one_feature,
}


def random_inputs(n: int, n_heads: int, head_dim: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random queries, keys and values (1, n_heads, n, head_dim) and ALiBi's slopes (n_heads,), all float32."""
    drawn = torch.randn(3, 1, n_heads, n, head_dim, generator=torch.Generator().manual_seed(0))
    return (*drawn.float().to(device), alibi_slopes(n_heads).float().to(device))


# --- Rotary, several ways


def spin(n: int, head_dim: int, base: float = 10_000.0) -> Tensor:
    """cos + i sin of each position's angles: (n, head_dim / 2), complex64. Made once, read by every layer."""
    angles = torch.arange(n).unsqueeze(-1) * frequencies(head_dim, base)
    return torch.polar(torch.ones_like(angles), angles).to(torch.complex64)


def turn_in_place(x: Tensor, spins: Tensor) -> Tensor:
    """Turn each pair of neighbours by one complex product, and write it where it was. x: (..., n, head_dim), float32.

    x itself is changed (and returned); it must be contiguous. spins: (n, head_dim / 2), see `spin`.
    """
    torch.view_as_complex(x.unflatten(-1, (-1, 2))).mul_(spins)
    return x


def turn_with(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`posenc.rotary.turn` with cosines and sines made before, (n, head_dim / 2) each. x: (..., n, head_dim), kept."""
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = (even * cos - odd * sin, even * sin + odd * cos)
    return torch.stack(turned, dim=-1).flatten(-2)


def rotary_ways(x: Tensor, compiled: bool | None = None) -> dict[str, Callable[[], object]]:
    """Ways to turn x (..., n, head_dim) that its device has. On CUDA also compiled (elsewhere if asked), and by Triton.

    "copy" is no rotary at all: it reads and writes x once, which nothing can undercut.
    """
    n, head_dim = x.shape[-2:]
    spins, room = spin(n, head_dim).to(x.device), torch.empty_like(x)
    cos, sin = spins.real.contiguous(), spins.imag.contiguous()
    ways: dict[str, Callable[[], object]] = {
        "copy": lambda: room.copy_(x),
        "step by step": lambda: turn_with(x, cos, sin),
        "one product, in place": lambda: turn_in_place(x, spins),
    }
    if x.is_cuda if compiled is None else compiled:
        ways["compiled"] = partial(torch.compile(turn_with), x, cos, sin)
    if x.is_cuda and kernels.triton is not None:
        ways["Triton, in place"] = lambda: kernels.turn_in_place(x, cos, sin)
    return ways


# --- Measuring


def seconds(function: Callable[[], object], device: torch.device, repeats: int = 5) -> list[float]:
    """How long a call takes, measured so many times after one call to warm up, in order of size."""
    found = []
    for _ in range(repeats + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(time.perf_counter() - start)
    return sorted(found[1:])


def peak_bytes(function: Callable[[], object], device: torch.device) -> int:
    """Bytes that live at once, beyond what was there: the allocator's count on CUDA, the meter's elsewhere."""
    if device.type != "cuda":
        return metered(function).peak
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    function()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


@torch.no_grad()
def measure_attention(way: str, n: int, device: torch.device, n_heads: int = 4, head_dim: int = 32) -> dict:
    """Seconds, in order, and peak bytes of one way to compute attention with ALiBi."""
    call = partial(ALIBI_WAYS[way], *random_inputs(n, n_heads, head_dim, device))
    return {"seconds": seconds(call, device), "peak": peak_bytes(call, device)}


@torch.no_grad()
def measure_flex(n: int, device: torch.device, n_heads: int, head_dim: int) -> dict:
    """The same for FlexAttention, compiled, with ALiBi as a score_mod and a causal block mask. No peak but on CUDA.

    error: the largest difference from `by_one_feature`.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    queries, keys, values, slopes = random_inputs(n, n_heads, head_dim, device)

    def alibi(score, batch, head, query, key):
        return score - slopes[head] * (query - key).abs()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, n, n, device=device.type)
        call = partial(torch.compile(flex_attention), queries, keys, values, score_mod=alibi, block_mask=mask)
        expected = by_one_feature(queries, keys, values, slopes)
        error = (call() - expected).abs().max().item()
        peak = peak_bytes(call, device) if device.type == "cuda" else None  # the meter cannot look into compiled code
        return {"seconds": seconds(call, device), "peak": peak, "error": error}


@torch.no_grad()
def measure_rotary(way: str, shape: Sequence[int], device: torch.device) -> list[float]:
    """Seconds of one way to turn, each divided by those of a copy made in turn with it, in order."""
    x = torch.randn(*shape, device=device, dtype=torch.float32)
    ways = rotary_ways(x, compiled=way == "compiled")
    ways[way]()  # compile before the clock starts
    ratios = [
        statistics.median(seconds(ways[way], device)) / statistics.median(seconds(ways["copy"], device))
        for _ in range(5)
    ]
    return sorted(ratios)


def stored(device: str) -> dict | None:
    """What was measured on "cpu" or "cuda", or None if nobody has yet."""
    path = where(device)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def summary(device: str) -> str:
    """The stored measurements of "cpu" or "cuda" in words: ratios of medians, and nothing that was not measured."""
    kept = stored(device)
    if kept is None:
        return f"{device}: not measured yet"
    made, longest = kept["made"], max(kept["attention"], key=int)
    lines = [f"{kept['device']}, torch {made['torch']}, {made['date']}", f"  attention, {longest} tokens, time"]
    times = {way: statistics.median(one["seconds"]) for way, one in kept["attention"][longest].items()}
    lines += [f"    {way:22}{t / times['one more feature']:6.1f}" for way, t in times.items()]
    lines.append("  rotary, time, a copy = 1")
    lines += [f"    {way:22}{statistics.median(ratios):6.1f}" for way, ratios in kept["rotary"].items()]
    return "\n".join(lines)


def where(device: str) -> Path:
    return Path(str(files("posenc") / "data" / f"costs_{device}.json"))


def study(path: Path, device: torch.device, report: Callable[[str], None] = print) -> None:
    """Make every measurement that the file does not have yet; it can be stopped at any time."""
    on_gpu = device.type == "cuda"
    lengths = (1024, 2048, 4096, 8192) if on_gpu else (256, 512, 1024, 2048)
    n_heads, head_dim = (8, 64) if on_gpu else (4, 32)
    shape = (16, 16, 4096, 128) if on_gpu else (4, 8, 1024, 64)
    ways = ["step by step", "one product, in place", "compiled"]
    if on_gpu and kernels.triton is not None:
        ways.append("Triton, in place")
    sizes = {"n_heads": n_heads, "head_dim": head_dim, "rotary": list(shape)}
    measurements: list = [(("device",), lambda: describe(device)), (("sizes",), lambda: sizes)]
    for n in lengths:
        for way in ALIBI_WAYS:
            one = partial(measure_attention, way, n, device, n_heads, head_dim)
            measurements.append((("attention", str(n), way), one))
        flex = partial(measure_flex, n, device, n_heads, head_dim)
        measurements.append((("attention", str(n), "FlexAttention"), flex))
    measurements += [(("rotary", way), partial(measure_rotary, way, shape, device)) for way in ways]
    fill(path, "python -m posenc.costs", measurements, report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=None, help="the file; by default the library's own for this device")
    arguments = parser.parse_args()
    device = best_device()
    study(arguments.to or where(device.type), device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
