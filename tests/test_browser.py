"""Every page of the book in a real browser without a network: light and dark, desk and phone, mouse and keyboard."""

import functools
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Playwright, Request, Route, sync_playwright

from tools import browser as installed
from tools import site_toc
from tools.repository import configured

pytestmark = pytest.mark.slow

PHONE = {"width": 375, "height": 800}
DESK = {"width": 1280, "height": 900}
FIRST_VISIT_LIMIT = 1_500_000
SINGLE_SIGNS = {"shortTextContent", "nonBmp"}  # why axe does not say whether their contrast is enough
# A copy button lies on a corner of some code: `test_site.py` computes the contrast of every colour of code. A drawing
# has a ground that axe does not see.
MATTERS = "target => !!document.querySelector(target)?.matches('article :not(pre, pre *, svg *)')"
OF_COLOUR = ["color-contrast", "link-in-text-block"]  # axe's rules
CHAPTER = "chapters/01_a_set_not_a_sequence"
SOLUTION = "solutions/01_a_set_not_a_sequence"

SETTLED = """async () => {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
    while (!("ready" in document.documentElement.dataset)) await new Promise(done => setTimeout(done, 10));
    const still = document.createElement("style");
    still.textContent =
        "* { transition: none !important; animation: none !important; content-visibility: visible !important }";
    document.head.append(still);
}"""
CHANGE_THEME = """() => {
    const place = () => [document.documentElement.scrollHeight, scrollY];
    const before = place();
    document.querySelector(".theme-switch-button").click();
    return [before, document.querySelectorAll("[data-away]").length, place()];
}"""
FIGURES = "() => [...document.querySelectorAll('article img')].map(picture => picture.src)"
UNSET_FORMULAS = """() => [...document.querySelectorAll("article .math")]
    .filter(box => !box.querySelector("mjx-container") || box.querySelector("mjx-merror, [data-mjx-error]"))
    .map(box => box.textContent.trim())"""
# Formulas in a line under which a scroll bar takes room.
BARRED_FORMULAS = """() => [...document.querySelectorAll("article span.math")]
    .filter(box => box.clientHeight && box.offsetHeight > box.clientHeight).map(box => box.textContent.slice(0, 40))"""
BEHEADED_FORMULAS = """() => [...document.querySelectorAll("article div.math")]
    .filter(box => box.querySelector("mjx-math")?.getBoundingClientRect().left < box.getBoundingClientRect().left - 1)
    .map(box => box.textContent.trim().slice(0, 80))"""
RAW_TEX = r"""() => {
    const seen = document.querySelector("article").cloneNode(true);
    seen.querySelectorAll("mjx-container, pre, code, script").forEach(part => part.remove());
    return seen.textContent.match(/\\[a-zA-Z]{2,}|\\\(|\$\$|\\begin\{/g) ?? [];
}"""
SEARCH_BOXES = """() => [...document.querySelectorAll(".search-button__button, form.bd-search")]
    .filter(box => box.checkVisibility() && box.getBoundingClientRect().width > 0).length"""
SPILLS = """() => {
    const spill = document.documentElement.scrollWidth - window.innerWidth;
    if (spill <= 0) return [];
    const wide = [...document.querySelectorAll("main *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
    return [`the page is ${spill} px too wide`, ...wide.slice(0, 5).map(e => e.outerHTML.slice(0, 120))];
}"""
ONE_TOKEN_OF_A_KIND = """() => {
    const seen = new Set();
    for (const token of document.querySelectorAll("article pre span[class]")) {
        const ground = [".cell_output", "details"].map(place => token.closest(place) !== null);
        const kind = [token.className, ...ground].join();
        if (seen.has(kind)) token.replaceWith(...token.childNodes);
        seen.add(kind);
    }
}"""
ONE_FORMULA_OF_A_KIND = """() => {
    const seen = new Set();
    for (const box of document.querySelectorAll("article .math")) {
        const kind = box.tagName + box.closest("details, blockquote, table, li, a, h2, h3, p, div")?.tagName;
        if (seen.has(kind)) box.remove();
        seen.add(kind);
    }
}"""
# What is not there at once when it is unfolded, and where the reader is, from a heading near the end.
FAINT = """() => [...document.querySelectorAll("article details > *")]
    .filter(part => getComputedStyle(part).opacity !== "1").map(part => part.outerHTML.slice(0, 80))"""
