"""Chapter 13's models: our doors around their rows give their outputs, and a misreading of any setting does not."""

import ast
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from posenc import production
from posenc.attention import Cache
from posenc.encoding import NoPE
from posenc.grids import resample
from posenc.misreadings import BY_NAME, INERT, MISREADINGS, Mistake, changed, misreading
from posenc.production import (
    MODELS,
    ModelRotary,
    Production,
    RebuiltAttention,
    error,
    layer_kind,
    leaves,
    named,
    outputs,
    rebuild,
    released_config,
    rope,
    rotary_of,
    rows,
    tiny,
    trained,
    width_of_head,
)
from posenc.symmetry import difference, equivariance_error, must_break, random_permutation
from posenc.windows import Windows

transformers = pytest.importorskip("transformers")

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

FLOAT32 = 2e-6  # the largest error reached is 9e-7
FLOAT64 = 1e-14  # where their code stays in float64 throughout; else norms, angles or the softmax are float32
IN_FLOAT64 = {"Marian", "BERT", "GPT-2", "T5", "ViT", "Swin"}

each_model = pytest.mark.parametrize("name", BY_NAME)


@functools.cache
def theirs(name: str) -> nn.Module:
    return tiny(BY_NAME[name], transformers)


def mistaken(name: str, mistake: Mistake) -> float:
    """The error of a rebuilt model with one thing misread."""
    return error(BY_NAME[name], theirs(name), misreading(BY_NAME[name], theirs(name), mistake))


# --- they agree


@each_model
def test_the_rebuilt_model_gives_their_outputs(name):
    assert error(BY_NAME[name], theirs(name), rebuild(BY_NAME[name], theirs(name))) < FLOAT32


@pytest.mark.parametrize("name", sorted(IN_FLOAT64))
def test_to_the_last_digits_where_theirs_computes_in_float64(name):
    model = tiny(BY_NAME[name], transformers).double()
    assert error(BY_NAME[name], model, rebuild(BY_NAME[name], model).double()) < FLOAT64


# --- and would not, if a setting were misread


def test_every_model_has_its_mistakes():
    assert MISREADINGS.keys() == BY_NAME.keys()


@pytest.mark.parametrize(
    ("name", "mistake"), [(name, mistake) for name in MISREADINGS for mistake in MISREADINGS[name]]
)
def test_a_mistake_is_noticed(name, mistake):
    must_break(mistaken(name, MISREADINGS[name][mistake]), at_least=1e-2)


# --- nothing but our doors knows positions


def doors_shut(name: str) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """The rebuilt model from its first rows on, without any encoding, and rows for it."""
    entry, ours = BY_NAME[name], rebuild(BY_NAME[name], theirs(name))
    changed(RebuiltAttention, encoding=lambda m: NoPE())(ours)
    x, positions, _ = entry.sample(theirs(name).config)
    x = ours.embedding(x)

    def model(x: torch.Tensor) -> torch.Tensor:
        for block in ours.blocks:
            x = block(x, positions)
        return ours.norm(x)

    return model, x


@each_model
@torch.no_grad()
def test_with_all_doors_shut_what_is_borrowed_from_them_sees_a_set(name):
    torch.manual_seed(0)
    model, x = doors_shut(name)
    found = equivariance_error(model, x, random_permutation(x.shape[-2])) / model(x).abs().max().item()
    if name == "Qwen 3.5":
        must_break(found, 1e-2)  # its recurrent layers read in order, by no door of attention
    else:
        assert found < 1e-5


@pytest.mark.parametrize("name", [e.name for e in MODELS if e.sample in (production.text, production.long_text)])
@torch.no_grad()
def test_where_a_text_starts_matters_to_tables_chunks_and_temperatures_only(name):
    """At other places, all moved by 1000: relative models cannot tell. Tables have no such rows."""
    entry, ours = BY_NAME[name], rebuild(BY_NAME[name], theirs(name))
    ids, _, _ = entry.sample(theirs(name).config)
    if name in ("BERT", "GPT-2"):
        with pytest.raises(ValueError, match="has no row"):
            ours(ids, torch.arange(ids.shape[1]) + 1000)
        return
    here, there = ours(ids), ours(ids, torch.arange(ids.shape[1]) + 1000)
    found = difference(here, there) / here.abs().max().item()
    if name in ("Marian", "Llama 4 Scout"):
        must_break(found, 1e-2)
    else:
        assert found < 1e-5


