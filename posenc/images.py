"""Pictures small enough for a page: real handwritten digits, and scenes whose label is geometry.

Pixels are float32, 0 for paper to 1 for ink. The digits are the 1,797 pictures of 8 by 8 pixels that scikit-learn
carries as `load_digits` (E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository 1998, https://doi.org/10.24432/C50P49, CC BY 4.0), stored here so that no page needs another package.
"""

from functools import cache
from importlib.resources import files

import numpy as np
import torch
from torch.nn import functional as F

from posenc.tasks import Labelled

N_TRAIN_DIGITS = 1_347  # three quarters


@cache
def digits() -> tuple[Labelled, Labelled]:
    """(1,347 pictures to train on, 450 to test on), (examples, 8, 8), with labels 0 to 9. Do not change them.

    The order is shuffled once, with a fixed seed, so that both parts hold the same hands.
    """
    stored = np.load(files("posenc") / "data" / "digits.npz")
    images, labels = torch.from_numpy(stored["images"]).float() / 16, torch.from_numpy(stored["labels"]).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    split = order.tensor_split([N_TRAIN_DIGITS])
    train, test = (Labelled(images[rows], labels[rows]) for rows in split)
    return train, test


def resized(task: Labelled, height: int, width: int) -> Labelled:
    """The same pictures at another size, bilinear between pixel centres: (examples, h, w) -> (…, height, width)."""
    images = F.interpolate(task.tokens[:, None], size=(height, width), mode="bilinear", align_corners=False)
    return Labelled(images[:, 0], task.labels)


def left_of(examples: int, seed: int, height: int = 8, width: int = 8) -> Labelled:
    """Scenes of one bright dot (ink 1) and one pale dot (ink 0.5): 1 if the bright one is further left.

    Dots stand on different columns; rows are free. Half of the labels are 1: scenes come in pairs with the dots
    exchanged, so the set of patches decides nothing (where a patch is one pixel).
    """
    return _two_dots(examples, seed, height, width, axis=1)


def above(examples: int, seed: int, height: int = 8, width: int = 8) -> Labelled:
    """The same with 1 if the bright dot is further up. Dots stand on different rows; columns are free."""
    return _two_dots(examples, seed, height, width, axis=0)


def quadrant(examples: int, seed: int, height: int = 8, width: int = 8) -> Labelled:
    """Scenes of one bright dot: which quarter is it in? 0 top left, 1 top right, 2 bottom left, 3 bottom right.

    height and width must be even.
    """
    if height % 2 or width % 2:
        raise ValueError(f"quarters need an even height and width, got {height} by {width}")
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(height, (examples,), generator=generator)
    columns = torch.randint(width, (examples,), generator=generator)
    images = torch.zeros(examples, height, width)
    images[torch.arange(examples), rows, columns] = 1
    return Labelled(images, 2 * (rows >= height // 2) + (columns >= width // 2).long())


def mirrored(examples: int, seed: int, height: int = 8, width: int = 8, dots: int = 4) -> Labelled:
    """Scenes of `dots` pairs of dots: 1 if the picture is its own mirror image, left to right.

    In the others one dot stands on another column of its row. width must be even.
    """
    if width % 2:
        raise ValueError(f"mirrored dots need an even width, got {width}")
    if not 1 <= dots <= height:
        raise ValueError(f"one pair a row: dots must be 1 to height {height}, got {dots}")
    generator = torch.Generator().manual_seed(seed)
    half = width // 2
    rows = torch.rand(examples, height, generator=generator).argsort(dim=-1)[:, :dots]  # different ones
    left = torch.randint(half, (examples, dots), generator=generator)
    right = width - 1 - left
    labels = torch.arange(examples) % 2
    step = torch.randint(1, half, (examples,), generator=generator)
    wrong = half + (right[:, 0] - half + step) % half  # never the mirrored column
    right[:, 0] = torch.where(labels == 1, right[:, 0], wrong)
    images = torch.zeros(examples, height, width)
    every = torch.arange(examples)[:, None]
    images[every, rows, left] = 1
    images[every, rows, right] = 1
    return Labelled(images, labels)


def _two_dots(examples: int, seed: int, height: int, width: int, axis: int) -> Labelled:
    generator = torch.Generator().manual_seed(seed)
    size = (height, width)
    pairs = (examples + 1) // 2
    places = [torch.randint(side, (pairs, 2), generator=generator) for side in size]  # rows, columns of two dots
    step = torch.randint(1, size[axis], (pairs,), generator=generator)
    places[axis][:, 1] = (places[axis][:, 0] + step) % size[axis]  # never the same row or column
    rows, columns = (side.repeat_interleave(2, dim=0)[:examples] for side in places)  # (examples, 2)
    every = torch.arange(examples)
    bright = every % 2  # of each two scenes, the second has the dots exchanged
    images = torch.zeros(examples, height, width)
    images[every, rows[every, bright], columns[every, bright]] = 1.0
    images[every, rows[every, 1 - bright], columns[every, 1 - bright]] = 0.5
    along = (rows, columns)[axis]
    return Labelled(images, (along[every, bright] < along[every, 1 - bright]).long())
