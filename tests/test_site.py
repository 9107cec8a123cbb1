"""The built site, read as files: it is whole, it needs no other host, and its links lead somewhere."""

import functools
import io
import json
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urljoin, urlsplit
from xml.etree import ElementTree

import pytest
from bs4 import BeautifulSoup, Tag
from fontTools.ttLib import TTFont
from PIL import Image

from tools import site_toc
from tools.files import ROOT
from tools.repository import configured

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import formulas
import published
import quick

CARD_LIMIT = 60_000
COLAB = "https://colab.research.google.com/github/"
LOADING = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "embed": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
    "image": "href",
    "use": "href",
}
LOADING_RELATIONS = {"stylesheet", "preload", "prefetch", "modulepreload", "icon", "apple-touch-icon", "manifest"}
CSS_ADDRESS = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])([^"')]+)""")
SCRIPT_HOSTS = re.compile(r"unpkg\.com|jsdelivr\.net|cdnjs\.|googleapis\.com|gstatic\.com|mybinder\.org|plausible\.io")


def soup_of(site: Path, page: str) -> BeautifulSoup:
    return BeautifulSoup((site / f"{page}.html").read_text(encoding="utf-8"), "html.parser")


@pytest.fixture(scope="module")
def html(site: Path, page: str) -> BeautifulSoup:
    """The page, read once for all tests of it: that takes longer than they do."""
    return soup_of(site, page)


def one(html: BeautifulSoup, selector: str) -> Tag:
    """The only element that `selector` finds."""
    found = html.select(selector)
    assert len(found) == 1, f"{len(found)} elements match {selector}"
    return found[0]


def is_remote(address: str) -> bool:
    return bool(urlsplit(address).netloc)


def is_notebook(page: str) -> bool:
    return (ROOT / f"{page}.ipynb").is_file()


@functools.cache
def tracked_files() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout, so what is committed is unknown")
    return set(listed.stdout.splitlines())


# ---- the network is not needed


def loaded_by(html: BeautifulSoup) -> list[str]:
    """Every address that a browser loads by itself when it shows the page."""
    loaded = [tag[name] for tag_name, name in LOADING.items() for tag in html.find_all(tag_name, attrs={name: True})]
    links = html.find_all("link", href=True)
    loaded += [link["href"] for link in links if LOADING_RELATIONS & set(link.get("rel", []))]
    loaded += [part.split()[0] for tag in html.find_all(srcset=True) for part in tag["srcset"].split(",")]
    styles = [tag.get_text() for tag in html.find_all("style")] + [tag["style"] for tag in html.find_all(style=True)]
    return loaded + [address for style in styles for address in CSS_ADDRESS.findall(style)]


def test_page_loads_from_its_own_host_alone(html: BeautifulSoup) -> None:
    loaded = loaded_by(html)
    assert len(loaded) > 10, "the search for what a page loads finds too little to be right"
    assert [address for address in loaded if is_remote(address)] == []


def test_search_page_loads_from_its_own_host_alone(site: Path) -> None:
    assert [address for address in loaded_by(soup_of(site, "search")) if is_remote(address)] == []


def test_page_names_no_script_host(site: Path, page: str) -> None:
    """Not even as a string that a script would load later on."""
    assert SCRIPT_HOSTS.findall((site / f"{page}.html").read_text(encoding="utf-8")) == []


def test_styles_and_scripts_load_from_their_own_host_alone(site: Path) -> None:
    styles = list((site / "_static").rglob("*.css"))
    assert len(styles) > 4
    for style in styles:
        addresses = CSS_ADDRESS.findall(style.read_text(encoding="utf-8"))
        assert [each for each in addresses if is_remote(each) and not each.startswith("data:")] == [], style.name
    for script in (site / "_static").rglob("*.js"):
        assert SCRIPT_HOSTS.findall(script.read_text(encoding="utf-8")) == [], script.name


def test_the_search_for_remote_addresses_finds_each_kind() -> None:
    far = "//elsewhere.example/x"
    page = f"""<link rel="preload" href="{far}"><link rel="next" href="{far}-is-a-page"><script src="{far}"></script>
        <img srcset="{far} 2x"><p style="background: url('{far}')"></p><style>@import "{far}";</style>"""
    assert loaded_by(BeautifulSoup(page, "html.parser")) == [far] * 5


# ---- every link leads somewhere


def test_every_local_link_leads_to_a_file_and_a_place_in_it(site: Path, page: str, html: BeautifulSoup) -> None:
    broken = []
    for tag in html.select("a[href], img[src], script[src], link[href]"):
        address = tag.get("href") or tag.get("src")
        target = urlsplit(urljoin(f"https://book.invalid/{page}.html", address))
        if target.netloc != "book.invalid" or target.scheme != "https":
            continue
        file = site / unquote(target.path).lstrip("/")
        if not file.is_file() or not has_place(file, unquote(target.fragment)):
            broken.append(address)
    assert broken == []


def has_place(file: Path, fragment: str) -> bool:
    return not fragment or fragment in places(file)


@functools.cache
def places(file: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\bid="([^"]+)"', file.read_text(encoding="utf-8")))


