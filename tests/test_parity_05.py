"""Learned tables against the models of transformers, with tiny random configurations. No weights are fetched."""

import pytest
import torch

from posenc.learned import Learned, bart_rows, opt_rows, roberta_rows
from posenc.symmetry import difference, must_break

transformers = pytest.importorskip("transformers")

SMALL = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "vocab_size": 20}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def bert(n_max: int):
    return transformers.BertModel(
        transformers.BertConfig(**SMALL, intermediate_size=8, max_position_embeddings=n_max)
    ).eval()


def gpt2(n_max: int):
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2Model(transformers.GPT2Config(**sizes, n_positions=n_max)).eval()


def ids_of(n: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(2, 20, (batch, n))


# --- the hard limit


@pytest.mark.parametrize(("make", "default"), [(bert, 512), (gpt2, 1024)])
def test_the_released_limit_is_hard(make, default):
    model = make(default)
    with torch.no_grad():
        model(ids_of(default, batch=1))
        with pytest.raises((IndexError, RuntimeError)):
            model(ids_of(default + 1, batch=1))


def test_the_limits_are_the_classes_defaults():
    assert transformers.BertConfig().max_position_embeddings == 512
    assert transformers.GPT2Config().n_positions == 1024


# --- the tables


def test_gpt2_adds_our_table():
    model = gpt2(12)
    ours = Learned(12, 8)
    ours.table.data = model.wpe.weight.data
    ids = ids_of(9)
    embedded = ours.tokens(model.wte(ids), torch.arange(9))
    with torch.no_grad():
        blank = gpt2(12)
        blank.load_state_dict(model.state_dict())
        blank.wpe.weight.zero_()
        assert difference(blank(inputs_embeds=embedded)[0], model(ids)[0]) < 1e-6
        must_break(difference(blank(inputs_embeds=model.wte(ids))[0], model(ids)[0]))


def test_bert_adds_our_table():
    embeddings = bert(12).embeddings
    ours = Learned(12, 8)
    ours.table.data = embeddings.position_embeddings.weight.data
    ids = ids_of(9)
    words = embeddings.word_embeddings(ids) + embeddings.token_type_embeddings.weight[0]
    expected = embeddings.LayerNorm(ours.tokens(words, torch.arange(9)))
    assert difference(embeddings(ids), expected) < 1e-6


# --- the conventions


def padded(padding: int = 1) -> torch.Tensor:
    ids = ids_of(6, batch=3)
    ids[0, :2], ids[1, 4:], ids[2, 3] = padding, padding, padding  # left, right, in the middle
    return ids


@pytest.mark.parametrize("padding", [1, 0, 5])
def test_roberta(padding):
    config = transformers.RobertaConfig(**SMALL, intermediate_size=8, max_position_embeddings=14, pad_token_id=padding)
    embeddings = transformers.RobertaModel(config).eval().embeddings
    ids = padded(padding)
    theirs = embeddings.create_position_ids_from_input_ids(ids, padding)
    assert torch.equal(roberta_rows(ids, padding), theirs)
    rows = embeddings.position_embeddings.weight[roberta_rows(ids, padding)]
    words = embeddings.word_embeddings(ids) + embeddings.token_type_embeddings.weight[0] + rows
    assert difference(embeddings(ids), embeddings.LayerNorm(words)) < 1e-6


def test_a_roberta_table_of_14_rows_serves_12_tokens():
    config = transformers.RobertaConfig(**SMALL, intermediate_size=8, max_position_embeddings=14, pad_token_id=1)
    model = transformers.RobertaModel(config).eval()
    with torch.no_grad():
        model(ids_of(12))
        with pytest.raises((IndexError, RuntimeError)):
            model(ids_of(13))


def test_opt():
    config = transformers.OPTConfig(
        **SMALL, ffn_dim=8, max_position_embeddings=12, word_embed_proj_dim=8, pad_token_id=1
    )
    layer = transformers.OPTModel(config).eval().decoder.embed_positions
    assert len(layer.weight) == 14
    real = padded() != 1
    assert difference(layer(real.long()), layer.weight[opt_rows(real)]) == 0
    must_break(difference(layer(real.long()), layer.weight[opt_rows(real) + 1]))


def test_bart():
    sizes = {"d_model": 8, "vocab_size": 20, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 12}
    layer = transformers.BartModel(transformers.BartConfig(**sizes)).eval().encoder.embed_positions
    assert len(layer.weight) == 14
    ids = padded()
    assert difference(layer(ids), layer.weight[bart_rows(6)].expand(3, 6, 8)) == 0
    must_break(difference(layer(ids), layer.weight[roberta_rows(ids)]))  # BART does not leave padding out
