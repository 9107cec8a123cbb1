"""Make the exercise notebooks from the solutions (`make exercises`).

A solution stands between `### BEGIN SOLUTION` and `### END SOLUTION` in the body of a function; the learner finds
`raise NotImplementedError("your turn")` there. Cells tagged `solution-only` are left out. The result is run, since
an exercise notebook that nobody has solved must still run from top to bottom.
"""

import argparse
import copy
import re
import sys
from pathlib import Path

from nbformat import NotebookNode

from tools import files, notebooks, source
from tools.notebooks import NotebookError

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
STUB = 'raise NotImplementedError("your turn")'
_TITLE = re.compile(r"\A# Solutions (\d+) · ")


def generate(master: NotebookNode, label: str) -> NotebookNode:
    """The learner's version of a master, not yet run. Raises NotebookError naming `label` and the cell."""
    exercise = copy.deepcopy(master)
    exercise.cells = [cell for cell in exercise.cells if "solution-only" not in cell.metadata.get("tags", [])]
    _retitle(exercise, label)
    numbers = {cell.id: number for number, cell in enumerate(master.cells, start=1)}
    for cell in exercise.cells:
        if cell.cell_type == "code":
            _empty(cell, f"{label}, cell {numbers[cell.id]}")
    return exercise


def _retitle(exercise: NotebookNode, label: str) -> None:
    first = exercise.cells[0]
    if not _TITLE.match(first.source):
        raise NotebookError(f"{label}, cell 1 must begin with `# Solutions N · …`")
    first.source = _TITLE.sub(r"# Exercise \1 · ", first.source).replace("/solutions/", "/exercises/")


def _empty(cell: NotebookNode, label: str) -> None:
    """Take the solution and everything a run left out of a code cell."""
    cell.outputs, cell.execution_count = [], None
    notebooks.forget_picture(cell)
    _demand_python(cell.source, label)
    if not (BEGIN in cell.source or END in cell.source):
        return
    cell.source = _without_solution(cell.source, label)
    _demand_python(cell.source, label)
    tags = [tag for tag in cell.metadata.get("tags", []) if tag != "hide-input"]
    cell.metadata.pop("tags", None)
    if tags:
        cell.metadata["tags"] = tags


def _without_solution(text: str, label: str) -> str:
    lines: list[str] = []
    solution: list[str] | None = None
    for line in text.splitlines():
        if line.strip() == BEGIN and solution is None:
            solution = []
            lines.append(line.replace(BEGIN, STUB))
            if not line.startswith(" "):
                raise NotebookError(f"{label} has {BEGIN} outside a function, so the exercise would stop there")
        elif line.strip() == END and solution is not None:
            if not any(each.strip() and not each.strip().startswith("#") for each in solution):
                raise NotebookError(f"{label} has no code between {BEGIN} and {END}")
            solution = None
        elif BEGIN in line or END in line:
            raise NotebookError(f"{label} has a misplaced {line.strip()!r}: markers stand alone on a line, in pairs")
        else:
            (lines if solution is None else solution).append(line)
    if solution is not None:
        raise NotebookError(f"{label} has {BEGIN} without {END}")
    return "\n".join(lines)


def _demand_python(text: str, label: str) -> None:
    try:
        source.tree(text)
    except SyntaxError as error:
        raise NotebookError(f"{label} is not Python: {error}") from None


def skeleton(notebook: NotebookNode) -> list[dict]:
    """What a person wrote: every cell's id, kind, source and metadata, without what a run adds."""
    cells = copy.deepcopy(notebook.cells)
    for cell in cells:
        notebooks.forget_picture(cell)
    return [{key: cell[key] for key in ("id", "cell_type", "source", "metadata")} for cell in cells]


def is_current(exercise: NotebookNode, path: Path) -> bool:
    """Whether the file at `path` already is this exercise, with the outputs of a whole run."""
    if not path.exists():
        return False
    stored = files.read(path)
    ran = all(cell.execution_count for cell in stored.cells if cell.cell_type == "code")
    return ran and skeleton(stored) == skeleton(exercise)


def store(master_path: Path, root: Path = files.ROOT) -> bool:
    """Make, run and write the exercise of one master. Returns False if the stored one is the same already."""
    path = root / "exercises" / master_path.name
    exercise = generate(files.read(master_path), files.name(master_path, root))
    if is_current(exercise, path):
        return False
    label = files.name(path, root)
    path.parent.mkdir(exist_ok=True)
    notebooks.execute(exercise, path.parent, label)
    notebooks.normalise(exercise, label)
    files.write(exercise, path)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("masters", nargs="*", type=Path, help="notebooks in solutions/ (all, if none is named)")
    failures = 0
    for master in parser.parse_args().masters or files.notebooks(folders=("solutions",)):
        try:
            print(f"exercises/{master.name}: {'written' if store(master) else 'unchanged'}", flush=True)
        except NotebookError as error:
            failures += 1
            print(f"error: {error}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
