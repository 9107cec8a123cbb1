"""The picture that stands beside a link to a page: the page's title and its first figure, 1200 by 630 pixels."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont

SIZE = (1200, 630)
MARGIN, TOP = 60, 125
PAPER, INK, MUTED, PRIMARY, DOOR, LEAF = "#fffefc", "#24292f", "#57606a", "#0b6470", "#f8e7cf", "#e08a4f"
BORDER = "#dad5ca"
COLOURS = 64  # a card stays below 60 kB
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
WIDE = 1.5  # a figure with more width to its height stands below the title, another beside it


def font(size: int, name: str = "DejaVuSans") -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(str(FONTS / f"{name}.ttf"), size)


def draw_card(book: str, title: str, words: str, figure: Path | None, out: Path) -> None:
    """Write the card of a page to `out`, a PNG. A page without a figure shows its first words."""
    card = Image.new("RGB", SIZE, PAPER)
    pen = ImageDraw.Draw(card)
    pen.rectangle((0, 0, 14, SIZE[1]), fill=PRIMARY)
    draw_mark(pen, MARGIN, 50)
    pen.text((MARGIN + 62, 59), book, font=font(27), fill=MUTED)
    right, bottom = SIZE[0] - MARGIN, SIZE[1] - 45
    if figure is None:
        below = write(pen, title, font(68, "DejaVuSans-Bold"), INK, (MARGIN, TOP), right - MARGIN)
        write(pen, words, font(34), MUTED, (MARGIN, below + 30), right - MARGIN)
    else:
        picture = Image.open(figure).convert("RGBA")
        beside = picture.width < WIDE * picture.height
        below = write(pen, title, font(52, "DejaVuSans-Bold"), INK, (MARGIN, TOP), 490 if beside else right - MARGIN)
        place(card, picture, (right - 560, TOP, right, bottom) if beside else (MARGIN, below + 15, right, bottom))
    out.parent.mkdir(parents=True, exist_ok=True)
    card.quantize(COLOURS, dither=Image.Dither.NONE).save(out, optimize=True)


def draw_mark(pen: ImageDraw.ImageDraw, left: int, top: int) -> None:
    """The book's mark, a door that stands open, as in favicon.svg."""
    pen.rounded_rectangle((left, top, left + 46, top + 46), 10, fill=PRIMARY)
    pen.pieslice((left + 17, top + 10, left + 34, top + 28), 180, 360, fill=DOOR)
    pen.rectangle((left + 17, top + 19, left + 34, top + 37), fill=DOOR)
    pen.polygon([(left + 10, top + 14), (left + 22, top + 10), (left + 22, top + 37), (left + 10, top + 37)], fill=LEAF)


def write(
    pen: ImageDraw.ImageDraw, text: str, look: ImageFont.FreeTypeFont, ink: str, corner: tuple[int, int], width: int
) -> int:
    """Write in lines of at most `width` pixels, down from the upper left corner. Returns where the next line begins."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and look.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    step = round(1.3 * look.size)
    for number, line in enumerate(lines):
        pen.text((corner[0], corner[1] + number * step), line, font=look, fill=ink)
    return corner[1] + len(lines) * step


def place(card: Image.Image, picture: Image.Image, box: tuple[int, int, int, int]) -> None:
    """Paste the picture, as large as it fits, into the middle of the box."""
    left, top, right, bottom = box
    scale = min((right - left) / picture.width, (bottom - top) / picture.height)
    small = picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)
    x, y = (left + right - small.width) // 2, (top + bottom - small.height) // 2
    card.paste(small, (x, y), small)
    ImageDraw.Draw(card).rectangle((x - 1, y - 1, x + small.width, y + small.height), outline=BORDER)
