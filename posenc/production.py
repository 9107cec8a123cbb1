"""Production models, rebuilt: their rows, our doors.

Everything in a Transformer but attention works on each row alone. So those parts (embeddings, norms, feed-forward) are
taken from a model as they are, and the rest is the book's: `rebuild` puts them into `model.Transformer` around
`RebuiltAttention`, with an encoding a layer that is read from the model's configuration. If the outputs agree, every
position has come in by one of our doors. `MODELS` is the list, `survey` makes a table of it.

Importing this module does not import the library that the models come from: `library()` does, and is handed in.
"""

import copy
import functools
import importlib
import itertools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from posenc import doctor
from posenc.absolute import Sinusoidal, frequencies, sinusoids, to_halves, to_interleaved
from posenc.attention import Cache, masked_softmax
from posenc.contexts import Layer, Temperature, interpolated, llama3, yarn_factor, yarn_in_code
from posenc.encoding import NoPE, PositionEncoding, Together, default_positions
from posenc.learned import Learned
from posenc.masks import Causal, Chunked, SlidingWindow, causal
from posenc.model import Transformer
from posenc.offsets import TransformerXL
from posenc.relative import ALiBi, T5Bias
from posenc.rotary import turn, turn_halves
from posenc.rotary_grid import axial_vectors, centred, grid_angles, mrope_positions, mrope_vectors
from posenc.symmetry import difference
from posenc.vision import grid
from posenc.windows import WindowBias, Windows

Rowwise = Callable[[Tensor], Tensor]  # (..., n, d) -> (..., n, e), each row alone
Wiring = Literal["before", "after", "parallel"]

# --- The frame: a Transformer of borrowed rows


