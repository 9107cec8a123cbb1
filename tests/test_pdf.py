"""Two chapters of the book as a PDF: whole, in order, with bookmarks and links that stay inside."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from pypdf import PageObject, PdfReader
from test_browser import browser, playwright  # noqa: F401  (fixtures)

from tools import pdf, site_toc
from tools.repository import configured

pytestmark = pytest.mark.slow

PAGES = ["chapters/01_a_set_not_a_sequence", "exercises/01_a_set_not_a_sequence", "book/claims"]


@pytest.fixture(scope="module")
def book(site: Path, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> PdfReader:  # noqa: F811
    out = tmp_path_factory.mktemp("pdf") / "book.pdf"
    assert pdf.write(browser, site, out, PAGES) == len(PdfReader(out).pages)
    return PdfReader(out)


def links(book: PdfReader) -> list[tuple[int, dict]]:
    """Every link with the leaf on which it stands, counted from 0."""
    return [
        (number, note.get_object())
        for number, leaf in enumerate(book.pages)
        for note in leaf.get("/Annots", [])
        if note.get_object()["/Subtype"] == "/Link"
    ]


def test_bookmarks_are_the_chapters_and_their_sections(book: PdfReader) -> None:
    outline = book.outline
    tops = [entry for entry in outline if not isinstance(entry, list)]
    assert [entry.title for entry in tops] == [
        "Contents",
        "1 · A set, not a sequence",
        "Exercise 1 · A set, not a sequence",
        "Claims ledger",
    ]
    sections = [entry.title.strip() for entry in outline[outline.index(tops[1]) + 1]]
    assert sections[:2] == ["Attention, built in the open", "The statement"]
    leaves = [book.get_destination_page_number(entry) for entry in tops]
    assert leaves == sorted(set(leaves))


def test_contents_give_the_number_that_stands_on_the_leaf(book: PdfReader) -> None:
    contents = next(number for number, leaf in enumerate(book.pages) if "Contents" in leaf.extract_text())
    own = [link for number, link in links(book) if number == contents]
    assert len(own) == len(PAGES)
    for link, entry in zip(own, [entry for entry in book.outline[1:] if not isinstance(entry, list)], strict=True):
        leaf = book.get_destination_page_number(book.named_destinations[link["/Dest"]])
        assert leaf == book.get_destination_page_number(entry)
        assert str(leaf + 1) in book.pages[leaf].extract_text().splitlines(), "the foot of the leaf"
        assert str(leaf + 1) in book.pages[contents].extract_text().split()


def test_links_between_pages_stay_inside_and_others_lead_to_the_site(book: PdfReader) -> None:
    inside = [link["/Dest"] for _, link in links(book) if "/Dest" in link]
    assert any(place.lstrip("/").startswith("chapters-01_a_set_not_a_sequence--cell-") for place in inside)
    assert [place for place in inside if place not in book.named_destinations] == []
    outside = [link["/A"]["/URI"] for _, link in links(book) if "/A" in link]
    assert [address for address in outside if not address.startswith("https://")] == []
    assert any(address.startswith(f"{configured().pages}/chapters/02_") for address in outside)


def test_text_figures_and_formulas_are_on_the_leaves(book: PdfReader) -> None:
    text = "\n".join(leaf.extract_text() for leaf in book.pages)
    assert "Self-attention sees a set" in book.pages[0].extract_text()
    for passage in ("def attention_by_loop", "figures.heatmap", "Look again, and follow a", "Hint 1"):
        assert passage in text, passage
    assert "\\frac" not in text
    assert "Skip to main content" not in text
    assert any("MathJax_Math" in name for leaf in book.pages for name in fonts(leaf))
    assert sum(len(leaf["/Resources"].get("/XObject", {})) for leaf in book.pages) >= 5


def fonts(leaf: PageObject) -> list[str]:
    found = [font.get_object() for font in leaf["/Resources"].get("/Font", {}).values()]
    return [str(font.get("/BaseFont") or font["/FontDescriptor"]["/FontName"]) for font in found]


def test_every_page_of_the_book_is_printed_once_and_solutions_last() -> None:
    pages = [leaf.page for leaf in pdf.leaves()]
    assert sorted(pages) == sorted(site_toc.pages())
    solutions = [page.startswith("solutions/") for page in pages]
    assert solutions == sorted(solutions)


def test_what_is_cut_off_is_an_error(
    site: Path,
    browser: Browser,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    html, _ = pdf.assemble(site, PAGES[1:2])
    wide = html.replace("</article>", '<div style="width: 900px">wide</div></article>')
    with pytest.raises(pdf.PdfError, match="wider than the paper"):
        pdf.open_document(browser, wide, site)
    monkeypatch.setattr(pdf, "FIT", "() => {}")
    long = html.replace("</article>", f"<table><tr>{'<td>elephants</td>' * 30}</tr></table></article>")
    with pytest.raises(pdf.PdfError, match="wider than the paper"):
        pdf.open_document(browser, long, site)
    monkeypatch.undo()
    pdf.open_document(browser, long, site).close()


@pytest.mark.parametrize(
    ("address", "leads"),
    [
        ("https://arxiv.org/abs/1706.03762", "https://arxiv.org/abs/1706.03762"),
        ("#red-flags", "#chapters-01_a--red-flags"),
        ("../book/notation.html", "#book-notation"),
        ("../book/claims.html#c07", f"{configured().pages}/book/claims.html#c07"),
    ],
)
def test_where_a_link_leads_on_paper(address: str, leads: str) -> None:
    assert pdf.target(address, "chapters/01_a", {"chapters/01_a", "book/notation"}) == leads


def test_a_site_that_is_not_built_and_a_page_that_is_not_there_are_errors(tmp_path: Path) -> None:
    with pytest.raises(pdf.PdfError, match="make book"):
        pdf.assemble(tmp_path, PAGES)
    with pytest.raises(pdf.PdfError, match="no page of the book: chapters/99"):
        pdf.assemble(tmp_path, ["chapters/99"])
