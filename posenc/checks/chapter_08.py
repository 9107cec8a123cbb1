"""Exercises of chapter 8: rotary."""

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from torch import Generator, Tensor

from posenc.absolute import frequencies as speeds_of
from posenc.attention import attention
from posenc.checks.common import compare_scores, dtype_complaint
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.masks import causal
from posenc.rotary import rotate, turn, turn_halves

HUGE = 1e50  # more than a float32 can hold: what goes through float32 on its way becomes infinite
ALL_IN_FLOAT32 = (
    "The angles may be float32, but you put x through float32 as well: a float64 loses half of its digits, and huge "
    "numbers become infinite. Which numbers need the other format?"
)
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def _keeps_dtypes(call: Callable[[Callable, Tensor], object], *shape: int) -> Property:
    """Each dtype in, the same out. call(answer, x) calls the answer with x of the given shape."""

    def test(answer: Callable, g: Generator) -> Complaint:
        x = normal(g, *shape)
        complaints = (dtype_complaint(call(answer, x.to(dtype)), dtype) for dtype in DTYPES)
        return next((c for c in complaints if c), None)

    return Property("keeps the dtype", test)


# --- 8.1 block_rotation


def block_rotation(position: float, frequencies: Tensor) -> Tensor:
    angles = position * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.block_diag(*torch.stack([cos, -sin, sin, cos], dim=-1).view(-1, 2, 2))


def _by_turning_the_axes(position: float, frequencies: Tensor) -> Tensor:
    axes = torch.eye(2 * len(frequencies), dtype=frequencies.dtype)
    return turn(axes, (position * frequencies).expand(len(axes), -1)).mT.contiguous()


def _block_rotation_by_loop(position: float, frequencies: Tensor) -> Tensor:
    matrix = torch.zeros(2 * len(frequencies), 2 * len(frequencies), dtype=frequencies.dtype)
    for k, frequency in enumerate(frequencies.tolist()):
        cos, sin = math.cos(position * frequency), math.sin(position * frequency)
        matrix[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = torch.tensor([[cos, -sin], [sin, cos]])
    return matrix


def _blocks(entries: Callable[[Tensor, Tensor], list[Tensor]]) -> Callable:
    def wrong(position: float, frequencies: Tensor) -> Tensor:
        angles = position * frequencies
        blocks = torch.stack(entries(angles.cos(), angles.sin()), dim=-1)
        return torch.block_diag(*blocks.view(-1, 2, 2))

    return wrong


def _rotation_in_halves(position: float, frequencies: Tensor) -> Tensor:
    angles = position * frequencies
    cos, sin = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)])


BLOCK_ROTATION = Exercise(
    chapter=8,
    title="The rotation as a matrix",
    points=1,
    minutes=5,
    difficulty=1,
    reference=block_rotation,
    cases=(
        with_arguments("one pair", 2, torch.tensor([0.5], dtype=torch.float64)),
        with_arguments("two pairs", 3, torch.tensor([1.0, 0.1], dtype=torch.float64)),
        with_arguments("a head of width 8", 11, speeds_of(8)),
        with_arguments("position 0", 0, speeds_of(4)),
        with_arguments("an offset to the left", -5, speeds_of(6)),
        with_arguments("a pair that is not turned", 7, torch.tensor([1.0, 0.0], dtype=torch.float64)),
        with_arguments("between two positions", 2.5, speeds_of(4)),
        with_arguments("float32", 4, speeds_of(4).float()),
    ),
    properties=(_keeps_dtypes(lambda answer, frequencies: answer(3, frequencies), 4),),
    mistakes=(
        Mistake(
            "turned the other way",
            _blocks(lambda cos, sin: [cos, sin, -sin, cos]),
            "Your matrix turns clockwise: it is the transpose. Where does the first axis, (1, 0), go?",
        ),
        Mistake(
            "halves",
            _rotation_in_halves,
            "You turn feature k together with k + head_dim/2. Here neighbours are pairs: 0 with 1, 2 with 3.",
        ),
        Mistake(
            "no minus",
            _blocks(lambda cos, sin: [cos, sin, sin, cos]),
            "Without the minus it is no rotation: the columns do not stand at right angles.",
        ),
        Mistake(
            "sine and cosine exchanged",
            _blocks(lambda cos, sin: [sin, -cos, cos, sin]),
            "At position 0 nothing should be turned. Which of sine and cosine is 1 there?",
        ),
        Mistake(
            "the position forgotten",
            lambda position, frequencies: block_rotation(1, frequencies),
            "This is one step's turn. At position p it is p times as far.",
        ),
        Mistake(
            "one frequency for all pairs",
            lambda position, frequencies: block_rotation(position, frequencies[:1].expand(len(frequencies))),
            "All of your blocks turn alike. Each pair has a frequency of its own.",
        ),
        Mistake(
            "the sign of the position lost",
            lambda position, frequencies: block_rotation(abs(position), frequencies),
            "Right for positions from 0 on. A step to the left turns the other way.",
        ),
        Mistake(
            "the position made whole",
            lambda position, frequencies: block_rotation(int(position), frequencies),
            "Right for whole numbers. Halfway between two positions the turn is halfway too.",
        ),
        Mistake(
            "a number in place of a block",
            lambda position, frequencies: torch.diag((position * frequencies).cos()),
            "Each pair needs a 2 x 2 block: the matrix has twice as many rows as there are frequencies.",
        ),
    ),
    also_right=(_by_turning_the_axes, _block_rotation_by_loop),
    learned="Rotary is one 2 x 2 rotation a pair, along the diagonal. The matrix of position j, seen from position i, "
    "is the matrix of j - i.",
)

# --- 8.2 rotate_pairs


def rotate_pairs(x: Tensor, positions: Tensor) -> Tensor:
    return rotate(x, positions)


def _rotate_pairs_with_complex_numbers(x: Tensor, positions: Tensor) -> Tensor:
    angles = positions.unsqueeze(-1) * speeds_of(x.shape[-1])
    numbers = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(numbers * torch.polar(torch.ones_like(angles), angles)).flatten(-2).to(x.dtype)


def _rotate_pairs_in_float32(x: Tensor, positions: Tensor) -> Tensor:
    """As libraries do: float32 angles, and a helper that exchanges the two of a pair."""
    angles = positions.float()[:, None] * speeds_of(x.shape[-1]).float()
    cos, sin = angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)
    exchanged = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return (x * cos + exchanged * sin).to(x.dtype)


