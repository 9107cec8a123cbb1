"""Exercises of chapter 12: measured."""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import torch
from torch import Generator, Tensor

from posenc.checks.compare import as_tensor
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.encoding import NoPE, PositionEncoding, Together
from posenc.masks import Causal, Chunked
from posenc.offsets import Shaw
from posenc.relative import ALiBi, OffsetBias
from posenc.rotary import Rotary
from posenc.symmetry_table import D_MODEL, HEAD_DIM, N_HEADS, at_random
from posenc.tasks import NOT_ASKED

# --- 12.1 free_orders


def free_orders(n: int, window: int, clip: int) -> int:
    seen = min(window, n) - 1  # earlier tokens in the window
    alike = max(0, seen - max(clip, 1) + 1)  # of these, the ones that read the table's last row
    return math.factorial(n - 1 - seen) * math.factorial(alike)


def _free_orders_by_trying(n: int, window: int, clip: int) -> int:
    """Give each earlier place what the last row reads there; an order is free if all tokens read what they read."""
    distance = [n - 1 - place for place in range(n - 1)]
    reads = [min(d, max(clip, 1)) if d < window else "nothing" for d in distance]
    return sum(all(reads[p] == reads[q] for p, q in enumerate(order)) for order in permutations(range(n - 1)))


def _free(unseen: Callable[[int, int], int], alike: Callable[[int, int, int], int]) -> Callable[[int, int, int], int]:
    """A wrong count: unseen(n, window) tokens outside, alike(n, window, clip) inside, factorials multiplied."""
    return lambda n, window, clip: math.factorial(unseen(n, window)) * math.factorial(alike(n, window, clip))


def _unseen(n: int, window: int) -> int:
    return n - min(window, n)


def _alike(n: int, window: int, clip: int) -> int:
    return max(0, min(window, n) - max(clip, 1))


FREE_ORDERS = Exercise(
    chapter=12,
    title="Which orders are left?",
    points=2,
    minutes=10,
    difficulty=2,
    reference=free_orders,
    cases=(
        with_arguments("six tokens, all seen, clip 2", 6, 6, 2),
        with_arguments("a window of 3, a large clip", 6, 3, 9),
        with_arguments("window and clip", 9, 7, 3),
        with_arguments("a window larger than the text", 5, 100, 1),
        with_arguments("it sees itself only", 7, 1, 4),
        with_arguments("clip and window alike", 8, 4, 4),
        with_arguments("clip 0", 6, 5, 0),
        with_arguments("one token", 1, 3, 2),
        with_arguments("a large clip, all seen", 6, 6, 5),
    ),
    mistakes=(
        Mistake(
            "a window of earlier tokens",
            _free(
                lambda n, w: n - 1 - min(w, n - 1),
                lambda n, w, c: max(0, min(w, n - 1) - max(c, 1) + 1),
            ),
            "The window counts the token itself. With a window of 1, how many *earlier* tokens are seen?",
        ),
        Mistake(
            "beyond the clip only",
            _free(_unseen, lambda n, w, c: max(0, min(w, n) - max(c, 1) - 1)),
            "Distances beyond the clip read the clip's row. Who else reads that row?",
        ),
        Mistake(
            "added",
            lambda n, w, c: math.factorial(_unseen(n, w)) + math.factorial(_alike(n, w, c)),
            "You add two counts. Each order of the one group goes with each order of the other.",
        ),
        Mistake(
            "no clip",
            _free(_unseen, lambda n, w, c: 0),
            "You let the unseen tokens move. Some of the seen ones read the same row of the table.",
        ),
        Mistake(
            "no window",
            _free(lambda n, w: 0, lambda n, w, c: max(0, n - max(c, 1))),
            "You let the tokens move that read the same row. What about tokens that are not seen at all?",
        ),
        Mistake(
            "no window, and a row for clip 0",
            _free(lambda n, w: 0, lambda n, w, c: max(0, n - c)),
            "You let the tokens move that read the same row. What about tokens that are not seen at all?",
        ),
        Mistake(
            "the unseen stay",
            _free(lambda n, w: 0, _alike),
            "You let the seen tokens move that read the same row. What does the last row read of the unseen ones?",
        ),
        Mistake(
            "one group",
            lambda n, w, c: math.factorial(_unseen(n, w) + _alike(n, w, c)),
            "You put the unseen tokens and the far ones into one group. Can one of the former become seen for free?",
        ),
        Mistake(
            "clip 0 has a row for itself",
            _free(_unseen, lambda n, w, c: max(0, min(w, n) - c)),
            "Right for clips of 1 and more. With clip 0 the token itself reads the same row; it does not move.",
        ),
    ),
    also_right=(_free_orders_by_trying,),
    learned="Whatever is read alike may change places. Groups move on their own, so their counts multiply.",
)

# --- 12.2 kept_moves


def kept_moves(layer: Callable, n: int, d: int) -> dict[str, bool]:
    x, labels = torch.randn(n, d, dtype=torch.float64), torch.arange(n)
    orders = [torch.randperm(n) for _ in range(30)] + [torch.arange(n).roll(1)]
    return _judged(layer, x, labels, orders, shifts=range(1, 13), factors=range(2, 7))


def _judged(
    layer: Callable,
    x: Tensor,
    labels: Tensor,
    orders: Sequence[Tensor],
    shifts: Sequence[int],
    factors: Sequence[int],
    limit: float = 1e-9,
    stays: bool = False,
    size: Callable[[Tensor], Tensor] = torch.abs,
) -> dict[str, bool]:
    """The moves that change nothing by more than the limit. stays: compare with the output that did not move."""
    plain = layer(x, labels)

    def same(moved: Tensor, plain: Tensor = plain) -> bool:
        return size(moved - plain).max().item() < limit

    return {
        "any order": all(same(layer(x[o], labels), plain if stays else plain[o]) for o in orders),
        "shift": all(same(layer(x, labels + by)) for by in shifts),
        "reversal": same(layer(x, labels.flip(0))),
        "stretch": all(same(layer(x, labels * by)) for by in factors),
    }


