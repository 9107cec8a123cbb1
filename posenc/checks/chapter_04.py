"""Exercises of chapter 4: sinusoids."""

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import torch
from torch import Generator, Tensor

from posenc.absolute import frequencies, sinusoids, step_matrix, to_halves, to_interleaved
from posenc.checks.common import dtype_complaint
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Case, Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments

# --- 4.1 sinusoid_table


def sinusoid_table(n: int, d_model: int) -> Tensor:
    return sinusoids(torch.arange(n), d_model)


def _sinusoid_table_by_slices(n: int, d_model: int) -> Tensor:
    if d_model % 2 == 1:
        raise ValueError(f"cannot pair up {d_model} features")
    turns = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    table = torch.zeros(n, d_model)
    table[:, 0::2] = torch.sin(torch.arange(n).unsqueeze(1) * turns)
    table[:, 1::2] = torch.cos(torch.arange(n).unsqueeze(1) * turns)
    return table


def _table(positions: Tensor, turns: Tensor) -> Tensor:
    """Interleaved, from any speeds. (n,), (d / 2,) -> (n, d)."""
    angles = positions.to(torch.float64).unsqueeze(-1) * turns
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def _with_turns(turns_of: Callable[[int], Tensor], first: int = 0) -> Callable:
    """A wrong table: other speeds, or counted from another first position."""

    def wrong(n: int, d_model: int) -> Tensor:
        if d_model % 2:
            raise ValueError(f"d_model must be even, got {d_model}")
        return _table(torch.arange(first, first + n), turns_of(d_model))

    return wrong


