"""Each page says what may run in it; whatever else gets into it does not run."""

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.test_browser import browser, playwright
from tools.files import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import policy

__all__ = ["browser", "playwright"]

ADD_SCRIPT = """() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", `<img src="data:," onerror="window.ran = true">`);
    return new Promise((resolve) => setTimeout(() => resolve(window.ran ?? false), 200));
}"""


def test_every_page_has_the_policy_before_anything_that_loads(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        html = page.read_text(encoding="utf-8")
        if "<head>" in html:
            first = re.search(r"<head>\s*<(\w+ http-equiv=\S+)", html)
            assert first, page
            assert first[1] == 'meta http-equiv="Content-Security-Policy"'
            assert html.count("Content-Security-Policy") == 1


@pytest.mark.slow
def test_a_script_that_was_not_built_in_does_not_run(browser: Browser, base_url: str) -> None:
    page = browser.new_page(base_url=base_url)
    page.goto("chapters/08_rotary.html")
    assert page.locator(".explorable").first.is_visible(), "those that were built in do"
    assert page.evaluate(ADD_SCRIPT) is False
    page.close()
    without = browser.new_page()
    without.set_content("<title>no policy</title>")
    assert without.evaluate(ADD_SCRIPT) is True, "the same without a policy"
    without.close()


PAGE = """<html><head>
<meta charset="utf-8"><script>a()</script><script type="application/json">{"b": 1}</script>
<script src="c.js"></script></head><body><button onclick="d(&quot;x&quot;)">d</button></body></html>"""


def test_scripts_are_found_wherever_they_stand() -> None:
    assert policy.scripts(PAGE) == {"a()"}
    assert policy.handlers(PAGE) == {'d("x")'}


def test_one_policy_first_of_all_however_often_it_is_built() -> None:
    once = policy.with_policy(PAGE, policy.handlers(PAGE))
    assert policy.with_policy(once, policy.handlers(PAGE)) == once
    assert once.index("Content-Security-Policy") < once.index("charset") < once.index("a()")
    assert once.count("'sha256-") == 2
    assert policy.with_policy(PAGE.replace("a()", "other()"), policy.handlers(PAGE)) != once
