"""Chapter 9's circles say what the library says, for every scheme."""

import math

import pytest
import torch
from torch import Tensor

from posenc import contexts
from posenc.absolute import frequencies
from tests.explorables import Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "frequencies"
HEAD_DIM = 16


def slowed(scheme: str, base: float, scale: float, trained: int) -> Tensor:
    """The library's frequencies. (8,)."""
    plain = frequencies(HEAD_DIM, base)
    return {
        "plain": lambda: plain,
        "pi": lambda: contexts.interpolated(plain, scale),
        "ntk": lambda: frequencies(HEAD_DIM, contexts.ntk_base(base, scale, HEAD_DIM)),
        "yarn": lambda: contexts.by_parts(plain, scale, trained),
        "llama": lambda: contexts.llama3(plain, scale, trained),
    }[scheme]()


def newest(plain: Tensor, changed: Tensor, trained: int, longer: int) -> Tensor:
    """The largest distance of an angle of the longer text from those of training, the shorter way round. (8,)."""
    shown = torch.arange(trained)[:, None] * plain  # (trained, 8)
    worst = torch.zeros(HEAD_DIM // 2).double()
    for part in torch.arange(longer).split(256):
        gap = part[:, None, None] * changed - shown  # (part, trained, 8)
        gap = ((gap + math.pi) % (2 * math.pi) - math.pi).abs()
        worst = torch.maximum(worst, gap.amin(dim=1).amax(dim=0))
    return worst


def near(text: str, value: float) -> bool:
    """Whether the text is the number, rounded to the digits that it shows."""
    digits = len(text.partition(".")[2])
    return abs(float(text) - value) <= 0.5001 * 10**-digits


def check(held: Held, scheme: str, base: float, scale: float, trained: int) -> list[int]:
    """Compare all that is shown; return the pairs that meet new angles."""
    held.choose("scheme", scheme)
    for name, value in (("trained", math.log2(trained)), ("scale", scale), ("base", math.log10(base))):
        held.slide(name, value)
    plain, changed = frequencies(HEAD_DIM, base), slowed(scheme, base, scale, trained)
    longer = round(scale * trained)
    before, after = contexts.turns(plain, trained), contexts.turns(changed, longer)
    far = newest(plain, changed, trained, longer)
    fresh = (far > plain * (1 + 1e-9)).nonzero().flatten().tolist()
    for k in range(HEAD_DIM // 2):
        left, right = held.text(f"turns-{k}").split(" → ")
        assert near(left, before[k].item())
        assert near(right, after[k].item())
        assert near(held.text(f"slowed-{k}").removeprefix("÷ "), (plain[k] / changed[k]).item())
        verdict = held.text(f"verdict-{k}")
        if k in fresh:
            assert near(verdict.removeprefix("▲ ").removesuffix(" rad"), far[k].item())
        else:
            assert verdict == "seen"
    assert held.number("longer") == longer
    assert held.number("round") == (before >= 1).sum()
    assert held.number("fresh") == len(fresh)
    price = (plain[0] / changed[0]).item()
    assert ("keeps its speed" in held.words()) == (price < 1.005)
    if price >= 1.005:
        assert near(held.text("price"), price)
    if scheme == "yarn":
        assert near(held.text("sharper"), contexts.yarn_factor(scale) ** 2)
    return fresh


@pytest.mark.slow
def test_every_number_is_the_librarys(held: Held) -> None:
    settings = [(10**4, 4, 64), (10**0.5, 8, 256), (10**6, 1, 16), (10**2.5, 1.5, 32)]
    for scheme in ("plain", "pi", "ntk", "yarn", "llama"):
        for base, scale, trained in settings:
            check(held, scheme, base, scale, trained)


@pytest.mark.slow
def test_what_each_scheme_buys_and_pays(held: Held) -> None:
    setting = {"base": 10_000, "scale": 4, "trained": 64}
    assert check(held, "plain", **setting) == [3, 4, 5, 6, 7]
    assert held.text("verdict-3") == "▲ 2.14 rad", "as the chapter prints"
    assert check(held, "pi", **setting) == []
    assert held.number("price") == 4
    assert check(held, "ntk", **setting) == [3, 4, 5, 6], "the slowest pair alone is safe"
    assert check(held, "yarn", **setting) == []
    assert held.number("price") > 2, "a ramp to 32 turns slows even pair 0 here"
    assert check(held, "llama", **setting) == []
    assert "keeps its speed" in held.words()


@pytest.mark.slow
def test_with_a_small_base_every_pair_gets_round_and_nothing_is_new(held: Held) -> None:
    assert check(held, "plain", 10**0.5, 8, 64) == []
    assert held.number("round") == 8
