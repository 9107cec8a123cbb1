"""Fail if a notebook takes more than twice the time that a reader is asked to wait (last step of `make test`).

A machine that is slower than the one for which the budgets were set gets more time in proportion: a small training,
the yardstick, is timed in the same run.
"""

import json
import statistics
import sys
import time
from pathlib import PurePosixPath

from posenc.language import book, letter_model, passages
from posenc.learned import Learned
from posenc.train import train
from tools import files

BUDGET_SECONDS = {"chapters": 60, "solutions": 15, "exercises": 15}
TOLERANCE = 2
YARDSTICK_SECONDS = 0.25  # of the machine for which the budgets were set: one of its cores


def yardstick() -> float:
    """Seconds for 50 steps of a small training, the median of nine: notebooks spend their time like this."""
    model = letter_model(0, Learned(24, 32))
    task, times = passages(book()[0], 24, 1024, seed=0), []
    for _ in range(9):
        start = time.perf_counter()
        train(model, task, steps=50, batch=16)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def overruns(seconds: dict[str, float], notebooks: list[str], slowness: float = 1.0) -> list[str]:
    """What is wrong with the recorded run times of these notebooks, one sentence each.

    slowness: how many times longer than `YARDSTICK_SECONDS` the yardstick took; below 1 nothing is made stricter.
    """
    found = [f"{name} has no recorded run time, so run `make test`." for name in notebooks if name not in seconds]
    for name in notebooks:
        limit = TOLERANCE * BUDGET_SECONDS[PurePosixPath(name).parts[0]] * max(1.0, slowness)
        if seconds.get(name, 0) > limit:
            found.append(f"{name} took {seconds[name]:.0f} s, more than {limit:g} s, so make it smaller.")
    return found


def main() -> int:
    seconds = json.loads(files.DURATIONS.read_text()) if files.DURATIONS.exists() else {}
    names = [files.name(path) for path in files.notebooks()]
    slowness = yardstick() / YARDSTICK_SECONDS
    print(f"this machine took {slowness:.2f} times as long over the yardstick as the one of the budgets")
    for sentence in (found := overruns(seconds, names, slowness)):
        print(sentence, file=sys.stderr)
    if names and not found:
        slowest = max(names, key=lambda name: seconds[name])
        print(f"{len(names)} notebooks within budget; the slowest is {slowest} with {seconds[slowest]:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
