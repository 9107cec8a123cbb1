"""Marks of a notebook whose code runs in another process: right answers get them, tricks do not."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from posenc import __main__
from posenc.checks.exercise import Exercise
from posenc.checks.registry import all_exercises
from posenc.grading import stub
from posenc.grading.marking import Mark, Nursery, chapter_of, mark, mark_chapter
from posenc.grading.reading import Notebook, read

ROOT = Path(__file__).resolve().parent.parent
MASTERS = sorted((ROOT / "solutions").glob("*.ipynb"))

PRIVATE_SEED = 7
UNSAFE = shutil.which("bwrap") is None

# A right answer to two small exercises, and what odd but honest notebooks hold besides.
RIGHT = "def shuffle_rows(x, permutation):\n    return x[..., permutation, :]"
INNOCENTS: dict[str, Sequence[str]] = {
    "plain": (RIGHT,),
    "prints": (RIGHT.replace("    return", "    print('here' * 1000000)\n    return"),),
    "warns": ("import warnings\n" + RIGHT.replace("    return", "    warnings.warn('careful')\n    return"),),
    "Colab leftovers": (
        "from google.colab import drive\ndrive.mount('/content/drive')\n" + RIGHT,
        "from google.colab import files\nfiles.upload()",
    ),
    "magics and shell lines": ("%matplotlib inline\n!pip install torch\n%load_ext autoreload\n" + RIGHT,),
    "a timed cell": ("%%time\n" + RIGHT,),
    "a shell cell": ("%%bash\nrm -rf nothing", RIGHT),
    "a cell that fails": ("1 / 0", "open('/nowhere')", "import nowhere", RIGHT),
    "a line that fails before the answer": ("data = open('mine.csv').read()\n" + RIGHT,),
    "a cell that cannot be parsed": ("for for for", RIGHT),
    "asks for input": ("name = input('your name')", RIGHT),
    "leaves": ("exit()", "import sys\nsys.exit(3)", "quit()", RIGHT),
    "displays": ("display('hello')", "from IPython.display import display, HTML\ndisplay(HTML('<b>'))", RIGHT),
    "plots": ("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", RIGHT),
    "another name for torch": ("import torch as t\n" + RIGHT,),
    "helper in another cell": (
        "def rows(x):\n    return x",
        RIGHT.replace("x[...", "rows(x)[..."),
    ),
    "helper defined later": (RIGHT.replace("x[...", "rows(x)[..."), "def rows(x):\n    return x"),
    "a class": (
        "class Shuffler:\n    def __call__(self, x, permutation):\n        return x[..., permutation, :]",
        "shuffle_rows = Shuffler()",
    ),
    "a lambda": ("shuffle_rows = lambda x, permutation: x[..., permutation, :]",),
    "annotated": ("import torch\n" + RIGHT.replace("x, permutation", "x: torch.Tensor, permutation: 'rows'"),),
    "wrong first, right last": ("def shuffle_rows(x, permutation):\n    return x", RIGHT),
    "decorated": (
        "import functools",
        "def logged(f):\n    return functools.wraps(f)(lambda *a: f(*a))\n@logged\n" + RIGHT,
        "shuffle_rows.__name__ = 'mine'",
    ),
    "another default dtype": ("import torch\ntorch.set_default_dtype(torch.float64)", RIGHT),
    "another seed": ("import torch\ntorch.manual_seed(3)", RIGHT),
    "keeps the check": ("from posenc.checks import check, scoreboard", RIGHT, "check(shuffle_rows)\nscoreboard(1)"),
    "a global": ("ALL = ...", RIGHT.replace("[...", "[ALL")),
    "a view": (RIGHT.replace("x[..., permutation, :]", "x.clone()[..., permutation, :][:]"),),
    "through numpy": (
        "import torch",
        "def shuffle_rows(x, permutation):\n    return torch.from_numpy(x.numpy()[..., permutation.numpy(), :])",
    ),
    "with a gradient": (
        "def shuffle_rows(x, permutation):\n"
        "    y = x[..., permutation, :]\n"
        "    return y.requires_grad_() if y.is_floating_point() else y",
    ),
    "a thread": (
        "import threading\nthreading.Thread(target=print).start()",
        RIGHT,
    ),
    "changes its input and mends it": (RIGHT.replace("return", "x += 0\n    return"),),
}

# None of these may earn a point for `shuffle_rows`.
TRICKS: dict[str, Sequence[str]] = {
    "an object that equals everything": (
        "class Yes:\n    def __eq__(self, other): return True\n    shape = dtype = property(lambda s: s)\n"
        "def shuffle_rows(x, permutation):\n    return Yes()",
    ),
    "a tensor subclass that equals everything": (
        "import torch\nclass Yes(torch.Tensor):\n"
        "    @classmethod\n    def __torch_function__(cls, f, types, args=(), kwargs=None): return True\n"
        "def shuffle_rows(x, permutation):\n    return torch.zeros(1).as_subclass(Yes)",
    ),
    "a patched comparison": (
        "import torch, numpy\ntorch.equal = torch.allclose = numpy.allclose = lambda *a, **k: True\n"
        "def shuffle_rows(x, permutation):\n    return x",
    ),
    "a patched check": (
        "import posenc.checks\nposenc.checks.check = lambda f: print('18 of 18 points')\n"
        "def shuffle_rows(x, permutation):\n    return x",
    ),
    "the reference imported": (
        "from posenc.checks.chapter_01 import shuffle_rows",
        "from posenc.checks.registry import all_exercises\nshuffle_rows = all_exercises()['shuffle_rows'].reference",
    ),
    "the reference searched in memory": (
        "import gc\nshuffle_rows = next(o for o in gc.get_objects() "
        "if getattr(o, '__module__', '') == 'posenc.checks.chapter_01')",
    ),
    "frames walked": (
        "import sys\ndef shuffle_rows(x, permutation):\n    f = sys._getframe()\n    while f:\n"
        "        for v in f.f_locals.values():\n            if hasattr(v, 'reference'):\n"
        "                return v.reference(x, permutation)\n"
        "        f = f.f_back\n    return x",
    ),
    "leaves without a word": ("import os\ndef shuffle_rows(x, permutation):\n    os._exit(0)",),
    "leaves while the cells run": ("import os\nos._exit(0)", RIGHT),
    "kills itself": ("import os, signal\ndef shuffle_rows(x, permutation):\n    os.kill(os.getpid(), signal.SIGKILL)",),
    "raises what nobody catches": ("def shuffle_rows(x, permutation):\n    raise BaseException('ha')",),
    "exits": ("def shuffle_rows(x, permutation):\n    raise SystemExit(0)",),
    "a lazy output": ("def shuffle_rows(x, permutation):\n    return (row for row in x)",),
    "the wrong shape that broadcasts": ("def shuffle_rows(x, permutation):\n    return x[..., permutation, :][None]",),
    "nothing": ("def shuffle_rows(x, permutation):\n    pass",),
    "writes a full mark into the pipe": (
        "import os, json, struct\n"
        "def shuffle_rows(x, permutation):\n"
        "    text = json.dumps({'op': 'return', 'value': True, 'points': 99, 'status': 'correct'}).encode()\n"
        "    for fd in range(3, 64):\n"
        "        try: os.write(fd, struct.pack('<II', len(text), 0) + text)\n"
        "        except OSError: pass\n"
        "    return x",
    ),
    "writes rubbish into the pipe": (
        "import os\n"
        "def shuffle_rows(x, permutation):\n"
        "    for fd in range(3, 64):\n"
        "        try: os.write(fd, b'\\xff' * 1000)\n"
        "        except OSError: pass\n"
        "    return x",
    ),
    "claims a huge shape": (
        "import posenc.grading.wire as wire\n"
        "wire.Writer.write = lambda self, value, depth=0: "
        "{'t': 'tensor', 'dtype': 'float64', 'shape': [10**11], 'size': 8 * 10**11}\n"
        "def shuffle_rows(x, permutation):\n    return x",
    ),
    "a stub that is never a stub": ("def shuffle_rows(x, permutation):\n    raise NotImplementedError",),
    "patched out of the worker": (
        "import posenc.grading.peer as peer\n"
        "peer.Peer._run = lambda self, f, a, k: self._send({'op': 'return'}, a[0])\n"
        "def shuffle_rows(x, permutation):\n    return x",
    ),
}


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery(unsafe=UNSAFE) as opened:
        yield opened


@pytest.fixture
def only(nursery: Nursery) -> Callable[[str, Sequence[str]], Mark]:
    """Mark one exercise of a notebook with these cells."""

    def marked(name: str, cells: Sequence[str]) -> Mark:
        return mark(Notebook(tuple(cells)), [all_exercises()[name]], nursery, PRIVATE_SEED).marks[0]

    return marked


@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_each_master_gets_all_points_with_private_cases(nursery, master):
    notebook = read(master.read_bytes())
    marks = mark_chapter(notebook, chapter_of(notebook), nursery, PRIVATE_SEED)
    assert [(m.exercise.name, m.status) for m in marks.marks if m.status != "correct"] == []
    assert marks.points == marks.of > 0
    assert marks.notes == ()


@pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)
def test_each_untouched_exercise_notebook_is_not_attempted(nursery, master):
    notebook = read((ROOT / "exercises" / master.name).read_bytes())
    marks = mark_chapter(notebook, chapter_of(notebook), nursery, PRIVATE_SEED)
    assert {m.status for m in marks.marks} == {"not attempted"}
    assert marks.points == 0


@pytest.mark.parametrize("kind", INNOCENTS)
def test_odd_but_right_gets_all_points(only, kind):
    result = only("shuffle_rows", INNOCENTS[kind])
    assert (result.status, result.points) == ("correct", 1), (result.reason, result.report)


@pytest.mark.parametrize("kind", TRICKS)
def test_a_trick_earns_nothing(only, kind):
    result = only("shuffle_rows", TRICKS[kind])
    assert result.points == 0
    assert result.status != "correct"


def test_each_exercise_starts_from_the_same_state(nursery):
    cells = (
        "import torch\ndone = []\n"
        + RIGHT.replace("    return", "    done.append(1); torch.set_num_threads(1)\n    return"),
        "def log10_orders(letters):\n    assert not done\n    raise ValueError('fresh')",
    )
    exercises = [all_exercises()[name] for name in ("shuffle_rows", "log10_orders")]
    first, second = mark(Notebook(cells), exercises, nursery, PRIVATE_SEED).marks
    assert first.status == "correct"
    assert "ValueError: fresh" in (second.report.findings[0].complaint or "")


def test_a_crash_costs_its_own_exercise_only(nursery):
    cells = (
        "import os\ndef shuffle_rows(x, permutation):\n    os._exit(1)",
        "def what_commutes():\n    return {}",
    )
    exercises: list[Exercise] = [all_exercises()[name] for name in ("shuffle_rows", "what_commutes")]
    first, second = mark(Notebook(cells), exercises, nursery, PRIVATE_SEED).marks
    assert first.status == "crashed"
    assert second.status == "wrong"


def test_known_mistakes_are_named_across_the_process(only):
    wrong = ("def shuffle_rows(x, permutation):\n    return x[..., permutation.argsort(), :]",)
    assert only("shuffle_rows", wrong).report.mistake.name == "the inverse permutation"


def test_a_changed_input_is_named_across_the_process(only):
    cells = ("def shuffle_rows(x, permutation):\n    y = x[..., permutation, :]\n    x *= 2\n    return y",)
    complaints = [f.complaint for f in only("shuffle_rows", cells).report.findings]
    assert "your function changed its input; work on a copy" in complaints


def test_an_error_carries_its_line(only):
    cells = ("def shuffle_rows(x, permutation):\n    y = x\n    return y.nowhere",)
    complaint = only("shuffle_rows", cells).report.findings[0].complaint
    assert "AttributeError" in complaint
    assert "line 3 of your function: `return y.nowhere`" in complaint


def test_what_is_missing_or_broken_is_said(only):
    assert only("shuffle_rows", ("x = 1",)).status == "missing"
    broken = only("shuffle_rows", ("def shuffle_rows(x, permutation:\n    return x",))
    assert broken.status == "error"
    assert "SyntaxError" in broken.reason
    assert only("shuffle_rows", ("shuffle_rows = 5",)).status == "error"
    twice = only("shuffle_rows", ("def shuffle_rows(x, p):\n    return x", RIGHT))
    assert twice.notes == ("defined in cells 1 and 2: the last one counts",)


def test_the_library_beside_the_learner_holds_no_answer(tmp_path):
    library = stub.build(tmp_path)
    names = set(all_exercises())
    for path in library.rglob("*.py"):
        defined = {line.split("(")[0].removeprefix("def ") for line in path.read_text().splitlines()}
        assert not names & defined, path
    assert not list(library.rglob("chapter_*.py"))
    assert "def causal(" in (library / "posenc" / "masks.py").read_text()
    assert "def equivariance_error(" not in (library / "posenc" / "symmetry.py").read_text()


def test_every_helper_can_be_imported_where_the_answers_are_gone(tmp_path):
    library = stub.build(tmp_path)
    modules = [p.stem for p in (library / "posenc").glob("*.py") if p.stem not in ("__init__", "__main__")]
    code = "import importlib\n" + "\n".join(f"importlib.import_module('posenc.{name}')" for name in sorted(modules))
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(library)}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_command_prints_what_a_grader_would_see(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    file = ROOT / "exercises" / "01_a_set_not_a_sequence.ipynb"
    assert __main__.main(["check", str(file)]) == 0
    assert "0 of 18 points" in capsys.readouterr().out
    bad = tmp_path / "p (1).ipynb"
    bad.write_text("<html>")
    assert __main__.main(["check", str(bad)]) == 2
    assert "web page" in capsys.readouterr().err
    assert __main__.main(["check", str(tmp_path / "nowhere.ipynb")]) == 2
