"""The mask door: which keys a query may see.

Every mask here is True where attention is *allowed*, as in `torch.nn.functional.scaled_dot_product_attention`.
(`torch.nn.MultiheadAttention` means the opposite: there True blocks.)
"""

from torch import Tensor

from posenc.encoding import PositionEncoding


def causal(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """A query sees itself and what came before. (..., n_queries), (..., n_keys) -> (..., n_queries, n_keys)."""
    return query_positions.unsqueeze(-1) >= key_positions.unsqueeze(-2)


def sliding_window(query_positions: Tensor, key_positions: Tensor, window: int) -> Tensor:
    """Causal, and at most `window` keys: itself and the `window` - 1 before it.

    The convention of Mistral 7B, https://arxiv.org/abs/2310.06825, section 2. ValueError if `window` < 1.
    """
    if window < 1:
        raise ValueError(f"window must be at least 1, so that a token sees itself; got {window}")
    distance = query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)
    return (distance >= 0) & (distance < window)


def chunked(query_positions: Tensor, key_positions: Tensor, chunk: int) -> Tensor:
    """Causal inside blocks of `chunk` positions; nothing crosses a block's edge. ValueError if `chunk` < 1."""
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, so that a token sees itself; got {chunk}")
    same_chunk = (query_positions // chunk).unsqueeze(-1) == (key_positions // chunk).unsqueeze(-2)
    return same_chunk & causal(query_positions, key_positions)


class Causal(PositionEncoding):
    """Opens the mask door alone: no position enters except through who may look at whom."""

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return causal(query_positions, key_positions)


def padding(real: Tensor) -> Tensor:
    """Which keys are real, for every query alike: True where real. (..., n_keys) -> (..., 1, n_keys)."""
    return real.unsqueeze(-2)


def same_document(query_documents: Tensor, key_documents: Tensor) -> Tensor:
    """A query sees keys of its own document, for texts packed into one row. (..., n) each -> (..., n, n).

    The arguments are document numbers. Combine with `causal` by `&`.
    """
    return query_documents.unsqueeze(-1) == key_documents.unsqueeze(-2)


class SlidingWindow(PositionEncoding):
    """Opens the mask door: causal, and at most `window` keys. See `sliding_window`."""

    def __init__(self, window: int):
        super().__init__()
        self.window = window

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return sliding_window(query_positions, key_positions, self.window)


class Chunked(PositionEncoding):
    """Opens the mask door: causal inside blocks of `chunk` positions. See `chunked`."""

    def __init__(self, chunk: int):
        super().__init__()
        self.chunk = chunk

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return chunked(query_positions, key_positions, self.chunk)


class Given(PositionEncoding):
    """Opens the mask door with a mask made beforehand, such as padding: `Together(Causal(), Given(padding(real)))`.

    allowed: True where a query may see a key, (..., n_queries, n_keys). For a batch in `Attention`, leave an axis
    of 1 for the heads: (batch, 1, n_queries, n_keys).
    """

    def __init__(self, allowed: Tensor):
        super().__init__()
        self.register_buffer("allowed", allowed, persistent=False)

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return self.allowed
