"""The status page says what was run and measured, and of every notebook."""

import json
from pathlib import Path

import pytest

from tools import files, status


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small book: one notebook, one comparison with another library, mutants of exercises and library."""
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
        status.BROKEN: json.dumps(
            {
                "made": {"date": "2026-01-02", "torch": "2.0"},
                "modules": {
                    "rotary": {"mutants": 12, "tests": 5, "exercises": 1, "chapters": 2, "excused": 2}
                    | {"survivors": ["a", "b"]}
                },
            }
        ),
        status.MARGINS: json.dumps(
            {
                "made": {"shifts": 10},
                "notebooks": {
                    "chapters/01_x.ipynb": {
                        "assertions": 30,
                        "comparisons": 1234,
                        "excused": {"tied": 2, "bounded": 1},
                        "closest": [{"sds": 2.345, "cell": "abc"}, {"sds": 5, "cell": "def"}],
                        "machines": {
                            "1": {"kernels": "AVX2", "most": {"share": 0.1, "cell": "abc"}},
                            "2": {"kernels": "AVX512", "most": {"share": 0.3, "cell": "ghi"}},
                        },
                        "date": "2026-01-03",
                    }
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
    assert "changed the same way, 12 times" in page
    assert "2 changes are excused, by a rule or with a reason" in page
    assert "of the others **80.0%** are noticed" in page
    assert "| `rotary` | 12 | 5 | 1 | 2 | 2 | 2 |" in page
    assert "assert 30 things, and compare 1,234 numbers" in page
    assert "runs each chapter 10 times" in page
    assert "Not asked are 3 assertions" in page
    assert "other kernels (AVX2, AVX512 in torch's words)" in page
    linked = (
        "| 30 | 1234 | [2.3](../chapters/01_x.ipynb#cell-abc) | [30%](../chapters/01_x.ipynb#cell-ghi) | 2026-01-03 |"
    )
    assert linked in page
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
