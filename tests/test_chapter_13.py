"""Chapter 13's data, versions of transformers, links, and its exercises against the models."""

import types
from pathlib import Path

import nbformat
import pytest
import torch

from posenc import production
from posenc.absolute import frequencies
from posenc.checks.chapter_13 import (
    GPT_NEOX,
    grouped_attention,
    layer_pattern,
    positions_read,
    released_frequencies,
    shortest_test,
    split_fused,
)
from posenc.contexts import Layer
from posenc.learned import opt_rows, roberta_rows
from posenc.misreadings import BY_NAME, INERT, MISREADINGS, misreading
from posenc.production import MODELS, error, outputs, rebuild, survey, tiny
from posenc.symmetry import difference, must_break

PAGE = Path(__file__).parent.parent / "chapters" / "13_production_models.ipynb"


def prose() -> str:
    cells = nbformat.read(PAGE, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


# --- the page's data


def test_the_page_links_what_the_data_name():
    text = prose()
    for entry in MODELS:
        assert entry.described_at in text, entry.name
        assert not entry.released_at or entry.released_at in text, entry.name
        wanted = "[copy]" if entry.second_hand else "[here]"
        assert not entry.released_at or f"{wanted}({entry.released_at})" in text, entry.name


def test_every_model_says_all_that_a_table_needs():
    for entry in MODELS:
        assert 2017 <= entry.year <= 2026
        assert entry.scheme
        assert entry.described_at.startswith("https://")
        assert bool(entry.released) <= bool(entry.released_at)


def test_misreadings_and_idle_settings_belong_to_models():
    assert MISREADINGS.keys() == BY_NAME.keys()
    assert INERT.keys() <= BY_NAME.keys()


# --- other versions of transformers, and none


def test_without_transformers_one_sentence_says_what_to_do(monkeypatch):
    monkeypatch.setattr(production.importlib, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(ImportError, match=r"not installed here. Run `pip install transformers`"):
        production.library()


def test_an_old_version_is_told_to_be_upgraded(monkeypatch):
    old = types.SimpleNamespace(__version__="4.50.0")
    monkeypatch.setattr(production.importlib, "import_module", lambda name: old)
    with pytest.raises(ImportError, match=r"or newer; here is 4.50.0. Run `pip install --upgrade transformers`"):
        production.library()


class Lacking:
    """A library without one model, and with another one laid out otherwise."""

    __version__ = "9.0"

    def __init__(self, library, absent: str, other: str):
        self.library, self.absent, self.other = library, absent, other

    def __getattr__(self, name: str):
        if name == self.absent:
            raise AttributeError(name)
        return torch.nn.Linear if name == self.other else getattr(self.library, name)


def test_a_model_that_a_version_lacks_is_named_and_left_out():
    transformers = pytest.importorskip("transformers")
    rows, without = survey(Lacking(transformers, "MptForCausalLM", "GPT2LMHeadModel"))
    assert without == {"MPT": "not in your version", "GPT-2": "laid out in another way in your version"}
    assert len(rows) == len(MODELS) - 2
    assert all(row.error < 5e-6 for row in rows)


def test_in_the_tested_version_a_failure_is_not_hidden():
    transformers = pytest.importorskip("transformers")
    broken = Lacking(transformers, "", "GPT2LMHeadModel")
    broken.__version__ = f"{production.TESTED}.0"
    with pytest.raises(AttributeError):
        survey(broken)


def test_the_seed_decides_the_weights():
    transformers = pytest.importorskip("transformers")
    one, same, other = (tiny(BY_NAME["GPT-2"], transformers, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.lm_head.weight, same.lm_head.weight)
    must_break(difference(one.lm_head.weight, other.lm_head.weight))


# --- a window is seen from the first token beyond it: the page's figure, and exercise 13.1


@pytest.mark.parametrize(
    ("name", "label", "right", "wrong"),
    [
        ("Mistral 7B v0.1", "window off by one", Layer(window=7), Layer(window=8)),
        ("Gemma 3 4B", "window off by one", Layer(window=7), Layer(window=6)),
        ("Llama 4 Scout", "chunk off by one", Layer(chunk=7), Layer(chunk=8)),
    ],
)
def test_the_shortest_test_is_what_a_model_shows(name, label, right, wrong):
    transformers = pytest.importorskip("transformers")
    entry, model = BY_NAME[name], tiny(BY_NAME[name], transformers)
    wanted, got = outputs(entry, model, misreading(entry, model, MISREADINGS[name][label]))
    first = int(((wanted - got).abs().amax(dim=(0, 2)) > 1e-3).nonzero()[0]) + 1
    assert first == shortest_test(*({"window": x.window, "chunk": x.chunk} for x in (right, wrong)))


# --- exercises, held against transformers and the library


@torch.no_grad()
def test_exercise_attention_is_that_of_released_layers():
    transformers = pytest.importorskip("transformers")
    for name, layout in (
        ("Llama 3.1", "halves"),
        ("Mistral 7B v0.1", "halves"),
        ("Cohere2 (Command R7B)", "neighbours"),
    ):
        entry = BY_NAME[name]
        model = tiny(entry, transformers, rope_parameters=production.rope(1e4))
        ours = rebuild(entry, model)
        attention = ours.blocks[0].attention
        theirs = model.model.layers[0].self_attn
        config = {"num_attention_heads": 4, "num_key_value_heads": 2, "rope_theta": 1e4, "layout": layout}
        config |= {"partial_rotary_factor": 1.0, "sliding_window": getattr(model.config, "sliding_window", None)}
        weights = [getattr(theirs, f"{part}_proj").weight for part in "qkvo"]
        x = torch.randn(2, 20, weights[0].shape[1], generator=torch.Generator().manual_seed(0))
        assert difference(grouped_attention(x, *weights, config), attention(x)) < 1e-4
        must_break(difference(grouped_attention(x, *weights, config | {"rope_theta": 1e2}), attention(x)))


def test_exercise_frequencies_and_patterns_are_those_of_the_configurations():
    transformers = pytest.importorskip("transformers")
    assert difference(released_frequencies(GPT_NEOX), frequencies(24)) == 0
    for name in ("Gemma 3 4B", "Mistral 7B v0.1"):
        entry = BY_NAME[name]
        config = production.released_config(entry, transformers)
        wanted = [
            (layer.encodings[0].window if hasattr(layer.encodings[0], "window") else 0, layer.encodings[1].base)
            for layer in entry.doors(config)
        ]
        flat = {"model_type": config.model_type, "num_hidden_layers": config.num_hidden_layers, "rope_theta": 1e4}
        flat |= {"sliding_window": config.sliding_window}
        if name == "Gemma 3 4B":
            flat |= {"layer_types": config.layer_types, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
        assert layer_pattern(flat) == wanted


def test_exercise_positions_are_those_of_chapter_5():
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0]])
    ids = torch.where(mask > 0, 7, 1)
    config = {"model_type": "roberta", "pad_token_id": 1}
    assert torch.equal(positions_read(config, mask), roberta_rows(ids, 1))
    assert torch.equal(positions_read(config | {"model_type": "opt"}, mask), opt_rows(mask))


@torch.no_grad()
def test_exercise_positions_of_llama_are_those_of_generate_not_of_forward():
    transformers = pytest.importorskip("transformers")
    model, seen = tiny(BY_NAME["Llama 3.1"], transformers), []
    model.model.rotary_emb.register_forward_pre_hook(
        lambda _, __, given: seen.append(given["position_ids"]), with_kwargs=True
    )
    mask, ids = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[0, 0, 5, 6, 7]])
    config = {"model_type": "llama", "pad_token_id": 0}
    model.generate(ids, attention_mask=mask, max_new_tokens=1, do_sample=False)
    assert torch.equal(seen.pop(), positions_read(config, mask))
    model(ids, attention_mask=mask)
    assert torch.equal(seen.pop(), positions_read(config | {"model_type": "bert"}, mask))


def test_exercise_split_is_gpt_neoxs_where_each_head_has_a_group():
    weight = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))
    for mine, theirs in zip(split_fused(weight, 4, 4), production.split(weight, None, 4, by_head=True), strict=True):
        assert torch.equal(mine, theirs.weight)


def test_a_rebuilt_model_with_nothing_misread_is_right():
    transformers = pytest.importorskip("transformers")
    entry, model = BY_NAME["T5"], tiny(BY_NAME["T5"], transformers)
    assert error(entry, model, misreading(entry, model, {})) < 5e-6
