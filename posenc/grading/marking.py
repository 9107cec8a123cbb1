"""Marks: the references, the comparison and the verdict, in a process that never runs the learner's code."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from posenc.checks.calling import PATIENCE, TOO_BUSY, TOO_LONG, OutOfTime, Starved, time_limit
from posenc.checks.examine import PUBLIC_SEED, Report, examine
from posenc.checks.exercise import Exercise
from posenc.checks.registry import all_exercises, exercises_of
from posenc.grading import sandbox, stub, wire
from posenc.grading.effort import Budget, Effort, holds_more
from posenc.grading.limits import Ending, Limits, ending_of, limit_in
from posenc.grading.peer import Peer, RemoteFunction, as_status
from posenc.grading.reading import Notebook

Status = Literal[
    "correct", "partly", "wrong", "not attempted", "missing", "error", "timeout", "memory", "crashed", "ungraded"
]

# Memory in pages of 2 MB, where the kernel has them: a fork, and its end, then take a quarter of the time.
CHEAP_FORKS = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}

SECONDS_TO_ANSWER = 20  # to say what the notebook holds, or that an exercise is over
SECONDS_BETWEEN_LOOKS = 0.25  # at the memory of all processes of a learner
TOO_MUCH_IN_ALL = "memory", "all its processes together held more memory than allowed"
BUSY = "ungraded", TOO_BUSY
LOST = "crashed", "the process ended, or no longer answered as it should"


@dataclass(frozen=True)
class Mark:
    """The verdict on one exercise."""

    exercise: Exercise
    status: Status
    reason: str = ""
    report: Report | None = None
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        return self.report.points if self.report else 0


@dataclass(frozen=True)
class Marks:
    """The verdict on one notebook."""

    marks: tuple[Mark, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def points(self) -> int:
        return sum(mark.points for mark in self.marks)

    @property
    def of(self) -> int:
        """What can be reached: the chapter's sum, whatever is left in the file."""
        return sum(mark.exercise.points for mark in self.marks)


class Gone(Exception):
    """The worker died, or no longer speaks the protocol. `ending` says how."""

    def __init__(self, ending: Ending):
        super().__init__(ending[1])
        self.ending = ending


