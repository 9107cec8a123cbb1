"""A process that marks one student after the other: tasks come in as lines of JSON, records go out.

`python -m posenc.grading.marker WALLS PARENT`, where WALLS is `safe` or `unsafe` and PARENT the number of the process
that listens: when that one is gone, this one ends. It holds the references and runs no code of a learner; the processes
that its nursery forks do. It is a process of its own so that whatever befalls it, even a crash of Python itself, costs
one student's marks for one run, and says so.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import torch

import posenc
from posenc.grading.marking import Nursery
from posenc.grading.records import Record, Task, grade, ungraded
from posenc.grading.sandbox import NoSandbox

SECONDS_A_STUDENT = 1500  # beyond all limits of the marker's own
MOST_MEMORY = 8_000_000_000  # bytes of data: a function that a case hands out may be called with large arguments


class Marker:
    """The other end: start it, hand it tasks, close it. Not for several threads at once."""

    def __init__(self, *, unsafe: bool) -> None:
        self.unsafe = unsafe
        self.process: subprocess.Popen | None = None
        self.walls = ""
        self.stopped = False

    def start(self) -> None:
        """Raises NoSandbox if learners' code cannot be walled off here."""
        paths = [str(Path(posenc.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "posenc.grading.marker", "unsafe" if self.unsafe else "safe", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the batch alone
        )
        try:
            hello = self._hear()
        except OSError:
            hello = {"error": "the marking process did not start; its message stands above"}
        if "walls" not in hello:
            self.close()
            raise NoSandbox(hello["error"])
        self.walls = hello["walls"]

    def mark(self, task: Task) -> Record:
        """The student's record. Never raises because of the student; a failure of ours is a record that says so."""
        reason = ""
        for _ in range(2):
            if self.stopped:
                break
            if self.process is None:
                self.start()
            try:
                return self._ask(task)
            except (OSError, ValueError) as error:
                reason = f"the marking process failed twice ({type(error).__name__})"
                self.close()
        return ungraded(task, reason, self.walls)

    def _ask(self, task: Task) -> Record:
        assert self.process is not None
        assert self.process.stdin is not None
        alarm = threading.Timer(SECONDS_A_STUDENT, self.process.kill)
        alarm.start()
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
            return self._hear()
        finally:
            alarm.cancel()

    def _hear(self) -> dict[str, Any]:
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ConnectionError("the marking process is gone")
        return json.loads(line)

    def close(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def stop(self) -> None:
        """Close for good, at once, whatever it is doing."""
        self.stopped = True
        if self.process is not None:
            self.process.terminate()
        self.close()

    def __enter__(self) -> "Marker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def main(unsafe: bool, parent: int) -> None:
    """Say how learners' code is walled off, then answer each task with a record until there are no more."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed here must not look like a record
    torch.set_num_threads(1)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, hard))
    told = threading.Event()  # to end at once: by a signal, which must not cut short the start of a sandbox
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    try:
        nursery = Nursery(unsafe=unsafe)
    except NoSandbox as error:
        _say(out, {"error": str(error)})
        return
    threading.Thread(target=_end_in_time, args=(parent, told, nursery), daemon=True).start()
    gc.freeze()  # what is loaded by now stays: no collection need look at it
    with nursery:
        _say(out, {"walls": nursery.walls})
        for line in sys.stdin.buffer:
            _say(out, grade(json.loads(line), nursery))


def _end_in_time(parent: int, told: threading.Event, nursery: Nursery) -> None:
    """If the batch is killed, do not mark on for minutes: end, and all that learners' code started with us."""
    while os.getppid() == parent and not told.wait(0.5):
        pass
    nursery.end()
    nursery.temporary.cleanup()
    os._exit(1)


def _say(out: IO[bytes], message: dict[str, Any]) -> None:
    out.write(json.dumps(message).encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1] == "unsafe", int(sys.argv[2]))
