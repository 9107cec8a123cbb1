"""Marks: the references, the comparison and the verdict, in a process that never runs the learner's code."""

import ast
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from posenc.checks.calling import TOO_LONG, OutOfTime, time_limit
from posenc.checks.examine import PUBLIC_SEED, Report, examine
from posenc.checks.exercise import Exercise
from posenc.checks.registry import all_exercises, exercises_of
from posenc.grading import sandbox, stub, wire
from posenc.grading.peer import Peer, RemoteFunction
from posenc.grading.reading import Notebook

Status = Literal["correct", "partly", "wrong", "not attempted", "missing", "error", "timeout", "crashed"]

SECONDS_FOR_CELLS = 120


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
    """The worker died, or no longer speaks the protocol."""


class Nursery:
    """A process with torch loaded that forks workers, and the folder with the library that they see. Close it.

    unsafe: without walls, for code that one trusts, such as one's own. Raises NoSandbox if there are no walls here.
    """

    def __init__(self, *, unsafe: bool) -> None:
        self.temporary = tempfile.TemporaryDirectory()
        self.library = stub.build(Path(self.temporary.name) / "library")
        self.work = Path(self.temporary.name) / "work"
        self.work.mkdir()
        library, home = (str(self.library), str(self.work)) if unsafe else (sandbox.LIBRARY, sandbox.WORK)
        environment = {"PYTHONPATH": library, "HOME": home, "MPLCONFIGDIR": home, "MPLBACKEND": "Agg"}
        environment |= {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            walls = [] if unsafe else sandbox.command(self.library, environment)
        except sandbox.NoSandbox:
            self.temporary.cleanup()
            raise
        private = [] if unsafe else sandbox.PRIVATE
        self.socket, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [*walls, sys.executable, "-m", "posenc.grading.worker", str(theirs.fileno()), *private],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.work,
            env=environment,
            start_new_session=True,
        )
        theirs.close()

    def fork(self, read: int, write: int) -> int:
        """A new worker that reads and writes these pipes; its process number in there. Raises Gone."""
        socket.send_fds(self.socket, [b"fork"], [read, write])
        pid = int.from_bytes(self.socket.recv(8), "little")
        if not pid:
            raise Gone("the process could not be walled off")
        return pid

    def kill(self, pid: int) -> None:
        """End a worker, and with it whatever it started."""
        self.socket.sendall(b"k" + pid.to_bytes(8, "little"))

    def close(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()
        self.temporary.cleanup()

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Worker:
    """One process with a learner's cells. Closed, it and whatever it started in its session are gone."""

    def __init__(self, notebook: Notebook, nursery: Nursery):
        to_worker, to_us = os.pipe(), os.pipe()
        self.nursery = nursery
        self.pid = nursery.fork(to_worker[0], to_us[1])
        os.close(to_worker[0])
        os.close(to_us[1])
        self.write, self.read = to_worker[1], to_us[0]
        self.alive = True
        with self._watched(SECONDS_FOR_CELLS):
            wire.send(self.write, {"op": "cells", "cells": list(notebook.cells)}, [])
            self.ran, _ = wire.receive(self.read)

    def begin(self, exercise: Exercise) -> tuple[dict, RemoteFunction | None]:
        """What the worker says of the exercise's function, and the function if there is one. Raises Gone."""
        with self._watched(SECONDS_FOR_CELLS):
            wire.send(self.write, {"op": "begin", "name": exercise.name}, [])
            found, _ = wire.receive(self.read)
            if found.get("op") == "ended":
                raise wire.Closed("it died while it was looked at")
        if found.get("op") != "found":
            return found, None
        return found, RemoteFunction(Peer(self.read, self.write), int(found.get("number", 0)), exercise.name)

    def end(self) -> None:
        """The exercise is over; the worker is ready for the next. Raises Gone."""
        with self._watched(SECONDS_FOR_CELLS):
            wire.send(self.write, {"op": "end"}, [])
            ended, _ = wire.receive(self.read)
            if ended.get("op") != "ended" or ended.get("status") != 0:
                raise wire.Malformed("the exercise did not end as it should")

    @contextlib.contextmanager
    def _watched(self, seconds: float) -> Iterator[None]:
        """Whoever is silent for too long, dies or babbles is killed. Raises Gone."""
        try:
            with time_limit(seconds):
                yield
        except (wire.Closed, wire.Malformed, OutOfTime) as error:
            self.close()
            raise Gone(TOO_LONG if isinstance(error, OutOfTime) else "the process died") from None

    def close(self) -> None:
        if self.alive:
            self.alive = False
            self.nursery.kill(self.pid)
            os.close(self.read)
            os.close(self.write)


def mark(notebook: Notebook, exercises: Sequence[Exercise], nursery: Nursery, seed: int = PUBLIC_SEED) -> Marks:
    """Run the cells in a process of their own and mark each exercise. Never raises because of the notebook."""
    worker: Worker | None = None
    marks, notes = [], list(notebook.notes)
    try:
        for exercise in exercises:
            try:
                if worker is None or not worker.alive:
                    worker = Worker(notebook, nursery)
                    notes += [str(c) for c in worker.ran.get("complaints", []) if str(c) not in notes]
                marks.append(_mark_one(worker, exercise, seed))
            except Gone as gone:
                status: Status = "timeout" if str(gone) == TOO_LONG else "crashed"
                marks.append(Mark(exercise, status, reason=str(gone)))
    finally:
        if worker is not None:
            worker.close()
    return Marks(tuple(marks), tuple(notes))


def _mark_one(worker: Worker, exercise: Exercise, seed: int) -> Mark:
    cells = worker.ran.get("defined", {}).get(exercise.name, [])
    notes = (f"defined in cells {' and '.join(map(str, cells))}: the last one counts",) if len(cells) > 1 else ()
    found, function = worker.begin(exercise)
    if function is None:
        worker.end()
        status: Status = {"missing": "missing", "stub": "not attempted"}.get(str(found.get("op")), "error")
        return Mark(exercise, status, str(found.get("reason", ""))[:400], None, notes)
    report = examine(function, exercise, seed)
    if function.peer.broken:
        worker.close()
        late = any(f.complaint == TOO_LONG for f in report.findings)
        return Mark(exercise, "timeout" if late else "crashed", "", report, notes)
    worker.end()
    return Mark(exercise, report.status, "", report, notes)


def chapter_of(notebook: Notebook) -> int | None:
    """The chapter whose exercises the notebook defines, most of them if of several; None if of none."""
    exercises = all_exercises()
    chapters = [exercises[name].chapter for name in names_of(notebook) if name in exercises]
    return max(sorted(set(chapters)), key=chapters.count) if chapters else None


def names_of(notebook: Notebook) -> set[str]:
    """The functions that the cells define, read without running anything."""
    names: set[str] = set()
    for source in notebook.cells:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            names |= {n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    return names


def mark_chapter(notebook: Notebook, chapter: int, nursery: Nursery, seed: int = PUBLIC_SEED) -> Marks:
    return mark(notebook, exercises_of(chapter), nursery, seed)
