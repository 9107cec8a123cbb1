"""Relative and rotary encodings of pictures against independent implementations: transformers, timm, and a library."""

import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import torchvision_stand_in

from posenc.absolute import frequencies
from posenc.attention import Attention, attention
from posenc.encoding import Together
from posenc.rotary import turn, turn_halves
from posenc.rotary_grid import axial_vectors, centred, grid_angles, mixed_vectors, mrope_positions, mrope_vectors
from posenc.symmetry import difference, must_break
from posenc.vision import grid
from posenc.windows import (
    ContinuousBias,
    WindowBias,
    Windows,
    log_spaced,
    offsets,
    resize_bias,
    roll_and_cut,
    rolled_mask,
    window_index,
    with_class_token,
)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

ROUNDING = 2e-5  # they make float32 angles, we make float64 ones
WINDOWS = [(7, 7), (2, 5), (5, 2), (1, 4), (3, 3)]


@pytest.fixture(scope="module")
def timm_layers():
    with torchvision_stand_in.installed():
        import timm.layers
    return timm.layers


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- Swin, BEiT, Swin v2


@pytest.mark.parametrize("window", WINDOWS)
def test_the_index_is_swins_timms_and_beits(window, timm_layers):
    from timm.layers.pos_embed_rel import gen_relative_position_index
    from transformers.models.beit.modeling_beit import BeitRelativePositionBias
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    ours = window_index(*window)
    theirs = SwinRelativePositionBias(3, window).relative_position_index.view(ours.shape)
    assert torch.equal(ours, theirs)
    assert torch.equal(ours, gen_relative_position_index(window))
    with_class = with_class_token(ours)
    assert torch.equal(with_class, gen_relative_position_index(window, class_token=True))
    assert torch.equal(with_class, BeitRelativePositionBias.generate_relative_position_index(window))
    if window[0] != window[1] and min(window) > 1:
        assert not torch.equal(ours, window_index(*window[::-1]))


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_bias_is_swins_bias(window):
    from transformers.models.swin.modeling_swin import SwinRelativePositionBias

    theirs, ours = SwinRelativePositionBias(3, window), WindowBias(*window, n_heads=3)
    theirs.relative_position_bias_table.data = ours.table.data
    down, across = offsets(grid(*window), grid(*window))
    assert difference(ours.bias(down, across), theirs()[0]) < 1e-6


def swin_model(shift: bool):
    """A layer of transformers' Swin: 8 by 8 patches, windows of 4, float64."""
    import transformers
    from transformers.models.swin.modeling_swin import SwinLayer

    config = transformers.SwinConfig(
        embed_dim=12, num_heads=[3], depths=[1], window_size=4, image_size=32, drop_path_rate=0.0, qkv_bias=False
    )
    torch.manual_seed(0)
    return SwinLayer(config, 12, (8, 8), 3, drop_path_rate=0.0, shift_size=2 if shift else 0).double().eval()


