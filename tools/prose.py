"""Reading a Markdown cell as Colab and GitHub read it: plain CommonMark with tables and dollar maths."""

import itertools
import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

_READER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, allow_labels=True)


def links(text: str) -> list[str]:
    """The target of every link, written in Markdown or in HTML."""
    found = [str(token.attrs["href"]) for token in _flat(text) if token.type == "link_open"]
    return found + [attributes.get("href", "") for tag, attributes in _html(text) if tag == "a"]


def pictures(text: str) -> list[tuple[str, str]]:
    """Every picture, as (source, alternative text)."""
    found = [(str(token.attrs["src"]), token.content) for token in _flat(text) if token.type == "image"]
    return found + [(attrs.get("src", ""), attrs.get("alt", "")) for tag, attrs in _html(text) if tag == "img"]


def headings(text: str) -> list[str]:
    """Every heading as it is written, `## Red flags`."""
    tokens = _READER.parse(text)
    pairs = itertools.pairwise(tokens)
    return [f"{opening.markup} {inline.content}" for opening, inline in pairs if opening.type == "heading_open"]


def myst(text: str) -> list[str]:
    """Whatever only MyST understands, and Colab therefore shows raw."""
    tokens = _flat(text)
    found = [token.info for token in tokens if token.type == "fence" and token.info.startswith("{")]
    found += [f"({token.info})" for token in tokens if token.type == "math_block_label"]
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type != "text":
            continue
        found += re.findall(
            r"^:::+.*|^\([\w.:-]+\)=\s*$|^\+\+\+.*|\{\{.*?\}\}|\{[#.][\w-].*?\}|\[\^[^\]]+\]", token.content
        )
        role = re.search(r"\{[A-Za-z][\w:+.-]*\}$", token.content)
        if role and following is not None and following.type == "code_inline":
            found.append(f"{role.group()}`{following.content}`")
    return found


def formulas(text: str) -> list[str]:
    """Every formula, in a line or set apart, without its dollars."""
    return [token.content for token in _flat(text) if token.type in ("math_inline", "math_inline_double", "math_block")]


def inline_code(text: str) -> list[str]:
    """Whatever stands between backticks in running text."""
    return [token.content for token in _flat(text) if token.type == "code_inline"]


def folded_answers(text: str) -> int:
    return sum(tag == "details" for tag, _ in _html(text))


def _flat(text: str) -> list[Token]:
    return [part for token in _READER.parse(text) for part in (token.children or [token])]


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {key: value or "" for key, value in attrs}))


def _html(text: str) -> list[tuple[str, dict[str, str]]]:
    """The opening tags of the raw HTML in the text, with their attributes."""
    parser = _Tags()
    parser.feed("\n".join(token.content for token in _flat(text) if token.type in ("html_inline", "html_block")))
    return parser.found
