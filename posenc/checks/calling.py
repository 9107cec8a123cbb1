"""Call a learner's function so that nothing of it stays behind: no state, no exception, no endless loop.

This module knows no exercise, so that it can stand beside untrusted code.
"""

import contextlib
import io
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

Complaint = str | None  # None: nothing to complain about

SECONDS_A_CALL = 10

TOO_LONG = f"took longer than {SECONDS_A_CALL} seconds; does a loop never end?"
PATIENCE = 6  # seconds on the clock for each second that counts, before we give up on a busy machine
TICKS = 10  # looks at the work done, while a limit lasts
TOO_BUSY = (
    "no answer in time, though it hardly worked and did not sleep: the computer is busy with something else. "
    "Nothing is wrong with the answer so far; try again"
)
INTERRUPTED = "you stopped it; does a loop never end?"

MOST_PRINTED = 20_000  # letters; what a function prints beyond is dropped


class OutOfTime(BaseException):
    """The learner's function took too long. No `except Exception` of theirs shall catch it."""


class Starved(OutOfTime):
    """The machine was too busy to let the learner's function work. That is no fault of theirs."""


class Elsewhere:
    """Base of functions that run in another process. `spent` says how long that one has worked."""

    spent: "Effort | None" = None


@dataclass(frozen=True)
class Outcome:
    """What one call gave: a value, or a complaint (an exception in words)."""

    value: Any = None
    complaint: Complaint = None
    error: type[BaseException] | None = None


def call(function: Callable, arguments: tuple, blame: Callable | None = None) -> Outcome:
    """Call it; put an exception into words, with the line of the learner's function (`blame`, if not `function`).

    KeyboardInterrupt counts as an exception: the report says who stopped it.
    """
    theirs = blame or function
    spent = theirs.spent if issubclass(type(theirs), Elsewhere) else None
    try:
        with steady(), warnings.catch_warnings(), time_limit(SECONDS_A_CALL, spent):
            warnings.simplefilter("ignore")
            return Outcome(function(*arguments))
    except Starved:
        return Outcome(complaint=TOO_BUSY, error=Starved)
    except OutOfTime:
        return Outcome(complaint=TOO_LONG, error=OutOfTime)
    except KeyboardInterrupt:
        return Outcome(complaint=INTERRUPTED, error=KeyboardInterrupt)
    except BaseException as error:
        return Outcome(complaint=in_words(blame or function, error), error=type(error))


def is_stub(function: Callable) -> bool:
    """Whether the function does nothing but raise NotImplementedError, whatever it is given."""
    code = getattr(function, "__code__", None)
    if code is None or "NotImplementedError" not in code.co_names:
        return False
    return call(function, (None,) * code.co_argcount).error is NotImplementedError


@contextlib.contextmanager
def time_limit(seconds: float, spent: "Effort | None" = None, patience: float | None = None) -> Iterator[None]:
    """Raise OutOfTime in the block after so many seconds of work or sleep, Starved if a busy machine allows neither.

    `spent` says how many seconds these were so far, in all; by itself, of this thread. It is asked again and again
    while the block lasts. Only where the system can (the main thread, not on Windows).
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    looks: list[float] = []
    look, start = spent or Effort(), time.monotonic()
    longest = seconds * (patience or PATIENCE)

    def tick(*_: object) -> None:
        looks.append(look())
        if looks[-1] - looks[0] >= seconds * (TICKS - 1) / TICKS:  # the first look comes after a tick
            raise OutOfTime
        if time.monotonic() - start >= longest:
            look.starved = True
            raise Starved

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, seconds / TICKS, seconds / TICKS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Effort:
    """The seconds that this thread has worked, or slept of its own will: called, it says how many so far.

    What it waited for a processor does not count. From one call to the next it is taken to have slept if it hardly
    worked, and left the processor by itself more often than it was made to.
    """

    def __init__(self) -> None:
        self.total = 0.0
        self.starved = False  # whether we gave up because it got no further
        self.last = self._look()

    def _look(self) -> tuple[float, ...]:
        switches = (0, 0)
        if resource is not None:
            used = resource.getrusage(getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF))
            switches = used.ru_nvcsw, used.ru_nivcsw
        return time.monotonic(), time.thread_time(), *switches

    def __call__(self) -> float:
        now = self._look()
        elapsed, worked, left, pushed = (b - a for a, b in zip(self.last, now, strict=True))
        self.last = now
        slept = worked < elapsed / 10 and left > pushed
        self.total += elapsed if slept else min(worked, elapsed)
        return self.total


def in_words(function: Callable, error: BaseException) -> str:
    """The exception in one line, and the line of the function that it came from."""
    if said := getattr(error, "in_words", None):  # by another process, where the line is known
        return str(said)
    words = f"{type(error).__name__}: {error}".strip().rstrip(":")
    words = words if len(words) <= 200 else words[:197] + "..."
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if code and f.filename == code.co_filename and f.name == code.co_name]
    if mine and mine[-1].line and mine[-1].lineno:
        return f"{words} (line {mine[-1].lineno - code.co_firstlineno + 1} of your function: `{mine[-1].line}`)"
    return words


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Seed torch for the block, and put the global state back afterwards, whatever happens in it."""
    dtype, grad, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    state = torch.get_rng_state()
    _seed(0)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        torch.set_rng_state(state)


def _seed(seed: int) -> None:
    """What `torch.manual_seed` does, a hundred times faster where no GPU is in use: that one formats a traceback."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


class Printed(io.TextIOBase):
    """Keeps the first letters of what is printed, and counts on without end."""

    def __init__(self) -> None:
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if len(self.text) < MOST_PRINTED:
            self.text += text[: MOST_PRINTED - len(self.text)]
        return len(text)


@contextlib.contextmanager
def capture() -> Iterator[Printed]:
    """What the block prints, bounded."""
    printed = Printed()
    with contextlib.redirect_stdout(printed):
        yield printed