# Blocks that the browser may pass over: on the screen, or off it.
PASSED_OVER = """onScreen => [...document.querySelectorAll("article section > *")].filter(block => {
    const {top, bottom} = block.getBoundingClientRect();
    const passedOver = getComputedStyle(block).contentVisibility !== "visible";
    return passedOver && (top < innerHeight && bottom > 0) === onScreen;
}).map(block => block.outerHTML.slice(0, 80))"""
PLACE = "() => [...document.querySelectorAll('article h2')].at(-3).getBoundingClientRect().top"
FILTERED_PICTURES = """() => [...document.querySelectorAll("article img")]
    .filter(picture => getComputedStyle(picture).filter !== "none").map(picture => picture.src)"""


@dataclass
class Visit:
    """What happened on a first visit of a page, and the page itself, still open."""

    page: Page
    base_url: str
    complaints: list[str] = field(default_factory=list)
    addresses: set[str] = field(default_factory=set)

    def note_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"console {message.type}: {message.text}")

    def note_failure(self, request: Request) -> None:
        self.complaints.append(f"failed: {request.url} ({request.failure})")

    def note_request(self, request: Request) -> None:
        if not request.url.startswith("data:"):
            self.addresses.add(request.url)


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    if installed.executable() is None:
        pytest.fail(installed.MISSING) if installed.required() else pytest.skip(installed.MISSING)
    with installed.launch(playwright) as running:
        yield running


def open_page(browser: Browser, address: str, base_url: str) -> Visit:
    """Visit `address` as a new reader does, and wait until formulas and fonts are there."""
    tab = browser.new_page(viewport=DESK, color_scheme="light")
    visit = Visit(tab, base_url)
    tab.on("console", visit.note_console)
    tab.on("pageerror", lambda error: visit.complaints.append(f"script error: {error}"))
    tab.on("requestfailed", visit.note_failure)
    tab.on("request", visit.note_request)
    tab.on("response", lambda answer: answer.ok or visit.complaints.append(f"{answer.status}: {answer.url}"))
    tab.goto(base_url + address, wait_until="load")
    tab.evaluate(SETTLED)
    return visit


@pytest.fixture(scope="module")
def visit(browser: Browser, base_url: str, page: str) -> Iterator[Visit]:
    visit = open_page(browser, f"{page}.html", base_url)
    yield visit
    visit.page.close()


@pytest.fixture
def light(visit: Visit) -> Page:
    return lit(visit.page, "light", DESK)


@pytest.fixture
def dark(visit: Visit) -> Page:
    return lit(visit.page, "dark", DESK)


@pytest.fixture
def phone(visit: Visit) -> Page:
    return lit(visit.page, "light", PHONE)


def lit(page: Page, scheme: str, size: dict) -> Page:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(size)
    page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=scheme)
    return page


def at_rest(place: Locator) -> Locator:
    """`place` in view, and no longer moving: after a jump, the blocks around it are drawn and find their heights."""
    seen = []
    for _ in range(100):
        place.scroll_into_view_if_needed()
        place.page.wait_for_timeout(40)
        seen.append(place.bounding_box())
        if len(seen) >= 5 and all(box == seen[-1] for box in seen[-5:]):
            return place
    raise AssertionError(f"it moves on and on: {seen[-5:]}")


@pytest.fixture
def fresh(browser: Browser, base_url: str) -> Iterator[Page]:
    """A page of its own for a test that clicks and types."""
    tab = browser.new_page(viewport=DESK, base_url=base_url)
    yield tab
    tab.close()


# ---- each page, on a first visit


def test_page_loads_without_complaint(visit: Visit) -> None:
    assert visit.complaints == []


def test_page_asks_no_other_host(visit: Visit) -> None:
    assert {address for address in visit.addresses if not address.startswith(visit.base_url)} == set()


