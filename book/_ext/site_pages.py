"""What our pages need beyond Jupyter Book: Colab links, descriptions, and scripts only where they are used.

`{colab}` links a committed notebook in Colab, from the repository's address in `_config.yml`:

    {colab}`Open chapter 1 in Colab <chapters/01_a_set_not_a_sequence.ipynb>`
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import ReferenceRole

LOGGER = logging.getLogger(__name__)
ICON_SCRIPT = re.compile(r"<script[^>]*/fontawesome\.js[^>]*></script>")
DESCRIPTION_LENGTH = 160
EXERCISE = re.compile(r"(?m)^## (\d+)\.\d+ · ")
# Which pages load a script (a page's scripts in this order). What a reader has done is kept by their browser.
SCRIPTS = {
    "progress.js": re.compile(r"(chapters|exercises)/|book/(intro|interview)$"),
    "drill.js": re.compile(r"book/interview$"),
    "sort.js": re.compile(r"book/who_uses_what$"),
    "quiz.js": re.compile(r"chapters/"),
}
STYLES = {"progress.js": "progress.css", "quiz.js": "quiz.css"}  # what a script brings along
# What Sphinx's marker of searched words leaves alone, as its script says it, and as it should.
MARKED = '"button, select, textarea"'
UNMARKED = '"button, select, textarea, script, style, svg, mjx-container, .explorable"'


def colab_url(repository: str, branch: str, colab: str, notebook: str) -> str:
    """Address at which Colab opens `notebook`, a path from the root of a GitHub repository."""
    owner_and_name = repository.removeprefix("https://github.com/").strip("/")
    return f"{colab.rstrip('/')}/github/{owner_and_name}/blob/{branch}/{notebook}"


class ColabRole(ReferenceRole):
    """A link that opens a notebook of this book in Colab."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        if not (Path(self.env.srcdir) / self.target).is_file():
            LOGGER.warning("no notebook at %r for Colab to open", self.target, location=self.get_location())
        options = self.config.html_theme_options
        url = colab_url(
            options["repository_url"],
            options["repository_branch"],
            options["launch_buttons"]["colab_url"],
            self.target,
        )
        return [nodes.reference("", self.title, refuri=url, internal=False)], []


def describe(doctree: nodes.document) -> str:
    """The page's first paragraph that is more than a link, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        is_a_link = len(paragraph.children) == 1 and isinstance(paragraph[0], nodes.reference)
        if not is_a_link:
            return shorten(" ".join(paragraph.astext().split()))
    return ""


def shorten(text: str) -> str:
    if len(text) <= DESCRIPTION_LENGTH:
        return text
    return text[: DESCRIPTION_LENGTH - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def without_icon_script(html: str) -> str:
    """Drop the theme's icon script (0.5 MB gzipped); `icons.css` has the few icons in use."""
    return ICON_SCRIPT.sub("", html)


def has_formula(doctree: nodes.document) -> bool:
    return any(isinstance(node, (nodes.math, nodes.math_block)) for node in doctree.findall())


def exercises_by_chapter(folder: Path) -> dict[str, int]:
    """How many exercises each chapter has (`{"1": 8, …}`), for the landing page."""
    count: dict[str, int] = {}
    for notebook in sorted(folder.glob("*.ipynb")):
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            for chapter in EXERCISE.findall("".join(cell["source"])) if cell["cell_type"] == "markdown" else []:
                count[chapter] = count.get(chapter, 0) + 1
    return count


def improve_page(
    app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Describe the page, leave MathJax out where no formula is, and let the template drop the icon script.

    Chapters, exercises, the landing page and the drill also get the script that keeps what a reader has done.
    """
    context["without_icon_script"] = without_icon_script
    if doctree is None:
        return
    if description := describe(doctree):
        context["metatags"] += f'\n<meta name="description" content="{escape(description)}" />'
    for script in (name for name, pages in SCRIPTS.items() if pages.match(page)):
        app.add_js_file(script, loading_method="defer")
        if script in STYLES:
            app.add_css_file(STYLES[script])
    if page == app.config.root_doc:
        counted = escape(json.dumps(exercises_by_chapter(Path(app.srcdir) / "exercises")))
        context["metatags"] += f'\n<meta name="exercises" content="{counted}" />'
    if not has_formula(doctree):
        scripts = context["script_files"]
        scripts[:] = [script for script in scripts if "mathjax/" not in str(script.filename)]


def mark_text_alone(app: Sphinx, error: Exception | None) -> None:
    """Keep Sphinx's marker of searched words, which breaks on a map drawn in SVG, out of all that is not text.

    Raises ExtensionError if another Sphinx writes its marker in another way.
    """
    if error or app.builder.format != "html":
        return
    script = Path(app.outdir) / "_static" / "sphinx_highlight.js"
    text = script.read_text(encoding="utf-8")
    if UNMARKED in text:
        return
    if MARKED not in text:
        raise ExtensionError(f"{script.name} has no {MARKED}")
    script.write_text(text.replace(MARKED, UNMARKED), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    # Jupyter Book sets this for an extension that we leave out; unknown settings are warnings.
    app.add_config_value("comments_config", {}, "")
    app.add_role("colab", ColabRole())
    app.connect("html-page-context", improve_page, priority=900)
    app.connect("build-finished", mark_text_alone)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
