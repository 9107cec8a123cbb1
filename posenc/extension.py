"""Stretch a trained model to longer texts, and measure it: the study behind chapter 9.

    python -m posenc.extension checkpoint        # train the small model of the book and store it
    python -m posenc.extension study --seeds 5   # train, stretch, fine-tune, measure; goes on where it stopped

The model reads the letters of Alice (see `language`) with needles in them: the mark # and a letter, the same letter
each time in one passage. Whoever has seen #k once can answer k at the next #.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from posenc.absolute import frequencies
from posenc.contexts import ClampedRotary, ScaledRotary, by_parts, interpolated, ntk_base, turns, yarn_factor
from posenc.encoding import PositionEncoding, Together
from posenc.language import ALPHABET, book, cut, loss_by_position
from posenc.masks import Causal, SlidingWindow
from posenc.model import Transformer, build
from posenc.rotary import Rotary
from posenc.study import Measurement, fill
from posenc.tasks import NOT_ASKED, Labelled
from posenc.train import accuracy, cross_entropy

MARK = len(ALPHABET)  # the token #
TRAINED = 64  # letters
BASE = 10_000.0
HEAD_DIM = 16
SETTINGS = {"vocabulary": MARK + 1, "d_model": 64, "n_layers": 2, "n_heads": 4, "n_outputs": MARK + 1}
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
DATA = files("posenc") / "data"


# --- The model of the study


def with_needles(ids: Tensor, length: int, examples: int, generator: torch.Generator, needles: int = 4) -> Labelled:
    """Passages of the text in which the same two tokens, # and a letter, stand at `needles` random places.

    tokens and labels: (examples, length); labels are the next tokens.
    """
    starts = torch.randint(len(ids) - length - 1, (examples, 1), generator=generator)
    text = ids[starts + torch.arange(length + 1)]  # (examples, length + 1)
    slots = torch.rand(examples, length // 2, generator=generator).argsort(dim=1)[:, :needles]
    places = 2 * slots + torch.randint(2, (examples, 1), generator=generator)  # a needle is two letters wide
    letters = torch.randint(1, MARK, (examples, 1), generator=generator)
    text.scatter_(1, places, MARK)
    text.scatter_(1, places + 1, letters.expand(examples, needles))
    return Labelled(text[:, :-1], text[:, 1:])


def needle_at(ids: Tensor, length: int, depth: float, examples: int, seed: int) -> Labelled:
    """Passages with one needle at `depth` (0: the start, 1: just before the end), asked for by a # at the end.

    tokens: (examples, length), labels: the needle's letter at the last row, not asked elsewhere.
    """
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(ids) - length, (examples, 1), generator=generator)
    tokens = ids[starts + torch.arange(length)]
    letters = torch.randint(1, MARK, (examples,), generator=generator)
    place = int(depth * (length - 4))
    tokens[:, place], tokens[:, place + 1], tokens[:, -1] = MARK, letters, MARK
    labels = torch.full_like(tokens, NOT_ASKED)
    labels[:, -1] = letters
    return Labelled(tokens, labels)


def needle_a_chunk(chunks: int, chunk: int, examples: int, seed: int) -> Labelled:
    """Random letters 1 to 8 in chunks, and in each chunk one mark 0 followed by the same letter, to train on.

    Every mark but the first is asked for its letter, which so far has only been seen in other chunks.
    tokens and labels: (examples, chunks * chunk).
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 9, (examples, chunks * chunk), generator=generator)
    marks = torch.randint(chunk - 1, (examples, chunks), generator=generator) + chunk * torch.arange(chunks)
    letters = torch.randint(1, 9, (examples, 1), generator=generator).expand(examples, chunks)
    tokens.scatter_(1, marks, 0).scatter_(1, marks + 1, letters)
    labels = torch.full_like(tokens, NOT_ASKED)
    return Labelled(tokens, labels.scatter(1, marks[:, 1:], letters[:, 1:]))


