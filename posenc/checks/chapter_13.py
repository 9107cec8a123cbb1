"""Exercises of chapter 13: production models, rebuilt."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from posenc.absolute import frequencies as plain_frequencies
from posenc.checks.common import dtype_complaint
from posenc.checks.exercise import Case, Complaint, Exercise, Mistake, Property, drawn, normal, with_arguments
from posenc.rotary import turn, turn_halves

# --- 13.1 shortest_test


def _size(layer: dict) -> float:
    return next((size for size in (layer["window"], layer["chunk"]) if size is not None), math.inf)


def shortest_test(right: dict, wrong: dict) -> int:
    if right == wrong or _size(right) == _size(wrong) == 1:
        return 0
    return int(min(_size(right), _size(wrong))) + 1


def _first_key(layer: dict, i: int) -> int:
    if layer["window"] is not None:
        return max(0, i - layer["window"] + 1)
    return i - i % layer["chunk"] if layer["chunk"] is not None else 0


def _shortest(*, more: int = 1, of: Callable = min, same: Callable | None = None) -> Callable:
    """The answer with another number added, of the larger size, or with another idea of what is the same."""

    def answer(right: dict, wrong: dict) -> int:
        equal = shortest_test(right, wrong) == 0 if same is None else same(right, wrong)
        size = of(_size(right), _size(wrong))
        return 0 if equal or size == math.inf else int(size) + more

    return answer


def _by_first_key(first_key: Callable[[dict, int], int]) -> Callable:
    """The answer by trying, with another idea of the first key that a query sees."""

    def answer(right: dict, wrong: dict) -> int:
        sizes = [size for size in (*right.values(), *wrong.values()) if size is not None]
        tried = range(2 * max(sizes, default=0) + 2)
        return next((i + 1 for i in tried if first_key(right, i) != first_key(wrong, i)), 0)

    return answer


def _one_more_key(layer: dict, i: int) -> int:
    return max(0, i - layer["window"]) if layer["window"] is not None else _first_key(layer, i)


def _largest_given(*sizes: float) -> float:
    return max((size for size in sizes if size < math.inf), default=math.inf)


def _sees(window: int | None = None, chunk: int | None = None) -> dict:
    return {"window": window, "chunk": chunk}


SHORTEST_TEST = Exercise(
    chapter=13,
    title="The shortest test that can fail",
    points=2,
    minutes=10,
    difficulty=2,
    reference=shortest_test,
    cases=(
        with_arguments("a window off by one", _sees(window=7), _sees(window=8)),
        with_arguments("a window forgotten", _sees(window=4096), _sees()),
        with_arguments("a window invented", _sees(), _sees(window=5)),
        with_arguments("a window of one token forgotten", _sees(window=1), _sees()),
        with_arguments("a chunk too large", _sees(chunk=8), _sees(chunk=16)),
        with_arguments("a chunk too small", _sees(chunk=8192), _sees(chunk=4096)),
        with_arguments("a chunk for a window", _sees(window=4), _sees(chunk=4)),
        with_arguments("a small chunk for a large window", _sees(window=9), _sees(chunk=3)),
        with_arguments("read rightly", _sees(window=16), _sees(window=16)),
        with_arguments("both see everything", _sees(), _sees()),
        with_arguments("each sees itself alone", _sees(window=1), _sees(chunk=1)),
    ),
    mistakes=(
        Mistake(
            "one token too few",
            _shortest(more=0),
            "A text as long as the smaller window fits into both of them. Which token is the first that loses a key?",
        ),
        Mistake(
            "one token too many",
            _shortest(more=2),
            "One token earlier the two already see different keys. Count positions from 0, tokens from 1.",
        ),
        Mistake(
            "the larger size decides",
            _shortest(of=max),
            "The larger one need not be reached: as soon as the smaller one loses a key, the two differ.",
        ),
        Mistake(
            "the larger of the sizes that are given",
            _shortest(of=_largest_given),
            "Right where one of the two sees everything. With two sizes: which layer is the first to lose a key?",
        ),
        Mistake(
            "each window one key too large",
            _by_first_key(_one_more_key),
            "A window of w holds w keys, the query's own among them. Yours holds one more.",
        ),
        Mistake(
            "equal numbers taken for equal layers",
            _shortest(same=lambda right, wrong: _size(right) == _size(wrong)),
            "A window and a chunk of the same size are not the same: the window slides. Where do they part?",
        ),
        Mistake(
            "the smallest sizes forgotten",
            _shortest(same=lambda right, wrong: right == wrong),
            "Nearly. Is there a size at which a window and a chunk are the same thing?",
        ),
        Mistake(
            "no difference without two sizes",
            _shortest(
                same=lambda right, wrong: math.inf in (_size(right), _size(wrong)) or shortest_test(right, wrong) == 0
            ),
            "A window against none at all: that is a difference too, and a common one.",
        ),
    ),
    also_right=(_by_first_key(_first_key),),
    learned="Up to the smaller window, everybody is right. A test must be longer than what it tests.",
)

# --- 13.2 split_fused


def split_fused(weight: Tensor, n_heads: int, n_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    each = n_heads // n_groups
    parts = weight.unflatten(0, (n_groups, each + 2, -1))  # (groups, heads of the group, head_dim, d_model)
    return parts[:, :each].flatten(0, 2), parts[:, each].flatten(0, 1), parts[:, each + 1].flatten(0, 1)


def _split_by_loop(weight: Tensor, n_heads: int, n_groups: int) -> tuple[Tensor, Tensor, Tensor]:
    head_dim, each = len(weight) // (n_heads + 2 * n_groups), n_heads // n_groups
    heads = [weight[i : i + head_dim] for i in range(0, len(weight), head_dim)]
    q, k, v = [], [], []
    for start in range(0, len(heads), each + 2):
        group = heads[start : start + each + 2]
        q, k, v = [*q, *group[:each]], [*k, group[-2]], [*v, group[-1]]
    return torch.cat(q), torch.cat(k), torch.cat(v)


def _all_queries_first(weight: Tensor, n_heads: int, n_groups: int) -> tuple[Tensor, ...]:
    head_dim = len(weight) // (n_heads + 2 * n_groups)
    return weight.split([n_heads * head_dim, n_groups * head_dim, n_groups * head_dim])


def _queries_exchanged(weight: Tensor, n_heads: int, n_groups: int) -> tuple[Tensor, ...]:
    each = n_heads // n_groups
    q, k, v = split_fused(weight, n_heads, n_groups)
    return q.unflatten(0, (n_groups, each, -1)).transpose(0, 1).flatten(0, 2), k, v


def _repeated_groups(weight: Tensor, n_heads: int, n_groups: int) -> tuple[Tensor, ...]:
    each = n_heads // n_groups
    q, k, v = split_fused(weight, n_heads, n_groups)
    return q, *(t.unflatten(0, (n_groups, -1)).repeat_interleave(each, dim=0).flatten(0, 1) for t in (k, v))


def _keys_in_front(weight: Tensor, n_heads: int, n_groups: int) -> tuple[Tensor, ...]:
    parts = weight.unflatten(0, (n_groups, n_heads // n_groups + 2, -1))
    return parts[:, 2:].flatten(0, 2), parts[:, 0].flatten(0, 1), parts[:, 1].flatten(0, 1)


def _fused(name: str, n_heads: int, n_groups: int, head_dim: int, d_model: int, dtype: torch.dtype = torch.float64):
    rows = (n_heads + 2 * n_groups) * head_dim
    return drawn(name, lambda g: (normal(g, rows, d_model).to(dtype), n_heads, n_groups))


SPLIT_FUSED = Exercise(
    chapter=13,
    title="Three matrices in one",
    points=2,
    minutes=10,
    difficulty=2,
    reference=split_fused,
    cases=(
        _fused("four heads, two groups", 4, 2, 3, 8),
        _fused("a group for each head, as in GPT-NeoX", 4, 4, 2, 8),
        _fused("one group for all", 3, 1, 4, 6),
        _fused("eight heads, two groups, float32", 8, 2, 4, 5, torch.float32),
        _fused("one head", 1, 1, 4, 4),
        _fused("six heads, three groups of features of one", 6, 3, 1, 4),
    ),
    mistakes=(
        Mistake(
            "all queries first",
            _all_queries_first,
            "Right shapes, other rows: you take all queries from the top. Which runs slower along the rows here, the "
            "group or the place in it?",
        ),
        Mistake(
            "keys and values exchanged",
            lambda *a: (split_fused(*a)[0], *split_fused(*a)[:0:-1]),
            "Nearly: in each group the last head is the value's.",
        ),
        Mistake(
            "query heads dealt out to the groups",
            _queries_exchanged,
            "The right rows, but your query heads are in another order: all of the first group come first.",
        ),
        Mistake(
            "keys already repeated",
            _repeated_groups,
            "Each group has one key head. Repeating it for its queries is attention's work, not a loader's.",
        ),
        Mistake(
            "key and value in front",
            _keys_in_front,
            "In each group the queries stand first, then the key, then the value.",
        ),
    ),
    also_right=(_split_by_loop,),
    learned="The shape of a fused matrix tells nothing of its order. Only an output does.",
)

# --- 13.3 positions_read


def positions_read(config: dict, attention_mask: Tensor) -> Tensor:
    real = attention_mask.long()
    if config["model_type"] == "bert":
        return torch.arange(real.shape[1]).expand(real.shape).clone()
    counted = real.cumsum(dim=1) * real  # 1 at the first real token, 0 at padding
    if config["model_type"] == "roberta":
        return counted + config["pad_token_id"]
    return counted + 1 if config["model_type"] == "opt" else (counted - 1).clamp(min=0)


def _positions_by_loop(config: dict, attention_mask: Tensor) -> Tensor:
    first = {"bert": 0, "llama": 0, "opt": 2, "roberta": config["pad_token_id"] + 1}[config["model_type"]]
    padded = {"llama": 0, "opt": 1, "roberta": config["pad_token_id"]}
    rows = []
    for row in attention_mask.tolist():
        seen, places = 0, []
        for column, is_real in enumerate(row):
            if config["model_type"] == "bert":
                places.append(column)
            else:
                places.append(first + seen if is_real else padded[config["model_type"]])
            seen += int(is_real)
        rows.append(places)
    return torch.tensor(rows)


def _read_otherwise(**instead: Callable[[Tensor, int], Tensor]) -> Callable:
    """One model type, or all of them (`every`), read in another way: real, pad_token_id -> positions."""

    def wrong(config: dict, attention_mask: Tensor) -> Tensor:
        other = instead.get(config["model_type"], instead.get("every"))
        real = attention_mask.long()
        return positions_read(config, attention_mask) if other is None else other(real, config["pad_token_id"])

    return wrong


def _counted(real: Tensor) -> Tensor:
    return real.cumsum(dim=1) * real


def _from_the_left(real: Tensor, first: int) -> Tensor:
    return torch.arange(first, first + real.shape[1]).expand(real.shape).clone()


def _also_for_padding(config: dict, attention_mask: Tensor) -> Tensor:
    """Counts on over padding behind the text, and gives what comes before the text the number below the first."""
    if config["model_type"] == "bert":
        return positions_read(config, attention_mask)
    first = {"llama": 0, "opt": 2, "roberta": config["pad_token_id"] + 1}[config["model_type"]]
    return (attention_mask.long().cumsum(dim=1) - 1 + first).clamp(min=0)


PADDED = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def _padded(name: str, model_type: str, mask: Tensor = PADDED, pad: int = 1) -> Case:
    return with_arguments(name, {"model_type": model_type, "pad_token_id": pad}, mask)


POSITIONS_READ = Exercise(
    chapter=13,
    title="Four families, four ways to count",
    points=2,
    minutes=12,
    difficulty=2,
    reference=positions_read,
    cases=(
        _padded("BERT", "bert"),
        _padded("Llama", "llama"),
        _padded("OPT", "opt"),
        _padded("RoBERTa", "roberta"),
        _padded("RoBERTa with another padding token", "roberta", pad=5),
        _padded("OPT, whose padding token does not matter", "opt", pad=9),
        _padded("nothing padded", "roberta", torch.ones(2, 3, dtype=torch.long)),
        _padded("a true/false mask", "llama", PADDED.bool()),
        _padded("padding in the middle", "llama", torch.tensor([[1, 0, 1, 1]])),
        _padded("nothing but padding", "opt", torch.tensor([[0, 0], [0, 1]])),
    ),
    mistakes=(
        Mistake(
            "padding counted in Llama",
            _read_otherwise(llama=lambda real, _: _from_the_left(real, 0)),
            "With padding on the left, Llama's text would start late. Count real tokens.",
        ),
        Mistake(
            "Llama's padding at -1",
            _read_otherwise(llama=lambda real, _: _counted(real) - 1),
            "The real tokens are right. Padding has no number below 0 in Llama.",
        ),
        Mistake(
            "Llama's padding on the right counted on",
            _read_otherwise(llama=lambda real, _: (real.cumsum(dim=1) - 1).clamp(min=0)),
            "Right for padding in front. Behind the text, or inside it, padding gets a number of its own as well.",
        ),
        Mistake(
            "OPT with the padding token",
            _read_otherwise(opt=lambda real, pad: _counted(real) + pad),
            "In OPT the padding token does not matter. That is RoBERTa's rule.",
        ),
        Mistake(
            "padding not counted in BERT",
            _read_otherwise(bert=lambda real, _: (_counted(real) - 1).clamp(min=0)),
            "BERT never looks at the mask for that: it counts columns.",
        ),
        Mistake(
            "OPT from 0",
            _read_otherwise(opt=lambda real, _: (_counted(real) - 1).clamp(min=0)),
            "In OPT the first two rows of the table are set aside.",
        ),
        Mistake(
            "RoBERTa from the padding token itself",
            _read_otherwise(roberta=lambda real, pad: torch.where(real > 0, _counted(real) - 1 + pad, pad)),
            "The row of that number is the padding's own. The first token stands one row further.",
        ),
        Mistake(
            "RoBERTa's padding token is always 1",
            _read_otherwise(roberta=lambda real, _: _counted(real) + 1),
            "You took one checkpoint's padding token for every checkpoint's. It stands in the configuration.",
        ),
        Mistake(
            "counted on over the padding",
            _also_for_padding,
            "The real tokens are right. Padding gets a number of its own; read in the statement which.",
        ),
        Mistake(
            "all as in Llama",
            _read_otherwise(every=lambda real, _: (_counted(real) - 1).clamp(min=0)),
            "Four families, four ways: you count in one way for all of them.",
        ),
        Mistake(
            "all as in BERT",
            _read_otherwise(every=lambda real, _: _from_the_left(real, 0)),
            "You count columns for all of them. Only one of the four does that.",
        ),
    ),
    also_right=(_positions_by_loop,),
    learned="Position ids are part of a model: four families, four rules, and one setting between them.",
)

# --- 13.4 released_frequencies


def _setting(config: dict, *names: str, default: Any = None) -> Any:
    places = (config, config.get("rope_parameters") or {}, config.get("rope_scaling") or {})
    return next((place[name] for place in places for name in names if place.get(name) is not None), default)


def released_frequencies(config: dict) -> Tensor:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    width = int(head_dim * _setting(config, "partial_rotary_factor", "rotary_pct", default=1.0))
    stretched = _setting(config, "rope_type", "type") == "linear"
    waves = plain_frequencies(width, _setting(config, "rope_theta", "rotary_emb_base", default=10_000.0))
    return waves / _setting(config, "factor") if stretched else waves


def _frequencies_by_loop(config: dict) -> list[float]:
    flat = dict(config)
    for nested in ("rope_parameters", "rope_scaling"):
        flat |= flat.pop(nested, None) or {}
    head_dim = flat.get("head_dim") or flat["hidden_size"] // flat["num_attention_heads"]
    share = flat.get("partial_rotary_factor", flat.get("rotary_pct", 1.0))
    base = flat.get("rope_theta", flat.get("rotary_emb_base", 10_000.0))
    slower = flat["factor"] if "linear" in (flat.get("type"), flat.get("rope_type")) else 1.0
    width = int(head_dim * share)
    return [base ** (-2 * k / width) / slower for k in range(width // 2)]


def _reread(change: Callable[[dict], dict]) -> Callable:
    """The right function on a configuration that one has read in another way."""
    return lambda config: released_frequencies(change(config))


def _without(*names: str) -> Callable:
    """These settings overlooked, wherever they stand."""

    def change(config: dict) -> dict:
        kept = {k: v for k, v in config.items() if k not in names}
        for nested in ("rope_parameters", "rope_scaling"):
            if isinstance(kept.get(nested), dict):
                kept[nested] = {k: v for k, v in kept[nested].items() if k not in names}
        return kept

    return _reread(change)


def _whole_spectrum_cut(config: dict) -> Tensor:
    turned = len(released_frequencies(config))
    return _without("partial_rotary_factor", "rotary_pct")(config)[:turned]


def _base_multiplied(config: dict) -> Tensor:
    if _setting(config, "rope_type", "type") != "linear":
        return released_frequencies(config)
    base = _setting(config, "rope_theta", "rotary_emb_base", default=10_000.0)
    return plain_frequencies(2 * len(released_frequencies(config)), base * _setting(config, "factor"))


def _times_the_factor(config: dict) -> Tensor:
    slower = _setting(config, "factor", default=1.0) if _setting(config, "rope_type", "type") == "linear" else 1.0
    return released_frequencies(config) * slower**2


def _always_by_the_factor(config: dict) -> Tensor:
    if _setting(config, "rope_type", "type") == "linear":
        return released_frequencies(config)
    return released_frequencies(config) / _setting(config, "factor", default=1.0)


def _one_value_a_feature(config: dict) -> Tensor:
    return torch.cat([released_frequencies(config)] * 2)


def _each_twice(config: dict) -> Tensor:
    return released_frequencies(config).repeat_interleave(2)


def _whole_by(rounding: Callable[[float], int], of_head: Callable[[float], float] = int) -> Callable:
    """The right function with another way to make whole numbers: of features that turn, and of a head's width."""

    def answer(config: dict) -> Tensor:
        head_dim = config.get("head_dim") or of_head(config["hidden_size"] / config["num_attention_heads"])
        width = rounding(head_dim * _setting(config, "partial_rotary_factor", "rotary_pct", default=1.0))
        base = _setting(config, "rope_theta", "rotary_emb_base", default=10_000.0)
        slower = _setting(config, "factor") if _setting(config, "rope_type", "type") == "linear" else 1.0
        return base ** (-2 * torch.arange(width // 2, dtype=torch.float64) / width) / slower

    return answer


GPT_NEOX = {"hidden_size": 6144, "num_attention_heads": 64, "rotary_pct": 0.25, "rotary_emb_base": 10_000}
LLAMA_2 = {"hidden_size": 4096, "num_attention_heads": 32, "rope_scaling": None}
GEMMA_OLD = {"hidden_size": 2560, "num_attention_heads": 8, "head_dim": 256, "rope_theta": 1_000_000.0}
GEMMA_OLD |= {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}
PHI = {"hidden_size": 2560, "num_attention_heads": 32, "partial_rotary_factor": 0.4, "rope_theta": 10_000.0}
NEW_STYLE = {"hidden_size": 1024, "num_attention_heads": 8, "head_dim": 32}
NEW_STYLE |= {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5}}
VICUNA = {"hidden_size": 64, "num_attention_heads": 4, "rope_scaling": {"type": "linear", "factor": 4.0}}
FRACTION = {"hidden_size": 1216, "num_attention_heads": 16, "partial_rotary_factor": 0.35, "rope_theta": 100.0}  # 26.6
UNEVEN = {"hidden_size": 107, "num_attention_heads": 10, "rotary_pct": 0.85}  # 8.5 of 10 features
UNUSED = {"hidden_size": 64, "num_attention_heads": 4}
UNUSED |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "factor": 8.0}}

