"""Train on small pictures, read larger and wider ones: the study behind chapter 10.

    python -m posenc.resolution --seeds 5    # train, resample, measure; goes on where it stopped

Digits of 8 by 8 pixels are cut into 4 by 4 patches; the test pictures are scaled to other sizes, so that there are
more or fewer patches, or more of them in one direction. The weights stay; what changes is the encoding or the places.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from posenc.absolute import Sinusoidal
from posenc.encoding import NoPE, PositionEncoding
from posenc.grids import Flattened, LearnedGrid, RowAndColumn, Sinusoidal2D, places_in, traversal
from posenc.images import digits, resized
from posenc.study import fill
from posenc.tasks import Labelled
from posenc.train import train
from posenc.vision import VisionTransformer, build

SIDE = 2  # pixels of a patch
HOME = (4, 4)  # patches of a picture in training
SIZES = (HOME, (3, 3), (6, 6), (8, 8), (4, 8), (8, 4))  # patches of a picture in the test
SETTINGS = {"side": SIDE, "d_model": 32, "n_layers": 2, "n_heads": 4, "n_outputs": 10}
WALKS = ("raster", "columns", "snake", "hilbert", "random")
STORED = Path(str(files("posenc") / "data" / "resolution.json"))

SCHEMES: dict[str, Callable[[], PositionEncoding]] = {
    "none": NoPE,
    "table": lambda: LearnedGrid(*HOME, 32),
    "large table": lambda: LearnedGrid(*HOME, 32, std=0.5**0.5),  # as long as sinusoids from the start
    "row and column": lambda: RowAndColumn(*HOME, 32),
    "2-D sin-cos": Sinusoidal2D,
}
RECIPES: dict[str, dict] = {  # ways to resample a table
    "bicubic": {},
    "bicubic, antialiased": {"antialias": True},
    "bilinear": {"mode": "bilinear"},
    "bilinear, antialiased": {"mode": "bilinear", "antialias": True},
    "bilinear, corners kept": {"mode": "bilinear", "align_corners": True},
}


def trained(scheme: str, seed: int, steps: int = 300) -> VisionTransformer:
    """A model of the digits with one of the SCHEMES, or with 1-D sinusoids along one of the WALKS."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoding = SCHEMES[scheme]() if scheme in SCHEMES else along(scheme, seed)
    model = build(seed, **SETTINGS, encoding=encoding)
    train(model, digits()[0], steps=steps, batch=64, seed=seed)
    return model


def along(walk: str, seed: int) -> Flattened:
    """1-D sinusoids that count the patches of the small pictures in the order of a walk."""
    return Flattened(Sinusoidal(), traversal(*HOME, walk, seed), columns=HOME[1])


@cache
def test_at(rows: int, columns: int) -> Labelled:
    """The test pictures scaled to so many patches."""
    return resized(digits()[1], SIDE * rows, SIDE * columns)


@torch.no_grad()
def accuracy_at(
    model: VisionTransformer,
    size: tuple[int, int],
    places: Tensor | None = None,
    encoding: PositionEncoding | None = None,
) -> float:
    """Share of test pictures read rightly at a size, with other places or another encoding. The model stays."""
    task, kept = test_at(*size), model.encoding
    model.encoding = kept if encoding is None else encoding  # only the token door is open, and the model opens it
    right = model(task.tokens, places).argmax(dim=-1) == task.labels
    model.encoding = kept
    return round(right.double().mean().item(), 4)


def ways(model: VisionTransformer, size: tuple[int, int]) -> dict[str, Callable[[], float]]:
    """Every way to read pictures of a size with this model, by name."""
    encoding = model.encoding
    if isinstance(encoding, LearnedGrid):
        return {
            n: lambda r=r: accuracy_at(model, size, encoding=encoding.resampled(*size, **r)) for n, r in RECIPES.items()
        }
    if isinstance(encoding, RowAndColumn):
        return {"linear, ends kept": lambda: accuracy_at(model, size, encoding=encoding.resampled(*size))}
    found = {"indices": lambda: accuracy_at(model, size)}
    if isinstance(encoding, Sinusoidal2D):
        found["places in the picture"] = lambda: accuracy_at(model, size, places_in(*HOME, *size))
        found["places, corners kept"] = lambda: accuracy_at(model, size, places_in(*HOME, *size, align_corners=True))
    return found


def measure(scheme: str, seed: int) -> dict:
    """Accuracies by size and way; for tables, also the cosines of their rows, (16, 16), before and after."""
    model = trained(scheme, seed)
    sizes = SIZES if scheme in SCHEMES else (HOME,)
    found: dict = {f"{r}x{c}": {way: read() for way, read in ways(model, (r, c)).items()} for r, c in sizes}
    if isinstance(model.encoding, LearnedGrid):
        start = trained(scheme, seed, steps=0).encoding.table
        found["cosines"] = {
            name: [[round(x, 3) for x in row] for row in cosines(table.flatten(0, 1)).tolist()]
            for name, table in (("start", start), ("trained", model.encoding.table))
        }
    return found


def cosines(rows: Tensor) -> Tensor:
    """Cosine of each two rows after their mean is taken away: (n, d) -> (n, n)."""
    directions = torch.nn.functional.normalize(rows - rows.mean(dim=0), dim=-1)
    return directions @ directions.mT


def study(path: Path, seeds: int, report: Callable[[str], None] = print) -> None:
    """Make every measurement that the file does not have yet; it can be stopped at any time."""
    measurements = (
        (("seeds", str(seed), scheme), partial(measure, scheme, seed))
        for seed in range(seeds)
        for scheme in (*SCHEMES, *WALKS)
    )
    fill(path, f"python -m posenc.resolution --seeds {seeds}", measurements, report)


def results() -> dict:
    """The stored study: seeds, then schemes, then sizes, then ways. See `measure`."""
    return json.loads(STORED.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--to", type=Path, default=STORED)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    study(arguments.to, arguments.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
