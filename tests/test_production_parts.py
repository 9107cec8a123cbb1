"""The parts that chapter 13's models are rebuilt from, each alone: against torch's attention, and numbers by hand."""

import math
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posenc import production
from posenc.absolute import Sinusoidal, frequencies, sinusoids
from posenc.attention import Cache
from posenc.encoding import NoPE, Together
from posenc.grids import Sinusoidal2D
from posenc.learned import Learned
from posenc.masks import Causal, Chunked, SlidingWindow
from posenc.offsets import TransformerXL
from posenc.production import (
    CausalInOrder,
    ModelRotary,
    OnRows,
    Production,
    RebuiltAttention,
    RebuiltBlock,
    Recurrent,
    SinusoidalHalves,
    WindowsBias,
    assemble,
    error,
    head_dim_of,
    layer_kind,
    leaves,
    linear,
    misread,
    opened,
    outputs,
    pattern,
    rope,
    rotary_of,
    same,
    settings,
    split,
    stack,
    steps,
    trained,
    width_of_head,
    words,
)
from posenc.relative import ALiBi, T5Bias
from posenc.vision import grid
from posenc.windows import WindowBias, Windows

N, D_MODEL, N_HEADS, HEAD_DIM = 5, 12, 4, 6


def close(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=1e-12)


