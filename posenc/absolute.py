"""Absolute encodings: each position has a vector of its own, added to the token (the token door).

`Sinusoidal` computes its vectors from the position; nothing is learned. Its vectors are pairs (sine, cosine), hands of
d_model / 2 clocks. A step of `offset` positions turns each hand by a fixed angle: `step_matrix`.
"""

import torch
from torch import Tensor

from posenc.encoding import PositionEncoding


def frequencies(d_model: int, base: float = 10_000.0) -> Tensor:
    """How far each pair turns in one step, in radians: base^(-2k / d_model) for pair k. (d_model / 2,), float64.

    The first is 1; the last, base^(-(d_model - 2) / d_model), is larger than 1 / base.
    Raises ValueError if d_model is odd.
    """
    if d_model % 2:
        raise ValueError(f"sinusoids come in pairs, so d_model must be even; got {d_model}")
    pairs = torch.arange(0, d_model, 2, dtype=torch.float64)
    return base ** (-pairs / d_model)


def sinusoids(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """One vector a position: sines in the even features, cosines in the odd ones. (..., n) -> (..., n, d_model).

    Pair k turns by position / base^(2k / d_model); angles in radians, computed in float64, returned in the default
    dtype. Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762
    Raises ValueError if d_model is odd.
    """
    turns = frequencies(d_model, base).to(positions.device)
    angles = positions.unsqueeze(-1) * turns  # (..., n, d_model / 2), float64
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return vectors.to(torch.get_default_dtype())


def step_matrix(offset: int, d_model: int, base: float = 10_000.0) -> Tensor:
    """The one matrix R(offset) with R(offset) @ p_i = p_{i + offset} for every i. (d_model, d_model).

    For neighbouring pairs in the order (sine, cosine), as `sinusoids` makes them: one 2 x 2 rotation a pair on the
    diagonal. In that order it turns clockwise; rotary encoding turns (x, y) pairs the other way (`posenc.rotary`).
    Raises ValueError if d_model is odd.
    """
    angles = offset * frequencies(d_model, base)  # (d_model / 2,)
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack([cos, sin, -sin, cos], dim=-1).view(-1, 2, 2)
    return torch.block_diag(*blocks).to(torch.get_default_dtype())


def to_halves(x: Tensor) -> Tensor:
    """Pairs of neighbours to halves: (s0, c0, s1, c1, …) -> (s0, s1, …, c0, c1, …). (..., d), even d, shape kept."""
    return x.unflatten(-1, (-1, 2)).mT.flatten(-2)


def to_interleaved(x: Tensor) -> Tensor:
    """Halves to pairs of neighbours: the way back from `to_halves`. (..., d), even d, shape kept."""
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)


class Sinusoidal(PositionEncoding):
    """Adds the sinusoids of Vaswani et al. 2017 to the tokens: x_i + p_i. See `sinusoids`."""

    def __init__(self, base: float = 10_000.0):
        super().__init__()
        self.base = base

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoids(positions, x.shape[-1], self.base).to(x.dtype)
