"""Exercises of chapter 11: relative and rotary in two dimensions."""

from collections.abc import Callable, Sequence
from itertools import product

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from posenc.absolute import frequencies as speeds_of
from posenc.checks.common import all_but, compare_scores, dtype_complaint, right_predictions
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.rotary import turn, turn_halves
from posenc.rotary_grid import axial_vectors, centred, grid_angles, mrope_positions
from posenc.vision import grid, patches
from posenc.windows import resize_bias, rolled_mask, window_index

# --- 11.1 swin_index


def swin_index(rows: int, columns: int) -> Tensor:
    return window_index(rows, columns)


def _index_by_loops(rows: int, columns: int) -> list:
    window = list(product(range(rows), range(columns)))
    return [[(r - s + rows - 1) * (2 * columns - 1) + c - d + columns - 1 for s, d in window] for r, c in window]


def _index_as_published(rows: int, columns: int) -> Tensor:
    at = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")).flatten(1)
    relative = (at[:, :, None] - at[:, None, :]).permute(1, 2, 0).contiguous()
    relative[:, :, 0] += rows - 1
    relative[:, :, 1] += columns - 1
    relative[:, :, 0] *= 2 * columns - 1
    return relative.sum(-1)


def _index(count: Callable[[Tensor, Tensor, int, int], Tensor], order: str = "rows") -> Callable[[int, int], Tensor]:
    """A wrong index: count(down, across, rows, columns) of the offsets, query minus key."""

    def wrong(rows: int, columns: int) -> Tensor:
        at = grid(rows, columns) if order == "rows" else grid(columns, rows).flip(0)
        down, across = at.unsqueeze(-1) - at.unsqueeze(-2)
        return count(down, across, rows, columns)

    return wrong


SWIN_INDEX = Exercise(
    chapter=11,
    title="Swin's index",
    points=2,
    minutes=8,
    difficulty=2,
    reference=swin_index,
    cases=(
        with_arguments("2 by 2", 2, 2),
        with_arguments("2 by 3", 2, 3),
        with_arguments("4 by 1", 4, 1),
        with_arguments("1 by 5", 1, 5),
        with_arguments("one patch", 1, 1),
        with_arguments("7 by 7, Swin's own", 7, 7),
        with_arguments("5 by 2", 5, 2),
    ),
    mistakes=(
        Mistake(
            "the factor of the rows",
            _index(lambda d, a, h, w: (d + h - 1) * (2 * h - 1) + a + w - 1),
            "Right for square windows. How many different column offsets does a step down have to jump over?",
        ),
        Mistake(
            "key minus query",
            _index(lambda d, a, h, w: (h - 1 - d) * (2 * w - 1) + w - 1 - a),
            "Your table is read backwards: Swin counts query minus key, and the query is the row of the result.",
        ),
        Mistake(
            "the shifts exchanged",
            _index(lambda d, a, h, w: (d + w - 1) * (2 * w - 1) + a + h - 1),
            "Right for square windows. Which of the two offsets needs which shift to start at 0?",
        ),
        Mistake(
            "columns counted first",
            _index(lambda d, a, h, w: (a + w - 1) * (2 * h - 1) + d + h - 1),
            "Your table runs column by column. Swin's runs row by row: two neighbouring entries differ by one column.",
        ),
        Mistake(
            "the window read column by column",
            _index(lambda d, a, h, w: (d + h - 1) * (2 * w - 1) + a + w - 1, order="columns"),
            "The entries are right, the patches stand in another order. They are numbered row by row.",
        ),
        Mistake(
            "not shifted",
            _index(lambda d, a, h, w: d * (2 * w - 1) + a),
            "You have negative entries. Both offsets have to start at 0 before they are counted.",
        ),
        Mistake(
            "the factor of one side",
            _index(lambda d, a, h, w: (d + h - 1) * w + a + w - 1),
            "Different offsets share an entry. How many different column offsets are there?",
        ),
    ),
    also_right=(_index_by_loops, _index_as_published),
    learned="A flat index over two offsets is an ordinary row-by-row index. The factor is the length of one row of the "
    "table, 2w - 1.",
)

# --- 11.2 centred_places


def centred_places(rows: int, columns: int, prefix: int) -> Tensor:
    return torch.cat([torch.zeros(2, prefix, dtype=torch.float64), centred(rows, columns)], dim=1)


def _centred_by_loops(rows: int, columns: int, prefix: int) -> list:
    at = [((2 * r + 1) / rows - 1, (2 * c + 1) / columns - 1) for r in range(rows) for c in range(columns)]
    return [[0.0] * prefix + [place[axis] for place in at] for axis in (0, 1)]


def _centred_in_float32(rows: int, columns: int, prefix: int) -> Tensor:
    axes = [2 * (torch.arange(0.5, n) / n) - 1 for n in (rows, columns)]
    return F.pad(torch.stack(torch.meshgrid(*axes, indexing="ij")).flatten(1), (prefix, 0))