def _by_moving_tokens(layer: Callable, n: int, d: int) -> dict[str, bool]:
    """Reversed by moving the tokens: what comes to the same."""
    x, labels = torch.rand(n, d, dtype=torch.float64) - 0.5, torch.arange(n)
    found = _judged(layer, x, labels, list(torch.tensor([*permutations(range(n))])[::7]), (1, 4, 7), (2, 5))
    flipped = (layer(x.flip(0), labels) - layer(x, labels).flip(0)).abs().max().item()
    return found | {"reversal": flipped < 1e-10}


def _careless(
    tokens: Callable[[int, int], Tensor] = lambda n, d: torch.randn(n, d, dtype=torch.float64),
    orders: Callable[[int], Sequence[Tensor]] = lambda n: [torch.randperm(n) for _ in range(30)],
    shifts: Sequence[int] = range(1, 13),
    factors: Sequence[int] = (2, 3),
    **more: Any,
) -> Callable:
    def wrong(layer: Callable, n: int, d: int) -> dict[str, bool]:
        return _judged(layer, tokens(n, d), torch.arange(n), orders(n), shifts, factors, **more)

    return wrong


class _Kinds(PositionEncoding):
    """Adds one of a few vectors, by the kind of the label."""

    def __init__(self, kind: Callable[[Tensor], Tensor], vectors: Tensor):
        super().__init__()
        self.kind = kind
        self.register_buffer("vectors", vectors)

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.vectors[self.kind(positions) % len(self.vectors)]


def _odd_part(labels: Tensor) -> Tensor:
    """The label with all factors of two taken out; 0 stays."""
    return labels // (labels & -labels).clamp(min=1)


class _Swaps(PositionEncoding):
    """Adds a vector, or takes it away: by whether labels and tokens, each ranked, are an even or an odd order apart."""

    def __init__(self, read: Tensor, vector: Tensor):
        super().__init__()
        self.register_buffer("read", read)
        self.register_buffer("vector", vector)

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        rank = x @ self.read
        pairs = (rank.unsqueeze(-1) - rank.unsqueeze(-2)).sign() * (positions.unsqueeze(-1) - positions).sign()
        first = torch.ones_like(pairs).tril(-1).bool()
        return x + pairs[first].prod() * self.vector


