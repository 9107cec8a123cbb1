"""How fast a class is graded: `python -m bench.grading`, and `--beside` to run nbgrader and otter on the same task.

The submissions are right solutions to chapter 1, each a little different. Ours runs with walls. Printed are
submissions a second, the processor time of the whole machine for each, and the largest memory of the grading process,
for growing classes: all three should stay. On a machine that does something else, the second says more than the first.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MASTER = ROOT / "solutions" / "01_a_set_not_a_sequence.ipynb"
SIZES = (10, 100, 1000)
SIZE_BESIDE = 10
TO_INSTALL, TO_GRADE = 150, 120  # seconds for each of the others; whoever needs more is skipped

ANSWER = "def shuffle_rows(x, permutation):\n    return x[permutation]"
TEST = "import numpy as np\nassert (shuffle_rows(np.eye(3), [2, 0, 1]) == np.eye(3)[[2, 0, 1]]).all()"


def write_class(folder: Path, count: int) -> None:
    """So many right solutions, no two with the same bytes."""
    text = MASTER.read_text(encoding="utf-8")
    folder.mkdir(parents=True)
    for i in range(count):
        notebook = json.loads(text)
        notebook["metadata"]["student"] = i
        (folder / f"student{i:04}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")


def seconds_busy_and_memory(command: list) -> tuple[float, float, float]:
    """Wall time, processor time of the machine, and the peak memory in MB of the process itself. Raises if it fails."""
    start, busy = time.perf_counter(), processor_seconds()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, processor_seconds() - busy, peak


def processor_seconds() -> float:
    """What all processors of this machine have worked since its start (Linux). Workers that ended are in it."""
    try:
        user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    except OSError:
        return 0.0
    return (int(user) + int(nice) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Memory of a process now, in MB (Linux)."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        found = None
    return int(found[1]) / 1000 if found else 0.0


def measure_ours(folder: Path, sizes: tuple[int, ...], jobs: int) -> list[tuple[int, float, float, float]]:
    """(class size, seconds, processor seconds, peak memory of the batch process) for each size, without the start.

    The start, which loads torch in each process, is measured on a class of one.
    """
    lines = []
    for size in (1, *sizes):
        write_class(folder / f"class{size}", size)
        command = [sys.executable, "-m", "posenc", "grade", folder / f"class{size}", "--out", folder / f"out{size}"]
        lines.append((size, *seconds_busy_and_memory([*command, "--jobs", str(jobs), "--seed", "7"])))
    _, start, busy, _ = lines[0]
    return [(n, max(seconds - start, 1e-9), max(work - busy, 0), memory) for n, seconds, work, memory in lines[1:]]


def environment(folder: Path, package: str) -> Path | None:
    """The programs of a new environment with this package; None where it cannot be had."""
    target = folder / package
    made = subprocess.run([sys.executable, "-m", "venv", target], capture_output=True)
    pip = [target / "bin" / "python", "-m", "pip", "install", "--quiet", package, "ipykernel", "numpy"]
    try:
        made.check_returncode()
        subprocess.run(pip, capture_output=True, check=True, timeout=TO_INSTALL)
    except subprocess.SubprocessError:
        return None
    return target / "bin"


def code(source: str, **metadata: object) -> dict:
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": [], "execution_count": None}


def notebook(*cells: dict) -> str:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = tuple({**cell, "id": f"cell{i}"} for i, cell in enumerate(cells))
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells})


def run_in(folder: Path, programs: Path, command: list) -> float:
    """Seconds. Raises if it fails."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    start = time.perf_counter()
    environment = {**os.environ, "PATH": path}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment, timeout=TO_GRADE)
    return time.perf_counter() - start


