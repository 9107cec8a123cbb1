"""Pages that are soon there on a slow phone: less to load, less to lay out, nothing that jumps.

* Scripts wait until the page is there; the search index until a reader searches.
* A figure has its size in the page, and is loaded when the reader comes near.
* A formula keeps its place free until it is typeset.
* The header's menus are the browser's own (popovers), so that Bootstrap's script can go: nothing else used it.
* Words of code in the text's own colour are plain text: half of a chapter's elements.
* Rules of the theme's style sheets that no page can use are left out.
* The page is light or dark from its first picture on.
* What changes below a mouse changes for a mouse alone: a finger hides it, leaves it behind, and waits for it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagesize
from docutils import nodes
from formulas import with_room
from sphinx.application import Sphinx

PLAIN_TOKEN = re.compile(r'<span class="(?:n|nn|p|w)">([^<]*)</span>')
PICTURE = re.compile(r'<img (?P<before>[^>]*?)src="(?P<source>[^"]*?_images/(?P<name>[^"/]+\.png))"(?P<after>[^>]*)>')
SCRIPT = re.compile(r"<script (?=[^>]*\bsrc=)(?![^>]*\b(?:defer|async)\b)")
OPTION = re.compile(r"<script>(?=DOCUMENTATION_OPTIONS\.)")  # changes what a waiting script sets, so it waits too
INDEX = re.compile(r"<script[^>]*searchindex\.js[^>]*></script>")
PRELOAD = re.compile(r'<link rel="preload" as="script"[^>]*>\s*')
BOOTSTRAP = re.compile(r"<script[^>]*/bootstrap\.js[^>]*></script>\s*")
MENU = re.compile(
    r' data-bs-toggle="dropdown" aria-expanded="false"(?P<between>.*?<ul class="dropdown-menu)"', re.DOTALL
)
TOOLTIP = re.compile(r' data-bs-placement="\w+" data-bs-toggle="tooltip"')
THEME = re.compile(r'<script data-cfasync="false">.*?</script>', re.DOTALL)
THEME_AT_ONCE = """<script>
  {
    let mode = "auto";
    try { mode = localStorage.getItem("mode") ?? mode; } catch {} // a browser that keeps nothing
    const dark = mode === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : mode === "dark";
    Object.assign(document.documentElement.dataset, { mode, theme: dark ? "dark" : "light" });
  }
