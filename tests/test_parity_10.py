"""Grids against independent implementations: timm's and transformers' vision models, scipy, and the authors' own lines.

Where a published line is short it is rewritten here in numpy or torch, with its address.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))
import torchvision_stand_in

from posenc.grids import resample, sinusoids_2d
from posenc.symmetry import difference, must_break
from posenc.vision import grid

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ROUNDING = 2e-5  # float32 angles against float64 ones
SIZES = [(7, 7), (14, 14), (3, 9), (24, 16), (7, 28)]


def table(rows: int = 14, columns: int = 14, d: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, columns, d, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def timm_layers():
    with torchvision_stand_in.installed():
        import timm.layers
    return timm.layers


# --- the orders of the parts of 2-D sin-cos


def test_rows_first_is_rt_detrs_and_columns_first_is_vit_maes():
    from transformers.models.vit_mae import modeling_vit_mae as mae

    theirs = mae.build_2d_sinusoidal_position_embedding(5, 9, 16)
    assert difference(sinusoids_2d(grid(5, 9), 16), theirs) < ROUNDING

    import transformers

    config = transformers.ViTMAEConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=2, num_channels=1
    )
    embeddings = mae.ViTMAEEmbeddings(config)
    embeddings.initialize_weights()
    kept = embeddings.position_embeddings[0]
    assert difference(sinusoids_2d(grid(4, 4), 16, parts="columns first"), kept[1:]) < ROUNDING
    must_break(difference(sinusoids_2d(grid(4, 4), 16, parts="rows first"), kept[1:]))
    assert kept[0].abs().max() == 0  # the class token's


def test_maes_own_lines_put_the_columns_first():
    """https://github.com/facebookresearch/mae/blob/main/util/pos_embed.py: `np.meshgrid(grid_w, grid_h)`, w first."""
    across, down = np.meshgrid(np.arange(9.0), np.arange(5.0))
    omega = 1 / 10_000 ** (np.arange(4) / 4)
    parts = [f(np.einsum("m,d->md", p.reshape(-1), omega)) for p in (across, down) for f in (np.sin, np.cos)]
    theirs = torch.from_numpy(np.concatenate(parts, axis=1)).float()
    assert difference(sinusoids_2d(grid(5, 9), 16, parts="columns first"), theirs) < ROUNDING


@pytest.mark.parametrize("size", SIZES)
def test_sines_first_is_timms(timm_layers, size):
    theirs = timm_layers.build_sincos2d_pos_embed(list(size), 16)
    assert difference(sinusoids_2d(grid(*size), 16, parts="sines first"), theirs) < ROUNDING
    must_break(difference(sinusoids_2d(grid(*size), 16, parts="rows first"), theirs))


def test_big_vision_spaces_the_frequencies_otherwise():
    """`omega = arange(width // 4) / (width // 4 - 1)`: the slowest is exactly 1 / base, in ours it is not reached.

    https://github.com/google-research/big_vision/blob/main/big_vision/models/vit.py
    """
    omega = 10_000.0 ** -(torch.arange(4) / 3)
    rows, columns = grid(5, 9)
    angles = [places[:, None] * omega for places in (columns, rows)]
    theirs = torch.cat([f(a) for a in angles for f in (torch.sin, torch.cos)], dim=1)
    must_break(difference(sinusoids_2d(grid(5, 9), 16, parts="columns first"), theirs), at_least=0.1)


# --- resampling


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", SIZES)
def test_timm_with_a_class_token(timm_layers, size, mode, antialias):
    old, prefix = table(), torch.randn(2, 8)
    flat = torch.cat([prefix, old.flatten(0, 1)])[None]
    theirs = timm_layers.resample_abs_pos_embed(
        flat, list(size), old_size=[14, 14], num_prefix_tokens=2, interpolation=mode, antialias=antialias
    )
    ours = resample(old, *size, mode=mode, antialias=antialias)
    assert difference(torch.cat([prefix, ours.flatten(0, 1)])[None], theirs) < 1e-6
    assert torch.equal(theirs[0, :2], prefix)


def test_antialias_matters_where_the_grid_gets_smaller_and_nowhere_else():
    old = table()
    smaller = [resample(old, 7, 7, antialias=a) for a in (False, True)]
    larger = [resample(old, 24, 24, mode="bilinear", antialias=a) for a in (False, True)]
    must_break(difference(*smaller), at_least=0.1)
    assert difference(*larger) < 1e-5


