"""Exercises of chapter 6: relative offsets."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from posenc.checks.common import dtype_complaint
from posenc.checks.compare import as_tensor
from posenc.checks.exercise import Case, Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.encoding import Together
from posenc.masks import Causal
from posenc.model import build
from posenc.offsets import Shaw, offset_rows, relative_scores, relative_values
from posenc.symmetry import difference

DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def _last(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    """The positions of the last n_queries of n_keys tokens, and of all keys."""
    return torch.arange(n_keys - n_queries, n_keys), torch.arange(n_keys)


def _keeps_dtype(make: Callable[[Generator, torch.dtype], tuple]) -> Property:
    """The result has the dtype of the arguments that `make(generator, dtype)` draws, whichever that is."""

    def test(answer: Callable, g: Generator) -> Complaint:
        complaints = (dtype_complaint(answer(*make(g, dtype)), dtype) for dtype in DTYPES)
        return next((complaint for complaint in complaints if complaint), None)

    return Property("keeps the dtype", test)


# --- 6.1 offset_index


def offset_index(n_queries: int, n_keys: int, clip: int) -> Tensor:
    return offset_rows(*_last(n_queries, n_keys), clip)


def _offset_index_by_loop(n_queries: int, n_keys: int, clip: int) -> Tensor:
    past = n_keys - n_queries
    rows = [[max(-clip, min(j - i - past, clip)) + clip for j in range(n_keys)] for i in range(n_queries)]
    return torch.tensor(rows)


def _raw_offsets(n_queries: int, n_keys: int) -> Tensor:
    queries, keys = _last(n_queries, n_keys)
    return keys - queries.unsqueeze(-1)


OFFSET_INDEX = Exercise(
    chapter=6,
    title="Offsets for a cache",
    points=2,
    minutes=8,
    difficulty=2,
    reference=offset_index,
    cases=(
        with_arguments("no cache, no clipping", 4, 4, 3),
        with_arguments("no cache, clipped", 6, 6, 2),
        with_arguments("one new token", 1, 7, 3),
        with_arguments("three new tokens", 3, 8, 1),
        with_arguments("the very first token", 1, 1, 4),
        with_arguments("clip 0: one row for all", 2, 3, 0),
        with_arguments("a clip wider than the text", 2, 4, 10),
    ),
    mistakes=(
        Mistake(
            "queries counted from 0",
            lambda n_queries, n_keys, clip: offset_rows(torch.arange(n_queries), torch.arange(n_keys), clip),
            "Right without a cache. The queries are the *newest* tokens: how many came before the first of them?",
        ),
        Mistake(
            "i - j",
            lambda n_queries, n_keys, clip: (-_raw_offsets(n_queries, n_keys)).clamp(-clip, clip) + clip,
            "Past and future have changed places. A key to the left has a negative offset.",
        ),
        Mistake(
            "not clipped",
            lambda n_queries, n_keys, clip: _raw_offsets(n_queries, n_keys) + clip,
            "Some of your rows do not exist: the table has rows 0 to 2 * clip.",
        ),
        Mistake(
            "clipped on one side only",
            lambda n_queries, n_keys, clip: _raw_offsets(n_queries, n_keys).clamp(max=clip) + clip,
            "A key far to the *left* gets a negative row. Which row should it get?",
        ),
        Mistake(
            "clipped below only",
            lambda n_queries, n_keys, clip: _raw_offsets(n_queries, n_keys).clamp(min=-clip) + clip,
            "A key far to the *right* gets a row that the table does not have.",
        ),
        Mistake(
            "wrapped round",
            lambda n_queries, n_keys, clip: (_raw_offsets(n_queries, n_keys) + clip) % (2 * clip + 1),
            "The remainder starts again at the other end, so a far key on the left passes for one on the right. "
            "Clipping stops at the edge.",
        ),
        Mistake(
            "the future set to 0",
            lambda n_queries, n_keys, clip: offset_index(n_queries, n_keys, clip).tril(n_keys - n_queries),
            "Row 0 is taken: it belongs to keys far to the left. Hiding the future is the mask's work; here each "
            "pair has a row.",
        ),
        Mistake(
            "the future counted as offset 0",
            lambda n_queries, n_keys, clip: _raw_offsets(n_queries, n_keys).clamp(-clip, 0) + clip,
            "Keys to the right have rows of their own. Hiding them is the mask's work.",
        ),
        Mistake(
            "clipped after the shift",
            lambda n_queries, n_keys, clip: (_raw_offsets(n_queries, n_keys) + clip).clamp(-clip, clip),
            "First clip the offset to ±clip, then make a row number of it. You did it the other way round.",
        ),
        Mistake(
            "offsets in place of rows",
            lambda n_queries, n_keys, clip: _raw_offsets(n_queries, n_keys).clamp(-clip, clip),
            "These are clipped offsets. A negative number is no row: which row holds the offset -clip?",
        ),
        Mistake(
            "one row too few",
            lambda n_queries, n_keys, clip: (_raw_offsets(n_queries, n_keys) + clip).clamp(0, max(2 * clip - 1, 0)),
            "From -clip to +clip there are 2 * clip + 1 offsets. You never use the last row.",
        ),
        Mistake(
            "queries across, keys down",
            lambda n_queries, n_keys, clip: offset_index(n_queries, n_keys, clip).mT,
            "Queries go down, keys across: the shape is (n_queries, n_keys).",
        ),
    ),
    also_right=(_offset_index_by_loop,),
    learned="Rows come from *positions*: subtract, clip, shift by clip. With a cache the first query is not token 0.",
)

# --- 6.2 table_parameters


def table_parameters(
    n_layers: int, n_heads: int, head_dim: int, clip: int, values: bool, shared_by_heads: bool, shared_by_layers: bool
) -> int:
    rows = 2 * clip + 1
    tables = (2 if values else 1) * (1 if shared_by_heads else n_heads) * (1 if shared_by_layers else n_layers)
    return rows * head_dim * tables


def _by_building(
    n_layers: int, n_heads: int, head_dim: int, clip: int, values: bool, shared_by_heads: bool, shared_by_layers: bool
) -> int:
    size = 0
    for layer in range(n_layers):
        for head in range(n_heads):
            if (shared_by_heads and head) or (shared_by_layers and layer):
                continue
            size += sum(head_dim for _ in range(-clip, clip + 1)) * (1 + int(values))
    return size


def _counted(**change: Callable[..., Any]) -> Callable:
    """table_parameters with some arguments replaced by a function of all of them."""
    names = ("n_layers", "n_heads", "head_dim", "clip", "values", "shared_by_heads", "shared_by_layers")

    def wrong(*arguments: Any) -> int:
        given = dict(zip(names, arguments, strict=True))
        return table_parameters(**(given | {name: replace(**given) for name, replace in change.items()}))

    return wrong


def _with_rows(rows_of: Callable[[int], int]) -> Callable:
    def wrong(*arguments: Any) -> int:
        clip = arguments[3]
        return table_parameters(*arguments) // (2 * clip + 1) * rows_of(clip)

    return wrong


TABLE_PARAMETERS = Exercise(
    chapter=6,
    title="What do the tables weigh?",
    points=1,
    minutes=6,
    difficulty=1,
    reference=table_parameters,
    cases=(
        with_arguments("the chapter's layer", 1, 16, 64, 512, False, False, False),
        with_arguments("keys and values", 1, 16, 64, 512, True, False, False),
        with_arguments("one table for all heads", 6, 8, 64, 16, True, True, False),
        with_arguments("one table for all layers", 6, 8, 64, 16, True, False, True),
        with_arguments("one table for everything", 12, 12, 64, 128, False, True, True),
        with_arguments("clip 0", 2, 3, 5, 0, False, False, False),
        with_arguments("one head, many layers", 24, 1, 32, 4, True, False, False),
    ),
    mistakes=(
        Mistake("one row too few", _with_rows(lambda clip: 2 * clip), "Which offset lies between -1 and 1?"),
        Mistake(
            "one side only",
            _with_rows(lambda clip: clip + 1),
            "You count the keys on one side. Offsets to the right have rows of their own.",
        ),
        Mistake(
            "the values' table forgotten",
            _counted(values=lambda **_: False),
            "With `values` there is a second table of the same size.",
        ),
        Mistake(
            "the layers forgotten",
            _counted(n_layers=lambda **_: 1),
            "Unless they share it, each layer has its own tables.",
        ),
        Mistake(
            "sharing by layers forgotten",
            _counted(shared_by_layers=lambda **_: False),
            "If all layers use the same tables, these are counted once.",
        ),
        Mistake(
            "sharing by heads forgotten",
            _counted(shared_by_heads=lambda **_: False),
            "If all heads of a layer use the same tables, these are counted once in that layer.",
        ),
        Mistake(
            "one table as soon as anything is shared",
            _counted(
                n_layers=lambda n_layers, shared_by_heads, **_: 1 if shared_by_heads else n_layers,
                n_heads=lambda n_heads, shared_by_layers, **_: 1 if shared_by_layers else n_heads,
            ),
            "Heads and layers share independently: sharing among heads does not make the layers share.",
        ),
        Mistake(
            "sharing turned round",
            _counted(
                shared_by_heads=lambda shared_by_heads, **_: not shared_by_heads,
                shared_by_layers=lambda shared_by_layers, **_: not shared_by_layers,
            ),
            "What is shared is counted once.",
        ),
        Mistake(
            "one table for all heads, always",
            _counted(shared_by_heads=lambda **_: True),
            "Unless they share it, each head has its own table.",
        ),
    ),
    also_right=(_by_building,),
    learned="(2k + 1) * head_dim a table, once a head and layer unless shared, twice with values.",
)

# --- 6.3 blind_spot

BLIND_CLIP = 3


def blind_spot() -> tuple[list[int], list[int]]:
    return [1, 2, 4, 5, 6], [2, 1, 4, 5, 6]  # 4 and 3 places before the last token


def _token_texts(answer: Callable) -> list[Tensor] | str:
    """The two texts as tensors, or a complaint."""
    pair = answer()
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return "return two lists of whole numbers, as in `return [1, 2], [3, 4]`"
    texts = []
    for text in pair:
        try:
            tokens = as_tensor(text)
        except (TypeError, ValueError, RuntimeError):
            return "each text must be a list of whole numbers"
        if tokens.ndim != 1 or not 1 <= len(tokens) <= 12:
            return "each text must be a list of 1 to 12 whole numbers"
        if tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool:
            return "each text must be a list of whole numbers"
        if tokens.min() < 0 or tokens.max() > 9:
            return "tokens must be whole numbers from 0 to 9"
        texts.append(tokens.long())
    if len(texts[0]) != len(texts[1]):
        return "the two texts must have the same length"
    return "your two texts are the same one" if torch.equal(*texts) else texts


def _last_rows_differ(texts: list[Tensor], clip: int, generator: Generator) -> float:
    """How far the last rows lie apart, at most, over three one-layer causal models with random weights."""
    settings = {"vocabulary": 10, "d_model": 8, "n_layers": 1, "n_heads": 2, "n_outputs": 2}
    gaps = []
    for seed in torch.randint(2**31, (3,), generator=generator).tolist():
        torch.manual_seed(seed)
        model = build(seed, **settings, encoding=Together(Causal(), Shaw(4, clip))).double()
        gaps.append(difference(*(model.rows(text.unsqueeze(0))[0, -1] for text in texts)))
    return max(gaps)


def _why_not_tied(first: list[int], second: list[int]) -> str:
    """In words, why a layer with clip BLIND_CLIP tells these two texts apart."""
    start = max(0, len(first) - BLIND_CLIP)  # where the keys nearer than the clip begin
    if near := [d for d in range(BLIND_CLIP) if d < len(first) and first[-1 - d] != second[-1 - d]]:
        where = f"{near[0]} before the last token" if near[0] else "in the last token itself"
        return f"the texts differ {where}, and a distance below the clip is known exactly"
    if sorted(first[:start]) != sorted(second[:start]):
        return "the far tokens of the two texts are not the same ones, each as often"
    return "look at the far tokens"


def _clip_ties(answer: Callable, generator: Generator) -> Complaint:
    texts = _token_texts(answer)
    if isinstance(texts, str):
        return texts
    gap = _last_rows_differ(texts, BLIND_CLIP, generator)
    if gap < 1e-10:
        return None
    why = _why_not_tied(*(text.tolist() for text in texts))
    return f"with clip {BLIND_CLIP} the last rows differ by {gap:.1g}: {why}"


def _one_more_tells(answer: Callable, generator: Generator) -> Complaint:
    texts = _token_texts(answer)
    if isinstance(texts, str):
        return texts
    if _last_rows_differ(texts, BLIND_CLIP, generator) >= 1e-10:
        return f"comes after the tie with clip {BLIND_CLIP}"
    gap = _last_rows_differ(texts, BLIND_CLIP + 1, generator)
    if gap > 1e-6:
        return None
    differ = (texts[0] != texts[1]).nonzero().flatten()
    distances = ", ".join(str(d) for d in sorted((len(texts[0]) - 1 - differ).tolist()))
    return (
        f"a layer with clip {BLIND_CLIP + 1} cannot tell them apart either: they differ at the distances {distances} "
        "from the last token, and all of these are in its bag as well"
    )


BLIND_SPOT = Exercise(
    chapter=6,
    title="A counterexample: the blind spot of the clip",
    points=3,
    minutes=10,
    difficulty=3,
    reference=blind_spot,
    properties=(
        Property("clip 3 ties", _clip_ties),
        Property("clip 4 tells them apart", _one_more_tells),
    ),
    mistakes=(
        Mistake(
            "the same text twice",
            lambda: ([1, 2, 4, 5, 6], [1, 2, 4, 5, 6]),
            "No layer can tell a text from itself. What may differ, if of the far tokens only the bag counts?",
        ),
        Mistake(
            "one of the two is near",
            lambda: ([1, 2, 4, 5, 6], [4, 2, 1, 5, 6]),
            "One of the tokens that you exchange is nearer than the clip, so its distance is known exactly.",
        ),
        Mistake(
            "too far out",
            lambda: ([1, 2, 3, 4, 5, 6, 7], [2, 1, 3, 4, 5, 6, 7]),
            "These two are in the bag for clip 4 as well. Which distance leaves the bag when the clip grows by one?",
        ),
        Mistake(
            "another bag",
            lambda: ([1, 1, 2, 4, 5, 6], [1, 2, 2, 4, 5, 6]),
            "Even a bag shows how many there are of each token. Both texts need the same tokens.",
        ),
        Mistake(
            "the last token moved",
            lambda: ([1, 2, 4, 5, 6], [6, 2, 4, 5, 1]),
            "The last row is where we read, and it knows its own token.",
        ),
    ),
    also_right=(
        lambda: ((7, 3, 3, 9, 0, 0, 0), (9, 3, 3, 7, 0, 0, 0)),
        lambda: (torch.tensor([5, 6, 5, 5, 5]), torch.tensor([6, 5, 5, 5, 5])),
    ),
    learned="A clip of k knows distances up to k - 1. At k the bag begins: one row stands for all the rest.",
)

# --- 6.4 unskew


def unskew(weights: Tensor) -> Tensor:
    n = weights.shape[-1]
    line = F.pad(weights, (0, n - 1)).flatten(-2)  # rows of 2n - 1, end to end
    return F.pad(line, (n - 1, 1)).unflatten(-1, (n, 2 * n))[..., :-1]


def _unskew_by_loop(weights: Tensor) -> Tensor:
    n = weights.shape[-1]
    by_offset = weights.new_zeros(*weights.shape[:-1], 2 * n - 1)
    for i in range(n):
        by_offset[..., i, n - 1 - i : 2 * n - 1 - i] = weights[..., i, :]
    return by_offset


def _unskew_by_scatter(weights: Tensor) -> Tensor:
    n = weights.shape[-1]
    columns = torch.arange(n) - torch.arange(n).unsqueeze(-1) + n - 1
    return weights.new_zeros(*weights.shape[:-1], 2 * n - 1).scatter(-1, columns.expand(weights.shape), weights)


def _pushed_right(weights: Tensor) -> Tensor:
    n = weights.shape[-1]
    rows = [F.pad(weights[..., i, :], (i, n - 1 - i)) for i in range(n)]
    return torch.stack(rows, dim=-2)


def _folded(front: int, keep: int) -> Callable:
    """The fold of `unskew` with n + front zeros before the line, and 2n + keep columns kept."""

    def wrong(weights: Tensor) -> Tensor:
        n = weights.shape[-1]
        line = F.pad(weights, (0, n - 1)).flatten(-2)
        line = F.pad(line, (n + front, 0))
        line = F.pad(line, (0, n * 2 * n - line.shape[-1]))
        return line.unflatten(-1, (n, 2 * n))[..., : 2 * n + keep]

    return wrong


def _has_a_gradient(answer: Callable, g: Generator) -> Complaint:
    weights = normal(g, 4, 4).requires_grad_()
    result = answer(weights)
    if not isinstance(result, Tensor) or not result.requires_grad:
        return "the result must carry a gradient: stay with tensor operations"
    (gradient,) = torch.autograd.grad(result.sum(), weights)
    return None if difference(gradient, torch.ones(4, 4).double()) < 1e-9 else "each weight must arrive exactly once"


UNSKEW = Exercise(
    chapter=6,
    title="The skew, backwards",
    points=3,
    minutes=15,
    difficulty=4,
    reference=unskew,
    cases=(
        drawn("three tokens", lambda g: (normal(g, 3, 3),)),
        drawn("five tokens", lambda g: (normal(g, 5, 5),)),
        drawn("batch and heads", lambda g: (normal(g, 2, 3, 4, 4),)),
        drawn("one token", lambda g: (normal(g, 1, 1),)),
        drawn("two tokens, float32", lambda g: (normal(g, 2, 2, dtype=torch.float32),)),
    ),
    properties=(
        _keeps_dtype(lambda g, dtype: (normal(g, 3, 3, dtype=dtype),)),
        Property("has a gradient", _has_a_gradient),
    ),
    mistakes=(
        Mistake(
            "pushed the wrong way",
            _pushed_right,
            "Your rows move to the right as i grows. The own token, offset 0, must stand in one column for all rows.",
        ),
        Mistake(
            "columns for i - j",
            lambda weights: _unskew_by_loop(weights).flip(-1),
            "Your columns run from +(n - 1) down to -(n - 1). The first column belongs to the leftmost key.",
        ),
        Mistake(
            "all rows alike",
            lambda weights: F.pad(weights, (weights.shape[-1] - 1, 0)),
            "All rows begin in one column: nothing moved them, or you folded into rows that are as long as before. "
            "Each row must begin one place earlier than the one above it.",
        ),
        Mistake(
            "one zero too many in front",
            _folded(front=0, keep=-1),
            "Each row stands one place too far to the right. How many zeros precede the first weight of row 0?",
        ),
        Mistake(
            "the last column kept",
            _folded(front=-1, keep=0),
            "The rows stand where they should, and behind them is one column of zeros too many.",
        ),
        Mistake(
            "rows upside down",
            lambda weights: _unskew_by_loop(weights).flip(-2),
            "Your queries run from the last to the first. Row i belongs to query i.",
        ),
        Mistake(
            "summed over the queries",
            lambda weights: _unskew_by_loop(weights).sum(dim=-2),
            "You added the rows up. Each query keeps a row of its own.",
        ),
    ),
    also_right=(_unskew_by_loop, _unskew_by_scatter),
    learned="Pad, flatten, pad the line, fold: weights sorted by offset, ready to be multiplied with a value table. "
    "It is the transpose of the skew, and what autograd runs on the way back.",
)

# --- 6.5 mix_with_offsets


def mix_with_offsets(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    n_queries, n_keys = weights.shape[-2:]
    rows = offset_rows(*_last(n_queries, n_keys), clip=table.shape[-2] // 2)
    return weights @ values + relative_values(weights, table, rows)


def _mix_by_offset_loop(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    n_queries, n_keys = weights.shape[-2:]
    rows = offset_index(n_queries, n_keys, table.shape[-2] // 2)
    mixed = weights @ values
    for row in range(table.shape[-2]):
        mixed = mixed + (weights * (rows == row)).sum(dim=-1, keepdim=True) * table[..., row, :]
    return mixed


def _mix_by_one_hot(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    rows = offset_index(*weights.shape[-2:], table.shape[-2] // 2)
    result = weights @ values
    by_row = torch.stack([(weights * (rows == r)).sum(-1) for r in range(table.shape[-2])], dim=-1)
    return result + by_row @ table


def _mix_with(rows_of: Callable[[int, int, int], Tensor], content: bool = True) -> Callable:
    def wrong(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
        rows = rows_of(*weights.shape[-2:], table.shape[-2] // 2)
        mixed = relative_values(weights, table, rows)
        return weights @ values + mixed if content else mixed

    return wrong


def _mix_without_weights(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    rows = offset_index(*weights.shape[-2:], table.shape[-2] // 2)
    return weights @ values + relative_values(torch.full_like(weights, 1 / weights.shape[-1]), table, rows)


def _mix_not_clipped(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    clip = table.shape[-2] // 2
    offsets = _raw_offsets(*weights.shape[-2:])
    inside = weights * (offsets.abs() <= clip)
    return weights @ values + relative_values(inside, table, offsets.clamp(-clip, clip) + clip)


def _mix_case(
    name: str, *batch: int, n_queries: int, n_keys: int, clip: int, dtype: torch.dtype = torch.float64
) -> Case:
    return drawn(
        name,
        lambda g: (
            normal(g, *batch, n_queries, n_keys, dtype=dtype).softmax(dim=-1),
            normal(g, *batch, n_keys, 4, dtype=dtype),
            normal(g, 2 * clip + 1, 4, dtype=dtype),
        ),
    )


def _mix_last_wins(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """scatter where scatter_add is due: of all keys with one row, only the last counts."""
    rows = offset_index(*weights.shape[-2:], table.shape[-2] // 2)
    last = torch.ones_like(rows, dtype=torch.bool)
    last[:, :-1] = rows[:, :-1] != rows[:, 1:]
    return weights @ values + relative_values(weights * last, table, rows)


def _mix_normalised(weights: Tensor, values: Tensor, table: Tensor) -> Tensor:
    rows = offset_index(*weights.shape[-2:], table.shape[-2] // 2)
    return weights @ values + relative_values(weights / weights.sum(dim=-1, keepdim=True), table, rows)


class _Largest(TorchFunctionMode):
    """Remembers the number of entries of the largest tensor made inside, in this process."""

    entries = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.entries = max(self.entries, result.numel())
        return result


def _small_enough(answer: Callable, g: Generator) -> Complaint:
    n = 64
    for width, n_rows in ((32, 9), (8, 33)):  # wide vectors, then a long table
        weights, values, table = normal(g, n, n).softmax(-1), normal(g, n, width), normal(g, n_rows, width)
        with _Largest() as largest:
            answer(weights, values, table)
        if largest.entries >= n * n * 4:
            return (
                f"with {n} tokens of width {width} and {n_rows} rows you made a tensor of {largest.entries:,} "
                "numbers: several for each pair; first add up, for each query, the weight that each row gets"
            )
    return None


MIX_WITH_OFFSETS = Exercise(
    chapter=6,
    title="Through the value door",
    points=3,
    minutes=15,
    difficulty=3,
    reference=mix_with_offsets,
    cases=(
        _mix_case("no clipping", n_queries=4, n_keys=4, clip=3),
        _mix_case("clipped", n_queries=7, n_keys=7, clip=2),
        _mix_case("batch and heads", 2, 3, n_queries=5, n_keys=5, clip=2),
        _mix_case("a cache", 2, n_queries=2, n_keys=6, clip=2),
        _mix_case("clip 0", n_queries=3, n_keys=3, clip=0),
        drawn(
            "weights that do not sum to 1",
            lambda g: (normal(g, 4, 5).exp(), normal(g, 5, 3), normal(g, 5, 3)),
        ),
        _mix_case("float32", n_queries=5, n_keys=5, clip=1, dtype=torch.float32),
    ),
    properties=(
        _keeps_dtype(lambda g, dtype: tuple(normal(g, *shape, dtype=dtype) for shape in ((3, 3), (3, 2), (3, 2)))),
        Property("no vector for each pair", _small_enough),
    ),
    mistakes=(
        Mistake(
            "only the offsets",
            _mix_with(offset_index, content=False),
            "Your offset part is right. The values themselves are missing.",
        ),
        Mistake(
            "only the values",
            lambda weights, values, table: weights @ values,
            "That is attention without positions: the table is not used.",
        ),
        Mistake(
            "i - j",
            _mix_with(lambda n, m, clip: 2 * clip - offset_index(n, m, clip)),
            "Past and future have changed places. Row 0 of the table belongs to keys far to the *left*.",
        ),
        Mistake(
            "queries counted from 0",
            _mix_with(lambda n, m, clip: offset_rows(torch.arange(n), torch.arange(m), clip)),
            "Right without a cache. With one, the queries are the last tokens, not the first.",
        ),
        Mistake(
            "far keys dropped",
            _mix_not_clipped,
            "Beyond the clip you add nothing. Clipping means that those keys use the outermost row.",
        ),
        Mistake(
            "of several keys only the last",
            _mix_last_wins,
            "Several keys share an outermost row. One of them overwrites the others' weight: it should be added.",
        ),
        Mistake(
            "normalised again",
            _mix_normalised,
            "You divide by the sum of the weights. Use them as they come: they need not sum to 1.",
        ),
        Mistake(
            "not weighted",
            _mix_without_weights,
            "You average the offset vectors evenly. Each is due the weight that its key got.",
        ),
    ),
    also_right=(_mix_by_offset_loop, _mix_by_one_hot),
    learned="Weights first, vectors second: collect the weight of each offset, then one small product with the table.",
)

# --- 6.6 relative_shift


def relative_shift(x: Tensor) -> Tensor:
    n_queries, n_keys = x.shape[-2:]
    padded = F.pad(x, (1, 0)).reshape(*x.shape[:-2], n_keys + 1, n_queries)
    shifted = padded[..., 1:, :].reshape(x.shape)
    seen = torch.ones(n_queries, n_keys, dtype=torch.bool, device=x.device).tril(n_keys - n_queries)
    return shifted.masked_fill(~seen, 0)


def _relative_shift_by_loop(x: Tensor) -> Tensor:
    n_queries, n_keys = x.shape[-2:]
    shifted = torch.zeros_like(x)
    for i in range(n_queries):
        lost = n_queries - 1 - i
        shifted[..., i, : n_keys - lost] = x[..., i, lost:]
    return shifted


def _relative_shift_by_gather(x: Tensor) -> Tensor:
    n_queries, n_keys = x.shape[-2:]
    columns = torch.arange(n_keys) + torch.arange(n_queries - 1, -1, -1).unsqueeze(-1)
    picked = x.gather(-1, columns.clamp(max=n_keys - 1).expand(x.shape))
    return picked * (columns < n_keys)


def _spilled(x: Tensor) -> Tensor:
    n_queries, n_keys = x.shape[-2:]
    return F.pad(x, (1, 0)).reshape(*x.shape[:-2], n_keys + 1, n_queries)[..., 1:, :].reshape(x.shape)


def _rolled(x: Tensor) -> Tensor:
    n_queries = x.shape[-2]
    return torch.stack([x[..., i, :].roll(i + 1 - n_queries, dims=-1) for i in range(n_queries)], dim=-2)


def _rolled_the_wrong_way(x: Tensor) -> Tensor:
    n_queries = x.shape[-2]
    return torch.stack([x[..., i, :].roll(n_queries - 1 - i, dims=-1) for i in range(n_queries)], dim=-2)


def _queries_from_zero(x: Tensor) -> Tensor:
    """Query i taken for token i, though it is token i + n_keys - n_queries."""
    n_queries, n_keys = x.shape[-2:]
    shifted = torch.zeros_like(x)
    for i in range(n_queries):
        shifted[..., i, : i + 1] = x[..., i, n_keys - 1 - i :]
    return shifted


def _chapters_shift(x: Tensor) -> Tensor:
    """The chapter's `xl_shift` as it stands: no batch in front, and the spill left in."""
    n_queries, n_keys = x.shape
    padded = F.pad(x, (1, 0)).reshape(n_keys + 1, n_queries)
    return padded[1:].reshape(n_queries, n_keys)


