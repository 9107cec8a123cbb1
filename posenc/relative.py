"""Biases: a number added to each score, which depends on where the query and the key stand (the score door).

A bias is a function of the offset, key position minus query position: ALiBi, T5's buckets, KERPLE, a Gaussian. FIRE
also looks at the query's position. `OffsetBias` turns such a function into an encoding; nothing else changes.
"""

import math

import torch
from torch import Tensor, nn

from posenc.encoding import PositionEncoding


def alibi_slopes(n_heads: int, largest_exponent: float = 8.0) -> Tensor:
    """One slope a head, from steep to flat: 2^(-8/n), 2^(-16/n), … 2^-8 for n heads, n a power of two. (n_heads,).

    For another number of heads: the slopes of the next smaller power of two, then every second slope of the next
    larger one, as in the authors' code: https://github.com/ofirpress/attention_with_linear_biases
    largest_exponent: the 8 of the last slope 2^-8 (MPT's `alibi_bias_max`); a smaller one makes all slopes steeper.
    Press et al. 2022, https://arxiv.org/abs/2108.12409. Raises ValueError if n_heads < 1 or largest_exponent <= 0.
    """
    if n_heads < 1:
        raise ValueError(f"n_heads must be at least 1, got {n_heads}")
    if largest_exponent <= 0:
        raise ValueError(f"largest_exponent must be above 0, so that slopes are below 1; got {largest_exponent}")
    smaller = 2 ** (n_heads.bit_length() - 1)  # the largest power of two that is not above n_heads
    step = largest_exponent / smaller
    slopes = 2.0 ** (-step * torch.arange(1, smaller + 1, dtype=torch.float64))
    between = 2.0 ** (-step / 2 * torch.arange(1, 2 * smaller, 2, dtype=torch.float64))
    return torch.cat([slopes, between[: n_heads - smaller]])


class ALiBi(PositionEncoding):
    """Subtracts slope * |i - j| from each score: far keys count less. One slope a head, nothing learned.

    Under a causal mask this is the bias of Press et al. 2022, https://arxiv.org/abs/2108.12409, section 3.
    Scores must be (..., n_heads, n_queries, n_keys); raises ValueError for another number of heads.
    """

    def __init__(self, n_heads: int, largest_exponent: float = 8.0):
        super().__init__()
        self.register_buffer("slopes", alibi_slopes(n_heads, largest_exponent).view(-1, 1, 1), persistent=False)

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        heads = scores.shape[-3] if scores.ndim > 2 else 0
        if heads != len(self.slopes):
            raise ValueError(f"ALiBi({len(self.slopes)}) needs scores of {len(self.slopes)} heads, got {heads}")
        distance = (query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).abs()  # (..., n_queries, n_keys)
        return scores - (self.slopes * distance).to(scores.dtype)


# --- T5's buckets


def bucket_starts(n_buckets: int, max_distance: int) -> list[int]:
    """The smallest distance in each of T5's buckets for one direction, found in whole numbers. n_buckets of them.

    The first half of the buckets holds one distance each: 0, 1, … The starts of the other half grow by a constant
    factor towards max_distance, which itself (and everything beyond) already lies in the last bucket. Where they grow
    by less than 1 a step, some buckets are empty and share their start with the next one.
    Raises ValueError if n_buckets < 2 or max_distance is not above n_buckets // 2.
    """
    exact = n_buckets // 2
    if exact < 1 or max_distance <= exact:
        wanted = "n_buckets >= 2 (in each direction) and max_distance > n_buckets // 2"
        raise ValueError(f"need {wanted}, got {n_buckets} and {max_distance}")
    steps = n_buckets - exact
    starts, distance = list(range(exact)), exact
    for k in range(steps):
        # distance >= exact * (max_distance / exact) ** (k / steps), without a root
        while distance**steps * exact**k < max_distance**k * exact**steps:
            distance += 1
        starts.append(distance)
    return starts