def nbgrader(folder: Path, programs: Path, count: int) -> float:
    """Seconds that `nbgrader autograde` takes for so many submissions of one small exercise."""
    grade = {"schema_version": 3, "locked": False, "points": 1, "task": False}
    solution = code(ANSWER, nbgrader={**grade, "grade": False, "solution": True, "grade_id": "answer"})
    test = code(TEST, nbgrader={**grade, "grade": True, "solution": False, "locked": True, "grade_id": "test"})
    (folder / "source" / "one").mkdir(parents=True)
    (folder / "source" / "one" / "task.ipynb").write_text(notebook(solution, test))
    (folder / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.course_id = 'bench'\n")
    run_in(folder, programs, [programs / "nbgrader", "generate_assignment", "one", "--create", "--force"])
    for i in range(count):
        submitted = folder / "submitted" / f"student{i}" / "one"
        submitted.mkdir(parents=True)
        shutil.copy(folder / "source" / "one" / "task.ipynb", submitted)
    return run_in(folder, programs, [programs / "nbgrader", "autograde", "one", "--create"])


def otter(folder: Path, programs: Path, count: int) -> float:
    """Seconds that so many `otter run` take, one after the other as its documentation has it, on the same exercise."""
    (folder / "tests").mkdir(parents=True)
    case = {"code": r"\n".join(f">>> {line}" for line in TEST.splitlines()), "hidden": False, "locked": False}
    test = {"name": "q1", "points": 1, "suites": [{"cases": [case], "type": "doctest", "scored": True}]}
    (folder / "tests" / "q1.py").write_text(f"OK_FORMAT = True\ntest = {test!r}".replace(r"\\n", r"\n"))
    (folder / "task.ipynb").write_text(notebook(code(ANSWER)))
    run_in(folder, programs, [programs / "otter", "generate", "--no-environment"])
    archive = next(folder.glob("*.zip"))
    command = [programs / "otter", "run", "-a", archive.name, "task.ipynb"]
    return sum(run_in(folder, programs, command) for _ in range(count))


def ours(folder: Path, _: Path, count: int) -> float:
    """Seconds that ours takes for as many notebooks with the same cell, one at a time, its start included."""
    for i in range(count):
        (folder / "class").mkdir(exist_ok=True)
        (folder / "class" / f"student{i}.ipynb").write_text(notebook(code(ANSWER)))
    command = [sys.executable, "-m", "posenc", "grade", folder / "class", "--out", folder / "out", "--chapter", "1"]
    return seconds_busy_and_memory([*command, "--jobs", "1"])[0]


def beside(folder: Path) -> None:
    """One line for each, all on one small exercise, with their starts. Only ours has walls."""
    graders: tuple[tuple[str, Callable[[Path, Path, int], float]], ...] = (
        ("posenc", ours),
        ("nbgrader", nbgrader),
        ("otter-grader", otter),
    )
    first = 0.0
    for package, measure in graders:
        programs = Path() if measure is ours else environment(folder / "environments", package)
        if programs is None:
            print(f"{package:12} skipped: it cannot be installed here within {TO_INSTALL} seconds")
            continue
        (folder / package).mkdir()
        try:
            seconds = measure(folder / package, programs, SIZE_BESIDE)
        except (subprocess.SubprocessError, StopIteration) as error:
            print(f"{package:12} skipped: it does not run here ({str(error)[:100]})")
            continue
        first = first or seconds
        speed = f"{SIZE_BESIDE / seconds:8.2f} a second on one exercise, {seconds / first:.1f} times as long as ours"
        print(f"{package:12} {SIZE_BESIDE:5} students {speed}", flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the grader.")
    parser.add_argument("--sizes", type=int, nargs="+", help="class sizes (10 100 1000; 100 with --beside)")
    parser.add_argument("--jobs", type=int, default=2, help="how many are marked at a time (2)")
    parser.add_argument("--beside", action="store_true", help="also nbgrader and otter, in environments made for it")
    chosen = parser.parse_args(arguments)
    sizes = tuple(chosen.sizes or ((100,) if chosen.beside else SIZES))
    with tempfile.TemporaryDirectory() as folder:
        for size, seconds, work, memory in measure_ours(Path(folder), sizes, chosen.jobs):
            of_which = f"{work / size:.2f} processor seconds each, {memory:.0f} MB at most"
            print(f"{'posenc grade':12} {size:5} students {size / seconds:8.2f} a second, {of_which}", flush=True)
        if chosen.beside:
            beside(Path(folder))


if __name__ == "__main__":
    main()