def _chapters_shift_masked(x: Tensor) -> Tensor:
    n_queries, n_keys = x.shape
    return _chapters_shift(x).tril(n_keys - n_queries)


def _masked_top_left(x: Tensor) -> Tensor:
    return _spilled(x) * torch.ones(x.shape[-2:], dtype=x.dtype).tril()


def _shifted_right(x: Tensor) -> Tensor:
    n_queries, n_keys = x.shape[-2:]
    return torch.stack([F.pad(x[..., i, :], (i, 0))[..., :n_keys] for i in range(n_queries)], dim=-2)


RELATIVE_SHIFT = Exercise(
    chapter=6,
    title="Transformer-XL's shift, with memory",
    points=3,
    minutes=15,
    difficulty=4,
    reference=relative_shift,
    cases=(
        drawn("no memory", lambda g: (normal(g, 4, 4),)),
        drawn("three tokens of memory", lambda g: (normal(g, 4, 7),)),
        drawn("batch and heads", lambda g: (normal(g, 2, 3, 3, 5),)),
        drawn("one query", lambda g: (normal(g, 1, 6),)),
        drawn("one query, one key", lambda g: (normal(g, 1, 1),)),
        drawn("float32", lambda g: (normal(g, 3, 4, dtype=torch.float32),)),
    ),
    properties=(_keeps_dtype(lambda g, dtype: (normal(g, 2, 4, dtype=dtype),)),),
    mistakes=(
        Mistake(
            "the spill left in",
            _spilled,
            "Right wherever a query may look. In the future stands what spilled over from the next row: put 0 there.",
        ),
        Mistake(
            "rolled",
            _rolled,
            "What leaves a row on the left comes in again on the right. In the future there should be 0.",
        ),
        Mistake(
            "rolled to the right",
            _rolled_the_wrong_way,
            "Your rows move to the right, and come in again on the left. Which way must the first row move, so that "
            "its distance 0 meets its own key?",
        ),
        Mistake(
            "queries counted from 0",
            _queries_from_zero,
            "Right without memory. With it, the queries are the *last* tokens: query 0 has keys to its left.",
        ),
        Mistake(
            "the chapter's function as it stands",
            _chapters_shift,
            "Two things are missing: axes in front of the last two, and 0 in the future.",
        ),
        Mistake(
            "two axes only",
            _chapters_shift_masked,
            "Right for one head. With batch and heads in front, reshape must keep those axes.",
        ),
        Mistake(
            "the mask's corner at the top left",
            _masked_top_left,
            "With memory the first query may see more than one key. How many?",
        ),
        Mistake(
            "not shifted",
            lambda x: x.tril(x.shape[-1] - x.shape[-2]),
            "You masked the future, but no row has moved. In the last row nothing moves; in the first, most.",
        ),
        Mistake(
            "shifted to the right",
            _shifted_right,
            "Your rows move to the right as i grows. Look at the last query: its columns already are the keys.",
        ),
    ),
    also_right=(_relative_shift_by_loop, _relative_shift_by_gather),
    learned="The same trick as the skew, with the zero column in front. What spills over lies in the future, so the "
    "causal mask of Transformer-XL forgives it; without that mask it would be read.",
)