class Nursery:
    """A process with torch loaded that forks workers, and the folder with the library that they see. Close it.

    unsafe: without walls, for code that one trusts, such as one's own. Raises NoSandbox if there are no walls here.
    """

    def __init__(self, *, unsafe: bool, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.temporary = tempfile.TemporaryDirectory()
        root = Path(self.temporary.name)
        root.chmod(0o711)  # another user passes through here
        self.library, self.work = stub.build(root / "library"), root / "work"
        self.work.mkdir(mode=0o711)
        try:
            around = sandbox.walls(self.library, self.work, unsafe=unsafe)
        except sandbox.NoSandbox:
            self.temporary.cleanup()
            raise
        self.walls = around.name
        environment = {"PYTHONPATH": around.library, "HOME": around.home, "MPLCONFIGDIR": around.home}
        environment |= {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
        environment |= CHEAP_FORKS | {"PYTHONDONTWRITEBYTECODE": "1"}
        settings = {"limits": asdict(self.limits), "folders": around.folders, "another_user": around.another_user}
        self.socket, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [
                *around.command,
                sys.executable,
                "-m",
                "posenc.grading.worker",
                str(theirs.fileno()),
                json.dumps(settings),
            ],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.work,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.worker: Worker | None = None  # who is watched
        self.closed = threading.Event()
        threading.Thread(target=self._watch_memory, daemon=True).start()

    def fork(self, read: int, write: int) -> tuple[int, int | None]:
        """A new worker that reads and writes these pipes: its process number in there, and that of its watcher here."""
        socket.send_fds(self.socket, [b"fork"], [read, write])
        word, handles, _, _ = socket.recv_fds(self.socket, 8, 1)
        watcher = [number_of(handle) for handle in handles]
        if not (pid := int.from_bytes(word, "little")):
            raise RuntimeError("the process could not be walled off")
        return pid, watcher[0] if watcher else None

    def _watch_memory(self) -> None:
        while not self.closed.wait(SECONDS_BETWEEN_LOOKS):
            worker = self.worker
            if worker and worker.effort.root and holds_more(worker.effort.root, self.limits.memory_in_all):
                worker.overrun = TOO_MUCH_IN_ALL
                with contextlib.suppress(OSError):
                    self.kill(worker.pid)

    def kill(self, pid: int) -> None:
        """End a worker, and with it whatever it started."""
        self.socket.sendall(b"k" + pid.to_bytes(8, "little"))

    def end(self) -> None:
        """End it and all workers, at any moment.

        As a group: while bubblewrap starts, its second process waits for a word of its first, and would wait for ever
        if the first alone were killed. Until that word comes, both are of one group.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        self.closed.set()
        self.socket.close()
        self.end()
        self.process.wait()
        self.temporary.cleanup()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def number_of(handle: int) -> int | None:
    """The number here of the process that a handle from pidfd_open(2) means, if the system tells. Closes the handle."""
    about = ""
    with contextlib.suppress(OSError):
        about = Path(f"/proc/self/fdinfo/{handle}").read_text()
    os.close(handle)
    found = re.search(r"^Pid:\s*(\d+)", about, re.MULTILINE)
    return int(found[1]) or None if found else None


class Worker:
    """One process with a learner's cells. Closed, it and whatever it started in its session are gone."""

    def __init__(self, notebook: Notebook, nursery: Nursery):
        to_worker, to_us = os.pipe(), os.pipe()
        self.nursery = nursery
        self.pid, watcher = nursery.fork(to_worker[0], to_us[1])
        self.effort, self.overrun = Effort(watcher), None
        nursery.worker = self
        os.close(to_worker[0])
        os.close(to_us[1])
        self.write, self.read = to_worker[1], to_us[0]
        self.alive = True
        with self._watched(nursery.limits.seconds_for_cells):
            wire.send(self.write, {"op": "cells", "cells": list(notebook.cells)}, [])
            ran = self._hear("ran")
        self.complaints, self.defined = _texts(ran.get("complaints")), ran.get("defined")

    def cells_that_define(self, name: str) -> list[int]:
        """The numbers of these cells, as the worker says."""
        numbers = self.defined.get(name) if isinstance(self.defined, dict) else None
        return [n for n in numbers if type(n) is int][:20] if isinstance(numbers, list) else []

    def begin(self, exercise: Exercise) -> tuple[dict, RemoteFunction | None]:
        """What the worker says of the exercise's function, and the function if there is one. Raises Gone."""
        with self._watched(SECONDS_TO_ANSWER):
            wire.send(self.write, {"op": "begin", "name": exercise.name}, [])
            found = self._hear("found", "missing", "no function", "stub", "unreadable")
        number = found.get("number")
        if found["op"] != "found" or type(number) is not int:
            return found, None
        limits = self.nursery.limits
        budget = Budget(self.effort, limits.seconds_an_exercise, "all its calls together")
        peer = Peer(self.read, self.write, limits, budget)
        return found, RemoteFunction(peer, number, exercise.name)

    def end(self) -> None:
        """The exercise is over; the worker is ready for the next. Raises Gone."""
        with self._watched(SECONDS_TO_ANSWER):
            wire.send(self.write, {"op": "end"}, [])
            ended, _ = wire.receive(self.read)
            if ended.get("op") != "ended" or ended.get("status") != 0:
                raise wire.Malformed("the exercise did not end as it should")

    def _hear(self, *words: str) -> dict:
        """The next message, which must be one of these. Raises Gone or Malformed."""
        message, _ = wire.receive(self.read)
        if message.get("op") == "ended":
            self.close()
            raise Gone(self.overrun or ending_of(as_status(message), self.nursery.limits))
        if message.get("op") not in words:
            raise wire.Malformed("another message than the one that was due")
        return message

    @contextlib.contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        """Whoever is silent for too long, dies or babbles is killed. Raises Gone."""
        try:
            with time_limit(seconds, self.effort):
                yield
        except (wire.Closed, wire.Malformed, OutOfTime) as error:
            self.close()
            late = BUSY if isinstance(error, Starved) else ("timeout", f"it did not answer within {seconds:g} seconds")
            raise Gone(self.overrun or (late if isinstance(error, OutOfTime) else LOST)) from None

    def close(self) -> None:
        if self.alive:
            self.alive, self.nursery.worker = False, None
            self.nursery.kill(self.pid)
            os.close(self.read)
            os.close(self.write)


def _texts(said: object) -> list[str]:
    """What the worker says went wrong in the cells; where it was a limit, which."""
    texts = [str(each)[:400] for each in said][:50] if isinstance(said, list) else []
    return [f"{text} ({limit[1]})" if (limit := limit_in(text)) else text for text in texts]


def mark(notebook: Notebook, exercises: Sequence[Exercise], nursery: Nursery, seed: int = PUBLIC_SEED) -> Marks:
    """Run the cells in a process of their own and mark each exercise. Never raises because of the notebook."""
    worker: Worker | None = None
    marks: list[Mark] = []
    notes = list(notebook.notes)
    spent, start = 0.0, time.monotonic()  # seconds: by workers that are gone, and the clock
    try:
        for exercise in exercises:
            if time.monotonic() - start > nursery.limits.seconds_a_notebook:
                _stop_if_spent(spent + (worker.effort() if worker else 0), start, nursery.limits.seconds_a_notebook)
            if worker is None or not worker.alive:
                spent += worker.effort.total if worker else 0
                worker = Worker(notebook, nursery)
                notes += [c for c in worker.complaints if c not in notes]
            marks.append(_mark_one(worker, exercise, seed))
    except Gone as gone:  # the cells would do the same again
        marks += [Mark(exercise, gone.ending[0], gone.ending[1]) for exercise in exercises[len(marks) :]]
    finally:
        if worker is not None:
            worker.close()
    return Marks(tuple(marks), tuple(notes))


def _stop_if_spent(spent: float, start: float, seconds: float) -> None:
    """Raises Gone if so many seconds are spent, or if they do not come."""
    if spent > seconds:
        raise Gone(("timeout", f"the notebook as a whole took longer than {seconds:g} seconds"))
    if time.monotonic() - start > seconds * PATIENCE:
        raise Gone(BUSY)


def _mark_one(worker: Worker, exercise: Exercise, seed: int) -> Mark:
    cells = worker.cells_that_define(exercise.name)
    notes = (f"defined in cells {' and '.join(map(str, cells))}: the last one counts",) if len(cells) > 1 else ()
    try:
        found, function = worker.begin(exercise)
        if function is None:
            worker.end()
            status: Status = {"missing": "missing", "stub": "not attempted"}.get(found["op"], "error")
            return Mark(exercise, status, str(found.get("reason", ""))[:400], None, notes)
        report = examine(function, exercise, seed)
        if worker.effort.starved:
            worker.close()
            return Mark(exercise, *BUSY, None, notes)
        if not function.peer.broken:
            worker.end()
            return Mark(exercise, *_within_limits(report), report, notes)
        worker.close()
        return Mark(exercise, *(worker.overrun or _broken_off(report, function.peer.ending)), report, notes)
    except Gone as gone:
        return Mark(exercise, *gone.ending, None, notes)
    except Exception as error:  # ours: the learner shall not pay for it
        worker.close()
        return Mark(exercise, "ungraded", f"the grader failed: {type(error).__name__}: {error}"[:400], None, notes)


def _within_limits(report: Report) -> Ending:
    """The status of a whole report, and the limit that it ran into, if any."""
    limits = [limit for f in report.findings if f.complaint and (limit := limit_in(f.complaint))]
    name, reason = limits[0] if limits else ("", "")
    return "memory" if name == "memory" else report.status, reason


def _broken_off(report: Report, ending: Ending | None) -> Ending:
    """The status of a report during which the process was lost."""
    if any(f.complaint == TOO_LONG for f in report.findings):
        return "timeout", TOO_LONG
    return ending or LOST


def chapter_of(notebook: Notebook) -> int | None:
    """The chapter whose exercises the notebook defines, most of them if of several; None if of none."""
    exercises = all_exercises()
    chapters = [exercises[name].chapter for name in names_of(notebook) if name in exercises]
    return max(sorted(set(chapters)), key=chapters.count) if chapters else None


def names_of(notebook: Notebook) -> set[str]:
    """The names that the cells give to something. Not parsed: that can bring Python down, and must not here."""
    return {
        name for source in notebook.cells for name in re.findall(r"^[ \t]*(?:def +)?(\w+) *[(:=]", source, re.MULTILINE)
    }


def mark_chapter(notebook: Notebook, chapter: int, nursery: Nursery, seed: int = PUBLIC_SEED) -> Marks:
    return mark(notebook, exercises_of(chapter), nursery, seed)
