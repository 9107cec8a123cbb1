"""Relative offsets against independent implementations in transformers: VITS, Wav2Vec2-BERT, XLNet, DeBERTa."""

import pytest
import torch

from posenc.attention import attention
from posenc.encoding import PositionEncoding
from posenc.offsets import Shaw, ShawKeys, TransformerXL, disentangled_scores, skew
from posenc.symmetry import difference, must_break

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TINY = 1e-12


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def split(x: torch.Tensor, n_heads: int) -> torch.Tensor:
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def run(encoding: PositionEncoding, queries, keys, values) -> torch.Tensor:
    """Our doors, one after the other. All (batch, heads, n, head_dim); returns (batch, n, d_model)."""
    places = torch.arange(keys.shape[-2])
    scores = queries @ keys.mT / queries.shape[-1] ** 0.5
    weights = encoding.scores(scores, queries, keys, places, places).softmax(dim=-1)
    return encoding.values(weights, values, places, places).transpose(1, 2).flatten(2)


# --- Shaw: keys and values (VITS), keys with unequal clips (Wav2Vec2-BERT)


def vits(window: int):
    from transformers import VitsConfig
    from transformers.models.vits.modeling_vits import VitsAttention

    torch.manual_seed(0)
    config = VitsConfig(hidden_size=12, num_attention_heads=3, window_size=window, attention_dropout=0.0)
    return VitsAttention(config).double().eval()


def ours_with_the_weights_of(theirs, x, window: int) -> torch.Tensor:
    encoding = Shaw(head_dim=4, clip=window).double()
    encoding.load_state_dict({"key_table": theirs.emb_rel_k[0], "value_table": theirs.emb_rel_v[0]})
    queries, keys, values = (split(f(x), 3) for f in (theirs.q_proj, theirs.k_proj, theirs.v_proj))
    return theirs.out_proj(run(encoding, queries, keys, values))


@pytest.mark.parametrize("n", [1, 2, 4, 5])
def test_shaw_keys_and_values_equal_vits_inside_its_window(n):
    theirs, x = vits(window=4), normal(2, n, 12)
    assert difference(ours_with_the_weights_of(theirs, x, 4), theirs(x)[0]) < TINY


def test_beyond_the_window_vits_has_zero_vectors_where_shaw_clips():
    theirs, x = vits(window=4), normal(2, 9, 12)
    must_break(difference(ours_with_the_weights_of(theirs, x, 4), theirs(x)[0]))
    wide = Shaw(head_dim=4, clip=8).double()  # the same table, zeros around it
    padded = {
        name: torch.nn.functional.pad(table[0], (0, 0, 4, 4))
        for name, table in (("key_table", theirs.emb_rel_k), ("value_table", theirs.emb_rel_v))
    }
    wide.load_state_dict(padded)
    queries, keys, values = (split(f(x), 3) for f in (theirs.q_proj, theirs.k_proj, theirs.v_proj))
    assert difference(theirs.out_proj(run(wide, queries, keys, values)), theirs(x)[0]) < TINY


@pytest.mark.parametrize("n", [1, 3, 5, 17])
def test_shaw_keys_clipped_equal_wav2vec2_bert(n):
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

    torch.manual_seed(0)
    config = Wav2Vec2BertConfig(
        hidden_size=12,
        num_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=4,
        right_max_position_embeddings=4,
        attention_dropout=0.0,
    )
    config._attn_implementation = "eager"
    theirs, x = Wav2Vec2BertSelfAttention(config).double().eval(), normal(2, n, 12)
    encoding = ShawKeys(head_dim=4, clip=4).double()
    encoding.load_state_dict({"key_table": theirs.distance_embedding.weight})
    queries, keys, values = (split(f(x), 3) for f in (theirs.linear_q, theirs.linear_k, theirs.linear_v))
    assert difference(theirs.linear_out(run(encoding, queries, keys, values)), theirs(x)[0]) < TINY


