"""The drill and the reader's progress, driven in a real browser: what is asked, what is kept, and where."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from test_browser import DESK, PHONE, SPILLS, at_rest, barriers, browser, lit, playwright  # noqa: F401  (two are fixtures)

from tools import files, pages, site_toc
from tools.pages import Chapter, PagesError

BOOK = pages.chapters()
MORE = (files.ROOT / "book/questions.toml").read_text(encoding="utf-8")
ASKED = pages.questions(BOOK) + pages.more_questions(MORE, BOOK)
DRILL = "book/interview.html"
LANDING = "book/intro.html"
CHAPTER = "chapters/04_sinusoids.html"
EXERCISES = "exercises/04_sinusoids.html"
FORBID = """Object.defineProperty(window, "localStorage", {
    get() { throw new DOMException("The operation is insecure.", "SecurityError"); } });"""
KEPT = "JSON.parse(localStorage.getItem('from-sets-to-sequences'))"


# ---- the questions


def test_there_are_sixty_questions_and_more_each_with_its_own_name() -> None:
    assert len(ASKED) >= 60
    assert len({each.name for each in ASKED}) == len(ASKED)
    assert {each.chapter for each in ASKED} == {chapter.page for chapter in BOOK}


def test_questions_go_from_the_first_to_llama_4() -> None:
    everything = " ".join(each.question for each in ASKED)
    assert "Why does a Transformer need positional information" in everything
    assert "Why does Llama 4 leave positions out of some layers?" in everything


def test_added_answers_lead_to_the_cell_that_shows_them() -> None:
    """`test_site.py` follows every link; this is about the questions having one."""
    added = pages.more_questions(MORE, BOOK)
    assert added
    for each, entry in zip(added, tomllib.loads(MORE)["question"], strict=True):
        assert each.answer.endswith(f"ipynb#cell-{entry['cell']}).")


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('cell = "', 'cell = "not', "and there is no such cell"),
        ("chapter = 1\n", "chapter = 99\n", "of chapter 99, and there is no such cell"),
        ("ask = ", "question = ", "needs chapter, cell, ask and answer"),
    ],
)
def test_a_question_that_no_cell_answers_is_an_error(before: str, after: str, complaint: str) -> None:
    assert before in MORE
    with pytest.raises(PagesError, match=complaint):
        pages.more_questions(MORE.replace(before, after, 1), BOOK)


# ---- the scripts are where they are used


def test_scripts_load_where_they_are_used(site: Path, page: str) -> None:
    html = (site / f"{page}.html").read_text(encoding="utf-8")
    loaded = set(re.findall(r'src="[^"]*/((?:drill|progress)\.js)', html))
    keeps = page.startswith(("chapters/", "exercises/")) or page == "book/intro"
    assert loaded == ({"drill.js", "progress.js"} if page == "book/interview" else {"progress.js"} if keeps else set())
    assert ("progress.css" in html) == bool(loaded)


def test_the_list_is_there_without_scripts(browser: Browser, base_url: str) -> None:  # noqa: F811
    tab = browser.new_page(java_script_enabled=False, base_url=base_url)
    tab.goto(DRILL)
    assert tab.locator("article details").count() == len(ASKED)
    assert tab.locator("article details").first.is_visible()
    assert tab.locator(".kept").count() == 0
    tab.close()


# ---- a reader


@pytest.fixture
def tab(browser: Browser, base_url: str) -> Iterator[Page]:  # noqa: F811
    """A new reader's browser. An error of any script is a failure."""
    context = browser.new_context(viewport=DESK, base_url=base_url, color_scheme="light")
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    yield context.new_page()
    context.close()
    assert errors == []


def drill(tab: Page) -> Page:
    tab.goto(DRILL)
    tab.get_by_role("button", name="Start").click()
    return tab


def question(tab: Page) -> str:
    """What is asked. Exactly one question is seen."""
    seen = tab.locator("article details[id^=q-]:visible > summary")
    expect(seen).to_have_count(1)
    return seen.inner_text()


