"""Sinusoids against implementations that we did not write: four libraries, three layouts and speeds."""

import math

import pytest
import torch

from posenc.absolute import sinusoids, to_halves
from posenc.symmetry import difference, must_break

WIDTHS = (4, 16, 64, 512)


@pytest.mark.parametrize("d_model", WIDTHS)
def test_interleaved_equals_positional_encodings(d_model):
    from positional_encodings.torch_encodings import PositionalEncoding1D

    theirs = PositionalEncoding1D(d_model)(torch.zeros(1, 200, d_model))[0]
    assert difference(sinusoids(torch.arange(200), d_model), theirs) < 5e-5  # their angles are float32
    must_break(difference(to_halves(sinusoids(torch.arange(200), d_model)), theirs))


@pytest.mark.parametrize("d_model", WIDTHS)
def test_halves_equal_gptj(d_model):
    from transformers.models.gptj.modeling_gptj import create_sinusoidal_positions

    theirs = create_sinusoidal_positions(200, d_model)
    assert difference(to_halves(sinusoids(torch.arange(200), d_model)), theirs) < 5e-5
    must_break(difference(sinusoids(torch.arange(200), d_model), theirs))


@pytest.mark.parametrize("d_model", [4, 16, 64])
def test_halves_equal_marian_whose_angles_are_float64(d_model):
    from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

    theirs = MarianSinusoidalPositionalEmbedding(600, d_model).create_weight()
    assert difference(to_halves(sinusoids(torch.arange(600), d_model)), theirs) < 1e-6


def tensor2tensor(positions: torch.Tensor, d_model: int) -> torch.Tensor:
    """get_timing_signal_1d of tensor2tensor, from its description: timescales from 1 to 10000, both included."""
    pairs = torch.arange(d_model // 2, dtype=torch.float64)
    scales = torch.exp(pairs * -(math.log(10_000) / max(1, d_model // 2 - 1)))
    angles = positions.unsqueeze(-1) * scales
    return torch.cat([angles.sin(), angles.cos()], dim=-1).float()


@pytest.mark.parametrize("d_model", WIDTHS)
def test_m2m100_and_fairseq_follow_tensor2tensor_and_not_the_paper(d_model):
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding

    theirs = M2M100SinusoidalPositionalEmbedding.get_embedding(512, d_model)
    assert difference(tensor2tensor(torch.arange(512), d_model), theirs) < 2e-4
    must_break(difference(to_halves(sinusoids(torch.arange(512), d_model)), theirs), 0.5)


def test_the_library_reaches_the_variant_through_its_base():
    """k / (d/2 - 1) is 2k / d with another base: 10000 ** (d / (d - 2))."""
    d_model = 64
    ours = to_halves(sinusoids(torch.arange(512), d_model, base=10_000 ** (d_model / (d_model - 2))))
    assert difference(ours, tensor2tensor(torch.arange(512), d_model)) < 1e-6
