"""Exercises of chapter 10: grids."""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from posenc.absolute import sinusoids
from posenc.checks.common import all_but, dtype_complaint, right_predictions
from posenc.checks.exercise import Case, Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.grids import sinusoids_2d
from posenc.symmetry import GRID_MOVES, difference
from posenc.vision import grid

# --- 10.1 snake


def snake(rows: int, columns: int) -> Tensor:
    numbers = torch.arange(rows * columns).view(rows, columns)
    numbers[1::2] = numbers[1::2].flip(-1)
    return numbers


def _snake_by_loop(rows: int, columns: int) -> list:
    lines = [list(range(row * columns, (row + 1) * columns)) for row in range(rows)]
    return [line[::-1] if row % 2 else line for row, line in enumerate(lines)]


def _snake_by_columns(rows: int, columns: int) -> Tensor:
    return snake(columns, rows).T


def _even_rows_turned(rows: int, columns: int) -> Tensor:
    numbers = torch.arange(rows * columns).view(rows, columns)
    numbers[::2] = numbers[::2].flip(-1)
    return numbers


def _rows_exchanged(rows: int, columns: int) -> Tensor:
    numbers = torch.arange(rows * columns).view(rows, columns)
    numbers[1::2] = numbers[1::2].flip(0)
    return numbers


SNAKE = Exercise(
    chapter=10,
    title="A snake through the patches",
    points=1,
    minutes=5,
    difficulty=1,
    reference=snake,
    cases=(
        with_arguments("a square", 4, 4),
        with_arguments("3 rows, 5 columns", 3, 5),
        with_arguments("6 rows, 2 columns", 6, 2),
        with_arguments("one row", 1, 4),
        with_arguments("one column", 4, 1),
    ),
    mistakes=(
        Mistake(
            "row by row",
            lambda rows, columns: torch.arange(rows * columns).view(rows, columns),
            "Your walk jumps back to the left at the end of each row. A snake does not jump.",
        ),
        Mistake("the other rows turned", _even_rows_turned, "The walk begins at the top left, going right."),
        Mistake(
            "down the columns",
            _snake_by_columns,
            "A snake, but its first steps go down. The first row is to be walked from left to right.",
        ),
        Mistake(
            "rows and columns exchanged",
            lambda rows, columns: snake(columns, rows),
            "Look at the shape for 3 rows and 5 columns.",
        ),
        Mistake(
            "rows exchanged, not turned",
            _rows_exchanged,
            "You flip along the rows' own axis: whole rows change places. Each should be read backwards.",
        ),
        Mistake(
            "one long line",
            lambda rows, columns: snake(rows, columns).flatten(),
            "The result should have the shape of the grid.",
        ),
    ),
    also_right=(_snake_by_loop, lambda rows, columns: snake(rows, columns).int()),
    learned="In a snake, patches that follow one another touch. But patches that touch may still be far apart in it: "
    "no single file can keep all neighbours together.",
)

# --- 10.2 mae_table


def mae_table(rows: int, columns: int, d_model: int) -> Tensor:
    vectors = sinusoids_2d(grid(rows, columns), d_model, parts="columns first").double()
    return torch.cat([torch.zeros(1, d_model, dtype=torch.float64), vectors])


def _mae(
    rows: int,
    columns: int,
    d_model: int,
    order: str = "cCrR",
    exponent: float = 1.0,
    last: float = 0.0,
    walk: str = "row by row",
    count_from: int = 0,
    first: str = "zeros",
) -> Tensor:
    """MAE's table with one thing after another gone wrong."""
    quarter = d_model // 4
    turns = 10_000.0 ** -(exponent * torch.arange(quarter, dtype=torch.float64) / (quarter - last))
    exchanged = grid(columns, rows) + count_from
    places = {
        "row by row": grid(rows, columns) + count_from,
        "column by column": exchanged.flip(0),
        "another grid": exchanged,
    }[walk]
    angles = {"r": places[0][:, None] * turns, "c": places[1][:, None] * turns}
    parts = [angles[p].sin() if p in "rc" else angles[p.lower()].cos() for p in order]
    vectors = torch.cat(parts, dim=1)
    if first == "none":
        return vectors
    if first == "last":
        return torch.cat([vectors, torch.zeros(1, d_model)])
    return torch.cat([torch.zeros(1, d_model) if first == "zeros" else vectors[:1], vectors])


