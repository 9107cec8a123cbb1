"""Relative encodings: what enters depends on the offset between query and key alone (the score door)."""

import torch
from torch import Tensor

from posenc.encoding import PositionEncoding


def alibi_slopes(n_heads: int) -> Tensor:
    """One slope a head, from steep to flat: 2^(-8/n), 2^(-16/n), … 2^-8 for n heads, n a power of two. (n_heads,).

    For another number of heads: the slopes of the next smaller power of two, then every second slope of the next
    larger one, as in the authors' code: https://github.com/ofirpress/attention_with_linear_biases
    Press et al. 2022, https://arxiv.org/abs/2108.12409. Raises ValueError if n_heads < 1.
    """
    if n_heads < 1:
        raise ValueError(f"n_heads must be at least 1, got {n_heads}")
    smaller = 2 ** (n_heads.bit_length() - 1)  # the largest power of two that is not above n_heads
    slopes = 2.0 ** (-8 / smaller * torch.arange(1, smaller + 1, dtype=torch.float64))
    between = 2.0 ** (-4 / smaller * torch.arange(1, 2 * smaller, 2, dtype=torch.float64))
    return torch.cat([slopes, between[: n_heads - smaller]])


class ALiBi(PositionEncoding):
    """Subtracts slope * |i - j| from each score: far keys count less. One slope a head, nothing learned.

    Under a causal mask this is the bias of Press et al. 2022, https://arxiv.org/abs/2108.12409, section 3.
    Scores must be (..., n_heads, n_queries, n_keys); raises ValueError for another number of heads.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(n_heads).view(-1, 1, 1), persistent=False)

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        heads = scores.shape[-3] if scores.ndim > 2 else 0
        if heads != len(self.slopes):
            raise ValueError(f"ALiBi({len(self.slopes)}) needs scores of {len(self.slopes)} heads, got {heads}")
        distance = (query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).abs()  # (..., n_queries, n_keys)
        return scores - (self.slopes * distance).to(scores.dtype)
