"""Rotary encoding (RoPE): queries and keys are turned by their positions, so a score sees only the offset.

`frequencies(head_dim, base)`, the same as for sinusoids, says how fast each pair of features turns; `turn` turns the
pairs by given angles, and `rotate` is the two together. `Rotary` is the encoding for a model. Pairs are neighbours,
(2k, 2k+1). Many checkpoints pair feature k with feature k + head_dim/2 instead: `turn_halves` and `RotaryHalves` do
that, `weights_to_halves` and `weights_to_neighbours` convert.
"""

import torch
from torch import Tensor

from posenc.absolute import frequencies
from posenc.encoding import PositionEncoding


def turn(x: Tensor, angles: Tensor) -> Tensor:
    """Turn each pair of neighbours (2k, 2k+1) of `x` by its angle, anticlockwise.

    x: (..., head_dim), angles: (..., head_dim / 2) in radians, float32 or wider; returns the shape and dtype of x.
    Su et al. 2021, RoFormer, eq. 34, https://arxiv.org/abs/2104.09864
    """
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = (even * cos - odd * sin, even * sin + odd * cos)
    return torch.stack(turned, dim=-1).flatten(-2)


def turn_halves(x: Tensor, angles: Tensor) -> Tensor:
    """The same for pairs (k, k + head_dim / 2): the layout of GPT-NeoX and of Llama in transformers.

    x: (..., head_dim), angles: (..., head_dim / 2) in radians, float32 or wider; returns the shape and dtype of x.
    """
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)


def rotate(x: Tensor, positions: Tensor, base: float = 10_000.0, frequencies: Tensor | None = None) -> Tensor:
    """Turn each feature pair of `x` by its position times that pair's frequency. Neighbours are pairs.

    x: (..., n, head_dim), positions: (n,) or (..., n); returns the shape and dtype of x. Angles are float64.
    frequencies: (head_dim / 2,), instead of those of `base`; 0 leaves a pair unturned.
    Su et al. 2021, RoFormer, eq. 34, https://arxiv.org/abs/2104.09864
    Raises ValueError if head_dim is odd, or does not fit the frequencies.
    """
    return turn(x, positions.unsqueeze(-1) * _chosen(frequencies, x, base))


class Rotary(PositionEncoding):
    """Turns queries and keys before they meet (Su et al. 2021). See `rotate`. Values are left alone.

    frequencies: (head_dim / 2,), instead of those of `base`; 0 leaves a pair unturned.
    """

    turn = staticmethod(turn)  # pairs are neighbours

    def __init__(self, base: float = 10_000.0, frequencies: Tensor | None = None):
        super().__init__()
        self.base = base
        self.frequencies = frequencies  # not a buffer: `.to(torch.bfloat16)` would round it

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        chosen = _chosen(self.frequencies, queries, self.base)
        queries = self.turn(queries, query_positions.unsqueeze(-1) * chosen)
        return queries, self.turn(keys, key_positions.unsqueeze(-1) * chosen)


class RotaryHalves(Rotary):
    """The same with pairs (k, k + head_dim / 2), as checkpoints of Llama are stored in transformers."""

    turn = staticmethod(turn_halves)


def _chosen(given: Tensor | None, x: Tensor, base: float) -> Tensor:
    """The given frequencies, or those of the base, in float64 on the device of x. (head_dim / 2,)."""
    head_dim = x.shape[-1]
    if head_dim % 2:
        raise ValueError(f"rotary pairs up the features, so head_dim must be even; got {head_dim}")
    chosen = frequencies(head_dim, base) if given is None else given
    if chosen.shape != (head_dim // 2,):
        raise ValueError(f"head_dim {head_dim} needs frequencies ({head_dim // 2},), got {tuple(chosen.shape)}")
    return chosen.to(x.device, torch.float64)


def weights_to_halves(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder what a query or key projection puts out from neighbours to halves, head by head.

    rows: (n_heads * head_dim, ...): a weight (out, in), a bias (out,), or the (head_dim,) weight of a norm that all
    heads share. `turn_halves` then does to the result what `turn` did before. As `permute` in the conversion of
    Llama's weights, https://github.com/huggingface/transformers
    Raises ValueError if head_dim is odd or the rows do not divide into heads.
    """
    if head_dim % 2 or rows.shape[0] % head_dim:
        raise ValueError(f"{rows.shape[0]} rows are not heads of an even head_dim {head_dim}")
    by_pair = rows.unflatten(0, (-1, head_dim // 2, 2))  # (n_heads, pairs, 2, ...)
    return by_pair.transpose(1, 2).flatten(0, 2)


def weights_to_neighbours(rows: Tensor, head_dim: int) -> Tensor:
    """The way back: from halves to neighbours. Arguments and errors as in `weights_to_halves`."""
    if head_dim % 2 or rows.shape[0] % head_dim:
        raise ValueError(f"{rows.shape[0]} rows are not heads of an even head_dim {head_dim}")
    by_half = rows.unflatten(0, (-1, 2, head_dim // 2))  # (n_heads, 2, pairs, ...)
    return by_half.transpose(1, 2).flatten(0, 2)