# --- Transformer-XL: the shift and the whole score (XLNet)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (1, 5), (3, 3), (4, 7)])
def test_skew_equals_xlnets_shift_and_its_index(n_queries, n_keys):
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    x = normal(2, 3, n_queries, n_queries + n_keys)  # their first column is never read
    theirs = XLNetRelativeAttention.rel_shift_bnij(x, klen=n_keys)
    assert difference(skew(x[..., 1:], n_keys), theirs) == 0
    for i in range(n_queries):
        for j in range(n_keys):
            assert torch.equal(theirs[..., i, j], x[..., i, n_queries - i + j])


@pytest.mark.parametrize("n_memory", [0, 3])
def test_transformer_xl_scores_equal_xlnets(n_memory):
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    n, n_heads, head_dim = 4, 2, 3
    n_keys = n + n_memory
    torch.manual_seed(0)
    ours = TransformerXL(6, n_heads).double()
    theirs = XLNetRelativeAttention(XLNetConfig(d_model=6, n_head=n_heads, dropout=0.0, vocab_size=5)).double().eval()
    theirs.r_w_bias.data, theirs.r_r_bias.data = ours.u.data.squeeze(1), ours.v.data.squeeze(1)
    queries, keys, values = (
        normal(1, n_heads, m, head_dim, seed=s) for s, m in enumerate((n, n_keys, n_keys), start=1)
    )
    distances = torch.arange(n_keys, -n, -1)  # theirs: i - j, from far past to far future
    offset_keys = ours.offset_keys(-distances)  # (heads, n + n_keys, head_dim)
    got = theirs.rel_attn_core(
        queries.permute(2, 0, 1, 3),
        keys.permute(2, 0, 1, 3),
        values.permute(2, 0, 1, 3),
        offset_keys.transpose(0, 1).unsqueeze(1),
    )
    scores = queries @ keys.mT / head_dim**0.5
    scores = ours.scores(scores, queries, keys, torch.arange(n_memory, n_keys), torch.arange(n_keys))
    assert difference((scores.softmax(-1) @ values).permute(2, 0, 1, 3), got) < TINY


# --- DeBERTa


@pytest.mark.parametrize("n", [1, 3, 9])
def test_disentangled_scores_equal_debertas_released_code_and_not_the_papers(n):
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    torch.manual_seed(0)
    config = DebertaV2Config(
        hidden_size=12,
        num_attention_heads=3,
        relative_attention=True,
        max_relative_positions=4,
        pos_att_type=["c2p", "p2c"],
        position_buckets=-1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = DisentangledSelfAttention(config).double().eval()
    x, table = normal(2, n, 12), normal(8, 12, seed=1)
    got = theirs(x, torch.ones(2, 1, n, n), rel_embeddings=table)[0]
    queries, keys, values = (split(f(x), 3) for f in (theirs.query_proj, theirs.key_proj, theirs.value_proj))
    offset_queries, offset_keys = (
        split(f(table).unsqueeze(0), 3)[0] for f in (theirs.pos_query_proj, theirs.pos_key_proj)
    )

    def ours(as_released: bool) -> torch.Tensor:
        places = torch.arange(n)
        scores = disentangled_scores(queries, keys, offset_queries, offset_keys, places, places, as_released)
        return (scores.softmax(-1) @ values).transpose(1, 2).flatten(2)

    assert difference(ours(True), got) < 1e-6  # their scale is computed in float32
    if n > 1:
        must_break(difference(ours(False), got))


# --- Shaw, naive


def test_shaw_equals_pytorchs_kernel_with_the_bias_written_out_and_the_value_term_by_loop():
    n, clip = 7, 2
    queries, keys, values = (normal(n, 4, seed=s) for s in range(3))
    torch.manual_seed(0)
    encoding = Shaw(4, clip).double()
    places = torch.arange(n)
    scores = encoding.scores(queries @ keys.mT / 2, queries, keys, places, places)
    got = encoding.values(scores.softmax(-1), values, places, places)
    expected = torch.zeros(n, 4, dtype=torch.float64)
    for i in range(n):
        rows = [min(max(j - i, -clip), clip) + clip for j in range(n)]
        own_keys, own_values = keys + encoding.key_table[rows], values + encoding.value_table[rows]
        expected[i] = attention(queries[i : i + 1], own_keys, own_values)[0]
    assert difference(got, expected) < TINY
