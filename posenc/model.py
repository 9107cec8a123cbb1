"""One small Transformer for the whole book. It takes any encoding.

Tokens are looked up, the encoding may open its token door, then come blocks of attention and feed-forward
(layer norm first), and a read-out. Everything but attention works on each row alone, so attention is the only
place where rows meet, and the encoding the only place where their order can enter.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from posenc.attention import Attention, Cache
from posenc.encoding import NoPE, PositionEncoding, default_positions

Readout = Literal["mean", "last", "each"]


class FeedForward(nn.Sequential):
    """Two linear maps with a GELU between, on each row alone. (..., d_model) -> (..., d_model)."""

    def __init__(self, d_model: int, expansion: int = 4):
        super().__init__(nn.Linear(d_model, expansion * d_model), nn.GELU(), nn.Linear(expansion * d_model, d_model))


class Block(nn.Module):
    """Attention, then feed-forward, each behind a layer norm and around a residual. (..., n, d_model), kept."""

    def __init__(self, d_model: int, n_heads: int, encoding: PositionEncoding | None = None):
        super().__init__()
        self.attention_norm = nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads, encoding)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model)

    def forward(self, x: Tensor, positions: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), positions, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Token ids (batch, n) to logits: (batch, n_outputs), or (batch, n, n_outputs) with readout "each".

    readout: "mean" pools over the rows (a symmetric read-out), "last" takes the last row, "each" keeps them all.
    encoding: one object that serves every block, or a sequence with one for each block; then the first one's token
    door is used, since tokens are encoded once.
    Raises ValueError for an unknown readout or a wrong number of encodings.
    """

    def __init__(
        self,
        vocabulary: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        n_outputs: int,
        encoding: PositionEncoding | Sequence[PositionEncoding] | None = None,
        readout: Readout = "each",
    ):
        super().__init__()
        if readout not in ("mean", "last", "each"):
            raise ValueError(f"readout must be 'mean', 'last' or 'each', got {readout!r}")
        if encoding is None or isinstance(encoding, PositionEncoding):
            encodings = [encoding if encoding is not None else NoPE()] * max(n_layers, 1)
        elif len(encodings := list(encoding)) != n_layers:
            raise ValueError(f"give one encoding, or one a layer: got {len(encodings)} for {n_layers} layers")
        self.encoding = encodings[0]
        self.readout = readout
        self.embedding = nn.Embedding(vocabulary, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, each) for each in encodings[:n_layers])
        self.norm = nn.LayerNorm(d_model)
        self.to_logits = nn.Linear(d_model, n_outputs)

    def forward(self, tokens: Tensor, positions: Tensor | None = None, caches: Sequence[Cache] | None = None) -> Tensor:
        """With caches, one a block, `tokens` are the new ones alone; give their positions (see `decode.generate`)."""
        return self.to_logits(self._read(self.rows(tokens, positions, caches)))

    def rows(self, tokens: Tensor, positions: Tensor | None = None, caches: Sequence[Cache] | None = None) -> Tensor:
        """The vectors before the read-out. tokens: (batch, n) -> (batch, n, d_model)."""
        x = self.embedding(tokens)
        positions = default_positions(x) if positions is None else positions
        x = self.encoding.tokens(x, positions)
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, positions, cache)
        return self.norm(x)

    def _read(self, rows: Tensor) -> Tensor:
        if self.readout == "mean":
            return rows.mean(dim=-2)
        return rows[..., -1, :] if self.readout == "last" else rows


def build(seed: int, **settings) -> Transformer:
    """A `Transformer` whose initial weights depend on the seed alone; the global random state is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(**settings)
