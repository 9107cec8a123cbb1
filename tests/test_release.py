"""What `make release` gives away works where nothing else of the book is."""

import os
import re
import subprocess
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tools import colab, files, reader, release

CHAPTER = "chapters/14_what_it_costs.ipynb"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_the_wheel_holds_all_that_the_library_reads(library: Path) -> None:
    with zipfile.ZipFile(library) as archive:
        shipped = {name for name in archive.namelist() if name.startswith("posenc/")}
    kept = subprocess.run(["git", "ls-files", "posenc"], cwd=files.ROOT, capture_output=True, text=True, check=True)
    assert shipped >= set(kept.stdout.split())


@pytest.mark.slow
def test_a_classroom_without_the_book_runs_a_chapter(library: Path, tmp_path: Path) -> None:
    release.classroom(tmp_path / "classroom.zip", library, [])
    with zipfile.ZipFile(tmp_path / "classroom.zip") as archive:
        archive.extractall(tmp_path)
    course, installed = tmp_path / "course", tmp_path / "installed"
    (wheel,) = (course / "wheels").glob("*.whl")
    reader.pip(Path(sys.executable), "install", "--no-deps", "--no-index", "--target", str(installed), str(wheel))
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    probe = "import posenc; print(posenc.__file__)"
    found = subprocess.run([sys.executable, "-c", probe], cwd=course, env=environment, capture_output=True, text=True)
    assert found.stdout.startswith(str(installed)), "the classroom's own library, and not the working tree's"
    done = colab.run(course / CHAPTER, sys.executable, environment, in_colab=False)
    assert sum(cell.cell_type == "code" for cell in done.cells) > 10
    assert {path.name for path in course.iterdir()} >= {"START.txt", "chapters", "exercises", "solutions", "LICENSE"}


def wheel_of(folder: Path, name: str, about: str) -> Path:
    """A wheel with nothing but a description."""
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.dist-info/METADATA", f"Name: {name}\nVersion: 1\n{about}")
    return path


def test_the_first_page_names_what_is_in_the_archive(tmp_path: Path) -> None:
    library, wheel = wheel_of(tmp_path, "posenc", "License-Expression: MIT\n"), wheel_of(tmp_path, "numpy", "")
    release.classroom(tmp_path / "c.zip", library, [wheel], python="3.12", platform="win_amd64")
    with zipfile.ZipFile(tmp_path / "c.zip") as archive:
        names = archive.namelist()
        start = archive.read("course/START.txt").decode()
        licences = archive.read("course/LICENCES.txt").decode()
    assert "Python 3.12 (win_amd64)" in start
    assert licences == "numpy 1: not declared\nposenc 1: MIT\n"
    assert {"course/wheels/numpy-1-py3-none-any.whl", "course/wheels/posenc-1-py3-none-any.whl"} <= set(names)
    assert sum(name.endswith(".ipynb") for name in names) == len(files.notebooks())
    assert not [name for name in names if "torch" in name]


def test_a_licence_is_found_wherever_a_package_declares_it(tmp_path: Path) -> None:
    wheels = [
        wheel_of(tmp_path, "a", "Classifier: License :: OSI Approved :: BSD License\nLicense: whatever\n"),
        wheel_of(tmp_path, "b", "License: PSF\n  and more lines\n"),
    ]
    assert release.licences(wheels) == "a 1: BSD License\nb 1: PSF\n"


def test_whatever_others_made_is_on_the_list() -> None:
    listed = re.findall(r"`([\w./*-]+)`", (files.ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8"))
    patterns = [each + "*" if each.endswith("/") else each for each in listed if "/" in each]
    tracked = ["git", "ls-files", "posenc/data", "book/_static/mathjax"]
    kept = subprocess.run(tracked, cwd=files.ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(kept) > 10
    assert [name for name in kept if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    for pattern in patterns:
        assert pattern == "_static/*" or any(files.ROOT.glob(pattern)), f"{pattern} is not there any more"


def test_torch_is_left_out_and_what_it_needs_is_not() -> None:
    needed = release.torch_needs()
    assert any(name.startswith("sympy") for name in needed)
    assert not [name for name in needed if name.startswith(("nvidia", "triton", "torch"))]


def test_without_a_site_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run `make book` first"):
        release.site(tmp_path / "site.zip", tmp_path)
