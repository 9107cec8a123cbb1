"""The tools that make notebooks: exercises from solutions, outputs in place, the address, the pins."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from importlib.metadata import PathDistribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools import bootstrap, durations, exercises, files, lock, notebooks, repository
from tools.notebooks import NotebookError
from tools.repository import Repository

HERE = Repository("https://github.com/ada/a-book", "main")
THERE = Repository("https://github.com/bob/his-book", "trunk")
SOLUTION = "def double(x):\n    ### BEGIN SOLUTION\n    y = 2 * x\n    return y\n    ### END SOLUTION"
STUB = 'def double(x):\n    raise NotImplementedError("your turn")'
# As the real checks do, this says what it finds and never raises.
CHECK = "try:\n    print(double(2))\nexcept NotImplementedError:\n    print('not attempted')"
DRAW = "import matplotlib.pyplot as plt\nfrom IPython.display import display"
SHOW = "f, _ = plt.subplots()\ndisplay(f, metadata={'image/png': {'alt': 'An empty square.'}})\nplt.close(f)"


def master(*sources: str) -> NotebookNode:
    """A solutions notebook of these code cells."""
    title = f"# Solutions 1 · Doubling\n\n{bootstrap.colab_line(HERE, 'solutions/01_doubling.ipynb')}"
    cells = [new_markdown_cell(title), *map(new_code_cell, sources)]
    return new_notebook(cells=cells)


def sources(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells]


# ---- exercises


def test_solution_becomes_a_stub() -> None:
    assert sources(exercises.generate(master(SOLUTION), "s"))[1] == STUB


def test_stub_keeps_the_indentation_and_what_stands_around_the_solution() -> None:
    method = "class A:\n    def f(self):\n        x = 1\n        ### BEGIN SOLUTION\n        x = 2\n"
    method += "        ### END SOLUTION\n        return x"
    expected = (
        'class A:\n    def f(self):\n        x = 1\n        raise NotImplementedError("your turn")\n        return x'
    )
    assert sources(exercises.generate(master(method), "s"))[1] == expected


def test_title_and_colab_link_become_those_of_the_exercise() -> None:
    first = sources(exercises.generate(master(SOLUTION), "s"))[0]
    assert first == f"# Exercise 1 · Doubling\n\n{bootstrap.colab_line(HERE, 'exercises/01_doubling.ipynb')}"


def test_cells_for_solutions_only_are_dropped_and_solved_cells_are_shown() -> None:
    notebook = master(SOLUTION, "x = 1", "y = 1")
    notebook.cells[1].metadata.tags = ["hide-input", "claim:C01"]
    notebook.cells[2].metadata.tags = ["hide-input"]
    notebook.cells[3].metadata.tags = ["solution-only"]
    _, solved, other = exercises.generate(notebook, "s").cells
    assert solved.metadata.tags == ["claim:C01"]
    assert other.metadata.tags == ["hide-input"]


def test_cell_ids_are_those_of_the_master_and_no_output_is_left() -> None:
    notebook = master(SOLUTION, "print(1)")
    notebook.cells[2].update(execution_count=2, outputs=[new_output("stream", text="1\n")])
    exercise = exercises.generate(notebook, "s")
    assert [cell.id for cell in exercise.cells] == [cell.id for cell in notebook.cells]
    assert exercise.cells[2].outputs == []
    assert exercise.cells[2].execution_count is None


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        (SOLUTION.replace("    ### END SOLUTION", ""), "without ### END"),
        (SOLUTION.replace("    ### BEGIN SOLUTION\n", ""), "misplaced"),
        (SOLUTION + "\n    ### END SOLUTION", "misplaced"),
        (SOLUTION.replace("    y = 2", "    ### BEGIN SOLUTION\n    y = 2"), "misplaced"),
        (SOLUTION.replace("### END", "# then ### END"), "misplaced"),
        ("def f():\n    ### BEGIN SOLUTION\n    # nothing\n    ### END SOLUTION\n    return 1", "no code between"),
        ("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", "outside a function"),
        ("def f(:", "not Python"),
        (
            "if x:\n    pass\n    ### BEGIN SOLUTION\nelse:\n    y = 1\n    ### END SOLUTION\nelse:\n    y = 2",
            "not Python",
        ),
    ],
)
def test_faulty_master_is_refused_with_notebook_and_cell(source: str, complaint: str) -> None:
    with pytest.raises(NotebookError, match=rf"solutions/01_doubling.ipynb, cell 3.*{complaint}"):
        exercises.generate(master("x = 1", source), "solutions/01_doubling.ipynb")


def test_master_without_its_title_is_refused() -> None:
    notebook = master(SOLUTION)
    notebook.cells[0].source = "# Doubling"
    with pytest.raises(NotebookError, match="cell 1 must begin with"):
        exercises.generate(notebook, "s")


def test_exercise_is_run_unsolved_and_made_once_only(tmp_path: Path) -> None:
    """Its outputs are those of a learner who opens it; making it again leaves the file alone."""
    path = tmp_path / "solutions" / "01_doubling.ipynb"
    files.write(master(SOLUTION, CHECK), path)
    assert exercises.store(path, tmp_path)
    made = tmp_path / "exercises" / "01_doubling.ipynb"
    assert files.read(made).cells[2].outputs[0].text == "not attempted\n"
    before = made.read_bytes()
    assert not exercises.store(path, tmp_path)
    assert made.read_bytes() == before

    files.write(master(SOLUTION, CHECK, "z = 1"), path)
    assert exercises.store(path, tmp_path)
    assert files.read(made).cells[3].source == "z = 1"


def test_exercise_that_stops_on_the_way_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "solutions" / "01_doubling.ipynb"
    files.write(master(SOLUTION, "double(2)"), path)
    with pytest.raises(NotebookError, match="your turn"):
        exercises.store(path, tmp_path)
    assert list((tmp_path / "exercises").iterdir()) == []


# ---- running notebooks


def test_notebook_is_run_and_stored_in_one_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")  # a leftover that would suppress the figure
    path = tmp_path / "01_doubling.ipynb"
    notebook = master("import os\nprint(os.path.basename(os.getcwd()))\nprint(2)", DRAW, SHOW)
    notebook.metadata = NotebookNode(language_info={"version": "3.4.5", "codemirror_mode": "x"}, widgets={"a": 1})
    notebook.cells[1].metadata = NotebookNode(tags=["claim:C01"], execution={"iopub": "12:00"}, colab={"x": 1})
    files.write(notebook, path)

    done = notebooks.run(path)

    stored = files.read(path)
    assert stored.cells[1].outputs[0].text == f"{tmp_path.name}\n2\n"
    assert [cell.execution_count for cell in stored.cells[1:]] == [1, 2, 3]
    assert stored.cells[1].metadata == {"tags": ["claim:C01"]}
    assert stored.cells[3].metadata.mystnb.image.alt == "An empty square."
    assert stored.metadata.language_info == {"name": "python", "version": "3"}
    assert stored.metadata.kernelspec.name == "python3"
    assert "widgets" not in stored.metadata
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert done.seconds > 0
    if sys.platform == "linux":
        assert done.peak_kb > 10_000


def test_running_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "01_doubling.ipynb"
    files.write(master("print(2)"), path)
    notebooks.run(path)
    before = path.read_bytes()
    notebooks.run(path)
    assert path.read_bytes() == before


def test_failing_notebooks_are_named_and_left_as_they_were(tmp_path: Path) -> None:
    wrong = {"raises": "1 / 0", "warns": "import warnings\n\nwarnings.warn('old')", "good": "print(1)"}
    for name, source in wrong.items():
        files.write(master(source), tmp_path / f"{name}.ipynb")
    before = {name: (tmp_path / f"{name}.ipynb").read_bytes() for name in wrong}

    done, failed = notebooks.run_all(sorted(tmp_path.glob("*.ipynb")))

    assert [each.path.stem for each in done] == ["good"]
    messages = "\n".join(failed)
    assert "raises.ipynb" in messages
    assert "ZeroDivisionError" in messages
    assert "warns.ipynb, cell 2 writes to stderr" in messages
    assert [name for name in wrong if (tmp_path / f"{name}.ipynb").read_bytes() != before[name]] == ["good"]


def test_two_pictures_in_a_cell_are_refused() -> None:
    notebook = master("x = 1")
    notebook.cells[1].outputs = [new_output("display_data", {"image/png": "eA=="})] * 2
    with pytest.raises(NotebookError, match="cell 2 draws 2 pictures: split it"):
        notebooks.normalise(notebook, "a.ipynb")


def test_alternative_text_goes_when_its_picture_goes() -> None:
    notebook = master("x = 1")
    notebook.cells[1].metadata = NotebookNode(mystnb=NotebookNode(image=NotebookNode(alt="Gone.")))
    notebooks.normalise(notebook, "a.ipynb")
    assert notebook.cells[1].metadata == {}


def test_recorded_times_are_added_to_those_of_other_notebooks(tmp_path: Path) -> None:
    path = tmp_path / "_build" / "durations.json"
    notebooks.record({"a": 1.0, "b": 2.0}, path)
    notebooks.record({"b": 3.0}, path)
    assert json.loads(path.read_text()) == {"a": 1.0, "b": 3.0}


# ---- nbval: what `make test` relies on, shown to hold


def nbval(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command of `make test` on another folder of notebooks, with the project's own pytest settings."""
    command = [sys.executable, "-m", "pytest", str(folder), "-c", str(files.ROOT / "pyproject.toml"), "-q", *options]
    command += ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=120", f"--rootdir={folder}"]
    environment = notebooks.kernel_environment() | {"PYTHONPATH": str(files.ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_nbval_gives_each_notebook_one_kernel_and_ignores_the_bytes_of_pictures(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        path = tmp_path / f"{name}.ipynb"
        files.write(master("print(2)", DRAW, SHOW, f"owner = '{name}'", "print(owner)"), path)
        notebooks.run(path)
    drawn_elsewhere = files.read(tmp_path / "b.ipynb")
    drawn_elsewhere.cells[3].outputs[0].data["image/png"] = "eA=="
    files.write(drawn_elsewhere, tmp_path / "b.ipynb")

    run = nbval(tmp_path, "-n", "2", "--dist", "loadfile")

    assert run.returncode == 0, run.stdout + run.stderr
    assert "15 passed" in run.stdout


def test_nbval_fails_on_another_output(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    files.write(master("print(2)", "print(3)"), path)
    notebooks.run(path)
    stale = files.read(path)
    stale.cells[2].outputs[0].text = "4\n"
    files.write(stale, path)

    run = nbval(tmp_path)

    assert run.returncode == 1
    assert "1 failed, 1 passed" in run.stdout


def test_time_of_a_notebook_is_that_of_all_its_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "_build" / "durations.json"
    monkeypatch.setattr(files, "DURATIONS", path)
    monkeypatch.setattr(durations, "_seconds", defaultdict(float))
    copy = "_build/reader/book/chapters/a.ipynb"
    for nodeid, seconds in ((f"{copy}::Cell 0", 1.0), (f"{copy}::Cell 1", 0.5), ("tests/test_a.py::test", 9.0)):
        durations.pytest_runtest_logreport(SimpleNamespace(nodeid=nodeid, duration=seconds))
    durations.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace(workerinput={})))
    assert not path.exists(), "a worker writes nothing"
    durations.pytest_sessionfinish(SimpleNamespace(config=SimpleNamespace()))
    assert json.loads(path.read_text()) == {"chapters/a.ipynb": 1.5}


# ---- the address


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small book at one address, in a git checkout."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "_config.yml").write_text(f"repository:\n  url: {HERE.url}  # here\n  branch: main\n")
    (tmp_path / "README.md").write_text(
        f"See [it]({HERE.pages}/intro.html), [a file]({HERE.url}/blob/main/README.md), {HERE.url}.\n"
        f"git clone {HERE.url}.git, not {HERE.url}-notes; the main idea.\n"
    )
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0" + HERE.url.encode())
    notebook = master(bootstrap.first_code_cell(HERE))
    notebook.cells[1].outputs = [new_output("stream", text=HERE.url)]
    files.write(notebook, tmp_path / "solutions" / "01_doubling.ipynb")
    return tmp_path


def test_address_moves_everywhere(tree: Path) -> None:
    changed = repository.move(THERE, tree)

    assert [path.relative_to(tree).as_posix() for path in changed] == [
        "README.md",
        "_config.yml",
        "solutions/01_doubling.ipynb",
    ]
    assert repository.configured(tree) == THERE
    assert (tree / "README.md").read_text() == (
        f"See [it]({THERE.pages}/intro.html), [a file]({THERE.url}/blob/trunk/README.md), {THERE.url}.\n"
        f"git clone {THERE.url}.git, not {HERE.url}-notes; the main idea.\n"
    )
    notebook = files.read(tree / "solutions" / "01_doubling.ipynb")
    assert notebook.cells[0].source.endswith(bootstrap.colab_line(THERE, "solutions/01_doubling.ipynb"))
    assert notebook.cells[1].source == bootstrap.first_code_cell(THERE)
    assert notebook.cells[1].outputs[0].text == HERE.url
    assert HERE.url.encode() in (tree / "picture.png").read_bytes()


def test_moving_there_and_back_changes_no_byte(tree: Path) -> None:
    before = {path: path.read_bytes() for path in repository.text_files(tree)}
    repository.move(THERE, tree)
    repository.move(HERE, tree)
    assert {path: path.read_bytes() for path in repository.text_files(tree)} == before


@pytest.mark.parametrize(
    "url",
    [
        "",
        "github.com/bob/book",
        "http://github.com/bob/book",
        "https://gitlab.com/bob/book",
        "https://github.com/bob",
        "https://github.com/bob/book/tree/main",
        "https://github.com/bob/book.git",
        "https://github.com/bob/my book",
    ],
)
def test_other_addresses_are_refused_with_the_right_form(url: str) -> None:
    with pytest.raises(ValueError, match="write it as https://github"):
        Repository(url)


def test_command_refuses_a_bad_address_in_one_line() -> None:
    command = [sys.executable, "-m", "tools.repository", "https://example.org/book"]
    run = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.startswith("error: 'https://example.org/book' is no address")
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{HERE.url}/issues and {HERE.colab}/blob/main/chapters/01.ipynb", []),
        (HERE.url.replace("ada", "eve"), ["eve/a-book"]),
        (f"make repository URL={HERE.url.replace('ada', 'eve')}", []),
        (HERE.colab.replace("a-book", "another") + "/blob/main/x", ["ada/another"]),
        (f"{HERE.colab}/blob/old/chapters/01.ipynb", ["ada/a-book on branch old"]),
        (f"git+{HERE.url}@old", ["ada/a-book on branch old"]),
    ],
)
def test_stray_address_is_found(text: str, wrong: list[str]) -> None:
    assert repository.strays(text, HERE) == wrong


