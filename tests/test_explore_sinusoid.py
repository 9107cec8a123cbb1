"""Chapter 4's table of sinusoids says what the library says."""

import math

import pytest
import torch

from posenc.absolute import frequencies, sinusoids
from tests.explorables import Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "sinusoid"
SEARCH = 2000


def first_rise(d_model: int, base: float) -> int | None:
    """The first offset whose dot product is larger than the one before, as far as the explorable looks."""
    offsets = torch.arange(SEARCH + 1).unsqueeze(-1)
    dots = (offsets * frequencies(d_model, base)).cos().sum(dim=-1)
    rises = (dots.diff() > 0).nonzero()
    return int(rises[0]) + 1 if len(rises) else None


def put(held: Held, width: int, base: float, place: int, offset: int) -> None:
    for name, value in (("width", width), ("base", base), ("place", place), ("offset", offset)):
        held.slide(name, value)


@pytest.mark.slow
def test_every_number_is_the_librarys(held: Held) -> None:
    settings = [(4, 4, 20, 30), (2, 0.5, 0, 0), (2, 0.5, 63, 64), (3, 1, 5, 12), (7, 4, 40, 1), (10, 6, 63, 64)]
    settings += [(9, 4, 0, 17), (5, 2.5, 31, 33), (10, 4, 7, 3)]
    for width, base, place, offset in settings:
        put(held, width, base, place, offset)
        d_model, i = 2**width, torch.tensor([place, place + offset])
        p, q = sinusoids(i, d_model, 10**base).double()
        assert (held.number("i"), held.number("j")) == (place, place + offset)
        assert held.number("dot") == pytest.approx((p @ q).item(), abs=6e-4 + 1e-6 * d_model)
        assert held.number("most") == d_model / 2
        slowest = 2 * math.pi / frequencies(d_model, 10**base)[-1].item()
        assert held.number("slowest") == pytest.approx(slowest, abs=0.51)
        assert held.number("rise") == first_rise(d_model, 10**base)


@pytest.mark.slow
def test_the_dot_product_sees_the_offset_alone(held: Held) -> None:
    before = held.text("dot")
    strips = held.root.locator("image").evaluate_all("all => all.map(image => image.getAttribute('href'))")
    for place in (0, 7, 63):
        held.slide("place", place)
        assert held.text("dot") == before
    moved = held.root.locator("image").evaluate_all("all => all.map(image => image.getAttribute('href'))")
    assert strips[0] == moved[0], "the table stays"
    assert strips[1] != moved[1], "the rows do not"
    held.slide("offset", 31)
    assert held.text("dot") != before
    held.slide("offset", 0)
    assert held.number("dot") == held.number("most")


@pytest.mark.slow
def test_wider_tables_rise_later(held: Held) -> None:
    rises = []
    for width in (4, 5, 7, 9):
        held.slide("width", width)
        rises.append(held.number("rise"))
    assert rises == [4, 5, 12, 44], "as the chapter's table prints"


@pytest.mark.slow
def test_a_rise_beyond_the_plot_is_called_so_and_a_broken_base_has_two_digits(held: Held) -> None:
    for width in (9, 10):
        held.slide("width", width)
        assert (held.number("rise") > 64) == ("beyond the plot" in held.words()) == (width == 10)
    for exponent, words in ((0.5, "3.16"), (3, "1,000"), (3.5, "3,162.28")):
        held.slide("base", exponent)
        assert held.control("base").get_attribute("aria-valuetext") == words


@pytest.mark.slow
def test_the_picture_is_the_table(held: Held) -> None:
    """The colour of each dot, on the scale from blue (−1) over paper (0) to red (1), follows the library's number."""
    put(held, 3, 4, 0, 0)
    dots = held.root.locator("image").first.evaluate(
        """async image => {
            const loaded = new Image();
            loaded.src = image.getAttribute("href");
            await loaded.decode();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [loaded.width, loaded.height];
            canvas.getContext("2d").drawImage(loaded, 0, 0);
            return [canvas.width, canvas.height, ...canvas.getContext("2d").getImageData(0, 0, 8, 128).data];
        }"""
    )
    assert dots[:2] == [8, 128]
    pixels = torch.tensor(dots[2:]).view(128, 8, 4)
    table = sinusoids(torch.arange(128), 8)
    halves = torch.cat([table[:, 0::2], table[:, 1::2]], dim=-1)
    red_minus_blue = (pixels[..., 0] - pixels[..., 2]).float()
    assert (red_minus_blue[halves > 0.1] > 0).all()
    assert (red_minus_blue[halves < -0.1] < 0).all()
