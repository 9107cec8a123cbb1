"""Every exercise of the book, by name. A chapter's module declares a tuple called EXERCISES."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

import posenc.checks
from posenc.checks.exercise import Exercise


@cache
def all_exercises() -> dict[str, Exercise]:
    """Name to exercise, in the order of the chapters. Raises ValueError if a name is taken twice."""
    exercises: dict[str, Exercise] = {}
    for module in sorted(m.name for m in iter_modules(posenc.checks.__path__) if m.name.startswith("chapter_")):
        for exercise in import_module(f"posenc.checks.{module}").EXERCISES:
            if exercise.name in exercises:
                raise ValueError(f"two exercises are called {exercise.name!r}; rename one")
            exercises[exercise.name] = exercise
    return exercises


def exercise_named(name: str) -> Exercise | None:
    return all_exercises().get(name)


def exercises_of(chapter: int) -> list[Exercise]:
    """The chapter's exercises in order. Raises ValueError if it has none."""
    found = [e for e in all_exercises().values() if e.chapter == chapter]
    if not found:
        raise ValueError(f"chapter {chapter} has no exercises")
    return found
