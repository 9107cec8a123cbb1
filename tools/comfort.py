"""How soon a page can be read on a slow phone, whether it jumps, how soon it answers (`make comfort`).

The site is served compressed, as a web host does, to Chromium with a slow processor and a slow connection: the profile
of a mid-range phone that Lighthouse uses. Each page is visited anew, with an empty cache.

How slow the processor then is depends on the machine and on what else it does. So its Lighthouse index is taken before
and after each visit. A visit on a slower phone than Lighthouse means, or on a busy machine, is repeated (to a limit).
"""

import argparse
import functools
import gzip
import http.server
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, CDPSession, Page

from tools import files, site_toc
from tools.browser import chromium

SITE = files.ROOT / "_build" / "html"
# https://github.com/GoogleChrome/lighthouse/blob/main/docs/throttling.md: "Slow 4G", CPU 4 times slower
PHONE = {"viewport": {"width": 412, "height": 823}, "device_scale_factor": 1.75, "is_mobile": True, "has_touch": True}
SLOWDOWN = 4
LATENCY_MS = 150
DOWN_BITS, UP_BITS = 1_600_000, 750_000
COMPRESSED = {".html", ".css", ".js", ".json", ".svg", ".xml", ".txt", ".woff"}

PAINT_LIMIT_MS = 1500
SHIFT_LIMIT = 0.05
DELAY_LIMIT_MS = 100
TURN_LIMIT_MS = 200  # what Chrome calls a good answer: https://web.dev/articles/inp
WEIGHT_LIMIT = 1_500_000

WATCH = """window.seen = {paint: 0, painted: "", shift: 0, shifted: [], delays: [], touched: 0, turned: 0};
const name = node => node ? (node.outerHTML ?? node.textContent ?? "").slice(0, 80) : "";
const watch = (type, look, options = {}) =>
    new PerformanceObserver(list => list.getEntries().forEach(look)).observe({type, buffered: true, ...options});
watch("largest-contentful-paint", entry => {
    seen.paint = entry.startTime;
    seen.painted = name(entry.element);
});
watch("layout-shift", entry => {
    if (entry.hadRecentInput) return;
    seen.shift += entry.value;
    seen.shifted.push(...entry.sources.map(source => name(source.node)));
});
watch("event", entry => seen.delays.push([entry.name, entry.duration]), {durationThreshold: 16});
addEventListener("pointerdown", ({target, timeStamp}) => {
    if (target.closest(".theme-switch-button")) seen.touched = timeStamp;
}, true);
const turn = () => seen.touched && requestAnimationFrame(() => setTimeout(() => {
    seen.turned ||= performance.now() - seen.touched;
}));
new MutationObserver(turn).observe(document, {subtree: true, attributeFilter: ["data-theme"]});"""
# A locator's own tap, and its looking for a place, would add their work to ours.
PLACE = """selector => {
    const place = [...document.querySelectorAll(selector)].find(each => each.checkVisibility());
    if (!place) return null;
    const {top, bottom} = place.getBoundingClientRect();
    if (top < 0 || bottom > innerHeight) place.scrollIntoView({block: "center"});
    const {x, y, width, height} = place.getBoundingClientRect();
    return [x + width / 2, y + height / 2];
}"""
LOOK_MS = 300  # who has scrolled looks before touching
LOOKS = 10
FOLDED = "article details:not([open]) > summary"
SWITCH, SEARCH = ".theme-switch-button", ".search-button__button, .search-button"
# Lighthouse's index of a processor: texts made and arrays copied, half of the time each, in tens a second
# (https://github.com/GoogleChrome/lighthouse/blob/main/core/lib/page-functions.js). Chrome takes 264 for a slow phone
# and 1000 for a middling one (front_end/panels/mobile_throttling/CalibrationController.ts in its devtools-frontend).
INDEX = """() => {
    const tensASecond = (work, every) => {
        const start = performance.now();
        let rounds = 0;
        while (rounds % every || performance.now() - start < 250) work(rounds++);
        return (100 * rounds) / (performance.now() - start);
    };
    const writing = tensASecond(() => {
        let text = "";
        for (let letter = 0; letter < 10_000; letter++) text += "a";
        return text.length;
    }, 1);
    const arrays = [0, 1].map(() => Array.from({length: 100_000}, (_, place) => place));
    const copying = tensASecond(round => {
        const source = arrays[round % 2], target = arrays[(round + 1) % 2];
        for (let place = 0; place < source.length; place++) target[place] = source[place];
    }, 10);
    return [writing, copying];
}"""
# Lighthouse's docs/throttling.md, as above: a fast desk computer has 1500 to 2000, and its phone is 4 times slower.
SLOWEST_PHONE = 500
# The half that makes texts, and pages with it, falls first when others use the machine. Seen: 340 to 500 alone,
# 40 to 250 otherwise, while the other half stayed between 700 and 850.
SLOWEST_WRITING = 300
TRIES = 4  # visits for each that counts
SETTLED = """async () => {
    await window.MathJax?.startup?.promise;
    await document.fonts.ready;
    while ("typesetting" in document.documentElement.dataset) await new Promise(done => setTimeout(done, 20));
    await new Promise(done => setTimeout(done, 300));
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""


@dataclass(frozen=True)
class Phone:
    """How fast the slowed-down processor is: both halves of Lighthouse's index."""

    writing: float
    copying: float

    @property
    def index(self) -> float:
        return (self.writing + self.copying) / 2

    @property
    def is_fair(self) -> bool:
        """Not slower than the phone that is meant."""
        return self.index >= SLOWEST_PHONE and self.writing >= SLOWEST_WRITING


