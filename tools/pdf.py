"""The book as one PDF, printed by Chromium from the built site (`make pdf`).

All pages become one document: then its links stay inside, its headings become bookmarks, and its leaves are numbered.
Order: a cover, a table of contents, every page of the book, and the solutions last. Folded text is unfolded.
"""

import argparse
import copy
import logging
import mimetypes
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urljoin, urlsplit

import yaml
from bs4 import BeautifulSoup, Tag
from playwright.sync_api import Browser, Page, Route
from pypdf import PdfReader, PdfWriter
from pypdf.generic import DictionaryObject, NameObject, TextStringObject

from tools import files, site_toc
from tools.browser import chromium
from tools.repository import configured

SITE = files.ROOT / "_build" / "html"
BOOK = files.ROOT / "_build" / "from-sets-to-sequences.pdf"
TITLE = "From Sets to Sequences"
HOST = "http://book.invalid/"
CONTENT_WIDTH = 657  # CSS pixels: A4 less the side margins of pdf.css
SOLUTIONS = "Solutions"
PLAIN_TOKENS = "pre :is(.n, .nn, .p, .w)"  # words of code in the text's own colour: half of the file's elements
MOST_PRINTS = 3  # the first finds the leaf numbers, the second has them

# What is wider than the paper is made smaller: formulas, tables, code. Code breaks its lines before it becomes tiny.
FIT = """smallest => {
    for (const box of document.querySelectorAll(".math")) {
        const formula = box.querySelector("mjx-container");
        const room = box.closest("li, td, p, div:not(.math), section").clientWidth;
        const width = box.querySelector("mjx-math")?.getBoundingClientRect().width ?? 0;
        if (formula && width > room) formula.style.fontSize = `${Math.floor(100 * room / width) - 1}%`;
    }
    for (const table of document.querySelectorAll("article table")) {
        const room = table.parentElement.clientWidth;
        const width = table.scrollWidth;
        if (width > room) table.style.zoom = 0.99 * room / width;
    }
    for (const code of document.querySelectorAll("article pre")) {
        code.style.whiteSpace = "pre";
        const ratio = code.clientWidth / code.scrollWidth;
        code.style.whiteSpace = "";
        const size = parseFloat(getComputedStyle(code).fontSize);
        if (ratio < 1) code.style.fontSize = `${size * Math.max(ratio * 0.99, smallest)}px`;
    }
}"""
# Elements that stick out of the paper.
CUT = """() => [...document.querySelectorAll("article *, nav *")]
    .filter(part => part.checkVisibility() && part.getBoundingClientRect().right > innerWidth + 2)
    .map(part => `${part.closest("article")?.id}: ${part.outerHTML.slice(0, 120)}`)"""
SETTLED = """async () => {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
    await Promise.all([...document.images].map(picture => picture.decode().catch(() => {})));
}"""


# pypdf warns of a count in Chromium's files that no reader uses.
logging.getLogger("pypdf").setLevel(logging.ERROR)


class PdfError(Exception):
    """The book cannot be printed, and the message says why."""


@dataclass(frozen=True)
class Leaf:
    """A page of the site and the part of the book to which it belongs."""

    page: str
    part: str

    @property
    def id(self) -> str:
        return anchor(self.page)


def anchor(page: str, fragment: str = "") -> str:
    """Id in the one document of a page of the site, or of a place in it."""
    return page.replace("/", "-") + (f"--{fragment}" if fragment else "")


