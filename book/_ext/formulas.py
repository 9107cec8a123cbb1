"""How much room a formula will take, guessed from its TeX, so that the page does not jump when it is typeset.

MathJax comes after the page can be read. Until then each formula holds a place of about its own size.
"""

from __future__ import annotations

import re
from html import unescape

INLINE = re.compile(r'<span class="math notranslate nohighlight">\\\((.*?)\\\)</span>', re.DOTALL)
DISPLAY = re.compile(r'<div class="math notranslate nohighlight"(?P<id>[^>]*)>(?P<tex>.*?)</div>', re.DOTALL)
TOKEN = re.compile(r"\\[a-zA-Z]+\*?|\\.|\S", re.DOTALL)


def several(names: str, width: float) -> dict[str, float]:
    return dict.fromkeys(names.split(), width)


# Widths in em of TeX's own font, with the space that TeX sets around a sign.
WIDTHS = {
    **dict.fromkeys("ijltI", 0.38),
    **dict.fromkeys("rfsceJ", 0.46),
    **dict.fromkeys("mwMWHNKXABQDUGOVRYCEFZ", 0.8),
    **dict.fromkeys("()[]|/!.:", 0.35),
    **dict.fromkeys(",;", 0.44),
    **dict.fromkeys("=<>", 1.33),
    **dict.fromkeys("+-−*", 1.2),
    **dict.fromkeys("{}&", 0.0),
    "'": 0.28,
}
COMMANDS = {
    **several("le ge leq geq ne neq approx equiv in sim to mapsto propto mid subset ll gg", 1.3),
    **several("times pm oplus otimes odot circ", 1.2),
    **several("top bot infty ldots dots cdots forall partial nabla blacksquare", 0.85),
    **several("sum prod", 1.25),
    **several("left right bigl bigr Bigl Bigr big Big text textbf textit mathrm mathbf mathit", 0.0),
    **several("mathcal mathbb operatorname operatorname* displaystyle bar hat tilde vec", 0.0),
    **several("min max log exp sin cos det dim arg lim tanh", 1.75),
    "cdot": 0.72,
    "quad": 1.0,
    "qquad": 2.0,
    "sqrt": 0.85,
    "Vert": 0.5,
    "lVert": 0.5,
    "rVert": 0.5,
}
SPACES = {r"\,": 0.17, r"\;": 0.28, r"\:": 0.22, r"\!": -0.17, r"\ ": 0.3, r"\{": 0.5, r"\}": 0.5, r"\|": 0.5}
SCRIPT = 0.72
LETTER, COMMAND = 0.54, 0.58  # any other
FIRST, LINE, TALL = 4.4, 1.6, 1.8  # heights in em: a formula of one row, one more row, a fraction or sum


class Reader:
    """Adds up the widths of a formula's parts."""

    def __init__(self, tex: str) -> None:
        self.tokens = TOKEN.findall(tex)
        self.place = 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        self.place += 1
        return self.tokens[self.place - 1] if self.place <= len(self.tokens) else ""

    def run(self, closing: str = "") -> float:
        """Everything up to a closing brace: the widest of its rows."""
        widths = [0.0]
        while self.place < len(self.tokens) and self.peek() != closing:
            if self.peek() == r"\\":
                self.take()
                widths.append(0.0)
            else:
                widths[-1] += self.part()
        self.take()
        return max(widths)

    def part(self) -> float:
        """One sign, one group, or the scripts of the sign before it."""
        if self.peek() and self.peek() in "^_":
            return self.scripts()
        token = self.take()
        if token == "{":
            return self.run("}")
        if token == "&":
            return 0.9
        if token in (r"\frac", r"\tfrac", r"\dfrac"):
            return 0.24 + SCRIPT * max(self.part(), self.part())
        if token in (r"\begin", r"\end"):
            self.take()
            self.run("}")
            return 0.45
        if token.startswith("\\"):
            return SPACES.get(token, COMMANDS.get(token[1:], COMMAND))
        return WIDTHS.get(token, 0.78 if token.isupper() else LETTER)

    def scripts(self) -> float:
        """Scripts above and below stand over one another."""
        widths = []
        while self.peek() and self.peek() in "^_":
            self.take()
            widths.append(SCRIPT * self.part())
        return max(widths)


def width(tex: str) -> float:
    """Width of a formula in em of TeX's font."""
    return Reader(tex).run()


def height(tex: str) -> float:
    """Height of a formula set apart, with its margins, in em of the text."""
    tall = bool(re.search(r"\\(frac|sum|prod|begin)", tex))
    return FIRST + TALL * tall + LINE * tex.count(r"\\")


def with_room(html: str) -> str:
    """The page's text with each formula's room beside it, for book.css."""
    html = INLINE.sub(
        lambda found: found[0].replace(">", f' style="--width: {width(unescape(found[1])):.1f}">', 1), html
    )
    return DISPLAY.sub(
        lambda found: found[0].replace(">", f' style="--height: {height(unescape(found["tex"])):.1f}">', 1), html
    )