@pytest.mark.parametrize("name", [e.name for e in MODELS if "LM" in e.model_class or e.name == "Qwen2-VL"])
@torch.no_grad()
def test_with_a_cache_the_logits_are_the_same(name):
    entry, ours = BY_NAME[name], rebuild(BY_NAME[name], theirs(name))
    x, positions, _ = entry.sample(theirs(name).config)
    positions = torch.arange(x.shape[1]) if positions is None else positions
    caches = [Cache() for _ in ours.blocks]
    parts = [slice(0, 25), slice(25, 26), slice(26, 31), slice(31, x.shape[1])]
    if name == "Qwen 3.5":
        with pytest.raises(NotImplementedError, match="without a cache"):
            ours(x[:, parts[0]], positions[..., parts[0]], caches)
        return
    decoded = torch.cat([ours(x[:, part], positions[..., part], caches) for part in parts], dim=1)
    whole = ours(x, positions)
    assert difference(decoded, whole) / whole.abs().max().item() < 1e-5


# --- settings that mislead: what the table says of them


@pytest.mark.parametrize("name", INERT)
def test_a_setting_that_changes_nothing(name):
    entry = BY_NAME[name]
    other, ours = tiny(entry, transformers, **INERT[name]), rebuild(entry, theirs(name))
    assert torch.equal(outputs(entry, theirs(name), ours)[0], outputs(entry, other, ours)[0])
    assert next(iter(INERT[name])) in entry.misleads or name == "Qwen 3.5"


def test_no_rope_layers_holds_1_where_a_layer_turns():
    for name in ("Llama 4 Scout", "SmolLM3"):
        entry, config = BY_NAME[name], theirs(name).config
        turns = [any(isinstance(m, ModelRotary) for m in door.modules()) for door in entry.doors(config)]
        assert turns == [bool(flag) for flag in config.no_rope_layers] == [True, True, True, False]


@pytest.mark.parametrize(("name", "n"), [("Marian", 41), ("MPT", 49), ("GPT-J", 41)])
@torch.no_grad()
def test_computed_positions_can_end_all_the_same(name, n):
    """Each of these could go on for ever. Ours does; theirs keeps a table, or a bias of a fixed length."""
    ids = torch.randint(3, 50, (1, n))
    theirs(name)(ids[:, :-1])
    with pytest.raises((IndexError, RuntimeError)):
        theirs(name)(ids)
    assert rebuild(BY_NAME[name], theirs(name))(ids).isfinite().all()


def test_released_settings_are_not_always_the_classs_own():
    def of_class(name: str) -> Any:
        return named(transformers, BY_NAME[name].model_class).config_class()

    assert of_class("Gemma 3 4B").sliding_window == of_class("Mistral 7B v0.1").sliding_window == 4096
    bases = {"SmolLM3": 2e6, "Qwen 3.5": 1e4, "Cohere2 (Command R7B)": 1e4, "Llama 3.1": 1e4}
    for name, base in bases.items():
        assert of_class(name).rope_parameters["rope_theta"] == base
        assert BY_NAME[name].released["rope_parameters"]["rope_theta"] != base
    for name in ("DeepSeek-V3", "Llama 3.1", "Llama 4 Scout"):
        assert of_class(name).rope_parameters["rope_type"] == "default"


def test_deepseeks_head_dim_is_not_the_width_of_a_head():
    config = theirs("DeepSeek-V3").config
    assert config.head_dim == config.qk_rope_head_dim == 8
    assert config.qk_head_dim == 24


