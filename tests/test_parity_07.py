"""Biases against independent implementations: transformers (T5, BLOOM, MPT), x-transformers, PyTorch's kernels."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.attention import masked_softmax
from posenc.masks import causal
from posenc.relative import ALiBi, Fire, Gaussian, KerpleLog, T5Bias, alibi_slopes, bucket_starts, t5_bucket
from posenc.symmetry import difference, must_break

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

HEADS = (1, 2, 3, 4, 6, 8, 12, 16, 20, 32, 40, 71, 112)  # 112 is BLOOM 176B
OFFSETS = torch.arange(-5000, 5001)
SIZES = ((32, 128), (32, 256), (16, 64), (8, 20), (64, 512), (32, 2048), (6, 100))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- T5's buckets


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), SIZES)
def test_buckets_equal_transformers_and_x_transformers_over_the_whole_range(n_buckets, max_distance, bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention
    from x_transformers.x_transformers import RelativePositionBias

    ours = t5_bucket(OFFSETS, n_buckets, max_distance, bidirectional)
    released = T5Attention._relative_position_bucket(OFFSETS, bidirectional, n_buckets, max_distance)
    lucid = RelativePositionBias._relative_position_bucket(OFFSETS, not bidirectional, n_buckets, max_distance)
    assert torch.equal(ours, released)
    assert torch.equal(ours, lucid)


@pytest.mark.parametrize("n_buckets", [2, 3, 4, 5, 8, 9, 15, 16, 32, 33])
@pytest.mark.parametrize("max_distance", [17, 20, 64, 100, 128, 1000])
def test_starts_are_the_roots_rounded_up_and_each_bucket_begins_there(n_buckets, max_distance):
    starts, exact = bucket_starts(n_buckets, max_distance), n_buckets // 2
    steps = n_buckets - exact
    assert starts[: exact + 1] == list(range(exact + 1))
    for k in range(steps):
        root = exact * (max_distance / exact) ** (k / steps)
        assert starts[exact + k] == math.ceil(round(root, 9))
    for bucket, start in enumerate(starts):
        if bucket + 1 == n_buckets or starts[bucket + 1] > start:  # not empty
            at, before = t5_bucket(torch.tensor([-start, -start + 1]), n_buckets, max_distance, bidirectional=False)
            assert at == bucket
            assert before < bucket or start == 0


def test_double_precision_misplaces_boundaries_that_whole_numbers_do_not():
    """18 buckets in two directions, up to 128: the starts are 4 * 2^k, and float64 logarithms fall just short."""
    assert bucket_starts(9, 128) == [0, 1, 2, 3, 4, 8, 16, 32, 64]
    distance = torch.arange(4, 128, dtype=torch.float64)
    by_logarithms = (4 + torch.log(distance / 4) / math.log(32) * 5).long()
    wrong = distance[by_logarithms != t5_bucket(-distance.long(), 18, 128)]
    assert set(wrong.tolist()) <= {8.0, 16.0, 32.0, 64.0}  # which of them depends on the machine's logarithm


@pytest.mark.parametrize(("n_buckets", "max_distance"), [(1, 10), (8, 4), (8, 3), (0, 10)])
def test_impossible_sizes_are_refused(n_buckets, max_distance):
    with pytest.raises(ValueError, match="need n_buckets >= 2"):
        t5_bucket(torch.arange(3), n_buckets, max_distance, bidirectional=False)
    with pytest.raises(ValueError, match="need n_buckets >= 2"):
        T5Bias(2, n_buckets, max_distance, bidirectional=False)


def t5_attention(is_decoder: bool):
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    torch.manual_seed(0)
    config = T5Config(d_model=12, d_kv=4, num_heads=3, dropout_rate=0.0, is_decoder=is_decoder)
    return T5Attention(config, has_relative_attention_bias=True, layer_idx=0, is_causal=is_decoder).double().eval()


@pytest.mark.parametrize("is_decoder", [True, False])
def test_a_t5_layer_equals_ours_once_the_missing_division_is_made_up_for(is_decoder):
    theirs, x, n = t5_attention(is_decoder), normal(2, 150, 12), 150
    table = normal(32, 3, seed=1)
    with torch.no_grad():
        theirs.relative_attention_bias.weight.copy_(table)
    places = torch.arange(n)
    mask = causal(places, places) if is_decoder else torch.ones(n, n, dtype=torch.bool)
    additive = torch.zeros(n, n, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)
    expected = theirs(x, mask=additive.expand(2, 1, n, n))[0]

    encoding = T5Bias(3, bidirectional=not is_decoder).double()
    with torch.no_grad():
        encoding.table.copy_(table)
    queries, keys, values = (f(x).unflatten(-1, (3, 4)).transpose(1, 2) for f in (theirs.q, theirs.k, theirs.v))

    def ours(queries):
        scores = encoding.scores(queries @ keys.mT / 4**0.5, queries, keys, places, places)
        return theirs.o((masked_softmax(scores, mask) @ values).transpose(1, 2).flatten(2))

    assert difference(ours(queries * 4**0.5), expected) < 1e-12
    must_break(difference(ours(queries), expected), 1e-4)


def test_one_table_serves_all_layers_of_t5s_encoder_and_another_those_of_its_decoder():
    from transformers import T5Config, T5Model

    model = T5Model(T5Config(d_model=12, d_kv=4, num_heads=3, num_layers=4, d_ff=8, vocab_size=9))
    tables = [name for name, _ in model.named_parameters() if "relative_attention_bias" in name]
    assert tables == [
        f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight" for side in ("encoder", "decoder")
    ]


# --- ALiBi


@pytest.mark.parametrize("n_heads", HEADS)
def test_slopes_equal_bloom_mpt_and_x_transformers(n_heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
    from x_transformers.x_transformers import AlibiPositionalBias

    ours = alibi_slopes(n_heads)
    bloom = build_alibi_tensor(torch.ones(1, 2), n_heads, torch.float32)[:, 0, 1]  # slope times key position 1
    mpt = -build_mpt_alibi_tensor(n_heads, 2)[:, 0, 0]  # slope times (key position - last position)
    lucid = AlibiPositionalBias(n_heads).slopes.flatten()
    for theirs in (bloom, mpt, lucid):
        assert difference(theirs.double(), ours) < 1e-7


@pytest.mark.parametrize("largest", [4, 8, 12])
@pytest.mark.parametrize("n_heads", [3, 8, 12])
def test_a_largest_exponent_is_mpts_alibi_bias_max(n_heads, largest):
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    theirs = -build_mpt_alibi_tensor(n_heads, 2, alibi_bias_max=largest)[:, 0, 0]
    assert difference(theirs.double(), alibi_slopes(n_heads, largest)) < 1e-7
    with pytest.raises(ValueError, match="largest_exponent"):
        alibi_slopes(n_heads, 0)


@pytest.mark.parametrize("n_heads", [1, 3, 8, 12])
def test_bloom_and_mpt_agree_with_alibi_under_a_causal_mask_and_only_there(n_heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
    from x_transformers.x_transformers import AlibiPositionalBias

    n, content = 40, normal(n_heads, 40, 40)
    places = torch.arange(n)
    scores = ALiBi(n_heads).scores(content, content, content, places, places)
    bloom = content + build_alibi_tensor(torch.ones(1, n), n_heads, torch.float32)
    mpt = content + build_mpt_alibi_tensor(n_heads, n)
    lucid = content + AlibiPositionalBias(n_heads)(n, n)
    mask = causal(places, places)
    for theirs in (bloom, mpt, lucid):
        assert difference(masked_softmax(theirs, mask), masked_softmax(scores, mask)) < 1e-5
    assert difference(lucid, scores) < 1e-4  # symmetric, as ours; its slopes are float32
    for theirs in (bloom, mpt):
        must_break(difference(theirs.softmax(-1), scores.softmax(-1)))


def test_alibi_with_a_cache_and_left_padding_equals_bloom():
    """BLOOM counts positions from the attention mask: padding does not count."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    real = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    positions = (real.cumsum(-1) - 1).clamp(min=0)
    content = normal(2, 3, 1, 6)  # batch, heads, one new query, six cached keys
    ours = ALiBi(3).scores(content, content, content, positions[:, None, -1:], positions[:, None])
    theirs = content + build_alibi_tensor(real, 3, torch.float32).view(2, 3, 1, 6)
    mask = real.bool()[:, None, None]
    assert difference(masked_softmax(ours, mask), masked_softmax(theirs, mask)) < 1e-5


