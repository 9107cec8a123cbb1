"""An explorable as a chapter stores it, alone on an empty page, in the hand of a test."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from nbformat import NotebookNode
from playwright.sync_api import Browser, Locator, Page

from posenc import explore
from tests.test_browser import PHONE, browser, playwright
from tools import files

__all__ = ["PHONE", "Held", "browser", "held", "outputs", "playwright"]

ROOM = "<!doctype html><html lang=en><meta charset=utf-8><title>one explorable</title><body><main>{}</main>"


def outputs() -> dict[str, tuple[str, NotebookNode]]:
    """By name: the chapter that shows it, and the cell's outputs as they are stored."""
    found = {}
    for path in files.notebooks(folders=("chapters",)):
        for cell in files.read(path).cells:
            for output in cell.get("outputs", []):
                html = output.get("data", {}).get("text/html", "")
                if named := re.search(r'data-explorable="(\w+)"', html):
                    found[named[1]] = (files.name(path), cell.outputs)
    return found


def html_of(name: str) -> str:
    return next(o.data["text/html"] for o in outputs()[name][1] if "text/html" in o.get("data", {}))


@dataclass
class Held:
    """One explorable in a browser. `errors` is what its script complained of."""

    page: Page
    errors: list[str] = field(default_factory=list)

    @property
    def root(self) -> Locator:
        return self.page.locator(".explorable")

    def control(self, name: str) -> Locator:
        """The slider, button or first option of this name."""
        return self.root.locator(f"[data-name={name}]").first

    def slide(self, name: str, value: float) -> None:
        """Put a slider where a hand would put it. Raises AssertionError if it does not go there."""
        self.control(name).evaluate(
            "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            value,
        )
        at = float(self.control(name).input_value())
        assert at == pytest.approx(value), f"{name} stops at {at}"

    def choose(self, name: str, value: str) -> None:
        self.root.locator(f"input[data-name={name}][value='{value}']").check()

    def press(self, name: str) -> None:
        self.control(name).click()

    def text(self, name: str) -> str:
        return self.root.locator(f"[data-name={name}]").first.inner_text()

    def number(self, name: str) -> float:
        """A number that the reader sees."""
        return float(self.text(name).replace("−", "-").replace(",", ""))

    def words(self) -> str:
        """The sentence below."""
        return self.root.locator(".ex-said").inner_text()


@pytest.fixture
def held(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Held]:
    """The explorable that the test's module (or its parameter) names: NAME = "clocks"."""
    name = getattr(request, "param", None) or request.module.NAME
    assert name in explore.NAMES
    page = browser.new_page(viewport={"width": 900, "height": 900}, offline=True)
    hand = Held(page)
    page.on("pageerror", lambda error: hand.errors.append(str(error)))
    page.on("console", lambda m: hand.errors.append(m.text) if m.type in {"error", "warning"} else None)
    page.set_content(ROOM.format(html_of(name)))
    yield hand
    page.close()
    assert hand.errors == []