# --- variants of a model that differ in one setting


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("Llama 4 Scout", {"use_qk_norm": False, "rope_parameters": rope(5e5)}),  # Maverick
        ("Llama 4 Scout", {"attn_temperature_tuning": False}),
        ("DeepSeek-V3", {"rope_parameters": trained(16, production.YARN, mscale_all_dim=0.5)}),
        ("DeepSeek-V3", {"rope_interleave": False}),
        ("Llama 3.1", {"rope_parameters": trained(16, production.YARN)}),
        ("GPT-NeoX", {"use_parallel_residual": False}),
        ("Mistral 7B v0.1", {"sliding_window": None}),  # v0.2
        ("Swin", {"image_size": 16}),  # a picture that is no larger than a window
        ("BERT", {"num_hidden_layers": 1}),
        ("GPT-2", {"n_layer": 1}),
        ("T5", {"num_layers": 1}),
        ("ViT", {"num_hidden_layers": 1}),
        ("Qwen 3.5", {"head_dim": 64, "rope_parameters": rope(1e7, partial_rotary_factor=1.0)}),  # its own sections
        ("DeepSeek-V3", {"rope_parameters": rope(1e4)}),
        ("DeepSeek-V3", {"rope_parameters": rope(1e4, mscale_all_dim=1.0)}),
        ("DeepSeek-V3", {"rope_parameters": rope(1e4, factor=40.0, mscale_all_dim=1.0)}),  # no rule, so no factor
        ("DeepSeek-V3", {"rope_parameters": trained(16, rope(1e4, "yarn", factor=40.0))}),
    ],
)
def test_variants(name, more):
    entry, model = BY_NAME[name], tiny(BY_NAME[name], transformers, **more)
    assert error(entry, model, rebuild(entry, model)) < FLOAT32


@torch.no_grad()
def test_vit_at_another_size_reads_a_resampled_table():
    model, pixels = theirs("ViT"), torch.randn(2, 3, 24, 20)
    ours = rebuild(BY_NAME["ViT"], model)
    table = ours.encoding.table
    grid = table[1:].unflatten(0, (4, 4))  # the first row is the class token's
    ours.encoding.table = nn.Parameter(torch.cat([table[:1], resample(grid, 6, 5).flatten(0, 1)]))
    wanted = model(pixels, interpolate_pos_encoding=True)[0]
    assert difference(ours(pixels), wanted) / wanted.abs().max().item() < FLOAT32


def test_a_rule_that_is_not_here_is_refused():
    with pytest.raises(ValueError, match="no rule for rope_type 'longrope'"):
        rotary_of(rope(1e4, "longrope"), 8)


@pytest.mark.parametrize(
    "rule",
    [
        rope(1e6, "linear", factor=8.0),
        trained(8192, rope(5e5, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)),
        trained(4096, rope(1e4, "yarn", factor=40.0)),  # beta_fast, beta_slow, mscale: what is left out has a value
        trained(4096, rope(1e4, "yarn", factor=40.0, beta_fast=16.0)),
        trained(4096, rope(1e4, "yarn", factor=40.0, beta_slow=4.0)),
        trained(4096, rope(1e4, "yarn", factor=40.0, mscale=0.7, mscale_all_dim=0.3)),
    ],
)
def test_a_rule_is_read_as_they_read_it(rule):
    config = transformers.LlamaConfig(hidden_size=256, num_attention_heads=2, rope_parameters=dict(rule))
    wanted, factor = ROPE_INIT_FUNCTIONS[rule["rope_type"]](config, "cpu")
    ours = rotary_of(rule, 128)
    assert torch.allclose(ours.vectors.float(), wanted, rtol=1e-5)
    assert ours.factor == pytest.approx(factor)
    assert (ours.kind, ours.base) == (rule["rope_type"], rule["rope_theta"])


@pytest.mark.parametrize(
    "sizes",
    [
        {"image_size": 112, "patch_size": 4, "window_size": 7},
        {"image_size": 24, "patch_size": 2, "window_size": 3},
        {"image_size": 48, "patch_size": 2, "window_size": 3},  # two windows a side remain at last
    ],
)
def test_swins_layers_are_shifted_as_theirs(sizes):
    config = transformers.SwinConfig(embed_dim=8, depths=[2, 3, 2], num_heads=[1, 2, 4], **sizes)
    model = transformers.SwinModel(config).eval()
    found = []
    for stage in model.encoder.layers:
        for block in stage.blocks:
            block.register_forward_hook(lambda block, *_: found.append(block.shift_size))
    model(torch.randn(1, 3, config.image_size, config.image_size))
    windows = [leaves(door)[0] for door in production.swin_doors(config)]
    assert [window.shift for window in windows] == found
    assert {window.side for window in windows} == {config.window_size}
    tables = [leaves(door)[1].table.shape for door in production.swin_doors(config)]
    entries = (2 * config.window_size - 1) ** 2
    assert tables == [(entries, n) for n, depth in zip((1, 2, 4), (2, 3, 2), strict=True) for _ in range(depth)]


