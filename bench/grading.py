"""How fast a class is graded: `python -m bench.grading`, and `--beside` to run nbgrader and otter on the same task.

The submissions are right solutions to chapter 1, each a little different. Ours runs with walls. Printed are
submissions a second and the largest memory of the grading process, for growing classes: the one should stay, and so
should the other.
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


def seconds_and_memory(command: list) -> tuple[float, float]:
    """Wall time, and the peak memory in MB of the process itself (its children have their own). Raises if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, resident(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, peak


def resident(pid: int) -> float:
    """Memory of a process now, in MB (Linux)."""
    try:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        found = None
    return int(found[1]) / 1000 if found else 0.0


def measure_ours(folder: Path, sizes: tuple[int, ...], jobs: int) -> list[tuple[int, float, float]]:
    """(class size, seconds without the start, peak memory of the batch process) for each size.

    The start, which loads torch in each process, is measured on a class of one.
    """
    lines = []
    for size in (1, *sizes):
        write_class(folder / f"class{size}", size)
        command = [sys.executable, "-m", "posenc", "grade", folder / f"class{size}", "--out", folder / f"out{size}"]
        lines.append((size, *seconds_and_memory([*command, "--jobs", str(jobs), "--seed", "7"])))
    start = lines[0][1]
    return [(size, max(seconds - start, 1e-9), memory) for size, seconds, memory in lines[1:]]


def environment(folder: Path, package: str) -> Path | None:
    """The programs of a new environment with this package; None where it cannot be had."""
    target = folder / package
    made = subprocess.run([sys.executable, "-m", "venv", target], capture_output=True)
    pip = [target / "bin" / "python", "-m", "pip", "install", "--quiet", package, "ipykernel", "numpy"]
    return target / "bin" if made.returncode == 0 and subprocess.run(pip, capture_output=True).returncode == 0 else None


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
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={**os.environ, "PATH": path})
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


def beside(folder: Path) -> None:
    """One line for each of the others. They run without walls, since they have none in this mode."""
    others: tuple[tuple[str, Callable[[Path, Path, int], float]], ...] = (
        ("nbgrader", nbgrader),
        ("otter-grader", otter),
    )
    for package, measure in others:
        programs = environment(folder / "environments", package)
        if programs is None:
            print(f"{package:12} skipped: it cannot be installed here")
            continue
        (folder / package).mkdir()
        try:
            seconds = measure(folder / package, programs, SIZE_BESIDE)
        except (subprocess.CalledProcessError, StopIteration) as error:
            print(f"{package:12} skipped: it does not run here ({str(error)[:100]})")
            continue
        print(f"{package:12} {SIZE_BESIDE:5} students {SIZE_BESIDE / seconds:8.2f} a second")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the grader.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="class sizes (10 100 1000)")
    parser.add_argument("--jobs", type=int, default=2, help="how many are marked at a time (2)")
    parser.add_argument("--beside", action="store_true", help="also nbgrader and otter, in environments made for it")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for size, seconds, memory in measure_ours(Path(folder), tuple(chosen.sizes), chosen.jobs):
            print(f"{'posenc grade':12} {size:5} students {size / seconds:8.2f} a second, {memory:.0f} MB at most")
        if chosen.beside:
            beside(Path(folder))


if __name__ == "__main__":
    main()
