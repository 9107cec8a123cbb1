"""Exercises of chapter 1: a set, not a sequence."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import torch
from torch import Generator, Tensor

from posenc import symmetry
from posenc.attention import attention
from posenc.checks.common import all_but, dtype_complaint, right_predictions
from posenc.checks.compare import as_tensor, compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments

# --- 1.1 shuffle_rows


def shuffle_rows(x: Tensor, permutation: Tensor) -> Tensor:
    return x[..., permutation, :]


def _shuffle_by_matrix(x: Tensor, permutation: Tensor) -> Tensor:
    return torch.eye(x.shape[-2], dtype=x.dtype)[permutation] @ x


def _shuffle_by_loop(x: Tensor, permutation: Tensor) -> Tensor:
    return torch.stack([x[..., i, :] for i in permutation.tolist()], dim=-2)


def _keeps_dtype(shuffle: Callable, generator: Generator) -> Complaint:
    x = normal(generator, 4, 2)
    for dtype in (torch.float32, torch.float64, torch.int64):
        if complaint := dtype_complaint(shuffle(x.to(dtype), torch.tensor([3, 0, 2, 1])), dtype):
            return complaint
    return None


def _drawn_shuffle(name: str, *shape: int):
    return drawn(name, lambda g: (normal(g, *shape), symmetry.random_permutation(shape[-2], g)))


SHUFFLE_ROWS = Exercise(
    chapter=1,
    title="Shuffle the rows",
    points=1,
    minutes=3,
    difficulty=1,
    reference=shuffle_rows,
    cases=(
        with_arguments("three tiles", torch.tensor([[1.0, 10.0], [2, 20], [3, 30]]), torch.tensor([1, 2, 0])),
        _drawn_shuffle("one sequence", 5, 3),
        _drawn_shuffle("a square one", 4, 4),
        _drawn_shuffle("a batch of three", 3, 3, 3),
        _drawn_shuffle("batch and heads", 2, 6, 6, 4),
    ),
    properties=(Property("keeps the dtype", _keeps_dtype),),
    mistakes=(
        Mistake(
            "the inverse permutation",
            lambda x, permutation: x[..., permutation.argsort(), :],
            "You sent row i to place permutation[i]. Here, place i receives row permutation[i].",
        ),
        Mistake(
            "the first axis",
            lambda x, permutation: x[permutation],
            "With a batch in front, the rows are no longer axis 0. Count from the back: rows are axis -2.",
        ),
        Mistake(
            "the columns",
            lambda x, permutation: x[..., permutation],
            "You reordered the features inside each row. The rows are the axis before the last.",
        ),
    ),
    also_right=(_shuffle_by_matrix, _shuffle_by_loop),
    learned="P X is plain indexing: no matrix is needed. Counting axes from the back keeps it right for any batch.",
)

# --- 1.2 log10_orders


def log10_orders(tokens: list) -> float:
    log_factorials = [math.lgamma(count + 1) for count in Counter(tokens).values()]
    return (math.lgamma(len(tokens) + 1) - sum(log_factorials)) / math.log(10)


def _log10_orders_exactly(tokens: list) -> float:
    orders = math.factorial(len(tokens))
    for count in Counter(tokens).values():
        orders //= math.factorial(count)
    return math.log10(orders)


def _random_letters(generator: Generator) -> tuple:
    return (["abcdefg"[i] for i in torch.randint(7, (40,), generator=generator)],)


LOG10_ORDERS = Exercise(
    chapter=1,
    title="Count the orders",
    points=1,
    minutes=5,
    difficulty=2,
    reference=log10_orders,
    cases=(
        with_arguments("banana", list("banana")),
        with_arguments("three tiles", ["D", "O", "G"]),
        with_arguments("512 different tokens", list(range(512))),
        drawn("forty letters", _random_letters),
        with_arguments("one token four times", [7, 7, 7, 7]),
    ),
    mistakes=(
        Mistake(
            "every token different",
            lambda tokens: math.lgamma(len(tokens) + 1) / math.log(10),
            "Swapping the two n of *banana* gives *banana* again. Divide by the orders that look the same.",
        ),
        Mistake(
            "natural logarithm",
            lambda tokens: log10_orders(tokens) * math.log(10),
            "That is the logarithm to base e. The question asks for base 10: divide by log(10).",
        ),
        Mistake(
            "orders of the distinct tokens",
            lambda tokens: math.lgamma(len(set(tokens)) + 1) / math.log(10),
            "You threw the repeats away first. They still take up places in the sequence.",
        ),
        Mistake(
            "(n - 1)! for n!",
            lambda tokens: (
                (math.lgamma(len(tokens)) - sum(math.lgamma(count) for count in Counter(tokens).values()))
                / math.log(10)
            ),
            "lgamma(n) is the logarithm of (n - 1)!. For n! you need lgamma(n + 1), above and below.",
        ),
        Mistake(
            "the number, not its logarithm",
            lambda tokens: (
                math.factorial(len(tokens)) // math.prod(math.factorial(count) for count in Counter(tokens).values())
            ),
            "That is the count. Return its logarithm to base 10, so that 512 tokens fit into a float.",
        ),
    ),
    also_right=(_log10_orders_exactly,),
    learned="A set model gives all n! / (m1! m2! ...) orders of a sentence the same bag of output rows.",
)

# --- 1.3 what_commutes

LAYERS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "feed-forward on each row": (lambda x: torch.tanh(x @ x.new_ones(x.shape[-1], x.shape[-1]).triu()), True),
    "layer norm over the features of each row": (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), True),
    "batch norm over all rows, training mode": (
        lambda x: torch.nn.functional.batch_norm(x.flatten(0, -2), None, None, training=True).view_as(x),
        True,
    ),
    "subtract the mean row from every row": (lambda x: x - x.mean(dim=-2, keepdim=True), True),
    "attention with the softmax down the columns": (lambda x: (x @ x.mT).softmax(dim=-2) @ x, True),
    "dropout with the same mask both times": (lambda x: _fixed_dropout(x), False),
    "sort each feature's column": (lambda x: x.sort(dim=-2).values, False),
    "running sum down the rows": (lambda x: x.cumsum(dim=-2), False),
}
"""Name to (the layer, whether permuting its input rows permutes its output rows). A test measures each."""


def _fixed_dropout(x: Tensor) -> Tensor:
    keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) > 0.5
    return 2 * x * keep


def what_commutes() -> dict:
    return {name: truth for name, (_, truth) in LAYERS.items()}


TRUTH = what_commutes()
ADVICE = "Measure it with the next exercise"

WHAT_COMMUTES = Exercise(
    chapter=1,
    title="Predict: what commutes?",
    points=2,
    minutes=5,
    difficulty=2,
    reference=what_commutes,
    properties=(
        Property("at least six predictions", right_predictions(TRUTH, 6, ADVICE)),
        Property("all eight predictions", right_predictions(TRUTH, 8, ADVICE)),
    ),
    mistakes=(
        Mistake(
            "only row-wise layers commute",
            all_but(
                TRUTH,
                "batch norm over all rows, training mode",
                "subtract the mean row from every row",
                "attention with the softmax down the columns",
            ),
            "Row-wise is enough, but not needed. A sum over all rows does not care about their order either.",
        ),
        Mistake(
            "batch norm does not commute",
            all_but(TRUTH, "batch norm over all rows, training mode"),
            "Its mean and variance are sums over all rows. What does a sum do when its terms change places?",
        ),
        Mistake(
            "column softmax does not commute",
            all_but(TRUTH, "attention with the softmax down the columns"),
            "Unusual is not the same as broken. Rows and columns of the score matrix move together: follow one entry.",
        ),
        Mistake(
            "fixed dropout commutes",
            all_but(TRUTH, "dropout with the same mask both times"),
            "The mask sits still while the rows move below it: row 0 loses other features than row 1.",
        ),
        Mistake(
            "sorting commutes",
            all_but(TRUTH, "sort each feature's column"),
            "Sorting gives the same output for every order. Equivariance asks for an output that moves along.",
        ),
    ),
    learned="A layer commutes if it treats all rows alike: row by row, or through a sum over all of them. "
    "Whatever is tied to a place does not.",
)

# --- 1.4 equivariance_error


def equivariance_error(layer: Callable, x: Tensor, permutation: Tensor) -> float:
    return symmetry.equivariance_error(layer, x, permutation)


def _error_by_rows(layer: Callable, x: Tensor, permutation: Tensor) -> float:
    before, after = layer(x), layer(x[..., permutation, :])
    rows = enumerate(permutation.tolist())
    return max((after[..., new, :] - before[..., old, :]).abs().max().item() for new, old in rows)


def _plain_attention(x: Tensor) -> Tensor:
    return attention(x, x, x)


def _with_row_numbers(x: Tensor) -> Tensor:
    rows = torch.arange(x.shape[-2], dtype=x.dtype).unsqueeze(-1)
    return x + rows


def _one_sided(x: Tensor) -> Tensor:
    """Only row 0 is treated in a way of its own, and downwards: signed differences have one sign there."""
    return torch.cat([x[..., :1, :] - 5, x[..., 1:, :]], dim=-2)


def _layer_case(name: str, layer: Callable, *shape: int):
    # A cycle through all rows is never its own inverse for n > 2, so the two directions differ.
    return drawn(name, lambda g: (layer, normal(g, *shape), torch.arange(shape[-2]).roll(1)))


EQUIVARIANCE_ERROR = Exercise(
    chapter=1,
    title="Write the test",
    points=1,
    minutes=5,
    difficulty=2,
    reference=equivariance_error,
    cases=(
        _layer_case("attention: nearly 0", _plain_attention, 5, 4),
        _layer_case("running sum: far from 0", lambda x: x.cumsum(dim=-2), 5, 4),
        _layer_case("row numbers added", _with_row_numbers, 6, 3),
        _layer_case("only row 0 differs", _one_sided, 5, 2),
        _layer_case("a batch", LAYERS["sort each feature's column"][0], 3, 4, 2),
    ),
    mistakes=(
        Mistake(
            "invariance in place of equivariance",
            lambda layer, x, permutation: symmetry.invariance_error(layer, x, permutation),
            "You compared layer(P x) with layer(x). The output should move along: compare with P layer(x).",
        ),
        Mistake(
            "the output moved the other way",
            lambda layer, x, permutation: symmetry.difference(
                layer(x[..., permutation, :]), layer(x)[..., permutation.argsort(), :]
            ),
            "Move the output with the same permutation as the input, not with its inverse.",
        ),
        Mistake(
            "no absolute value",
            lambda layer, x, permutation: (layer(x[..., permutation, :]) - layer(x)[..., permutation, :]).max().item(),
            "A large negative difference is also an error. Take the absolute value before the maximum.",
        ),
        Mistake(
            "the mean in place of the largest",
            lambda layer, x, permutation: (
                (layer(x[..., permutation, :]) - layer(x)[..., permutation, :]).abs().mean().item()
            ),
            "One wrong row among thousands nearly vanishes in a mean. Return the largest difference.",
        ),
        Mistake(
            "the input not moved",
            lambda layer, x, permutation: symmetry.difference(layer(x), layer(x)[..., permutation, :]),
            "Both of your sides start from x. One of them must start from the reordered x.",
        ),
        Mistake(
            "the sum in place of the largest",
            lambda layer, x, permutation: (
                (layer(x[..., permutation, :]) - layer(x)[..., permutation, :]).abs().sum().item()
            ),
            "A sum grows with the number of rows, so it cannot be compared between inputs. Return the largest.",
        ),
        Mistake(
            "the Euclidean norm",
            lambda layer, x, permutation: (layer(x[..., permutation, :]) - layer(x)[..., permutation, :]).norm().item(),
            "The norm adds up all entries. Return the largest absolute difference.",
        ),
        Mistake(
            "the first axis",
            lambda layer, x, permutation: symmetry.difference(layer(x[permutation]), layer(x)[permutation]),
            "With a batch in front, the rows are no longer axis 0. Count from the back: rows are axis -2.",
        ),
        Mistake(
            "yes or no",
            lambda layer, x, permutation: torch.allclose(layer(x[..., permutation, :]), layer(x)[..., permutation, :]),
            "Return the size of the error, a number: it tells rounding (1e-15) from a real difference (1).",
        ),
    ),
    also_right=(_error_by_rows,),
    learned="A symmetry is a measurement. You can now test any layer of any library in two forward passes.",
)

# --- 1.5 same_pair_other_weight


def same_pair_other_weight() -> tuple[Tensor, Tensor]:
    pair = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    quiet, loud = torch.tensor([[0.0, 0.0]]), torch.tensor([[5.0, 0.0]])
    return torch.cat([pair, quiet]), torch.cat([pair, loud])


def _longer_sequence() -> tuple[Tensor, Tensor]:
    pair = torch.eye(2, 3)
    return torch.cat([pair, torch.zeros(1, 3)]), torch.cat([pair, torch.zeros(6, 3)])


def _two_matrices(answer: Callable) -> tuple[Tensor, Tensor] | str:
    pair = answer()
    if isinstance(pair, Tensor) and pair.ndim == 3:
        pair = list(pair)
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        return "return two matrices: `return x, y`"
    try:
        x, y = (as_tensor(m).double() for m in pair)
    except (TypeError, ValueError):
        return "x and y must be made of numbers"
    if x.ndim != 2 or y.ndim != 2 or min(len(x), len(y)) < 2 or x.shape[1] != y.shape[1]:
        return f"x and y need shapes (n, d) and (m, d) with at least 2 rows, got {tuple(x.shape)} and {tuple(y.shape)}"
    if not (x.isfinite().all() and y.isfinite().all()):
        return "x and y must be finite"
    return x, y


def _same_first_two_rows(answer: Callable, _: Generator) -> Complaint:
    pair = _two_matrices(answer)
    if isinstance(pair, str):
        return pair
    return None if torch.equal(pair[0][:2], pair[1][:2]) else "rows 0 and 1 must be the same numbers in x and in y"


def weight_of_the_pair(x: Tensor) -> float:
    """The attention weight of row 0 on row 1, with queries = keys = x. x: (n, d)."""
    return (x @ x.mT / x.shape[-1] ** 0.5).softmax(dim=-1)[0, 1].item()


def _weights_differ(answer: Callable, _: Generator) -> Complaint:
    pair = _two_matrices(answer)
    if isinstance(pair, str):
        return pair
    a, b = (weight_of_the_pair(m) for m in pair)
    if abs(a - b) >= 0.1:
        return None
    return f"the weight of row 0 on row 1 is {a:.3f} in x and {b:.3f} in y; they must differ by 0.1 or more"


SAME_PAIR_OTHER_WEIGHT = Exercise(
    chapter=1,
    title="A counterexample: the same pair, another weight",
    points=2,
    minutes=10,
    difficulty=3,
    reference=same_pair_other_weight,
    properties=(
        Property("rows 0 and 1 are the same in both", _same_first_two_rows),
        Property("the weight of row 0 on row 1 differs", _weights_differ),
    ),
    mistakes=(
        Mistake(
            "nothing changed",
            lambda: (torch.eye(3), torch.eye(3)),
            "x and y are equal, so every weight is equal. Change a row that is not part of the pair.",
        ),
        Mistake(
            "the pair itself changed",
            lambda: (torch.eye(3), 5 * torch.eye(3)),
            "Of course the weight changes if the pair does. Keep rows 0 and 1; change another row.",
        ),
    ),
    also_right=(_longer_sequence,),
    learned="A score belongs to a pair. A weight belongs to the whole set: the softmax's denominator sees every row.",
)

# --- 1.6 symmetrize


def symmetrize(function: Callable, x: Tensor) -> Tensor:
    outputs = [function(x[list(order)]) for order in permutations(range(len(x)))]
    return torch.stack(outputs).mean(dim=0)


def _symmetrize_step_by_step(function: Callable, x: Tensor) -> Tensor:
    total, count = 0, 0
    for order in permutations(range(len(x))):
        total, count = total + function(x[torch.tensor(order)]), count + 1
    return total / count


def _average_of(orders: Callable[[int], list]) -> Callable:
    return lambda function, x: torch.stack([function(x[order]) for order in orders(len(x))]).mean(dim=0)


def _neighbours(x: Tensor) -> Tensor:
    """A function that knows order very well: products of neighbouring rows. (n, d) -> (d,)."""
    return (torch.arange(1, len(x), dtype=x.dtype).unsqueeze(-1) * x[:-1] * x[1:].exp()).sum(dim=0)


def _symmetrized_is_invariant(answer: Callable, generator: Generator) -> Complaint:
    x = normal(generator, 4, 2)
    a, b = (as_tensor(answer(_neighbours, rows)) for rows in (x, x[[2, 0, 3, 1]]))
    return "reordering x changed the result: " + complaint if (complaint := compare(a, b)) else None


SYMMETRIZE = Exercise(
    chapter=1,
    title="Make any function symmetric",
    points=3,
    minutes=12,
    difficulty=3,
    reference=symmetrize,
    cases=(
        drawn("products of neighbours", lambda g: (_neighbours, normal(g, 4, 3))),
        drawn("the first row", lambda g: (lambda x: x[0], normal(g, 5, 2))),
        drawn("a number out", lambda g: (lambda x: (x[0] * x[-1].exp()).sum(), normal(g, 3, 2))),
        drawn("one row", lambda g: (_neighbours, normal(g, 1, 3))),
    ),
    properties=(Property("the order of x does not matter", _symmetrized_is_invariant),),
    mistakes=(
        Mistake(
            "rotations only",
            _average_of(lambda n: [[(i + s) % n for i in range(n)] for s in range(n)]),
            "You averaged over the n rotations. There are n! orders: itertools.permutations gives them all.",
        ),
        Mistake(
            "the average went in",
            lambda function, x: function(torch.stack([x[list(p)] for p in permutations(range(len(x)))]).mean(dim=0)),
            "You averaged the inputs and then called the function. Call it first, then average the outputs.",
        ),
        Mistake(
            "the sum",
            lambda function, x: torch.stack([function(x[list(p)]) for p in permutations(range(len(x)))]).sum(dim=0),
            "That is the sum over all orders. Divide by their number.",
        ),
        Mistake(
            "divided by n",
            lambda function, x: sum(function(x[list(p)]) for p in permutations(range(len(x)))) / len(x),
            "You divided by the number of rows. There are n! orders: divide by their number.",
        ),
        Mistake(
            "a tuple as an index",
            lambda function, x: torch.stack([function(x[p]) for p in permutations(range(len(x)))]).mean(dim=0),
            "x[(2, 0, 1)] means x[2, 0, 1], one entry. x[[2, 0, 1]], with a list, picks three rows.",
        ),
        Mistake(
            "forward and backward only",
            _average_of(lambda n: [list(range(n)), list(range(n - 1, -1, -1))]),
            "Two orders make it blind to reversal only. Average over all n! of them.",
        ),
    ),
    also_right=(_symmetrize_step_by_step,),
    learned="Averaging over a group makes any function invariant, at the price of n! calls. The mean over the rows of "
    "a set layer is invariant by construction, at the price of one.",
)

# --- 1.7 mean_pool


def mean_pool(x: Tensor, lengths: Tensor) -> Tensor:
    real = torch.arange(x.shape[1]) < lengths.unsqueeze(-1)  # (batch, n)
    return x.masked_fill(~real.unsqueeze(-1), 0.0).sum(dim=1) / lengths.unsqueeze(-1)


def _mean_pool_by_loop(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.stack([rows[:n].mean(dim=0) for rows, n in zip(x, lengths.tolist(), strict=True)])


def _padded(generator: Generator, filling: float, *lengths: int) -> tuple:
    x = normal(generator, len(lengths), max(lengths) + 1, 3)
    for row, length in enumerate(lengths):
        x[row, length:] = filling
    return x, torch.tensor(lengths)


def _more_padding_changes_nothing(answer: Callable, generator: Generator) -> Complaint:
    x, lengths = _padded(generator, 7.0, 2, 4)
    longer = torch.cat([x, torch.full((2, 5, 3), -3.0, dtype=x.dtype)], dim=1)
    a, b = as_tensor(answer(x, lengths)), as_tensor(answer(longer, lengths))
    return f"five more rows of padding changed the result: {complaint}" if (complaint := compare(b, a)) else None


MEAN_POOL = Exercise(
    chapter=1,
    title="Pool a padded batch",
    points=3,
    minutes=12,
    difficulty=3,
    reference=mean_pool,
    cases=(
        drawn("no padding", lambda g: (normal(g, 2, 4, 3), torch.tensor([4, 4]))),
        drawn("padding of zeros", lambda g: _padded(g, 0.0, 2, 5)),
        drawn("padding of nines", lambda g: _padded(g, 9.0, 1, 3, 4)),
        drawn("padding of NaN", lambda g: _padded(g, math.nan, 3, 2)),
        drawn("padding of infinity", lambda g: _padded(g, math.inf, 2, 3)),
    ),
    properties=(Property("more padding changes nothing", _more_padding_changes_nothing),),
    mistakes=(
        Mistake(
            "padding counted in",
            lambda x, lengths: x.mean(dim=1),
            "The padding rows are in your mean. Only the first lengths[b] rows of sequence b are real.",
        ),
        Mistake(
            "divided by the padded length",
            lambda x, lengths: x.masked_fill((torch.arange(x.shape[1]) >= lengths[:, None])[..., None], 0).mean(dim=1),
            "The sum is right, but it is divided by all rows, padding included. Divide by lengths.",
        ),
        Mistake(
            "0 times NaN",
            lambda x, lengths: (x * (torch.arange(x.shape[1]) < lengths[:, None])[..., None]).sum(1) / lengths[:, None],
            "A mask of zeros multiplies NaN to NaN. Replace the padding (masked_fill, where) rather than multiply it.",
        ),
        Mistake(
            "one row too many",
            lambda x, lengths: (
                x.masked_fill((torch.arange(x.shape[1]) > lengths[:, None])[..., None], 0).sum(1) / lengths[:, None]
            ),
            "Row number lengths[b] is already padding, since rows are counted from 0. Use <, not <=.",
        ),
        Mistake(
            "the mask turned round",
            lambda x, lengths: (
                x.masked_fill((torch.arange(x.shape[1]) < lengths[:, None])[..., None], 0).sum(1) / lengths[:, None]
            ),
            "You kept the padding and dropped the real rows. masked_fill *replaces* where its mask is True.",
        ),
        Mistake(
            "one length for all",
            lambda x, lengths: x[:, : int(lengths.min())].mean(dim=1),
            "You cut every sequence at the shortest one. Each has a length of its own.",
        ),
    ),
    also_right=(_mean_pool_by_loop,),
    learned="A pooled read-out is invariant only over the rows that it should see. Padding is not part of the set.",
)

# --- 1.8 merge_attention


def merge_attention(
    output_a: Tensor, logsumexp_a: Tensor, output_b: Tensor, logsumexp_b: Tensor
) -> tuple[Tensor, Tensor]:
    largest = torch.maximum(logsumexp_a, logsumexp_b)
    share_a = (logsumexp_a - largest).exp().unsqueeze(-1)  # (..., n_queries, 1)
    share_b = (logsumexp_b - largest).exp().unsqueeze(-1)
    total = share_a + share_b
    return (share_a * output_a + share_b * output_b) / total, largest + total.squeeze(-1).log()


def _merge_with_logaddexp(output_a, logsumexp_a, output_b, logsumexp_b):
    together = torch.logaddexp(logsumexp_a, logsumexp_b)
    share_a, share_b = ((part - together).exp().unsqueeze(-1) for part in (logsumexp_a, logsumexp_b))
    return share_a * output_a + share_b * output_b, together


def _merge_with_sigmoid(output_a, logsumexp_a, output_b, logsumexp_b):
    share_a = torch.sigmoid(logsumexp_a - logsumexp_b).unsqueeze(-1)
    return share_a * output_a + (1 - share_a) * output_b, torch.logaddexp(logsumexp_a, logsumexp_b)


def _merge_below(output_a, logsumexp_a, output_b, logsumexp_b, ceiling):
    """The right formula with an arbitrary ceiling, for mistakes in the choice of it."""
    share_a, share_b = ((part - ceiling).exp().unsqueeze(-1) for part in (logsumexp_a, logsumexp_b))
    total = share_a + share_b
    return (share_a * output_a + share_b * output_b) / total, ceiling + total.squeeze(-1).log()


def partial_attention(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over some of the keys: its output (..., n_queries, value_dim) and logsumexp (..., n_queries)."""
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    return scores.softmax(dim=-1) @ values, scores.logsumexp(dim=-1)


