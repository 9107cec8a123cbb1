"""Relative offsets: a learned vector for each offset j - i, for keys (score door) and for values (value door).

Shaw et al. 2018 look the vectors up, clipped; Transformer-XL makes them from sinusoids; DeBERTa adds a third term.
Nothing here ever holds a vector for each *pair*: queries meet the table first, and only numbers are moved.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.absolute import sinusoids
from posenc.encoding import PositionEncoding


def offset_rows(query_positions: Tensor, key_positions: Tensor, clip: int) -> Tensor:
    """Which row of a table with 2 * clip + 1 rows belongs to each pair: row 0 is offset -clip, row `clip` is offset 0.

    (..., n_queries), (..., n_keys) -> (..., n_queries, n_keys), whole numbers from 0 to 2 * clip.
    """
    offsets = key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)
    return offsets.clamp(-clip, clip) + clip


def relative_scores(queries: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """q_i · table[rows[i, j]] for every pair: multiply with the whole table first, then pick numbers.

    queries: (..., n_queries, head_dim), table: (n_rows, head_dim) or (n_heads, n_rows, head_dim),
    rows: (..., n_queries, n_keys). Returns (..., n_queries, n_keys), not divided by sqrt(head_dim).
    """
    by_row = queries @ table.mT  # (..., n_queries, n_rows)
    return by_row.gather(-1, rows.expand(*by_row.shape[:-1], rows.shape[-1]))


def relative_values(weights: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Sum over j of weights[i, j] * table[rows[i, j]]: add up the weight of each row first, then multiply once.

    weights: (..., n_queries, n_keys), table and rows as in `relative_scores`. Returns (..., n_queries, head_dim).
    """
    by_row = weights.new_zeros(*weights.shape[:-1], table.shape[-2])
    by_row = by_row.scatter_add(-1, rows.expand(weights.shape), weights)
    return by_row @ table


class ShawKeys(PositionEncoding):
    """Opens the score door: the score of a pair is q_i · (k_j + a(j - i)) / sqrt(head_dim), offsets clipped to ±clip.

    With n_heads, each head has a table of its own; without, all heads share one.
    Shaw et al. 2018, eq. 4 and section 3.2, https://arxiv.org/abs/1803.02155
    Raises ValueError if clip < 0, or if queries have another width than head_dim.
    """

    def __init__(self, head_dim: int, clip: int, n_heads: int | None = None):
        super().__init__()
        if clip < 0:
            raise ValueError(f"clip must be 0 or more, got {clip}")
        self.clip = clip
        heads = () if n_heads is None else (n_heads,)
        self.shape = (*heads, 2 * clip + 1, head_dim)
        self.key_table = nn.Parameter(torch.randn(self.shape) / head_dim**0.5)

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        head_dim = queries.shape[-1]
        if head_dim != self.shape[-1]:
            raise ValueError(
                f"the table has vectors of width {self.shape[-1]}, the queries {head_dim}: make them equal"
            )
        rows = offset_rows(query_positions, key_positions, self.clip)
        return scores + relative_scores(queries, self.key_table, rows) / head_dim**0.5


