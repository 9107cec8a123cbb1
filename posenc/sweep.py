"""Every encoding of the book on the same tasks with the same budget, read at 1, 2, 4 and 8 times the trained length.

    python -m posenc.sweep                                  # five seeds, one process; goes on where it stopped
    python -m posenc.sweep --jobs 2                         # over joblib, on the cores of this machine
    python -m posenc.sweep --scheduler tcp://127.0.0.1:8786 # over joblib, on a Dask cluster

A task, an encoding and a seed make a run, and a run depends on nothing else. All models are causal, with two layers,
64 features and four heads; they see 32 tokens in training. Nothing was tuned for an encoding: the number of steps
stands in `STEPS`, and everything else in `SETTINGS` and `RECIPE`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from threading import Lock

import torch

from posenc.absolute import Sinusoidal
from posenc.encoding import PositionEncoding, Together
from posenc.extension import needle_at, with_needles
from posenc.language import book, cut, loss_by_position
from posenc.learned import Learned
from posenc.masks import Causal, SlidingWindow
from posenc.model import Transformer, build
from posenc.offsets import Shaw, TransformerXL
from posenc.relative import ALiBi, T5Bias
from posenc.rotary import Rotary
from posenc.study import Measurement, fill
from posenc.tasks import NOT_ASKED, Labelled, look_back_by
from posenc.train import train

TRAINED = 32  # tokens
TIMES = (1, 2, 4, 8)  # the lengths of the test, in trained lengths
SYMBOLS = 16  # of the tasks without a text
SEPARATOR, BLANK = SYMBOLS, SYMBOLS + 1
N_HEADS = 4
SETTINGS = {"vocabulary": 28, "d_model": 64, "n_layers": 2, "n_heads": N_HEADS, "n_outputs": 28}
RECIPE = {"batch": 32, "learning_rate": 1e-2}
STEPS = {"offset": 200, "far offset": 200, "induction": 400, "copy": 400, "text": 500}
TESTED = 512 * TRAINED  # tokens of a test at any length, so longer ones have fewer examples
NEEDLES = 128  # passages with one needle, at any length
STORED = Path(str(files("posenc") / "data" / "sweep.json"))

Encodings = PositionEncoding | list[PositionEncoding]  # one for all layers, or one for each
ENCODINGS: dict[str, Callable[[], Encodings]] = {
    "none": Causal,
    "window": lambda: SlidingWindow(8),
    "sinusoidal": lambda: Together(Causal(), Sinusoidal()),
    "learned": lambda: Together(Causal(), Learned(TIMES[-1] * TRAINED, SETTINGS["d_model"])),
    "Shaw": lambda: Together(Causal(), Shaw(SETTINGS["d_model"] // N_HEADS, clip=16)),
    "Transformer-XL": lambda: Together(Causal(), TransformerXL(SETTINGS["d_model"], N_HEADS)),
    "T5": lambda: Together(Causal(), T5Bias(N_HEADS, bidirectional=False)),
    "ALiBi": lambda: Together(Causal(), ALiBi(N_HEADS)),
    "rotary": lambda: Together(Causal(), Rotary()),
    "rotary, window": lambda: Together(SlidingWindow(8), Rotary()),
    "rotary, then none": lambda: [Together(Causal(), Rotary()), Causal()],
}


# --- The tasks


def induction(length: int, examples: int, seed: int) -> Labelled:
    """Each token is asked what followed it the last time. Tokens are drawn evenly; a first occurrence is not asked.

    tokens and labels: (examples, length).
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(SYMBOLS, (examples, length), generator=generator)
    earlier = (tokens.unsqueeze(2) == tokens.unsqueeze(1)).tril(-1)  # (examples, length, length)
    last = torch.where(earlier, torch.arange(length), -1).amax(dim=-1)
    follower = tokens.gather(1, last.add(1).clamp(max=length - 1))
    return Labelled(tokens, follower.masked_fill(last < 0, NOT_ASKED))