# --- 6.7 convert_table


def convert_table(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    ours = theirs.flip(0)  # i - j becomes j - i
    more = clip - theirs.shape[0] // 2
    ours = torch.cat([ours[:1].expand(more, -1), ours, ours[-1:].expand(more, -1)])
    return ours.expand(n_heads, *ours.shape).clone()


def _convert_by_index(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    window = theirs.shape[0] // 2
    rows = torch.arange(-clip, clip + 1).clamp(-window, window)
    return torch.stack([theirs[window - rows] for _ in range(n_heads)])


def _convert_without_flip(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    return convert_table(theirs.flip(0), clip, n_heads)


def _convert_with_zeros(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    more = clip - theirs.shape[0] // 2
    return F.pad(theirs.flip(0), (0, 0, more, more)).expand(n_heads, -1, -1).clone()


def _convert_stretched(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    rows = torch.linspace(0, theirs.shape[0] - 1, 2 * clip + 1).round().long()
    return theirs.flip(0)[rows].expand(n_heads, -1, -1).clone()


def _convert_edges_swapped(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    ours = theirs.flip(0)
    more = clip - theirs.shape[0] // 2
    ours = torch.cat([ours[-1:].expand(more, -1), ours, ours[:1].expand(more, -1)])
    return ours.expand(n_heads, *ours.shape).clone()


def _convert_at_one_end(theirs: Tensor, clip: int, n_heads: int) -> Tensor:
    ours = theirs.flip(0)
    more = 2 * clip + 1 - len(ours)
    return torch.cat([ours, ours[-1:].expand(more, -1)]).expand(n_heads, -1, -1).clone()


def _gives_the_same_scores(answer: Callable, g: Generator) -> Complaint:
    theirs, queries = normal(g, 5, 4), normal(g, 3, 9, 4)  # window 2, three heads, nine tokens
    table = answer(theirs, 4, 3)
    if not isinstance(table, Tensor) or table.shape != (3, 9, 4):
        return "return a tensor of shape (n_heads, 2 * clip + 1, head_dim)"
    at = torch.arange(9)
    rows = (at.unsqueeze(-1) - at).clamp(-2, 2) + 2  # their convention: i - j
    gap = difference(relative_scores(queries, theirs, rows), relative_scores(queries, table, offset_rows(at, at, 4)))
    return None if gap < 1e-9 else f"with your table some score of nine tokens changes by {gap:.2g}"


def _heads_can_part(answer: Callable, g: Generator) -> Complaint:
    table = answer(normal(g, 3, 2), 2, 2)
    if not isinstance(table, Tensor) or table.shape != (2, 5, 2):
        return "return a tensor of shape (n_heads, 2 * clip + 1, head_dim)"
    changed = table.clone().detach()
    table = table.detach()
    table[0, 0, 0] += 1
    other = difference(table[1], changed[1]) + difference(table[0, 1:], changed[0, 1:])
    return None if other == 0 else "changing one entry changes others too: they share memory; make a real copy"


CONVERT_TABLE = Exercise(
    chapter=6,
    title="Load another program's table",
    points=3,
    minutes=15,
    difficulty=3,
    reference=convert_table,
    cases=(
        drawn("same window, one head", lambda g: (normal(g, 5, 3), 2, 1)),
        drawn("same window, three heads", lambda g: (normal(g, 5, 3), 2, 3)),
        drawn("a wider clip", lambda g: (normal(g, 5, 3), 5, 2)),
        drawn("window 0", lambda g: (normal(g, 1, 4), 2, 2)),
        drawn("float32", lambda g: (normal(g, 3, 2, dtype=torch.float32), 2, 2)),
    ),
    properties=(
        _keeps_dtype(lambda g, dtype: (normal(g, 3, 2, dtype=dtype), 2, 2)),
        Property("the same scores as before", _gives_the_same_scores),
        Property("the heads can be trained apart", _heads_can_part),
    ),
    mistakes=(
        Mistake(
            "their order kept",
            _convert_without_flip,
            "Their first row is for i - j = -window: a key to the *right*. Where do we keep that one?",
        ),
        Mistake(
            "zeros outside",
            _convert_with_zeros,
            "Their model clips: a key beyond the window used the outermost vector, not zero.",
        ),
        Mistake(
            "stretched",
            _convert_stretched,
            "Offset 1 must stay offset 1. The new rows belong outside, not in between.",
        ),
        Mistake(
            "grown at one end",
            _convert_at_one_end,
            "Offset 0 must be the middle row. Add as many rows in front as behind.",
        ),
        Mistake(
            "edges swapped",
            _convert_edges_swapped,
            "The middle is right. The rows that you added repeat the edge of the other side.",
        ),
        Mistake(
            "no axis for the heads",
            lambda theirs, clip, n_heads: convert_table(theirs, clip, n_heads)[0],
            "The values are right. Each head needs a copy: the shape is (n_heads, 2 * clip + 1, head_dim).",
        ),
    ),
    also_right=(_convert_by_index,),
    learned="Turn the sign, repeat the edges, copy for each head: the model is the same function, with room to learn "
    "longer distances.",
)

# --- 6.8 shaw_scores


def shaw_scores(queries: Tensor, keys: Tensor, table: Tensor) -> Tensor:
    at = torch.arange(queries.shape[-2])
    rows = offset_rows(at, at, clip=table.shape[0] // 2)
    return (queries @ keys.mT + relative_scores(queries, table, rows)) / queries.shape[-1] ** 0.5


def _shaw_scores_by_vectors(queries: Tensor, keys: Tensor, table: Tensor) -> Tensor:
    n, head_dim = queries.shape
    clip = len(table) // 2
    offsets = torch.arange(n)[None, :] - torch.arange(n)[:, None]
    vectors = keys + table[offsets.clamp(-clip, clip) + clip]  # (n, n, head_dim)
    return torch.einsum("id,ijd->ij", queries, vectors) / head_dim**0.5


def _shaw_scores_by_loop(queries: Tensor, keys: Tensor, table: Tensor) -> Tensor:
    n, head_dim = queries.shape
    clip = len(table) // 2
    rows = [[queries[i] @ (keys[j] + table[max(-clip, min(clip, j - i)) + clip]) for j in range(n)] for i in range(n)]
    return torch.stack([torch.stack(row) for row in rows]) / head_dim**0.5


BUGS = {
    "sign": "past and future have changed places",
    "clip": "offset 0 does not get the middle row",
    "index": "some rows that you look up do not exist, and a far key on the left may get a row from the table's end",
    "scale": "the offset's vector belongs to the key, and is not scaled as the key is",
}


def _buggy(*bugs: str) -> Callable:
    """The exercise's function with some of its four bugs left in, line by line as it is printed."""

    def wrong(queries: Tensor, keys: Tensor, table: Tensor) -> Tensor:
        n, head_dim = queries.shape
        clip = len(table) // 2 - 1 if "clip" in bugs else len(table) // 2
        offsets = torch.arange(n)[None, :] - torch.arange(n)[:, None]
        offsets = -offsets if "sign" in bugs else offsets
        rows = (offsets + clip).clamp(max=2 * clip) if "index" in bugs else offsets.clamp(-clip, clip) + clip
        relative = torch.einsum("id,ijd->ij", queries, table[rows])
        if "scale" in bugs:
            return queries @ keys.T / head_dim**0.5 + relative
        return (queries @ keys.T + relative) / head_dim**0.5

    return wrong


def _left_in(*bugs: str) -> Mistake:
    counts = {1: "One bug is", 2: "Two bugs are", 3: "Three bugs are", 4: "All four bugs are"}
    name = "the text as it stands" if len(bugs) == 4 else "left in: " + ", ".join(f"the {bug}" for bug in bugs)
    return Mistake(name, _buggy(*bugs), f"{counts[len(bugs)]} left: " + "; ".join(BUGS[bug] for bug in bugs) + ".")


def _scores_case(name: str, n: int, clip: int, head_dim: int = 4, dtype: torch.dtype = torch.float64) -> Case:
    shapes = (n, head_dim), (n, head_dim), (2 * clip + 1, head_dim)
    return drawn(name, lambda g: tuple(normal(g, *shape, dtype=dtype) for shape in shapes))


SHAW_SCORES = Exercise(
    chapter=6,
    title="Bug hunt: four in eight lines",
    points=2,
    minutes=12,
    difficulty=3,
    reference=shaw_scores,
    cases=(
        _scores_case("three tokens, clip 2", 3, 2),
        _scores_case("six tokens, clip 2", 6, 2),
        _scores_case("nine tokens, clip 1, width 9", 9, 1, head_dim=9),
        _scores_case("one token", 1, 3),
        _scores_case("clip 0", 4, 0),
        _scores_case("float32", 5, 2, dtype=torch.float32),
    ),
    mistakes=tuple(_left_in(*bugs) for many in (1, 2, 3, 4) for bugs in combinations(BUGS, many)),
    also_right=(_shaw_scores_by_vectors, _shaw_scores_by_loop),
    learned="Test a relative table with a text longer than its clip and with random tables: each of these bugs hides "
    "from some easy case, such as a symmetric table, a short text, or a width of 1.",
)

EXERCISES = (
    OFFSET_INDEX,
    TABLE_PARAMETERS,
    BLIND_SPOT,
    UNSKEW,
    MIX_WITH_OFFSETS,
    RELATIVE_SHIFT,
    CONVERT_TABLE,
    SHAW_SCORES,
)