def test_every_colab_link_leads_to_a_committed_notebook(html: BeautifulSoup) -> None:
    repository = configured()
    tracked = tracked_files()
    here = f"{repository.colab}/blob/{repository.branch}/"
    links = [link["href"] for link in html.select(f'a[href^="{COLAB}"]')]
    assert [link for link in links if not link.startswith(here)] == []
    assert [link for link in links if link.removeprefix(here) not in tracked] == []


def test_notebook_pages_and_they_alone_have_a_colab_button(page: str, html: BeautifulSoup) -> None:
    buttons = [link["href"] for link in html.select(f'.article-header-buttons a[href^="{COLAB}"]')]
    repository = configured()
    own = f"{repository.colab}/blob/{repository.branch}/{page}.ipynb"
    assert buttons == ([own] if is_notebook(page) else [])
    assert not html.select('.article-header-buttons [onclick*="Thebe"]')


def test_landing_page_links_every_chapter_that_exists_and_colab(site: Path) -> None:
    root, *others = site_toc.pages()
    links = {link["href"] for link in soup_of(site, root).select("article a[href]")}
    chapters = {page for page in others if page.startswith("chapters/")}
    assert chapters
    assert {page for page in chapters if f"../{page}.html" not in links} == set()
    assert any(link.startswith(f"{configured().colab}/") for link in links)


def test_front_door_of_the_site_leads_to_the_landing_page(site: Path) -> None:
    assert f"url={site_toc.pages()[0]}.html" in (site / "index.html").read_text(encoding="utf-8")


def test_every_committed_chapter_is_in_the_table_of_contents() -> None:
    folders = ("chapters/", "exercises/", "solutions/")
    notebooks = {name for name in tracked_files() if name.startswith(folders) and name.endswith(".ipynb")}
    assert notebooks - {f"{page}.ipynb" for page in site_toc.pages()} == set()


# ---- the frame of each page


def test_page_says_what_it_is(html: BeautifulSoup) -> None:
    assert one(html, "html")["lang"] == "en"
    assert re.fullmatch(r"(.+ — )?From Sets to Sequences", one(html, "head > title").get_text())
    assert one(html, "head > title").get_text().count("From Sets to Sequences") == 1
    assert len(one(html, 'meta[name="description"]')["content"]) > 20
    assert [Path(icon["href"]).name for icon in html.select('link[rel="icon"]')] == ["favicon.svg", "icon.png"]
    assert one(html, 'link[rel="apple-touch-icon"]')["href"].endswith("icon.png")
    assert len(html.select("article h1")) == 1


def test_page_shows_no_date_of_its_build(html: BeautifulSoup) -> None:
    assert "Last updated" not in html.get_text()


def test_page_has_one_search_form(html: BeautifulSoup) -> None:
    one(html, "form.bd-search")