@dataclass(frozen=True)
class Comfort:
    """One visit of a page: milliseconds to the largest paint, layout shift, slowest answer, bytes on the wire.

    An answer is the first picture that a touch or a key has changed. When the theme changes, that is the button's sign,
    and the whole page comes after it: `turned_ms` after the touch. `work_ms` is the slowest answer without the wait for
    a processor that is busy elsewhere: script, style and layout, in the browser's own processor time.
    """

    paint_ms: float
    shift: float
    delay_ms: float
    work_ms: float
    turned_ms: float
    weight: int
    painted: str = ""
    shifted: tuple[str, ...] = ()

    def complaints(self) -> list[str]:
        """What is over the budget."""
        found = []
        if self.paint_ms > PAINT_LIMIT_MS:
            found.append(f"largest paint after {self.paint_ms:.0f} ms: {self.painted}")
        if self.shift > SHIFT_LIMIT:
            found.append(f"jumps by {self.shift:.3f}: {' | '.join(self.shifted[:3])}")
        if self.delay_ms > DELAY_LIMIT_MS:
            found.append(f"answers after {self.delay_ms:.0f} ms, {self.work_ms:.0f} ms of work")
        if self.turned_ms > TURN_LIMIT_MS:
            found.append(f"turns dark or light after {self.turned_ms:.0f} ms")
        if self.weight > WEIGHT_LIMIT:
            found.append(f"{self.weight / 1000:.0f} kB on the wire")
        return found


class CompressingHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files compressed, and keeps connections open."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        body, encoding = packed(path)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(body)))
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with suppress(ConnectionResetError, BrokenPipeError):  # the browser has closed its tab
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


@functools.cache
def packed(path: Path) -> tuple[bytes, str]:
    """What goes over the wire for a file, and its encoding."""
    body = path.read_bytes()
    return (gzip.compress(body, compresslevel=6), "gzip") if path.suffix in COMPRESSED else (body, "")