RELEASED_FREQUENCIES = Exercise(
    chapter=13,
    title="Frequencies from a configuration",
    points=3,
    minutes=15,
    difficulty=3,
    reference=released_frequencies,
    cases=(
        with_arguments("GPT-NeoX, old names", GPT_NEOX),
        with_arguments("Llama 2: nothing said", LLAMA_2),
        with_arguments("Gemma 3's global layers, old style", GEMMA_OLD),
        with_arguments("a share of 0.4", PHI),
        with_arguments("new style", NEW_STYLE),
        with_arguments("an older name for the rule", VICUNA),
        with_arguments("a factor that no rule reads", UNUSED),
        with_arguments("a share that leaves a fraction", FRACTION),
        with_arguments("a width that the heads don't divide", UNEVEN),
    ),
    mistakes=(
        Mistake(
            "head_dim overlooked",
            _without("head_dim"),
            "Where `head_dim` is given it counts: the heads together need not be as wide as the model.",
        ),
        Mistake(
            "the share overlooked",
            _without("partial_rotary_factor", "rotary_pct"),
            "Too many frequencies: only a part of each head turns.",
        ),
        Mistake("one name of the share", _without("rotary_pct"), "The share of a head has an older name as well."),
        Mistake(
            "the other name of the share",
            _without("partial_rotary_factor"),
            "The share of a head has a newer name as well, and may stand one level deeper.",
        ),
        Mistake("one base for all", _without("rope_theta"), "You did not read the base everywhere that it may stand."),
        Mistake("no stretching", _without("rope_scaling"), "Right without a rule. What does the rule do?"),
        Mistake(
            "one name of the rule",
            _without("type"),
            "The kind of rule stands under one of two names. You know one of them.",
        ),
        Mistake(
            "the spectrum of the whole head, cut",
            _whole_spectrum_cut,
            "The right number of them. But the exponent divides by the number of features that *turn*.",
        ),
        Mistake("a larger base", _base_multiplied, "That is NTK's idea. The linear rule slows all pairs alike."),
        Mistake("faster", _times_the_factor, "Stretching makes pairs slower, yours are faster."),
        Mistake(
            "the factor without its rule",
            _always_by_the_factor,
            "A factor may be left over where the rule says `default`. Then nothing reads it.",
        ),
        Mistake(
            "one for each feature",
            _one_value_a_feature,
            "One frequency a *pair*, please. Doubling them is a matter of the layout.",
        ),
        Mistake("each frequency twice", _each_twice, "One frequency a *pair*, please, not one for each of its two."),
        Mistake("slowest first", lambda config: released_frequencies(config).flip(0), "The right ones, backwards."),
        Mistake(
            "settings read at the top alone",
            _without("rope_parameters", "rope_scaling"),
            "Some settings stand one level deeper, in one of two dicts.",
        ),
        Mistake("features rounded", _whole_by(round), "How many features turn? The *whole part* of 26.6 is not 27."),
        Mistake("features rounded up", _whole_by(math.ceil), "How many features turn? 26.6 has a *whole part*."),
        Mistake(
            "the width of a head not whole",
            _whole_by(int, float),
            "The width of a head is a division with `//`: a whole number, before anything is made of it.",
        ),
    ),
    also_right=(_frequencies_by_loop,),
    learned="Seven configurations, three spellings. Read the code that reads the settings, and check by the output.",
)