def test_the_rolled_mask_is_swins():
    layer = swin_model(shift=True)
    theirs = layer.get_attn_mask(8, 12, torch.float64, torch.device("cpu"))
    assert torch.equal(rolled_mask(8, 12, 4, 2), theirs == 0)
    assert not torch.equal(rolled_mask(8, 12, 4, 1), theirs == 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shift", [False, True])
def test_windows_as_a_mask_are_the_attention_of_swin(shift):
    layer = swin_model(shift)
    layer.layernorm_before, layer.layernorm_after = torch.nn.Identity(), _Zero()
    weights = dict(layer.attention.named_parameters())
    table = next(w for name, w in weights.items() if "bias_table" in name)
    bias = _InWindows(4, 4, 3)
    ours = Attention(12, 3, Together(Windows(4, 2 if shift else 0), bias))
    for linear, names in (
        (ours.to_queries, ("query", "q_proj")),
        (ours.to_keys, ("key", "k_proj")),
        (ours.to_values, ("value", "v_proj")),
        (ours.to_output, ("output.dense", "o_proj")),
    ):
        linear.weight = next(w for n, w in weights.items() if n.endswith("weight") and any(name in n for name in names))
    with torch.no_grad():
        for name, weight in weights.items():
            if name.endswith("bias"):
                weight.zero_()
        table.copy_(torch.randn(table.shape, dtype=torch.float64))
    bias.table = table
    picture = vectors(1, 64, 12).double()
    theirs, nothing = layer(picture, (8, 8)), layer(0 * picture, (8, 8))  # the second: what the feed-forward part adds
    theirs, nothing = (out[0] if isinstance(out, tuple) else out for out in (theirs, nothing))
    expected = picture + ours(picture, grid(8, 8))
    assert difference(theirs - nothing, expected) < 1e-6  # their softmax is float32
    with torch.no_grad():
        table.zero_()
    must_break(difference(theirs - nothing, picture + ours(picture, grid(8, 8))))


class _Zero(torch.nn.Module):
    """In place of the second norm: the feed-forward part sees nothing, and adds the same to every row."""

    def forward(self, x):
        return torch.zeros_like(x)


class _InWindows(WindowBias):
    """Swin's table serves a window; offsets beyond it belong to pairs that the mask hides, so any number will do."""

    def bias(self, down, across):
        return super().bias(down.clamp(1 - self.rows, self.rows - 1), across.clamp(1 - self.columns, self.columns - 1))


def test_a_resized_table_is_timms_bicubic_one(timm_layers):
    from timm.layers.pos_embed_rel import resize_rel_pos_bias_table_simple

    table = vectors(13 * 13, 3)
    theirs = resize_rel_pos_bias_table_simple(table, (12, 12), (23 * 23, 3))
    assert difference(resize_bias(table, (7, 7), (12, 12)), theirs) < 1e-5
    must_break(difference(resize_bias(table, (7, 7), (12, 12), mode="bilinear"), theirs))
    theirs = resize_rel_pos_bias_table_simple(table, (5, 9), (9 * 17, 3))  # to a window that is not square
    assert difference(resize_bias(table, (7, 7), (5, 9)), theirs) < 1e-5


def beit_bias(patches_high: int, patches_wide: int):
    import transformers
    from transformers.models.beit.modeling_beit import BeitRelativePositionBias

    size = (16 * patches_high, 16 * patches_wide)
    theirs = BeitRelativePositionBias(transformers.BeitConfig(image_size=size, num_attention_heads=3, hidden_size=12))
    theirs.relative_position_bias_table.data = vectors((2 * patches_high - 1) * (2 * patches_wide - 1) + 3, 3)
    return theirs


def test_beits_resized_table_for_square_windows():
    theirs = beit_bias(4, 4)
    table = theirs.relative_position_bias_table.detach()
    resized = torch.cat([resize_bias(table[:-3], (4, 4), (6, 5), mode="bilinear"), table[-3:]])
    ours = resized[with_class_token(window_index(6, 5))].permute(2, 0, 1)
    assert difference(ours, theirs((6, 5)).detach().view(ours.shape)) < 1e-5


def test_beits_table_in_transformers_is_read_across_where_the_window_is_not_square():
    """It is reshaped to (width, height) before it is resized: even with the same window it comes out scrambled."""
    theirs = beit_bias(2, 5)
    table = theirs.relative_position_bias_table.detach()
    plain = table[with_class_token(window_index(2, 5))].permute(2, 0, 1)
    must_break(difference(theirs((2, 5)).detach().view(plain.shape), plain), 0.1)


@pytest.mark.parametrize(("window", "pretrained"), [((8, 8), (0, 0)), ((16, 16), (8, 8)), ((6, 9), (0, 0))])
def test_log_spaced_coordinates_and_the_bias_are_swin_v2s(window, pretrained, timm_layers):
    import transformers
    from timm.layers.pos_embed_rel import gen_relative_log_coords
    from transformers.models.swinv2.modeling_swinv2 import Swinv2SelfAttention

    theirs = Swinv2SelfAttention(transformers.Swinv2Config(), 12, 3, window, list(pretrained))
    trained = pretrained if pretrained[0] else window
    down, across = (torch.arange(1 - n, n) for n in window)
    ours = torch.stack(
        torch.meshgrid(log_spaced(down, trained[0]), log_spaced(across, trained[1]), indexing="ij"), dim=-1
    )
    assert difference(ours, theirs.relative_coords_table[0]) < 1e-6
    assert difference(ours, gen_relative_log_coords(window, pretrained, dtype=torch.float32)) < 1e-6

    bias = ContinuousBias(*trained, n_heads=3)
    bias.network = theirs.continuous_position_bias_mlp
    all_offsets = offsets(grid(*window), grid(*window))
    with torch.no_grad():
        by_offset = 16 * theirs.continuous_position_bias_mlp(theirs.relative_coords_table).view(-1, 3).sigmoid()
        wanted = by_offset[theirs.relative_position_index].permute(2, 0, 1)
        assert difference(bias.bias(*all_offsets), wanted) < 1e-5


# --- Rotary on two axes


def rows_of_cos_and_sin(angles: torch.Tensor) -> torch.Tensor:
    return torch.cat([angles.cos(), angles.sin()], dim=-1).float()


def test_qwen2_vls_vision_has_shared_frequencies():
    from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLVisionConfig
    from transformers.models.qwen2_vl.modeling_qwen2_vl import (
        Qwen2VLVisionRotaryEmbedding,
        apply_rotary_pos_emb_vision,
    )

    embedding = Qwen2VLVisionRotaryEmbedding(Qwen2VLVisionConfig(embed_dim=48, num_heads=3))  # head_dim 16
    queries, keys = vectors(2, 15, 3, 16)
    theirs = apply_rotary_pos_emb_vision(queries, keys, *embedding(queries, grid(3, 5).T))
    angles = grid_angles(grid(3, 5), axial_vectors(16, base=10_000.0)).unsqueeze(-2)  # an axis for the heads
    for ours, theirs_ in zip((queries, keys), theirs, strict=True):
        assert difference(turn_halves(ours, angles), theirs_) < ROUNDING
        must_break(difference(turn(ours, angles), theirs_))


def test_pixtrals_rows_and_columns_alternate():
    import transformers
    from transformers.models.pixtral.modeling_pixtral import PixtralVisionRotaryEmbedding, apply_rotary_pos_emb

    config = transformers.PixtralVisionConfig(hidden_size=48, num_attention_heads=3, image_size=64, patch_size=8)
    embedding = PixtralVisionRotaryEmbedding(config)
    queries, keys = vectors(2, 1, 3, 15, 16)
    cos, sin = embedding(queries, grid(3, 5).T)
    theirs = apply_rotary_pos_emb(queries, keys, cos, sin, unsqueeze_dim=0)
    for allocation, close in (("alternating", True), ("shared", False)):
        angles = grid_angles(grid(3, 5), axial_vectors(16, 10_000.0, allocation))
        error = difference(turn_halves(queries, angles), theirs[0])
        assert error < ROUNDING if close else must_break(error)


@pytest.mark.parametrize("size", [(4, 4), (3, 7), (8, 8)])
def test_dinov3s_coordinates_and_angles(size):
    import transformers
    from transformers.models.dinov3_vit import modeling_dinov3_vit as dinov3

    config = transformers.DINOv3ViTConfig(hidden_size=48, num_attention_heads=3, patch_size=4, image_size=32)
    embedding = dinov3.DINOv3ViTRopePositionEmbedding(config).eval()
    cos, sin = embedding(torch.zeros(1, 3, 4 * size[0], 4 * size[1]))
    places = 2 * math.pi * centred(*size)
    angles = grid_angles(places, axial_vectors(16, base=100.0))
    queries, keys = vectors(2, 1, 3, 5 + math.prod(size), 16)  # five tokens in front: class and registers
    theirs, _ = dinov3.apply_rotary_pos_emb(queries, keys, cos, sin)
    with_prefix = torch.cat([torch.zeros(2, 5, dtype=torch.float64), places], dim=1)  # the place (0, 0)
    ours = turn_halves(queries, grid_angles(with_prefix, axial_vectors(16, base=100.0)))
    assert difference(ours, theirs) < ROUNDING
    assert difference(rows_of_cos_and_sin(angles), torch.cat([cos[:, :8], sin[:, :8]], dim=-1)) < ROUNDING


def test_timm_has_shared_frequencies_in_neighbours_or_pixel_bands(timm_layers):
    queries = vectors(1, 3, 15, 16)
    rope = timm_layers.RotaryEmbeddingCat(16, in_pixels=False, temperature=10_000.0, feat_shape=(3, 5))
    theirs = timm_layers.apply_rot_embed_cat(queries, rope.get_embed())
    angles = grid_angles(grid(3, 5), axial_vectors(16, base=10_000.0))
    assert difference(turn(queries, angles), theirs) < ROUNDING
    must_break(difference(turn_halves(queries, angles), theirs))

    rope = timm_layers.RotaryEmbeddingCat(16, in_pixels=True, max_res=224, feat_shape=(3, 5))
    theirs = timm_layers.apply_rot_embed_cat(queries, rope.get_embed())
    bands = torch.pi * 2 ** torch.linspace(0, math.log2(224) - 1, 4, dtype=torch.float64)
    corners = torch.cartesian_prod(*(torch.linspace(-1, 1, n, dtype=torch.float64) for n in (3, 5))).T
    zero = torch.zeros_like(bands)
    pixel = torch.stack([torch.cat([bands, zero]), torch.cat([zero, bands])])
    assert difference(turn(queries, grid_angles(corners, pixel)), theirs) < 2e-4  # angles up to 352 in float32


def test_rotary_embedding_torch_axial():
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    queries = vectors(1, 3, 3, 5, 16)
    theirs = apply_rotary_emb(RotaryEmbedding(8).get_axial_freqs(3, 5), queries).flatten(2, 3)
    angles = grid_angles(grid(3, 5), axial_vectors(16, base=10_000.0))
    assert difference(turn(queries.flatten(2, 3), angles), theirs) < ROUNDING

    pixel = RotaryEmbedding(8, freqs_for="pixel", max_freq=10)  # the third allocation: evenly spaced, on -1 to 1
    theirs = apply_rotary_emb(pixel.get_axial_freqs(3, 5), queries).flatten(2, 3)
    bands, zero = torch.linspace(1, 5, 4, dtype=torch.float64) * torch.pi, torch.zeros(4)
    corners = torch.cartesian_prod(*(torch.linspace(-1, 1, n, dtype=torch.float64) for n in (3, 5))).T
    even = torch.stack([torch.cat([bands, zero]), torch.cat([zero, bands])])
    assert difference(turn(queries.flatten(2, 3), grid_angles(corners, even)), theirs) < ROUNDING


def test_mixed_vectors_start_as_timms_and_turn_as_timms(timm_layers):
    from timm.layers.pos_embed_sincos import get_mixed_freqs, init_random_2d_freqs

    theirs = init_random_2d_freqs(16, 1, 3, temperature=10.0)[:, 0]  # (2, heads, pairs)
    ours = mixed_vectors(3, 16, base=10.0)
    assert difference(ours.square().sum(0), theirs.square().sum(0).double()) < 1e-6  # the lengths
    first, second = ours[..., :4], ours[..., 4:]
    assert (first * second).sum(0).abs().max() < 1e-12  # at right angles
    queries = vectors(1, 3, 15, 16)
    rows, columns = grid(3, 5)
    embed = get_mixed_freqs(theirs, rows, columns)
    turned = timm_layers.apply_rot_embed_cat(queries, embed)
    assert difference(turn(queries, grid_angles(grid(3, 5), theirs)), turned) < ROUNDING


# --- Text, pictures, films


def cos_and_sin(embedding, positions):
    return embedding(torch.zeros(1), positions)


def test_qwen2_vls_sections_stand_in_a_row():
    import transformers
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
    config = transformers.Qwen2VLConfig(text_config={"hidden_size": 384, "num_attention_heads": 3}).text_config
    config.rope_parameters = rope
    embedding = Qwen2VLRotaryEmbedding(config)
    positions = mrope_positions([3, (2, 4, 5), 6])
    cos, sin = cos_and_sin(embedding, positions.unsqueeze(1))
    for sections, interleaved in (((16, 24, 24), False), ((24, 20, 20), True)):
        angles = grid_angles(positions, mrope_vectors(128, sections, 1e6, interleaved))
        error = difference(rows_of_cos_and_sin(angles), torch.cat([cos[0, :, :64], sin[0, :, :64]], dim=-1))
        assert must_break(error) if interleaved else error < ROUNDING


def test_qwen3_vls_sections_are_dealt_out():
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [24, 20, 20]}
    embedding = Qwen3VLTextRotaryEmbedding(Qwen3VLTextConfig(head_dim=128, rope_parameters=rope))
    positions = mrope_positions([3, (2, 4, 5), 6])
    cos, sin = cos_and_sin(embedding, positions.unsqueeze(1))
    angles = grid_angles(positions, mrope_vectors(128, (24, 20, 20), 1e6, interleaved=True))
    assert difference(rows_of_cos_and_sin(angles), torch.cat([cos[0, :, :64], sin[0, :, :64]], dim=-1)) < ROUNDING


