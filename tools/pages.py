"""Make the pages that collect what the chapters say (`make pages`): claims, red flags, sixty seconds, interview.

Nothing on these pages is written twice. Sentences, questions and numbers come from the chapters' own cells; only the
wording of the claims stands in `book/claims.toml`, and some more questions in `book/questions.toml`. Each claim and red
flag links the very cell that settles it, by the anchor `cell-ID` that `book/_ext/cell_anchors.py` gives to cells.
"""

import hashlib
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nbformat import NotebookNode

from tools import files, glossary, notation, site_toc, status, who

VERDICTS = {
    "holds": "true as it stands",
    "holds if": "true under the condition that follows",
    "misleading": "true of something, but not of what one takes it for",
    "wrong": "false, and the cell shows a counterexample",
}
_FIELDS = {"said", "verdict", "fact", "find", "number"}
_CLAIM_TAG = re.compile(r"claim:(C\d\d)")
_HEADING = re.compile(r"(?m)^#{1,6} +(.+?) *$")
_FOLDED = re.compile(r"(?s)<details>\s*<summary>(.*?)</summary>(.*?)</details>")


class PagesError(ValueError):
    """Chapters and pages do not fit together: what is missing, and where."""


# ---- reading chapters


@dataclass(frozen=True)
class Cell:
    """A cell of a chapter. `heading` is the nearest one above it, or its own first."""

    id: str
    kind: str
    source: str
    tags: frozenset[str]
    shown: str  # what it prints, and the alternative text of what it draws
    heading: str

    @property
    def claims(self) -> list[str]:
        return sorted(match.group(1) for match in map(_CLAIM_TAG.fullmatch, self.tags) if match)


@dataclass(frozen=True)
class Chapter:
    """A chapter as its notebook is stored. `page` is `chapters/01_a_set_not_a_sequence`."""

    page: str
    title: str
    cells: tuple[Cell, ...]

    @property
    def number(self) -> int:
        return int(re.match(r"\d+", Path(self.page).name).group())

    @property
    def link(self) -> str:
        """A link to the whole chapter, for a page in `book/`."""
        return f"[{self.title}](../{self.page}.ipynb)"

    def link_to(self, cell: Cell, text: str | None = None) -> str:
        """A link to one cell. GitHub cannot jump to a cell, so the text names the heading under which it stands."""
        text = text or f"chapter {self.number}, under *{cell.heading.replace('*', '')}*"
        return f"[{text}](../{self.page}.ipynb#cell-{cell.id})"

    def section(self, heading: str) -> list[Cell]:
        """The cells below `## heading`, up to the next `##`; what they say beside is cut off."""
        inside, found = False, []
        for cell in self.cells:
            if cell.kind != "markdown":
                found += [cell] if inside else []
                continue
            for part in re.split(r"(?m)^(?=## )", cell.source):
                if part.startswith("## "):
                    title, _, part = part.partition("\n")
                    inside = title.strip() == f"## {heading}"
                if inside and part.strip():
                    found.append(Cell(cell.id, cell.kind, part.strip(), cell.tags, "", cell.heading))
        if not found:
            raise PagesError(f"{self.page} has nothing below `## {heading}`")
        return found

    def text(self, heading: str) -> str:
        """What `## heading` says, without its code."""
        return "\n\n".join(cell.source for cell in self.section(heading) if cell.kind == "markdown")


def read(notebook: NotebookNode, page: str) -> Chapter:
    """A chapter's notebook, as these pages need it."""
    cells, heading, title = [], "", ""
    for cell in notebook.cells:
        headings = _HEADING.findall(cell.source) if cell.cell_type == "markdown" else []
        title = title or (headings[0] if headings else "")
        opens = bool(headings) and cell.source.lstrip().startswith("#")
        heading = headings[0] if opens else heading
        tags = frozenset(cell.metadata.get("tags", []))
        cells.append(Cell(cell.id, cell.cell_type, cell.source, tags, _shown(cell), heading))
        heading = headings[-1] if headings else heading
    return Chapter(page, title, tuple(cells))