# --- 13.5 layer_pattern


def layer_pattern(config: dict) -> list[tuple[int, float]]:
    n, window = config["num_hidden_layers"], config.get("sliding_window") or 0
    if config.get("use_sliding_window") is False:
        window = 0
    if types := config.get("layer_types"):
        local = [kind == "sliding_attention" for kind in types]
    elif period := config.get("sliding_window_pattern"):
        local = [(i + 1) % period != 0 for i in range(n)]
    else:
        local = [True] * n
    base = config["rope_theta"]
    near = config.get("rope_local_base_freq", base)
    far = 0.0 if config["model_type"] == "cohere2" else base
    return [(window, near) if is_local and window else (0, far) for is_local in local]


def _pattern_by_loop(config: dict) -> list[list]:
    layers = []
    for i in range(config["num_hidden_layers"]):
        window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
        types, period = config.get("layer_types"), config.get("sliding_window_pattern")
        if types is not None:
            window = window if types[i] != "full_attention" else None
        elif period is not None and i % period == period - 1:
            window = None
        base = config["rope_theta"]
        if window is not None and "rope_local_base_freq" in config:
            base = config["rope_local_base_freq"]
        if window is None and config["model_type"] == "cohere2":
            base = 0
        layers.append([window or 0, base])
    return layers


