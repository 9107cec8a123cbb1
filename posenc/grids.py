"""Absolute encodings for a grid of patches (the token door), and what becomes of them at another size.

Places are (2, n) or (2, batch, n): row numbers, then column numbers (see `vision.grid`). `Sinusoidal2D` computes a
vector from both; `LearnedGrid` keeps one for each place, `RowAndColumn` one for each row and one for each column. A
table is bound to its grid: `resample` makes one for another grid, and `places_in` says which places it samples.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.absolute import sinusoids, to_halves
from posenc.encoding import PositionEncoding
from posenc.learned import resize_table

Parts = Literal["rows first", "columns first", "sines first"]
Mode = Literal["bilinear", "bicubic"]

# --- A formula for two coordinates


def sinusoids_2d(positions: Tensor, d_model: int, base: float = 10_000.0, parts: Parts = "rows first") -> Tensor:
    """Half of the features for the row, half for the column: (2, ..., n) -> (..., n, d_model).

    Each half holds its d_model / 4 sines, then as many cosines. The parts stand in one of three orders:
    "rows first" (row sines, row cosines, column sines, column cosines), "columns first" (as in MAE's checkpoints,
    https://github.com/facebookresearch/mae/blob/main/util/pos_embed.py) and "sines first" (row sines, column sines, row
    cosines, column cosines, as timm's build_sincos2d_pos_embed).
    Raises ValueError if d_model is no multiple of 4, or for another order.
    """
    if d_model % 4:
        raise ValueError(f"two coordinates, in pairs: d_model must be a multiple of 4; got {d_model}")
    rows, columns = (to_halves(sinusoids(places, d_model // 2, base)) for places in positions)
    if parts == "rows first":
        return torch.cat([rows, columns], dim=-1)
    if parts == "columns first":
        return torch.cat([columns, rows], dim=-1)
    if parts == "sines first":
        halves = [*zip(rows.chunk(2, dim=-1), columns.chunk(2, dim=-1), strict=True)]  # sines, then cosines
        return torch.cat([*halves[0], *halves[1]], dim=-1)
    raise ValueError(f"parts must be 'rows first', 'columns first' or 'sines first', got {parts!r}")


class Sinusoidal2D(PositionEncoding):
    """Adds `sinusoids_2d` to the tokens. Places need not be whole numbers."""

    def __init__(self, base: float = 10_000.0, parts: Parts = "rows first"):
        super().__init__()
        self.base, self.parts = base, parts

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + sinusoids_2d(positions, x.shape[-1], self.base, self.parts).to(x.dtype)


# --- Tables


def check_places(positions: Tensor, rows: int, columns: int) -> None:
    """Raise ValueError unless all places are whole numbers inside a grid of rows by columns."""
    if positions.is_floating_point():
        raise ValueError("a table is read at whole places only; resample it, or use a formula")
    for places, n, axis in zip(positions, (rows, columns), ("row", "column"), strict=True):
        if places.numel() and (places.min() < 0 or places.max() >= n):
            span = f"{places.min().item()} to {places.max().item()}"
            raise ValueError(f"{axis}s {span} asked, 0 to {n - 1} in the table; resample it for the new grid")


class LearnedGrid(PositionEncoding):
    """Adds a learned vector for each place: a table (rows, columns, d_model). ViT's, if read row by row.

    The start is normal noise of the given standard deviation. Raises ValueError for a place outside the table.
    """

    def __init__(self, rows: int, columns: int, d_model: int, std: float = 0.02):
        super().__init__()
        self.table = nn.Parameter(std * torch.randn(rows, columns, d_model))

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        check_places(positions, *self.table.shape[:2])
        rows, columns = positions
        return x + self.table[rows, columns].to(x.dtype)

    def resampled(
        self, rows: int, columns: int, mode: Mode = "bicubic", align_corners: bool = False, antialias: bool = False
    ) -> "LearnedGrid":
        """The same table for another grid; this one is left as it is. See `resample`."""
        other = LearnedGrid(rows, columns, self.table.shape[-1])
        other.table = nn.Parameter(resample(self.table.detach(), rows, columns, mode, align_corners, antialias))
        return other


class RowAndColumn(PositionEncoding):
    """Adds two learned vectors, one for the row and one for the column: x + a[row] + b[column].

    Raises ValueError for a place outside the grid.
    """

    def __init__(self, rows: int, columns: int, d_model: int, std: float = 0.02):
        super().__init__()
        self.rows = nn.Parameter(std * torch.randn(rows, d_model))
        self.columns = nn.Parameter(std * torch.randn(columns, d_model))

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        check_places(positions, len(self.rows), len(self.columns))
        rows, columns = positions
        return x + (self.rows[rows] + self.columns[columns]).to(x.dtype)

    def resampled(self, rows: int, columns: int) -> "RowAndColumn":
        """Both tables stretched linearly, their ends kept (`learned.resize_table`); this one is left as it is."""
        other = RowAndColumn(rows, columns, self.rows.shape[-1])
        other.rows = nn.Parameter(resize_table(self.rows.detach(), rows))
        other.columns = nn.Parameter(resize_table(self.columns.detach(), columns))
        return other


def resample(
    table: Tensor,
    rows: int,
    columns: int,
    mode: Mode = "bicubic",
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """A table for another grid: (old_rows, old_columns, d) -> (rows, columns, d), by `F.interpolate`.

    align_corners: its corners stay corners; else its cells are areas (see `places_in`). antialias: where the grid gets
    smaller, average over all that a new cell covers. Half precision is computed in float32.
    """
    wide = table if table.dtype == torch.float64 else table.float()
    image = wide.permute(2, 0, 1)[None]  # (1, d, old_rows, old_columns)
    image = F.interpolate(image, (rows, columns), mode=mode, align_corners=align_corners, antialias=antialias)
    return image[0].permute(1, 2, 0).to(table.dtype)


def places_in(old_rows: int, old_columns: int, rows: int, columns: int, align_corners: bool = False) -> Tensor:
    """Where the cells of a new grid lie in an old one: (2, rows * columns), float64, row by row.

    Without align_corners both grids cover one picture, and a cell lies at its centre: new cell i at
    (i + 1/2) * old / new - 1/2. With it, first lies on first and last on last.
    """
    axes = []
    for old, new in ((old_rows, rows), (old_columns, columns)):
        cells = torch.arange(new, dtype=torch.float64)
        axes.append(cells * (old - 1) / max(new - 1, 1) if align_corners else (cells + 0.5) * old / new - 0.5)
    return torch.cartesian_prod(*axes).T


# --- A grid in single file


def traversal(rows: int, columns: int, name: str, seed: int = 0) -> Tensor:
    """The order of a walk through all patches: (rows * columns,), numbers of the patches counted row by row.

    name: "raster" (row by row), "columns", "snake" (every other row backwards), "hilbert" or "random".
    Raises ValueError for another name, or for a Hilbert curve through anything but a square of side 2, 4, 8, …
    """
    number = torch.arange(rows * columns).view(rows, columns)
    if name == "raster":
        return number.flatten()
    if name == "columns":
        return number.T.flatten()
    if name == "snake":
        number[1::2] = number[1::2].flip(-1)
        return number.flatten()
    if name == "hilbert":
        return _hilbert(number)
    if name == "random":
        return torch.randperm(rows * columns, generator=torch.Generator().manual_seed(seed))
    raise ValueError(f"no walk named {name!r}; there are raster, columns, snake, hilbert and random")


def _hilbert(number: Tensor) -> Tensor:
    """Hilbert's curve from the top left to the top right corner: four smaller ones, the outer two transposed."""
    rows, columns = number.shape
    if rows != columns or rows & (rows - 1):
        raise ValueError(f"Hilbert's curve fills squares of side 1, 2, 4, 8, …; got {rows} by {columns}")
    if rows == 1:
        return number.flatten()
    half = rows // 2
    top, bottom = number.split(half)
    (first, fourth), (second, third) = top.split(half, dim=1), bottom.split(half, dim=1)
    return torch.cat([_hilbert(first.T), _hilbert(second), _hilbert(third), _hilbert(fourth.flip(0, 1).T)])


class Flattened(PositionEncoding):
    """Reads a grid in single file: hands a token-door encoding for texts the number of each patch in a walk.

    order: (n,) as `traversal` gives it, for a grid with so many columns.
    """

    def __init__(self, encoding: PositionEncoding, order: Tensor, columns: int):
        super().__init__()
        self.encoding, self.columns = encoding, columns
        self.register_buffer("number", order.argsort(), persistent=False)  # when each patch is visited

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        rows, columns = positions
        return self.encoding.tokens(x, self.number[rows * self.columns + columns])
