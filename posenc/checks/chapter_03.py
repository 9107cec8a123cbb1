"""Exercises of chapter 3: the mask door."""

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from posenc.absolute import Sinusoidal
from posenc.attention import attention, masked_softmax
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.encoding import Together
from posenc.masks import Causal, Given, causal
from posenc.model import Block, build
from posenc.symmetry import difference

# --- 3.1 causal_mask


def causal_mask(n_queries: int, n_keys: int) -> Tensor:
    positions = torch.arange(n_keys)
    return causal(positions[n_keys - n_queries :], positions)


def _causal_mask_by_loop(n_queries: int, n_keys: int) -> Tensor:
    past = n_keys - n_queries
    return torch.tensor([[key <= query + past for key in range(n_keys)] for query in range(n_queries)])


def _causal_mask_by_tril(n_queries: int, n_keys: int) -> Tensor:
    return torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)


CAUSAL_MASK = Exercise(
    chapter=3,
    title="A causal mask for a cache",
    points=1,
    minutes=5,
    difficulty=2,
    reference=causal_mask,
    cases=(
        with_arguments("no cache", 5, 5),
        with_arguments("one new token", 1, 6),
        with_arguments("three new tokens", 3, 8),
        with_arguments("one token in the cache", 2, 3),
        with_arguments("the very first token", 1, 1),
    ),
    mistakes=(
        Mistake(
            "aligned to the top left",
            lambda n_queries, n_keys: torch.ones(n_queries, n_keys, dtype=torch.bool).tril(),
            "Your first query counts as token 0. But the queries are the *newest* tokens: how many came before them?",
        ),
        Mistake(
            "one step too far",
            lambda n_queries, n_keys: torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries + 1),
            "Each query sees one token of its future. Count again how many tokens came before the first query.",
        ),
        Mistake(
            "a token does not see itself",
            lambda n_queries, n_keys: torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries - 1),
            "A token sees itself too. Otherwise the first token of a text would see nothing.",
        ),
        Mistake(
            "True blocks",
            lambda n_queries, n_keys: ~causal_mask(n_queries, n_keys),
            "Your mask is the right one turned round. Here True means that the query *may* see the key.",
        ),
        Mistake(
            "looking ahead",
            lambda n_queries, n_keys: torch.ones(n_queries, n_keys, dtype=torch.bool).triu(n_keys - n_queries),
            "Your queries see themselves and the future. Which side of the diagonal is the past?",
        ),
        Mistake(
            "numbers in place of True and False",
            lambda n_queries, n_keys: causal_mask(n_queries, n_keys).float(),
            "Right places, wrong kind. Return booleans: as numbers, a mask may be *added* to the scores.",
        ),
    ),
    also_right=(_causal_mask_by_loop, _causal_mask_by_tril),
    learned="With a cache the mask's corner is at the bottom right. `is_causal=True` puts it at the top left.",
)

# --- 3.2 position_from_share


def position_from_share(shares: Tensor) -> Tensor:
    return (1 / shares - 1).round().long()


def _position_by_nearest_mark(shares: Tensor) -> Tensor:
    marks = 1 / torch.arange(1, 4001, dtype=torch.float64)
    return (shares.double().unsqueeze(-1) - marks).abs().argmin(dim=-1)


def _noisy_shares(g: Generator) -> tuple:
    exact = 1 / torch.arange(1, 101, dtype=torch.float64)
    return (exact * (1 + 1e-3 * (2 * torch.rand(100, generator=g, dtype=torch.float64) - 1)),)


POSITION_FROM_SHARE = Exercise(
    chapter=3,
    title="Read the clock",
    points=1,
    minutes=5,
    difficulty=1,
    reference=position_from_share,
    cases=(
        with_arguments("BOS itself and three more", torch.tensor([1.0, 1 / 2, 1 / 3, 1 / 4], dtype=torch.float64)),
        with_arguments("late positions, float32", 1 / torch.arange(1, 2001, dtype=torch.float32)),
        drawn("shares that are a little off", _noisy_shares),
        with_arguments("a batch", torch.tensor([[1.0, 1 / 2], [1 / 8, 1 / 50]], dtype=torch.float64)),
    ),
    mistakes=(
        Mistake(
            "cut off in place of rounded",
            lambda shares: (1 / shares - 1).long(),
            "One over a share may be 48.9999. `.long()` and `int` cut the digits off; what should they do?",
        ),
        Mistake(
            "counted from 1",
            lambda shares: (1 / shares).round().long(),
            "The share is 1/(i + 1): BOS, at position 0, has the share 1. You are one too high.",
        ),
        Mistake(
            "one too low",
            lambda shares: (1 / shares - 2).round().long(),
            "You are one too low: BOS has the share 1 and the position 0.",
        ),
        Mistake(
            "rounded up",
            lambda shares: (1 / shares - 1).ceil().long(),
            "A share that is a hair too small gives 4.0001, and you make 5 of it. Take the nearest whole number.",
        ),
        Mistake(
            "not whole",
            lambda shares: (1 / shares - 1).round(),
            "The values are right. A position is a whole number: change the kind of the tensor.",
        ),
    ),
    also_right=(_position_by_nearest_mark,),
    learned="1/(i + 1) is a clock that any causal layer with a BOS can write. Its ticks get finer as the text goes on.",
)