@contextmanager
def served(site: Path) -> Iterator[str]:
    """The address at which the site is served on this machine."""
    handler = functools.partial(CompressingHandler, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def slow_down(session: CDPSession) -> None:
    session.send("Network.enable")
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
    conditions = {"downloadThroughput": DOWN_BITS / 8, "uploadThroughput": UP_BITS / 8, "latency": LATENCY_MS}
    session.send("Network.emulateNetworkConditions", {"offline": False, **conditions})


@contextmanager
def speedometer(browser: Browser) -> Iterator[Callable[[], Phone]]:
    """What tells how fast the phone is now: Lighthouse's index of the slowed-down processor."""
    page = browser.new_page()
    session = page.context.new_cdp_session(page)

    def speed() -> Phone:
        session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
        found = Phone(*page.evaluate(INDEX))
        session.send("Emulation.setCPUThrottlingRate", {"rate": 1})  # a page that is slowed down is busy with it
        return found

    speed()  # compiled
    yield speed
    page.close()


def visit(browser: Browser, address: str) -> Comfort:
    """Open the page as a new reader on a slow phone, read it, and use it."""
    context = browser.new_context(**PHONE)
    context.add_init_script(WATCH)
    page = context.new_page()
    session = context.new_cdp_session(page)
    slow_down(session)
    weights: list[int] = []
    session.on("Network.loadingFinished", lambda event: weights.append(event["encodedDataLength"]))
    answer = page.goto(address, wait_until="load", timeout=120_000)
    if not answer or not answer.ok:
        raise FileNotFoundError(f"no such page: {address}. Build the site with `make book`; name pages as in _toc.yml.")
    page.evaluate(SETTLED)
    seen = page.evaluate("seen")  # before anything is touched: a touch ends the search for the largest paint
    weight = int(sum(weights))
    work = use(page, session)
    page.wait_for_timeout(500)  # the browser reports events after the picture that answers them
    delay = max((duration for _, duration in page.evaluate("seen.delays")), default=0.0)
    turned = page.evaluate("seen.turned")
    context.close()
    return Comfort(seen["paint"], seen["shift"], delay, work, turned, weight, seen["painted"], tuple(seen["shifted"]))


def use(page: Page, session: CDPSession) -> float:
    """Unfold something, change the theme, search. Returns the work of the slowest answer in milliseconds."""
    works = []
    for selector in (FOLDED, SWITCH, SEARCH):
        if place := looked_at(page, selector):
            works.append(work_of(functools.partial(page.touchscreen.tap, *place), page, session))
    works += [work_of(functools.partial(page.keyboard.type, letter), page, session) for letter in "rot"]
    return max(works)


def looked_at(page: Page, selector: str) -> Sequence[float] | None:
    """The middle of the first such element that can be seen, if there is one, when the page has come to rest there.

    What comes into sight takes its room, and may move it out again.
    """
    place = page.evaluate(PLACE, selector)
    for _ in range(LOOKS):
        page.wait_for_timeout(LOOK_MS)
        before, place = place, page.evaluate(PLACE, selector)
        if place == before:
            break
    return place


def work_of(step: Callable[[], object], page: Page, session: CDPSession) -> float:
    page.wait_for_timeout(100)
    before = worked_ms(session)
    step()
    page.wait_for_timeout(100)
    return worked_ms(session) - before


def worked_ms(session: CDPSession) -> float:
    """Processor time of the page's thread up to now."""
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * sum(metrics[name] for name in ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration"))


def measure(browser: Browser, address: str, visits: int = 3) -> tuple[Comfort, Phone]:
    """The medians of several visits, and the slowest phone among them."""
    made: list[tuple[Phone, Comfort]] = []
    with speedometer(browser) as speed:
        for _ in range(TRIES * visits):
            before = speed()
            seen = visit(browser, address)
            made.append((min(before, speed(), key=speed_of), seen))
            if sum(phone.is_fair for phone, _ in made) == visits:
                break
    chosen = sorted(made, key=lambda each: speed_of(each[0]))[-visits:]
    return medians([seen for _, seen in chosen]), chosen[0][0]


def speed_of(phone: Phone) -> tuple[bool, float]:
    return phone.is_fair, phone.writing


def medians(made: Sequence[Comfort]) -> Comfort:
    middle = sorted(made, key=lambda each: each.paint_ms)[len(made) // 2]
    return Comfort(
        middle.paint_ms,
        statistics.median(each.shift for each in made),
        statistics.median(each.delay_ms for each in made),
        statistics.median(each.work_ms for each in made),
        statistics.median(each.turned_ms for each in made),
        middle.weight,
        middle.painted,
        middle.shifted,
    )


HEAD = (
    f"{'page':42} {'paint':>10} {'shift':>7} {'answer':>10} {'its work':>10} {'turned':>10} {'weight':>10}"
    f" {'index':>7} {'writing':>7}"
)


def row(page: str, comfort: Comfort, phone: Phone) -> str:
    return (
        f"{page:42} {comfort.paint_ms:7.0f} ms {comfort.shift:7.3f} {comfort.delay_ms:7.0f} ms"
        f" {comfort.work_ms:7.0f} ms {comfort.turned_ms:7.0f} ms {comfort.weight / 1000:7.0f} kB"
        f" {phone.index:7.0f} {phone.writing:7.0f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="pages as in _toc.yml (left out: all)")
    parser.add_argument("--site", type=Path, default=SITE, help="the built site (_build/html)")
    parser.add_argument("--visits", type=int, default=3, help="visits a page, of which the median is shown (3)")
    given = parser.parse_args(arguments)
    over = slow = 0
    try:
        with served(given.site) as base, chromium() as browser:
            print(HEAD)
            for page in given.pages or site_toc.pages():
                comfort, phone = measure(browser, f"{base}{page}.html", given.visits)
                slow += not phone.is_fair
                print(row(page, comfort, phone), flush=True)
                for complaint in comfort.complaints():
                    print(f"    {complaint}", flush=True)
                    over += 1
    except FileNotFoundError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if slow:
        print(
            f"{slow} seen on a phone with an index below {SLOWEST_PHONE}, or below {SLOWEST_WRITING} in writing:"
            " measure again when the machine does nothing else"
        )
    print(f"{over} over the budget: {PAINT_LIMIT_MS} ms, {SHIFT_LIMIT}, {DELAY_LIMIT_MS} ms, {TURN_LIMIT_MS} ms")
    return over > 0


if __name__ == "__main__":
    sys.exit(main())
