"""The library as the learner's code sees it while it is marked: helpers, and no answers.

It holds the modules that the exercise notebooks import, and what those need. `check` and `scoreboard` do nothing.
A function that bears the name of an exercise is left out, wherever it stands.
"""

import ast
import compileall
import shutil
from pathlib import Path

import posenc
from posenc.checks.registry import all_exercises

LIBRARY = Path(posenc.__file__).parent

MACHINERY = ("checks/calling.py", "grading/limits.py", "grading/wire.py", "grading/peer.py", "grading/worker.py")
NO_CHECKS = '''"""Here nothing is checked: that happens elsewhere."""


def check(function):
    """Nothing."""


def scoreboard(chapter):
    """Nothing."""
'''
# Whole folders that stay behind: the answers, and the marking itself.
SECRET = ("checks", "grading")


def build(folder: Path) -> Path:
    """Write the library without answers into a folder, and return the folder that goes on the module path."""
    package = folder / "posenc"
    answers = set(all_exercises())
    for path in sorted(LIBRARY.rglob("*")):
        inside = path.relative_to(LIBRARY)
        if inside.parts[0] in SECRET or "__pycache__" in inside.parts or not path.is_file():
            continue
        target = package / inside
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            target.write_text(without(answers, path.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    for name in MACHINERY:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(LIBRARY / name, package / name)
    (package / "checks" / "__init__.py").write_text(NO_CHECKS, encoding="utf-8")
    (package / "grading" / "__init__.py").write_text("", encoding="utf-8")
    compileall.compile_dir(package, quiet=2)  # once here, and not once for each learner
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask: workers are another user
    return folder


def without(names: set[str], source: str) -> str:
    """The module without the top-level functions of these names. Line numbers stay."""
    lines = source.splitlines(keepends=True)
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines[first - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or first) - first + 1)
    return "".join(lines)