def test_bicubic_differs_even_upwards_since_the_antialiased_filter_has_another_parameter():
    """Torch's bicubic has a = -0.75; with antialias, as Pillow's, a = -0.5."""
    larger = [resample(table(), 24, 24, antialias=a) for a in (False, True)]
    must_break(difference(*larger), at_least=0.01)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["ViT", "Dinov2"])
def test_transformers_vit_and_dinov2(name, size):
    import importlib

    import transformers

    config = getattr(transformers, f"{name}Config")(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=2, num_channels=1
    )
    module = importlib.import_module(f"transformers.models.{name.lower()}.modeling_{name.lower()}")
    embeddings = getattr(module, f"{name}Embeddings")(config)
    old, prefix = table(), torch.randn(1, 8)
    with torch.no_grad():
        embeddings.position_embeddings.copy_(torch.cat([prefix, old.flatten(0, 1)])[None])
        rows, columns = size
        tokens = torch.zeros(1, 1 + rows * columns, 8)
        theirs = embeddings.interpolate_pos_encoding(tokens, 2 * rows, 2 * columns)
    assert difference(torch.cat([prefix, resample(old, *size).flatten(0, 1)])[None], theirs) < 1e-6


@pytest.mark.parametrize("size", SIZES)
def test_dinov2_with_registers_is_antialiased_and_registers_have_no_place(size):
    import transformers
    from transformers.models.dinov2_with_registers import modeling_dinov2_with_registers as registers

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_register_tokens": 3}
    config = transformers.Dinov2WithRegistersConfig(**sizes, image_size=28, patch_size=2, num_channels=1)
    embeddings = registers.Dinov2WithRegistersEmbeddings(config)
    old, (rows, columns) = table(), size
    with torch.no_grad():
        embeddings.position_embeddings[0, 1:] = old.flatten(0, 1)
        embeddings.register_tokens.normal_()
        tokens = torch.zeros(1, 1 + rows * columns, 8)
        theirs = embeddings.interpolate_pos_encoding(tokens, 2 * rows, 2 * columns)
        whole = embeddings(torch.zeros(1, 1, 2 * rows, 2 * columns))
    assert difference(theirs[0, 1:], resample(old, *size, antialias=True).flatten(0, 1)) < 1e-5
    assert torch.equal(whole[:, 1:4], embeddings.register_tokens)


def test_dinov2_as_published_samples_a_little_to_one_side():
    """The authors hand over a scale factor made of (new + 0.1): torch then steps by it, not by the sizes.

    https://github.com/facebookresearch/dinov2/blob/main/dinov2/models/vision_transformer.py
    """
    old, new = table(), 24
    image = old.permute(2, 0, 1)[None]
    published = F.interpolate(image, scale_factor=((new + 0.1) / 14,) * 2, mode="bicubic")[0].permute(1, 2, 0)
    assert published.shape == (new, new, 8)
    must_break(difference(published, resample(old, new, new)), at_least=0.01)


@pytest.mark.parametrize("size", [(7, 7), (16, 16), (3, 9), (24, 16)])
def test_siglip2_is_antialiased_bilinear(size):
    from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

    old, n = table(16, 16), size[0] * size[1]
    theirs = Siglip2VisionEmbeddings.resize_positional_embeddings(old, torch.tensor([size]), max_length=n + 3)
    ours = resample(old, *size, mode="bilinear", antialias=True).flatten(0, 1)
    assert difference(theirs[0, :n], ours) < 1e-5
    if size != (16, 16):
        must_break(difference(theirs[0, :n], resample(old, *size).flatten(0, 1)), at_least=0.05)
    assert difference(theirs[0, n:], ours[:1].expand(3, -1)) < 1e-5  # padding reads the first place


@pytest.mark.parametrize("size", [(7, 7), (24, 24), (20, 28)])
def test_the_loader_of_vits_authors_is_bilinear_with_corners_kept(size):
    """`scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1)`.

    https://github.com/google-research/vision_transformer/blob/main/vit_jax/checkpoint.py
    """
    ndimage = pytest.importorskip("scipy.ndimage")
    old = table()
    theirs = torch.from_numpy(ndimage.zoom(old.numpy(), (size[0] / 14, size[1] / 14, 1), order=1))
    assert difference(resample(old, *size, mode="bilinear", align_corners=True), theirs) < 1e-5
    must_break(difference(resample(old, *size), theirs), at_least=0.05)
