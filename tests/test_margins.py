"""How far assertions are from their limits: what hears of them, what the runs say, and what the last survey found."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools import files, margins
from tools.assertions import RECORDER, Assertion, Margin, Recorder, rewrite
from tools.reasons import says

STALE = "the notebook's code has changed: run make margins"
NO_REASONS = margins.Reasons({}, {}, {})


def heard(code: str, **names: object) -> tuple[Recorder, list[Assertion]]:
    """What a recorder hears of the code, which sees these names."""
    recorder, assertions = Recorder(), []
    exec(compile(rewrite(code, "cell", assertions), "cell", "exec"), {RECORDER: recorder, **names})
    return recorder, assertions


def margins_of(code: str, **names: object) -> dict[tuple[int, int], float]:
    """The margins of code that asserts once, by (how manyeth time, comparison), rounded."""
    recorder, _ = heard(code, **names)
    return {key[1:]: round(margin.margin, 6) for key, margin in recorder.margins.items()}


# --- The recorder

T = "import torch\n"
FORMS = [
    ("assert 0.25 < x", {(0, 0): 1.75}),
    ("assert x <= 1.5", {(0, 0): -0.5}),
    ("assert not x < 1", {(0, 0): 1.0}),
    ("assert 1 < x < 5 < 9 < y", {(0, 0): 1.0, (0, 1): 3.0, (0, 3): 1.0}),
    ("assert x > 1 and y > 1", {(0, 0): 1.0, (0, 1): 9.0}),
    ("assert x > 5 or y > 1", {(0, 1): 9.0}),
    ("assert x > 5 or y > 11", {(0, 0): -3.0, (0, 1): -1.0}),
    ("assert not (x > 5 or y > 11)", {(0, 0): 3.0, (0, 1): 1.0}),
    ("assert not (x > 5 and y > 1)", {(0, 0): 3.0}),
    ("assert x < 3 if y == 10 else x < 0", {(0, 0): 1.0}),
    ("assert (x < 1) == (y < 1)", {(0, 0): 1.0}),
    ("assert all(abs(a - 1) < 0.5 for a in (1, 1.2, 0.9))", {(0, 0): 0.3}),
    ("assert not any(a > 2 for a in (1, 1.5))", {(0, 0): 0.5}),
    ("for a in (1, 2):\n    assert a < x + 1", {(0, 0): 2.0, (1, 0): 1.0}),
    ("def check(a):\n    assert a < 3\ncheck(1)\ncheck(2)", {(0, 0): 2.0, (1, 0): 1.0}),
    (T + "assert (torch.tensor([1.0, 2.5]) < 3).all()", {(0, 0): 0.5}),
    (T + "assert (torch.tensor([1.0, 2.5]) > 2).any()", {(0, 0): 0.5}),
    (T + "assert (torch.tensor([1.0, 9.0]) < 3)[torch.tensor([True, False])].all()", {(0, 0): 2.0}),
    (T + "assert torch.tensor([1.0, 2.0]).max() < 3", {(0, 0): 1.0}),
    (
        T + "assert torch.allclose(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), rtol=0.1, atol=0.5)",
        {(0, 0): 0.333333},
    ),
    (T + "assert not torch.allclose(torch.ones(2), torch.tensor([1.0, 4.0]), rtol=0, atol=1)", {(0, 0): 2.0}),
    ("import numpy as np\nassert np.allclose(np.ones(2), 1, 0, 0.5)", {(0, 0): 1.0}),
    ("assert must_break(x, at_least=0.5)", {(0, 0): 1.5}),
    ("shown = must_break(x)", {(0, 0): 1.999}),
    ("assert x < 3 < must_break(y)", {(0, 2): 9.999, (0, 0): 1.0, (0, 1): 7.0}),
]


@pytest.mark.parametrize(("code", "expected"), FORMS)
def test_every_form_of_an_assertion_gives_its_margins(code, expected):
    assert margins_of(code, x=2, y=10) == expected


@pytest.mark.parametrize(
    ("code", "kind", "holds"),
    [
        ("assert 2 + 2 == 5", "exact", False),
        ("assert 'a' in 'abc'", "exact", True),
        ("assert {1} <= {1, 2}", "exact", True),
        ("import torch\nassert torch.ones(2).isfinite().all()", "exact", True),
        ("same = False\nassert same", "opaque", False),
        ("assert not max", "opaque", False),
    ],
)
def test_what_has_no_margin_is_counted(code, kind, holds):
    recorder, _ = heard(code)
    assert (recorder.margins, recorder.kinds, recorder.held) == ({}, {0: {kind}}, {0: [holds]})


def test_nothing_is_demanded_and_the_sides_are_kept():
    recorder, assertions = heard("x = float('nan')\nassert 1 < 2.0 - 3\nassert x < 1\nmust_break(0)")
    assert recorder.margins[0, 0, 0] == Margin(1.0, -1.0, -2.0)
    assert recorder.margins[1, 0, 0].margin == -math.inf
    assert recorder.held == {0: [False], 1: [False], 2: [False]}
    assert [a.source for a in assertions] == ["1 < 2.0 - 3", "x < 1", "must_break(0)"]
    assert assertions[0].comparisons == ["1 < 2.0 - 3"]


# --- Runs of a notebook

NOISE = """\
import torch
drawn = torch.randn(100, generator=torch.Generator().manual_seed(3))
torch.manual_seed(4)
rest = torch.rand(1).item()
assert drawn.mean().abs() < 0.12
assert all(0 <= a < 1.5 for a in torch.rand(5).tolist())
assert abs(drawn.sum() - {sum}) < 1e-4
assert len(drawn) == 100
"""


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> list[margins.Run]:
    """A notebook with an assertion that seeds decide, one that is far from its limit, and one tied to its own seeds."""
    import torch

    total = torch.randn(100, generator=torch.Generator().manual_seed(3)).sum().item()
    cells = [new_code_cell("if 'google.colab' in ():\n    %pip"), new_code_cell(NOISE.format(sum=total), id="noise")]
    folder = tmp_path_factory.mktemp("book")
    path = folder / "01_noise.ipynb"
    files.write(new_notebook(cells=cells), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(margins, "RUNS", folder / "runs")
        margins.make([path], margins.SEEDS)
        assert len(list((folder / "runs").rglob("*.json"))) == margins.SHIFTS
        margins.make([path], margins.SEEDS)  # nothing is missing
        return [margins.kept(path, settings) for settings in margins.SEEDS]


def opened(runs: list[margins.Run], reasons: margins.Reasons = NO_REASONS) -> list[str]:
    row = margins.survey("01_noise", runs, {"2, best": runs[0]}, reasons).row
    return [f"{each['says']}: {each['why']}" for each in row["open"]]


TIED = ("01_noise", "noise", "abs(drawn.sum() - …) < 0.0001")


def test_what_lies_within_two_standard_deviations_is_reported(noisy):
    assert not any(run.errors for run in noisy)
    assert all(noisy[0].held[each] == [True] for each in (1, 2, 3))
    found = opened(noisy)
    assert re.match(r"drawn.mean\(\).abs\(\) < 0.12: [01].\d\d sd", found[0])
    assert any("drawn.sum()" in each and "broken with seeds + 1000, 2000" in each for each in found)
    assert not any("a < 1.5" in each for each in found)


def test_the_distance_is_the_mean_in_standard_deviations(noisy):
    values = [run.margins[0, 0, 0].margin for run in noisy]
    assert len(set(values)) == len(values)  # the seeds are shifted
    found = next(d for d in margins.distances(noisy) if d.assertion == 0)
    mean = sum(values) / 10
    sd = math.sqrt(sum((value - mean) ** 2 for value in values) / 9)
    assert found.sds == pytest.approx(mean / sd)
    assert found.least == min(values)


def test_a_reason_excuses_what_it_names_and_what_no_one_needs_is_named(noisy):
    unneeded = ("01_noise", "noise", "len(drawn) == 100")
    reasons = margins.Reasons({TIED: "this sum"}, {unneeded: "x", ("02_other", "a", "b"): "x"}, {})
    assert not any("drawn.sum()" in each for each in opened(noisy, reasons))
    found = margins.survey("01_noise", noisy, {}, reasons)
    assert found.unused == ["bounded: 01_noise, noise: len(drawn) == 100"]
    assert found.row["excused"] == {"tied": 1, "bounded": 1, "timed": 0}


def test_a_bound_that_breaks_is_no_bound(noisy):
    assert any("drawn.sum()" in e and "broken" in e for e in opened(noisy, margins.Reasons({}, {TIED: "x"}, {})))


def made(margin: float, **more: object) -> margins.Run:
    """A run in which `x < 1` has this margin."""
    held = {0: [margin > 0]}
    parts = {"kinds": {0: {"margin"}}, "errors": {}, "capability": "", "seconds": 0.0} | more
    return margins.Run([Assertion("c", "x < 1", ["x < 1"])], {(0, 0, 0): Margin(1 - margin, 1, margin)}, held, **parts)


@pytest.mark.parametrize(
    ("values", "sds"),
    [
        ([0.5, 0.5], math.inf),
        ([-0.5, -0.5], -math.inf),
        ([0.4, 0.6], 0.5 / math.sqrt(0.02)),
        ([1.0, math.inf], math.inf),
    ],
)
def test_a_margin_that_no_seed_moves_is_far_unless_it_is_broken(values, sds):
    assert margins.distances([made(value) for value in values])[0].sds == pytest.approx(sds)


def sized(*lefts: float) -> list[margins.Run]:
    """Runs in which `left > 0.001` has these left sides."""
    return [replace(made(1), margins={(0, 0, 0): Margin(left, 1e-3, left - 1e-3)}) for left in lefts]


def test_a_size_is_measured_in_factors():
    (found,) = margins.distances(sized(0.1, 10.0))
    assert found.sds == pytest.approx(math.log(1000) / (math.log(100) / math.sqrt(2)))
    assert found.sd == pytest.approx(9.9 / math.sqrt(2))  # in plain numbers 0.72 away
    (small,) = margins.distances(sized(0.0011, 0.0013))
    assert small.sds == pytest.approx(math.sqrt(2), rel=0.1)  # near the limit the two scales agree
    (broken,) = margins.distances(sized(0.0011, 0.0007))
    assert broken.sds < 0


def test_a_loop_that_runs_a_different_number_of_times_counts_its_worst():
    once = made(0.5)
    twice = margins.Run(
        once.assertions,
        {(0, 0, 0): Margin(0.1, 1, 0.9), (0, 1, 0): Margin(0.7, 1, 0.3)},
        {0: [True] * 2},
        once.kinds,
        {},
        "",
        0.0,
    )
    assert margins.distances([once, twice])[0].mean == pytest.approx(0.4)


@pytest.mark.parametrize(("other", "far"), [(0.5, []), (0.3, []), (0.2, [0.6]), (0.8, [0.6]), (-0.1, [1.138])])
def test_a_value_may_move_half_its_way_with_threads_and_kernels(other, far):
    row = margins.survey("x", [made(0.5)], {"2, best": made(other)}, NO_REASONS).row
    machine = row["machines"]["2, best"]
    assert [each["share"] for each in machine["far"]] == pytest.approx(far)
    assert len(machine["broken"]) == (other < 0)
    assert machine["changed"] == (other != 0.5)
    assert len(margins.problems(row)) == len(far) + (other < 0)
    timed = margins.Reasons({}, {}, {("x", "c", "x < 1"): "a duration"})
    assert not margins.problems(margins.survey("x", [made(0.5)], {"2, best": made(other)}, timed).row)


def test_a_size_moves_by_factors_too():
    (own,), (other,) = sized(0.1), sized(0.4)
    assert margins.moves(own, other) == [(0, 0, pytest.approx(math.log(4) / math.log(100)))]  # in plain numbers, 3


def test_a_cell_that_stops_is_reported():
    row = margins.survey("x", [made(0.5), made(0.5, errors={"c": "KeyError: 1"})], {}, NO_REASONS).row
    assert margins.problems(row) == ["c: KeyError: 1: raised with seeds + 1000"]


def test_a_seed_that_is_not_shifted_is_an_error():
    notebook = new_notebook(cells=[new_code_cell("x = np.random.rand()", id="here")])
    with pytest.raises(ValueError, match="here draw from"):
        margins.code_cells(notebook)


def test_kernels_are_chosen_before_torch_is_loaded():
    chosen = margins.environment(2, "AVX2")
    assert (chosen["OMP_NUM_THREADS"], chosen["ATEN_CPU_CAPABILITY"]) == ("2", "avx2")
    assert "NPY_DISABLE_CPU_FEATURES" not in margins.environment(1, "best")
    assert set(margins.numpy_features(above="avx2")) <= set(margins.numpy_features(above="default"))


def test_a_careless_list_of_reasons_is_an_error():
    entry = '[[tied]]\nnotebook = "n"\ncell = "c"\nasserts = ["a < 1"]\nbecause = "so"\n'
    assert margins.read_reasons(entry).tied == {("n", "c", "a < 1"): "so"}
    with pytest.raises(ValueError, match="excused twice"):
        margins.read_reasons(entry + entry.replace("tied", "bounded"))
    with pytest.raises(ValueError, match="no reason"):
        margins.read_reasons(entry.replace("so", " "))


# --- The last survey


@pytest.fixture(scope="module")
def rows() -> dict[str, dict]:
    return margins.stored()


def test_the_stored_survey_is_of_the_present_notebooks(rows):
    paths = margins.asserting(files.notebooks(folders=("chapters", "solutions")))
    assert list(rows) == [files.name(path) for path in paths], STALE
    old = [name for name in rows if rows[name]["digest"] != margins.digest(files.read(files.ROOT / name))]
    assert not old, STALE
    for name, row in rows.items():
        assertions: list[Assertion] = []
        for cell in margins.code_cells(files.read(files.ROOT / name)):
            rewrite(cell.source, cell.id, assertions)
        assert row["assertions"] == len(assertions) > 10
        assert row["comparisons"] > row["assertions"] / 2


def test_no_assertion_is_within_two_standard_deviations_of_its_limit(rows):
    assert [(name, each) for name, row in rows.items() for each in margins.problems(row)] == []
    closest = [each["sds"] for row in rows.values() for each in row["closest"]]
    assert min(closest) >= margins.LEAST_DISTANCE
    assert len(closest) > len(rows)


def test_threads_and_kernels_were_really_chosen(rows):
    for row in rows.values():
        kernels = {name: machine["kernels"] for name, machine in row["machines"].items()}
        assert set(kernels) == {f"{s.threads}, {s.kernels}" for s in margins.MACHINES}
        assert (kernels["1, AVX2"], kernels["1, plain"]) == ("AVX2", "DEFAULT")
        assert kernels["2, best"] not in ("DEFAULT", "")


def test_every_reason_is_for_an_assertion_that_is_there():
    reasons = margins.read_reasons(margins.REASONS.read_text(encoding="utf-8"))
    here = {
        (path.stem, cell.id, each.source)
        for path in files.notebooks(folders=("chapters",))
        for cell in margins.code_cells(files.read(path))
        for each in sources(cell.source)
    }
    for kind in margins.REASON_KINDS:
        for notebook, cell, source in getattr(reasons, kind):
            assert any(k[:2] == (notebook, cell) and says(source, k[2]) for k in here), source


def sources(code: str) -> list[Assertion]:
    found: list[Assertion] = []
    rewrite(code, "", found)
    return found


def test_the_command_reports_and_stores(noisy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    rows = {"chapters/01_noise.ipynb": margins.survey("01_noise", noisy, {"2, best": noisy[0]}, NO_REASONS)}
    monkeypatch.setattr(margins, "RESULTS", tmp_path / "margins.json")
    margins.store(rows, [files.ROOT / "chapters" / "01_noise.ipynb"])
    kept = json.loads((tmp_path / "margins.json").read_text())
    assert kept["notebooks"]["chapters/01_noise.ipynb"]["assertions"] == 4
    words = margins.report(margins.stored())
    assert "drawn.mean().abs() < 0.12" in words
    assert "0 changed, at most by 0.0%" in words
