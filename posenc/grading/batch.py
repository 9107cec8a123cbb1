"""`python -m posenc grade SUBMISSIONS --out RESULTS`: mark a folder of submissions, in parallel, resumably.

What is known of a student stands in RESULTS/records, one file each, written in one step. A run that was killed at any
moment is taken up by the next: a record is used again if files, seed and book are the same. All reports are made anew
from the records.
"""

import contextlib
import json
import os
import queue
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

from posenc.grading import reports, sandbox
from posenc.grading.files import file_names, sweep, write
from posenc.grading.marker import Marker
from posenc.grading.marking import chapter_of
from posenc.grading.reading import Unreadable, read
from posenc.grading.records import Record, Task, task_of
from posenc.grading.submissions import Student, content, find
from posenc.study import cluster

A_FEW = 2  # tasks in hand for each marker: enough to keep it busy, few enough to keep memory flat
MOST_BYTES = 100_000_000  # of one student's files together


def grade_folder(
    submissions: Path,
    out: Path,
    *,
    chapters: Sequence[int] = (),
    seed: int | None = None,
    jobs: int = 1,
    unsafe: bool = False,
    scheduler: str = "",
) -> reports.Summary:
    """Mark everybody and write all reports. Raises ValueError for what a teacher can mend, NoSandbox without walls."""
    students = find(submissions)
    if out.resolve().is_relative_to(submissions.resolve()):
        raise ValueError(f"{out} lies inside {submissions}, where it would be marked next time; choose another folder")
    if not unsafe and not scheduler:
        sandbox.check_submissions(submissions)
    records = out / "records"
    records.mkdir(parents=True, exist_ok=True)
    out.chmod(0o700)  # marks are nobody else's business
    sweep(out)
    seed = seed_of(out, seed)
    chapters = sorted(set(chapters)) or [most_common_chapter(students)]
    names = file_names([(s.name, s.number) for s in students])
    places = {(s.name, s.number): records / f"{name}.json" for s, name in zip(students, names, strict=True)}
    with progress(len(students)) as advance:
        tasks = (task_for(student, submissions, chapters, seed) for student in students)
        todo = _those_not_done(tasks, places, advance)
        marked = mark_on_cluster(todo, scheduler, unsafe=unsafe) if scheduler else mark_here(todo, jobs, unsafe=unsafe)
        with contextlib.closing(marked):  # whatever stops us stops the marking too
            for record in marked:
                write(places[record["name"], record["number"]], json.dumps(record, indent=1))
                advance(1)
    return reports.write_all(out, places.values())


def task_for(student: Student, folder: Path, chapters: Sequence[int], seed: int) -> Task:
    """The student's notebooks, or, if there is none, whatever there is."""
    paths = [p for p in student.files if p.suffix.lower() == ".ipynb"] or student.files
    files: list[tuple[str, bytes | str]] = []
    room = MOST_BYTES
    for path in paths:
        data = content(path) if room > 0 else "there are too many large files; hand in one notebook"
        room -= len(data)
        files.append((path.relative_to(folder).as_posix(), data))
    return task_of(student.name, student.number, files, chapters, seed)


def _those_not_done(tasks: Iterable[Task], places: dict, advance: Callable[[int], object]) -> Iterator[Task]:
    for task in tasks:
        if is_record(places[task["name"], task["number"]], task["key"]):
            advance(1)
        else:
            yield task


def is_record(path: Path, key: str) -> bool:
    """Whether this file holds the whole record of the same files, seed and book, and the marks were made."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and record.get("key") == key and record.get("status") != "ungraded"


def seed_of(out: Path, given: int | None) -> int:
    """The seed of this run: the one given, else that of the last run, else a new one that nobody can guess."""
    path = out / "seed.txt"
    if given is None:
        with contextlib.suppress(OSError, ValueError):
            return int(path.read_text(encoding="utf-8"))
        given = secrets.randbelow(2**62)
    write(path, f"{given}\n")
    return given


def most_common_chapter(students: Sequence[Student]) -> int:
    """The chapter to which most students' newest readable notebook belongs. Raises ValueError if nothing tells."""
    votes: Counter[int] = Counter()
    for student in students:
        for path in student.files:
            data = content(path)
            with contextlib.suppress(Unreadable):
                if isinstance(data, bytes) and (chapter := chapter_of(read(data))):
                    votes[chapter] += 1
                    break
    if not votes:
        raise ValueError("no notebook here defines a function of any exercise; say which chapter it is: --chapter N")
    return min(votes, key=lambda chapter: (-votes[chapter], chapter))


def mark_here(tasks: Iterable[Task], jobs: int, *, unsafe: bool) -> Iterator[Record]:
    """Records in the order in which they are ready, from so many marking processes."""
    markers = [Marker(unsafe=unsafe) for _ in range(jobs)]
    free: queue.SimpleQueue[Marker] = queue.SimpleQueue()
    for marker in markers:
        free.put(marker)

    def one(task: Task) -> Record:
        marker = free.get()
        try:
            return marker.mark(task)
        finally:
            free.put(marker)

    pool = ThreadPoolExecutor(jobs)
    try:
        waiting: set[Future[Record]] = set()
        for task in tasks:
            waiting.add(pool.submit(one, task))
            if len(waiting) >= jobs * A_FEW:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
        for marker in markers:
            marker.close()  # they tidy up, for which there is time now
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for marker in markers:
            marker.stop()


def mark_on_cluster(tasks: Iterable[Task], address: str, *, unsafe: bool) -> Iterator[Record]:
    """The same on the machines of a Dask cluster, each with walls of its own. Raises ValueError if it is not there."""
    with cluster(address) as client:
        import joblib

        send = joblib.Parallel(n_jobs=-1, return_as="generator_unordered", batch_size=1)
        try:
            yield from send(joblib.delayed(mark_wherever_this_is)(task, unsafe) for task in tasks)
        finally:
            client.run(close_idle)


_idle: list[Marker] = []  # marking processes of this machine that wait for another task of a cluster


def mark_wherever_this_is(task: Task, unsafe: bool) -> Record:
    """Mark in a process that is free, or in a new one."""
    marker = _idle.pop() if _idle else Marker(unsafe=unsafe)
    record = marker.mark(task)
    _idle.append(marker)
    return record


def close_idle() -> None:
    while _idle:
        _idle.pop().close()


@contextlib.contextmanager
def progress(total: int) -> Iterator[Callable[[int], object]]:
    """A function to call for each student who is done: a bar if tqdm is installed, else a line now and then."""
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is not None:
        with tqdm(total=total, unit=" students", file=sys.stderr) as bar:
            yield bar.update
        return
    done = Counter[str]()

    def say(more: int) -> None:
        done["students"] += more
        if done["students"] == total or done["students"] % 25 == 0:
            print(f"{done['students']} of {total} students", file=sys.stderr)

    yield say


def usable_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