class _Rooms(PositionEncoding):
    """Tokens see those in the same block, on both sides."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return (query_positions // self.size).unsqueeze(-1) == (key_positions // self.size).unsqueeze(-2)


class _Faint(OffsetBias):
    """A distance that hardly counts."""

    def __init__(self, slope: float):
        super().__init__()
        self.slope = slope

    def bias(self, offsets: Tensor) -> Tensor:
        return (-self.slope * offsets.abs()).expand(N_HEADS, -1, -1)


def unseen_layer(encoding: PositionEncoding, generator: Generator) -> Callable:
    """A layer with random weights as a plain function of tokens and labels. It computes in float64."""
    seed = int(torch.randint(2**31, (1,), generator=generator))
    stack = at_random(encoding, 1, seed)

    def layer(x: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            return stack(torch.as_tensor(x).detach().double(), torch.as_tensor(labels).long())

    return layer


def _counts_down(g: Generator) -> tuple:
    """A layer that takes a little more away with each place: later is less, everywhere."""
    speeds = torch.rand(D_MODEL, generator=g, dtype=torch.float64) + 0.1

    def layer(x: Tensor, labels: Tensor) -> Tensor:
        return torch.as_tensor(x).detach().double() - torch.as_tensor(labels).unsqueeze(-1) * speeds

    return layer, 6, D_MODEL


def _layer_case(name: str, make: Callable[[Generator], PositionEncoding], n: int | None = None):
    def arguments(g: Generator) -> tuple:
        length = int(torch.randint(5, 8, (1,), generator=g)) if n is None else n
        return unseen_layer(make(g), g), length, D_MODEL

    return drawn(name, arguments)


def _one_of(g: Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (1,), generator=g))


KEPT_MOVES = Exercise(
    chapter=12,
    title="An encoding that nobody has named",
    points=4,
    minutes=20,
    difficulty=4,
    reference=kept_moves,
    cases=(
        _layer_case("layer A", lambda g: NoPE()),
        _layer_case("layer B", lambda g: Rotary(base=10.0 ** _one_of(g, 1, 4))),
        _layer_case("layer C", lambda g: ALiBi(N_HEADS, largest_exponent=float(_one_of(g, 2, 4)))),
        _layer_case("layer D", lambda g: Causal()),
        _layer_case("layer E", lambda g: Chunked(_one_of(g, 2, 4))),
        _layer_case("layer F", lambda g: _Kinds(lambda labels: labels, normal(g, 2, D_MODEL))),
        _layer_case("layer G", lambda g: _Rooms(2), n=6),
        _layer_case("layer H", lambda g: _Faint(1e-6)),
        _layer_case("layer I", lambda g: Shaw(HEAD_DIM, clip=1, n_heads=N_HEADS)),
        _layer_case("layer J", lambda g: Together(Causal(), Rotary(base=100.0))),
        _layer_case("layer K", lambda g: _Kinds(lambda labels: labels, normal(g, 3, D_MODEL))),
        _layer_case("layer L", lambda g: _Kinds(lambda labels: labels // 8, normal(g, 50, D_MODEL)), n=6),
        _layer_case("layer M", lambda g: _Kinds(_odd_part, normal(g, 7, D_MODEL))),
        _layer_case("layer N", lambda g: _Swaps(normal(g, D_MODEL), normal(g, D_MODEL)), n=7),
        _layer_case("layer O", lambda g: _Swaps(normal(g, D_MODEL), normal(g, D_MODEL)), n=6),
        _layer_case("layer P", lambda g: _Kinds(lambda labels: (labels > 0).long(), normal(g, 2, D_MODEL))),
        drawn("layer Q", _counts_down),
    ),
    mistakes=(
        Mistake(
            "the output should move along",
            _careless(stays=True),
            "You compare the output for shuffled tokens with the output as it was. If tokens move, where do their "
            "rows go?",
        ),
        Mistake(
            "all tokens alike",
            _careless(tokens=lambda n, d: torch.ones(n, d, dtype=torch.float64)),
            "Your tokens are all the same, so that shuffling them changes nothing, whatever the layer does.",
        ),
        Mistake(
            "one order only, the reverse",
            _careless(orders=lambda n: [torch.arange(n).flip(0)]),
            "You try one order, the reverse. Layer C and some others keep that one and no other.",
        ),
        Mistake(
            "one order only, rolled",
            _careless(orders=lambda n: [torch.arange(n).roll(1)]),
            "You try one order, rolled by one. Half of all orders change nothing in layer N. Is yours one of them?",
        ),
        Mistake(
            "one swap only",
            _careless(orders=lambda n: [torch.cat([torch.tensor([1, 0]), torch.arange(2, n)])]),
            "You exchange the first two tokens. There is a layer for which these two are alike, and others are not.",
        ),
        Mistake(
            "an even shift",
            _careless(shifts=(2, 4)),
            "You shift by even numbers. A layer that reads even and odd keeps those.",
        ),
        Mistake(
            "a shift by one",
            _careless(shifts=(1,)),
            "You shift by one place only. A layer may need a longer way to notice.",
        ),
        Mistake(
            "a shift by threes",
            _careless(shifts=(3, 6)),
            "You shift by 3 and 6. There is a layer whose vectors come again after three places.",
        ),
        Mistake(
            "doubled only",
            _careless(factors=(2,)),
            "You stretch by 2. One layer reads a label without its factors of two. Try another factor too.",
        ),
        Mistake(
            "an odd factor",
            _careless(factors=(3,)),
            "You stretch by 3. What is even stays even then, and what is odd stays odd. Try another factor too.",
        ),
        Mistake(
            "a loose limit",
            _careless(limit=1e-5),
            "Your limit is so loose that a faint dependence passes. Float64 rounds at about 1e-15.",
        ),
        Mistake(
            "only what grows",
            _careless(size=torch.clone),
            "You take the largest difference with its sign. In layer Q every number falls when the labels rise.",
        ),
        Mistake(
            "no rounding allowed",
            _careless(limit=1e-300),
            "You ask for equality. Another order of the same sum may differ in its last digits.",
        ),
    ),
    also_right=(_by_moving_tokens,),
    learned="A symmetry test needs tokens that differ, several versions of each move, and a limit between rounding and "
    "the faintest effect. One lucky version proves nothing.",
)

# --- 12.3 bias_of_places

PLACES, TOKENS = 12, 6


def bias_of_places() -> Tensor:
    return 0.3 * torch.arange(PLACES, dtype=torch.float64).expand(PLACES, PLACES)


def _offset_and_query() -> list:
    return [[-abs(i - j) + 0.1 * i * i for j in range(PLACES)] for i in range(PLACES)]


def _bias_from(rule: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Tensor]:
    """rule(i, j), the place of the query and of the key."""
    place = torch.arange(PLACES, dtype=torch.float64)
    return lambda: rule(place.unsqueeze(-1), place.unsqueeze(0)).expand(PLACES, PLACES).clone()


def _as_bias(answer: Callable) -> tuple[Tensor | None, Complaint]:
    try:
        bias = as_tensor(answer()).double()
    except (TypeError, ValueError, RuntimeError):
        return None, f"return a ({PLACES}, {PLACES}) matrix of numbers"
    if bias.shape != (PLACES, PLACES):
        return None, f"expected shape ({PLACES}, {PLACES}), got {tuple(bias.shape)}"
    return (bias, None) if torch.isfinite(bias).all() else (None, "all entries must be finite")


def _not_of_the_offset(answer: Callable, _: Generator) -> Complaint:
    bias, complaint = _as_bias(answer)
    if bias is None:
        return complaint
    place = torch.arange(PLACES - 1)
    together = (place.unsqueeze(-1) - place).abs() < TOKENS  # pairs that stand in six tokens
    step = (bias[1:, 1:] - bias[:-1, :-1])[together].abs().max().item()
    if step > 1e-3:
        return None
    return "b[i + 1, j + 1] equals b[i, j] wherever six tokens reach: there it is a function of the offset"


def _weights(bias: Tensor, scores: Tensor, start: int) -> Tensor:
    at = slice(start, start + TOKENS)
    return (scores + bias[at, at]).softmax(-1)


def _shift_changes_nothing(answer: Callable, g: Generator) -> Complaint:
    bias, complaint = _as_bias(answer)
    if bias is None:
        return complaint
    scores = normal(g, 4, TOKENS, TOKENS)
    for start in range(1, PLACES - TOKENS + 1):
        change = (_weights(bias, scores, start) - _weights(bias, scores, 0)).abs().max().item()
        if not change < 1e-4:  # a float32 table rounds
            return f"labels {start} to {start + TOKENS - 1} give other weights than 0 to {TOKENS - 1}, by {change:.2g}"
    return None


def _says_something(answer: Callable, g: Generator) -> Complaint:
    bias, complaint = _as_bias(answer)
    if bias is None:
        return complaint
    scores = normal(g, 4, TOKENS, TOKENS)
    change = (_weights(bias, scores, 0) - scores.softmax(-1)).abs().max().item()
    return None if change > 1e-3 else "with your bias and without, the weights are the same: it does nothing"


BIAS_OF_PLACES = Exercise(
    chapter=12,
    title="A counterexample: it reads places, and keeps the shift",
    points=2,
    minutes=10,
    difficulty=3,
    reference=bias_of_places,
    properties=(
        Property("no function of the offset", _not_of_the_offset),
        Property("a shift of all labels changes no weight", _shift_changes_nothing),
        Property("it changes the weights", _says_something),
    ),
    mistakes=(
        Mistake(
            "a distance",
            _bias_from(lambda i, j: -(i - j).abs()),
            "That is ALiBi: a function of the offset. It keeps the shift, but it reads no place.",
        ),
        Mistake(
            "the query's place alone",
            _bias_from(lambda i, j: i + 0 * j),
            "One number for a whole row of scores. What does the softmax do with it?",
        ),
        Mistake(
            "a square",
            _bias_from(lambda i, j: 0.1 * j.square() + 0 * i),
            "Shift the labels by s: j² becomes j² + 2sj + s². Which of the terms does the softmax not see?",
        ),
        Mistake(
            "a product",
            _bias_from(lambda i, j: 0.1 * i * j),
            "Shift the labels by s: ij becomes ij + s(i + j) + s². Which of the terms does the softmax not see?",
        ),
        Mistake(
            "the bare product",
            _bias_from(lambda i, j: i * j),
            "Shift the labels by s: ij becomes ij + s(i + j) + s². Which of the terms does the softmax not see?",
        ),
        Mistake(
            "one far pair",
            lambda: _bias_from(lambda i, j: -(i - j).abs())().index_put(
                (torch.tensor(0), torch.tensor(10)), torch.tensor(0.0).double()
            ),
            "The pair that you changed is ten places apart: six tokens in a row never hold both.",
        ),
        Mistake("zeros", lambda: torch.zeros(PLACES, PLACES), "A bias of zeros is a function of the offset."),
    ),
    also_right=(
        _offset_and_query,
        _bias_from(lambda i, j: (j - i).sin() + i.cos()),
        _bias_from(lambda i, j: (100 * j + 0 * i).float()),
    ),
    learned="The softmax subtracts whatever a row has in common. So b(j - i) + g(i) is relative for any g, and BLOOM's "
    "slope times j is ALiBi under a causal mask.",
)

# --- 12.4 seed_interval


def seed_interval(values: Tensor, t: float) -> tuple[Tensor, Tensor]:
    n = values.shape[-1]
    if n < 2:
        raise ValueError(f"one seed shows no spread: give at least two, got {n}")
    half = t * values.std(-1, correction=1) / n**0.5
    mean = values.mean(-1)
    return mean - half, mean + half


def _interval_by_loops(values: Tensor, t: float) -> list:
    rows = values.reshape(-1, values.shape[-1]).tolist()
    if len(rows[0]) < 2:
        raise ValueError("at least two")
    ends = []
    for sign in (-1, 1):
        of_rows = [statistics.mean(r) + sign * t * statistics.stdev(r) / math.sqrt(len(r)) for r in rows]
        ends.append(torch.tensor(of_rows, dtype=values.dtype).reshape(values.shape[:-1]))
    return ends


def _interval(half: Callable[[Tensor, float], Tensor], middle: Callable[[Tensor], Tensor] | None = None) -> Callable:
    def wrong(values: Tensor, t: float) -> tuple[Tensor, Tensor]:
        centre = values.mean(-1) if middle is None else middle(values)
        return centre - half(values, t), centre + half(values, t)

    return wrong


def _one_seed_is_refused(answer: Callable, _: Generator) -> Complaint:
    for shape in ((1,), (3, 1)):
        try:
            got = answer(torch.full(shape, 0.7), 2.0)
        except ValueError:
            continue
        return f"for one seed, values of shape {shape}, a ValueError should be raised, got {str(got)[:40]}"
    return None


def _by_row(answer: Callable, g: Generator) -> Complaint:
    values = normal(g, 2, 3, 5)
    low, high = answer(values, 2.0)
    if tuple(as_tensor(low).shape) != (2, 3) or tuple(as_tensor(high).shape) != (2, 3):
        return "values of shape (2, 3, 5) should give two tensors of shape (2, 3)"
    return None


SEED_INTERVAL = Exercise(
    chapter=12,
    title="An interval over seeds",
    points=2,
    minutes=8,
    difficulty=2,
    reference=seed_interval,
    cases=(
        drawn("five seeds", lambda g: (normal(g, 5), 2.776)),
        drawn("two seeds", lambda g: (normal(g, 2), 12.706)),
        drawn("a table of runs", lambda g: (normal(g, 3, 4, 5), 2.776)),
        drawn("all seeds alike", lambda g: (torch.full((4,), 0.25), 3.182)),
        drawn("float32, ten seeds", lambda g: (normal(g, 10).float(), 2.262)),
    ),
    properties=(Property("one seed is refused", _one_seed_is_refused), Property("one interval a row", _by_row)),
    mistakes=(
        Mistake(
            "the spread of the seeds",
            _interval(lambda v, t: t * v.std(-1)),
            "That is where a *new seed* may fall. The mean of n seeds is known better: by which factor?",
        ),
        Mistake(
            "divided by n",
            _interval(lambda v, t: t * v.std(-1, correction=0) / v.shape[-1] ** 0.5),
            "Your standard deviation divides by n. The mean came from the same n numbers (numpy's default, ddof=0).",
        ),
        Mistake(
            "1.96 for every number of seeds",
            _interval(lambda v, t: 1.96 * v.std(-1) / v.shape[-1] ** 0.5),
            "1.96 is for many seeds. Use the t that you are given.",
        ),
        Mistake(
            "one over n",
            _interval(lambda v, t: t * v.std(-1) / v.shape[-1]),
            "Does the error of a mean fall like 1/n, or slower?",
        ),
        Mistake(
            "around the median",
            _interval(lambda v, t: t * v.std(-1) / v.shape[-1] ** 0.5, lambda v: v.median(-1).values),
            "The width is right. The t-interval stands around the mean.",
        ),
        Mistake(
            "the length of the table",
            _interval(lambda v, t: t * v.std(-1) / len(v) ** 0.5),
            "`len` counts along the first axis. Along which one do the seeds lie?",
        ),
        Mistake(
            "everything in one",
            _interval(lambda v, t: t * v.std() / v.shape[-1] ** 0.5, lambda v: v.mean()),
            "You take mean and deviation of the whole table. Each row is an experiment of its own.",
        ),
        Mistake(
            "variance for deviation",
            _interval(lambda v, t: t * v.var(-1) / v.shape[-1] ** 0.5),
            "Take the square root of the variance first.",
        ),
    ),
    also_right=(_interval_by_loops,),
    learned="The spread says where the next seed may fall; the interval says how well the mean is known. Say which one "
    "a bar shows.",
)

# --- 12.5 best_look_back


def best_look_back(tokens: Tensor, labels: Tensor) -> tuple[int, float]:
    shares = _shares(tokens, labels)
    share = max(shares)
    return shares.index(share) + 1, share


def _shares(
    tokens: Tensor,
    labels: Tensor,
    asked: Callable[[Tensor, int], Tensor] = lambda labels, distance: labels != NOT_ASKED,
    wraps: bool = False,
) -> list[float]:
    """For each distance from 1 to n - 1, the share of asked rows that hold the token so many rows before."""
    shares = []
    for distance in range(1, tokens.shape[1]):
        back = tokens.roll(distance, dims=1)
        hit = back == labels
        if not wraps:
            hit[:, :distance] = False
        counts = asked(labels, distance)
        shares.append((hit & (labels != NOT_ASKED)).sum().item() / max(counts.sum().item(), 1))
    return shares


def _look_back_by_loops(tokens: Tensor, labels: Tensor) -> tuple[int, float]:
    texts, wanted, best = tokens.tolist(), labels.tolist(), (0, -1.0)
    asked = sum(w != NOT_ASKED for row in wanted for w in row)
    for distance in range(1, len(texts[0])):
        right = sum(
            w != NOT_ASKED and i >= distance and text[i - distance] == w
            for text, row in zip(texts, wanted, strict=True)
            for i, w in enumerate(row)
        )
        if right / asked > best[1]:
            best = (distance, right / asked)
    return best


def _look_back_wrong(plus: int = 0, last: bool = False, **options: Any) -> Callable:
    def wrong(tokens: Tensor, labels: Tensor) -> tuple[int, float]:
        shares = _shares(tokens, labels, **options)
        share = max(shares)
        at = len(shares) - 1 - shares[::-1].index(share) if last else shares.index(share)
        return at + 1 + plus, share

    return wrong


def _or_its_own(tokens: Tensor, labels: Tensor) -> tuple[int, float]:
    """Wrong: looks back by 0 as well."""
    asked = labels != NOT_ASKED
    own = (tokens == labels)[asked].double().mean().item()
    distance, share = best_look_back(tokens, labels)
    return (0, own) if own >= share else (distance, share)


def copy_task(lengths: Sequence[int], n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Strings of 1 to 8, a 9 as separator, then the string again; each row of the copy is asked for its next token."""
    tokens = torch.zeros(len(lengths), n, dtype=torch.long)
    labels = torch.full((len(lengths), n), NOT_ASKED)
    for row, length in enumerate(lengths):
        string = torch.randint(1, 9, (length,), generator=generator)
        text = torch.cat([string, torch.tensor([9]), string])
        tokens[row, : len(text)] = text
        labels[row, length : 2 * length] = string
    return tokens, labels


