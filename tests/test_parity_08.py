"""Rotary against independent implementations: six models of transformers and two libraries, in both layouts."""

import pytest
import torch

from posenc.rotary import frequencies, rotate, turn, turn_halves, weights_to_halves
from posenc.symmetry import difference, must_break

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ROUNDING = 2e-5  # they make float32 angles, we make float64 ones
BATCH, HEADS, N, HEAD_DIM = 2, 3, 9, 16


def vectors(seed: int = 0) -> torch.Tensor:
    """(batch, heads, n, head_dim), float32."""
    return torch.randn(BATCH, HEADS, N, HEAD_DIM, generator=torch.Generator().manual_seed(seed))


def positions() -> torch.Tensor:
    """(batch, n): the second sequence begins elsewhere."""
    return torch.stack([torch.arange(N), torch.arange(37, 37 + N)])


def angles(base: float = 10_000.0, width: int = HEAD_DIM) -> torch.Tensor:
    """(batch, 1, n, width / 2)."""
    return positions().view(BATCH, 1, N, 1) * frequencies(width, base)


def config(name: str, **more):
    import transformers

    sizes = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS}
    return getattr(transformers, name)(**sizes, **more)


# --- halves


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_llama(base):
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    rope = {"rope_type": "default", "rope_theta": base}
    embedding = LlamaRotaryEmbedding(config("LlamaConfig", rope_parameters=rope))
    queries, keys = vectors(0), vectors(1)
    theirs = apply_rotary_pos_emb(queries, keys, *embedding(queries, positions()))
    for ours, theirs_ in zip((queries, keys), theirs, strict=True):
        assert difference(turn_halves(ours, angles(base)), theirs_) < ROUNDING
        must_break(difference(turn(ours, angles(base)), theirs_))


