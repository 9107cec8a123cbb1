"""Examine a function: run its cases and properties, and find the known mistake that it equals.

The learner's code gets clones of every input and cannot leave anything behind: seeds, default dtype, gradient mode
and threads are put back after each call.
"""

import contextlib
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

import torch

from posenc.checks.calling import (
    INTERRUPTED,
    TOO_BUSY,
    TOO_LONG,
    Complaint,
    Elsewhere,
    Outcome,
    call,
    capture,
    is_stub,
    steady,
)
from posenc.checks.compare import compare
from posenc.checks.exercise import Case, Exercise, Mistake, Property

PUBLIC_SEED = 20170612  # the day Attention Is All You Need appeared; a grader uses another, private one

WAITS = "comes after the first right case"  # said of a property while no case is right

Status = Literal["correct", "partly", "wrong", "not attempted"]


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    complaint: Complaint


@dataclass(frozen=True)
class Report:
    """The result of examining one function."""

    exercise: Exercise
    status: Status
    findings: tuple[Finding, ...] = ()
    mistake: Mistake | None = None
    printed: str = field(default="", repr=False)

    @property
    def points(self) -> int:
        """Partial credit by finding, rounded down; all of it only if nothing is wrong."""
        if not self.findings:
            return 0
        passed = sum(f.complaint is None for f in self.findings)
        return self.exercise.points * passed // len(self.findings)


def examine(function: Callable, exercise: Exercise, seed: int = PUBLIC_SEED) -> Report:
    """Run every case and property of the exercise on the function. Never raises because of the function."""
    with capture() as printed:
        if is_stub(function):
            return Report(exercise, "not attempted")
        findings = tuple(_findings(function, exercise, seed))
        wrong = sum(f.complaint is not None for f in findings)
        mistake = named_mistake(function, exercise, seed) if wrong and not gave_up(findings) else None
    status: Status = "correct" if not wrong else "wrong" if wrong == len(findings) else "partly"
    return Report(exercise, status, findings, mistake, printed.text)


def _findings(function: Callable, exercise: Exercise, seed: int) -> list[Finding]:
    findings: list[Finding] = []
    for case in exercise.cases:
        findings.append(Finding(case.name, _examine_case(function, exercise, case, seed)))
        if gave_up(findings):
            break
    none_right = bool(findings) and all(f.complaint for f in findings)
    for prop in exercise.properties:
        if gave_up(findings):
            break
        # A function that returns nonsense may well "keep the dtype": that earns nothing.
        complaint = WAITS if none_right else _examine_property(function, prop, seed)
        findings.append(Finding(prop.name, complaint))
    not_tried = (*exercise.cases, *exercise.properties)[len(findings) :]
    return findings + [Finding(each.name, findings[-1].complaint) for each in not_tried]


def gave_up(findings: Sequence[Finding]) -> bool:
    """Whether the last one ran out of time or was stopped: nobody wants to wait for the next one as well."""
    return bool(findings) and findings[-1].complaint in (TOO_LONG, TOO_BUSY, INTERRUPTED)


def _examine_property(function: Callable, prop: Property, seed: int) -> Complaint:
    outcome = call(prop.test, (guarded(function), generator(seed)), blame=function)
    return outcome.complaint or outcome.value


def _examine_case(function: Callable, exercise: Exercise, case: Case, seed: int) -> Complaint:
    arguments = _arguments(case, seed)
    untouched, expected = _expected(exercise.reference, case, seed)
    if expected.error:
        raise RuntimeError(f"the reference of {exercise.name} failed on {case.name!r}: {expected.complaint}")
    got = call(function, arguments)
    if got.complaint:
        return got.complaint
    if changed(arguments, untouched):
        return "your function changed its input; work on a copy"
    return compare(got.value, expected.value)


@lru_cache(maxsize=1000)
def _expected(reference: Callable, case: Case, seed: int) -> tuple[tuple, Outcome]:
    """The arguments of a case, which nobody is given, and what the reference makes of a copy. The same every time."""
    return _arguments(case, seed), call(reference, _arguments(case, seed))


def named_mistake(function: Callable, exercise: Exercise, seed: int) -> Mistake | None:
    """The known mistake whose results equal the function's on every call, if there is one."""
    calls = _calls(exercise)
    outcomes = [call(function, _arguments(case, seed)) for case in calls]
    for mistake in exercise.mistakes:
        theirs = (call(mistake.function, _arguments(case, seed)) for case in calls)  # until one differs
        if all(_same(a, b) for a, b in zip(outcomes, theirs, strict=True)):
            return mistake
    return None


def _same(a: Outcome, b: Outcome) -> bool:
    if a.error or b.error:
        return a.error is b.error
    if a.value is None or b.value is None:
        return a.value is b.value
    with contextlib.suppress(Exception):
        return compare(a.value, b.value) is None
    return False


def _calls(exercise: Exercise) -> tuple[Case, ...]:
    """The calls that show what a function does; an exercise without cases is called without arguments."""
    return exercise.cases or (Case("the answer", lambda _: ()),)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _arguments(case: Case, seed: int) -> tuple:
    return copy.deepcopy(case.make(generator(seed)))


def guarded(function: Callable) -> Callable:
    """The function with the global state put back after each call. `is_elsewhere`: it runs in another process."""

    def call_and_put_back(*arguments):
        with steady():
            return function(*arguments)

    call_and_put_back.is_elsewhere = issubclass(type(function), Elsewhere)
    return call_and_put_back


def changed(after: Any, before: Any) -> bool:
    """Has a nested structure of tensors changed?"""
    if isinstance(before, torch.Tensor):
        if after.shape != before.shape or after.dtype != before.dtype:
            return True
        if torch.equal(after, before):
            return False
        both_nan = (after != after) & (before != before)
        return not ((after == before) | both_nan).all()
    if isinstance(before, (tuple, list)):
        return len(after) != len(before) or any(changed(a, b) for a, b in zip(after, before, strict=True))
    if isinstance(before, (int, float, str, dict)):
        return after != before
    return False
