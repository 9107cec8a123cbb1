"""Break every solution a little, and see whether its check notices (`make mutants`).

A mutant is a solution of `solutions/` changed in one place (`tools/mutations.py`). The check must find fault with it.
What survives shows where a check does not look, or is no mistake at all: `tools/mutants.toml` names those that are
right, each with its reason. What a whole run finds is stored in `posenc/data/mutants.json`.
"""

import argparse
import ast
import hashlib
import json
import multiprocessing
import platform
import resource
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import torch

import posenc.checks
from posenc.checks import calling
from posenc.checks.examine import PUBLIC_SEED, examine
from posenc.checks.registry import all_exercises
from tools import files, mutations
from tools.reasons import listed, says

REASONS = Path(__file__).with_suffix(".toml")
RESULTS = files.ROOT / "posenc" / "data" / "mutants.json"
CHECKS = Path(posenc.checks.__file__).parent
SHARED = ("common.py", "compare.py", "examine.py", "exercise.py")  # what the verdict of every check rests on
LEAST_SHARE = 0.98  # of the mutants that are not excused, so many must be caught
SECONDS_A_CALL = 3  # a mutant that never ends is noticed
PATIENCE = 200  # seconds on the clock for each second that counts: a busy machine is no fault of a solution
MOST_MEMORY = 6_000_000_000

DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign)


@dataclass(frozen=True)
class Solution:
    """The cell that solves an exercise: its functions and classes, and what earlier cells have defined."""

    cell: ast.Module
    source: str
    names: dict[str, Any]


@dataclass(frozen=True)
class Survey:
    """How many mutants an exercise's solution has, and those with which its check finds no fault."""

    mutants: int
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Reasons:
    """Which survivors are no mistakes.

    free: exercises that accept every answer that meets a demand, and why a mutant that passes is right.
    same: (exercise, change) of mutants that do the same as the solution, and why. "…" stands for anything.
    """

    free: dict[str, str]
    same: dict[tuple[str, str], str]

    def excuse(self, exercise: str, change: str) -> str | None:
        found = (because for (name, said), because in self.same.items() if name == exercise and says(said, change))
        return self.free.get(exercise) or next(found, None)


@cache
def solutions() -> dict[str, Solution]:
    """By exercise, in the order of the book."""
    found = {}
    for path in files.notebooks(folders=("solutions",)):
        names: dict[str, Any] = {"__name__": "__main__"}
        for cell in files.read(path).cells:
            if cell.cell_type != "code" or "google.colab" in cell.source:
                continue
            statements = [s for s in ast.parse(cell.source).body if isinstance(s, DEFINES)]
            solved = [s for s in statements if isinstance(s, (ast.FunctionDef, ast.ClassDef))]
            for statement in solved:
                if statement.name in all_exercises():
                    found[statement.name] = Solution(ast.Module(solved, []), cell.source, dict(names))
            exec(compile(ast.Module(statements, []), path.name, "exec"), names)
    return found


def survey(exercise: str) -> Survey:
    """Examine every mutant. Raises RuntimeError if the check finds fault with the solution itself."""
    solution = solutions()[exercise]
    if is_caught(exercise, ast.unparse(solution.cell), solution.names):
        raise RuntimeError(f"the check finds fault with the solution of {exercise}")
    found = list(mutations.mutants(solution.cell))
    survivors = [change for change, code in found if not is_caught(exercise, code, solution.names)]
    return Survey(len(found), tuple(survivors))


def is_caught(exercise: str, code: str, names: dict[str, Any]) -> bool:
    """Whether the check finds fault with the exercise's function as this code defines it, given what came before."""
    names = dict(names)
    try:
        exec(compile(code, "<mutant>", "exec"), names)
    except Exception:  # a SyntaxError, too
        return True
    declared = replace(all_exercises()[exercise], mistakes=())  # which one it is does not matter here
    return examine(names[exercise], declared, PUBLIC_SEED).status != "correct"


def survey_all(exercises: Iterable[str], jobs: int) -> Iterator[tuple[str, Survey]]:
    """One exercise after the other, in processes of their own: a mutant may take all memory."""
    exercises = list(exercises)
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _limit) as pool:
        yield from zip(exercises, pool.map(survey, exercises), strict=True)


def _limit() -> None:
    torch.set_num_threads(1)
    calling.SECONDS_A_CALL, calling.PATIENCE = SECONDS_A_CALL, PATIENCE
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))


