"""The symmetry table: which moves leave a layer's behaviour unchanged, measured for every encoding of the book.

`gaps` makes every version of every move and measures what changed. `TEXTS` and `GRIDS` name the encodings, each with
the kinds of thing that it reads; `WHY` says of each kind, in a sentence, which moves it keeps. So the table can be
predicted (`kept_by`) and measured (`measured`), and the two compared.

    python -m posenc.symmetry_table    # print both tables
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import permutations

import torch
from torch import Tensor, nn

from posenc.absolute import Sinusoidal
from posenc.encoding import NoPE, PositionEncoding, Together
from posenc.grids import LearnedGrid, RowAndColumn, Sinusoidal2D
from posenc.learned import Learned
from posenc.masks import Causal, Chunked, SlidingWindow
from posenc.model import Block
from posenc.offsets import Shaw, ShawKeys, TransformerXL
from posenc.relative import ALiBi, Fire, Gaussian, KerpleLog, T5Bias
from posenc.rotary import Rotary
from posenc.rotary_grid import AxialRotary, MixedRotary
from posenc.symmetry import GRID_MOVES, shift_grid
from posenc.vision import grid
from posenc.windows import ALiBi2D, ContinuousBias, WindowBias, Windows

Behaviour = Callable[[Tensor, Tensor], Tensor]

D_MODEL, N_HEADS, HEAD_DIM = 16, 2, 8
N_TOKENS, SIDE = 6, 4  # all 720 orders of six tokens; a grid of 4 by 4
EXACT, BROKEN = 1e-12, 1e-3  # nothing may lie between

# --- What is measured


def gaps(f: Behaviour, x: Tensor, places: Tensor, orders: Tensor, relabelled: dict[str, list[Tensor]]) -> dict:
    """What each version of each move changes: {move: (versions,)}, each the largest absolute difference.

    f: tokens (..., n, d) and labels to (..., n, d). x: (n, d); places: its labels; orders: (versions, n) permutations
    of the tokens, labels left where they are; relabelled: other labels for the tokens, by name of the move.
    "earlier tokens" are the orders that leave the last token alone; there only the last row is compared.
    """
    plain, shuffled = f(x, places), f(x[orders], places)
    last_stays = orders[:, -1] == len(x) - 1
    changes = {
        "any order": shuffled - plain[orders],
        "earlier tokens": shuffled[last_stays, -1:] - plain[-1:],
    }
    for move, labels in relabelled.items():
        changes[move] = torch.stack([f(x, moved) for moved in labels]) - plain
    return {move: change.abs().flatten(1).amax(1) for move, change in changes.items()}


def text_moves(n: int) -> tuple[Tensor, Tensor, dict[str, list[Tensor]]]:
    """Places, all orders and all new labels of a text of n tokens: the last three arguments of `gaps`."""
    places = torch.arange(n)
    relabelled = {
        "shift": [places + by for by in range(1, 9)],
        "reversal": [places.flip(0)],
        "stretch": [2 * places, 3 * places],
    }
    return places, torch.tensor([*permutations(range(n))]), relabelled


def grid_moves(side: int) -> tuple[Tensor, Tensor, dict[str, list[Tensor]]]:
    """The same for a square grid: 200 random orders, and the moves of the plane."""
    places, n = grid(side, side), side * side
    orders = torch.rand(200, n, generator=torch.Generator().manual_seed(0)).argsort(-1)
    relabelled = {
        "shift down": [shift_grid(places, by, 0) for by in range(1, side + 1)],
        "shift right": [shift_grid(places, 0, by) for by in range(1, side + 1)],
        **{name: [move(places)] for name, move in GRID_MOVES.items() if name != "shift"},
    }
    return places, orders, relabelled


class Stack(nn.Module):
    """Blocks of chapter 1 with an encoding: tokens (..., n, d_model) and labels to (..., n, d_model)."""

    def __init__(self, encoding: PositionEncoding, n_layers: int = 1):
        super().__init__()
        self.encoding = encoding
        self.blocks = nn.Sequential(*(Block(D_MODEL, N_HEADS, encoding) for _ in range(n_layers)))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = self.encoding.tokens(x, positions)
        for block in self.blocks:
            x = block(x, positions)
        return x


def at_random(encoding: PositionEncoding, n_layers: int, seed: int) -> Stack:
    """A stack in float64, every weight and table drawn: zeros and equal entries would look symmetric by accident."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stack = Stack(encoding, n_layers).double()
        with torch.no_grad():
            for weight in stack.encoding.parameters():
                if weight.ndim:  # FIRE's two numbers stay as given
                    weight.normal_(std=0.5)
    return stack