def of_seed(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def projections() -> tuple[dict[str, Tensor], dict[str, nn.Linear]]:
    """Four heads of queries, two of keys and values."""
    sizes = {"queries": (24, D_MODEL), "keys": (12, D_MODEL), "values": (12, D_MODEL), "output": (D_MODEL, 24)}
    weights = {name: of_seed(*size, seed=k) for k, (name, size) in enumerate(sizes.items())}
    return weights, {name: linear(weight) for name, weight in weights.items()}


# --- Attention and blocks


@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_is_torchs_with_groups_norms_and_a_gate(scale):
    def query_norm(q: Tensor) -> Tensor:
        return q / (1 + q.abs())

    def key_norm(k: Tensor) -> Tensor:
        return k - k.mean(-1, keepdim=True)

    def gate(x: Tensor) -> Tensor:
        return torch.cat([x, 2 + x], dim=-1)

    weights, parts = projections()
    x = of_seed(2, N, D_MODEL, seed=9)
    more = {"query_norm": query_norm, "key_norm": key_norm, "gate": gate}
    ours = RebuiltAttention(Causal(), N_HEADS, **parts, scale=scale, **more)

    def heads(name: str, n: int) -> Tensor:
        return (x @ weights[name].T).view(2, N, n, HEAD_DIM).transpose(1, 2)

    q, k, v = query_norm(heads("queries", 4)), key_norm(heads("keys", 2)), heads("values", 2)
    k, v = (torch.stack([t[:, 0], t[:, 0], t[:, 1], t[:, 1]], dim=1) for t in (k, v))  # heads 0, 1 share, and 2, 3
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    wanted = (mixed.transpose(1, 2).reshape(2, N, 24) * gate(x)) @ weights["output"].T
    assert close(ours(x), wanted)
    assert close(ours(x[1]), wanted[1])  # without a batch


def test_each_text_of_a_batch_may_have_its_own_positions():
    _, parts = projections()
    x, positions = of_seed(2, N, D_MODEL), torch.tensor([[0, 1, 2, 3, 4], [0, 2, 4, 8, 16]])
    encoding = Together(Causal(), rotary_of(rope(100.0), HEAD_DIM))
    ours = RebuiltAttention(encoding, N_HEADS, **parts)
    alone = torch.stack([ours(x[k], positions[k]) for k in range(2)])
    assert close(ours(x, positions), alone)
    assert close(ours(x)[0], alone[0])  # 0, 1, 2, … if nothing is said
    assert not close(ours(x)[1], alone[1])


def test_a_cache_keeps_the_heads_of_keys_that_there_are():
    _, parts = projections()
    x, cache = of_seed(2, N, D_MODEL), Cache()
    ours = RebuiltAttention(Together(Causal(), rotary_of(rope(100.0), HEAD_DIM)), N_HEADS, **parts)
    parts_of_x = [ours(x[:, k : k + 1], torch.tensor([k]), cache) for k in range(N)]
    assert close(torch.cat(parts_of_x, dim=1), ours(x))
    assert cache.kept[0].shape == cache.kept[1].shape == (2, 2, N, HEAD_DIM)


def test_a_cache_hides_padding():
    _, parts = projections()
    x = of_seed(1, N, D_MODEL)
    ours = RebuiltAttention(NoPE(), N_HEADS, **parts)
    seen = ours(x, torch.arange(N), Cache(padding=torch.tensor([2])))
    assert close(seen[:, 2:], ours(x[:, 2:]))


@pytest.mark.parametrize(("wiring", "wanted"), [("before", 7439.0), ("after", 2380.0), ("parallel", 79.0)])
def test_a_block_wires_its_parts_in_one_of_three_ways(wiring, wanted):
    """From 3, with attention 10 x, feed-forward x², norms x + 1 and 2 x. By hand:

    before: 3 + 40 = 43, then 43 + 86². after: 3 + 30 + 1 = 34, then 2 (34 + 34²). parallel: 3 + 40 + 36.
    """
    parts = {"attention": lambda x, positions, cache: 10 * x, "feed_forward": torch.square}
    block = RebuiltBlock(**parts, norms=[lambda x: x + 1, lambda x: 2 * x], wiring=wiring)
    assert block(torch.tensor(3.0), torch.tensor(0)).item() == wanted
    if wiring == "before":
        usual = RebuiltBlock(**parts, norms=block.norms)
        assert usual(torch.tensor(3.0), torch.tensor(0)).item() == wanted


def test_a_block_hands_positions_and_cache_to_attention():
    handed, cache, places = [], Cache(), torch.arange(3)

    def attention(x: Tensor, *others: object) -> Tensor:
        handed.append(others)
        return x

    for wiring in ("before", "after", "parallel"):
        RebuiltBlock(attention, same, [same, same], wiring)(torch.zeros(3, 2), places, cache)
    assert all(found == (places, cache) for found in handed)
    assert len(handed) == 3


def test_steps_follow_each_other_and_assembled_parts_stand_in_order():
    assert steps(lambda x: x + 1, lambda x: 10 * x)(torch.tensor(2.0)).item() == 30
    doors = [SinusoidalHalves(), NoPE(), NoPE()]
    blocks = [OnRows(lambda x: 2 * x), OnRows(lambda x: x + 1)]
    model = assemble(
        doors, lambda ids: ids.new_zeros(len(ids), 4, dtype=torch.float64), blocks, torch.square, torch.neg
    )
    places = torch.tensor([3, 5])
    turns = torch.tensor([[math.sin(p * w) for w in (1, 0.01)] + [math.cos(p * w) for w in (1, 0.01)] for p in (3, 5)])
    assert torch.allclose(model(torch.zeros(2), places), -((2 * turns + 1) ** 2).double(), atol=1e-6)
    assert not model.training
    assert torch.equal(assemble([NoPE()], same, [])(of_seed(3, 2)), of_seed(3, 2))  # no norm, no logits


def test_stacked_blocks_take_norms_and_feed_forward_by_name():
    def layer() -> nn.Module:
        its = {"self_attn": same, "input_layernorm": lambda x: x + 1, "post_attention_layernorm": lambda x: 2 * x}
        return nn.ModuleDict(
            {name: OnRows(f) for name, f in (its | {"mlp": torch.square, "behind": torch.neg}).items()}
        )

    class Ten(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.output = OnRows(lambda x: 10 * x)

        def forward(self, x: Tensor, positions: Tensor, cache: Cache | None) -> Tensor:
            return self.output(x)

    layers = [nn.Module() for _ in range(2)]
    for each in layers:
        for name, part in layer().items():
            each.add_module(name, part)
    x, doors, seen = torch.tensor(3.0), [NoPE(), Causal()], []

    def attend(theirs: nn.Module, door: object) -> nn.Module:
        seen.append((theirs, door))
        return Ten()

    (first, _) = stack(layers, doors, attend)
    assert seen == [(each.self_attn, door) for each, door in zip(layers, doors, strict=True)]
    assert first(x, x).item() == 43 + 86**2
    behind, _ = stack(layers, doors, attend, feed_forward=lambda _: torch.zeros_like, behind="behind")
    assert behind(x, x).item() == 3 - 40
    with pytest.raises(ValueError, match="shorter"):
        stack(layers, doors[:1], attend)


# --- Encodings


def turned(door: ModelRotary, *features: float) -> list[float]:
    q, k = door.queries_and_keys(*[torch.tensor([features], dtype=torch.float64)] * 2, *[torch.tensor([1])] * 2)
    assert torch.equal(q, k)
    return [round(x, 12) for x in q[0].tolist()]


QUARTER = torch.tensor([math.pi / 2], dtype=torch.float64)
BOTH = torch.tensor([math.pi / 2, math.pi], dtype=torch.float64)


def test_a_quarter_turn_takes_a_b_to_minus_b_a_wherever_the_pair_stands():
    assert turned(ModelRotary(QUARTER, 1.0), 1, 2) == [-2, 1]
    assert turned(ModelRotary(QUARTER, 1.0), 1, 2, 3, 4) == [-2, 1, 3, 4]
    assert turned(ModelRotary(QUARTER, 1.0, last=True), 1, 2, 3, 4) == [1, 2, -4, 3]
    assert turned(ModelRotary(QUARTER, 1.0, factor=10.0), 1, 2, 3, 4) == [-20, 10, 3, 4]
    assert turned(ModelRotary(BOTH, 1.0), 1, 2, 3, 4) == [-3, -2, 1, -4]  # pairs (1, 3) and (2, 4)
    assert turned(ModelRotary(BOTH, 1.0, "neighbours"), 1, 2, 3, 4) == [-2, 1, -3, -4]  # pairs (1, 2) and (3, 4)


def test_queries_and_keys_turn_by_their_own_positions():
    door, x = ModelRotary(QUARTER, 1.0), torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    q, k = door.queries_and_keys(x, 3 * x, torch.tensor([1]), torch.tensor([2]))
    assert close(q, torch.tensor([[-2.0, 1.0]]).double())
    assert close(k, torch.tensor([[-3.0, -6.0]]).double())
    assert (door.layout, door.last, door.factor, door.kind) == ("halves", False, 1.0, "default")


def test_places_with_two_coordinates_turn_by_both():
    door = ModelRotary(BOTH.diag(), 1.0)
    x = torch.tensor([[1.0, 2, 3, 4]] * 2).double()
    found, _ = door.queries_and_keys(x, x, *[torch.tensor([[1, 0], [0, 1]])] * 2)  # (axes, n): down one, right one
    assert close(found, torch.tensor([[-3.0, 2, 1, 4], [1, -2, 3, -4]]).double())


def test_a_rule_without_a_factor_stretches_nothing():
    plain = rotary_of(rope(1e4), 8)
    linear = rotary_of(rope(1e4, "linear"), 8)
    assert torch.equal(linear.vectors, plain.vectors)
    assert torch.equal(plain.vectors, frequencies(8, 1e4))
    assert torch.equal(rotary_of(rope(1e4, "linear", factor=4.0), 8).vectors, plain.vectors / 4)
    assert (plain.kind, linear.kind, plain.factor, linear.factor, plain.base) == ("default", "linear", 1.0, 1.0, 1e4)
    assert rotary_of({"rope_theta": 1e4}, 8, last=True).last


def test_sinusoids_in_halves():
    door, places = SinusoidalHalves(), torch.tensor([0, 7])
    found = door.tokens(torch.ones(2, 8, dtype=torch.float32), places)
    in_turn = sinusoids(places, 8)
    assert found.dtype == torch.float32
    assert torch.allclose(found, 1 + torch.cat([in_turn[:, 0::2], in_turn[:, 1::2]], dim=1).float(), atol=1e-6)
    assert door.layout == "halves"


def test_causal_in_order_goes_by_storage_not_by_place():
    places = torch.tensor([[0, 0, 0, 1], [0, 1, 1, 0]])
    assert torch.equal(CausalInOrder().mask(places, places), torch.ones(4, 4, dtype=torch.bool).tril())
    latest = CausalInOrder().mask(places[:, 2:], places)  # as with a cache
    assert torch.equal(latest, torch.ones(4, 4, dtype=torch.bool).tril()[2:])


def test_a_window_in_the_corner_of_a_picture_reads_swins_table():
    """What is further away than a window is wide reads the last entry, and is masked by `Windows`."""
    ours, swins = WindowsBias(2, 3, n_heads=2), WindowBias(2, 3, n_heads=2)
    ours.table = swins.table
    zeros, places = torch.zeros(2, 6, 6, dtype=torch.float64), grid(2, 3)
    none = torch.zeros(6, 1, dtype=torch.float64)
    assert torch.equal(ours.scores(zeros, none, none, places, places), swins.scores(zeros, none, none, places, places))
    down, across = torch.tensor([[5, -5, 1, 0]]), torch.tensor([[0, 1, 9, -9]])
    edges = swins.bias(torch.tensor([[1, -1, 1, 0]]), torch.tensor([[0, 1, 2, -2]]))
    assert torch.equal(ours.bias(down, across), edges)


# --- Weights


def test_one_fused_projection_is_split_in_one_of_two_ways():
    weight, bias = of_seed(12, 5), of_seed(12, seed=1)  # two heads of two features
    x = of_seed(3, 5, seed=2)
    fused = (x @ weight.T + bias).detach()
    q, k, v = split(weight, bias, n_heads=2, by_head=False)
    assert close(torch.cat([q(x), k(x), v(x)], dim=1), fused)
    q, k, v = (part(x) for part in split(weight, bias, n_heads=2, by_head=True))
    in_turn = torch.cat([q[:, :2], k[:, :2], v[:, :2], q[:, 2:], k[:, 2:], v[:, 2:]], dim=1)
    assert close(in_turn, fused)
    assert [part.bias for part in split(weight, None, 2, by_head=True)] == [None] * 3
    assert [part.weight.shape for part in split(weight, None, 2, by_head=False)] == [(4, 5)] * 3


def test_a_projection_knows_its_sizes():
    made = linear(of_seed(3, 5))
    assert (made.in_features, made.out_features, made.bias) == (5, 3, None)
    with_bias = linear(of_seed(3, 5), of_seed(3, seed=1))
    assert torch.equal(with_bias(torch.zeros(5).double()), of_seed(3, seed=1))


# --- Words


@pytest.mark.parametrize(
    ("door", "said"),
    [
        (SlidingWindow(4096), "window 4,096"),
        (Chunked(8192), "chunk 8,192"),
        (Windows(7), "windows of 7×7"),
        (Windows(7, 3), "windows of 7×7, shifted by 3"),
        (ModelRotary(torch.ones(32), 1e4), "rotary 64"),
        (ModelRotary(torch.ones(2, 16), 1e4), "rotary 32 on 2 axes"),
        (ModelRotary(torch.ones(1, 16), 1e4), "rotary 32"),
        (Learned(1024, 4), "table of 1,024"),
        (T5Bias(2, 32, 128), "32 buckets to 128"),
        (WindowBias(7, 7, 2), "table of 169 offsets"),
        (TransformerXL(8, 2), "sinusoids of the offset, u, v"),
        (Causal(), "causal"),
        (CausalInOrder(), "causal"),
        (ALiBi(2), "ALiBi"),
        (production.Temperature(), "temperature"),
        (Recurrent(), "recurrent"),
        (SinusoidalHalves(), "sinusoids"),
    ],
)
def test_each_encoding_has_its_words(door, said):
    assert words(door) == said


A, B, C = SlidingWindow(2), SlidingWindow(3), Causal()


@pytest.mark.parametrize(
    ("doors", "said"),
    [
        ([C], "causal"),
        ([C, C, C], "causal"),
        ([A, A, C, A, A, C], "2 × (window 2), then 1 × (causal)"),
        ([A, A, C, A, A], "2 × (window 2), then 1 × (causal)"),  # the last period is cut short
        ([A, A, C, C, C, A, A], "2 × (window 2), then 3 × (causal)"),
        ([A, C], "1 × (window 2), then 1 × (causal)"),
        ([A, B, C], "window 2, or window 3, or causal"),
        ([A, C, A, B], "window 2, or causal, or window 3"),
        ([Together(A, ALiBi(2)), C], "1 × (window 2 + ALiBi), then 1 × (causal)"),
    ],
)
def test_a_pattern_says_once_what_repeats(doors, said):
    assert pattern(doors) == said


ROTARY = ModelRotary(torch.ones(2), 1e4)


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([Recurrent()], "recurrent"),
        ([SlidingWindow(3), ROTARY], "window, rotary"),
        ([Chunked(3), ROTARY], "chunk, rotary"),
        ([Causal(), ROTARY], "full, rotary"),
        ([SlidingWindow(3)], "window, not turned"),
        ([Chunked(3)], "chunk, not turned"),
        ([Causal()], "full, not turned"),
    ],
)
def test_kinds_of_layers(parts, kind):
    assert layer_kind(parts) == kind


