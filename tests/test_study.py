"""A study goes on where it stopped, and never leaves half a file."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from posenc.study import fill


def test_each_measurement_is_made_once_and_the_file_says_how(tmp_path: Path) -> None:
    path, made = tmp_path / "study.json", []

    def measurements(names: str):
        for name in names:
            yield ("seeds", "0", name), lambda name=name: made.append(name) or name.upper()

    fill(path, "python -m first", measurements("ab"), report=made.append)
    assert made == ["a", "made: seeds, 0, a", "b", "made: seeds, 0, b"]
    fill(path, "python -m second", measurements("abc"), report=lambda _: None)
    found = json.loads(path.read_text())
    assert found["seeds"] == {"0": {"a": "A", "b": "B", "c": "C"}}
    assert found["made"]["command"] == "python -m second"
    assert {"date", "python", "torch"} < set(found["made"])
    assert made[4:] == ["c"]


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    broken = [(("a",), lambda: 1), (("b",), lambda: 1 / 0)]
    with pytest.raises(ZeroDivisionError):
        fill(path, "command", broken, report=lambda _: None)
    assert json.loads(path.read_text())["a"] == 1
    assert [each.name for each in tmp_path.iterdir()] == ["study.json"]


def test_a_stopped_study_goes_on_where_it_stopped_in_several_processes(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    measurements = [(("squares", str(n)), partial(pow, n, 2)) for n in range(4)]
    fill(path, "command", measurements[:2], report=lambda _: None)
    said: list[str] = []
    fill(path, "command", measurements, report=said.append, jobs=2)
    assert sorted(said) == ["made: squares, 2", "made: squares, 3"]
    assert json.loads(path.read_text())["squares"] == {"0": 0, "1": 1, "2": 4, "3": 9}


@pytest.mark.filterwarnings("ignore:::distributed", "ignore:::joblib", "ignore:::dask")
def test_the_workers_of_a_cluster_make_the_same_measurements(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    here, there = tmp_path / "here.json", tmp_path / "there.json"
    options = {"processes": False, "protocol": "tcp", "dashboard_address": None}
    measurements = [(("runs", "offset", "none", str(seed)), partial(brief, seed)) for seed in range(4)]
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        fill(there, "command", measurements, report=lambda _: None, scheduler=cluster.scheduler_address)
    fill(here, "command", measurements, report=lambda _: None)
    assert json.loads(there.read_text())["runs"] == json.loads(here.read_text())["runs"]


def brief(seed: int) -> float:
    """A measurement that a worker can be sent: the sum of some random numbers."""
    return torch.rand(1000, generator=torch.Generator().manual_seed(seed)).sum().item()


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    measurements = [(("a",), partial(pow, 2, 2))]
    with pytest.raises(ValueError, match=r"no Dask scheduler answers at nowhere"):
        fill(tmp_path / "study.json", "command", measurements, scheduler="nowhere://at-all")
