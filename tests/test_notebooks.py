"""The committed notebooks keep the rules of tools/guard.py, and each of those rules can fail."""

import base64
import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import bootstrap, budget, exercises, files, guard
from tools.repository import Repository, configured

NOTEBOOKS = files.notebooks()
MASTERS = files.notebooks(folders=("solutions",))


# ---- the notebooks of the book


@pytest.mark.parametrize("path", NOTEBOOKS, ids=files.name)
def test_notebook_keeps_every_rule(path: Path) -> None:
    assert guard.faults(files.read(path), files.name(path), configured()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=files.name)
def test_notebook_is_stored_in_its_one_form(path: Path) -> None:
    """So that running it again changes lines only where its content changed."""
    assert path.read_text(encoding="utf-8") == files.text(files.read(path)), "run `make notebooks`"


@pytest.mark.parametrize("path", MASTERS, ids=files.name)
def test_exercises_are_what_their_solutions_generate(path: Path) -> None:
    exercise = files.read(files.ROOT / "exercises" / path.name)
    generated = exercises.generate(files.read(path), files.name(path))
    assert exercises.skeleton(exercise) == exercises.skeleton(generated), "run `make exercises`"


def test_every_chapter_has_its_exercises_and_solutions() -> None:
    chapters, solutions, learners = ([path.name for path in files.notebooks(folders=(f,))] for f in files.FOLDERS)
    assert chapters == solutions == learners


# ---- a good notebook, and one small mutation for each way of being bad

REPOSITORY = Repository("https://github.com/ada/a-book", "main")
PATH = "chapters/01_good.ipynb"
ALT = "Two bars, the second twice as high as the first."
PIXEL = base64.b64encode(b"a picture").decode()


def chapter() -> NotebookNode:
    """The smallest chapter that no rule has anything against."""
    link = bootstrap.colab_line(REPOSITORY, PATH)
    answers = "\n\n".join(f"<details><summary>Question {n}?</summary>\n\nAnswer.\n\n</details>" for n in range(3))
    quiz = "\n\n".join(asked(number) for number in range(1, 6))
    cells = [
        new_markdown_cell(f"# A good chapter\n\n{link}\n\nIt has $x^2$, `{{code}}` and [a link](https://arxiv.org)."),
        new_code_cell(bootstrap.first_code_cell(REPOSITORY)),
        new_code_cell("import random\n\n\ndef say(word):\n    print(word)"),
        new_code_cell("print(1 + 1)", outputs=[new_output("stream", text="2\n")], metadata={"tags": ["claim:C01"]}),
        *[figure() for _ in range(3)],
        new_markdown_cell("## Red flags"),
        new_code_cell("assert 1 + 1 != 3", metadata={"tags": ["red-flag"]}),
        new_markdown_cell(f"## Sixty seconds\n\n- one\n\n## If an interviewer asks\n\n{answers}\n\n## On a GPU"),
        new_code_cell(
            "x = random.random()\nx",
            outputs=[new_output("execute_result", {"text/plain": "0.5"}, execution_count=9)],
            metadata={"tags": ["nbval-ignore-output"]},
        ),
        new_code_cell("assert 0 <= x < 1"),
        new_markdown_cell(f"## Quiz\n\n{quiz}"),
        new_markdown_cell("## Sources\n\n[Vaswani et al.](https://arxiv.org/abs/1706.03762), [top](#A-good-chapter)"),
    ]
    notebook = new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), start=1):
        cell.execution_count = count
    return notebook


def asked(number: int) -> str:
    """A question of the quiz."""
    reason = "One sentence that says why it is so."
    choices = "\n\n".join(
        f"<details>\n<summary>{choice}</summary>\n\n**{'Right' if choice == 'two' else 'No'}.** {reason}\n\n</details>"
        for choice in ("one", "two", "three")
    )
    return f"**{number}.** Something is there. **How many?**\n\n{choices}"


def figure() -> NotebookNode:
    picture = new_output("display_data", {"image/png": PIXEL}, metadata={"image/png": {"alt": ALT}})
    return new_code_cell("show(bars, alt)", outputs=[picture], metadata={"mystnb": {"image": {"alt": ALT}}})


def code(notebook: NotebookNode, text: str) -> NotebookNode:
    """The code cell whose source begins with this."""
    return next(cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.startswith(text))


def faults(notebook: NotebookNode, path: str = PATH) -> list[str]:
    return guard.faults(notebook, path, REPOSITORY)


def test_good_chapter_has_no_fault() -> None:
    assert faults(chapter()) == []