def _mae_interleaved(rows: int, columns: int, d_model: int) -> Tensor:
    down, across = grid(rows, columns)
    vectors = torch.cat([sinusoids(p, d_model // 2).double() for p in (across, down)], dim=1)
    return torch.cat([torch.zeros(1, d_model), vectors])


def _mae_by_loop(rows: int, columns: int, d_model: int) -> list:
    import math

    quarter = d_model // 4
    table = [[0.0] * d_model]
    for row in range(rows):
        for column in range(columns):
            line = []
            for place in (column, row):
                for f in (math.sin, math.cos):
                    line += [f(place / 10_000 ** (k / quarter)) for k in range(quarter)]
            table.append(line)
    return table


def _repeats_a_row(answer: Callable, _: Generator) -> Complaint:
    from posenc.checks.compare import as_tensor

    table = as_tensor(answer(2, 7, 16)).double()
    if table.shape != (15, 16):
        return f"expected shape (15, 16), got {tuple(table.shape)}"
    same_column = table[1:8, :8], table[8:15, :8]
    gap = (same_column[0] - same_column[1]).abs().max().item()
    return None if gap < 1e-4 else f"rows 0 and 1 of the picture: the column halves differ by {gap:.2g}"


MAE_TABLE = Exercise(
    chapter=10,
    title="MAE's table, for any grid",
    points=3,
    minutes=14,
    difficulty=3,
    reference=mae_table,
    cases=(
        with_arguments("a square of 4", 4, 4, 16),
        with_arguments("3 rows, 5 columns", 3, 5, 8),
        with_arguments("7 rows, 28 columns", 7, 28, 12),
        with_arguments("one patch", 1, 1, 8),
        with_arguments("one column", 6, 1, 24),
    ),
    properties=(Property("patches of one column share half of their vector", _repeats_a_row),),
    mistakes=(
        Mistake(
            "rows first",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, order="rRcC"),
            "Two halves, rightly made. MAE's checkpoints want the column's half first.",
        ),
        Mistake(
            "sines first",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, order="crCR"),
            "That is timm's order of the parts: all sines, then all cosines. Here each half is complete by itself.",
        ),
        Mistake(
            "cosines before sines",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, order="CcRr"),
            "In each half the sines come first.",
        ),
        Mistake(
            "interleaved",
            _mae_interleaved,
            "Chapter 4's order, sine and cosine by turns. Here all sines of a half stand before its cosines.",
        ),
        Mistake(
            "the frequencies run out twice as fast",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, exponent=2.0),
            "Each coordinate has d/4 frequencies. The exponent goes from 0 to just below 1 over these, once.",
        ),
        Mistake(
            "frequencies spread over the whole width",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, exponent=0.5),
            "You divide k by d/2. One coordinate has d/4 frequencies.",
        ),
        Mistake(
            "frequencies of a line of d features",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, exponent=0.25),
            "You divide k by d. One coordinate has d/4 frequencies.",
        ),
        Mistake(
            "big_vision's frequencies",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, last=1.0 if d_model > 4 else 0.0),
            "You divide k by d/4 - 1, so the slowest frequency is 1/10,000 itself. MAE divides by d/4.",
        ),
        Mistake(
            "counted from 1",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, count_from=1),
            "The first row and the first column are 0.",
        ),
        Mistake(
            "walked down the columns",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, walk="column by column"),
            "Each vector is right, but the patches come row by row. On a square your table looks fine at a glance.",
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, walk="another grid"),
            "Your table is right for squares. For 3 rows and 5 columns, what is the largest column number?",
        ),
        Mistake(
            "the class token at place (0, 0)",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, first="first"),
            "The class token stands nowhere: its vector is all zeros. At place (0, 0) the cosines are 1.",
        ),
        Mistake(
            "no vector for the class token",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, first="none"),
            "One vector is missing: the class token's, in front.",
        ),
        Mistake(
            "the class token's vector at the end",
            lambda rows, columns, d_model: _mae(rows, columns, d_model, first="last"),
            "The class token comes before the patches.",
        ),
    ),
    also_right=(_mae_by_loop, _mae, lambda rows, columns, d_model: mae_table(rows, columns, d_model).float()),
    learned="Three orders of the parts are in use, and all have the same shape. A checkpoint fits the order that it "
    "was trained with, and nothing complains about another one.",
)

# --- 10.3 what_the_dot_product_keeps


def _kept(scheme: str, move: str) -> bool:
    """Does moving all places of a 4 by 4 grid leave every dot product as it is?"""
    places = grid(4, 4)

    def vectors(at: Tensor) -> Tensor:
        if scheme == "raster":
            return sinusoids(4 * at[0] + at[1], 16).double()
        if scheme == "stretched":  # rows are counted twice as fast
            return sinusoids_2d(torch.stack([2 * at[0], at[1]]), 16).double()
        return sinusoids_2d(at, 16).double()

    before, after = vectors(places), vectors(GRID_MOVES[move](places))
    return difference(before @ before.mT, after @ after.mT) < 1e-4


KEPT_TRUTH = {
    "1-D sinusoids along the rows: shift": _kept("raster", "shift"),
    "1-D sinusoids along the rows: left-right": _kept("raster", "left-right"),
    "1-D sinusoids along the rows: half turn": _kept("raster", "half turn"),
    "1-D sinusoids along the rows: transpose": _kept("raster", "transpose"),
    "2-D sin-cos: left-right": _kept("2-D", "left-right"),
    "2-D sin-cos: transpose": _kept("2-D", "transpose"),
    "2-D sin-cos, rows counted by twos: up-down": _kept("stretched", "up-down"),
    "2-D sin-cos, rows counted by twos: transpose": _kept("stretched", "transpose"),
}


def what_the_dot_products_keep() -> dict[str, bool]:
    return dict(KEPT_TRUTH)


