"""The status page says what was run and measured, and of every notebook."""

import json
from pathlib import Path

import pytest

from tools import files, status


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small book: one notebook, one comparison with another library, two exercises with mutants."""
    for name, text in {
        "chapters/01_x.ipynb": "{}",
        "tests/test_parity_04.py": "import timm\ndef test_a(): ...\ndef test_b(): ...\ndef helper(): ...\n",
        status.MUTANTS: json.dumps(
            {
                "made": {"date": "2026-01-02", "torch": "2.0"},
                "exercises": {
                    "a": {"mutants": 10, "caught": 9, "excused": 1},
                    "b": {"mutants": 4, "caught": 3, "excused": 0},
                },
            }
        ),
    }.items():
        files.write_text(text, tmp_path / name)
    return tmp_path


def test_the_page_adds_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.files.name", lambda path: path.relative_to(root).as_posix())
    status.note([("chapters/01_x.ipynb", 12.34, 345_678, 99.6), ("chapters/00_gone.ipynb", 1.0, 1, 1.0)], root)
    page = status.page(root)
    assert "| [chapters/01_x](../chapters/01_x.ipynb) | 12 | 346 | 100 |" in page
    assert "gone" not in page
    assert "Of 14 changed solutions 1 are excused; of the others the checks find fault with **92.3%**" in page
    assert "| 4 | timm | 2 |" in page


def test_a_notebook_that_was_never_run_is_an_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.files.name", lambda path: path.relative_to(root).as_posix())
    files.write_text("{}", root / status.RUNS)
    with pytest.raises(ValueError, match=r"no run of chapters/01_x.ipynb: run `make notebooks`"):
        status.page(root)


def test_the_machine_is_described_by_what_changes_numbers() -> None:
    words = status.this_machine()
    assert all(name in words for name in ("Python 3.", *status.VERSIONS))
    assert "GPU" in words or "NVIDIA" in words
