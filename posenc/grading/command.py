"""`python -m posenc check FILE`: what a grader would see in one's own notebook."""

import argparse
import sys
from pathlib import Path

from posenc.checks.notebook import as_text, lines_of
from posenc.grading.marking import Mark, Marks, Nursery, chapter_of, mark_chapter
from posenc.grading.reading import Unreadable, read

WORDS = {
    "missing": "there is no function of this name in the notebook",
    "crashed": "the process ended before the marks were there",
    "timeout": "took too long",
    "error": "could not be read",
}


def main(chosen: argparse.Namespace) -> int:
    """Print the marks of one notebook. 0 if it could be marked, 2 if not."""
    try:
        notebook = read(Path(chosen.file).read_bytes())
        chapter = chosen.chapter or chapter_of(notebook)
        if chapter is None:
            raise Unreadable("it defines no function of any exercise; say which chapter it is: --chapter N")
        with Nursery(unsafe=True) as nursery:
            print(text_of(mark_chapter(notebook, chapter, nursery)))
    except (OSError, ValueError) as error:
        print(f"error: {chosen.file}: {error}", file=sys.stderr)
        return 2
    return 0


def text_of(marks: Marks) -> str:
    """The marks as lines of text."""
    parts = [_text_of_one(mark) for mark in marks.marks]
    if marks.notes:
        parts.append("\n".join(["What else was seen:", *(f"  {note}" for note in marks.notes)]))
    return "\n\n".join([*parts, f"{marks.points} of {marks.of} points"])


def _text_of_one(mark: Mark) -> str:
    if mark.report is not None and mark.status != "not attempted":
        text = as_text(lines_of(mark.report))
    else:
        words = mark.reason or WORDS.get(mark.status, "")
        text = f"○ {mark.exercise.name}  {mark.status}{': ' + words if words else ''}"
    return "\n".join([text, *(f"  {note}" for note in mark.notes)])
