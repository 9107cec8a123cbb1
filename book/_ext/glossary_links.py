"""Links from a chapter to the glossary, and from the search to the section where a term is shown.

All of it comes from `book/glossary.toml`, when the site is built, so that notebooks stay plain:

* In each chapter the first use of a term in running prose becomes a link to its entry, with the entry's first sentence
  as a hint. Headings, code, formulas, links, tables, captions and sources stay as they are.
* Each entry of the glossary gets its address, `#term-NAME`.
* Each term becomes an entry of the index at its section and at its entry. The search lists index entries first.

A term that no chapter uses is a warning, which `make book` takes for an error.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders import Builder
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.glossary import PAGE, SOURCE, Finder, Glossary, Term, anchor, read

LOGGER = logging.getLogger(__name__)
KIND = "glossary"  # of a link that is not resolved yet
NO_PROSE = (nodes.table, nodes.caption, nodes.raw, nodes.topic)
NOT_PLAIN = (nodes.reference, addnodes.pending_xref, nodes.literal, nodes.math, nodes.raw)
LEFT_OUT = ("Quiz", "Sources")  # what one chooses from is no place for links, and titles of papers are not ours


@functools.lru_cache(maxsize=2)
def _read(path: Path, _changed: int) -> tuple[Glossary, Finder]:
    glossary = read(path.read_text(encoding="utf-8"))
    return glossary, Finder(glossary.terms)


def glossary_of(env: BuildEnvironment) -> tuple[Glossary, Finder]:
    path = Path(env.srcdir) / SOURCE
    return _read(path, path.stat().st_mtime_ns)


def is_chapter(page: str) -> bool:
    return page.startswith("chapters/")


def is_chapter_of(page: str, term: Term) -> bool:
    return page.startswith(f"chapters/{term.chapter:02}_")


class GlossaryTransform(SphinxTransform):
    """Links in chapters, addresses in the glossary, index entries in both and in the pages that the file names."""

    default_priority = 810  # after quotes are curled (750), before MyST resolves links within a page (879)

    def apply(self, **_: object) -> None:
        glossary, finder = glossary_of(self.env)
        page = self.env.docname
        if not (is_chapter(page) or page == PAGE or page in glossary.pages):
            return
        self.env.note_dependency(str(Path(self.env.srcdir) / SOURCE))
        section_of = sections(self.document)
        indexed = [(phrase, "") for phrase in glossary.pages.get(page, ())]
        for term in glossary.terms:
            if is_chapter_of(page, term):
                indexed += [(phrase, section_of.get(f"cell-{term.cell}", "")) for phrase in term.phrases]
            if page == PAGE:
                indexed += [(phrase, term.anchor) for phrase in term.phrases]
        if is_chapter(page):
            used_in(self.env)[page] = link_first_uses(self.document, finder)
        if page == PAGE:
            self.address_entries()
        self.document += addnodes.index(entries=[("single", phrase, at, "main", None) for phrase, at in indexed])

    def address_entries(self) -> None:
        """Give each entry its address, and tell MyST, which checks every link to a place in a page."""
        names = getattr(self.document, "myst_slugs", {})
        for node in self.document.findall(nodes.term):
            address = anchor(node.astext())
            node["ids"].append(address)
            names[address] = (node.line or 0, address, node.astext())
        self.document.myst_slugs = self.env.metadata[PAGE]["myst_slugs"] = names


def sections(document: nodes.document) -> dict[str, str]:
    """For each address in a page, that of the section in which it is. A list of results shows a section's text."""
    found = {}
    for node in document.findall(nodes.Element):
        if node["ids"]:
            around = [node, *_ancestors(node)]
            section = next((each for each in around if isinstance(each, nodes.section)), node)
            found |= dict.fromkeys(node["ids"], section["ids"][0])
    return found


def link_first_uses(document: nodes.document, finder: Finder) -> set[str]:
    """Link the first use of each term in the prose of a page. Returns the names of the terms that it uses."""
    used: set[str] = set()
    for text in list(prose(document)):
        pieces: list[nodes.Node] = []
        done, whole = 0, text.astext()
        for start, end, term in finder(whole):
            if term.name not in used:
                used.add(term.name)
                pieces += [nodes.Text(whole[done:start]), _link(whole[start:end], term)]
                done = end
        if pieces:
            text.parent.replace(text, [*pieces, nodes.Text(whole[done:])])
    return used


def prose(document: nodes.document) -> Iterator[nodes.Text]:
    """The pieces of text of the paragraphs of a page, in reading order, without what stays as it is."""
    for paragraph in document.findall(nodes.paragraph):
        above = list(_ancestors(paragraph))
        if any(isinstance(node, NO_PROSE) or _is_cell(node) or _is_left_out(node) for node in above):
            continue
        for text in paragraph.findall(nodes.Text):
            inline = (node for node in _ancestors(text) if node not in above)
            if not any(isinstance(node, NOT_PLAIN) for node in inline):
                yield text


def _ancestors(node: nodes.Node) -> Iterator[nodes.Element]:
    while (node := node.parent) is not None:
        yield node


def _is_cell(node: nodes.Element) -> bool:
    return "nb_element" in node


def _is_left_out(node: nodes.Element) -> bool:
    return isinstance(node, nodes.section) and node.next_node(nodes.title).astext() in LEFT_OUT


def _link(words: str, term: Term) -> addnodes.pending_xref:
    inside = nodes.inline("", words)
    return addnodes.pending_xref("", inside, reftype=KIND, reftarget=term.anchor, hint=term.hint)


def resolve(app: Sphinx, _env: BuildEnvironment, node: addnodes.pending_xref, inside: nodes.Node) -> nodes.Node | None:
    """Make a link to the glossary, as the builder addresses pages."""
    if node["reftype"] != KIND:
        return None
    return _reference(app.builder, node, inside)


def _reference(builder: Builder, node: addnodes.pending_xref, inside: nodes.Node) -> nodes.reference:
    address = f"{builder.get_relative_uri(node['refdoc'], PAGE)}#{node['reftarget']}"
    return nodes.reference("", "", inside, internal=True, refuri=address, reftitle=node["hint"], classes=["book-term"])


# ---- which terms are used


def used_in(env: BuildEnvironment) -> dict[str, set[str]]:
    """The names of the terms that each chapter uses."""
    if not hasattr(env, "glossary_used"):
        env.glossary_used = {}
    return env.glossary_used


def forget(_app: Sphinx, env: BuildEnvironment, page: str) -> None:
    used_in(env).pop(page, None)


def merge(_app: Sphinx, env: BuildEnvironment, pages: set[str], other: BuildEnvironment) -> None:
    used_in(env).update({page: names for page, names in used_in(other).items() if page in pages})


def demand_uses(_app: Sphinx, env: BuildEnvironment) -> None:
    glossary, _ = glossary_of(env)
    used = set().union(*used_in(env).values())
    for term in glossary.terms:
        if term.name not in used:
            LOGGER.warning("%s: no chapter's prose says %s", SOURCE, " or ".join(map(repr, term.forms)))


# ---- setting up


def find_scorer(_app: Sphinx, config: Config) -> None:
    """Sphinx looks for the search's scorer from wherever it is started. We look from the book's root."""
    if config.html_search_scorer:
        config.html_search_scorer = str(Path(__file__).resolve().parents[2] / config.html_search_scorer)


def setup(app: Sphinx) -> dict[str, int]:
    app.add_transform(GlossaryTransform)
    app.connect("config-inited", find_scorer)
    app.connect("missing-reference", resolve)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("env-check-consistency", demand_uses)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
