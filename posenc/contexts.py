"""Longer contexts: how a rotary model is stretched past its training length, and how layers share the work.

Every scheme here changes one thing: the frequencies of the rotary pairs, w_k -> w'_k. Some also multiply the rotated
queries and keys by one number, the attention factor. Scaling positions by 1/s and scaling all frequencies by 1/s are
the same thing, since only their product, the angle, is ever used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posenc.absolute import frequencies
from posenc.encoding import PositionEncoding, Together
from posenc.masks import Causal, Chunked, SlidingWindow
from posenc.rotary import Rotary, rotate

# --- One pair, one wavelength


def turns(frequencies: Tensor, trained_length: float) -> Tensor:
    """How many full turns each pair makes in `trained_length` positions: length / wavelength. (pairs,), kept."""
    return trained_length * frequencies / (2 * math.pi)


# --- The schemes: frequencies in, frequencies out


def interpolated(frequencies: Tensor, scale: float) -> Tensor:
    """Position interpolation: every pair turns `scale` times slower. (pairs,), kept.

    Chen et al. 2023, https://arxiv.org/abs/2306.15595 (there position m becomes m / scale, which is the same).
    """
    return frequencies / scale


def ntk_base(base: float, scale: float, head_dim: int) -> float:
    """The base at which the slowest pair turns exactly `scale` times slower, and the fastest is left as it was.

    bloc97 2023, described in https://arxiv.org/abs/2309.00071, section 3.1. Raises ValueError if head_dim < 4: with
    one pair, which is both the fastest and the slowest, no base can do both.
    """
    if head_dim < 4:
        raise ValueError(f"head_dim must be at least 4, for a fastest and a slowest pair; got {head_dim}")
    return base * scale ** (head_dim / (head_dim - 2))


def by_parts(frequencies: Tensor, scale: float, trained_length: float, slow: float = 1.0, fast: float = 32.0) -> Tensor:
    """NTK-by-parts: pairs of fewer than `slow` turns are interpolated, of more than `fast` kept, a ramp between.

    frequencies: (pairs,), kept. The ramp is linear in the number of turns. Peng et al. 2023,
    https://arxiv.org/abs/2309.00071, section 3.2, where slow is alpha and fast is beta.
    With slow=1 and fast=4 this is the rule of Llama 3.1, `llama3`. Raises ValueError if not slow < fast.
    """
    if not slow < fast:
        raise ValueError(f"slow must be below fast, so that there is a ramp between; got {slow} and {fast}")
    kept = ((turns(frequencies, trained_length) - slow) / (fast - slow)).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / scale


def llama3(frequencies: Tensor, scale: float, trained_length: float, low: float = 1.0, high: float = 4.0) -> Tensor:
    """The rule of Llama 3.1, in its own words: keep short waves, stretch long ones, blend between. (pairs,), kept.

    https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py, `apply_scaling`
    """
    wavelengths = 2 * math.pi / frequencies
    blend = (trained_length / wavelengths - low) / (high - low)
    blended = (1 - blend) * frequencies / scale + blend * frequencies
    stretched = torch.where(wavelengths > trained_length / low, frequencies / scale, blended)
    return torch.where(wavelengths < trained_length / high, frequencies, stretched)


def yarn_in_code(
    base: float,
    head_dim: int,
    scale: float,
    trained_length: float,
    slow: float = 1.0,
    fast: float = 32.0,
    truncate: bool = True,
) -> Tensor:
    """YaRN's frequencies as published code computes them: the ramp is linear in the pair's number. (head_dim / 2,).

    The two ends of the ramp are the pairs that make `fast` and `slow` turns, as in the paper; between them the paper's
    ramp (`by_parts`) is linear in the turns. With `truncate` the ends are rounded outwards to whole pairs.
    https://github.com/jquesnelle/yarn and transformers' `_compute_yarn_parameters`, which caps the upper end at
    head_dim - 1 (not at the last pair); so does this.
    """
    plain = frequencies(head_dim, base)

    def pair_with(wanted: float) -> float:  # solve turns(k) = wanted for a real number k
        return head_dim * math.log(trained_length / (wanted * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_with(fast), pair_with(slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    last = last + 0.001 if first == last else last  # no ramp of length 0
    pairs = torch.arange(head_dim // 2, dtype=torch.float64)
    stretched = ((pairs - first) / (last - first)).clamp(0, 1)
    return (1 - stretched) * plain + stretched * plain / scale


def dynamic_base(base: float, head_dim: int, length: int, trained_length: int, factor: float = 1.0) -> float:
    """Dynamic NTK: the base for a text of `length` tokens; unchanged up to the trained length.

    With factor 1 the scale is length / trained_length. Another factor stretches further from the start, as in
    transformers' `_compute_dynamic_ntk_parameters`.
    """
    longer = max(length, trained_length) / trained_length
    return ntk_base(base, factor * longer - (factor - 1), head_dim)


def longrope(frequencies: Tensor, factors: Tensor) -> Tensor:
    """LongRoPE: every pair has a factor of its own, found by a search. Both (pairs,), kept.

    Ding et al. 2024, https://arxiv.org/abs/2402.13753. Raises ValueError for another number of factors.
    """
    if factors.shape != frequencies.shape:
        raise ValueError(f"one factor a pair: got {len(factors)} factors for {len(frequencies)} pairs")
    return frequencies / factors


# --- Attention factors and temperatures


def yarn_factor(scale: float, strength: float = 1.0) -> float:
    """YaRN multiplies rotated queries and keys by 0.1 ln(scale) + 1; a score, so, by its square. 1 if scale <= 1.

    Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.4. `strength` is `mscale` in configurations.
    """
    return 0.1 * strength * math.log(scale) + 1 if scale > 1 else 1.0


def longrope_factor(scale: float, trained_length: int) -> float:
    """The attention factor of Phi-3's LongRoPE: sqrt(1 + ln(scale) / ln(trained_length)). 1 if scale <= 1."""
    return math.sqrt(1 + math.log(scale) / math.log(trained_length)) if scale > 1 else 1.0


