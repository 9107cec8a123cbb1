"""Pieces that the declarations of several chapters share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

from posenc.checks.compare import RELATIVE_TOLERANCE, compare
from posenc.checks.exercise import Complaint


def dtype_complaint(got: Any, wanted: torch.dtype) -> Complaint:
    """For "keeps the dtype": is `got` a tensor, and of the dtype that went in?"""
    if not isinstance(got, Tensor):
        return f"return a tensor, not a {type(got).__name__}"
    return None if got.dtype == wanted else f"{wanted} went in, {got.dtype} came out"


def compare_scores(got: Tensor, expected: Tensor, query: Tensor, key: Tensor) -> Complaint:
    """As `compare`. But a score may be as small as it likes, and what is rounded has the size of |query| |key|."""
    room = RELATIVE_TOLERANCE[torch.float64] * query.norm() * key.norm()
    return None if (got - expected).abs() <= room else compare(got, expected)


def right_predictions(truth: dict[str, bool], enough: int, advice: str) -> Callable[[Callable, Generator], Complaint]:
    """A property of an exercise that asks for predictions: at least `enough` of them agree with the truth.

    The complaint says how many are right, not which: `advice` says how to find out.
    """

    def test(answer: Callable, _: Generator) -> Complaint:
        got = answer()
        if not isinstance(got, dict) or set(got) != set(truth):
            return "return the dict of the stub, with the same keys"
        if open_ones := [name for name, value in got.items() if type(value) is not bool]:
            return f"each answer must be True or False itself; look at: {'; '.join(open_ones)}"
        right = sum(got[name] == truth[name] for name in truth)
        return None if right >= enough else f"{right} of {len(truth)} are right. Which one do you doubt? {advice}"

    return test


def all_but(truth: dict[str, bool], *names: str) -> Callable[[], dict]:
    """A mistake in such an exercise: everything predicted right but these."""
    return lambda: {name: value != (name in names) for name, value in truth.items()}