def _centred(axis: Callable[[Tensor, int, int], Tensor], front: bool = True) -> Callable[[int, int, int], Tensor]:
    """Wrong places: axis(whole numbers, n of this axis, n of the other axis)."""

    def wrong(rows: int, columns: int, prefix: int) -> Tensor:
        at = grid(rows, columns).double()
        made = torch.stack([axis(at[0], rows, columns), axis(at[1], columns, rows)])
        nowhere = torch.zeros(2, prefix, dtype=torch.float64)
        return torch.cat([nowhere, made] if front else [made, nowhere], dim=1)

    return wrong


CENTRED_PLACES = Exercise(
    chapter=11,
    title="Places between -1 and 1",
    points=2,
    minutes=8,
    difficulty=2,
    reference=centred_places,
    cases=(
        with_arguments("2 by 2", 2, 2, 0),
        with_arguments("4 by 4, a class token", 4, 4, 1),
        with_arguments("3 by 5, class and four registers", 3, 5, 5),
        with_arguments("one row", 1, 6, 1),
        with_arguments("one patch", 1, 1, 2),
        with_arguments("16 by 9", 16, 9, 0),
    ),
    mistakes=(
        Mistake(
            "edges in place of centres",
            _centred(lambda at, n, _: 2 * at / n - 1),
            "Your first patch lies at -1: that is its edge. Where is its centre?",
        ),
        Mistake(
            "first on -1, last on 1",
            _centred(lambda at, n, _: 2 * at / max(n - 1, 1) - 1),
            "You stretch the first centre to -1 and the last to 1. It is the picture's *edges* that lie there.",
        ),
        Mistake(
            "the sides exchanged",
            _centred(lambda at, _, other: 2 * (at + 0.5) / other - 1),
            "Right for square grids. Which side does a row number have to be divided by?",
        ),
        Mistake(
            "one scale for both axes",
            _centred(lambda at, n, other: 2 * (at + 0.5) / max(n, other) - 1),
            "You keep the aspect ratio. DINOv3 does not: each axis goes from -1 to 1 by itself.",
        ),
        Mistake(
            "between 0 and 1",
            _centred(lambda at, n, _: (at + 0.5) / n),
            "The centres are right, on a scale from 0 to 1. It should be -1 to 1.",
        ),
        Mistake(
            "the prefix at the end",
            _centred(lambda at, n, _: 2 * (at + 0.5) / n - 1, front=False),
            "Class token and registers stand *before* the patches.",
        ),
        Mistake(
            "the prefix in the corner",
            lambda rows, columns, prefix: torch.cat(
                [torch.full((2, prefix), -1.0, dtype=torch.float64), centred(rows, columns)], dim=1
            ),
            "An unturned token has the angle 0 in every pair. Which place has that?",
        ),
        Mistake(
            "columns before rows",
            lambda rows, columns, prefix: centred_places(rows, columns, prefix).flip(0),
            "Both axes are right, in the other order. Which comes first in this book?",
        ),
        Mistake(
            "times two pi",
            lambda rows, columns, prefix: 2 * torch.pi * centred_places(rows, columns, prefix),
            "You made angles of the places. Here the places themselves are asked for, from -1 to 1.",
        ),
        Mistake(
            "no prefix",
            lambda rows, columns, prefix: centred(rows, columns),
            "The patches are right. Class token and registers need places as well.",
        ),
        Mistake(
            "one token before the patches",
            lambda rows, columns, prefix: centred_places(rows, columns, 1),
            "You always put one token in front. How many are there?",
        ),
    ),
    also_right=(_centred_by_loops, _centred_in_float32),
    learned="Normalised places know the picture's frame, not its size. Tokens that are not turned sit in its middle.",
)

# --- 11.3 shifted_window_mask


def shifted_window_mask(rows: int, columns: int, side: int, shift: int) -> Tensor:
    return rolled_mask(rows, columns, side, shift)


def _mask_by_regions(rows: int, columns: int, side: int, shift: int) -> Tensor:
    """As in the published code: three regions an axis, of the picture that has been rolled."""
    region = torch.zeros(rows, columns)
    if shift:
        number = 0
        cuts = (slice(0, -side), slice(-side, -shift), slice(-shift, None))
        for down in cuts:
            for across in cuts:
                region[down, across] = number
                number += 1
    windows = patches(region, side)
    return windows[:, None, :] == windows[:, :, None]