def temperature(positions: Tensor, floor: int = 8192, strength: float = 0.1) -> Tensor:
    """Llama 4's factor for the query at each position, in layers without rotary: 1 up to `floor`, then slowly more.

    1 + strength * ln(1 + floor((position + 1) / floor)). (n,) whole numbers -> (n,) in the default dtype.
    https://github.com/huggingface/transformers/blob/main/src/transformers/models/llama4/modeling_llama4.py
    """
    periods = torch.div(positions + 1, floor, rounding_mode="floor")
    return 1 + strength * torch.log1p(periods.to(torch.get_default_dtype()))


# --- Encodings


class ScaledRotary(Rotary):
    """Rotary with given frequencies (head_dim / 2,); turned queries and keys are multiplied by `attention_factor`."""

    def __init__(self, frequencies: Tensor, attention_factor: float = 1.0):
        super().__init__(frequencies=frequencies)
        self.attention_factor = attention_factor

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        queries, keys = super().queries_and_keys(queries, keys, query_positions, key_positions)
        return self.attention_factor * queries, self.attention_factor * keys


class ClampedRotary(PositionEncoding):
    """Rotary whose pairs stop turning at a largest offset of their own: a tool to find out what hurts.

    frequencies, limits: (head_dim / 2,). Pair k turns by frequency * min(offset, limit), for offsets of 0 and more.
    A clamped angle is no product of a query's and a key's rotation, so this opens the score door; use it under a
    causal mask. With infinite limits it is rotary.
    """

    def __init__(self, frequencies: Tensor, limits: Tensor):
        super().__init__()
        self.frequencies, self.limits = frequencies, limits  # no buffers: `.to(torch.bfloat16)` would round them

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        offsets = query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)  # (..., n_queries, n_keys)
        total = torch.zeros_like(scores)
        for limit in self.limits.unique():  # the pairs that share a limit
            pairs = self.limits == limit
            q, k = (x[..., pairs.repeat_interleave(2)] for x in (queries, keys))
            waves = {"frequencies": self.frequencies[pairs]}
            turned = rotate(q, query_positions, **waves) @ rotate(k, key_positions, **waves).mT
            by_limit = limit.nan_to_num(posinf=0.0).expand_as(query_positions)
            stopped = rotate(q, by_limit, **waves) @ k.mT
            total = total + torch.where(offsets > limit, stopped, turned)
        return total / queries.shape[-1] ** 0.5


class Temperature(PositionEncoding):
    """Multiplies each query by `temperature` of its position: later queries look more sharply."""

    def __init__(self, floor: int = 8192, strength: float = 0.1):
        super().__init__()
        self.floor, self.strength = floor, strength

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        factor = temperature(query_positions, self.floor, self.strength)
        return queries * factor.unsqueeze(-1).to(queries.dtype), keys


# --- Layers that differ


@dataclass(frozen=True)
class Layer:
    """One layer of a stack: does it rotate, and how far does it see? At most one of `window` and `chunk`."""

    rope: bool = True
    window: int | None = None
    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.window is not None and self.chunk is not None:
            raise ValueError("a layer has a window or a chunk, not both")

    @property
    def is_bounded(self) -> bool:
        """Whether the keys that a token sees stop growing with the text."""
        return self.window is not None or self.chunk is not None

    def first_key(self, position: int) -> int:
        """The first token that the query at `position` sees."""
        if self.window is not None:
            return max(0, position - self.window + 1)
        return position - position % self.chunk if self.chunk is not None else 0

    def encoding(self, rotary: PositionEncoding) -> PositionEncoding:
        """Its doors: the mask, and `rotary` if the layer rotates."""
        if self.window is not None:
            mask: PositionEncoding = SlidingWindow(self.window)
        else:
            mask = Causal() if self.chunk is None else Chunked(self.chunk)
        return Together(mask, rotary) if self.rope else mask


def repeated(period: Sequence[Layer], n_layers: int) -> list[Layer]:
    """A pattern, repeated and cut to `n_layers`: (window, window, full) for 7 layers ends in a window."""
    return [period[i % len(period)] for i in range(n_layers)]


def reach(layers: Sequence[Layer], position: int) -> list[int]:
    """The first token on which the row at `position` depends, after the first layer, the second, and so on.

    The first token that a query sees never moves back when the query moves on, so it is enough to follow the oldest
    row in sight, from the layer in question down to the first.
    """
    firsts = []
    for depth in range(1, len(layers) + 1):
        first = position
        for layer in reversed(layers[:depth]):
            first = layer.first_key(first)
        firsts.append(first)
    return firsts


def keys_seen(layers: Sequence[Layer], position: int) -> int:
    """How many keys the query at `position` meets, summed over the layers: what one new token costs."""
    return sum(position - layer.first_key(position) + 1 for layer in layers)