def test_qwen3_5s_sections_are_dealt_out():
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextRotaryEmbedding

    config = Qwen3_5TextConfig(head_dim=256)
    assert config.rope_parameters["partial_rotary_factor"] == 0.25
    embedding = Qwen3_5TextRotaryEmbedding(config)
    assert list(embedding.mrope_section) == [11, 11, 10]
    positions = mrope_positions([3, (1, 4, 5), 6])
    cos, sin = cos_and_sin(embedding, positions.unsqueeze(1))
    base = config.rope_parameters["rope_theta"]
    angles = grid_angles(positions, mrope_vectors(64, (11, 11, 10), base, interleaved=True))
    assert difference(rows_of_cos_and_sin(angles), torch.cat([cos[0, :, :32], sin[0, :, :32]], dim=-1)) < ROUNDING


def qwen2_vl_positions(parts):
    """get_rope_index of transformers, which needs no weights; grids are given before 2 by 2 patches are merged."""
    from types import SimpleNamespace

    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    shell = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2)))
    shell.get_vision_position_ids = lambda *a, **k: Qwen2VLModel.get_vision_position_ids(shell, *a, **k)
    kinds, images, films = [], [], []
    for part in parts:
        if isinstance(part, int):
            kinds += [0] * part
        else:
            frames, rows, columns = part
            kinds += [1 if frames == 1 else 2] * math.prod(part)
            (images if frames == 1 else films).append([frames, 2 * rows, 2 * columns])
    kinds = torch.tensor([kinds])
    grids = {
        "image_grid_thw": torch.tensor(images) if images else None,
        "video_grid_thw": torch.tensor(films) if films else None,
    }
    return Qwen2VLModel.get_rope_index(shell, torch.zeros_like(kinds), kinds, **grids)[0][:, 0]


