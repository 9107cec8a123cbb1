"""Exercises of chapter 7: biases."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from posenc.attention import masked_softmax
from posenc.checks.common import dtype_complaint
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.masks import causal
from posenc.relative import alibi_slopes, bucket_starts, t5_bucket
from posenc.symmetry import difference

# --- 7.1 bucket_of


def bucket_of(offsets: Tensor, n_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    return t5_bucket(offsets, n_buckets, max_distance, bidirectional)


def _buckets(
    offsets: Tensor,
    n_buckets: int,
    max_distance: int,
    bidirectional: bool,
    *,
    right_from: int = 1,
    halve: bool = True,
    halve_start: bool = True,
    mirrored: bool = False,
    clamped: bool = True,
    ratio: bool = True,
    epsilon: float = 1e-9,
    whole: Callable[[Tensor], Tensor] = torch.floor,
) -> Tensor:
    """T5's formula with logarithms, and switches for what may be wrong with it."""
    right = torch.zeros_like(offsets)
    if bidirectional:
        right = (offsets >= right_from).long() * (n_buckets // 2 if halve_start else n_buckets)
        n_buckets = n_buckets // 2 if halve else n_buckets
    distance = offsets.abs() if bidirectional or mirrored else (-offsets).clamp(min=0)
    exact = n_buckets // 2
    far = distance.clamp(min=1).double()
    share = (far / exact).log() / math.log(max_distance / exact) if ratio else far.log() / math.log(max_distance)
    logarithmic = exact + whole(share * (n_buckets - exact) + epsilon).long()
    logarithmic = logarithmic.clamp(max=n_buckets - 1) if clamped else logarithmic
    return right + torch.where(distance < exact, distance, logarithmic)


def _with_switches(**switches) -> Callable:
    return lambda offsets, n, limit, both: _buckets(offsets, n, limit, both, **switches)


def _buckets_by_loop(offsets: Tensor, n_buckets: int, max_distance: int, bidirectional: bool) -> Tensor:
    """Bucket by bucket: count the starts that the distance has reached, by the rule with a root."""
    one_way = n_buckets // 2 if bidirectional else n_buckets
    exact = one_way // 2
    distance = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    starts = list(range(1, exact + 1))
    starts += [exact * (max_distance / exact) ** (k / (one_way - exact)) - 1e-9 for k in range(1, one_way - exact)]
    bucket = torch.stack([(distance >= start).long() for start in starts]).sum(dim=0)
    return bucket + (offsets > 0).long() * one_way if bidirectional else bucket


def _keeps_shape(answer: Callable, _: Generator) -> Complaint:
    for shape in ((), (0,), (2, 1, 3)):
        offsets = torch.full(shape, -3)
        got = answer(offsets, 32, 128, False)
        if complaint := dtype_complaint(got, torch.long):
            return complaint
        if got.shape != offsets.shape:
            return f"offsets of shape {shape} gave buckets of shape {tuple(got.shape)}"
    return None


def _boundaries_exact(answer: Callable, _: Generator) -> Complaint:
    """Limits at which shares are whole numbers: rounded logarithms miss some, in float64 others than in float32."""
    sizes = [(n, n // 2 * 2**k) for n in range(8, 68, 4) for k in (1, 2, 3, 4, 5)]
    for n_buckets, limit in (*sizes, (48, 81), (32, 4096)):
        starts = torch.tensor(bucket_starts(n_buckets, limit))
        for distance in (starts, (starts - 1).clamp(min=0)):
            expected = t5_bucket(-distance, n_buckets, limit, bidirectional=False)
            got = as_tensor(answer(-distance, n_buckets, limit, False))
            if got.shape != expected.shape:
                return f"expected shape {tuple(expected.shape)}, got {tuple(got.shape)}"
            if (wrong := (got != expected).nonzero()).numel():
                at = wrong[0, 0].item()
                where = f"{n_buckets} buckets, limit {limit}, distance {distance[at]}"
                return f"{where}: expected bucket {expected[at]}, got {got[at]}"
    return None


BUCKET_OF = Exercise(
    chapter=7,
    title="T5's buckets without a loop",
    points=3,
    minutes=15,
    difficulty=3,
    reference=bucket_of,
    cases=(
        with_arguments("a decoder", torch.arange(-200, 1), 32, 128, False),
        with_arguments("a decoder, keys to the right too", torch.arange(-20, 21), 32, 128, False),
        with_arguments("an encoder", torch.arange(-200, 201), 32, 128, True),
        with_arguments("far beyond the limit", torch.tensor([-100_000, -129, -128, -127, 127, 5000]), 32, 128, True),
        with_arguments("other sizes", torch.arange(-90, 91), 16, 64, False),
        with_arguments("other sizes, both ways", torch.arange(-90, 91), 16, 80, True),
        with_arguments("a limit of some thousands", torch.arange(-4100, 1), 32, 4096, False),
        with_arguments("a grid of offsets", torch.arange(40) - torch.arange(40).unsqueeze(-1), 32, 128, True),
    ),
    properties=(
        Property("whole numbers (torch.long) in the same shape", _keeps_shape),
        Property("exact at the boundaries of many sizes", _boundaries_exact),
    ),
    mistakes=(
        Mistake(
            "the offset turned round",
            lambda offsets, n, limit, both: t5_bucket(-offsets, n, limit, both),
            "Your left is right. The offset is key position minus query position: which sign has a key to the left?",
        ),
        Mistake(
            "always bidirectional",
            lambda offsets, n, limit, both: t5_bucket(offsets, n, limit, True),
            "A decoder has no keys to the right, so all of its buckets look left. Yours uses half of them.",
        ),
        Mistake(
            "never bidirectional",
            lambda offsets, n, limit, both: t5_bucket(offsets, n, limit, False),
            "An encoder sees keys on both sides, and they must not share their buckets.",
        ),
        Mistake(
            "no last bucket",
            _with_switches(clamped=False),
            "Far offsets get buckets that do not exist. Everything from the limit on shares the last one.",
        ),
        Mistake(
            "rounded, not cut off",
            _with_switches(whole=torch.round),
            "Your boundaries lie half a step early. The rule cuts the digits off.",
        ),
        Mistake(
            "rounded up",
            _with_switches(whole=torch.ceil),
            "Your boundaries lie a step early. The rule cuts the digits off.",
        ),
        Mistake(
            "the logarithm of the bare distance",
            _with_switches(ratio=False),
            "The logarithmic part starts at E, so both logarithms are of something divided by E.",
        ),
        Mistake(
            "offset 0 on the right",
            _with_switches(right_from=0),
            "A token itself, offset 0, belongs to bucket 0. Only offsets above 0 go to the second half.",
        ),
        Mistake(
            "buckets not halved",
            _with_switches(halve=False, halve_start=False),
            "With both directions, each has only half of the buckets, and everything else follows from that half.",
        ),
        Mistake(
            "halved for the right side's start alone",
            _with_switches(halve=False),
            "Keys to the right start at the right bucket. But B is the number of buckets of *one* direction: what does "
            "that make of E, and of the last bucket?",
        ),
        Mistake(
            "too much added before the digits are cut off",
            _with_switches(epsilon=1e-3),
            "What you add is to make up for rounding. Yours is so large that it lifts distances just short of a "
            "boundary over it.",
        ),
        Mistake(
            "the future mirrored",
            _with_switches(mirrored=True),
            "In a decoder, keys to the right are hidden anyway; here they belong to bucket 0. Yours mirror the past.",
        ),
        Mistake(
            "not whole",
            lambda *arguments: t5_bucket(*arguments).double(),
            "The values are right. A bucket is a row of a table: make the numbers whole.",
        ),
    ),
    also_right=(_buckets_by_loop, _with_switches()),
    learned="Exact near by, logarithmic far away, one bucket for the rest. Ports of T5 go wrong at the direction and "
    "at the last bucket.",
)

# --- 7.2 head_slopes


def head_slopes(n_heads: int) -> Tensor:
    return alibi_slopes(n_heads)


def _slopes_by_recursion(n_heads: int) -> list[float]:
    if n_heads & (n_heads - 1) == 0:
        return [2 ** (-8 * k / n_heads) for k in range(1, n_heads + 1)]
    below = 2 ** int(math.log2(n_heads))
    return _slopes_by_recursion(below) + _slopes_by_recursion(2 * below)[::2][: n_heads - below]


def _power_below(n_heads: int) -> int:
    return 2 ** (n_heads.bit_length() - 1)


def _even_steps(n_heads: int) -> Tensor:
    return 2.0 ** (-8 / n_heads * torch.arange(1, n_heads + 1, dtype=torch.float64))


def _appended(more: Callable[[Tensor, int], Tensor]) -> Callable[[int], Tensor]:
    """The slopes of the power of two below, then `more` of those of the power above."""

    def slopes(n_heads: int) -> Tensor:
        below = _power_below(n_heads)
        return torch.cat([_even_steps(below), more(_even_steps(2 * below), n_heads - below)])

    return slopes


HEAD_SLOPES = Exercise(
    chapter=7,
    title="Slopes for twelve heads, and any other number",
    points=2,
    minutes=10,
    difficulty=2,
    reference=head_slopes,
    cases=tuple(
        with_arguments(f"{n} head{'s' if n > 1 else ''}", n) for n in (8, 2, 1, 12, 3, 6, 7, 16, 20, 64, 71, 112)
    ),
    mistakes=(
        Mistake(
            "even steps for every number",
            _even_steps,
            "Right for powers of two. For 12 heads, ALiBi does not spread 12 slopes evenly: it fills up those of 8.",
        ),
        Mistake(
            "one power off",
            lambda n_heads: alibi_slopes(n_heads) ** ((_power_below(n_heads) + 1) / _power_below(n_heads)),
            "Too small. The first of 8 slopes is 1/2, the last 1/256. For every power of two the last is 1/256.",
        ),
        Mistake(
            "counted from 0",
            lambda n_heads: alibi_slopes(n_heads) * 2 ** (8 / _power_below(n_heads)),
            "Too large: your first slope is 1. Does the exponent of the first head start at 0?",
        ),
        Mistake(
            "sorted",
            lambda n_heads: alibi_slopes(n_heads).sort(descending=True).values,
            "The right slopes in another order. A checkpoint's heads expect those of the smaller power of two first.",
        ),
        Mistake(
            "not every second one",
            _appended(lambda larger, missing: larger[:missing]),
            "Every second slope of the larger power of two is one that you already have. Take those between.",
        ),
        Mistake(
            "the other half",
            _appended(lambda larger, missing: larger[1::2][:missing]),
            "You fill up with slopes that you already have. Take the other half of the larger power of two.",
        ),
        Mistake(
            "cut from the next power of two",
            lambda n_heads: _even_steps(1 << (n_heads - 1).bit_length())[:n_heads],
            "You take the first slopes of the next power of two. Start with *all* slopes of the power below.",
        ),
        Mistake(
            "negative slopes",
            lambda n_heads: -alibi_slopes(n_heads),
            "A slope is positive here; the minus stands in front of slope times distance.",
        ),
    ),
    also_right=(_slopes_by_recursion, lambda n_heads: alibi_slopes(n_heads).float().numpy()),
    learned="A checkpoint stores no slopes. The code that loads it must make the very same ones, in the same order.",
)

# --- 7.3 looks_ahead


def looks_ahead() -> tuple[Tensor, float]:
    content = torch.zeros(16, 16)
    content[0, 15] = 3.0
    return content, 0.5


def _content_and_slope(answer: Callable) -> tuple[Tensor, float] | str:
    pair = answer()
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return "return two things: the content scores and the slope"
    try:
        content, slope = as_tensor(pair[0]), as_tensor(pair[1])
    except (TypeError, ValueError, RuntimeError):
        return "the content must be a square of numbers, and the slope one number"
    if content.is_complex() or slope.is_complex() or torch.bool in (content.dtype, slope.dtype):
        return "the content must be a square of numbers, and the slope one number"
    if content.ndim != 2 or content.shape[0] != content.shape[1] or not 2 <= len(content) <= 32:
        return f"the content must be (n, n) with n from 2 to 32, got {tuple(content.shape)}"
    if slope.numel() != 1 or not 0 < slope.item() <= 1:
        return "the slope must be one number above 0 and at most 1, as in ALiBi"
    if not content.isfinite().all() or content.abs().max() > 10:
        return "content scores must lie between -10 and 10"
    return content.double(), float(slope.item())


def _two_forms(content: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    """Weights without a mask, with +slope * j and with -slope * |i - j|, (n, n) each."""
    at = torch.arange(len(content), dtype=torch.float64)
    distance = (at.unsqueeze(-1) - at).abs()
    return (content + slope * at).softmax(dim=-1), (content - slope * distance).softmax(dim=-1)


def _two_later_weights(answer: Callable) -> tuple[Tensor, Tensor, str] | str:
    """What each query gives to each later token in the two forms, 0 elsewhere, and the best pair in words."""
    found = _content_and_slope(answer)
    if isinstance(found, str):
        return found
    bloom, symmetric = (weights.triu(1) for weights in _two_forms(*found))
    lacking = torch.maximum((0.9 - bloom).clamp(min=0), (symmetric - 0.1).clamp(min=0))
    lacking = lacking.masked_fill(torch.ones_like(bloom).tril().bool(), torch.inf)
    query, key = divmod(lacking.argmin().item(), len(bloom))
    both = f"{bloom[query, key]:.2f} with +m j and {symmetric[query, key]:.2f} with -m|i - j|"
    return bloom, symmetric, f"your best pair is query {query} and key {key}: weight {both}"


def _looks_there(answer: Callable, _: Generator) -> Complaint:
    found = _two_later_weights(answer)
    if isinstance(found, str):
        return found
    bloom, _symmetric, best = found
    return None if (bloom > 0.9).any() else best


def _and_the_other_does_not(answer: Callable, _: Generator) -> Complaint:
    found = _two_later_weights(answer)
    if isinstance(found, str):
        return found
    bloom, symmetric, best = found
    return None if ((bloom > 0.9) & (symmetric < 0.1)).any() else best


LOOKS_AHEAD = Exercise(
    chapter=7,
    title="A counterexample: BLOOM's form without its mask",
    points=2,
    minutes=10,
    difficulty=3,
    reference=looks_ahead,
    properties=(
        Property("+m j gives a later token more than 0.9", _looks_there),
        Property("and -m|i - j| gives the same token less than 0.1", _and_the_other_does_not),
    ),
    mistakes=(
        Mistake(
            "content all alike",
            lambda: (torch.zeros(16, 16), 0.5),
            "+m j prefers the last token, but its neighbours are nearly as good: no single token gets 0.9. "
            "Help it along with content.",
        ),
        Mistake(
            "too few tokens",
            lambda: (torch.zeros(2, 2), 1.0),
            "Distance is what the two forms disagree about. Give them more of it.",
        ),
        Mistake(
            "content decides alone",
            lambda: (torch.eye(8).flip(0) * 10, 0.1),
            "Your content is so strong that both forms follow it. Make it weaker, or the way longer.",
        ),
        Mistake(
            "queries across, keys down",
            lambda: (torch.zeros(16, 16).index_put((torch.tensor(15), torch.tensor(0)), torch.tensor(3.0)), 0.5),
            "Your content helps an *earlier* token. Rows are queries, columns are keys.",
        ),
        Mistake(
            "no slope",
            lambda: (torch.zeros(4, 4), 0.0),
            "With slope 0 there is no bias at all, and both forms are the same.",
        ),
    ),
    also_right=(
        lambda: ([[4.0 if (q, k) == (0, 9) else 0.0 for k in range(10)] for q in range(10)], 1),
        lambda: (torch.zeros(32, 32).index_fill(1, torch.tensor([31]), 4.0), torch.tensor(0.25)),
    ),
    learned="Two biases give the same weights where their difference is the same for all keys of a row. Here that "
    "holds for the keys up to the query, and no farther: it takes the mask.",
)

# --- 7.4 tokens_within


def tokens_within(slope: float, share: float, n: int) -> int:
    weights = (-slope * torch.arange(n, dtype=torch.float64)).softmax(dim=-1)  # from near to far
    return int((weights.cumsum(-1) < share).sum()) + 1


def _tokens_in_closed_form(slope: float, share: float, n: int) -> int:
    if slope == 0:
        return math.ceil(share * n)
    return math.ceil(-math.log(1 - share * (1 - math.exp(-slope * n))) / slope)


def _tokens_by_loop(slope: float, share: float, n: int) -> int:
    weights = [math.exp(-slope * t) for t in range(n)]
    held, count = 0.0, 0
    while held < share * sum(weights):
        held, count = held + weights[count], count + 1
    return count


def _endless(slope: float, share: float, n: int) -> int:
    return math.ceil(-math.log(1 - share) / slope)


def _endless_clamped(slope: float, share: float, n: int) -> int:
    return min(n, _endless(slope, share, n) if slope else math.ceil(share * n))


def _beyond_the_share(slope: float, share: float, n: int) -> int:
    weights = (-slope * torch.arange(n, dtype=torch.float64)).softmax(dim=-1)
    return int((weights.cumsum(-1) <= share).sum()) + 1


def _in_single_precision(slope: float, share: float, n: int) -> int:
    weights = (-slope * torch.arange(n)).softmax(dim=-1)
    return int((weights.cumsum(-1) < share).sum()) + 1


TOKENS_WITHIN = Exercise(
    chapter=7,
    title="How far a head sees",
    points=2,
    minutes=10,
    difficulty=2,
    reference=tokens_within,
    cases=(
        with_arguments("the steepest of eight heads", 1 / 2, 0.99, 4096),
        with_arguments("the flattest of eight heads", 1 / 256, 0.99, 4096),
        with_arguments("a text shorter than the window", 1 / 256, 0.99, 100),
        with_arguments("half of the weight", 1 / 16, 0.5, 512),
        with_arguments("itself is enough", 1.0, 0.5, 64),
        with_arguments("all but a billionth", 1 / 2, 1 - 1e-9, 256),
        with_arguments("a text of one token", 1 / 2, 0.99, 1),
        with_arguments("no slope", 0.0, 0.35, 10),
        with_arguments("no slope, the share reached exactly", 0.0, 0.5, 4),
        with_arguments("no slope, a share just above three keys", 0.0, 0.33, 10),
    ),
    mistakes=(
        Mistake(
            "as if the text had no beginning",
            _endless,
            "Right for an endless past. With n tokens the weights still sum to 1, so the near ones hold more. "
            "And slope 0 is allowed.",
        ),
        Mistake(
            "an endless text, cut at n",
            _endless_clamped,
            "Cutting at n is not enough. In a short text the weights sum to 1 as well, so the near ones hold more than "
            "in an endless one.",
        ),
        Mistake(
            "more than the share",
            _beyond_the_share,
            "Nearly. *At least* the share: when the sum equals it, that is enough.",
        ),
        Mistake(
            "one too few",
            lambda slope, share, n: tokens_within(slope, share, n) - 1,
            "One too few: the key at which the sum reaches the share belongs to those that hold it.",
        ),
        Mistake(
            "one too many",
            lambda slope, share, n: tokens_within(slope, share, n) + 1,
            "One too many. Does the nearest key, the query's own, have distance 0 or 1?",
        ),
        Mistake(
            "single precision",
            _in_single_precision,
            "Right, with seven digits. A share of 1 - 1e-9 needs more: in float32 it is 1. Count in float64.",
        ),
        Mistake(
            "counted from the far end",
            lambda slope, share, n: tokens_within(-slope, share, n),
            "You add up from the farthest key. The nearest ones should hold the share.",
        ),
        Mistake(
            "the share outside",
            lambda slope, share, n: tokens_within(slope, 1 - share, n),
            "You stop at 1 - share. The tokens *within* hold the share.",
        ),
    ),
    also_right=(_tokens_in_closed_form, _tokens_by_loop),
    learned="For equal content ALiBi's window is known before training: (ln 100)/m tokens hold 99 %. Content scores "
    "that differ by g can widen it by up to g/m, and g is learned.",
)

# --- 7.5 alibi_step


def alibi_step(
    queries: Tensor, keys: Tensor, values: Tensor, slopes: Tensor, query_positions: Tensor, key_positions: Tensor
) -> Tensor:
    key_at, query_at = key_positions[:, None, None, :], query_positions[:, None, :, None]
    bias = -slopes.view(-1, 1, 1) * (query_at - key_at).abs()
    mask = (key_at >= 0) & (key_at <= query_at)
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5 + bias.to(queries.dtype)
    return masked_softmax(scores, mask) @ values


def _step(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    slopes: Tensor,
    query_at: Tensor,
    key_at: Tensor,
    allowed: Tensor,
    *,
    sign: float = -1.0,
    scale: float | None = None,
    bias_scale: float = 1.0,
) -> Tensor:
    """Attention with any positions (batch, n) and any mask (batch, n_new, n_cached)."""
    distance = (query_at.unsqueeze(-1) - key_at.unsqueeze(-2)).abs().unsqueeze(1)
    scale = queries.shape[-1] ** 0.5 if scale is None else scale
    scores = queries @ keys.mT / scale + sign / bias_scale * (slopes.view(-1, 1, 1) * distance).to(queries.dtype)
    return masked_softmax(scores, allowed.unsqueeze(1)) @ values


def _allowed(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    return causal(query_positions, key_positions) & (key_positions >= 0).unsqueeze(-2)


def _decode_by_bloom(queries, keys, values, slopes, query_positions, key_positions):
    """Only the keys' positions, counted from the query's so that the numbers stay small. Still a row constant away."""
    bias = slopes.view(-1, 1, 1) * (key_positions - query_positions[:, -1:])[:, None, None, :]
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5 + bias.to(queries.dtype)
    return masked_softmax(scores, _allowed(query_positions, key_positions).unsqueeze(1)) @ values


def _decode_by_loop(queries, keys, values, slopes, query_positions, key_positions):
    output = torch.zeros(*queries.shape[:-1], values.shape[-1], dtype=values.dtype)
    for b in range(len(queries)):
        for h in range(queries.shape[1]):
            for row, at in enumerate(query_positions[b].tolist()):
                seen = [k for k, p in enumerate(key_positions[b].tolist()) if 0 <= p <= at]
                distance = at - key_positions[b, seen]
                scores = keys[b, h, seen] @ queries[b, h, row] / queries.shape[-1] ** 0.5
                weights = (scores - (slopes[h] * distance).to(scores.dtype)).softmax(-1)
                output[b, h, row] = weights @ values[b, h, seen]
    return output


def _from_zero(queries, keys, values, slopes, query_positions, key_positions):
    n_new, n_cached = queries.shape[-2], keys.shape[-2]
    key_at = torch.arange(n_cached).expand(len(keys), -1)
    query_at = key_at[:, n_cached - n_new :]
    return _step(queries, keys, values, slopes, query_at, key_at, _allowed(query_positions, key_positions))


def _keys_from_zero(queries, keys, values, slopes, query_positions, key_positions):
    key_at = torch.arange(keys.shape[-2]).expand(len(keys), -1)
    return _step(queries, keys, values, slopes, query_positions, key_at, _allowed(query_positions, key_positions))


def _top_left(queries, keys, values, slopes, query_positions, key_positions):
    key_at = torch.arange(keys.shape[-2]).expand(len(keys), -1)
    query_at = key_at[:, : queries.shape[-2]]
    return _step(queries, keys, values, slopes, query_at, key_at, causal(query_at, key_at))


def _with(**changes) -> Callable:
    """The right step with another mask, sign or scale."""
    mask = changes.pop("mask", _allowed)

    def wrong(queries, keys, values, slopes, query_positions, key_positions):
        at = query_positions, key_positions
        return _step(queries, keys, values, slopes, *at, mask(*at), **changes)

    return wrong


def _first_positions_for_all(queries, keys, values, slopes, query_positions, key_positions):
    at = query_positions[:1].expand_as(query_positions), key_positions[:1].expand_as(key_positions)
    return alibi_step(queries, keys, values, slopes, *at)


def _slopes_backwards(queries, keys, values, slopes, query_positions, key_positions):
    return alibi_step(queries, keys, values, slopes.flip(0), query_positions, key_positions)


def _decode_case(name: str, query_positions: list, key_positions: list, dtype: torch.dtype = torch.float64):
    query_at, key_at = torch.tensor(query_positions), torch.tensor(key_positions)
    batch, n_new, n_cached, heads = len(query_at), query_at.shape[1], key_at.shape[1], 3

    def make(g: Generator) -> tuple:
        queries, keys = normal(g, batch, heads, n_new, 4), normal(g, batch, heads, n_cached, 4)
        values, slopes = normal(g, batch, heads, n_cached, 5), torch.tensor([0.5, 0.3, 0.06])
        return (*(x.to(dtype) for x in (queries, keys, values, slopes)), query_at, key_at)

    return drawn(name, make)


def _step_by_step_equals_at_once(answer: Callable, g: Generator) -> Complaint:
    queries, keys, values = normal(g, 2, 2, 5, 4), normal(g, 2, 2, 5, 4), normal(g, 2, 2, 5, 3)
    slopes = torch.tensor([0.5, 0.1], dtype=torch.float64)
    at = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]])
    at_once = as_tensor(answer(queries, keys, values, slopes, at, at))
    for t in range(5):
        now, seen = slice(t, t + 1), slice(0, t + 1)
        cached = keys[:, :, seen], values[:, :, seen]
        step = as_tensor(answer(queries[:, :, now], *cached, slopes, at[:, now], at[:, seen]))
        if complaint := compare(step, at_once[:, :, now]):
            return f"token {t}, decoded alone, differs from all five at once: {complaint}"
    return None


def _keeps_dtype(answer: Callable, g: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        queries, keys, values = (normal(g, 1, 2, 3, 4).to(dtype) for _ in range(3))
        at = torch.arange(3).unsqueeze(0)
        got = answer(queries, keys, values, torch.tensor([0.5, 0.25], dtype=dtype), at, at)
        if complaint := dtype_complaint(got, dtype):
            return complaint
    return None


ALIBI_STEP = Exercise(
    chapter=7,
    title="Decode with a cache",
    points=4,
    minutes=20,
    difficulty=4,
    reference=alibi_step,
    cases=(
        _decode_case("one new token", [[5]], [[0, 1, 2, 3, 4, 5]]),
        _decode_case("three new tokens", [[3, 4, 5]], [[0, 1, 2, 3, 4, 5]]),
        _decode_case(
            "two texts, one with padding on the left", [[5], [2]], [[0, 1, 2, 3, 4, 5], [-1, -1, -1, 0, 1, 2]]
        ),
        _decode_case("a cache that kept the first key and the last three", [[23]], [[0, 21, 22, 23]]),
        _decode_case("two new tokens, keys dropped in the middle", [[42, 43]], [[0, 1, 2, 20, 40, 41, 42, 43]]),
        _decode_case("two texts with other gaps, two new tokens", [[8, 9], [41, 42]], [[6, 7, 8, 9], [20, 30, 41, 42]]),
        _decode_case("padding and a gap", [[5], [12]], [[0, 1, 2, 3, 4, 5], [-1, -1, -1, 2, 11, 12]]),
        _decode_case("a ring buffer, slots out of order", [[9]], [[8, 9, 4, 5, 6, 7]]),
        _decode_case("float32", [[9], [4]], [[0, 3, 4, 8, 9], [-1, -1, 0, 1, 4]], torch.float32),
    ),
    properties=(
        Property("step by step equals all at once", _step_by_step_equals_at_once),
        Property("keeps the dtype", _keeps_dtype),
    ),
    mistakes=(
        Mistake(
            "slot numbers for positions",
            _from_zero,
            "You count slots. A slot's token may stand anywhere in its text: in a ring buffer the order is turned. "
            "Use the positions that you are given.",
        ),
        Mistake(
            "slot numbers for the keys",
            _keys_from_zero,
            "The queries have their true positions, the keys the numbers of their slots. Both must count alike.",
        ),
        Mistake(
            "position 0 taken for padding",
            _with(mask=lambda q, k: causal(q, k) & (k > 0).unsqueeze(-2)),
            "Your queries miss a token that is there. Which positions mean padding, and which the start of the text?",
        ),
        Mistake(
            "the bias scaled with the scores",
            lambda queries, *rest: _with(bias_scale=queries.shape[-1] ** 0.5)(queries, *rest),
            "Only the content scores are divided by the square root of head_dim. Your division includes the bias.",
        ),
        Mistake(
            "scaled by the values' width",
            lambda queries, keys, values, *rest: _with(scale=values.shape[-1] ** 0.5)(queries, keys, values, *rest),
            "The score is a sum over head_dim products. You divide by the root of another width.",
        ),
        Mistake(
            "aligned to the top left",
            _top_left,
            "Your first new token counts as token 0: it sees only the oldest key. Where does it really stand?",
        ),
        Mistake(
            "padding is seen",
            _with(mask=causal),
            "Slots at position -1 hold no token. Nobody may look at them.",
        ),
        Mistake(
            "new tokens see each other's future",
            _with(mask=lambda q, k: (k >= 0).unsqueeze(-2).expand(-1, q.shape[-1], -1)),
            "With several new tokens at once, the first must not see the second. Compare positions.",
        ),
        Mistake(
            "a token does not see itself",
            _with(mask=lambda q, k: (q.unsqueeze(-1) > k.unsqueeze(-2)) & (k >= 0).unsqueeze(-2)),
            "The new token's own key is in the cache already, and a token sees itself.",
        ),
        Mistake(
            "the first text's positions for all",
            _first_positions_for_all,
            "Each text of the batch has its own positions. You use those of the first one for all.",
        ),
        Mistake(
            "far is better",
            _with(sign=1.0),
            "You add slope times distance. ALiBi subtracts it.",
        ),
        Mistake(
            "no bias",
            _with(sign=0.0),
            "The mask is right, but no bias is added to the scores.",
        ),
        Mistake(
            "scores not scaled",
            _with(scale=1.0),
            "Positions are right. The content scores must be divided by the square root of head_dim.",
        ),
        Mistake(
            "slopes in the wrong order",
            _slopes_backwards,
            "Head h has slope number h. Yours are assigned backwards.",
        ),
    ),
    also_right=(_decode_by_loop, _decode_by_bloom),
    learned="A bias for a cache is a grid of new queries against all cached keys, made from true positions, one grid a "
    "text. Then padding, rolling caches and ring buffers are no special cases.",
)

# --- 7.6 one_for_all


def one_for_all(tables: Tensor) -> tuple[Tensor, float]:
    without_constant = tables - tables[:, :1]
    shared = without_constant.mean(dim=0)
    return shared, (without_constant - shared).abs().max().item()


def _one_for_all_by_loop(tables: Tensor) -> tuple[Tensor, float]:
    n_layers, n_buckets, n_heads = tables.shape
    shared = torch.zeros(n_buckets, n_heads, dtype=tables.dtype)
    for head in range(n_heads):
        for layer in range(n_layers):
            shared[:, head] += (tables[layer, :, head] - tables[layer, 0, head]) / n_layers
    worst = 0.0
    for table in tables:
        worst = max(worst, float((table - table[0] - shared).abs().max()))
    return shared, worst


def _of(without_constant: Callable[[Tensor], Tensor], size: Callable[[Tensor], Tensor] | None = None) -> Callable:
    def wrong(tables: Tensor) -> tuple[Tensor, float]:
        centred = without_constant(tables)
        shared = centred.mean(dim=0)
        return shared, (size or (lambda x: x.abs().max()))(centred - shared).item()

    return wrong


def _tables_apart_by_constants(g: Generator) -> tuple:
    return (normal(g, 1, 8, 3) + 5 * normal(g, 4, 1, 3),)


def _one_layer_far_below(g: Generator) -> tuple:
    tables = normal(g, 3, 5, 2)
    tables[1, 2] -= 40
    tables[0, 3] += 30  # so that the largest difference above is another layer's than the last
    return (tables,)


def _lossless_means_same_weights(answer: Callable, g: Generator) -> Complaint:
    (tables,) = _tables_apart_by_constants(g)
    got = answer(tables)
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        return "return two things: the table and the largest difference"
    shared, error = as_tensor(got[0]), float(got[1])
    if shared.shape != tables.shape[1:]:
        return f"the shared table must be {tuple(tables.shape[1:])}, got {tuple(shared.shape)}"
    if not abs(error) < 1e-6:
        return f"here sharing loses nothing, so the difference is 0; yours is {error:.3g}"
    at = torch.arange(12)
    buckets = t5_bucket(at - at.unsqueeze(-1), 8, 20, bidirectional=False)
    content = normal(g, 3, 12, 12)
    for layer, table in enumerate(tables):
        weights = (masked_softmax(content + t[buckets].movedim(-1, 0), causal(at, at)) for t in (table, shared))
        gap = difference(*weights)
        if gap > 1e-6:
            return f"with your table the attention weights of layer {layer} change by {gap:.2g}"
    return None


ONE_FOR_ALL = Exercise(
    chapter=7,
    title="One table for all layers",
    points=3,
    minutes=12,
    difficulty=2,
    reference=one_for_all,
    cases=(
        drawn("tables that differ by one number a head", _tables_apart_by_constants),
        drawn("tables that really differ", lambda g: (normal(g, 3, 8, 2),)),
        drawn("one layer", lambda g: (normal(g, 1, 6, 2),)),
        drawn("one head", lambda g: (normal(g, 4, 32, 1),)),
        drawn("one layer far below the others", _one_layer_far_below),
        drawn("float32", lambda g: (normal(g, 2, 16, 4).float(),)),
    ),
    properties=(Property("where nothing is lost, no weight changes", _lossless_means_same_weights),),
    mistakes=(
        Mistake(
            "the plain mean",
            _of(lambda tables: tables),
            "Layers whose tables differ by one number a head attend alike. Take that freedom away before you compare.",
        ),
        Mistake(
            "one number for all heads",
            _of(lambda tables: tables - tables[:, :1, :1]),
            "Each head has a softmax of its own, so each head of each layer has a constant of its own.",
        ),
        Mistake(
            "the mean taken away",
            _of(lambda tables: tables - tables.mean(dim=1, keepdim=True)),
            "A right idea with another normal form. The task wants bucket 0 to hold 0.",
        ),
        Mistake(
            "the largest taken away",
            _of(lambda tables: tables - tables.amax(dim=1, keepdim=True)),
            "A right idea with another normal form. The task wants bucket 0 to hold 0.",
        ),
        Mistake(
            "the mean difference",
            _of(lambda tables: tables - tables[:, :1], lambda x: x.abs().mean()),
            "The table is right. For the difference, the task asks for the largest, not the mean.",
        ),
        Mistake(
            "differences with their sign",
            _of(lambda tables: tables - tables[:, :1], lambda x: x.max()),
            "The table is right. A difference below zero is a difference too: take absolute values.",
        ),
        Mistake(
            "the layers not shifted when compared",
            lambda tables: (
                (tables - tables[:, :1]).mean(dim=0),
                (tables - (tables - tables[:, :1]).mean(dim=0)).abs().max().item(),
            ),
            "The table is right. But the difference is between it and each layer's *shifted* table.",
        ),
        Mistake(
            "the spread between layers",
            _of(lambda tables: tables - tables[:, :1], lambda x: (x.amax(dim=0) - x.amin(dim=0)).max()),
            "The table is right. You measure how far the layers are from each other, not from the shared table.",
        ),
        Mistake(
            "compared with the last layer alone",
            _of(lambda tables: tables - tables[:, :1], lambda x: x[-1].abs().max()),
            "The table is right. The largest difference to *any* layer is asked for; you look at one.",
        ),
        Mistake(
            "the first layer for all",
            lambda tables: (
                (tables - tables[:, :1])[0],
                (tables - tables[:, :1] - (tables - tables[:, :1])[0]).abs().max().item(),
            ),
            "You hand out the first layer's table. The task wants the mean over the layers.",
        ),
    ),
    also_right=(_one_for_all_by_loop, lambda tables: list(one_for_all(tables))),
    learned="If the layers' tables differ by one number a head, sharing is lossless: softmax cannot see the number.",
)

# --- 7.7 decoder_bias


def decoder_bias(table: Tensor, query_positions: Tensor, key_positions: Tensor, max_distance: int) -> Tensor:
    offsets = key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)
    return table[t5_bucket(offsets, len(table), max_distance, bidirectional=False)].movedim(-1, -3)


def _decoder_bias_by_loop(table: Tensor, query_positions: Tensor, key_positions: Tensor, max_distance: int) -> Tensor:
    if query_positions.ndim > 1:
        pairs = zip(query_positions, key_positions, strict=True)
        return torch.stack([_decoder_bias_by_loop(table, q, k, max_distance) for q, k in pairs])
    rows = []
    for at in query_positions.tolist():
        back = (key_positions - at).clamp(max=0)
        rows.append(table[_buckets_by_loop(back, len(table), max_distance, False)])  # (n_keys, heads)
    return torch.stack(rows).permute(2, 0, 1)


def _looked_up(sign: int, bidirectional: bool, n_buckets: int | None = None, heads_last: bool = False) -> Callable:
    def wrong(table: Tensor, query_positions: Tensor, key_positions: Tensor, max_distance: int) -> Tensor:
        offsets = sign * (key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1))
        bias = table[t5_bucket(offsets, n_buckets or len(table), max_distance, bidirectional)]
        return bias if heads_last else bias.movedim(-1, -3)

    return wrong


def _changed(change: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    """The right bias and then something more, which may look at the offsets, (..., 1, n_queries, n_keys)."""

    def wrong(table: Tensor, query_positions: Tensor, key_positions: Tensor, max_distance: int) -> Tensor:
        offsets = key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)
        return change(decoder_bias(table, query_positions, key_positions, max_distance), offsets.unsqueeze(-3))

    return wrong


def _future_mirrored(table: Tensor, query_positions: Tensor, key_positions: Tensor, max_distance: int) -> Tensor:
    distance = (key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)).abs()
    return table[t5_bucket(-distance, len(table), max_distance, bidirectional=False)].movedim(-1, -3)