WHAT_THE_DOT_PRODUCTS_KEEP = Exercise(
    chapter=10,
    title="Predict: what do the dot products keep?",
    points=2,
    minutes=8,
    difficulty=2,
    reference=what_the_dot_products_keep,
    properties=(
        Property(
            "at least six of eight",
            right_predictions(KEPT_TRUTH, 6, "Write the offset of two patches before and after the move."),
        ),
        Property(
            "all eight", right_predictions(KEPT_TRUTH, 8, "Write the offset of two patches before and after the move.")
        ),
    ),
    mistakes=(
        Mistake(
            "one line has no half turn",
            all_but(KEPT_TRUTH, "1-D sinusoids along the rows: half turn"),
            "A half turn sends the number n to 15 - n. What does that do to the difference of two numbers?",
        ),
        Mistake(
            "one line can be mirrored",
            all_but(KEPT_TRUTH, "1-D sinusoids along the rows: left-right"),
            "Take the patches (0, 3) and (1, 0). How far apart are their numbers, before and after?",
        ),
        Mistake(
            "one line can be transposed",
            all_but(KEPT_TRUTH, "1-D sinusoids along the rows: transpose"),
            "Neighbours in a row are one apart. What are they after the move?",
        ),
        Mistake(
            "one line cannot be shifted",
            all_but(KEPT_TRUTH, "1-D sinusoids along the rows: shift"),
            "One row down is 4 more for every patch, one column to the right is 1 more.",
        ),
        Mistake(
            "an even function forgotten",
            all_but(KEPT_TRUTH, "2-D sin-cos: left-right", "2-D sin-cos, rows counted by twos: up-down"),
            "The dot product depends on the cosine of the offset, and a mirror turns the offset's sign.",
        ),
        Mistake(
            "all that is 2-D can be transposed",
            all_but(KEPT_TRUTH, "2-D sin-cos, rows counted by twos: transpose"),
            "Transposing exchanges the two offsets. When is a sum of two functions the same after that?",
        ),
    ),
    also_right=(lambda: {name: bool(value) for name, value in reversed(KEPT_TRUTH.items())},),
    learned="A formula of offsets keeps every shift. Mirrors it keeps if it is even, the transpose only if both "
    "axes are measured alike.",
)

# --- 10.4 fit_to_grid


def fit_to_grid(table: Tensor, old: tuple[int, int], new: tuple[int, int], reserved: int) -> Tensor:
    if tuple(old) == tuple(new):
        return table
    kept, rows = table[:reserved], table[reserved:]
    image = rows.to(torch.float64).view(*old, -1).permute(2, 0, 1)[None]  # (1, d, old rows, old columns)
    image = F.interpolate(image, size=tuple(new), mode="bicubic", align_corners=False)
    resized = image[0].permute(1, 2, 0).flatten(0, 1).to(table.dtype)
    return torch.cat([kept, resized])


def _fit(
    shown: Callable[[Tensor, tuple, tuple], Tensor] | None = None,
    back: Callable[[Tensor], Tensor] | None = None,
    skip: Callable[[tuple, tuple], bool] = lambda old, new: tuple(old) == tuple(new),
    target: Callable[[tuple], tuple] = tuple,
    wide: torch.dtype = torch.float64,
    **how,
) -> Callable:
    """The same with one step replaced."""
    how = {"mode": "bicubic", "align_corners": False} | how

    def fit(table: Tensor, old: tuple, new: tuple, reserved: int) -> Tensor:
        if skip(old, new):
            return table
        rows = table[reserved:].to(wide)
        image = shown(rows, old, new) if shown else rows.view(*old, -1).permute(2, 0, 1)[None]
        image = F.interpolate(image, size=target(new), **how)
        flat = back(image) if back else image[0].permute(1, 2, 0).flatten(0, 1)
        return torch.cat([table[:reserved], flat.to(table.dtype)])

    return fit


def _guessed_square(rows: Tensor, old: tuple, new: tuple) -> Tensor:
    side = int(len(rows) ** 0.5)
    return rows.view(side, side, -1).permute(2, 0, 1)[None]


def _prefix_stretched_along(table: Tensor, old: tuple, new: tuple, reserved: int) -> Tensor:
    if tuple(old) == tuple(new):
        return table
    n = reserved + new[0] * new[1]
    line = F.interpolate(table.double().T[None, :, :, None], size=(n, 1), mode="bicubic", align_corners=False)
    return line[0, ..., 0].T.to(table.dtype)


def _prefix_at_the_end(table: Tensor, old: tuple, new: tuple, reserved: int) -> Tensor:
    fitted = fit_to_grid(table, old, new, reserved)
    return torch.cat([fitted[reserved:], fitted[:reserved]])


def _separately(table: Tensor, old: tuple, new: tuple, reserved: int) -> Tensor:
    """One axis after the other, in float32 or float64."""
    if tuple(old) == tuple(new):
        return table.clone()
    wide = torch.promote_types(table.dtype, torch.float32)
    image = table[reserved:].to(wide).reshape(old[0], old[1], -1).permute(2, 0, 1).unsqueeze(0)
    image = F.interpolate(image, size=(new[0], old[1]), mode="bicubic")
    image = F.interpolate(image, size=(new[0], new[1]), mode="bicubic")
    return torch.cat([table[:reserved], image.squeeze(0).flatten(1).T.to(table.dtype)])


def _fit_case(
    name: str, old: tuple[int, int], new: tuple[int, int], reserved: int, dtype=torch.float32, scale: float = 1.0
) -> Case:
    return drawn(name, lambda g: ((scale * normal(g, reserved + old[0] * old[1], 6)).to(dtype), old, new, reserved))


FIT_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def _keeps_the_reserved(answer: Callable, g: Generator) -> Complaint:
    for dtype in FIT_DTYPES:
        table = normal(g, 2 + 12, 5).to(dtype)
        got = answer(table.clone(), (3, 4), (5, 2), 2)
        if not isinstance(got, Tensor) or got.shape != (12, 5):
            return "expected a tensor of shape (12, 5) for 2 reserved vectors and 5 rows of 2 columns"
        if not torch.equal(got[:2], table[:2]):
            return f"{dtype}: the reserved vectors should come through bit by bit"
    return None