def test_which_doors_are_open_and_what_is_inside():
    table, mask = Sinusoidal(), Causal()
    inner = Together(mask, ROTARY)
    assert leaves(Together(table, inner)) == [table, mask, ROTARY]
    assert leaves(mask) == [mask]
    assert opened([Together(table, inner)]) == ["mask", "tokens", "queries and keys"]
    assert opened([mask, ALiBi(2)]) == ["mask", "scores"]
    assert opened([NoPE()]) == []
    assert opened([Sinusoidal2D()]) == ["tokens"]


# --- Configurations


def test_the_width_of_a_head():
    def c(**settings: object) -> types.SimpleNamespace:
        return types.SimpleNamespace(**settings)

    plain = c(hidden_size=32, num_attention_heads=4)
    assert (head_dim_of(plain), width_of_head(plain)) == (8, 8)
    assert isinstance(head_dim_of(plain), int)
    assert head_dim_of(c(head_dim=None, hidden_size=32, num_attention_heads=4)) == 8
    assert head_dim_of(c(head_dim=16, hidden_size=32, num_attention_heads=4)) == 16
    assert width_of_head(c(head_dim=64, qk_head_dim=192)) == 192


def test_a_misread_configuration_is_a_copy():
    config = types.SimpleNamespace(window=7, rope={"theta": 1e4, "factor": 8.0})
    wrong = misread(config, window=8, rope={"theta": 5e5})
    assert (wrong.window, wrong.rope) == (8, {"theta": 5e5, "factor": 8.0})
    assert (config.window, config.rope) == (7, {"theta": 1e4, "factor": 8.0})
    wrong.rope["factor"] = 1.0
    assert config.rope["factor"] == 8.0
    with pytest.raises(AttributeError):
        misread(config, windo=8)


