"""What every stored notebook must be, as small named rules.

nbval re-runs the notebooks and compares outputs, but passes in silence where nothing is stored, and knows nothing
of Colab. These rules look at the stored file. `faults` is a pure function: notebook in, sentences out.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from nbformat import NotebookNode
from nbformat.validator import iter_validate

from tools import bootstrap, files, prose, quiz, source
from tools.repository import Repository

SIZE_LIMIT = 1_500_000
ALT_LENGTH = 20
HEADINGS = ("## Red flags", "## Sixty seconds", "## If an interviewer asks", "## Quiz", "## On a GPU", "## Sources")
QUIZ_LENGTH, CHOICES, REASON_WORDS = 5, (3, 4), 8


@dataclass(frozen=True)
class Page:
    """A notebook, where it lies in the repository, and the repository it must point to."""

    notebook: NotebookNode
    path: str
    repository: Repository

    def cells(self, kind: str) -> Iterator[tuple[int, NotebookNode]]:
        """Cells of one kind with their number as a reader counts them, from 1, all kinds together."""
        numbered = enumerate(self.notebook.cells, start=1)
        return ((number, cell) for number, cell in numbered if cell.cell_type == kind)

    def outputs(self) -> Iterator[tuple[int, NotebookNode, NotebookNode]]:
        return ((number, cell, output) for number, cell in self.cells("code") for output in cell.outputs)


Rule = Callable[[Page], Iterator[str]]
RULES: dict[str, Rule] = {}
CHAPTER_RULES: dict[str, Rule] = {}


def faults(notebook: NotebookNode, path: str, repository: Repository) -> list[str]:
    """Everything wrong with the notebook at `path` (`chapters/01_….ipynb`): `rule: what to do`, one sentence each."""
    page = Page(notebook, path, repository)
    rules = RULES | (CHAPTER_RULES if PurePosixPath(path).parts[0] == "chapters" else {})
    return [f"{name}: {sentence}" for name, rule in rules.items() for sentence in rule(page)]


def _rule(function: Rule) -> Rule:
    RULES[function.__name__.replace("_", "-")] = function
    return function


def _chapter_rule(function: Rule) -> Rule:
    CHAPTER_RULES[function.__name__.replace("_", "-")] = function
    return function


# ---- the run


@_rule
def order(page: Page) -> Iterator[str]:
    for expected, (number, cell) in enumerate(page.cells("code"), start=1):
        if cell.execution_count != expected:
            yield (
                f"cell {number} has execution count {cell.execution_count} in place of {expected}, "
                "so run the whole notebook from the top with `make notebooks`."
            )
            return


@_rule
def syntax(page: Page) -> Iterator[str]:
    for number, cell in page.cells("code"):
        if _broken(cell):
            yield f"cell {number} is not Python, so correct its syntax."


@_rule
def stored_output(page: Page) -> Iterator[str]:
    for number, cell in page.cells("code"):
        if not _broken(cell) and source.shows_something(cell.source) and not cell.outputs:
            yield (
                f"cell {number} shows something but has no stored output, "
                "so run `make notebooks`, or end its last line with `;` if it shows nothing."
            )


@_rule
def no_error(page: Page) -> Iterator[str]:
    for number, _, output in page.outputs():
        if output.output_type == "error":
            yield f"cell {number} stores the error {output.ename}, so mend it, or catch the error and print it."


@_rule
def no_stderr(page: Page) -> Iterator[str]:
    for number, _, output in page.outputs():
        if output.output_type == "stream" and output.name == "stderr":
            yield f"cell {number} stores something written to stderr, so remove its cause."


@_rule
def no_warning(page: Page) -> Iterator[str]:
    for number, _, output in page.outputs():
        if found := re.search(r"\b[A-Z]\w*Warning\b|\bwarnings\.warn\b|\bWARNING\b", _text(output)):
            yield f"cell {number} stores a warning ({found.group()}), so remove its cause."


@_rule
def no_widgets(page: Page) -> Iterator[str]:
    if "widgets" in page.notebook.metadata:
        yield "the notebook stores the state of widgets, so remove `widgets` from its metadata."
    for number, _, output in page.outputs():
        if any("widget" in mime for mime in output.get("data", {})):
            yield f"cell {number} shows a widget, which is blank on the site, so print or draw instead."


@_rule
def no_machine_path(page: Page) -> Iterator[str]:
    pattern = re.compile(r"(?:(?<![\w.\-/])|(?<=file://))/(?:home|root|tmp|Users|work)/|\b[A-Za-z]:\\{1,2}Users\b")
    for number, cell in enumerate(page.notebook.cells, start=1):
        texts = [cell.source, *map(_text, cell.get("outputs", []))]
        if found := next(filter(None, map(pattern.search, texts)), None):
            yield f"cell {number} names a folder of one machine ({found.group()}), so leave the path out."


@_rule
def tags(page: Page) -> Iterator[str]:
    banned = {"raises-exception", "nbval-raises-exception", "nbval-skip", "skip-execution", "nbval-check-output"}
    for number, cell in page.cells("code"):
        for tag in sorted(banned & _tags(cell)):
            yield f"cell {number} carries the tag {tag}, so remove it and let the cell be run and compared."
        if re.search(r"(?m)^\s*#\s*(NBVAL|PYTEST_VALIDATE)_\w+\s*$", cell.source):
            yield f"cell {number} speaks to nbval in a comment, so use the tag `nbval-ignore-output` or nothing."


@_rule
def ignored_output_is_asserted(page: Page) -> Iterator[str]:
    cells = [pair for pair in page.cells("code") if not _broken(pair[1])]
    for place, (number, cell) in enumerate(cells):
        if "nbval-ignore-output" not in _tags(cell):
            continue
        if not any(source.asserts_something(near.source) for _, near in cells[place : place + 2]):
            yield f"cell {number} has its output ignored, so assert what must hold there or in the next code cell."


# ---- pictures


@_rule
def one_picture_a_cell(page: Page) -> Iterator[str]:
    for number, cell in page.cells("code"):
        if len(_image_outputs(cell)) > 1:
            yield f"cell {number} draws several pictures, so split it: one cell has one alternative text."


@_rule
def alt_text(page: Page) -> Iterator[str]:
    for number, cell in page.cells("code"):
        for output in _image_outputs(cell)[:1]:
            alt = _alt(cell)
            if len(alt) < ALT_LENGTH or re.fullmatch(r"\S+\.\w{2,4}", alt):
                yield f"cell {number} has a picture, so say what it shows, in {ALT_LENGTH}+ letters (mystnb.image.alt)."
            elif (own := _own_alt(output)) not in (None, alt):
                yield f"cell {number} has another alt text than its picture ({own!r}), so run `make notebooks`."


# ---- prose


@_rule
def links(page: Page) -> Iterator[str]:
    for number, cell in page.cells("markdown"):
        for target in prose.links(cell.source):
            if not re.match(r"https://[\w-]|#\S", target):
                yield f"cell {number} links to {target!r}, which is dead in Colab, so write an absolute https address."


@_rule
def prose_pictures(page: Page) -> Iterator[str]:
    for number, cell in page.cells("markdown"):
        for target, alt in prose.pictures(cell.source):
            if not target.startswith("data:image/"):
                yield f"cell {number} loads the picture {target[:60]!r} from elsewhere, so draw it in a code cell."
            elif len(alt) < ALT_LENGTH:
                yield f"cell {number} has a picture without alternative text, so say what it shows."


@_rule
def no_myst(page: Page) -> Iterator[str]:
    for number, cell in page.cells("markdown"):
        for found in prose.myst(cell.source):
            yield f"cell {number} uses MyST ({found}), which Colab shows raw, so write plain Markdown."


@_rule
def no_attachments(page: Page) -> Iterator[str]:
    for number, cell in enumerate(page.notebook.cells, start=1):
        if cell.get("attachments"):
            yield f"cell {number} has an attachment, so draw the picture in a code cell."


# ---- the file


@_rule
def valid(page: Page) -> Iterator[str]:
    for error in iter_validate(page.notebook):
        yield f"the file is not a valid notebook ({error.message[:80]}), so run `make notebooks`."
        return


@_rule
def size(page: Page) -> Iterator[str]:
    stored = len(files.text(page.notebook).encode())
    if stored > SIZE_LIMIT:
        yield f"the file has {stored:,} bytes, more than {SIZE_LIMIT:,}, so draw smaller pictures."


@_rule
def kernel(page: Page) -> Iterator[str]:
    if page.notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "the notebook names a kernel other than python3, so run `make notebooks`."


@_rule
def cell_ids(page: Page) -> Iterator[str]:
    ids = [cell.get("id") for cell in page.notebook.cells]
    for identity in sorted({str(identity) for identity in ids if identity is None or ids.count(identity) > 1}):
        yield f"the cell id {identity} is missing or used twice, so give every cell an id of its own."


@_rule
def title(page: Page) -> Iterator[str]:
    expected = bootstrap.colab_line(page.repository, page.path)
    first = page.notebook.cells[0] if page.notebook.cells else NotebookNode(cell_type="none", source="")
    lines = [line for line in first.source.splitlines() if line.strip()]
    if first.cell_type != "markdown" or not lines or not lines[0].startswith("# ") or lines[1:2] != [expected]:
        yield f"the first cell must be the title `# …` and directly below it the line {expected}"


@_rule
def first_code_cell(page: Page) -> Iterator[str]:
    first = next((cell for _, cell in page.cells("code")), None)
    if first is None or first.source != bootstrap.first_code_cell(page.repository):
        yield "the first code cell must be the bootstrap, to the letter: `python -m tools.bootstrap` prints it."


@_rule
def no_installs(page: Page) -> Iterator[str]:
    installer = re.compile(
        r"\b(?:pip3?|conda|mamba|uv|apt|apt-get)\b.*\binstall\b"
        r"|get_ipython\(\)\.(?:system|getoutput)\("
        r"|run_(?:line|cell)_magic\('(?:pip|conda|mamba|micromamba|uv|bash|sh|script|system|sx|!)'"
    )
    for number, cell in list(page.cells("code"))[1:]:
        if not _broken(cell) and installer.search(source.python(cell.source)):
            yield f"cell {number} installs something or runs a shell, so leave that to the first code cell."


# ---- chapters


@_chapter_rule
def headings(page: Page) -> Iterator[str]:
    found = [heading for _, cell in page.cells("markdown") for heading in prose.headings(cell.source)]
    for heading in HEADINGS:
        if found.count(heading) != 1:
            yield f"the chapter has the heading `{heading}` {found.count(heading)} times, so write it once."


@_chapter_rule
def interview(page: Page) -> Iterator[str]:
    text = "\n\n".join(cell.source for _, cell in page.cells("markdown"))
    section = re.search(r"(?ms)^## If an interviewer asks\s*$(.*?)(?=^## |\Z)", text)
    if section and prose.folded_answers(section.group(1)) < 3:
        yield "the section `## If an interviewer asks` needs three questions or more, each a <details>."


@_chapter_rule
def quiz_questions(page: Page) -> Iterator[str]:
    if quiz.section(page.notebook) is None:
        return  # `headings` says so
    asked = quiz.questions(page.notebook)
    if [question.number for question in asked] != list(range(1, QUIZ_LENGTH + 1)):
        yield f"the quiz has {len(asked)} questions, so ask {QUIZ_LENGTH}, numbered `**1.**` to `**{QUIZ_LENGTH}.**`."
    for question in asked:
        yield from _choices_at_fault(question)


def _choices_at_fault(question: quiz.Question) -> Iterator[str]:
    label, choices = f"question {question.number} of the quiz", question.choices
    if len(choices) not in CHOICES:
        yield f"{label} has {len(choices)} choices, so give it 3 or 4, each a <details>."
    if (right := sum(choice.is_right for choice in choices)) != 1:
        yield f"{label} has {right} right choices, so begin one answer with {quiz.RIGHT}, the others with {quiz.WRONG}."
    for choice in choices:
        if not (choice.is_right or choice.is_wrong):
            yield f"{label}: begin what is said of {choice.text!r} with {quiz.RIGHT} or {quiz.WRONG}."
        elif len(choice.reason.split()) < REASON_WORDS:
            yield f"{label}: say of {choice.text!r} why, in {REASON_WORDS} words or more."
    if len({choice.text for choice in choices}) < len(choices):
        yield f"{label} offers the same choice twice, so change one."


@_chapter_rule
def three_pictures(page: Page) -> Iterator[str]:
    if (drawn := sum(bool(_image_outputs(cell)) for _, cell in page.cells("code"))) < 3:
        yield f"the chapter has {drawn} pictures, so draw at least three that carry the argument."


@_chapter_rule
def claims(page: Page) -> Iterator[str]:
    if not any(re.fullmatch(r"claim:C\d\d", tag) for _, cell in page.cells("code") for tag in _tags(cell)):
        yield "no cell settles a claim, so tag the one that does `claim:C01` or the like."


@_chapter_rule
def red_flags(page: Page) -> Iterator[str]:
    flagged = [(number, cell) for number, cell in page.cells("code") if "red-flag" in _tags(cell)]
    if not flagged:
        yield "no code cell carries the tag `red-flag`, so run a mistake and show that it is one."
    for number, cell in flagged:
        if not _broken(cell) and not source.asserts_something(cell.source):
            yield f"cell {number} is a red flag and asserts nothing, so assert that the mistake is one."


# ---- reading a cell


def _tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", []))


def _broken(cell: NotebookNode) -> bool:
    try:
        source.tree(cell.source)
    except SyntaxError:
        return True
    return False


def _text(output: NotebookNode) -> str:
    """What an output says in letters (not the bytes of a picture, which may spell anything)."""
    parts = [output.get("text", ""), output.get("evalue", ""), *output.get("traceback", [])]
    data = output.get("data", {})
    parts += [str(data[mime]) for mime in data if mime.startswith(("text/", "application/", "image/svg"))]
    return "\n".join(parts)


def _image_outputs(cell: NotebookNode) -> list[NotebookNode]:
    return [output for output in cell.outputs if any(mime.startswith("image/") for mime in output.get("data", {}))]


def _alt(cell: NotebookNode) -> str:
    return cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")


def _own_alt(output: NotebookNode) -> str | None:
    return next(
        (about["alt"] for mime, about in output.metadata.items() if mime.startswith("image/") and "alt" in about), None
    )
