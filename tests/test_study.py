"""A study goes on where it stopped, and never leaves half a file."""

import json
from pathlib import Path

import pytest

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
