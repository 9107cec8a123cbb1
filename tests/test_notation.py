"""The same letters everywhere: every formula and every name in the chapters and solutions keeps to the notation."""

import re

import pytest

from tools import files, notation, prose
from tools.notation import NotationError, Rule, breaches

TEXT = (files.ROOT / notation.SOURCE).read_text(encoding="utf-8")
RULES = list(notation.rules(TEXT))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.example)
def test_a_rule_finds_its_example_and_not_what_should_be_written(rule: Rule) -> None:
    mark = "`" if rule.in_code else "$"
    (told,) = breaches(f"Here: {mark}{rule.example}{mark}.", [rule])
    assert f"{mark}{rule.example}{mark} has " in told
    assert f"write {rule.symbol}" in told
    assert breaches(f"{rule.symbol}: {rule.meaning}", [rule]) == []


def test_chapters_and_solutions_keep_to_the_notation() -> None:
    broken, n_formulas = [], 0
    for path in files.notebooks(folders=("chapters", "solutions")):
        for cell in files.read(path).cells:
            if cell.cell_type == "markdown":
                n_formulas += len(prose.formulas(cell.source))
                broken += [f"{files.name(path)}, cell {cell.id}: {each}" for each in breaches(cell.source, RULES)]
    assert n_formulas > 1000, "the search for formulas finds too few to be right"
    assert broken == []


def test_pages_keep_to_the_notation() -> None:
    for path in sorted((files.ROOT / "book").glob("*.md")):
        assert breaches(path.read_text(encoding="utf-8"), RULES) == [], path.name


def test_formulas_are_found_wherever_the_site_shows_one() -> None:
    text = (
        "> **Statement.** $a$ and\n> $$ b $$\n\n| $c$ |\n|---|\n| `d` |\n\n<details>\n\n* x $$e$$ y\n\n</details>\n\n"
    )
    text += "$$\nf\n$$\n"
    assert [formula.strip() for formula in prose.formulas(text)] == ["a", "b", "c", "e", "f"]
    assert prose.inline_code(text + "\n```\n`no`\n```\n") == ["d"]


def test_what_nobody_reads_is_an_error() -> None:
    with pytest.raises(NotationError, match=r"\['nevr'\], which nobody reads"):
        list(notation.rules(TEXT.replace("never = ", "nevr = ", 1)))
    with pytest.raises(NotationError, match=re.escape(notation.SOURCE)):
        notation.page(TEXT.replace("before = ", "before ", 1))


def test_the_page_shows_every_symbol_once() -> None:
    page = notation.page(TEXT)
    symbols = [symbol for group in notation.declared(TEXT)["group"] for symbol in group["symbol"]]
    assert len(symbols) > 30
    for symbol in symbols:
        written = symbol["write"].replace("|", r"\|")
        assert page.count(f"\n| {written} | ") == 1, written
