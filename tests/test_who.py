"""Who uses what: chapter 13's table as a page that sorts."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from test_browser import PHONE, SPILLS, barriers, browser, playwright  # noqa: F401  (two are fixtures)

from posenc.production import MODELS
from tools import who

PAGE = "book/who_uses_what.html"
YEARS = [str(row.year) for row in who.rows()]


def test_every_model_has_a_line_and_a_note_and_nothing_is_left_open() -> None:
    table, notes = who.page().split("## Settings that mislead")
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| [")]
    assert [re.match(r"\| \[(.*?)\]", cells[0])[1] for cells in lines] == [entry.name for entry in MODELS]
    assert {len(cells) for cells in lines} == {len(who.HEAD)}
    assert all(cell.strip("| ") for cells in lines for cell in cells)
    assert re.findall(r"(?m)^\* \*\*(.*?)\.\*\*", notes) == [entry.name for entry in MODELS]
    assert notes.count("(copy)") == sum(entry.second_hand for entry in MODELS)


def test_the_script_is_loaded_here_alone(site: Path) -> None:
    loads = {path.stem for path in site.glob("*/*.html") if "/sort.js" in path.read_text(encoding="utf-8")}
    assert loads == {"who_uses_what"}


@pytest.fixture
def tab(browser: Browser, base_url: str) -> Iterator[Page]:  # noqa: F811
    context = browser.new_context(viewport=PHONE, base_url=base_url)
    yield context.new_page()
    context.close()


def column(tab: Page, number: int) -> list[str]:
    return tab.locator(f"article tbody tr td:nth-child({number})").all_inner_texts()


@pytest.mark.slow
def test_a_column_sorts_by_mouse_and_by_keyboard(tab: Page) -> None:
    tab.goto(PAGE)
    assert column(tab, 2) == YEARS
    tab.get_by_role("button", name="year").click()
    assert column(tab, 2) == sorted(YEARS)
    assert tab.get_by_role("columnheader", name="year").get_attribute("aria-sort") == "ascending"
    tab.get_by_role("button", name="year").press("Enter")
    assert column(tab, 2) == sorted(YEARS, reverse=True)
    tab.get_by_role("button", name="layers").click()  # by number: 12 stands before 6 only as a word
    layers = [int(text.split(":")[0]) for text in column(tab, 8)]
    assert layers == sorted(layers)
    assert tab.get_by_role("columnheader", name="year").get_attribute("aria-sort") is None
    tab.get_by_role("button", name="base").click()  # those without a base stand last
    bases = column(tab, 5)
    assert bases[0] == "100"
    assert bases[-1] == "–"


@pytest.mark.slow
def test_it_can_be_read_by_everybody_and_on_a_phone(tab: Page) -> None:
    tab.goto(PAGE)
    tab.get_by_role("button", name="model").click()
    assert barriers(tab) == []
    assert tab.evaluate(SPILLS) == []
