"""The glossary: what it declares, its page, and the links from each chapter's first use of a term."""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from bs4 import BeautifulSoup, NavigableString, SoupStrainer, Tag
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

from tools import files, glossary, pages, site_toc
from tools.glossary import Finder, GlossaryError

TEXT = (files.ROOT / glossary.SOURCE).read_text(encoding="utf-8")
BOOK = glossary.read(TEXT)
LEFT_OUT = {"Quiz", "Sources"}
LINK = "a.book-term"

# ---- what is declared


def test_the_glossary_holds_the_words_of_the_book() -> None:
    assert len(BOOK.terms) >= 90
    names = {form for term in BOOK.terms for form in (term.name, *term.forms)}
    assert names >= {"attention", "NoPE", "ALiBi", "RoPE", "YaRN", "M-RoPE", "KV cache", "T5 bias", "class token"}


def test_a_hint_is_a_sentence_without_markup() -> None:
    for term in BOOK.terms:
        assert re.fullmatch(r"[^$\\{}*`]{8,200}[.:]", term.hint), f"{term.name}: {term.hint!r}"


def test_an_entry_is_short_and_types_no_measured_number() -> None:
    for term in BOOK.terms:
        assert len(glossary.plain(term.says)) < 300, term.name
        assert not re.search(r"\d\.\d|\de[-+]\d|\d\s?%", term.says.replace("Llama 3.1", "")), term.name


def test_formulas_become_readable_in_a_hint() -> None:
    assert glossary.plain(r"The *score* $q_i \cdot k_j / \sqrt{d_h}$.") == "The score q_i · k_j / √d_h."
    assert glossary.plain(r"Base: $\omega_k = b^{-2k/d}$, by $\tau^2$.") == "Base: ω_k = b^(−2k/d), by τ²."


def test_pages_that_the_search_names_exist() -> None:
    assert set(BOOK.pages) <= set(site_toc.pages())


SMALL = """
[[term]]
name = "key"
says = "What is compared. More."
where = [1, "a"]
forms = ["keys", "key"]
not = ["key idea"]
see = ["causal mask"]

[[term]]
name = "causal mask"
says = "What hides."
where = [1, "b"]
forms = ["T5's mask", "causal mask", "mask", "NTK"]
search = ["is_causal"]
"""
CELLS = {1: ("chapters/01_small", ["a", "b"])}


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("where = ", "shown = ", "key needs"),
        ("see = ", "also = ", "key needs"),
        ('forms = ["keys", "key"]', "forms = []", "key has no form"),
        ('"keys", "key"', '"keys", "mask"', "'mask' means both key and causal mask"),
        ('name = "key"', 'name = "Causal Mask"', "'term-causal-mask' means both Causal Mask and causal mask"),
        ('see = ["causal mask"]', 'see = ["key"]', "key says to see key"),
        ('see = ["causal mask"]', 'see = ["door"]', "key says to see door"),
        ('name = "key"', 'name = "key', "glossary.toml: "),
        ('where = [1, "b"]', 'where = [1, "c"]', "cell c of chapter 1, and there is no such cell"),
        ('where = [1, "b"]', 'where = [2, "b"]', "cell b of chapter 2, and there is no such cell"),
    ],
)
def test_a_glossary_that_does_not_fit_together_is_an_error(before: str, after: str, complaint: str) -> None:
    assert before in SMALL
    with pytest.raises(GlossaryError, match=complaint):
        glossary.page(glossary.read(SMALL.replace(before, after, 1)), CELLS)


def test_an_unknown_cell_stops_make_pages() -> None:
    with pytest.raises(pages.PagesError, match="no such cell"):
        pages.glossary_page(pages.chapters()[:1], SMALL)


def test_the_page_has_letters_entries_and_links() -> None:
    page = glossary.page(glossary.read(SMALL), CELLS)
    assert page.index("## C\n\ncausal mask\n: What hides.") < page.index("## K\n\nkey\n: What is compared. More.")
    assert "[Chapter 1](../chapters/01_small.ipynb#cell-a). See [causal mask](#term-causal-mask)." in page


# ---- what counts as a term


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Keys, and a key.", ["Keys", "key"]),
        ("monkeys, keyed, key-value, a_key", []),
        ("the key idea of a key", ["key"]),
        ("a causal mask masks by a mask", ["causal mask", "mask"]),
        ("a causal\nmask", ["causal\nmask"]),
        ("T5’s mask, T5's mask", ["T5’s mask", "T5's mask"]),
        ("NTK is no ntk", ["NTK"]),
    ],
)
def test_whole_words_count_and_the_longest_first(text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end, _ in Finder(glossary.read(SMALL).terms)(text)] == found


# ---- a small site: what is linked, what is not, and what is missed


CHAPTER = """# A key

`key` $key$ [key](https://book.invalid)

| key |
| --- |
| key |

Causal masks and *keys*; the key.

## Quiz

A mask.

## Sources

NTK.
"""


