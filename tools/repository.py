"""The repository's address: read it from `_config.yml`, change it everywhere (`make repository URL=…`)."""

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from tools import files

_ADDRESS = re.compile(r"https://github\.com/(?P<slug>[A-Za-z0-9-]+/[A-Za-z0-9._-]+)")
_BRANCH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class Repository:
    """`url` is https://github.com/OWNER/NAME without a closing slash or `.git`."""

    url: str
    branch: str = "main"

    def __post_init__(self) -> None:
        if not _ADDRESS.fullmatch(self.url) or self.url.endswith(".git"):
            raise ValueError(
                f"{self.url!r} is no address of a GitHub repository: "
                "write it as https://github.com/OWNER/NAME, without .git or a closing slash"
            )
        if not _BRANCH.fullmatch(self.branch):
            raise ValueError(f"{self.branch!r} is no name of a branch")

    @property
    def slug(self) -> str:
        return self.url.removeprefix("https://github.com/")

    @property
    def colab(self) -> str:
        return f"https://colab.research.google.com/github/{self.slug}"

    @property
    def pages(self) -> str:
        owner, name = self.slug.split("/")
        return f"https://{owner.lower()}.github.io/{name}"


def configured(root: Path = files.ROOT) -> Repository:
    """The address in `_config.yml`, the one place where it is decided."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return Repository(settings["url"], settings["branch"])


def text_files(root: Path = files.ROOT) -> list[Path]:
    """Every text file that git tracks or would track."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    if listed.returncode:
        raise ValueError(f"{root} is not a git checkout, so its files cannot be listed: {listed.stderr.strip()}")
    paths = [root / line for line in sorted(set(listed.stdout.split("\0"))) if line]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8192]]


def moved(text: str, old: Repository, new: Repository) -> str:
    """`text` with the old address, and the branch where it belongs to that address, replaced by the new."""
    for before, after in ((old.url, new.url), (old.colab, new.colab)):
        branch = rf"(?P<between>@|/(?:blob|tree|raw|edit)/){re.escape(old.branch)}(?![\w.-])"
        text = re.sub(re.escape(before) + branch, rf"{after}\g<between>{new.branch}", text)
    for before, after in ((old.url, new.url), (old.colab, new.colab), (old.pages, new.pages)):
        text = re.sub(re.escape(before) + r"(?![\w-])", after, text)
    return text


def strays(text: str, repository: Repository) -> list[str]:
    """Addresses in `text` that look like this book's and are not the configured one (`make repository URL=…` apart)."""
    text = re.sub(r"\bURL=\S+", "", text)
    name = re.escape(repository.slug.split("/")[1])
    book = re.findall(rf"github\.com/([\w.-]+/(?:{name}|from-sets-to-sequences))(?![\w-])", text)
    colab = re.findall(r"colab\.research\.google\.com/github/([\w.-]+/[\w.-]+)", text)
    branches = re.findall(rf"{re.escape(repository.colab)}/blob/(.+?)/(?:{'|'.join(files.FOLDERS)})/", text)
    branches += re.findall(rf"git\+{re.escape(repository.url)}@([\w./-]+)", text)
    wrong = [slug for slug in book + colab if slug != repository.slug]
    return wrong + [f"{repository.slug} on branch {branch}" for branch in branches if branch != repository.branch]


def _move_notebook(path: Path, old: Repository, new: Repository) -> bool:
    """Change the sources only: an output is what a run printed, and no run prints the address."""
    notebook = files.read(path)
    sources = [cell.source for cell in notebook.cells]
    for cell in notebook.cells:
        cell.source = moved(cell.source, old, new)
    if changed := sources != [cell.source for cell in notebook.cells]:
        files.write(notebook, path)
    return changed


def _move_text(path: Path, old: Repository, new: Repository) -> bool:
    text = path.read_bytes().decode("utf-8")
    result = moved(text, old, new)
    if path.name == "_config.yml":
        result = re.sub(r"(?m)^(\s+branch:\s*)\S+", rf"\g<1>{new.branch}", result)
    if result != text:
        files.write_text(result, path)
    return result != text


def move(new: Repository, root: Path = files.ROOT) -> list[Path]:
    """Write the new address wherever the configured one stands, and return the files that changed."""
    old = configured(root)
    changed = []
    for path in text_files(root):
        change = _move_notebook if path.suffix == ".ipynb" else _move_text
        try:
            if change(path, old, new):
                changed.append(path)
        except UnicodeDecodeError:
            continue  # an image or a font without a zero byte near its start
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="https://github.com/OWNER/NAME (left out: print the address)")
    parser.add_argument("--branch", default="main", help="the branch that Colab opens (main)")
    arguments = parser.parse_args()
    try:
        if not arguments.url:
            print(configured().url, configured().branch)
            return 0
        new = Repository(arguments.url.strip().rstrip("/").removesuffix(".git"), arguments.branch)
        changed = move(new)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in changed:
        print(files.name(path))
    print(f"{len(changed)} files now say {new.url} ({new.branch})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
