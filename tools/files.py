"""Where the notebooks are, how they are read and written: one form, whole files, nothing half-written."""

import os
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("chapters", "solutions", "exercises")
DURATIONS = ROOT / "_build" / "durations.json"


def notebooks(root: Path = ROOT, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """The book's notebooks, in reading order within each folder."""
    return [path for folder in folders for path in sorted((root / folder).glob("*.ipynb"))]


def name(path: Path, root: Path = ROOT) -> str:
    """A file as the repository calls it (`chapters/01_a_set_not_a_sequence.ipynb`), or its full path."""
    path = path.resolve()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def read(path: Path) -> NotebookNode:
    """The notebook as it is stored (`nbformat.read` would repair some faults in silence)."""
    return nbformat.v4.reads(path.read_text(encoding="utf-8"))


def text(notebook: NotebookNode) -> str:
    """The notebook as it is to be stored."""
    return nbformat.v4.writes(notebook) + "\n"


def write(notebook: NotebookNode, path: Path) -> None:
    write_text(text(notebook), path)


def write_text(text: str, path: Path) -> None:
    """Replace the file in one step, so that an interrupted run leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        Path(temporary).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