def test_llama_in_bfloat16_has_wide_angles_too():
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    embedding = LlamaRotaryEmbedding(config("LlamaConfig")).to(torch.bfloat16)
    embedding.inv_freq = frequencies(HEAD_DIM).float()  # the cast above rounds them: chapter 8, where it breaks
    cos, sin = embedding(vectors().bfloat16(), positions() + 5000)
    exact = (positions() + 5000).unsqueeze(-1) * frequencies(HEAD_DIM)
    assert cos.dtype == torch.bfloat16
    assert difference(cos[..., : HEAD_DIM // 2].double(), exact.cos()) < 5e-3
    assert difference(sin[..., : HEAD_DIM // 2].double(), exact.sin()) < 5e-3


def test_gpt_neox_is_partial():
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXRotaryEmbedding, apply_rotary_pos_emb

    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.25}
    embedding = GPTNeoXRotaryEmbedding(config("GPTNeoXConfig", rope_parameters=rope))
    queries, keys = vectors(0), vectors(1)
    theirs = apply_rotary_pos_emb(queries, keys, *embedding(queries, positions()))[0]
    width = HEAD_DIM // 4
    ours = torch.cat([turn_halves(queries[..., :width], angles(width=width)), queries[..., width:]], dim=-1)
    assert difference(ours, theirs) < ROUNDING
    from_whole_spectrum = turn_halves(queries[..., :width], angles()[..., : width // 2])
    must_break(difference(from_whole_spectrum, theirs[..., :width]))


# --- neighbours


def test_gptj():
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb, create_sinusoidal_positions

    table = create_sinusoidal_positions(64, HEAD_DIM)[positions()]  # (batch, n, head_dim)
    sin, cos = table.chunk(2, dim=-1)
    theirs = apply_rotary_pos_emb(vectors().transpose(1, 2), sin, cos).transpose(1, 2)  # theirs: heads after n
    assert difference(turn(vectors(), angles()), theirs) < ROUNDING
    must_break(difference(turn_halves(vectors(), angles()), theirs))


def test_cohere():
    from transformers.models.cohere.modeling_cohere import CohereRotaryEmbedding, apply_rotary_pos_emb

    rope = {"rope_type": "default", "rope_theta": 10_000.0}
    embedding = CohereRotaryEmbedding(config("CohereConfig", rope_parameters=rope))
    theirs = apply_rotary_pos_emb(vectors(), vectors(1), *embedding(vectors(), positions()))[0]
    assert difference(turn(vectors(), angles()), theirs) < ROUNDING


def test_llama4():
    from transformers import Llama4TextConfig
    from transformers.models.llama4.modeling_llama4 import Llama4TextRotaryEmbedding, apply_rotary_emb

    rope = {"rope_type": "default", "rope_theta": 500_000.0}
    sizes = {"hidden_size": HEADS * HEAD_DIM, "num_attention_heads": HEADS, "head_dim": HEAD_DIM}
    embedding = Llama4TextRotaryEmbedding(Llama4TextConfig(**sizes, rope_parameters=rope))
    numbers = embedding(vectors(), positions())
    after_n = (v.transpose(1, 2) for v in (vectors(), vectors(1)))  # theirs: heads after n
    theirs = apply_rotary_emb(*after_n, numbers)[0].transpose(1, 2)
    assert difference(turn(vectors(), angles(500_000.0)), theirs) < ROUNDING


def test_deepseek_reads_neighbours_and_writes_halves():
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import apply_rotary_pos_emb_interleave

    doubled = torch.cat([angles(), angles()], dim=-1).squeeze(1).float()  # (batch, n, head_dim)
    theirs = apply_rotary_pos_emb_interleave(vectors(), vectors(1), doubled.cos(), doubled.sin())
    turned = [turn(v, angles()) for v in (vectors(), vectors(1))]
    halves = torch.cat([turned[0][..., 0::2], turned[0][..., 1::2]], dim=-1)
    assert difference(halves, theirs[0]) < ROUNDING
    assert difference(turned[0] @ turned[1].mT, theirs[0] @ theirs[1].mT) < 10 * ROUNDING


@pytest.mark.parametrize("library", ["rotary_embedding_torch", "x_transformers"])
def test_libraries(library):
    if library == "rotary_embedding_torch":
        from rotary_embedding_torch import RotaryEmbedding

        theirs = RotaryEmbedding(dim=HEAD_DIM).rotate_queries_or_keys(vectors(), offset=11)
    else:
        from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

        turns, scale = RotaryEmbedding(HEAD_DIM)(torch.arange(11, 11 + N))
        theirs = apply_rotary_pos_emb(vectors(), turns, scale)
    assert difference(rotate(vectors(), torch.arange(11, 11 + N)), theirs) < ROUNDING


# --- conversion


def test_conversion_of_weights_and_biases_is_that_of_transformers():
    from types import SimpleNamespace

    from transformers.core_model_loading import PermuteForRope

    permute = PermuteForRope()._permute_for_rope
    for rows in (torch.randn(HEADS * HEAD_DIM, 5), torch.randn(HEADS * HEAD_DIM)):
        theirs = permute(rows, SimpleNamespace(num_attention_heads=HEADS))
        assert torch.equal(weights_to_halves(rows, HEAD_DIM), theirs)


# --- who uses how much: the sizes that the chapter prints, where a configuration's defaults hold them


def test_shares_of_turned_features():
    import transformers

    gptj = transformers.GPTJConfig()
    assert (gptj.rotary_dim, gptj.n_embd // gptj.n_head) == (64, 256)
    assert transformers.GPTNeoXConfig().rope_parameters["partial_rotary_factor"] == 0.25
    for name in ("LlamaConfig", "Qwen3Config"):
        assert getattr(transformers, name)().rope_parameters.get("partial_rotary_factor", 1.0) == 1.0
    deepseek = transformers.DeepseekV3Config()
    sizes = deepseek.num_attention_heads, deepseek.kv_lora_rank, deepseek.qk_rope_head_dim, deepseek.qk_nope_head_dim
    assert (*sizes, deepseek.v_head_dim) == (128, 512, 64, 128, 128)
    for name in ("Llama4TextConfig", "SmolLM3Config"):  # 1 means: this layer *does* turn
        assert getattr(transformers, name)(num_hidden_layers=8).no_rope_layers == [1, 1, 1, 0] * 2
    cohere = transformers.Cohere2Config(num_hidden_layers=8)
    assert cohere.layer_types == (["sliding_attention"] * 3 + ["full_attention"]) * 2
    gemma = transformers.Gemma3TextConfig(num_hidden_layers=6)
    assert gemma.layer_types == ["sliding_attention"] * 5 + ["full_attention"]
    bases = {kind: rope["rope_theta"] for kind, rope in gemma.rope_parameters.items()}
    assert all(rope.get("partial_rotary_factor", 1.0) == 1.0 for rope in gemma.rope_parameters.values())
    assert bases == {"sliding_attention": 10_000, "full_attention": 1_000_000}
    qwen = transformers.Qwen3_5TextConfig(num_hidden_layers=8)
    assert qwen.layer_types == (["linear_attention"] * 3 + ["full_attention"]) * 2
    assert (qwen.head_dim, qwen.rope_parameters["partial_rotary_factor"]) == (256, 0.25)