def _copies(low: int, high: int, examples: int = 40) -> Callable[[Generator], tuple]:
    def make(g: Generator) -> tuple:
        lengths = torch.randint(low, high + 1, (examples,), generator=g).tolist()
        return copy_task(lengths, 2 * high + 1, g)

    return make


def _asked_everywhere(g: Generator) -> tuple:
    tokens = torch.randint(6, (5, 20), generator=g)
    labels = tokens.roll(3, dims=1)
    labels[:, :3] = torch.randint(6, (5, 3), generator=g)
    return tokens, labels


def _the_far_ones(g: Generator) -> tuple:
    """Distance 5 is right whenever it exists, in one row of twelve; distance 2 is right in half of the rows."""
    tokens = 10 + torch.arange(6).expand(6, 6) + 6 * torch.arange(6).unsqueeze(-1)  # no token twice in a text
    labels = torch.full((6, 6), 99)
    labels[:, 5] = tokens[:, 0]
    labels[:, 2:5] = tokens[:, :3]
    return tokens, labels


def _its_own(g: Generator) -> tuple:
    tokens = torch.randint(6, (5, 12), generator=g)
    return tokens, tokens.clone()


def _a_tie(g: Generator) -> tuple:
    tokens = torch.tensor([[1, 2, 1, 2, 1, 2, 1, 2]])
    labels = tokens.clone()
    labels[0, :4] = NOT_ASKED
    return tokens, labels


