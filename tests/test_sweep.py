"""Chapter 12's study: what the tasks ask, that a run depends on its names alone, and that it can be spread out."""

import json
from functools import partial

import pytest
import torch

from posenc import sweep
from posenc.study import fill
from posenc.tasks import NOT_ASKED


@pytest.fixture
def small(monkeypatch):
    """Runs of two steps, with tests of a few examples."""
    monkeypatch.setattr(sweep, "STEPS", dict.fromkeys(sweep.STEPS, 2))
    monkeypatch.setattr(sweep, "TESTED", 2 * sweep.TIMES[-1] * sweep.TRAINED)
    monkeypatch.setattr(sweep, "NEEDLES", len(sweep.DEPTHS))
    sweep.tests.cache_clear()
    yield
    sweep.tests.cache_clear()


def answer_induction(tokens: list[int]) -> list[int]:
    """By hand: what followed the last earlier occurrence of each token."""
    return [
        next((tokens[j + 1] for j in range(i - 1, -1, -1) if tokens[j] == token), NOT_ASKED)
        for i, token in enumerate(tokens)
    ]


def test_induction_asks_for_what_followed_the_last_time():
    task = sweep.induction(length=24, examples=50, seed=0)
    for tokens, labels in zip(task.tokens.tolist(), task.labels.tolist(), strict=True):
        assert labels == answer_induction(tokens)


def test_copying_asks_for_the_string_again_and_for_nothing_else():
    lengths = set()
    for tokens, labels in zip(*(t.tolist() for t in vars(sweep.copying(24, 300, seed=0)).values()), strict=True):
        n = tokens.index(sweep.SEPARATOR)
        lengths.add(n)
        assert tokens[: 2 * n + 1] == [*tokens[:n], sweep.SEPARATOR, *tokens[:n]]
        assert set(tokens[2 * n + 1 :]) <= {sweep.BLANK}
        assert labels == [NOT_ASKED] * n + tokens[:n] + [NOT_ASKED] * (24 - 2 * n)
    assert lengths == set(range(6, 12))  # no fixed step back serves all of them


def test_copying_needs_room():
    with pytest.raises(ValueError, match="length must be at least 4"):
        sweep.copying(3, 1, seed=0)


@pytest.mark.parametrize("task", sweep.TASKS)
def test_tests_are_as_long_as_they_say_and_share_no_seed_with_the_training(task):
    for times in sweep.TIMES:
        for part in sweep.tests(task, times):
            assert part.tokens.shape[1] == times * sweep.TRAINED
            assert part.tokens.shape == part.labels.shape


@pytest.mark.usefixtures("small")
def test_a_run_can_be_made_again():
    assert sweep.measure("text", "rotary", 0) == sweep.measure("text", "rotary", 0)
    assert sweep.measure("text", "rotary", 0) != sweep.measure("text", "rotary", 1)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("encoding", sweep.ENCODINGS)
def test_every_encoding_reads_the_longest_test(encoding):
    found = sweep.measure("offset", encoding, 0)
    assert list(found["offset"]) == [str(times) for times in sweep.TIMES]


@pytest.mark.usefixtures("small")  # the workers are threads, so they see it
@pytest.mark.filterwarnings("ignore:::distributed", "ignore:::joblib", "ignore:::dask")
def test_a_cluster_of_two_workers_finds_the_same(tmp_path):
    distributed = pytest.importorskip("distributed")
    runs = [(("runs", "offset", e, "0"), partial(sweep.measure, "offset", e, 0)) for e in ("none", "rotary", "T5")]
    options = {"processes": False, "protocol": "tcp", "dashboard_address": None}
    fill(tmp_path / "here.json", "command", runs, report=lambda _: None)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        there = {"report": lambda _: None, "scheduler": cluster.scheduler_address}
        fill(tmp_path / "there.json", "command", runs, **there)
    here, there = (json.loads((tmp_path / name).read_text())["runs"] for name in ("here.json", "there.json"))
    assert here == there


def test_the_command_says_when_there_is_no_scheduler(tmp_path, capsys):
    where = ["--to", str(tmp_path / "sweep.json"), "--scheduler", "nowhere://at-all"]
    assert sweep.main(where) == 2
    assert "no Dask scheduler answers" in capsys.readouterr().err


def test_every_run_is_stored():
    runs = json.loads(sweep.STORED.read_text())["runs"]
    missing = [keys for keys, _ in sweep.measurements(seeds=5) if keys[3] not in runs.get(keys[1], {}).get(keys[2], {})]
    assert missing == []


def test_the_stored_runs_read_as_tables():
    found = sweep.results()
    assert list(found) == list(sweep.MEASURES)
    for encodings in found.values():
        assert list(encodings) == list(sweep.ENCODINGS)
        for seeds in encodings.values():
            assert sorted(seeds) == list(range(5))
            assert all(list(by_times) == list(sweep.TIMES) for by_times in seeds.values())


def test_without_order_no_task_of_order_is_solved():
    """A model without positions cannot look back by a number of rows, at any length and seed."""
    values = torch.tensor([[*v.values()] for v in sweep.results()["offset"]["none"].values()])
    assert values.max() < 0.5