# --- the table


@pytest.fixture(scope="module")
def table() -> dict[str, production.Row]:
    return {row.name: row for row in rows(transformers)}


def test_every_row_agrees_and_names_its_doors_and_source(table):
    assert list(table) == [entry.name for entry in MODELS]
    for row in table.values():
        assert row.error < FLOAT32
        assert row.doors
        assert row.source.endswith(".py")
        assert "/modeling_" in row.source
        assert not BY_NAME[row.name].released or row.released_at
        year, _, n_layers, bases, turned = KNOWN[row.name]
        said = {float(base.replace(",", "")) for base in row.base.split(" and ") if base}
        sinusoids = {1e4} if row.name == "Marian" else set()
        assert (row.year, row.n_layers, said, row.turned) == (year, n_layers, bases | sinusoids, turned)
        assert (row.scope, row.second_hand) == (PARTS.get(row.name, "whole model"), row.name in COPIES)


def test_the_table_says_what_is_known_of_the_released_models(table):
    full, local = "causal + rotary 128", "window 4,096 + rotary 128"
    assert {name: row.layers for name, row in table.items()} | {
        "BERT": "table of 512",
        "GPT-2": "causal + table of 1,024",
        "T5": "32 buckets to 128",
        "GPT-J": "causal + rotary 64",
        "Llama 3.1": full,
        "Llama 4 Scout": "3 × (chunk 8,192 + rotary 128), then 1 × (causal + temperature)",
        "Mistral 7B v0.1": local,
        "Gemma 3 4B": "5 × (window 1,024 + rotary 256), then 1 × (causal + rotary 256)",
        "DeepSeek-V3": "causal + rotary 64",
        "Qwen2-VL": "causal + rotary 128 on 3 axes",
        "Qwen 3.5": "3 × (recurrent), then 1 × (causal + rotary 64 on 3 axes)",
        "SmolLM3": f"3 × ({full}), then 1 × (causal)",
        "Cohere2 (Command R7B)": f"3 × ({local}), then 1 × (causal)",
        "ViT": "table of 197",
        "Swin": "windows of 7×7 + table of 169 offsets, or windows of 7×7, shifted by 3 + table of 169 offsets",
        "DINOv3": "rotary 64 on 2 axes",
    } == {name: row.layers for name, row in table.items()}
    doors = {name: row.doors for name, row in table.items()}
    assert doors["BERT"] == doors["ViT"] == doors["Marian"] == "tokens"
    assert doors["T5"] == doors["XLNet (as Transformer-XL)"] == "scores"
    assert doors["MPT"] == doors["BLOOM"] == doors["Swin"] == "mask, scores"
    assert doors["DINOv3"] == "queries and keys"
    neighbours = {name for name, row in table.items() if row.layout == "neighbours"}
    assert neighbours == {"GPT-J", "Llama 4 Scout", "DeepSeek-V3", "Cohere2 (Command R7B)"}
    assert {row.scaling for row in table.values()} == {"", "llama3", "linear", "yarn"}