def copying(length: int, examples: int, seed: int) -> Labelled:
    """A string, a separator, the string again, blanks: every row of the repetition, from the separator on, is asked.

    The string has length // 4 to length // 2 - 1 tokens, so no fixed step back finds what to repeat.
    tokens and labels: (examples, length). Raises ValueError if length < 4.
    """
    if length < 4:
        raise ValueError(f"length must be at least 4, for a token, a separator and the token again; got {length}")
    generator = torch.Generator().manual_seed(seed)
    n_string = torch.randint(length // 4, length // 2, (examples, 1), generator=generator)
    string = torch.randint(SYMBOLS, (examples, length), generator=generator)
    place = torch.arange(length)
    repeated = string.gather(1, (place - n_string - 1).clamp(min=0))
    tokens = torch.where(place < n_string, string, repeated)
    tokens = tokens.masked_fill(place == n_string, SEPARATOR).masked_fill(place > 2 * n_string, BLANK)
    asked = (place >= n_string) & (place < 2 * n_string)
    return Labelled(tokens, tokens.roll(-1, dims=1).masked_fill(~asked, NOT_ASKED))


def offset(length: int, examples: int, seed: int) -> Labelled:
    """Each row is asked for the token three rows before it. tokens and labels: (examples, length)."""
    return look_back_by(3, length, examples, seed, SYMBOLS)


def far_offset(length: int, examples: int, seed: int) -> Labelled:
    """Each row is asked for the token twenty rows before it, past Shaw's clip and what two windows reach together."""
    return look_back_by(20, length, examples, seed, SYMBOLS)


def text(length: int, examples: int, seed: int) -> Labelled:
    """To train on: passages of Alice with three needles, the same mark and letter each. See `extension`."""
    return with_needles(book()[0], length, examples, torch.Generator().manual_seed(seed), needles=3)


TASKS = {"offset": offset, "far offset": far_offset, "induction": induction, "copy": copying, "text": text}
DEPTHS = (0.0, 0.25, 0.5, 0.75)  # where the one needle of a test stands


@cache
def tests(task: str, times: int) -> tuple[Labelled, ...]:
    """What a model is tested on at so many trained lengths: the same for every encoding and seed."""
    length = times * TRAINED
    if task != "text":
        return (TASKS[task](length, TESTED // length, seed=1000 + times),)
    held_out = book()[1]
    needles = (needle_at(held_out, length, depth, NEEDLES // len(DEPTHS), seed=1000 + times) for depth in DEPTHS)
    return (cut(held_out[: TESTED // 2 + 1], length), *needles)


# --- A run

_drawing = Lock()  # a worker of a cluster may run several at a time, and initial weights come from one generator


def trained(task: str, encoding: str, seed: int) -> Transformer:
    """The model of a run, after its training."""
    with _drawing, torch.random.fork_rng():
        torch.manual_seed(seed)
        doors = ENCODINGS[encoding]()
        model = build(seed, **SETTINGS, encoding=doors)
    data = TASKS[task](TRAINED, RECIPE["batch"] * STEPS[task], seed)
    train(model, data, steps=STEPS[task], **RECIPE, seed=seed)
    return model


def measure(task: str, encoding: str, seed: int) -> dict[str, dict[str, float]]:
    """{what was measured: {times: value}} of one run. Accuracies, and nats for "letters"."""
    torch.set_num_threads(1)
    model = trained(task, encoding, seed)
    found: dict[str, dict[str, float]] = {}
    for times in TIMES:
        for name, value in _values(model, task, times):
            found.setdefault(name, {})[str(times)] = round(value, 4)
    return found


def _values(model: Transformer, task: str, times: int) -> Iterator[tuple[str, float]]:
    first, *needles = tests(task, times)
    if task != "text":
        yield task, _accuracy(model, first)
        return
    yield "letters", loss_by_position(model, first).mean().item()
    yield "needle", sum(_accuracy(model, needle) for needle in needles) / len(needles)


@torch.no_grad()
def _accuracy(model: Transformer, task: Labelled) -> float:
    """As `accuracy`, a few examples at a time: the long ones need much room."""
    right = torch.cat([model(tokens).argmax(dim=-1) for tokens in task.tokens.split(64)]) == task.labels
    return right[task.labels != NOT_ASKED].double().mean().item()


# --- The study

MEASURES = ("offset", "far offset", "induction", "copy", "needle", "letters")
CHANCE = {
    "offset": 1 / SYMBOLS,
    "far offset": 1 / SYMBOLS,
    "induction": 1 / SYMBOLS,
    "copy": 1 / SYMBOLS,
    "needle": 1 / 26,
}


def measurements(seeds: int) -> Iterator[Measurement]:
    """All runs of so many seeds, the seeds outside: a study that is stopped has whole seeds."""
    for seed in range(seeds):
        for task in TASKS:
            for encoding in ENCODINGS:
                yield ("runs", task, encoding, str(seed)), partial(measure, task, encoding, seed)


def results() -> dict[str, dict[str, dict[str, dict[int, float]]]]:
    """The stored study: {measure: {encoding: {seed: {times: value}}}}, for each of MEASURES."""
    runs = json.loads(STORED.read_text(encoding="utf-8"))["runs"]
    found: dict = {name: {encoding: {} for encoding in ENCODINGS} for name in MEASURES}
    for encodings in runs.values():
        for encoding, seeds in encodings.items():
            for seed, values in seeds.items():
                for name, by_times in values.items():
                    found[name][encoding][int(seed)] = {int(times): value for times, value in by_times.items()}
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--to", type=Path, default=STORED)
    parser.add_argument("--jobs", type=int, default=1, help="processes on this machine")
    parser.add_argument("--scheduler", default="", help="address of a Dask scheduler")
    given = parser.parse_args(arguments)
    command = f"python -m posenc.sweep --seeds {given.seeds}"
    try:
        fill(given.to, command, measurements(given.seeds), jobs=given.jobs, scheduler=given.scheduler)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    from posenc import sweep  # by its name, under which other processes find it too

    sys.exit(sweep.main())
