"""Fail if a notebook takes more than twice the time that a reader is asked to wait (last step of `make test`)."""

import json
import sys
from pathlib import PurePosixPath

from tools import files

BUDGET_SECONDS = {"chapters": 60, "solutions": 15, "exercises": 15}
TOLERANCE = 2


def overruns(seconds: dict[str, float], notebooks: list[str]) -> list[str]:
    """What is wrong with the recorded run times of these notebooks, one sentence each."""
    found = [f"{name} has no recorded run time, so run `make test`." for name in notebooks if name not in seconds]
    for name in notebooks:
        limit = TOLERANCE * BUDGET_SECONDS[PurePosixPath(name).parts[0]]
        if seconds.get(name, 0) > limit:
            found.append(f"{name} took {seconds[name]:.0f} s, more than {limit} s, so make it smaller.")
    return found


def main() -> int:
    seconds = json.loads(files.DURATIONS.read_text()) if files.DURATIONS.exists() else {}
    names = [files.name(path) for path in files.notebooks()]
    for sentence in (found := overruns(seconds, names)):
        print(sentence, file=sys.stderr)
    if names and not found:
        slowest = max(names, key=lambda name: seconds[name])
        print(f"{len(names)} notebooks within budget; the slowest is {slowest} with {seconds[slowest]:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
