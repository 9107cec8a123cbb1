"""What the search lists first: the chapter or page of a concept, before exercises, solutions and generated pages."""

import re

import pytest
from playwright.sync_api import Browser
from test_browser import browser, playwright  # noqa: F401  (fixtures)

pytestmark = pytest.mark.slow

ASKED = {
    "rope": "chapters/08_rotary",
    "rotary": "chapters/08_rotary",
    "alibi": "chapters/07_biases",
    "sinusoidal": "chapters/04_sinusoids",
    "causal mask": "chapters/03_the_mask_door",
    "kv cache": "chapters/08_rotary",
    "yarn": "chapters/09_longer_contexts",
    "ntk": "chapters/09_longer_contexts",
    "t5 bias": "chapters/07_biases",
    "permutation equivariance": "chapters/01_a_set_not_a_sequence",
    "swin": "chapters/11_relative_and_rotary",
    "vit position": "chapters/10_grids",
    "flash attention": "chapters/07_biases",
    "nope": "chapters/03_the_mask_door",
    "extrapolation": "chapters/12_measured",
    "glossary": "book/glossary",
    "learned positions": "chapters/05_learned_tables",
    "shaw": "chapters/06_relative_offsets",
    "transformer-xl": "chapters/06_relative_offsets",
    "context length": "chapters/09_longer_contexts",
    "m-rope": "chapters/11_relative_and_rotary",
    "sliding window": "chapters/03_the_mask_door",
    "interview": "book/interview",
    "grader": "book/teaching",
    "colab": "book/how_to_use",
    # half typed, in other words, and with a capital
    "rota": "chapters/08_rotary",
    "positional encoding": "chapters/01_a_set_not_a_sequence",
    "2d rope": "chapters/11_relative_and_rotary",
    "Length generalization": "chapters/12_measured",
    "exercises": "book/how_to_use",
}
# What the search page lists for each question, best first: [page, anchor]. Sphinx lists the last of its results first.
LISTED = """asked => asked.map(words => Search._performSearch(...Search._parseQuery(words)).reverse()
    .map(([page, , anchor]) => [page, anchor]))"""
KINDS = (r"chapters/", r"book/(?!claims|red_flags|sixty_seconds|interview|who_uses_what)", r"book/", r"exercises/", r"")


def test_the_concept_comes_first(browser: Browser, base_url: str) -> None:  # noqa: F811
    tab = browser.new_page(base_url=base_url)
    tab.goto("search.html")
    tab.wait_for_function("() => Search.hasIndex()")
    questions = [*ASKED, "dropped tokens"]
    listed = dict(zip(questions, tab.evaluate(LISTED, questions), strict=True))
    tab.close()
    first = {asked: listed[asked][0][0] for asked in ASKED}
    assert first == ASKED
    # A term leads to the section that shows it, and its entry in the glossary is near.
    assert listed["yarn"][0][1] == "#yarn-twice"
    assert ["book/glossary", "#term-yarn"] in listed["yarn"][:3]
    # Words of no term are found in the text: chapters first, solutions last.
    kinds = [kind_of(page) for page, _ in listed["dropped tokens"]]
    assert kinds == sorted(kinds)
    assert {0, 3, 4} <= set(kinds)


def kind_of(page: str) -> int:
    return next(number for number, kind in enumerate(KINDS) if re.match(kind, page))
