"""What is given away in one go: the site, the library, a classroom without a network, and the autograders.

`python -m tools.release` (`make release`) writes into `_build/release`:

* `site.zip`: the built site. Unpacked, `index.html` opens in any browser.
* `posenc-….whl`: the library alone.
* `classroom.zip`: the notebooks, the library, and the wheels of everything that they need but torch, for machines like
  this one or for `--platform` and `--python` as pip knows them. `START.txt` in it says how to begin.
* `autograder_NN.zip`: for Gradescope, one a chapter. They hold the answers and their seed: for teachers alone.
"""

import argparse
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from email import message_from_bytes
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

from posenc.grading import gradescope
from tools import files, reader

FOLDER = files.ROOT / "_build" / "release"
SITE = files.ROOT / "_build" / "html"
WANTED = ("numpy", "matplotlib", "ipykernel", "transformers", "jupyterlab")  # torch is large, and differs by machine

START = """\
From Sets to Sequences, for a room without a network.

You need Python {python} ({platform}), and torch's wheel for it, which is not in here: put it into wheels/.

Once, in this folder (on Windows, Scripts in place of bin, and python in place of python3):

    python3 -m venv environment
    environment/bin/python -m pip install --no-index --find-links wheels torch posenc {wanted}
    environment/bin/python -m posenc doctor

Then:

    environment/bin/jupyter lab chapters/01_a_set_not_a_sequence.ipynb

chapters/ is the book, exercises/ is for you, solutions/ is for later.
"""


def wheel(folder: Path) -> Path:
    """Build the library's wheel into the folder."""
    with tempfile.TemporaryDirectory() as temporary:
        reader.copy_library(Path(temporary) / "library")
        source = str(Path(temporary) / "library")
        reader.pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), source)
    return next(folder.glob("posenc-*.whl"))


def download(folder: Path, platforms: Sequence[str] = (), python: str = "") -> None:
    """The wheels of what the notebooks need, without torch, for this machine or for another."""
    target = [part for each in platforms for part in ("--platform", each)]
    target += ["--python-version", python] if python else []
    constraint = folder.parent / "constraints.txt"
    constraint.write_text("\n".join(line for line in pins() if not line.startswith("torch")), encoding="utf-8")
    wanted = ["--only-binary=:all:", "--dest", str(folder), "--constraint", str(constraint), *WANTED, *torch_needs()]
    reader.pip(Path(sys.executable), "download", *target, *wanted)


def torch_needs() -> list[str]:
    """What torch's wheel asks for, without what only its builds for a GPU do: that comes with the wheel's source."""
    asked = [Requirement(text) for text in requires("torch") or []]
    plain = [each for each in asked if not re.match("nvidia|cuda|triton", each.name)]
    return [
        f"{each.name}{each.specifier}" for each in plain if each.marker is None or each.marker.evaluate({"extra": ""})
    ]


def pins() -> list[str]:
    text = (files.ROOT / "requirements.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if "==" in line]


def classroom(archive: Path, library: Path, wheels: Iterable[Path], python: str = "", platform: str = "") -> None:
    """Notebooks, library and wheels in one archive. `python` and `platform` are what the wheels are for."""
    python = python or ".".join(map(str, sys.version_info[:2]))
    words = {"python": python, "platform": platform or "the kind of system that made this archive"}
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("course/START.txt", START.format(**words, wanted=" ".join(WANTED)))
        for name in ("LICENSE", "LICENSE-TEXT", "THIRD_PARTY.md"):
            out.write(files.ROOT / name, f"course/{name}")
        for path in files.notebooks():
            out.write(path, f"course/{files.name(path)}")
        wheels = [library, *sorted(wheels)]
        out.writestr("course/LICENCES.txt", licences(wheels))
        for path in wheels:
            out.write(path, f"course/wheels/{path.name}")


def licences(wheels: Iterable[Path]) -> str:
    """Each package, its version, and the licence that it declares, in lines."""
    lines = []
    for path in sorted(wheels):
        with zipfile.ZipFile(path) as archive:
            (name,) = (n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
            about = message_from_bytes(archive.read(name))
        classifiers = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if c.startswith("License ::")]
        first_line = (about["License"] or "").strip().partition("\n")[0]
        declared = about["License-Expression"] or "; ".join(classifiers) or first_line or "not declared"
        lines.append(f"{about['Name']} {about['Version']}: {declared}\n")
    return "".join(lines)


def site(archive: Path, built: Path = SITE) -> None:
    """The built site in one archive. Raises FileNotFoundError if it has not been built."""
    if not (built / "index.html").is_file():
        raise FileNotFoundError(f"{built} holds no site; run `make book` first")
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(built.rglob("*")):
            if path.is_file() and "_sources" not in path.parts:
                out.write(path, f"site/{path.relative_to(built).as_posix()}")


def chapters() -> list[int]:
    return [int(re.match(r"\d+", path.name)[0]) for path in files.notebooks(folders=("exercises",))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", action="append", default=[], help="of the classroom's machines, as pip names it")
    parser.add_argument("--python", default="", help="of the classroom's machines, such as 3.12 (this one's)")
    parser.add_argument("--seed", type=int, help="from which the autograders draw their cases (one that nobody knows)")
    chosen = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    site(FOLDER / "site.zip")
    library = wheel(FOLDER)
    with tempfile.TemporaryDirectory() as temporary:
        wheels = Path(temporary) / "wheels"
        wheels.mkdir()
        download(wheels, chosen.platform, chosen.python)
        classroom(FOLDER / "classroom.zip", library, wheels.iterdir(), chosen.python, " or ".join(chosen.platform))
    seed = secrets.randbelow(2**62) if chosen.seed is None else chosen.seed
    for chapter in chapters():
        gradescope.make(FOLDER / f"autograder_{chapter:02}.zip", chapter, seed)
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {files.name(path)}")
    print(f"The autograders' seed is {seed}. They hold the answers: for teachers alone.")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