def leaves() -> list[Leaf]:
    """Every page in the order in which it is printed: as in `_toc.yml`, solutions last."""
    toc = yaml.safe_load((files.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    inside = [Leaf(toc["root"], "")]
    for part in toc["parts"]:
        inside += [Leaf(page, part["caption"]) for page in site_toc.pages_below(part)]
    solutions = [Leaf(leaf.page, SOLUTIONS) for leaf in inside if leaf.page.startswith("solutions/")]
    return [leaf for leaf in inside if not leaf.page.startswith("solutions/")] + solutions


def soup(site: Path, page: str) -> BeautifulSoup:
    file = site / f"{page}.html"
    if not file.is_file():
        raise PdfError(f"{file} is missing: build the site first (make book)")
    return BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")


def article(html: BeautifulSoup, leaf: Leaf, printed: set[str]) -> Tag:
    """The page's own text, fit for one document with the others: ids of its own, links that lead inside."""
    text = html.select_one("article.bd-article")
    if text is None:
        raise PdfError(f"{leaf.page} has no article")
    for script in text.select("script"):
        script.decompose()
    for token in text.select(PLAIN_TOKENS):
        token.unwrap()
    for tag in text.select("[id]"):
        if not tag.find_parent("svg"):
            tag["id"] = anchor(leaf.page, tag["id"])
    for details in text.select("details"):
        details["open"] = ""
    for picture in text.select("img[src]"):
        picture["src"] = urljoin(f"{HOST}{leaf.page}.html", picture["src"]).removeprefix(HOST)
        del picture["loading"]
    for link in text.select("a[href]"):
        link["href"] = target(link["href"], leaf.page, printed)
    text["id"] = leaf.id
    text["style"] = f"page: {leaf.id}"
    return text


def target(address: str, page: str, printed: set[str]) -> str:
    """Where a link on `page` leads on paper: to a place in this document, or else to the published site."""
    parts = urlsplit(urljoin(f"{HOST}{page}.html", address))
    if f"{parts.scheme}://{parts.netloc}/" != HOST:
        return address
    path = unquote(parts.path).lstrip("/")
    other = path.removesuffix(".html")
    if other in printed:
        return "#" + anchor(other, unquote(parts.fragment))
    return f"{configured().pages}/{path}" + (f"#{parts.fragment}" if parts.fragment else "")


def title(text: Tag) -> str:
    heading = copy.copy(text.select_one("h1"))
    for link in heading.select(".headerlink"):
        link.decompose()
    return heading.get_text().strip()


def running_head(leaf: Leaf, heading: str) -> str:
    """The style of a page's leaves: its title stands at the top of each."""
    words = heading.replace("\\", r"\\").replace('"', r"\"")
    look = "font: 9pt system-ui, sans-serif; color: #57606a"
    return f'@page {leaf.id} {{ @top-left {{ content: "{words}"; {look} }} }}\n'


def cover(root: BeautifulSoup) -> str:
    thesis, doors = root.select_one("article .thesis p"), root.select_one("article .doors")
    return f"""<section class="cover"><p class="book">{TITLE}</p><p class="thesis">{escape(thesis.get_text())}</p>
        {doors or ""}<p class="imprint">{escape(configured().pages.removeprefix("https://"))}</p></section>"""


def contents(printed: list[tuple[Leaf, str]]) -> str:
    """The table of contents. Leaf numbers are filled in when they are known."""
    lines, part = [], ""
    for leaf, heading in printed:
        if leaf.part != part:
            part = leaf.part
            lines.append(f'</ol><p class="part">{escape(part)}</p><ol>')
        inner = ' class="inner"' if leaf.page.startswith("exercises/") else ""
        lines.append(
            f'<li{inner}><a href="#{leaf.id}"><span>{escape(heading)}</span><span class="leaf">000</span></a></li>'
        )
    return f'<nav class="leaves"><h2>Contents</h2><ol>{"".join(lines)}</ol></nav>'


def assemble(site: Path, wanted: Sequence[str] | None = None) -> tuple[str, list[str]]:
    """One HTML document of the wanted pages (all, if none are named) in the order of the book, and their titles."""
    order = [leaf for leaf in leaves() if not wanted or leaf.page in wanted]
    if unknown := set(wanted or ()) - {leaf.page for leaf in order}:
        raise PdfError(f"no page of the book: {', '.join(sorted(unknown))}. Write it as in _toc.yml")
    pages = {leaf.page: soup(site, leaf.page) for leaf in order}
    texts = {leaf: article(pages[leaf.page], leaf, set(pages)) for leaf in order}
    titles = [(leaf, title(text)) for leaf, text in texts.items()]
    heads = "".join(running_head(*each) for each in titles)
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    root = soup(site, site_toc.pages()[0])
    body = "".join(map(str, texts.values()))
    html = f"""<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
        <title>{TITLE}</title>{head(pages.values())}<style>{style}{heads}</style></head>
        <body>{cover(root)}{contents(titles)}<main id="main-content" class="bd-main">{body}</main></body></html>"""
    return html, [heading for _, heading in titles]


def head(pages: Sequence[BeautifulSoup]) -> str:
    """The style sheets of the site, and MathJax where a page needs it."""
    found: dict[str, None] = {}
    for html in pages:
        for sheet in html.select('head link[rel="stylesheet"]'):
            found[f'<link rel="stylesheet" href="{re.sub(r"^[./]*/", "", sheet["href"])}">'] = None
        for script in html.select("head script"):
            if "mathjax/" in script.get("src", ""):
                found[f'<script defer src="{re.sub(r"^[./]*/", "", script["src"])}"></script>'] = None
            elif "window.MathJax" in script.get_text():
                # Hidden MathML is for screen readers of the site; on paper it would be text written twice.
                found[str(script).replace(', "a11y/assistive-mml"', "")] = None
    return "".join(sorted(found, key=lambda tag: "mathjax/" in tag))


def open_document(browser: Browser, html: str, site: Path) -> Page:
    """The document in a tab as wide as the paper's text, typeset and made to fit."""

    def answer(route: Route) -> None:
        file = site / unquote(PurePosixPath(urlsplit(route.request.url).path).as_posix()).lstrip("/")
        if file == site / "book.html":
            route.fulfill(body=html, content_type="text/html; charset=utf-8")
        elif file.is_file():
            route.fulfill(body=file.read_bytes(), content_type=mimetypes.guess_type(file.name)[0] or "text/plain")
        else:
            route.fulfill(status=404)

    tab = browser.new_page(viewport={"width": CONTENT_WIDTH, "height": 1000}, color_scheme="light")
    tab.set_default_timeout(600_000)
    tab.route(f"{HOST}**", answer)
    tab.emulate_media(media="print")
    tab.goto(f"{HOST}book.html", wait_until="load")
    tab.evaluate(SETTLED)
    tab.evaluate(FIT, 0.8)
    if cut := tab.evaluate(CUT):
        raise PdfError("wider than the paper:\n" + "\n".join(cut[:10]))
    return tab


def destinations(reader: PdfReader) -> dict[str, int]:
    """Leaf, counted from 1, of every place that a link in the document leads to."""
    return {
        name.lstrip("/"): reader.get_destination_page_number(place) + 1
        for name, place in reader.named_destinations.items()
    }


def number_contents(tab: Page, leaf_of: dict[str, int]) -> None:
    tab.evaluate(
        """numbers => document.querySelectorAll(".leaves a").forEach(link => {
            link.querySelector(".leaf").textContent = numbers[link.hash.slice(1)] ?? "";
        })""",
        leaf_of,
    )


def write(browser: Browser, site: Path, out: Path, wanted: Sequence[str] | None = None) -> int:
    """Print the pages to the file `out`, and return the number of its leaves."""
    options = {"prefer_css_page_size": True, "print_background": True, "outline": True, "tagged": True}
    out.parent.mkdir(parents=True, exist_ok=True)
    html, titles = assemble(site, wanted)
    numbers: dict[str, int] = {}
    for _ in range(MOST_PRINTS):
        # Chromium may break a second print of a tab elsewhere than the first: each print is a first one.
        tab = open_document(browser, html, site)
        number_contents(tab, numbers)
        tab.pdf(path=out, **options)
        tab.close()
        before, numbers = numbers, destinations(PdfReader(out))
        if numbers == before:
            break
    else:
        raise PdfError(f"the leaves are not where the table of contents says, after {MOST_PRINTS} prints")
    return finish(out, titles)


def finish(out: Path, titles: list[str]) -> int:
    """Say in the file what it is, and mend its bookmarks: Chromium joins a title and the running head above it."""
    writer = PdfWriter(clone_from=out)
    bookmarks = top_bookmarks(writer)
    if len(bookmarks) != len(titles) + 1:
        raise PdfError(f"{len(bookmarks)} bookmarks for {len(titles)} pages and the table of contents")
    for bookmark, text in zip(bookmarks, ["Contents", *titles], strict=True):
        bookmark[NameObject("/Title")] = TextStringObject(text)
    writer.add_metadata({"/Title": TITLE, "/Author": "The From Sets to Sequences authors", "/Creator": "make pdf"})
    writer.page_mode = "/UseOutlines"
    writer.write(out)
    return len(writer.pages)


def top_bookmarks(writer: PdfWriter) -> list[DictionaryObject]:
    """The bookmarks that stand below no other, in order."""
    found = []
    following = writer.root_object["/Outlines"].get("/First")
    while following is not None:
        found.append(following.get_object())
        following = found[-1].get("/Next")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="pages as in _toc.yml (left out: the whole book)")
    parser.add_argument("--site", type=Path, default=SITE, help="the built site (_build/html)")
    parser.add_argument("--out", type=Path, default=BOOK, help="the file to write")
    arguments = parser.parse_args()
    try:
        with chromium() as browser:
            count = write(browser, arguments.site, arguments.out, arguments.pages)
    except (PdfError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{arguments.out}: {count} leaves, {arguments.out.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
