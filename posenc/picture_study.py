"""Every encoding for two axes on the same pictures, at the trained size and at others: the study behind chapter 11.

    python -m posenc.picture_study --seeds 5   # train and measure; goes on where it stopped

Two tasks. `digits`: 8 by 8 pixels in patches of 2, a grid of 4 by 4; then the same digits enlarged. `scenes`: which dot
is further left, on a grid of 5 by 5 in patches of one pixel; then larger scenes.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import torch

from posenc.encoding import NoPE, PositionEncoding
from posenc.grids import LearnedGrid, Sinusoidal2D, places_in
from posenc.images import digits, left_of, resized
from posenc.rotary_grid import AxialRotary, MixedRotary
from posenc.study import Measurement, fill
from posenc.tasks import Labelled
from posenc.train import train
from posenc.vision import VisionTransformer, build, grid
from posenc.windows import ALiBi2D, ContinuousBias, WindowBias

DATA = files("posenc") / "data"
WIDTH, HEADS = 32, 4
TASKS = {  # side of a patch, the trained grid, other grids, outputs, steps
    "digits": (2, (4, 4), ((6, 6), (8, 8), (4, 8), (8, 4)), 10, 300),
    "scenes": (1, (5, 5), ((4, 4), (8, 8), (5, 10), (10, 5)), 2, 300),
}
# ViT's table starts at 0.3 in place of the usual 0.02: with so few steps, it hardly leaves the smaller start.
SCHEMES: dict[str, Callable[[int, int], PositionEncoding]] = {
    "none": lambda rows, columns: NoPE(),
    "learned table": lambda rows, columns: LearnedGrid(rows, columns, WIDTH, std=0.3),
    "2-D sin-cos": lambda rows, columns: Sinusoidal2D(),
    "Swin table": lambda rows, columns: WindowBias(rows, columns, HEADS),
    "Swin v2 network": lambda rows, columns: ContinuousBias(rows, columns, HEADS),
    "2-D ALiBi": lambda rows, columns: ALiBi2D(HEADS, largest_exponent=4),
    "axial rotary": lambda rows, columns: AxialRotary(WIDTH // HEADS),
    "mixed rotary": lambda rows, columns: MixedRotary(HEADS, WIDTH // HEADS),
}


def pictures(task: str, rows: int, columns: int) -> Labelled:
    """Test pictures of a task that make a grid of rows by columns."""
    if task == "digits":
        return resized(digits()[1], 2 * rows, 2 * columns)
    return left_of(512, seed=999, height=rows, width=columns)


def trained(task: str, scheme: str, seed: int) -> VisionTransformer:
    """A small vision Transformer with the scheme, trained on the task."""
    side, size, _, outputs, steps = TASKS[task]
    with torch.random.fork_rng():
        torch.manual_seed(100 + seed)  # tables and networks draw their start here
        encoding = SCHEMES[scheme](*size)
    model = build(seed, side=side, d_model=WIDTH, n_layers=2, n_heads=HEADS, n_outputs=outputs, encoding=encoding)
    to_train = digits()[0] if task == "digits" else left_of(4096, seed, *size)
    train(model, to_train, steps=steps, batch=64, seed=seed)
    return model


@torch.no_grad()
def accuracy_at(model: VisionTransformer, task: str, rows: int, columns: int, rescaled: bool) -> float | None:
    """Share of right answers on a grid of rows by columns, places counted on or rescaled to the trained grid.

    A table of places is resampled (bilinear) for the second; None where it has no rows for the first.
    """
    size, test = TASKS[task][1], pictures(task, rows, columns)
    positions = places_in(*size, rows, columns) if rescaled else grid(rows, columns)
    kept = model.encoding
    try:
        if isinstance(kept, LearnedGrid) and rescaled:
            model.encoding, positions = kept.resampled(rows, columns, mode="bilinear"), grid(rows, columns)
        return round((model(test.tokens, positions).argmax(-1) == test.labels).double().mean().item(), 4)
    except ValueError:
        return None
    finally:
        model.encoding = kept


def measure(task: str, scheme: str, seed: int) -> dict[str, float | None]:
    """Train once, measure at every size. Keys: "4x4", "6x6 counted", "6x6 rescaled", …"""
    model = trained(task, scheme, seed)
    size, others = TASKS[task][1:3]
    found = {f"{size[0]}x{size[1]}": accuracy_at(model, task, *size, rescaled=False)}
    for rows, columns in others:
        for how in ("counted", "rescaled"):
            found[f"{rows}x{columns} {how}"] = accuracy_at(model, task, rows, columns, rescaled=how == "rescaled")
    return found


def study(path: Path, seeds: int, report: Callable[[str], None] = print) -> None:
    """Make every measurement that the file does not have yet; it can be stopped at any time."""

    def measurements() -> Iterator[Measurement]:
        for seed in range(seeds):
            for task in TASKS:
                for scheme in SCHEMES:
                    yield ("measured", task, scheme, str(seed)), partial(measure, task, scheme, seed)

    fill(path, f"python -m posenc.picture_study --seeds {seeds}", measurements(), report)


def results() -> dict:
    """The stored study: ["measured"][task][scheme][seed][size], see `measure`, and ["made"]."""
    return json.loads((DATA / "pictures.json").read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--to", type=Path, default=Path(str(DATA)) / "pictures.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    study(arguments.to, arguments.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