def source(begins: str, becomes: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: code(notebook, begins).update(source=becomes)


def prose(text: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells.append(new_markdown_cell(text))


def says(text: str, kind: str = "stdout") -> Callable[[NotebookNode], None]:
    """Store this as what the printing cell wrote."""
    return lambda notebook: code(notebook, "print").update(outputs=[new_output("stream", name=kind, text=text)])


def shows(data: dict[str, str]) -> Callable[[NotebookNode], None]:
    return lambda notebook: code(notebook, "print").outputs.append(new_output("display_data", data))


def tagged(begins: str, *tags: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: code(notebook, begins).metadata.update(tags=list(tags))


def described(alt: str) -> Callable[[NotebookNode], None]:
    """Give a picture that says nothing about itself this alternative text."""

    def change(notebook: NotebookNode) -> None:
        cell = code(notebook, "show")
        cell.outputs[0].metadata = NotebookNode()
        cell.metadata.mystnb.image.alt = alt

    return change


def titled(text: str) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells[0].update(source=text)


def rewritten(old: str, new: str) -> Callable[[NotebookNode], None]:
    """Replace a text in the Markdown cells."""

    def change(notebook: NotebookNode) -> None:
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new) if cell.cell_type == "markdown" else cell.source

    return change


BAD = [
    ("order", lambda n: code(n, "print").update(execution_count=None)),
    ("order", lambda n: code(n, "print").update(execution_count=17)),
    ("syntax", source("assert 1", "assert assert")),
    ("stored-output", lambda n: code(n, "print").update(outputs=[])),
    ("stored-output", source("assert 1", "for n in range(3):\n    print(n)\nassert True")),
    ("stored-output", source("assert 1", "if n:\n    print(1)\nelse:\n    print(2)\nassert True")),
    ("stored-output", source("assert 1", "check(slopes)\nassert True")),
    ("stored-output", source("assert 1", "assert True\n1 + 1")),
    ("no-error", lambda n: code(n, "print").outputs.append(new_output("error", ename="KeyError", evalue="x"))),
    ("no-stderr", says("progress", kind="stderr")),
    ("no-warning", says("UserWarning: the old name goes away")),
    ("no-widgets", lambda n: n.metadata.update(widgets={"state": {}})),
    ("no-widgets", shows({"application/vnd.jupyter.widget-view+json": "{}"})),
    *[("no-machine-path", says(f"saved to /{folder}/x")) for folder in ("home", "root", "tmp", "Users")],
    *[("no-machine-path", says(f"saved to {path}")) for path in ("'/tmp/x'", "file:///tmp/x")],
    ("no-machine-path", says(r"C:\Users\ada")),
    ("no-machine-path", source("assert 1", "assert open('/tmp/x')")),
    ("no-machine-path", shows({"text/html": "<b>/tmp/x</b>"})),
    *[("tags", tagged("print", tag, "claim:C01")) for tag in ("raises-exception", "nbval-skip", "skip-execution")],
    ("tags", source("print", "# NBVAL_IGNORE_OUTPUT\nprint(2)")),
    ("ignored-output-is-asserted", source("assert 0", "y = x")),
    ("one-picture-a-cell", lambda n: code(n, "show").outputs.append(code(n, "show").outputs[0])),
    ("alt-text", lambda n: code(n, "show").metadata.pop("mystnb")),
    ("alt-text", described("Bars.")),
    ("alt-text", described("0123456789abcdef0123456789abcdef.png")),
    ("alt-text", lambda n: code(n, "show").metadata.mystnb.image.update(alt="Three bars of the same height.")),
    ("links", prose("[next](02_next.ipynb)")),
    ("links", prose("[old](http://example.org)")),
    ("links", prose("[mail](mailto:ada@example.org)")),
    ("links", prose("text <a href='02_next.html'>next</a>")),
    ("links", prose("see [this]\n\n[this]: 02_next.ipynb")),
    ("prose-pictures", prose("![A picture of two bars](bars.png)")),
    ("prose-pictures", prose("![A picture of two bars](https://example.org/bars.png)")),
    ("prose-pictures", prose("<img src='bars.png' alt='A picture of two bars'>")),
    ("prose-pictures", prose(f"![](data:image/png;base64,{PIXEL})")),
    ("no-myst", prose("See {ref}`masks`.")),
    ("no-myst", prose("```{note}\nText\n```")),
    ("no-myst", prose(":::{note}\nText\n:::")),
    ("no-myst", prose("(masks)=\n\n## Masks")),
    ("no-myst", prose("a phrase{#masks} with an id")),
    ("no-myst", prose("said before[^1]")),
    ("no-myst", prose("$$x$$ (eq:x)")),
    ("no-attachments", lambda n: n.cells[0].update(attachments={"x.png": {"image/png": PIXEL}})),
    ("size", says("x" * guard.SIZE_LIMIT)),
    ("kernel", lambda n: n.metadata.kernelspec.update(name="conda-base")),
    ("valid", lambda n: n.cells[1].update(id="not an id!")),
    ("cell-ids", lambda n: n.cells[1].update(id=n.cells[0].id)),
    ("title", titled("A chapter without a heading")),
    ("title", rewritten("/blob/main/chapters/01_good", "/blob/main/chapters/02_other")),
    ("title", rewritten("github/ada/a-book", "github/bob/a-book")),
    ("first-code-cell", source("# In Colab", "import sys")),
    *[
        ("no-installs", source("assert 1", f"{line}\nassert True"))
        for line in ("!ls", "%pip install x", "%conda install x", "x = !ls", "run(['pip', 'install', 'x'])")
    ],
    ("no-installs", source("import random", "%%bash\nls")),
    *[("headings", rewritten(heading, "## Other")) for heading in guard.HEADINGS],
    ("interview", rewritten("<details><summary>Question 2?</summary>\n\nAnswer.\n\n</details>", "Question 2?")),
    ("quiz-questions", rewritten("**5.** ", "**6.** ")),
    ("quiz-questions", rewritten(asked(5), "")),
    ("quiz-questions", rewritten("**3.** ", "3. ")),
    ("quiz-questions", rewritten("<summary>one</summary>\n\n**No.**", "<summary>one</summary>\n\n**Right.**")),
    ("quiz-questions", rewritten("**Right.**", "**No.**")),
    ("quiz-questions", rewritten("**Right.** One sentence", "One sentence")),
    ("quiz-questions", rewritten("One sentence that says why it is so.", "Seven words and not a single more.")),
    ("quiz-questions", rewritten("<summary>three</summary>", "<summary>one</summary>")),
    ("quiz-questions", rewritten(asked(2), asked(2).partition("<details>\n<summary>three")[0])),
    ("three-pictures", lambda n: code(n, "show").update(outputs=[new_output("stream", text="no bars")])),
    ("claims", tagged("print", "claim:many")),
    ("red-flags", tagged("assert 1")),
    ("red-flags", source("assert 1", "x = 1")),
]


@pytest.mark.parametrize(("rule", "mutate"), BAD, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(BAD)])
def test_rule_names_its_fault(rule: str, mutate: Callable[[NotebookNode], None]) -> None:
    """The rule at which the mutation aims speaks, and no other rule does."""
    notebook = copy.deepcopy(chapter())
    mutate(notebook)
    assert {fault.partition(":")[0] for fault in faults(notebook)} == {rule}


def test_every_rule_is_shown_to_fail() -> None:
    assert {rule for rule, _ in BAD} == guard.RULES.keys() | guard.CHAPTER_RULES.keys()


def test_only_chapters_need_the_sections_of_a_chapter() -> None:
    notebook = chapter()
    notebook.cells = notebook.cells[:3]
    notebook.cells[0].source = f"# Exercise 1 · Good\n\n{bootstrap.colab_line(REPOSITORY, 'exercises/01_good.ipynb')}"
    assert faults(notebook, "exercises/01_good.ipynb") == []


@pytest.mark.parametrize(
    "text",
    [
        "A link to [a folder called work](https://example.org/home/x), and `{ref}` alone.",
        "Maths $f^{[1]}(x)$ and $$\\sum_{i} x_{i}$$ and a set $\\{x\\}$`y`.",
        "```python\nx = {'a': 1}  # [not](a link)\n```",
        "Code: `[link](here.md)` and `{{x}}`.",
        "See <https://arxiv.org/abs/1706.03762>.",
    ],
)
def test_plain_markdown_is_left_alone(text: str) -> None:
    notebook = chapter()
    prose(text)(notebook)
    assert faults(notebook) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    print(1)",
        "f = lambda: print(1)",
        "if verbose:\n    print(1)",
        "optimizer.step();",
        "class A:\n    def show(self):\n        print(1)",
        "%matplotlib inline",
        "",
    ],
)
def test_cell_that_shows_nothing_needs_no_output(text: str) -> None:
    notebook = chapter()
    code(notebook, "assert 0").source = f"assert 0 <= x < 1\n{text}"
    assert faults(notebook) == []


# ---- run times


def test_budget_names_the_notebook_that_is_too_slow() -> None:
    names = ["chapters/01_a.ipynb", "exercises/01_a.ipynb"]
    assert budget.overruns(dict.fromkeys(names, 29.0), names) == []
    (sentence,) = budget.overruns(dict.fromkeys(names, 31.0), names)
    assert "exercises/01_a.ipynb took 31 s" in sentence


def test_budget_demands_a_time_for_every_notebook() -> None:
    (sentence,) = budget.overruns({}, ["chapters/01_a.ipynb"])
    assert "no recorded run time" in sentence