def day(after: int = 0) -> str:
    return (date.today() + timedelta(days=after)).isoformat()


def rate(tab: Page, key: str) -> str:
    """Unfold and rate by keyboard. Returns what was asked."""
    asked = question(tab)
    tab.keyboard.press("Space")
    expect(tab.locator(".drill-ratings")).to_be_visible()
    tab.keyboard.press(key)
    return asked


@pytest.mark.slow
@pytest.mark.parametrize(
    ("card", "rating", "box", "days"),
    [
        (None, "again", 0, 0),
        (None, "hard", 1, 1),
        (None, "good", 1, 1),
        (None, "easy", 2, 3),
        ({"box": 3, "due": 0}, "again", 0, 0),
        ({"box": 3, "due": 0}, "hard", 3, 7),
        ({"box": 3, "due": -20}, "good", 4, 16),
        ({"box": 3, "due": 0}, "easy", 5, 35),
        ({"box": 6, "due": 0}, "good", 6, 90),
        ({"box": 5, "due": -1}, "easy", 6, 90),
        ({"box": 3, "due": 2}, "easy", 3, 7),  # before its day: no climb
        ({"box": 3, "due": 2}, "again", 0, 0),
    ],
)
def test_schedule(drilled: Page, card: dict | None, rating: str, box: int, days: int) -> None:
    card = card and {**card, "due": day(card["due"]), "seen": "2026-01-01T00:00:00.000Z"}
    after = drilled.evaluate("([card, rating]) => rated(card ?? undefined, rating)", [card, rating])
    assert (after["box"], after["due"]) == (box, day(days))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cards", "resting", "name"),
    [
        ({}, [], "a"),
        ({"a": 3}, [], "b"),
        ({"b": -1}, [], "b"),  # due before new
        ({"b": -1, "c": -4}, [], "c"),  # the longest due first
        ({"b": 0}, ["b"], "a"),  # what was wrong just now rests
        ({"a": 0, "b": 4, "c": 4}, ["a"], "a"),  # unless nothing else is left
        ({"a": 1, "b": 4, "c": 4}, [], None),
    ],
)
def test_what_is_asked_next(drilled: Page, cards: dict[str, int], resting: list[str], name: str | None) -> None:
    kept = {key: {"box": 1, "due": day(due), "seen": "2026-01-01"} for key, due in cards.items()}
    script = "([kept, resting]) => dealt(['a', 'b', 'c'], kept, new Set(resting)) ?? null"
    assert drilled.evaluate(script, [kept, resting]) == name


@pytest.fixture(scope="module")
def drilled(browser: Browser, base_url: str) -> Iterator[Page]:  # noqa: F811
    tab = browser.new_page(base_url=base_url)
    tab.goto(DRILL)
    yield tab
    tab.close()


@pytest.mark.slow
def test_cards_by_keyboard(tab: Page) -> None:
    tab.goto(DRILL)
    assert tab.locator("article details[id^=q-]:visible").count() == len(ASKED)
    tab.get_by_role("button", name="Start").focus()
    tab.keyboard.press("Enter")
    assert question(tab) == ASKED[0].question
    tab.keyboard.press("3")  # not before it is unfolded
    assert question(tab) == ASKED[0].question
    assert not tab.locator(".drill-ratings").is_visible()
    wrong = rate(tab, "1")
    others = [rate(tab, key) for key in "234"]
    assert rate(tab, "3") == wrong  # again, after three others
    assert len({wrong, *others, question(tab)}) == 5

    tab.reload()
    cards = tab.evaluate(KEPT)["drill"]
    assert [cards[each.name]["box"] for each in ASKED[:4]] == [1, 1, 1, 2]
    assert cards[ASKED[3].name]["due"] == day(3)
    expect(tab.locator(".drill-count")).to_contain_text("4 known for now")
    tab.get_by_role("button", name="Start").click()
    assert question(tab) == re.sub(r"[`*$]", "", ASKED[4].question)
    tab.keyboard.press("Escape")
    assert tab.locator("article details[id^=q-]:visible").count() == len(ASKED)


