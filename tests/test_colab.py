"""The first cell in Colab: it fetches the library into a bare environment and touches nothing that the host installed.

Colab's kernel has `google.colab` imported before the first cell of a reader; here a stand-in package is. The address
of the repository leads to a clone of this working tree, so that the first cell fetches the library as it is now.

The first cell is the same everywhere (tests/test_notebooks.py), so two notebooks are enough here. That *every* notebook
runs to its end in such an environment, alone in a folder, is what the last part of `make test` shows: it runs them all
in the environment of `tools.reader`, which is made as the one here is.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

from tools import bootstrap, colab, files, reader, repository

pytestmark = pytest.mark.slow

NOTEBOOKS = [files.notebooks(folders=("chapters",))[0], files.notebooks(folders=("exercises",))[-1]]


class Host:
    """An environment that has what Colab has of what the book needs, and nothing of the book."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self.environment = environment

    def run(self, path: Path, *, in_colab: bool = True) -> NotebookNode:
        return colab.run(path, self.python, self.environment, in_colab=in_colab)

    def pip(self, *arguments: str) -> str:
        command = [self.python, "-m", "pip", "--disable-pip-version-check", *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def packages(self) -> dict[str, str]:
        """Every installed package with its version."""
        return {each["name"]: each["version"] for each in json.loads(self.pip("list", "--format=json"))}

    def fingerprints(self) -> dict[str, str]:
        """What the installer noted about each package's files. An installation of any kind rewrites it."""
        records = sorted(self.folder.glob("lib/*/site-packages/*.dist-info/RECORD"))
        return {
            path.parent.name: f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_mtime_ns}"
            for path in records
            if not path.parent.name.startswith("posenc-")
        }


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the files of this working tree, committed on the configured branch."""
    folder = tmp_path_factory.mktemp("repository")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, cwd=files.ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
        if name and (files.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(files.ROOT / name, folder / name)
    git = ["git", "-C", str(folder), "-c", "user.name=Reader", "-c", "user.email=reader@example.org"]
    branch = repository.configured().branch
    for command in (["init", "--quiet", f"--initial-branch={branch}"], ["add", "--all"], ["commit", "-qm", "Copy"]):
        subprocess.run([*git, *command], check=True)
    return folder


@pytest.fixture(scope="session")
def bare_host(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Host:
    folder = tmp_path_factory.mktemp("host") / "environment"
    reader.make_environment(folder)
    host = Host(folder, _environment(clone))
    (site_packages,) = folder.glob("lib/*/site-packages")
    (site_packages / "google" / "colab").mkdir(parents=True)
    (site_packages / "google" / "colab" / "__init__.py").touch()
    return host


def _environment(clone: Path) -> dict[str, str]:
    """This process's environment without a way to the working tree, and with the book's address leading to `clone`."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MPLBACKEND")}
    rules = int(environment.get("GIT_CONFIG_COUNT", 0))
    return environment | {
        "GIT_CONFIG_COUNT": str(rules + 1),
        f"GIT_CONFIG_KEY_{rules}": f"url.{clone}.insteadOf",
        f"GIT_CONFIG_VALUE_{rules}": repository.configured().url,
    }


@pytest.fixture
def host(bare_host: Host) -> Iterator[Host]:
    """The bare environment, given back bare."""
    assert "posenc" not in bare_host.packages()
    yield bare_host
    bare_host.pip("uninstall", "--quiet", "--yes", "posenc")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A notebook of the bootstrap and one cell that says where the library came from."""
    first = bootstrap.first_code_cell(repository.configured())
    question = "from importlib.util import find_spec\n\nprint(find_spec('posenc') and find_spec('posenc').origin)"
    path = tmp_path / "sample.ipynb"
    files.write(new_notebook(cells=[new_code_cell(first), new_code_cell(question)]), path)
    return path


def test_the_environment_has_what_the_first_cell_finds_in_colab_and_no_more(bare_host: Host) -> None:
    packages = bare_host.packages()
    assert set(reader.PACKAGES) <= set(packages)
    assert not {"posenc", "pytest", "nbval", "timm", "scikit-learn"} & set(packages)


def test_first_cell_fetches_the_library_in_colab(host: Host, sample: Path) -> None:
    answer = host.run(sample).cells[1].outputs[0].text.strip()
    assert Path(answer).is_relative_to(host.folder)
    assert "posenc" in host.packages()


def test_first_cell_does_nothing_elsewhere(host: Host, sample: Path) -> None:
    ran = host.run(sample, in_colab=False)
    assert ran.cells[0].outputs == []
    assert ran.cells[1].outputs[0].text == "None\n"
    assert "posenc" not in host.packages()


def test_touching_a_package_of_the_host_would_be_seen(bare_host: Host) -> None:
    """The comparison below is worth something: even the same version, installed once more, makes a difference."""
    before = bare_host.fingerprints()
    version = bare_host.packages()["ipykernel"]
    bare_host.pip("install", "--quiet", "--no-compile", "--no-deps", "--force-reinstall", f"ipykernel=={version}")
    after = bare_host.fingerprints()
    assert [name for name in before if after[name] != before[name]] == [f"ipykernel-{version}.dist-info"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=files.name)
def test_notebook_runs_alone_and_leaves_the_host_as_it_was(host: Host, path: Path) -> None:
    packages, fingerprints = host.packages(), host.fingerprints()
    assert any(name.startswith("torch-") for name in fingerprints)
    host.run(path)
    after = host.packages()
    assert after.pop("posenc")
    assert after == packages
    assert host.fingerprints() == fingerprints