def _rotate_pairs_by_loop(x: Tensor, positions: Tensor) -> Tensor:
    result, head_dim = x.clone(), x.shape[-1]
    for row, position in enumerate(positions.tolist()):
        for k in range(head_dim // 2):
            angle = position * 10_000 ** (-2 * k / head_dim)
            a, b = x[..., row, 2 * k], x[..., row, 2 * k + 1]
            result[..., row, 2 * k] = a * math.cos(angle) - b * math.sin(angle)
            result[..., row, 2 * k + 1] = a * math.sin(angle) + b * math.cos(angle)
    return result


def _at_speeds(speeds: Callable[[int], Tensor]) -> Callable:
    return lambda x, positions: turn(x, positions.unsqueeze(-1) * speeds(x.shape[-1]))


def _turned_with(combine: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable:
    def wrong(x: Tensor, positions: Tensor) -> Tensor:
        angles = positions.unsqueeze(-1) * speeds_of(x.shape[-1])
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        return torch.stack(combine(x[..., 0::2], x[..., 1::2], cos, sin), dim=-1).flatten(-2)

    return wrong


def _writes_halves(x: Tensor, positions: Tensor) -> Tensor:
    turned = rotate(x, positions)
    return torch.cat([turned[..., 0::2], turned[..., 1::2]], dim=-1)


def _rounded(
    turned: Callable[[Tensor, Tensor], Tensor], speeds: Tensor, x: Tensor, positions: Tensor, *what: str
) -> Tensor:
    """turned(x, angles), with the positions or the speeds, or both, rounded to the dtype of x first."""
    positions = positions.to(x.dtype if "positions" in what else torch.float64)
    if "speeds" in what:
        speeds = speeds.to(x.dtype)
    return turned(x, positions.unsqueeze(-1) * speeds)


def _pairs_rounded(*what: str) -> Callable:
    return lambda x, positions: _rounded(turn, speeds_of(x.shape[-1]), x, positions, *what)


def _vectors(name: str, *shape: int, start: int = 0, dtype: torch.dtype = torch.float64, size: float = 1.0):
    return drawn(name, lambda g: (size * normal(g, *shape).to(dtype), torch.arange(start, start + shape[-2])))


def _score_sees_the_offset(answer: Callable, g: Generator) -> Complaint:
    query, key = normal(g, 2, 1, 8).unbind()
    scores = []
    for i, j in ((3, 1), (13, 11)):
        a, b = as_tensor(answer(query, torch.tensor([i]))), as_tensor(answer(key, torch.tensor([j])))
        scores.append((a * b).sum())
    complaint = compare_scores(scores[1], scores[0], query, key)
    return f"the score of positions (3, 1) and that of (13, 11) are not the same: {complaint}" if complaint else None


ROTATE_PAIRS = Exercise(
    chapter=8,
    title="Turn without complex numbers",
    points=2,
    minutes=10,
    difficulty=2,
    reference=rotate_pairs,
    cases=(
        _vectors("one head", 6, 8),
        _vectors("batch and heads", 2, 3, 5, 4),
        _vectors("one pair", 4, 2),
        drawn("positions in any order", lambda g: (normal(g, 4, 6), torch.tensor([7, 0, 0, 3]))),
        _vectors("later positions, float32", 4, 8, start=500, dtype=torch.float32),
        drawn("negative positions", lambda g: (normal(g, 4, 6), torch.tensor([-1, 2, -300, 0]))),
        _vectors("later positions, bfloat16", 8, 16, start=500, dtype=torch.bfloat16),
        _vectors("far out, bfloat16", 4, 16, start=50_000, dtype=torch.bfloat16),
        _vectors("later positions, float16", 8, 16, start=3000, dtype=torch.float16),
        _vectors("as many heads as tokens", 4, 4, 8),
        _vectors("huge numbers, float64", 4, 8, size=HUGE),
    ),
    properties=(
        Property("the score sees the offset alone", _score_sees_the_offset),
        _keeps_dtypes(lambda answer, x: answer(x, torch.arange(3)), 3, 8),
    ),
    mistakes=(
        Mistake(
            "halves",
            lambda x, positions: turn_halves(x, positions.unsqueeze(-1) * speeds_of(x.shape[-1])),
            "You pair feature k with k + head_dim/2. Here neighbours are pairs: 0 with 1, 2 with 3.",
        ),
        Mistake(
            "reads neighbours, writes halves",
            _writes_halves,
            "Each pair is turned rightly, but the results stand in another order: all firsts, then all seconds.",
        ),
        Mistake(
            "turned the other way",
            lambda x, positions: rotate(x, -positions),
            "You turn clockwise. The minus belongs to the first of the two.",
        ),
        Mistake(
            "the exponent doubled",
            _at_speeds(lambda head_dim: speeds_of(head_dim) ** 2),
            "Your pairs slow down twice as fast. If k counts *features* 0, 2, 4, … it has been doubled already.",
        ),
        Mistake(
            "the exponent halved",
            _at_speeds(lambda head_dim: speeds_of(head_dim) ** 0.5),
            "Your pairs slow down half as fast. There are half as many pairs as features: is the 2 in your exponent?",
        ),
        Mistake(
            "the exponent's sign",
            _at_speeds(lambda head_dim: 1 / speeds_of(head_dim)),
            "Your later pairs turn faster and faster. Pair 0 is the fastest: 1 radian a step.",
        ),
        Mistake(
            "frequencies counted from 1",
            _at_speeds(lambda head_dim: speeds_of(head_dim) * 10_000 ** (-2 / head_dim)),
            "Pair 0 turns by 1 radian a step. Your frequencies start with the next one.",
        ),
        Mistake(
            "positions counted from 1",
            lambda x, positions: rotate(x, positions + 1),
            "At position 0 nothing is turned. You are one step ahead.",
        ),
        Mistake(
            "the sine for both",
            _turned_with(lambda even, odd, _, sin: (even * sin - odd * sin, even * sin + odd * sin)),
            "At position 0 your vectors vanish. Which table belongs where?",
        ),
        Mistake(
            "turned in place",
            _turned_with(
                lambda even, odd, cos, sin: (even * cos - odd * sin, (even * cos - odd * sin) * sin + odd * cos)
            ),
            "You compute the second of a pair from the first *after* its turn. Keep the old one until both are done.",
        ),
        Mistake(
            "row numbers in place of positions",
            lambda x, positions: rotate(x, torch.arange(len(positions))),
            "You count the rows yourself. Use the positions that were given: they may begin anywhere.",
        ),
        Mistake(
            "angles in the dtype of x",
            _pairs_rounded("positions", "speeds"),
            "All is right but the cases in low precision. Can a bfloat16 hold the number 501?",
        ),
        Mistake(
            "positions in the dtype of x",
            _pairs_rounded("positions"),
            "Your frequencies are wide, your positions are not. Can a bfloat16 hold the number 501?",
        ),
        Mistake(
            "frequencies in the dtype of x",
            _pairs_rounded("speeds"),
            "Your positions are wide. A frequency that is off by a five-hundredth is off by how much after 500 steps?",
        ),
        Mistake(
            "positions in bfloat16",
            lambda x, positions: rotate(x, positions.bfloat16().double()),
            "Right up to 256. Which whole numbers beyond can a bfloat16 hold?",
        ),
        Mistake(
            "all in float32",
            lambda x, positions: rotate(x.float(), positions).to(x.dtype),
            ALL_IN_FLOAT32,
        ),
    ),
    also_right=(_rotate_pairs_with_complex_numbers, _rotate_pairs_in_float32, _rotate_pairs_by_loop),
    learned="Ten lines, and most bugs of rotary live in them: layout, direction, exponent, dtype. Test each by itself.",
)

# --- 8.3 bfloat16_twins


def bfloat16_twins() -> tuple[int, int]:
    return 256, 257


def _two_positions(answer: Callable) -> tuple[int, int] | str:
    pair = answer()
    if isinstance(pair, (Tensor, np.ndarray)):
        pair = pair.tolist()
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return "return two whole numbers, as in `return 3, 4`"
    try:
        numbers = [as_tensor(p) for p in pair]
    except (TypeError, ValueError, RuntimeError):
        return "return two whole numbers, as in `return 3, 4`"
    if any(n.ndim or n.is_floating_point() or n.is_complex() or n.dtype == torch.bool for n in numbers):
        return "both must be whole numbers, as in `return 3, 4`"
    i, j = (int(n) for n in numbers)
    if not (0 <= i <= 300 and 0 <= j <= 300):
        return "both positions must lie between 0 and 300"
    return (i, j) if i != j else "your two positions are the same one"


def _twins_in_bfloat16(answer: Callable, _: Generator) -> Complaint:
    pair = _two_positions(answer)
    if isinstance(pair, str):
        return pair
    low = torch.tensor(pair).bfloat16().unsqueeze(-1) * speeds_of(128).bfloat16()
    differ = int((low[0] != low[1]).sum())
    return f"{differ} of 64 pairs still have different angles in bfloat16" if differ else None


def _one_stays(i: int) -> Mistake:
    return Mistake(
        f"one of them stays: {i} and {i + 1}",
        lambda: (i, i + 1),
        f"{i + 1} is a bfloat16 number and stays what it is. {i} is none. Which of its two neighbours does it become?",
    )


def _other_way(i: int) -> Mistake:
    return Mistake(
        f"rounded the other way: {i - 1} and {i}",
        lambda: (i - 1, i),
        f"{i} lies halfway between {i - 1} and {i + 1}. It goes to the one of them whose last bit is 0. Which is that?",
    )


BFLOAT16_TWINS = Exercise(
    chapter=8,
    title="A counterexample: two positions, one angle",
    points=1,
    minutes=5,
    difficulty=2,
    reference=bfloat16_twins,
    properties=(Property("the same angles in bfloat16", _twins_in_bfloat16),),
    mistakes=(
        Mistake(
            "a full turn",
            lambda: (0, 6),
            "After about six steps the *fastest* pair is back, and only nearly. All pairs must agree, exactly.",
        ),
        Mistake(
            "still whole numbers",
            lambda: (255, 256),
            "Both of these are bfloat16 numbers. From where on is the step between neighbours larger than 1?",
        ),
        Mistake(
            "too far out",
            lambda: (1000, 1001),
            "They do collide, but so do smaller ones: stay at 300 or below.",
        ),
        Mistake("the same position twice", lambda: (256, 256), "Two *different* positions, please."),
        *(_one_stays(i) for i in range(257, 300, 4)),
        *(_other_way(i) for i in range(259, 300, 4)),
    ),
    also_right=(
        lambda: (257, 256),
        lambda: [259, 260],
        lambda: (torch.tensor(263), torch.tensor(264)),
        lambda: torch.tensor([256, 257]),
        lambda: next((i, i + 1) for i in range(300) if torch.tensor(i).bfloat16() == torch.tensor(i + 1).bfloat16()),
    ),
    learned="bfloat16 has 8 significant bits, so above 256 not every whole number is one. Keep positions and angles in "
    "float32 or wider.",
)

# --- 8.4 rotate_partial


def rotate_partial(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
    angles = positions.unsqueeze(-1) * speeds_of(rotary_dim)
    return torch.cat([turn_halves(x[..., :rotary_dim], angles), x[..., rotary_dim:]], dim=-1)


def _partial_as_in_neox(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
    angles = positions[:, None] * 10_000.0 ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)
    cos, sin = (torch.cat([f(angles)] * 2, dim=-1).to(x.dtype) for f in (torch.cos, torch.sin))
    turned, kept = x[..., :rotary_dim], x[..., rotary_dim:]
    half = rotary_dim // 2
    exchanged = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
    return torch.cat([turned * cos + exchanged * sin, kept], dim=-1)


def _partial_by_loop(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
    result, half = x.clone(), rotary_dim // 2
    for k in range(half):
        angles = positions.double() * 10_000 ** (-2 * k / rotary_dim)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        result[..., k] = x[..., k] * cos - x[..., k + half] * sin
        result[..., k + half] = x[..., k] * sin + x[..., k + half] * cos
    return result


def _partial_with(
    speeds: Callable[[int, int], Tensor], turn_pairs: Callable = turn_halves, sign: int = 1, shift: int = 0
) -> Callable:
    def wrong(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
        angles = sign * (positions.unsqueeze(-1) + shift) * speeds(rotary_dim, x.shape[-1])
        return torch.cat([turn_pairs(x[..., :rotary_dim], angles), x[..., rotary_dim:]], dim=-1)

    return wrong


def _pairs_across_the_head(of_the_head: bool) -> Callable:
    """Pairs k with k + head_dim / 2, at the first frequencies of the whole head or at those of the turned part."""

    def wrong(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
        speeds = speeds_of(x.shape[-1] if of_the_head else rotary_dim)[: rotary_dim // 2]
        still = torch.zeros((x.shape[-1] - rotary_dim) // 2, dtype=torch.float64)
        return turn_halves(x, positions.unsqueeze(-1) * torch.cat([speeds, still]))

    return wrong


def _partial_rounded(*what: str) -> Callable:
    def wrong(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
        turned = _rounded(turn_halves, speeds_of(rotary_dim), x[..., :rotary_dim], positions, *what)
        return torch.cat([turned, x[..., rotary_dim:]], dim=-1)

    return wrong


def _partial_in_place(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
    result, half = x.clone(), rotary_dim // 2
    angles = positions.unsqueeze(-1) * speeds_of(rotary_dim)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = result[..., :half], result[..., half:rotary_dim]  # views, not copies
    result[..., :half] = first * cos - second * sin
    result[..., half:rotary_dim] = first * sin + second * cos
    return result


def _last_features(x: Tensor, positions: Tensor, rotary_dim: int) -> Tensor:
    kept = x.shape[-1] - rotary_dim
    angles = positions.unsqueeze(-1) * speeds_of(rotary_dim)
    return torch.cat([x[..., :kept], turn_halves(x[..., kept:], angles)], dim=-1)


def _partial_case(name: str, *shape: int, rotary_dim: int, start: int = 0, **kind):
    dtype, size = kind.get("dtype", torch.float64), kind.get("size", 1.0)
    places = torch.arange(start, start + shape[-2])
    return drawn(name, lambda g: (size * normal(g, *shape).to(dtype), places.clone(), rotary_dim))


ROTATE_PARTIAL = Exercise(
    chapter=8,
    title="Partial rotary, in halves",
    points=3,
    minutes=12,
    difficulty=3,
    reference=rotate_partial,
    cases=(
        _partial_case("a quarter of the head", 6, 16, rotary_dim=4),
        _partial_case("half of the head", 5, 8, rotary_dim=4),
        _partial_case("the whole head", 5, 8, rotary_dim=8),
        _partial_case("batch and heads", 2, 3, 4, 12, rotary_dim=8),
        _partial_case("two features", 4, 6, rotary_dim=2),
        _partial_case("later positions, float32", 4, 16, rotary_dim=8, start=400, dtype=torch.float32),
        _partial_case("later positions, bfloat16", 8, 32, rotary_dim=16, start=500, dtype=torch.bfloat16),
        _partial_case("far out, bfloat16", 4, 32, rotary_dim=16, start=50_000, dtype=torch.bfloat16),
        _partial_case("later positions, float16", 8, 32, rotary_dim=16, start=3000, dtype=torch.float16),
        _partial_case("huge numbers, float64", 4, 12, rotary_dim=8, size=HUGE),
    ),
    properties=(_keeps_dtypes(lambda answer, x: answer(x, torch.arange(3), 4), 3, 8),),
    mistakes=(
        Mistake(
            "frequencies of the whole head",
            _partial_with(lambda rotary_dim, head_dim: speeds_of(head_dim)[: rotary_dim // 2]),
            "The layout is right. But the spectrum is that of the whole head, cut off: the exponent must divide by "
            "the number of *turned* features.",
        ),
        Mistake(
            "neighbours",
            _partial_with(lambda rotary_dim, _: speeds_of(rotary_dim), turn_pairs=turn),
            "The right features are turned, in the wrong pairs: this model uses halves.",
        ),
        Mistake(
            "halves of the whole head",
            _pairs_across_the_head(of_the_head=False),
            "You pair k with k + head_dim/2. Cut the turned features off *first*, then pair within them.",
        ),
        Mistake(
            "halves and frequencies of the whole head",
            _pairs_across_the_head(of_the_head=True),
            "You pair k with k + head_dim/2, at the frequencies of the whole head. Which of the two sizes should "
            "decide about pairs, and which about frequencies?",
        ),
        Mistake(
            "the last features turned",
            _last_features,
            "You turn the end of each head. Turn the first rotary_dim features.",
        ),
        Mistake(
            "turned the other way",
            _partial_with(lambda rotary_dim, _: speeds_of(rotary_dim), sign=-1),
            "You turn clockwise. The minus belongs to the first half.",
        ),
        Mistake(
            "the rest dropped",
            lambda x, positions, rotary_dim: rotate_partial(x, positions, rotary_dim)[..., :rotary_dim],
            "The features that are not turned belong to the result as well, unchanged.",
        ),
        Mistake(
            "positions counted from 1",
            _partial_with(lambda rotary_dim, _: speeds_of(rotary_dim), shift=1),
            "At position 0 nothing is turned. You are one step ahead.",
        ),
        Mistake(
            "angles in the dtype of x",
            _partial_rounded("positions", "speeds"),
            "All is right but the cases in low precision. Can a bfloat16 hold the number 501?",
        ),
        Mistake(
            "positions in the dtype of x",
            _partial_rounded("positions"),
            "Your frequencies are wide, your positions are not. Can a bfloat16 hold the number 501?",
        ),
        Mistake(
            "frequencies in the dtype of x",
            _partial_rounded("speeds"),
            "Your positions are wide. A frequency that is off by a five-hundredth is off by how much after 500 steps?",
        ),
        Mistake(
            "turned in place",
            _partial_in_place,
            "You compute the second half from the first *after* its turn: a slice is a view. Keep the old numbers.",
        ),
        Mistake(
            "all in float32",
            lambda x, positions, rotary_dim: rotate_partial(x.float(), positions, rotary_dim).to(x.dtype),
            ALL_IN_FLOAT32,
        ),
    ),
    also_right=(_partial_as_in_neox, _partial_by_loop),
    learned="Cut, turn, put back. In halves the pairs are made within the turned part, and so is the spectrum.",
)

# --- 8.5 to_half_split_weights


def to_half_split_weights(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    heads = rows.unflatten(0, (-1, head_dim))  # (n_heads, head_dim, ...)
    turned, kept = heads[:, :rotary_dim], heads[:, rotary_dim:]
    return torch.cat([turned[:, 0::2], turned[:, 1::2], kept], dim=1).flatten(0, 1)


def _by_row_numbers(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    order = []
    for start in range(0, len(rows), head_dim):
        order += [*range(start, start + rotary_dim, 2), *range(start + 1, start + rotary_dim, 2)]
        order += range(start + rotary_dim, start + head_dim)
    return rows[order]


def _as_permute_does(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    heads = rows.reshape(len(rows) // head_dim, head_dim, -1).clone()
    turned = heads[:, :rotary_dim].reshape(len(heads), rotary_dim // 2, 2, -1)
    heads[:, :rotary_dim] = turned.transpose(1, 2).reshape(len(heads), rotary_dim, -1)
    return heads.reshape(rows.shape)


def _converted(order: Callable[[int, int], list[int]]) -> Callable:
    """Each head's features in the order that order(head_dim, rotary_dim) gives."""
    return lambda rows, head_dim, rotary_dim: rows.unflatten(0, (-1, head_dim))[:, order(head_dim, rotary_dim)].flatten(
        0, 1
    )


def _lace(n: int, start: int = 0) -> list[int]:
    return [*range(start, start + n, 2), *range(start + 1, start + n, 2)]


def _columns(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    return to_half_split_weights(rows.mT, head_dim, rotary_dim).mT if rows.ndim > 1 else rows


def _first_head_only(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    first = to_half_split_weights(rows[:head_dim], head_dim, rotary_dim)
    return torch.cat([first, rows[head_dim:]])


def _heads_exchanged(rows: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    """As if a head's rows stood n_heads apart."""
    heads = rows.unflatten(0, (head_dim, -1)).transpose(0, 1).flatten(0, 1)
    return to_half_split_weights(heads, head_dim, rotary_dim)


def _half_turned_scores_agree(answer: Callable, g: Generator) -> Complaint:
    """With four query heads and two key heads of which four features of six are turned, the scores stay."""
    head_dim, rotary_dim, x = 6, 4, normal(g, 5, 10)
    to_queries, to_keys = normal(g, 24, 10), normal(g, 12, 10)
    angles = torch.arange(5).unsqueeze(-1) * speeds_of(rotary_dim)

    def scores(of_queries: Tensor, of_keys: Tensor, turn_pairs: Callable) -> Tensor:
        sides = []
        for weight in (of_queries, of_keys):
            heads = (x @ weight.mT).unflatten(-1, (-1, head_dim)).transpose(0, 1)
            sides.append(torch.cat([turn_pairs(heads[..., :rotary_dim], angles), heads[..., rotary_dim:]], dim=-1))
        return sides[0] @ sides[1].repeat_interleave(2, dim=0).mT

    converted = (as_tensor(answer(w.clone(), head_dim, rotary_dim)) for w in (to_queries, to_keys))
    complaint = compare(scores(*converted, turn_halves), scores(to_queries, to_keys, turn))
    return f"4 query heads, 2 key heads: the scores changed: {complaint}" if complaint else None


def _rows_case(name: str, *shape: int, head_dim: int, rotary_dim: int, dtype: torch.dtype = torch.float64):
    return drawn(name, lambda g: (normal(g, *shape).to(dtype), head_dim, rotary_dim))


TO_HALF_SPLIT_WEIGHTS = Exercise(
    chapter=8,
    title="Convert a checkpoint",
    points=3,
    minutes=12,
    difficulty=3,
    reference=to_half_split_weights,
    cases=(
        _rows_case("one head, half of it turned", 8, 16, head_dim=8, rotary_dim=4),
        _rows_case("one head, all of it turned", 6, 12, head_dim=6, rotary_dim=6),
        _rows_case("three heads", 24, 16, head_dim=8, rotary_dim=6),
        _rows_case("a square matrix", 24, 24, head_dim=6, rotary_dim=4),
        _rows_case("a bias", 16, head_dim=8, rotary_dim=4),
        _rows_case("a QK-norm weight", 10, head_dim=10, rotary_dim=6),
        _rows_case("float32", 18, 6, head_dim=6, rotary_dim=2, dtype=torch.float32),
        _rows_case("as many heads as features", 36, 6, head_dim=6, rotary_dim=6),
    ),
    properties=(
        Property("scores are kept, with grouped queries", _half_turned_scores_agree),
        _keeps_dtypes(lambda answer, rows: answer(rows, 4, 4), 8, 8),
    ),
    mistakes=(
        Mistake(
            "the whole head reordered",
            lambda rows, head_dim, _: to_half_split_weights(rows, head_dim, head_dim),
            "Right where all features of a head are turned. Those from rotary_dim on stay where they are.",
        ),
        Mistake(
            "heads of width rotary_dim",
            lambda rows, _, rotary_dim: to_half_split_weights(rows, rotary_dim, rotary_dim),
            "You cut the rows into pieces of rotary_dim. A head has head_dim rows, turned or not.",
        ),
        Mistake(
            "heads mixed",
            lambda rows, *_: rows[_lace(len(rows))] if len(rows) % 2 == 0 else rows,
            "You reorder all rows as if they were one head that is turned as a whole. Look at one head at a time.",
        ),
        Mistake(
            "only the first head",
            _first_head_only,
            "The first head is right, the others came out as they went in. Every head has turned features.",
        ),
        Mistake(
            "the way back",
            _converted(
                lambda head_dim, rotary_dim: [
                    *(k + half for k in range(rotary_dim // 2) for half in (0, rotary_dim // 2)),
                    *range(rotary_dim, head_dim),
                ]
            ),
            "You convert from halves to neighbours. The rows that come in are neighbours.",
        ),
        Mistake(
            "halves across the head",
            _converted(
                lambda head_dim, rotary_dim: (
                    [*range(0, rotary_dim, 2), *range(rotary_dim, head_dim), *range(1, rotary_dim, 2)]
                )
            ),
            "The seconds of the pairs stand behind the features that are not turned. Both halves belong in front.",
        ),
        Mistake(
            "the rest in front",
            _converted(lambda head_dim, rotary_dim: [*range(rotary_dim, head_dim), *_lace(rotary_dim)]),
            "Right where all is turned. The features that are not turned keep their places, behind the others.",
        ),
        Mistake(
            "the last features reordered",
            _converted(
                lambda head_dim, rotary_dim: [*range(head_dim - rotary_dim), *_lace(rotary_dim, head_dim - rotary_dim)]
            ),
            "You reorder the end of each head. The first rotary_dim features are turned.",
        ),
        Mistake(
            "columns reordered",
            _columns,
            "The columns belong to the model's width, the rows to the head's features. Which of them are turned?",
        ),
        Mistake(
            "seconds first",
            _converted(
                lambda head_dim, rotary_dim: [
                    *range(1, rotary_dim, 2),
                    *range(0, rotary_dim, 2),
                    *range(rotary_dim, head_dim),
                ]
            ),
            "First all firsts of the pairs, then all seconds. Yours is a rotation the other way round.",
        ),
        Mistake(
            "heads and features exchanged",
            _heads_exchanged,
            "The rows of one head stand together: the head is the *slowest* of the axes when you split them.",
        ),
        Mistake(
            "nothing done",
            lambda rows, *_: rows,
            "These are the same rows in the same order.",
        ),
    ),
    also_right=(_by_row_numbers, _as_permute_does),
    learned="Conversion permutes rows of W_Q and W_K within each head, and entries of their biases and norm weights; "
    "what is not turned stays. Count the heads of keys by their own rows.",
)

# --- 8.6 text_positions


def text_positions(documents: Tensor) -> Tensor:
    places = torch.arange(documents.shape[-1], device=documents.device).expand(documents.shape)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[..., 1:] = documents[..., 1:] != documents[..., :-1]
    first = torch.where(starts, places, 0).cummax(dim=-1).values
    return torch.where(documents == 0, 0, places - first)


def _text_positions_by_loop(documents: Tensor) -> Tensor:
    result = torch.zeros_like(documents)
    for row, positions in zip(documents.view(-1, documents.shape[-1]), result.view(-1, result.shape[-1]), strict=True):
        before, count = 0, 0
        for place, name in enumerate(row.tolist()):
            count = count + 1 if name == before else 0
            positions[place] = count if name else 0
            before = name
    return result


def _text_positions_by_pairs(documents: Tensor) -> Tensor:
    n = documents.shape[-1]
    same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
    before = torch.ones(n, n, dtype=torch.bool).tril(-1)
    return (same & before).sum(dim=-1) * (documents != 0)


def _runs(documents: Tensor) -> Tensor:
    """As `text_positions`, but padding counts on."""
    return text_positions(torch.where(documents == 0, documents.min() - 1, documents))


def _real_so_far(documents: Tensor) -> Tensor:
    return ((documents != 0).long().cumsum(dim=-1) - 1).clamp(min=0) * (documents != 0)


def _starts_where_names_rise(documents: Tensor) -> Tensor:
    places = torch.arange(documents.shape[-1]).expand(documents.shape)
    starts = torch.ones_like(documents, dtype=torch.bool)
    starts[..., 1:] = documents[..., 1:] > documents[..., :-1]
    first = torch.where(starts, places, 0).cummax(dim=-1).values
    return torch.where(documents == 0, 0, places - first)


def _rows_in_one(documents: Tensor) -> Tensor:
    return text_positions(documents.flatten()).view(documents.shape)


TEXT_POSITIONS = Exercise(
    chapter=8,
    title="Positions for padding and packing",
    points=2,
    minutes=8,
    difficulty=2,
    reference=text_positions,
    cases=(
        with_arguments("two documents", torch.tensor([1, 1, 1, 2, 2])),
        with_arguments("left padding", torch.tensor([0, 0, 0, 5, 5, 5])),
        with_arguments("padding between and behind", torch.tensor([3, 3, 0, 0, 8, 8, 8, 0])),
        with_arguments("numbers that fall", torch.tensor([9, 9, 4, 4, 4, 1])),
        with_arguments("a batch", torch.tensor([[0, 0, 7, 7, 7], [7, 7, 7, 2, 2], [2, 2, 2, 2, 2]])),
        with_arguments("documents of one token", torch.tensor([1, 2, 3])),
        with_arguments("negative names", torch.tensor([0, -2, -2, -2, 3, 3, -7, -7])),
        with_arguments("only padding", torch.tensor([[0, 0, 0], [1, 1, 1]])),
    ),
    mistakes=(
        Mistake(
            "one running count",
            lambda documents: torch.arange(documents.shape[-1]).expand(documents.shape) * (documents != 0),
            "You number the places of the row. Each document counts from 0 again.",
        ),
        Mistake(
            "the places of the row",
            lambda documents: torch.arange(documents.shape[-1]).expand(documents.shape),
            "These are the row's own place numbers. Each document counts from 0 again, and padding has position 0.",
        ),
        Mistake(
            "a start only where the number rises",
            _starts_where_names_rise,
            "Right as long as names rise. They have no order: what tells where a new document begins?",
        ),
        Mistake(
            "only padding left out",
            _real_so_far,
            "Padding is not counted any more, good. But a new document has not begun again at 0.",
        ),
        Mistake(
            "only padding left out, -1 before the text",
            lambda documents: (documents != 0).long().cumsum(dim=-1) - 1,
            "You count the tokens so far. Look at the padding at the left, and at the first token of a new document.",
        ),
        Mistake(
            "negative names taken for padding",
            lambda documents: text_positions(documents.clamp(min=0)),
            "Only 0 is padding. Any other whole number is a document's name.",
        ),
        Mistake(
            "padding counts on",
            _runs,
            "Right for the documents. Padding should have position 0 everywhere.",
        ),
        Mistake(
            "counted from 1",
            lambda documents: (text_positions(documents) + 1) * (documents != 0),
            "The first token of a document has position 0.",
        ),
        Mistake(
            "padding at -1",
            lambda documents: torch.where(documents == 0, -1, text_positions(documents)),
            "Right for the documents. Padding has position 0, so that it is a legal row of any table.",
        ),
        Mistake(
            "one row runs into the next",
            _rows_in_one,
            "Right within a row. If a row begins with the document that the row above ends with, you go on counting.",
        ),
        Mistake(
            "not whole",
            lambda documents: text_positions(documents).float(),
            "The values are right. Positions are whole numbers.",
        ),
    ),
    also_right=(_text_positions_by_loop, _text_positions_by_pairs),
    learned="Positions belong to a text, not to a row of a tensor. Rotary forgives a shift of a whole text; tables and "
    "sinusoids do not, and small numbers are kinder to floats.",
)

# --- 8.7 decode_step


def decode_step(
    query: Tensor, key: Tensor, value: Tensor, cached_keys: Tensor, cached_values: Tensor, dropped: int
) -> tuple[Tensor, Tensor, Tensor]:
    return _step(query, key, value, cached_keys, cached_values, dropped + cached_keys.shape[-2])


def _step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cached_keys: Tensor,
    cached_values: Tensor,
    position: int,
    *,
    turn_query: bool = True,
    turn_key: bool = True,
    turn_value: bool = False,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    at = torch.tensor([position])
    query = rotate(query, at) if turn_query else query
    key = rotate(key, at) if turn_key else key
    value = rotate(value, at) if turn_value else value
    keys, values = torch.cat([cached_keys, key], dim=-2), torch.cat([cached_values, value], dim=-2)
    return attention(scale * query, keys, values), keys, values


def _step_by_sdpa(
    query: Tensor, key: Tensor, value: Tensor, cached_keys: Tensor, cached_values: Tensor, dropped: int
) -> tuple[Tensor, Tensor, Tensor]:
    at = torch.tensor([dropped + cached_keys.shape[-2]])
    angles = at.unsqueeze(-1) * speeds_of(query.shape[-1])
    keys = torch.cat([cached_keys, turn(key, angles)], dim=-2)
    values = torch.cat([cached_values, value], dim=-2)
    output = torch.nn.functional.scaled_dot_product_attention(turn(query, angles), keys, values)
    return output, keys, values


def _step_at(position: Callable[[int, int], int], **changes) -> Callable:
    """A step whose position is computed otherwise from (kept, dropped), or that turns other things."""

    def wrong(query, key, value, cached_keys, cached_values, dropped):
        place = position(cached_keys.shape[-2], dropped)
        return _step(query, key, value, cached_keys, cached_values, place, **changes)

    return wrong


def _turned_twice(query, key, value, cached_keys, cached_values, dropped):
    kept = torch.arange(dropped, dropped + cached_keys.shape[-2])
    return decode_step(query, key, value, rotate(cached_keys, kept), cached_values, dropped)


def _does_not_see_itself(query, key, value, cached_keys, cached_values, dropped):
    output, keys, values = decode_step(query, key, value, cached_keys, cached_values, dropped)
    turned = rotate(query, torch.tensor([dropped + cached_keys.shape[-2]]))
    return (attention(turned, cached_keys, cached_values) if cached_keys.shape[-2] else output), keys, values


def _dropped_again(query, key, value, cached_keys, cached_values, dropped):
    place = dropped + cached_keys.shape[-2]
    keys, values = cached_keys[..., dropped:, :], cached_values[..., dropped:, :]
    return _step(query, key, value, keys, values, place)


def _only_the_first_key(query, key, value, cached_keys, cached_values, dropped):
    """`is_causal` aligns at the first key, so a single query sees that one alone."""
    _, keys, values = decode_step(query, key, value, cached_keys, cached_values, dropped)
    turned = rotate(query, torch.tensor([dropped + cached_keys.shape[-2]]))
    return torch.nn.functional.scaled_dot_product_attention(turned, keys, values, is_causal=True), keys, values


def _puts_away_the_plain_key(query, key, value, cached_keys, cached_values, dropped):
    output, _, values = decode_step(query, key, value, cached_keys, cached_values, dropped)
    return output, torch.cat([cached_keys, key], dim=-2), values


def _new_token_in_front(query, key, value, cached_keys, cached_values, dropped):
    output, keys, values = decode_step(query, key, value, cached_keys, cached_values, dropped)
    return output, keys.roll(1, dims=-2), values.roll(1, dims=-2)


def _oldest_dropped_after(query, key, value, cached_keys, cached_values, dropped):
    output, keys, values = decode_step(query, key, value, cached_keys, cached_values, dropped)
    drop = min(1, cached_keys.shape[-2])
    return output, keys[..., drop:, :], values[..., drop:, :]


def _oldest_dropped_before(query, key, value, cached_keys, cached_values, dropped):
    drop = min(1, cached_keys.shape[-2])
    return decode_step(query, key, value, cached_keys[..., drop:, :], cached_values[..., drop:, :], dropped + drop)


def _decoding(name: str, *heads: int, kept: int, dropped: int = 0, dtype: torch.dtype = torch.float64):
    def make(g: Generator) -> tuple:
        query, key, value = (normal(g, *heads, 1, 8).to(dtype) for _ in range(3))
        keys = rotate(normal(g, *heads, kept, 8).to(dtype), torch.arange(dropped, dropped + kept))
        return query, key, value, keys, normal(g, *heads, kept, 8).to(dtype), dropped

    return drawn(name, make)


def _decodes_like_the_whole_text(answer: Callable, g: Generator) -> Complaint:
    n, window = 7, 3
    queries, keys, values = normal(g, 3, 2, n, 8).unbind()
    places = torch.arange(n)
    near = places.unsqueeze(-1) - places < window
    expected = attention(rotate(queries, places), rotate(keys, places), values, causal(places, places) & near)
    cached_keys, cached_values, dropped = keys[:, :0], values[:, :0], 0
    for t in range(n):
        now = slice(t, t + 1)
        results = answer(queries[:, now], keys[:, now], values[:, now], cached_keys, cached_values, dropped)
        output, cached_keys, cached_values = (as_tensor(r) for r in results)
        if complaint := compare(output, expected[:, now]):
            return f"a text decoded in a window of {window}, token {t}: {complaint}"
        if t >= window - 1:  # the window is full: its oldest key leaves
            cached_keys, cached_values, dropped = cached_keys[:, 1:], cached_values[:, 1:], dropped + 1
    return None


DECODE_STEP = Exercise(
    chapter=8,
    title="One step with a cache",
    points=3,
    minutes=15,
    difficulty=3,
    reference=decode_step,
    cases=(
        _decoding("four keys in the cache", 2, kept=4),
        _decoding("the very first token", 2, kept=0),
        _decoding("a window that has dropped five", 2, kept=3, dropped=5),
        _decoding("batch and heads", 3, 2, kept=4, dropped=2),
        _decoding("float32", 2, kept=6, dtype=torch.float32),
        _decoding("a window of one", 1, kept=1, dropped=9),
        _decoding("all have left", 2, kept=0, dropped=9),
    ),
    properties=(Property("a text, token by token, in a window", _decodes_like_the_whole_text),),
    mistakes=(
        Mistake(
            "the new token at position 0",
            _step_at(lambda kept, dropped: 0),
            "The new token is one token long, but it does not stand at the beginning. How many came before it?",
        ),
        Mistake(
            "keys counted, not tokens",
            _step_at(lambda kept, dropped: kept),
            "Right until the window drops something. Keys that have left the cache have not left the text.",
        ),
        Mistake(
            "an empty cache taken for the beginning",
            lambda query, key, value, keys, values, dropped: _step(
                query, key, value, keys, values, keys.shape[-2] and dropped + keys.shape[-2]
            ),
            "Right unless the cache is empty. Does an empty cache mean that the text has just begun?",
        ),
        Mistake(
            "dropped once more",
            _dropped_again,
            "Right where nothing has been dropped. Elsewhere keys are missing: `dropped` tokens have left already.",
        ),
        Mistake(
            "one too far",
            _step_at(lambda kept, dropped: kept + dropped + 1),
            "Positions count from 0: after four tokens, at 0 to 3, the new one stands at 4.",
        ),
        Mistake(
            "one too near",
            _step_at(lambda kept, dropped: max(0, kept + dropped - 1)),
            "The new token now shares its position with the one before it.",
        ),
        Mistake(
            "cached keys turned twice",
            _turned_twice,
            "The keys in the cache have been turned, each at its own position. Leave them as they are.",
        ),
        Mistake(
            "the new key not turned",
            _step_at(lambda kept, dropped: kept + dropped, turn_key=False),
            "The query is right. The new key must be turned as well, before it joins the cache.",
        ),
        Mistake(
            "the query not turned",
            _step_at(lambda kept, dropped: kept + dropped, turn_query=False),
            "The cache that you return is right. The output is not: what must happen to a query before it meets a key?",
        ),
        Mistake(
            "the value turned too",
            _step_at(lambda kept, dropped: kept + dropped, turn_value=True),
            "Queries and keys are turned. Values are not.",
        ),
        Mistake(
            "scores not scaled",
            _step_at(lambda kept, dropped: kept + dropped, scale=8**0.5),
            "The cache is right. The scores must be divided by the square root of head_dim.",
        ),
        Mistake(
            "the new token does not see itself",
            _does_not_see_itself,
            "A token attends to itself too: its key and value join the cache first, then it looks.",
        ),
        Mistake(
            "is_causal with one query",
            _only_the_first_key,
            "The cache is right. But your causal mask takes the one query for the first row of the text: which keys "
            "does that row see?",
        ),
        Mistake(
            "the plain key put away",
            _puts_away_the_plain_key,
            "The output is right. The key that you put into the cache has not been turned: the next step will need it.",
        ),
        Mistake(
            "the new token in front",
            _new_token_in_front,
            "The output is right. In the cache the tokens stand in order, the newest last.",
        ),
        Mistake(
            "the oldest key dropped",
            _oldest_dropped_after,
            "The output is right. Return all that there is, n + 1 keys and values: dropping is left to the caller.",
        ),
        Mistake(
            "the oldest key dropped too early",
            _oldest_dropped_before,
            "The oldest key left before the new token could look at it. You need not drop anything here.",
        ),
    ),
    also_right=(_step_by_sdpa,),
    learned="A key is turned once, at its own position, before it enters the cache. The next position is the number of "
    "tokens seen, not of keys kept.",
)

# --- 8.8 mend_rotary


def mend_rotary(x: Tensor, positions: Tensor, base: float) -> Tensor:
    return _rotary_with(x, positions, base)


def _rotary_with(
    x: Tensor,
    positions: Tensor,
    base: float,
    *,
    exponent: float = 1.0,
    low: tuple[str, ...] = (),
    heads_axis: str = "where needed",
    sine_for_both: bool = False,
    sign: int = 1,
) -> Tensor:
    """The function of the exercise, mended; each argument puts one of its bugs back."""
    speeds = base ** (-exponent * torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    speeds = speeds.to(x.dtype) if "speeds" in low else speeds
    positions = positions.to(x.dtype) if "positions" in low else positions.double()
    angles = positions.unsqueeze(-1) * speeds
    if heads_axis == "always" or (heads_axis == "where needed" and positions.ndim > 1):
        angles = angles.unsqueeze(1)  # (batch, 1, n, pairs)
    sin = sign * angles.sin().to(x.dtype)
    cos = angles.sin().to(x.dtype) if sine_for_both else angles.cos().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def _mended_with_rotate(x: Tensor, positions: Tensor, base: float) -> Tensor:
    return rotate(x, positions if positions.ndim == 1 else positions.unsqueeze(-2), base)


def _mended_by_loop(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """As libraries do, with float32 angles, one sequence after the other."""
    speeds = torch.tensor([base ** (-2 * k / x.shape[-1]) for k in range(x.shape[-1] // 2)], dtype=torch.float32)
    positions = positions.expand(x.shape[0], -1).float()
    return torch.stack([turn(one, p[:, None] * speeds) for one, p in zip(x, positions, strict=True)])


BUGS = {
    "position 0": ({"sine_for_both": True}, "Feed it position 0: a vector should come out as it went in."),
    "the spectrum": ({"exponent": 2}, "Print the frequencies for a head of width 4: they should be 1 and 0.01."),
    "the direction": (
        {"sign": -1},
        "Turn (1, 0) by a small positive angle: its second feature should become positive.",
    ),
    "the axes": (
        {"heads_axis": "never"},
        "Give it positions (batch, n) and print the shapes of `angles` and `even`: which axis meets which?",
    ),
    "the precision": (
        {"low": ("positions", "speeds")},
        "Compare bfloat16 vectors at position 1000 with the same in float64: in which format is each factor made?",
    ),
}


def _with_bugs(**bugs) -> Callable:
    return lambda x, positions, base: _rotary_with(x, positions, base, **bugs)


def _bugs_left() -> tuple[Mistake, ...]:
    """One mistake for each set of bugs that may be left: whatever a learner mends first, one of the others is named."""
    words = ("", "One is left.", "Two are left.", "Three are left.", "Four are left.")
    return tuple(
        Mistake(
            f"bugs left: {', '.join(names)}",
            _with_bugs(**{key: value for name in names for key, value in BUGS[name][0].items()}),
            f"{words[many]} {BUGS[names[0]][1]}",
        )
        for many in range(1, len(BUGS))
        for names in combinations(BUGS, many)
    )


def _broken_case(name: str, batch: int, heads: int, n: int, positions: list, base: float = 10_000.0, **kind):
    dtype, size = kind.get("dtype", torch.float64), kind.get("size", 1.0)
    return drawn(name, lambda g: (size * normal(g, batch, heads, n, 16).to(dtype), torch.tensor(positions), base))


def _keeps_norms(answer: Callable, g: Generator) -> Complaint:
    x = normal(g, 2, 3, 4, 8)
    got = as_tensor(answer(x.clone(), torch.tensor([[0, 1, 2, 3], [9, 10, 11, 12]]), 10_000.0))
    complaint = compare(got.norm(dim=-1), x.norm(dim=-1)) if got.shape == x.shape else "the shape changed"
    return f"a turn keeps each vector's length: {complaint}" if complaint else None


MEND_ROTARY = Exercise(
    chapter=8,
    title="A bug hunt",
    points=4,
    minutes=20,
    difficulty=4,
    reference=mend_rotary,
    cases=(
        _broken_case("the same positions for all", 2, 3, 5, [0, 1, 2, 3, 4]),
        _broken_case("positions of their own", 2, 3, 4, [[0, 1, 2, 3], [5, 6, 7, 8]]),
        _broken_case("as many heads as sequences", 2, 2, 4, [[0, 0, 0, 1], [0, 1, 2, 3]]),
        _broken_case("one sequence", 1, 2, 3, [[4, 5, 6]]),
        _broken_case("another base", 1, 2, 4, [3, 4, 5, 6], base=500_000.0),
        _broken_case(
            "late, in bfloat16", 2, 1, 4, [[500, 501, 502, 503], [999, 1000, 1001, 1002]], dtype=torch.bfloat16
        ),
        _broken_case("later, in float16", 1, 2, 4, [3000, 3001, 3002, 3003], dtype=torch.float16),
        _broken_case("huge numbers, float64", 1, 2, 3, [0, 1, 2], size=HUGE),
    ),
    properties=(
        Property("keeps lengths", _keeps_norms),
        _keeps_dtypes(lambda answer, x: answer(x, torch.arange(3), 10_000.0), 1, 1, 3, 8),
    ),
    mistakes=(
        Mistake(
            "as it was found",
            _with_bugs(**{name: value for bug, _ in BUGS.values() for name, value in bug.items()}),
            "Nothing has changed yet. Begin with position 0: what should happen to a vector there?",
        ),
        *_bugs_left(),
        Mistake(
            "an axis for the heads, always",
            _with_bugs(heads_axis="always"),
            "Right for positions (batch, n). Those of shape (n,) are for all sequences alike: which shape do their "
            "angles have now?",
        ),
        Mistake(
            "half of a bug left: frequencies",
            _with_bugs(low=("speeds",)),
            "The positions are wide now. Two numbers are multiplied: what of the other?",
        ),
        Mistake(
            "half of a bug left: positions",
            _with_bugs(low=("positions",)),
            "The frequencies are wide now. Two numbers are multiplied: what of the other?",
        ),
        Mistake(
            "the base ignored",
            lambda x, positions, base: _rotary_with(x, positions, 10_000.0),
            "Right for base 10,000. Which of your lines looks at the argument?",
        ),
        Mistake(
            "all in float32",
            lambda x, positions, base: _rotary_with(x.float(), positions, base).to(x.dtype),
            ALL_IN_FLOAT32,
        ),
    ),
    also_right=(_mended_with_rotate, _mended_by_loop),
    learned="Five tests find five bugs: position 0, the printed spectrum, a small turn, a batch with as many heads as "
    "sequences, and late positions in bfloat16.",
)

EXERCISES = (
    BLOCK_ROTATION,
    ROTATE_PAIRS,
    BFLOAT16_TWINS,
    ROTATE_PARTIAL,
    TO_HALF_SPLIT_WEIGHTS,
    TEXT_POSITIONS,
    DECODE_STEP,
    MEND_ROTARY,
)