def _pattern_with(change: Callable[[dict], dict]) -> Callable:
    return lambda config: layer_pattern(change(config))


def _dropping(*names: str) -> Callable:
    return _pattern_with(lambda config: {k: v for k, v in config.items() if k not in names})


def _first_of_each_group(config: dict) -> list[tuple]:
    if config.get("layer_types") or not (period := config.get("sliding_window_pattern")):
        return layer_pattern(config)
    kinds = ["full_attention" if i % period == 0 else "sliding_attention" for i in range(config["num_hidden_layers"])]
    return layer_pattern(config | {"layer_types": kinds})


def _locals_and_fulls_exchanged(config: dict) -> list[tuple]:
    if config.get("layer_types") or not (period := config.get("sliding_window_pattern")):
        return layer_pattern(config)
    n = config["num_hidden_layers"]
    return layer_pattern(config | {"layer_types": [FULL if (i + 1) % period else SLIDING for i in range(n)]})


def _base_by_kind(config: dict) -> list[tuple]:
    """Layers called local have the local base, and turn, whether or not the window is on."""
    named = [window > 0 for window, _ in layer_pattern(config | {"sliding_window": 1, "use_sliding_window": True})]
    near, far = config.get("rope_local_base_freq", config["rope_theta"]), config["rope_theta"]
    far = 0.0 if config["model_type"] == "cohere2" else far
    windows = [window for window, _ in layer_pattern(config)]
    return [(window, near if local else far) for window, local in zip(windows, named, strict=True)]


