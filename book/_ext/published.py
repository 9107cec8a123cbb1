"""What a published site needs: its address, words and pictures for links to it, a sitemap, and ways to answer.

The address is derived from the repository's in `_config.yml`: https://github.com/OWNER/NAME is published at
https://OWNER.github.io/NAME/.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape as escape_xml

from cards import SIZE, draw_card
from docutils import nodes
from site_pages import describe
from sphinx.application import Sphinx
from sphinx.config import Config

CARDS = "_cards"
# Pages that a command makes, and what an editor changes instead: a file, or a folder.
MADE_FROM = {
    "book/benchmarks": "bench",
    "book/claims": "book/claims.toml",
    "book/glossary": "book/glossary.toml",
    "book/interview": "book/questions.toml",
    "book/notation": "book/notation.toml",
    "book/red_flags": "chapters",
    "book/sixty_seconds": "chapters",
    "book/status": "tools/status.py",
    "book/who_uses_what": "posenc/production.py",
}
LOST = "404"


def site_address(repository: str) -> str:
    """Where GitHub publishes the site of a repository, with a closing slash."""
    owner, name = repository.removeprefix("https://github.com/").strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def set_address(_app: Sphinx, config: Config) -> None:
    config.html_baseurl = site_address(config.html_theme_options["repository_url"])


def source_of(page: str, file: str) -> str:
    """What one edits to change a page: its own file, or what the page is made from."""
    if page.startswith("exercises/"):
        return file.replace("exercises/", "solutions/", 1)
    return MADE_FROM.get(page, file)


def edit_address(options: dict[str, Any], source: str, is_folder: bool) -> str:
    verb = "tree" if is_folder else "edit"
    return f"{options['repository_url']}/{verb}/{options['repository_branch']}/{quote(source)}"


def report_address(repository: str, title: str, address: str) -> str:
    """A form for an issue that already says which page is meant."""
    body = f"Page: {address}\n\nThe sentence or the cell:\n\nWhat is wrong with it:\n"
    return f"{repository}/issues/new?title={quote(f'Mistake on “{title}”')}&body={quote(body)}"


def card_of(page: str) -> str:
    """Name of a page's card. Exercises and solutions share their chapter's."""
    folder, _, name = page.partition("/")
    return f"{CARDS}/{'book-' if folder == 'book' else ''}{name}.png"


def first_figure(app: Sphinx, doctree: nodes.document) -> Path | None:
    """The first picture of a page that Pillow can read."""
    for image in doctree.findall(nodes.image):
        path = Path(app.srcdir) / image["candidates"].get("*", "")  # `uri` is by now the picture's address on the site
        if path.suffix == ".png" and path.is_file():
            return path
    return None


def for_links(app: Sphinx, page: str, title: str, description: str) -> Iterator[tuple[str, str, str]]:
    """What sites and messengers read to show a link: (attribute, name, content) of each tag."""
    base = app.config.html_baseurl
    yield "property", "og:site_name", app.config.html_title
    yield "property", "og:type", "website" if page == app.config.root_doc else "article"
    yield "property", "og:title", title
    yield "property", "og:description", description
    yield "property", "og:url", base + app.builder.get_target_uri(page)
    yield "property", "og:image", base + card_of(page)
    yield "property", "og:image:width", str(SIZE[0])
    yield "property", "og:image:height", str(SIZE[1])
    yield "property", "og:image:alt", f"{title}. {app.config.html_title}"
    yield "name", "twitter:card", "summary_large_image"


def say_where_to_answer(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """The addresses at which a reader reports a mistake or mends it, for feedback.html."""
    if doctree is None:
        return
    options = app.config.html_theme_options
    file = Path(app.env.doc2path(page)).relative_to(app.srcdir).as_posix()
    source = source_of(page, file)
    title = app.env.titles[page].astext()
    context["report_address"] = report_address(options["repository_url"], title, context["pageurl"])
    context["edit_address"] = edit_address(options, source, (Path(app.srcdir) / source).is_dir())
    context["is_made"] = source != file


def publish_page(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Give the page its tags for links and its card."""
    if doctree is None:
        return
    title = app.env.titles[page].astext()
    words = describe(doctree)
    tags = for_links(app, page, title, words)
    context["metatags"] += "".join(f'\n<meta {kind}="{name}" content="{escape(text)}" />' for kind, name, text in tags)
    if page.startswith(("chapters/", "book/")):
        draw_card(app.config.html_title, title, words, first_figure(app, doctree), Path(app.outdir) / card_of(page))
    aim_buttons(context)


def aim_buttons(context: dict[str, Any]) -> None:
    """Let the header's buttons lead where the links at the page's end lead."""
    aims = {"source-edit-button": "edit_address", "source-issues-button": "report_address"}
    for group in context["header_buttons"]:
        for button in group.get("buttons", []):
            if button.get("label") in aims:
                button["url"] = context[aims[button["label"]]]


def page_for_the_lost(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """404.html. It is shown at any depth, so a <base> leads its links to the site's root."""
    doors = (Path(app.srcdir) / "book" / "_static" / "doors.html").read_text(encoding="utf-8")
    yield LOST, {"title": "No such page", "base": urlsplit(app.config.html_baseurl).path, "doors": doors}, "404.html"


def write_for_robots(app: Sphinx, error: Exception | None) -> None:
    """Name every page in sitemap.xml, and the sitemap in robots.txt."""
    if error or app.builder.format != "html":
        return
    base = app.config.html_baseurl
    pages = "".join(
        f"  <url><loc>{escape_xml(base + app.builder.get_target_uri(page))}</loc></url>\n"
        for page in sorted(app.env.found_docs)
    )
    sitemap = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    (Path(app.outdir) / "sitemap.xml").write_text(f"{sitemap}{pages}</urlset>\n", encoding="utf-8")
    robots = f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n"
    (Path(app.outdir) / "robots.txt").write_text(robots, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", set_address)
    app.connect("html-collect-pages", page_for_the_lost)
    # The theme leaves out a template that is empty, and looks at 500. Its buttons are there from 502 on.
    app.connect("html-page-context", say_where_to_answer, priority=400)
    app.connect("html-page-context", publish_page, priority=910)
    app.connect("build-finished", write_for_robots)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