BEST_LOOK_BACK = Exercise(
    chapter=12,
    title="The shortcut in a copy task",
    points=3,
    minutes=15,
    difficulty=3,
    reference=best_look_back,
    cases=(
        drawn("strings of one length", _copies(6, 6)),
        drawn("strings of 3 to 9", _copies(3, 9)),
        drawn("most of one length", lambda g: copy_task([7] * 27 + [4, 5, 6], 15, g)),
        drawn("every row is asked", _asked_everywhere),
        drawn("far and certain, near and frequent", _the_far_ones),
        drawn("a tie", _a_tie),
        drawn("the row's own token", _its_own),
        drawn("one row is asked", lambda g: (torch.tensor([[4, 4, 5]]), torch.tensor([[NOT_ASKED, NOT_ASKED, 5]]))),
    ),
    mistakes=(
        Mistake(
            "rows that are not asked",
            _look_back_wrong(asked=lambda labels, distance: torch.ones_like(labels, dtype=torch.bool)),
            "Your share divides by all rows. How many of them are asked?",
        ),
        Mistake(
            "only where there is a token",
            _look_back_wrong(
                asked=lambda labels, distance: (labels != NOT_ASKED) & (torch.arange(labels.shape[1]) >= distance)
            ),
            "You divide by the rows that have a token so far back. A rule that has no answer is not right there.",
        ),
        Mistake(
            "a mean over all rows",
            _look_back_wrong(
                asked=lambda labels, distance: (torch.arange(labels.shape[1]) >= distance).expand_as(labels)
            ),
            "You take the mean over all rows that can look so far back. How many rows are *asked*?",
        ),
        Mistake(
            "its own token",
            _or_its_own,
            "You also try distance 0: the row's own token. Distances begin at 1.",
        ),
        Mistake(
            "round the corner",
            _look_back_wrong(wraps=True),
            "`roll` brings the end of the text to its beginning. Before the first token there is nothing.",
        ),
        Mistake(
            "the larger distance of a tie",
            _look_back_wrong(last=True),
            "Two distances have the same share. Which one was asked for?",
        ),
        Mistake(
            "counted from 0",
            _look_back_wrong(plus=-1),
            "The token just before has distance 1. Your distances are one too small.",
        ),
    ),
    also_right=(_look_back_by_loops,),
    learned="If one rule without content reaches the score, the score says nothing about content. Compute the "
    "shortcut's score before you train, and draw it as the floor.",
)

