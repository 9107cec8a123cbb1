"""The exercise notebooks say what the declarations say."""

import re
from pathlib import Path

import nbformat
import pytest

from posenc.checks.chapter_01 import LAYERS
from posenc.checks.examine import examine
from posenc.checks.registry import all_exercises, exercises_of
from posenc.symmetry import equivariance_error, must_break

ROOT = Path(__file__).parent.parent
MASTERS = sorted((ROOT / "solutions").glob("*.ipynb"))
HEADING = re.compile(
    r"^## (?P<number>\d+\.\d+) · (?P<title>.+)\n\n"
    r"\*(?P<points>\d+) points? · (?P<minutes>\d+) minutes · difficulty (?P<difficulty>\d) of 5\*\n",
    re.MULTILINE,
)


def cells_of(notebook: Path) -> list:
    return nbformat.read(notebook, as_version=4).cells


@pytest.mark.parametrize("master", MASTERS, ids=lambda p: p.stem)
def test_headings_tell_the_declared_title_points_minutes_and_difficulty(master):
    chapter = int(master.stem[:2])
    text = "\n\n".join(c.source for c in cells_of(master) if c.cell_type == "markdown")
    found = [m.groupdict() for m in HEADING.finditer(text)]
    declared = [
        {
            "number": f"{chapter}.{i}",
            "title": e.title,
            "points": str(e.points),
            "minutes": str(e.minutes),
            "difficulty": str(e.difficulty),
        }
        for i, e in enumerate(exercises_of(chapter), start=1)
    ]
    assert found == declared


@pytest.mark.parametrize("master", MASTERS, ids=lambda p: p.stem)
def test_every_solution_printed_in_the_book_earns_all_points(master):
    namespace: dict = {}
    for cell in cells_of(master):
        if cell.cell_type == "code" and "check(" not in cell.source and "%pip" not in cell.source:
            exec(cell.source, namespace)
    for exercise in exercises_of(int(master.stem[:2])):
        report = examine(namespace[exercise.name], exercise, seed=99)
        assert report.status == "correct", (exercise.name, report.findings)


@pytest.mark.parametrize("master", MASTERS, ids=lambda p: p.stem)
def test_every_exercise_has_a_check_and_at_least_two_hints(master):
    chapter = int(master.stem[:2])
    sources = [c.source for c in cells_of(master)]
    for exercise in exercises_of(chapter):
        at = sources.index(f"check({exercise.name})")
        hints = "\n".join(sources[at + 1 : at + 4])
        assert hints.count("<summary>Hint") >= 2, f"{exercise.name} needs two hints below its check"


def test_names_are_unique_and_every_chapter_has_six_or_more():
    chapters = {e.chapter for e in all_exercises().values()}
    assert all(len(exercises_of(chapter)) >= 6 for chapter in chapters)


@pytest.mark.parametrize("name", LAYERS)
def test_the_answers_of_the_prediction_are_measured(name):
    import torch

    layer, commutes = LAYERS[name]
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    error = equivariance_error(layer, x, torch.tensor([3, 0, 4, 1, 2]))
    assert error < 1e-12 if commutes else must_break(error)
