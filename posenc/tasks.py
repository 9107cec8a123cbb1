"""Small tasks that separate what a model can know from what it cannot. All seeded, all made here."""

from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor


@dataclass(frozen=True)
class Labelled:
    """Token ids (examples, n) and one label each (examples,)."""

    tokens: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.tokens)


ANIMALS = ("dog", "cat", "fox", "hen", "man", "owl")
VERBS = ("bites", "sees", "likes")
WORDS = ANIMALS + VERBS


def encode(sentence: str) -> Tensor:
    """'dog bites man' -> token ids (n,). Raises ValueError naming the word that is not in the vocabulary."""
    words = sentence.split()
    for word in words:
        if word not in WORDS:
            raise ValueError(f"{word!r} is not in the vocabulary: {', '.join(WORDS)}")
    return torch.tensor([WORDS.index(word) for word in words])


def all_sentences() -> list[str]:
    """Every 'A verb B' with two different animals: 6 * 5 * 3 = 90."""
    return [f"{a} {verb} {b}" for verb in VERBS for a, b in permutations(ANIMALS, 2)]


def who_acts() -> Labelled:
    """The order task: of the two animals, does the one that stands first in `ANIMALS` act? 90 sentences.

    A sentence and its swap carry the same words and opposite labels, so a model that cannot see order gets
    exactly one of each pair right.
    """
    sentences = all_sentences()
    labels = [ANIMALS.index(s.split()[0]) < ANIMALS.index(s.split()[2]) for s in sentences]
    return Labelled(torch.stack([encode(s) for s in sentences]), torch.tensor(labels).long())


def is_present(word: str = "dog") -> Labelled:
    """The set task on the same 90 sentences: does `word` occur?"""
    sentences = all_sentences()
    labels = [word in s.split() for s in sentences]
    return Labelled(torch.stack([encode(s) for s in sentences]), torch.tensor(labels).long())