def _off_unless_said(config: dict) -> list[tuple]:
    return layer_pattern({"use_sliding_window": False} | config)


def _no_window_is_zero(answer: Callable, _: Generator) -> Complaint:
    got = answer({"model_type": "llama", "num_hidden_layers": 1, "rope_theta": 1e4})
    is_none = isinstance(got, (list, tuple)) and any(isinstance(p, (list, tuple)) and None in p[:1] for p in got)
    return "a layer without a window has the window 0 in the answer, not None" if is_none else None


def _one_tensor(config: dict) -> Tensor:
    return torch.tensor(layer_pattern(config), dtype=torch.float64)


def _bases_exchanged(config: dict) -> list[tuple]:
    if "rope_local_base_freq" not in config:
        return layer_pattern(config)
    return layer_pattern(
        config | {"rope_theta": config["rope_local_base_freq"], "rope_local_base_freq": config["rope_theta"]}
    )


def _types_exchanged(config: dict) -> list[tuple]:
    other = {"sliding_attention": "full_attention", "full_attention": "sliding_attention"}
    types = config.get("layer_types")
    return layer_pattern(config | {"layer_types": [other[kind] for kind in types]} if types else config)


def _default_window(config: dict) -> dict:
    missing = config.get("sliding_window") is None
    return config | {"sliding_window": 4096} if missing else config


GEMMA = {"model_type": "gemma3_text", "num_hidden_layers": 8, "sliding_window": 1024, "rope_theta": 1_000_000.0}
GEMMA |= {"rope_local_base_freq": 10_000.0}
SLIDING, FULL = "sliding_attention", "full_attention"

LAYER_PATTERN = Exercise(
    chapter=13,
    title="Windows and bases, layer by layer",
    points=3,
    minutes=15,
    difficulty=3,
    reference=layer_pattern,
    cases=(
        with_arguments("Gemma 3, a period", GEMMA | {"sliding_window_pattern": 6}),
        with_arguments("Gemma 3, a list", GEMMA | {"num_hidden_layers": 3, "layer_types": [SLIDING, SLIDING, FULL]}),
        with_arguments(
            "a list beside a period: the list counts",
            GEMMA
            | {"num_hidden_layers": 4, "layer_types": [FULL, SLIDING, SLIDING, FULL], "sliding_window_pattern": 2},
        ),
        with_arguments(
            "Mistral 7B v0.1: windows everywhere",
            {"model_type": "mistral", "num_hidden_layers": 3, "sliding_window": 4096, "rope_theta": 10_000.0},
        ),
        with_arguments(
            "Mistral 7B v0.2: null",
            {"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": None, "rope_theta": 1_000_000.0},
        ),
        with_arguments(
            "Llama: no word of windows", {"model_type": "llama", "num_hidden_layers": 2, "rope_theta": 500_000.0}
        ),
        with_arguments(
            "Qwen2: a window switched off",
            {"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 32_768, "rope_theta": 1_000_000.0}
            | {"use_sliding_window": False},
        ),
        with_arguments(
            "Command R7B: the full layers do not turn",
            {"model_type": "cohere2", "num_hidden_layers": 9, "sliding_window": 4096, "rope_theta": 50_000.0}
            | {"sliding_window_pattern": 4},
        ),
        with_arguments(
            "a window switched off, and a base for local layers",
            GEMMA | {"num_hidden_layers": 4, "sliding_window_pattern": 2, "use_sliding_window": False},
        ),
        with_arguments(
            "local layers without a window, and a base for them",
            GEMMA | {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL], "sliding_window": None},
        ),
        with_arguments(
            "Command R7B, its window switched off",
            {"model_type": "cohere2", "num_hidden_layers": 4, "sliding_window": 4096, "rope_theta": 50_000.0}
            | {"sliding_window_pattern": 4, "use_sliding_window": False},
        ),
    ),
    properties=(Property("no window is written 0", _no_window_is_zero),),
    mistakes=(
        Mistake(
            "the switch overlooked",
            _dropping("use_sliding_window"),
            "One of the configurations has a window, and a switch beside it. Read both.",
        ),
        Mistake(
            "the first of each group is full",
            _first_of_each_group,
            "The full layer is the *last* of its group: the p-th, the 2p-th …",
        ),
        Mistake(
            "the period overlooked",
            _dropping("sliding_window_pattern"),
            "Lists you read. Where there is a period instead, every p-th layer is full.",
        ),
        Mistake(
            "the period wins", _dropping("layer_types"), "Where there is a list, it counts, whatever stands beside."
        ),
        Mistake(
            "one base for all", _dropping("rope_local_base_freq"), "Layers with a window may have a base of their own."
        ),
        Mistake("the bases exchanged", _bases_exchanged, "The small base belongs to the layers that see little."),
        Mistake("windows and full exchanged", _types_exchanged, "Look again at which kind of layer has the window."),
        Mistake(
            "every layer turns",
            _pattern_with(lambda config: config | {"model_type": "any"}),
            "In one family the full layers don't turn, and no setting says so. The statement does.",
        ),
        Mistake(
            "the class's default for null",
            _pattern_with(_default_window),
            "None means that there is no window. A default is for what is not given at all, and here it is none too.",
        ),
        Mistake(
            "the pattern the other way round",
            _locals_and_fulls_exchanged,
            "With a period of 6, five layers of six are local.",
        ),
        Mistake(
            "the base by what a layer is called",
            _base_by_kind,
            "Look at the configurations without a window, or with it switched off. Which base does the statement give?",
        ),
        Mistake(
            "no window unless the switch is there",
            _off_unless_said,
            "The switch turns a window off where it is False. Most configurations have no such switch.",
        ),
        Mistake(
            "one tensor", _one_tensor, "The right numbers. Return a list with a pair for each layer, not a tensor."
        ),
        Mistake(
            "full layers never turn",
            _pattern_with(lambda config: config | {"model_type": "cohere2"}),
            "That holds in one family alone.",
        ),
    ),
    also_right=(_pattern_by_loop,),
    learned="Window, switch, list, period, two bases, and a rule in the code alone: six places for one fact.",
)