class Shaw(ShawKeys):
    """Keys and values: opens the value door as well, y_i = sum_j weights_ij (v_j + a_V(j - i)).

    Shaw et al. 2018, eq. 3 and 4, https://arxiv.org/abs/1803.02155. Arguments and errors as in `ShawKeys`.
    """

    def __init__(self, head_dim: int, clip: int, n_heads: int | None = None):
        super().__init__(head_dim, clip, n_heads)
        self.value_table = nn.Parameter(torch.randn(self.shape) / head_dim**0.5)

    def values(self, weights: Tensor, values: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        rows = offset_rows(query_positions, key_positions, self.clip)
        return weights @ values + relative_values(weights, self.value_table, rows)


def skew(by_offset: Tensor, n_keys: int) -> Tensor:
    """Turn a column for each offset into a column for each key, with no index: pad, flatten, cut, fold.

    by_offset: (..., n_queries, n_queries + n_keys - 1); in row i, key j is found in column j - i + n_queries - 1.
    Returns (..., n_queries, n_keys). For n_queries consecutive queries and n_keys consecutive keys.
    Huang et al. 2018, Music Transformer, section 3.4.1, https://arxiv.org/abs/1809.04281, has it for the causal half;
    this form, for both sides, is tensor2tensor's `_relative_position_to_absolute_position_unmasked`.
    Raises ValueError if the last axis has another length.
    """
    n_queries, width = by_offset.shape[-2:]
    if width != n_queries + n_keys - 1:
        raise ValueError(f"{n_queries} queries and {n_keys} keys have {n_queries + n_keys - 1} offsets, got {width}")
    flat = F.pad(by_offset, (0, 1)).flatten(-2)  # rows of width + 1, end to end
    folded = flat[..., n_queries - 1 : -1].unflatten(-1, (n_queries, width))
    return folded[..., :n_keys]


class TransformerXL(PositionEncoding):
    """Opens the score door with sinusoids of the distance and two global vectors u, v a head.

    Score of a pair: ((q_i + u) · k_j + (q_i + v) · W_R r(i - j)) / sqrt(head_dim).
    Dai et al. 2019, section 3.3, https://arxiv.org/abs/1901.02860. Raises ValueError if d_model is not a multiple of
    n_heads.
    """

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.d_model, self.n_heads = d_model, n_heads
        self.to_offset_keys = nn.Linear(d_model, d_model, bias=False)  # W_R
        self.u = nn.Parameter(torch.randn(n_heads, 1, d_model // n_heads) / 10)
        self.v = nn.Parameter(torch.randn(n_heads, 1, d_model // n_heads) / 10)

    def offset_keys(self, offsets: Tensor) -> Tensor:
        """One key for each offset j - i. (m,) -> (n_heads, m, head_dim)."""
        waves = sinusoids(-offsets, self.d_model).to(self.u.dtype)  # the paper counts i - j
        by_head = self.to_offset_keys(waves).unflatten(-1, (self.n_heads, -1))
        return by_head.transpose(-3, -2)

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        offsets = key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)
        lowest, highest = int(offsets.min()), int(offsets.max())
        all_offsets = torch.arange(lowest, highest + 1, device=offsets.device)
        table = self.offset_keys(all_offsets)
        of_content = self.u @ keys.mT  # (..., n_heads, 1, n_keys)
        of_offset = relative_scores(queries + self.v, table, offsets - lowest)
        return scores + (of_content + of_offset) / queries.shape[-1] ** 0.5


def disentangled_scores(
    queries: Tensor,
    keys: Tensor,
    offset_queries: Tensor,
    offset_keys: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
    as_released: bool = False,
) -> Tensor:
    """DeBERTa's three terms: content to content, content to position, position to content, over sqrt(3 * head_dim).

    queries, keys: (..., n, head_dim); offset_queries, offset_keys: (2 * span, head_dim) or with heads in front, where
    row r belongs to i - j = r - span, clipped: an even number of rows. Returns (..., n_queries, n_keys).
    The paper's third term looks up j - i. The released code, and `as_released`, looks up i - j there as well.
    He et al. 2021, eq. 2 to 4, https://arxiv.org/abs/2006.03654
    """
    n_rows = offset_keys.shape[-2]
    distance = query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)  # i - j

    def rows(d: Tensor) -> Tensor:
        return (d + n_rows // 2).clamp(0, n_rows - 1)

    content_to_position = relative_scores(queries, offset_keys, rows(distance))
    looked_up = rows(distance if as_released else -distance)
    position_to_content = relative_scores(keys, offset_queries, looked_up.mT).mT
    total = queries @ keys.mT + content_to_position + position_to_content
    return total / (3 * queries.shape[-1]) ** 0.5
