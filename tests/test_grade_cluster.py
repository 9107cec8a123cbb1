"""`posenc grade --scheduler ADDRESS`: the same marks from the workers of a Dask cluster."""

import builtins
import json
import shutil
from pathlib import Path

import pytest

from posenc import __main__
from posenc.grading import batch

WRONG = "def shuffle_rows(x, permutation):\n    return x[..., permutation.argsort(), :]"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    folder.mkdir()
    for name in ("ana", "ben", "carl", "dora"):
        text = json.dumps({"nbformat": 4, "cells": [{"cell_type": "code", "source": WRONG}]})
        (folder / f"{name}.ipynb").write_text(text)
    return folder


def arguments(folder: Path, address: str) -> list[str]:
    walls = [] if shutil.which("bwrap") else ["--unsafe"]
    return ["grade", str(folder), "--out", str(folder.parent / "out"), "--seed", "7", "--scheduler", address, *walls]


@pytest.mark.filterwarnings("ignore:::distributed", "ignore:::joblib", "ignore:::dask")
def test_two_workers_with_walls_of_their_own(folder):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "protocol": "tcp", "dashboard_address": None}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster:
        assert __main__.main(arguments(folder, cluster.scheduler_address)) == 0
    lines = (folder.parent / "out" / "grades.csv").read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["ana", "ben", "carl", "dora"]
    assert len({line.partition(",")[2] for line in lines}) == 1
    assert "wrong" in lines[0]
    assert batch._idle == []  # nothing is left running on the cluster


def test_without_dask_it_says_what_to_install(folder, monkeypatch, capsys):
    really = builtins.__import__

    def no_dask(name: str, *rest: object) -> object:
        if name == "distributed":
            raise ImportError(name)
        return really(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_dask)
    assert __main__.main(arguments(folder, "tcp://127.0.0.1:1")) == 2
    assert "pip install joblib distributed" in capsys.readouterr().err
