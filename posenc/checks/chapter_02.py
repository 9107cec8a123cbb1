"""Exercises of chapter 2: what a set can say."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Generator, Tensor

from posenc.attention import masked_softmax
from posenc.checks.common import all_but, dtype_complaint, right_predictions
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments

# --- 2.1 bag_key


def bag_key(word: str) -> dict:
    counts = Counter(word)
    common = math.gcd(*counts.values())
    return {letter: count // common for letter, count in counts.items()}


def _bag_key_by_trying(word: str) -> dict:
    counts = {letter: word.count(letter) for letter in set(word)}
    for k in range(len(word), 0, -1):
        if all(count % k == 0 for count in counts.values()):
            return {letter: count // k for letter, count in counts.items()}
    return counts


def _shortest_period(word: str) -> dict:
    periods = (word[:d] for d in range(1, len(word) + 1) if word[:d] * (len(word) // d) == word)
    return dict(Counter(next(periods)))


def _random_word(generator: Generator) -> tuple:
    letters = "".join("ABCD"[i] for i in torch.randint(4, (7,), generator=generator))
    return (letters * 6,)


BAG_KEY = Exercise(
    chapter=2,
    title="The label of a bag",
    points=1,
    minutes=6,
    difficulty=2,
    reference=bag_key,
    cases=(
        with_arguments("BANANA", "BANANA"),
        with_arguments("BANANABANANA", "BANANABANANA"),
        with_arguments("one letter", "AAAA"),
        with_arguments("4 of one, 6 of another", "AABBBAABBB"),
        with_arguments("two and two, no repetition", "ABBA"),
        with_arguments("counts 4, 6 and 9", "AAAABBBBBBCCCCCCCCC"),
        drawn("six times the same seven letters", _random_word),
    ),
    mistakes=(
        Mistake(
            "the shortest word that repeats",
            _shortest_period,
            "You looked for a word that is written several times over. The order must not matter: ABBA is a bag of AB.",
        ),
        Mistake(
            "the counts as they are",
            lambda word: dict(Counter(word)),
            "Order is gone, but the length is still there: BANANA and BANANABANANA must get the same label.",
        ),
        Mistake(
            "only which letters occur",
            lambda word: dict.fromkeys(word, 1),
            "That is the plain set. The encoder also sees how much of each there is: AAB and ABB must differ.",
        ),
        Mistake(
            "divided by the smallest count",
            lambda word: {c: m // min(Counter(word).values()) for c, m in Counter(word).items()},
            "The smallest count need not divide the others: 4 and 6 are as 2 to 3. Divide by what divides all.",
        ),
        Mistake(
            "divided by the smallest count, without rounding",
            lambda word: {c: m / min(Counter(word).values()) for c, m in Counter(word).items()},
            "4 and 6 give 1 and 1.5. Ask for whole numbers: divide by the largest number that divides every count.",
        ),
        Mistake(
            "the shares",
            lambda word: {c: m / len(word) for c, m in Counter(word).items()},
            "The shares carry the right information. Here they are wanted as the smallest whole numbers in that ratio.",
        ),
    ),
    also_right=(_bag_key_by_trying,),
    learned="Two words get the same label exactly when no encoder without positions, mask or BOS, read by the mean, "
    "can tell them apart.",
)

# --- 2.2 what_a_set_can_answer

QUESTIONS: dict[str, tuple[Callable[[str], Any], bool]] = {
    "do A and B both occur?": (lambda w: "A" in w and "B" in w, True),
    "is exactly half of the letters A?": (lambda w: 2 * w.count("A") == len(w), True),
    "do all letters that occur, occur equally often?": (lambda w: len(set(Counter(w).values())) == 1, True),
    "are there more different letters than two?": (lambda w: len(set(w)) > 2, True),
    "is the number of letters even?": (lambda w: len(w) % 2 == 0, False),
    "does any letter occur twice or more?": (lambda w: len(set(w)) < len(w), False),
    "does an A stand directly before a B?": (lambda w: "AB" in w, False),
    "is the word a palindrome?": (lambda w: w == w[::-1], False),
    "could its letters be rearranged into a palindrome?": (
        lambda w: sum(w.count(letter) % 2 for letter in set(w)) < 2,
        False,
    ),
}
"""Name to (the question, whether its answer depends on the shares alone). A test measures each."""


def what_a_set_can_answer() -> dict:
    return {name: truth for name, (_, truth) in QUESTIONS.items()}


TRUTH = what_a_set_can_answer()
ADVICE = "Search for two words with the same shares"

WHAT_A_SET_CAN_ANSWER = Exercise(
    chapter=2,
    title="Predict: which questions are in reach?",
    points=2,
    minutes=6,
    difficulty=2,
    reference=what_a_set_can_answer,
    properties=(
        Property("at least seven predictions", right_predictions(TRUTH, 7, ADVICE)),
        Property("all nine predictions", right_predictions(TRUTH, 9, ADVICE)),
    ),
    mistakes=(
        Mistake(
            "everything about the multiset is in reach",
            all_but(
                TRUTH,
                "is the number of letters even?",
                "does any letter occur twice or more?",
                "could its letters be rearranged into a palindrome?",
            ),
            "You know that order is lost. Something else is lost too: compare AB with AABB.",
        ),
        Mistake(
            "everything is in reach",
            all_but(TRUTH, *(name for name, in_reach in TRUTH.items() if not in_reach)),
            "Two things are lost, order and length. Look for a question that needs one of them.",
        ),
        Mistake(
            "rearranging is about the bag, so it is in reach",
            all_but(TRUTH, "could its letters be rearranged into a palindrome?"),
            "It does not depend on order, that is true. Does it survive doubling every letter?",
        ),
        Mistake(
            "repeats are visible",
            all_but(TRUTH, "does any letter occur twice or more?"),
            "In AB nothing is repeated. Write the word twice. What do the shares say?",
        ),
        Mistake(
            "equal counts are out of reach",
            all_but(TRUTH, "do all letters that occur, occur equally often?"),
            "Counts are out of reach. Are ratios of counts?",
        ),
        Mistake(
            "all that sounds like counting is out of reach",
            all_but(
                TRUTH,
                "is exactly half of the letters A?",
                "do all letters that occur, occur equally often?",
                "are there more different letters than two?",
            ),
            "How many different letters there are is the number of shares above zero. Which others need shares only?",
        ),
    ),
    learned="The test is always the same: find two words with the same shares and different answers. "
    "If there are none, the question is in reach.",
)

# --- 2.3 counts_from_shares


def counts_from_shares(shares: Tensor) -> Tensor:
    return shares[..., 1:] / shares[..., :1]


def _counts_by_length(shares: Tensor) -> Tensor:
    length_with_bos = 1 / shares.select(-1, 0).unsqueeze(-1)
    return shares.narrow(-1, 1, shares.shape[-1] - 1) * length_with_bos


def _shares_of(*shape: int, kinds: int = 5, longest: int = 9) -> Callable[[Generator], tuple]:
    def make(generator: Generator) -> tuple:
        counts = torch.randint(0, longest, (*shape, kinds), generator=generator).double()
        counts[..., 0] = 1
        return (counts / counts.sum(dim=-1, keepdim=True),)

    return make


def _counts_keep_dtype(answer: Callable, generator: Generator) -> Complaint:
    (shares,) = _shares_of(3)(generator)
    complaints = (dtype_complaint(answer(shares.to(dtype)), dtype) for dtype in (torch.float32, torch.float64))
    return next(filter(None, complaints), None)


COUNTS_FROM_SHARES = Exercise(
    chapter=2,
    title="Counts from shares",
    points=1,
    minutes=6,
    difficulty=2,
    reference=counts_from_shares,
    cases=(
        with_arguments("BOS, one A, three B", torch.tensor([0.2, 0.2, 0.6])),
        with_arguments("BOS alone", torch.tensor([1.0, 0.0, 0.0])),
        with_arguments("shares averaged over two words", torch.tensor([0.25, 0.375, 0.375])),
        drawn("one word", _shares_of()),
        drawn("a batch", _shares_of(4)),
        drawn("a square batch", _shares_of(5, 5)),
        drawn("a long text", _shares_of(2, longest=5000)),
    ),
    properties=(Property("keeps the dtype", _counts_keep_dtype),),
    mistakes=(
        Mistake(
            "times the length without BOS",
            lambda shares: shares[..., 1:] * (1 / shares[..., :1] - 1),
            "The shares were taken over all tokens, and BOS is one of them. Which length belongs to them?",
        ),
        Mistake(
            "rounded",
            lambda shares: (shares[..., 1:] / shares[..., :1]).round(),
            "Do not round: averages over several words need not be whole, and rounding hides errors.",
        ),
        Mistake(
            "BOS left in",
            lambda shares: shares / shares[..., :1],
            "The values are right, but BOS itself should not be in the result.",
        ),
        Mistake(
            "divided by the smallest",
            lambda shares: shares[..., 1:] / shares.min(dim=-1, keepdim=True).values,
            "The smallest share is zero as soon as a letter is missing. Which token do you know to occur once?",
        ),
        Mistake(
            "shares without BOS",
            lambda shares: shares[..., 1:] / shares[..., 1:].sum(dim=-1, keepdim=True),
            "Those are the shares of the word itself. The ruler is BOS: do not throw it away before you have used it.",
        ),
        Mistake(
            "the first row in place of the first column",
            lambda shares: shares[..., 1:] / (shares[0, ..., :1] if shares.ndim > 1 else shares[..., :1]),
            "Each word in a batch has its own length, so its own share of BOS.",
        ),
    ),
    also_right=(_counts_by_length,),
    learned="One token that occurs exactly once is a ruler: it turns shares back into counts.",
)

# --- 2.4 three_ties

LETTERS = "ABC"
TIES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "no positions: A twice or more?": ("plain", lambda w: w.count("A") >= 2),
    "BOS in front: palindrome?": ("bos", lambda w: w == w[::-1]),
    "bias on |i - j|: first A before first B?": ("distance", lambda w: -1 < w.find("A") < w.find("B")),
}
"""Name to (the kind of model, the question that it cannot answer)."""


def tie_logits(kind: str, word: str, seed: int) -> Tensor:
    """A random two-layer encoder read by the mean, in float64. word: letters of `LETTERS` -> (4,).

    kind: "plain", "bos" (one extra token in front) or "distance" (|i - j| is subtracted from the scores).
    """
    generator = torch.Generator().manual_seed(seed)
    d = 8
    embedding = normal(generator, 4, d)
    tokens = [3] * (kind == "bos") + [LETTERS.index(letter) for letter in word]
    x = embedding[tokens]  # (n, d)
    places = torch.arange(len(x), dtype=torch.float64)
    bias = (places[:, None] - places[None, :]).abs() if kind == "distance" else torch.zeros(len(x), len(x))
    for _ in range(2):
        to_queries, to_keys, to_values, into, back = (normal(generator, d, d) / d**0.5 for _ in range(5))
        scores = (x @ to_queries) @ (x @ to_keys).mT / d**0.5 - 0.5 * bias
        x = x + scores.softmax(dim=-1) @ (x @ to_values)
        x = x + torch.tanh(x @ into) @ back
    return x.mean(dim=0) @ normal(generator, d, 4)


def three_ties() -> dict:
    first, second, third = TIES
    return {first: ("AB", "AABB"), second: ("AAB", "ABA"), third: ("AB", "BA")}


def _other_ties() -> dict:
    first, second, third = TIES
    return {first: ("ABC", "CABCAB"), second: ("BCCB", "BBCC"), third: ["BCCA", "ACCB"]}


def _tie(name: str) -> Callable[[Callable, Generator], Complaint]:
    kind, question = TIES[name]

    def test(answer: Callable, generator: Generator) -> Complaint:
        got = answer()
        if not isinstance(got, dict) or set(got) != set(TIES):
            return "return the dict of the stub, with the same keys"
        pair = got[name]
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            return 'put two words there, as in ("CAB", "BAC")'
        for word in pair:
            if not isinstance(word, str) or not 1 <= len(word) <= 12 or set(word) - set(LETTERS):
                return f"use words of 1 to 12 letters A, B, C; got {word!r}"
        a, b = pair
        if question(a) == question(b):
            return f"the answer to the question is {question(a)} for {a} and also for {b}; it must differ"
        seeds = torch.randint(1_000_000, (3,), generator=generator).tolist()
        gap = max((tie_logits(kind, a, s) - tie_logits(kind, b, s)).abs().max().item() for s in seeds)
        return None if gap < 1e-9 else f"a random model of this kind tells {a} from {b}: logits differ by {gap:.2g}"

    return test


def _with(name_number: int, pair: tuple[str, str]) -> Callable[[], dict]:
    return lambda: three_ties() | {list(TIES)[name_number]: pair}


THREE_TIES = Exercise(
    chapter=2,
    title="Three counterexamples",
    points=3,
    minutes=12,
    difficulty=3,
    reference=three_ties,
    properties=tuple(Property(name, _tie(name)) for name in TIES),
    mistakes=(
        Mistake(
            "one letter A more",
            _with(0, ("AB", "AAB")),
            "AAB has other shares than AB, so the first model can tell them apart. Keep the shares.",
        ),
        Mistake(
            "repeated, although BOS counts",
            _with(1, ("AB", "ABBA")),
            "With BOS in front the second model sees the length. The two words must be equally long.",
        ),
        Mistake(
            "shuffled, although distances are seen",
            _with(2, ("ABC", "BAC")),
            "The third model sees who is near whom. Which rearrangement keeps every distance?",
        ),
        Mistake(
            "a word and itself",
            lambda: dict.fromkeys(TIES, ("AB", "AB")),
            "Of course a word ties with itself. The answers to the question must differ.",
        ),
    ),
    also_right=(_other_ties,),
    learned="An impossibility needs no training run: two inputs that must tie, with different answers, settle it for "
    "all weights at once. Look for the symmetry that the model has left.",
)

# --- 2.5 distinct_weights

VOCABULARY, LONGEST = 4, 5


def distinct_weights() -> tuple[Tensor, Tensor, Tensor, float]:
    into = -LONGEST * torch.eye(VOCABULARY)
    return into, torch.ones(VOCABULARY), -torch.ones(VOCABULARY), float(VOCABULARY)


def _distinct_scaled() -> tuple:
    """Steeper, in another order of the units, and scaled: as right as the reference."""
    into = -18.0 * torch.eye(VOCABULARY, dtype=torch.float64).flip(1)
    return into, torch.full((VOCABULARY,), 3), torch.full((VOCABULARY,), -1 / 3), torch.tensor(VOCABULARY)


def _distinct_as_lists() -> tuple:
    return [[-5 * (i == j) for j in range(4)] for i in range(4)], [1, 1, 1, 1], [-1, -1, -1, -1], 4


def count_with(weights: Any, tokens: Tensor) -> Tensor:
    """The network of the exercise: uniform attention, then one hidden layer. tokens: (batch, n) -> (batch,)."""
    into, bias, out, constant = (as_tensor(w).double() for w in weights)
    pooled = torch.nn.functional.one_hot(tokens, VOCABULARY).double().mean(dim=1)  # (batch, letters)
    return torch.relu(pooled @ into + bias) @ out + constant.reshape(())


def _weights_complaint(weights: Any) -> Complaint:
    if not isinstance(weights, (tuple, list)) or len(weights) != 4:
        return "return four things: `return into, bias, out, constant`"
    try:
        into, bias, out, constant = (as_tensor(w) for w in weights)
    except (TypeError, ValueError, RuntimeError):
        return "the weights must be made of numbers"
    if into.ndim != 2 or into.shape[0] != VOCABULARY or not 1 <= into.shape[1] <= VOCABULARY:
        return f"`into` must have shape (4, hidden) with hidden from 1 to 4, got {tuple(into.shape)}"
    hidden = into.shape[1]
    if bias.shape != (hidden,) or out.shape != (hidden,) or constant.numel() != 1:
        shapes = f"{tuple(bias.shape)}, {tuple(out.shape)} and {tuple(constant.shape)}"
        return f"`bias` and `out` must have shape ({hidden},) and `constant` must be one number, got {shapes}"
    if any(t.is_complex() or not t.isfinite().all() for t in (into, bias, out, constant)):
        return "the weights must be real and finite"
    return None


def _counts_words_of(*lengths: int) -> Callable[[Callable, Generator], Complaint]:
    def test(answer: Callable, _: Generator) -> Complaint:
        weights = answer()
        if complaint := _weights_complaint(weights):
            return complaint
        for n in lengths:
            tokens = torch.tensor(list(product(range(VOCABULARY), repeat=n)))
            got = count_with(weights, tokens)
            wanted = torch.tensor([float(len(set(word))) for word in tokens.tolist()], dtype=got.dtype)
            wrong = ((got - wanted).abs() > 1e-4).nonzero()
            if len(wrong):
                i = int(wrong[0])
                word = "".join("ABCD"[t] for t in tokens[i].tolist())
                return f"{word} has {int(wanted[i])} different letters; your network says {got[i]:.3f}"
        return None

    return test


DISTINCT_WEIGHTS = Exercise(
    chapter=2,
    title="Count different letters with half the ReLUs",
    points=3,
    minutes=15,
    difficulty=3,
    reference=distinct_weights,
    properties=(
        Property("words of one letter", _counts_words_of(1)),
        Property("words of two letters", _counts_words_of(2)),
        Property("all 1364 words of up to five letters", _counts_words_of(1, 2, 3, 4, 5)),
    ),
    mistakes=(
        Mistake(
            "nothing is cut off",
            lambda: (5 * torch.eye(4), torch.zeros(4), torch.ones(4), 0.0),
            "ReLU(5 p) goes on rising when a letter is frequent: AAAAA counts as five. A ReLU can be flat on one side "
            "only. On which side do you need it flat?",
        ),
        Mistake(
            "the constant is missing",
            lambda: (-5 * torch.eye(4), torch.ones(4), -torch.ones(4), 0.0),
            "Each unit now says whether its letter is *missing*. What do you add to get from there to a count?",
        ),
        Mistake(
            "counts the missing letters",
            lambda: (-5 * torch.eye(4), torch.ones(4), torch.ones(4), 0.0),
            "That is the number of letters of the alphabet that do not occur. You are one subtraction away.",
        ),
        Mistake(
            "not steep enough",
            lambda: (-4 * torch.eye(4), torch.ones(4), -torch.ones(4), 4.0),
            "The unit must have reached 0 at the smallest share that a present letter can have. Words go up to five.",
        ),
        Mistake(
            "two ReLUs a letter",
            lambda: (
                torch.cat([5 * torch.eye(4), 5 * torch.eye(4)], dim=1),
                torch.tensor([0.0] * 4 + [-1.0] * 4),
                torch.tensor([1.0] * 4 + [-1.0] * 4),
                0.0,
            ),
            "Right, and as in the chapter. Here one unit a letter must do: find a line that a single ReLU bends "
            "where you need it.",
        ),
    ),
    also_right=(_distinct_scaled, _distinct_as_lists),
    learned="min(1, x) = 1 - ReLU(1 - x): one bend needs one ReLU. The network counts the letters that are missing.",
)

# --- 2.6 tie_between


def tie_between(phi: Callable[[float], float], a: float, c: float) -> float:
    target = (phi(a) + phi(c)) / 2
    low, high = (a, c) if phi(a) < phi(c) else (c, a)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if phi(middle) < target else (low, middle)
    return (low + high) / 2


def _tie_by_sign(phi: Callable[[float], float], a: float, c: float) -> float:
    def excess(b: float) -> float:
        return 2 * phi(b) - phi(a) - phi(c)

    left, right = a, c
    while right - left > 1e-13 * max(1.0, abs(left), abs(right)):
        middle = (left + right) / 2
        if (excess(middle) > 0) == (excess(a) > 0):
            left = middle
        else:
            right = middle
    return left


def _bisect(phi: Callable, a: float, c: float, *, target: float, steps: int, falling: bool) -> float:
    low, high = (a, c) if not falling or phi(a) < phi(c) else (c, a)
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if phi(middle) < target else (low, middle)
    return (low + high) / 2


def _random_slope(generator: Generator) -> tuple:
    slope, shift = (torch.rand(2, generator=generator, dtype=torch.float64) + 0.5).tolist()
    return (lambda x: slope * math.exp(x) + shift, -1.0, 2.0 + shift)


def _wavy(x: float) -> float:
    return math.sin(3 * x) + 0.2 * x


def _ties_on_waves(answer: Callable, generator: Generator) -> Complaint:
    for _ in range(5):
        a = torch.rand(1, generator=generator).item()
        c = a + 1 + 3 * torch.rand(1, generator=generator).item()
        b = answer(_wavy, a, c)
        try:
            b = float(b)
        except (TypeError, ValueError):
            return "return one number, b"
        if not a <= b <= c:
            return f"b must lie between a = {a:.3f} and c = {c:.3f}, got {b:.3f}"
        if not abs(2 * _wavy(b) - _wavy(a) - _wavy(c)) < 1e-5:
            return f"2 phi(b) = {2 * _wavy(b):.4f}, but phi(a) + phi(c) = {_wavy(a) + _wavy(c):.4f}"
    return None


TIE_BETWEEN = Exercise(
    chapter=2,
    title="A tie for any one-number summary",
    points=3,
    minutes=15,
    difficulty=3,
    reference=tie_between,
    cases=(
        with_arguments("the exponential", math.exp, 0.0, 2.0),
        with_arguments("cubes", lambda x: x**3, -1.0, 2.0),
        with_arguments("falling", lambda x: math.exp(-x), 0.0, 3.0),
        with_arguments("far apart", math.log1p, 0.0, 1000.0),
        drawn("another slope", _random_slope),
    ),
    properties=(Property("up and down: any b that ties", _ties_on_waves),),
    mistakes=(
        Mistake(
            "the middle of a and c",
            lambda phi, a, c: (a + c) / 2,
            "That is right if phi is a straight line. It is phi(b) that must lie halfway, not b.",
        ),
        Mistake(
            "the height in place of the place",
            lambda phi, a, c: (phi(a) + phi(c)) / 2,
            "That is the value which phi must take. Where does it take it?",
        ),
        Mistake(
            "only for rising functions",
            lambda phi, a, c: _bisect(phi, a, c, target=(phi(a) + phi(c)) / 2, steps=80, falling=False),
            "It works while phi rises from a to c. If it falls, the half that you keep is the wrong one.",
        ),
        Mistake(
            "one half forgotten",
            lambda phi, a, c: _bisect(phi, a, c, target=phi(a) + phi(c), steps=80, falling=True),
            "{b, b} has two elements, so phi(b) is counted twice: aim at half of phi(a) + phi(c).",
        ),
        Mistake(
            "stopped too early",
            lambda phi, a, c: _bisect(phi, a, c, target=(phi(a) + phi(c)) / 2, steps=8, falling=True),
            "The right idea, but eight halvings leave 1/256 of the interval. Each halving costs next to nothing.",
        ),
    ),
    also_right=(_tie_by_sign,),
    learned="However clever phi is, a single continuous number confuses {a, c} with some {b, b}. "
    "The intermediate value theorem is the whole proof.",
)

# --- 2.7 pool_ragged


def pool_ragged(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    counts = torch.bincount(owner, minlength=n_sets).unsqueeze(-1)  # (n_sets, 1)
    if how == "max":
        lowest = rows.new_full((n_sets, rows.shape[1]), -math.inf)
        largest = lowest.scatter_reduce(0, owner.unsqueeze(-1).expand_as(rows), rows, "amax")
        return largest.masked_fill(counts == 0, 0.0)
    total = rows.new_zeros(n_sets, rows.shape[1]).index_add(0, owner, rows)
    return total if how == "sum" else total / counts.clamp(min=1)


def _pool_by_loop(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    pooled = torch.zeros(n_sets, rows.shape[1], dtype=rows.dtype)
    for s in range(n_sets):
        mine = rows[owner == s]
        if len(mine):
            pooled[s] = {"sum": mine.sum(0), "mean": mine.mean(0), "max": mine.amax(0)}[how]
    return pooled


def _pool_by_matrix(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    if how == "max":
        return _pool_by_loop(rows, owner, n_sets, how)
    belongs = (owner == torch.arange(n_sets).unsqueeze(-1)).to(rows.dtype)  # (n_sets, total)
    size = belongs.sum(dim=-1, keepdim=True).clamp(min=1)
    return belongs @ rows if how == "sum" else belongs @ rows / size


def _last_row_wins(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    if how == "max":
        return pool_ragged(rows, owner, n_sets, how)
    pooled = torch.zeros(n_sets, rows.shape[1], dtype=rows.dtype)
    for row, s in zip(rows, owner.tolist(), strict=True):
        pooled[s] = row
    counts = torch.bincount(owner, minlength=n_sets).unsqueeze(-1).clamp(min=1)
    return pooled if how == "sum" else pooled / counts


def _neighbours_only(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    values, lengths = owner.unique_consecutive(return_counts=True)
    pooled = torch.zeros(n_sets, rows.shape[1], dtype=rows.dtype)
    for s, mine in zip(values.tolist(), rows.split(lengths.tolist()), strict=True):
        pooled[s] = {"sum": mine.sum(0), "mean": mine.mean(0), "max": mine.amax(0)}[how]
    return pooled


def _empty_sets_unguarded(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    pooled = pool_ragged(rows, owner, n_sets, how)
    empty = (torch.bincount(owner, minlength=n_sets) == 0).unsqueeze(-1)
    return pooled.masked_fill(empty, {"sum": 0.0, "mean": math.nan, "max": -math.inf}[how])


def _empty_maxima_unguarded(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    return (_empty_sets_unguarded if how == "max" else pool_ragged)(rows, owner, n_sets, how)


def _zeros_averaged_in(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    if how != "mean":
        return pool_ragged(rows, owner, n_sets, how)
    index = owner.unsqueeze(-1).expand_as(rows)
    return rows.new_zeros(n_sets, rows.shape[1]).scatter_reduce(0, index, rows, "mean")


def _empty_means_unguarded(rows: Tensor, owner: Tensor, n_sets: int, how: str) -> Tensor:
    return (_empty_sets_unguarded if how == "mean" else pool_ragged)(rows, owner, n_sets, how)


def _ragged(how: str, owner: list[int], n_sets: int) -> Callable[[Generator], tuple]:
    def make(generator: Generator) -> tuple:
        return normal(generator, len(owner), 3) - 1.5, torch.tensor(owner), n_sets, how

    return make


def _row_order_does_not_matter(answer: Callable, generator: Generator) -> Complaint:
    rows, owner = normal(generator, 7, 2), torch.tensor([1, 0, 3, 1, 1, 3, 0])
    order = torch.randperm(7, generator=generator)
    for how in ("sum", "mean", "max"):
        a, b = answer(rows, owner, 4, how), answer(rows[order], owner[order], 4, how)
        if complaint := compare(as_tensor(b), as_tensor(a)):
            return f"{how}: listing the rows in another order changed the result: {complaint}"
    return None


def _pool_keeps_dtype(answer: Callable, generator: Generator) -> Complaint:
    rows = normal(generator, 4, 2)
    for how, dtype in product(("sum", "mean", "max"), (torch.float32, torch.float64)):
        if complaint := dtype_complaint(answer(rows.to(dtype), torch.tensor([0, 2, 2, 0]), 3, how), dtype):
            return f"{how}: {complaint}"
    return None


POOL_RAGGED = Exercise(
    chapter=2,
    title="Sets of all sizes in one tensor",
    points=3,
    minutes=20,
    difficulty=3,
    reference=pool_ragged,
    cases=(
        drawn("sum", _ragged("sum", [0, 0, 1, 2, 2, 2], 3)),
        drawn("mean", _ragged("mean", [0, 0, 1, 2, 2, 2], 3)),
        drawn("max, of negative numbers too", _ragged("max", [0, 0, 1, 2, 2, 2], 3)),
        drawn("sum, rows in any order", _ragged("sum", [2, 0, 1, 2, 0, 2], 3)),
        drawn("max, rows in any order", _ragged("max", [1, 0, 1, 2, 0, 2], 3)),
        drawn("mean, empty sets inside and at the end", _ragged("mean", [0, 2, 0], 4)),
        drawn("max, empty sets inside and at the end", _ragged("max", [0, 2, 0], 5)),
        drawn("sum, empty sets at the end", _ragged("sum", [1, 1], 4)),
    ),
    properties=(
        Property("the order of the rows does not matter", _row_order_does_not_matter),
        Property("keeps the dtype", _pool_keeps_dtype),
    ),
    mistakes=(
        Mistake(
            "only the last row of each set",
            _last_row_wins,
            "`pooled[owner] += rows` reads and writes each set once: of its rows, one survives. PyTorch has a method "
            "that adds up, with *index* and *add* in its name.",
        ),
        Mistake(
            "the number of sets guessed from the rows",
            lambda rows, owner, n_sets, how: pool_ragged(rows, owner, int(owner.max()) + 1, how),
            "Empty sets at the end have no rows, so `owner` does not mention them. n_sets does.",
        ),
        Mistake(
            "rows of a set assumed side by side",
            _neighbours_only,
            "The rows come in any order. A set may have a row here and another one further down.",
        ),
        Mistake(
            "empty sets unguarded",
            _empty_sets_unguarded,
            "0 rows: the mean divides by 0, and the largest of nothing is minus infinity. Empty sets shall get zeros.",
        ),
        Mistake(
            "the mean of an empty set",
            _empty_means_unguarded,
            "The mean of an empty set divides 0 by 0. It shall be zeros.",
        ),
        Mistake(
            "the largest of an empty set",
            _empty_maxima_unguarded,
            "The largest of nothing is minus infinity. An empty set shall get zeros.",
        ),
        Mistake(
            "zeros averaged in",
            _zeros_averaged_in,
            "`scatter_reduce` counts the zeros that you started from as one more row. See its option `include_self`.",
        ),
        Mistake(
            "the largest, but never below 0",
            lambda rows, owner, n_sets, how: (
                pool_ragged(rows, owner, n_sets, how).clamp(min=0)
                if how == "max"
                else pool_ragged(rows, owner, n_sets, how)
            ),
            "If you start from zeros, no maximum can be negative. Start from minus infinity.",
        ),
        Mistake(
            "the mean over all rows",
            lambda rows, owner, n_sets, how: (
                pool_ragged(rows, owner, n_sets, "sum") / len(rows)
                if how == "mean"
                else pool_ragged(rows, owner, n_sets, how)
            ),
            "Each set has its own number of rows: divide by that, not by the number of all rows.",
        ),
    ),
    also_right=(_pool_by_loop, _pool_by_matrix),
    learned="Graph and point-cloud libraries store sets of all sizes like this, without padding. Sums, means and "
    "maxima are symmetric, so the rows may lie in any order.",
)

# --- 2.8 attention_pool


def attention_pool(seeds: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(x.shape[1]) < lengths.unsqueeze(-1)  # (batch, n)
    x = x.masked_fill(~real.unsqueeze(-1), 0.0)
    scores = seeds @ x.mT / x.shape[-1] ** 0.5  # (batch, k, n)
    return masked_softmax(scores, real.unsqueeze(-2)) @ x


def _attention_pool_by_loop(seeds: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
    pooled = torch.zeros(len(x), len(seeds), x.shape[-1], dtype=x.dtype)
    for b, length in enumerate(lengths.tolist()):
        if length:
            rows = x[b, :length]
            pooled[b] = (seeds @ rows.mT / rows.shape[-1] ** 0.5).softmax(dim=-1) @ rows
    return pooled


def _pool_with(seeds, x, lengths, *, real=None, scale=None, clean=True, fill=None, dim=-1, guard=True, after=False):
    """The reference with one thing changed, for mistakes."""
    real = torch.arange(x.shape[1]) < lengths.unsqueeze(-1) if real is None else real
    values = x.masked_fill(~real.unsqueeze(-1), 0.0) if clean else x
    scores = seeds @ values.mT / (x.shape[-1] ** 0.5 if scale is None else scale)
    if not after:
        scores = scores.masked_fill(~real.unsqueeze(-2), -math.inf if fill is None else fill)
    weights = scores.softmax(dim=dim)
    if after:
        weights = weights.masked_fill(~real.unsqueeze(-2), 0.0)
    if guard:
        weights = weights.masked_fill((lengths == 0)[:, None, None], 0.0)
    return weights @ values


def _padding_scored_zero(seeds: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
    """Scores are multiplied by a 0/1 mask; the padding rows keep their values and a weight."""
    real = (torch.arange(x.shape[1]) < lengths.unsqueeze(-1)).to(x.dtype)
    scores = seeds @ x.mT / x.shape[-1] ** 0.5 * real.unsqueeze(-2)
    return scores.softmax(dim=-1) @ x


def _sets(filling: float, *lengths: int, k: int = 2) -> Callable[[Generator], tuple]:
    def make(generator: Generator) -> tuple:
        x = normal(generator, len(lengths), max(lengths) + 1, 4)
        for row, length in enumerate(lengths):
            x[row, length:] = filling
        return normal(generator, k, 4), x, torch.tensor(lengths)

    return make


def _no_padding(generator: Generator) -> tuple:
    return normal(generator, 2, 6), normal(generator, 3, 5, 6), torch.tensor([5, 5, 5])


def _rows_of_size(size: float) -> Callable[[Generator], tuple]:
    """One seed along the rows, so that all scores are near `size`**2 / 2 times its sign; some padding."""

    def make(generator: Generator) -> tuple:
        direction = torch.ones(1, 4, dtype=torch.float64)
        x = abs(size) * direction + normal(generator, 2, 4, 4)
        return size * direction, x, torch.tensor([3, 4])

    return make


def _pool_keeps_its_dtype(answer: Callable, generator: Generator) -> Complaint:
    seeds, x, lengths = _sets(0.0, 2, 3)(generator)
    complaints = (
        dtype_complaint(answer(seeds.to(dtype), x.to(dtype), lengths), dtype)
        for dtype in (torch.float32, torch.float64)
    )
    return next(filter(None, complaints), None)


def _exponentials_without_maximum(seeds: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(x.shape[1]) < lengths.unsqueeze(-1)
    x = x.masked_fill(~real.unsqueeze(-1), 0.0)
    weights = (seeds @ x.mT / x.shape[-1] ** 0.5).exp() * real.unsqueeze(-2)
    return weights @ x / weights.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(x.dtype).tiny)


def _set_order_does_not_matter(answer: Callable, generator: Generator) -> Complaint:
    seeds, x, lengths = normal(generator, 2, 4), normal(generator, 1, 6, 4), torch.tensor([4])
    order = torch.tensor([2, 0, 3, 1, 5, 4])  # real rows among themselves, padding among itself
    a, b = as_tensor(answer(seeds, x, lengths)), as_tensor(answer(seeds, x[:, order], lengths))
    return f"another order of the real rows changed the result: {complaint}" if (complaint := compare(b, a)) else None


def _sees_shares(answer: Callable, generator: Generator) -> Complaint:
    seeds, x = normal(generator, 3, 4), normal(generator, 2, 5, 4)
    once = as_tensor(answer(seeds, x, torch.tensor([5, 5])))
    twice = as_tensor(answer(seeds, x.repeat(1, 2, 1), torch.tensor([10, 10])))
    return f"every row twice should change nothing: {complaint}" if (complaint := compare(twice, once)) else None


ATTENTION_POOL = Exercise(
    chapter=2,
    title="Pool by attention, padding and empty sets included",
    points=4,
    minutes=25,
    difficulty=4,
    reference=attention_pool,
    cases=(
        drawn("no padding", _no_padding),
        drawn("padding of zeros", _sets(0.0, 2, 4)),
        drawn("padding of nines", _sets(9.0, 1, 3, 4)),
        drawn("one seed", _sets(3.0, 3, 2, k=1)),
        drawn("an empty set", _sets(1.0, 0, 3)),
        drawn("padding of NaN", _sets(math.nan, 3, 1)),
        drawn("an empty set, padding of infinity", _sets(math.inf, 0, 2)),
        drawn("large scores", _rows_of_size(30.0)),
        drawn("scores far below zero", _rows_of_size(-30.0)),
    ),
    properties=(
        Property("the order of the real rows does not matter", _set_order_does_not_matter),
        Property("every row twice changes nothing", _sees_shares),
        Property("keeps the dtype", _pool_keeps_its_dtype),
    ),
    mistakes=(
        Mistake(
            "padding counted in",
            lambda seeds, x, lengths: (seeds @ x.mT / x.shape[-1] ** 0.5).softmax(dim=-1) @ x,
            "The padding rows get weight too. Only the first lengths[b] rows of set b are real.",
        ),
        Mistake(
            "no mask, or a mask after the softmax",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, after=True),
            "Padding has taken its share of the softmax: the weights of the real rows no longer add up to 1.",
        ),
        Mistake(
            "masked scores of zero",
            _padding_scored_zero,
            "A score of 0 is a weight of e^0 = 1 before normalising, not of nothing. What score gives no weight?",
        ),
        Mistake(
            "exp without its maximum",
            _exponentials_without_maximum,
            "Right on paper. exp(800) is infinite: subtract the largest score first, or let `softmax` do it.",
        ),
        Mistake(
            "not low enough",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, fill=-100.0),
            "A real score may lie below -100, and then the padding wins. Use minus infinity or the smallest number.",
        ),
        Mistake(
            "divided by d",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, scale=x.shape[-1]),
            "Scores are divided by the *square root* of the width.",
        ),
        Mistake(
            "0 times NaN",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, clean=False),
            "The padding has weight 0, but 0 times NaN is NaN. Replace the padding rows themselves.",
        ),
        Mistake(
            "NaN for an empty set",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, guard=False),
            "If every score is minus infinity, the softmax is 0/0. An empty set shall give zeros.",
        ),
        Mistake(
            "NaN padding and NaN for an empty set",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, clean=False, guard=False),
            "Two things are left: weight 0 times a NaN row is NaN, and a softmax over nothing is 0/0.",
        ),
        Mistake(
            "no scaling",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, scale=1.0),
            "Scores are divided by the square root of the width, as in every attention of this book.",
        ),
        Mistake(
            "softmax over the seeds",
            lambda seeds, x, lengths: _pool_with(seeds, x, lengths, dim=-2, fill=0.0),
            "For each seed, the weights over the *rows* must add up to 1. You normalised over the seeds.",
        ),
        Mistake(
            "one row too many",
            lambda seeds, x, lengths: _pool_with(
                seeds, x, lengths, real=torch.arange(x.shape[1]) <= lengths.unsqueeze(-1)
            ),
            "Row number lengths[b] is already padding, since rows are counted from 0. Use <, not <=.",
        ),
    ),
    also_right=(_attention_pool_by_loop,),
    learned="This is the pooling of the Set Transformer, one head of it. It is symmetric, and it sees shares: "
    "a class token with fixed queries.",
)

EXERCISES = (
    BAG_KEY,
    WHAT_A_SET_CAN_ANSWER,
    COUNTS_FROM_SHARES,
    THREE_TIES,
    DISTINCT_WEIGHTS,
    TIE_BETWEEN,
    POOL_RAGGED,
    ATTENTION_POOL,
)