def _shown(cell: NotebookNode) -> str:
    shown = []
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        drawn = any(mime.startswith("image/") for mime in data)
        shown.append(output.get("text", "") if not data else "" if drawn else str(data.get("text/plain", "")))
    shown.append(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", ""))
    return "\n".join(text.rstrip() for text in shown if text.strip())


def chapters(root: Path = files.ROOT) -> list[Chapter]:
    """The chapters that `_toc.yml` names, in its order."""
    pages = [page for page in site_toc.pages() if page.startswith("chapters/")]
    if missing := [page for page in pages if not (root / f"{page}.ipynb").is_file()]:
        raise PagesError(f"_toc.yml names {', '.join(missing)}, and there is no such notebook")
    return [read(files.read(root / f"{page}.ipynb"), page) for page in pages]


# ---- claims


@dataclass(frozen=True)
class Claim:
    """A sentence that people say, the verdict, and how to find the number that settles it (`book/claims.toml`)."""

    name: str
    said: str
    verdict: str
    fact: str
    find: tuple[str, ...]
    number: str
    reads: str | None = None


@dataclass(frozen=True)
class Settled:
    """A claim, the cells that carry its tag (with their chapters), and the sentence with the number in it."""

    claim: Claim
    cells: tuple[tuple[Chapter, Cell], ...]
    measured: str
    measured_in: tuple[Chapter, Cell]


def claims(text: str) -> list[Claim]:
    """The claims as `book/claims.toml` declares them, by number."""
    found = []
    for name, entry in sorted(tomllib.loads(text).items()):
        if not (_FIELDS <= set(entry) <= _FIELDS | {"reads"}):
            raise PagesError(f"book/claims.toml: {name} needs {', '.join(sorted(_FIELDS))}, and may have `reads`")
        if entry["verdict"] not in VERDICTS:
            raise PagesError(f"book/claims.toml: {name} is {entry['verdict']!r}, which is none of {list(VERDICTS)}")
        found.append(Claim(name, **entry | {"find": tuple(entry["find"])}))
    return found


def settle(declared: list[Claim], book: list[Chapter]) -> list[Settled]:
    """Each claim with its cells. Raises PagesError for a claim without a cell, or a cell without a claim."""
    cells: dict[str, list[tuple[Chapter, Cell]]] = {}
    for chapter in book:
        for cell in chapter.cells:
            for name in cell.claims:
                cells.setdefault(name, []).append((chapter, cell))
    names = {claim.name for claim in declared}
    faults = [f"no cell carries the tag claim:{name}" for name in sorted(names - set(cells))]
    faults += [
        f"{cells[name][0][0].page}, cell {cells[name][0][1].id} carries the tag claim:{name}, "
        "which book/claims.toml does not know"
        for name in sorted(set(cells) - names)
    ]
    if faults:
        raise PagesError("\n".join(faults))
    return [_settled(claim, tuple(cells[claim.name]), book) for claim in declared]


def _settled(claim: Claim, cells: tuple[tuple[Chapter, Cell], ...], book: list[Chapter]) -> Settled:
    places = [(chapter, cell) for chapter in book for cell in chapter.cells if cell.id == claim.reads]
    place = next((place for place in places if place[0] in {chapter for chapter, _ in cells}), None)
    if claim.reads is None:
        place = next((place for place in cells if place[1].shown), None)
    if place is None:
        raise PagesError(f"book/claims.toml: {claim.name} has no cell to read its number from")
    numbers = [_numbers(pattern, claim, place) for pattern in claim.find]
    return Settled(claim, cells, claim.number.format(*numbers), place)


def _numbers(pattern: str, claim: Claim, place: tuple[Chapter, Cell]) -> str:
    """What the pattern's group finds, line by line, joined by commas."""
    chapter, cell = place
    found = [match.group(1) for line in cell.shown.splitlines() if (match := re.search(pattern, line))]
    if not found:
        raise PagesError(
            f"book/claims.toml: {claim.name} finds nothing like {pattern!r} "
            f"in {chapter.page}, cell {cell.id}, which shows\n{cell.shown}"
        )
    return ", ".join(" ".join(one.split()) for one in found)


def ledger(settled: list[Settled]) -> str:
    """`book/claims.md`."""
    parts = [
        "# Claims ledger",
        _made_from("book/claims.toml and the chapters"),
        f"{len(settled)} sentences that people say about positions in transformers, and what this book found when it "
        "ran them.",
        "\n".join(_with_verdict(verdict, meaning, settled) for verdict, meaning in VERDICTS.items()),
        "Each verdict is settled by a cell. The number is read from that cell's stored output, and the link leads to "
        "the cell. 2e-16 stands for 2 · 10⁻¹⁶; numbers as small as that are rounding. Where models were trained, they "
        "are small, and the number is about *those* models; the chapter says what they are.",
    ]
    shown = None
    for each in sorted(settled, key=lambda each: (each.cells[0][0].number, each.claim.name)):
        if shown != (chapter := each.cells[0][0]):
            shown = chapter
            parts.append(f"## {chapter.title}")
        parts += [f"### {each.claim.name} · “{each.claim.said}”", _verdict(each.claim), _evidence(each)]
    return _page(parts)


def _with_verdict(verdict: str, meaning: str, settled: list[Settled]) -> str:
    names = [each.claim.name for each in settled if each.claim.verdict == verdict]
    return f"* **{verdict.capitalize()}** ({meaning}): {', '.join(f'[{name}](#{name.lower()})' for name in names)}"


def _verdict(claim: Claim) -> str:
    if claim.verdict == "holds if":
        return f"**Holds if** {claim.fact}"
    return f"**{claim.verdict.capitalize()}.** {claim.fact}"


def _evidence(each: Settled) -> str:
    (chapter, cell), *others = [each.measured_in, *(place for place in each.cells if place != each.measured_in)]
    sentence = f"Measured: {each.measured} ({chapter.link_to(cell)})."
    more = [
        other.link_to(second, "another cell there" if (other, second.heading) == (chapter, cell.heading) else None)
        for other, second in others
    ]
    return f"{sentence} See also {', '.join(more)}." if more else sentence


# ---- red flags


@dataclass(frozen=True)
class RedFlag:
    """A wrong sentence or line of code, what there is to say about it, and the cell that refutes it."""

    chapter: Chapter
    wrong: str
    why: str
    cell: Cell
    after: str = ""


def red_flags(chapter: Chapter) -> list[RedFlag]:
    """What stands below `## Red flags`: a paragraph that begins with the wrong sentence in bold, then its cell.

    What follows a cell belongs to its flag, up to the next one. What follows the last cell leads out of the section.
    """
    found: list[RedFlag] = []
    wrong, why, after = "", [], []
    for cell in chapter.section("Red flags"):
        if cell.kind == "markdown":
            for paragraph in re.split(r"\n{2,}", cell.source):
                if match := re.match(r"(?s)(\*\*.+?\*\*)(.*)", paragraph):
                    if wrong:
                        raise PagesError(f"{chapter.page}: no cell with the tag red-flag follows {wrong}")
                    if found:
                        found[-1] = replace(found[-1], after="\n\n".join(after))
                    wrong, why, after = match.group(1), [match.group(2)], []
                elif wrong:
                    why.append(paragraph)
                else:
                    after.append(paragraph)
        elif "red-flag" in cell.tags:
            if not wrong:
                raise PagesError(f"{chapter.page}, cell {cell.id} is a red flag without a sentence in bold before it")
            found.append(RedFlag(chapter, wrong, "\n\n".join(why), cell))
            wrong, why = "", []
    if wrong:
        raise PagesError(f"{chapter.page}: no cell with the tag red-flag follows {wrong}")
    return found


def red_flags_page(book: list[Chapter]) -> str:
    """`book/red_flags.md`."""
    flags = [flag for chapter in book for flag in red_flags(chapter)]
    parts = [
        "# Red flags",
        _made_from("the chapters' sections `## Red flags`"),
        f"{len(flags)} sentences and lines of code that you will meet, each wrong in some way that does not crash. "
        "Below each: what is right in it or tempting about it, and what the book's code prints when it is run.",
        "In a review or an interview, hearing one of them is the moment to ask a question.",
    ]
    shown = None
    for flag in flags:
        if shown != flag.chapter:
            shown = flag.chapter
            parts.append(f"## {shown.title}")
        parts.append(f"{flag.wrong}{flag.why}")
        if flag.cell.shown:
            parts.append(_fenced(flag.cell.shown))
        settles = [f"[claim {name}](claims.md#{name.lower()})" for name in flag.cell.claims]
        parts += [flag.after] if flag.after else []
        parts.append(" · ".join([flag.chapter.link_to(flag.cell, "The cell that refutes it"), *settles]))
    return _page(parts)


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


# ---- sixty seconds, and the questions of an interviewer


def recaps_page(book: list[Chapter]) -> str:
    """`book/sixty_seconds.md`. Its first heading names it to the style sheet, which prints it on two sheets."""
    parts = [
        "# Sixty seconds a chapter",
        _made_from("the chapters' sections `## Sixty seconds`"),
        "All recaps on one page. Print it: it fits on two sheets.",
    ]
    for chapter in book:
        parts += [f"## {chapter.link}", chapter.text("Sixty seconds")]
    return _page(parts)


@dataclass(frozen=True)
class Question:
    """A question and its answer, both Markdown. `chapter` is the chapter's page."""

    chapter: str
    question: str
    answer: str

    @property
    def name(self) -> str:
        """Its anchor, by which a reader's browser remembers it. Another wording is another question."""
        return f"q-{hashlib.sha256(self.question.encode()).hexdigest()[:8]}"


def questions(book: list[Chapter]) -> list[Question]:
    """Everything below `## If an interviewer asks`, in reading order."""
    return [
        Question(chapter.page, " ".join(question.split()), answer.strip())
        for chapter in book
        for question, answer in _FOLDED.findall(chapter.text("If an interviewer asks"))
    ]


def more_questions(text: str, book: list[Chapter]) -> list[Question]:
    """The questions of `book/questions.toml`. Raises PagesError if no cell of the chapter shows the answer."""
    found = []
    for entry in tomllib.loads(text).get("question", []):
        if set(entry) != {"chapter", "cell", "ask", "answer"}:
            raise PagesError(f"book/questions.toml: {entry} needs chapter, cell, ask and answer, and nothing else")
        chapter = next((chapter for chapter in book if chapter.number == entry["chapter"]), None)
        cell = next((cell for cell in chapter.cells if cell.id == entry["cell"]), None) if chapter else None
        if chapter is None or cell is None:
            raise PagesError(
                f"book/questions.toml: {entry['ask']!r} is shown by cell {entry['cell']} of chapter "
                f"{entry['chapter']}, and there is no such cell"
            )
        shown = f"Shown in {chapter.link_to(cell)}."
        found.append(Question(chapter.page, entry["ask"], f"{entry['answer'].strip()}\n\n{shown}"))
    return found


def interview_page(book: list[Chapter], more: str = "") -> str:
    """`book/interview.md`. `more` is the text of `book/questions.toml`. `book/_static/drill.js` asks from this page."""
    asked = questions(book) + more_questions(more, book)
    parts = [
        "# If an interviewer asks",
        _made_from("the chapters' sections `## If an interviewer asks` and book/questions.toml"),
        f"{len(asked)} questions, in the order of the chapters. Answer aloud, then unfold. If you cannot say it "
        "without the page, the chapter's title leads to where it is shown.",
    ]
    for chapter in book:
        parts.append(f"## {chapter.link}")
        parts += [_unfolding(each) for each in asked if each.chapter == chapter.page]
    return _page(parts)


def _unfolding(question: Question) -> str:
    return f'<details id="{question.name}">\n<summary>{question.question}</summary>\n\n{question.answer}\n\n</details>'


# ---- the glossary


def glossary_page(book: list[Chapter], text: str) -> str:
    """`book/glossary.md`. `text` is that of `book/glossary.toml`. Raises PagesError if no cell shows a term."""
    cells = {chapter.number: (chapter.page, {cell.id for cell in chapter.cells}) for chapter in book}
    try:
        return glossary.page(glossary.read(text), cells)
    except glossary.GlossaryError as error:
        raise PagesError(str(error)) from None


def status_page(root: Path) -> str:
    """`book/status.md`. Raises PagesError if a notebook has no run."""
    try:
        return status.page(root)
    except (ValueError, FileNotFoundError) as error:
        raise PagesError(str(error)) from None


# ---- the files


def _made_from(what: str) -> str:
    return f"<!-- Made by `make pages` from {what}. Do not edit. -->"


def _page(parts: list[str]) -> str:
    return "\n\n".join(parts) + "\n"


def pages(root: Path = files.ROOT) -> Iterator[tuple[str, str]]:
    """Each generated page with its text, as it should be stored."""
    book = chapters(root)
    yield "book/claims.md", ledger(settle(claims((root / "book/claims.toml").read_text(encoding="utf-8")), book))
    yield "book/red_flags.md", red_flags_page(book)
    yield "book/sixty_seconds.md", recaps_page(book)
    yield "book/interview.md", interview_page(book, (root / "book/questions.toml").read_text(encoding="utf-8"))
    yield "book/who_uses_what.md", who.page()
    yield "book/glossary.md", glossary_page(book, (root / glossary.SOURCE).read_text(encoding="utf-8"))
    yield "book/notation.md", notation.page((root / notation.SOURCE).read_text(encoding="utf-8"))
    yield "book/status.md", status_page(root)


def main() -> int:
    try:
        for name, text in pages():
            path = files.ROOT / name
            changed = not path.exists() or path.read_text(encoding="utf-8") != text
            if changed:
                files.write_text(text, path)
            print(f"{name}: {'written' if changed else 'unchanged'}")
    except PagesError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
