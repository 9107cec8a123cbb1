"""Exercises of chapter 5: learned tables."""

import re
from collections.abc import Callable
from functools import cache
from unittest import mock

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from posenc.absolute import Sinusoidal, sinusoids
from posenc.checks.common import dtype_complaint
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.language import N_STORED, book, cut, loss_by_position, stored_model, with_table
from posenc.learned import Learned, check_positions, resize_table, roberta_rows
from posenc.model import build
from posenc.symmetry import difference

DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def _keeps_dtypes(name: str, call: Callable[[Callable, Tensor], object], *shape: int) -> Property:
    """Each dtype in, the same out. call(answer, table) calls the answer with a table of the given shape."""

    def test(answer: Callable, g: Generator) -> Complaint:
        table = normal(g, *shape)
        complaints = (dtype_complaint(call(answer, table.to(dtype)), dtype) for dtype in DTYPES)
        return next((c for c in complaints if c), None)

    return Property(name, test)


# --- 5.1 table_budget


def table_budget(longest: int, d_model: int, reserved: int, others: int) -> tuple[int, float]:
    table = (longest + reserved) * d_model
    return table, table / (table + others)


def _budget_from_a_module(longest: int, d_model: int, reserved: int, others: int) -> tuple[int, float]:
    table = torch.nn.Embedding(longest + reserved, d_model).weight.numel()
    return table, 1 - others / (others + table)


TABLE_BUDGET = Exercise(
    chapter=5,
    title="What does the table cost?",
    points=1,
    minutes=4,
    difficulty=1,
    reference=table_budget,
    cases=(
        with_arguments("BERT base", 512, 768, 0, 109_088_976),
        with_arguments("RoBERTa base", 512, 768, 2, 124_250_880),
        with_arguments("OPT 125M", 2048, 768, 2, 123_664_896),
        with_arguments("nothing but a table", 10, 4, 0, 0),
    ),
    mistakes=(
        Mistake(
            "the reserved rows forgotten",
            lambda longest, d_model, reserved, others: table_budget(longest, d_model, 0, others),
            "Rows that serve no position are parameters too.",
        ),
        Mistake(
            "the reserved rows taken away",
            lambda longest, d_model, reserved, others: table_budget(longest - reserved, d_model, 0, others),
            "The longest text needs a row for every token. The reserved rows come on top.",
        ),
        Mistake(
            "compared with the others alone",
            lambda longest, d_model, reserved, others: (
                (longest + reserved) * d_model,
                (longest + reserved) * d_model / others,
            ),
            "A share is a part of the whole, and the table belongs to the whole.",
        ),
        Mistake(
            "in percent",
            lambda longest, d_model, reserved, others: (
                (longest + reserved) * d_model,
                100 * table_budget(longest, d_model, reserved, others)[1],
            ),
            "The share should lie between 0 and 1.",
        ),
        Mistake(
            "divided with //",
            lambda longest, d_model, reserved, others: (
                (longest + reserved) * d_model,
                (longest + reserved) * d_model // ((longest + reserved) * d_model + others),
            ),
            "`//` drops what comes behind the point, and of a share that is everything.",
        ),
    ),
    also_right=(_budget_from_a_module,),
    learned="A table is cheap: BERT and RoBERTa spend less than one parameter in a hundred on it, and the small OPT a "
    "little more.",
)

# --- 5.2 read_rows


def read_rows(table: Tensor, positions: Tensor, reserved: int) -> Tensor:
    check_positions(positions, len(table) - reserved)
    return table[positions.long() + reserved]


def _read_rows_by_one_hot(table: Tensor, positions: Tensor, reserved: int) -> Tensor:
    usable, positions = table[reserved:], positions.long()
    for beyond, worst in ((positions < 0, torch.min), (positions >= len(usable), torch.max)):
        if beyond.any():
            raise ValueError(f"no row for position {worst(positions)}: the table has {len(usable)} of them")
    return F.one_hot(positions, len(usable)).to(table.dtype) @ usable


def _read_rows_by_embedding(table: Tensor, positions: Tensor, reserved: int) -> Tensor:
    for position in sorted(positions.flatten().tolist(), key=abs, reverse=True):
        if not 0 <= position < len(table) - reserved:
            raise ValueError(f"{position=}, rows={len(table) - reserved}")
    return F.embedding(positions.int() + reserved, table)


def _refusal(
    answer: Callable, table: Tensor, positions: Tensor, reserved: int, names: tuple[int, ...], others: tuple[int, ...]
) -> Complaint:
    """Does it raise a ValueError whose words hold the numbers in `names`, and none of `others`?"""
    asked = f"positions {positions.tolist()}, {len(table)} rows of which {reserved} are reserved"
    try:
        answer(table, positions, reserved)
    except ValueError as error:
        numbers = {int(number) for number in re.findall(r"-?\d+", str(error).replace("\N{MINUS SIGN}", "-"))}
        missing = [str(number) for number in names if number not in numbers]
        if missing:
            return f"{asked}: your message should name {' and '.join(missing)}; it says: {error}"
        extra = [str(number) for number in others if number in numbers]
        return f"{asked}: name the worst position alone, and not {' and '.join(extra)} as well" if extra else None
    except Exception as error:
        return f"{asked}: a {type(error).__name__} came; raise a ValueError yourself, before reading"
    return f"{asked}: no error came; a row was read that belongs to no position"