def one_needle(chunks: int, chunk: int, examples: int, seed: int) -> Labelled:
    """The test of the same: one mark with its letter in any chunk but the last, and one mark that asks, at the end."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 9, (examples, chunks * chunk), generator=generator)
    which = torch.randint(chunks - 1, (examples, 1), generator=generator)
    mark = chunk * which + torch.randint(chunk - 1, (examples, 1), generator=generator)
    letters = torch.randint(1, 9, (examples, 1), generator=generator)
    tokens.scatter_(1, mark, 0).scatter_(1, mark + 1, letters)
    tokens[:, -1] = 0
    labels = torch.full_like(tokens, NOT_ASKED)
    labels[:, -1] = letters.squeeze(-1)
    return Labelled(tokens, labels)


def fit(model: Transformer, *, length: int, steps: int, batch: int, learning_rate: float, seed: int) -> None:
    """Train on fresh passages with needles, with Adam. The passages depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    for _ in range(steps):
        task = with_needles(book()[0], length, batch, generator)
        loss = cross_entropy(model(task.tokens), task.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def trained(seed: int) -> Transformer:
    """The small model of the study: rotary, base 10,000, 64 letters at a time."""
    model = build(seed, **SETTINGS, encoding=Together(Causal(), Rotary()))
    fit(model, length=TRAINED, steps=400, batch=32, learning_rate=5e-3, seed=seed)
    return model


def copy_with(model: Transformer, encoding: PositionEncoding) -> Transformer:
    """The same weights with another encoding; the model itself is left as it was."""
    other = build(0, **SETTINGS, encoding=encoding)
    other.load_state_dict(model.state_dict())
    return other


# --- Store and load without pickle


def save(model: Transformer, path: Path) -> None:
    """Store the weights as half-precision arrays."""
    arrays = {name: weight.to(torch.float16).numpy() for name, weight in model.state_dict().items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path: Path, encoding: PositionEncoding | None = None) -> Transformer:
    """A stored model, in float32, with plain rotary under a causal mask, or with another encoding."""
    model = build(0, **SETTINGS, encoding=encoding if encoding is not None else Together(Causal(), Rotary())).float()
    with np.load(path, allow_pickle=False) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    return model


def checkpoint(encoding: PositionEncoding | None = None) -> Transformer:
    """The model that comes with the book: seed 0 of the study, trained on 64 letters at a time. See `load`."""
    return load(Path(str(DATA / "letters_64.npz")), encoding)


# --- What is measured


PLAIN = frequencies(HEAD_DIM, BASE)


def _yarn(scale: float) -> ScaledRotary:
    return ScaledRotary(by_parts(PLAIN, scale, TRAINED, slow=1, fast=4), yarn_factor(scale))


FOR_PAIR_3 = "base for pair 3"

# The ramp of by-parts ends at 4 turns here: no pair of ours makes the 32 turns of the published constants.
SCHEMES: dict[str, Callable[[float], PositionEncoding]] = {
    "as trained": lambda scale: Rotary(BASE),
    "PI": lambda scale: ScaledRotary(interpolated(PLAIN, scale)),
    "NTK": lambda scale: Rotary(ntk_base(BASE, scale, HEAD_DIM)),
    "by parts": lambda scale: ScaledRotary(by_parts(PLAIN, scale, TRAINED, slow=1, fast=4)),
    "YaRN": _yarn,
    FOR_PAIR_3: lambda scale: Rotary(BASE * scale ** (HEAD_DIM / 6)),  # so that pair 3 turns `scale` times slower
}


def from_pair(first: int, scale: float, *, slowed: str) -> Tensor:
    """Frequencies with one band slowed by `scale`: the pairs before `first` ("fast"), or from it on ("slow")."""
    chosen = torch.arange(len(PLAIN)) < first if slowed == "fast" else torch.arange(len(PLAIN)) >= first
    return torch.where(chosen, PLAIN / scale, PLAIN)


def clamped(pairs: Tensor) -> ClampedRotary:
    """Rotary in which the pairs marked True never turn further than they did in training. pairs: (8,) bool."""
    return ClampedRotary(PLAIN, torch.where(pairs, TRAINED - 1.0, math.inf))


RETRIEVED = (  # the interventions whose needles are counted too
    "as trained",
    "fast pairs clamped",
    "slow pairs clamped",
    "all pairs clamped",
    "pair 3 clamped",
    "window of 64",
)


def interventions(scale: float = 4) -> dict[str, PositionEncoding]:
    """Masks included. Bands end at the pairs that make a full turn in training: 0 to 2. Pair 3 is the next."""
    number, fast = torch.arange(len(PLAIN)), turns(PLAIN, TRAINED) >= 1
    first = int(fast.sum())  # the first that does not get round
    found: dict[str, PositionEncoding] = {
        "as trained": Rotary(),
        "fast pairs clamped": clamped(fast),
        "slow pairs clamped": clamped(~fast),
        "all pairs clamped": clamped(number >= 0),
        f"pair {first} clamped": clamped(number == first),
    }
    for k in range(len(PLAIN) + 1):
        found[f"slow from {k}"] = Rotary(frequencies=from_pair(k, scale, slowed="slow"))
        found[f"fast before {k}"] = Rotary(frequencies=from_pair(k, scale, slowed="fast"))
    for k in range(len(PLAIN)):
        found[f"pair {k} off"] = Rotary(frequencies=torch.where(number == k, 0.0, PLAIN))
    found = {name: Together(Causal(), encoding) for name, encoding in found.items()}
    return found | {f"window of {TRAINED}": Together(SlidingWindow(TRAINED), Rotary())}


def losses(model: Transformer, length: int, letters: int = 6144, parts: int = 8) -> list[float]:
    """Loss on the test text, in nats, in equal parts of the positions from 0 to length - 1. (parts,)."""
    by_position = loss_by_position(model, cut(book()[1][: letters + 1], length))
    return [round(part.mean().item(), 4) for part in by_position.chunk(parts)]


def needles(model: Transformer, length: int, examples: int = 16, seed: int = 7) -> list[float]:
    """Share of needles found, at each of the DEPTHS."""
    tests = [needle_at(book()[1], length, depth, examples, seed + i) for i, depth in enumerate(DEPTHS)]
    return [round(_share_found(model, test), 4) for test in tests]


def _share_found(model: Transformer, test: Labelled) -> float:
    """The accuracy, four texts at a time: their scores fit into the processor's cache."""
    parts = zip(test.tokens.split(4), test.labels.split(4), strict=True)
    return sum(len(tokens) * accuracy(model, Labelled(tokens, labels)) for tokens, labels in parts) / len(test.tokens)


def tune(model: Transformer, length: int, seed: int, steps: int = 20) -> None:
    """A short fine-tune at the new length: as many letters a step as in training, a twentieth of its steps."""
    fit(model, length=length, steps=steps, batch=32 * TRAINED // length, learning_rate=2e-3, seed=1000 + seed)


def measure(model: Transformer, scheme: str, scale: int, tuned: bool, seed: int = 0) -> dict:
    """Losses and needles of one scheme at one scale, after a fine-tune or as it is. The model itself is left alone."""
    other = copy_with(model, Together(Causal(), SCHEMES[scheme](scale)))
    if tuned:
        tune(other, scale * TRAINED, seed)
    return {"losses": losses(other, scale * TRAINED), "needles": needles(other, scale * TRAINED)}


def intervene(model: Transformer, name: str, encoding: PositionEncoding) -> dict:
    """Losses at four times the trained length; needles too for the RETRIEVED, 64 at each depth."""
    other = copy_with(model, encoding)
    found = {"losses": losses(other, 4 * TRAINED, letters=2048)}
    return found | {"needles": needles(other, 4 * TRAINED, examples=64)} if name in RETRIEVED else found


def measurements(seed: int) -> dict[str, Callable[[Transformer], dict]]:
    """Every measurement of one seed by name, the most telling ones first."""
    todo: dict[str, Callable[[Transformer], dict]] = {
        "trained": lambda model: {"losses": losses(model, TRAINED), "needles": needles(model, TRAINED)}
    }
    for name, encoding in interventions(4).items():
        todo[name] = lambda model, how=(name, encoding): intervene(model, *how)
    for scale in (4, 2, 8):
        for tuned in (False, True):
            for scheme in SCHEMES:
                if tuned and scheme == FOR_PAIR_3:
                    continue
                name = f"{scheme} x{scale}" + (" tuned" if tuned else "")
                todo[name] = lambda model, how=(scheme, scale, tuned): measure(model, *how, seed)
    return todo


def study(folder: Path, seeds: int, report: Callable[[str], None] = print) -> None:
    """Make every measurement that the file in the folder does not have yet. Weights are kept there as well."""
    command = f"python -m posenc.extension study --seeds {seeds}"
    fill(folder / "longer_contexts.json", command, _measurements_of_all(folder, seeds), report)


def _measurements_of_all(folder: Path, seeds: int) -> Iterator[Measurement]:
    for seed in range(seeds):
        weights = folder / f"letters_64_{seed}.npz"
        if not weights.exists():
            save(trained(seed), weights)
        model = load(weights)
        for name, make in measurements(seed).items():
            yield ("seeds", str(seed), name), partial(make, model)


def results() -> dict:
    """The stored study. See `measure` for its keys."""
    return json.loads((DATA / "longer_contexts.json").read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["checkpoint", "study"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--to", type=Path, default=Path(str(DATA)))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.what == "checkpoint":
        save(trained(0), arguments.to / "letters_64.npz")
    else:
        study(arguments.to, arguments.seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
