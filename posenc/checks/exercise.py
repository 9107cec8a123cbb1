"""What an exercise is made of. One declaration serves the notebook's check, the grader and the tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from posenc.checks.calling import Complaint


@dataclass(frozen=True)
class Case:
    """One call whose result must equal the reference's.

    make(generator) returns the arguments as a tuple; another seed gives another draw of the same case.
    """

    name: str
    make: Callable[[Generator], tuple]


@dataclass(frozen=True)
class Property:
    """A statement about the learner's function that needs no reference, such as "keeps the dtype".

    test(function, generator) returns None if the statement holds, else one sentence that says what came out.
    """

    name: str
    test: Callable[[Callable, Generator], Complaint]


@dataclass(frozen=True)
class Mistake:
    """A wrong implementation that people really write, its name, and a hint that does not give the answer away."""

    name: str
    function: Callable
    hint: str


@dataclass(frozen=True)
class Exercise:
    """The whole declaration. `also_right` are other implementations that must pass; `learned` is shown on success."""

    chapter: int
    title: str
    points: int
    minutes: int
    difficulty: int  # 1 (warm-up) to 5
    reference: Callable
    learned: str
    cases: tuple[Case, ...] = ()
    properties: tuple[Property, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    also_right: tuple[Callable, ...] = ()

    @property
    def name(self) -> str:
        """The name of the function that the learner writes: the reference's own."""
        return self.reference.__name__


def normal(generator: Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Standard normal numbers of the given shape from the case's own generator."""
    return torch.randn(*shape, generator=generator, dtype=dtype)


def with_arguments(name: str, *arguments: Any) -> Case:
    """A case that is the same for every seed."""
    return Case(name, lambda _: arguments)


def drawn(name: str, make: Callable[[Generator], tuple]) -> Case:
    """A case whose arguments are drawn from the seed."""
    return Case(name, make)