def test_every_icon_is_drawn_by_our_style_sheet(site: Path, html: BeautifulSoup) -> None:
    """The theme's icon script weighs 0.5 MB, so `icons.css` draws the icons in use, and must draw them all."""
    style = (site / "_static" / "icons.css").read_text(encoding="utf-8")
    drawn = set(re.findall(r"\.(fa-[a-z-]+) \{ --icon", style))
    sets_and_sizes = {"fa-solid", "fa-regular", "fa-brands", "fa-lg"}
    used = {name for tag in html.select("[class]") for name in tag["class"] if name.startswith("fa-")}
    assert used - drawn - sets_and_sizes == set()
    assert not html.select('script[src*="fontawesome"]')


def test_fonts_of_icons_hold_what_the_style_sheet_names_and_no_more(site: Path) -> None:
    style = (site / "_static" / "icons.css").read_text(encoding="utf-8")
    named = {name: int(code, 16) for name, code in re.findall(r'\.fa-([a-z-]+) \{ --icon: "\\([0-9a-f]+)"', style)}
    fonts = [TTFont(io.BytesIO(b64decode(text))) for text in re.findall(r"data:font/woff;base64,([\w+/=]+)", style)]
    glyphs = {code: glyph for font in fonts for code, glyph in font.getBestCmap().items()}
    other_names = {"pencil-alt": "pencil"}
    assert {name: glyphs[code] for name, code in named.items()} == {n: other_names.get(n, n) for n in named}
    assert glyphs.keys() == set(named.values())
    assert len(style) < 10_000


def test_menus_need_no_script(html: BeautifulSoup) -> None:
    for button in html.select(".dropdown > button"):
        menu = one(html, f"#{button['popovertarget']}")
        assert menu.has_attr("popover")
        assert menu.parent == button.parent
    assert not html.select("[data-bs-toggle]")  # what Bootstrap's script would serve
    assert not html.select('script[src*="bootstrap"]')


def test_mathjax_is_loaded_where_a_formula_is(html: BeautifulSoup) -> None:
    assert bool(html.select('script[src*="mathjax"]')) == bool(html.select(".math"))


def test_every_picture_says_what_it_shows(html: BeautifulSoup) -> None:
    for picture in html.select("article img"):
        alt = picture.get("alt", "")
        assert len(alt) > 10, f"{picture['src']} says too little: {alt!r}"
        assert not re.fullmatch(r"\S+\.(png|svg|jpe?g)|\S*[0-9a-f]{16,}\S*", alt), f"{alt!r} is a file's name"
    for drawing in html.select("article svg[role=img]"):
        assert one(drawing, "title").get_text().strip()


def test_folded_code_is_a_details_element(html: BeautifulSoup) -> None:
    """A keyboard opens <details> without any script."""
    for cell in html.select("article .tag_hide-input"):
        assert cell.select_one("details.hide > summary")
        assert not cell.select_one("details.hide[open]")


# ---- links to the site, and back to the repository


def tags_for_links(html: BeautifulSoup) -> dict[str, str]:
    tags = html.select('meta[property^="og:"], meta[name^="twitter:"]')
    return {tag.get("property") or tag["name"]: tag["content"] for tag in tags}


def test_a_link_to_a_page_has_words_and_a_picture(site: Path, page: str, html: BeautifulSoup) -> None:
    base = configured().pages + "/"
    tags = tags_for_links(html)
    assert tags["og:url"] == one(html, 'link[rel="canonical"]')["href"] == f"{base}{page}.html"
    assert tags["og:title"] == " ".join(one(html, "article h1").get_text().rstrip("#").split())
    assert tags["og:description"] == one(html, 'meta[name="description"]')["content"]
    assert tags["twitter:card"] == "summary_large_image"
    assert tags["og:image"].startswith(base)
    card = site / tags["og:image"].removeprefix(base)
    with Image.open(card) as picture:
        assert picture.size == (1200, 630) == (int(tags["og:image:width"]), int(tags["og:image:height"]))
    assert card.stat().st_size < CARD_LIMIT