@pytest.mark.parametrize("parts", [[5], [2, (1, 3, 4), 3], [(1, 2, 2), 1, (1, 5, 1), 4], [1, (2, 3, 4), 2]])
def test_positions_of_mixed_sequences_are_qwen2_vls(parts):
    assert torch.equal(mrope_positions(parts), qwen2_vl_positions(parts))


def test_after_a_long_film_transformers_counts_on_from_the_picture_not_from_the_largest_number():
    """The paper says: one more than the largest number before. In this version of transformers time does not count."""
    ours, theirs = (f([1, (9, 2, 2), 2]) for f in (mrope_positions, qwen2_vl_positions))
    assert torch.equal(ours[:, :-2], theirs[:, :-2])
    assert (ours[0, -2].item(), theirs[0, -2].item()) == (10, 3)


def test_a_text_alone_is_plain_rotary():
    angles = grid_angles(mrope_positions([7]), mrope_vectors(128, (16, 24, 24)))
    assert difference(angles, torch.arange(7).unsqueeze(-1) * frequencies(128)) < 1e-12


def test_windows_cut_out_are_windows_masked():
    """The efficient form of Swin's window attention, against the mask: no model, plain attention."""
    x = vectors(8, 12, 6).double()
    cut = roll_and_cut(x, 4, 2)
    inside = attention(cut, cut, cut, rolled_mask(8, 12, 4, 2))
    places = grid(8, 12)
    masked = attention(*[x.flatten(0, 1)] * 3, Windows(4, 2).mask(places, places)).view(8, 12, 6)
    assert difference(inside, roll_and_cut(masked, 4, 2)) < 1e-12
    must_break(difference(attention(cut, cut, cut), roll_and_cut(masked, 4, 2)))