@pytest.mark.slow
def test_space_unfolds_when_nothing_has_the_focus(tab: Page) -> None:
    drill(tab).evaluate("document.activeElement.blur()")
    tab.keyboard.press("Space")
    assert tab.locator("article details.asked[open]").count() == 1


@pytest.mark.slow
def test_a_slip_is_undone(tab: Page) -> None:
    first = rate(drill(tab), "4")
    assert question(tab) != first
    tab.get_by_role("button", name="Undo the last rating").click()
    assert question(tab) == first
    assert tab.evaluate(KEPT)["drill"] == {}


@pytest.mark.slow
def test_one_chapter_to_its_end_and_once_more(tab: Page) -> None:
    tab.goto(DRILL)
    of_four = [each for each in ASKED if each.chapter == "chapters/04_sinusoids"]
    tab.get_by_label("Ask me about").select_option(label=f"4 · Sinusoids ({len(of_four)} open)")
    tab.get_by_role("button", name="Start").click()
    assert [rate(tab, "3") for _ in of_four] == [each.question for each in of_four]
    expect(tab.locator(".drill-said")).to_contain_text("Nothing more is open")
    expect(tab.locator(".drill-count")).to_contain_text(f"The next is due on {day(1)}")
    tab.get_by_role("button", name="Ask them all anyway").click()
    assert [rate(tab, "3") for _ in of_four] == [each.question for each in of_four]
    assert {card["box"] for card in tab.evaluate(KEPT)["drill"].values()} == {1}  # too early to climb


@pytest.mark.slow
def test_saved_forgotten_and_loaded(tab: Page, tmp_path: Path) -> None:
    rate(drill(tab), "4")
    tab.keyboard.press("Escape")
    tab.goto(EXERCISES)
    at_rest(tab.get_by_label("I have passed 4.2")).check()
    tab.goto(DRILL)
    before = tab.evaluate(KEPT)
    assert len(before["drill"]) == len(before["exercises"]) == 1
    with tab.expect_download() as download:
        tab.get_by_role("button", name="Save to a file").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert json.loads(saved.read_text(encoding="utf-8")) == before

    tab.once("dialog", lambda dialog: dialog.dismiss())
    tab.get_by_role("button", name="Forget the ratings").click()
    assert tab.evaluate(KEPT) == before
    tab.once("dialog", lambda dialog: dialog.accept())
    tab.get_by_role("button", name="Forget the ratings").click()
    assert tab.evaluate(KEPT) == before | {"drill": {}}

    tab.goto(LANDING)
    tab.once("dialog", lambda dialog: dialog.accept())
    tab.get_by_role("button", name="Forget everything").click()
    assert tab.evaluate(KEPT) == {"version": 1, "read": {}, "exercises": {}, "drill": {}}
    choose(tab, saved)
    expect(tab.locator(".kept-said")).to_contain_text("Loaded")
    assert tab.evaluate(KEPT) == before


def choose(tab: Page, file: Path) -> None:
    with tab.expect_file_chooser() as chooser:
        tab.get_by_role("button", name="Load a file").click()
    chooser.value.set_files(file)


@pytest.mark.slow
def test_a_foreign_file_changes_nothing(tab: Page, tmp_path: Path) -> None:
    tab.goto(EXERCISES)
    at_rest(tab.get_by_label("I have passed 4.1")).check()
    tab.goto(LANDING)
    before = tab.evaluate(KEPT)
    (file := tmp_path / "other.json").write_text('{"version": 2, "drill": {}}', encoding="utf-8")
    choose(tab, file)
    expect(tab.locator(".kept-said")).to_contain_text("Nothing was changed")
    assert tab.evaluate("['', '{', '[]', 'null', '1', '\"1\"'].map(Kept.add)") == [False] * 6
    assert tab.evaluate(KEPT) == before


