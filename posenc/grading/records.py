"""The record of one student: all that is known of their marks, as plain JSON. Every report is made from it.

A record is the same for the same files, seed and book: it holds no time and no folder of this machine.
"""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import posenc
from posenc.checks.examine import WAITS
from posenc.checks.notebook import lines_of
from posenc.checks.registry import exercises_of
from posenc.grading.marking import Mark, Nursery, mark, names_of
from posenc.grading.reading import Notebook, Unreadable, read

Record = dict[str, Any]
Task = dict[str, Any]

WORDS = {
    "missing": "there is no function of this name in the notebook",
    "crashed": "the process ended before the marks were there",
    "timeout": "took too long",
    "memory": "asked for more memory than allowed",
    "error": "could not be read",
    "unreadable": "no notebook could be read",
    "ungraded": "the grader failed; this is no mark",
}
NO_NOTEBOOK = "no notebook of this chapter was handed in"


def task_of(
    name: str, number: str, files: Sequence[tuple[str, bytes | str]], chapters: Sequence[int], seed: int
) -> Task:
    """All that marking one student needs, as plain JSON. A file is its bytes, or the reason why it was not read."""
    carried = [[n, base64.b64encode(c).decode() if isinstance(c, bytes) else None, str(c)[:200]] for n, c in files]
    carried = [[n, c, "" if c is not None else reason] for n, c, reason in carried]
    parts = [name, number, *(part for file in carried for part in (file[0], str(file[1]), file[2]))]
    parts += [str(chapters), str(seed), digest_of_the_book()]
    key = hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
    return {"name": name, "number": number, "files": carried, "chapters": list(chapters), "seed": seed, "key": key}


@cache
def digest_of_the_book() -> str:
    """Changes with anything that marks depend on: the declarations, the library, this grader, torch."""
    folder = Path(posenc.__file__).parent
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".py", ".txt", ".npz", ".json") and path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def grade(task: Task, nursery: Nursery) -> Record:
    """Mark one student. Depends on the task alone, and raises for nothing that a student handed in."""
    read_files = [(name, _read(content, reason)) for name, content, reason in task["files"]]
    exercises, notes, counted = [], [], []
    for chapter in task["chapters"]:
        name, notebook = _which_counts(read_files, chapter)
        if notebook is None:
            exercises += [_without_report(chapter, exercise, read_files) for exercise in exercises_of(chapter)]
            continue
        counted.append(name)
        marks = mark(notebook, exercises_of(chapter), nursery, task["seed"])
        notes += [note for note in marks.notes if note not in notes]
        exercises += [_exercise(one) for one in marks.marks]
    return {
        "key": task["key"],
        "name": task["name"],
        "number": task["number"],
        "walls": nursery.walls,
        **_total(exercises, read_files),
        "files": [_about(name, content, counted) for name, content in read_files],
        "exercises": exercises,
        "notes": notes,
    }


def ungraded(task: Task, reason: str, walls: str) -> Record:
    """The record of a student whose marking failed for no fault of theirs."""
    exercises = [_bare(e, "ungraded", reason, None) for c in task["chapters"] for e in exercises_of(c)]
    return {
        "key": "",
        "name": task["name"],
        "number": task["number"],
        "walls": walls,
        **_total(exercises, []),
        "files": [{"name": name, "counts": False, "reason": "not marked"} for name, _, _ in task["files"]],
        "exercises": exercises,
        "notes": [],
    }


def _read(content: str | None, reason: str) -> Notebook | str:
    if content is None:
        return reason
    try:
        return read(base64.b64decode(content))
    except Unreadable as error:
        return str(error)


def _which_counts(files: list[tuple[str, Notebook | str]], chapter: int) -> tuple[str, Notebook | None]:
    """The newest notebook that names a function of the chapter; if none does, the newest notebook, if it is the only.

    A newer file that cannot be read, or belongs to another chapter, does not hide an older one.
    """
    wanted = {exercise.name for exercise in exercises_of(chapter)}
    notebooks = [(name, content) for name, content in files if isinstance(content, Notebook)]
    fitting = [(name, notebook) for name, notebook in notebooks if names_of(notebook) & wanted]
    return next(iter(fitting or notebooks), ("", None))


def _without_report(chapter: int, exercise: Any, files: list[tuple[str, Notebook | str]]) -> Record:
    reasons = [f"{name}: {content}" for name, content in files if isinstance(content, str)]
    return _bare(exercise, "unreadable", reasons[0] if reasons else NO_NOTEBOOK, 0)


def _bare(exercise: Any, status: str, reason: str, points: int | None) -> Record:
    return {
        "name": exercise.name,
        "title": exercise.title,
        "chapter": exercise.chapter,
        "status": status,
        "reason": clean(reason),
        "points": points,
        "of": exercise.points,
        "mistake": None,
        "complaints": [],
        "lines": [],
        "notes": [],
    }


def _exercise(one: Mark) -> Record:
    points = None if one.status == "ungraded" else one.points
    record = _bare(one.exercise, one.status, one.reason or WORDS.get(one.status, ""), points)
    record["notes"] = [clean(note) for note in one.notes]
    if one.report is not None:
        record["lines"] = [[clean(part) for part in line] for line in lines_of(one.report)]
        record["complaints"] = [clean(f.complaint) for f in one.report.findings if f.complaint and f.complaint != WAITS]
        record["mistake"] = one.report.mistake.name if one.report.mistake else None
    return record


def _total(exercises: list[Record], files: list[tuple[str, Notebook | str]]) -> Record:
    """The student's own line: points unless one is unknown, and the status that says most."""
    statuses = {e["status"] for e in exercises}
    known = [e["points"] for e in exercises if e["points"] is not None]
    total = {"points": sum(known) if len(known) == len(exercises) else None, "of": sum(e["of"] for e in exercises)}
    if "ungraded" in statuses:
        return {
            "status": "ungraded",
            "reason": next(e["reason"] for e in exercises if e["status"] == "ungraded"),
            **total,
        }
    if statuses == {"unreadable"}:
        return {"status": "unreadable", "reason": exercises[0]["reason"], **total}
    status = next(iter(statuses)) if len(statuses) == 1 else "partly" if total["points"] else "wrong"
    troubles = [e for e in exercises if e["status"] in ("timeout", "memory", "crashed", "error", "unreadable")]
    return {"status": status, "reason": "; ".join(f"{e['name']}: {e['reason']}" for e in troubles), **total}


def _about(name: str, content: Notebook | str, counted: list[str]) -> Record:
    reason = content if isinstance(content, str) else "" if name in counted else "another file counts"
    return {"name": clean(name), "counts": name in counted, "reason": clean(reason)}


def clean(text: str, most: int = 2000) -> str:
    """Text of a learner's making, fit for any file: no control letters, no halves of letters, not too long."""
    text = text.encode("utf-8", "replace").decode()
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text[:most])
