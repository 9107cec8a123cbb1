"""Reading on a slow phone: what the page's own making decides is held to the budget, times to its double.

`make comfort` measures every page. Here it is one of each kind, once: times depend on what else the machine does.
"""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser
from test_browser import browser, playwright  # noqa: F401  (fixtures)

from tools import comfort
from tools.comfort import Comfort, Phone

pytestmark = pytest.mark.slow

PAGES = ["book/intro", "book/notation", "chapters/04_sinusoids", "exercises/06_relative_offsets"]
BUSY = 5  # an answer may take so many times its budget of work while other tests run
GOOD = Comfort(paint_ms=900, shift=0.0, delay_ms=40, work_ms=30, turned_ms=90, weight=300_000)

JUMPY = f"""<!doctype html><meta name="viewport" content="width=device-width">
<h1>Jumpy</h1><p id="late"></p><p>{"Read me. " * 80}</p>
<button class="theme-switch-button" onclick="busy()">dark</button><button class="search-button">search</button>
<script>
window.MathJax = {{startup: {{promise: new Promise(done => setTimeout(done, 1500))}}}};
const busy = () => {{
    const end = performance.now() + 500;
    while (performance.now() < end);
    document.documentElement.dataset.theme = "dark";
    late.textContent = "dark";
}};
const grow = () => {{ late.style.height = "400px"; }};
new PerformanceObserver(() => setTimeout(grow, 900)).observe({{type: "paint", buffered: true}});
</script>"""


@pytest.mark.parametrize("address", PAGES)
def test_page_is_calm_and_light_and_soon_there(site: Path, browser: Browser, address: str) -> None:  # noqa: F811
    with comfort.served(site) as base:
        seen = comfort.visit(browser, f"{base}{address}.html")
    assert seen.shift <= comfort.SHIFT_LIMIT, seen.shifted
    assert 20_000 < seen.weight <= comfort.WEIGHT_LIMIT
    assert 0 < seen.paint_ms <= 2 * comfort.PAINT_LIMIT_MS, seen.painted
    assert 0 < seen.work_ms <= BUSY * comfort.DELAY_LIMIT_MS
    assert 0 < seen.turned_ms <= BUSY * comfort.TURN_LIMIT_MS


def test_a_page_that_jumps_and_dawdles_is_noticed(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    (tmp_path / "jumpy.html").write_text(JUMPY, encoding="utf-8")
    with comfort.served(tmp_path) as base:
        seen = comfort.visit(browser, f"{base}jumpy.html")
    assert seen.shift > comfort.SHIFT_LIMIT
    assert seen.delay_ms > 400
    assert seen.work_ms > comfort.DELAY_LIMIT_MS
    assert {complaint.split()[0] for complaint in seen.complaints()} == {"jumps", "answers", "turns"}


def test_each_limit_is_said_when_it_is_passed() -> None:
    assert GOOD.complaints() == []
    worse = {"paint_ms": 1600, "shift": 0.2, "delay_ms": 150, "turned_ms": 250, "weight": 2_000_000}
    for name, value in worse.items():
        assert len(replace(GOOD, **{name: value}).complaints()) == 1, name


def test_an_address_without_a_page_is_an_error(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    with comfort.served(tmp_path) as base, pytest.raises(FileNotFoundError, match=r"no such page: .*absent\.html"):
        comfort.visit(browser, f"{base}absent.html")


@pytest.mark.parametrize(
    ("writing", "copying", "fair"), [(300, 700, True), (299, 900, False), (300, 699, False), (450, 550, True)]
)
def test_both_halves_of_the_index_decide_which_phone_is_fair(writing: float, copying: float, fair: bool) -> None:
    assert Phone(writing, copying).is_fair == fair


@pytest.mark.parametrize(
    ("writing", "answers", "slowest"),
    [
        ([400, 200, 400, 400], [10, 900, 20, 30], 400),  # the second visit does not count
        ([*range(100, 112)], [10] * 9 + [900] * 3, 109),  # never quiet: the fastest, and the table says so
    ],
)
def test_a_visit_on_a_busy_machine_is_made_again(
    monkeypatch: pytest.MonkeyPatch, writing: list[float], answers: list[float], slowest: float
) -> None:
    speeds = iter([Phone(each, 800) for now in writing for each in (now + 50, now)])
    visits = iter([replace(GOOD, delay_ms=answer) for answer in answers])
    monkeypatch.setattr(comfort, "speedometer", lambda _: nullcontext(lambda: next(speeds)))
    monkeypatch.setattr(comfort, "visit", lambda *_: next(visits))
    seen, phone = comfort.measure(browser=None, address="", visits=3)
    assert phone == Phone(slowest, 800)
    assert next(visits, None) is None
    assert seen.delay_ms == (20 if slowest == 400 else 900)


def test_a_processor_slowed_down_has_a_fourth_of_the_index(browser: Browser) -> None:  # noqa: F811
    """About: what else the machine does makes both smaller, so each is held to the best or the worst of the other."""
    page = browser.new_page()
    page.evaluate(comfort.INDEX)
    with comfort.speedometer(browser) as speed:
        pairs = [(Phone(*page.evaluate(comfort.INDEX)).index, speed().index) for _ in range(3)]
    page.close()
    fast, slow = zip(*pairs, strict=True)
    assert min(slow) < 0.5 * max(fast)
    assert max(slow) > 0.1 * min(fast)


def test_the_site_is_served_compressed(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("word " * 1000, encoding="utf-8")
    with comfort.served(tmp_path) as base, urlopen(Request(f"{base}page.html")) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len(answer.read()) < 200