def _same_grid_same_table(answer: Callable, g: Generator) -> Complaint:
    for dtype in FIT_DTYPES:
        table = normal(g, 1 + 12, 5).to(dtype)
        got = answer(table.clone(), (3, 4), (3, 4), 1)
        if not isinstance(got, Tensor) or got.shape != table.shape or not torch.equal(got, table):
            return f"{dtype}: for the same grid the table should come back bit by bit"
    return None


def _keeps_fit_dtypes(answer: Callable, g: Generator) -> Complaint:
    table = normal(g, 1 + 12, 5)
    tried = ((dtype, new) for dtype in FIT_DTYPES for new in ((4, 6), (3, 4)))
    complaints = (dtype_complaint(answer(table.to(dtype), (3, 4), new, 1), dtype) for dtype, new in tried)
    return next((c for c in complaints if c), None)


def _stays_in_float64(answer: Callable, g: Generator) -> Complaint:
    table = normal(g, 1 + 16, 8)
    got, wanted = answer(table.clone(), (4, 4), (6, 5), 1), fit_to_grid(table, (4, 4), (6, 5), 1)
    if not isinstance(got, Tensor) or got.shape != wanted.shape:
        return f"expected a tensor of shape {tuple(wanted.shape)} for a table in float64"
    gap = (got - wanted).abs().max().item()
    return None if gap < 1e-12 else f"a float64 table comes out off by {gap:.1g}: it lost digits on the way"


def _rounds_once(answer: Callable, g: Generator) -> Complaint:
    for dtype in (torch.bfloat16, torch.float16):
        table = normal(g, 1 + 16, 64).to(dtype)
        got = answer(table.clone(), (4, 4), (6, 5), 1)
        wanted = fit_to_grid(table, (4, 4), (6, 5), 1)
        if not isinstance(got, Tensor) or got.shape != wanted.shape:
            return f"expected a tensor of shape {tuple(wanted.shape)} for a table in {dtype}"
        other = (got != wanted).double().mean().item()
        if other > 0.05:  # float32 and float64 part in about one number of a thousand
            return f"{dtype}: {other:.0%} of the numbers are not those of a wider computation, rounded once"
    return None


FIT_TO_GRID = Exercise(
    chapter=10,
    title="Fit a checkpoint's table to a new grid",
    points=4,
    minutes=18,
    difficulty=4,
    reference=fit_to_grid,
    cases=(
        _fit_case("a class token, 4 by 4 to 6 by 6", (4, 4), (6, 6), 1),
        _fit_case("nothing reserved, 5 by 5 to 3 by 3", (5, 5), (3, 3), 0),
        _fit_case("from a square to 3 by 8", (4, 4), (3, 8), 1),
        _fit_case("as many patches, 4 by 4 to 2 by 8", (4, 4), (2, 8), 1),
        _fit_case("turned, 3 by 4 to 4 by 3", (3, 4), (4, 3), 0),
        _fit_case("from 2 by 7, with four reserved", (2, 7), (5, 5), 4),
        _fit_case("to one row", (4, 4), (1, 5), 1),
        _fit_case("float64", (4, 4), (6, 5), 2, torch.float64),
        _fit_case("float64, numbers too large for float32", (4, 4), (5, 6), 1, torch.float64, scale=1e60),
    ),
    properties=(
        Property("the reserved vectors are kept", _keeps_the_reserved),
        Property("the same grid leaves the table as it is", _same_grid_same_table),
        Property("keeps the dtype", _keeps_fit_dtypes),
        Property("a float64 table is computed in float64", _stays_in_float64),
        Property("half precision is rounded once, at the end", _rounds_once),
    ),
    mistakes=(
        Mistake(
            "returned as it was if the number of patches is the same",
            _fit(skip=lambda old, new: old[0] * old[1] == new[0] * new[1]),
            "4 by 4 and 2 by 8 both have 16 patches. The number of patches does not tell the grid.",
        ),
        Mistake(
            "the old grid guessed from its size",
            _fit(shown=_guessed_square),
            "You take the root of the number of rows. The old grid is given: it need not be square.",
        ),
        Mistake(
            "rows and columns of the old grid exchanged",
            _fit(shown=lambda rows, old, new: rows.view(old[1], old[0], -1).permute(2, 0, 1)[None]),
            "`view` fills row by row: the number of rows comes first.",
        ),
        Mistake(
            "rows and columns of the new grid exchanged",
            _fit(target=lambda new: (new[1], new[0])),
            "`size` takes rows first, then columns, as the grid does.",
        ),
        Mistake(
            "features taken for places",
            _fit(
                shown=lambda rows, old, new: rows.reshape(1, -1, *old),
                back=lambda image: image.flatten(2)[0].T,
            ),
            "`view` to (d, rows, columns) mixes features and places. Make it (rows, columns, d), then move the axis.",
        ),
        Mistake(
            "features back in the wrong place",
            _fit(back=lambda image: image.reshape(-1, image.shape[1])),
            "After the interpolation d stands before the places. Move it to the end before you flatten.",
        ),
        Mistake("corners kept", _fit(align_corners=True), "Here cells are areas: `align_corners=False`."),
        Mistake("bilinear", _fit(mode="bilinear"), "The statement asks for bicubic."),
        Mistake(
            "antialiased",
            _fit(antialias=True),
            "timm does that by default, ViT in transformers does not. The statement asks for no antialiasing.",
        ),
        Mistake(
            "one line of all rows",
            _prefix_stretched_along,
            "You stretch the table as one line, the reserved vectors too. It is a grid, and they are not in it.",
        ),
        Mistake(
            "the reserved vectors at the end",
            _prefix_at_the_end,
            "The reserved vectors belong in front.",
        ),
        Mistake(
            "float64 sent through float32",
            lambda table, old, new, reserved: fit_to_grid(table.float(), old, new, reserved).to(table.dtype),
            "Half precision has to be widened. What does your `float()` do to a table in float64?",
        ),
        Mistake(
            "only the patches sent through float32",
            _fit(wide=torch.float32),
            "Half precision has to be widened. What does your `float()` do to patches in float64?",
        ),
    ),
    also_right=(_separately, lambda table, old, new, reserved: _fit()(table, list(old), list(new), reserved)),
    learned="A checkpoint stores a flat table. Its grid is not in it, so both grids must be passed on: a root "
    "is a guess.",
)