# --- What an encoding reads, and what that keeps

TEXT_MOVES = ("any order", "earlier tokens", "shift", "reversal", "stretch")
GRID_MOVE_NAMES = ("any order", "shift down", "shift right", "left-right", "up-down", "half turn", "transpose")

# kind: {move: (kept, the reason in a sentence)}
WHY: dict[str, dict[str, tuple[bool, str]]] = {
    "nothing": {
        "any order": (True, "No term of the formula holds a place."),
        "earlier tokens": (True, "The last row sums over all tokens, in any order."),
        "shift": (True, "Labels are never read."),
        "reversal": (True, "Labels are never read."),
        "stretch": (True, "Labels are never read."),
        "shift down": (True, "Labels are never read."),
        "shift right": (True, "Labels are never read."),
        "left-right": (True, "Labels are never read."),
        "up-down": (True, "Labels are never read."),
        "half turn": (True, "Labels are never read."),
        "transpose": (True, "Labels are never read."),
    },
    "before or after": {
        "any order": (False, "A token moved forward sees more tokens than before."),
        "earlier tokens": (True, "The last row sees all of them, as a multiset. With a second layer it does not."),
        "shift": (True, "Who was before is still before."),
        "reversal": (False, "Before becomes after."),
        "stretch": (True, "Who was before is still before, only further away."),
    },
    "a window": {
        "any order": (False, "A token moved away sees other neighbours."),
        "earlier tokens": (False, "Tokens enter and leave the window. Orders that keep it filled alike are free."),
        "shift": (True, "The window moves along."),
        "reversal": (False, "The window looks back only."),
        "stretch": (False, "Neighbours drift out of the window."),
    },
    "chunks": {
        "any order": (False, "A token moved to another chunk sees other tokens."),
        "earlier tokens": (False, "Tokens enter and leave the last chunk."),
        "shift": (False, "Edges stay where they are. Only a shift by whole chunks is free."),
        "reversal": (False, "Before becomes after."),
        "stretch": (False, "Neighbours come into different chunks."),
    },
    "the place": {
        "any order": (False, "A token at another place gets another vector."),
        "earlier tokens": (False, "A token at another place gets another vector."),
        "shift": (False, "Other places, other vectors."),
        "reversal": (False, "Other places, other vectors."),
        "stretch": (False, "Other places, other vectors."),
        "shift down": (False, "Other places, other vectors."),
        "shift right": (False, "Other places, other vectors."),
        "left-right": (False, "Other places, other vectors."),
        "up-down": (False, "Other places, other vectors."),
        "half turn": (False, "Other places, other vectors."),
        "transpose": (False, "Other places, other vectors: rows and columns have vectors of their own."),
    },
    "the offset": {
        "any order": (False, "Two tokens that moved have another offset."),
        "earlier tokens": (False, "The last row meets each token at another offset. Those that share one are free."),
        "shift": (True, "j - i stays."),
        "reversal": (False, "j - i changes its sign, and left is not read like right."),
        "stretch": (False, "j - i grows."),
        "shift down": (True, "Offsets stay."),
        "shift right": (True, "Offsets stay."),
        "left-right": (False, "The column offset changes its sign."),
        "up-down": (False, "The row offset changes its sign."),
        "half turn": (False, "Both offsets change their signs."),
        "transpose": (False, "Row offset and column offset change places."),
    },
    "the distance": {
        "any order": (False, "Two tokens that moved have another distance."),
        "earlier tokens": (False, "The last row meets each token at another distance."),
        "shift": (True, "|j - i| stays."),
        "reversal": (True, "|j - i| has no sign."),
        "stretch": (False, "|j - i| grows."),
        "shift down": (True, "Distances stay."),
        "shift right": (True, "Distances stay."),
        "left-right": (True, "A mirror keeps distances."),
        "up-down": (True, "A mirror keeps distances."),
        "half turn": (True, "A turn keeps distances."),
        "transpose": (True, "A mirror along the diagonal keeps distances."),
    },
    "a share of the place": {
        "any order": (False, "Two tokens that moved have another distance."),
        "earlier tokens": (False, "The last row meets each token at another distance."),
        "shift": (False, "The distance stays, but it is divided by a function of the query's place."),
        "reversal": (False, "The query's place changes."),
        "stretch": (False, "Distance and place grow, and a logarithm of each does not keep their ratio."),
    },
    "square windows": {
        "any order": (False, "A patch in another window sees other patches."),
        "shift down": (False, "Edges stay where they are. Only a shift by whole windows is free."),
        "shift right": (False, "Edges stay where they are. Only a shift by whole windows is free."),
        "left-right": (True, "Windows fill the picture, so a mirror puts windows onto windows."),
        "up-down": (True, "Windows fill the picture, so a mirror puts windows onto windows."),
        "half turn": (True, "Windows fill the picture, so a turn puts windows onto windows."),
        "transpose": (True, "Windows are square, so the diagonal mirror puts windows onto windows."),
    },
}