# --- 3.3 tie_then_tell


def tie_then_tell() -> tuple[list[int], list[int]]:
    return [1, 2, 3], [2, 1, 3]


def _texts(answer: Callable) -> list[Tensor] | str:
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
        if tokens.ndim != 1 or not 1 <= len(tokens) <= 12 or tokens.is_floating_point() or tokens.is_complex():
            return "each text must be a list of 1 to 12 whole numbers"
        if tokens.dtype == torch.bool or tokens.min() < 1 or tokens.max() > 9:
            return "tokens must be whole numbers from 1 to 9 (0 is BOS, which we put in front)"
        texts.append(tokens.long())
    return texts


def _largest_gap(texts: list[Tensor], n_layers: int, generator: Generator) -> float:
    """How far the last rows of the two texts lie apart, over three causal models with random weights."""
    gaps = []
    for seed in torch.randint(2**31, (3,), generator=generator).tolist():
        torch.manual_seed(seed)
        model = nn.Sequential(*[Block(8, 2, Causal()) for _ in range(n_layers)]).double()
        vectors = torch.randn(10, 8, dtype=torch.float64)
        bos = torch.zeros(1, dtype=torch.long)
        with torch.no_grad():
            rows = [model(vectors[torch.cat([bos, text])])[-1] for text in texts]
        gaps.append(difference(*rows))
    return max(gaps)


def _one_layer_ties(answer: Callable, generator: Generator) -> Complaint:
    texts = _texts(answer)
    if isinstance(texts, str):
        return texts
    if len(texts[0]) == len(texts[1]) and torch.equal(texts[0], texts[1]):
        return "your two texts are the same one"
    gap = _largest_gap(texts, 1, generator)
    if gap < 1e-10:
        return None
    why = "the last tokens are not the same" if texts[0][-1] != texts[1][-1] else "the bags before them differ"
    return f"with one layer the last rows already differ, by {gap:.1g}: {why}"


def _two_layers_tell(answer: Callable, generator: Generator) -> Complaint:
    texts = _texts(answer)
    if isinstance(texts, str):
        return texts
    if len(texts[0]) == len(texts[1]) and torch.equal(texts[0], texts[1]):
        return "your two texts are the same one"
    if _largest_gap(texts, 1, generator) >= 1e-10:
        return "comes after the tie with one layer"
    gap = _largest_gap(texts, 2, generator)
    return None if gap > 1e-6 else "two layers tie as well"


TIE_THEN_TELL = Exercise(
    chapter=3,
    title="A counterexample: one layer ties, two do not",
    points=2,
    minutes=8,
    difficulty=2,
    reference=tie_then_tell,
    properties=(
        Property("one layer ties", _one_layer_ties),
        Property("two layers tell them apart", _two_layers_tell),
    ),
    mistakes=(
        Mistake(
            "the same text twice",
            lambda: ([1, 2, 3], [1, 2, 3]),
            "No depth can tell a text from itself. What may differ, if one layer must not notice?",
        ),
        Mistake(
            "the last token changed",
            lambda: ([1, 2, 3], [1, 3, 2]),
            "One layer does know its own token, and the last row is where we compare.",
        ),
        Mistake(
            "another bag",
            lambda: ([1, 1, 2], [1, 2, 2]),
            "One layer sees how many there are of each token. Both texts need the same bag.",
        ),
        Mistake(
            "the same shares, another length",
            lambda: ([1, 2], [1, 1, 2, 2]),
            "Without BOS one layer would tie these. We put BOS in front, and its share tells the length.",
        ),
    ),
    also_right=(lambda: ((9, 8, 7, 7, 1), (7, 9, 8, 7, 1)), lambda: (torch.tensor([1, 2, 1]), torch.tensor([2, 1, 1]))),
    learned="One causal layer sees its own token and the bag before it. The second sees a bag of rows that each carry "
    "their own past, and that bag has an order in it.",
)