def _no_batch(table: Tensor, query_positions: Tensor, key_positions: Tensor, max_distance: int) -> Tensor:
    offsets = key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)
    return table[t5_bucket(offsets, len(table), max_distance, bidirectional=False)].permute(2, 0, 1)


def _bias_case(name: str, queries: Tensor, keys: Tensor, n_buckets: int = 32, limit: int = 128, dtype=torch.float64):
    return drawn(name, lambda g: (normal(g, n_buckets, 3).to(dtype), queries, keys, limit))


def _whole_table_learns(answer: Callable, g: Generator) -> Complaint:
    table = normal(g, 16, 2).requires_grad_()
    at = torch.arange(80)
    bias = answer(table, at, at, 64)
    if not isinstance(bias, Tensor) or not bias.requires_grad:
        return "the result must carry a gradient to the table: stay with tensor operations"
    if bias.shape != (2, 80, 80):
        return f"expected shape (2, 80, 80), got {tuple(bias.shape)}"
    (gradient,) = torch.autograd.grad(bias[:, causal(at, at)].sum(), table)  # what a causal mask lets through
    silent = int((gradient.abs().sum(dim=-1) == 0).sum())
    return f"under a causal mask {silent} of 16 buckets get no gradient" if silent else None


def _keeps_table_dtype(answer: Callable, g: Generator) -> Complaint:
    at = torch.arange(6)
    for dtype in (torch.float32, torch.float64):
        if complaint := dtype_complaint(answer(normal(g, 8, 2).to(dtype), at, at, 20), dtype):
            return complaint
    return None


