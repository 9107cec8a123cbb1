"""What chapter 4 adds to the library: sinusoids, the matrix of a step, the two layouts."""

import math

import pytest
import torch

from posenc.absolute import Sinusoidal, frequencies, sinusoids, step_matrix, to_halves, to_interleaved
from posenc.checks.chapter_04 import BUGS, first_rise, name_the_bug, position_of
from posenc.encoding import Together
from posenc.masks import Causal
from posenc.model import build
from posenc.relative import ALiBi
from posenc.rotary import rotate
from posenc.symmetry import difference, must_break, translation_error


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture(autouse=True)
def _sixteen_digits():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# --- speeds


@pytest.mark.parametrize("base", [100.0, 10_000.0])
@pytest.mark.parametrize("d_model", [2, 6, 64])
def test_speeds_are_a_geometric_progression_that_ends_short_of_the_base(d_model, base):
    turns = frequencies(d_model, base)
    assert turns.shape == (d_model // 2,)
    assert turns[0] == 1
    assert turns[-1].item() == pytest.approx(base ** (-(d_model - 2) / d_model))
    assert turns[-1] > 1 / base
    assert torch.allclose(turns[1:] / turns[:-1], torch.full((d_model // 2 - 1,), base ** (-2 / d_model)))


@pytest.mark.parametrize("make", [frequencies, lambda d: sinusoids(torch.arange(3), d), lambda d: step_matrix(1, d)])
def test_an_odd_width_is_refused_with_its_number(make):
    with pytest.raises(ValueError, match="even; got 7"):
        make(7)


# --- a step


@pytest.mark.parametrize("d_model", [2, 4, 16, 64])
@pytest.mark.parametrize("offset", [-1000, -1, 0, 1, 7, 4096])
def test_one_matrix_moves_every_position_and_its_transpose_does_not(offset, d_model):
    positions = torch.tensor([0, 1, 2, 500, 100_000])
    before, after = sinusoids(positions, d_model), sinusoids(positions + offset, d_model)
    R = step_matrix(offset, d_model)
    assert difference(before @ R.T, after) < 1e-9
    if offset:
        must_break(difference(before @ R, after))


def test_steps_form_a_group_of_rotations():
    a, b = step_matrix(5, 8), step_matrix(-12, 8)
    assert difference(a @ b, step_matrix(-7, 8)) < 1e-12
    assert difference(a.T, step_matrix(-5, 8)) < 1e-15
    assert torch.linalg.det(a).item() == pytest.approx(1)


def test_the_sign_is_pinned_clockwise_for_sine_and_cosine():
    c, s = math.cos(1), math.sin(1)
    assert difference(step_matrix(1, 2), torch.tensor([[c, s], [-s, c]])) < 1e-15


def test_rotary_turns_the_same_plane_the_other_way():
    """rotate(x, k) is R(-k) x: pairs (x, y) turn counter-clockwise there, (sine, cosine) clockwise here."""
    x = normal(1, 8)
    assert difference(rotate(x, torch.tensor([3])), x @ step_matrix(-3, 8).T) < 1e-12
    must_break(difference(rotate(x, torch.tensor([3])), x @ step_matrix(3, 8).T))


# --- layouts


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 3, 10)])
def test_layouts_are_each_others_inverse_and_keep_the_dtype(shape):
    x = normal(*shape)
    assert torch.equal(to_interleaved(to_halves(x)), x)
    assert torch.equal(to_halves(to_interleaved(x)), x)
    assert to_halves(x.bfloat16()).dtype == torch.bfloat16
    assert to_halves(torch.arange(6)).tolist() == [0, 2, 4, 1, 3, 5]
    assert to_interleaved(torch.arange(6)).tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize("convert", [to_halves, to_interleaved])
def test_layouts_refuse_an_odd_width(convert):
    with pytest.raises(RuntimeError, match="unflatten"):
        convert(normal(2, 5))


# --- dot products and distances


@pytest.mark.parametrize("d_model", [4, 64])
def test_dot_products_see_the_offset_alone_and_norms_are_fixed(d_model):
    table = sinusoids(torch.arange(200), d_model)
    products = table @ table.T
    for offset in (0, 1, 17):
        diagonal = products.diagonal(offset)
        assert difference(diagonal, diagonal[:1].expand_as(diagonal)) < 1e-10
    assert products[0, 0].item() == pytest.approx(d_model / 2)


@pytest.mark.parametrize(("d_model", "offset"), [(16, 4), (128, 12), (512, 44)])
def test_the_first_rise(d_model, offset):
    assert first_rise(d_model) == offset


def test_positions_beyond_256_collide_in_bfloat16():
    positions = torch.arange(300)
    rounded = sinusoids(positions.to(torch.bfloat16), 32)
    assert torch.equal(rounded[257], rounded[256])
    must_break(difference(*sinusoids(torch.tensor([256, 257]), 32)))


# --- the door


def test_sinusoidal_keeps_the_dtype_and_takes_positions_of_its_own():
    x = normal(2, 3, 8)
    positions = torch.tensor([[0, 1, 2], [7, 8, 9]])
    added = Sinusoidal().tokens(x, positions) - x
    assert difference(added, sinusoids(positions, 8)) < 1e-12
    assert Sinusoidal().tokens(x.bfloat16(), positions).dtype == torch.bfloat16


def test_a_shift_of_all_positions_moves_sinusoids_and_leaves_alibi_alone():
    tokens, places = torch.arange(8), torch.arange(8)
    settings = {"vocabulary": 9, "d_model": 16, "n_layers": 2, "n_heads": 4, "n_outputs": 3}
    moved = {}
    for scheme in (Sinusoidal(), ALiBi(4)):
        model = build(0, **settings, encoding=Together(Causal(), scheme))
        moved[type(scheme).__name__] = translation_error(model, tokens, places, shift=1)
    must_break(moved["Sinusoidal"])
    assert moved["ALiBi"] < 1e-12


# --- the exercises' own claims


@pytest.mark.parametrize("d_model", [64, 128, 512])
def test_every_position_up_to_twenty_thousand_is_read_off_its_vector(d_model):
    table = sinusoids(torch.arange(0, 20_001, 97), d_model)
    noise = 0.02 * torch.rand(table.shape, generator=torch.Generator().manual_seed(0)) - 0.01
    assert [position_of(row) for row in table + noise] == list(range(0, 20_001, 97))


@pytest.mark.parametrize("d_model", [6, 32, 512])
@pytest.mark.parametrize("n", [258, 512])
@pytest.mark.parametrize("name", BUGS)
def test_seven_tables_are_told_apart_at_every_size(name, n, d_model):
    table = BUGS[name](n, d_model)
    assert name_the_bug(table.float()) == name
    others = [(make(n, d_model) - table).abs().max().item() for other, make in BUGS.items() if other != name]
    must_break(min(others), 0.02)