# --- 12.6 comparison_faults


def comparison_faults(a: dict, b: dict) -> set[str]:
    faults = set()
    if _budget(a) != _budget(b):
        faults.add("budget")
    if a["tested"] != b["tested"]:
        faults.add("length")
    if a["test text"] != b["test text"]:
        faults.add("text")
    if min(run["tested"] - run["trained"] for run in (a, b)) <= 0:
        faults.add("reach")
    if set(a["seeds"]) != set(b["seeds"]) or len(set(a["seeds"])) < 5:
        faults.add("seeds")
    if "test" in (a["picked on"], b["picked on"]):
        faults.add("picked")
    if any(_overlap(run["train text"], run["test text"]) for run in (a, b)):
        faults.add("leak")
    return faults


def _budget(run: dict) -> int:
    return run["steps"] * run["batch"] * run["trained"]


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def _faults_by_ranges(a: dict, b: dict) -> set[str]:
    checks = {
        "budget": a["steps"] * a["batch"] * a["trained"] == b["steps"] * b["batch"] * b["trained"],
        "length": a["tested"] == b["tested"],
        "text": [*a["test text"]] == [*b["test text"]],
        "reach": all(run["tested"] > run["trained"] for run in (a, b)),
        "seeds": sorted(set(a["seeds"])) == sorted(set(b["seeds"])) and len(set(b["seeds"])) >= 5,
        "picked": a["picked on"] == b["picked on"] == "validation",
        "leak": not any(set(range(*run["train text"])) & set(range(*run["test text"])) for run in (a, b)),
    }
    return {name for name, fine in checks.items() if not fine}


FAIR = {
    "trained": 64,
    "steps": 600,
    "batch": 32,
    "tested": 256,
    "seeds": [0, 1, 2, 3, 4],
    "picked on": "validation",
    "train text": (0, 9000),
    "test text": (9000, 9999),
}


def _pair(name: str, a: dict | None = None, b: dict | None = None):
    return with_arguments(name, FAIR | (a or {}), FAIR | (b or {}))


def _faults_but(name: str, wrong: Callable[[dict, dict], bool]) -> Callable:
    """Everything right but one fault, which is found where wrong(a, b) says so."""
    return lambda a, b: (comparison_faults(a, b) - {name}) | ({name} if wrong(a, b) else set())


