"""Says whether this machine can run the book's notebooks, and how to mend what is missing.

It must work where nothing else does, so it needs the standard library only and never lets an import fail loudly.
"""

from __future__ import annotations  # an older Python must get as far as being told that it is too old

import argparse
import importlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata, util
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Literal

import posenc

PYTHON = (3, 11)
NEEDED = ("numpy", "torch", "matplotlib", "ipython")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

Verdict = Literal["ok", "missing", "note"]


@dataclass(frozen=True)
class Finding:
    """One line of the report. `missing` keeps the notebooks from running, `note` does not."""

    verdict: Verdict
    subject: str
    says: str
    mend: str = ""


def reader() -> Iterator[Finding]:
    """What running the notebooks takes."""
    yield python()
    oldest = supported()
    for package in NEEDED:
        yield needed(package, oldest.get(package, ""))
    yield for_chapter_13(needed("transformers", oldest.get("transformers", "")))
    yield library()
    yield device()
    yield Finding("ok", "Colab", "yes" if in_colab() else "no")


def contributor() -> Iterator[Finding]:
    """What building and testing the book takes besides."""
    version = installed("jupyter-book")
    mend = "" if version else "make book"
    yield Finding("ok" if version else "note", "jupyter-book", version or "not installed", mend)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    mend = "" if browser else "apt-get install chromium"
    yield Finding("ok" if browser else "note", "chromium", browser or "not found", mend)
    git = shutil.which("git")
    yield Finding("ok" if git else "note", "git", git or "not found", "" if git else "apt-get install git")


def python() -> Finding:
    version = platform.python_version()
    if sys.version_info < PYTHON:
        return Finding("missing", "Python", version, f"install Python {_dotted(PYTHON)} or newer")
    return Finding("ok", "Python", version)


def supported() -> dict[str, str]:
    """The oldest version that the book supports of each package that it names.

    Declared in the pyproject.toml of a checkout, and in what an installation noted; empty where neither is there.
    """
    path = _folder().parent / "pyproject.toml"
    if path.is_file() and sys.version_info >= PYTHON:
        import tomllib  # which an older Python lacks

        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        declared = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    elif installed("posenc"):
        declared = metadata.requires("posenc") or []
    else:
        declared = []
    ranges = (re.match(r"([\w-]+) *>= *([\d.]+)", each) for each in declared)
    return {found[1]: found[2] for found in ranges if found}


def needed(package: str, oldest: str) -> Finding:
    """Whether a package is there, importable and, if `oldest` is not empty, new enough."""
    version = installed(package)
    requirement = f'"{package}>={oldest}"' if oldest else package
    if version is None:
        return Finding("missing", package, "not installed", f"python -m pip install {requirement}")
    if older(version, oldest):
        mend = f"python -m pip install --upgrade {requirement}"
        return Finding("missing", package, f"{version} is older than {oldest}", mend)
    module = imported("IPython" if package == "ipython" else package)
    if isinstance(module, str):
        mend = f"python -m pip install --force-reinstall {requirement}"
        return Finding("missing", package, f"{version} is there, but does not import: {module}", mend)
    return Finding("ok", package, version)


def for_chapter_13(finding: Finding) -> Finding:
    """What one chapter needs keeps nobody from the others."""
    if finding.verdict == "ok":
        return finding
    return replace(finding, verdict="note", says=f"{finding.says}; only chapter 13 needs it")


def library() -> Finding:
    """Which posenc Python finds: the files of a checkout, or a copy that an installation made."""
    folder = _folder()
    checkout = (folder.parent / "pyproject.toml").is_file()
    says = f"{posenc.__version__}, {'the checkout' if checkout else 'an installed copy'} in {folder}"
    if checkout and installed("posenc") is None:
        return Finding("note", "posenc", f"{says}, found from this folder only", "python -m pip install --no-deps -e .")
    return Finding("ok", "posenc", says)


def device() -> Finding:
    """Where the notebooks would compute. The book uses a GPU only through CUDA."""
    torch = imported("torch")
    if isinstance(torch, str):
        return Finding("note", "device", f"unknown without torch; {os.cpu_count()} processors")
    cpu = f"CPU, {torch.get_num_threads()} threads on {os.cpu_count()} processors"
    if torch.cuda.is_available():
        return Finding("ok", "device", f"CUDA: {torch.cuda.get_device_name(0)}; {cpu}")
    mps = getattr(torch.backends, "mps", None)
    seen = "; Apple's MPS is here, but lacks float64, so the book does not use it" if mps and mps.is_available() else ""
    return Finding("ok", "device", cpu + seen)


def in_colab() -> bool:
    """In a cell the package is imported; a command started from a cell finds the variable of the runtime."""
    return "google.colab" in sys.modules or "COLAB_RELEASE_TAG" in os.environ


def installed(package: str) -> str | None:
    """The version of an installed distribution."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def imported(module: str) -> ModuleType | str:
    """The module, or in words why it cannot be had."""
    try:
        if util.find_spec(module) is None:
            return "not found"
        return importlib.import_module(module)
    except Exception as error:  # a broken package may raise anything
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def older(version: str, oldest: str) -> bool:
    """Whether a version comes before `oldest`. None comes before an empty one."""
    return _numbers(version) < _numbers(oldest)


def _folder() -> Path:
    return Path(posenc.__file__).resolve().parent


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def report(title: str, findings: list[Finding]) -> str:
    lines = [title]
    for finding in findings:
        lines.append(f"  {finding.verdict:<8}{finding.subject:<13} {finding.says}")
        if finding.mend:
            lines.append(f"          to mend it:   {finding.mend}")
    return "\n".join(lines)


def main(_: argparse.Namespace | None = None) -> int:
    """Print the report. Returns 0 if a reader can run the notebooks, else 1."""
    reading = list(reader())
    print(report("To run the notebooks", reading))
    print()
    print(report("To build and test the book", list(contributor())))
    able = all(finding.verdict != "missing" for finding in reading)
    print()
    print("The notebooks can run here." if able else "The notebooks cannot run here yet.")
    return 0 if able else 1
