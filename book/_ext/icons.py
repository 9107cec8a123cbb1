"""The icons in use as a font of a few kilobytes: the theme's script that draws all icons weighs half a megabyte.

`icons.css` names the fonts of the theme and the signs that it wants of them. When the site is built, each font is cut
down to these signs, and put into the style sheet itself.
"""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pydata_sphinx_theme
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from sphinx.application import Sphinx

FONTS = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static/vendor/fontawesome/webfonts"
SIGN = re.compile(r'--icon: "\\([0-9a-f]+)"')
SOURCE = re.compile(r'url\("([\w-]+\.ttf)"\)')


def cut(font: Path, signs: set[int]) -> bytes:
    """A font of these signs alone, as WOFF. Signs that it does not have are passed over."""
    whole = TTFont(font)
    options = Options(hinting=False, layout_features=[], glyph_names=True)
    cutter = Subsetter(options)
    cutter.populate(unicodes=signs & whole.getBestCmap().keys())
    cutter.subset(whole)
    whole.flavor = "woff"
    small = io.BytesIO()
    whole.save(small)
    return small.getvalue()


def with_fonts(style: str) -> str:
    """The style sheet with the fonts that it names in it, cut down to the signs that it names."""
    signs = {int(code, 16) for code in SIGN.findall(style)}

    def inside(source: re.Match[str]) -> str:
        text = base64.b64encode(cut(FONTS / source[1], signs)).decode()
        return f'url("data:font/woff;base64,{text}")'

    return SOURCE.sub(inside, style)


def put_fonts(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    sheet = Path(app.outdir) / "_static" / "icons.css"
    source = Path(app.srcdir) / "book" / "_static" / "icons.css"
    sheet.write_text(with_fonts(source.read_text(encoding="utf-8")), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", put_fonts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
