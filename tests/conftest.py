"""The built site as fixtures: `site` (its folder), `page` (each page of the book in turn), `base_url` (it, served)."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tools import site_toc
from tools.files import ROOT


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test (or a fixture of it) that asks for `page` runs once for each page of the book."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", site_toc.pages(), scope="module")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built anew from the working tree as strictly as `make book` does, once a test run."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # all workers share one build
    folder = shared / "book"
    with FileLock(shared / "book.lock"):
        if not (folder / "built").is_file():
            build_strictly(folder)
            (folder / "built").touch()
    return folder / "_build" / "html"


def build_strictly(folder: Path) -> None:
    jupyter_book = Path(sys.executable).with_name("jupyter-book")
    strictly = ["-W", "-n", "--keep-going", "--all"]
    command = [jupyter_book, "build", ROOT, *strictly, "--path-output", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.fail(f"the book does not build:\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}", pytrace=False)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def base_url(site: Path) -> Iterator[str]:
    """Address at which the site is served on this machine."""
    handler = functools.partial(QuietHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each page weighs on a first visit, as the browser tests measured it."""
    reports = [report for group in ("passed", "failed") for report in terminalreporter.getreports(group)]
    weights = {value for report in reports for name, value in report.user_properties if name == "page weight"}
    if weights:
        terminalreporter.section("weight of a first visit, gzipped")
        for weight in sorted(weights, reverse=True):
            terminalreporter.write_line(weight)