def test_page_says_where_to_report_a_mistake_and_where_to_edit(page: str, html: BeautifulSoup) -> None:
    repository = configured()
    report, edit = (link["href"] for link in html.select("p.feedback a"))
    asked = parse_qs(urlsplit(report).query)
    title = one(html, "article h1").get_text().rstrip("#")
    assert report.startswith(f"{repository.url}/issues/new?")
    assert asked["title"] == [f"Mistake on “{title}”"]
    assert f"{repository.pages}/{page}.html" in asked["body"][0]
    verb, _, source = edit.removeprefix(f"{repository.url}/").partition(f"/{repository.branch}/")
    assert any(file == source if verb == "edit" else file.startswith(f"{source}/") for file in tracked_files()), edit
    assert source == mended_in(page)
    buttons = {link["href"] for link in html.select(".dropdown-source-buttons .dropdown-menu a")}
    assert buttons == {repository.url, edit, report}


def mended_in(page: str) -> str:
    """What one edits to change a page. A file that says that it is made is not it."""
    if is_notebook(page):
        return f"{page.replace('exercises/', 'solutions/')}.ipynb"
    text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
    made = re.search(r"Made by `make \w+`", text)
    return published.MADE_FROM[page] if made else f"{page}.md"


def test_the_sitemap_names_every_page_and_robots_find_it(site: Path) -> None:
    base = configured().pages
    tree = ElementTree.parse(site / "sitemap.xml").getroot()
    named = [place.text for place in tree.iter("{http://www.sitemaps.org/schemas/sitemap/0.9}loc")]
    assert sorted(named) == sorted(f"{base}/{page}.html" for page in site_toc.pages())
    assert f"Sitemap: {base}/sitemap.xml" in (site / "robots.txt").read_text(encoding="utf-8")


def test_the_page_for_the_lost_leads_home_from_any_depth(site: Path) -> None:
    html = soup_of(site, "404")
    root = urlsplit(configured().pages).path
    assert one(html, "base")["href"] == f"{root}/"
    address = f"https://book.invalid{root}/chapters/deep/nowhere.html"
    home = urljoin(address, one(html, "base")["href"])
    for tag in html.select("a[href], link[href], script[src], form[action]"):
        target = urlsplit(urljoin(home, tag.get("href") or tag.get("src") or tag.get("action")))
        if target.netloc == "book.invalid" and target.path != f"{root}/":
            assert (site / unquote(target.path).removeprefix(f"{root}/")).is_file(), tag
    assert one(html, "article form.bd-search")["action"] == "search.html"
    assert len(html.select("article .doors svg")) == 2


def test_the_address_is_the_one_that_commands_know() -> None:
    repository = configured()
    assert published.site_address(repository.url) == f"{repository.pages}/"
    assert published.site_address("https://github.com/Ada/notes") == "https://ada.github.io/notes/"


# ---- quick and calm


def test_no_script_holds_up_the_page_and_nothing_makes_it_jump(site: Path, page: str, html: BeautifulSoup) -> None:
    assert not [tag for tag in html.select("script[src]") if not tag.has_attr("defer")]
    assert not html.select('script[src*="searchindex"], link[rel=preload]')
    for picture in html.select("article .cell_output img"):
        assert picture["loading"] == "lazy"
        with Image.open((site / page).parent / picture["src"]) as stored:
            assert (int(picture["width"]), int(picture["height"])) == stored.size
    for formula in html.select("article .math"):
        assert re.fullmatch(r"--(width|height): \d+\.\d", formula["style"])