def _turns(d_model: int, scale: float = 1.0, shift: int = 0, base: float = 10_000.0) -> Tensor:
    return base ** (-(torch.arange(d_model // 2, dtype=torch.float64) + shift) * scale * 2 / d_model)


def _tensor2tensor_turns(d_model: int) -> Tensor:
    return 10_000.0 ** (-torch.arange(d_model // 2, dtype=torch.float64) / max(1, d_model // 2 - 1))


def _swapped(table: Tensor) -> Tensor:
    return table.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)


def _refuses_an_odd_width(answer: Callable, _: Generator) -> Complaint:
    for d_model in (5, 1):
        try:
            answer(3, d_model)
        except ValueError as error:
            if str(d_model) not in str(error):
                return f"the ValueError for d_model = {d_model} must name the width; it says {str(error)!r}"
        except Exception as error:
            return f"for d_model = {d_model} came {type(error).__name__}; raise a ValueError that says what is wrong"
        else:
            return f"d_model = {d_model} was accepted; raise a ValueError that names the width"
    return None


def _with_an_exponent_for_each_feature(n: int, d_model: int) -> Tensor:
    if d_model % 2:
        raise ValueError(f"d_model must be even, got {d_model}")
    angles = torch.arange(n).double().unsqueeze(-1) * 10_000.0 ** (-torch.arange(d_model).double() / d_model)
    return torch.stack([angles[:, 0::2].sin(), angles[:, 1::2].cos()], dim=-1).flatten(-2)


SINUSOID_TABLE = Exercise(
    chapter=4,
    title="The table",
    points=2,
    minutes=8,
    difficulty=2,
    reference=sinusoid_table,
    cases=(
        with_arguments("four positions, width 6", 4, 6),
        with_arguments("one pair", 7, 2),
        with_arguments("width 16, 300 positions", 300, 16),
        with_arguments("one position", 1, 8),
        with_arguments("500 positions, width 128", 500, 128),
    ),
    properties=(Property("an odd width is refused in words", _refuses_an_odd_width),),
    mistakes=(
        Mistake(
            "the exponent doubled",
            _with_turns(lambda d_model: _turns(d_model, scale=2)),
            "`arange(0, d, 2)` already is 2k. Multiplied by 2 again, the clocks slow down twice as fast.",
        ),
        Mistake(
            "the exponent halved",
            _with_turns(lambda d_model: _turns(d_model, scale=0.5)),
            "Your exponent is k/d. The formula has 2k/d: the speeds should run nearly down to 1/10000.",
        ),
        Mistake(
            "halves",
            lambda n, d_model: to_halves(sinusoid_table(n, d_model)),
            "All values are there, in another order: first your sines, then your cosines. Here they alternate.",
        ),
        Mistake(
            "cosine first",
            lambda n, d_model: _swapped(sinusoid_table(n, d_model)),
            "At position 0 each pair must be (0, 1): sine, then cosine.",
        ),
        Mistake(
            "counted from 1",
            _with_turns(_turns, first=1),
            "Your first row is position 1. In code positions count from 0.",
        ),
        Mistake(
            "frequencies counted from 1",
            _with_turns(lambda d_model: _turns(d_model, shift=1)),
            "The first pair must turn by exactly 1 in a step. Does your k begin at 0?",
        ),
        Mistake(
            "tensor2tensor's speeds",
            _with_turns(_tensor2tensor_turns),
            "Your slowest pair ends at exactly 1/10000: you divide k by d/2 - 1. The paper divides by d/2.",
        ),
        Mistake(
            "turned the other way",
            _with_turns(lambda d_model: -_turns(d_model)),
            "The cosines are right and the sines have the wrong sign: a minus has slipped out of the exponent.",
        ),
        Mistake(
            "faster and faster",
            _with_turns(lambda d_model: 1 / _turns(d_model)),
            "Your clocks get faster from pair to pair. They should slow down: which sign does the exponent have?",
        ),
        Mistake(
            "an exponent for each feature",
            _with_an_exponent_for_each_feature,
            "Your sines are right. Each cosine turns a little more slowly than its sine: the two of a pair share one "
            "angle.",
        ),
    ),
    also_right=(_sinusoid_table_by_slices,),
    learned="One outer product, a sine, a cosine. And a width that cannot be paired up is refused where it enters, not "
    "three layers later.",
)

# --- 4.2 halves_to_interleaved


def halves_to_interleaved(x: Tensor) -> Tensor:
    return to_interleaved(x)


def _halves_to_interleaved_by_slices(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    out[..., 0::2], out[..., 1::2] = x[..., :half], x[..., half:]
    return out


def _halves_to_interleaved_by_index(x: Tensor) -> Tensor:
    d = x.shape[-1]
    return x[..., [k // 2 + (d // 2) * (k % 2) for k in range(d)]]


def _keeps_the_dtype(answer: Callable, generator: Generator) -> Complaint:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64):
        x = (10 * normal(generator, 3, 6)).to(dtype)
        if complaint := dtype_complaint(answer(x), dtype):
            return complaint
    return None


def _fixed_rows(*shape: int) -> Case:
    return drawn("×".join(map(str, shape)), lambda g: (normal(g, *shape),))


HALVES_TO_INTERLEAVED = Exercise(
    chapter=4,
    title="From halves to pairs",
    points=1,
    minutes=6,
    difficulty=2,
    reference=halves_to_interleaved,
    cases=(
        with_arguments("the example", torch.tensor([1.0, 2.0, 3.0, 10.0, 20.0, 30.0])),
        _fixed_rows(5, 8),
        _fixed_rows(2, 3, 4, 6),
        _fixed_rows(3, 2),
        drawn("float32", lambda g: (normal(g, 4, 10).float(),)),
    ),
    properties=(Property("keeps the dtype", _keeps_the_dtype),),
    mistakes=(
        Mistake(
            "the other direction",
            to_halves,
            "You go from pairs to halves. (For four features the two directions are the same, for six they are not.)",
        ),
        Mistake(
            "cosine first",
            lambda x: _swapped(to_interleaved(x)),
            "The pairs are right, and turned round: the feature from the first half comes first.",
        ),
        Mistake(
            "left as it is",
            lambda x: x.clone(),
            "In your result every feature is where it was; a reshape alone moves none. Where does the first feature of "
            "the second half belong?",
        ),
        Mistake(
            "the halves exchanged",
            lambda x: torch.cat([x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], dim=-1),
            "You exchanged the halves. They should be dealt out, one feature from each in turn.",
        ),
    ),
    also_right=(_halves_to_interleaved_by_slices, _halves_to_interleaved_by_index),
    learned="The two layouts hold the same numbers. A trained model knows only one of them, so convert, or keep quiet.",
)

# --- 4.3 rotation_for_offset


def rotation_for_offset(offset: int, d_model: int) -> Tensor:
    return step_matrix(offset, d_model)


def _rotation_by_loop(offset: int, d_model: int) -> Tensor:
    R = torch.zeros(d_model, d_model, dtype=torch.float64)
    for k in range(d_model // 2):
        angle = offset * 10_000 ** (-2 * k / d_model)
        s, c = math.sin(angle), math.cos(angle)
        R[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = torch.tensor([[c, s], [-s, c]])
    return R


def _rotation_by_exponential(offset: int, d_model: int) -> Tensor:
    turns = frequencies(d_model)
    zero = torch.zeros_like(turns)
    speeds = torch.block_diag(*torch.stack([zero, turns, -turns, zero], dim=-1).view(-1, 2, 2))
    return torch.matrix_exp(offset * speeds)


def _halves_rotation(offset: int, d_model: int) -> Tensor:
    return to_halves(to_halves(step_matrix(offset, d_model)).T).T


def _rotation_from(turns_of: Callable[[int], Tensor]) -> Callable:
    def wrong(offset: int, d_model: int) -> Tensor:
        angles = offset * turns_of(d_model)
        cos, sin = angles.cos(), angles.sin()
        return torch.block_diag(*torch.stack([cos, sin, -sin, cos], dim=-1).view(-1, 2, 2))

    return wrong


def _mirrored(offset: int, d_model: int) -> Tensor:
    angles = offset * frequencies(d_model)
    cos, sin = angles.cos(), angles.sin()
    return torch.block_diag(*torch.stack([cos, sin, sin, cos], dim=-1).view(-1, 2, 2))


def _moves_every_position(answer: Callable, generator: Generator) -> Complaint:
    offset = int(torch.randint(1, 200, (1,), generator=generator))
    R = as_tensor(answer(offset, 32)).double()
    positions = torch.tensor([0, 3, 77, 1000])
    before, after = (_table(positions + o, frequencies(32)) for o in (0, offset))
    worst = (before @ R.T - after).abs().max().item()
    return None if worst < 1e-3 else f"R({offset}) p_i is off from p_(i+{offset}) by {worst:.2g}"


ROTATION_FOR_OFFSET = Exercise(
    chapter=4,
    title="The matrix of a step",
    points=3,
    minutes=12,
    difficulty=3,
    reference=rotation_for_offset,
    cases=(
        with_arguments("one step, one pair", 1, 2),
        with_arguments("three steps, width 8", 3, 8),
        with_arguments("no step", 0, 6),
        with_arguments("two steps back", -2, 4),
        with_arguments("a hundred steps, width 16", 100, 16),
        with_arguments("4096 steps, one pair", 4096, 2),
        with_arguments("3000 steps back, width 4", -3000, 4),
    ),
    properties=(Property("moves every position", _moves_every_position),),
    mistakes=(
        Mistake(
            "turned the other way",
            lambda offset, d_model: step_matrix(-offset, d_model),
            "Yours goes back where it should go on. In the order (sine, cosine), where does the minus stand?",
        ),
        Mistake(
            "for halves",
            _halves_rotation,
            "Right for a table of halves. Here sine and cosine of a pair are neighbours.",
        ),
        Mistake(
            "the exponent doubled",
            _rotation_from(lambda d_model: _turns(d_model, scale=2)),
            "The first pair is right, the others turn too slowly: the exponent of pair k is 2k/d.",
        ),
        Mistake(
            "every pair at the same speed",
            _rotation_from(lambda d_model: torch.ones(d_model // 2, dtype=torch.float64)),
            "Each pair has its own speed. Yours all turn like the first one.",
        ),
        Mistake(
            "no minus at all",
            _mirrored,
            "Your blocks are symmetric, so they are no rotations. One of the two sines needs a minus.",
        ),
        Mistake(
            "one step, whatever the offset",
            lambda offset, d_model: step_matrix(1, d_model),
            "Your matrix goes one step. How far must a hand turn for `offset` steps?",
        ),
        Mistake(
            "never back",
            lambda offset, d_model: step_matrix(abs(offset), d_model),
            "Right forwards. For a negative offset yours goes forwards too.",
        ),
    ),
    also_right=(_rotation_by_loop, _rotation_by_exponential),
    learned="The matrix knows the offset and nothing of the position. Rotary encoding (chapter 8) applies such blocks "
    "to queries and keys, and adds nothing.",
)

# --- 4.4 add_positions


def add_positions(x: Tensor, table: Tensor, start: int = 0) -> Tensor:
    n = x.shape[-2]
    if start + n > len(table):
        raise ValueError(f"the table has {len(table)} positions, and {start + n} are needed; make a longer one")
    return x + table[start : start + n].to(x.dtype)


def _add_positions_by_index(x: Tensor, table: Tensor, start: int) -> Tensor:
    positions = torch.arange(start, start + x.shape[1])
    if positions[-1] >= table.shape[0]:
        raise ValueError(f"position {int(positions[-1])} is beyond the table of {table.shape[0]}")
    return x + table[positions][None].to(x.dtype)


def _refuses_a_short_table(answer: Callable, generator: Generator) -> Complaint:
    table = _table(torch.arange(10), frequencies(4))
    for n, start in ((11, 0), (1, 10), (4, 7)):
        try:
            answer(normal(generator, 2, n, 4), table, start)
        except ValueError as error:
            if not any(str(number) in str(error) for number in (10, start + n, start + n - 1)):
                return f"the ValueError must say how long the table is, or how long it must be; it says {str(error)!r}"
        except Exception as error:
            return f"{n} tokens from {start} on, table of 10: came {type(error).__name__}; raise a ValueError in words"
        else:
            return f"{n} tokens from {start} on were accepted with a table of 10 positions"
    return None


def _just_long_enough(answer: Callable, generator: Generator) -> Complaint:
    table, x = _table(torch.arange(10), frequencies(4)), normal(generator, 2, 4, 4)
    complaint = compare(answer(x, table, 6), x + table[6:10])
    return f"the last four of ten positions: {complaint}" if complaint else None


def _keeps_the_dtype_of_x(answer: Callable, generator: Generator) -> Complaint:
    table = _table(torch.arange(10), frequencies(4))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = normal(generator, 2, 3, 4).to(dtype)
        if complaint := dtype_complaint(answer(x, table, 2), dtype):
            return complaint
    return None


def _batch(batch: int, n: int, start: int, d_model: int = 8) -> Case:
    def make(g: Generator) -> tuple:
        return normal(g, batch, n, d_model), _table(torch.arange(50), frequencies(d_model)), start

    texts, tokens = "text" if batch == 1 else "texts", "token" if n == 1 else "tokens"
    return drawn(f"{batch} {texts} of {n} {tokens}, from position {start}", make)


ADD_POSITIONS = Exercise(
    chapter=4,
    title="Every token says the same place",
    points=3,
    minutes=12,
    difficulty=3,
    reference=add_positions,
    cases=(_batch(2, 5, 0), _batch(4, 4, 0), _batch(7, 3, 0), _batch(1, 6, 0), _batch(3, 1, 9), _batch(2, 4, 20)),
    properties=(
        Property("a table that is too short is refused in words", _refuses_a_short_table),
        Property("a table that is just long enough will do", _just_long_enough),
        Property("keeps the dtype of x", _keeps_the_dtype_of_x),
    ),
    mistakes=(
        Mistake(
            "sequence first",
            lambda x, table, start: x + table[start : start + x.shape[0]].unsqueeze(1),
            "Tokens of one text agree, texts differ. Which axis of x counts the tokens?",
        ),
        Mistake(
            "cut at the tokens, added along the texts",
            lambda x, table, start: x + table[start : start + x.shape[1]].unsqueeze(1),
            "The slice is right now. But its rows are laid along the axis of texts: what does `unsqueeze(1)` do to it?",
        ),
        Mistake(
            "cut by the batch",
            lambda x, table, start: x + table[start : start + x.shape[0]],
            "Your table is cut at the number of *texts*. It should be cut at the number of tokens.",
        ),
        Mistake(
            "start forgotten",
            lambda x, table, start: x + table[: x.shape[1]],
            "Right from position 0 on. When a text is continued, its next token is not at position 0.",
        ),
        Mistake(
            "one row for all tokens",
            lambda x, table, start: x + table[start : start + 1],
            "All tokens get the vector of the first one: one row of the table is not enough.",
        ),
        Mistake(
            "one place too far",
            lambda x, table, start: x + table[start + 1 : start + 1 + x.shape[1]],
            "You are one place too far: the first token has the position `start` itself.",
        ),
    ),
    also_right=(_add_positions_by_index,),
    learned="With equal numbers of texts and tokens a mixed-up axis passes every shape check. Test with unequal ones, "
    "and say clearly when a cached table ends.",
)

# --- 4.5 four_terms


def four_terms(x: Tensor, p: Tensor, W: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x @ W @ x.mT, x @ W @ p.mT, p @ W @ x.mT, (p @ W @ p.mT).expand(*x.shape[:-2], -1, -1)


def _four_terms_by_einsum(x: Tensor, p: Tensor, W: Tensor) -> tuple[Tensor, ...]:
    p = p.expand_as(x)
    return tuple(torch.einsum("...id,de,...je->...ij", a, W, b) for a in (x, p) for b in (x, p))


def _four_terms_by_difference(x: Tensor, p: Tensor, W: Tensor) -> tuple[Tensor, ...]:
    p = p.expand_as(x)

    def score(a: Tensor, b: Tensor) -> Tensor:
        return (a @ W) @ b.transpose(-1, -2)

    return score(x, x), score(x, x + p) - score(x, x), score(x + p, x) - score(x, x), score(p, p)


def _sums_up(answer: Callable, generator: Generator) -> Complaint:
    x, p, W = normal(generator, 2, 5, 4), normal(generator, 5, 4), normal(generator, 4, 4)
    parts = answer(x, p, W)
    if not isinstance(parts, (tuple, list)) or len(parts) != 4:
        return "return four tensors, as in `return a, b, c, d`"
    complaint = compare(sum(as_tensor(part) for part in parts), (x + p) @ W @ (x + p).mT)
    return f"the sum of the four: {complaint}" if complaint else None


def _terms_case(name: str, *batch: int, n: int = 5, d_model: int = 6) -> Case:
    return drawn(name, lambda g: (normal(g, *batch, n, d_model), normal(g, n, d_model), normal(g, d_model, d_model)))


FOUR_TERMS = Exercise(
    chapter=4,
    title="Four terms",
    points=2,
    minutes=8,
    difficulty=2,
    reference=four_terms,
    cases=(
        _terms_case("one text"),
        _terms_case("a batch of three", 3),
        _terms_case("batch and heads", 2, 3),
        _terms_case("one token", n=1),
        drawn("no positions", lambda g: (normal(g, 4, 3), torch.zeros(4, 3).double(), normal(g, 3, 3))),
        drawn("float32", lambda g: (normal(g, 2, 4, 6).float(), normal(g, 4, 6).float(), normal(g, 6, 6).float())),
    ),
    properties=(Property("the four add up", _sums_up),),
    mistakes=(
        Mistake(
            "the two mixed terms exchanged",
            lambda x, p, W: tuple(four_terms(x, p, W)[i] for i in (0, 2, 1, 3)),
            "All four are right; the second and third have changed places. Rows are queries: word with *place* has "
            "the word on the left.",
        ),
        Mistake(
            "W the wrong way round",
            lambda x, p, W: four_terms(x, p, W.mT),
            "You used the transpose of W: the query stands to its left.",
        ),
        Mistake(
            "one mixed term twice",
            lambda x, p, W: (*four_terms(x, p, W)[:2], four_terms(x, p, W)[1], four_terms(x, p, W)[3]),
            "Word with place and place with word are two terms: W is not symmetric.",
        ),
        Mistake(
            "scaled by √d",
            lambda x, p, W: tuple(term / x.shape[-1] ** 0.5 for term in four_terms(x, p, W)),
            "Your terms are the scores of attention, divided by √d. Here the plain product is asked for.",
        ),
        Mistake(
            "the last one without a batch",
            lambda x, p, W: (*four_terms(x, p, W)[:3], p @ W @ p.mT),
            "The values are right. Place with place is the same for every text, and should still have the shape of the "
            "others: `expand` repeats it.",
        ),
        Mistake(
            "exchanged, and the last one without a batch",
            lambda x, p, W: (x @ W @ x.mT, p @ W @ x.mT, x @ W @ p.mT, p @ W @ p.mT),
            "Two things: the second and third have changed places (rows are queries), and place with place should have "
            "the shape of the others.",
        ),
        Mistake(
            "all four transposed",
            lambda x, p, W: tuple(term.mT for term in four_terms(x, p, W)),
            "Your rows are keys and your columns queries. Entry (i, j) belongs to query i and key j.",
        ),
        Mistake(
            "all axes reversed",
            lambda x, p, W: (x @ W @ x.T, x @ W @ p.T, p @ W @ x.T, p @ W @ p.T),
            "Right for one text. With leading axes, `.T` reverses all axes; you want the last two exchanged.",
        ),
        Mistake(
            "W forgotten",
            lambda x, p, W: four_terms(x, p, torch.eye(len(W), dtype=W.dtype)),
            "These are plain dot products. Where is W?",
        ),
    ),
    also_right=(_four_terms_by_einsum, _four_terms_by_difference),
    learned="A score with added positions is four scores. Transformer-XL (chapter 6) starts from this sum and rewrites "
    "it term by term.",
)

# --- 4.6 first_rise


def first_rise(d_model: int) -> int:
    turns, last, offset = frequencies(d_model), math.inf, 0
    while True:
        now = (offset * turns).cos().sum().item()
        if now > last:
            return offset
        last, offset = now, offset + 1


def _first_rise_by_table(d_model: int) -> int:
    table = _table(torch.arange(200), frequencies(d_model))
    rises = (table @ table[0]).diff() > 0
    return int(rises.nonzero()[0]) + 1


def _first_rise_of(curve_of: Callable[[int], Tensor]) -> Callable:
    """The first offset with a larger value than the one before, on another curve."""

    def wrong(d_model: int) -> int:
        values = curve_of(d_model).tolist()
        return next((k for k, (a, b) in enumerate(pairwise(values), start=1) if b > a), 0)

    return wrong


def _first_rise_within_fifty(d_model: int) -> int:
    return int((_dots(d_model, n=51).diff() > 0).nonzero()[0]) + 1  # IndexError where there is none


def _dots(d_model: int, turns: Tensor | None = None, n: int = 400) -> Tensor:
    turns = frequencies(d_model) if turns is None else turns
    return (torch.arange(n).unsqueeze(-1) * turns).cos().sum(dim=-1)


FIRST_RISE = Exercise(
    chapter=4,
    title="Where it rises",
    points=2,
    minutes=10,
    difficulty=2,
    reference=first_rise,
    cases=tuple(with_arguments(f"width {d}", d) for d in (2, 8, 32, 64, 96, 128, 256, 768, 1024)),
    mistakes=(
        Mistake(
            "the offset before",
            lambda d_model: first_rise(d_model) - 1,
            "You are one too low: you give the offset from which it rises. Asked is the first one that is *larger* "
            "than its neighbour before.",
        ),
        Mistake(
            "one too high",
            lambda d_model: first_rise(d_model) + 1,
            "You are one too high. Offset 0 is the first value, offset 1 the second.",
        ),
        Mistake(
            "a tensor with one entry",
            lambda d_model: torch.tensor([first_rise(d_model)]),
            "Your number is right, and still wrapped in a tensor of shape (1,). Take it out with `int(…)`.",
        ),
        Mistake(
            "too few offsets",
            _first_rise_within_fifty,
            "Right at the smaller widths. At the largest one the first rise comes later than you look.",
        ),
        Mistake(
            "the lowest point",
            lambda d_model: int(_dots(d_model).argmin()),
            "That is where the dot product is least. It rises long before, in small ripples.",
        ),
        Mistake(
            "the first negative one",
            lambda d_model: int((_dots(d_model, n=6000) < 0).nonzero()[0]),
            "That is where the dot product first falls below 0. It goes up before that.",
        ),
        Mistake(
            "the distance",
            _first_rise_of(lambda d_model: d_model - 2 * _dots(d_model)),
            "The *distance* rises at once. Asked is the dot product.",
        ),
        Mistake(
            "the exponent doubled",
            _first_rise_of(lambda d_model: _dots(d_model, _turns(d_model, scale=2))),
            "Your clocks slow down twice as fast as they should. Check the exponent 2k/d.",
        ),
    ),
    also_right=(_first_rise_by_table,),
    learned='The more pairs, the later the first ripple, and the smaller. One rise refutes "it never rises"; it does '
    "not say that rises matter at every width.",
)

# --- 4.7 position_of


def position_of(vector: Tensor) -> int:
    return _read(vector)


def _read(
    vector: Tensor,
    *,
    halves: bool = False,
    cosine_first: bool = False,
    whole: Callable[[float], int] = round,
    last: Callable[[float], int] = round,
) -> int:
    """The position, read from the slowest hand to the fastest; the options are ways to go wrong."""
    turns = frequencies(len(vector)).flip(0).tolist()  # slowest first
    pairs = vector.double().unflatten(0, (2, -1)).mT if halves else vector.double().unflatten(0, (-1, 2))
    estimate = 0.0  # the slowest hand has not come half round
    for turn, (sine, cosine) in zip(turns, pairs.flip(0).tolist(), strict=True):
        angle = math.atan2(cosine, sine) if cosine_first else math.atan2(sine, cosine)
        since_twelve, period = angle / turn, 2 * math.pi / turn
        estimate = since_twelve + period * whole((estimate - since_twelve) / period)
    return last(estimate)


@cache
def _long_table(d_model: int) -> Tensor:
    return _table(torch.arange(20_001), frequencies(d_model))


def _position_by_matching(vector: Tensor) -> int:
    return int((_long_table(len(vector)) @ vector.double()).argmax())


def _position_by_distance(vector: Tensor) -> int:
    return int((_long_table(len(vector)) - vector).square().sum(dim=-1).argmin())


def _one_hand(which: int) -> Callable:
    def wrong(vector: Tensor) -> int:
        turn = frequencies(len(vector))[which].item()
        angle = math.atan2(vector[0::2][which].item(), vector[1::2][which].item()) % (2 * math.pi)
        return round(angle / turn)

    return wrong


def _matched(prepare: Callable[[Tensor], Tensor], end: int = 20_001) -> Callable:
    def wrong(vector: Tensor) -> int:
        return int((_long_table(len(vector))[:end] @ prepare(vector).double()).argmax())

    return wrong


def _encoded(name: str, position: int, d_model: int = 64, noise: float = 0.0, dtype=torch.float64) -> Case:
    def make(g: Generator) -> tuple:
        vector = _table(torch.tensor([position]), frequencies(d_model))[0]
        return ((vector + noise * (2 * torch.rand(d_model, generator=g) - 1)).to(dtype),)

    return drawn(name, make)


def _turned(name: str, position: int, angle: float, d_model: int = 64) -> Case:
    """All hands a little ahead, or behind if `angle` is negative: every entry is off by at most |angle|."""
    angles = position * frequencies(d_model) + angle
    return with_arguments(name, torch.stack([angles.sin(), angles.cos()], dim=-1).flatten())


def _any_position(g: Generator) -> tuple:
    return (_table(torch.randint(20_001, (1,), generator=g), frequencies(128))[0],)


POSITION_OF = Exercise(
    chapter=4,
    title="Read the clocks",
    points=3,
    minutes=20,
    difficulty=4,
    reference=position_of,
    cases=(
        _encoded("position 0", 0),
        _encoded("position 5", 5),
        _encoded("position 1000", 1000),
        _encoded("position 20000, width 128", 20_000, 128),
        _encoded("position 12340, a little off", 12_340, noise=0.01),
        _encoded("position 777, float32", 777, dtype=torch.float32),
        _encoded("position 3, a little off", 3, noise=0.01),
        _turned("position 4321, all hands a little behind", 4321, -0.009),
        _turned("position 8765, all hands a little ahead", 8765, 0.009),
        drawn("any position", _any_position),
    ),
    mistakes=(
        Mistake(
            "only the fastest clock",
            _one_hand(0),
            "The fastest hand tells the place to within a step, but it has gone round many times. Ask a slower one "
            "how often.",
        ),
        Mistake(
            "only the slowest clock",
            _one_hand(-1),
            "The slowest hand has not gone round yet, but a small error of its angle is many steps. Correct it with a "
            "faster one.",
        ),
        Mistake(
            "sine and cosine exchanged",
            _matched(_swapped),
            "You take the cosine for the sine. Which comes first in a pair? And which does `atan2` want first?",
        ),
        Mistake(
            "halves",
            _matched(to_halves),
            "You read the vector as halves or the table as pairs. Here sine and cosine of a pair are neighbours.",
        ),
        Mistake(
            "counted from 1",
            lambda vector: position_of(vector) + 1,
            "You are one too high. The vector (0, 1, 0, 1, …) belongs to position 0.",
        ),
        Mistake(
            "cut off, not rounded",
            lambda vector: _read(vector, last=int),
            "An estimate of 4320.99 is position 4321. What does `int` make of it?",
        ),
        Mistake(
            "whole turns rounded down",
            lambda vector: _read(vector, whole=math.floor),
            "You always round the number of whole turns down. The estimate so far may be a little too small: take the "
            "*nearest* whole number.",
        ),
        Mistake(
            "atan2 the wrong way round",
            lambda vector: _read(vector, cosine_first=True),
            "Position 0 is the vector (0, 1, 0, 1, …), where the angle must be 0. What does your `atan2` give there?",
        ),
        Mistake(
            "read as halves",
            lambda vector: _read(vector, halves=True),
            "You take the sine from the first half and the cosine from the second. Here they are neighbours.",
        ),
        Mistake(
            "the last position left out",
            _matched(lambda vector: vector, end=20_000),
            "Positions go up to 20,000, that one included, and a range ends before its end.",
        ),
    ),
    also_right=(_position_by_matching, _position_by_distance),
    learned="Slow hands know about where, fast hands know exactly: reading from slow to fast takes d/2 steps in place "
    "of twenty thousand comparisons. It is how one reads hours, minutes and seconds.",
)

# --- 4.8 name_the_bug

POSITIONS = torch.arange(512)
BUGS: dict[str, Callable[[int, int], Tensor]] = {
    "right": lambda n, d: _table(POSITIONS[:n], _turns(d)),
    "exponent doubled": lambda n, d: _table(POSITIONS[:n], _turns(d, scale=2)),
    "cosine first": lambda n, d: _swapped(_table(POSITIONS[:n], _turns(d))),
    "halves": lambda n, d: to_halves(_table(POSITIONS[:n], _turns(d))),
    "counted from 1": lambda n, d: _table(POSITIONS[:n] + 1, _turns(d)),
    "tensor2tensor": lambda n, d: to_halves(_table(POSITIONS[:n], _tensor2tensor_turns(d))),
    "positions in bfloat16": lambda n, d: _table(POSITIONS[:n].to(torch.bfloat16), _turns(d)),
}
"""Name of the bug to the table (n, d_model) that it makes."""


def name_the_bug(table: Tensor) -> str:
    n, d_model = table.shape
    off = {name: (make(n, d_model) - table).abs().max().item() for name, make in BUGS.items()}
    return min(off, key=off.__getitem__)


def _name_by_looking(table: Tensor) -> str:
    """From a few entries, as one would at a debugger."""
    d_model = table.shape[1]
    ratio = 2 / d_model
    if table[0, 0] > 0.99:
        return "cosine first"
    if table[0, 0] > 0.5:
        return "counted from 1"
    if table[0, 1] < 0.5:  # sines first
        k, last = d_model // 4, len(table) - 1
        return "halves" if abs(table[last, k] - math.sin(last * 10_000 ** (-k * ratio))) < 1e-3 else "tensor2tensor"
    if abs(table[1, 2] - math.sin(10_000 ** (-2 * ratio))) < 1e-3:
        return "exponent doubled"
    return "positions in bfloat16" if abs(table[257, 0] - math.sin(257)) > 0.1 else "right"


def _blind_to(name: str, taken_for: str) -> Callable:
    """Names every bug but one."""

    def wrong(table: Tensor) -> str:
        named = name_the_bug(table)
        return taken_for if named == name else named

    return wrong


def _by_exact_equality(table: Tensor) -> str | None:
    return next((name for name, make in BUGS.items() if bool((make(*table.shape) == table).all())), None)


def _suspicious(letter: str, name: str, n: int, d_model: int, dtype: torch.dtype = torch.float64) -> Case:
    return with_arguments(f"table {letter}: {n} rows, width {d_model}", BUGS[name](n, d_model).to(dtype))


NAME_THE_BUG = Exercise(
    chapter=4,
    title="Name the bug",
    points=4,
    minutes=25,
    difficulty=4,
    reference=name_the_bug,
    cases=(
        _suspicious("A", "right", 300, 16),
        _suspicious("B", "halves", 300, 8),
        _suspicious("C", "positions in bfloat16", 400, 32),
        _suspicious("D", "tensor2tensor", 512, 24),
        _suspicious("E", "exponent doubled", 512, 48, torch.float32),
        _suspicious("F", "cosine first", 320, 6),
        _suspicious("G", "counted from 1", 300, 32),
        _suspicious("H", "right", 300, 32, torch.float32),
        _suspicious("I", "positions in bfloat16", 258, 8, torch.float32),
        _suspicious("J", "tensor2tensor", 300, 128, torch.float32),
        _suspicious("K", "halves", 258, 128),
        _suspicious("L", "exponent doubled", 300, 32),
    ),
    mistakes=(
        Mistake(
            "bfloat16 not seen",
            _blind_to("positions in bfloat16", "right"),
            "One kind of bug you take for a right table. It does not show in the first rows: which positions does "
            "bfloat16 lose?",
        ),
        Mistake(
            "tensor2tensor taken for halves",
            _blind_to("tensor2tensor", "halves"),
            "Two of the bugs have their sines first. Row 0 cannot tell them apart; the speeds can.",
        ),
        Mistake(
            "halves taken for tensor2tensor",
            _blind_to("halves", "tensor2tensor"),
            "Two of the bugs have their sines first. Row 0 cannot tell them apart; the speeds can.",
        ),
        Mistake(
            "counted from 1 not seen",
            _blind_to("counted from 1", "right"),
            "Row 0 should be (0, 1, 0, 1, …). Look at it in every table that you call right.",
        ),
        Mistake(
            "the doubled exponent not seen",
            _blind_to("exponent doubled", "right"),
            "The first pair is right in one of the buggy tables. Look at the speed of a later pair.",
        ),
        Mistake(
            "only if equal to the last bit",
            _by_exact_equality,
            "Entries may be off by rounding, as in float32. `==` and `torch.equal` then find nothing.",
        ),
        Mistake(
            "everything is right",
            lambda table: "right",
            "Some of these tables have a bug. Compare each with the right table of the same size.",
        ),
    ),
    also_right=(_name_by_looking,),
    learned="Row 0 shows layout and counting, a later row the speeds, and a row beyond 256 the number format. A look "
    "at three rows tells seven tables apart, before any training.",
)

EXERCISES = (
    SINUSOID_TABLE,
    HALVES_TO_INTERLEAVED,
    ROTATION_FOR_OFFSET,
    ADD_POSITIONS,
    FOUR_TERMS,
    FIRST_RISE,
    POSITION_OF,
    NAME_THE_BUG,
)