COMPARISON_FAULTS = Exercise(
    chapter=12,
    title="Is this comparison fair?",
    points=3,
    minutes=15,
    difficulty=3,
    reference=comparison_faults,
    cases=(
        _pair("a fair one"),
        _pair("the same tokens in other steps", {"steps": 1200, "batch": 16}),
        _pair("as many steps, longer texts", b={"trained": 128}),
        _pair("half the length, twice the steps", b={"trained": 32, "steps": 1200}),
        _pair("no longer than in training", {"tested": 64}, {"tested": 64}),
        _pair("one trained as long as the test", b={"trained": 256, "steps": 150}),
        _pair("other test lengths", {"tested": 128}),
        _pair("three seeds", {"seeds": [0, 1, 2]}, {"seeds": [0, 1, 2]}),
        _pair("five numbers, four seeds", {"seeds": [0, 1, 2, 3, 3]}, {"seeds": [0, 1, 2, 3, 3]}),
        _pair("other seeds", b={"seeds": [5, 6, 7, 8, 9]}),
        _pair("the same seeds in another order", b={"seeds": [4, 3, 2, 1, 0]}),
        _pair("the best step of the test", b={"picked on": "test"}),
        _pair("one character in common", {"test text": (8999, 9999)}),
        _pair("the test before the training", b={"train text": (1000, 9999), "test text": (0, 1000)}),
        _pair("a test inside the training", b={"train text": (0, 9999), "test text": (500, 700)}),
        _pair("a test around the training", {"train text": (9200, 9300)}),
        _pair("a test that runs into the training", *[{"train text": (1000, 9000), "test text": (0, 1500)}] * 2),
        _pair("other test texts", {"train text": (0, 5000), "test text": (6000, 7000)}),
        _pair("a seed listed twice by one", {"seeds": [0, 1, 2, 3, 4, 4]}),
        _pair("everything", {"steps": 1, "picked on": "test"}, {"tested": 9, "seeds": [1], "test text": (0, 10)}),
    ),
    mistakes=(
        Mistake(
            "a budget of steps",
            _faults_but("budget", lambda a, b: a["steps"] != b["steps"]),
            "You compare steps. How many *tokens* does a step show?",
        ),
        Mistake(
            "a budget of texts",
            _faults_but("budget", lambda a, b: a["steps"] * a["batch"] != b["steps"] * b["batch"]),
            "You compare the number of texts. They need not be equally long.",
        ),
        Mistake(
            "as long is long enough",
            _faults_but("reach", lambda a, b: min(r["tested"] - r["trained"] for r in (a, b)) < 0),
            "A test at the training length says nothing about reaching further.",
        ),
        Mistake(
            "one of the two reaches",
            _faults_but("reach", lambda a, b: max(r["tested"] - r["trained"] for r in (a, b)) <= 0),
            "*Both* must be tested beyond their own training length.",
        ),
        Mistake(
            "seeds counted twice",
            _faults_but("seeds", lambda a, b: sorted(a["seeds"]) != sorted(b["seeds"]) or len(a["seeds"]) < 5),
            "A seed that is listed twice is one run.",
        ),
        Mistake(
            "the order of the seeds",
            _faults_but("seeds", lambda a, b: a["seeds"] != b["seeds"] or len(set(a["seeds"])) < 5),
            "The same five seeds in another order are the same five runs.",
        ),
        Mistake(
            "lists of seeds",
            _faults_but("seeds", lambda a, b: sorted(a["seeds"]) != sorted(b["seeds"]) or len(set(a["seeds"])) < 5),
            "One of them lists a seed twice, and the runs are the same. Compare which seeds, not how often.",
        ),
        Mistake(
            "no number of seeds",
            _faults_but("seeds", lambda a, b: set(a["seeds"]) != set(b["seeds"])),
            "The same seeds, yes. How many different ones must there be?",
        ),
        Mistake(
            "any test text",
            _faults_but("text", lambda a, b: False),
            "One text may be harder than another. Were both tested on the same?",
        ),
        Mistake(
            "the test begins inside",
            _faults_but(
                "leak", lambda a, b: any(r["train text"][0] <= r["test text"][0] < r["train text"][1] for r in (a, b))
            ),
            "You ask where the test text begins. It may begin before the training text, and run into it.",
        ),
        Mistake(
            "one end inside",
            _faults_but(
                "leak",
                lambda a, b: any(
                    r["train text"][0] <= r["test text"][0] < r["train text"][1]
                    or r["train text"][0] < r["test text"][1] <= r["train text"][1]
                    for r in (a, b)
                ),
            ),
            "You ask whether an end of the test text lies in the training text. The test may also surround it.",
        ),
        Mistake(
            "the other's training text",
            _faults_but(
                "leak", lambda a, b: any(_overlap(r["train text"], q["test text"]) for r in (a, b) for q in (a, b))
            ),
            "You compare a test text with the training text of the *other* run as well. Each model saw its own.",
        ),
        Mistake(
            "as many seeds",
            _faults_but("seeds", lambda a, b: min(len(set(r["seeds"])) for r in (a, b)) < 5),
            "Both have five. Are they the same five?",
        ),
        Mistake(
            "neighbours overlap",
            _faults_but(
                "leak",
                lambda a, b: any(
                    max(r["train text"][0], r["test text"][0]) <= min(r["train text"][1], r["test text"][1])
                    for r in (a, b)
                ),
            ),
            "(0, 9000) ends before 9000, as a range does. It does not touch (9000, 9999).",
        ),
        Mistake(
            "the test comes after",
            _faults_but("leak", lambda a, b: any(r["test text"][0] < r["train text"][1] for r in (a, b))),
            "A test text may also lie before the training text.",
        ),
        Mistake(
            "only the first",
            lambda a, b: comparison_faults(a, b | {k: a[k] for k in ("picked on", "train text", "test text")}),
            "You look at `a` alone for what was picked and what leaked. Look at `b` as well.",
        ),
    ),
    also_right=(_faults_by_ranges,),
    learned="The same budget, the same seeds, the same test, longer than both trainings, and nothing chosen by looking "
    "at it. Check it in code, before the plot.",
)

# --- 12.7 choose_scheme


NOBODY = "nobody"


def choose_scheme(table: dict, needs: list, prefer: str) -> str:
    left = [name for name, row in table.items() if prefer in row and all(_meets(row, *need) for need in needs)]
    return min(left, key=lambda name: (-statistics.median(table[name][prefer]), name), default=NOBODY)


def _meets(row: dict, quality: str, direction: str, limit: float) -> bool:
    if quality not in row:
        return False
    return min(row[quality]) >= limit if direction == "at least" else max(row[quality]) <= limit


def _choose_by_loops(table: dict, needs: list, prefer: str) -> str:
    best = NOBODY
    for name in sorted(table):
        if prefer not in table[name]:
            continue
        for quality, direction, limit in needs:
            values = table[name].get(quality, [math.nan])
            if not all(v >= limit if direction == "at least" else v <= limit for v in values):
                break
        else:
            if best == NOBODY or statistics.median(table[name][prefer]) > statistics.median(table[best][prefer]):
                best = name
    return best


def _choose(
    meets: Callable[[dict, str, str, float], bool] = _meets,
    value: Callable[[list], float] = statistics.median,
    fallback: bool = False,
    tie: Callable[[str], Any] = lambda name: name,
) -> Callable:
    def wrong(table: dict, needs: list, prefer: str) -> Any:
        left = [name for name, row in table.items() if prefer in row and all(meets(row, *need) for need in needs)]
        if not left:
            return wrong(table, [], prefer) if fallback and needs else NOBODY
        best = max(value(table[name][prefer]) for name in left)
        return sorted((name for name in left if value(table[name][prefer]) == best), key=tie)[0]

    return wrong


def _with(summary: Callable[[list], float]) -> Callable[[dict, str, str, float], bool]:
    def meets(row: dict, quality: str, direction: str, limit: float) -> bool:
        if quality not in row:
            return False
        return summary(row[quality]) >= limit if direction == "at least" else summary(row[quality]) <= limit

    return meets


def _looked_up(row: dict, quality: str, direction: str, limit: float) -> bool:
    values = row[quality]
    return min(values) >= limit if direction == "at least" else max(values) <= limit


def _prefers_blindly(table: dict, needs: list, prefer: str) -> str:
    left = [name for name, row in table.items() if all(_meets(row, *need) for need in needs)]
    return min(left, key=lambda name: (-statistics.median(table[name][prefer]), name), default=NOBODY)