def test_theme_keeps_the_rules_that_a_page_can_use_and_no_other() -> None:
    style = """@import "x.css"; .a, .b:not(.c) { color: red } .c { } p { } .b .c { }
        @media print { .c { color: red } .a > p { } } @media (width > 9px) { .c { } }
        @font-face { font-family: x } .a::after { content: "}" } /* .c */ :is(.c, p).b { }"""
    kept = quick.used_rules(style, {"a", "b"}).replace(" ", "")
    assert kept == (
        '@import"x.css";.a,.b:not(.c){color:red}p{}@mediaprint{.a>p{}}@font-face{font-family:x}'
        '.a::after{content:"}"}:is(.c,p).b{}'
    )


def test_what_changes_below_a_mouse_changes_for_a_mouse_alone() -> None:
    style = """.a:hover, .a:focus, p:active { color: red } .a:not(:hover) { } .a:is(:hover, :focus) { }
        h2:hover .a { visibility: visible } @media print { .a:hover { } }"""
    assert quick.used_rules(style, {"a"}).replace(" ", "") == (
        ".a:focus{color:red}@media(hover:hover){.a:hover,p:active{color:red}}.a:not(:hover){}.a:is(:hover,:focus){}"
        "h2:hover.a{visibility:visible}@mediaprint{@media(hover:hover){.a:hover{}}}"
    )


@pytest.mark.parametrize(
    ("tex", "about"),
    [("n", 0.6), ("i", 0.35), ("2k+1", 2.8), (r"q_i \cdot k_j", 2.4), (r"\frac{a}{b + c}", 1.8), (r"R_i^\top", 1.4)],
)
def test_the_room_of_a_formula_is_about_its_width(tex: str, about: float) -> None:
    assert formulas.width(tex) == pytest.approx(about, rel=0.2)


def test_no_style_of_the_screen_asks_about_the_whole_page(site: Path) -> None:
    """`body:has(…) button` looks through the page whenever the button is touched: 1 ms of a fast processor."""
    whole = re.compile(r"(?:\bhtml|\bbody|:root|#main-content|\.bd-\w+|\barticle)[^\s>+~,{(]*:has\(")
    assert whole.search("body.x:has(.y) a")
    styles = [*(site / "_static").glob("*.css"), *(site / "_static" / "styles").glob("*.css")]
    assert len(styles) > 5
    for style in styles:
        for head, _ in rules_of_screen(style.read_text(encoding="utf-8")):
            assert not whole.search(head), (style.name, head)


def rules_of_screen(style: str) -> Iterator[tuple[str, str]]:
    """Each rule outside `@media print`."""
    for head, body in quick.rules(re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)):
        if head.startswith(("@media", "@supports")):
            yield from rules_of_screen(body) if "print" not in head else ()
        else:
            yield head, body


def test_every_colour_of_code_can_be_read(site: Path) -> None:
    """WCAG AA on both grounds of code, in both modes: 4.5 to 1."""
    style = (site / "_static" / "pygments.css").read_text(encoding="utf-8")
    book = (site / "_static" / "book.css").read_text(encoding="utf-8")
    for mode in ("light", "dark"):
        of_mode = re.search(rf'data-theme="{mode}"\] {{(.*?)}}', book, re.DOTALL)[1]
        grounds = [re.search(rf"--pst-color-{name}: (#\w+)", of_mode)[1] for name in ("background", "surface")]
        inks = set(re.findall(rf'data-theme="{mode}"\] \.highlight \.\w+ {{ color: (#\w{{6}})', style))
        assert len(inks) > 5
        assert {(ink, ground) for ink in inks for ground in grounds if contrast(ink, ground) < 4.5} == set()
    assert contrast("#777777", "#ffffff") < 4.5 < contrast("#767676", "#ffffff")


def contrast(ink: str, ground: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    brighter, darker = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# ---- what is configured


def test_notebooks_are_shown_as_they_are_stored(page: str, html: BeautifulSoup) -> None:
    if not is_notebook(page):
        pytest.skip("a page without cells")
    notebook = json.loads((ROOT / f"{page}.ipynb").read_text(encoding="utf-8"))
    pictures = [
        output
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {}) and "remove-output" not in cell["metadata"].get("tags", [])
    ]
    assert len(html.select("article .cell_output img")) >= len(pictures)