def test_first_visit_is_light(
    visit: Visit, page: str, site: Path, record_property: Callable[[str, object], None]
) -> None:
    addresses = visit.addresses | set(visit.page.evaluate(FIGURES))  # figures are loaded when a reader comes near
    files = {unquote(urlsplit(address).path).lstrip("/") for address in addresses}
    weight = sum(gzipped_size(site / file) for file in files)
    record_property("page weight", f"{weight / 1000:7.0f} kB  {page}")
    assert weight < FIRST_VISIT_LIMIT


@functools.cache
def gzipped_size(file: Path) -> int:
    return len(gzip.compress(file.read_bytes(), compresslevel=6))


def test_every_formula_is_typeset(light: Page) -> None:
    assert light.evaluate(UNSET_FORMULAS) == []
    assert light.evaluate(RAW_TEX) == []


def test_no_formula_in_a_line_has_a_scroll_bar(light: Page) -> None:
    assert light.evaluate(BARRED_FORMULAS) == []


def test_one_search_box_is_seen(light: Page) -> None:
    assert light.evaluate(SEARCH_BOXES) == 1


def test_one_search_box_is_seen_on_a_phone(phone: Page) -> None:
    assert phone.evaluate(SEARCH_BOXES) == 1


def test_nothing_is_wider_than_a_phone(phone: Page) -> None:
    """Wide formulas, tables and code scroll in their own box."""
    phone.evaluate("document.querySelectorAll('article details').forEach(details => details.open = true)")
    assert phone.evaluate(SPILLS) == []
    assert phone.evaluate(BEHEADED_FORMULAS) == []


def test_pictures_keep_their_colours_in_the_dark(dark: Page) -> None:
    assert dark.evaluate(FILTERED_PICTURES) == []


def test_page_is_accessible_in_the_light(light: Page) -> None:
    assert barriers(light) == []


def test_colours_are_accessible_in_the_dark(dark: Page, page: str) -> None:
    """Nothing but colours differs from the page in the light.

    What stands beside the text is the same on every page: the front page is looked at whole. An exercise is its
    solution's page with less on it. Of formulas in the same place one is enough.
    """
    if page.startswith("exercises/"):
        pytest.skip("all that it shows stands on the page of its solutions too")
    dark.evaluate(ONE_FORMULA_OF_A_KIND)
    part = None if page == site_toc.pages()[0] else "main"
    assert barriers(dark, part, runOnly=OF_COLOUR) == []


def barriers(page: Page, part: str | None = None, **options: object) -> list[str]:
    """Serious and critical violations that axe finds, contrast included, with all folded text open.

    A chapter has thousands of coloured words of code. One of each kind is enough, and four times as fast.
    Text whose contrast axe cannot find out is a barrier too, but for single signs and what the sidebar has scrolled
    out of sight.
    part: a selector, the whole page if left out. options: axe's own, https://github.com/dequelabs/axe-core/blob/develop/doc/API.md#options-parameter
    """
    page.evaluate("document.querySelectorAll('article details').forEach(details => details.open = true)")
    page.evaluate(ONE_TOKEN_OF_A_KIND)
    page.add_style_tag(content="* { content-visibility: visible !important }")  # as when a reader has come to it
    report = Axe().run(page, context=part, options={"resultTypes": ["violations", "incomplete"], **options}).response
    unknown = [
        f"{node['target'][0]}: contrast unknown ({node['any'][0]['message']})"
        for found in report["incomplete"]
        if found["id"] == "color-contrast"
        for node in found["nodes"]
        if node["any"][0]["data"]["messageKey"] not in SINGLE_SIGNS and page.evaluate(MATTERS, node["target"][0])
    ]
    return unknown + [
        f"{violation['id']}: {node['html'][:150]} ({node['failureSummary'].splitlines()[-1].strip()})"
        for violation in report["violations"]
        if violation["impact"] in {"serious", "critical"}
        for node in violation["nodes"]
    ]