_AT = torch.arange(200)

DECODER_BIAS = Exercise(
    chapter=7,
    title="Mend the decoder",
    points=3,
    minutes=15,
    difficulty=3,
    reference=decoder_bias,
    cases=(
        _bias_case("a whole text", _AT, _AT),
        _bias_case("one new query against a cache", torch.tensor([199]), _AT),
        _bias_case("keys that do not start at 0", torch.tensor([500, 501]), torch.arange(300, 502)),
        _bias_case("a smaller table", torch.arange(40), torch.arange(40), 8, 20),
        _bias_case("a batch of positions", torch.tensor([[5, 6], [70, 71]]), torch.arange(7).expand(2, 7) + 3),
        _bias_case("float32", torch.arange(30), torch.arange(30), 16, 24, torch.float32),
    ),
    properties=(
        Property("the whole table learns", _whole_table_learns),
        Property("keeps the table's dtype", _keeps_table_dtype),
    ),
    mistakes=(
        Mistake(
            "as it was found",
            _looked_up(-1, True, 32, heads_last=True),
            "This is the code as it was found. Start with the axes: what shape do the scores have?",
        ),
        Mistake(
            "only the axes mended",
            _looked_up(-1, True, 32),
            "The shape is right now. Next: is a decoder bidirectional? And must every table have 32 rows?",
        ),
        Mistake(
            "still bidirectional",
            _looked_up(1, True),
            "Signs and axes are right. But a decoder never sees keys to the right, so half of your table lies idle.",
        ),
        Mistake(
            "still bidirectional, and turned round",
            _looked_up(-1, True),
            "Is a decoder bidirectional? And what sign has the offset of a key to the left?",
        ),
        Mistake(
            "the offset turned round",
            _looked_up(-1, False),
            "All of the past falls into bucket 0. The offset is key position minus query position.",
        ),
        Mistake(
            "always 32 buckets",
            _looked_up(1, False, 32),
            "A smaller table has fewer rows. Ask the table how many.",
        ),
        Mistake(
            "queries and keys changed places",
            _changed(lambda bias, _: bias.mT),
            "The heads stand where they should. But rows should be queries, and columns keys.",
        ),
        Mistake(
            "the axes of a single text",
            _no_batch,
            "Right for one text. With a batch of positions there is one axis more: count the axes from the end.",
        ),
        Mistake(
            "the mask added",
            _changed(lambda bias, offsets: bias.masked_fill(offsets > 0, -math.inf)),
            "The past is right. No mask is asked for: what bias have the keys to the right?",
        ),
        Mistake(
            "the future mirrored",
            _future_mirrored,
            "The past is right. Keys to the right have no distance here: all of them belong to bucket 0.",
        ),
        Mistake(
            "always up to 128",
            lambda table, queries, keys, _: decoder_bias(table, queries, keys, 128),
            "You do not use `max_distance`: from there on, everything shares the last bucket.",
        ),
        Mistake(
            "heads last",
            _looked_up(1, False, heads_last=True),
            "The numbers are right. Scores are (..., heads, n_queries, n_keys): where do your heads stand?",
        ),
    ),
    also_right=(_decoder_bias_by_loop,),
    learned="Under a causal mask a bidirectional bias trains half of its table, without complaint. Look at which rows "
    "get a gradient.",
)

EXERCISES = (BUCKET_OF, HEAD_SLOPES, LOOKS_AHEAD, TOKENS_WITHIN, ALIBI_STEP, ONE_FOR_ALL, DECODER_BIAS)
