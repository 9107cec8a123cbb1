"""How long a learner's code has kept us, and how much memory it holds: seen from outside, where it cannot lie (Linux).

A busy machine must not make a right answer late. So limits count the processor time of a learner's processes and of
ours on their behalf, and the time in which all of them slept although it was their turn; not what anybody waited for a
processor.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from posenc.checks import calling
from posenc.checks.calling import PATIENCE, TOO_BUSY
from posenc.grading import wire
from posenc.grading.limits import Ending

TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
FEW_SECONDS = 5
AWAKE = ("R", "D")  # runs or would like to, or waits for a disk


class Effort(calling.Effort):
    """Called, it says how many seconds a family of processes has worked or slept so far. Without one: the clock."""

    def __init__(self, root: int | None) -> None:
        self.root = root
        super().__init__()

    def _look(self) -> tuple[float, ...]:
        """The clock, the processor time of ours and of theirs, and how long they sleep although it is their turn."""
        worked, awake = (0.0, False) if self.root is None else work_of(self.root)
        return time.monotonic(), time.thread_time(), worked, 0.0 if awake else wire.seconds_of_others_turn()

    def __call__(self) -> float:
        now = self._look()
        elapsed, ours, theirs = (max(b - a, 0) for a, b in zip(self.last[:3], now[:3], strict=True))
        self.last = now
        self.total += elapsed if self.root is None else min(max(ours + theirs, now[3]), elapsed)
        return self.total

    def lately(self) -> float:
        """What it would say, or said less than a few seconds ago: looking costs time itself."""
        return self() if time.monotonic() - self.last[0] > FEW_SECONDS else self.total


class Budget:
    """So many seconds for several steps together."""

    def __init__(self, effort: Effort, seconds: float, what: str) -> None:
        self.effort, self.seconds, self.what = effort, seconds, what
        self.begin, self.before = time.monotonic(), effort.lately()

    def ending(self) -> Ending | None:
        """Why there shall be no further step, if it is so."""
        elapsed = time.monotonic() - self.begin
        if elapsed < self.seconds:
            return None
        if self.effort() - self.before >= self.seconds:
            return "timeout", f"{self.what} took longer than {self.seconds:g} seconds"
        if elapsed < self.seconds * PATIENCE:
            return None
        self.effort.starved = True
        return "ungraded", TOO_BUSY


def family(root: int) -> Iterator[int]:
    """The process and all that descend from it, as far as they still run."""
    found = [root]
    while found:
        yield (pid := found.pop())
        for path in _threads(pid):
            found += map(int, _text(path / "children").split())


def work_of(root: int) -> tuple[float, bool]:
    """Processor seconds of a family, those of children that ended included; and whether any thread of it is awake."""
    ticks, awake = 0, False
    for pid in family(root):
        if fields := _fields(Path(f"/proc/{pid}/stat")):
            ticks += sum(map(int, fields[11:15]))
        awake = awake or any((_fields(path / "stat") or "?")[0] in AWAKE for path in _threads(pid))
    return ticks / TICK, awake


def holds_more(root: int, most: int) -> bool:
    """Whether a family holds more bytes together. What its processes share counts once, where the system tells."""
    return sum(map(_resident, family(root))) > most and sum(map(_share, family(root))) > most


def _resident(pid: int) -> int:
    pages = _text(Path(f"/proc/{pid}/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _share(pid: int) -> int:
    """Resident bytes, where each page is divided by the number of processes that have it. Slower."""
    rolled = _text(Path(f"/proc/{pid}/smaps_rollup")).partition("\nPss:")[2].split()
    return int(rolled[0]) * 1024 if rolled else _resident(pid)


def _threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _fields(path: Path) -> list[str]:
    """What stands in a `stat` file after the name, which may hold anything: state first."""
    return _text(path).rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # it is gone
        return ""