def test_a_trained_length_joins_the_rule_and_what_is_said_last_counts():
    found = trained(4096, rope(1e4, "yarn", factor=40.0), factor=2.0)
    wanted = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 4096}
    assert found == wanted
    assert rope(5e5)["rope_type"] == "default"


def test_a_models_own_settings_come_on_top_of_the_tiny_ones():
    common = settings()
    own = settings(hidden_size=64, pad_token_id=7, window=3)
    assert own == common | {"hidden_size": 64, "pad_token_id": 7, "window": 3}
    assert common["hidden_size"] % common["num_attention_heads"] == 0
    assert {"vocab_size", "intermediate_size", "num_hidden_layers", "eos_token_id"} <= common.keys()


def test_what_is_not_known_of_a_model_is_left_empty():
    bare = Production("name", "Class", list, print, settings())
    assert (bare.misleads, bare.sample, bare.scope) == ("", production.text, "whole model")
    assert (bare.released, bare.released_at, bare.second_hand) == ({}, "", False)
    assert (bare.scheme, bare.year, bare.described_at, bare.trained) == ("", 0, "", 0)


# --- Side by side


class Theirs(nn.Module):
    """Gives its input back, and -4 at last; as their models do, in a tuple."""

    config = types.SimpleNamespace(size=3)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor, sign: int = 1) -> tuple[Tensor, str]:
        return torch.cat([sign * x.abs(), torch.tensor([-4.0])]), "more"