class RebuiltAttention(nn.Module):
    """Attention of any model: its projections, and the book's doors. (..., n, d_model) -> (..., n, d_model).

    queries, keys, values, output: what makes them from rows; biases, low ranks, norms of rows are inside. There may be
    fewer heads of keys and values than of queries: each serves a group (GQA). query_norm and key_norm work on each
    head; `gate`, if any, multiplies what the heads have mixed. scale: 1 / sqrt(head_dim) if None.
    """

    def __init__(
        self,
        encoding: PositionEncoding,
        n_heads: int,
        queries: Rowwise,
        keys: Rowwise,
        values: Rowwise,
        output: Rowwise,
        scale: float | None = None,
        query_norm: Rowwise | None = None,
        key_norm: Rowwise | None = None,
        gate: Rowwise | None = None,
    ):
        super().__init__()
        self.encoding, self.n_heads, self.scale = encoding, n_heads, scale
        self.queries, self.keys, self.values, self.output = queries, keys, values, output
        self.query_norm, self.key_norm, self.gate = query_norm, key_norm, gate

    def forward(self, x: Tensor, positions: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        positions = default_positions(x) if positions is None else positions
        if positions.ndim > 1:
            positions = positions.unsqueeze(-2)  # one row of positions serves all heads
        q, k, v = self.queries(x), self.keys(x), self.values(x)
        head_dim = q.shape[-1] // self.n_heads
        n_groups = k.shape[-1] // head_dim
        counts = (self.n_heads, n_groups, n_groups)
        q, k, v = (t.unflatten(-1, (n, -1)).transpose(-3, -2) for t, n in zip((q, k, v), counts, strict=True))
        q = q if self.query_norm is None else self.query_norm(q)
        k = k if self.key_norm is None else self.key_norm(k)
        q, k = self.encoding.queries_and_keys(q, k, positions, positions)
        key_positions = positions
        if cache is not None:
            k, v, key_positions = cache.extend(k, v, positions)
        k, v = (t.repeat_interleave(self.n_heads // n_groups, dim=-3) for t in (k, v))
        scores = q @ k.mT * (head_dim**-0.5 if self.scale is None else self.scale)
        scores = self.encoding.scores(scores, q, k, positions, key_positions)
        mask = self.encoding.mask(positions, key_positions)
        weights = masked_softmax(scores, mask if cache is None else cache.hide_padding(mask))
        mixed = self.encoding.values(weights, v, positions, key_positions).transpose(-3, -2).flatten(-2)
        return self.output(mixed if self.gate is None else mixed * self.gate(x))


class RebuiltBlock(nn.Module):
    """Attention and feed-forward, wired in one of three ways. (..., n, d_model), kept.

    "before": norms before each part, one part after the other (most models); "after": norms after each sum (BERT);
    "parallel": both parts read the same rows (GPT-J).
    """

    def __init__(
        self,
        attention: nn.Module,
        feed_forward: Rowwise,
        norms: Sequence[Rowwise],
        wiring: Wiring = "before",
    ):
        super().__init__()
        self.attention, self.feed_forward, self.norms, self.wiring = attention, feed_forward, norms, wiring

    def forward(self, x: Tensor, positions: Tensor, cache: Cache | None = None) -> Tensor:
        first, second = self.norms
        if self.wiring == "parallel":
            return x + self.attention(first(x), positions, cache) + self.feed_forward(second(x))
        if self.wiring == "after":
            x = first(x + self.attention(x, positions, cache))
            return second(x + self.feed_forward(x))
        x = x + self.attention(first(x), positions, cache)
        return x + self.feed_forward(second(x))


class OnRows(nn.Module):
    """Any function of rows in a block's place, or in an embedding's."""

    def __init__(self, function: Rowwise):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, positions: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        return self.function(x)


def steps(*functions: Rowwise) -> nn.Module:
    """One function of rows after the other."""
    return nn.Sequential(*map(OnRows, functions))


def same(x: Tensor) -> Tensor:
    return x


def assemble(
    doors: Sequence[PositionEncoding],
    embedding: Rowwise,
    blocks: Iterable[nn.Module],
    norm: Rowwise = same,
    to_logits: Rowwise = same,
) -> Transformer:
    """The book's `Transformer` with other parts in place of its own."""
    model = Transformer(vocabulary=1, d_model=1, n_layers=0, n_heads=1, n_outputs=1, encoding=doors[0])
    model.embedding, model.blocks = OnRows(embedding), nn.ModuleList(blocks)
    model.norm, model.to_logits = OnRows(norm), OnRows(to_logits)
    return model.eval()


# --- Encodings as released models have them


class ModelRotary(PositionEncoding):
    """Rotary as configurations describe it: which features, in which layout, at which frequencies.

    vectors: (pairs,) for texts or (axes, pairs) for places with coordinates. They turn the first 2 * pairs features of
    each head, or the last, and leave the others alone.
    """

    def __init__(
        self,
        vectors: Tensor,
        base: float,
        layout: Literal["halves", "neighbours"] = "halves",
        last: bool = False,
        factor: float = 1.0,
        kind: str = "default",
    ):
        super().__init__()
        self.vectors = vectors  # not a buffer: `.to(torch.bfloat16)` would round it
        self.base, self.layout, self.last, self.factor, self.kind = base, layout, last, factor, kind

    def queries_and_keys(
        self, queries: Tensor, keys: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.turned(queries, query_positions), self.turned(keys, key_positions)

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        vectors, way = self.vectors.to(x.device), turn_halves if self.layout == "halves" else turn
        angles = positions.unsqueeze(-1) * vectors if vectors.ndim == 1 else grid_angles(positions, vectors)
        width = 2 * vectors.shape[-1]
        start = x.shape[-1] - width if self.last else 0
        before, part, after = x.tensor_split((start, start + width), dim=-1)
        return torch.cat([before, self.factor * way(part, angles), after], dim=-1)


def rotary_of(rope: dict[str, Any], head_dim: int, **more: Any) -> ModelRotary:
    """The encoding that a configuration's `rope_parameters` describe. ValueError for a rule that is not here."""
    base, kind = rope["rope_theta"], rope.get("rope_type", "default")
    scale = rope.get("factor", 1.0)
    width = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    trained = rope.get("original_max_position_embeddings")
    waves, factor = frequencies(width, base), 1.0
    if kind == "linear":
        waves = interpolated(waves, scale)
    elif kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        waves = llama3(waves, scale, trained, low, high)
    elif kind == "yarn":
        slow, fast = rope.get("beta_slow", 1.0), rope.get("beta_fast", 32.0)
        waves = yarn_in_code(base, width, scale, trained, slow, fast)
        above, below = rope.get("mscale", 1.0), rope.get("mscale_all_dim", 0.0)
        factor = yarn_factor(scale, above) / yarn_factor(scale, below)
    elif kind != "default":
        raise ValueError(f"no rule for rope_type {kind!r}; there are default, linear, llama3 and yarn")
    return ModelRotary(waves, base, kind=kind, factor=factor, **more)


class SinusoidalHalves(Sinusoidal):
    """Sines in the first half of the features, cosines in the second, as in tensor2tensor and Marian."""

    layout = "halves"

    def tokens(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + to_halves(sinusoids(positions, x.shape[-1], self.base)).to(x.dtype)


class CausalInOrder(PositionEncoding):
    """Causal by the order of storage, for positions with several coordinates."""

    def mask(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        stored = torch.arange(key_positions.shape[-1], device=key_positions.device)
        return causal(stored[-query_positions.shape[-1] :], stored)


class WindowsBias(WindowBias):
    """Swin's table for a whole picture: pairs in different windows are masked, so any entry will do for them."""

    def bias(self, down: Tensor, across: Tensor) -> Tensor:
        return super().bias(down.clamp(1 - self.rows, self.rows - 1), across.clamp(1 - self.columns, self.columns - 1))


class Recurrent(NoPE):
    """Stands for a layer without attention: there is no door to open."""


def head_dim_of(c: Any) -> int:
    return getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads


def width_of_head(c: Any) -> int:
    """All the features of a head: where only a part of them turns, `head_dim` may be that part."""
    return getattr(c, "qk_head_dim", None) or head_dim_of(c)


def marian_doors(c: Any) -> list[PositionEncoding]:
    return [SinusoidalHalves()] * c.encoder_layers


def bert_doors(c: Any) -> list[PositionEncoding]:
    return [Learned(c.max_position_embeddings, c.hidden_size)] * c.num_hidden_layers


def gpt2_doors(c: Any) -> list[PositionEncoding]:
    return [Together(Causal(), Learned(c.n_positions, c.n_embd))] * c.n_layer


def t5_doors(c: Any) -> list[PositionEncoding]:
    shared = T5Bias(c.num_heads, c.relative_attention_num_buckets, c.relative_attention_max_distance)
    return [shared] * c.num_layers


def xlnet_doors(c: Any) -> list[PositionEncoding]:
    return [TransformerXL(c.d_model, c.n_head) for _ in range(c.n_layer)]


def mpt_doors(c: Any) -> list[PositionEncoding]:
    return [Together(Causal(), ALiBi(c.n_heads, c.attn_config.alibi_bias_max))] * c.n_layers


def bloom_doors(c: Any) -> list[PositionEncoding]:
    return [Together(Causal(), ALiBi(c.n_head))] * c.n_layer


def gptj_doors(c: Any) -> list[PositionEncoding]:
    base = 10_000.0  # written into the code, not into the configuration
    return [Together(Causal(), ModelRotary(frequencies(c.rotary_dim, base), base, "neighbours"))] * c.n_layer


def llama_doors(c: Any) -> list[PositionEncoding]:
    """Llama 3.1 and GPT-NeoX."""
    return [Layer().encoding(rotary_of(c.rope_parameters, head_dim_of(c)))] * c.num_hidden_layers


def mistral_doors(c: Any) -> list[PositionEncoding]:
    return [Layer(window=c.sliding_window).encoding(rotary_of(c.rope_parameters, head_dim_of(c)))] * c.num_hidden_layers


def llama4_doors(c: Any) -> list[PositionEncoding]:
    rotary = rotary_of(c.rope_parameters, c.head_dim, layout="neighbours")
    local = Layer(chunk=c.attention_chunk_size).encoding(rotary)
    temperature = Temperature(c.floor_scale, c.attn_scale)
    tuned = [temperature] if c.attn_temperature_tuning else []
    everywhere = Together(Causal(), *tuned)
    return [local if rotates else everywhere for rotates in c.no_rope_layers]  # 1 means: rotates


def gemma3_doors(c: Any) -> list[PositionEncoding]:
    rotary = {kind: rotary_of(rope, c.head_dim) for kind, rope in c.rope_parameters.items()}
    windows = {"sliding_attention": c.sliding_window, "full_attention": None}
    return [Layer(window=windows[kind]).encoding(rotary[kind]) for kind in c.layer_types]


def deepseek_doors(c: Any) -> list[PositionEncoding]:
    layout = "neighbours" if c.rope_interleave else "halves"
    rotary = rotary_of(c.rope_parameters, c.qk_rope_head_dim, layout=layout, last=True)
    return [Layer().encoding(rotary)] * c.num_hidden_layers


def qwen2_vl_doors(c: Any) -> list[PositionEncoding]:
    rope, head_dim = c.rope_parameters, c.hidden_size // c.num_attention_heads
    vectors = mrope_vectors(head_dim, rope["mrope_section"], rope["rope_theta"])
    return [Together(CausalInOrder(), ModelRotary(vectors, rope["rope_theta"]))] * c.num_hidden_layers


def qwen3_5_doors(c: Any) -> list[PositionEncoding]:
    rope, width = c.rope_parameters, int(c.head_dim * c.rope_parameters["partial_rotary_factor"])
    vectors = mrope_vectors(width, rope.get("mrope_section", (11, 11, 10)), rope["rope_theta"], interleaved=True)
    attention = Together(CausalInOrder(), ModelRotary(vectors, rope["rope_theta"]))
    return [attention if kind == "full_attention" else Recurrent() for kind in c.layer_types]


def smollm3_doors(c: Any) -> list[PositionEncoding]:
    rotary = rotary_of(c.rope_parameters, c.hidden_size // c.num_attention_heads)
    return [Layer(rope=bool(rotates)).encoding(rotary) for rotates in c.no_rope_layers]  # 1 means: rotates


def cohere2_doors(c: Any) -> list[PositionEncoding]:
    rotary = rotary_of(c.rope_parameters, c.head_dim, layout="neighbours")
    local = Layer(window=c.sliding_window).encoding(rotary)
    everywhere = Layer(rope=False).encoding(rotary)
    return [local if kind == "sliding_attention" else everywhere for kind in c.layer_types]


def vit_doors(c: Any) -> list[PositionEncoding]:
    return [Learned(1 + (c.image_size // c.patch_size) ** 2, c.hidden_size)] * c.num_hidden_layers


def swin_doors(c: Any) -> list[PositionEncoding]:
    """Every second layer is shifted, unless one window is the whole picture, as in the last stage."""
    side, doors = c.window_size, []
    for stage, (depth, n_heads) in enumerate(zip(c.depths, c.num_heads, strict=True)):
        shift = side // 2 if c.image_size // c.patch_size // 2**stage > side else 0
        for i in range(depth):
            doors.append(Together(Windows(side, shift * (i % 2)), WindowsBias(side, side, n_heads)))
    return doors


def dinov3_doors(c: Any) -> list[PositionEncoding]:
    vectors = 2 * torch.pi * axial_vectors(c.hidden_size // c.num_attention_heads, c.rope_theta)
    return [ModelRotary(vectors, c.rope_theta)] * c.num_hidden_layers


# --- Weights: where each model keeps them

Doors = Sequence[PositionEncoding]
Attend = Callable[[nn.Module, PositionEncoding], nn.Module]  # from their attention and our doors


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A projection with given weights (out, in) and biases (out,)."""
    made = nn.Linear(*weight.T.shape)
    made.weight, made.bias = nn.Parameter(weight), None if bias is None else nn.Parameter(bias)
    return made


def split(weight: Tensor, bias: Tensor | None, n_heads: int, by_head: bool) -> list[nn.Linear]:
    """Queries, keys, values from one fused projection (3 * d, in): one after the other, or three in turn a head."""

    def parts(rows: Tensor) -> Iterable[Tensor]:
        return (p.flatten(0, 1) for p in rows.unflatten(0, (n_heads, 3, -1)).unbind(1)) if by_head else rows.chunk(3)

    return [linear(*p) for p in zip(parts(weight), [None] * 3 if bias is None else parts(bias), strict=True)]


def read_attention(n_heads: int, names: str = "q_proj k_proj v_proj o_proj", **more: Any) -> Attend:
    """The usual case: four projections, each under its name."""

    def read(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        q, k, v, output = map(theirs.get_submodule, names.split())
        return RebuiltAttention(door, n_heads, **{"queries": q, "keys": k, "values": v, "output": output} | more)

    return read


def stack(
    layers: Iterable[nn.Module],
    doors: Doors,
    attention: Attend,
    feed_forward: Callable[[nn.Module], Rowwise] = lambda layer: layer.mlp,
    names: str = "self_attn input_layernorm post_attention_layernorm",
    wiring: Wiring = "before",
    behind: str = "",
) -> list[nn.Module]:
    """A block for each layer. names: of its attention and its two norms; behind: of what follows attention, if any."""
    blocks: list[nn.Module] = []
    for layer, door in zip(layers, doors, strict=True):
        theirs, *norms = map(layer.get_submodule, names.split())
        ours = attention(theirs, door)
        if behind:
            ours.output = steps(ours.output, layer.get_submodule(behind))
        blocks.append(RebuiltBlock(ours, feed_forward(layer), norms, wiring))
    return blocks


def read_marian(model: nn.Module, doors: Doors) -> Transformer:
    attention = read_attention(model.config.num_attention_heads, "q_proj k_proj v_proj out_proj")
    names = "self_attn self_attn_layer_norm final_layer_norm"
    blocks = stack(model.layers, doors, attention, lambda m: steps(m.fc1, m.activation_fn, m.fc2), names, "after")
    return assemble(doors, lambda ids: model.embed_tokens(ids) * model.embed_scale, blocks)


def read_bert(model: nn.Module, doors: Doors) -> Transformer:
    start, names = model.embeddings, "attention attention.output.LayerNorm output.LayerNorm"
    doors[0].table = start.position_embeddings.weight
    attention = read_attention(model.config.num_attention_heads, "self.query self.key self.value output.dense")

    def embedding(ids: Tensor) -> Tensor:
        return start.word_embeddings(ids) + start.token_type_embeddings.weight[0]

    def feed_forward(layer: nn.Module) -> Rowwise:
        return steps(layer.intermediate, layer.output.dense)

    blocks = stack(model.encoder.layer, doors, attention, feed_forward, names, "after")
    norm = OnRows(start.LayerNorm)  # stands between the token door and the first block
    return assemble(doors, embedding, [norm, *blocks])


def read_gpt2(model: nn.Module, doors: Doors) -> Transformer:
    body, n_heads = model.transformer, model.config.n_head
    doors[0].encodings[1].table = body.wpe.weight

    def attention(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        fused = split(theirs.c_attn.weight.T, theirs.c_attn.bias, n_heads, by_head=False)  # their weight is (in, out)
        return RebuiltAttention(door, n_heads, *fused, theirs.c_proj)

    blocks = stack(body.h, doors, attention, names="attn ln_1 ln_2")
    return assemble(doors, body.wte, blocks, body.ln_f, model.lm_head)


def read_t5(model: nn.Module, doors: Doors) -> Transformer:
    body, attention = model.encoder, read_attention(model.config.num_heads, "q k v o", scale=1.0)
    doors[0].table = body.block[0].layer[0].SelfAttention.relative_attention_bias.weight  # the first layer's, for all
    names = "layer.0.SelfAttention layer.0.layer_norm layer.1.layer_norm"
    blocks = stack(body.block, doors, attention, lambda block: block.layer[1].DenseReluDense, names)
    return assemble(doors, body.embed_tokens, blocks, body.final_layer_norm)


def read_xlnet(model: nn.Module, doors: Doors) -> Transformer:
    def attention(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        door.u, door.v = (nn.Parameter(bias.unsqueeze(1)) for bias in (theirs.r_w_bias, theirs.r_r_bias))
        door.to_offset_keys = linear(to_interleaved(theirs.r.flatten(1).T))  # their sinusoids stand in halves
        projections = [linear(weight.flatten(1).T) for weight in (theirs.q, theirs.k, theirs.v)]
        return RebuiltAttention(door, model.config.n_head, *projections, linear(theirs.o.flatten(1)))

    def feed_forward(layer: nn.Module) -> Rowwise:
        return steps(layer.ff.layer_1, layer.ff.activation_function, layer.ff.layer_2)

    blocks = stack(model.layer, doors, attention, feed_forward, "rel_attn rel_attn.layer_norm ff.layer_norm", "after")
    return assemble(doors, model.word_embedding, blocks)


def read_mpt(model: nn.Module, doors: Doors) -> Transformer:
    body, n_heads = model.transformer, model.config.n_heads

    def attention(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        return RebuiltAttention(door, n_heads, *split(theirs.Wqkv.weight, None, n_heads, False), theirs.out_proj)

    def feed_forward(layer: nn.Module) -> Rowwise:
        return steps(layer.ffn.up_proj, layer.ffn.act, layer.ffn.down_proj)

    blocks = stack(body.blocks, doors, attention, feed_forward, "attn norm_1 norm_2")
    return assemble(doors, body.wte, blocks, body.norm_f, model.lm_head)


def read_fused(n_heads: int) -> Attend:
    """BLOOM and GPT-NeoX: three in turn a head."""

    def read(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        fused = theirs.query_key_value
        return RebuiltAttention(door, n_heads, *split(fused.weight, fused.bias, n_heads, by_head=True), theirs.dense)

    return read


def read_bloom(model: nn.Module, doors: Doors) -> Transformer:
    def feed_forward(layer: nn.Module) -> Rowwise:
        return steps(layer.mlp.dense_h_to_4h, layer.mlp.gelu_impl, layer.mlp.dense_4h_to_h)

    body, names = model.transformer, "self_attention input_layernorm post_attention_layernorm"
    blocks = stack(body.h, doors, read_fused(model.config.n_head), feed_forward, names)
    embedding = steps(body.word_embeddings, body.word_embeddings_layernorm)
    return assemble(doors, embedding, blocks, body.ln_f, model.lm_head)


def read_gptj(model: nn.Module, doors: Doors) -> Transformer:
    body, attention = model.transformer, read_attention(model.config.n_head, "q_proj k_proj v_proj out_proj")
    blocks = stack(body.h, doors, attention, names="attn ln_1 ln_1", wiring="parallel")
    return assemble(doors, body.wte, blocks, body.ln_f, model.lm_head)


def read_neox(model: nn.Module, doors: Doors) -> Transformer:
    body, names = model.gpt_neox, "attention input_layernorm post_attention_layernorm"
    wiring: Wiring = "parallel" if model.config.use_parallel_residual else "before"
    blocks = stack(body.layers, doors, read_fused(model.config.num_attention_heads), names=names, wiring=wiring)
    return assemble(doors, body.embed_in, blocks, body.final_layer_norm, model.lm_head)


def read_llama(model: nn.Module, doors: Doors, attention: Attend | None = None, **more: Any) -> Transformer:
    """Llama 3.1, and everything that is built like it."""
    body = getattr(model, "model", model)
    blocks = stack(body.layers, doors, attention or read_attention(model.config.num_attention_heads), **more)
    return assemble(doors, body.embed_tokens, blocks, body.norm, getattr(model, "lm_head", same))


def read_llama4(model: nn.Module, doors: Doors) -> Transformer:
    def attention(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        norm = getattr(theirs, "qk_norm", None)  # theirs comes after the rotation, which keeps lengths: no difference
        return read_attention(model.config.num_attention_heads, query_norm=norm, key_norm=norm)(theirs, door)

    def experts(layer: nn.Module) -> Rowwise:
        return OnRows(lambda x: layer.feed_forward(x)[0].view(x.shape))

    return read_llama(model, doors, attention, feed_forward=experts)


def read_gemma3(model: nn.Module, doors: Doors) -> Transformer:
    def attention(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        norms, scale = (
            {"query_norm": theirs.q_norm, "key_norm": theirs.k_norm},
            model.config.query_pre_attn_scalar**-0.5,
        )
        return read_attention(model.config.num_attention_heads, scale=scale, **norms)(theirs, door)

    def feed_forward(layer: nn.Module) -> Rowwise:
        return steps(layer.mlp, layer.post_feedforward_layernorm)

    names, behind = "self_attn input_layernorm pre_feedforward_layernorm", "post_attention_layernorm"
    return read_llama(model, doors, attention, feed_forward=feed_forward, names=names, behind=behind)


def read_deepseek(model: nn.Module, doors: Doors) -> Transformer:
    c, n_heads, plain = model.config, model.config.num_attention_heads, model.config.qk_nope_head_dim
    rule = c.rope_parameters
    stretched = rule["rope_type"] != "default"  # a factor without a rule means nothing
    sharper = yarn_factor(rule["factor"], rule.get("mscale_all_dim", 0.0)) ** 2 if stretched else 1.0

    def attention(theirs: nn.Module, door: PositionEncoding) -> RebuiltAttention:
        def expanded(x: Tensor) -> Tensor:  # from the latent: (..., n, heads, plain + value_dim)
            latent = theirs.kv_a_layernorm(theirs.kv_a_proj_with_mqa(x)[..., : c.kv_lora_rank])
            return theirs.kv_b_proj(latent).unflatten(-1, (n_heads, -1))

        def keys(x: Tensor) -> Tensor:
            of_content = expanded(x)[..., :plain]
            of_position = theirs.kv_a_proj_with_mqa(x)[..., None, c.kv_lora_rank :]  # one, for all heads
            return torch.cat([of_content, of_position.expand(*of_content.shape[:-1], -1)], dim=-1).flatten(-2)

        def values(x: Tensor) -> Tensor:
            return expanded(x)[..., plain:].flatten(-2)

        queries = steps(theirs.q_a_proj, theirs.q_a_layernorm, theirs.q_b_proj)
        return RebuiltAttention(door, n_heads, queries, keys, values, theirs.o_proj, sharper / c.qk_head_dim**0.5)

    return read_llama(model, doors, attention)


def read_qwen3_5(model: nn.Module, doors: Doors) -> Transformer:
    n_heads = model.config.num_attention_heads

    def attention(theirs: nn.Module, door: PositionEncoding) -> nn.Module:
        if isinstance(door, Recurrent):
            return Borrowed(theirs)

        def queries_and_gate(x: Tensor) -> list[Tensor]:  # each head has a gate beside its query
            return [half.flatten(-2) for half in theirs.q_proj(x).unflatten(-1, (n_heads, -1)).chunk(2, dim=-1)]

        more = {"queries": lambda x: queries_and_gate(x)[0], "gate": lambda x: queries_and_gate(x)[1].sigmoid()}
        return read_attention(n_heads, query_norm=theirs.q_norm, key_norm=theirs.k_norm, **more)(theirs, door)

    body, blocks = model.model, []
    for layer, door in zip(body.layers, doors, strict=True):
        mixer = "linear_attn" if isinstance(door, Recurrent) else "self_attn"
        blocks += stack([layer], [door], attention, names=f"{mixer} input_layernorm post_attention_layernorm")
    return assemble(doors, body.embed_tokens, blocks, body.norm, model.lm_head)


class Borrowed(nn.Module):
    """Qwen 3.5's recurrent layers, taken as they are: no attention, and no door of ours. Order enters by recurrence."""

    def __init__(self, theirs: nn.Module):
        super().__init__()
        self.theirs = theirs

    def forward(self, x: Tensor, positions: Tensor, cache: Cache | None = None) -> Tensor:
        if cache is not None:
            raise NotImplementedError("recurrent layers keep a state, not keys: decode this model without a cache")
        return self.theirs(x, cache=None, attention_mask=None)


def read_cohere2(model: nn.Module, doors: Doors) -> Transformer:
    rebuilt = read_llama(model, doors, names="self_attn input_layernorm input_layernorm", wiring="parallel")
    rebuilt.to_logits = OnRows(lambda x: model.lm_head(x) * model.config.logit_scale)
    return rebuilt


def read_vit(model: nn.Module, doors: Doors) -> Transformer:
    start, attention = model.embeddings, read_attention(model.config.num_attention_heads)
    doors[0].table = nn.Parameter(start.position_embeddings[0])

    def embedding(pixels: Tensor) -> Tensor:
        return torch.cat([start.cls_token.expand(len(pixels), -1, -1), start.patch_embeddings(pixels)], dim=1)

    blocks = stack(model.layers, doors, attention, names="attention layernorm_before layernorm_after")
    return assemble(doors, embedding, blocks, model.layernorm)


def read_swin(model: nn.Module, doors: Doors) -> Transformer:
    """One stage: between stages, patches are merged four to one, which is no function of rows."""
    start, layers = model.embeddings, model.encoder.layers[0].blocks
    for layer, door in zip(layers, doors, strict=True):
        door.encodings[1].table = layer.attention.relative_position_bias.relative_position_bias_table
    attention = read_attention(model.config.num_heads[0])
    blocks = stack(layers, doors, attention, names="attention layernorm_before layernorm_after")
    return assemble(doors, lambda pixels: start.norm(start.patch_embeddings(pixels)[0]), blocks, model.layernorm)


def read_dinov3(model: nn.Module, doors: Doors) -> Transformer:
    def feed_forward(layer: nn.Module) -> Rowwise:
        return steps(layer.mlp, layer.layer_scale2)

    attention, names = read_attention(model.config.num_attention_heads), "attention norm1 norm2"
    blocks = stack(model.model.layer, doors, attention, feed_forward, names, behind="layer_scale1")
    return assemble(doors, model.embeddings, blocks, model.norm)


# --- The list

Sample = tuple[Tensor, Tensor | None, dict[str, Any]]  # input, our positions, their other arguments


def text(c: Any, n: int = 40) -> Sample:
    return torch.randint(3, 50, (2, n)), None, {}


def long_text(c: Any) -> Sample:
    return text(c, 80)


def text_and_pictures(c: Any) -> Sample:
    places = mrope_positions([3, (1, 3, 5), 6, (1, 4, 2), 8])  # (3, n)
    ids = torch.randint(3, 50, (2, places.shape[1]))
    return ids, places, {"position_ids": places.unsqueeze(1).expand(-1, 2, -1)}


def picture(c: Any) -> Sample:
    return torch.randn(2, 3, c.image_size, c.image_size), None, {}


def picture_of_windows(c: Any) -> Sample:
    side = c.image_size // c.patch_size
    return torch.randn(2, 3, c.image_size, c.image_size), grid(side, side), {}


def wide_picture(c: Any) -> Sample:
    in_front = torch.zeros(2, 1 + c.num_register_tokens, dtype=torch.float64)  # class and registers do not turn
    places = torch.cat([in_front, centred(3, 7)], dim=1)
    return torch.randn(2, 3, 3 * c.patch_size, 7 * c.patch_size), places, {}


@dataclass(frozen=True)
class Production:
    """A model: its class in transformers, how to read it, and a tiny configuration.

    misleads: what a setting seems to say, and what it does. released: settings of the released model that are not the
    class's own, read on the page `released_at`, which is somebody's copy if second_hand. scope: what is rebuilt.
    scheme, year, described_at: in words, when it came out, and where its makers describe it. trained: the length of
    its training texts before any stretching, 0 where we know of no source.
    """

    name: str
    model_class: str
    doors: Callable[[Any], list[PositionEncoding]]
    read: Callable[[nn.Module, Doors], Transformer]
    tiny: dict[str, Any]
    misleads: str = ""
    sample: Callable[[Any], Sample] = text
    scope: str = "whole model"
    released: dict[str, Any] = field(default_factory=dict)
    released_at: str = ""
    second_hand: bool = False
    scheme: str = ""
    year: int = 0
    described_at: str = ""
    trained: int = 0


def settings(**own: Any) -> dict[str, Any]:
    """A tiny configuration: these sizes, and a model's own settings."""
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    return sizes | {"num_attention_heads": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | own


def rope(base: float, kind: str = "default", **more: Any) -> dict[str, Any]:
    return {"rope_type": kind, "rope_theta": base, **more}


def trained(length: int, scaling: dict[str, Any], **more: Any) -> dict[str, Any]:
    return scaling | {"original_max_position_embeddings": length} | more


LLAMA3 = rope(5e5, "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
SCOUT = LLAMA3 | {"factor": 16.0, "high_freq_factor": 1.0}  # no ramp
YARN = rope(1e4, "yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0, beta_fast=32.0, beta_slow=1.0)
GEMMA = {"full_attention": rope(1e6, "linear", factor=8.0), "sliding_attention": rope(1e4)}
OLD = {"vocab_size": 50, "n_layer": 2, "n_head": 4, "bos_token_id": 0, "eos_token_id": 0}
PICTURES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
PICTURES |= {"image_size": 16, "patch_size": 4}
HUB, GITHUB, ARXIV = "https://huggingface.co", "https://github.com", "https://arxiv.org/abs"

# fmt: off
MODELS = [
    Production(
        "Marian", "models.marian.modeling_marian.MarianEncoder", marian_doors, read_marian,
        {"vocab_size": 50, "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
        | {"pad_token_id": 0, "decoder_start_token_id": 0, "scale_embedding": True, "max_position_embeddings": 40},
        "static_position_embeddings is not read: sinusoids always. Computed, yet they end, at max_position_embeddings.",
        scope="encoder",
        released={"d_model": 512, "encoder_layers": 6, "encoder_attention_heads": 8, "max_position_embeddings": 512},
        released_at=f"{HUB}/sgugger/marian-finetuned-kde4-en-to-fr/blob/main/config.json",
        scheme="sinusoids", year=2018, second_hand=True,
        described_at=f"{ARXIV}/1804.00344",
    ),
    Production(
        "BERT", "BertModel", bert_doors, read_bert, settings(max_position_embeddings=40),
        "position_embedding_type is not read any more: always an absolute table.",
        scheme="learned table", year=2018,
        described_at=f"{ARXIV}/1810.04805",
    ),
    Production(
        "GPT-2", "GPT2LMHeadModel", gpt2_doors, read_gpt2, OLD | {"n_embd": 32, "n_positions": 40},
        scheme="learned table", year=2019,
        described_at=f"{GITHUB}/openai/gpt-2",
    ),
    Production(
        "T5", "T5EncoderModel", t5_doors, read_t5,
        {"vocab_size": 50, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        | {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 20},
        "n_positions limits nothing. The buckets serve both directions together in the encoder, one in the decoder.",
        scope="encoder",
        scheme="bucketed bias", year=2019,
        described_at=f"{ARXIV}/1910.10683",
    ),
    Production(
        "XLNet (as Transformer-XL)", "XLNetModel", xlnet_doors, read_xlnet,
        {"vocab_size": 50, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
        "untie_r is not read: every layer has its own u and v.", scope="whole model, without memory",
        scheme="relative sinusoids", year=2019,
        described_at=f"{ARXIV}/1906.08237",
    ),
    Production(
        "MPT", "MptForCausalLM", mpt_doors, read_mpt,
        {"vocab_size": 50, "d_model": 48, "n_layers": 2, "n_heads": 6, "max_seq_len": 48},
        "attn_config.alibi is not read: always a bias. And max_seq_len is a limit: past it the code fails.",
        released={"d_model": 4096, "n_layers": 32, "n_heads": 32},
        released_at=f"{GITHUB}/mosaicml/llm-foundry/blob/main/scripts/train/yamls/pretrain/mpt-7b.yaml",
        scheme="ALiBi", year=2023,
        described_at=f"{GITHUB}/huggingface/transformers/blob/main/docs/source/en/model_doc/mpt.md",
    ),
    Production(
        "BLOOM", "BloomForCausalLM", bloom_doors, read_bloom,
        {"vocab_size": 50, "hidden_size": 48, "n_layer": 2, "n_head": 6}, "seq_length limits nothing.",
        released={"hidden_size": 14_336, "n_layer": 70, "n_head": 112},
        released_at=f"{GITHUB}/bigscience-workshop/bigscience/blob/master/train/tr11-176B-ml/tr11-176B-ml.slurm",
        scheme="ALiBi", year=2022,
        described_at=f"{ARXIV}/2211.05100",
    ),
    Production(
        "GPT-J", "GPTJForCausalLM", gptj_doors, read_gptj, OLD | {"n_embd": 64, "rotary_dim": 8, "n_positions": 40},
        "rope_theta is not read: 10,000 stands in the code. And n_positions is a limit: there the table ends.",
        scheme="rotary", year=2021, trained=2048,
        described_at=f"{GITHUB}/kingoflolz/mesh-transformer-jax",
    ),
    Production(
        "GPT-NeoX", "GPTNeoXForCausalLM", llama_doors, read_neox,
        settings(hidden_size=64, rope_parameters=rope(1e4, partial_rotary_factor=0.25)),
        "max_position_embeddings limits nothing.",
        scheme="rotary", year=2022, trained=2048,
        described_at=f"{ARXIV}/2204.06745",
    ),
    Production(
        "Llama 3.1", "LlamaForCausalLM", llama_doors, read_llama,
        settings(hidden_size=64, num_key_value_heads=2, rope_parameters=trained(64, LLAMA3)),
        "max_position_embeddings changes nothing. As released it is 16 times the trained length, while factor is 8.",
        sample=long_text, released={"hidden_size": 4096, "rope_parameters": trained(8192, LLAMA3)},
        released_at=f"{GITHUB}/meta-llama/llama-models/blob/main/models/llama3/model.py",
        scheme="rotary", year=2024, trained=8192,
        described_at=f"{ARXIV}/2407.21783",
    ),
    Production(
        "Llama 4 Scout", "Llama4ForCausalLM", llama4_doors, read_llama4,
        settings(num_key_value_heads=2, head_dim=8, num_hidden_layers=4, intermediate_size_mlp=48, num_local_experts=2)
        | {"attention_chunk_size": 7, "floor_scale": 6, "rope_parameters": trained(16, SCOUT)},
        "no_rope_layers holds 1 where a layer turns; an empty list means the default pattern.",
        released={"rope_parameters": trained(8192, SCOUT)},
        released_at=f"{GITHUB}/vllm-project/tpu-inference/blob/main/tpu_inference/models/jax/llama4.py",
        scheme="rotary, every fourth layer none", year=2025, second_hand=True, trained=8192,
        described_at="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
    ),
    Production(
        "Mistral 7B v0.1", "MistralForCausalLM", mistral_doors, read_llama,
        settings(num_key_value_heads=2, head_dim=8, sliding_window=7, rope_parameters=rope(1e4)),
        "Left out, sliding_window is 4,096: v0.2, which has no window, says null.",
        released_at=f"{HUB}/Open-Orca/Mistral-7B-OpenOrca/blob/refs%2Fpr%2F19/config.json",
        scheme="rotary", year=2023, second_hand=True, trained=8192,
        described_at=f"{ARXIV}/2310.06825",
    ),
    Production(
        "Gemma 3 4B", "Gemma3ForCausalLM", gemma3_doors, read_gemma3,
        settings(num_key_value_heads=2, head_dim=8, num_hidden_layers=6, sliding_window=7, rope_parameters=GEMMA)
        | {"query_pre_attn_scalar": 20},
        "Scores are divided by the root of query_pre_attn_scalar, not of head_dim. The class's window is 4,096.",
        released={"num_hidden_layers": 34, "sliding_window": 1024, "rope_parameters": GEMMA},
        released_at=f"{GITHUB}/huggingface/transformers/blob/main/src/transformers/models/gemma3/"
        "convert_gemma3_weights.py",
        scheme="rotary, two bases", year=2025, trained=32_768,
        described_at=f"{ARXIV}/2503.19786",
    ),
    Production(
        "DeepSeek-V3", "DeepseekV3ForCausalLM", deepseek_doors, read_deepseek,
        settings(num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=12, qk_rope_head_dim=8, qk_nope_head_dim=16)
        | {"v_head_dim": 10, "first_k_dense_replace": 1, "moe_intermediate_size": 24, "n_routed_experts": 8}
        | {"num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "max_position_embeddings": 640}
        | {"rope_parameters": trained(16, YARN, beta_fast=4.0, beta_slow=0.05)},
        "head_dim is the rotary part (64) of a head (192). max_position_embeddings changes nothing; mscale_all_dim "
        "sharpens the softmax.",
        released={"rope_parameters": trained(4096, YARN), "max_position_embeddings": 163_840},
        released_at=f"{GITHUB}/deepseek-ai/DeepSeek-V3/blob/main/inference/model.py",
        scheme="rotary, decoupled", year=2024, trained=4096,
        described_at=f"{ARXIV}/2412.19437",
    ),
    Production(
        "Qwen2-VL", "Qwen2VLTextModel", qwen2_vl_doors, read_llama,
        settings(hidden_size=64, num_key_value_heads=2, rope_parameters=rope(1e6, mrope_section=[2, 3, 3])),
        "sliding_window (32,768 as released) means nothing while use_sliding_window is false, as it is.",
        sample=text_and_pictures, scope="language model",
        released={"rope_parameters": rope(1e6, mrope_section=[16, 24, 24])},
        released_at=f"{HUB}/lktinhtemp/Qwen2-VL-72B-Instruct-GPTQ-Int4_768x768/blob/main/config.json",
        scheme="rotary, multimodal", year=2024, second_hand=True,
        described_at=f"{ARXIV}/2409.12191",
    ),
    Production(
        "Qwen 3.5", "Qwen3_5ForCausalLM", qwen3_5_doors, read_qwen3_5,
        settings(num_key_value_heads=2, num_hidden_layers=4, head_dim=32, linear_num_key_heads=2)
        | {"linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
        | {"rope_parameters": rope(1e7, partial_rotary_factor=0.5, mrope_section=[3, 3, 2])},
        "mrope_interleaved is not read: always interleaved. The class's base is 10,000.", sample=text_and_pictures,
        scope="language model, its recurrent layers borrowed",
        released={"num_hidden_layers": 64}
        | {"rope_parameters": rope(1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10])},
        released_at=f"{GITHUB}/THUDM/slime/blob/main/scripts/models/qwen3.5-27B.sh",
        scheme="rotary, multimodal; recurrent layers", year=2026, second_hand=True,
        described_at=f"{GITHUB}/huggingface/transformers/blob/main/docs/source/en/model_doc/qwen3_5.md",
    ),
    Production(
        "SmolLM3", "SmolLM3ForCausalLM", smollm3_doors, read_llama,
        settings(num_key_value_heads=2, num_hidden_layers=4, rope_parameters=rope(5e6)),
        "no_rope_layers holds 1 where a layer turns. The class's base is 2,000,000.",
        released={"rope_parameters": rope(5e6)}, released_at=f"{GITHUB}/huggingface/blog/blob/main/smollm3.md",
        scheme="rotary, every fourth layer none", year=2025,
        described_at=f"{GITHUB}/huggingface/blog/blob/main/smollm3.md",
    ),
    Production(
        "Cohere2 (Command R7B)", "Cohere2ForCausalLM", cohere2_doors, read_cohere2,
        settings(num_key_value_heads=2, num_hidden_layers=4, sliding_window=7, rope_parameters=rope(5e4))
        | {"logit_scale": 0.25},
        "layer_types says where the window is; that the other layers do not turn, no setting says. rotary_pct and "
        "position_embedding_type, in released files, are not read.",
        released={"num_hidden_layers": 32, "rope_parameters": rope(5e4)},
        released_at=f"{HUB}/huihui-ai/c4ai-command-r7b-12-2024-abliterated/blob/main/config.json",
        scheme="rotary, every fourth layer none", year=2024, second_hand=True,
        described_at="https://cohere.com/blog/command-r7b",
    ),
    Production(
        "ViT", "ViTModel", vit_doors, read_vit, PICTURES, sample=picture,
        scheme="learned table", year=2020,
        described_at=f"{ARXIV}/2010.11929",
    ),
    Production(
        "Swin", "SwinModel", swin_doors, read_swin,
        {"embed_dim": 24, "depths": [2], "num_heads": [3], "window_size": 4, "image_size": 32, "patch_size": 4},
        "Nothing is shifted where one window is the whole picture, as in the last stage of released models.",
        sample=picture_of_windows, scope="one stage",
        scheme="bias table on a grid", year=2021,
        described_at=f"{ARXIV}/2103.14030",
    ),
    Production(
        "DINOv3", "DINOv3ViTModel", dinov3_doors, read_dinov3, PICTURES | {"num_register_tokens": 4},
        "pos_embed_shift, pos_embed_jitter and pos_embed_rescale (2.0 by default) act in training only.",
        sample=wide_picture,
        scheme="rotary on a grid", year=2025,
        described_at=f"{ARXIV}/2508.10104",
    ),
]
# fmt: on


# --- Side by side, and the table

TESTED = "5.24"  # the version of their library that this module was written for


def library() -> ModuleType:
    """The library that the models come from, told to keep quiet. ImportError if it is missing or old."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of progress bars and the like
            transformers = importlib.import_module("transformers")
    except ImportError as missing:
        raise ImportError(
            "This page reads the models of transformers, which is not installed here. "
            "Run `pip install transformers` (in a notebook: `%pip install transformers`), then start again."
        ) from missing
    oldest = doctor.supported().get("transformers", "")
    if doctor.older(transformers.__version__, oldest):
        raise ImportError(
            f"This page reads the code of transformers {oldest} or newer; here is {transformers.__version__}. "
            "Run `pip install --upgrade transformers` (in a notebook with %pip), then start again."
        )
    transformers.logging.set_verbosity_error()
    return transformers


def named(library: ModuleType, name: str) -> Any:
    """A class of the library, by its dotted name."""
    return functools.reduce(getattr, name.split("."), library)


def tiny(entry: Production, library: ModuleType, seed: int = 0, **more: Any) -> nn.Module:
    """Their model at the tiny configuration (and `more`), with random weights that the seed alone decides."""
    kind = named(library, entry.model_class)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        model = kind(kind.config_class(**copy.deepcopy(entry.tiny | more)))
        for weight in model.parameters():
            if weight.requires_grad:  # all but tables that are computed
                noise = torch.randn(weight.shape)
                weight.copy_(weight + 0.1 * noise if weight.ndim < 2 else noise / weight.shape[-1] ** 0.5)
    return model.eval()


def released_config(entry: Production, library: ModuleType) -> Any:
    """The configuration of the released model: the class's own settings, and those of `entry.released`."""
    return named(library, entry.model_class).config_class(**copy.deepcopy(entry.released))


def misread(config: Any, **wrong: Any) -> Any:
    """A copy of a configuration with other settings. Dictionaries are filled in, not replaced."""
    config = copy.deepcopy(config)
    for name, value in wrong.items():
        old = getattr(config, name)
        setattr(config, name, old | value if isinstance(old, dict) else value)
    return config


def rebuild(entry: Production, model: nn.Module, config: Any = None) -> Transformer:
    """The book's model with the weights of theirs, and the doors of its configuration (or of another one)."""
    return entry.read(model, entry.doors(model.config if config is None else config))


@torch.no_grad()
def outputs(entry: Production, theirs: nn.Module, ours: nn.Module) -> tuple[Tensor, Tensor]:
    """What each of the two makes of one random input: logits, or the last rows of an encoder."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        x, positions, more = entry.sample(theirs.config)
    if x.is_floating_point():
        x = x.to(next(theirs.parameters()).dtype)
    return theirs(x, **more)[0], ours(x, positions)


def error(entry: Production, theirs: nn.Module, ours: nn.Module) -> float:
    """Largest difference of the two outputs, relative to the largest output."""
    wanted, got = outputs(entry, theirs, ours)
    return difference(wanted, got) / wanted.abs().max().item()


def leaves(door: PositionEncoding) -> list[PositionEncoding]:
    """The encodings inside `Together`."""
    return [leaf for e in door.encodings for leaf in leaves(e)] if isinstance(door, Together) else [door]


DOORS = {"mask": "mask", "tokens": "tokens", "scores": "scores", "queries_and_keys": "queries and keys"}


def layer_kind(parts: Sequence[PositionEncoding]) -> str:
    """A text layer in two words, from the `leaves` of its door: what it sees, and whether it turns."""
    kinds = {type(part) for part in parts}
    if Recurrent in kinds:
        return "recurrent"
    sees = "window" if SlidingWindow in kinds else "chunk" if Chunked in kinds else "full"
    return f"{sees}, " + ("rotary" if ModelRotary in kinds else "not turned")


def opened(doors: Doors) -> list[str]:
    """Which doors the layers of a model open."""
    kinds = {type(leaf) for door in doors for leaf in leaves(door)}
    return [DOORS[m] for m in DOORS if any(getattr(kind, m) is not getattr(PositionEncoding, m) for kind in kinds)]


def words(e: PositionEncoding) -> str:
    """One encoding in a few words."""
    match e:
        case SlidingWindow():
            return f"window {e.window:,}"
        case Chunked():
            return f"chunk {e.chunk:,}"
        case Windows():
            return f"windows of {e.side}×{e.side}" + (f", shifted by {e.shift}" if e.shift else "")
        case ModelRotary():
            axes = len(e.vectors) if e.vectors.ndim > 1 else 1
            return f"rotary {2 * e.vectors.shape[-1]}" + (f" on {axes} axes" if axes > 1 else "")
        case Learned():
            return f"table of {len(e.table):,}"
        case T5Bias():
            return f"{len(e.table)} buckets to {e.max_distance}"
        case WindowBias():
            return f"table of {len(e.table)} offsets"
        case TransformerXL():
            return "sinusoids of the offset, u, v"
    plain = {Causal: "causal", CausalInOrder: "causal", ALiBi: "ALiBi", Temperature: "temperature"}
    return (plain | {Recurrent: "recurrent", SinusoidalHalves: "sinusoids"})[type(e)]


def pattern(doors: Doors) -> str:
    """The layers in words; what repeats is said once."""
    layers = [" + ".join(map(words, leaves(door))) for door in doors]
    period = next(p for p in range(1, len(layers) + 1) if all(x == layers[i % p] for i, x in enumerate(layers)))
    runs = [(label, len(list(run))) for label, run in itertools.groupby(layers[:period])]
    if len(runs) > 2:
        return ", or ".join(dict.fromkeys(layers))
    return layers[0] if period == 1 else ", then ".join(f"{n} × ({label})" for label, n in runs)


@dataclass(frozen=True)
class Row:
    """A line of the table. From doors to n_layers, all is computed from the released configuration.

    turned: how many features of a head turn, of how many. See `Production` for the rest.
    """

    name: str
    scheme: str
    year: int
    described_at: str
    doors: str
    layers: str
    base: str
    layout: str
    scaling: str
    turned: str
    n_layers: int
    scope: str
    error: float
    misleads: str
    source: str
    released_at: str
    second_hand: bool


def row(entry: Production, library: ModuleType) -> Row:
    """Read the released configuration; rebuild the tiny model, and compare."""
    kind, config = named(library, entry.model_class), released_config(entry, library)
    doors = entry.doors(config)
    parts = [leaf for door in doors for leaf in leaves(door)]

    def all_of(name: str) -> list[Any]:
        return list(dict.fromkeys(getattr(part, name) for part in parts if hasattr(part, name)))

    turned = [str(2 * part.vectors.shape[-1]) for part in parts if isinstance(part, ModelRotary)]
    theirs = tiny(entry, library)
    return Row(
        name=entry.name,
        scheme=entry.scheme,
        year=entry.year,
        described_at=entry.described_at,
        doors=", ".join(opened(doors)),
        layers=pattern(doors),
        base=" and ".join(f"{base:,.0f}" for base in all_of("base")),
        layout=" and ".join(all_of("layout")),
        scaling=" and ".join(kind for kind in all_of("kind") if kind != "default"),
        turned=f"{' and '.join(dict.fromkeys(turned))} of {width_of_head(config)}" if turned else "",
        n_layers=len(doors),
        scope=entry.scope,
        error=error(entry, theirs, rebuild(entry, theirs)),
        misleads=entry.misleads,
        source=f"{SOURCES}/{kind.__module__.replace('.', '/')}.py",
        released_at=entry.released_at,
        second_hand=entry.second_hand,
    )


SOURCES = f"{GITHUB}/huggingface/transformers/blob/main/src"


def rows(library: ModuleType) -> list[Row]:
    """The whole table, in the version that it was written for. Takes seconds."""
    return [row(entry, library) for entry in MODELS]


def survey(library: ModuleType) -> tuple[list[Row], dict[str, str]]:
    """The table in any version of their library, and the models that this one lacks or lays out otherwise."""
    found, without = [], {}
    for entry in MODELS:
        try:
            named(library, entry.model_class)
        except (AttributeError, ImportError):
            without[entry.name] = "not in your version"
            continue
        try:
            found.append(row(entry, library))
        except (AttributeError, KeyError, TypeError):
            if library.__version__.startswith(TESTED):
                raise
            without[entry.name] = "laid out in another way in your version"
    return found, without
