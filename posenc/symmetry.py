"""Measure a symmetry instead of trusting it: how far is f(moved x) from moved f(x)?

Each function returns the largest absolute difference, a Python float. Zero is perfect. Rounding alone gives
about 1e-15 in float64 and 1e-6 in float32, so compare with a tolerance, never with `== 0`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Layer = Callable[[Tensor], Tensor]


def permute(x: Tensor, permutation: Tensor) -> Tensor:
    """Reorder the rows: row i of the result is row permutation[i] of x. x: (..., n, d), permutation: (n,)."""
    return x[..., permutation, :]


def equivariance_error(layer: Layer, x: Tensor, permutation: Tensor) -> float:
    """Largest |layer(P x) - P layer(x)|: 0 if permuting the input rows permutes the output rows.

    layer: (..., n, d) -> (..., n, any), x: (..., n, d), permutation: (n,).
    Raises ValueError if the layer changes the number of rows: then there is nothing to permute.
    """
    output = layer(x)
    if output.shape[-2:-1] != x.shape[-2:-1]:
        shapes = f"{tuple(x.shape)} -> {tuple(output.shape)}"
        raise ValueError(f"the layer must keep the rows, got {shapes}; for a pooled output use invariance_error")
    return difference(layer(permute(x, permutation)), permute(output, permutation))


def invariance_error(function: Layer, x: Tensor, permutation: Tensor) -> float:
    """Largest |function(P x) - function(x)|: 0 if the order of the rows of x: (..., n, d) does not matter."""
    return difference(function(permute(x, permutation)), function(x))


def translation_error(layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, positions: Tensor, shift: int) -> float:
    """Largest |layer(x, positions + shift) - layer(x, positions)|: 0 if only offsets count.

    x: (..., n, d), positions: (n,) whole numbers. The tokens stay; only their labels move.
    """
    return difference(layer(x, positions + shift), layer(x, positions))


def relabelling_error(layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, positions: Tensor, moved: Tensor) -> float:
    """Largest |layer(x, moved) - layer(x, positions)|: 0 if the new labels are as good as the old ones.

    x: (..., n, d); positions and moved: (n,) for a text, (2, n) for a grid. See `GRID_MOVES`. The tokens stay in
    storage, so of patches of one pixel this moves the picture itself.
    """
    return difference(layer(x, moved), layer(x, positions))


def shift_grid(positions: Tensor, rows: int = 1, columns: int = 1) -> Tensor:
    """Every place so many rows further down and columns further right: (2, ..., n), shape kept."""
    return torch.stack([positions[0] + rows, positions[1] + columns])


def flip_up_down(positions: Tensor) -> Tensor:
    """The first row becomes the last, inside the rows that there are: (2, ..., n), shape kept."""
    rows, columns = positions
    return torch.stack([rows.min() + rows.max() - rows, columns])


def flip_left_right(positions: Tensor) -> Tensor:
    """The first column becomes the last, inside the columns that there are: (2, ..., n), shape kept."""
    rows, columns = positions
    return torch.stack([rows, columns.min() + columns.max() - columns])


def transpose_grid(positions: Tensor) -> Tensor:
    """Rows become columns: (2, ..., n), shape kept."""
    return positions.flip(0)


GRID_MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "shift": shift_grid,
    "left-right": flip_left_right,
    "up-down": flip_up_down,
    "half turn": lambda positions: flip_left_right(flip_up_down(positions)),
    "transpose": transpose_grid,
}


def leak(layer: Layer, x: Tensor) -> float:
    """Largest change of an earlier row when later rows change: 0 if no row sees what comes after it.

    layer: (..., n, d) -> (..., n, any), x: (..., n, d). For each j, row j and all rows after it are negated, and the
    rows before j are compared.
    """
    output, worst = layer(x), 0.0
    for j in range(1, x.shape[-2]):
        changed = torch.cat([x[..., :j, :], -x[..., j:, :]], dim=-2)
        worst = max(worst, difference(layer(changed)[..., :j, :], output[..., :j, :]))
    return worst


def must_break(error: float, at_least: float = 1e-3) -> float:
    """Negative control: assert that a symmetry test fails where it has to, and return the error.

    A test that cannot fail shows nothing. Raises AssertionError if the error is below `at_least`.
    """
    if not error >= at_least:
        raise AssertionError(
            f"negative control: expected an error of at least {at_least:g}, got {error:g}; the test may be blind"
        )
    return error


def difference(a: Tensor, b: Tensor) -> float:
    """Largest |a - b| as a Python float. Raises ValueError on unequal shapes: nothing is broadcast."""
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {tuple(a.shape)} and {tuple(b.shape)}")
    return (a.detach() - b.detach()).abs().max().item()


def random_permutation(n: int, generator: torch.Generator | None = None) -> Tensor:
    """A permutation of n rows that moves at least one of them. (n,). Raises ValueError if n < 2."""
    if n < 2:
        raise ValueError(f"{n} row(s) have no order to change; use at least 2")
    while True:
        permutation = torch.randperm(n, generator=generator)
        if not torch.equal(permutation, torch.arange(n)):
            return permutation