def t5_bucket(offsets: Tensor, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> Tensor:
    """The bucket of each offset, key position minus query position: exact near by, logarithmic, then one for the rest.

    offsets: whole numbers of any shape, kept. bidirectional: half of the buckets for each direction, those from
    n_buckets // 2 on for keys to the right. Otherwise all are for the left, and keys to the right (which a causal
    mask hides) fall into bucket 0.
    Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1; the rule is in Mesh TensorFlow's code and in
    `T5Attention._relative_position_bucket` of transformers. ValueError as in `bucket_starts`.
    """
    if bidirectional:
        n_buckets //= 2
        right = (offsets > 0).long() * n_buckets
        distance = offsets.abs()
    else:
        right = 0
        distance = (-offsets).clamp(min=0)
    starts = torch.tensor(bucket_starts(n_buckets, max_distance), device=offsets.device)
    return right + torch.bucketize(distance, starts, right=True) - 1


# --- One family


class OffsetBias(PositionEncoding):
    """Adds bias(offsets) to the scores, and nothing else. Subclasses say what the bias is.

    `bias` gets offsets, key position minus query position, (..., 1, n_queries, n_keys), and returns one number a
    head, (..., n_heads, n_queries, n_keys). One object may serve every layer, as in T5, or each layer may have its own.
    """

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        offsets = key_positions.unsqueeze(-2) - query_positions.unsqueeze(-1)  # (..., n_queries, n_keys)
        if offsets.ndim == 2:
            offsets = offsets.unsqueeze(0)  # an axis for the heads, which a batch of positions already has
        bias = self.bias(offsets)  # (..., n_heads, n_queries, n_keys)
        heads = scores.shape[-3] if scores.ndim > 2 else 0
        if heads != bias.shape[-3]:
            name = type(self).__name__
            raise ValueError(f"this {name} has {bias.shape[-3]} heads, the scores have {heads}: make them equal")
        return scores + bias.to(scores.dtype)

    def bias(self, offsets: Tensor) -> Tensor:
        raise NotImplementedError("say what the bias of an offset is")


class T5Bias(OffsetBias):
    """One learned number for each bucket and head. It starts at 0, as if there were no positions.

    T5 itself does not divide the scores by sqrt(head_dim), so its tables are made for scores of that size; ours are
    divided. Use bidirectional=False under a causal mask: otherwise half of the table is never read.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(n_buckets, n_heads))
        self.max_distance, self.bidirectional = max_distance, bidirectional
        self.bias(torch.zeros(1, 1, 1, dtype=torch.long))  # refuse impossible sizes now, not in the first batch

    def bias(self, offsets: Tensor) -> Tensor:
        bucket = t5_bucket(offsets.squeeze(-3), len(self.table), self.max_distance, self.bidirectional)
        return self.table[bucket].movedim(-1, -3)  # (..., n_queries, n_keys, heads) -> (..., heads, n_queries, n_keys)


def per_head(values: Tensor) -> Tensor:
    """(n_heads,) -> (n_heads, 1, 1): one number a head, for grids of scores."""
    return values.view(-1, 1, 1)


class KerpleLog(OffsetBias):
    """-a log(1 + b |j - i|) with a, b > 0 learned for each head: weights fall like a power of the distance.

    The logarithmic kernel of Chi et al. 2022, KERPLE, https://arxiv.org/abs/2205.09921.
    """

    def __init__(self, n_heads: int):
        super().__init__()
        self.log_a = nn.Parameter(torch.zeros(n_heads))
        self.log_b = nn.Parameter(torch.zeros(n_heads))

    def bias(self, offsets: Tensor) -> Tensor:
        return -per_head(self.log_a.exp()) * torch.log1p(per_head(self.log_b.exp()) * offsets.abs())


class Gaussian(OffsetBias):
    """-(j - i)² / (2 width²), one learned width a head: a soft window around the query.

    Yang et al. 2018, Modeling Localness for Self-Attention Networks, https://arxiv.org/abs/1810.10182, with the
    centre at the query itself, where theirs is predicted.
    """

    def __init__(self, n_heads: int, width: float = 8.0):
        super().__init__()
        self.log_width = nn.Parameter(torch.full((n_heads,), width).log())

    def bias(self, offsets: Tensor) -> Tensor:
        return -offsets.square() / (2 * per_head(self.log_width.exp()).square())


class Fire(PositionEncoding):
    """A small network of log(1 + c·distance) / log(1 + c·max(L, i)): distances as a share of what the query can see.

    Unlike its cousins this is not a function of the offset alone: past position L, the query's position i enters. c and
    L are learned (they start at 0.1 and `threshold`), and so is the network. Meant for causal attention: a key to the
    right counts as distance 0.
    Li et al. 2024, FIRE, https://arxiv.org/abs/2310.04418.
    """

    def __init__(self, n_heads: int, threshold: float = 512.0, hidden: int = 32):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, n_heads))
        self.c = nn.Parameter(torch.tensor(0.1))
        self.threshold = nn.Parameter(torch.tensor(threshold))

    def scores(
        self, scores: Tensor, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        distance = (query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).clamp(min=0)
        longest = torch.maximum(self.threshold.abs(), query_positions.to(self.c.dtype)).unsqueeze(-1)
        share = torch.log1p(self.c.abs() * distance) / torch.log1p(self.c.abs() * longest)  # 0 to 1
        share = share.squeeze(-3) if share.ndim > 2 else share  # a batch of positions has an axis of 1 for the heads
        bias = self.network(share.unsqueeze(-1)).movedim(-1, -3)  # (..., n_heads, n_queries, n_keys)
        return scores + bias.to(scores.dtype)


# --- What a bias lets a head see


def horizon(slope: float, gap: float = 0.0, share: float = 0.99) -> float:
    """A distance within which an ALiBi head keeps `share` of its weight: (gap - ln(1 - share)) / slope.

    gap: by how much the content scores of two keys can differ at most. It holds for causal attention over any number
    of keys; chapter 7 proves it. Raises ValueError if the slope is not above 0, the gap negative, or the share not
    between 0 and 1.
    """
    if not slope > 0 or not gap >= 0 or not 0 < share < 1:
        raise ValueError(f"need slope > 0, gap >= 0, 0 < share < 1; got {slope}, {gap}, {share}")
    return (gap - math.log(1 - share)) / slope


def keys_that_hold(weights: Tensor, share: float = 0.99) -> Tensor:
    """How many of the nearest keys hold `share` of the last query's weight. (..., n_queries, n_keys) -> (...,)."""
    from_near_to_far = weights[..., -1, :].flip(-1).cumsum(-1)  # (..., n_keys)
    return (from_near_to_far < share).sum(-1) + 1
