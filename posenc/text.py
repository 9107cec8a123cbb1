"""A real text to measure on: Lewis Carroll, Alice's Adventures in Wonderland (1865), in the public domain.

The wording is Project Gutenberg's, Millennium Fulcrum edition 3.0 (https://www.gutenberg.org/ebooks/11), as the source
package of wordcloud 1.9.4 ships it in examples/alice.txt: the twelve chapters, without the edition's own front and end
matter. Words that the book prints in italics stand in capitals.
"""

import re
from importlib.resources import files


def alice() -> str:
    """The whole book, about 144,000 characters."""
    return (files("posenc") / "data" / "alice.txt").read_text(encoding="utf-8")


def words_of(text: str) -> list[str]:
    """The words in lower case, apostrophes kept: "Alice's cat" -> ["alice's", "cat"]."""
    return re.findall(r"[a-z]+(?:'[a-z]+)*", text.lower())


def letters_of(text: str) -> str:
    """The text in lower case, everything but the letters a to z turned into single spaces."""
    return re.sub(r"[^a-z]+", " ", text.lower())


def clauses_of(text: str) -> list[list[str]]:
    """The words between one punctuation mark (or empty line) and the next, a list a clause, empty ones left out."""
    pieces = re.split(r"""[.,;:!?"()\[\]*-]+|\n\n|(?<!\w)'|'(?!\w)""", text)
    return [words for piece in pieces if (words := words_of(piece))]
