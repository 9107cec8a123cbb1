"""A picture as a set of patches, and one small vision Transformer for the whole book.

A patch's place has two coordinates, so its positions are (2, n): row numbers, then column numbers. The axis of the
coordinates comes first, as in `position_ids` of models that read text, pictures and films together; (2, batch, n)
serves pictures with places of their own. Every door takes them as it takes (n,) and (batch, n): an encoding for grids
begins with `rows, columns = positions`.
"""

import torch
from torch import Tensor, nn

from posenc.encoding import NoPE, PositionEncoding
from posenc.model import Block


def patches(images: Tensor, side: int) -> Tensor:
    """Cut pictures into squares, row by row: (..., height, width) -> (..., n, side * side).

    n = (height / side) * (width / side). Raises ValueError if the squares do not fit.
    """
    height, width = images.shape[-2:]
    if height % side or width % side:
        raise ValueError(f"patches of {side} by {side} do not fill a picture of {height} by {width}")
    squares = images.unflatten(-1, (-1, side)).unflatten(-3, (-1, side))  # (..., rows, side, columns, side)
    return squares.transpose(-3, -2).flatten(-2).flatten(-3, -2)


def grid(rows: int, columns: int) -> Tensor:
    """The places of a grid of patches, row by row: (2, rows * columns), row numbers first."""
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).T


class VisionTransformer(nn.Module):
    """Pictures (batch, height, width) to logits (batch, n_outputs): patches, encoding, blocks, mean over the patches.

    The encoding sees places (2, n). Dosovitskiy et al. 2020, An Image is Worth 16x16 Words,
    https://arxiv.org/abs/2010.11929, with the mean in place of the class token (their appendix D.3).
    """

    def __init__(
        self,
        side: int,
        d_model: int,
        n_layers: int,
        n_heads: int,
        n_outputs: int,
        encoding: PositionEncoding | None = None,
    ):
        super().__init__()
        self.side = side
        self.encoding = encoding if encoding is not None else NoPE()
        self.embedding = nn.Linear(side * side, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, self.encoding) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.to_logits = nn.Linear(d_model, n_outputs)

    def forward(self, images: Tensor, positions: Tensor | None = None) -> Tensor:
        """positions: (2, n) or (2, batch, n), whole or not; by default the grid of the patches."""
        return self.to_logits(self.rows(images, positions).mean(dim=-2))

    def rows(self, images: Tensor, positions: Tensor | None = None) -> Tensor:
        """The patches' vectors before the mean. images: (batch, height, width) -> (batch, n, d_model)."""
        height, width = images.shape[-2:]
        x = self.embedding(patches(images, self.side))
        if positions is None:
            positions = grid(height // self.side, width // self.side).to(x.device)
        x = self.encoding.tokens(x, positions)
        for block in self.blocks:
            x = block(x, positions)
        return self.norm(x)


def build(seed: int, **settings) -> VisionTransformer:
    """A `VisionTransformer` whose initial weights depend on the seed alone; the global random state stays."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return VisionTransformer(**settings)