RUNS = {
    "table": {"offset at 4": [0.28, 0.31, 0.26], "content at 4": [0.55, 0.6, 0.4], "loss": [1.8, 1.7, 1.9]},
    "distance": {"offset at 4": [0.44, 0.45, 0.43], "content at 4": [0.2, 0.1, 0.2], "loss": [1.5, 1.6, 1.5]},
    "offsets": {"offset at 4": [1.0, 1.0, 0.99], "content at 4": [0.9, 0.2, 0.95], "loss": [1.6, 1.4, 1.5]},
    "rotation": {"offset at 4": [0.5, 0.4, 0.9], "content at 4": [0.7, 0.75, 0.6], "loss": [2.9, 3.1, 2.2]},
    "set": {"content at 4": [1.0, 1.0, 1.0], "loss": [2.1, 2.0, 2.2]},
}

LUCK = {
    "a": {"q": [1.0, 1.0, -1.0], "r": [3.0]},
    "b": {"q": [0.4, 0.4, 1.0], "r": [2.0]},
    "c": {"q": [0.5, 0.5, 0.6], "r": [1.0]},
    "d": {"q": [0.6, 0.0, 0.0], "r": [4.0]},
}
SPREAD = {"x": {"q": [0.6, 0.6, 0.7]}, "y": {"q": [0.5, 0.5, 0.95]}, "z": {"q": [0.1, 0.1, 1.0]}}

CHOOSE_SCHEME = Exercise(
    chapter=12,
    title="A chooser that reads the table",
    points=3,
    minutes=12,
    difficulty=3,
    reference=choose_scheme,
    cases=(
        with_arguments("one need", RUNS, [("offset at 4", "at least", 0.9)], "content at 4"),
        with_arguments("every seed must meet it", RUNS, [("content at 4", "at least", 0.5)], "offset at 4"),
        with_arguments("at most", RUNS, [("loss", "at most", 1.6)], "content at 4"),
        with_arguments("at most, on every seed", RUNS, [("loss", "at most", 2.5)], "offset at 4"),
        with_arguments("two needs", RUNS, [("loss", "at most", 3.5), ("offset at 4", "at least", 0.3)], "content at 4"),
        with_arguments("no needs", RUNS, [], "content at 4"),
        with_arguments("nobody can", RUNS, [("offset at 4", "at least", 0.9), ("loss", "at most", 1.0)], "loss"),
        with_arguments("never measured", RUNS, [("decode cost", "at most", 10)], "loss"),
        with_arguments("exactly the limit", RUNS, [("offset at 4", "at least", 0.99)], "loss"),
        with_arguments("the median decides", SPREAD, [], "q"),
        with_arguments("a tie", {"b": {"q": [0.5]}, "a": {"q": [0.5]}, "c": {"q": [0.4]}}, [], "q"),
        with_arguments("lucky and unlucky seeds", LUCK, [("q", "at least", 0.5)], "r"),
        with_arguments("at most, and the largest", RUNS, [("loss", "at most", 2.5)], "loss"),
        with_arguments("two seeds", {"a": {"q": [0.0, 1.0]}, "b": {"q": [0.4, 0.4]}, "c": {"q": [0.3, 0.6]}}, [], "q"),
        with_arguments("no schemes", {}, [], "q"),
    ),
    mistakes=(
        Mistake(
            "unmeasured is good enough",
            _choose(lambda row, quality, *need: quality not in row or _meets(row, quality, *need)),
            "A scheme that was never measured is not known to meet the need.",
        ),
        Mistake(
            "unmeasured is looked up",
            _choose(_looked_up),
            "Not every scheme has every quality: a `KeyError`. Ask first whether it is there.",
        ),
        Mistake(
            "the preferred one is looked up",
            _prefers_blindly,
            "A scheme may lack the quality that you prefer: a `KeyError`. Leave such schemes out.",
        ),
        Mistake(
            "the smallest, in both directions",
            _choose(_with(min)),
            "Your smallest value decides both needs. Which seed comes closest to breaking an upper limit?",
        ),
        Mistake(
            "the lower middle",
            _choose(value=statistics.median_low),
            "Of an even number of seeds you take the lower of the two in the middle, as `torch.median` does. "
            "The median lies halfway between them.",
        ),
        Mistake(
            "the median meets the need",
            _choose(_with(statistics.median)),
            "The median meets the limit, and one seed does not. You get one training run, with one seed.",
        ),
        Mistake(
            "the mean meets the need",
            _choose(_with(statistics.mean)),
            "The mean meets the limit, and one seed does not. You get one training run, with one seed.",
        ),
        Mistake(
            "the best seed meets the need",
            _choose(
                lambda row, q, direction, limit: q in row and any(_meets({q: [v]}, q, direction, limit) for v in row[q])
            ),
            "One seed meets the limit. All of them should.",
        ),
        Mistake(
            "always at least",
            _choose(lambda row, quality, direction, limit: _meets(row, quality, "at least", limit)),
            "Some needs are upper limits: look at the second entry.",
        ),
        Mistake(
            "more than the limit",
            _choose(
                lambda row, q, direction, limit: (
                    q in row and (min(row[q]) > limit if direction == "at least" else max(row[q]) < limit)
                )
            ),
            "A value that equals the limit meets it.",
        ),
        Mistake(
            "preferred by the mean",
            _choose(value=statistics.mean),
            "Among those left, the largest *median* decides.",
        ),
        Mistake(
            "preferred by the best seed",
            _choose(value=max),
            "Among those left, the largest *median* decides, not the luckiest seed.",
        ),
        Mistake(
            "the best of those that fail",
            _choose(fallback=True),
            "If no scheme meets the needs, say so: nobody.",
        ),
        Mistake(
            "the last of a tie",
            _choose(tie=lambda name: [-ord(letter) for letter in name]),
            "Of two equals, the first in the alphabet was asked for.",
        ),
    ),
    also_right=(_choose_by_loops,),
    learned="Needs are limits, and every seed has to meet them; what nobody measured meets nothing. The preference "
    "comes last.",
)

EXERCISES = (
    FREE_ORDERS,
    KEPT_MOVES,
    BIAS_OF_PLACES,
    SEED_INTERVAL,
    BEST_LOOK_BACK,
    COMPARISON_FAULTS,
    CHOOSE_SCHEME,
)
