"""Chapter 1's three tiles say what the library's layer says."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from posenc.absolute import Sinusoidal
from posenc.attention import Attention
from posenc.encoding import NoPE
from posenc.masks import Causal
from tests.explorables import PHONE, Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "tiles"
MODES = ("none", "causal", "places")
ORDERS = ("DOG", "ODG", "OGD", "GOD", "GDO", "DGO")  # each one swap from the last: 1 and 2, 2 and 3, in turn


@dataclass
class Chapter:
    """The layer and the tiles of chapter 1, made as it makes them."""

    layer: Attention
    tiles: dict[str, Tensor]

    def outputs(self, order: str, mode: str) -> dict[str, Tensor]:
        """What becomes of each tile. By letter: (4,)."""
        x, places = torch.stack([self.tiles[letter] for letter in order]), torch.arange(3)
        if mode == "places":
            x = Sinusoidal().tokens(x, places)
        self.layer.encoding = Causal() if mode == "causal" else NoPE()
        return dict(zip(order, self.layer(x, places).detach(), strict=True))


@pytest.fixture
def chapter() -> Iterator[Chapter]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(4)
    layer = Attention(d_model=4)
    yield Chapter(layer, {letter: 3 * torch.randn(4) for letter in "DOG"})
    torch.set_default_dtype(before)


def shown(held: Held, letter: str) -> Tensor:
    cells = [held.root.locator(f"[data-name={letter}-{feature}]") for feature in range(4)]
    return torch.tensor([float(cell.text_content().replace("−", "-")) for cell in cells]).double()


def verdict(held: Held, letter: str) -> str:
    return held.root.locator(f"[data-name={letter}-verdict]").text_content() or ""


@pytest.mark.slow
def test_every_number_is_the_librarys_in_every_order(held: Held, chapter: Chapter) -> None:
    for place, order in enumerate(ORDERS):
        if place:
            held.press("swap-12" if place % 2 else "swap-23")
        for mode in MODES:
            held.choose("mode", mode)
            assert " ".join(order) in held.words()
            expected, home = chapter.outputs(order, mode), chapter.outputs("DOG", mode)
            for letter in "DOG":
                assert (shown(held, letter) - expected[letter]).abs().max() < 5.1e-3
            largest = max((expected[letter] - home[letter]).abs().max().item() for letter in "DOG")
            assert held.number("largest") == pytest.approx(largest, abs=6e-4)


@pytest.mark.slow
def test_the_tiles_alone_keep_their_numbers_with_places_known_they_do_not(held: Held) -> None:
    for _ in range(4):
        held.press("shuffle")
        assert held.text("largest") == "0.000"
        assert {verdict(held, letter) for letter in "DOG"} == {"same"}
    while not held.words().startswith("G D O"):
        held.press("shuffle")
    held.choose("mode", "causal")
    assert held.number("largest") > 1
    assert {verdict(held, letter) for letter in "DG"} == {"changed"}
    held.choose("mode", "places")
    assert held.number("largest") > 0.05


@pytest.mark.slow
def test_under_the_mask_the_last_place_sees_the_whole_set(held: Held) -> None:
    held.choose("mode", "causal")
    held.press("swap-12")
    assert [verdict(held, letter) for letter in "ODG"] == ["changed", "changed", "same"]


@pytest.mark.slow
def test_under_the_mask_it_matters_who_stands_before_and_not_where(held: Held) -> None:
    held.choose("mode", "causal")
    o_after_d = shown(held, "O")
    held.press("swap-23")
    assert held.words().startswith("D G O")
    assert verdict(held, "D") == "same", "nobody before it, in both"
    o_after_both = shown(held, "O")
    held.press("swap-12")
    assert held.words().startswith("G D O")
    assert torch.equal(shown(held, "O"), o_after_both), "the same two before it, in another order"
    held.press("swap-23")
    assert held.words().startswith("G O D")
    assert (shown(held, "O") - o_after_d).abs().max() > 1, "place 2 in both, another tile before it"
    assert "depends on which tiles stand before it, not on its place. Changed: G, O, D." in held.words()


@pytest.mark.slow
def test_with_positions_the_places_of_all_tiles_matter(held: Held) -> None:
    held.choose("mode", "places")
    held.press("swap-23")
    assert verdict(held, "D") == "changed", "it stays at place 1, and the two others change places"
    assert "with positions a tile's output depends on the places of all tiles" in held.words()


@pytest.mark.slow
def test_a_tile_can_be_dragged(held: Held) -> None:
    held.page.set_viewport_size(PHONE)
    box = held.root.locator("svg").bounding_box()
    assert box is not None
    held.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 20)
    held.page.mouse.down()
    held.page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 20, steps=8)
    held.page.mouse.up()
    assert held.words().startswith("O G D")
    held.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 20)
    assert held.words().startswith("O G D"), "let go"
    group = held.root.locator("svg g", has=held.page.locator("[data-name=D-0]"))
    held.page.wait_for_function("g => g.getCTM().e / g.getCTM().a > 300", arg=group.element_handle())
