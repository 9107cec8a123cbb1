"""Exercises of chapter 14: what it costs."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Generator, Tensor

from posenc.attention import attention
from posenc.checks.common import all_but, dtype_complaint, right_predictions
from posenc.checks.compare import compare
from posenc.checks.exercise import Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.costs import Meter, pairs
from posenc.masks import sliding_window

# --- 14.1 attention_flops


def attention_flops(n: int, n_heads: int, head_dim: int, window: int | None) -> int:
    return 4 * n_heads * head_dim * pairs(n, window)


def _flops_by_rows(n: int, n_heads: int, head_dim: int, window: int | None) -> int:
    shown = sum(min(i + 1, n if window is None else window) for i in range(n))
    return n_heads * shown * (2 * head_dim + 2 * head_dim)


def _flops_of(shown: Callable[[int, int | None], int], each: int = 4) -> Callable:
    return lambda n, n_heads, head_dim, window: each * n_heads * head_dim * shown(n, window)


def _flops_by_mask(n: int, n_heads: int, head_dim: int, window: int | None) -> int:
    at = torch.arange(n)
    return 4 * n_heads * head_dim * int(sliding_window(at, at, n if window is None else window).sum())


def _whole_and_exact(answer: Callable, g: Generator) -> Complaint:
    sizes = (1025, 4, 10**12 + 39, 300)  # head_dim as no model has it: a product that no float holds
    got, true = answer(*sizes), attention_flops(*sizes)
    if isinstance(got, Tensor) and got.ndim == 0:
        got = got.item()
    if isinstance(got, bool) or not isinstance(got, Integral):
        return f"return a whole number, not a {type(got).__name__}: divide by //"
    return None if got == true else f"expected {true:,} exactly, got {int(got):,}: a float on the way has lost digits"


ATTENTION_FLOPS = Exercise(
    chapter=14,
    title="The FLOPs that a mask leaves",
    points=2,
    minutes=6,
    difficulty=1,
    reference=attention_flops,
    cases=(
        with_arguments("three tokens", 3, 1, 1, None),
        with_arguments("no window", 512, 8, 64, None),
        with_arguments("a window", 512, 8, 64, 100),
        with_arguments("a window longer than the text", 50, 4, 32, 64),
        with_arguments("a window of one", 9, 2, 16, 1),
        with_arguments("one token", 1, 2, 16, None),
        with_arguments("heads as in Mistral 7B v0.1", 1536, 32, 128, 1024),
    ),
    properties=(Property("a whole number, exact", _whole_and_exact),),
    mistakes=(
        Mistake(
            "the whole grid",
            _flops_of(lambda n, w: n * n),
            "That is every pair. A causal mask hides those where the key comes after the query.",
        ),
        Mistake(
            "half of the grid",
            _flops_of(lambda n, w: pairs(n, w) if w is not None and w < n else n * n // 2),
            "Nearly. Half of n² leaves out half of the diagonal, where a token sees itself.",
        ),
        Mistake(
            "tokens do not see themselves",
            _flops_of(lambda n, w: pairs(n, w) - n),
            "Count the keys of the first token. It sees itself.",
        ),
        Mistake(
            "every row has a full window",
            _flops_of(lambda n, w: n * n if w is None else n * w),
            "The first rows have fewer keys behind them than the window shows.",
        ),
        Mistake(
            "every row has a full window, causal without one",
            _flops_of(lambda n, w: pairs(n) if w is None else n * w),
            "Right without a window. With one, the first rows have fewer keys behind them than it shows.",
        ),
        Mistake(
            "a window beyond the text",
            _flops_of(lambda n, w: pairs(n) if w is None else w * (w + 1) // 2 + (n - w) * w),
            "Right, unless the window is longer than the text. No row sees more keys than there are.",
        ),
        Mistake(
            "the window one too long",
            _flops_of(lambda n, w: pairs(n, None if w is None else w + 1)),
            "The window counts the token itself: a window of 1 shows one key.",
        ),
        Mistake(
            "the window forgotten",
            _flops_of(lambda n, w: pairs(n)),
            "Right without a window. With one, a row sees at most `window` keys.",
        ),
        Mistake(
            "products only",
            _flops_of(pairs, 2),
            "Half of it. A multiplication and an addition are two FLOPs, and there are two matrix products.",
        ),
        Mistake(
            "one head",
            lambda n, n_heads, head_dim, window: attention_flops(n, 1, head_dim, window),
            "That is one head.",
        ),
    ),
    also_right=(_flops_by_rows, _flops_by_mask),
    learned="A window saves FLOPs only where somebody skips the hidden pairs. This number is what is left then.",
)

# --- 14.2 roofline


def roofline(flops: float, moved: float, flops_each_second: float, bytes_each_second: float) -> tuple[float, str]:
    compute, memory = flops / flops_each_second, moved / bytes_each_second
    return max(compute, memory), "memory" if memory > compute else "compute"


def _by_intensity(flops: float, moved: float, flops_each_second: float, bytes_each_second: float) -> tuple[float, str]:
    if flops / moved < flops_each_second / bytes_each_second:
        return moved / bytes_each_second, "memory"
    return flops / flops_each_second, "compute"


ROOFLINE = Exercise(
    chapter=14,
    title="What does it wait for?",
    points=1,
    minutes=5,
    difficulty=1,
    reference=roofline,
    cases=(
        with_arguments("a matrix product", 8e12, 2e9, 100e12, 1e12),
        with_arguments("one token from a cache", 4e9, 16e9, 100e12, 1e12),
        with_arguments("a copy", 0.0, 1e9, 50e12, 2e12),
        with_arguments("a balance", 1e12, 1e10, 100e12, 1e12),
        with_arguments("a slow memory", 3e9, 1e9, 1e12, 1e11),
    ),
    mistakes=(
        Mistake(
            "one after the other",
            lambda f, m, a, b: (f / a + m / b, roofline(f, m, a, b)[1]),
            "You added the two times. Bytes move while the arithmetic goes on: the longer one decides.",
        ),
        Mistake(
            "the shorter time",
            lambda f, m, a, b: (min(f / a, m / b), roofline(f, m, a, b)[1]),
            "Both have to be done. Which one is finished last?",
        ),
        Mistake(
            "the words exchanged",
            lambda f, m, a, b: (roofline(f, m, a, b)[0], "compute" if m / b > f / a else "memory"),
            "Right time, wrong word: it waits for what takes longer.",
        ),
        Mistake(
            "FLOPs against bytes",
            lambda f, m, a, b: (roofline(f, m, a, b)[0], "memory" if m > f else "compute"),
            "You compared FLOPs with bytes. Compare the times that the machine needs for them.",
        ),
        Mistake(
            "a balance called memory",
            lambda f, m, a, b: (roofline(f, m, a, b)[0], "memory" if m / b >= f / a else "compute"),
            "Look at the statement once more: what if both take equally long?",
        ),
    ),
    also_right=(_by_intensity,),
    learned="FLOPs a byte against the machine's own FLOPs a byte: below it, faster arithmetic changes nothing.",
)

# --- 14.3 kv_cache_bytes


def kv_cache_bytes(config: dict, n: int) -> int:
    kept = {"full": n, "window": min(n, config["window"]), "chunk": min(n, config["chunk"])}
    numbers = 2 * config["n_key_heads"] * config["head_dim"] * config["bytes_each"]
    return numbers * sum(kept[kind] for kind in config["layers"])


def _cache_by_counting(config: dict, n: int) -> int:
    tokens = n * config["layers"].count("full")
    for kind in ("window", "chunk"):
        tokens += config["layers"].count(kind) * (n if n < config[kind] else config[kind])
    return tokens * config["n_key_heads"] * config["head_dim"] * config["bytes_each"] * 2


def _config(layers: Sequence[str], **more: int) -> dict:
    sizes = {"n_query_heads": 32, "n_key_heads": 8, "head_dim": 128, "window": 4096, "chunk": 8192, "bytes_each": 2}
    return {"layers": list(layers)} | sizes | more


def _five_to_one(n_layers: int) -> list[str]:
    return ["full" if i % 6 == 5 else "window" for i in range(n_layers)]


GEMMA = _config(_five_to_one(62), n_key_heads=16, window=1024)


def _with_config(**changed: Callable[[dict], Any]) -> Callable:
    return lambda config, n: kv_cache_bytes(config | {k: f(config) for k, f in changed.items()}, n)


def _unfilled(config: dict, n: int, kind: str) -> int:
    """Bytes that one reserves without need for a text shorter than its windows (or chunks)."""
    numbers = 2 * config["n_key_heads"] * config["head_dim"] * config["bytes_each"]
    return config["layers"].count(kind) * max(config[kind] - n, 0) * numbers


def _five_sixths(config: dict, n: int) -> int:
    full = _with_config(layers=lambda c: ["full"] * len(c["layers"]))(config, n)
    return full // 6


KV_CACHE_BYTES = Exercise(
    chapter=14,
    title="A cache for 128k tokens",
    points=3,
    minutes=10,
    difficulty=2,
    reference=kv_cache_bytes,
    cases=(
        with_arguments("Gemma 3 27B at 131,072 tokens", GEMMA, 131072),
        with_arguments("the same, a short text", GEMMA, 1000),
        with_arguments("full layers", _config(["full"] * 32), 4096),
        with_arguments("windows only", _config(["window"] * 32), 100_000),
        with_arguments("three chunks to one", _config(["chunk", "chunk", "chunk", "full"] * 12), 20_000),
        with_arguments("a chunk just full", _config(["chunk"] * 2), 8192),
        with_arguments("a chunk half full", _config(["chunk"] * 2, bytes_each=4), 4096),
        with_arguments("8 bits, all heads alike", _config(["full", "window"], n_key_heads=32, bytes_each=1), 5000),
    ),
    mistakes=(
        Mistake(
            "every layer full",
            _with_config(layers=lambda c: ["full"] * len(c["layers"])),
            "You kept the whole text in every layer. Those with a window or chunk need no more than it shows.",
        ),
        Mistake(
            "windows for short texts",
            lambda config, n: kv_cache_bytes(config, max(n, config["window"], config["chunk"])),
            "A text that is shorter than the window fills only a part of it.",
        ),
        Mistake(
            "query heads",
            _with_config(n_key_heads=lambda c: c["n_query_heads"]),
            "The cache holds keys and values. How many heads have those?",
        ),
        Mistake(
            "keys without values",
            lambda config, n: kv_cache_bytes(config, n) // 2,
            "Half of it. A token leaves a key *and* a value.",
        ),
        Mistake(
            "always two bytes",
            _with_config(bytes_each=lambda c: 2),
            "How many bytes a number has stands in the configuration.",
        ),
        Mistake(
            "bytes forgotten",
            _with_config(bytes_each=lambda c: 1),
            "You counted numbers. How many bytes has each?",
        ),
        Mistake(
            "chunks kept whole",
            _with_config(layers=lambda c: ["full" if kind == "chunk" else kind for kind in c["layers"]]),
            "You bounded the windows. A chunk is a bound as well.",
        ),
        Mistake(
            "what is left of the chunk",
            lambda config, n: kv_cache_bytes(config | {"chunk": n % config["chunk"]}, n),
            "That is what the last chunk holds at this moment. The statement asks for the most that must be kept.",
        ),
        Mistake(
            "windows kept whole",
            _with_config(layers=lambda c: ["full" if kind == "window" else kind for kind in c["layers"]]),
            "You bounded the chunks. A window is a bound as well.",
        ),
        Mistake(
            "the window whole for short texts",
            lambda config, n: kv_cache_bytes(config, n) + _unfilled(config, n, "window"),
            "A text that is shorter than the window fills only a part of it.",
        ),
        Mistake(
            "the chunk whole for short texts",
            lambda config, n: kv_cache_bytes(config, n) + _unfilled(config, n, "chunk"),
            "A text that is shorter than the chunk fills only a part of it.",
        ),
        Mistake(
            "windows and chunks whole for short texts",
            lambda config, n: (
                kv_cache_bytes(config, n) + _unfilled(config, n, "window") + _unfilled(config, n, "chunk")
            ),
            "A text that is shorter than a window or chunk fills only a part of it.",
        ),
        Mistake(
            "the newest token left out",
            lambda config, n: kv_cache_bytes(config, n - 1),
            "Near, but a token short in each full layer. The newest token's keys and values are kept as well.",
        ),
        Mistake(
            "a sixth",
            _five_sixths,
            "A rule of thumb for one pattern and for texts without end. Add up the layers as they are.",
        ),
    ),
    also_right=(_cache_by_counting,),
    learned="Few full layers decide the bill of a long text; for a short one the pattern saves nothing.",
)

# --- 14.4 alibi_mod_with_cache


def alibi_mod_with_cache(
    score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor, slopes: Tensor, start: Tensor
) -> Tensor:
    distance = start[batch] + query - key
    return torch.where(distance >= 0, score - slopes[head] * distance, -torch.inf)


def _by_masking(score, batch, head, query, key, slopes, start):
    position = query + start[batch]
    biased = score + slopes[head] * (key - position)
    return biased.masked_fill(key > position, float("-inf"))


def _grids(n_batch: int, n_heads: int, n_new: int, n_keys: int, starts: list[int], dtype=torch.float64) -> Callable:
    def make(g: Generator) -> tuple:
        score = normal(g, n_batch, n_heads, n_new, n_keys, dtype=dtype)
        axes = (n_batch, n_heads, n_new, n_keys)
        indices = [torch.arange(n).view([-1 if a == b else 1 for b in range(4)]) for a, n in enumerate(axes)]
        slopes = 2.0 ** -(1 + torch.arange(n_heads, dtype=dtype))
        return score, *indices, slopes, torch.tensor(starts)

    return make


def _one_score(g: Generator) -> tuple:
    score, slopes = normal(g, 1)[0], torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64)
    return score, *(torch.tensor(i) for i in (1, 2, 0, 5)), slopes, torch.tensor([3, 7])


def _mod_keeps_dtype(answer: Callable, g: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        got = answer(*_grids(1, 2, 3, 5, [2], dtype)(g))
        if complaint := dtype_complaint(got, dtype):
            return complaint
    return None


def _mod(distance: Callable, bias: Callable | None = None, hidden: Callable | None = None) -> Callable:
    """The right function with another distance, bias or rule of what is hidden."""

    def wrong(score, batch, head, query, key, slopes, start):
        d = distance(batch, query, key, start)
        biased = score - slopes[head] * d if bias is None else bias(score, slopes, head, d)
        gone = d < 0 if hidden is None else hidden(batch, query, key, start)
        return torch.where(gone, -torch.inf, biased)

    return wrong


def _distance(batch, query, key, start):
    return start[batch] + query - key


ALIBI_MOD_WITH_CACHE = Exercise(
    chapter=14,
    title="A score_mod that knows its cache",
    points=3,
    minutes=12,
    difficulty=3,
    reference=alibi_mod_with_cache,
    cases=(
        drawn("two sequences, two heads", _grids(2, 2, 3, 9, [4, 6])),
        drawn("no cache yet", _grids(1, 2, 6, 6, [0])),
        drawn("one new token", _grids(3, 4, 1, 12, [11, 3, 7])),
        drawn("one score alone", _one_score),
        drawn("float32", _grids(2, 3, 2, 8, [6, 2], torch.float32)),
    ),
    properties=(Property("keeps the dtype of the score", _mod_keeps_dtype),),
    mistakes=(
        Mistake(
            "the cache forgotten",
            _mod(lambda b, q, k, s: q - k),
            "`query` counts the new tokens from 0. Where does the first of them stand in its text?",
        ),
        Mistake(
            "only the mask knows the cache",
            _mod(lambda b, q, k, s: (q - k).abs(), hidden=lambda b, q, k, s: _distance(b, q, k, s) < 0),
            "What is hidden is right. The distance is still counted from `query`, not from its position.",
        ),
        Mistake(
            "only the distance knows the cache",
            _mod(_distance, hidden=lambda b, q, k, s: q < k),
            "The bias is right. What is hidden still goes by `query`, not by its position.",
        ),
        Mistake(
            "the first sequence's cache for all",
            _mod(lambda b, q, k, s: s[0] + q - k),
            "Each sequence of the batch has a cache of its own length.",
        ),
        Mistake(
            "added",
            _mod(_distance, bias=lambda score, m, h, d: score + m[h] * d),
            "Far keys win with your sign.",
        ),
        Mistake(
            "one slope for all heads",
            _mod(_distance, bias=lambda score, m, h, d: score - m[0] * d),
            "Each head has a slope of its own.",
        ),
        Mistake(
            "nothing hidden",
            _mod(_distance, bias=lambda score, m, h, d: score - m[h] * d.abs(), hidden=lambda b, q, k, s: k < 0),
            "Right for keys in the past. Keys after the query's position must get minus infinity.",
        ),
        Mistake(
            "hides the token itself",
            _mod(_distance, hidden=lambda b, q, k, s: _distance(b, q, k, s) <= 0),
            "A token sees itself, at distance 0.",
        ),
        Mistake(
            "slopes of the batch",
            lambda score, b, h, q, k, m, s: alibi_mod_with_cache(score, b, b, q, k, m, s) + 0 * m[h],
            "Your slope goes by the sequence. Which of the indices has slopes?",
        ),
        Mistake(
            "a large number for minus infinity",
            lambda *given: alibi_mod_with_cache(*given).clamp(min=-1e9),
            "A large negative number stands where the statement asks for minus infinity itself.",
        ),
        Mistake(
            "infinity times False",
            lambda *given: alibi_mod_with_cache(*given) + -torch.inf * (alibi_mod_with_cache(*given) == -torch.inf),
            "There is NaN in it: infinity times 0 is not 0. Choose, do not multiply.",
        ),
        Mistake(
            "a cache one too short",
            _mod(lambda b, q, k, s: s[b] - 1 + q - k),
            "With `start` tokens in the cache, at positions 0 to start - 1, the next one stands at `start`.",
        ),
    ),
    also_right=(_by_masking,),
    learned="A score_mod sees indices, not positions. Whatever shifts them, a cache or padding, it must be told.",
)

# --- 14.5 fusion_saving


def fusion_saving(steps: list, sizes: dict) -> tuple[int, int]:
    unfused = sum(sum(sizes[name] for name in read) + sizes[made] for read, made in steps)
    read = {name for names, _ in steps for name in names}
    made = {name for _, name in steps}
    return unfused, sum(sizes[name] for name in read ^ made)


def _saving_by_loop(steps: list, sizes: dict) -> tuple[int, int]:
    unfused = fused = 0
    for names, made in steps:
        unfused += sum(map(sizes.get, names)) + sizes[made]
    for name, size in sizes.items():
        is_made, is_read = any(m == name for _, m in steps), any(name in r for r, _ in steps)
        fused += size * (is_made != is_read)
    return unfused, fused


ROTARY_STEPS = [
    (("even", "cos"), "a"),
    (("odd", "sin"), "b"),
    (("a", "b"), "first"),
    (("even", "sin"), "c"),
    (("odd", "cos"), "d"),
    (("c", "d"), "second"),
    (("first", "second"), "turned"),
]
HALF = 8_388_608
ROTARY_SIZES = dict.fromkeys(("even", "odd", "a", "b", "c", "d", "first", "second"), HALF)
ROTARY_SIZES |= {"cos": 131_072, "sin": 131_072, "turned": 2 * HALF}


def _fused(answer: Callable[[list, dict], int]) -> Callable:
    return lambda steps, sizes: (fusion_saving(steps, sizes)[0], answer(steps, sizes))


def _unfused(answer: Callable[[list, dict], int]) -> Callable:
    return lambda steps, sizes: (answer(steps, sizes), fusion_saving(steps, sizes)[1])


FUSION_SAVING = Exercise(
    chapter=14,
    title="What fusing saves",
    points=2,
    minutes=12,
    difficulty=3,
    reference=fusion_saving,
    cases=(
        with_arguments("rotary, step by step", ROTARY_STEPS, ROTARY_SIZES),
        with_arguments("one step", [(("x", "y"), "z")], {"x": 4, "y": 10, "z": 4}),
        with_arguments(
            "softmax",
            [(("s",), "m"), (("s", "m"), "e"), (("e",), "t"), (("e", "t"), "w")],
            {"s": 400, "m": 20, "e": 400, "t": 20, "w": 400},
        ),
        with_arguments("one tensor twice", [(("x", "x"), "y"), (("y", "x"), "z")], {"x": 8, "y": 8, "z": 8}),
        with_arguments(
            "two results", [(("x",), "y"), (("y",), "z"), (("y",), "w")], {"x": 5, "y": 7, "z": 11, "w": 13}
        ),
    ),
    mistakes=(
        Mistake(
            "inputs read each time",
            _fused(
                lambda steps, sizes: (
                    sum(sizes[x] for names, _ in steps for x in names if x not in {m for _, m in steps})
                    + sum(sizes[m] for m in {m for _, m in steps} - {x for names, _ in steps for x in names})
                )
            ),
            "Right unfused. A fused kernel reads a tensor from outside once, and has it at hand for each step.",
        ),
        Mistake(
            "one result",
            _fused(
                lambda steps, sizes: (
                    sum(sizes[x] for x in {x for names, _ in steps for x in names} - {m for _, m in steps})
                    + sizes[steps[-1][1]]
                )
            ),
            "You wrote the last tensor only. Every tensor that no later step reads is a result.",
        ),
        Mistake(
            "the first step's inputs",
            _fused(
                lambda steps, sizes: (
                    sum(sizes[x] for x in set(steps[0][0]))
                    + sum(sizes[m] for m in {m for _, m in steps} - {x for names, _ in steps for x in names})
                )
            ),
            "You read what the first step reads. Later steps bring in tensors from outside as well.",
        ),
        Mistake(
            "results not written",
            _fused(
                lambda steps, sizes: sum(
                    sizes[x] for x in {x for names, _ in steps for x in names} - {m for _, m in steps}
                )
            ),
            "Fused, you read the inputs. The results must be written, too.",
        ),
        Mistake(
            "every tensor once",
            _fused(lambda steps, sizes: sum(sizes.values())),
            "Tensors that are made and used up inside a fused kernel never go to memory.",
        ),
        Mistake(
            "nothing read",
            _unfused(lambda steps, sizes: sum(sizes[made] for _, made in steps)),
            "Right fused. Unfused, you counted what is written. Each step also reads.",
        ),
        Mistake(
            "nothing written",
            _unfused(lambda steps, sizes: sum(sizes[x] for names, _ in steps for x in names)),
            "Right fused. Unfused, you counted what is read. Each step also writes its result.",
        ),
        Mistake(
            "a tensor twice, read once",
            _unfused(lambda steps, sizes: sum(sum(sizes[x] for x in {*names, made}) for names, made in steps)),
            "Right fused. The statement counts each tensor that a step lists, even if it is listed twice.",
        ),
        Mistake(
            "exchanged",
            lambda steps, sizes: fusion_saving(steps, sizes)[::-1],
            "Right numbers, in the other order.",
        ),
    ),
    also_right=(_saving_by_loop,),
    learned="Fusing saves the tensors in between. FLOPs stay; bytes fall to what goes in and what comes out.",
)

# --- 14.6 who_makes_a_grid

TRUTH = {
    "F.scaled_dot_product_attention(q, k, v, is_causal=True)": False,
    "F.scaled_dot_product_attention(q, k, v, attn_mask=causal(at, at))": True,
    "attention(rotate(q, at), rotate(k, at), v)": True,
    "q @ (k.mT @ v)": False,
    "(q @ k.mT) @ v": True,
    "q @ shaw_table.mT": False,
    "shaw_table[offset_rows(at, at, clip)]": True,
    "t5_bias_of(torch.arange(1 - n, n))": False,
}
ADVICE = "Try it: run the line under `costs.metered` at n = 512 and at n = 1024, and look at `.largest`."


def who_makes_a_grid() -> dict[str, bool]:
    return dict(TRUTH)


_names = list(TRUTH)
WHO_MAKES_A_GRID = Exercise(
    chapter=14,
    title="Predict: who makes a grid?",
    points=2,
    minutes=8,
    difficulty=2,
    reference=who_makes_a_grid,
    properties=(
        Property("at least six predictions", right_predictions(TRUTH, 6, ADVICE)),
        Property("all eight predictions", right_predictions(TRUTH, 8, ADVICE)),
    ),
    mistakes=(
        Mistake(
            "a mask is no grid",
            all_but(TRUTH, _names[1]),
            "One line makes True and False for every pair before the kernel starts.",
        ),
        Mistake(
            "the order of products does not matter",
            all_but(TRUTH, _names[3]),
            "(q kᵀ) v and q (kᵀ v) are equal. What stands in the brackets is not of equal size.",
        ),
        Mistake(
            "rotary saves the grid",
            all_but(TRUTH, _names[2]),
            "Rotary needs no grid. But what does `attention`, the book's own, make of queries and keys?",
        ),
        Mistake(
            "every table is a grid",
            all_but(TRUTH, _names[5], _names[7]),
            "A table with a row for each *offset* or bucket has no row for each pair.",
        ),
        Mistake(
            "every relative scheme makes a grid",
            all_but(TRUTH, _names[5]),
            "Queries times table: a number for each query and each of 2 clip + 1 rows. Is that n by n?",
        ),
        Mistake(
            "nobody but attention", all_but(TRUTH, _names[1], _names[6]), "Two lines look up or compare every pair."
        ),
    ),
    learned="A grid is a tensor with an axis for queries and one for keys, both as long as the text. Look for that.",
)

# --- 14.7 ring_write


def ring_write(slots: Tensor, held: Tensor, new: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    w = len(held)
    new, positions = new[..., -w:, :], positions[-w:]  # if more than w come, only the last w stay
    slots, held = slots.clone(), held.clone()
    slots[..., positions % w, :] = new
    held[positions % w] = positions
    return slots, held


def _ring_by_loop(slots: Tensor, held: Tensor, new: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    rows, numbers = list(slots.unbind(-2)), held.tolist()
    for row, p in zip(new.unbind(-2), positions.tolist(), strict=True):
        rows[p % len(rows)], numbers[p % len(rows)] = row, p
    return torch.stack(rows, dim=-2), torch.tensor(numbers)


def _shifted(slots: Tensor, held: Tensor, new: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    w = len(held)
    return torch.cat([slots, new], dim=-2)[..., -w:, :], torch.cat([held, positions])[-w:]


def _ring(
    where: Callable[[Tensor, int], Tensor],
    last: bool = True,
    note: Callable | None = None,
    places: Callable | None = None,
) -> Callable:
    def wrong(slots: Tensor, held: Tensor, new: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        w, m = len(held), len(positions)
        new, positions = (new[..., -w:, :], positions[-w:]) if last else (new[..., :w, :], positions[:w])
        slots, held = slots.clone(), held.clone()
        at = where(positions, w) if places is None else places(m, w)
        slots[..., at, :] = new
        held[at] = positions if note is None else note(positions, w)
        return slots, held

    return wrong


def _held_forgotten(slots: Tensor, held: Tensor, new: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    return ring_write(slots, held, new, positions)[0], held.clone()


def _full_ring(start: int, m: int, w: int, *front: int, dtype=torch.float64) -> Callable[[Generator], tuple]:
    """A ring that has seen `start` tokens, and m more."""

    def make(g: Generator) -> tuple:
        text = normal(g, *front, start + m, 3, dtype=dtype)
        slots, held = torch.zeros(*front, w, 3, dtype=dtype), torch.full((w,), -1)
        if start:
            slots, held = ring_write(slots, held, text[..., :start, :], torch.arange(start))
        return slots, held, text[..., start:, :], torch.arange(start, start + m)

    return make


def _never_loses_the_window(answer: Callable, g: Generator) -> Complaint:
    w, text = 5, normal(g, 2, 17, 3)
    slots, held, start = torch.zeros(2, w, 3, dtype=text.dtype), torch.full((w,), -1), 0
    for m in (3, 1, 7, 1, 5):
        slots, held = answer(slots, held, text[:, start : start + m], torch.arange(start, start + m))
        start += m
    order = torch.as_tensor(held).argsort()
    if complaint := compare(torch.as_tensor(held)[order], torch.arange(12, 17)):
        return f"after 3, 1, 7, 1 and 5 tokens, the positions held: {complaint}"
    return compare(slots[:, order], text[:, 12:])


def _one_token_a_slot(answer: Callable, g: Generator) -> Complaint:
    """Of two written to one slot at once, PyTorch promises neither. The gradient tells: it flows to both."""
    slots, held, new, positions = _full_ring(2, 11, 4)(g)
    got = answer(slots, held, new.requires_grad_(), positions)
    if complaint := compare(got, ring_write(slots, held, new, positions)):
        return complaint
    kept = got[0]
    if not isinstance(kept, Tensor) or not kept.requires_grad:
        return None
    (used,) = torch.autograd.grad(kept.sum(), new)
    if (written := int(used.any(dim=-1).sum())) > len(held):
        return f"{written} new tokens were written at once into {len(held)} slots: which one stays is not promised"
    return None


def _keeps_slots_dtype(answer: Callable, g: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        slots, held, new, positions = _full_ring(5, 2, 4)(g)
        got = answer(slots.to(dtype), held, new.to(dtype), positions)
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            return "return two tensors: the slots, and the positions that they hold"
        if complaint := dtype_complaint(got[0], dtype) or dtype_complaint(got[1], held.dtype):
            return complaint
    return None


RING_WRITE = Exercise(
    chapter=14,
    title="A ring that keeps a window",
    points=3,
    minutes=15,
    difficulty=3,
    reference=ring_write,
    cases=(
        drawn("an empty ring", _full_ring(0, 3, 4)),
        drawn("one more token", _full_ring(6, 1, 4)),
        drawn("over the edge", _full_ring(6, 3, 4)),
        drawn("batch and heads", _full_ring(5, 2, 4, 2, 3)),
        drawn("a whole turn", _full_ring(5, 4, 4)),
        drawn("more tokens than slots", _full_ring(3, 11, 4)),
        drawn("one slot", _full_ring(2, 3, 1)),
        drawn("float32", _full_ring(9, 2, 8, 1, dtype=torch.float32)),
    ),
    properties=(
        Property("the last five of 17 tokens, however they come", _never_loses_the_window),
        Property("no two tokens are written to one slot", _one_token_a_slot),
        Property("keeps the dtype of the slots", _keeps_slots_dtype),
    ),
    mistakes=(
        Mistake(
            "everything moved up",
            _shifted,
            "Right tokens, but you moved every one of them. In a ring a token stays in its slot until it is replaced.",
        ),
        Mistake(
            "from slot 0 each time",
            _ring(lambda p, w: torch.arange(len(p))),
            "Your first new token always goes to slot 0. Its position says where it belongs.",
        ),
        Mistake(
            "counted among the new",
            _ring(lambda p, w: p % w, places=lambda m, w: torch.arange(m)[-w:] % w),
            "Your new tokens are counted from 0. Their positions say where they belong.",
        ),
        Mistake(
            "the last slots",
            _ring(lambda p, w: torch.arange(w - len(p), w)),
            "Your new tokens always go to the last slots. Their positions say where they belong.",
        ),
        Mistake(
            "the first of many",
            _ring(lambda p, w: p % w, last=False),
            "When more tokens come than there are slots, you kept the first of them. Which does a window show?",
        ),
        Mistake(
            "positions not noted",
            _held_forgotten,
            "The vectors are right. `held` must say which position each slot holds now.",
        ),
        Mistake(
            "slots for positions",
            _ring(lambda p, w: p % w, note=lambda p, w: p % w),
            "`held` has the slots' own numbers. The mask needs the positions of the tokens in them.",
        ),
        Mistake(
            "counted from 1",
            _ring(lambda p, w: (p + 1) % w),
            "Position 0 goes to slot 0.",
        ),
        Mistake(
            "backwards",
            _ring(lambda p, w: -p % w),
            "Your ring runs backwards: position 1 goes to slot 1.",
        ),
    ),
    also_right=(_ring_by_loop,),
    learned="Attention sums over a set: slots may stand in any order, so long as the mask is told their positions.",
)

# --- 14.8 window_by_blocks


def window_by_blocks(queries: Tensor, keys: Tensor, values: Tensor, window: int, attend: Callable) -> Tensor:
    n, pieces = queries.shape[-2], []
    for start in range(0, n, window):
        stop, first = min(start + window, n), max(0, start - window + 1)
        mask = sliding_window(torch.arange(start, stop), torch.arange(first, stop), window)
        pieces.append(attend(queries[..., start:stop, :], keys[..., first:stop, :], values[..., first:stop, :], mask))
    return torch.cat(pieces, dim=-2)


def _row_by_row(queries: Tensor, keys: Tensor, values: Tensor, window: int, attend: Callable) -> Tensor:
    rows = []
    for i in range(queries.shape[-2]):
        seen = slice(max(0, i - window + 1), i + 1)
        k, v = keys[..., seen, :], values[..., seen, :]
        rows.append(attend(queries[..., i : i + 1, :], k, v, torch.ones(1, k.shape[-2], dtype=torch.bool)))
    return torch.cat(rows, dim=-2)


def _blocks(first_of: Callable[[int, int], int], mask_of: Callable, stop_of: Callable | None = None) -> Callable:
    def wrong(queries: Tensor, keys: Tensor, values: Tensor, window: int, attend: Callable) -> Tensor:
        n, pieces = queries.shape[-2], []
        for start in range(0, n if stop_of is None else stop_of(n, window), window):
            stop, first = min(start + window, n), max(0, first_of(start, window))
            mask = mask_of(torch.arange(start, stop), torch.arange(first, stop), window)
            seen = slice(first, stop)
            pieces.append(attend(queries[..., start:stop, :], keys[..., seen, :], values[..., seen, :], mask))
        return torch.cat(pieces, dim=-2)

    return wrong


def _before_the_text(queries: Tensor, keys: Tensor, values: Tensor, window: int, attend: Callable) -> Tensor:
    n, pieces = queries.shape[-2], []
    for start in range(0, n, window):
        stop, first = min(start + window, n), start - window + 1
        mask = sliding_window(torch.arange(start, stop), torch.arange(first, stop), window)
        pieces.append(attend(queries[..., start:stop, :], keys[..., first:stop, :], values[..., first:stop, :], mask))
    return torch.cat(pieces, dim=-2)


def _texts(n: int, window: int, *front: int, dtype=torch.float64) -> Callable[[Generator], tuple]:
    return lambda g: (*(normal(g, *front, n, 4, dtype=dtype) for _ in range(3)), window, attention)


def _stays_small(answer: Callable, g: Generator) -> Complaint:
    asked: list[tuple[int, int]] = []

    def watching(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        asked.append((queries.shape[-2], keys.shape[-2]))
        return attention(queries, keys, values, mask)

    n, window = 50, 8
    answer(*(normal(g, 2, n, 4) for _ in range(3)), window, watching)
    if sum(rows for rows, _ in asked) < n:
        return f"`attend` was asked for {sum(rows for rows, _ in asked)} rows of {n}: let it do all of the attention"
    rows, seen = max(asked, key=lambda pair: pair[0] * pair[1])
    if rows * seen > 2 * window * window:
        return (
            f"`attend` made a grid of {rows} by {seen}; for a window of {window} allow 2 x {window}² = {2 * window**2}"
        )
    return None


def _makes_no_grid(answer: Callable, g: Generator) -> Complaint:
    n, window = 256, 8
    if answer.is_elsewhere:  # a meter sees this process only, and a grid of so many bytes has no room in the other
        n, window = 2**16, 2**7
    complaint = f"on the way there is a tensor of {n} by {n} or more: a mask for all pairs is a grid as well"
    try:
        with Meter() as meter:
            answer(*(normal(g, 1, n, 4) for _ in range(3)), window, attention)
    except (MemoryError, RuntimeError) as error:
        if answer.is_elsewhere and "allocate" in str(error):
            return complaint
        raise
    return complaint if meter.largest >= n * n else None  # bytes: a mask has one for each pair


def _window_keeps_dtype(answer: Callable, g: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        if complaint := dtype_complaint(answer(*_texts(10, 4, 2, dtype=dtype)(g)), dtype):
            return complaint
    return None


WINDOW_BY_BLOCKS = Exercise(
    chapter=14,
    title="A window without a grid",
    points=4,
    minutes=20,
    difficulty=4,
    reference=window_by_blocks,
    cases=(
        drawn("three windows long", _texts(12, 4)),
        drawn("not a multiple", _texts(11, 4)),
        drawn("batch and heads", _texts(9, 3, 2, 2)),
        drawn("a text shorter than the window", _texts(3, 5)),
        drawn("a window of one", _texts(4, 1)),
        drawn("one token", _texts(1, 4)),
        drawn("float32", _texts(10, 4, 2, dtype=torch.float32)),
    ),
    properties=(
        Property("no call of `attend` makes more than 2 · window² scores", _stays_small),
        Property("no tensor of n × n numbers, masks included", _makes_no_grid),
        Property("keeps the dtype", _window_keeps_dtype),
    ),
    mistakes=(
        Mistake(
            "blocks alone",
            _blocks(lambda start, w: start, sliding_window),
            "Your blocks see only themselves: those are chunks. The first queries of a block also look back beyond it.",
        ),
        Mistake(
            "chunks on two blocks",
            _blocks(lambda start, w: start - w, lambda q, k, w: q.unsqueeze(-1) >= k),
            "Your keys reach back far enough, and for most queries too far: the mask must know the window.",
        ),
        Mistake(
            "only causal inside the block",
            _blocks(lambda start, w: start - w + 1, lambda q, k, w: q.unsqueeze(-1) >= k),
            "You cut the right keys for the first query of a block. The later ones see too far back: what hides that?",
        ),
        Mistake(
            "everything allowed inside the block",
            _blocks(lambda start, w: start - w + 1, lambda q, k, w: torch.ones(len(q), len(k), dtype=torch.bool)),
            "Right keys for the block, and each of its queries sees all of them, even those that come later.",
        ),
        Mistake(
            "keys before the text",
            _before_the_text,
            "The first block has nothing before it: in Python a negative start counts from the end.",
        ),
        Mistake(
            "the mask one too wide",
            _blocks(lambda start, w: start - w + 1, lambda q, k, w: sliding_window(q, k, w + 1)),
            "The right keys for a block, but its mask shows one too many: the window counts the token itself.",
        ),
        Mistake(
            "the window one too long",
            _blocks(lambda start, w: start - w, lambda q, k, w: sliding_window(q, k, w + 1)),
            "The window counts the token itself: itself and the window - 1 before it.",
        ),
        Mistake(
            "the window one too short",
            _blocks(lambda start, w: start - w, lambda q, k, w: sliding_window(q, k, max(w - 1, 1))),
            "The window counts the token itself: itself and the window - 1 before it.",
        ),
        Mistake(
            "positions counted in the block",
            _blocks(
                lambda start, w: start - w + 1,
                lambda q, k, w: sliding_window(torch.arange(len(q)), torch.arange(len(k)), w),
            ),
            "Queries and keys of a block begin at different positions. The mask compares positions, not places.",
        ),
        Mistake(
            "the rest left out",
            _blocks(lambda start, w: start - w + 1, sliding_window, lambda n, w: max(n // w * w, 1)),
            "Whole blocks are right. What of the tokens after the last whole one?",
        ),
    ),
    also_right=(_row_by_row,),
    learned="2nw scores in place of n²: what a window saves, it saves only if nobody makes the grid first.",
)

EXERCISES = (
    ATTENTION_FLOPS,
    ROOFLINE,
    KV_CACHE_BYTES,
    ALIBI_MOD_WITH_CACHE,
    FUSION_SAVING,
    WHO_MAKES_A_GRID,
    RING_WRITE,
    WINDOW_BY_BLOCKS,
)
