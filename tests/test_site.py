"""The built site, read as files: it is whole, it needs no other host, and its links lead somewhere."""

import json
import re
import subprocess
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup, Tag

from tools import site_toc
from tools.files import ROOT
from tools.repository import configured

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


@pytest.fixture
def html(site: Path, page: str) -> BeautifulSoup:
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
    return not fragment or f'id="{fragment}"' in file.read_text(encoding="utf-8")


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
    assert one(html, 'link[rel="icon"]')["href"].endswith("favicon.svg")
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
