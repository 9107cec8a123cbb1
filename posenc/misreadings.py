"""How one can misread a production model: each misreading is caught by its outputs. And settings that do nothing.

A misreading is a setting read in another way (a dict, for `production.misread`), or something else in the rebuilt
model's place (a function that changes it).
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from posenc.absolute import Sinusoidal
from posenc.learned import Learned
from posenc.offsets import TransformerXL
from posenc.production import MODELS, ModelRotary, Production, RebuiltAttention, misread, rebuild, rope
from posenc.relative import ALiBi
from posenc.windows import Windows

BY_NAME = {entry.name: entry for entry in MODELS}

Mistake = dict[str, Any] | Callable[[nn.Module], None]


def changed(kind: type[nn.Module], **attributes: Callable[[Any], Any]) -> Callable[[nn.Module], None]:
    """In every module of a kind, each attribute becomes what a function makes of the module."""

    def change(model: nn.Module) -> None:
        for module in [m for m in model.modules() if isinstance(m, kind)]:
            for name, new in [(name, make(module)) for name, make in attributes.items()]:
                setattr(module, name, new)

    return change


def in_turn(model: nn.Module) -> None:
    model.encoding = Sinusoidal()


ROW_LATER = changed(Learned, table=lambda m: nn.Parameter(m.table.roll(1, dims=0)))
OTHER_SIGN = changed(ALiBi, slopes=lambda m: -m.slopes)
USUAL_SCALE = changed(RebuiltAttention, scale=lambda m: None)
LAYOUT = {"other layout": changed(ModelRotary, layout=lambda m: {"halves": "neighbours"}.get(m.layout, "halves"))}
FLAGS_BY_NAME = {"flags read by their name": {"no_rope_layers": [0, 0, 0, 1]}}
ALL_TURN = {"NoPE layer turned": {"no_rope_layers": [1, 1, 1, 1]}}
ALL_FEATURES = {"all features turned": {"rope_parameters": {"partial_rotary_factor": 1.0}}}
NOT_STRETCHED = {"not stretched": {"rope_parameters": {"rope_type": "default"}}}


def other_base(base: float) -> dict[str, Mistake]:
    return {"other base": {"rope_parameters": {"rope_theta": base}}}


def window(n: int) -> dict[str, Mistake]:
    return {"window off by one": {"sliding_window": n}}


MISREADINGS: dict[str, dict[str, Mistake]] = {
    "Marian": {"sines and cosines in turn": in_turn},
    "BERT": {"one row later": ROW_LATER},
    "GPT-2": {"one row later": ROW_LATER},
    "T5": {"scores divided": USUAL_SCALE, "buckets end elsewhere": {"relative_attention_max_distance": 24}},
    "XLNet (as Transformer-XL)": {"u and v exchanged": changed(TransformerXL, u=lambda m: m.v, v=lambda m: m.u)},
    "MPT": {"other sign": OTHER_SIGN, "steeper": changed(ALiBi, slopes=lambda m: m.slopes ** (7 / 8))},
    "BLOOM": {"other sign": OTHER_SIGN},
    "GPT-J": LAYOUT | {"all features turned": {"rotary_dim": 16}},
    "GPT-NeoX": LAYOUT | ALL_FEATURES,
    "Llama 3.1": LAYOUT | NOT_STRETCHED | other_base(1e4),
    "Llama 4 Scout": LAYOUT
    | FLAGS_BY_NAME
    | ALL_TURN
    | NOT_STRETCHED
    | {"chunk off by one": {"attention_chunk_size": 8}, "no temperature": {"attn_scale": 0.0}},
    "Mistral 7B v0.1": LAYOUT | window(8) | other_base(1e6),
    "Gemma 3 4B": LAYOUT
    | window(6)
    | {
        "one base for all": {"rope_parameters": {"sliding_attention": rope(1e6)}},
        "global layers not stretched": {"rope_parameters": {"full_attention": rope(1e6)}},
        "scale by the width of a head": USUAL_SCALE,
    },
    "DeepSeek-V3": LAYOUT
    | NOT_STRETCHED
    | {
        "softmax not sharpened": USUAL_SCALE,
        "the first features turned": changed(ModelRotary, last=lambda m: False),
    },
    "Qwen2-VL": LAYOUT | other_base(1e4) | {"other sections": {"rope_parameters": {"mrope_section": [3, 3, 2]}}},
    "Qwen 3.5": LAYOUT
    | other_base(1e2)
    | {"all features turned": {"rope_parameters": {"partial_rotary_factor": 1.0, "mrope_section": [6, 5, 5]}}},
    "SmolLM3": LAYOUT | FLAGS_BY_NAME | ALL_TURN | other_base(2e4),
    "Cohere2 (Command R7B)": LAYOUT
    | window(8)
    | other_base(1e4)
    | {"NoPE layer turned": {"layer_types": ["sliding_attention"] * 4, "sliding_window": 10**6}},
    "ViT": {"one row later": ROW_LATER},
    "Swin": {"windows not shifted": changed(Windows, shift=lambda m: 0)},
    "DINOv3": LAYOUT
    | {
        "base of texts": {"rope_theta": 1e4},
        "columns first": changed(ModelRotary, vectors=lambda m: m.vectors.flip(0)),
    },
}


def misreading(entry: Production, theirs: nn.Module, mistake: Mistake) -> nn.Module:
    """The rebuilt model, with one thing misread."""
    if isinstance(mistake, dict):
        return rebuild(entry, theirs, misread(theirs.config, **mistake))
    rebuilt = rebuild(entry, theirs)
    mistake(rebuilt)
    return rebuilt


# --- Settings that change nothing, whatever their names say

INERT: dict[str, dict[str, Any]] = {
    "Marian": {"static_position_embeddings": False},
    "BERT": {"position_embedding_type": "relative_key_query"},
    "T5": {"n_positions": 8},
    "XLNet (as Transformer-XL)": {"untie_r": False},
    "MPT": {"attn_config": {"alibi": False}},
    "BLOOM": {"seq_length": 8},
    "GPT-J": {"rope_theta": 5e5},
    "GPT-NeoX": {"max_position_embeddings": 8},
    "Llama 3.1": {"max_position_embeddings": 96},
    "Llama 4 Scout": {"no_rope_layers": []},
    "DeepSeek-V3": {"max_position_embeddings": 64},
    "Qwen2-VL": {"sliding_window": 4, "use_sliding_window": False},
    "Qwen 3.5": {"rope_parameters": BY_NAME["Qwen 3.5"].tiny["rope_parameters"] | {"mrope_interleaved": False}},
    "Cohere2 (Command R7B)": {"rotary_pct": 0.5, "position_embedding_type": "learned"},
    "DINOv3": {"pos_embed_shift": 0.5, "pos_embed_jitter": 2.0, "pos_embed_rescale": None},
}
