"""The autograder archive, run in a clean folder that is laid out as Gradescope's documentation says."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from posenc import __main__
from posenc.checks.registry import exercises_of

ROOT = Path(__file__).resolve().parent.parent
MASTER = ROOT / "solutions" / "01_a_set_not_a_sequence.ipynb"

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture(scope="module")
def autograder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Gradescope builds from the archive: source, a copy of run_autograder, results, and a submission."""
    folder = tmp_path_factory.mktemp("autograder")
    archive = folder / "autograder.zip"
    assert __main__.main(["gradescope-zip", "--chapter", "1", "--seed", "7", "--out", str(archive)]) == 0
    subprocess.run([sys.executable, "-m", "zipfile", "-e", archive, folder / "source"], check=True)
    shutil.copy(folder / "source" / "run_autograder", folder / "run_autograder")
    (folder / "run_autograder").chmod(0o755)
    (folder / "results").mkdir()
    (folder / "submission").mkdir()
    shutil.copy(MASTER, folder / "submission" / "my homework (1).ipynb")
    return folder


def run(folder: Path) -> subprocess.CompletedProcess:
    environment = {"PATH": os.environ["PATH"], "POSENC_PYTHON": sys.executable}
    return subprocess.run([folder / "run_autograder"], cwd=folder, env=environment, capture_output=True, text=True)


def test_scripts_are_at_the_root_and_executable(autograder):
    with zipfile.ZipFile(autograder / "autograder.zip") as archive:
        for name in ("setup.sh", "run_autograder"):
            assert archive.getinfo(name).external_attr >> 16 & 0o111
            assert archive.read(name).startswith(b"#!/usr/bin/env bash\n")
            subprocess.run(["bash", "-n"], input=archive.read(name), check=True)
        assert "posenc/checks/chapter_01.py" in archive.namelist()
        assert not [name for name in archive.namelist() if "__pycache__" in name]


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("there", ["python3.11-venv python3.12-venv", ""])
def test_setup_takes_the_newest_python_that_will_do_or_says_that_there_is_none(autograder, tmp_path, there):
    """Run in the folder as it lies there, with stand-ins for what it calls: they write down how they are called."""
    log, programs, home = tmp_path / "log", tmp_path / "programs", tmp_path / "home"
    programs.mkdir()
    program(programs / "apt-get", f'echo "apt-get $*" >> {log}')
    program(programs / "apt-cache", f'case " {there} " in *" $2 "*) ;; *) exit 1 ;; esac')
    program(programs / "pip", f'echo "pip $*" >> {log}')
    make = f'echo "venv $3" >> {log}; mkdir -p "$3/bin"; cp {programs}/pip "$3/bin/python"'
    program(programs / "python3.12", make)
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "POSENC_HOME": str(home)}
    done = subprocess.run(["bash", autograder / "source" / "setup.sh"], env=environment, capture_output=True, text=True)
    assert "apt-get install --yes --no-install-recommends bubblewrap" in log.read_text()
    if not there:
        assert done.returncode == 1
        assert "Python 3.11 or newer" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    needed = autograder / "source" / "requirements.txt"
    assert log.read_text().splitlines()[-3:] == [
        "apt-get install --yes --no-install-recommends python3.12 python3.12-venv",
        f"venv {home}",
        f"pip -m pip install --quiet -r {needed}",
    ]
    assert {line.partition("==")[0] for line in needed.read_text().split()} >= {"torch", "numpy"}


def test_a_submission_gets_its_results(autograder):
    done = run(autograder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "correct\n"
    result = json.loads((autograder / "results" / "results.json").read_text())
    assert result["score"] == sum(e.points for e in exercises_of(1))
    assert [test["name"] for test in result["tests"]] == [e.name for e in exercises_of(1)]
    assert {test["status"] for test in result["tests"]} == {"passed"}
    assert result["extra_data"]["walls"] == "bubblewrap"


def test_where_the_grader_fails_there_is_no_result_and_no_zero(autograder):
    (autograder / "results" / "results.json").unlink(missing_ok=True)
    (autograder / "source" / "settings.json").rename(autograder / "source" / "gone.json")
    try:
        done = run(autograder)
    finally:
        (autograder / "source" / "gone.json").rename(autograder / "source" / "settings.json")
    assert done.returncode == 1
    assert "no mark: " in done.stdout
    assert not (autograder / "results" / "results.json").exists()


def test_a_chapter_that_does_not_exist_is_said(capsys, tmp_path):
    arguments = ["gradescope-zip", "--chapter", "99", "--seed", "7", "--out", str(tmp_path / "a.zip")]
    assert __main__.main(arguments) == 2
    assert "chapter 99 has no exercises" in capsys.readouterr().err