@pytest.mark.slow
def test_loading_takes_what_is_sound_and_the_later_rating(drilled: Page) -> None:
    name, other = ASKED[0].name, ASKED[1].name
    old = {"box": 2, "due": "2026-01-04", "seen": "2026-01-01T08:00:00.000Z"}
    new = {"box": 3, "due": "2026-02-09", "seen": "2026-02-02T08:00:00.000Z"}
    here = {"version": 1, "read": {"1": "2026-01-01", "2": ""}, "exercises": {}, "drill": {name: new, other: old}}
    file = {
        "version": 1,
        "read": {"1": "2026-03-03", "2": "2026-03-03", "x": "2026-03-03", "3": "<b>"},
        "exercises": {"__proto__": "2026-01-01", "1.2": 5, "1.3": "2026-03-03"},
        "drill": {name: old, other: new, "q-00000000": {"box": 99, "due": "2026-01-01", "seen": "2026-01-01"}},
        "more": 1,
    }
    script = f"""([here, file]) => {{
        localStorage.setItem("from-sets-to-sequences", JSON.stringify(here));
        Kept.add(JSON.stringify(file));
        const kept = {KEPT};
        localStorage.clear();
        return kept;
    }}"""
    assert drilled.evaluate(script, [here, file]) == {
        "version": 1,
        "read": {"1": "2026-01-01", "2": "2026-03-03"},
        "exercises": {"1.3": "2026-03-03"},
        "drill": {name: new, other: new},
    }


@pytest.mark.slow
def test_end_of_a_chapter_ticks_it_and_a_jump_there_does_not(tab: Page) -> None:
    tab.goto(CHAPTER)
    box = tab.get_by_label("I have read this chapter")
    tab.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    box.scroll_into_view_if_needed()
    tab.wait_for_timeout(200)
    assert not box.is_checked()
    for title in tab.locator("article h2").all():
        title.scroll_into_view_if_needed()
        tab.wait_for_timeout(40)
    box.scroll_into_view_if_needed()
    expect(box).to_be_checked()
    at_rest(box).uncheck()
    tab.reload()
    assert not box.is_checked()
    assert tab.evaluate(KEPT)["read"] == {"4": ""}


@pytest.mark.slow
def test_landing_page_shows_where_one_is(tab: Page) -> None:
    tab.goto(LANDING)
    assert tab.locator(".kept-mark").count() == len(BOOK)
    assert tab.locator(".kept-mark").all_inner_texts() == [""] * len(BOOK)
    tab.goto(EXERCISES)
    ticks = tab.locator(".kept-exercise input")
    exercises = ticks.count()
    assert exercises == tab.locator("article h2", has_text=re.compile(r"^4\.\d")).count() >= 5
    at_rest(ticks.nth(0)).check()
    at_rest(ticks.nth(2)).check()
    tab.goto(CHAPTER)
    at_rest(tab.get_by_label("I have read this chapter")).check()
    tab.goto(LANDING)
    marks = tab.locator(".kept-mark")
    assert marks.nth(3).inner_text().strip() == f"✓ read · 2 of {exercises} exercises"
    assert [marks.nth(k).inner_text() for k in (0, 2, 4)] == [""] * 3
    summary = tab.locator(".kept [role=status]").first
    expect(summary).to_contain_text(f"You have read 1 of {len(BOOK)} chapters and passed 2 of ")
    expect(summary.locator("a")).to_have_text(re.compile(r"^1 · "))


def test_landing_page_knows_how_many_exercises_there_are(site: Path) -> None:
    html = (site / "book/intro.html").read_text(encoding="utf-8")
    counted = json.loads(re.search(r'name="exercises" content="([^"]+)"', html).group(1).replace("&quot;", '"'))
    assert list(counted) == [str(chapter.number) for chapter in BOOK]
    for chapter, number in zip(BOOK, counted.values(), strict=True):
        assert number == exercises_of(chapter)


