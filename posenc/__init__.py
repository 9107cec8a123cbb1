"""The library that the book *From Sets to Sequences* builds, chapter by chapter.

Self-attention sees a set. A position encoding turns it into a sequence model, and it can enter by five
doors only: the mask, the tokens, the scores, the queries and keys, the values. Start at `encoding.py`.
"""

__version__ = "0.1.0"
