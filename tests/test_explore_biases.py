"""Chapter 7's family of biases says what the library says."""

import math

import pytest
import torch
from torch import Tensor

from posenc.relative import ALiBi, Fire, Gaussian, KerpleLog, T5Bias, bucket_starts, keys_that_hold, t5_bucket
from tests.explorables import Held, browser, held, playwright

__all__ = ["browser", "held", "playwright"]

NAME = "biases"
SHOWN, LONGEST = 200, 1200


def biases(form: str, n: int, setting: tuple[float, ...] = ()) -> Tensor:
    """What the library adds to the scores of the last of n queries, by distance: (n,)."""
    at, empty = torch.arange(n), torch.zeros(8, 1, n, dtype=torch.float64)
    with torch.no_grad():
        if form == "window":
            return torch.where(at < setting[0], 0.0, -torch.inf)
        encoding = {"alibi": ALiBi, "kerple": KerpleLog}.get(form, lambda heads: None)(8)
        if form == "t5":
            encoding = T5Bias(8, *map(int, setting), bidirectional=False).double()
            encoding.table.copy_(-torch.log1p(torch.tensor(bucket_starts(*map(int, setting))))[:, None])
        elif form == "kerple":
            encoding.double().log_a.fill_(math.log(setting[0]))
        elif form == "gaussian":
            encoding = Gaussian(8, width=setting[0]).double()
        elif form == "fire":
            encoding = Fire(8, threshold=64.0).double()
            encoding.network = torch.nn.Linear(1, 8, bias=False).double()
            encoding.network.weight.fill_(-6.0)
        head = int(setting[0]) - 1 if form == "alibi" else 0
        return encoding.scores(empty, empty, empty, at[-1:], at)[head, 0].flip(-1)


SETTINGS = [  # form, its sliders, distance, keys in the text
    ("alibi", {"head": 4}, 50, 200),
    ("alibi", {"head": 1}, 0, 1200),
    ("alibi", {"head": 8}, 199, 700),
    ("t5", {"buckets": 16, "limit": 128}, 50, 200),
    ("t5", {"buckets": 9, "limit": 128}, 16, 1200),
    ("t5", {"buckets": 32, "limit": 20}, 19, 300),  # some buckets are empty
    ("t5", {"buckets": 4, "limit": 190}, 199, 1200),
    ("kerple", {"steep": 1}, 50, 200),
    ("kerple", {"steep": 4}, 3, 1200),
    ("gaussian", {"wide": 24}, 50, 200),
    ("gaussian", {"wide": 80}, 120, 1200),
    ("window", {"cut": 60}, 59, 200),
    ("window", {"cut": 60}, 60, 1200),
    ("window", {"cut": 1}, 0, 200),
    ("alibi", {"head": 1}, 100, 200),  # next to nothing, and not zero
    ("gaussian", {"wide": 4}, 199, 200),  # so little that the machine holds a zero
    ("fire", {}, 50, 200),
    ("fire", {}, 199, 1200),
]


@pytest.mark.slow
def test_bias_weight_and_share_are_the_librarys(held: Held) -> None:
    for form, sliders, distance, n in SETTINGS:
        held.choose("form", form)
        for name, value in (sliders | {"distance": distance, "tokens": n}).items():
            held.slide(name, value)
        bias = biases(form, n, tuple(sliders.values()))
        weights = bias.softmax(-1)
        if bias[distance].isinf():
            assert (held.text("bias"), held.text("weight")) == ("−∞", "0")
        else:
            assert held.number("bias") == pytest.approx(bias[distance].item(), abs=6e-4)
            if weights[distance] < 4.9e-5:
                assert held.text("weight") == "< 0.0001"
            else:
                assert held.number("weight") == pytest.approx(weights[distance].item(), abs=6e-5)
        assert held.number("share") == pytest.approx(weights[: distance + 1].sum().item(), abs=6e-4)
        assert held.number("holding") == keys_that_hold(weights.flip(-1)[None]).item()


@pytest.mark.slow
def test_a_bucket_and_who_shares_it_are_the_librarys(held: Held) -> None:
    held.choose("form", "t5")
    for buckets, limit in [(16, 128), (9, 128), (32, 20), (4, 20), (32, 190)]:
        held.slide("buckets", buckets)
        held.slide("limit", limit)
        of = t5_bucket(-torch.arange(SHOWN), buckets, limit, bidirectional=False)
        for distance in (0, 7, 8, 16, 63, 64, 199):
            held.slide("distance", distance)
            sharing = (of == of[distance]).nonzero().flatten().tolist()
            assert held.number("bucket") == of[distance]
            if len(sharing) == 1:
                assert "a bucket of its own" in held.words()
                continue
            assert held.number("from") == sharing[0]
            if of[distance] == buckets - 1:
                assert "and more back" in held.words()
            else:
                assert held.number("to") == sharing[-1]


@pytest.mark.slow
def test_in_a_longer_text_the_staircase_loses_near_weight_and_a_steep_line_does_not(held: Held) -> None:
    left = {}
    held.slide("distance", 5)
    for form in ("alibi", "t5"):
        held.choose("form", form)
        held.slide("tokens", SHOWN)
        before = held.number("weight")
        held.slide("tokens", LONGEST)
        assert held.number("before") == before
        left[form] = held.number("weight") / before
    assert left["alibi"] > 0.99
    assert left["t5"] < 0.5


@pytest.mark.slow
def test_only_fire_asks_where_the_query_stands(held: Held) -> None:
    held.choose("form", "fire")
    elsewhere, here = held.number("elsewhere"), held.number("bias")
    held.slide("tokens", LONGEST)
    assert (held.number("bias"), held.number("elsewhere")) == (elsewhere, here)
    held.choose("form", "kerple")
    there = held.number("bias")
    held.slide("tokens", SHOWN)
    assert held.number("bias") == there
