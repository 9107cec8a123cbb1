"""The pages made from the chapters are what the chapters say, and each of their links leads to the very cell."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import sync_playwright

from tools import browser as chromium
from tools import files, pages, prose, site_toc
from tools.pages import Chapter, PagesError

BOOK = pages.chapters()
CLAIMS = pages.claims((files.ROOT / "book/claims.toml").read_text(encoding="utf-8"))
MADE = (
    "book/claims",
    "book/red_flags",
    "book/sixty_seconds",
    "book/interview",
    "book/who_uses_what",
    "book/glossary",
    "book/notation",
    "book/status",
)


# ---- the pages of the book


def test_stored_pages_are_what_the_chapters_make() -> None:
    made = dict(pages.pages())
    assert [f"{page}.md" for page in MADE] == list(made)
    for name, text in made.items():
        assert (files.ROOT / name).read_text(encoding="utf-8") == text, f"{name} is out of date: run `make pages`"


def test_pages_are_in_the_table_of_contents() -> None:
    assert set(MADE) <= set(site_toc.pages())


def test_claims_are_numbered_without_a_gap_and_each_has_a_cell() -> None:
    assert [claim.name for claim in CLAIMS] == [f"C{number:02}" for number in range(1, len(CLAIMS) + 1)]
    assert len(CLAIMS) >= 44
    assert all(each.cells for each in pages.settle(CLAIMS, BOOK))


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_claim_uses_every_number_that_it_finds_and_types_none(claim: pages.Claim) -> None:
    used = {int(place) for place in re.findall(r"\{(\d+)\}", claim.number)}
    assert used == set(range(len(claim.find)))
    typed = re.sub(
        r"\$.*?\$|\[.*?\]\(.*?\)|(?:Llama|Qwen|Mistral 7B v)\s?[\d.]+", "", claim.said + claim.fact + claim.number
    )
    assert not re.findall(r"\d\.\d|\de[-+]\d|\d\s?%", typed), "a measured number is read from a cell, not typed"
    assert claim.said[0].isupper() or claim.said[0] == "−"
    assert claim.fact.rstrip(")").endswith(".")
    assert not claim.number.endswith(".")


def test_every_red_flag_stands_once_on_its_page() -> None:
    tagged = [cell.id for chapter in BOOK for cell in chapter.cells if "red-flag" in cell.tags]
    linked = re.findall(r"#cell-(\w+)\)", (files.ROOT / "book/red_flags.md").read_text(encoding="utf-8"))
    assert linked == tagged
    assert linked


def test_every_question_of_an_interviewer_has_an_answer() -> None:
    asked = pages.questions(BOOK)
    assert len(asked) == sum(prose.folded_answers(chapter.text("If an interviewer asks")) for chapter in BOOK)
    assert all(len(each.question) > 10 and len(each.answer) > 30 for each in asked)
    assert len({each.question for each in asked}) == len(asked)
    assert {each.chapter for each in asked} == {chapter.page for chapter in BOOK}


@pytest.mark.parametrize("chapter", BOOK, ids=lambda chapter: chapter.page)
def test_a_recap_is_five_points(chapter: Chapter) -> None:
    assert len(re.findall(r"(?m)^\* ", chapter.text("Sixty seconds"))) == 5


# ---- a small book, and one mutation for each way of being wrong

ENTRY = """
[C01]
said = "Eight is enough."
verdict = "wrong"
fact = "Nine are needed."
find = ['^needed: (\\d+)']
number = "needed are {0}"
"""


FOLDED = "<details>\n<summary>How\nmany?</summary>\n\nNine: $9$.\n\n</details>"


def printing(text: str, *tags: str, **metadata: object) -> NotebookNode:
    output = new_output("stream", name="stdout", text=text)
    return new_code_cell("print(…)", outputs=[output], metadata={"tags": list(tags), **metadata})


def small(*more: NotebookNode) -> Chapter:
    cells = [
        new_markdown_cell("# 1 · Numbers\n\nHow many?"),
        new_markdown_cell("## Counting\n\nCount:"),
        printing("first line\nneeded: 9\n", "claim:C01"),
        new_markdown_cell("Then:\n\n## Red flags\n\nSentences.\n\n**“Eight.”** So they say:"),
        printing("no\n", "red-flag"),
        new_markdown_cell("It was nine.\n\n**`eight()`**, in code.\n\nTwo paragraphs:"),
        new_code_cell("helper = 1"),
        printing("neither\n", "red-flag", "claim:C01"),
        new_markdown_cell(f"Out of here.\n\n## If an interviewer asks\n\n{FOLDED}"),
        *more,
    ]
    return pages.read(new_notebook(cells=cells), "chapters/01_numbers")


def test_number_comes_from_the_tagged_cell() -> None:
    (settled,) = pages.settle(pages.claims(ENTRY), [small()])
    assert settled.measured == "needed are 9"
    assert [cell.heading for _, cell in settled.cells] == ["Counting", "Red flags"]
    page = pages.ledger([settled])
    cell = settled.cells[0][1].id
    assert f"Measured: needed are 9 ([chapter 1, under *Counting*](../chapters/01_numbers.ipynb#cell-{cell}))." in page
    assert "**Wrong.** Nine are needed." in page


def test_number_may_come_from_the_words_that_describe_a_picture() -> None:
    drawn = new_output("display_data", data={"image/png": "AAAA", "text/plain": "<Figure>"})
    alt = {"mystnb": {"image": {"alt": "A bar of height 7."}}}
    picture = new_code_cell("draw()", outputs=[drawn], metadata=alt)
    text = ENTRY.replace("find = ['^needed: (\\d+)']", f"reads = '{picture.id}'\nfind = ['height (\\d)']")
    (settled,) = pages.settle(pages.claims(text), [small(picture)])
    assert settled.measured == "needed are 7"


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("[C01]", "[C02]", "no cell carries the tag claim:C02\nchapters/01_numbers, cell .* the tag claim:C01"),
        ("needed: ", "wanted: ", "finds nothing like .* in chapters/01_numbers"),
        ('"wrong"', '"false"', "which is none of"),
        ("said", "says", "C01 needs fact, find, number, said, verdict"),
        ("find", "reads = 'nowhere'\nfind", "no cell to read its number from"),
    ],
)
def test_a_wrong_claim_is_an_error(before: str, after: str, complaint: str) -> None:
    with pytest.raises(PagesError, match=complaint):
        pages.settle(pages.claims(ENTRY.replace(before, after)), [small()])


def test_red_flags_are_sentences_with_their_cells() -> None:
    first, second = pages.red_flags(small())
    assert (first.wrong, first.why, first.cell.shown, first.after) == (
        "**“Eight.”**",
        " So they say:",
        "no",
        "It was nine.",
    )
    assert (second.wrong, second.why, second.after) == ("**`eight()`**", ", in code.\n\nTwo paragraphs:", "")
    assert "**`eight()`**, in code.\n\nTwo paragraphs:\n\n```text\nneither\n```" in pages.red_flags_page([small()])


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ([new_markdown_cell("## Red flags\n\n**“Ten.”** No cell.")], "no cell with the tag red-flag follows"),
        ([new_markdown_cell("## Red flags\n\nPlain."), printing("x", "red-flag")], "without a sentence in bold"),
        ([new_markdown_cell("## Red flags\n\n**“A.”** B.\n\n**“C.”** D."), printing("x", "red-flag")], "no cell with"),
    ],
)
def test_a_red_flag_without_sentence_or_cell_is_an_error(more: list[NotebookNode], complaint: str) -> None:
    with pytest.raises(PagesError, match=complaint):
        pages.red_flags(small(*more))


def test_questions_keep_their_markdown() -> None:
    assert pages.questions([small()]) == [pages.Question("chapters/01_numbers", "How many?", "Nine: $9$.")]


def test_a_chapter_without_recap_is_an_error() -> None:
    with pytest.raises(PagesError, match="nothing below `## Sixty seconds`"):
        pages.recaps_page([small()])


# ---- the built site


def soup_of(site: Path, page: str) -> BeautifulSoup:
    return BeautifulSoup((site / f"{page}.html").read_text(encoding="utf-8"), "html.parser")


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)


def test_every_code_cell_has_an_address(site: Path, page: str) -> None:
    if not (notebook := files.ROOT / f"{page}.ipynb").exists():
        pytest.skip("a page without cells")
    html = soup_of(site, page)
    for cell in files.read(notebook).cells:
        if cell.cell_type == "code":
            target = html.find(id=f"cell-{cell.id}")
            assert target is not None, f"cell {cell.id} has no anchor"
            assert letters(cell.source) in letters(target.get_text())


def test_every_link_to_a_cell_leads_to_that_cell(site: Path) -> None:
    """Also to the cells of text that begin with a heading. That the anchor exists is not enough."""
    cells = {(chapter.page, cell.id): cell for chapter in BOOK for cell in chapter.cells}
    seen = 0
    for page in MADE[:2]:
        for link in soup_of(site, page).select('article a[href*="#cell-"]'):
            place, _, identity = link["href"].removeprefix("../").partition(".html#cell-")
            cell = cells[place, identity]
            target = soup_of_once(site, place).find(id=f"cell-{identity}")
            assert target is not None, f"{link['href']} leads nowhere"
            if cell.kind == "code":
                assert letters(cell.source.splitlines()[0]) in letters(target.get_text())
            else:
                assert cell.heading in target.find_parent("section").get_text()
            seen += 1
    assert seen > len(CLAIMS)


_SOUPS: dict[str, BeautifulSoup] = {}


def soup_of_once(site: Path, page: str) -> BeautifulSoup:
    return _SOUPS.setdefault(page, soup_of(site, page))


def test_every_claim_has_an_address(site: Path) -> None:
    html = soup_of(site, "book/claims")
    assert [claim.name for claim in CLAIMS if html.find(id=claim.name.lower()) is None] == []


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["A4", "Letter"])
def test_recaps_fit_on_two_sheets_in_a_readable_size(site: Path, base_url: str, paper: str) -> None:
    if (executable := chromium.executable()) is None:
        pytest.skip(chromium.MISSING)
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.goto(f"{base_url}book/sixty_seconds.html")
        tab.evaluate("async () => { await window.MathJax.startup.promise; await document.fonts.ready; }")
        sheets = len(re.findall(rb"/Type\s*/Page\b", tab.pdf(format=paper)))
        tab.emulate_media(media="print")
        pixels = tab.evaluate(
            "parseFloat(getComputedStyle(document.querySelector('article li p, article li')).fontSize)"
        )
        browser.close()
    assert 1 <= sheets <= 2
    assert pixels * 72 / 96 >= 7.5  # points