def exercises_of(chapter: Chapter) -> int:
    cells = files.read(files.ROOT / f"{chapter.page.replace('chapters/', 'exercises/')}.ipynb").cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return len(re.findall(rf"(?m)^## {chapter.number}\.\d+ · ", text))


@pytest.mark.slow
def test_nothing_breaks_where_a_browser_keeps_nothing(browser: Browser, base_url: str) -> None:  # noqa: F811
    tab = browser.new_page(base_url=base_url)
    tab.add_init_script(FORBID)
    first = rate(drill(tab), "3")
    assert question(tab) != first
    expect(tab.locator(".drill-count")).to_contain_text("1 known for now")
    tab.keyboard.press("Escape")
    expect(tab.locator(".kept-said")).to_contain_text("keeps nothing")
    for address, label in ((CHAPTER, "I have read this chapter"), (EXERCISES, "I have passed 4.1")):
        tab.goto(address)
        at_rest(tab.get_by_label(label)).check()
    tab.goto(LANDING)
    expect(tab.locator(".kept-said")).to_contain_text("keeps nothing")
    tab.close()


@pytest.mark.slow
def test_touch(browser: Browser, base_url: str) -> None:  # noqa: F811
    context = browser.new_context(viewport=PHONE, has_touch=True, is_mobile=True, base_url=base_url)
    tab = context.new_page()
    tab.goto(DRILL)
    tab.get_by_role("button", name="Start").tap()
    first = question(tab)
    tab.locator("article details.asked > summary").tap()
    tab.get_by_role("button", name="3 Good").tap()
    assert question(tab) != first
    sizes = tab.evaluate("""() => [...document.querySelectorAll(".kept button, .drill-ratings button")]
        .filter(button => button.checkVisibility()).map(button => button.getBoundingClientRect().height)""")
    assert min(sizes) >= 40
    context.close()


def asked_and_open(tab: Page) -> None:
    rate(drill(tab), "3")
    tab.keyboard.press("Space")
    expect(tab.locator(".drill-ratings")).to_be_visible()


def all_rated(tab: Page) -> None:
    card = {"box": 1, "due": day(3), "seen": "2026-01-01T00:00:00.000Z"}
    state = {"version": 1, "read": {}, "exercises": {}, "drill": {each.name: card for each in ASKED}}
    tab.goto(DRILL)
    tab.evaluate("state => localStorage.setItem('from-sets-to-sequences', JSON.stringify(state))", state)
    drill(tab)
    expect(tab.locator(".drill-said")).to_contain_text("Nothing more is open")


def some_progress(tab: Page) -> None:
    tab.goto(CHAPTER)
    at_rest(tab.get_by_label("I have read this chapter")).check()
    tab.goto(LANDING)
    expect(tab.locator(".kept-mark").nth(3)).to_contain_text("read")


@pytest.mark.slow
@pytest.mark.parametrize("arrive", [asked_and_open, all_rated, some_progress], ids=lambda arrive: arrive.__name__)
def test_accessible_and_narrow_enough(tab: Page, arrive: Callable[[Page], None]) -> None:
    """As the reader has it before them. `test_browser.py` sees each page as it opens."""
    arrive(tab)
    assert barriers(tab) == []
    assert barriers(lit(tab, "dark", DESK)) == []
    assert lit(tab, "light", PHONE).evaluate(SPILLS) == []


@pytest.mark.slow
def test_paper_shows_every_question_and_no_buttons(tab: Page) -> None:
    drill(tab).emulate_media(media="print")
    assert tab.locator("article details[id^=q-]:visible").count() == len(ASKED)
    assert tab.locator(".kept:visible, .drill-ratings:visible").count() == 0


def test_pages_that_keep_something_are_in_the_book() -> None:
    assert {page.removesuffix(".html") for page in (DRILL, LANDING, CHAPTER, EXERCISES)} <= set(site_toc.pages())