def _refuses_beyond(answer: Callable, g: Generator) -> Complaint:
    tries = (
        ([0, 43, 42], 2, (43,), ()),  # one beyond the last
        ([[0, 57]], 0, (57, 45), ()),
        ([61, 7, 88, 74], 2, (88, 43), (61, 74)),
    )
    for positions, reserved, names, others in tries:
        complaint = _refusal(answer, normal(g, 45, 3), torch.tensor(positions), reserved, names, others)
        if complaint:
            return complaint
    return None


def _refuses_negative(answer: Callable, g: Generator) -> Complaint:
    tries = ([[3, -1], [0, 1]], 0), ([[3, -1], [0, 1]], 2), ([-2], 2), ([3, -17], 2), ([-6, -29, 5, -13], 2)
    for positions, reserved in tries:
        positions = torch.tensor(positions)
        wrong = sorted(positions[positions < 0].tolist())
        complaint = _refusal(answer, normal(g, 45, 3), positions, reserved, tuple(wrong[:1]), tuple(wrong[1:]))
        if complaint:
            return complaint
    return None


def _carries_the_gradient(answer: Callable, g: Generator) -> Complaint:
    table = normal(g, 6, 4).requires_grad_()
    rows = answer(table, torch.tensor([0, 2, 2]), 1)
    if not isinstance(rows, Tensor) or not rows.requires_grad:
        return "the table cannot learn: your result carries no gradient"
    rows.sum().backward()
    got = table.grad.sum(dim=-1) / 4
    return compare(got, torch.tensor([0, 1, 0, 2, 0, 0], dtype=torch.float64), "the gradient")


def _added_before_widened(table: Tensor, positions: Tensor, reserved: int) -> Tensor:
    check_positions(positions, len(table) - reserved)
    return table[(positions + reserved).long()]


def _unchecked(index: Callable[[Tensor, int, Tensor], Tensor]) -> Callable:
    return lambda table, positions, reserved: table[index(positions.long(), reserved, table)]


READ_ROWS = Exercise(
    chapter=5,
    title="A table that guards its edges",
    points=3,
    minutes=12,
    difficulty=2,
    reference=read_rows,
    cases=(
        drawn("nothing reserved", lambda g: (normal(g, 6, 4), torch.arange(6), 0)),
        drawn("two rows reserved", lambda g: (normal(g, 8, 4), torch.arange(6), 2)),
        drawn("a batch, in any order", lambda g: (normal(g, 9, 4), torch.tensor([[4, 0, 6], [6, 6, 1]]), 2)),
        drawn("the last row alone", lambda g: (normal(g, 5, 4), torch.tensor([3]), 1)),
        drawn("no position at all", lambda g: (normal(g, 5, 4), torch.zeros(2, 0, dtype=torch.long), 1)),
        drawn("positions as int16", lambda g: (normal(g, 7, 4), torch.tensor([4, 0, 1], dtype=torch.int16), 2)),
        drawn("positions as uint8", lambda g: (normal(g, 258, 2), torch.tensor([3, 0, 255], dtype=torch.uint8), 2)),
    ),
    properties=(
        Property("refuses a position beyond the last row, by name", _refuses_beyond),
        Property("refuses negative positions, by name", _refuses_negative),
        _keeps_dtypes("keeps the table's dtype", lambda answer, table: answer(table, torch.tensor([1, 2]), 2), 6, 4),
        Property("the table can learn", _carries_the_gradient),
    ),
    mistakes=(
        Mistake(
            "positions used as they came",
            lambda table, positions, reserved: table[positions + reserved],
            "Torch takes int64 and int32 for an index. It refuses int16, and uint8 it takes for a mask.",
        ),
        Mistake(
            "added in a narrow dtype",
            _added_before_widened,
            "All is right but the uint8 case. What is 255 + 2 in eight bits?",
        ),
        Mistake(
            "the reserved rows forgotten",
            _unchecked(lambda positions, reserved, table: positions),
            "Position 0 reads the first row *after* the reserved ones.",
        ),
        Mistake(
            "reserved rows at the end",
            _unchecked(lambda positions, reserved, table: positions - reserved),
            "The reserved rows come first, so positions move up and not down.",
        ),
        Mistake(
            "counted from 1",
            _unchecked(lambda positions, reserved, table: positions + reserved - 1),
            "Positions count from 0: position 0 reads row `reserved`.",
        ),
    ),
    also_right=(_read_rows_by_one_hot, _read_rows_by_embedding),
    learned="Check the position, not the row: with reserved rows in front, even `nn.Embedding` accepts position -1.",
)

# --- 5.3 relabelled_table


def relabelled_table(table: Tensor, labels: Tensor) -> Tensor:
    moved = torch.empty_like(table)
    moved[labels] = table
    return moved


def _relabelled_by_inverse(table: Tensor, labels: Tensor) -> Tensor:
    return table[labels.argsort()]


def _relabelled_by_matrix(table: Tensor, labels: Tensor) -> Tensor:
    return F.one_hot(labels, len(labels)).to(table.dtype).T @ table


def _overwritten_while_looping(table: Tensor, labels: Tensor) -> Tensor:
    result = table.clone()
    for i, label in enumerate(labels.tolist()):
        result[label] = result[i]
    return result