def _mask_by_loops(rows: int, columns: int, side: int, shift: int) -> Tensor:
    windows = []
    for top, left in product(range(0, rows, side), range(0, columns, side)):
        inside = [((top + r + shift) % rows, (left + c + shift) % columns) for r in range(side) for c in range(side)]
        named = [tuple((p + side - shift) // side for p in place) for place in inside]
        windows.append([[a == b for b in named] for a in named])
    return torch.tensor(windows)


def _mask_of(name: Callable[[Tensor, Tensor, int, int], Tensor], roll: int = -1) -> Callable:
    """A wrong mask: pieces by name(rows, columns, side, shift), rolled by roll * shift."""

    def wrong(rows: int, columns: int, side: int, shift: int) -> Tensor:
        down, across = grid(rows, columns)
        pieces = name(down, across, side, shift).view(rows, columns)
        windows = patches(pieces.roll((roll * shift, roll * shift), dims=(0, 1)), side)
        return windows.unsqueeze(-1) == windows.unsqueeze(-2)

    return wrong


def _mask_counting(factor: Callable[[int, int, int], int]) -> Callable:
    """A wrong mask: the windows are numbered down * factor(rows, columns, side) + across, which is too few."""

    def wrong(rows: int, columns: int, side: int, shift: int) -> Tensor:
        def name(down: Tensor, across: Tensor, side: int, shift: int) -> Tensor:
            below, aside = ((axis + side - shift) // side for axis in (down, across))
            return below * factor(rows, columns, side) + aside

        return _mask_of(name)(rows, columns, side, shift)

    return wrong


def _pieces(down: Tensor, across: Tensor, side: int, shift: int) -> Tensor:
    return (down + side - shift) // side * 1000 + (across + side - shift) // side


def _row_sees_itself(answer: Callable, _: Generator) -> Complaint:
    mask = as_tensor(answer(8, 4, 4, 1))
    if mask.shape != (2, 16, 16):
        return f"expected shape (2, 16, 16), got {tuple(mask.shape)}"
    if mask.dtype != torch.bool:
        return f"return True and False (torch.bool), not {mask.dtype}"
    return None if bool(mask.diagonal(dim1=-2, dim2=-1).all()) else "some patch may not see itself"


SHIFTED_WINDOW_MASK = Exercise(
    chapter=11,
    title="The mask of the shifted windows",
    points=3,
    minutes=15,
    difficulty=4,
    reference=shifted_window_mask,
    cases=(
        with_arguments("4 by 4, windows of 2", 4, 4, 2, 1),
        with_arguments("2 by 2, each patch alone", 2, 2, 2, 1),
        with_arguments("8 by 8, windows of 4", 8, 8, 4, 2),
        with_arguments("8 by 12", 8, 12, 4, 2),
        with_arguments("a shift that is not half", 6, 9, 3, 1),
        with_arguments("nearly a whole window", 4, 8, 4, 3),
        with_arguments("not shifted", 6, 3, 3, 0),
        with_arguments("one window", 3, 3, 3, 1),
        with_arguments("one row of two windows", 2, 4, 2, 1),
        with_arguments("one row of three windows", 2, 6, 2, 1),
        with_arguments("one column of two windows", 4, 2, 2, 1),
        with_arguments("one column of three windows", 6, 2, 2, 1),
    ),
    properties=(Property("True and False, and each patch sees itself", _row_sees_itself),),
    mistakes=(
        Mistake(
            "no mask at all",
            _mask_of(lambda down, across, side, shift: torch.zeros_like(down)),
            "You let all patches of a rolled window see one another. Which of them came from the opposite edge?",
        ),
        Mistake(
            "rolled the other way",
            _mask_of(_pieces, roll=1),
            "Your pieces move down and right. The picture was rolled up and left: by -shift.",
        ),
        Mistake(
            "not rolled",
            _mask_of(_pieces, roll=0),
            "Your pieces are those of the picture before the roll. They have to travel with it.",
        ),
        Mistake(
            "windows that were not shifted",
            _mask_of(lambda down, across, side, shift: down // side * 1000 + across // side),
            "You compare the *plain* windows of the patches. Who shared a window after the shift?",
        ),
        Mistake(
            "rows and columns confused",
            _mask_of(lambda d, a, side, shift: (d + side - shift) // side + (a + side - shift) // side),
            "You add the two numbers of a window: then (0, 1) and (1, 0) are the same one.",
        ),
        Mistake(
            "windows of a row counted without the shift",
            _mask_counting(lambda rows, columns, side: columns // side),
            "Two windows get one number in some pictures. How many windows stand side by side *after* the shift?",
        ),
        Mistake(
            "windows of a column counted",
            _mask_counting(lambda rows, columns, side: rows // side + 1),
            "Two windows get one number in a wide picture. Which windows does a step down have to jump over?",
        ),
        Mistake(
            "windows of a column counted without the shift",
            _mask_counting(lambda rows, columns, side: rows // side),
            "Two windows get one number in a wide picture. Which windows does a step down have to jump over?",
        ),
        Mistake(
            "a step down that is too short for wide pictures",
            _mask_counting(lambda rows, columns, side: rows // side + 2),
            "Two windows get one number in a wide picture. Which windows does a step down have to jump over?",
        ),
        Mistake(
            "a step aside that is too short",
            lambda rows, columns, side, shift: _mask_of(
                lambda d, a, *_: (a + side - shift) // side * (columns // side + 1) + (d + side - shift) // side
            )(rows, columns, side, shift),
            "Two windows get one number in a high picture. Which windows does a step aside have to jump over?",
        ),
        Mistake(
            "a step down that is too short",
            _mask_counting(lambda rows, columns, side: rows),
            "Two windows get one number in a wide picture. Which windows does a step down have to jump over?",
        ),
        Mistake(
            "windows that end at the shift's mirror",
            _mask_of(lambda d, a, side, shift: (d + shift) // side * 1000 + (a + shift) // side),
            "Right if the shift is half a window. Where does your second window begin for shift 1 and side 3?",
        ),
        Mistake(
            "rows alone",
            _mask_of(lambda down, across, side, shift: (down + side - shift) // side),
            "You keep pieces apart that differ in rows. The roll also wraps the columns.",
        ),
        Mistake(
            "True where blocked",
            lambda rows, columns, side, shift: ~rolled_mask(rows, columns, side, shift),
            "In this book True means *may see*.",
        ),
        Mistake(
            "added numbers",
            lambda rows, columns, side, shift: torch.where(rolled_mask(rows, columns, side, shift), 0.0, -100.0),
            "Swin's code adds 0 or -100 to the scores. Here a mask is asked for: True where a patch may see another.",
        ),
    ),
    also_right=(_mask_by_regions, _mask_by_loops),
    learned="Label first, roll after: the labels of the windows travel along, and the mask is one comparison.",
)

# --- 11.4 rotate_axial


def rotate_axial(x: Tensor, positions: Tensor, base: float) -> Tensor:
    return turn_halves(x, grid_angles(positions, axial_vectors(x.shape[-1], base)))


def _axial_with_rotate_half(x: Tensor, positions: Tensor, base: float) -> Tensor:
    quarter = x.shape[-1] // 4
    speeds = base ** (-torch.arange(quarter, dtype=torch.float32) / quarter)
    angles = torch.cat([p.float()[:, None] * speeds for p in positions], dim=-1).tile(2)
    first, second = x.chunk(2, dim=-1)
    return (x * angles.cos() + torch.cat([-second, first], dim=-1) * angles.sin()).to(x.dtype)


def _axial_by_loop(x: Tensor, positions: Tensor, base: float) -> Tensor:
    result, half = x.clone(), x.shape[-1] // 2
    for k in range(half):
        axis, number = divmod(k, half // 2)
        angles = positions[axis].double() * base ** (-2 * number / half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., k], x[..., k + half]
        result[..., k], result[..., k + half] = a * cos - b * sin, a * sin + b * cos
    return result


def _axial(angles: Callable[[Tensor, int, float], Tensor], turned: Callable = turn_halves) -> Callable:
    return lambda x, positions, base: turned(x, angles(positions, x.shape[-1], base))


def _right_angles(positions: Tensor, head_dim: int, base: float) -> Tensor:
    return grid_angles(positions, axial_vectors(head_dim, base))


def _angles_at(speeds: Callable[[int, float], Tensor]) -> Callable[[Tensor, int, float], Tensor]:
    return lambda positions, head_dim, base: torch.cat(
        [p.unsqueeze(-1) * speeds(head_dim, base) for p in positions], dim=-1
    )


def _rows_then_columns_in_halves(x: Tensor, positions: Tensor, base: float) -> Tensor:
    speeds = speeds_of(x.shape[-1] // 2, base)
    halves = zip(x.chunk(2, dim=-1), positions, strict=True)
    return torch.cat([turn_halves(half, p.unsqueeze(-1) * speeds) for half, p in halves], dim=-1)


def _axial_case(name: str, *shape: int, dtype: torch.dtype = torch.float64, base: float = 100.0):
    n = shape[-2]
    return drawn(name, lambda g: (normal(g, *shape).to(dtype), torch.randint(-9, 30, (2, n), generator=g), base))


def _sees_the_offset(answer: Callable, g: Generator) -> Complaint:
    query, key = normal(g, 2, 1, 16).unbind()
    scores = []
    for here, there in (((3, 1), (5, 0)), ((13, 41), (15, 40))):
        at = [torch.tensor(place).view(2, 1) for place in (here, there)]
        a, b = as_tensor(answer(query, at[0], 100.0)), as_tensor(answer(key, at[1], 100.0))
        scores.append((a * b).sum())
    complaint = compare_scores(scores[1], scores[0], query, key)
    return f"the same offset at two places gives two scores: {complaint}" if complaint else None


def _keeps_axial_dtypes(answer: Callable, g: Generator) -> Complaint:
    x = normal(g, 4, 8)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        if complaint := dtype_complaint(answer(x.to(dtype), grid(2, 2), 100.0), dtype):
            return complaint
    return None


ROTATE_AXIAL = Exercise(
    chapter=11,
    title="Axial rotary, in halves",
    points=3,
    minutes=12,
    difficulty=3,
    reference=rotate_axial,
    cases=(
        drawn("a grid of 2 by 3", lambda g: (normal(g, 6, 8), grid(2, 3), 100.0)),
        _axial_case("batch and heads", 2, 3, 5, 16),
        _axial_case("one pair an axis", 7, 4),
        _axial_case("base 10,000", 6, 16, base=10_000.0),
        _axial_case("float32", 6, 8, dtype=torch.float32),
        drawn(
            "between the places",
            lambda g: (normal(g, 5, 8), 3 * torch.rand(2, 5, generator=g, dtype=torch.float64), 100.0),
        ),
        _axial_case("two tokens, as many as axes", 2, 2, 8),
        drawn("far out, bfloat16", lambda g: (normal(g, 4, 8).bfloat16(), torch.arange(501, 509).view(2, 4), 100.0)),
    ),
    properties=(
        Property("the score sees the offset alone", _sees_the_offset),
        Property("keeps the dtype", _keeps_axial_dtypes),
    ),
    mistakes=(
        Mistake(
            "neighbours",
            _axial(_right_angles, turn),
            "You pair feature 2k with 2k + 1. Here k is turned with k + head_dim/2.",
        ),
        Mistake(
            "columns first",
            _axial(lambda p, d, base: _right_angles(p.flip(0), d, base)),
            "Rows and columns are exchanged: the first pairs listen to the rows.",
        ),
        Mistake(
            "each axis its own halves",
            _rows_then_columns_in_halves,
            "You cut the head in two and turn each part in halves of its own. Here the whole head is halved once.",
        ),
        Mistake(
            "frequencies of the whole head",
            _axial(_angles_at(lambda d, base: speeds_of(d, base)[: d // 4])),
            "Your pairs slow down half as fast as they should: the exponent is counted in the width of *one axis*.",
        ),
        Mistake(
            "every other frequency",
            _axial(lambda p, d, base: grid_angles(p, axial_vectors(d, base, "alternating"))),
            "That is Pixtral's way: rows and columns have different frequencies. Here both axes share theirs.",
        ),
        Mistake(
            "turned the other way",
            _axial(lambda p, d, base: -_right_angles(p, d, base)),
            "You turn clockwise. The minus belongs to the first of the two.",
        ),
        Mistake(
            "rows for both axes",
            _axial(lambda p, d, base: _right_angles(torch.stack([p[0], p[0]]), d, base)),
            "All of your pairs listen to the rows. Where do the columns come in?",
        ),
        Mistake(
            "base 10,000 always",
            lambda x, positions, base: rotate_axial(x, positions, 10_000.0),
            "Use the base that was given.",
        ),
        Mistake(
            "whole places only",
            lambda x, positions, base: rotate_axial(x, positions.long(), base),
            "A token between two places is turned as if it stood on one. Positions need not be whole.",
        ),
        Mistake(
            "the sign lost",
            lambda x, positions, base: rotate_axial(x, positions.abs(), base),
            "Places before 0 turn the wrong way. What happened to their sign?",
        ),
        Mistake(
            "angles in the dtype of x",
            lambda x, positions, base: turn_halves(
                x, grid_angles(positions.to(x.dtype), axial_vectors(x.shape[-1], base).to(x.dtype))
            ),
            "All is right but the bfloat16 case. Can a bfloat16 hold the number 501?",
        ),
    ),
    also_right=(_axial_with_rotate_half, _axial_by_loop),
    learned="Two axes are two sets of angles, side by side. Everything else of rotary stays as it was.",
)

# --- 11.5 what_the_scores_keep

SCORES_TRUTH = {
    "Swin table: all places shifted": True,
    "Swin table: left and right exchanged": False,
    "Swin table with equal entries for (a, b) and (a, -b): left and right exchanged": True,
    "2-D ALiBi: rows and columns exchanged": True,
    "2-D ALiBi: all places doubled": False,
    "axial rotary: patches shifted, an unturned class token stays": False,
    "mixed rotary: half a turn": False,
    "windows of 4: all places shifted by 2": False,
    "windows of 4: all places shifted by 8": True,
    "M-RoPE: all frames one second later": True,
}


def what_the_scores_keep() -> dict[str, bool]:
    return dict(SCORES_TRUTH)


KEEP_ADVICE = "Take two patches: what does the scheme compute from their places, before and after?"

WHAT_THE_SCORES_KEEP = Exercise(
    chapter=11,
    title="Predict: what do the scores keep?",
    points=2,
    minutes=8,
    difficulty=2,
    reference=what_the_scores_keep,
    properties=(
        Property("at least eight of ten", right_predictions(SCORES_TRUTH, 8, KEEP_ADVICE)),
        Property("all ten", right_predictions(SCORES_TRUTH, 10, KEEP_ADVICE)),
    ),
    mistakes=(
        Mistake(
            "the class token has no place",
            all_but(SCORES_TRUTH, "axial rotary: patches shifted, an unturned class token stays"),
            "Unturned is an angle too. From which place is the class token looking at the patches?",
        ),
        Mistake(
            "distance has no scale",
            all_but(SCORES_TRUTH, "2-D ALiBi: all places doubled"),
            "Twice as far is twice the penalty. Does the softmax undo a factor?",
        ),
        Mistake(
            "a half turn is relative too",
            all_but(SCORES_TRUTH, "mixed rotary: half a turn"),
            "A half turn sends the offset (a, b) to (-a, -b). Is a turn by minus the angle the same turn?",
        ),
        Mistake(
            "windows see offsets",
            all_but(SCORES_TRUTH, "windows of 4: all places shifted by 2"),
            "Places 3 and 4 are in different windows. And 5 and 6?",
        ),
        Mistake(
            "windows keep nothing",
            all_but(SCORES_TRUTH, "windows of 4: all places shifted by 8"),
            "A shift by a whole number of windows: which patches share one afterwards?",
        ),
        Mistake(
            "a table cannot be symmetric",
            all_but(SCORES_TRUTH, "Swin table with equal entries for (a, b) and (a, -b): left and right exchanged"),
            "Exchanging left and right sends the offset (a, b) to (a, -b). Which entry is read then?",
        ),
    ),
    also_right=(lambda: {name: SCORES_TRUTH[name] for name in reversed(SCORES_TRUTH)},),
    learned="An encoding keeps a move exactly if it gives the same number before and after, for every pair of patches.",
)

# --- 11.6 mrope_places


def mrope_places(parts: Sequence) -> Tensor:
    return mrope_positions(parts)


def _mrope_by_loop(parts: Sequence) -> list:
    places, start = [], 0
    for part in parts:
        ranges = [range(n) for n in part] if isinstance(part, tuple) else None
        new = list(product(*ranges)) if ranges else [(t, t, t) for t in range(part)]
        places += [tuple(start + number for number in place) for place in new]
        start = max(max(place) for place in places) + 1
    return [list(axis) for axis in zip(*places, strict=True)]


def _mrope_with_meshgrid(parts: Sequence) -> Tensor:
    places, start = [], 0
    for part in parts:
        if isinstance(part, int):
            places.append(torch.arange(part).expand(3, -1) + start)
            start += part
        else:
            places.append(torch.stack(torch.meshgrid(*map(torch.arange, part), indexing="ij")).flatten(1) + start)
            start += max(part)
    return torch.cat(places, dim=1)


def _mrope(
    then: Callable[[int, tuple, Tensor], int] = lambda start, part, new: int(new.max()) + 1,
    place: Callable[[Tensor, int], Tensor] = lambda inside, start: inside + start,
) -> Callable[[Sequence], Tensor]:
    """A wrong way: then(start, part, its places) says where the next part starts, place(inside, start) a picture's."""

    def wrong(parts: Sequence) -> Tensor:
        start, places = 0, []
        for part in parts:
            if isinstance(part, int):
                new = torch.arange(part).expand(3, -1) + start
                start += part
            else:
                new = place(torch.cartesian_prod(*map(torch.arange, part)).T, start)
                start = then(start, part, new)
            places.append(new)
        return torch.cat(places, dim=1)

    return wrong


def _frames_last(inside: Tensor, start: int) -> Tensor:
    """As torch.meshgrid(frames, rows, columns, indexing="xy") orders them: the frame changes before the row."""
    ranges = [torch.arange(int(axis.max()) + 1) for axis in inside]
    return torch.stack(torch.meshgrid(*ranges, indexing="xy")).flatten(1) + start


def _in_columns(inside: Tensor, start: int) -> Tensor:
    frames, rows, columns = (int(axis.max()) + 1 for axis in inside)
    return torch.cartesian_prod(*map(torch.arange, (frames, columns, rows))).T[[0, 2, 1]] + start


def _text_counts_as_text(answer: Callable, _: Generator) -> Complaint:
    complaint = compare(answer([7]), torch.arange(7).expand(3, -1))
    return f"a text alone should count all three numbers together: {complaint}" if complaint else None


MROPE_PLACES = Exercise(
    chapter=11,
    title="Places for text, pictures and films",
    points=3,
    minutes=15,
    difficulty=3,
    reference=mrope_places,
    cases=(
        with_arguments("text, a picture, text", [3, (1, 2, 4), 2]),
        with_arguments("a picture first", [(1, 2, 2), 4]),
        with_arguments("two pictures in a row", [(1, 3, 2), (1, 2, 5), 1]),
        with_arguments("a tall picture", [2, (1, 6, 1), 3]),
        with_arguments("a film", [1, (3, 2, 2), 2]),
        with_arguments("a long film", [1, (9, 2, 3), 2, (1, 2, 2), 1]),
        with_arguments("a picture of one patch", [2, (1, 1, 1), 2]),
    ),
    properties=(Property("text alone", _text_counts_as_text),),
    mistakes=(
        Mistake(
            "counts on by tokens",
            _mrope(then=lambda start, part, new: start + new.shape[1]),
            "After the picture you go on by its number of patches. What is the largest number it used?",
        ),
        Mistake(
            "pictures begin at 0",
            _mrope(
                then=lambda start, part, new: start + max(part),
                place=lambda inside, start: inside,
            ),
            "Rows and columns of your pictures begin at 0. They begin where the text before them ended.",
        ),
        Mistake(
            "only time begins after the text",
            _mrope(
                then=lambda start, part, new: start + max(part),
                place=lambda inside, start: inside + start * torch.tensor([[1], [0], [0]]),
            ),
            "Time begins after the text; rows and columns do too.",
        ),
        Mistake(
            "rows alone",
            _mrope(then=lambda start, part, new: start + part[1]),
            "You go on after the rows. Where the picture is wider than high, or a film is long, places come twice.",
        ),
        Mistake(
            "time does not count",
            _mrope(then=lambda start, part, new: start + max(part[1:])),
            "Right for pictures, and what some code does. After a film of nine frames, which number was the largest?",
        ),
        Mistake(
            "columns alone",
            _mrope(then=lambda start, part, new: start + part[2]),
            "You go on after the columns. Where the picture is higher than wide, or a film is long, places come twice.",
        ),
        Mistake(
            "the sides added",
            _mrope(then=lambda start, part, new: start + sum(part)),
            "You go on after frames, rows and columns together. What is the largest number that was used?",
        ),
        Mistake(
            "all frames at one time",
            _mrope(place=lambda inside, start: inside * torch.tensor([[0], [1], [1]]) + start),
            "Right for pictures. In a film, which of the three numbers tells one frame from the next?",
        ),
        Mistake(
            "frames inside rows",
            _mrope(place=_frames_last),
            "Right for pictures. The patches of a film come frame by frame: which number changes last? "
            "(torch.meshgrid with indexing='xy' exchanges the first two axes.)",
        ),
        Mistake(
            "only time counts",
            _mrope(then=lambda start, part, new: start + part[0]),
            "You go on after the frames. A picture has one, and six rows.",
        ),
        Mistake(
            "not one after",
            _mrope(then=lambda start, part, new: int(new.max())),
            "What follows starts one *after* the largest number, not at it.",
        ),
        Mistake(
            "column by column",
            _mrope(place=_in_columns),
            "The patches of a frame come row by row: the column number changes first.",
        ),
    ),
    also_right=(_mrope_by_loop, _mrope_with_meshgrid),
    learned="A picture costs as many positions as its longest side, not as its number of patches.",
)

# --- 11.7 resize_beit_table


def resize_beit_table(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    return torch.cat([resize_bias(table[:-3], old, new), table[-3:]])


def _right(side: tuple[int, int]) -> tuple[int, int]:
    return 2 * side[0] - 1, 2 * side[1] - 1


def _sideways(side: tuple[int, int]) -> tuple[int, int]:
    return 2 * side[1] - 1, 2 * side[0] - 1


def _resize(
    sizes: Callable[[tuple[int, int]], tuple[int, int]] = _right,
    read: Callable[[tuple[int, int]], tuple[int, int]] | None = None,
    extra: int = 3,
    first: bool = False,
    **options,
) -> Callable:
    """Resize in other ways: sizes of a window, how the old picture is read, how many entries are kept and where."""

    def wrong(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
        kept = table[:extra] if first else table[len(table) - extra :]
        entries = table[extra:] if first else table[: len(table) - extra]
        picture = entries.T.unflatten(-1, (read or sizes)(old))[None]
        settings = {"mode": "bicubic", "align_corners": False} | options
        resized = F.interpolate(picture, size=sizes(new), **settings)[0].flatten(1).T
        return torch.cat([kept, resized] if first else [resized, kept])

    return wrong


def _heads_reshaped(back: Callable[[Tensor], Tensor]) -> Callable:
    """(entries, heads) reshaped to (heads, rows, columns), not transposed. back(the result): (entries, heads)."""

    def wrong(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
        picture = table[:-3].reshape(1, -1, *_right(old))
        resized = F.interpolate(picture, size=_right(new), mode="bicubic", align_corners=False)[0]
        return torch.cat([back(resized), table[-3:]])

    return wrong


def _resize_by_heads(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    heads = []
    for entries in table[:-3].T:
        picture = entries.reshape(1, 1, 2 * old[0] - 1, 2 * old[1] - 1)
        size = (2 * new[0] - 1, 2 * new[1] - 1)
        heads.append(F.interpolate(picture, size=size, mode="bicubic", align_corners=False).flatten())
    return torch.cat([torch.stack(heads, dim=-1), table[-3:]])


def _resize_twice(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Rows first, columns after: bicubic is separable."""
    picture = table[:-3].reshape(2 * old[0] - 1, 2 * old[1] - 1, -1).permute(2, 0, 1)[None]
    settings = {"mode": "bicubic", "align_corners": False}
    picture = F.interpolate(picture, size=(2 * new[0] - 1, 2 * old[1] - 1), **settings)
    picture = F.interpolate(picture, size=(2 * new[0] - 1, 2 * new[1] - 1), **settings)
    return torch.cat([picture[0].permute(1, 2, 0).flatten(0, 1), table[-3:]])


def _beit_case(name: str, old: tuple[int, int], new: tuple[int, int], heads: int = 2, dtype=torch.float64):
    n = (2 * old[0] - 1) * (2 * old[1] - 1) + 3
    return drawn(name, lambda g: (normal(g, n, heads).to(dtype), old, new))


def _same_window_same_table(answer: Callable, g: Generator) -> Complaint:
    table = normal(g, 3 * 9 + 3, 2)
    complaint = compare(answer(table.clone(), (2, 5), (2, 5)), table)
    return f"to the same window nothing should change: {complaint}" if complaint else None


def _keeps_table_dtypes(answer: Callable, g: Generator) -> Complaint:
    table = normal(g, 12, 2)
    complaints = (dtype_complaint(answer(table.to(d), (2, 2), (3, 2)), d) for d in (torch.float64, torch.float32))
    return next((c for c in complaints if c), None)


RESIZE_BEIT_TABLE = Exercise(
    chapter=11,
    title="A bias table for another window",
    points=3,
    minutes=15,
    difficulty=3,
    reference=resize_beit_table,
    cases=(
        _beit_case("4 by 4 to 6 by 6", (4, 4), (6, 6)),
        _beit_case("to a window that is not square", (3, 3), (2, 5), heads=3),
        _beit_case("from a window that is not square", (2, 4), (3, 5)),
        _beit_case("smaller", (5, 5), (3, 3)),
        _beit_case("turned on its side", (2, 5), (5, 2), heads=1),
        _beit_case("float32", (3, 2), (4, 4), dtype=torch.float32),
    ),
    properties=(
        Property("the same window, the same table", _same_window_same_table),
        Property("keeps the dtype", _keeps_table_dtypes),
    ),
    mistakes=(
        Mistake(
            "width first",
            _resize(read=_sideways),
            "Right for square windows. The old table is stored row by row: which side is the length of a row?",
        ),
        Mistake(
            "width first, old and new",
            _resize(sizes=_sideways),
            "Right for square windows. Both tables are stored row by row: which side is the length of a row?",
        ),
        Mistake(
            "the new window on its side",
            _resize(sizes=_sideways, read=_right),
            "The old table is read as it should be. What comes first in the size of the new picture?",
        ),
        Mistake(
            "the new size is the window's",
            _resize(sizes=lambda side: side, read=_right),
            "Your new table has one entry for each patch. How many offsets does a window have along one axis?",
        ),
        Mistake(
            "heads reshaped",
            _heads_reshaped(lambda resized: resized.reshape(resized.shape[0], -1).T),
            "Right for one head. In storage the heads of one entry lie side by side: a reshape cannot take them apart.",
        ),
        Mistake(
            "heads reshaped, both ways",
            _heads_reshaped(lambda resized: resized.reshape(-1, resized.shape[0])),
            "Right for one head. In storage the heads of one entry lie side by side: a reshape cannot take them apart.",
        ),
        Mistake(
            "corners kept",
            _resize(align_corners=True),
            "You keep the corners on the corners (align_corners=True). Take the other rule.",
        ),
        Mistake("bilinear", _resize(mode="bilinear"), "You blend two entries an axis. Bicubic takes four."),
        Mistake(
            "nearest",
            _resize(mode="nearest", align_corners=None),
            "You copy the nearest entry. Bicubic blends.",
        ),
        Mistake(
            "averaged when shrinking",
            _resize(antialias=True),
            "Right for larger windows. For smaller ones you average (antialias=True), which was not asked for.",
        ),
        Mistake(
            "class entries in front",
            _resize(first=True),
            "You took the first three entries for those of the class token. Where does BEiT keep them?",
        ),
        Mistake(
            "new class entries",
            lambda table, old, new: torch.cat([resize_bias(table[:-3], old, new), torch.zeros_like(table[-3:])]),
            "The three entries of the class token have been learned. They are kept, not set to 0.",
        ),
        Mistake(
            "class entries lost",
            lambda table, old, new: resize_bias(table[:-3], old, new),
            "Three entries are missing in your result. What does the class token read?",
        ),
    ),
    also_right=(_resize_by_heads, _resize_twice),
    learned="A bias table is a picture, rows first, with a few entries that are no pixels. Test it on windows that are "
    "not square.",
)

EXERCISES = (
    SWIN_INDEX,
    CENTRED_PLACES,
    SHIFTED_WINDOW_MASK,
    ROTATE_AXIAL,
    WHAT_THE_SCORES_KEEP,
    MROPE_PLACES,
    RESIZE_BEIT_TABLE,
)
