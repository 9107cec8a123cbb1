"""Explorables: each stands beside its paragraph, needs nothing from elsewhere, works by hand, keyboard and touch."""

import re

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from nbformat import NotebookNode
from playwright.sync_api import Browser

from posenc import explore, figures
from tests.explorables import PHONE, Held, browser, held, html_of, outputs, playwright
from tests.test_browser import SPILLS
from tools import explorables, files

__all__ = ["browser", "held", "playwright"]

EVERY = pytest.mark.parametrize("held", explore.NAMES, indirect=True)
SMALLEST_TARGET = 24  # CSS pixels, WCAG 2.2, 2.5.8
TOO_SMALL = """(all, least) => all.filter(e => e.checkVisibility())
    .filter(e => Math.min(e.getBoundingClientRect().width, e.getBoundingClientRect().height) < least)
    .map(e => e.outerHTML.slice(0, 80))"""
STATE = (
    "root => root.querySelector('.ex-said').innerHTML + [...root.querySelectorAll('svg, canvas')].map(s => s.outerHTML)"
)


def test_every_explorable_has_its_chapter() -> None:
    assert len(explore.NAMES) >= 7
    assert set(outputs()) == set(explore.NAMES)


@pytest.mark.parametrize("name", explore.NAMES)
def test_a_figure_stands_in_for_it_and_it_asks_for_nothing(name: str) -> None:
    stored = outputs()[name][1]
    assert "image/png" in stored[0].data, "first the figure, for GitHub and for paper"
    assert len(stored) == 2
    assert stored[1].data["text/plain"].startswith("Explorable: ")
    html = re.sub(r"http://www\.w3\.org/2000/svg", "", html_of(name))  # a name, not an address
    assert not re.search(r"https?://|@import|\bfetch\(|XMLHttpRequest|\bimport\(", html)
    assert len(html) < 60_000


def test_stored_explorables_have_the_present_style_and_script() -> None:
    for path in files.notebooks(folders=("chapters",)):
        notebook = files.read(path)
        assert explorables.refresh(notebook) == [], "run `python -m tools.explorables`"
    stored = next(o for o in outputs()["clocks"][1] if "text/html" in o.data)
    cell = NotebookNode(
        outputs=[NotebookNode(data={"text/html": stored.data["text/html"].replace("margin", "padding")})]
    )
    assert explorables.refresh(NotebookNode(cells=[cell])) == ["clocks"]
    assert cell.outputs[0].data["text/html"] == stored.data["text/html"]


@EVERY
@pytest.mark.slow
def test_it_is_good_on_a_phone_and_for_everybody(held: Held) -> None:
    assert held.root.is_visible()
    assert held.page.evaluate(SPILLS) == []
    held.page.set_viewport_size(PHONE)
    assert held.page.evaluate(SPILLS) == []
    tops = [held.root.locator(part).bounding_box()["y"] for part in (".ex-plots", ".ex-said", ".ex-controls")]
    assert tops == sorted(tops), "the sentence is seen with the picture"
    small = held.root.locator("button, label, input[type=range]").evaluate_all(TOO_SMALL, SMALLEST_TARGET)
    assert small == []
    violations = Axe().run(held.page).response["violations"]
    assert [(v["id"], v["nodes"][0]["html"][:120]) for v in violations if v["id"] not in {"page-has-heading-one"}] == []


@pytest.mark.slow
@pytest.mark.parametrize("held", ["biases"], indirect=True)
def test_controls_do_not_move_back_when_the_sentence_above_them_gets_shorter(held: Held) -> None:
    held.page.set_viewport_size(PHONE)
    held.choose("form", "fire")
    held.slide("tokens", 1200)
    slider, long = held.control("distance"), held.words()
    below_long = held.root.locator(".ex-controls").bounding_box()
    held.choose("form", "alibi")
    held.slide("tokens", 200)
    assert len(held.words()) < len(long) - 100
    assert held.root.locator(".ex-controls").bounding_box()["y"] == pytest.approx(below_long["y"], abs=0.1)
    held.page.set_viewport_size(PHONE | {"width": 900})
    slider.press("ArrowRight")
    assert held.root.locator(".ex-said").bounding_box()["height"] < 100, "a wider page needs less room"


@EVERY
@pytest.mark.slow
def test_every_control_changes_something_by_keyboard(held: Held) -> None:
    controls = held.root.locator("input, button, [tabindex='0']")
    count = controls.count()
    assert count
    for place in range(count):
        control = controls.nth(place)
        if not control.is_visible() or (control.get_attribute("type") == "radio" and control.is_checked()):
            continue
        before = held.root.evaluate(STATE)
        control.focus()
        kind = control.get_attribute("type") or ""
        for key in {"range": ["ArrowRight", "ArrowLeft"], "radio": ["Space"], "checkbox": ["Space"]}.get(
            kind, ["Enter"]
        ):
            held.page.keyboard.press(key)
            if held.root.evaluate(STATE) != before:
                break
        else:
            pytest.fail(f"nothing happens: {control.evaluate('e => e.outerHTML')[:160]}")


@pytest.mark.slow
def test_it_takes_the_place_of_its_figure_and_paper_keeps_the_figure(browser: Browser) -> None:
    page = browser.new_page()
    pixel = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
    page.set_content(f'<div class="cell_output"><img src="{pixel}" alt="the figure">{html_of("clocks")}</div>')
    assert page.locator(".explorable").is_visible()
    assert not page.get_by_alt_text("the figure").is_visible()
    page.emulate_media(media="print")
    assert not page.locator(".explorable").is_visible()
    assert page.get_by_alt_text("the figure").is_visible()
    page.close()


def test_what_cannot_be_shown_is_refused_before_anything_is_drawn() -> None:
    figure, _ = figures.new()
    with pytest.raises(ValueError, match="no explorable 'clock'; there are"):
        explore.show("clock", figure, "", "", {})
    with pytest.raises(TypeError, match="cannot be given a Generator"):
        explore.html("clocks", "words", {"random": torch.Generator()})


def test_data_cannot_end_the_script_that_holds_it() -> None:
    assert explore.html("clocks", "words", {"x": "</script>"}).count("</script>") == 2


def test_rounded_numbers_are_lists() -> None:
    assert explore.rounded(torch.tensor([[1 / 3, 2 / 3]]), 3) == [[0.333, 0.667]]