# Written by hand, from the papers and pages that the table links: the year it came out, the length of its training
# texts (0: no source), its layers, the bases, and how many features turn of how many in a head.
KNOWN = {
    "Marian": (2018, 0, 6, set(), ""),
    "BERT": (2018, 0, 12, set(), ""),
    "GPT-2": (2019, 0, 12, set(), ""),
    "T5": (2019, 0, 6, set(), ""),
    "XLNet (as Transformer-XL)": (2019, 0, 24, set(), ""),
    "MPT": (2023, 0, 32, set(), ""),
    "BLOOM": (2022, 0, 70, set(), ""),
    "GPT-J": (2021, 2048, 28, {1e4}, "64 of 256"),
    "GPT-NeoX": (2022, 2048, 44, {1e4}, "24 of 96"),
    "Llama 3.1": (2024, 8192, 32, {5e5}, "128 of 128"),
    "Llama 4 Scout": (2025, 8192, 48, {5e5}, "128 of 128"),
    "Mistral 7B v0.1": (2023, 8192, 32, {1e4}, "128 of 128"),
    "Gemma 3 4B": (2025, 32_768, 34, {1e4, 1e6}, "256 of 256"),
    "DeepSeek-V3": (2024, 4096, 61, {1e4}, "64 of 192"),
    "Qwen2-VL": (2024, 0, 80, {1e6}, "128 of 128"),
    "Qwen 3.5": (2026, 0, 64, {1e7}, "64 of 256"),
    "SmolLM3": (2025, 0, 36, {5e6}, "128 of 128"),
    "Cohere2 (Command R7B)": (2024, 0, 32, {5e4}, "128 of 128"),
    "ViT": (2020, 0, 12, set(), ""),
    "Swin": (2021, 0, 12, set(), ""),
    "DINOv3": (2025, 0, 12, {100.0}, "64 of 64"),
}
WIDTHS = {"Marian": (512, 8), "MPT": (4096, 32), "BLOOM": (14_336, 112), "Llama 3.1": (4096, 32)}  # and heads
LENGTHS = {"Marian": 512, "DeepSeek-V3": 163_840}
RULES = {
    "Llama 3.1": {"factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192},
    "Llama 4 Scout": {"factor": 16, "low_freq_factor": 1, "high_freq_factor": 1}
    | {"original_max_position_embeddings": 8192},
    "DeepSeek-V3": {"factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1}
    | {"original_max_position_embeddings": 4096},
    "Qwen2-VL": {"mrope_section": [16, 24, 24]},
    "Qwen 3.5": {"mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25},
}
COPIES = {"Marian", "Llama 4 Scout", "Mistral 7B v0.1", "Qwen2-VL", "Qwen 3.5", "Cohere2 (Command R7B)"}
PARTS = {
    "Marian": "encoder",
    "T5": "encoder",
    "XLNet (as Transformer-XL)": "whole model, without memory",
    "Qwen2-VL": "language model",
    "Qwen 3.5": "language model, its recurrent layers borrowed",
    "Swin": "one stage",
}
OWN = {"BERT", "GPT-2", "T5", "XLNet (as Transformer-XL)", "GPT-J", "GPT-NeoX", "ViT", "Swin", "DINOv3"}  # class's own


def test_tiny_models_have_weights_that_the_seed_alone_decides():
    gpt2 = listed("GPT-2")
    torch.manual_seed(5)
    model = tiny(gpt2, transformers, n_embd=256)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))  # the generator of the caller is left alone
    assert torch.equal(model.lm_head.weight, tiny(gpt2, transformers, n_embd=256, seed=0).lm_head.weight)
    assert not model.training
    assert gpt2.tiny["n_embd"] == 32
    assert model.transformer.wpe.weight.std().item() == pytest.approx(1 / 16, rel=0.05)  # 1 / sqrt(256), of (40, 256)
    norm = model.transformer.h[0].ln_1
    assert norm.weight.mean().item() == pytest.approx(1, abs=0.03)
    for weight in (norm.weight, norm.bias, model.transformer.h[0].attn.c_attn.bias):
        assert weight.std().item() == pytest.approx(0.1, rel=0.2)


def listed(name: str) -> production.Production:
    return next(entry for entry in MODELS if entry.name == name)


@pytest.mark.parametrize("name", KNOWN)
def test_released_models_are_as_their_makers_say(name):
    entry = listed(name)
    config = released_config(entry, transformers)
    doors = entry.doors(config)
    rotary = [leaf for door in doors for leaf in leaves(door) if isinstance(leaf, ModelRotary)]
    widths = {2 * leaf.vectors.shape[-1] for leaf in rotary}
    turned = f"{widths.pop()} of {production.width_of_head(config)}" if rotary else ""
    assert not widths
    assert (entry.year, entry.trained, len(doors), {leaf.base for leaf in rotary}, turned) == KNOWN[name]
    if name in WIDTHS:
        assert (config.hidden_size, config.num_attention_heads) == WIDTHS[name]
    if name in LENGTHS:
        assert config.max_position_embeddings == LENGTHS[name]
    if name in RULES:
        assert config.rope_parameters.items() >= RULES[name].items()
    assert entry.second_hand == (name in COPIES)
    assert entry.scope == PARTS.get(name, "whole model")
    assert bool(entry.released_at) != (name in OWN)
    assert entry.released_at.startswith("https://huggingface.co/") == (name in COPIES - {"Llama 4 Scout", "Qwen 3.5"})
    assert entry.scheme
    assert entry.described_at


def test_gemmas_layers_that_see_everything_are_stretched_and_the_others_are_not():
    released = released_config(listed("Gemma 3 4B"), transformers)
    assert released.sliding_window == 1024
    rules = released.rope_parameters
    assert rules["full_attention"] == rope(1e6, "linear", factor=8.0)
    assert rules["sliding_attention"] == rope(1e4)


def test_a_stretched_model_is_tried_on_a_text_that_is_longer_than_it_was_trained_on():
    stretched = []
    for entry in MODELS:
        length = entry.tiny.get("rope_parameters", {}).get("original_max_position_embeddings")
        if length:
            stretched.append(entry.name)
            assert entry.sample(None)[0].shape[1] > length
    assert stretched == ["Llama 3.1", "Llama 4 Scout", "DeepSeek-V3"]


def anatomy(entry: Production, config: Any) -> dict[str, Any]:
    """What a configuration asks our doors for, without its sizes."""
    doors = entry.doors(config)
    parts = [part for door in doors for part in leaves(door)]
    rotary = [part for part in parts if isinstance(part, ModelRotary)]
    return {
        "layers": {tuple(type(part).__name__ for part in leaves(door)) for door in doors},
        "rotary": {(part.layout, part.kind, part.vectors.shape[:-1]) for part in rotary},
        "part of a head": any(2 * part.vectors.shape[-1] < width_of_head(config) for part in rotary),
        "shifted": {part.shift > 0 for part in parts if isinstance(part, Windows)},
    }


@each_model
def test_a_small_model_has_all_that_the_released_one_has(name):
    entry = BY_NAME[name]
    assert anatomy(entry, theirs(name).config) == anatomy(entry, released_config(entry, transformers))


@pytest.mark.parametrize("name", [e.name for e in MODELS if e.sample in (production.text, production.long_text)])
def test_a_text_goes_beyond_every_window_chunk_and_floor(name):
    entry, config = BY_NAME[name], theirs(name).config
    parts = [part for door in entry.doors(config) for part in leaves(door)]
    limits = [getattr(part, limit, 0) for part in parts for limit in ("window", "chunk", "floor", "max_distance")]
    assert max(limits) < entry.sample(config)[0].shape[1]


@each_model
def test_where_a_model_turns_on_several_axes_places_have_as_many_coordinates(name):
    entry, config = BY_NAME[name], theirs(name).config
    parts = [part for door in entry.doors(config) for part in leaves(door) if isinstance(part, ModelRotary)]
    axes = {len(part.vectors) for part in parts if part.vectors.ndim > 1}
    places = entry.sample(config)[1]
    assert not axes or axes == {len(places)}


@each_model
def test_heads_share_keys_in_a_small_model_where_they_can(name):
    config = theirs(name).config
    shared = getattr(config, "num_key_value_heads", None)
    from_one_latent = name == "DeepSeek-V3"  # each head makes its own keys of it
    assert shared is None or from_one_latent or 1 < shared < config.num_attention_heads


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Mistral 7B v0.1", {"window, rotary"}),
        ("Llama 4 Scout", {"chunk, rotary", "full, not turned"}),
        ("Qwen 3.5", {"recurrent", "full, rotary"}),
    ],
)
def test_kinds_of_layers(name, kinds):
    assert {layer_kind(leaves(door)) for door in BY_NAME[name].doors(theirs(name).config)} == kinds


def test_the_library_needs_none_of_theirs():
    imported = [node for node in ast.walk(ast.parse(inspect.getsource(production))) if isinstance(node, ast.ImportFrom)]
    assert not any((node.module or "").startswith("transformers") for node in imported)
