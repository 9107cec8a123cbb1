"""Scaled frequencies and layer patterns against transformers, on the scaled branch, for production configurations."""

import math

import pytest
import torch

from posenc.absolute import frequencies
from posenc.contexts import (
    Layer,
    by_parts,
    dynamic_base,
    interpolated,
    llama3,
    longrope,
    longrope_factor,
    repeated,
    temperature,
    yarn_factor,
    yarn_in_code,
)

transformers = pytest.importorskip("transformers")
rope = pytest.importorskip("transformers.modeling_rope_utils")

TOLERANCE = 1e-6  # theirs are float32


def theirs(config, kind: str, length: int | None = None, layer_type: str | None = None) -> tuple[torch.Tensor, float]:
    found, factor = rope.ROPE_INIT_FUNCTIONS[kind](config, "cpu", length, layer_type=layer_type)
    return found.double(), float(factor)


def relative_error(a: torch.Tensor, b: torch.Tensor) -> float:
    assert a.shape == b.shape
    return ((a - b) / b).abs().max().item()


def is_scaled(found: torch.Tensor, plain: torch.Tensor) -> bool:
    """A parity test that never leaves the plain frequencies shows nothing."""
    return relative_error(found, plain) > 0.4


def llama(head_dim: int, heads: int, length: int, **parameters):
    settings = {"hidden_size": head_dim * heads, "num_attention_heads": heads, "max_position_embeddings": length}
    return transformers.LlamaConfig(**settings, rope_parameters=parameters)


@pytest.mark.parametrize(("head_dim", "factor"), [(128, 8.0), (64, 32.0)], ids=["3.1-8B", "3.2-1B"])
def test_llama_3(head_dim, factor):
    plain = frequencies(head_dim, 5e5)
    config = llama(
        head_dim,
        32,
        131_072,
        rope_type="llama3",
        rope_theta=5e5,
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )
    found, attention = theirs(config, "llama3")
    assert relative_error(found, llama3(plain, factor, 8192)) < TOLERANCE
    assert relative_error(found, by_parts(plain, factor, 8192, slow=1, fast=4)) < TOLERANCE
    assert is_scaled(found, plain)
    assert attention == 1