# --- 10.5 shift_error


def shift_error(encode: Callable[[Tensor], Tensor], rows: int, columns: int, down: int, right: int) -> float:
    places = grid(rows, columns)
    moved = places + torch.tensor([[down], [right]])
    before, after = encode(places), encode(moved)
    return (after @ after.mT - before @ before.mT).abs().max().item()


def _shift_error_by_loop(encode: Callable, rows: int, columns: int, down: int, right: int) -> float:
    at = [(r, c) for r in range(rows) for c in range(columns)]
    before = encode(torch.tensor(at).T)
    after = encode(torch.tensor([(r + down, c + right) for r, c in at]).T)
    return max(abs(float(after[i] @ after[j] - before[i] @ before[j])) for i in range(len(at)) for j in range(len(at)))


def _with_shift(change: Callable[[Tensor, Tensor, int, int], Tensor], of=lambda v: v @ v.mT, norm=None) -> Callable:
    norm = norm or (lambda gap: gap.abs().max().item())

    def shift_error(encode: Callable, rows: int, columns: int, down: int, right: int) -> float:
        places = grid(rows, columns)
        moved = change(places, torch.tensor([[down], [right]]), rows, columns)
        return norm(of(encode(moved)) - of(encode(places)))

    return shift_error


def _sin_cos(places: Tensor) -> Tensor:
    return sinusoids_2d(places, 8).double()


def _raw(places: Tensor) -> Tensor:
    """Row and column numbers themselves, a tenth each, and their product."""
    rows, columns = places.double() / 10
    return torch.stack([rows, columns**2, rows * columns], dim=-1)


def _ring(places: Tensor) -> Tensor:
    """A torus of 4 rows and 6 columns: the same after a full round."""
    angles = 2 * torch.pi * places.double() / torch.tensor([[4.0], [6.0]])
    return torch.cat([angles.cos(), angles.sin(), (angles.sum(0, keepdim=True) / 2).cos()]).T


def _rows_alone(places: Tensor) -> Tensor:
    """Only the row counts, and not as an offset."""
    return torch.stack([places[0].double() ** 2 / 10, torch.ones(places.shape[1], dtype=torch.float64)], dim=-1)


def _columns_alone(places: Tensor) -> Tensor:
    return _rows_alone(places.flip(0))


def _passed(encode: Callable, above: bool) -> Callable[[Callable, Generator], Complaint]:
    def test(answer: Callable, _: Generator) -> Complaint:
        error = float(answer(encode, 4, 6, 2, 3))
        if above:
            return None if error > 0.05 else f"your test is blind: it finds {error:.2g} where the products change"
        return None if error < 1e-4 else f"it finds {error:.2g} where no product changes"

    return test


