"""Chapter 9's stack of layers sees what products of the library's masks allow."""

import pytest
import torch

from posenc.contexts import Layer, reach, repeated
from posenc.masks import causal, chunked, sliding_window
from tests.explorables import Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "reach"
TOKENS = 24


def stack(kind: str, size: int, every: int, depth: int) -> list[Layer]:
    local = Layer(chunk=size) if kind in {"chunks", "llama"} else Layer(window=size)
    period = {"full": [Layer()], "windows": [local], "chunks": [local]}.get(
        kind, [local] * (every - 1) + [Layer(rope=kind == "gemma")]
    )
    return repeated(period, depth)


def seen_by(layers: list[Layer], token: int) -> list[int]:
    """The tokens on which a row depends: a path through every layer's mask, by products of boolean matrices."""
    at = torch.arange(TOKENS)
    paths = torch.eye(TOKENS)
    for layer in layers:
        mask = causal(at, at)
        if layer.window is not None:
            mask = sliding_window(at, at, layer.window)
        elif layer.chunk is not None:
            mask = chunked(at, at, layer.chunk)
        paths = (mask.float() @ paths > 0).float()
    return paths[token].nonzero().flatten().tolist()


@pytest.mark.slow
def test_what_a_row_sees_is_what_the_masks_allow(held: Held) -> None:
    for kind, token, depth, size, every in [
        ("windows", 21, 4, 4, 4),
        ("windows", 23, 6, 1, 4),
        ("windows", 5, 6, 12, 4),
        ("chunks", 21, 1, 4, 4),
        ("chunks", 21, 6, 5, 4),
        ("chunks", 8, 3, 8, 4),
        ("full", 0, 1, 4, 4),
        ("full", 23, 6, 4, 4),
        ("gemma", 23, 1, 3, 2),
        ("gemma", 23, 5, 3, 6),
        ("gemma", 23, 6, 3, 6),
        ("llama", 21, 3, 4, 4),
        ("llama", 21, 4, 4, 4),
        ("llama", 17, 6, 7, 3),
    ]:
        held.choose("kind", kind)
        settings = {"token": token, "layers": depth}
        settings |= {} if kind == "full" else {"size": size}
        for name, value in (settings | ({"every": every} if kind in {"gemma", "llama"} else {})).items():
            held.slide(name, value)
        layers = stack(kind, size, every, depth)
        seen = seen_by(layers, token)
        assert held.number("seen") == len(seen), (kind, token, depth)
        assert held.number("earliest") == seen[0] == reach(layers, token)[-1]
        assert held.number("back") == token - seen[0]


@pytest.mark.slow
def test_windows_add_up_chunks_do_not_and_one_full_layer_opens_the_past(held: Held) -> None:
    held.slide("size", 4)
    for depth in range(1, 7):
        held.slide("layers", depth)
        assert held.number("back") == 3 * depth
    assert "Windows add up: 6 × 3 = 18 back." in held.words()
    held.choose("kind", "chunks")
    for depth in range(1, 7):
        held.slide("layers", depth)
        assert held.number("earliest") == 20
    assert "No layer crosses the edge before token 20." in held.words()
    held.choose("kind", "llama")
    held.slide("layers", 3)
    assert held.number("earliest") == 20
    assert "No layer is full yet: the first will be layer 4." in held.words()
    held.slide("layers", 4)
    assert held.number("earliest") == 0


@pytest.mark.slow
def test_a_token_in_the_picture_can_be_taken_by_hand(held: Held) -> None:
    held.slide("layers", 4)
    targets = held.root.locator("svg").first.locator("rect[cursor=pointer]")
    assert targets.count() == 5 * TOKENS
    targets.nth(4 * TOKENS + 13).click()
    assert held.control("token").input_value() == "13"
    assert held.number("earliest") == 1