def test_the_tests_of_a_page_can_fail(fresh: Page) -> None:
    fresh.set_viewport_size(PHONE)
    fresh.set_content(
        """<main><article style="width: 900px; background: white"><p style="color: #ccc">pale</p><a href="#"></a>
        <p class="math">\\(\\frac12\\)</p>
        <span class="math" style="display: inline-block; max-width: 9px; overflow: auto">wide</span>
        <p style="background: linear-gradient(red, blue)">on many colours</p>
        <img src="data:," style="filter: invert(1)"></article></main>
        <button class="search-button__button">Search</button><form class="bd-search"><input></form>"""
    )
    assert len(fresh.evaluate(UNSET_FORMULAS)) == 2
    assert fresh.evaluate(BARRED_FORMULAS) == ["wide"]
    assert fresh.evaluate(RAW_TEX) != []
    assert fresh.evaluate(SEARCH_BOXES) == 2
    assert fresh.evaluate(SPILLS) != []
    assert len(fresh.evaluate(FILTERED_PICTURES)) == 1
    assert {barrier.split(":")[0] for barrier in barriers(fresh)} >= {"color-contrast", "link-name", "image-alt"}
    of_colour = barriers(fresh, runOnly=OF_COLOUR)
    assert any("contrast unknown" in barrier for barrier in of_colour)
    assert {barrier.split(":")[0] for barrier in of_colour if "unknown" not in barrier} == {"color-contrast"}


def test_a_missing_file_and_a_foreign_host_are_noticed(browser: Browser, base_url: str) -> None:
    visit = open_page(browser, "search.html", base_url)
    visit.page.evaluate("""() => Promise.all(["missing.png", "https://elsewhere.example/far.png"].map(
        source => new Promise(done => Object.assign(new Image(), {onerror: done, src: source}))))""")
    visit.page.close()
    assert any("missing.png" in complaint for complaint in visit.complaints)
    assert {address for address in visit.addresses if not address.startswith(base_url)} == {
        "https://elsewhere.example/far.png"
    }


# ---- what a reader does


def test_search_finds_the_chapter_while_one_types(fresh: Page) -> None:
    fresh.goto("book/intro.html")
    fresh.keyboard.press("Control+k")
    fresh.keyboard.type("equivariance", delay=10)
    result = fresh.locator(f'#pst-search-dialog #search-results a[href*="{CHAPTER}"]').first
    result.wait_for()
    assert barriers(fresh, "#pst-search-dialog") == []
    assert barriers(fresh, rules={"color-contrast": {"enabled": False}}) == []  # it dims the page behind it
    result.click()
    assert CHAPTER in fresh.url


def test_the_page_for_the_lost_leads_on_from_any_depth(fresh: Page, site: Path) -> None:
    """As a web host serves it: below the repository's name, for any address that is not there."""
    root = f"{urlsplit(configured().pages).path}/"

    def answer(route: Route) -> None:
        path = unquote(urlsplit(route.request.url).path)
        if (file := site / path.removeprefix(root)).is_file() and path.startswith(root):
            route.fulfill(path=file)
        else:
            route.fulfill(status=404, path=site / "404.html")

    fresh.route("http://book.invalid/**", answer)
    fresh.goto(f"http://book.invalid{root}chapters/deep/nowhere.html")
    assert fresh.locator(".doors svg:visible").count() == 1
    assert barriers(fresh) == []
    fresh.locator("article input[name=q]").fill("equivariance")
    fresh.keyboard.press("Enter")
    fresh.locator(f'#search-results a[href*="{CHAPTER}"]').first.wait_for()
    assert urlsplit(fresh.url).path == f"{root}search.html"


def test_search_page_finds_the_chapter(fresh: Page) -> None:
    fresh.goto("search.html?q=equivariance")
    fresh.locator(f'#search-results a[href*="{CHAPTER}"]').first.wait_for()
    assert fresh.evaluate(SEARCH_BOXES) == 1
    assert barriers(fresh) == []
    assert barriers(lit(fresh, "dark", DESK)) == []


def test_enter_unfolds_a_solution_and_folds_it_again(fresh: Page) -> None:
    fresh.goto(f"{SOLUTION}.html")
    summary = fresh.locator("details.hide > summary").first
    code = fresh.locator("details.hide pre").first
    assert not code.is_visible()
    summary.focus()
    fresh.keyboard.press("Enter")
    assert code.is_visible()
    assert fresh.evaluate(FAINT) == []  # at once, and not by and by
    fresh.keyboard.press("Enter")
    assert not code.is_visible()