# --- 13.6 grouped_attention


def _attention(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    w_o: Tensor,
    config: dict,
    *,
    halves: bool | None = None,
    share: float | None = None,
    base: float | None = None,
    window: int | str | None = "given",
    is_causal: bool = True,
    tiled: bool = False,
    scale: Callable[[int, int, int], float] = lambda head_dim, width, d_model: head_dim,
    whole_spectrum: bool = False,
    last: bool = False,
    values_too: bool = False,
    start: int = 0,
    queries_alone: bool = False,
    signs: tuple[int, int] = (1, 1),
    two_sided: bool = False,
    whole: Callable[[float], int] = int,
) -> Tensor:
    n, n_heads, n_groups = x.shape[-2], config["num_attention_heads"], config["num_key_value_heads"]
    q, k, v = (x @ weight.mT for weight in (w_q, w_k, w_v))
    head_dim = q.shape[-1] // n_heads
    q, k, v = (
        t.unflatten(-1, (m, head_dim)).transpose(-3, -2) for t, m in ((q, n_heads), (k, n_groups), (v, n_groups))
    )
    width = whole(head_dim * (config["partial_rotary_factor"] if share is None else share))
    theta = config["rope_theta"] if base is None else base
    waves = theta ** (-2 * torch.arange(width // 2, dtype=torch.float64) / (head_dim if whole_spectrum else width))
    width = 2 * len(waves)
    way = turn_halves if (config["layout"] == "halves" if halves is None else halves) else turn
    first = head_dim - width if last else 0

    def turned(t: Tensor, sign: int) -> Tensor:
        angles = sign * torch.arange(start, start + n).unsqueeze(-1) * waves
        before, part, after = t.tensor_split((first, first + width), dim=-1)
        return torch.cat([before, way(part, angles), after], dim=-1)

    q, k = turned(q, signs[0]), k if queries_alone else turned(k, signs[1])
    v = turned(v, 1) if values_too else v
    each = n_heads // n_groups
    k, v = ((t.repeat(*[1] * (t.ndim - 3), each, 1, 1) if tiled else t.repeat_interleave(each, dim=-3)) for t in (k, v))
    scores = q @ k.mT / scale(head_dim, width, x.shape[-1]) ** 0.5
    offset = torch.arange(n)[:, None] - torch.arange(n)
    sees = config["sliding_window"] if window == "given" else window
    mask = (offset >= 0) if is_causal else torch.ones_like(offset, dtype=torch.bool)
    if sees is not None:
        mask = offset.abs() < sees if two_sided else mask & (offset < sees)
    mixed = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v
    return mixed.transpose(-3, -2).flatten(-2) @ w_o.mT


def grouped_attention(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, config: dict) -> Tensor:
    return _attention(x, w_q, w_k, w_v, w_o, config)


def _one_head_at_a_time(x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, config: dict) -> Tensor:
    n, n_heads = x.shape[-2], config["num_attention_heads"]
    head_dim = len(w_q) // n_heads
    width, each = int(head_dim * config["partial_rotary_factor"]), n_heads // config["num_key_value_heads"]
    heads = []
    for head in range(n_heads):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        shared = slice(head // each * head_dim, (head // each + 1) * head_dim)
        q, k, v = x @ w_q[rows].mT, x @ w_k[shared].mT, x @ w_v[shared].mT
        q, k = q.clone(), k.clone()
        for pair in range(width // 2):
            angle = torch.arange(n) * config["rope_theta"] ** (-2 * pair / width)
            cos, sin = angle.double().cos().to(x.dtype), angle.double().sin().to(x.dtype)
            a, b = (pair, pair + width // 2) if config["layout"] == "halves" else (2 * pair, 2 * pair + 1)
            for t in (q, k):
                first, second = t[..., a].clone(), t[..., b].clone()
                t[..., a], t[..., b] = first * cos - second * sin, first * sin + second * cos
        scores = q @ k.mT / head_dim**0.5
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        if config["sliding_window"] is not None:
            hidden = hidden | torch.ones(n, n, dtype=torch.bool).tril(-config["sliding_window"])
        heads.append(scores.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ v)
    return torch.cat(heads, dim=-1) @ w_o.mT


def _attention_with(**other: Any) -> Callable:
    return lambda *arguments: _attention(*arguments, **other)


def _window_off(by: int) -> Callable:
    def wrong(*arguments: Any) -> Tensor:
        window = arguments[-1]["sliding_window"]
        return _attention(*arguments, window=None if window is None else window + by)

    return wrong


def _other_layout(*arguments: Any) -> Tensor:
    return _attention(*arguments, halves=arguments[-1]["layout"] != "halves")


def _layer_of(
    name: str,
    *shape: int,
    heads: int = 4,
    groups: int = 2,
    head_dim: int = 8,
    share: float = 1.0,
    layout: str = "halves",
    window: int | None = None,
    base: float = 10_000.0,
    dtype: torch.dtype = torch.float64,
) -> Case:
    config = {"num_attention_heads": heads, "num_key_value_heads": groups, "rope_theta": base}
    config |= {"partial_rotary_factor": share, "layout": layout, "sliding_window": window}

    def make(g: Generator) -> tuple:
        width = shape[-1]
        sizes = (
            (heads * head_dim, width),
            (groups * head_dim, width),
            (groups * head_dim, width),
            (width, heads * head_dim),
        )
        weights = ((2 * normal(g, *size) / size[1] ** 0.5).to(dtype) for size in sizes)
        return normal(g, *shape).to(dtype), *weights, dict(config)

    return drawn(name, make)


def _keeps_dtype_of_rows(answer: Callable, generator: Generator) -> Complaint:
    for dtype in (torch.float32, torch.float64):
        if complaint := dtype_complaint(answer(*_layer_of("", 5, 6, dtype=dtype).make(generator)), dtype):
            return complaint
    return None


def _blind_to_the_future(answer: Callable, generator: Generator) -> Complaint:
    for window in (None, 3):
        x, *rest = _layer_of("", 6, 6, window=window).make(generator)
        changed = torch.cat([x[:4], -x[4:]])
        moved = (answer(x, *rest)[:4] - answer(changed, *rest)[:4]).abs().max().item()
        if not moved < 1e-9:
            return f"window {window}: rows 4 and 5 were changed, and the rows before them changed by {moved:.2g}"
    return None


GROUPED_ATTENTION = Exercise(
    chapter=13,
    title="A production layer, from its weights",
    points=4,
    minutes=35,
    difficulty=4,
    reference=grouped_attention,
    cases=(
        _layer_of("two groups, halves", 7, 12),
        _layer_of("two groups, neighbours", 7, 12, layout="neighbours"),
        _layer_of("a group for each head", 5, 8, groups=4),
        _layer_of("one group for all, a batch", 2, 6, 10, groups=1),
        _layer_of("a quarter of each head turns", 6, 12, head_dim=16, share=0.25),
        _layer_of("half of each head, neighbours, another base", 6, 12, share=0.5, layout="neighbours", base=5e5),
        _layer_of("a window of 3", 9, 12, window=3),
        _layer_of("a window of 1: each row sees itself", 4, 6, window=1),
        _layer_of("a window longer than the text", 4, 6, window=50),
        _layer_of(
            "six heads, three groups, float32, a batch of batches", 2, 2, 5, 9, heads=6, groups=3, dtype=torch.float32
        ),
        _layer_of("a share that leaves a fraction", 6, 12, head_dim=16, share=0.3, base=100.0),
        _layer_of("one row", 1, 6),
    ),
    properties=(
        Property("keeps the dtype", _keeps_dtype_of_rows),
        Property("no row sees a later one", _blind_to_the_future),
    ),
    mistakes=(
        Mistake("the other layout", _other_layout, "Your pairs are made in the other way. Look at `layout` again."),
        Mistake(
            "always halves", _attention_with(halves=True), "Right for halves. The setting `layout` has two values."
        ),
        Mistake("always neighbours", _attention_with(halves=False), "Right for neighbours. `layout` has two values."),
        Mistake(
            "groups dealt out in turn",
            _attention_with(tiled=True),
            "Heads 0 and 1 share a group, not 0 and 2. `repeat` and `repeat_interleave` differ in that.",
        ),
        Mistake(
            "the whole head turned",
            _attention_with(share=1.0),
            "Only a part of each head turns: see `partial_rotary_factor`.",
        ),
        Mistake(
            "frequencies of the whole head",
            _attention_with(whole_spectrum=True),
            "The right features turn, at the wrong speeds: the exponent divides by the number of features that turn.",
        ),
        Mistake(
            "the last features turned",
            _attention_with(last=True),
            "You turn the end of each head. DeepSeek does that; this layer turns the first features.",
        ),
        Mistake("the base left at 10,000", _attention_with(base=10_000.0), "Where does the base stand?"),
        Mistake(
            "scores divided by the turned features",
            _attention_with(scale=lambda head_dim, width, d_model: width),
            "The root is that of the whole head's width, turned or not.",
        ),
        Mistake(
            "scores divided by the width of the model",
            _attention_with(scale=lambda head_dim, width, d_model: d_model),
            "The root is that of one head's width.",
        ),
        Mistake("the window forgotten", _attention_with(window=None), "Right without a window. See `sliding_window`."),
        Mistake("a window one too large", _window_off(1), "A window of 3 is the row itself and two before it."),
        Mistake("a window one too small", _window_off(-1), "A window of 3 is the row itself and two before it."),
        Mistake("not causal", _attention_with(is_causal=False), "Rows see what comes after them."),
        Mistake(
            "a window on both sides",
            _attention_with(two_sided=True),
            "Causal without a window. With one, rows see what comes after them: the window must not replace the mask.",
        ),
        Mistake(
            "the number of turned features rounded",
            _attention_with(whole=round),
            "How many features turn? `int` cuts off, `round` does not.",
        ),
        Mistake(
            "scores divided by the whole width",
            _attention_with(scale=lambda head_dim, width, d_model: head_dim**2),
            "Divide by the *root* of a head's width.",
        ),
        Mistake(
            "scores not divided",
            _attention_with(scale=lambda head_dim, width, d_model: 1),
            "What are scores divided by, before the softmax?",
        ),
        Mistake(
            "turned clockwise",
            _attention_with(signs=(-1, -1)),
            "Queries and keys turn the same way, but the wrong way. Look at the sign of the sine.",
        ),
        Mistake("values turned as well", _attention_with(values_too=True), "Only queries and keys turn."),
        Mistake("queries turned alone", _attention_with(queries_alone=True), "Scores must see offsets: turn both."),
        Mistake(
            "keys turned the other way",
            _attention_with(signs=(1, -1)),
            "Queries and keys turn the same way; the difference of the angles comes from the dot product.",
        ),
    ),
    also_right=(_one_head_at_a_time, _attention_with(start=7)),
    learned="Groups, layout, share, base, window: five readings, one output. That is a production layer.",
)

# --- 13.7 find_reading


def find_reading(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
    best, least = {}, math.inf
    for values in itertools.product(*choices.values()):
        reading = dict(zip(choices, values, strict=True))
        error = (rebuilt(**reading) - wanted).abs().max().item()
        if error < least:  # never true of NaN
            best, least = reading, error
    return best


def _readings(choices: dict) -> list[dict]:
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]


def _distance(wanted: Tensor, got: Tensor) -> float:
    return (got - wanted).abs().max().nan_to_num(nan=math.inf).item()


def _by_sorting(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
    return min(_readings(choices), key=lambda reading: _distance(wanted, rebuilt(**reading)))


def _first_that(agrees: Callable[[Tensor, Tensor], bool], none: Any) -> Callable:
    """The first reading that agrees, without looking at the others; `none` if no reading does."""

    def answer(wanted: Tensor, rebuilt: Callable, choices: dict) -> Any:
        return next((r for r in _readings(choices) if agrees(rebuilt(**r), wanted)), none)

    return answer


def _smallest(badness: Callable[[Tensor], Tensor]) -> Callable:
    """The reading whose differences are smallest by another measure."""

    def answer(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
        return min(_readings(choices), key=lambda r: badness(rebuilt(**r) - wanted).nan_to_num(nan=math.inf).item())

    return answer


def _one_setting_at_a_time(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
    reading = {name: values[0] for name, values in choices.items()}
    for name, values in choices.items():
        reading[name] = min(values, key=lambda value: _distance(wanted, rebuilt(**reading | {name: value})))
    return reading


def _one_change(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
    first = {name: values[0] for name, values in choices.items()}
    tried = [first, *(first | {name: value} for name, values in choices.items() for value in values)]
    return min(tried, key=lambda reading: _distance(wanted, rebuilt(**reading)))


def _nan_taken(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
    errors = torch.stack([(rebuilt(**r) - wanted).abs().max() for r in _readings(choices)])
    return _readings(choices)[int(errors.argmin())]  # argmin takes NaN for the smallest


def _worst(wanted: Tensor, rebuilt: Callable, choices: dict) -> dict:
    return max(_readings(choices), key=lambda r: (rebuilt(**r) - wanted).abs().max().nan_to_num(nan=-math.inf).item())


def _turned_by(x: Tensor, sign: int, base: float, shift: float, layout: str) -> Tensor:
    """A toy: rows turned, with several readings. Two of its settings make up for each other, base 0 is no number."""
    n, width = x.shape
    waves = plain_frequencies(width, base) if base > 0 else torch.full((width // 2,), torch.nan, dtype=torch.float64)
    angles = sign * (torch.arange(n).unsqueeze(-1) + shift) * waves
    return (turn_halves if layout == "halves" else turn)(x, angles.to(x.dtype))


def _mystery(name: str, truth: dict, choices: dict, noise: float = 0.0, size: float = 1.0) -> Case:
    def make(g: Generator) -> tuple:
        x = size * normal(g, 6, 8)

        def rebuilt(**reading: Any) -> Tensor:
            return _turned_by(x, **reading)

        wanted = rebuilt(**truth)
        return wanted + noise * normal(g, *wanted.shape), rebuilt, choices

    return drawn(name, make)


def _one_sided_errors(g: Generator) -> tuple:
    """Readings that are wrong below, on both sides alike, or in a single row or number; and one that is right."""
    original = normal(g, 4, 6)

    def rebuilt(case: int) -> Tensor:
        error = torch.zeros(4, 6, dtype=torch.float64)
        if case == 0:
            error -= 1.0
        elif case == 1:
            error[:2], error[2:] = 1.0, -1.0
        elif case == 2:
            error[0] = -1.0
        elif case == 3:
            error[-1] = 1.0
        elif case == 5:
            error[1, 2], error[1, 3] = 1.0, -1.0
        return original if case == 4 else wanted + error

    wanted = original + 1e-6 * normal(g, 4, 6)
    return wanted, rebuilt, {"case": [0, 1, 2, 3, 4, 5]}


PLAIN_READING = {"sign": 1, "base": 10_000.0, "shift": 0.0, "layout": "halves"}
TWO_LAYOUTS = {"sign": [1], "base": [10_000.0], "shift": [0.0], "layout": ["neighbours", "halves"]}
EVERYTHING = {"sign": [1, -1], "base": [10_000.0, 100.0, 4.0], "shift": [0.0, 1.0, 2.0]}
EVERYTHING |= {"layout": ["neighbours", "halves"]}


def _known(**other: Any) -> dict:
    return PLAIN_READING | other


FIND_READING = Exercise(
    chapter=13,
    title="What was misread?",
    points=3,
    minutes=15,
    difficulty=3,
    reference=find_reading,
    cases=(
        _mystery("two layouts", PLAIN_READING, TWO_LAYOUTS),
        _mystery("the first reading is right", _known(layout="neighbours"), TWO_LAYOUTS),
        _mystery("36 readings, rounded", _known(sign=-1, base=4.0, shift=2.0), EVERYTHING, noise=1e-6),
        _mystery("36 readings, another one", _known(base=100.0, shift=1.0), EVERYTHING, noise=1e-6),
        _mystery("three settings wrong together", _known(sign=-1, base=100.0, shift=2.0), EVERYTHING, noise=1e-6),
        _mystery(
            "a reading that gives NaN",
            _known(base=100.0),
            EVERYTHING | {"base": [0.0, 10_000.0, 100.0]},
            noise=1e-6,
        ),
        _mystery("large numbers", _known(sign=-1), EVERYTHING, noise=1e-3, size=1e4),
        _mystery("small numbers", _known(sign=-1, shift=1.0), EVERYTHING, noise=1e-11, size=1e-5),
        drawn("errors of one sign, of both, and in few places", _one_sided_errors),
    ),
    mistakes=(
        Mistake(
            "only if equal to the last bit",
            _first_that(torch.equal, {}),
            "Two codes for one thing differ by rounding. Take the reading that comes nearest.",
        ),
        Mistake(
            "None if not equal to the last bit",
            _first_that(torch.equal, None),
            "Two codes for one thing differ by rounding: nothing is found. Take the reading that comes nearest.",
        ),
        Mistake(
            "the first that is close enough",
            _first_that(torch.allclose, None),
            "How close is close enough? That depends on how large the numbers are. The nearest needs no limit.",
        ),
        Mistake(
            "one setting after the other",
            _one_setting_at_a_time,
            "With the layout wrong, the best base means nothing. Settings have to be tried together.",
        ),
        Mistake(
            "one change at most",
            _one_change,
            "You change one setting, and leave the others at their first values. More than one may be misread.",
        ),
        Mistake("signed differences", _smallest(torch.sum), "Differences have signs. Take absolute values first."),
        Mistake(
            "the largest difference with its sign",
            _smallest(torch.max),
            "An output that is too small everywhere is wrong too. What do you take the largest *of*?",
        ),
        Mistake(
            "the sum before the absolute value",
            _smallest(lambda gap: gap.sum().abs()),
            "Differences of both signs cancel in your sum. Take absolute values first.",
        ),
        Mistake(
            "the last number alone",
            _smallest(lambda gap: gap.flatten()[-1].abs()),
            "You compare in one place. A reading may be right there and wrong elsewhere.",
        ),
        Mistake(
            "the first number alone",
            _smallest(lambda gap: gap.flatten()[0].abs()),
            "You compare in one place. A reading may be right there and wrong elsewhere.",
        ),
        Mistake(
            "NaN taken for the best",
            _nan_taken,
            "One reading gives NaN, and you chose it. What do comparisons, and `argmin`, do with NaN?",
        ),
        Mistake("the farthest reading", _worst, "You return the reading that fits worst."),
        Mistake(
            "the values without their names",
            lambda *a: list(find_reading(*a).values()),
            "The right values. Return a dict from the name of each setting to its value.",
        ),
    ),
    also_right=(_by_sorting,),
    learned="An output and a reading that you can vary: that is enough to find out what a model does.",
)

EXERCISES = (
    SHORTEST_TEST,
    SPLIT_FUSED,
    POSITIONS_READ,
    RELEASED_FREQUENCIES,
    LAYER_PATTERN,
    GROUPED_ATTENTION,
    FIND_READING,
)
