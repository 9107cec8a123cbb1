"""Chapter 8's two clocks say what the library says."""

import pytest
import torch

from posenc.rotary import rotate
from tests.explorables import Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "clocks"
QUERY, KEY = torch.tensor([[1.0, 1.5]]).double(), torch.tensor([[2.0, -0.7]]).double()


def score(query: int, key: int, speed: float) -> float:
    """The library turns the first pair by one radian a position: positions times the speed."""
    turned = rotate(QUERY, torch.tensor([query * speed]).double()) @ rotate(KEY, torch.tensor([key * speed]).double()).T
    return turned.item()


@pytest.mark.slow
def test_the_score_is_the_librarys(held: Held) -> None:
    for query, key, speed in [(0, 0, 0.3), (2, 5, 0.3), (20, 3, 0.3), (24, 24, 1.0), (7, 0, 0.05), (0, 24, 0.0)]:
        held.slide("speed", speed)
        held.slide("query", query)
        held.slide("key", key)
        assert held.number("score") == pytest.approx(score(query, key, speed), abs=6e-4)
        assert held.number("offset") == key - query


@pytest.mark.slow
def test_both_moved_nothing_happens_one_moved_the_score_changes(held: Held) -> None:
    before = held.number("score")
    for _ in range(4):
        held.press("on")
    assert (held.number("score"), held.control("query").input_value()) == (before, "6")
    held.slide("key", 10)
    assert abs(held.number("score") - before) > 0.1


@pytest.mark.slow
def test_at_the_end_it_says_so(held: Held) -> None:
    held.slide("query", 0)
    held.press("back")
    assert "positions go from 0 to 24" in held.words()
    assert held.number("score") == pytest.approx(score(0, 5, 0.3), abs=6e-4)
