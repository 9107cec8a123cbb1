"""The benchmark compares like with like: each pair agrees, a wrong one is refused, and the page says what it must."""

import pytest
import torch

import bench.__main__ as bench
from posenc import costs

pytestmark = pytest.mark.filterwarnings("ignore")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    return list(bench.pairs(CPU))


def test_every_pair_agrees(found):
    assert len(found) >= 12
    with torch.no_grad():
        for pair in found:
            assert bench.difference(pair.ours().float(), pair.theirs().float()) <= pair.tolerance, pair.what


def test_a_pair_that_disagrees_is_not_timed():
    pair = bench.Pair("ones", "zeros", lambda: torch.ones(3), lambda: torch.zeros(3))
    with pytest.raises(AssertionError, match="ones: ours and zeros differ by 1"):
        bench.ratios(pair)


def test_ratios_tell_slow_from_fast():
    x = torch.zeros(100_000)
    slow = bench.Pair("x", "x", lambda: (x + 1 - 1) * 1 + x + x, lambda: x + x)
    assert bench.ratios(slow, rounds=3, seconds=0.01)[1] > 1.2
    assert costs.slope([1, 2], [1, 1]) == 0


def test_the_page_names_device_versions_date_and_every_ratio():
    pair = bench.Pair("a thing", "a library, its_function", lambda: None, lambda: None)
    text = bench.page([(pair, [0.5, 0.75, 1.0])], CPU)
    assert "| a thing | a library, its_function | 0.75 (0.50 to 1.00) |" in text
    assert bench.processor() in text
    assert all(name in text for name in bench.LIBRARIES)
    assert "never by hand" in text
