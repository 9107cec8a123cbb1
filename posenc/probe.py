"""Ask what a vector knows: fit a linear map from it to a number, and see how well it does on vectors not used.

The fit must never see the test data: with as many features as examples, anything fits.
"""

import torch
from torch import Tensor


def fit_probe(features: Tensor, targets: Tensor) -> Tensor:
    """Least squares with an intercept, which is the last entry. (examples, d), (examples,) -> (d + 1,).

    By the pseudo-inverse, since features often repeat each other: of all best maps it takes the smallest.
    """
    with_one = torch.cat([features, torch.ones_like(features[:, :1])], dim=-1)
    return torch.linalg.pinv(with_one) @ targets


def apply_probe(probe: Tensor, features: Tensor) -> Tensor:
    """The probe's predictions. (d + 1,), (examples, d) -> (examples,)."""
    return features @ probe[:-1] + probe[-1]


def r_squared(predictions: Tensor, targets: Tensor) -> float:
    """Share of the variance that is explained: 1 is perfect, 0 is what the mean would do, below 0 is worse still."""
    residual = (targets - predictions).square().sum()
    return (1 - residual / (targets - targets.mean()).square().sum()).item()