# --- The family as score functions: FlexAttention and the fused kernel


def family(n_heads: int) -> dict:
    torch.manual_seed(0)
    t5 = T5Bias(n_heads, 8, 20)
    with torch.no_grad():
        t5.table.normal_()
    return {
        "t5": t5,
        "alibi": ALiBi(n_heads),
        "kerple": KerpleLog(n_heads),
        "gaussian": Gaussian(n_heads, 3.0),
        "fire": Fire(n_heads, threshold=5.0),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # FlexAttention without a compiler says that it is slow
@pytest.mark.parametrize("name", ["t5", "alibi", "kerple", "gaussian", "fire"])
def test_a_bias_as_a_score_function_in_flex_attention_and_as_a_float_mask_in_sdpa(name):
    from torch.nn.attention.flex_attention import flex_attention

    encoding, n = family(2)[name].double(), 12
    places = torch.arange(n)
    queries, keys, values = normal(3, 1, 2, n, 4)
    zero = torch.zeros(2, n, n, dtype=torch.float64)
    with torch.no_grad():
        bias = encoding.scores(zero, zero, zero, places, places)  # (heads, n, n)
        mask = causal(places, places)
        expected = masked_softmax(queries @ keys.mT / 2 + bias, mask) @ values

        def score_mod(score, batch, head, query, key):
            return torch.where(query >= key, score + bias[head, query, key], -math.inf)

        assert difference(flex_attention(queries, keys, values, score_mod=score_mod), expected) < 1e-5
        allowed = bias.masked_fill(~mask, -math.inf)
        fused = F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed)
        assert difference(fused, expected) < 1e-12


@pytest.mark.parametrize("name", ["t5", "alibi", "kerple", "gaussian", "fire"])
def test_positions_may_differ_within_a_batch_and_queries_may_be_fewer_than_keys(name):
    encoding = family(2)[name].double()
    keys_at = torch.tensor([[0, 1, 2, 3, 4, 5], [7, 8, 9, 10, 11, 12]])
    queries_at = keys_at[:, -2:]
    content = normal(2, 2, 2, 6)  # batch, heads, queries, keys
    got = encoding.scores(content, content, content, queries_at[:, None], keys_at[:, None])
    for row in range(2):
        alone = encoding.scores(content[row], content[row], content[row], queries_at[row], keys_at[row])
        assert difference(got[row], alone) < 1e-12
    shifted = encoding.scores(content, content, content, queries_at[:, None] + 9, keys_at[:, None] + 9)
    if name == "fire":
        must_break(difference(shifted, got))  # it is not a function of the offset alone
    else:
        assert difference(shifted, got) < 1e-9


def test_a_bias_for_other_heads_is_refused():
    zero, places = torch.zeros(3, 4, 4), torch.arange(4)
    for encoding in (T5Bias(2), KerpleLog(2), Gaussian(2)):
        with pytest.raises(ValueError, match="2 heads, the scores have 3"):
            encoding.scores(zero, zero, zero, places, places)
