"""Rotary encoding (RoPE): queries and keys are turned by their positions, so a score sees only the offset."""

import torch
from torch import Tensor

from posenc.encoding import PositionEncoding


def rotate(x: Tensor, positions: Tensor, base: float = 10_000.0) -> Tensor:
    """Turn each feature pair of `x` by its position times that pair's frequency.

    x: (..., n, head_dim), positions: (n,) or (..., n); returns the shape and dtype of x. Pairs are neighbours,
    (2k, 2k+1), and pair k turns by position / base^(2k / head_dim) radians, computed in float64.
    Su et al. 2021, RoFormer, eq. 34, https://arxiv.org/abs/2104.09864
    Raises ValueError if head_dim is odd.
    """
    head_dim = x.shape[-1]
    if head_dim % 2:
        raise ValueError(f"rotary pairs up the features, so head_dim must be even; got {head_dim}")
    pairs = torch.arange(0, head_dim, 2, device=x.device, dtype=torch.float64)
    angles = positions.unsqueeze(-1) * base ** (-pairs / head_dim)  # (..., n, head_dim / 2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = (even * cos - odd * sin, even * sin + odd * cos)
    return torch.stack(turned, dim=-1).flatten(-2)


class Rotary(PositionEncoding):
    """Rotates queries and keys before they meet (Su et al. 2021). See `rotate`. Values are left alone."""

    def __init__(self, base: float = 10_000.0):
        super().__init__()
        self.base = base

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return rotate(queries, query_positions, self.base), rotate(keys, key_positions, self.base)