@dataclass(frozen=True)
class Scheme:
    """An encoding, made anew for each measurement, and the kinds of thing it reads (keys of `WHY`)."""

    make: Callable[[], PositionEncoding]
    reads: tuple[str, ...]


def _under(mask: Callable[[], PositionEncoding], *others: Callable[[], PositionEncoding]) -> Callable:
    return lambda: Together(mask(), *(other() for other in others))


def _shaw() -> Shaw:
    return Shaw(HEAD_DIM, clip=2, n_heads=N_HEADS)


def _t5(bidirectional: bool) -> Callable[[], T5Bias]:
    return lambda: T5Bias(N_HEADS, 8 if bidirectional else 4, max_distance=6, bidirectional=bidirectional)


def _alibi() -> ALiBi:
    return ALiBi(N_HEADS, largest_exponent=2.0)


def _window() -> SlidingWindow:
    return SlidingWindow(3)


def _learned() -> Learned:
    return Learned(32, D_MODEL)


TEXTS: dict[str, Scheme] = {
    "none": Scheme(NoPE, ("nothing",)),
    "sinusoids": Scheme(Sinusoidal, ("the place",)),
    "learned table": Scheme(_learned, ("the place",)),
    "Shaw, keys": Scheme(lambda: ShawKeys(HEAD_DIM, clip=2, n_heads=N_HEADS), ("the offset",)),
    "Shaw, keys + values": Scheme(_shaw, ("the offset",)),
    "Transformer-XL": Scheme(lambda: TransformerXL(D_MODEL, N_HEADS), ("the offset",)),
    "T5, two-sided": Scheme(_t5(True), ("the offset",)),
    "ALiBi, |i - j|": Scheme(_alibi, ("the distance",)),
    "KERPLE": Scheme(lambda: KerpleLog(N_HEADS), ("the distance",)),
    "Gaussian": Scheme(lambda: Gaussian(N_HEADS), ("the distance",)),
    "RoPE": Scheme(Rotary, ("the offset",)),
    "sinusoids + RoPE": Scheme(_under(Sinusoidal, Rotary), ("the place", "the offset")),
    "causal": Scheme(Causal, ("before or after",)),
    "window of 3": Scheme(_window, ("a window",)),
    "chunks of 4": Scheme(lambda: Chunked(4), ("chunks",)),
    "causal sinusoids": Scheme(_under(Causal, Sinusoidal), ("before or after", "the place")),
    "causal table": Scheme(_under(Causal, _learned), ("before or after", "the place")),
    "causal Shaw": Scheme(_under(Causal, _shaw), ("before or after", "the offset")),
    "causal T5": Scheme(_under(Causal, _t5(False)), ("before or after", "the offset")),
    "causal ALiBi": Scheme(_under(Causal, _alibi), ("before or after", "the distance")),
    "causal FIRE": Scheme(
        _under(Causal, lambda: Fire(N_HEADS, threshold=2.0)), ("before or after", "a share of the place")
    ),
    "causal RoPE": Scheme(_under(Causal, Rotary), ("before or after", "the offset")),
    "window + RoPE": Scheme(_under(_window, Rotary), ("a window", "the offset")),
    "chunks + RoPE": Scheme(_under(lambda: Chunked(4), Rotary), ("chunks", "the offset")),
}

