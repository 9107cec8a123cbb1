"""The quiz in a real browser: the first choice counts, a word and a sign judge it, and paper asks before it answers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect
from test_browser import DESK, PHONE, SPILLS, at_rest, browser, lit, playwright  # noqa: F401  (two are fixtures)

from tools import files, quiz, site_toc

CHAPTER = "chapters/04_sinusoids"
ASKED = quiz.questions(files.read(files.ROOT / f"{CHAPTER}.ipynb"))
NAMED_HEADINGS = """() => [...document.querySelectorAll("#quiz details em a")]
    .map(link => document.querySelector(`${link.getAttribute("href")} > :is(h2, h3)`).textContent)"""
RIGHT = [[choice.is_right for choice in question.choices].index(True) for question in ASKED]


def test_quiz_loads_in_chapters_alone(site: Path) -> None:
    for page in site_toc.pages():
        html = (site / f"{page}.html").read_text(encoding="utf-8")
        loaded = len(re.findall(r"_static/quiz\.(?:js|css)", html))
        assert loaded == (2 if page.startswith("chapters/") else 0), page


@pytest.fixture
def tab(browser: Browser, base_url: str) -> Iterator[Page]:  # noqa: F811
    """A new reader's browser, at the chapter. An error of any script is a failure."""
    context = browser.new_context(viewport=DESK, base_url=base_url, color_scheme="light")
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    tab = context.new_page()
    tab.goto(f"{CHAPTER}.html")
    tab.add_style_tag(content="* { content-visibility: visible !important }")  # as when a reader has come to it
    yield tab
    context.close()
    assert errors == []


def choice(tab: Page, question: int, place: int) -> Locator:
    return tab.locator(".quiz-question").nth(question).locator("summary").nth(place)


def barriers(tab: Page) -> list[str]:
    """What axe finds in the quiz alone."""
    return [each["id"] for each in Axe().run(tab, context="#quiz").response["violations"]]


@pytest.mark.slow
def test_a_reader_takes_the_quiz(tab: Page) -> None:
    score, again = tab.locator("#quiz [role=status]"), tab.get_by_role("button", name="Try again")
    expect(tab.get_by_role("group", name=re.compile(r"^1\. "))).to_be_visible()
    expect(score).to_be_empty()
    expect(again).to_be_hidden()

    tab.evaluate("window.dispatchEvent(new Event('beforeprint')); window.dispatchEvent(new Event('afterprint'))")
    expect(score).to_be_empty()  # what opens without the reader is no answer

    wrong = (RIGHT[0] + 1) % 4
    choice(tab, 0, wrong).click()
    expect(choice(tab, 0, wrong)).to_contain_text("✗ no")
    expect(score).to_have_text("Question 1: no. 4 to go.")
    choice(tab, 0, RIGHT[0]).click()
    expect(choice(tab, 0, RIGHT[0])).to_contain_text("✓ right")
    expect(score).to_have_text("Question 1: no. 4 to go.")  # only the first one counts
    choice(tab, 0, wrong).click()
    choice(tab, 0, wrong).click()
    expect(choice(tab, 0, wrong).locator(".quiz-mark")).to_have_count(1)  # folded and opened again

    for question in (1, 2, 3, 4):
        choice(tab, question, RIGHT[question]).focus()
        tab.keyboard.press("Enter" if question % 2 else "Space")
    expect(score).to_have_text("Question 5: right. 4 of 5 at the first try.")
    tab.evaluate("document.querySelectorAll('#quiz details').forEach(details => details.open = true)")
    named = tab.locator("#quiz details em a")
    assert named.count() > 0
    headings = tab.evaluate(NAMED_HEADINGS)
    assert headings == [f"{name}#" for name in named.all_text_contents()]
    assert barriers(tab) == []
    assert barriers(lit(tab, "dark", PHONE)) == tab.evaluate(SPILLS) == []

    again.focus()
    tab.keyboard.press("Enter")
    expect(again).to_be_hidden()
    expect(score).to_be_empty()
    expect(tab.locator("#quiz .quiz-mark, #quiz details[open]")).to_have_count(0)
    expect(choice(tab, 0, 0)).to_be_focused()
    for question in range(5):
        choice(tab, question, RIGHT[question]).click()
    expect(score).to_have_text("Question 5: right. 5 of 5 at the first try.")
    assert "quiz" not in tab.evaluate("JSON.stringify(localStorage)")


@pytest.mark.slow
def test_paper_asks_all_before_it_answers(tab: Page) -> None:
    tab.emulate_media(media="print")
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(tab.locator("#quiz ol.quiz-paper li")).to_have_count(sum(len(question.choices) for question in ASKED))
    top = "boxes => boxes.map(box => box.getBoundingClientRect().top)"
    lists, answers = (tab.locator(f"#quiz {what}").evaluate_all(top) for what in (".quiz-paper", "details[open]"))
    assert len(answers) == 20
    assert answers == sorted(answers)
    assert lists == sorted(lists)
    assert lists[-1] < answers[0]
    expect(tab.locator("#quiz summary").nth(RIGHT[0])).to_have_text(re.compile(rf"^1 {'ABCD'[RIGHT[0]]}"))
    expect(tab.locator("#quiz .quiz-end")).to_be_hidden()


@pytest.mark.slow
def test_the_quiz_is_there_without_scripts(browser: Browser, base_url: str) -> None:  # noqa: F811
    tab = browser.new_page(java_script_enabled=False, base_url=base_url)
    tab.goto(f"{CHAPTER}.html")
    folded = tab.locator("#quiz details")
    expect(folded).to_have_count(20)
    expect(folded.first.locator("p")).to_be_hidden()
    at_rest(folded.first.locator("summary")).click()
    expect(folded.first.locator("p")).to_be_visible()
    tab.close()
