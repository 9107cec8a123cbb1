"""`python -m posenc check FILE`: what a grader would see in one's own notebook. `grade FOLDER`: the grader itself."""

import argparse
import sys
from pathlib import Path

from posenc.checks.notebook import as_text, lines_of
from posenc.checks.registry import exercises_of
from posenc.grading import batch, gradescope, reports
from posenc.grading.marking import Mark, Marks, Nursery, chapter_of, mark_chapter
from posenc.grading.reading import Unreadable, read
from posenc.grading.records import WORDS
from posenc.grading.sandbox import NoSandbox


def check(chosen: argparse.Namespace) -> int:
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


def grade(chosen: argparse.Namespace) -> int:
    """Mark a folder. 0 if everybody has marks, 1 if the grader failed for somebody, 2 if it could not begin."""
    submissions, out = Path(chosen.submissions), Path(chosen.out)
    try:
        summary = batch.grade_folder(
            submissions,
            out,
            chapters=chosen.chapter or (),
            seed=chosen.seed,
            jobs=chosen.jobs or batch.usable_processors(),
            unsafe=chosen.unsafe,
            scheduler=chosen.scheduler,
        )
    except (OSError, ValueError, NoSandbox) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped. What is marked is in {out}; the same command goes on from there.", file=sys.stderr)
        return 130
    print(text_of_summary(summary, out))
    return 1 if summary.statuses["ungraded"] else 0


def gradescope_zip(chosen: argparse.Namespace) -> int:
    """Make the archive. 0, or 2 if that is not possible."""
    try:
        exercises_of(chosen.chapter)
        gradescope.make(Path(chosen.out), chosen.chapter, chosen.seed)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(
        f"{chosen.out} is ready to be uploaded as an autograder. It holds the answers and the seed: keep it to yourself"
    )
    return 0


def gradescope_run(chosen: argparse.Namespace) -> int:
    """What the archive runs. 0 if there are marks, 1 if not."""
    try:
        status = gradescope.run(Path(chosen.folder))
    except (OSError, ValueError, NoSandbox) as error:
        status = f"no mark: {error}"
    print(status)
    return 1 if status.startswith(("no mark", "ungraded")) else 0


def text_of_summary(summary: reports.Summary, out: Path) -> str:
    """A few lines for the terminal."""
    lines = [reports.LOUD] if summary.unsafe else []
    lines.append(
        f"{summary.students} students: " + ", ".join(f"{n} {s}" for s, n in reports.commonest(summary.statuses))
    )
    lines += [f"{n} times in {e}: {mistake}" for (e, mistake), n in reports.commonest(summary.mistakes)[:3]]
    lines.append(f"grades.csv, index.html, feedback/ and gradescope/ are in {out}; seed.txt there is for you alone")
    return "\n".join(lines)


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