GRIDS: dict[str, Scheme] = {
    "none": Scheme(NoPE, ("nothing",)),
    "learned table": Scheme(lambda: LearnedGrid(2 * SIDE, 2 * SIDE, D_MODEL), ("the place",)),
    "row + column": Scheme(lambda: RowAndColumn(2 * SIDE, 2 * SIDE, D_MODEL), ("the place",)),
    "2-D sin-cos": Scheme(Sinusoidal2D, ("the place",)),
    "Swin table": Scheme(lambda: WindowBias(SIDE, SIDE, N_HEADS), ("the offset",)),
    "Swin v2 network": Scheme(lambda: ContinuousBias(SIDE, SIDE, N_HEADS), ("the offset",)),
    "2-D ALiBi": Scheme(lambda: ALiBi2D(N_HEADS, largest_exponent=2.0), ("the distance",)),
    "axial RoPE": Scheme(lambda: AxialRotary(HEAD_DIM), ("the offset",)),
    "mixed RoPE": Scheme(lambda: MixedRotary(N_HEADS, HEAD_DIM), ("the offset",)),
    "windows of 2": Scheme(lambda: Windows(2), ("square windows",)),
    "windows + Swin table": Scheme(
        _under(lambda: Windows(2), lambda: WindowBias(SIDE, SIDE, N_HEADS)), ("square windows", "the offset")
    ),
}


def kept_by(reads: Sequence[str], move: str, n_layers: int = 1) -> bool:
    """Predicted: a move is kept if everything that the encoding reads keeps it.

    With two or more layers the earlier tokens are no multiset any more, unless nothing is read.
    """
    if move == "earlier tokens" and n_layers > 1:
        return set(reads) == {"nothing"}
    return all(WHY[kind][move][0] for kind in reads)


def why(reads: Sequence[str], move: str) -> str:
    """The sentence of the kind that decides: the first that breaks the move, or else the last one."""
    return next((WHY[kind][move][1] for kind in reads if not WHY[kind][move][0]), WHY[reads[-1]][move][1])


# --- The table


@dataclass(frozen=True)
class Cell:
    """One move of one scheme: the largest change over versions, and over seeds the largest (if kept) or smallest."""

    kept: bool
    error: float
    free: int  # versions that change nothing, for the first seed
    versions: int
    reason: str