SHIFT_ERROR = Exercise(
    chapter=10,
    title="A translation test for grids",
    points=3,
    minutes=12,
    difficulty=3,
    reference=shift_error,
    cases=(
        with_arguments("coordinates as they are", _raw, 3, 5, 2, 1),
        with_arguments("coordinates, shifted up and left", _raw, 4, 4, -1, -3),
        with_arguments("a torus", _ring, 4, 6, 1, 2),
        with_arguments("only the rows count", _rows_alone, 3, 4, 0, 2),
        with_arguments("only the rows count, shifted down", _rows_alone, 3, 4, 2, 0),
        with_arguments("only the columns count", _columns_alone, 3, 4, 1, 0),
        with_arguments("one patch", _raw, 1, 1, 5, 2),
    ),
    properties=(
        Property("passes 2-D sin-cos", _passed(_sin_cos, above=False)),
        Property("negative control: fails coordinates as they are", _passed(_raw, above=True)),
    ),
    mistakes=(
        Mistake(
            "the vectors compared",
            _with_shift(lambda places, by, r, c: places + by, of=lambda v: v),
            "The vectors do change. The question is whether their dot products do.",
        ),
        Mistake(
            "rows and columns exchanged",
            _with_shift(lambda places, by, r, c: places + by.flip(0)),
            "Row numbers come first in the places, and rows go down.",
        ),
        Mistake(
            "both shifted alike",
            _with_shift(lambda places, by, r, c: places + by[0]),
            "You add `down` to the columns as well. One number for each coordinate: shape (2, 1).",
        ),
        Mistake(
            "only the rows shifted",
            _with_shift(lambda places, by, r, c: places + by * torch.tensor([[1], [0]])),
            "The columns must move as well.",
        ),
        Mistake(
            "shifted up and left",
            _with_shift(lambda places, by, r, c: places - by),
            "Further down is a larger row number, further right a larger column number.",
        ),
        Mistake(
            "held back at the edge",
            _with_shift(lambda places, by, r, c: torch.minimum(places + by, torch.tensor([[r - 1], [c - 1]]))),
            "You keep the places inside the grid. They may leave it: `encode` takes any whole numbers.",
        ),
        Mistake(
            "rows and columns of the grid exchanged",
            lambda encode, rows, columns, down, right: shift_error(encode, columns, rows, down, right),
            "`grid` takes the number of rows first.",
        ),
        Mistake(
            "a patch with itself left out",
            _with_shift(
                lambda places, by, r, c: places + by, of=lambda v: (v @ v.mT) * (1 - torch.eye(len(v), dtype=v.dtype))
            ),
            "The product of a patch's vector with itself counts as well.",
        ),
        Mistake(
            "rolled round the edge",
            _with_shift(lambda places, by, r, c: (places + by) % torch.tensor([[r], [c]])),
            "What leaves on one side comes back on the other: that is a roll, and offsets change in it.",
        ),
        Mistake(
            "each patch with itself",
            _with_shift(lambda places, by, r, c: places + by, of=lambda v: v.square().sum(-1)),
            "You compare lengths. Take the products of *all* pairs.",
        ),
        Mistake(
            "products of before and after",
            lambda encode, rows, columns, down, right: (
                (
                    encode(grid(rows, columns) + torch.tensor([[down], [right]])) @ encode(grid(rows, columns)).mT
                    - encode(grid(rows, columns)) @ encode(grid(rows, columns)).mT
                )
                .abs()
                .max()
                .item()
            ),
            "Both patches of a pair move. You move one of them.",
        ),
        Mistake(
            "the mean instead of the worst",
            _with_shift(lambda places, by, r, c: places + by, norm=lambda gap: gap.abs().mean().item()),
            "A mean hides a few wrong pairs among many right ones. Take the largest difference.",
        ),
        Mistake(
            "no absolute value",
            _with_shift(lambda places, by, r, c: places + by, norm=lambda gap: gap.max().item()),
            "Products that get smaller are changes, too.",
        ),
    ),
    also_right=(_shift_error_by_loop, lambda *arguments: torch.tensor(shift_error(*arguments))),
    learned="A symmetry test needs the right move (shift, not roll), the right thing to compare (all pairs), and a "
    "case in which it fails.",
)

# --- 10.6 tables_for


def tables_for(sizes: Sequence[tuple[int, int]], compute: Callable[[int, int], Tensor]) -> list[Tensor]:
    cache: dict[tuple[int, int], Tensor] = {}
    for rows, columns in sizes:
        if (rows, columns) not in cache:
            cache[rows, columns] = compute(rows, columns)
    return [cache[rows, columns] for rows, columns in sizes]


def _keyed(key: Callable[[int, int], object]) -> Callable:
    def tables_for(sizes: Sequence[tuple[int, int]], compute: Callable[[int, int], Tensor]) -> list[Tensor]:
        cache: dict = {}
        tables = []
        for rows, columns in sizes:
            if key(rows, columns) not in cache:
                cache[key(rows, columns)] = compute(rows, columns)
            tables.append(cache[key(rows, columns)])
        return tables

    return tables_for


def _only_the_last(sizes: Sequence[tuple[int, int]], compute: Callable[[int, int], Tensor]) -> list[Tensor]:
    last, table, tables = None, None, []
    for size in sizes:
        if size != last:
            last, table = size, compute(*size)
        tables.append(table)
    return tables


def _by_lru_cache(sizes: Sequence[tuple[int, int]], compute: Callable[[int, int], Tensor]) -> list[Tensor]:
    from functools import lru_cache

    kept = lru_cache(maxsize=None)(compute)
    return [kept(*size) for size in sizes]


def _number_cells(rows: int, columns: int) -> Tensor:
    """Something that tells every grid from every other: (rows * columns, 2)."""
    return grid(rows, columns).T.double() + columns / 100


def _other_cells(rows: int, columns: int) -> Tensor:
    return -_number_cells(rows, columns)


def _the_nth_call() -> Callable[[int, int], Tensor]:
    """A `compute` whose tables hold the number of the call."""
    calls = []

    def compute(rows: int, columns: int) -> Tensor:
        calls.append((rows, columns))
        return torch.full((rows * columns, 1), float(len(calls)))

    return compute


def _outlives_the_call() -> Callable:
    cache: dict[tuple[int, int], Tensor] = {}

    def tables_for(sizes: Sequence[tuple[int, int]], compute: Callable[[int, int], Tensor]) -> list[Tensor]:
        for rows, columns in sizes:
            if (rows, columns) not in cache:
                cache[rows, columns] = compute(rows, columns)
        return [cache[rows, columns] for rows, columns in sizes]

    return tables_for


def _computes_once(answer: Callable, _: Generator) -> Complaint:
    asked: list[tuple[int, int]] = []

    def compute(rows: int, columns: int) -> Tensor:
        asked.append((int(rows), int(columns)))
        return _number_cells(rows, columns)

    sizes = [(14, 14), (7, 28), (14, 14), (28, 7), (7, 28), (14, 14)]
    answer(list(sizes), compute)
    for size in dict.fromkeys(sizes):
        if asked.count(size) != 1:
            rows, columns = size
            return f"{rows} by {columns} was computed {asked.count(size)} times; it occurs {sizes.count(size)} times"
    return None


def _forgets_between_calls(answer: Callable, _: Generator) -> Complaint:
    first = answer([(2, 3)], lambda rows, columns: torch.zeros(rows * columns, 1))
    second = answer([(2, 3)], lambda rows, columns: torch.ones(rows * columns, 1))
    if float(first[0].sum()) != 0:
        return "the first call did not return what `compute` gave"
    return None if float(second[0].sum()) == 6 else "the second call returned tables of the first one's `compute`"


