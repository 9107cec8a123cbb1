"""What a learner's code may use, and the words for what happens beyond.

This module stands beside untrusted code and holds no secret.
"""

import os
import re
import signal
from dataclasses import dataclass

Ending = tuple[str, str]  # a status, and a sentence


@dataclass(frozen=True)
class Limits:
    """Bounds for one notebook. Each holds for every process that it starts.

    Seconds are of work or sleep: what a process waits for a busy machine does not count (see `effort`).
    """

    seconds_a_cell: float = 30
    seconds_for_cells: float = 120  # all cells together
    seconds_an_exercise: float = 120  # all calls of one function together
    seconds_a_notebook: float = 300  # after which no further exercise is begun
    cpu_seconds: int = 300
    memory: int = 4_000_000_000  # bytes of data, torch's own included
    memory_in_all: int = 6_000_000_000  # bytes that all its processes hold together
    file: int = 64_000_000  # bytes, also of all files together
    open_files: int = 256
    processes: int = 128  # threads count


# What Python or torch say when the system refuses, and which limit that was.
SIGNS: tuple[tuple[str, str, str], ...] = (
    (r"MemoryError|an't allocate memory|annot allocate memory|not enough memory", "memory", "more memory than allowed"),
    (r"an't start new thread|\[Errno 11\]|temporarily unavailable", "processes", "more processes than allowed"),
    (r"\[Errno 27\]|\[Errno 28\]|File too large|No space left", "files", "more room for files than allowed"),
    (r"\[Errno 24\]|Too many open files", "files", "more open files than allowed"),
    (
        r"\[Errno 101\]|\[Errno 111\]|\[Errno -[23]\]|Network is unreachable|name resolution|Connection refused",
        "network",
        "the network, which is not there while marks are made",
    ),
    (r"too much to send", "output", "more room for its result than allowed"),
)


def limit_in(words: str) -> Ending | None:
    """The limit that these words of an exception speak of: its name, and a sentence."""
    for pattern, name, what in SIGNS:
        if re.search(pattern, words):
            return name, f"it asked for {what}"
    return None


def ending_of(status: int, limits: Limits) -> Ending:
    """How a process ended, from what waitpid(2) says."""
    if not os.WIFSIGNALED(status):
        return "crashed", f"the process left without an answer (exit code {os.waitstatus_to_exitcode(status)})"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU:
        return "timeout", f"it used more than {limits.cpu_seconds} seconds of processor time"
    if number == signal.SIGKILL:
        return "crashed", "the process was killed: by itself, or because the machine ran out of memory"
    names = {s.value: s.name for s in signal.Signals}
    return "crashed", f"the process died of {names.get(number, f'signal {number}')}"
