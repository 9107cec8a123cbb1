"""`make links` asks every address of another site, and says which did not answer well. Here a small server answers."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import files, links

PRESENT, MOVED, GONE, PRIVATE, LEFT_OUT = "/here", "/moved", "/gone", "/private", "/left-out"
STATUS = {PRESENT: 200, MOVED: 302, GONE: 404, PRIVATE: 401, LEFT_OUT: 500}


@pytest.fixture
def server() -> Iterator[tuple[str, set[str]]]:
    """Another site's address, and the paths that it was asked for."""
    seen = set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.add(self.path)
            self.send_response(STATUS[self.path])
            self.send_header("Location", PRESENT)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{site.server_port}", seen
        site.shutdown()
        thread.join()


def test_what_is_gone_is_named_with_its_page_and_what_is_excluded_is_not_asked(
    server: tuple[str, set[str]],
) -> None:
    address, seen = server
    places = {address + path: ["README.md"] for path in STATUS}
    places[address + GONE] = ["README.md", "chapters/01_a_set_not_a_sequence.ipynb"]
    problems = {each.address: str(each) for each in links.broken(places, [r".*/left-out"])}
    assert problems.keys() == {address + GONE, address + PRIVATE}
    assert "404" in problems[address + GONE]
    assert problems[address + GONE].endswith("in README.md, chapters/01_a_set_not_a_sequence.ipynb")
    assert seen == {PRESENT, MOVED, GONE, PRIVATE}


def test_the_command_fails_if_and_only_if_something_is_gone(
    server: tuple[str, set[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    address, _ = server
    page = tmp_path / "page.md"
    monkeypatch.setattr("sys.argv", ["links"])
    monkeypatch.setattr(links, "sources", lambda: [page])
    monkeypatch.setattr(links, "exclusions", dict)
    page.write_text(f"See [this]({address}{PRESENT}).")
    assert links.main() == 0
    assert capsys.readouterr().out == "1 addresses asked, 0 did not answer well\n"
    page.write_text(f"See {address}{GONE}.")
    assert links.main() == 1
    assert f"{address}{GONE}\n    broken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("See [a](https://a.org/b), [c](https://c.org/d_e).", ["https://a.org/b", "https://c.org/d_e"]),
        ("At https://a.org/b. And <https://c.org/#d>", ["https://a.org/b", "https://c.org/#d"]),
        ('x = "https://a.org/b?c=d%2Fe", `https://c.org`', ["https://a.org/b?c=d%2Fe", "https://c.org"]),
        ("%pip install git+https://a.org/b@main", []),
        ('f"https://a.org/{name}/b"', []),
        ("no address: a.org, ftp://a.org", []),
    ],
)
def test_addresses_are_found_in_markdown_code_and_text(text: str, found: list[str]) -> None:
    assert links.addresses(text) == found


def test_notebooks_are_read_cell_by_cell(tmp_path: Path) -> None:
    """As JSON, a line's end would be part of an address."""
    cells = [{"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["https://a.org/b\n", "next"]}]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    assert links.named([path]) == {"https://a.org/b": [str(path)]}


def test_every_exclusion_has_a_reason_and_takes_something_out() -> None:
    places = links.named(links.sources())
    left = links.asked(places, links.exclusions())
    assert 100 < len(left) < len(places)
    assert any("arxiv.org" in address for address in left)
    covered = {name for address in left for name in places[address]}
    assert {"THIRD_PARTY.md", "book/teaching.md", "posenc/production.py"} <= covered
    assert {files.name(path) for path in files.notebooks(folders=("chapters",))} <= covered


def test_an_exclusion_without_a_reason_or_without_an_address_is_refused(tmp_path: Path) -> None:
    listed = tmp_path / "links.toml"
    for reason in ("", 'reason = "flaky"'):
        listed.write_text(f"[[excluded]]\npattern = 'https://a'\n{reason}\n")
        with pytest.raises(ValueError, match="say in a few words why https://a is not asked"):
            links.exclusions(listed)
    with pytest.raises(ValueError, match=r"no address begins with https://b: remove it"):
        links.asked({"https://a.org": ["README.md"]}, ["https://b"])


def test_the_books_own_address_is_asked_once_it_has_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "links.toml"
    listed.write_text("excluded = []\n")
    moved = links.repository.Repository("https://github.com/ada/a-book", "main")
    for address, excluded in (
        (links.repository.configured(), "/OWNER/" in links.repository.configured().url),
        (moved, 0),
    ):
        monkeypatch.setattr(links.repository, "configured", lambda address=address: address)
        assert len(links.exclusions(listed)) == excluded