def _two_parts(*batch: int, size: float = 1.0) -> Callable[[Generator], tuple]:
    def make(g: Generator) -> tuple:
        queries, keys, values = size * normal(g, *batch, 3, 4), normal(g, *batch, 7, 4), normal(g, *batch, 7, 2)
        first = partial_attention(queries, keys[..., :2, :], values[..., :2, :])
        return *first, *partial_attention(queries, keys[..., 2:, :], values[..., 2:, :])

    return make


def _huge_scores(g: Generator) -> tuple:
    output_a, logsumexp_a, output_b, logsumexp_b = _two_parts()(g)
    return output_a, logsumexp_a + 1000, output_b, logsumexp_b + 1000


def _tiny_scores(g: Generator) -> tuple:
    output_a, logsumexp_a, output_b, logsumexp_b = _two_parts()(g)
    return output_a, logsumexp_a - 1000, output_b, logsumexp_b - 1000


def _far_apart(g: Generator) -> tuple:
    """Each part is far ahead for some queries, and the queries are far from each other."""
    output_a, logsumexp_a, output_b, logsumexp_b = _two_parts()(g)
    shift_a, shift_b = torch.tensor([1000.0, -1000.0, 0.0]), torch.tensor([-1000.0, -1000.0, 1000.0])
    return output_a, logsumexp_a + shift_a, output_b, logsumexp_b + shift_b


