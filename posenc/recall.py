"""One text, two questions: which letter comes next, and which secret stood at the beginning?

The text is the book's (see `posenc.language`). One letter of it is replaced by a secret, one of eight signs that occur
nowhere else, and at the end stand question marks: each wants the secret back. So one model can be measured on both:
the next letter, which the last few letters foretell, and the secret, which may be far away.
"""

import torch
from torch import Tensor

from posenc.language import ALPHABET
from posenc.tasks import NOT_ASKED, Labelled

N_SECRETS = 8
FIRST_SECRET = len(ALPHABET)  # letters are 0 to 26, secrets 27 to 34
QUESTION = FIRST_SECRET + N_SECRETS
VOCABULARY = QUESTION + 1


def with_secret(ids: Tensor, length: int, examples: int, seed: int, *, questions: int = 6) -> Labelled:
    """To train on: passages from anywhere with a secret anywhere, then the question marks. (examples, length).

    Labels: the next letter; the secret at each question mark; `NOT_ASKED` where what comes next is neither.
    Raises ValueError if there is no room for the secret and a letter before the questions.
    """
    _check(ids, length, questions)
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(ids) - length, (examples, 1), generator=generator)
    places = torch.randint(length - questions, (examples,), generator=generator)
    secrets = torch.randint(N_SECRETS, (examples,), generator=generator)
    return _ask(ids[starts + torch.arange(length)], places, FIRST_SECRET + secrets, questions)


def secret_first(ids: Tensor, length: int, examples: int, *, longest: int, questions: int = 6) -> Labelled:
    """To test on: the secret is the first token, so the first question asks back over length - questions rows.

    The passages end at the same places for every length up to `longest`: only how much stands before them differs.
    """
    _check(ids, length, questions)
    if not length <= longest < len(ids):
        raise ValueError(f"longest must be {length} to {len(ids) - 1}, got {longest}")
    ends = torch.linspace(longest, len(ids) - 1, examples).long()  # (examples,)
    tokens = ids[ends.unsqueeze(-1) + torch.arange(1 - length, 1)]
    secrets = FIRST_SECRET + torch.arange(examples) % N_SECRETS  # equally often
    return _ask(tokens, torch.zeros(examples, dtype=torch.long), secrets, questions)


def _ask(tokens: Tensor, places: Tensor, secrets: Tensor, questions: int) -> Labelled:
    tokens = tokens.scatter(1, places.unsqueeze(-1), secrets.unsqueeze(-1))
    tokens[:, -questions:] = QUESTION
    labels = tokens.roll(-1, dims=1)
    labels = labels.masked_fill(labels >= FIRST_SECRET, NOT_ASKED)
    labels[:, -questions:] = secrets.unsqueeze(-1)
    return Labelled(tokens, labels)


def _check(ids: Tensor, length: int, questions: int) -> None:
    if not 1 <= questions <= length - 2 or length >= len(ids):
        wanted = f"1 to {length - 2} question marks, and fewer than {len(ids)} tokens"
        raise ValueError(f"a passage of {length} tokens needs {wanted}; got {questions} question marks")