# ---- reasons, and what is stored


def read_reasons(text: str) -> Reasons:
    """What `mutants.toml` says. Raises ValueError if an entry is twice there, or has no reason."""
    found = tomllib.loads(text)
    free, same = found["free"], listed(found.get("same", []), ["exercise"], "changes")
    if twice := [exercise for exercise, _ in same if exercise in free]:
        raise ValueError(f"{twice[0]} is excused twice")
    if not all(reason.strip() for reason in free.values()):
        raise ValueError("an entry has no reason")
    return Reasons(free, same)


def idle(reasons: Reasons, found: dict[str, Survey]) -> list[str]:
    """Entries that no survivor of the surveyed exercises needs any more."""
    needed = {(e, said) for e, said in reasons.same if e in found for c in found[e].survivors if says(said, c)}
    unused = [f"{e}: {said}" for e, said in reasons.same if e in found and (e, said) not in needed]
    unused += [f"{e}: free" for e in reasons.free if e in found and not found[e].survivors]
    unknown = {*reasons.free, *(e for e, _ in reasons.same)} - set(all_exercises())
    return unused + [f"{e}: no such exercise" for e in sorted(unknown)]


def digest(exercise: str) -> str:
    """Differs as soon as the solution, its check or the operators may give other counts."""
    module = f"chapter_{all_exercises()[exercise].chapter:02}.py"
    texts = [(CHECKS / name).read_text(encoding="utf-8") for name in (module, *SHARED)]
    texts += [Path(mutations.__file__).read_text(encoding="utf-8"), solutions()[exercise].source]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]


def stored() -> tuple[dict[str, Survey], dict[str, str]]:
    """What the last whole run found, and the digests of what it examined."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["exercises"]
    surveys = {name: Survey(row["mutants"], tuple(row["survivors"])) for name, row in rows.items()}
    return surveys, {name: row["digest"] for name, row in rows.items()}


def store(found: dict[str, Survey], reasons: Reasons) -> None:
    made = {
        "command": "make mutants",
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    rows = {name: row(name, survey, reasons) for name, survey in found.items()}
    files.write_text(json.dumps({"made": made, "exercises": rows}, indent=1, ensure_ascii=False) + "\n", RESULTS)


def row(exercise: str, survey: Survey, reasons: Reasons) -> dict[str, Any]:
    """What is stored of one exercise."""
    return {
        "mutants": survey.mutants,
        "caught": survey.mutants - len(survey.survivors),
        "excused": len(survey.survivors) - len(open_ones(exercise, survey, reasons)),
        "survivors": list(survey.survivors),
        "digest": digest(exercise),
    }


def open_ones(exercise: str, survey: Survey, reasons: Reasons) -> list[str]:
    """The survivors without a reason."""
    return [change for change in survey.survivors if not reasons.excuse(exercise, change)]


def share_caught(found: dict[str, Survey], reasons: Reasons) -> float:
    """Of the mutants that are wrong."""
    caught = sum(survey.mutants - len(survey.survivors) for survey in found.values())
    missed = sum(len(open_ones(name, survey, reasons)) for name, survey in found.items())
    return caught / (caught + missed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "exercises", nargs="*", help="names of exercises (all, if none is named; only then is it stored)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (%(default)s)")
    arguments = parser.parse_args()
    reasons = read_reasons(REASONS.read_text(encoding="utf-8"))
    found = {}
    print(f"{'exercise':32} mutants  caught  excused")
    for name, survey in survey_all(arguments.exercises or solutions(), arguments.jobs):
        found[name], left = survey, open_ones(name, survey, reasons)
        caught = survey.mutants - len(survey.survivors)
        print(f"{name:32} {survey.mutants:7} {caught:7} {len(survey.survivors) - len(left):8}", flush=True)
        print(*(f"    survives: {change}\n" for change in left), sep="", end="", flush=True)
    share = share_caught(found, reasons)
    print(f"{sum(s.mutants for s in found.values())} mutants; of those not excused {share:.1%} are caught")
    for entry in (unused := idle(reasons, found)):
        print(f"error: {REASONS.name} has a reason that nothing needs: {entry}", file=sys.stderr)
    if not arguments.exercises:
        store(found, reasons)
    return int(bool(unused) or share < LEAST_SHARE)


if __name__ == "__main__":
    sys.exit(main())
