"""The book's functions beside those of PyTorch, transformers, x-transformers and timm: `python -m bench`.

Each pair first has to agree. Then the two take turns on the same machine, with one thread, and only ratios of their
times are kept: seconds would say more about the machine than about the code. The result is a page of the book,
book/benchmarks.md, with device, versions and date.
"""

import argparse
import platform
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from posenc.absolute import sinusoids, to_halves
from posenc.attention import attention
from posenc.device import best_device, describe
from posenc.grids import sinusoids_2d
from posenc.relative import T5Bias, alibi_slopes
from posenc.rotary import frequencies, turn, turn_halves
from posenc.symmetry import difference
from posenc.vision import grid
from posenc.windows import WindowBias, offsets

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "book" / "benchmarks.md"
LIBRARIES = ("torch", "transformers", "x-transformers", "timm")
ROUNDS, SECONDS = 5, 0.1

Make = Callable[[], Tensor]


@dataclass(frozen=True)
class Pair:
    """One thing, made by us and by them. tolerance: how far the two may differ."""

    what: str
    theirs_is: str
    ours: Make
    theirs: Make
    tolerance: float = 1e-4


def pairs(device: torch.device) -> Iterator[Pair]:
    """Every pair, with its inputs, on a device."""
    yield from attentions(device)
    yield from rotaries(device)
    yield from biases(device)
    yield from pictures(device)
    yield from tables()


def attentions(device: torch.device) -> Iterator[Pair]:
    for n in (64, 256, 1024):
        q, k, v = torch.randn(3, 1, 8, n, 64, device=device)

        def fused(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
            return F.scaled_dot_product_attention(q, k, v)

        def ours(q: Tensor = q, k: Tensor = k, v: Tensor = v) -> Tensor:
            return attention(q, k, v)

        yield Pair(f"attention, {n} tokens", "torch, scaled_dot_product_attention", ours, fused)


def rotaries(device: torch.device) -> Iterator[Pair]:
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as gptj
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as llama
    from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

    n, d = 1024, 64
    q, k = torch.randn(2, 1, 8, n, d, device=device)
    angles = (torch.arange(n).unsqueeze(-1) * frequencies(d)).float().to(device)
    doubled = torch.cat([angles, angles], dim=-1).unsqueeze(0)
    cos, sin = doubled.cos(), doubled.sin()
    half_cos, half_sin = angles.cos().unsqueeze(0), angles.sin().unsqueeze(0)
    turns, scale = RotaryEmbedding(d).to(device)(torch.arange(n, device=device))
    after_n = q.transpose(1, 2)

    yield Pair(
        "rotary, halves, queries and keys (theirs has its cosines ready)",
        "transformers, Llama's apply_rotary_pos_emb",
        lambda: torch.stack([turn_halves(q, angles), turn_halves(k, angles)]),
        lambda: torch.stack(llama(q, k, cos, sin)),
        1e-3,
    )
    yield Pair(
        "rotary, neighbours (theirs has its cosines ready)",
        "transformers, GPT-J's apply_rotary_pos_emb",
        lambda: turn(q, angles),
        lambda: gptj(after_n, half_sin, half_cos).transpose(1, 2),
        1e-3,
    )
    yield Pair(
        "rotary, neighbours",
        "x-transformers, apply_rotary_pos_emb",
        lambda: turn(q, angles),
        lambda: apply_rotary_pos_emb(q, turns, scale),
        1e-3,
    )


def biases(device: torch.device) -> Iterator[Pair]:
    from transformers import T5Config
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
    from transformers.models.t5.modeling_t5 import T5Attention
    from x_transformers.x_transformers import AlibiPositionalBias, RelativePositionBias

    n, n_heads = 512, 8
    at = torch.arange(n, device=device)

    def alibi() -> Tensor:
        slopes = alibi_slopes(n_heads).float().to(device).view(-1, 1, 1)
        return -slopes * (at.unsqueeze(-1) - at).abs()

    yield Pair(
        f"ALiBi, all pairs of {n} tokens",
        "x-transformers, AlibiPositionalBias (made anew)",
        alibi,
        lambda: AlibiPositionalBias(n_heads, n_heads).to(device)(n, n),
    )
    yield Pair(
        f"ALiBi, the last row of {n} tokens",
        "transformers, MPT's build_mpt_alibi_tensor",
        lambda: alibi_slopes(n_heads).float().to(device).view(-1, 1, 1) * (at - (n - 1)),
        lambda: build_mpt_alibi_tensor(n_heads, n, device=device).view(n_heads, 1, n),
    )

    config = T5Config(d_model=64, d_kv=8, num_heads=n_heads)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).to(device)
    ours = T5Bias(n_heads).to(device)
    other = RelativePositionBias(1.0, causal=False, num_buckets=32, max_distance=128, heads=n_heads).to(device)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(torch.randn(32, n_heads))
        ours.table.copy_(theirs.relative_attention_bias.weight)
        other.relative_attention_bias.weight.copy_(ours.table)
    shifts = (at - at.unsqueeze(-1)).unsqueeze(0)
    yield Pair(
        f"T5's bias, {n} tokens",
        "transformers, T5Attention.compute_bias",
        lambda: ours.bias(shifts),
        lambda: theirs.compute_bias(n, n, device=device)[0],
    )
    yield Pair(
        f"T5's bias, {n} tokens",
        "x-transformers, RelativePositionBias",
        lambda: ours.bias(shifts),
        lambda: other(n, n),
    )


