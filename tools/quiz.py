"""Reading the quiz at the end of a chapter: five questions, each with choices, each choice with its reason.

The Markdown below `## Quiz` is the one source, for Colab, GitHub, paper and the site (`book/_static/quiz.js`):

    **1.** A stack of three layers … **Which is the first token that can matter?**

    <details>
    <summary>token 6</summary>

    **Right.** Each layer reaches three further back …

    </details>
"""

import re
from dataclasses import dataclass
from html import unescape

from nbformat import NotebookNode

RIGHT, WRONG = "**Right.**", "**No.**"
_SECTION = re.compile(r"(?ms)^## Quiz\s*$(.*?)(?=^## |\Z)")
_QUESTION = re.compile(r"(?m)^\*\*(\d+)\.")
_CHOICE = re.compile(r"(?s)<details>\s*<summary>(.*?)</summary>(.*?)</details>")
_HTML_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class Choice:
    """What one may choose, as it is read on the page, and what the page answers."""

    text: str
    answer: str

    @property
    def is_right(self) -> bool:
        return self.answer.startswith(RIGHT)

    @property
    def is_wrong(self) -> bool:
        return self.answer.startswith(WRONG)

    @property
    def reason(self) -> str:
        """The answer without its first word."""
        return self.answer.removeprefix(RIGHT).removeprefix(WRONG).strip()


@dataclass(frozen=True)
class Question:
    """`text` is what stands before the first choice, without the number."""

    number: int
    text: str
    choices: tuple[Choice, ...]


def section(notebook: NotebookNode) -> str | None:
    """What stands below `## Quiz`, or None if there is no such heading."""
    found = _SECTION.search("\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown"))
    return found and found.group(1)


def questions(notebook: NotebookNode) -> list[Question]:
    """The questions of a chapter's quiz, in their order."""
    parts = _QUESTION.split(section(notebook) or "")[1:]
    return [_question(int(number), part) for number, part in zip(parts[::2], parts[1::2], strict=True)]


def _question(number: int, part: str) -> Question:
    text = part.partition("<details>")[0].removeprefix("**").strip()
    return Question(number, text, tuple(_choice(*found) for found in _CHOICE.findall(part)))


def _choice(text: str, answer: str) -> Choice:
    return Choice(" ".join(unescape(_HTML_TAG.sub("", text)).split()), answer.strip())
