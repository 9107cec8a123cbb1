"""Ask every address of another site whether it is still there (`make links`).

Pages, notebooks and the library's own documentation name papers, source files and tools. Here they are listed as one
page, and Sphinx's `linkcheck` asks for each: it tries again, waits where a site wants it, and follows redirects. What
is not asked stands in `tools/links.toml`. The book's own links are checked where the site is built and tested.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools import files, repository

EXCLUDED = files.ROOT / "tools" / "links.toml"
# Where a reader meets addresses. Tests and tools make some up.
PLACES = ("*.md", "CITATION.cff", "LICENSE-TEXT", "book/*.md", "book/*.toml", "posenc/*.py", "posenc/*.js")
_ADDRESS = re.compile(r"(?<!git\+)https?://[^\s<>\"'`()\[\]|\\,*]+")
_SETTINGS = """\
extensions = ["myst_parser"]
linkcheck_retries = 3
linkcheck_timeout = 30
linkcheck_report_timeouts_as_broken = True
linkcheck_allow_unauthorized = False
"""


@dataclass(frozen=True)
class Broken:
    """An address that did not answer well, what happened, and the files that name it."""

    address: str
    why: str
    places: list[str]

    def __str__(self) -> str:
        return f"{self.address}\n    {self.why}\n    in {', '.join(self.places)}"


def addresses(text: str) -> list[str]:
    """The addresses that a text names, without the stop of the sentence. Patterns with a `{place}` are none."""
    found = (each.group().rstrip(".:;!?") for each in _ADDRESS.finditer(text))
    return [each for each in found if "{" not in each]


def sources() -> list[Path]:
    """The files whose addresses are asked. Exercises are made from solutions, and not looked at again."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PLACES]
    listed = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    pages = [files.ROOT / name for name in listed if name and not name.startswith("tests/")]
    return [path for path in pages if path.is_file()] + files.notebooks(folders=("chapters", "solutions"))


def named(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Each address with the files that name it."""
    places: dict[str, list[str]] = {}
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            text = "\n".join(cell.source for cell in files.read(path).cells)
        for address in dict.fromkeys(addresses(text)):
            places.setdefault(address, []).append(files.name(path))
    return places


def exclusions(path: Path = EXCLUDED) -> dict[str, str]:
    """Patterns of addresses that are not asked, with the reason. ValueError for one without a reason."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["excluded"]
    for each in listed:
        if len(each.get("reason", "").split()) < 3:
            raise ValueError(f"{path.name}: say in a few words why {each['pattern']} is not asked")
    patterns = {each["pattern"]: each["reason"] for each in listed}
    if "/OWNER/" in repository.configured().url:  # until the book has an address, its own pages are nowhere
        patterns[re.escape(repository.configured().url)] = "a placeholder, until the book has an address"
    return patterns


def asked(places: Mapping[str, list[str]], patterns: Iterable[str]) -> list[str]:
    """The addresses that no pattern takes out. ValueError for a pattern that takes out none."""
    compiled = [re.compile(pattern) for pattern in patterns]
    for pattern in compiled:
        if not any(map(pattern.match, places)):
            raise ValueError(f"no address begins with {pattern.pattern}: remove it from the exclusions")
    return sorted(address for address in places if not any(pattern.match(address) for pattern in compiled))


def broken(places: Mapping[str, list[str]], patterns: Iterable[str]) -> list[Broken]:
    """Ask, and return what did not answer well."""
    with tempfile.TemporaryDirectory() as folder:
        source, results = Path(folder, "source"), Path(folder, "results")
        source.mkdir()
        (source / "conf.py").write_text(_SETTINGS, encoding="utf-8")
        listed = [f"* <{address}>" for address in asked(places, patterns)]
        (source / "index.md").write_text("\n".join(["# Links", "", *listed, ""]), encoding="utf-8")
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "linkcheck", source, results]
        done = subprocess.run(command, capture_output=True, text=True)
        if not (results / "output.json").is_file():
            raise RuntimeError(f"Sphinx could not ask:\n{done.stderr}")
        answers = [json.loads(line) for line in (results / "output.json").read_text(encoding="utf-8").splitlines()]
    if len(answers) != len(listed):
        raise RuntimeError(f"{len(listed)} addresses to ask, {len(answers)} answers:\n{done.stdout}{done.stderr}")
    bad = [each for each in answers if each["status"] not in ("working", "redirected")]
    return [Broken(each["uri"], f"{each['status']}: {each['info']}", places[each["uri"]]) for each in bad]


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    places, patterns = named(sources()), exclusions()
    problems = broken(places, patterns)
    for problem in problems:
        print(problem)
    print(f"{len(asked(places, patterns))} addresses asked, {len(problems)} did not answer well")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
