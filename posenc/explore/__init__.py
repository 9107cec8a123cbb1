"""Explorables: figures that a reader can take hold of, on the site, in Colab and in JupyterLab.

`show("clocks", figure, alt, ...)` displays the figure, and below it a small page of HTML, style and script that needs
nothing from elsewhere. Where scripts run, the explorable takes the figure's place; elsewhere (on GitHub, on paper) the
figure stays. What is drawn comes from `data`, computed by the library; a test moves every slider in a browser and
compares the numbers shown with the library's.
"""

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import display
from matplotlib.figure import Figure

from posenc import figures

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.js") if path.stem != "kit"))


def show(name: str, figure: Figure, alt: str, label: str, data: Mapping[str, Any]) -> None:
    """Display the figure, and the explorable that takes its place where scripts run.

    name: one of `NAMES`. figure, alt: as in `figures.show`. label: what one can do here, in one sentence.
    data: what its script is given; arrays become lists. Round what a machine may compute differently (`rounded`), as
    notebooks are run again and compared.

    Raises ValueError for a name that is none of `NAMES`.
    """
    document = html(name, label, data)
    figures.show(figure, alt)
    display({"text/html": document, "text/plain": f"Explorable: {label}"}, raw=True)


def html(name: str, label: str, data: Mapping[str, Any]) -> str:
    """The explorable as a piece of HTML that stands alone."""
    if name not in NAMES:
        raise ValueError(f"no explorable {name!r}; there are {', '.join(NAMES)}")
    given = json.dumps(data, default=_plain, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return (
        f'<div class="explorable" data-explorable="{name}" role="group" aria-label="{escape(label)}" hidden>'
        f'<script type="application/json">{given}</script></div>\n'
        f"<style>{_file('kit.css')}</style>\n<script>\n{_file('kit.js')}{_file(f'{name}.js')}</script>"
    )


def rounded(values: Any, digits: int = 4) -> Any:
    """Numbers (tensor, array or list, nested) with so many digits after the point, as lists."""
    return np.round(np.asarray(values, dtype=float), digits).tolist()


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"an explorable cannot be given a {type(value).__name__}")


@cache
def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
