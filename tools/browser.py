"""The browser that tests, prints and measures the site: the machine's own Chromium, without a network."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Playwright, sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
MISSING = f"no browser: none of {', '.join(CHROMIUM)} is installed (on Debian: apt-get install chromium)"
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def executable() -> str | None:
    """Path of the installed Chromium, None if there is none."""
    return next(filter(None, map(shutil.which, CHROMIUM)), None)


def launch(playwright: Playwright) -> Browser:
    """A running browser that reaches this machine alone. Raises FileNotFoundError if none is installed."""
    path = executable()
    if path is None:
        raise FileNotFoundError(MISSING)
    bars = ["--hide-scrollbars"]  # Playwright hides scroll bars; most readers at a desk see them
    return playwright.chromium.launch(executable_path=path, args=SWITCHES, ignore_default_args=bars)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser with a Playwright of its own."""
    with sync_playwright() as playwright, launch(playwright) as browser:
        yield browser


def required() -> bool:
    """Whether a missing browser is a failure: so on a machine that tests, not on a reader's."""
    return bool(os.environ.get("CI"))
