"""Run notebooks in place and store them in one form (`make notebooks`).

Each notebook runs in a kernel of its own, in its own folder, two at a time. A notebook that raises, or writes to
stderr, is not stored. What is stored depends on the notebook only: no timings, no editor's metadata, no version of
Python beyond its first digit. A figure's alternative text moves from the output to the cell's metadata, where the
site reads it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

from tools import files, status

CELL_TIMEOUT = 600
WORKERS = 2
_KEPT_CELL_METADATA = ("tags", "mystnb", "slideshow")


class NotebookError(ValueError):
    """A notebook that cannot be stored: which one, which cell, and why."""


@dataclass(frozen=True)
class Run:
    path: Path
    seconds: float
    peak_kb: int  # of the kernel's process, 0 where the system does not tell
    stored_kb: float


def execute(notebook: NotebookNode, folder: Path, label: str) -> int:
    """Run every cell in a fresh kernel and put the outputs in place. Returns the kernel's peak memory in kB."""
    peak = 0

    def note_memory(**_: object) -> None:
        nonlocal peak
        peak = max(peak, _peak_memory(client.km.provisioner.pid))

    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        on_cell_executed=note_memory,
        extra_arguments=["--log-level=ERROR"],  # the kernel's remarks on its own transport are not for the terminal
    )
    try:
        client.execute(env=kernel_environment())
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{label}: {error}") from None
    return peak


def kernel_environment() -> dict[str, str]:
    """The environment without MPLBACKEND, which would keep figures from being displayed."""
    return {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}


def _peak_memory(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def normalise(notebook: NotebookNode, label: str) -> None:
    """Bring the notebook into the one stored form. Raises NotebookError for what must not be stored."""
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(display_name="Python 3", language="python", name="python3"),
        language_info=NotebookNode(name="python", version="3"),
    )
    for number, cell in enumerate(notebook.cells, start=1):
        cell.setdefault("id", f"cell-{number}")
        kept = {key: cell.metadata[key] for key in _KEPT_CELL_METADATA if key in cell.metadata}
        cell.metadata = NotebookNode(kept)
        if cell.cell_type == "code":
            _demand_no_stderr(cell, f"{label}, cell {number}")
            _describe_picture(cell, f"{label}, cell {number}")


def _demand_no_stderr(cell: NotebookNode, label: str) -> None:
    text = "".join(out.text for out in cell.outputs if out.output_type == "stream" and out.name == "stderr")
    if text:
        raise NotebookError(f"{label} writes to stderr, so remove the cause of this:\n{text.strip()}")


def _describe_picture(cell: NotebookNode, label: str) -> None:
    """Copy the alternative text of the cell's picture to the metadata that the site reads."""
    pictures = [out for out in cell.outputs if any(mime.startswith("image/") for mime in out.get("data", {}))]
    if len(pictures) > 1:
        raise NotebookError(f"{label} draws {len(pictures)} pictures: split it, one cell has one alternative text")
    forget_picture(cell)
    described = [about["alt"] for out in pictures for about in out.metadata.values() if "alt" in about]
    if described:
        cell.metadata.setdefault("mystnb", NotebookNode()).setdefault("image", NotebookNode())["alt"] = described[0]


def forget_picture(cell: NotebookNode) -> None:
    """Remove the alternative text that a run put into the cell's metadata."""
    about = cell.metadata.get("mystnb", {})
    about.get("image", {}).pop("alt", None)
    if not about.get("image", True):
        del about["image"]
    if not about and "mystnb" in cell.metadata:
        del cell.metadata["mystnb"]


def run(path: Path) -> Run:
    """Run one notebook and store it. On failure the file stays as it was."""
    label = files.name(path)
    notebook = files.read(path)
    start = time.perf_counter()
    peak = execute(notebook, path.parent, label)
    seconds = time.perf_counter() - start
    normalise(notebook, label)
    files.write(notebook, path)
    return Run(path, seconds, peak, path.stat().st_size / 1000)


def run_all(paths: Iterable[Path], workers: int = WORKERS) -> tuple[list[Run], list[str]]:
    """Run the notebooks, `workers` at a time; what succeeded, and a message for each that failed."""
    done, failed = [], []
    with ProcessPoolExecutor(max_workers=workers) as pool:
        for future in as_completed([pool.submit(run, path) for path in paths]):
            try:
                done.append(future.result())
            except NotebookError as error:
                failed.append(str(error))
    return sorted(done, key=lambda each: each.path), failed


def record(seconds: dict[str, float], path: Path | None = None) -> None:
    """Add run times, by notebook, to those already recorded."""
    path = path or files.DURATIONS
    known = json.loads(path.read_text()) if path.exists() else {}
    merged = known | {name: round(value, 2) for name, value in seconds.items()}
    files.write_text(json.dumps(dict(sorted(merged.items())), indent=1) + "\n", path)


def table(runs: list[Run]) -> str:
    rows = [("notebook", "seconds", "peak MB", "stored kB")]
    rows += [(files.name(r.path), f"{r.seconds:.1f}", f"{r.peak_kb / 1000:.0f}", f"{r.stored_kb:.0f}") for r in runs]
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:<{width}}  {row[1]:>7}  {row[2]:>7}  {row[3]:>9}" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", type=Path, help="notebooks (all, if none is named)")
    parser.add_argument("--workers", type=int, default=WORKERS, help="how many run at a time (%(default)s)")
    arguments = parser.parse_args()
    done, failed = run_all(arguments.paths or files.notebooks(), arguments.workers)
    if done:
        print(table(done))
        record({files.name(each.path): each.seconds for each in done})
        status.note((files.name(each.path), each.seconds, each.peak_kb, each.stored_kb) for each in done)
    for message in failed:
        print(f"\nnot stored: {message}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
