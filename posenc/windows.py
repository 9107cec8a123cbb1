"""Relative positions in the plane, written into the scores: Swin's table and its windows, a network, and a distance.

An offset has two numbers here, rows and columns. `WindowBias` looks one up in a table of (2h - 1)(2w - 1) numbers,
`ContinuousBias` asks a small network, `ALiBi2D` takes the distance. `Windows` opens the mask door: who shares a window.
Swin's code counts query minus key, where chapters 6 and 7 count key minus query; here it is Swin's.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posenc.encoding import PositionEncoding
from posenc.relative import alibi_slopes
from posenc.vision import grid, patches


def window_index(rows: int, columns: int) -> Tensor:
    """Which entry of Swin's table belongs to each pair of a window, places row by row. (n, n), n = rows * columns.

    Query i minus key j is -(rows - 1) to rows - 1 down and -(columns - 1) to columns - 1 across; both are shifted to
    start at 0 and counted row by row.
    Liu et al. 2021, Swin Transformer, section 3.2, https://arxiv.org/abs/2103.14030
    """
    place = grid(rows, columns)  # (2, n)
    down, across = place.unsqueeze(-1) - place.unsqueeze(-2)  # (n, n) each: query minus key
    return (down + rows - 1) * (2 * columns - 1) + across + columns - 1


def with_class_token(index: Tensor) -> Tensor:
    """BEiT's index: a class token in front, with three entries of its own at the end of the table. (n + 1, n + 1).

    The first serves class to patch, the second patch to class, the third class to itself. index: (n, n), the largest
    number in it being the table's last entry. Bao et al. 2021, https://arxiv.org/abs/2106.08254
    """
    first = int(index.max()) + 1
    index = F.pad(index, (1, 0, 1, 0))
    index[0, :], index[:, 0], index[0, 0] = first, first + 1, first + 2
    return index


def read_between(table: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """Read a grid of numbers between its entries, bilinearly. table: (..., rows, columns); down, across: any one shape.

    Returns (..., *shape). Whole numbers read the entries themselves. Less than one step outside, the edge is read, as
    `F.interpolate` does. Raises ValueError further out.
    """
    corners, shares = [], []
    for place, n, axis in ((down, table.shape[-2], "row"), (across, table.shape[-1], "column")):
        if place.numel() and not (place.min() > -1 and place.max() < n):
            raise ValueError(
                f"{axis} {place.min():g} to {place.max():g} asked, 0 to {n - 1} in the table; resize the table, or "
                "give positions on the scale of the grid that it was made for (grids.places_in)"
            )
        inside = place.clamp(0, n - 1)
        first = inside.floor().long()
        corners.append((first, (first + 1).clamp(max=n - 1)))
        shares.append((inside - first).to(table.dtype))
    (top, bottom), (left, right) = corners
    below, aside = shares
    upper = table[..., top, left] * (1 - aside) + table[..., top, right] * aside
    lower = table[..., bottom, left] * (1 - aside) + table[..., bottom, right] * aside
    return upper * (1 - below) + lower * below


def offsets(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """Query minus key for every pair: (axes, ..., n_queries), (axes, ..., n_keys) -> (axes, ..., n_queries, n_keys)."""
    return query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)


class PlaneBias(PositionEncoding):
    """Adds bias(down, across) to the scores, one number a head. Subclasses say what the bias of an offset is.

    `bias` gets two tensors of offsets, query minus key, (..., n_queries, n_keys), and returns (n_heads, ..., n_queries,
    n_keys). Raises ValueError if the scores have another number of heads.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.n_heads = n_heads

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        heads = scores.shape[-3] if scores.ndim > 2 else 0
        if heads != self.n_heads:
            raise ValueError(f"this {type(self).__name__} has {self.n_heads} heads, the scores have {heads}")
        down, across = offsets(query_positions, key_positions)
        bias = self.bias(down, across)  # (heads, n, n), or (heads, batch, 1, n, n) for places of their own
        bias = bias if bias.ndim == 3 else bias.squeeze(-3).movedim(0, -3)
        return scores + bias.to(scores.dtype)

    def bias(self, down: Tensor, across: Tensor) -> Tensor:
        raise NotImplementedError("say what the bias of an offset is")


class WindowBias(PlaneBias):
    """A learned number for each offset in a window of rows by columns, and head: (2 rows - 1)(2 columns - 1) of each.

    Positions need not be whole: between two entries the table is read bilinearly (`read_between`).
    Liu et al. 2021, https://arxiv.org/abs/2103.14030, eq. 4. Raises ValueError for offsets that have no entry.
    """

    def __init__(self, rows: int, columns: int, n_heads: int, std: float = 0.02):
        super().__init__(n_heads)
        self.rows, self.columns = rows, columns
        self.table = nn.Parameter(std * torch.randn((2 * rows - 1) * (2 * columns - 1), n_heads))

    def bias(self, down: Tensor, across: Tensor) -> Tensor:
        by_offset = self.table.T.unflatten(-1, (2 * self.rows - 1, 2 * self.columns - 1))
        return read_between(by_offset, down + self.rows - 1, across + self.columns - 1)


