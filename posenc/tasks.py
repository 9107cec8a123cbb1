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


def which_first(length: int, examples: int, seed: int) -> Labelled:
    """The order task at any length: 1 if A stands before B. A is token 0, B is 1, the question mark 2, filler 3 to 8.

    A and B occur once each, anywhere among the filler, and the last token is always the question mark: a model
    that reads the last row cannot use that row's own token. Raises ValueError if length < 3.
    """
    if length < 3:
        raise ValueError(f"length must be at least 3, for A, B and the question mark; got {length}")
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(3, 9, (examples, length), generator=generator)
    places = torch.rand(examples, length - 1, generator=generator).argsort(dim=1)[:, :2]
    tokens.scatter_(1, places, torch.tensor([0, 1]).expand(examples, 2))
    tokens[:, -1] = 2
    return Labelled(tokens, (places[:, 0] < places[:, 1]).long())


def swap_a_and_b(tokens: Tensor) -> Tensor:
    """The twin of each example of `which_first`: A and B change places, so the label turns round. Shape kept."""
    return torch.where(tokens < 2, 1 - tokens, tokens)


def look_back(length: int, examples: int, seed: int) -> Labelled:
    """Each row is asked for the token just before it. Row 0 is the BOS token 0 (its label: 0), the others 1 to 8."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 9, (examples, length), generator=generator)
    tokens[:, 0] = 0
    return Labelled(tokens, tokens.roll(1, dims=1).index_fill(1, torch.tensor([0]), 0))


def count_rows(length: int, examples: int, seed: int, *, bos: bool, constant: bool) -> Labelled:
    """Each row is asked for its own position, 0 to length - 1.

    Tokens are all 1 (`constant`) or drawn from 1 to 8; with `bos`, row 0 holds the token 0, which occurs nowhere else.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 9, (examples, length), generator=generator)
    tokens = torch.ones_like(tokens) if constant else tokens
    tokens[:, 0] = 0 if bos else tokens[:, 0]
    return Labelled(tokens, torch.arange(length).expand(examples, length))


def spell(word: str) -> Tensor:
    """'BAD' -> letter numbers (n,), A is 0. Raises ValueError naming what is not one of the letters A to Z."""
    for letter in word:
        if not ("A" <= letter <= "Z"):
            raise ValueError(f"{letter!r} is not one of the capital letters A to Z")
    return torch.tensor([ord(letter) - ord("A") for letter in word], dtype=torch.long)


N_LETTERS = 12  # the letter tasks below use A to L at most


def a_before_b(examples: int, seed: int = 0, length: int = 12) -> Labelled:
    """The order task: words with one A, one B and other letters (C to L); label 1 if the A comes first.

    Only order decides: exchanging A and B keeps the bag of letters and flips the label; so does reversing the word.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(2, N_LETTERS, (examples, length), generator=generator)
    places = torch.rand(examples, length, generator=generator).argsort(dim=1)[:, :2]  # (examples, 2), different
    tokens.scatter_(1, places, torch.tensor([0, 1]).expand(examples, 2))
    return Labelled(tokens, (places[:, 0] < places[:, 1]).long())


def has_an_a(examples: int, seed: int = 0, length: int = 12) -> Labelled:
    """Presence: label 1 if the word contains an A. Half of the words do, exactly once."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, N_LETTERS, (examples, length), generator=generator)
    labels = torch.randint(2, (examples,), generator=generator)
    place = torch.randint(length, (examples, 1), generator=generator)
    with_a = tokens.scatter(1, place, 0)
    return Labelled(torch.where(labels.unsqueeze(-1) == 1, with_a, tokens), labels)


def more_a_than_b(examples: int, seed: int = 0, length: int = 12) -> Labelled:
    """Majority: label 1 if the word has more A than B. Together they are an odd number, so there is no draw."""
    generator = torch.Generator().manual_seed(seed)
    both = 2 * torch.randint(length // 2, (examples,), generator=generator) + 1  # 1, 3, 5, …
    n_a = (torch.rand(examples, generator=generator) * (both + 1)).long()  # 0 to both
    tokens = torch.randint(2, N_LETTERS, (examples, length), generator=generator)
    place = torch.arange(length)
    a_then_b = (place >= n_a.unsqueeze(-1)).long()
    tokens = torch.where(place < both.unsqueeze(-1), a_then_b, tokens)
    return Labelled(_shuffled(tokens, generator), (2 * n_a > both).long())


def how_many_different(examples: int, seed: int = 0, length: int = 12, letters: int = 4) -> Labelled:
    """Distinct count: words over A to D; label 0 for one letter only, up to 3 for all four. All equally frequent."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.randint(1, letters + 1, (examples,), generator=generator)
    alphabet = torch.rand(examples, letters, generator=generator).argsort(dim=1)  # each word's own order of letters
    slot = (torch.rand(examples, length, generator=generator) * count.unsqueeze(-1)).long()
    place = torch.arange(length).expand(examples, length)
    slot = torch.where(place < count.unsqueeze(-1), place, slot)  # each of the `count` letters occurs
    return Labelled(_shuffled(alphabet.gather(1, slot), generator), count - 1)


def ring_or_disc(examples: int, seed: int = 0, points: int = 16, noise: float = 0.1) -> tuple[Tensor, Tensor]:
    """Clouds of points in the plane, (examples, points, 2), and labels (examples,): 1 on a circle, 0 in a full disc."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (examples,), generator=generator)
    angles = 2 * torch.pi * torch.rand(examples, points, generator=generator)
    inside = torch.rand(examples, points, generator=generator).sqrt()  # uniform over the disc
    radius = torch.where(labels.unsqueeze(-1) == 1, torch.ones_like(inside), inside)
    clouds = torch.stack([radius * angles.cos(), radius * angles.sin()], dim=-1)
    return clouds + noise * torch.randn(clouds.shape, generator=generator), labels


def _shuffled(tokens: Tensor, generator: torch.Generator) -> Tensor:
    """Each row in a random order of its own. (examples, length), kept."""
    order = torch.rand(tokens.shape, generator=generator).argsort(dim=1)
    return tokens.gather(1, order)


NOT_ASKED = -100  # the label of a row that has no answer; `cross_entropy` and `accuracy` leave it out


def look_back_by(distance: int, length: int, examples: int, seed: int, vocabulary: int = 8) -> Labelled:
    """Each row is asked for the token `distance` rows before it; the first `distance` rows are not asked.

    Tokens are drawn evenly from 0 to vocabulary - 1; there is no BOS. Raises ValueError if no row could be asked.
    """
    if not 0 < distance < length:
        raise ValueError(f"distance must be 1 to {length - 1} for texts of {length} tokens, got {distance}")
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (examples, length), generator=generator)
    labels = tokens.roll(distance, dims=1)
    labels[:, :distance] = NOT_ASKED
    return Labelled(tokens, labels)


def look_back_as_asked(length: int, examples: int, seed: int, vocabulary: int = 8, furthest: int = 4) -> Labelled:
    """Each token asks for its own distance: token t wants the token 1 + t % `furthest` rows before it.

    So *where* to look depends on *what* asks. Rows that would look before the start are not asked.
    Tokens are drawn evenly from 0 to vocabulary - 1.
    """
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (examples, length), generator=generator)
    wanted = torch.arange(length) - 1 - tokens % furthest
    labels = tokens.gather(1, wanted.clamp(min=0))
    return Labelled(tokens, labels.masked_fill(wanted < 0, NOT_ASKED))