TABLES_FOR = Exercise(
    chapter=10,
    title="The cache that mistook 7 by 28 for 14 by 14",
    points=3,
    minutes=10,
    difficulty=2,
    reference=tables_for,
    cases=(
        with_arguments("one size, twice", [(3, 4), (3, 4)], _number_cells),
        with_arguments("14 by 14, then 7 by 28", [(14, 14), (7, 28)], _number_cells),
        with_arguments("7 by 28, then 28 by 7", [(7, 28), (28, 7)], _number_cells),
        with_arguments("1 by 11, then 11 by 1", [(1, 11), (11, 1)], _number_cells),
        with_arguments("2 by 11, then 21 by 1", [(2, 11), (21, 1)], _number_cells),
        with_arguments("as many rows", [(4, 2), (4, 5), (4, 2)], _number_cells),
        with_arguments("as many columns", [(2, 4), (5, 4), (2, 4)], _number_cells),
        with_arguments("as long a way round", [(2, 6), (3, 5)], _number_cells),
        with_arguments("14 by 14, then 7 by 7", [(14, 14), (7, 7)], _number_cells),
        with_arguments("1 by 1001, then 2 by 1", [(1, 1001), (2, 1)], _number_cells),
        drawn("one size, three times: one table", lambda _: ([(2, 5)] * 3, _the_nth_call())),
        with_arguments("a size from above, with another `compute`", [(3, 4)], _other_cells),
    ),
    properties=(
        Property("computes each grid once", _computes_once),
        Property("a new call starts with an empty cache", _forgets_between_calls),
    ),
    mistakes=(
        Mistake(
            "the number of patches as the key",
            _keyed(lambda rows, columns: rows * columns),
            "That is the code that you were given. Which two grids of the first cases have equally many patches?",
        ),
        Mistake(
            "an unordered pair as the key",
            _keyed(lambda rows, columns: tuple(sorted((rows, columns)))),
            "7 by 28 and 28 by 7 get one table: your key does not tell which number is which.",
        ),
        Mistake(
            "digits glued together",
            _keyed(lambda rows, columns: f"{rows}{columns}"),
            "What is your key for 1 by 11, and what for 11 by 1?",
        ),
        Mistake(
            "the sides' ratio as the key",
            _keyed(lambda rows, columns: rows / columns),
            "14 by 14 and 7 by 7 have the same shape at two sizes.",
        ),
        Mistake(
            "a thousand times the rows, plus the columns",
            _keyed(lambda rows, columns: 1000 * rows + columns),
            "A panorama may have more than a thousand columns. What is your key for 1 by 1001?",
        ),
        Mistake(
            "a cache that outlives the call",
            _outlives_the_call(),
            "Another call may bring another `compute`. Where does your cache begin to exist?",
        ),
        Mistake("the rows as the key", _keyed(lambda rows, columns: rows), "4 by 2 and 4 by 5 have the same rows."),
        Mistake(
            "the columns as the key", _keyed(lambda rows, columns: columns), "2 by 4 and 5 by 4 have the same columns."
        ),
        Mistake(
            "the sum as the key", _keyed(lambda rows, columns: rows + columns), "2 by 6 and 3 by 5 have the same sum."
        ),
        Mistake(
            "nothing kept",
            lambda sizes, compute: [compute(*size) for size in sizes],
            "Each table is right, but some are made more than once. Keep those that you have.",
        ),
    ),
    also_right=(
        _by_lru_cache,
        _keyed(lambda rows, columns: f"{rows}x{columns}"),
        _keyed(lambda rows, columns: rows * 1_000_000 + columns),
    ),
    learned="A cache's key must hold all that the result depends on. Equal shapes hide the mistake: 14 by 14 and 7 by "
    "28 have 196 vectors each.",
)

# --- 10.7 additive_share


def additive_share(table: Tensor) -> float:
    table = table.double()
    mean = table.mean(dim=(0, 1))
    rows, columns = table.mean(dim=1, keepdim=True), table.mean(dim=0, keepdim=True)
    rest = table - (rows + columns - mean)
    return 1 - (rest.square().sum() / (table - mean).square().sum()).item()


def _additive_by_least_squares(table: Tensor) -> float:
    rows, columns, _ = table.shape
    places = grid(rows, columns)
    one_hot = torch.cat([F.one_hot(places[0], rows), F.one_hot(places[1], columns)], dim=1).double()
    flat = table.double().flatten(0, 1)
    fitted = one_hot @ (torch.linalg.pinv(one_hot) @ flat)
    return 1 - ((flat - fitted).square().sum() / (flat - flat.mean(0)).square().sum()).item()


def _additive_by_squares(table: Tensor) -> Tensor:
    t = table.double() - table.double().mean(dim=(0, 1))
    explained = t.mean(1).square().sum() * t.shape[1] + t.mean(0).square().sum() * t.shape[0]
    return explained / t.square().sum()


def _share(fit: Callable[[Tensor], Tensor], centre: bool = True) -> Callable[[Tensor], float]:
    def additive_share(table: Tensor) -> float:
        table = table.double()
        about = table.mean(dim=(0, 1)) if centre else 0
        return 1 - ((table - fit(table)).square().sum() / (table - about).square().sum()).item()

    return additive_share