def resize_bias(table: Tensor, old: tuple[int, int], new: tuple[int, int], mode: str = "bicubic") -> Tensor:
    """Stretch a Swin table from windows of old = (rows, columns) to windows of new. (entries, heads) in both.

    Pixels' centres, `align_corners=False`, as in Swin's own loader:
    https://github.com/microsoft/Swin-Transformer/blob/main/utils.py
    Raises ValueError if the table does not belong to windows of the old size.
    """
    sizes = [(2 * rows - 1, 2 * columns - 1) for rows, columns in (old, new)]
    if len(table) != math.prod(sizes[0]):
        raise ValueError(f"windows of {old[0]} by {old[1]} need {math.prod(sizes[0])} entries, got {len(table)}")
    pictures = table.T.unflatten(-1, sizes[0])  # (heads, 2 rows - 1, 2 columns - 1)
    resized = F.interpolate(pictures[None], size=sizes[1], mode=mode, align_corners=False)[0]
    return resized.flatten(1).T


def log_spaced(offsets: Tensor, trained: int) -> Tensor:
    """Swin v2's coordinates: sign(x) log2(1 + |x|) / 3 with x = 8 offset / (trained - 1). Any shape, kept.

    trained: the window's side in training, along this axis; 8 maps to about 1.
    Liu et al. 2022, Swin Transformer V2, section 3.3, https://arxiv.org/abs/2111.09883; the scale is their code's.
    """
    x = 8 * offsets / max(trained - 1, 1)
    return x.sign() * torch.log2(1 + x.abs()) / 3


class ContinuousBias(PlaneBias):
    """A small network of the log-spaced offset, one output a head, squeezed to 0..16. Any window, any resolution.

    Liu et al. 2022, Swin Transformer V2, https://arxiv.org/abs/2111.09883, eq. 3; 16 sigmoid is their code's. (Their
    scores are cosines times a learned scale; here only the bias is theirs.)
    """

    def __init__(self, rows: int, columns: int, n_heads: int, hidden: int = 64):
        super().__init__(n_heads)
        self.rows, self.columns = rows, columns
        self.network = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, n_heads, bias=False))

    def bias(self, down: Tensor, across: Tensor) -> Tensor:
        pair = torch.stack([log_spaced(down, self.rows), log_spaced(across, self.columns)], dim=-1)
        weight: Tensor = self.network[0].weight
        return 16 * self.network(pair.to(weight.dtype)).sigmoid().movedim(-1, 0)


class ALiBi2D(PlaneBias):
    """Subtracts slope * distance, as the crow flies: ALiBi in the plane, nothing learned.

    Fuller et al. 2023, CROMA, https://arxiv.org/abs/2311.00566 (their 2D-ALiBi; the slopes are ALiBi's).
    """

    def __init__(self, n_heads: int, largest_exponent: float = 8.0):
        super().__init__(n_heads)
        self.register_buffer("slopes", alibi_slopes(n_heads, largest_exponent), persistent=False)

    def bias(self, down: Tensor, across: Tensor) -> Tensor:
        distance = (down.square() + across.square()).to(self.slopes.dtype).sqrt()
        return -self.slopes.view(-1, *[1] * distance.ndim) * distance


# --- Windows


class Windows(PositionEncoding):
    """Opens the mask door: places see their own window of side by side only. Windows begin at `shift` on both axes.

    What stands before `shift` forms smaller windows at the edge, and so does what is left over at the end.
    Liu et al. 2021, section 3.2. Raises ValueError unless 0 <= shift < side.
    """

    def __init__(self, side: int, shift: int = 0):
        super().__init__()
        if not 0 <= shift < side:
            raise ValueError(f"shift must be 0 to {side - 1} for windows of {side}, got {shift}")
        self.side, self.shift = side, shift

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        of_query, of_key = (self.window(p) for p in (query_positions, key_positions))
        return (of_query.unsqueeze(-1) == of_key.unsqueeze(-2)).all(dim=0)

    def window(self, positions: Tensor) -> Tensor:
        return (positions + self.side - self.shift) // self.side


def roll_and_cut(x: Tensor, side: int, shift: int) -> Tensor:
    """Windows as a batch: (..., rows, columns, d) -> (..., windows, side * side, d), the picture rolled by shift first.

    Raises ValueError if the windows do not fill the picture.
    """
    rolled = x.roll((-shift, -shift), dims=(-3, -2))
    return patches(rolled.movedim(-1, 0), side).movedim(0, -1)


def rolled_mask(rows: int, columns: int, side: int, shift: int) -> Tensor:
    """Who may see whom in the windows of `roll_and_cut`: (windows, side * side, side * side), True where allowed.

    The roll brings pieces from opposite edges together in one window; they stay apart.
    """
    down, across = Windows(side, shift).window(grid(rows, columns))
    piece = (down * (columns + 1) + across).view(rows, columns, 1)  # one number for each window, before the roll
    pieces = roll_and_cut(piece, side, shift).squeeze(-1)  # (windows, side * side)
    return pieces.unsqueeze(-1) == pieces.unsqueeze(-2)