def test_tab_reaches_what_is_folded_and_shows_where_it_is(fresh: Page) -> None:
    fresh.goto(f"{SOLUTION}.html")
    fresh.locator("article").click(position={"x": 1, "y": 1})
    for _ in range(40):
        fresh.keyboard.press("Tab")
        if fresh.evaluate("document.activeElement.matches('details.hide > summary')"):
            break
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert fresh.evaluate("document.activeElement.matches('details.hide > summary')")
    assert fresh.evaluate(outline) != "none"


@pytest.mark.parametrize("address", ["book/status", "book/notation", "chapters/08_rotary"])
def test_what_is_too_wide_is_reached_by_keyboard_also_before_it_was_seen(fresh: Page, address: str) -> None:
    fresh.set_viewport_size(PHONE)
    fresh.goto(f"{address}.html")
    fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
    fresh.wait_for_timeout(400)  # the theme looks again when formulas have come
    fresh.add_style_tag(content="* { content-visibility: visible !important }")
    wide = fresh.evaluate(
        """() => [...document.querySelectorAll("article :is(pre, .output, .math, .pst-scrollable-table-container)")]
            .filter(box => box.scrollWidth > box.clientWidth && getComputedStyle(box).overflowX === "auto")
            .map(box => [box.tabIndex, box.className])"""
    )
    assert "pst-scrollable-table-container" in {name for _, name in wide}
    assert [name for place, name in wide if place != 0] == []


def test_theme_button_turns_the_page_dark(fresh: Page) -> None:
    fresh.goto("book/intro.html")
    for _ in range(3):
        if fresh.evaluate("document.documentElement.dataset.mode") == "dark":
            break
        fresh.locator(".theme-switch-button").click()
    fresh.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")


def test_theme_button_answers_before_the_page_turns_and_keeps_the_focus(fresh: Page) -> None:
    fresh.goto("chapters/09_longer_contexts.html")
    fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
    fresh.evaluate(
        """() => {
            window.changes = [];
            let pictures = 0;
            const count = () => requestAnimationFrame(() => { pictures++; count(); });
            count();
            const note = ({attributeName}) => changes.push([attributeName, pictures]);
            new MutationObserver(records => records.forEach(note))
                .observe(document.documentElement, {attributeFilter: ["data-mode", "data-theme"]});
        }"""
    )
    button = fresh.locator(".theme-switch-button")
    button.click()
    fresh.wait_for_function("() => changes.some(([name]) => name === 'data-theme')")
    changes = fresh.evaluate("changes")
    (first, answered), turned = changes[0], dict(changes)["data-theme"]
    assert first == "data-mode"
    assert turned > answered
    assert button.evaluate("button => button === document.activeElement")


def test_theme_follows_the_button_however_fast_it_is_pressed(fresh: Page) -> None:
    fresh.goto("book/intro.html")
    state = "[document.documentElement.dataset.mode, localStorage.mode, document.documentElement.dataset.theme].join()"
    for presses, then in ((0, "auto,auto,light"), (2, "light,light,light"), (5, "dark,dark,dark")):
        fresh.locator(".theme-switch-button").click(click_count=presses)
        fresh.wait_for_function(f"then => {state} === then", arg=then)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_its_colours_before_its_scripts_have_come(
    browser: Browser, base_url: str, scheme: str, keeps: bool
) -> None:
    tab = browser.new_page(color_scheme=scheme, base_url=base_url)
    if not keeps:
        tab.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied'); }})")
    tab.route("**/*.js*", lambda route: route.abort())
    tab.goto("book/intro.html")
    assert coloured(tab) == (scheme, 1)
    if keeps:  # what a reader has chosen goes before the system
        other = {"light": "dark", "dark": "light"}[scheme]
        tab.evaluate("other => localStorage.setItem('mode', other)", other)
        tab.reload()
        assert coloured(tab) == (other, 1)
    tab.close()


def test_page_has_its_colours_without_scripts(browser: Browser, base_url: str) -> None:
    tab = browser.new_page(java_script_enabled=False, base_url=base_url)
    tab.goto("book/intro.html")
    assert coloured(tab) == ("light", 1)
    tab.close()


