"""`python -m posenc doctor` tells a reader whether the notebooks can run, also where almost nothing is installed."""

import itertools
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from posenc import __main__, doctor

ROOT = Path(__file__).resolve().parent.parent


def test_environment_of_the_tests_is_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert f"torch         {metadata.version('torch')}" in printed
    assert "threads on" in printed
    assert printed.endswith("The notebooks can run here.\n")


def test_bare_python_gets_one_mending_line_for_each_package_and_no_traceback() -> None:
    """`-S` hides every installed package, as on a computer where Python was installed a minute ago."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-S", "-m", "posenc", "doctor"]
    bare = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert bare.returncode == 1
    assert bare.stderr == ""
    for package in doctor.NEEDED:
        assert f'to mend it:   python -m pip install "{package}>=' in bare.stdout
    assert "device        unknown without torch" in bare.stdout


def verdicts() -> dict[str, doctor.Finding]:
    return {finding.subject: finding for finding in doctor.reader()}


def test_one_missing_package_is_enough_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    missing = [finding.subject for finding in verdicts().values() if finding.verdict == "missing"]
    assert missing == ["matplotlib"]
    assert doctor.main() == 1


def test_package_that_is_too_old_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "1.25.2" if name == "numpy" else real(name))
    oldest = declared()["numpy"]
    numpy = verdicts()["numpy"]
    assert (numpy.verdict, numpy.says) == ("missing", f"1.25.2 is older than {oldest}")
    assert numpy.mend == f'python -m pip install --upgrade "numpy>={oldest}"'
    monkeypatch.setattr(metadata, "version", lambda name: f"{oldest}+cpu" if name == "numpy" else real(name))
    assert verdicts()["numpy"].verdict == "ok"


def declared() -> dict[str, str]:
    """The lower bounds in pyproject.toml, read as TOML."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    return dict(each.split(">=") for each in listed if ">=" in each)


def test_what_is_old_is_declared_once_and_known_to_a_checkout_and_to_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.supported() == declared()
    assert {*doctor.NEEDED, "transformers"} == declared().keys()
    copy = tmp_path / "posenc" / "__init__.py"
    monkeypatch.setattr(doctor.posenc, "__file__", str(copy))
    assert doctor.supported() == declared(), "what the installation of the checkout noted"
    noted = ["numpy>=7.5", 'ipython>=8; extra == "grade"', "tqdm"]
    monkeypatch.setattr(metadata, "requires", lambda _: noted)
    assert doctor.supported() == {"numpy": "7.5", "ipython": "8"}
    monkeypatch.setattr(doctor, "installed", lambda _: None)
    assert doctor.supported() == {}
    assert doctor.needed("numpy", "").mend == "python -m pip install numpy"


def test_the_oldest_python_is_the_declared_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == f">={'.'.join(map(str, doctor.PYTHON))}"


@pytest.mark.parametrize("version", [None, "4.57.1"])
def test_what_one_chapter_needs_keeps_nobody_from_the_others(
    version: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: version if name == "transformers" else real(name))
    finding = verdicts()["transformers"]
    assert finding.verdict == "note"
    assert finding.says.endswith("; only chapter 13 needs it")
    assert "transformers>=" in finding.mend
    assert doctor.main() == 0


def test_package_that_is_there_but_broken_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so: cannot open shared object file\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    torch = verdicts()["torch"]
    assert torch.verdict == "missing"
    assert torch.says.endswith("does not import: OSError: libcudart.so: cannot open shared object file")


def test_python_that_is_too_old_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PYTHON", (99, 0))
    first = next(doctor.reader())
    assert (first.subject, first.verdict) == ("Python", "missing")


def test_tools_of_contributors_are_never_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    findings = {finding.subject: finding for finding in doctor.contributor()}
    assert findings["git"].verdict == findings["chromium"].verdict == "note"
    assert findings["chromium"].mend == "apt-get install chromium"
    assert doctor.main() == 0


def test_checkout_is_told_from_an_installed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the checkout in" in doctor.library().says
    monkeypatch.setattr(doctor.posenc, "__file__", str(tmp_path / "posenc" / "__init__.py"))
    assert "an installed copy in" in doctor.library().says


@pytest.mark.parametrize(("variable", "answer"), [("COLAB_RELEASE_TAG", "yes"), ("ANOTHER", "no")])
def test_colab_is_recognised(variable: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "release-1")
    assert verdicts()["Colab"].says == answer
