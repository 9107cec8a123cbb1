"""A content security policy in each page: it loads from its own site alone, and runs the scripts it was built with.

A script in the page, or in an attribute such as `onclick`, is named by its hash. What anybody else puts into the page
later is not run. Styles in the page are allowed: formulas and highlighted code set them.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from pathlib import Path

from sphinx.application import Sphinx

SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<text>.*?)</script>", re.DOTALL)
HANDLER = re.compile(r"""<[a-zA-Z][^<>]*?\son[a-z]+=(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)')""")
DATA = re.compile(r"""\btype=["']?application/""")
META = '<meta http-equiv="Content-Security-Policy" content="{}">'
PRESENT = re.compile(META.format("[^>]*") + "\n")
FIRST = re.compile(r"<head>\s*")
RULES = (
    "default-src 'none'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'self'",
    "form-action 'self'",
)


def scripts(html: str) -> set[str]:
    """The text of every script that stands in the page itself."""
    found = ((m["attributes"], m["text"]) for m in SCRIPT.finditer(html))
    return {text for attributes, text in found if "src=" not in attributes and not DATA.search(attributes)}


def handlers(html: str) -> set[str]:
    """The text of every script in an attribute."""
    return {unescape(m["double"] or m["single"] or "") for m in HANDLER.finditer(SCRIPT.sub("", html))}


def policy(texts: set[str]) -> str:
    """The policy of a page with these scripts, in one line."""
    hashes = sorted(base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
    allowed = " ".join(["script-src 'self' 'unsafe-hashes'", *(f"'sha256-{each}'" for each in hashes)])
    return "; ".join((*RULES, allowed))


def with_policy(html: str, everywhere: set[str]) -> str:
    """The page with its policy as the first thing in its head; one from an earlier build is replaced.

    everywhere: scripts in attributes of any page. The search reads all pages, and their attributes with them.
    """
    html = PRESENT.sub("", html)
    meta = META.format(policy(scripts(html) | everywhere))
    return FIRST.sub(lambda found: f"{found.group()}{meta}\n", html, count=1)


def guard_pages(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    pages = {path: path.read_text(encoding="utf-8") for path in Path(app.outdir).rglob("*.html")}
    everywhere = set().union(*map(handlers, pages.values()))
    for path, html in pages.items():
        if (guarded := with_policy(html, everywhere)) != html:
            path.write_text(guarded, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", guard_pages, priority=999)  # when nothing changes the pages any more
    return {"parallel_read_safe": True, "parallel_write_safe": True}
