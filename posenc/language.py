"""A character language model's data and its loss: what follows these letters? On the text of `posenc.text`.

The alphabet is the space and the 26 small letters, and nothing else. Positions count from the first letter that the
model sees, which may stand anywhere in the book: no position has letters of its own.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from posenc.encoding import PositionEncoding, Together
from posenc.learned import Learned
from posenc.masks import Causal
from posenc.model import Transformer, build
from posenc.tasks import Labelled
from posenc.text import alice, letters_of
from posenc.train import train

ALPHABET = " abcdefghijklmnopqrstuvwxyz"


def ids_of(text: str) -> Tensor:
    """The letters' numbers, 0 for the space: "a cat" -> [1, 0, 3, 1, 20]. Raises ValueError naming what is neither."""
    for letter in text:
        if letter not in ALPHABET:
            raise ValueError(f"{letter!r} is not in the alphabet of a to z and space; use posenc.text.letters_of first")
    return torch.tensor([ALPHABET.index(letter) for letter in text], dtype=torch.long)


def text_of(ids: Tensor) -> str:
    """The text of some numbers: the way back from `ids_of`. ids: (n,)."""
    return "".join(ALPHABET[i] for i in ids.tolist())


@cache
def book() -> tuple[Tensor, Tensor]:
    """(the first nine tenths of the book to train on, the last tenth to test on), as letter numbers. Do not change."""
    ids = ids_of(letters_of(alice()))
    n_train = 9 * len(ids) // 10
    return ids[:n_train], ids[n_train:]


def passages(ids: Tensor, length: int, examples: int, seed: int) -> Labelled:
    """Passages that begin anywhere, to train on. Each letter's label is the letter that follows it.

    tokens and labels: (examples, length). Raises ValueError if the text is not longer than one passage.
    """
    _check_length(ids, length)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(ids) - length, (examples, 1), generator=generator)
    places = starts + torch.arange(length)  # (examples, length)
    return Labelled(ids[places], ids[places + 1])


def cut(ids: Tensor, length: int) -> Labelled:
    """The whole text in passages side by side, to test on. tokens and labels: (len(ids) // length or so, length)."""
    _check_length(ids, length)
    examples = (len(ids) - 1) // length
    tokens, labels = ids[: examples * length], ids[1 : examples * length + 1]
    return Labelled(tokens.view(examples, length), labels.view(examples, length))


@torch.no_grad()
def loss_by_position(model: Transformer, task: Labelled) -> Tensor:
    """Mean loss at each position, in nats, for a model with readout "each". Returns (length,)."""
    losses = []
    for tokens, labels in zip(task.tokens.split(64), task.labels.split(64), strict=True):  # fits the processor's cache
        logits = model(tokens)  # (examples, length, alphabet)
        losses.append(F.cross_entropy(logits.transpose(1, 2), labels, reduction="none"))
    return torch.cat(losses).mean(dim=0)


def letter_model(seed: int, encoding: PositionEncoding, d_model: int = 32, n_layers: int = 1) -> Transformer:
    """A small untrained causal model, letters in and letters out, four heads: the encoding goes beside the mask."""
    sizes = {"vocabulary": len(ALPHABET), "d_model": d_model, "n_layers": n_layers, "n_heads": 4}
    return build(seed, **sizes, n_outputs=len(ALPHABET), encoding=Together(Causal(), encoding))


N_STORED = 24  # positions of the stored model


def stored_model() -> Transformer:
    """A letter model with a learned table of 24 rows, trained beforehand: `letter_model` after 800 steps.

    Stored in half precision in data/letter_model.npz, about 30 kB. `python -m posenc.language` makes the file anew.
    """
    model = letter_model(0, Learned(N_STORED, 32))
    with (files("posenc") / "data" / "letter_model.npz").open("rb") as file, np.load(file) as stored:
        weights = {name: torch.from_numpy(stored[name].astype(np.float32)) for name in stored.files}
    # one encoding serves every block, so its table has several names
    table = {name: weights["table"] for name in model.state_dict() if name.endswith(".table")}
    model.load_state_dict({name: weights[name] for name in model.state_dict() if name not in table} | table)
    return model


def with_table(model: Transformer, table: Tensor) -> Transformer:
    """The same letter model with another table, perhaps a longer one. The model itself is left alone. table: (n, d)."""
    width = model.embedding.embedding_dim
    if table.ndim != 2 or table.shape[1] != width:
        raise ValueError(f"this model needs a table of shape (rows, {width}), got {tuple(table.shape)}")
    other = letter_model(0, Learned(*table.shape), width, len(model.blocks))
    weights = {name: table if name.endswith(".table") else value for name, value in model.state_dict().items()}
    other.load_state_dict(weights)
    return other


def store_model(path: Path) -> float:
    """Train the stored model and write it to `path`. Returns its loss on the held-out part, in nats."""
    train_ids, test_ids = book()
    torch.manual_seed(0)
    model = letter_model(0, Learned(N_STORED, 32))
    task = passages(train_ids, N_STORED, 16_384, seed=0)
    for steps, learning_rate, seed in ((600, 1e-2, 1), (200, 3e-3, 2)):
        train(model, task, steps=steps, batch=16, learning_rate=learning_rate, seed=seed)
    state = {name: value for name, value in model.state_dict().items() if not name.endswith(".table")}
    state["table"] = next(value for name, value in model.state_dict().items() if name.endswith(".table"))
    np.savez_compressed(path, **{name: value.numpy().astype(np.float16) for name, value in state.items()})
    return loss_by_position(model, cut(test_ids, N_STORED)).mean().item()


def _check_length(ids: Tensor, length: int) -> None:
    if not 1 <= length < len(ids):
        raise ValueError(f"a passage needs 1 to {len(ids) - 1} letters, so that each has a next one; got {length}")


if __name__ == "__main__":
    target = Path(__file__).parent / "data" / "letter_model.npz"
    print(f"{store_model(target):.3f} nats on the held-out part, written to {target.name}")
