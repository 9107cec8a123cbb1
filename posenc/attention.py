"""Self-attention: a function of a set, until an encoding opens a door.

`attention` is the formula. `Attention` is the layer: projections, heads, and the doors of `encoding.py`. `Cache` is
what a layer keeps while a text grows.
"""

import torch
from torch import Tensor, nn

from posenc.encoding import NoPE, PositionEncoding, default_positions


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the keys that the mask allows. scores, mask: (..., n_queries, n_keys); True means allowed.

    A row that may see nothing gets zeros, not NaN. Blocked scores become the smallest finite number, not
    minus infinity: after the softmax both are exactly 0, but infinities turn into NaN in such a row.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    blocked = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return blocked.softmax(dim=-1).masked_fill(~mask, 0.0)


def attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """Mix the values by how well each key answers each query.

    queries: (..., n_queries, head_dim), keys: (..., n_keys, head_dim), values: (..., n_keys, value_dim),
    mask: (..., n_queries, n_keys), True where allowed. Returns (..., n_queries, value_dim).
    Vaswani et al. 2017, Attention Is All You Need, eq. 1, https://arxiv.org/abs/1706.03762
    """
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5  # (..., n_queries, n_keys)
    weights = masked_softmax(scores, mask)  # each row sums to 1
    return weights @ values  # (..., n_queries, value_dim)


class Attention(nn.Module):
    """Multi-head self-attention with five doors. (..., n, d_model) -> (..., n, d_model).

    `encoding` decides what positions do; without one the layer is permutation-equivariant. The token door is
    not opened here: it belongs to the model's input (see `model.Transformer`).
    Raises ValueError if d_model does not divide into heads, or if x has another width than d_model.
    """

    def __init__(self, d_model: int, n_heads: int = 1, encoding: PositionEncoding | None = None):
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model={d_model} must be a multiple of n_heads={n_heads}")
        self.n_heads = n_heads
        self.head_dim = d_model // n_heads
        self.encoding = encoding if encoding is not None else NoPE()
        self.to_queries = nn.Linear(d_model, d_model, bias=False)
        self.to_keys = nn.Linear(d_model, d_model, bias=False)
        self.to_values = nn.Linear(d_model, d_model, bias=False)
        self.to_output = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, positions: Tensor | None = None, cache: "Cache | None" = None) -> Tensor:
        """x: (..., n, d_model), positions: (n,) or (..., n), by default 0 to n - 1.

        With a cache, x holds the new tokens alone: they also see the keys and values kept there, and join them.
        """
        self._check_width(x)
        positions = default_positions(x) if positions is None else positions
        if positions.ndim > 1:
            positions = positions.unsqueeze(-2)  # one row of positions serves all heads
        queries, keys, values = (self._split(f(x)) for f in (self.to_queries, self.to_keys, self.to_values))
        queries, keys = self.encoding.queries_and_keys(queries, keys, positions, positions)
        key_positions = positions
        if cache is not None:
            keys, values, key_positions = cache.extend(keys, values, positions)
        scores = queries @ keys.mT / self.head_dim**0.5  # (..., heads, n, n_keys)
        scores = self.encoding.scores(scores, queries, keys, positions, key_positions)
        mask = self.encoding.mask(positions, key_positions)
        if cache is not None:
            mask = cache.hide_padding(mask)
        weights = masked_softmax(scores, mask)
        mixed = self.encoding.values(weights, values, positions, key_positions)  # (..., heads, n, head_dim)
        return self.to_output(mixed.transpose(-3, -2).flatten(-2))

    def _split(self, x: Tensor) -> Tensor:
        """(..., n, d_model) -> (..., heads, n, head_dim)."""
        return x.unflatten(-1, (self.n_heads, self.head_dim)).transpose(-3, -2)

    def _check_width(self, x: Tensor) -> None:
        width = self.n_heads * self.head_dim
        if x.ndim < 2 or x.shape[-1] != width:
            raise ValueError(f"expected x of shape (..., n, {width}), got {tuple(x.shape)}")


class Cache:
    """What one layer keeps of the tokens that it has seen, so that decoding computes each of them once.

    Keys are kept as they met the queries: already turned, where the encoding turns them. So a key is encoded once, at
    its own position, and never again.

    padding: (batch,) how many slots at the left of each sequence hold no token; nobody sees them. None: all are real.
    window: how many of the latest slots to keep, for a model whose mask shows no more; None keeps them all.
    Raises ValueError if window < 1.
    """

    def __init__(self, padding: Tensor | None = None, window: int | None = None):
        if window is not None and window < 1:
            raise ValueError(f"window must be at least 1, got {window}")
        self.padding, self.window = padding, window
        self.dropped = 0  # slots that have left the window
        self.kept: tuple[Tensor, Tensor, Tensor] | None = None  # keys, values, positions

    def extend(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add new slots; return what they may see: keys and values (..., n_keys, head_dim), positions (..., n_keys).

        The window is cut after the new tokens have looked, not before: the first of several new tokens still sees
        a full window behind it.
        """
        new = (keys, values, positions)
        if self.kept is None:
            everything = new
        else:
            axes = (-2, -2, -1)
            everything = tuple(torch.cat(pair, dim=axis) for *pair, axis in zip(self.kept, new, axes, strict=True))
        self.slots = torch.arange(everything[2].shape[-1], device=keys.device) + self.dropped  # (n_keys,)
        drop = 0 if self.window is None else max(0, len(self.slots) - self.window)
        self.dropped += drop
        keys, values, positions = everything
        self.kept = (keys[..., drop:, :], values[..., drop:, :], positions[..., drop:])
        return everything

    def hide_padding(self, mask: Tensor | None) -> Tensor | None:
        """The mask, and no padding: (..., n_queries, n_keys) -> (batch, 1, n_queries, n_keys), 1 for the heads."""
        if self.padding is None:
            return mask
        real = self.slots >= self.padding.view(-1, 1, 1, 1)  # (batch, 1, 1, n_keys)
        return real if mask is None else mask & real