# --- 3.4 masked_attention


def masked_attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    return attention(queries, keys, values, mask)


def _masked_attention_with_nan_removed(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = (queries @ keys.mT / queries.shape[-1] ** 0.5).masked_fill(~mask, -math.inf)
    return torch.nan_to_num(scores.softmax(dim=-1)) @ values


def _masked_attention_by_exponentials(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = (queries @ keys.mT / queries.shape[-1] ** 0.5).masked_fill(~mask, -1e300)
    weights = (scores - scores.amax(dim=-1, keepdim=True)).exp() * mask
    total = weights.sum(dim=-1, keepdim=True)
    return weights / total.where(total > 0, torch.ones_like(total)) @ values


def _with_weights(weights_of: Callable[[Tensor, Tensor], Tensor]) -> Callable:
    def wrong(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        return weights_of(queries @ keys.mT / queries.shape[-1] ** 0.5, mask) @ values

    return wrong


def _blocked(scores: Tensor, mask: Tensor, value: float) -> Tensor:
    return scores.masked_fill(~mask, value)


def _rescaled(scores: Tensor, mask: Tensor) -> Tensor:
    weights = scores.softmax(dim=-1) * mask
    return weights / weights.sum(dim=-1, keepdim=True)


def _tril(n_queries: int, n_keys: int) -> Tensor:
    return causal_mask(n_queries, n_keys)


def _attention_case(name: str, *batch: int, n_queries: int = 5, n_keys: int = 5, mask: Tensor | None = None):
    return drawn(
        name,
        lambda g: (
            normal(g, *batch, n_queries, 4),
            normal(g, *batch, n_keys, 4),
            normal(g, *batch, n_keys, 3),
            _tril(n_queries, n_keys) if mask is None else mask,
        ),
    )


def _huge_blocked_score(g: Generator) -> tuple:
    queries = normal(g, 3, 4).abs() + 0.5
    keys, values = normal(g, 3, 4), normal(g, 3, 2)
    keys[2] = 1000.0  # the last key would win everywhere, and only the last query may see it
    return queries, keys, values, _tril(3, 3)


def _allowed_scores_far_below_zero(g: Generator) -> tuple:
    """All scores are near -1200, blocked and allowed alike: a constant such as -100 would win."""
    queries = torch.full((4, 4), -30.0, dtype=torch.float64)
    keys = 20.0 + normal(g, 4, 4) / 10
    return queries, keys, normal(g, 4, 3), _tril(4, 4)


def _gradient_is_finite(answer: Callable, g: Generator) -> Complaint:
    queries, keys, values = (normal(g, 3, 4).requires_grad_() for _ in range(3))
    mask = torch.tensor([[False, False, False], [True, False, False], [True, True, False]])
    output = answer(queries, keys, values, mask)
    if not isinstance(output, Tensor) or not output.requires_grad:
        return "the result must carry a gradient: stay with tensor operations"
    output.square().sum().backward()
    grads = {"queries": queries.grad, "keys": keys.grad, "values": values.grad}
    bad = [name for name, grad in grads.items() if grad is None or not grad.isfinite().all()]
    return f"with a query that may see nothing, the gradient of {' and '.join(bad)} is NaN" if bad else None


def _blocked_keys_do_not_matter(answer: Callable, g: Generator) -> Complaint:
    queries, keys, values = normal(g, 4, 4), normal(g, 6, 4), normal(g, 6, 3)
    mask = torch.tensor([True, True, False, True, False, False]).expand(4, 6)
    other_keys, other_values = keys.clone(), values.clone()
    other_keys[[2, 4, 5]], other_values[[2, 4, 5]] = 5 * normal(g, 3, 4), 5 * normal(g, 3, 3)
    a = as_tensor(answer(queries, keys, values, mask.clone()))
    b = as_tensor(answer(queries, other_keys, other_values, mask.clone()))
    complaint = compare(b, a)
    return f"other keys and values where the mask blocks changed the result: {complaint}" if complaint else None


MASKED_ATTENTION = Exercise(
    chapter=3,
    title="Stop the leak",
    points=3,
    minutes=12,
    difficulty=3,
    reference=masked_attention,
    cases=(
        _attention_case("causal"),
        _attention_case("batch and heads", 2, 3),
        _attention_case("fewer queries than keys", n_queries=2, n_keys=6),
        _attention_case("everything allowed", mask=torch.ones(5, 5, dtype=torch.bool)),
        _attention_case(
            "a query that may see nothing",
            n_queries=2,
            n_keys=3,
            mask=torch.tensor([[False, False, False], [True, False, True]]),
        ),
        drawn("a huge score is blocked", _huge_blocked_score),
        drawn("allowed scores far below zero", _allowed_scores_far_below_zero),
    ),
    properties=(
        Property("blocked keys and values do not matter", _blocked_keys_do_not_matter),
        Property("the gradient is finite", _gradient_is_finite),
    ),
    mistakes=(
        Mistake(
            "masked after the softmax",
            _with_weights(lambda scores, mask: scores.softmax(dim=-1) * mask),
            "The blocked weights are gone, but the denominator has already counted them: your rows do not sum to 1.",
        ),
        Mistake(
            "masked after the softmax and rescaled",
            _with_weights(_rescaled),
            "Right on paper. When a blocked score is huge, all the rest underflows to 0, and 0/0 is NaN. Mask first.",
        ),
        Mistake(
            "scores times the mask",
            _with_weights(lambda scores, mask: (scores * mask).softmax(dim=-1)),
            "A score of 0 is not blocked: its exponential is 1. Which score has the exponential 0?",
        ),
        Mistake(
            "the mask added as 0 and 1",
            _with_weights(lambda scores, mask: (scores + mask).softmax(dim=-1)),
            "Adding 1 to the allowed scores blocks nothing. What must be added to the blocked ones?",
        ),
        Mistake(
            "NaN where nothing is allowed",
            _with_weights(lambda scores, mask: _blocked(scores, mask, -math.inf).softmax(dim=-1)),
            "Nearly. A query that may see nothing gives 0/0. It should give zeros.",
        ),
        Mistake(
            "an average where nothing is allowed",
            _with_weights(lambda scores, mask: _blocked(scores, mask, torch.finfo(scores.dtype).min).softmax(dim=-1)),
            "Nearly. A query that may see nothing now averages over all that is forbidden. It should give zeros.",
        ),
        Mistake(
            "not low enough",
            _with_weights(lambda scores, mask: _blocked(scores, mask, -100.0).softmax(dim=-1) * mask),
            "An allowed score may lie far below -100, and then the blocked ones take all the weight. Go lower.",
        ),
        Mistake(
            "exp without its maximum",
            _with_weights(
                lambda scores, mask: scores.exp() * mask / (scores.exp() * mask).sum(-1, keepdim=True).clamp(min=1e-300)
            ),
            "Right on paper. exp(1000) is infinite, and infinity times 0 is NaN. Let `softmax` do it, after the mask.",
        ),
        Mistake(
            "the softmax down the columns",
            _with_weights(lambda scores, mask: _blocked(scores, mask, -1e300).softmax(dim=-2) * mask),
            "Each *query's* weights must sum to 1: the softmax runs over the keys, the last axis.",
        ),
        Mistake(
            "the mask turned round",
            _with_weights(lambda scores, mask: masked_softmax(scores, ~mask)),
            "You block where the mask is True. Here True means allowed.",
        ),
        Mistake(
            "scores not scaled",
            lambda queries, keys, values, mask: masked_softmax(queries @ keys.mT, mask) @ values,
            "The mask is right. The scores must be divided by the square root of head_dim.",
        ),
    ),
    also_right=(_masked_attention_with_nan_removed, _masked_attention_by_exponentials),
    learned="Mask before the softmax, so that the denominator never sees a blocked key; and set rows without any key "
    "to zero.",
)

# --- 3.5 packed_mask


def packed_mask(documents: Tensor) -> Tensor:
    places = torch.arange(documents.shape[-1])
    same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
    real = documents != 0
    return same & causal(places, places) & real.unsqueeze(-2)


def _packed_mask_by_loop(documents: Tensor) -> Tensor:
    rows = documents.reshape(-1, documents.shape[-1]).tolist()
    masks = [[[q != 0 and q == k and j <= i for j, k in enumerate(row)] for i, q in enumerate(row)] for row in rows]
    return torch.tensor(masks).reshape(*documents.shape, documents.shape[-1])


def _same(documents: Tensor) -> Tensor:
    return documents.unsqueeze(-1) == documents.unsqueeze(-2)


def _lower(documents: Tensor) -> Tensor:
    return _tril(documents.shape[-1], documents.shape[-1])


def _runs(documents: Tensor) -> Tensor:
    """Runs of equal numbers, counted from 1; padding stays 0."""
    starts = torch.ones_like(documents)
    starts[..., 1:] = (documents[..., 1:] != documents[..., :-1]).long()
    return starts.cumsum(dim=-1) * (documents != 0)


PACKED_MASK = Exercise(
    chapter=3,
    title="Several documents in one row",
    points=2,
    minutes=8,
    difficulty=2,
    reference=packed_mask,
    cases=(
        with_arguments("two documents", torch.tensor([1, 1, 1, 2, 2])),
        with_arguments("numbers in any order", torch.tensor([5, 5, 2, 2, 2, 9])),
        with_arguments("padding at the end", torch.tensor([1, 1, 2, 2, 0, 0])),
        with_arguments("padding in front", torch.tensor([0, 0, 3, 3, 1])),
        with_arguments("a batch", torch.tensor([[1, 1, 2, 2], [1, 2, 3, 0]])),
        with_arguments("one document", torch.tensor([4, 4, 4])),
        with_arguments("a document goes on later", torch.tensor([7, 4, 7, 7, 4])),
    ),
    mistakes=(
        Mistake(
            "not causal",
            lambda documents: _same(documents) & (documents != 0).unsqueeze(-2),
            "Within its document, a token now sees what comes after it.",
        ),
        Mistake(
            "padding sees padding",
            lambda documents: _same(documents) & _lower(documents),
            "0 is not a document. Padding must not be seen, not even by other padding.",
        ),
        Mistake(
            "runs in place of names",
            lambda documents: packed_mask(_runs(documents)),
            "You compare runs. A document may be interrupted by another and go on: the same number, the same document.",
        ),
        Mistake(
            "padding sees itself",
            lambda documents: packed_mask(documents) | torch.eye(documents.shape[-1], dtype=torch.bool),
            "Padding sees nothing at all, not even itself.",
        ),
        Mistake(
            "documents not kept apart",
            lambda documents: _lower(documents) & (documents != 0).unsqueeze(-2) & (documents != 0).unsqueeze(-1),
            "The second document still sees the first. When do two places belong together?",
        ),
        Mistake(
            "later documents see earlier ones",
            lambda documents: (
                (documents.unsqueeze(-1) >= documents.unsqueeze(-2))
                & _lower(documents)
                & (documents != 0).unsqueeze(-2)
                & (documents != 0).unsqueeze(-1)
            ),
            "Document numbers have no order here: they are names. Ask whether two of them are equal.",
        ),
        Mistake(
            "True blocks",
            lambda documents: ~packed_mask(documents),
            "Your mask is the right one turned round. Here True means that the query may see the key.",
        ),
        Mistake(
            "a token does not see itself",
            lambda documents: packed_mask(documents) & ~torch.eye(documents.shape[-1], dtype=torch.bool),
            "A token sees itself too: causal includes the diagonal.",
        ),
    ),
    also_right=(
        _packed_mask_by_loop,
        lambda documents: _same(documents) & _lower(documents) & (documents != 0).unsqueeze(-1),
    ),
    learned="Masks combine by `&`. Packing saves places, and one comparison keeps the documents strangers.",
)

# --- 3.6 left_padded


def left_padded(real: Tensor) -> tuple[Tensor, Tensor]:
    places = torch.arange(real.shape[-1])
    mask = causal(places, places) & real.unsqueeze(-2)
    return mask, (real.long().cumsum(dim=-1) - 1).clamp(min=0)


def _left_padded_by_loop(real: Tensor) -> tuple[Tensor, Tensor]:
    batch, n = real.shape
    mask, positions = torch.zeros(batch, n, n, dtype=torch.bool), torch.zeros(batch, n, dtype=torch.long)
    for b in range(batch):
        first = real[b].tolist().index(True)
        for query in range(n):
            positions[b, query] = max(0, query - first)
            mask[b, query, first : query + 1] = True
    return mask, positions


def _left(*lengths: int, n: int) -> Tensor:
    return torch.tensor([[place >= n - length for place in range(n)] for length in lengths])


def _positions(real: Tensor) -> Tensor:
    return left_padded(real)[1]


def _padded_text_reads_like_the_text_alone(answer: Callable, g: Generator) -> Complaint:
    tokens = torch.randint(1, 9, (1, 4), generator=g)
    real = _left(4, n=7)
    mask, positions = answer(real)
    padded = torch.cat([torch.zeros(1, 3, dtype=torch.long), tokens], dim=1)
    settings = {"vocabulary": 9, "d_model": 8, "n_layers": 2, "n_heads": 2, "n_outputs": 4}
    alone = build(0, **settings, encoding=Together(Causal(), Sinusoidal())).double()(tokens)
    given = Given(as_tensor(mask).unsqueeze(1))  # an axis of 1 for the heads
    model = build(0, **settings, encoding=Together(Sinusoidal(), given)).double()
    gap = difference(model(padded, as_tensor(positions).long())[:, -1], alone[:, -1])
    return None if gap < 1e-4 else f"the last row of a model with sinusoids changed by {gap:.2g}"


LEFT_PADDED = Exercise(
    chapter=3,
    title="Left padding that changes nothing",
    points=3,
    minutes=12,
    difficulty=3,
    reference=left_padded,
    cases=(
        with_arguments("no padding", _left(4, n=4)),
        with_arguments("two places of padding", _left(3, n=5)),
        with_arguments("a batch of three lengths", _left(1, 5, 3, n=5)),
        with_arguments("one real token", _left(1, n=4)),
    ),
    properties=(Property("a padded text reads like the text alone", _padded_text_reads_like_the_text_alone),),
    mistakes=(
        Mistake(
            "positions count the padding",
            lambda real: (left_padded(real)[0], torch.arange(real.shape[-1]).expand(real.shape)),
            "The mask is right. Your positions start at the padding, so the same text has other positions.",
        ),
        Mistake(
            "positions counted from 1",
            lambda real: (left_padded(real)[0], real.long().cumsum(dim=-1)),
            "The mask is right. The first real token has position 0.",
        ),
        Mistake(
            "negative positions",
            lambda real: (left_padded(real)[0], real.long().cumsum(dim=-1) - 1),
            "Right for the real tokens. The padding gets -1, which picks the last row of a learned table: use 0.",
        ),
        Mistake(
            "padding can be seen",
            lambda real: (_tril(*(2 * [real.shape[-1]])).expand(*real.shape, real.shape[-1]), _positions(real)),
            "The positions are right. Your mask is causal only: real tokens still see the padding before them.",
        ),
        Mistake(
            "not causal",
            lambda real: (real.unsqueeze(-2).expand(*real.shape, real.shape[-1]), _positions(real)),
            "The positions are right. Your mask hides the padding, but lets tokens see what comes after them.",
        ),
        Mistake(
            "the padding's rows blocked, not its columns",
            lambda real: (_tril(*(2 * [real.shape[-1]])) & real.unsqueeze(-1), _positions(real)),
            "You took away what the padding sees. It matters who sees the padding: block columns, not rows.",
        ),
        Mistake(
            "True blocks",
            lambda real: (~left_padded(real)[0], _positions(real)),
            "The positions are right, the mask is turned round. Here True means that the query may see the key.",
        ),
    ),
    also_right=(_left_padded_by_loop,),
    learned="Padding needs two things: a mask, and positions that count from the first real token. Relative schemes "
    "forgive the second, absolute ones do not.",
)

# --- 3.7 receptive_field


def receptive_field(windows: list[int | None], position: int) -> int:
    before = position + 1
    if None in windows:
        return before
    return min(before, 1 + sum(window - 1 for window in windows))


def _receptive_field_by_walking(windows: list[int | None], position: int) -> int:
    first = position
    for window in reversed(windows):
        first = 0 if window is None else max(0, first - (window - 1))
    return position - first + 1


def _whole(windows: list[int | None]) -> list[int]:
    return [window for window in windows if window is not None]


def _clipped(field: int, windows: list[int | None], position: int) -> int:
    return position + 1 if None in windows else min(position + 1, field)


def _random_windows(g: Generator) -> tuple:
    return torch.randint(1, 9, (6,), generator=g).tolist(), 200


RECEPTIVE_FIELD = Exercise(
    chapter=3,
    title="How far back does the stack see?",
    points=2,
    minutes=8,
    difficulty=2,
    reference=receptive_field,
    cases=(
        with_arguments("one layer", [4], 20),
        with_arguments("four layers", [4, 4, 4, 4], 100),
        with_arguments("close to the start", [4, 4, 4, 4], 5),
        with_arguments("windows of different width", [3, 5, 2], 50),
        with_arguments("one layer sees everything", [4, None, 4], 50),
        with_arguments("windows of 1", [1, 1, 1], 9),
        with_arguments("32 layers of 4096", [4096] * 32, 200_000),
        with_arguments("no attention at all", [], 7),
        drawn("six windows", _random_windows),
    ),
    mistakes=(
        Mistake(
            "the windows added up",
            lambda windows, position: _clipped(sum(_whole(windows)), windows, position),
            "A window of w holds the token itself. How many *new* tokens does each layer add?",
        ),
        Mistake(
            "the token itself forgotten",
            lambda windows, position: _clipped(sum(w - 1 for w in _whole(windows)), windows, position),
            "You count how far back it reaches. The token where we read counts as well.",
        ),
        Mistake(
            "the start of the text forgotten",
            lambda windows, position: position + 1 if None in windows else 1 + sum(w - 1 for w in windows),
            "Close to the start there are fewer tokens than that: position p has p tokens before it.",
        ),
        Mistake(
            "the largest window",
            lambda windows, position: _clipped(max(_whole(windows), default=1), windows, position),
            "That is what one layer sees. The layer above sees rows that have themselves seen further back.",
        ),
        Mistake(
            "the windows multiplied",
            lambda windows, position: _clipped(math.prod(_whole(windows)), windows, position),
            "Two windows of 4 do not see 16 tokens. From the oldest row in sight, how far does the next layer look?",
        ),
        Mistake(
            "the full layer left out",
            lambda windows, position: min(position + 1, 1 + sum(w - 1 for w in _whole(windows))),
            "None means that a layer sees everything before. What reaches the last row then?",
        ),
        Mistake(
            "position in place of its count",
            lambda windows, position: (
                position if None in windows else min(position, 1 + sum(w - 1 for w in _whole(windows)))
            ),
            "Positions count from 0: at position p there are p + 1 tokens, itself included.",
        ),
    ),
    also_right=(_receptive_field_by_walking,),
    learned="Windows add up with depth: 1 + sum of (w - 1). This says what *can* matter, not how much it does.",
)

# --- 3.8 previous_token_weights


def previous_token_weights(shares: Tensor, sharpness: float) -> Tensor:
    places = 1 / shares - 1
    scores = -sharpness * (places.unsqueeze(-1) - 1 - places.unsqueeze(-2)) ** 2
    return masked_softmax(scores, _tril(len(shares), len(shares)))


def _by_queries_and_keys(shares: Tensor, sharpness: float) -> Tensor:
    places = 1 / shares - 1
    queries = torch.stack([2 * (places - 1), torch.ones_like(places)], dim=-1)
    keys = sharpness * torch.stack([places, -(places**2)], dim=-1)
    return masked_softmax(queries @ keys.mT, _tril(len(shares), len(shares)))


def _by_loop(shares: Tensor, sharpness: float) -> Tensor:
    places = 1 / shares  # one too high, and only differences count
    weights = torch.zeros(len(shares), len(shares), dtype=shares.dtype)
    for i in range(len(shares)):
        weights[i, : i + 1] = (-sharpness * (places[i] - places[: i + 1] - 1) ** 2).softmax(dim=-1)
    return weights


def _scored(score: Callable[[Tensor, Tensor], Tensor], is_causal: bool = True) -> Callable:
    """Weights from another score of (place of the query, place of the key)."""

    def wrong(shares: Tensor, sharpness: float) -> Tensor:
        places = 1 / shares - 1
        scores = sharpness * score(places.unsqueeze(-1), places.unsqueeze(-2))
        return masked_softmax(scores, _tril(len(shares), len(shares)) if is_causal else None)

    return wrong


def _with_row_numbers(shares: Tensor, sharpness: float) -> Tensor:
    return previous_token_weights(1 / torch.arange(1, len(shares) + 1, dtype=shares.dtype), sharpness)


def _with_shares_as_places(shares: Tensor, sharpness: float) -> Tensor:
    scores = -sharpness * (shares.unsqueeze(-1) - 1 - shares.unsqueeze(-2)) ** 2
    return masked_softmax(scores, _tril(len(shares), len(shares)))


def _masked_distance_scores(shares: Tensor, sharpness: float, fill: float) -> Tensor:
    places = 1 / shares - 1
    scores = -sharpness * (places.unsqueeze(-1) - 1 - places.unsqueeze(-2)) ** 2
    return scores.masked_fill(~_tril(len(shares), len(shares)), fill)


def _blocked_weakly(shares: Tensor, sharpness: float) -> Tensor:
    return _masked_distance_scores(shares, sharpness, -100.0).softmax(dim=-1)


def _masked_after(shares: Tensor, sharpness: float) -> Tensor:
    places = 1 / shares - 1
    scores = -sharpness * (places.unsqueeze(-1) - 1 - places.unsqueeze(-2)) ** 2
    return scores.softmax(dim=-1) * _tril(len(shares), len(shares))


def _clock(*places: int) -> Tensor:
    return 1 / (torch.tensor(places, dtype=torch.float64) + 1)


def _neighbour_wins(answer: Callable, _: Generator) -> Complaint:
    weights = as_tensor(answer(_clock(*range(100)), 10.0))
    least = weights.diagonal(-1).min().item()
    return None if least > 0.999 else f"some token of 100 gives its neighbour a weight of only {least:.3f}"


PREVIOUS_TOKEN_WEIGHTS = Exercise(
    chapter=3,
    title="A previous-token head without positions",
    points=4,
    minutes=20,
    difficulty=3,
    reference=previous_token_weights,
    cases=(
        with_arguments("eight tokens", _clock(*range(8)), 10.0),
        with_arguments("a softer head", _clock(*range(8)), 0.3),
        with_arguments("rows are missing", _clock(0, 2, 3, 7, 8), 1.0),
        with_arguments("a text's later part", _clock(*range(40, 52)), 5.0),
        with_arguments("sharpness 0: uniform", _clock(*range(5)), 0.0),
        with_arguments("one token", _clock(0), 3.0),
        with_arguments("very sharp", _clock(*range(6)), 1000.0),
    ),
    properties=(Property("100 tokens, each looks at its neighbour", _neighbour_wins),),
    mistakes=(
        Mistake(
            "looking at itself",
            _scored(lambda query, key: -((query - key) ** 2)),
            "Your score is largest where query and key have the same place. The one before is one step away.",
        ),
        Mistake(
            "looking one ahead",
            _scored(lambda query, key: -((query + 1 - key) ** 2)),
            "Your score is largest at the token *after*, which the mask hides. Check the sign of the 1.",
        ),
        Mistake(
            "no mask",
            _scored(lambda query, key: -((query - 1 - key) ** 2), is_causal=False),
            "Tokens see what comes after them: your weights above the diagonal are not 0.",
        ),
        Mistake(
            "not squared",
            _scored(lambda query, key: -((query - 1 - key).abs())),
            "The absolute value is no sum of products of a query number and a key number. Square the distance.",
        ),
        Mistake(
            "masked after the softmax",
            _masked_after,
            "The blocked rows have taken their share of the softmax first: your rows do not sum to 1.",
        ),
        Mistake(
            "not low enough",
            _blocked_weakly,
            "An allowed score can be far lower than your constant, and then a blocked row wins. Go lower.",
        ),
        Mistake(
            "the softmax down the columns",
            lambda shares, sharpness: _masked_distance_scores(shares, sharpness, -1e300).softmax(dim=0),
            "Each *query's* weights must sum to 1: the softmax runs along a row.",
        ),
        Mistake(
            "no square",
            _scored(lambda query, key: -(query - 1 - key)),
            "Without the square, the score has no largest place at the neighbour: it just goes on growing.",
        ),
        Mistake(
            "the sign turned round",
            _scored(lambda query, key: (query - 1 - key) ** 2),
            "You reward distance. The nearer a key is to the wanted place, the larger its score.",
        ),
        Mistake(
            "row numbers in place of the clock",
            _with_row_numbers,
            "You numbered the rows yourself. The head must read the places from the shares: rows may be missing.",
        ),
        Mistake(
            "shares in place of places",
            _with_shares_as_places,
            "Neighbouring shares are not one apart. Turn each share into a place first.",
        ),
    ),
    also_right=(_by_queries_and_keys, _by_loop),
    learned="Layer 1 writes the clock, a row-wise function reads it, layer 2 scores by it: a relative head made of "
    "nothing but a mask and a BOS. It is the first half of an induction head.",
)

EXERCISES = (
    CAUSAL_MASK,
    POSITION_FROM_SHARE,
    TIE_THEN_TELL,
    MASKED_ATTENTION,
    PACKED_MASK,
    LEFT_PADDED,
    RECEPTIVE_FIELD,
    PREVIOUS_TOKEN_WEIGHTS,
)