def build(folder: Path, chapter: str, text: str = SMALL) -> tuple[list[Tag], str]:
    """The links of a chapter in a book with this extension alone, and what Sphinx warned of."""
    for name, content in {
        glossary.SOURCE: text,
        "index.md": "# Book\n\n```{toctree}\nchapters/01_small\nbook/glossary\n```\n",
        "chapters/01_small.md": chapter,
        "book/glossary.md": "# Glossary\n\n[key](#term-key)\n\ncausal mask\n: A mask.\n\nkey\n: What is compared.\n",
    }.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != content:
            files.write_text(content, folder / name)
    settings = {
        "extensions": ["myst_parser", "glossary_links"],
        "myst_enable_extensions": ["deflist", "dollarmath"],
        "html_theme": "basic",
    }
    warnings = StringIO()
    places = [str(folder), None, str(folder / "site"), str(folder / "trees")]
    with patch_docutils(), docutils_namespace():
        Sphinx(*places, "html", settings, status=None, warning=warnings).build()
    html = BeautifulSoup((folder / "site/chapters/01_small.html").read_text(encoding="utf-8"), "html.parser")
    return html.select(LINK), warnings.getvalue()


@pytest.fixture
def _extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(files.ROOT / "book/_ext"))


@pytest.mark.usefixtures("_extension")
def test_the_first_use_in_prose_is_linked_and_a_missing_one_is_told(tmp_path: Path) -> None:
    linked, warnings = build(tmp_path, CHAPTER)
    (link,) = linked
    assert (link.get_text(), link["href"]) == ("keys", "../book/glossary.html#term-key")
    assert link["title"] == "What is compared."
    assert warnings.count("WARNING") == 1
    assert "no chapter's prose says \"T5's mask\" or 'causal mask' or 'mask' or 'NTK'" in warnings
    assert 'id="term-key"' in (tmp_path / "site/book/glossary.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("_extension")
def test_a_chapter_follows_when_the_glossary_changes(tmp_path: Path) -> None:
    chapter = CHAPTER.replace("; the key", "; the key and its mask")
    assert [link["title"] for link in build(tmp_path, chapter)[0]] == ["What is compared.", "What hides."]
    linked, warnings = build(tmp_path, chapter, SMALL.replace("What hides.", "What is hidden."))
    assert [link["title"] for link in linked] == ["What is compared.", "What is hidden."]
    assert not warnings


# ---- the site


def prose(html: BeautifulSoup) -> Iterator[list[NavigableString]]:
    """The pieces of running text of each paragraph, links to the glossary included."""
    for paragraph in html.select("article p"):
        sections = [each.find(["h1", "h2", "h3"]) for each in paragraph.find_parents("section")]
        headings = {each.get_text().removesuffix("#").strip() for each in sections if each}
        elsewhere = paragraph.find_parent(["table", "figcaption", "summary"]) or paragraph.find_parent(class_="cell")
        if not elsewhere and not headings & LEFT_OUT:
            yield [text for text in paragraph.find_all(string=True) if is_plain(text)]


def is_plain(text: NavigableString) -> bool:
    """Whether it stands outside code, formulas and links that lead elsewhere."""
    if text.find_parent("code") or text.find_parent(class_="math"):
        return False
    link = text.find_parent("a")
    return link is None or "book-term" in link.get("class", [])


def test_each_chapter_links_the_first_use_of_each_term_and_no_other_page_has_links(site: Path) -> None:
    entries = BeautifulSoup((site / f"{glossary.PAGE}.html").read_text(encoding="utf-8"), "html.parser")
    addresses = {entry["id"] for entry in entries.select("dt[id]")}
    assert addresses == {term.anchor for term in BOOK.terms}
    hints = {term.anchor: term.hint for term in BOOK.terms}
    finder, linked_anywhere = Finder(BOOK.terms), set()
    for page in site_toc.pages():
        text = (site / f"{page}.html").read_text(encoding="utf-8")
        if not page.startswith("chapters/"):
            assert "book-term" not in text, page
            continue
        html = BeautifulSoup(text, "html.parser", parse_only=SoupStrainer("article"))
        linked = [link["href"].removeprefix("../book/glossary.html#") for link in html.select(LINK)]
        assert [link["title"] for link in html.select(LINK)] == [hints[address] for address in linked], page
        assert len(linked) == len(set(linked)), f"{page} links a term twice"
        assert linked == first_uses(html, finder), page
        assert not html.select(", ".join(f"{place} {LINK}" for place in ("h1", "h2", "h3", "summary", "table", "a")))
        linked_anywhere |= set(linked)
    assert linked_anywhere == addresses


def first_uses(html: BeautifulSoup, finder: Finder) -> list[str]:
    """The addresses of the terms in the order of their first use. A use that a link has cut out is whole again."""
    found: list[str] = []
    for pieces in prose(html):
        joined: list[str] = []
        last = None
        for piece in pieces:
            beside = last is not None and (is_beside(last, piece))
            joined = [*joined[:-1], joined[-1] + piece] if beside else [*joined, str(piece)]
            last = piece
        found += [term.anchor for text in joined for *_, term in finder(text)]
    return list(dict.fromkeys(found))


def is_beside(one: NavigableString, other: NavigableString) -> bool:
    """Whether the two were one piece of text before a link to the glossary was put in."""
    inner = {id(one): one.find_parent("a"), id(other): other.find_parent("a")}
    outer = [inner[id(each)] or each for each in (one, other)]
    return outer[0].next_sibling is outer[1] and any(inner.values())