def coloured(tab: Page) -> tuple[str, float]:
    """The page's theme by its ground, and the width of a line that is there only if its colour is."""
    box = tab.locator(".ways-in > div").first
    ground = tab.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    names = {"rgb(255, 254, 252)": "light", "rgb(20, 23, 26)": "dark"}
    return names.get(ground, ground), box.evaluate("box => parseFloat(getComputedStyle(box).borderTopWidth)")


def change_theme_in_the_middle(fresh: Page) -> None:
    """Of a long chapter: blocks around the screen are passed over, and nothing moves."""
    fresh.goto("chapters/09_longer_contexts.html")
    fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
    fresh.evaluate("scrollTo(0, 0.4 * document.documentElement.scrollHeight)")
    fresh.wait_for_timeout(300)
    before, passed_over, after = fresh.evaluate(CHANGE_THEME)
    assert passed_over > 30
    assert after == before


def test_theme_changes_first_where_one_looks_and_then_everywhere(fresh: Page) -> None:
    fresh.set_viewport_size(PHONE)
    change_theme_in_the_middle(fresh)
    fresh.wait_for_function("() => !document.querySelector('[data-away]')")
    first, last = fresh.evaluate(
        """() => {
            const texts = [...document.querySelectorAll("article section > p")];
            return [texts.at(0), texts.at(-1)].map(text => getComputedStyle(text).color);
        }"""
    )
    assert first == last


def test_who_scrolls_at_once_after_a_theme_change_meets_no_empty_block(fresh: Page) -> None:
    fresh.add_init_script("window.requestIdleCallback = () => 0")  # a phone that is never idle
    change_theme_in_the_middle(fresh)
    empty = """() => [...document.querySelectorAll("[data-away]")].filter(block => {
        const {top, bottom} = block.getBoundingClientRect();
        return bottom > 0 && top < innerHeight;
    }).length"""
    for screen in (1, 2, -4):
        fresh.evaluate("screens => scrollBy(0, screens * innerHeight)", screen)
        fresh.wait_for_timeout(200)
        assert fresh.evaluate(empty) == 0
    assert fresh.evaluate("document.querySelectorAll('[data-away]').length") > 0  # or nothing was shown


@pytest.mark.parametrize("way", ["keyboard", "mouse"])
def test_a_menu_opens_below_its_button_and_closes_by_itself(fresh: Page, way: str) -> None:
    fresh.goto(f"{CHAPTER}.html")
    button = fresh.locator(".dropdown-download-buttons > button")
    entry = fresh.locator(".dropdown-download-buttons a").first
    assert not entry.is_visible()
    if way == "keyboard":
        button.focus()
        fresh.keyboard.press("Enter")
    else:
        button.hover()
        before = entry.bounding_box()
        button.click()
        assert entry.bounding_box() == before  # a mouse opens it by itself, a click keeps it open
        fresh.mouse.move(5, 5)
    above, below = button.bounding_box(), entry.bounding_box()
    assert 0 <= below["y"] - (above["y"] + above["height"]) < 30
    assert barriers(fresh) == []
    if way == "keyboard":
        fresh.keyboard.press("Tab")
        assert entry.evaluate("link => link === document.activeElement")
        fresh.keyboard.press("Escape")
        assert button.evaluate("button => button === document.activeElement")
    else:
        fresh.mouse.click(5, 200)
    entry.wait_for(state="hidden")


def test_search_goes_when_a_reader_goes_on(fresh: Page) -> None:
    fresh.goto("book/intro.html")
    address, searching = fresh.url, "document.querySelector('#pst-search-dialog').open"

    def search() -> None:
        fresh.keyboard.press("Control+k")
        assert fresh.evaluate(searching)
        assert fresh.evaluate("document.activeElement.matches('#pst-search-dialog input')")

    search()
    fresh.keyboard.press("Escape")
    assert not fresh.evaluate(searching)

    search()
    link = fresh.locator('.bd-docs-nav a[href*="how_to_use"]').bounding_box()
    fresh.mouse.click(link["x"] + 5, link["y"] + 5)
    assert not fresh.evaluate(searching)
    fresh.wait_for_timeout(200)
    assert fresh.url == address  # the touch that closes it follows no link below it

    search()
    switch, theme = fresh.locator(".theme-switch-button").bounding_box(), "document.documentElement.dataset.mode"
    fresh.mouse.click(switch["x"] + 5, switch["y"] + 5)
    assert not fresh.evaluate(searching)
    fresh.wait_for_timeout(200)
    assert fresh.evaluate(theme) == "auto"  # nor does it turn the page dark
    fresh.mouse.click(link["x"] + 5, link["y"] + 5)
    fresh.wait_for_url(lambda url: url != address)

    search()
    for _ in range(5):
        fresh.keyboard.press("Tab")
    assert not fresh.evaluate(searching)


