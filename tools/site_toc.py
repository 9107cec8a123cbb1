"""The pages of the book, as `_toc.yml` names them."""

from collections.abc import Iterator

import yaml

from tools import files


def pages() -> list[str]:
    """Every page without its suffix (`book/intro`, `chapters/01_a_set_not_a_sequence`), in reading order."""
    toc = yaml.safe_load((files.ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return [toc["root"], *pages_below(toc)]


def pages_below(entry: dict) -> Iterator[str]:
    """The pages of a part of `_toc.yml`, or of a chapter and its sections."""
    if "file" in entry:
        yield entry["file"]
    for children in ("parts", "chapters", "sections"):
        for child in entry.get(children, []):
            yield from pages_below(child)