def test_deepseek_v3():
    parameters = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "beta_fast": 32, "beta_slow": 1}
    parameters |= {"mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}
    config = transformers.DeepseekV3Config(rope_parameters=parameters)
    found, attention = theirs(config, "yarn")
    assert relative_error(found, yarn_in_code(1e4, 64, 40, 4096)) < TOLERANCE
    assert is_scaled(found, frequencies(64))
    assert attention == 1  # the factor sits in the softmax scale instead

    from transformers.models.deepseek_v3.modeling_deepseek_v3 import yarn_apply_mscale

    assert yarn_apply_mscale(config.rope_parameters, 1.0) == pytest.approx(yarn_factor(40) ** 2)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(
    ("base", "head_dim", "factor", "trained"),
    [(1e6, 128, 4.0, 32_768), (1e4, 128, 16.0, 4096), (1e4, 64, 8.0, 512), (150_000.0, 64, 32.0, 4096)],
    ids=["Qwen 2.5", "YaRN Llama 2", "small", "gpt-oss"],
)
def test_yarn(base, head_dim, factor, trained, truncate):
    config = llama(
        head_dim,
        8,
        int(factor * trained),
        rope_type="yarn",
        rope_theta=base,
        factor=factor,
        original_max_position_embeddings=trained,
        truncate=truncate,
    )
    found, attention = theirs(config, "yarn")
    assert relative_error(found, yarn_in_code(base, head_dim, factor, trained, truncate=truncate)) < TOLERANCE
    assert is_scaled(found, frequencies(head_dim, base))
    assert attention == pytest.approx(yarn_factor(factor))


def test_yarn_in_code_is_not_yarn_in_the_paper():
    code, paper = yarn_in_code(1e6, 128, 4, 32_768), by_parts(frequencies(128, 1e6), 4, 32_768)
    assert relative_error(paper, code) > 0.3


@pytest.mark.parametrize("length", [100, 4096, 8192, 16_384])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_dynamic_ntk(length, factor):
    config = llama(128, 32, 4096, rope_type="dynamic", rope_theta=1e4, factor=factor)
    found, attention = theirs(config, "dynamic", length)
    assert relative_error(found, frequencies(128, dynamic_base(1e4, 128, length, 4096, factor))) < TOLERANCE
    assert is_scaled(found, frequencies(128)) == (length > 4096)
    assert attention == 1


def test_gemma_3_scales_its_global_layers_alone():
    config = transformers.Gemma3TextConfig(
        num_hidden_layers=62,
        head_dim=128,
        sliding_window=1024,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    )
    found, _ = theirs(config, "linear", layer_type="full_attention")
    assert relative_error(found, interpolated(frequencies(128, 1e6), 8)) < TOLERANCE
    ours = repeated([Layer(window=1024)] * 5 + [Layer()], 62)
    kinds = ["sliding_attention" if layer.is_bounded else "full_attention" for layer in ours]
    assert kinds == config.layer_types


# The released lists of Phi-3-mini-128k-instruct, one factor a pair, "rope_scaling" in its configuration:
# https://huggingface.co/microsoft/Phi-3-mini-128k-instruct/blob/main/config.json
# (The short ones without the rounding noise of the file: 1.3 for 1.3000000000000003.)
# fmt: off
PHI_3_LONG = [
    1.0700000524520874, 1.1200000047683716, 1.149999976158142, 1.4199999570846558, 1.5699999332427979,
    1.7999999523162842, 2.129999876022339, 2.129999876022339, 3.009999990463257, 5.910000324249268,
    6.950000286102295, 9.070000648498535, 9.930000305175781, 10.710000038146973, 11.130000114440918,
    14.609999656677246, 15.409998893737793, 19.809999465942383, 37.279998779296875, 38.279998779296875,
    38.599998474121094, 40.12000274658203, 46.20000457763672, 50.940006256103516, 53.66000747680664,
    54.9373893737793, 56.89738845825195, 57.28738784790039, 59.98738479614258, 60.86738586425781,
    60.887386322021484, 61.71739196777344, 62.91739273071289, 62.957393646240234, 63.41739273071289,
    63.8173942565918, 63.83739471435547, 63.897396087646484, 63.93739700317383, 64.06739807128906,
    64.11434936523438, 64.12435150146484, 64.15435028076172, 64.19435119628906, 64.24435424804688,
    64.57435607910156, 64.69000244140625, 64.76000213623047,
]
PHI_3_SHORT = [
    1.1, 1.1, 1.1, 1.3, 1.35, 1.35, 1.4, 1.55, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0,
    2.0, 2.0, 2.0, 2.0, 2.05, 2.05, 2.05, 2.05, 2.05, 2.05, 2.1, 2.1, 2.15, 2.25, 2.25, 2.25, 2.25, 2.25, 2.4,
    2.45, 2.5, 2.7, 2.7, 2.75, 2.8, 2.9, 3.05,
]
# fmt: on


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("length", "factors"), [(131_072, PHI_3_LONG), (4096, PHI_3_SHORT)], ids=["long", "short"])
def test_phi_3_longrope(length, factors):
    parameters = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 4096}
    parameters |= {"short_factor": PHI_3_SHORT, "long_factor": PHI_3_LONG}
    config = transformers.Phi3Config(
        hidden_size=3072,
        num_attention_heads=32,
        max_position_embeddings=131_072,
        original_max_position_embeddings=4096,
        rope_parameters=parameters,
    )
    found, attention = theirs(config, "longrope", length)
    ours = longrope(frequencies(96), torch.tensor(factors, dtype=torch.float64))
    assert relative_error(found, ours) < TOLERANCE
    assert is_scaled(found, frequencies(96))  # also where the text fits: the short list is not a list of ones
    assert attention == pytest.approx(longrope_factor(32, 4096))
    assert attention == pytest.approx(1.190238118171692)  # as it stands in converted weights of the model


def test_llama_4_layers_and_temperature():
    config = transformers.Llama4TextConfig(num_hidden_layers=48)
    ours = repeated([Layer(chunk=8192)] * 3 + [Layer(rope=False)], 48)
    assert [bool(flag) for flag in config.no_rope_layers] == [layer.rope for layer in ours]
    kinds = ["chunked_attention" if layer.is_bounded else "full_attention" for layer in ours]
    assert kinds == config.layer_types
    assert (config.attention_chunk_size, config.floor_scale, config.attn_scale) == (8192, 8192, 0.1)
    positions = torch.tensor([0, 8191, 100_000])
    expected = [math.log1p((p + 1) // 8192) * 0.1 + 1 for p in positions.tolist()]
    assert temperature(positions).tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("config", "pattern"),
    [
        (lambda: transformers.Gemma2Config(), [Layer(window=4096), Layer()]),
        (lambda: transformers.Cohere2Config(), [Layer(window=4096)] * 3 + [Layer(rope=False)]),
        (lambda: transformers.GptOssConfig(), [Layer(window=128), Layer()]),
    ],
    ids=["Gemma 2", "Cohere2", "gpt-oss"],
)
def test_windows_alternate_as_the_configurations_say(config, pattern):
    config = config()
    ours = repeated(pattern, config.num_hidden_layers)
    kinds = ["sliding_attention" if layer.is_bounded else "full_attention" for layer in ours]
    assert kinds == config.layer_types
    assert {layer.window for layer in ours if layer.window} == {config.sliding_window}


def test_smollm3_and_mistral():
    smol = transformers.SmolLM3Config()
    assert [bool(flag) for flag in smol.no_rope_layers] == [
        layer.rope for layer in repeated([Layer()] * 3 + [Layer(rope=False)], smol.num_hidden_layers)
    ]
    assert set(smol.layer_types) == {"full_attention"}
    mistral = transformers.MistralConfig()
    assert (mistral.num_hidden_layers, mistral.sliding_window) == (32, 4096)