def pictures(device: torch.device) -> Iterator[Pair]:
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    side, n_heads = 7, 6
    ours = WindowBias(side, side, n_heads).to(device)
    theirs = SwinRelativePositionBias(n_heads, (side, side)).to(device)
    with torch.no_grad():
        theirs.relative_position_bias_table.copy_(ours.table)
    places = grid(side, side).to(device)
    yield Pair(
        "Swin's bias, windows of 7 (theirs keeps its index)",
        "transformers, SwinRelativePositionBias",
        lambda: ours.bias(*offsets(places, places)),
        lambda: theirs()[0],
    )

    sys.path.insert(0, str(ROOT / "tests"))
    import torchvision_stand_in

    with torchvision_stand_in.installed():
        import timm.layers
    bias = timm.layers.RelPosBias((side, side), n_heads).to(device)
    with torch.no_grad():
        bias.relative_position_bias_table.copy_(ours.table)
    yield Pair(
        "Swin's bias, windows of 7 (theirs keeps its index)",
        "timm, RelPosBias",
        lambda: ours.bias(*offsets(places, places)),
        lambda: bias.get_bias()[0],
    )
    yield Pair(
        "2-D sin-cos, 32 by 32 patches, width 768",
        "timm, build_sincos2d_pos_embed",
        lambda: sinusoids_2d(grid(32, 32), 768, parts="sines first"),
        lambda: timm.layers.build_sincos2d_pos_embed([32, 32], 768),
    )


def tables() -> Iterator[Pair]:
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions
    from transformers.models.vit_mae.modeling_vit_mae import build_2d_sinusoidal_position_embedding

    yield Pair(
        "2-D sin-cos, 32 by 32 patches, width 768",
        "transformers, ViT-MAE's build_2d_sinusoidal_position_embedding",
        lambda: sinusoids_2d(grid(32, 32), 768),
        lambda: build_2d_sinusoidal_position_embedding(32, 32, 768),
    )
    yield Pair(
        "sinusoids, 2048 positions, width 512",
        "transformers, GPT-J's create_sinusoidal_positions",
        lambda: to_halves(sinusoids(torch.arange(2048), 512)),
        lambda: create_sinusoidal_positions(2048, 512),
        1e-3,
    )


@torch.no_grad()
def ratios(pair: Pair, rounds: int = ROUNDS, seconds: float = SECONDS) -> list[float]:
    """Times of ours over theirs, in order, after both have shown that they agree. Raises AssertionError if not."""
    apart = difference(pair.ours().float(), pair.theirs().float())
    assert apart <= pair.tolerance, f"{pair.what}: ours and {pair.theirs_is} differ by {apart:g}"
    ours, theirs = (Timer("make()", globals={"make": make}) for make in (pair.ours, pair.theirs))

    def median(timer: Timer) -> float:
        return timer.blocked_autorange(min_run_time=seconds).median

    return sorted(median(ours) / median(theirs) for _ in range(rounds))


HEAD = """# Beside other libraries

Made by `make bench`, never by hand: on {date}, on one thread of {device}, with {versions}.

Each line names one thing that the book's library makes and another library makes as well. First the two must agree.
Then they take turns, {rounds} times, in float32 and without gradients. The numbers are **our time over theirs**, the
median and, in brackets, the least and the largest: 2 means that ours takes twice as long, 0.5 half as long. They are
this machine's ratios, not promises; how much they vary is part of the result.

The book's functions are written to be read. Many make their cosines, offsets or buckets anew where others keep them.

| what | beside | ours / theirs |
|---|---|---|
"""


def processor() -> str:
    """The CPU in words, as far as the system tells: `AMD EPYC …`."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def page(rows: list[tuple[Pair, list[float]]], device: torch.device) -> str:
    """The whole page as Markdown."""
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    words = describe(device) if device.type == "cuda" else processor()
    head = HEAD.format(date=date.today().isoformat(), device=words, versions=versions, rounds=ROUNDS)
    lines = [
        f"| {pair.what} | {pair.theirs_is} | {statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f}) |"
        for pair, found in rows
    ]
    return head + "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=PAGE, help="the page to write")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    device, rows = best_device(), []
    for pair in pairs(device):
        found = ratios(pair)
        print(f"{statistics.median(found):7.2f}  {pair.what}  beside  {pair.theirs_is}", flush=True)
        rows.append((pair, found))
    arguments.to.write_text(page(rows, device), encoding="utf-8")
    print(f"written: {arguments.to}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