def test_project_has_one_address() -> None:
    here = repository.configured()
    found = {}
    for path in repository.text_files():
        if wrong := repository.strays(path.read_text(encoding="utf-8", errors="replace"), here):
            found[files.name(path)] = wrong
    assert found == {}, "run `make repository URL=…`, which changes every place"


# ---- the environment


def test_pins_have_no_suffix_of_one_platform_and_leave_the_book_out(tmp_path: Path) -> None:
    for name, version in (
        ("torch", "2.13.0+cpu"),
        ("posenc", "0.1.0"),
        ("timm", "1.0"),
        ("Jinja2", "3.1"),
        ("ruamel.yaml", "1.0"),
    ):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    pins = lock.requirements([PathDistribution(path) for path in tmp_path.iterdir()])
    assert pins.splitlines()[2:] == ["jinja2==3.1", "ruamel-yaml==1.0", "torch==2.13.0"]


def test_requirements_pin_every_line_to_one_version() -> None:
    lines = (files.ROOT / "requirements.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    names = [line.partition("==")[0] for line in pins]
    assert names == sorted(names)
    assert all(line.count("==") == 1 and "+" not in line and "@" not in line for line in pins)
    assert any(line.startswith("torch==") for line in pins)


# ---- make


def make(*arguments: str, folder: Path = files.ROOT) -> subprocess.CompletedProcess[str]:
    """Run make from elsewhere, as if no other make were running (these tests may run inside `make test`)."""
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    command = ["make", "-C", str(folder), "--no-print-directory", *arguments]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True)


def test_make_alone_lists_every_command_with_what_it_does() -> None:
    listed = make()
    assert listed.returncode == 0
    described = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines()[1:])
    phony = re.search(r"(?m)^\.PHONY: (.*)$", (files.ROOT / "Makefile").read_text())
    assert phony
    assert sorted(described) == sorted(phony.group(1).split())


def test_make_without_a_fit_python_says_what_to_install(tmp_path: Path) -> None:
    """In a tree without .venv, where `python3` is older than the book needs, or cannot make environments."""
    shutil.copy(files.ROOT / "Makefile", tmp_path)
    for name in ("requirements.txt", "requirements-alone.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    no_venv = tmp_path / "python"
    no_venv.write_text('#!/bin/sh\ncase "$2" in venv) mkdir .venv; exit 1;; esac\n')
    no_venv.chmod(0o755)

    for python, advice in (("/bin/false", "older than Python 3.11"), (str(no_venv), "apt-get install python3-venv")):
        run = make("book", f"PYTHON={python}", folder=tmp_path)
        assert run.returncode != 0
        assert advice in run.stderr
        assert not (tmp_path / ".venv").exists()


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = files.ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "make test"