def test_map_of_the_doors_is_one_picture_at_every_width(fresh: Page) -> None:
    fresh.goto("book/intro.html")
    for size, shown in ((DESK, "doors-wide"), (PHONE, "doors-tall")):
        fresh.set_viewport_size(size)
        visible = fresh.locator(".doors svg:visible")
        assert visible.count() == 1
        assert shown in (visible.get_attribute("class") or "")


def test_paper_is_white_and_unfolded(fresh: Page) -> None:
    fresh.emulate_media(color_scheme="dark", media="print")
    fresh.goto(f"{SOLUTION}.html")
    fresh.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert fresh.evaluate("document.documentElement.dataset.theme") == "light"
    assert fresh.locator("article details:not([open])").count() == 0
    assert fresh.evaluate(FAINT) == []
    assert fresh.locator("details.hide > summary:visible").count() == 0
    fresh.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert fresh.evaluate("document.documentElement.dataset.theme") == "dark"
    assert fresh.locator("article details[open]").count() == 0

    fresh.goto(f"{CHAPTER}.html")
    fresh.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert fresh.locator("article .tag_hide-input").count() > 3
    assert fresh.locator("article details.hide:visible").count() == 0  # a figure is printed without its code
    assert fresh.locator("article details:not(.hide, [open])").count() == 0


def test_a_searched_word_is_marked_in_text_alone(fresh: Page) -> None:
    errors: list[str] = []
    fresh.on("pageerror", lambda error: errors.append(str(error)))
    for address in ("book/intro.html", "chapters/04_sinusoids.html"):
        fresh.goto(f"{address}?highlight=the")
        fresh.locator("article .highlighted").first.wait_for()
        assert fresh.locator(":is(svg, .explorable, mjx-container) .highlighted").count() == 0
    assert errors == []


def test_first_picture_of_a_page_is_whole(fresh: Page) -> None:
    """What may be passed over begins below the first screen of a phone, so that nothing above it can come late."""
    fresh.set_viewport_size(PHONE)
    for page in ("how_to_use", "red_flags", "interview", "glossary", "status", "intro"):
        fresh.goto(f"book/{page}.html")
        fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
        assert fresh.evaluate(PASSED_OVER, True) == []
    for folder in ("chapters", "exercises", "solutions"):
        fresh.goto(f"{folder}/08_rotary.html")
        fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
        assert fresh.evaluate(PASSED_OVER, True) == []
        assert len(fresh.evaluate(PASSED_OVER, False)) > 20


def test_what_is_near_a_reader_who_comes_back_is_not_passed_over(fresh: Page) -> None:
    fresh.goto("chapters/09_longer_contexts.html")
    fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
    fresh.evaluate("scrollTo(0, 0.5 * document.documentElement.scrollHeight)")
    fresh.wait_for_timeout(300)
    fresh.reload()
    fresh.wait_for_function("() => 'ready' in document.documentElement.dataset")
    fresh.wait_for_function("() => document.querySelector('[data-far]')")
    assert fresh.evaluate(PASSED_OVER, True) == []
    assert len(fresh.evaluate(PASSED_OVER, False)) > 50


def test_a_reader_who_comes_back_finds_the_place(fresh: Page) -> None:
    fresh.goto("chapters/09_longer_contexts.html")
    fresh.evaluate(SETTLED)
    fresh.evaluate("scrollTo(0, 0.7 * document.documentElement.scrollHeight)")
    left = fresh.evaluate(PLACE)
    fresh.wait_for_timeout(300)  # the browser keeps the place a moment later
    fresh.reload()
    fresh.evaluate(SETTLED)
    fresh.wait_for_timeout(300)
    assert fresh.evaluate(PLACE) == pytest.approx(left, abs=100)