</script>"""
STYLES = ("styles/*.css", "mystnb*.css")  # of the theme, below _static
IMPORT = re.compile(r'@import "([\w./-]+\.css)";')
RELATIVE = re.compile(r"""url\(["']?(?!["']?(?:data:|https?:|/|#))""")
WORD = re.compile(r"[A-Za-z_][\w-]*")
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
POINTED = re.compile(r":(?:hover|active)\b")


def patient(html: str) -> str:
    """The page's scripts, none of which holds up the page; the search index is left to book.js."""
    html = INDEX.sub("", html)
    return OPTION.sub('<script type="module">', SCRIPT.sub("<script defer ", html))


def with_theme_at_once(html: str) -> str:
    """The theme asks the system when all scripts are there: until then a slow phone shows a page without colours."""
    return THEME.sub(THEME_AT_ONCE, html)


def without_preloads(html: str) -> str:
    """Scripts come after what one sees."""
    return PRELOAD.sub("", html)


def without_tooltips(html: str) -> str:
    """A button's name is shown by the browser itself: the theme's way lays out the page for it, at each touch."""
    return TOOLTIP.sub("", html).replace(" data-bs-title=", " title=")


def without_bootstrap(html: str) -> str:
    """Its script served tooltips and menus, which the browser has itself."""
    return BOOTSTRAP.sub("", html)


def with_own_menus(html: str) -> str:
    """A menu that a button opens, by touch, mouse or keyboard, and that closes by itself, without a script."""
    number = itertools.count(1)

    def opened(found: re.Match[str]) -> str:
        name = f"menu-{next(number)}"
        return f' popovertarget="{name}"{found["between"]}" id="{name}" popover'

    return MENU.sub(opened, html)


def slim_page(app: Sphinx, page: str, _template: str, context: dict[str, Any], doctree: nodes.document | None) -> None:
    """Give the template what it needs, and slim the page's text."""
    hasty = page == "search"  # its scripts rely on one another at once
    context["patient"] = (lambda html: html) if hasty else patient
    context["without_bootstrap"] = without_bootstrap
    context["without_preloads"] = without_preloads
    context["with_theme_at_once"] = with_theme_at_once
    context["without_tooltips"] = without_tooltips
    context["with_own_menus"] = with_own_menus
    if doctree is None:
        return
    files = {name: Path(app.srcdir) / uri for uri, name in app.builder.images.items()}
    body = PLAIN_TOKEN.sub(r"\1", context["body"])
    context["body"] = with_room(PICTURE.sub(lambda found: sized(found, files), body))
    context["has_formula"] = '"math notranslate' in body


def sized(picture: re.Match[str], files: dict[str, Path]) -> str:
    """An <img> that keeps its place free and is loaded when it is near."""
    width, height = imagesize.get(files[picture["name"]])
    size = f'width="{width}" height="{height}" loading="lazy" decoding="async"'
    return f'<img {picture["before"]}src="{picture["source"]}" {size}{picture["after"]}>'


def slim_styles(app: Sphinx, error: Exception | None) -> None:
    """Leave out the rules for classes that occur in no page and no script."""
    if error or app.builder.format != "html":
        return
    site = Path(app.outdir)
    used = set(WORD.findall("".join(text.read_text(encoding="utf-8") for text in texts(site))))
    for pattern in STYLES:
        for sheet in (site / "_static").glob(pattern):
            style = used_rules(with_imports(sheet), used)
            sheet.write_text(style, encoding="utf-8")


def with_imports(sheet: Path) -> str:
    """A style sheet with those that it imports: a browser would ask for them one after the other."""

    def imported(found: re.Match[str]) -> str:
        path = found[1]
        style = (sheet.parent / path).read_text(encoding="utf-8")
        return RELATIVE.sub(rf"\g<0>{path.rpartition('/')[0]}/", style) if "/" in path else style

    return IMPORT.sub(imported, sheet.read_text(encoding="utf-8"))


def texts(site: Path) -> Iterator[Path]:
    """Every page, and every script that could add a class to one."""
    yield from site.rglob("*.html")
    yield from (each for each in site.rglob("*.js") if each.name not in {"fontawesome.js", "searchindex.js"})


def used_rules(style: str, used: set[str]) -> str:
    """A style sheet without the rules none of whose selectors can match, and without comments."""
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    return "".join(kept(head, body, used) for head, body in rules(style))


def rules(style: str) -> Iterator[tuple[str, str]]:
    """Each rule as what stands before its braces and what stands in them ("" for a statement such as @import)."""
    start = 0
    while start < len(style):
        opening = re.compile(r"[{;]").search(style, start)
        if opening is None:
            return
        if opening[0] == ";":
            yield style[start : opening.end()].strip(), ""
            start = opening.end()
            continue
        end, depth = opening.end(), 1
        for brace in re.compile(r"\"(?:\\.|[^\"])*\"|'(?:\\.|[^'])*'|[{}]").finditer(style, end):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if depth == 0:
                end = brace.start()
                break
        yield style[start : opening.start()].strip(), style[opening.end() : end].strip()
        start = end + 1


def kept(head: str, body: str, used: set[str]) -> str:
    """The rule as far as it can match something."""
    if head.startswith(("@media", "@supports", "@layer", "@container")):
        inside = used_rules(body, used)
        return f"{head}{{{inside}}}" if inside else ""
    if head.startswith("@"):
        return f"{head}{{{body}}}" if body else head
    selectors = [each for each in split_selectors(head) if can_match(each, used)]
    pointed = [each for each in selectors if is_pointed(each) and "visibility" not in body]  # a heading's link may show
    always = [each for each in selectors if each not in pointed]
    rule = f"{','.join(always)}{{{body}}}" if always else ""
    return f"{rule}@media (hover:hover){{{','.join(pointed)}{{{body}}}}}" if pointed else rule


def split_selectors(head: str) -> list[str]:
    """Split at the commas that stand in no brackets."""
    parts, depth = [""], 0
    for sign in head:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def can_match(selector: str, used: set[str]) -> bool:
    """Whether every class that the selector demands occurs somewhere. What stands in brackets is not looked at."""
    while (bare := re.sub(r"\([^()]*\)|\[[^\]]*\]", "", selector)) != selector:
        selector = bare
    return all(name in used for name in CLASS.findall(selector))


def is_pointed(selector: str) -> bool:
    """Whether it matches only what a mouse or a finger is on."""
    return POINTED.search(re.sub(r":(?:not|is|where)\([^()]*\)", "", selector)) is not None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", slim_page, priority=920)
    app.connect("build-finished", slim_styles)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
