"""The doors: every way in which a position can enter attention, one method each.

`y_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j` contains no index. A scheme adds one by overriding the one
or two doors that it opens. The base class opens none: it *is* attention without positions (NoPE).
"""

import torch
from torch import Tensor, nn


class PositionEncoding(nn.Module):
    """Five doors, all closed. Override one to let positions in.

    `positions` are whole numbers, (n,) or (..., n). The score grid has queries down and keys across, so a
    door that sees it gets `query_positions` (..., n_queries) and `key_positions` (..., n_keys) apart.
    """

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        """The token door, once, at the model's input. x: (..., n, d_model)."""
        return x

    def queries_and_keys(
        self,
        queries: Tensor,
        keys: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The query and key door. Both: (..., n, head_dim)."""
        return queries, keys

    def scores(
        self,
        scores: Tensor,
        queries: Tensor,
        keys: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> Tensor:
        """The score door, after scaling and before the softmax. scores: (..., n_queries, n_keys)."""
        return scores

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        """The mask door: True where a query may see a key, or None for everywhere. (..., n_queries, n_keys)."""
        return None

    def values(
        self,
        weights: Tensor,
        values: Tensor,
        query_positions: Tensor,
        key_positions: Tensor,
    ) -> Tensor:
        """The value door: mix the values. weights: (..., n_queries, n_keys), values: (..., n_keys, head_dim)."""
        return weights @ values


class NoPE(PositionEncoding):
    """No position encoding. Every door stays shut."""


class Together(PositionEncoding):
    """Several encodings at once, each through its own doors: `Together(Causal(), Rotary(...))`.

    Masks are intersected. Only one of the encodings may open the value door.
    Raises ValueError if two of them do: their results cannot be added without counting the values twice.
    """

    def __init__(self, *encodings: PositionEncoding):
        super().__init__()
        opened = [e for e in encodings if type(e).values is not PositionEncoding.values]
        if len(opened) > 1:
            names = ", ".join(type(e).__name__ for e in opened)
            raise ValueError(f"only one encoding can open the value door, got {names}; drop all but one of them")
        self.encodings = nn.ModuleList(encodings)
        self.value_door = opened[0] if opened else NoPE()

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        for encoding in self.encodings:
            x = encoding.tokens(x, positions)
        return x

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        for encoding in self.encodings:
            queries, keys = encoding.queries_and_keys(queries, keys, query_positions, key_positions)
        return queries, keys

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        for encoding in self.encodings:
            scores = encoding.scores(scores, queries, keys, query_positions, key_positions)
        return scores

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor | None:
        masks = [e.mask(query_positions, key_positions) for e in self.encodings]
        allowed = [m for m in masks if m is not None]
        if not allowed:
            return None
        together = allowed[0]
        for other in allowed[1:]:
            together = together & other
        return together

    def values(self, weights: Tensor, values: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return self.value_door.values(weights, values, query_positions, key_positions)


class RowNumber(PositionEncoding):
    """The smallest token door there is: add the row's number to the first feature.

    Nobody trains real models with it. It is the negative control of chapter 1: whatever sees it must fail every
    permutation test. (Not added to *all* features: layer norm would take a common shift out again.)
    """

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        first_feature = torch.zeros_like(x[..., 0, :])
        first_feature[..., 0] = 1  # (..., d_model)
        return x + positions.to(x.dtype).unsqueeze(-1) * first_feature.unsqueeze(-2)


def default_positions(x: Tensor) -> Tensor:
    """0, 1, … n-1 for the rows of x: (..., n, d_model) -> (n,)."""
    return torch.arange(x.shape[-2], device=x.device)
