"""One look for every figure: a palette that colour-blind readers can tell apart, on its own paper.

The paper is part of the picture, so a figure looks the same on a light page, on a dark one and in Colab.
Every figure must say what it shows: `show` refuses one without titles, axis labels or alt text.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

PAPER = "#fbfaf6"
INK = "#22262b"
FAINT = "#c9c7bf"
# Okabe and Ito's palette (https://jfly.uni-koeln.de/color/), in an order whose neighbours differ in lightness.
BLUE, ORANGE, GREEN, SKY, RED, PINK = "#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7"
PALETTE = (BLUE, ORANGE, GREEN, SKY, RED, PINK)
AMOUNT = LinearSegmentedColormap.from_list("amount", [PAPER, SKY, BLUE, "#00304c"])  # 0 to much
SIGNED = LinearSegmentedColormap.from_list("signed", [BLUE, SKY, PAPER, ORANGE, RED])  # minus to plus

STYLE = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.prop_cycle": plt.cycler(color=PALETTE),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "figure.titlesize": 13,
    "font.size": 10,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "figure.dpi": 150,
}


def new(rows: int = 1, columns: int = 1, *, width: float = 7.0, height: float = 3.0) -> tuple[Figure, np.ndarray]:
    """An empty figure in the book's style, sizes in inches, and its axes as a flat array (rows * columns,)."""
    plt.rcParams.update(STYLE)
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    return figure, axes.ravel()


def show(figure: Figure, alt: str) -> None:
    """Display the figure with its alt text and close it.

    alt: what a reader who cannot see the figure should learn from it, at least a sentence.
    Raises ValueError if the alt text is too short, or an axis lacks its title or a label.
    """
    _demand_words(figure, alt)
    display(figure, metadata={"image/png": {"alt": alt}})
    plt.close(figure)


def heatmap(
    axis: Axes,
    matrix: np.ndarray,
    *,
    title: str,
    x: Sequence[str],
    y: Sequence[str],
    xlabel: str,
    ylabel: str,
    signed: bool = False,
    decimals: int = 2,
    limit: float | None = None,
) -> None:
    """Draw a small matrix (rows, columns) as coloured cells with their numbers in them.

    x and y name the columns and rows. `signed` centres the colours on zero; `limit` fixes the end of the scale.
    """
    matrix = np.asarray(matrix)
    limit = float(np.abs(matrix).max()) if limit is None else limit
    axis.imshow(matrix, cmap=SIGNED if signed else AMOUNT, vmin=-limit if signed else 0, vmax=limit)
    for (row, column), value in np.ndenumerate(matrix):
        dark = abs(value) > 0.55 * limit
        axis.text(
            column,
            row,
            f"{value:.{decimals}f}",
            ha="center",
            va="center",
            fontsize=9,
            color=PAPER if dark and not (signed and value > 0) else INK,
        )
    axis.set_xticks(range(len(x)), x)
    axis.set_yticks(range(len(y)), y)
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


def _demand_words(figure: Figure, alt: str) -> None:
    if len(alt.split()) < 8:
        raise ValueError(f"alt text must say what is seen, in a sentence; got {alt!r}")
    for axis in figure.axes:
        title = axis.get_title(loc="left") or axis.get_title(loc="center")
        if not title:
            raise ValueError("every axis needs a title: axis.set_title(...)")
        if axis.axison and not (axis.get_xlabel() and axis.get_ylabel()):
            raise ValueError(f"axis {title!r} needs an xlabel and a ylabel")
