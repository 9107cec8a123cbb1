"""An address for every cell of a notebook and for every claim of the ledger.

A code cell gets the anchor `cell-ID`, where ID is the cell's own id in the notebook: it stays when cells are added,
moved or run again. So does a text cell that begins with a heading. A heading `C07 · …` gets the anchor `c07`.

    [the cell](../chapters/01_a_set_not_a_sequence.ipynb#cell-806ccb84)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

CLAIM = re.compile(r"C\d\d(?= · )")
LINES_A_CELL = 10_000  # MyST-NB counts the lines of cell k, the first being 1, from k times this


def cell_ids(notebook: Path) -> list[str | None]:
    """The id of every cell, in order."""
    return [cell.get("id") for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]]


def first_sections(document: nodes.document) -> Iterator[tuple[int, nodes.section]]:
    """Sections whose heading is the first line of a text cell, with the index of that cell."""
    for section in document.findall(nodes.section):
        cell, line = divmod(section.line or 0, LINES_A_CELL)
        if cell and line <= 2:  # MyST-NB counts lines of a cell from 1, and MyST one further
            yield cell - 1, section


def code_cells(document: nodes.document) -> Iterator[tuple[int, nodes.container]]:
    """What a code cell becomes, with the index of the cell."""
    for container in document.findall(nodes.container):
        if container.get("nb_element") == "cell_code":
            yield container["cell_index"], container


class CellAnchors(SphinxTransform):
    """Give cells and claims their anchors, and tell MyST, which checks every link to a place in a page."""

    default_priority = 800  # MyST resolves links within a page at 879

    def apply(self, **_: object) -> None:
        names = getattr(self.document, "myst_slugs", {})
        for anchor, node in self.anchors():
            if anchor not in node["ids"]:
                node["ids"].append(anchor)
            names[anchor] = (node.line or 0, anchor, anchor)
        if names:
            self.document.myst_slugs = self.env.metadata[self.env.docname]["myst_slugs"] = names

    def anchors(self) -> Iterator[tuple[str, nodes.Element]]:
        source = Path(self.env.doc2path(self.env.docname))
        if source.suffix == ".ipynb":
            ids = cell_ids(source)
            for index, node in (*code_cells(self.document), *first_sections(self.document)):
                if ids[index]:
                    yield f"cell-{ids[index]}", node
        for section in self.document.findall(nodes.section):
            if claim := CLAIM.match(section.next_node(nodes.title).astext()):
                yield claim.group().lower(), section


def setup(app: Sphinx) -> dict[str, int]:
    app.add_transform(CellAnchors)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