def _one_number_for_the_mean(table: Tensor) -> float:
    table = table.double()
    rest = table - table.mean(dim=1, keepdim=True) - table.mean(dim=0, keepdim=True) + table.mean()
    return 1 - (rest.square().sum() / (table - table.mean()).square().sum()).item()


def _parts(table: Tensor) -> tuple[Tensor, Tensor]:
    """What row plus column leaves over, and the table without its mean."""
    table = table.double()
    centred = table - table.mean(dim=(0, 1))
    return centred - centred.mean(dim=1, keepdim=True) - centred.mean(dim=0, keepdim=True), centred


def _norms_without_squares(table: Tensor) -> float:
    rest, centred = _parts(table)
    return 1 - (rest.norm(dim=-1).sum() / centred.norm(dim=-1).sum()).item()


def _mean_of_shares(table: Tensor) -> float:
    rest, centred = _parts(table)
    return (1 - rest.square().sum(dim=(0, 1)) / centred.square().sum(dim=(0, 1))).mean().item()


def _outer(g: Generator, rows: int, columns: int, d: int, noise: float, dtype=torch.float64) -> tuple[Tensor]:
    """Row plus column plus noise, with a large mean."""
    exact = normal(g, rows, 1, d) + normal(g, 1, columns, d) + 3
    return ((exact + noise * normal(g, rows, columns, d)).to(dtype),)


def _all_of_row_and_column(answer: Callable, g: Generator) -> Complaint:
    share = float(answer(_outer(g, 5, 3, 4, 0)[0]))
    return None if abs(share - 1) < 1e-6 else f"a table that is row plus column should give 1, got {share:.4g}"


def _mean_changes_nothing(answer: Callable, g: Generator) -> Complaint:
    table = _outer(g, 4, 6, 3, 1.0)[0]
    shares = [float(answer(t)) for t in (table, table + 50)]
    same = abs(shares[0] - shares[1]) < 1e-4
    return None if same else f"adding 50 to every number changes the share from {shares[0]:.4g} to {shares[1]:.4g}"


ADDITIVE_SHARE = Exercise(
    chapter=10,
    title="How much of a table is row plus column?",
    points=3,
    minutes=15,
    difficulty=3,
    reference=additive_share,
    cases=(
        drawn("row plus column, and a little noise", lambda g: _outer(g, 4, 4, 8, 0.3)),
        drawn("3 by 7, more noise", lambda g: _outer(g, 3, 7, 5, 1.5)),
        drawn("noise alone", lambda g: (normal(g, 6, 4, 3),)),
        drawn("one row", lambda g: (normal(g, 1, 5, 3),)),
        drawn("one feature", lambda g: (normal(g, 4, 5, 1),)),
        drawn("float32", lambda g: _outer(g, 5, 4, 6, 0.5, torch.float32)),
    ),
    properties=(
        Property("1 for row plus column", _all_of_row_and_column),
        Property("a common mean changes nothing", _mean_changes_nothing),
    ),
    mistakes=(
        Mistake(
            "the mean counted twice",
            _share(lambda t: t.mean(dim=1, keepdim=True) + t.mean(dim=0, keepdim=True)),
            "A row's mean holds the mean of all, and so does a column's. Their sum holds it twice.",
        ),
        Mistake(
            "compared with the squares about zero",
            _share(
                lambda t: t.mean(dim=1, keepdim=True) + t.mean(dim=0, keepdim=True) - t.mean(dim=(0, 1)), centre=False
            ),
            "The common mean belongs to nothing. Take it away from the table before you square.",
        ),
        Mistake(
            "rows alone", _share(lambda t: t.mean(dim=1, keepdim=True).expand_as(t)), "The columns explain a part, too."
        ),
        Mistake(
            "columns alone", _share(lambda t: t.mean(dim=0, keepdim=True).expand_as(t)), "The rows explain a part, too."
        ),
        Mistake(
            "the mean over the features as well",
            lambda table: (
                1
                - (
                    (table - table.mean(dim=1, keepdim=True) - table.mean(dim=0, keepdim=True) + table.mean(dim=(0, 1)))
                    .square()
                    .sum()
                    / (table - table.mean()).square().sum()
                ).item()
            ),
            "Below the line, the mean is a vector: one number for each feature. You took one number for all.",
        ),
        Mistake(
            "one number for the mean, throughout",
            _one_number_for_the_mean,
            "The mean is a vector: one number for each feature. You took one number for all, above and below the line.",
        ),
        Mistake(
            "lengths added up, not their squares",
            _norms_without_squares,
            "The formula adds up squared lengths. You add up lengths.",
        ),
        Mistake(
            "the mean of the features' shares",
            _mean_of_shares,
            "You divide for each feature, then average. The formula adds up over all features, then divides once.",
        ),
        Mistake(
            "what is left over", lambda table: 1 - additive_share(table), "That is the part which is *not* explained."
        ),
        Mistake(
            "a share of lengths, not of squares",
            lambda table: 1 - (1 - additive_share(table)) ** 0.5,
            "Squares add up, lengths do not. Leave out the root.",
        ),
    ),
    also_right=(_additive_by_least_squares, _additive_by_squares),
    learned="Pure noise has a share too, (rows + columns - 2) of (rows · columns - 1) on average. Know that number "
    "before you find structure in a small table.",
)

EXERCISES = (
    SNAKE,
    MAE_TABLE,
    WHAT_THE_DOT_PRODUCTS_KEEP,
    FIT_TO_GRID,
    SHIFT_ERROR,
    TABLES_FOR,
    ADDITIVE_SHARE,
)