def _first_part_empty(g: Generator) -> tuple:
    output_b, logsumexp_b = _two_parts()(g)[2:]
    return torch.zeros_like(output_b), torch.full_like(logsumexp_b, -math.inf), output_b, logsumexp_b


def _second_part_empty(g: Generator) -> tuple:
    empty_output, empty_logsumexp, output, logsumexp = _first_part_empty(g)
    return output, logsumexp, empty_output, empty_logsumexp


def _merge_is_attention(merge: Callable, generator: Generator) -> Complaint:
    queries, keys, values = normal(generator, 3, 4), normal(generator, 6, 4), normal(generator, 6, 2)
    parts = [partial_attention(queries, keys[i : i + 2], values[i : i + 2]) for i in (4, 0, 2)]
    output, logsumexp = merge(*parts[0], *parts[1])
    output, _ = merge(output, logsumexp, *parts[2])
    return compare(output, attention(queries, keys, values))


MERGE_ATTENTION = Exercise(
    chapter=1,
    title="Attend in pieces, in any order",
    points=5,
    minutes=25,
    difficulty=4,
    reference=merge_attention,
    cases=(
        drawn("two parts", _two_parts()),
        drawn("batch and heads", _two_parts(2, 3)),
        drawn("one part dominates", _two_parts(size=20.0)),
        drawn("huge scores", _huge_scores),
        drawn("tiny scores", _tiny_scores),
        drawn("large and small side by side", _far_apart),
        drawn("the first part is empty", _first_part_empty),
        drawn("the second part is empty", _second_part_empty),
    ),
    properties=(Property("three parts, out of order, give attention", _merge_is_attention),),
    mistakes=(
        Mistake(
            "a plain average",
            lambda oa, la, ob, lb: ((oa + ob) / 2, torch.logaddexp(la, lb)),
            "The parts do not weigh the same. Each counts by its share of the softmax's denominator.",
        ),
        Mistake(
            "weighted by the logarithm",
            lambda oa, la, ob, lb: (
                (la.unsqueeze(-1) * oa + lb.unsqueeze(-1) * ob) / (la + lb).unsqueeze(-1),
                torch.logaddexp(la, lb),
            ),
            "logsumexp is the logarithm of the denominator. Shares are shares of the denominator itself: exponentiate.",
        ),
        Mistake(
            "overflow",
            lambda oa, la, ob, lb: (
                (la.exp().unsqueeze(-1) * oa + lb.exp().unsqueeze(-1) * ob) / (la.exp() + lb.exp()).unsqueeze(-1),
                (la.exp() + lb.exp()).log(),
            ),
            "Right on paper. exp(1000) is infinite and exp(-1000) is 0: subtract the larger logsumexp first.",
        ),
        Mistake(
            "logarithms added",
            lambda oa, la, ob, lb: (merge_attention(oa, la, ob, lb)[0], la + lb),
            "The output is right, the new logsumexp is not: the logarithm of a sum is not the sum of logarithms.",
        ),
        Mistake(
            "the maximum not added back",
            lambda oa, la, ob, lb: (
                merge_attention(oa, la, ob, lb)[0],
                torch.logaddexp(la, lb) - torch.maximum(la, lb),
            ),
            "The output is right. You subtracted the larger logsumexp before exp; add it back after the logarithm.",
        ),
        Mistake(
            "one maximum for all queries",
            lambda oa, la, ob, lb: _merge_below(oa, la, ob, lb, torch.maximum(la.max(), lb.max())),
            "You subtracted one number from every query. A query far below it becomes 0 / 0: take the larger "
            "of the two parts query by query.",
        ),
        Mistake(
            "always the second part subtracted",
            lambda oa, la, ob, lb: _merge_below(oa, la, ob, lb, lb),
            "You subtract the second part's logsumexp. When the first is far larger, its exp overflows: subtract the "
            "larger of the two.",
        ),
        Mistake(
            "outputs added",
            lambda oa, la, ob, lb: (oa + ob, torch.logaddexp(la, lb)),
            "Each output is already divided by its own denominator. Weigh it by its share of the common one.",
        ),
        Mistake(
            "the shares swapped",
            lambda oa, la, ob, lb: (merge_attention(ob, la, oa, lb)[0], torch.logaddexp(la, lb)),
            "Each output met the other part's weight.",
        ),
    ),
    also_right=(_merge_with_logaddexp, _merge_with_sigmoid),
    learned="Attention is a sum over a set, so it can be split anywhere. FlashAttention, split decoding and ring "
    "attention all rest on the function that you have just written.",
)

EXERCISES = (
    SHUFFLE_ROWS,
    LOG10_ORDERS,
    WHAT_COMMUTES,
    EQUIVARIANCE_ERROR,
    SAME_PAIR_OTHER_WEIGHT,
    SYMMETRIZE,
    MEAN_POOL,
    MERGE_ATTENTION,
)
