"""Absolute encodings: each position has a vector of its own, added to the token (the token door).

`Sinusoidal` computes its vectors from the position; nothing is learned.
"""

import torch
from torch import Tensor

from posenc.encoding import PositionEncoding


def sinusoids(positions: Tensor, d_model: int, base: float = 10_000.0) -> Tensor:
    """One vector a position: sines in the even features, cosines in the odd ones. (..., n) -> (..., n, d_model).

    Pair k turns by position / base^(2k / d_model); angles in radians, computed in float64, returned in the default
    dtype. Vaswani et al. 2017, section 3.5, https://arxiv.org/abs/1706.03762
    Raises ValueError if d_model is odd.
    """
    if d_model % 2:
        raise ValueError(f"sinusoids come in pairs, so d_model must be even; got {d_model}")
    pairs = torch.arange(0, d_model, 2, device=positions.device, dtype=torch.float64)
    angles = positions.unsqueeze(-1) * base ** (-pairs / d_model)  # (..., n, d_model / 2)
    vectors = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)
    return vectors.to(torch.get_default_dtype())


class Sinusoidal(PositionEncoding):
    """Adds the sinusoids of Vaswani et al. 2017 to the tokens: x_i + p_i. See `sinusoids`."""

    def __init__(self, base: float = 10_000.0):
        super().__init__()
        self.base = base

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoids(positions, x.shape[-1], self.base).to(x.dtype)
