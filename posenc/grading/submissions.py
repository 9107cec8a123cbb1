"""From a folder of submissions to students and their files. The rule, in the order in which it is tried:

* a folder belongs to one student, whom its name names; all files in it, however deep, are theirs;
* a file `NAME_123_4567_file.ipynb` or `NAME_LATE_123_4567_file.ipynb` is Canvas': student NAME with number 123, attempt
  4567; a name that holds `_123_assignsubmission_` is Moodle's. Files of one name and number belong together;
* a file `NAME_123_file.ipynb` names a student too, unless two files would then be one student's;
* any other file belongs to a student of its own, called as the file is.

The newest of a student's files is the one with the highest attempt, then with the highest `(2)` or `-2` at its end,
then the one changed last. Nothing is left out: a student whose files are no notebooks gets a line that says so.
"""

import os
import re
import stat
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from posenc.grading.reading import LARGEST

NOT_HANDED_IN = {"__MACOSX", "Thumbs.db", "desktop.ini", "__pycache__"}  # besides all that starts with a dot
MOST_FILES = 40  # of one student; the newest ones

CANVAS = re.compile(r"(?P<name>.+?)_(?:LATE_)?(?P<number>\d{3,})_(?P<attempt>\d{3,})_.+")
MOODLE = re.compile(r"(?P<name>.+?)_(?P<number>\d+)_assignsubmission_.*")
ONE_NUMBER = re.compile(r"(?P<name>.+?)_(?P<number>\d{3,})_.+")


@dataclass(frozen=True)
class Student:
    """Who handed in what. `files` lie below the folder of submissions, the newest first."""

    name: str
    number: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class _Entry:
    """One file, and whose it is; `sure` if the name cannot well mean anything else."""

    path: Path
    owner: tuple[str, str]
    attempt: int = 0
    sure: bool = True


def find(folder: Path) -> list[Student]:
    """The students in this folder, by name. Raises ValueError if there is none."""
    entries = [entry for path in _inside(folder) for entry in _entries(path)]
    entries = _without_doubtful_numbers(entries)
    owned: dict[tuple[str, str], list[_Entry]] = defaultdict(list)
    for entry in entries:
        owned[entry.owner].append(entry)
    if not owned:
        raise ValueError(f"{folder} holds no submission: put the notebooks there, or a folder for each student")
    return [
        Student(*owner, tuple(e.path for e in sorted(theirs, key=_age, reverse=True)[:MOST_FILES]))
        for owner, theirs in sorted(owned.items())
    ]


def one(folder: Path) -> Student:
    """The student who handed in all that lies in this folder."""
    entries = [_Entry(path, ("", "")) for path in _files_below(folder)]
    return Student("", "", tuple(e.path for e in sorted(entries, key=_age, reverse=True)[:MOST_FILES]))


def _inside(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.name not in NOT_HANDED_IN)


def _entries(path: Path) -> list[_Entry]:
    if path.is_dir() and not path.is_symlink():
        found = CANVAS.fullmatch(path.name + "_") or MOODLE.fullmatch(path.name + "_")
        owner = (found["name"], found["number"]) if found else (path.name, "")
        files = _files_below(path) or [path]  # an empty folder is a submission too: of nothing
        return [_Entry(file, owner) for file in files]
    for pattern in (CANVAS, MOODLE, ONE_NUMBER):
        if found := pattern.fullmatch(path.stem):
            attempt = int(found["attempt"][:18]) if pattern is CANVAS else 0
            return [_Entry(path, (found["name"], found["number"]), attempt, sure=pattern is not ONE_NUMBER)]
    return [_Entry(path, (path.stem, ""))]


def _files_below(folder: Path) -> list[Path]:
    found: list[Path] = []
    for path in _inside(folder):
        found += _files_below(path) if path.is_dir() and not path.is_symlink() else [path]
    return found


def _without_doubtful_numbers(entries: list[_Entry]) -> list[_Entry]:
    """`hw_2024_ana.ipynb` and `hw_2024_ben.ipynb` are two students, not twice the student hw with number 2024."""
    times = Counter(e.owner for e in entries)
    return [e if e.sure or times[e.owner] == 1 else _Entry(e.path, (e.path.stem, "")) for e in entries]


def _age(entry: _Entry) -> tuple:
    copy = re.search(r"(?:\((\d{1,9})\)|-(\d{1,9}))$", entry.path.stem)
    number = int(copy[1] or copy[2]) if copy else 0
    return entry.attempt, number, entry.path.lstat().st_mtime_ns, str(entry.path)


def content(path: Path) -> bytes | str:
    """The bytes of a submitted file, no more than a notebook may have and one; or why it is not read."""
    try:
        kind = path.lstat().st_mode
        if stat.S_ISDIR(kind):
            return "the folder is empty"
        if not stat.S_ISREG(kind):
            return "it is a link or a device, not a file"
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)), "rb") as file:
            return file.read(LARGEST + 1)
    except OSError as error:
        return f"it cannot be opened: {error.strerror}"