def measured(scheme: Scheme, moves: tuple, n_layers: int = 1, seeds: Sequence[int] = range(3)) -> dict[str, Cell]:
    """The cells of a scheme, by move. moves: from `text_moves` or `grid_moves`.

    Raises AssertionError if an error is neither exact nor broken on every seed: then nothing was shown.
    """
    runs = []
    for seed in seeds:
        x = torch.randn(moves[1].shape[1], D_MODEL, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        with torch.no_grad():
            runs.append(gaps(at_random(scheme.make(), n_layers, seed), x, *moves))
    cells = {}
    for move in runs[0]:
        if move == "earlier tokens" and moves[0].ndim > 1:
            continue  # a picture has no last token
        errors = [run[move].max().item() for run in runs]
        kept = max(errors) < EXACT
        if not kept and min(errors) < BROKEN:
            raise AssertionError(f"{move}: errors {errors} are neither exact nor broken; draw other weights")
        free = int((runs[0][move] < EXACT).sum())
        error = max(errors) if kept else min(errors)
        cells[move] = Cell(kept, error, free, len(runs[0][move]), why(scheme.reads, move))
    return cells


def table(schemes: dict[str, Scheme], moves: tuple, n_layers: int = 1, seeds: Sequence[int] = range(3)) -> dict:
    """{scheme: {move: Cell}}. See `measured`."""
    return {name: measured(scheme, moves, n_layers, seeds) for name, scheme in schemes.items()}


def in_words(cells: dict[str, dict[str, Cell]]) -> str:
    """A table in plain text, one scheme a line: the error where the move is kept in brackets, else bare."""
    names = list(next(iter(cells.values())))
    lines = [" " * 20 + "".join(f"{name:>16}" for name in names)]
    for scheme, row in cells.items():
        words = (f"({c.error:.0e})" if c.kept else f"{c.error:.0e}" for c in row.values())
        lines.append(f"{scheme:20}" + "".join(f"{word:>16}" for word in words))
    return "\n".join(lines)


def as_html(cells: dict[str, dict[str, Cell]], title: str) -> str:
    """A table as HTML that a phone can show, with kept cells marked and shaded; for light and dark pages."""
    names = list(next(iter(cells.values())))
    left = 'style="text-align:left"'
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for scheme, row in cells.items():
        data = "".join(
            f'<td style="text-align:center;white-space:nowrap{";background:#009e7355" if c.kept else ""}" '
            f'title="{escape(c.reason)}">{"✓ " if c.kept else ""}{c.error:.1g}</td>'
            for c in row.values()
        )
        rows.append(f"<tr><th {left}>{escape(scheme)}</th>{data}</tr>")
    return (
        f'<div style="overflow-x:auto"><table style="font-size:85%"><caption {left}>{escape(title)}</caption>'
        f"<thead><tr><th {left}>encoding</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def reasons_as_html(moves: Sequence[str], schemes: dict[str, Scheme]) -> str:
    """One folded list for each thing that a scheme may read: who reads it, which of the moves it keeps, and why.

    Moves that are kept or broken for the same reason share a line.
    """
    folded = []
    for kind, by_move in WHY.items():
        readers = [name for name, scheme in schemes.items() if kind in scheme.reads]
        if not readers:
            continue
        shared: dict[tuple[bool, str], list[str]] = {}
        for move in moves:
            shared.setdefault(by_move[move], []).append(move)
        items = "".join(
            f"<li>{'✓' if kept else '✗'} <b>{escape(', '.join(names))}</b>: {escape(sentence)}</li>"
            for (kept, sentence), names in shared.items()
        )
        summary = f"<b>{escape(kind)}</b>: {escape('; '.join(readers))}"
        folded.append(f"<details><summary>{summary}</summary><ul>{items}</ul></details>")
    return "".join(folded)


def main() -> int:
    torch.set_num_threads(1)
    for n_layers in (1, 2):
        print(f"Texts, {n_layers} layer(s). In brackets: kept.")
        print(in_words(table(TEXTS, text_moves(N_TOKENS), n_layers)))
    print("Grids. In brackets: kept.")
    print(in_words(table(GRIDS, grid_moves(SIDE))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