def entry(sign: int = 1) -> types.SimpleNamespace:
    return types.SimpleNamespace(sample=lambda c: (torch.rand(c.size), torch.arange(c.size), {"sign": sign}))


def test_outputs_are_theirs_and_ours_of_the_same_input_every_time():
    handed = []

    def ours(x: Tensor, positions: Tensor) -> Tensor:
        handed.append((x, positions))
        return torch.zeros(4)

    torch.manual_seed(3)
    theirs, zeros = outputs(entry(sign=-1), Theirs(), ours)
    assert theirs[-1] == -4
    assert not zeros.any()
    ((x, positions),) = handed
    assert torch.equal(theirs[:3], -x)
    assert x.dtype == torch.float64  # as their weights are
    assert torch.equal(positions, torch.arange(3))
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(after, torch.rand(1))  # the generator of the caller is left alone
    torch.manual_seed(4)
    assert torch.equal(outputs(entry(sign=-1), Theirs(), ours)[0], theirs)


def test_an_error_is_relative_to_the_largest_output_of_either_sign():
    found = error(entry(), Theirs(), lambda x, positions: Theirs()(x)[0] + torch.tensor([0, -1.0, 0, 0]))
    assert found == pytest.approx(1 / 4)


def test_their_library_is_told_to_keep_quiet(monkeypatch):
    told = []

    def loaded(name: str) -> types.SimpleNamespace:
        warnings.warn("a progress bar is missing", stacklevel=1)
        logging = types.SimpleNamespace(set_verbosity_error=lambda: told.append("quiet"))
        return types.SimpleNamespace(__version__="99.0", logging=logging, name=name)

    monkeypatch.setattr(production.importlib, "import_module", loaded)
    assert production.library().name == "transformers"
    assert told == ["quiet"]


# From the released configurations: Llama 3.1 8B, Llama 4 Scout, DeepSeek-V3, Gemma 3 4B.
RULES = {
    "LLAMA3": {"rope_type": "llama3", "rope_theta": 500_000, "factor": 8}
    | {"low_freq_factor": 1, "high_freq_factor": 4},
    "SCOUT": {"rope_type": "llama3", "rope_theta": 500_000, "factor": 16}
    | {"low_freq_factor": 1, "high_freq_factor": 1},
    "YARN": {"rope_type": "yarn", "rope_theta": 10_000, "factor": 40, "beta_fast": 32, "beta_slow": 1}
    | {"mscale": 1, "mscale_all_dim": 1},
}


@pytest.mark.parametrize("name", RULES)
def test_rules_are_those_of_the_released_models(name):
    assert trained(4096, getattr(production, name)) == RULES[name] | {"original_max_position_embeddings": 4096}


def test_gemmas_two_rules():
    everywhere, local = production.GEMMA["full_attention"], production.GEMMA["sliding_attention"]
    assert everywhere == {"rope_type": "linear", "rope_theta": 1_000_000, "factor": 8}
    assert local == rope(10_000) == {"rope_type": "default", "rope_theta": 10_000}
