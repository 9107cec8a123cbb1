"""The notebooks as a reader has them: alone in a folder, in an environment with what Colab has and nothing of ours.

`python -m tools.reader` makes the environment in `_build/reader`: numpy, torch, matplotlib, ipykernel, and transformers
for chapter 13, as requirements.txt pins them, and the library as the first cell fetches it. It registers it as the
kernel `reader`, and copies the notebooks beside it. `make test` runs nbval on those copies: a notebook that needs
another package, a file of the repository, or a part of the library that is not shipped, fails there.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tools import files, lock

PACKAGES = ("numpy", "torch", "matplotlib", "ipykernel", "transformers")
FOLDER = files.ROOT / "_build" / "reader"


def pins() -> list[str]:
    """The lines of requirements.txt that pin what a reader has."""
    wanted = {lock.canonical(name) for name in PACKAGES}
    found = [line for line in _requirements().splitlines() if line.partition("==")[0] in wanted]
    if len(found) != len(wanted):
        raise ValueError(f"requirements.txt must pin each of {', '.join(PACKAGES)}; it pins {', '.join(found)}")
    return found


def make_environment(folder: Path) -> Path:
    """A virtual environment with `PACKAGES` and what they need, and nothing else. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    python = folder / "bin" / "python"
    pip(python, "install", "--no-compile", *pins(), "--constraint", str(files.ROOT / "requirements.txt"))
    return python


def pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def prepare(folder: Path = FOLDER) -> None:
    """Everything that the module's first lines say. The environment is kept while packages and pins are the same."""
    environment, stamp = folder / "environment", folder / "made-from"
    made_from = hashlib.sha256("\n".join([*PACKAGES, _requirements()]).encode()).hexdigest()
    python = environment / "bin" / "python"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != made_from:
        python = make_environment(environment)
        files.write_text(made_from, stamp)
    install_library(python, folder / "library")
    register = [python, "-m", "ipykernel", "install", "--prefix", folder, "--name", "reader"]
    subprocess.run(register, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(folder / "book", ignore_errors=True)
    for path in files.notebooks():
        copy = folder / "book" / files.name(path)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def install_library(python: Path, copy: Path) -> None:
    """Put the working tree's `posenc` there and no other package. It is built in `copy`: a build leaves files."""
    copy_library(copy)
    pip(python, "install", "--no-deps", "--force-reinstall", str(copy))


def copy_library(copy: Path) -> None:
    """What the library is built from, and nothing else, in a new folder."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(files.ROOT / "posenc", copy / "posenc", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(files.ROOT / name, copy / name)


def _requirements() -> str:
    return (files.ROOT / "requirements.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    prepare()
    print(f"a reader's environment and copies of the notebooks are in {files.name(FOLDER)}")
