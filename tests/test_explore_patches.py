"""Chapter 10's maps of likeness are the library's, and the grid is one stop for the keyboard."""

import pytest
import torch

from posenc import resolution
from posenc.grids import RowAndColumn, sinusoids_2d
from posenc.rotary_grid import AxialRotary
from posenc.vision import grid
from tests.explorables import Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "patches"
SIDE, PLACES = 6, grid(6, 6)
ROUNDED = 0.0051  # two digits are stored and shown


def rotary(queries: torch.Tensor) -> torch.Tensor:
    """Mean score of each row of queries with itself as the key, for each two patches: (36, 36)."""
    at_each = queries[:, None].expand(-1, SIDE**2, -1)
    turned, _ = AxialRotary(32).queries_and_keys(at_each, at_each, PLACES, PLACES)
    return (turned @ turned.mT).mean(dim=0)


def row_and_column() -> torch.Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        drawn = RowAndColumn(SIDE, SIDE, 512)
    return resolution.cosines(drawn.tokens(torch.zeros(SIDE**2, 512), PLACES)).detach()


def shown(held: Held) -> torch.Tensor:
    """The numbers in the cells: (36,)."""
    return torch.tensor([held.number(f"patch-{patch}") for patch in range(SIDE**2)])


@pytest.mark.slow
def test_the_maps_are_the_librarys(held: Held) -> None:
    ones = torch.ones(1, 32) / 32**0.5
    for name, expected in {
        "formula": resolution.cosines(sinusoids_2d(PLACES, 32)),
        "cross": row_and_column(),
        "rotary": rotary(ones),
    }.items():
        held.choose("map", name)
        for patch in (0, 15, 35):
            held.press(f"patch-{patch}")
            assert (shown(held) - expected[patch]).abs().max() < ROUNDED, name
            steps = (PLACES - PLACES[:, patch, None]).abs().sum(0)
            for words, group in (("near", steps == 1), ("far", steps > 1)):
                assert held.number(words) == pytest.approx(expected[patch][group].mean().item(), abs=2 * ROUNDED)


@pytest.mark.slow
def test_trained_tables_fall_off_where_digits_wander_and_follow_the_edge_where_they_stay(held: Held) -> None:
    edge = (PLACES == 0).any(0) | (PLACES == SIDE - 1).any(0)
    for name in ("wander", "stay"):
        held.choose("map", name)
        for patch in range(SIDE**2):
            held.press(f"patch-{patch}")
            assert shown(held)[patch] == 1
    held.choose("map", "stay")
    held.press("patch-0")
    assert shown(held)[edge].mean() > shown(held)[~edge].mean() + 0.2
    held.choose("map", "wander")
    near, far = [], []
    for patch in range(SIDE**2):
        held.press(f"patch-{patch}")
        near.append(held.number("near"))
        far.append(held.number("far"))
    assert sum(near) / len(near) > sum(far) / len(far) + 0.3, "on average"
    assert near[0] < far[0], "but not at every corner"


@pytest.mark.slow
def test_rotarys_spot_moves_along_with_the_patch(held: Held) -> None:
    held.choose("map", "rotary")
    held.press("patch-14")
    before = shown(held).view(SIDE, SIDE)
    held.press("patch-21")  # one down, one across
    assert torch.equal(shown(held).view(SIDE, SIDE)[1:, 1:], before[:-1, :-1])


@pytest.mark.slow
def test_one_stop_for_the_keyboard_and_arrows_that_stay_on_the_grid(held: Held) -> None:
    stops = held.root.locator("button[tabindex='0']")
    assert stops.count() == 1
    assert stops.get_attribute("aria-label").startswith("row 2, column 3: 1.00")
    stops.focus()
    for key, place in [
        ("ArrowUp", "row 1, column 3"),
        ("ArrowUp", "row 0, column 3"),
        ("ArrowUp", "row 0, column 3"),
        ("ArrowLeft", "row 0, column 2"),
        ("ArrowRight", "row 0, column 3"),
        ("ArrowRight", "row 0, column 4"),
        ("ArrowRight", "row 0, column 5"),
        ("ArrowRight", "row 0, column 5"),
        ("ArrowDown", "row 1, column 5"),
    ]:
        held.page.keyboard.press(key)
        assert held.page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(place)
        assert place in held.words()
    assert (stops.count(), held.root.locator("button[aria-pressed=true]").count()) == (1, 1)


def test_the_mean_over_random_queries_is_the_score_of_ones() -> None:
    torch.manual_seed(0)
    random = torch.nn.functional.normalize(torch.randn(4000, 32), dim=-1)
    ones = torch.ones(1, 32) / 32**0.5
    assert (rotary(random) - rotary(ones)).abs().max() < 0.02