def _model_cannot_tell(answer: Callable, g: Generator) -> Complaint:
    labels, ids = torch.tensor([2, 4, 0, 1, 5, 3]), torch.randint(7, (3, 6), generator=g)
    outputs = []
    table = normal(g, 6, 8)
    for rows, positions in ((table, torch.arange(6)), (as_tensor(answer(table, labels)), labels)):
        if rows.shape != table.shape:
            return f"expected a table of shape {tuple(table.shape)}, got {tuple(rows.shape)}"
        encoding = Learned(6, 8)
        encoding.table.data = rows.double()
        sizes = {"vocabulary": 7, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_outputs": 3}
        outputs.append(build(0, **sizes, encoding=encoding).double()(ids, positions))
    gap = difference(*outputs)
    return None if gap < 1e-9 else f"a model that reads your table by the new labels is off by {gap:.2g}"


def _shift_labels(n: int, by: int) -> Tensor:
    return (torch.arange(n) + by) % n


RELABELLED_TABLE = Exercise(
    chapter=5,
    title="New names for the positions",
    points=2,
    minutes=8,
    difficulty=2,
    reference=relabelled_table,
    cases=(
        drawn("nothing renamed", lambda g: (normal(g, 4, 3), torch.arange(4))),
        drawn("shifted by one, in a ring", lambda g: (normal(g, 5, 3), _shift_labels(5, 1))),
        drawn("in random order", lambda g: (normal(g, 9, 3), torch.randperm(9, generator=g))),
        drawn("a 3 by 4 picture, by columns", lambda g: (normal(g, 12, 2), torch.arange(12).view(3, 4).T.flatten())),
        drawn("float32", lambda g: (normal(g, 6, 4, dtype=torch.float32), _shift_labels(6, 2))),
    ),
    properties=(
        Property("a model cannot tell", _model_cannot_tell),
        _keeps_dtypes("keeps the dtype", lambda answer, table: answer(table, _shift_labels(6, 2)), 6, 4),
    ),
    mistakes=(
        Mistake(
            "moved the other way",
            lambda table, labels: table[labels],
            "`table[labels]` puts into row i what was in row labels[i]. You need it the other way round.",
        ),
        Mistake(
            "nothing moved",
            lambda table, labels: table.clone(),
            "The model will ask for row labels[i]. It must find there what it used to find in row i.",
        ),
        Mistake(
            "turned round",
            lambda table, labels: table.flip(0),
            "Reversing the rows is one relabelling of many. Use `labels`.",
        ),
        Mistake(
            "overwritten while looping",
            _overwritten_while_looping,
            "You read from the table that you write to: some rows are gone before they have been moved.",
        ),
    ),
    also_right=(_relabelled_by_inverse, _relabelled_by_matrix),
    learned="For a table an index is a name. `table[labels]` and `moved[labels] = table` are inverse to each other.",
)

# --- 5.4 unnoticed_relabelling

N_NAMES = 8


def unnoticed_relabelling() -> list[int]:
    return [7, 6, 5, 4, 3, 2, 1, 0]


def _labels(answer: Callable) -> Tensor | str:
    try:
        labels = as_tensor(answer())
    except (TypeError, ValueError, RuntimeError):
        return "return a list of whole numbers"
    if labels.shape != (N_NAMES,) or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        return f"return a list of {N_NAMES} whole numbers"
    if sorted(labels.tolist()) != list(range(N_NAMES)):
        return f"each of 0 to {N_NAMES - 1} must occur once"
    return labels


def _moves_something(answer: Callable, _: Generator) -> Complaint:
    labels = _labels(answer)
    if isinstance(labels, str):
        return labels
    return "this leaves every position as it is" if torch.equal(labels, torch.arange(N_NAMES)) else None


def _no_dot_product_changes(answer: Callable, _: Generator) -> Complaint:
    labels = _labels(answer)
    if isinstance(labels, str):
        return labels
    if torch.equal(labels, torch.arange(N_NAMES)):
        return "comes after a relabelling that moves something"
    vectors = sinusoids(torch.arange(N_NAMES), 16).double()
    changed = ((vectors[labels] @ vectors[labels].mT - vectors @ vectors.mT).abs() > 1e-4).nonzero()
    if not len(changed):
        return None
    i, j = changed[0].tolist()
    return f"the dot product of places {i} and {j} changes: they are now called {labels[i]} and {labels[j]}"


def _a_model_notices(answer: Callable, g: Generator) -> Complaint:
    if complaint := _no_dot_product_changes(answer, g):
        return "comes after the dot products" if complaint else None
    labels = _labels(answer)
    sizes = {"vocabulary": 7, "d_model": 16, "n_layers": 1, "n_heads": 2, "n_outputs": 3}
    model = build(0, **sizes, encoding=Sinusoidal())
    ids = torch.randint(7, (1, N_NAMES), generator=g)
    gap = difference(model(ids, labels), model(ids))
    return None if gap > 1e-3 else "a whole model does not notice it either"


UNNOTICED_RELABELLING = Exercise(
    chapter=5,
    title="A counterexample: names that sinusoids do not notice",
    points=1,
    minutes=6,
    difficulty=3,
    reference=unnoticed_relabelling,
    properties=(
        Property("moves something", _moves_something),
        Property("no dot product changes", _no_dot_product_changes),
        Property("a whole model does notice", _a_model_notices),
    ),
    mistakes=(
        Mistake(
            "nothing moved",
            lambda: list(range(8)),
            "That one is unnoticed by everything. Find another.",
        ),
        Mistake(
            "shifted in a ring",
            lambda: [1, 2, 3, 4, 5, 6, 7, 0],
            "A shift keeps all offsets, except for the place that goes round the end. Which other map keeps distances?",
        ),
        Mistake(
            "two neighbours exchanged",
            lambda: [1, 0, 2, 3, 4, 5, 6, 7],
            "Places 0 and 2 were two apart and are now one apart. A dot product depends on how far apart they are.",
        ),
        Mistake(
            "evens, then odds",
            lambda: [0, 2, 4, 6, 1, 3, 5, 7],
            "Neighbours are now two apart. A dot product depends on how far apart two places are.",
        ),
    ),
    also_right=(lambda: torch.arange(7, -1, -1), lambda: tuple(7 - i for i in range(8))),
    learned="The dot product of two sinusoids is an even function of the offset, so it cannot tell left from right. "
    "A learned W_Q and W_K can, and so can a table.",
)

# --- 5.5 stretch


def stretch(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    rows = table[reserved:]
    places = _places(len(rows), n_new, align_corners).clamp(0, len(rows) - 1)
    left = places.floor().long()
    right = (left + 1).clamp(max=len(rows) - 1)
    share = (places - left).to(table.dtype).unsqueeze(-1)
    return torch.cat([table[:reserved], (1 - share) * rows[left] + share * rows[right]])


def _stretch_with(places: Callable[[int, int, bool], Tensor], reserved_kept: bool = True) -> Callable:
    """Linear interpolation by hand, at the given old places: (n_old, n_new, align_corners) -> (n_new,)."""

    def by_hand(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
        kept = reserved if reserved_kept else 0
        rows = table[kept:]
        at = places(len(rows), n_new + reserved - kept, align_corners).clamp(0, len(rows) - 1)
        left = at.floor().long()
        right = (left + 1).clamp(max=len(rows) - 1)
        share = (at - left).to(table.dtype).unsqueeze(-1)
        return torch.cat([table[:kept], (1 - share) * rows[left] + share * rows[right]])

    return by_hand


def _places(n_old: int, n_new: int, align_corners: bool) -> Tensor:
    new = torch.arange(n_new, dtype=torch.float64)
    if align_corners:
        return new * (n_old - 1) / max(n_new - 1, 1)
    return (new + 0.5) * n_old / n_new - 0.5


def _places_in_float32(n_old: int, n_new: int, align_corners: bool) -> Tensor:
    new = torch.arange(n_new, dtype=torch.float32)
    return new * (n_old - 1) / max(n_new - 1, 1) if align_corners else (new + 0.5) * n_old / n_new - 0.5


def _stretch_by_loop(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    rows, result = table[reserved:], [*table[:reserved]]
    for place in _places(len(rows), n_new, align_corners).tolist():
        place = min(max(place, 0), len(rows) - 1)
        left = min(int(place), max(len(rows) - 2, 0))
        right = min(left + 1, len(rows) - 1)
        result.append(rows[left] + (place - left) * (rows[right] - rows[left]))
    return torch.stack(result)


def _stretch_by_matrix(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    """Each new row a mix of all old ones, with the weights of a tent."""
    rows = table[reserved:]
    places = _places(len(rows), n_new, align_corners).clamp(0, len(rows) - 1)
    tents = (1 - (places[:, None] - torch.arange(len(rows))).abs()).clamp(min=0)  # (n_new, n)
    return torch.cat([table[:reserved], tents.to(table.dtype) @ rows])


def _swapped_weights(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    rows = table[reserved:]
    places = _places(len(rows), n_new, align_corners).clamp(0, len(rows) - 1)
    left = places.floor().long()
    right = (left + 1).clamp(max=len(rows) - 1)
    share = (places - left).to(table.dtype).unsqueeze(-1)
    return torch.cat([table[:reserved], share * rows[left] + (1 - share) * rows[right]])


def _right_neighbour_not_clamped(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    rows = table[reserved:]
    places = _places(len(rows), n_new, align_corners).clamp(0, len(rows) - 1)
    left = places.floor().long()
    share = (places - left).to(table.dtype).unsqueeze(-1)
    return torch.cat([table[:reserved], (1 - share) * rows[left] + share * rows[left + 1]])


def _divides_by_no_step(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    if align_corners and n_new == 1:
        raise ZeroDivisionError
    return stretch(table, n_new, reserved, align_corners)


def _one_row_is_the_first(table: Tensor, n_new: int, reserved: int, align_corners: bool) -> Tensor:
    return table[: reserved + 1] if n_new == 1 else stretch(table, n_new, reserved, align_corners)


def _by_hand(answer: Callable, g: Generator) -> Complaint:
    table, used = normal(g, 5, 3), []
    with mock.patch.object(F, "interpolate", lambda *a, whole=F.interpolate, **k: used.append(1) or whole(*a, **k)):
        answer(table, 7, 1, True)
    return "here the formula is the exercise: find the places and mix the rows yourself" if used else None


STRETCH = Exercise(
    chapter=5,
    title="Stretch a table by hand",
    points=4,
    minutes=18,
    difficulty=4,
    reference=stretch,
    cases=(
        drawn("4 to 7 rows, ends kept", lambda g: (normal(g, 4, 3), 7, 0, True)),
        drawn("4 to 8 rows, as areas", lambda g: (normal(g, 4, 3), 8, 0, False)),
        drawn("two reserved rows, ends kept", lambda g: (normal(g, 8, 3), 11, 2, True)),
        drawn("two reserved rows, as areas", lambda g: (normal(g, 8, 3), 15, 2, False)),
        drawn("fewer rows, ends kept", lambda g: (normal(g, 10, 3), 4, 1, True)),
        drawn("fewer rows, as areas", lambda g: (normal(g, 10, 3), 4, 0, False)),
        drawn("a long table, ends kept", lambda g: (normal(g, 900, 2), 1300, 0, True)),
        drawn("as many rows as before", lambda g: (normal(g, 7, 3), 6, 1, True)),
        drawn("down to two rows, ends kept", lambda g: (normal(g, 5, 3), 2, 1, True)),
        drawn("down to one row, ends kept", lambda g: (normal(g, 5, 3), 1, 1, True)),
        drawn("down to one row, as areas", lambda g: (normal(g, 5, 3), 1, 0, False)),
        drawn("up from one row", lambda g: (normal(g, 3, 3), 4, 2, False)),
    ),
    properties=(
        _keeps_dtypes("keeps the dtype", lambda answer, table: answer(table, 9, 1, True), 5, 3),
        Property("does without F.interpolate", _by_hand),
    ),
    mistakes=(
        Mistake(
            "the reserved rows stretched too",
            _stretch_with(_places, reserved_kept=False),
            "The reserved rows serve no position. Set them aside, stretch the rest, and put them back in front.",
        ),
        Mistake(
            "always the ends kept",
            lambda table, n_new, reserved, align_corners: stretch(table, n_new, reserved, True),
            "With align_corners=False the rows are areas: the centre of new row i lies at (i + 0.5) times a factor.",
        ),
        Mistake(
            "always as areas",
            lambda table, n_new, reserved, align_corners: stretch(table, n_new, reserved, False),
            "With align_corners=True the last new row must be the last old row. By which factor do places shrink?",
        ),
        Mistake(
            "the half forgotten",
            _stretch_with(
                lambda n_old, n_new, a: _places(n_old, n_new, a) if a else torch.arange(n_new) * n_old / n_new
            ),
            "For areas, the *centres* count: add a half to the new index first, and take a half off the old place.",
        ),
        Mistake(
            "one row too many in the factor",
            _stretch_with(
                lambda n_old, n_new, a: (
                    torch.arange(n_new, dtype=torch.float64) * n_old / n_new if a else _places(n_old, n_new, a)
                )
            ),
            "Between n rows there are n - 1 steps. Your last new row does not reach the last old one.",
        ),
        Mistake(
            "places in float32",
            _stretch_with(_places_in_float32),
            "Right for short tables. At a place like 700.3 float32 has few digits left for the share: make the places "
            "in float64. (Whole numbers divided by one another give float32 too.)",
        ),
        Mistake(
            "the nearest row",
            _stretch_with(lambda n_old, n_new, a: _places(n_old, n_new, a).clamp(0, n_old - 1).round()),
            "You take the nearest old row. Mix the two neighbours by how near they are.",
        ),
        Mistake(
            "the row below",
            _stretch_with(lambda n_old, n_new, a: _places(n_old, n_new, a).clamp(0, n_old - 1).floor()),
            "You take the old row to the left. Mix it with the one to the right.",
        ),
        Mistake(
            "the half not taken off again",
            _stretch_with(lambda n_old, n_new, a: _places(n_old, n_new, a) + (0 if a else 0.5)),
            "You compare a distance from the *edge* of the first area with row numbers. Where is the centre of row 0?",
        ),
        Mistake(
            "the weights exchanged",
            _swapped_weights,
            "At place 2.25 row 2 is nearer than row 3. Which of them gets the three quarters?",
        ),
        Mistake(
            "no neighbour behind the last row",
            _right_neighbour_not_clamped,
            "The last place is the last row itself. You ask there for the row behind it, which does not exist.",
        ),
        Mistake(
            "divided by no step",
            _divides_by_no_step,
            "Between n_new rows there are n_new - 1 steps. How many are there if one row is wanted?",
        ),
        Mistake(
            "one row is always the first",
            _one_row_is_the_first,
            "With the ends kept, yes. As an area, one row covers the whole table: where is its centre?",
        ),
    ),
    also_right=(_stretch_with(_places), _stretch_by_loop, _stretch_by_matrix),
    learned="Two conventions, two formulas for the old place of a new row, and both are called linear. When a resized "
    "checkpoint is slightly off, compare the conventions first.",
)

# --- 5.6 newest_rows


def newest_rows(ids: Tensor, padding: int, n_cached: int) -> Tensor:
    return roberta_rows(ids, padding)[:, n_cached:]


def _newest_rows_by_loop(ids: Tensor, padding: int, n_cached: int) -> Tensor:
    rows = []
    for text in ids.tolist():
        seen, read = 0, []
        for token in text:
            seen += token != padding
            read.append(padding if token == padding else padding + seen)
        rows.append(read[n_cached:])
    return torch.tensor(rows, dtype=torch.long).view(len(ids), -1)


def _padded_ids(g: Generator, padding: int, *lengths: int, n: int, left: bool) -> Tensor:
    ids = torch.randint(10, 20, (len(lengths), n), generator=g)
    for text, length in zip(ids, lengths, strict=True):
        if left:
            text[: n - length] = padding
        else:
            text[length:] = padding
    return ids


def _rows_are_long(answer: Callable, g: Generator) -> Complaint:
    ids = _padded_ids(g, 1, 5, 2, n=5, left=True)
    complaints = (dtype_complaint(answer(ids.to(dtype), 1, 2), torch.long) for dtype in (torch.long, torch.int32))
    return "torch.long was asked for" if any(complaints) else None


NEWEST_ROWS = Exercise(
    chapter=5,
    title="The rows of the newest tokens",
    points=2,
    minutes=10,
    difficulty=3,
    reference=newest_rows,
    cases=(
        drawn("no cache, no padding", lambda g: (_padded_ids(g, 1, 5, 5, n=5, left=True), 1, 0)),
        drawn("padding on the right", lambda g: (_padded_ids(g, 1, 5, 3, n=5, left=False), 1, 0)),
        drawn("padding on the left", lambda g: (_padded_ids(g, 1, 5, 2, n=5, left=True), 1, 0)),
        drawn("one new token, left padding", lambda g: (_padded_ids(g, 1, 6, 3, n=6, left=True), 1, 5)),
        drawn("two new tokens", lambda g: (_padded_ids(g, 1, 6, 4, 1, n=6, left=True), 1, 4)),
        drawn("padding is token 0", lambda g: (_padded_ids(g, 0, 4, 2, n=4, left=False), 0, 1)),
        drawn("padding is token 5", lambda g: (_padded_ids(g, 5, 4, 2, n=4, left=True), 5, 2)),
        with_arguments("padding in the middle", torch.tensor([[7, 1, 8, 1, 1, 9]]), 1, 2),
        with_arguments("a text of nothing but padding", torch.tensor([[1, 1, 1], [6, 7, 1]]), 1, 0),
    ),
    properties=(Property("the rows are torch.long", _rows_are_long),),
    mistakes=(
        Mistake(
            "counted by place",
            lambda ids, padding, n_cached: (
                torch.arange(n_cached, ids.shape[1]).expand(len(ids), -1) + padding + 1
            ).masked_fill(ids[:, n_cached:] == padding, padding),
            "You count places. Padding is not counted: the first *real* token reads row padding + 1.",
        ),
        Mistake(
            "the cache forgotten",
            lambda ids, padding, n_cached: roberta_rows(ids[:, n_cached:], padding),
            "The newest token does not start the text again. What came before it, cached, counts as well.",
        ),
        Mistake(
            "the cache counted by its places",
            lambda ids, padding, n_cached: (
                roberta_rows(ids[:, n_cached:], padding) + n_cached * (ids[:, n_cached:] != padding).long()
            ),
            "Some of the cached places are padding, and those are not counted.",
        ),
        Mistake(
            "everything returned",
            lambda ids, padding, n_cached: roberta_rows(ids, padding),
            "The right rows for all tokens. Only the newest ones were asked for.",
        ),
        Mistake(
            "one too low",
            lambda ids, padding, n_cached: (
                (ids != padding).long().cumsum(-1).sub(1).clamp(min=0) * (ids != padding) + padding
            )[:, n_cached:],
            "The first real token now shares its row with the padding. It reads row padding + 1.",
        ),
        Mistake(
            "padding reads the row of the last real token",
            lambda ids, padding, n_cached: ((ids != padding).long().cumsum(-1) + padding)[:, n_cached:],
            "Right for real tokens. Padding has a row of its own, wherever it stands.",
        ),
        Mistake(
            "2 in place of padding + 1",
            lambda ids, padding, n_cached: (
                (ids != padding).long().cumsum(-1).add(1).masked_fill(ids == padding, padding)
            )[:, n_cached:],
            "Right where padding is token 1. In other vocabularies it is another token.",
        ),
        Mistake(
            "padding is always token 1",
            lambda ids, padding, n_cached: roberta_rows(ids)[:, n_cached:],
            "Right where padding is token 1. In other vocabularies it is another token.",
        ),
        Mistake(
            "1 in place of padding",
            lambda ids, padding, n_cached: (roberta_rows(ids, padding) - padding + 1)[:, n_cached:],
            "You find the padding rightly, and then add 1. What is added is the padding's own number.",
        ),
        Mistake(
            "places in place of positions",
            lambda ids, padding, n_cached: torch.arange(n_cached, ids.shape[1]).expand(len(ids), -1),
            "Those are the places in the batch. Padding is not counted, and has a row of its own.",
        ),
        Mistake(
            "as many as are cached",
            lambda ids, padding, n_cached: roberta_rows(ids, padding)[:, -n_cached:],
            "The right rows for all tokens, and then you keep n_cached of them. Those are the ones to leave out.",
        ),
    ),
    also_right=(
        _newest_rows_by_loop,
        lambda ids, padding, n_cached: torch.where(
            ids == padding, padding, (ids != padding).long().cumsum(-1) + padding
        )[:, n_cached:],
    ),
    learned="Positions are a property of the whole text. A cache must not make the model forget how long it was, and "
    "padding in the cache must not make it longer.",
)

# --- 5.7 embed_batch


def embed_batch(ids: Tensor, real: Tensor, words: Tensor, table: Tensor) -> Tensor:
    count = real.long()
    rows = count.cumsum(dim=-1) * count + 1
    return words[ids] + table[rows]


def _embed_batch_by_loop(ids: Tensor, real: Tensor, words: Tensor, table: Tensor) -> Tensor:
    result = words[ids].clone()
    for b in range(len(ids)):
        position = 0
        for i in range(ids.shape[1]):
            result[b, i] += table[position + 2] if real[b, i] else table[1]
            position += int(real[b, i])
    return result


def _embedded(rows_of: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    return lambda ids, real, words, table: words[ids] + table[rows_of(ids, real)]


def _sliced_by_batch(ids: Tensor, real: Tensor, words: Tensor, table: Tensor) -> Tensor:
    return words[ids] + table[2 : len(ids) + 2].unsqueeze(1)


def _embed_case(name: str, *lengths: int, n: int):
    def make(g: Generator) -> tuple:
        real = torch.tensor([[place >= n - length for place in range(n)] for length in lengths])
        ids = torch.randint(2, 9, real.shape, generator=g).masked_fill(~real, 1)
        return ids, real, normal(g, 9, 4), normal(g, 12, 4)

    return drawn(name, make)


def _same_text_same_vectors(answer: Callable, g: Generator) -> Complaint:
    words, table = normal(g, 9, 4), normal(g, 12, 4)
    text = torch.randint(2, 9, (1, 4), generator=g)
    alone = as_tensor(answer(text, torch.ones(1, 4, dtype=torch.bool), words, table))
    padded = torch.cat([torch.ones(1, 3, dtype=torch.long), text], dim=1)
    behind = as_tensor(answer(padded, padded != 1, words, table))
    if behind.shape != (1, 7, 4):
        return f"expected shape (1, 7, 4), got {tuple(behind.shape)}"
    complaint = compare(behind[:, 3:], alone)
    return f"behind padding, the same text got other vectors: {complaint}" if complaint else None


EMBED_BATCH = Exercise(
    chapter=5,
    title="Three bugs in four lines",
    points=3,
    minutes=12,
    difficulty=3,
    reference=embed_batch,
    cases=(
        _embed_case("one text", 5, n=5),
        _embed_case("as many texts as tokens", 4, 4, 4, 4, n=4),
        _embed_case("padding on the left", 5, 2, 3, n=5),
        _embed_case("one real token", 1, 4, n=4),
        _embed_case("as long as the table allows", 10, 7, n=10),
    ),
    properties=(Property("padding changes nothing for the text behind it", _same_text_same_vectors),),
    mistakes=(
        Mistake(
            "the slice, the padding and the offset",
            lambda ids, real, words, table: words[ids] + table[: len(ids)].unsqueeze(1),
            "That is the code you were given. Print the rows that it reads for two sentences of three tokens.",
        ),
        Mistake(
            "sliced by the batch",
            _sliced_by_batch,
            "The offset is there, but you take one row for each *text* of the batch.",
        ),
        Mistake(
            "counted over the padding, offset forgotten",
            _embedded(lambda ids, real: torch.arange(ids.shape[1]).expand(ids.shape)),
            "One bug is gone: each place has a row. But which row does the first real token read?",
        ),
        Mistake(
            "counted over the padding",
            _embedded(lambda ids, real: torch.arange(ids.shape[1]).expand(ids.shape) + 2),
            "The offset is right. Positions must count from the first real token.",
        ),
        Mistake(
            "counted over the padding, which has its row",
            _embedded(lambda ids, real: (torch.arange(ids.shape[1]).expand(ids.shape) + 2).masked_fill(~real, 1)),
            "Offset and padding's own row are right. Positions must count from the first real token.",
        ),
        Mistake(
            "the offset forgotten",
            _embedded(lambda ids, real: (real.long().cumsum(-1) - 1).clamp(min=0)),
            "Counted rightly. In this table the rows 0 and 1 belong to no position.",
        ),
        Mistake(
            "the offset forgotten, padding at -1",
            _embedded(lambda ids, real: real.long().cumsum(-1) - 1),
            "In this table the rows 0 and 1 belong to no position. And row -1, which your padding reads, is the last.",
        ),
        Mistake(
            "one too far",
            _embedded(lambda ids, real: (real.long().cumsum(-1) + 2).masked_fill(~real, 1)),
            "Padding is right. The *first* real token reads row 2: how many are counted there?",
        ),
        Mistake(
            "one too far, all of them",
            _embedded(lambda ids, real: real.long().cumsum(-1) * real + 2),
            "Every token reads the row behind its own, padding too.",
        ),
        Mistake(
            "padding set to zero",
            lambda ids, real, words, table: embed_batch(ids, real, words, table) * real.unsqueeze(-1),
            "The text is right. Padding was to get its word's vector and row 1; a mask hides it elsewhere.",
        ),
        Mistake(
            "no row for padding",
            lambda ids, real, words, table: words[ids] + table[real.long().cumsum(-1) + 1] * real.unsqueeze(-1),
            "The text is right. Padding reads a row as well: row 1.",
        ),
        Mistake(
            "off by one",
            _embedded(lambda ids, real: real.long().cumsum(-1)),
            "Nearly: the first real token reads row 1, the padding's own.",
        ),
        Mistake(
            "padding shares row 2",
            _embedded(lambda ids, real: (real.long().cumsum(-1) - 1).clamp(min=0) + 2),
            "Right for the real tokens. Padding has a row of its own: 1.",
        ),
    ),
    also_right=(
        _embed_batch_by_loop,
        _embedded(lambda ids, real: (real.long().cumsum(-1) + 1).masked_fill(~real, 1)),
        lambda ids, real, words, table: (
            F.embedding(ids, words) + F.embedding(real.int().cumsum(-1).mul(real).int() + 1, table)
        ),
    ),
    learned="When batch and length are equal, no shape can betray a wrong axis. Test with a batch of another size, "
    "and test that padding changes nothing.",
)

# --- 5.8 extended_table

LIMIT = 1.95  # nats a letter on texts of twice the length; linear interpolation reaches 1.92
LIMIT_NEW = 2.0  # and on the new positions alone; linear interpolation reaches 1.94, the best line drawn on 2.12


def extended_table() -> Tensor:
    return resize_table(_stored_table(), 2 * N_STORED)


def _stored_table() -> Tensor:
    return stored_model().encoding.encodings[1].table.detach()


@cache
def _long_texts():
    return cut(book()[1], 2 * N_STORED)


def _given_table(answer: Callable) -> Tensor | str:
    try:
        table = as_tensor(answer())
    except (TypeError, ValueError):
        return "return one tensor"
    wanted = (2 * N_STORED, 32)
    if table.shape != wanted:
        return f"expected a table of shape {wanted}, got {tuple(table.shape)}"
    if not table.is_floating_point() or not table.isfinite().all():
        return "the table must be made of finite floating-point numbers"
    return table.float()


def losses_with(table: Tensor) -> tuple[float, float, float]:
    """Mean loss on texts of 48 letters with this table in the stored model: all positions, the old, the new ones."""
    loss = loss_by_position(with_table(stored_model(), table), _long_texts())
    return loss.mean().item(), loss[:N_STORED].mean().item(), loss[N_STORED:].mean().item()


def _reads_longer_texts(answer: Callable, _: Generator) -> Complaint:
    table = _given_table(answer)
    if isinstance(table, str):
        return table
    mean, old, new = losses_with(table)
    return None if mean < LIMIT else f"{mean:.3f} nats; positions 0 to 23: {old:.2f}, 24 to 47: {new:.2f}"


def _reads_the_new_positions(answer: Callable, _: Generator) -> Complaint:
    table = _given_table(answer)
    if isinstance(table, str):
        return table
    new = losses_with(table)[2]
    if new < LIMIT_NEW:
        return None
    as_before = compare(table[: N_STORED - 1], _stored_table()[:-1]) is None
    clue = "; your old rows are as they were, so the new ones lie beyond all that was trained" if as_before else ""
    return f"{new:.3f} nats{clue}"


def _knows_where_the_text_begins(answer: Callable, _: Generator) -> Complaint:
    table = _given_table(answer)
    if isinstance(table, str):
        return table
    if complaint := compare(table[0], _stored_table()[0]):
        return f"position 0 is the start of the text, as before, so its row should be the old one: {complaint}"
    return None


def _line_drawn_on(old: int) -> Tensor:
    """The first `old` rows, and from there on steps of their mean size."""
    table, beyond = _stored_table()[:old], torch.arange(1.0, 2 * N_STORED - old + 1)
    return torch.cat([table, table[-1] + beyond[:, None] * (table[-1] - table[0]) / (old - 1)])


def _line_fitted_and_drawn_on() -> Tensor:
    known = _stored_table()[1:-1]
    places = torch.arange(1.0, N_STORED - 1)
    middle, beyond = places - places.mean(), torch.arange(N_STORED - 1.0, 2 * N_STORED) - places.mean()
    step = middle @ known / middle.square().sum()
    return torch.cat([_stored_table()[:-1], known.mean(dim=0) + beyond[:, None] * step])


def _last_step_repeated() -> Tensor:
    table = _stored_table()
    return torch.cat([table, table[-1] + torch.arange(1.0, N_STORED + 1)[:, None] * (table[-1] - table[-2])])


def _fresh() -> Tensor:
    table = _stored_table()
    noise = torch.randn(table.shape, generator=torch.Generator().manual_seed(0))
    return torch.cat([table, 0.02 * noise])


EXTENDED_TABLE = Exercise(
    chapter=5,
    title="Extend a trained table",
    points=3,
    minutes=15,
    difficulty=3,
    reference=extended_table,
    properties=(
        Property(f"below {LIMIT} nats on 48 letters, without training", _reads_longer_texts),
        Property(f"below {LIMIT_NEW} nats on the new positions", _reads_the_new_positions),
        Property("the first row is the old first row", _knows_where_the_text_begins),
    ),
    mistakes=(
        Mistake(
            "copied rows",
            lambda: torch.cat([_stored_table(), _stored_table()]),
            "At position 24 your number line starts again from the bottom, so all that is new counts as old.",
        ),
        Mistake(
            "fresh rows",
            _fresh,
            "The new rows were never trained. To this model they lie somewhere in the middle of the text.",
        ),
        Mistake(
            "zeros",
            lambda: torch.cat([_stored_table(), torch.zeros(N_STORED, 32)]),
            "A row of zeros is not *no position*: to this model it is one in the middle of the text.",
        ),
        Mistake(
            "the last row repeated",
            lambda: torch.cat([_stored_table(), _stored_table()[-1:].expand(N_STORED, -1)]),
            "All new positions are now one position. And of all rows the last is the least trained.",
        ),
        *(
            Mistake(
                name,
                make,
                "You draw the line on. That keeps the old rows, and the new ones lie where no trained row lies: look "
                "at their loss alone. Where would they be better off?",
            )
            for name, make in (
                ("the line drawn on", lambda: _line_drawn_on(N_STORED)),
                ("the line drawn on, without the last row", lambda: _line_drawn_on(N_STORED - 1)),
                ("the line fitted and drawn on", _line_fitted_and_drawn_on),
            )
        ),
        Mistake(
            "the last step repeated",
            _last_step_repeated,
            "You repeat the step between the last two rows, and the last row is hardly trained: see the chapter's "
            "figure of the number line.",
        ),
        Mistake(
            "each row twice",
            lambda: _stored_table().repeat_interleave(2, dim=0),
            "Close. Two positions share a row each. What could lie between two rows?",
        ),
        Mistake(
            "the rows turned round",
            lambda: resize_table(_stored_table(), 2 * N_STORED).flip(0),
            "The new rows are good ones, in the wrong order.",
        ),
        Mistake(
            "sinusoids",
            lambda: sinusoids(torch.arange(2 * N_STORED), 32).float(),
            "This model has never seen these vectors. Use the rows that it knows.",
        ),
    ),
    also_right=(
        lambda: resize_table(_stored_table(), 2 * N_STORED, "cubic"),
        lambda: resize_table(_stored_table()[:-1], 2 * N_STORED),
        lambda: stretch(_stored_table(), 2 * N_STORED, 0, False),
        lambda: _stretch_by_loop(_stored_table(), 2 * N_STORED, 0, True).double(),
    ),
    learned="On a smooth table, rows in between are rows that the model nearly knows. Extended so, it reads twice as "
    "much without a step of training, and a short fine-tune does the rest.",
)

EXERCISES = (
    TABLE_BUDGET,
    READ_ROWS,
    RELABELLED_TABLE,
    UNNOTICED_RELABELLING,
    STRETCH,
    NEWEST_ROWS,
    EMBED_BATCH,
    EXTENDED_TABLE,
)
