"""A survey of tests finds what other seeds would break, and what could be."""

from pathlib import Path

import pytest

from tools import margins_of_tests
from tools.margins import Run

NOISE = '''\
"""Tests for a survey."""
import numpy as np
import pytest
import torch


@pytest.mark.parametrize("seed", [1, 2])
def test_mean_is_near_zero(seed):
    drawn = torch.randn(100, generator=torch.Generator().manual_seed(seed))
    assert drawn.mean().abs() < 0.12
    assert drawn.numel() == 100


def test_numpy_too():
    handed_through = np.random.default_rng(np.random.default_rng(0))
    assert -0.1 < handed_through.random() < 1.1


def test_first_draw():
    torch.manual_seed(0)
    assert torch.randint(1_000_000, (1,)).item() == FIRST


def test_no_more_than_that():
    torch.manual_seed(0)
    if torch.randint(1_000_000, (1,)).item() != FIRST:
        raise ValueError("another draw")


@pytest.mark.slow
def test_not_run():
    raise AssertionError
'''
TIED = ("test_noise.py", "torch.randint(…) == …")
OTHER = ("test_noise.py", "ValueError: another draw")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    import torch

    first = torch.randint(1_000_000, (1,), generator=torch.Generator().manual_seed(0)).item()
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_noise.py").write_text(NOISE.replace("FIRST", str(first)), encoding="utf-8")
    (folder / "test_calm.py").write_text("def test_calm():\n    assert 1 < 2\n", encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: not quick\n", encoding="utf-8")
    paths = margins_of_tests.drawing(folder)
    assert [path.name for path in paths] == ["test_noise.py"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(margins_of_tests, "SHIFTS", 4)
        return margins_of_tests.runs_of(paths, processes=2)


def test_each_run_has_seeds_of_its_own(runs: list[Run]) -> None:
    assert len(runs) == 4
    assert len({run.margins[0, 0, 0].margin for run in runs}) == 4  # torch's
    assert len({run.margins[2, 0, 0].margin for run in runs}) == 4  # numpy's
    assert all(len(run.held[0]) == 2 for run in runs)  # both cases of the parameter
    assert runs[0].errors == {}


def test_what_is_close_and_what_breaks_is_an_open_point(runs: list[Run]) -> None:
    points = list(margins_of_tests.open_points(runs, {}))
    assert any("0.12" in point for point in points)
    assert any("not: torch.randint" in point and "+ 1000, + 2000, + 3000" in point for point in points)
    assert sum("another draw" in point for point in points) == 3
    assert not any("1.1" in point or "numel" in point or "not_run" in point for point in points)


def test_a_reason_excuses_what_it_names_and_what_no_one_needs_is_named(runs: list[Run]) -> None:
    reasons = {TIED: "this draw", OTHER: "this draw", ("test_noise.py", "drawn.numel() == 100"): "x"}
    points = list(margins_of_tests.open_points(runs, reasons))
    assert not any("randint" in point or "another draw" in point for point in points)
    assert points[-1] == "not needed: test_noise.py: drawn.numel() == 100"


def test_what_came_closest_is_said(runs: list[Run]) -> None:
    head, first, *_ = margins_of_tests.closest(runs)
    assert head.startswith("4 assertions, 3 comparisons of numbers, 3 depend on seeds")
    assert first.endswith("drawn.mean().abs() < 0.12")


def test_a_file_that_does_not_run_stops_the_survey(tmp_path: Path) -> None:
    (tmp_path / "test_bad.py").write_text("import no_such_module\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="no_such_module"):
        margins_of_tests.runs_of([tmp_path / "test_bad.py"], processes=2)


def test_the_reasons_name_files_that_draw() -> None:
    reasons = margins_of_tests.read_reasons(margins_of_tests.REASONS.read_text(encoding="utf-8"))
    assert {file for file, _ in reasons} <= {path.name for path in margins_of_tests.drawing()}
