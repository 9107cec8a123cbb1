"""Break the library one place at a time, and see who notices (`make broken`).

A mutant is a module of `posenc` changed in one place (`tools/mutations.py`). First the quick tests that run the changed
lines are asked, quickest first; then the checks of the exercises, with their right solutions; then the cells of the
chapters. What nobody notices lacks a test, or does the same as the library: `tools/library_mutants.toml` says why.
What a whole run finds is stored in `posenc/data/library_mutants.json`.

Counted are the modules that encode positions, what they stand on, what tasks, studies and costs are made of, and what
takes models and layers apart (`MODULES`). What draws or trains (figures, images, train, sweep, …) can be named, but
takes minutes to ask, and its results are stored and asserted in the chapters. Command lines are left alone, and so are
`checks` and `grading`, which have their own proof.

A mutant's code is put into the function that is there already, in a fork, so nothing is imported again. Where that
cannot be (a class attribute, a constant, a line that runs while tests are collected) the tests are collected afresh.
"""

import argparse
import ast
import copy
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import platform
import re
import sys
import tomllib
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tools import files, mutations, witnesses
from tools.reasons import listed, says
from tools.witnesses import LIBRARY, Measured, Memory, Witness, digest

REASONS = Path(__file__).with_suffix(".toml")
RESULTS = files.ROOT / "posenc" / "data" / "library_mutants.json"
LAST = files.ROOT / "_build" / "library_mutants.json"
MODULES = ("encoding", "attention", "masks", "symmetry", "sets", "absolute", "learned", "offsets", "relative", "rotary")
MODULES += ("contexts", "grids", "windows", "rotary_grid", "vision", "model", "decode")
MODULES += ("tasks", "recall", "resolution", "extension", "costs", "kernels", "production", "symmetry_table")
LOG = LAST.with_suffix(".log")  # of a run, as it goes
LEAST_SHARE = 0.98  # of the mutants that are not excused, so many must be noticed
MOST_SECONDS = 10.0  # of tests for one mutant
A_FEW_SECONDS = 0.5  # for one that is excused: somebody might notice it after all
QUICK = 0.3  # seconds: a test that takes less, and has noticed one mutant of a function, is asked first about others
PRELOADED = ("torch", "transformers", "x_transformers", "rotary_embedding_torch", "timm", "matplotlib.pyplot")
UNTOUCHED = (ast.Import, ast.ImportFrom)


@dataclass(frozen=True)
class Mutant:
    """A module with one statement of its top level replaced.

    place: the function, or `Class.method`, or the names that are defined. lines: of the file; whoever runs one of
    them may notice. broad: the change is outside a function, so whoever runs anything of the module may.
    """

    module: str
    place: str
    change: str
    statement: int
    code: str
    lines: tuple[int, ...]
    broad: bool
    rule: str = ""

    @property
    def name(self) -> str:
        return f"{self.module}.{self.place}: {self.change}"


# ---- what is changed, and where


def mutants_of(module: str, source: str | None = None) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its lines."""
    tree = ast.parse(source if source is not None else path_of(module).read_text(encoding="utf-8"))
    for k, statement in enumerate(tree.body):
        if isinstance(statement, UNTOUCHED) or is_text(statement) or is_type(statement) or is_command(statement):
            continue
        for change, code in mutations.mutants(ast.Module([statement], [])):
            old, new, around = first_difference(statement, ast.parse(code).body[0])
            inside = [a for a in around if isinstance(a, ast.FunctionDef)]
            place = ".".join(a.name for a in around[: around.index(inside[0]) + 1 if inside else None])
            lines, broad = lines_of(old, new, inside), not inside
            if not place:
                keys, value = differing(old, new)
                place = ".".join([names_of(statement), *keys])
                change = value if keys else change
            yield Mutant(module, place, change, k, code, lines, broad, rule(old, new))


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def path_of(module: str) -> Path:
    return LIBRARY / f"{module}.py"


def is_type(statement: ast.stmt) -> bool:
    """`Layer = Callable[…]`: a name for readers."""
    names = ("Callable[", "Literal[", "tuple[")
    return isinstance(statement, ast.Assign) and ast.unparse(statement.value).startswith(names)


def is_command(statement: ast.stmt) -> bool:
    """`if __name__ == …` or `def main`: what a command line does."""
    guard = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
    return guard or (isinstance(statement, ast.FunctionDef) and statement.name == "main")


def names_of(statement: ast.stmt) -> str:
    """What a statement outside a function defines."""
    defines = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign))
    targets = getattr(statement, "targets", [getattr(statement, "target", statement)])
    return ", ".join(ast.unparse(each) for each in targets) if defines else ""


def first_difference(old: ast.stmt, new: ast.stmt) -> tuple[ast.stmt, ast.stmt, list[Any]]:
    """The smallest statement that differs, before and after, and the functions and classes around it or changed."""
    around = [old] if isinstance(old, (ast.FunctionDef, ast.ClassDef)) else []
    for block in ("body", "orelse", "handlers", "finalbody"):
        befores, afters = getattr(old, block, []), getattr(new, block, [])
        if type(old) is type(new) and isinstance(befores, list) and len(befores) == len(afters):
            for before, after in zip(befores, afters, strict=True):
                if ast.unparse(before) != ast.unparse(after):
                    first, second, inner = first_difference(before, after)
                    return first, second, around + inner
    return old, new, around


def differing(old: ast.AST, new: ast.AST) -> tuple[list[str], str]:
    """Where in a table of calls and dictionaries the two differ: keys and arguments on the way; and what is new there.

    A call that begins with a text is named by it: the second argument of `Row("a", 1)` is at `a.1`.
    """
    keys = [key.value for key in old.keys if isinstance(key, ast.Constant)] if isinstance(old, ast.Dict) else []
    first = old.args[0] if isinstance(old, ast.Call) and old.args else None
    named = [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
    found = list(differences(old, new)) if isinstance(old, TABLES) and type(old) is type(new) else []
    if len(found) != 1:
        return named, ast.unparse(new)
    field, k, before, after = found[0]
    if after is None:
        return [*named, str(before.arg)], "left out"
    labels = {"values": keys[k : k + 1], "args": [f"{k}"] if named else []}.get(field, [])
    labels = [str(before.arg)] if field == "keywords" else labels
    inner, value = differing(before, after)
    return [*named, *labels, *inner], value


TABLES = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Dict, ast.List, ast.Tuple, ast.Call, ast.keyword, ast.BinOp)


def differences(old: ast.AST, new: ast.AST) -> Iterator[tuple[str, int, Any, Any]]:
    """Which parts of a node are others: field, place, before, after; after is None for a keyword that is left out."""
    if isinstance(old, ast.BinOp) and not isinstance(old.op, ast.BitOr):
        return
    for field, before in ast.iter_fields(old):
        befores, afters = (each if isinstance(each, list) else [each] for each in (before, getattr(new, field)))
        if len(afters) < len(befores):
            k = next((k for k, both in enumerate(zip(befores, afters, strict=False)) if is_other(*both)), len(afters))
            yield field, k, befores[k], None
            continue
        for k, (one, other) in enumerate(zip(befores, afters, strict=True)):
            if isinstance(other, (ast.expr, ast.keyword)) and is_other(one, other):
                yield field, k, one, other


def is_other(before: object, after: object) -> bool:
    return before != after if not isinstance(before, ast.AST) else ast.dump(before) != ast.dump(after)


def lines_of(old: ast.stmt, new: ast.stmt, inside: list[ast.FunctionDef]) -> tuple[int, ...]:
    """The lines of a simple statement, or of a compound one's head.

    If the whole statement is gone, or a function's arguments changed: the lines of its body.
    """
    body = getattr(old, "body", None)
    if not isinstance(body, list):
        return tuple(range(old.lineno, old.end_lineno + 1))
    if isinstance(new, ast.Pass) or (isinstance(old, ast.FunctionDef) and inside):
        return tuple(range(body[0].lineno, old.end_lineno + 1))
    return tuple(range(old.lineno, max(body[0].lineno, old.lineno + 1)))


def rule(old: ast.stmt, new: ast.stmt) -> str:
    """Why such a change is none, whichever function it is in. Empty if it may be one."""
    if isinstance(old, ast.Raise) and isinstance(new, ast.Raise):
        return "the words of an error"
    for because, normal in RULES.items():
        if _unparsed(normal(), old) == _unparsed(normal(), new):
            return because
    return ""


def _unparsed(normal: ast.NodeTransformer, node: ast.stmt) -> str:
    return ast.unparse(normal.visit(copy.deepcopy(node)))


class NoDevice(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [k for k in node.keywords if k.arg != "device"]
        return self.generic_visit(node)


class NoStrictness(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [k for k in node.keywords if k.arg != "strict" or ast.unparse(node.func) != "zip"]
        return self.generic_visit(node)


class Sorted(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        if ast.unparse(node.func).rpartition(".")[2] in ("transpose", "flip", "difference") and len(node.args) == 2:
            node.args.sort(key=ast.unparse)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if isinstance(node.ops[0], (ast.In, ast.NotIn)) and isinstance(node.comparators[0], ast.Tuple):
            node.comparators[0].elts.sort(key=ast.unparse)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        if isinstance(node.type, ast.Tuple):
            node.type.elts.sort(key=ast.unparse)
        return self.generic_visit(node)


RULES: dict[str, type[ast.NodeTransformer]] = {
    "where a tensor lies: there is one device": NoDevice,
    "a check that the lists are of one length": NoStrictness,
    "the two may change places": Sorted,
}


# ---- put into the library that is loaded


def apply(mutant: Mutant) -> bool:
    """Change the functions that are there. Returns whether that was possible."""
    module = importlib.import_module(f"posenc.{mutant.module}")
    names = dict(vars(module))
    try:
        exec(compile(mutant.code, module.__file__, "exec"), names)
    except Exception:
        return False  # the import will say so
    forget_results()
    statement = ast.parse(mutant.code).body[0]
    if isinstance(statement, ast.If):
        return False  # it may not hold here, and hold where a test imports the module
    if isinstance(statement, ast.FunctionDef):
        return replace_code(vars(module)[statement.name], names[statement.name])
    if isinstance(statement, ast.ClassDef):
        if mutant.broad:
            return False
        method = mutant.place.split(".")[1]
        there, new = vars(module)[statement.name], vars(names[statement.name])[method]
        if not replace_code(vars(there)[method], new):
            setattr(there, method, new)
        return True
    return replace_values(vars(module), names)


def replace_code(old: Any, new: Any) -> bool:
    old, new = plain(old), plain(new)
    try:
        old.__code__ = new.__code__
    except ValueError:  # other free variables: `super()` is gone
        return False
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    return True


def plain(function: Any) -> types.FunctionType:
    """The function below staticmethod, property, cache and other decorators."""
    for name in ("__func__", "fget", "func"):
        function = getattr(function, name, function)
    return inspect.unwrap(function)


def replace_values(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Give other values to the constants, wherever they were imported by their names."""
    changed = {name: value for name, value in after.items() if name in before and value is not before[name]}
    for module in list(sys.modules.values()):
        space = getattr(module, "__dict__", {})
        for name, value in changed.items():
            if name in space and space[name] is before[name] and space is not before:
                space[name] = value
    before.update(changed)
    return True


def forget_results() -> None:
    """Empty the caches of the library's functions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("posenc."):
            for value in list(vars(module).values()):
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()


# ---- or imported afresh


class InPlace(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other code than its file's."""

    def __init__(self, module: str, code: str) -> None:
        self.name, self.code = f"posenc.{module}", code

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def exec_module(self, module: types.ModuleType) -> None:
        module.__file__ = str(path_of(self.name.rpartition(".")[2]))
        exec(compile(self.code, module.__file__, "exec"), module.__dict__)


def whole_code(mutant: Mutant) -> str:
    tree = ast.parse(path_of(mutant.module).read_text(encoding="utf-8"))
    tree.body[mutant.statement : mutant.statement + 1] = ast.parse(mutant.code).body
    return ast.unparse(tree)


def noticed_afresh(mutant: Mutant, asked: Sequence[tuple[str, float]]) -> str:
    """The first of these tests that fails if the module is imported from the mutant's code; "" if none does. Forks."""

    def work(say: Callable[[str], None]) -> str:
        for name in [n for n in sys.modules if n.partition(".")[0] == "posenc" or n.startswith("tests.")]:
            del sys.modules[name]
        sys.meta_path.insert(0, InPlace(mutant.module, whole_code(mutant)))
        say("collecting the tests")
        witnesses.limit(60)

        def run(collected: list[Witness]) -> None:
            by_name = {w.name: w for w in collected}
            chosen = [(by_name[name], seconds) for name, seconds in asked if name in by_name]
            for k, (witness, seconds) in enumerate(chosen):
                say(witness.name)
                witnesses.limit(seconds)
                if witness.run(chosen[k + 1][0] if k + 1 < len(chosen) else None):
                    return

        return witnesses.with_tests(sorted({name.partition("::")[0] for name, _ in asked}), run)

    returned, last = witnesses.in_fork(work)
    return last or returned if returned == "ended" or returned.startswith("error: ") else returned


# ---- who is asked


def in_question(mutant: Mutant, known: dict[str, Measured], seconds: float = MOST_SECONDS) -> list[tuple[str, float]]:
    """Those that run a changed line (or, for a change outside functions, anything of the module).

    First come those that are quick and run little else: they say most about it.
    """
    lines = range(1, 100_000) if mutant.broad else mutant.lines
    found = [(name, m) for name, m in known.items() if m.runs(mutant.module, lines)]
    found.sort(key=lambda each: (each[1].seconds * each[1].breadth, each[0]))
    chosen, total = [], 0.0
    for name, measured in found:
        total += measured.seconds
        if total > seconds and chosen:
            break
        chosen.append((name, measured.seconds))
    return chosen


def ask_tests(chosen: Sequence[Mutant], jobs: int, reasons: "Reasons") -> list[str]:
    """For each mutant the test that notices it, or ""."""
    tests = witnesses.test_files(sorted({*MODULES, *(m.module for m in chosen)}))
    memory = _remember(tests)
    with ThreadPoolExecutor(jobs) as pool:
        slices = [chosen[k::jobs] for k in range(jobs)]
        answers = list(pool.map(lambda some: _ask_in_place(some, tests, memory, reasons), slices))
        found = [answers[k % jobs][k // jobs] for k in range(len(chosen))]
        again = [k for k, said in enumerate(found) if said in ("", "afresh")]
        fresh = pool.map(lambda k: _ask_afresh(chosen[k], found[k], memory, reasons), again)
        for k, said in zip(again, fresh, strict=True):
            found[k] = said
    return found


def _remember(tests: Sequence[str]) -> dict[str, Measured]:
    """What is known of all tests, measured now where it is not."""

    def measure_all(say: Callable[[str], None]) -> str:
        tracer = witnesses.Tracer()

        def work(collected: list[Witness]) -> None:
            sys.settrace(None)
            memory = Memory()
            for file in tests:
                own = [w for w in collected if w.name.partition("::")[0] == file]
                memory.get(file, [files.ROOT / file], lambda own=own: witnesses.measure(own))
            lines = {"collection": Measured(0.0, tracer.lines())}
            memory.get("collection", [files.ROOT / file for file in tests], lambda: lines)
            memory.note_loaded()

        with tracer:
            return witnesses.with_tests(tests, work)

    returned, _ = witnesses.in_fork(measure_all)
    if returned:
        sys.exit(f"error: with the library as it is: {returned}")
    memory, found = Memory(), {}
    witnesses.load(memory.loaded)
    for file in (*tests, "collection"):
        of = tests if file == "collection" else [file]
        found |= memory.get(file, [files.ROOT / each for each in of], dict)
    return found


def _ask_in_place(
    some: Sequence[Mutant], tests: Sequence[str], known: dict[str, Measured], reasons: "Reasons"
) -> list[str]:
    """In a process that has collected the tests, fork for each mutant. "afresh" if it could not be put in place."""

    def work(say: Callable[[str], None]) -> str:
        found: list[str] = []

        def ask(collected: list[Witness]) -> None:
            by_name = {w.name: w for w in collected}
            sharp: dict[str, list[str]] = defaultdict(list)  # by module and place: who has noticed something there
            for mutant in some:
                first = sharp[f"{mutant.module}.{mutant.place}"]
                most = A_FEW_SECONDS if reasons.excuse(mutant) else MOST_SECONDS
                asked = [(name, seconds) for name, seconds in in_question(mutant, known, most) if name in by_name]
                asked.sort(key=lambda each, first=first: -first.index(each[0]) if each[0] in first else 1)
                those = [(by_name[name], seconds) for name, seconds in asked]
                found.append(witnesses.first_to_notice(those, lambda mutant=mutant: apply(mutant)))
                if found[-1] in by_name and found[-1] not in first and known[found[-1]].seconds < QUICK:
                    first.append(found[-1])
                with LOG.open("a", encoding="utf-8") as log:
                    print(f"{mutant.name} -> {found[-1]}", file=log)

        failed = witnesses.with_tests(tests, ask)
        return json.dumps(found) if not failed else f"error: {failed}"

    return _answers(witnesses.in_fork(work))


def _ask_afresh(mutant: Mutant, said: str, known: dict[str, Measured], reasons: "Reasons") -> str:
    """If the lines run already when tests are collected, or nothing could be put in place."""
    if reasons.excuse(mutant):
        return ""
    if said == "afresh" or mutant.broad or known["collection"].runs(mutant.module, mutant.lines):
        return noticed_afresh(mutant, in_question(mutant, {k: m for k, m in known.items() if k != "collection"}))
    return ""


# ---- the rest: exercises and chapters


def ask_exercises(chosen: Sequence[Mutant]) -> list[str]:
    """For each mutant the exercise whose check then finds fault with its solution, or ""."""

    def work(say: Callable[[str], None]) -> str:
        asked = {w.name: w for w in witnesses.exercises()}
        parts = [*sorted((LIBRARY / "checks").glob("*.py")), *files.notebooks(folders=("solutions",))]
        known = Memory().get("exercises", parts, lambda: witnesses.measure(asked.values()))
        found = []
        for mutant in chosen:
            those = [(asked[name], seconds) for name, seconds in in_question(mutant, known)]
            said = witnesses.first_to_notice(those, lambda mutant=mutant: apply(mutant))
            found.append("" if said == "afresh" else said)
        return json.dumps(found)

    return _answers(witnesses.in_fork(work))


def _answers(returned: tuple[str, str]) -> Any:
    """What a fork has found. Ends the program if it has found nothing."""
    said, last = returned
    if not said.startswith(("[", "{")):
        sys.exit(f"error: {said}, after {last}")
    return json.loads(said)


def imported(chapter: Path) -> set[str]:
    """Which of our modules a chapter imports."""
    return {module for cell in witnesses.cells(chapter) for module in re.findall(r"posenc\.(\w+) import", cell.source)}


def ask_chapters(chosen: Sequence[Mutant]) -> list[str]:
    """For each mutant the cell of a chapter that fails, or ""."""
    found = [""] * len(chosen)
    modules = {m.module for m in chosen}
    for chapter in files.notebooks(folders=("chapters",)):
        if not modules & imported(chapter):
            continue
        known = Memory().get(files.name(chapter), [chapter], lambda chapter=chapter: witnesses.measure_chapter(chapter))
        order = [cell.name for cell in witnesses.cells(chapter)]
        due: dict[int, list] = {}
        for which, mutant in enumerate(chosen):
            runs = (
                []
                if found[which]
                else [k for k, name in enumerate(order) if known[name].runs(mutant.module, mutant.lines)]
            )
            if runs and not mutant.broad:
                last = min(runs[-1] + 1, len(order) - 1)  # a cell, or the next one, asserts what it shows
                due.setdefault(runs[0], []).append((which, last, lambda mutant=mutant: apply(mutant)))
        if due:
            cells = witnesses.in_fork(lambda say, c=chapter, d=due: json.dumps(witnesses.ask_chapter(c, d)))
            for which, cell in _answers(cells).items():
                found[int(which)] = cell
    return found


# ---- reasons, and what is stored


@dataclass(frozen=True)
class Reasons:
    """Which survivors are no mistakes.

    free: places whose exact form is nobody's promise, and why. same: (place, change) of mutants that do the same, and
    why. "…" stands for anything.
    """

    free: dict[str, str]
    same: dict[tuple[str, str], str]

    def excuse(self, mutant: Mutant) -> str:
        place = f"{mutant.module}.{mutant.place}"
        free = (because for said, because in self.free.items() if says(said, place))
        same = (because for (at, said), because in self.same.items() if says(at, place) and says(said, mutant.change))
        return mutant.rule or next(free, "") or next(same, "")


def read_reasons(text: str) -> Reasons:
    """What `library_mutants.toml` says. Raises ValueError if an entry is twice there, or has no reason."""
    found = tomllib.loads(text)
    free = found.get("free", {})
    if not all(reason.strip() for reason in free.values()):
        raise ValueError("an entry has no reason")
    return Reasons(free, listed(found.get("same", []), ["place"], "changes"))


def idle(reasons: Reasons, survivors: Iterable[Mutant], modules: Iterable[str]) -> list[str]:
    """Entries about these modules that no survivor needs."""
    left, modules = [m for m in survivors if not m.rule], set(modules)
    places = {m.name: f"{m.module}.{m.place}" for m in left}
    unused = [f"{at}: free" for at in reasons.free if not any(says(at, place) for place in places.values())]
    unused += [
        f"{at}: {said}"
        for at, said in reasons.same
        if not any(says(at, places[m.name]) and says(said, m.change) for m in left)
    ]
    return [entry for entry in unused if entry.partition(".")[0] in modules]


def module_digest(module: str) -> str:
    """Differs as soon as the mutants of a module may be others. (New tests do not make a count wrong.)"""
    return digest(path_of(module), Path(mutations.__file__))


def row(module: str, mutants: Sequence[Mutant], found: Sequence[str], reasons: Reasons) -> dict[str, Any]:
    """What is stored of one module."""
    left = [m for m, by in zip(mutants, found, strict=True) if not by]
    by = Counter(kind(each) for each in found if each)
    return {
        "mutants": len(mutants),
        "tests": by["tests"],
        "exercises": by["exercises"],
        "chapters": by["chapters"],
        "excused": sum(bool(reasons.excuse(m)) for m in left),
        "survivors": [f"{m.place}: {m.change}" for m in left if not reasons.excuse(m)],
        "digest": module_digest(module),
    }


def kind(witness: str) -> str:
    if witness.startswith("exercise "):
        return "exercises"
    return "chapters" if witness.startswith("chapters/") else "tests"


def share_noticed(rows: Iterable[dict[str, Any]]) -> float:
    """Of the mutants that are not excused."""
    rows = list(rows)
    noticed = sum(row["tests"] + row["exercises"] + row["chapters"] for row in rows)
    return noticed / sum(row["mutants"] - row["excused"] for row in rows)


def store(rows: dict[str, dict[str, Any]]) -> None:
    import torch

    made = {
        "command": "make broken",
        "date": date.today().isoformat(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "reasons": digest(REASONS),
    }
    files.write_text(json.dumps({"made": made, "modules": rows}, indent=1, ensure_ascii=False) + "\n", RESULTS)


# ---- the command


def survey(mutants: Sequence[Mutant], reasons: Reasons, jobs: int, chapters: bool = True) -> list[str]:
    """For each mutant who notices it; "" if nobody does, or if a rule says that nobody can."""
    found = [""] * len(mutants)

    def ask(those: Callable[[Mutant], bool], answer: Callable[[Sequence[Mutant]], list[str]]) -> None:
        which = [k for k, m in enumerate(mutants) if not found[k] and those(m)]
        for k, said in zip(which, answer([mutants[k] for k in which]) if which else [], strict=True):
            found[k] = said

    ask(lambda m: not m.rule, lambda some: ask_tests(some, jobs, reasons))
    ask(lambda m: not reasons.excuse(m), ask_exercises)
    if chapters:
        ask(lambda m: not reasons.excuse(m), ask_chapters)
    return found


def numbered(mutants: Iterable[Mutant]) -> list[str]:
    """A key for each: a change may occur twice in a place."""
    seen: Counter[str] = Counter()
    keys = []
    for m in mutants:
        seen[m.name] += 1
        keys.append(f"{m.name} ({seen[m.name]})")
    return keys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="names of modules (all; only then is it stored)")
    parser.add_argument("--left", action="store_true", help="only what survived the last run on this machine")
    parser.add_argument("--no-chapters", action="store_true", help="do not ask the chapters, which takes longest")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (%(default)s)")
    arguments = parser.parse_args()
    names = arguments.modules or MODULES
    LOG.unlink(missing_ok=True)
    reasons = read_reasons(REASONS.read_text(encoding="utf-8"))
    mutants = [m for name in names for m in mutants_of(name)]
    keys = numbered(mutants)
    last = json.loads(LAST.read_text(encoding="utf-8")) if LAST.exists() else {}
    known = {name: last.get(name, {}).get("found", {}) for name in names}
    known = {
        n: f if arguments.left and last.get(n, {}).get("digest") == module_digest(n) else {} for n, f in known.items()
    }
    asked = [k for k, m in enumerate(mutants) if not known[m.module].get(keys[k])]
    preload()
    answers = survey([mutants[k] for k in asked], reasons, arguments.jobs, not arguments.no_chapters)
    found = [known[m.module].get(key, "") for m, key in zip(mutants, keys, strict=True)]
    for k, said in zip(asked, answers, strict=True):
        found[k] = said
    rows = {}
    for name in names:
        its = [k for k, m in enumerate(mutants) if m.module == name]
        last[name] = {"digest": module_digest(name), "found": {keys[k]: found[k] for k in its}}
        rows[name] = row(name, [mutants[k] for k in its], [found[k] for k in its], reasons)
    files.write_text(json.dumps(last, indent=1), LAST)
    report(rows, found)
    for entry in (unused := idle(reasons, [m for m, by in zip(mutants, found, strict=True) if not by], names)):
        print(f"error: {REASONS.name} has a reason that nothing needs: {entry}", file=sys.stderr)
    if not arguments.modules and not arguments.no_chapters:
        store(rows)
    return int(bool(unused) or share_noticed(rows.values()) < LEAST_SHARE)


def preload() -> None:
    """Import others' libraries once, and not in each fork."""
    os.environ["OMP_NUM_THREADS"] = "1"
    witnesses.load(PRELOADED)
    import torch

    torch.set_num_threads(1)


def report(rows: dict[str, dict[str, Any]], found: Iterable[str]) -> None:
    print(f"{'module':16} mutants    tests exercises chapters  excused survivors")
    for name, each in rows.items():
        numbers = [each[key] for key in ("mutants", "tests", "exercises", "chapters", "excused")]
        print(f"{name:16} {' '.join(f'{n:8}' for n in (*numbers, len(each['survivors'])))}")
    for name, each in rows.items():
        print(*(f"survives: {name}.{change}\n" for change in each["survivors"]), sep="", end="")
    print("\nwho noticed first, and how many")
    for name, count in Counter(said.partition("::")[0].partition("#")[0] for said in found if said).most_common():
        print(f"{count:6} {name}")
    print(f"of those not excused {share_noticed(rows.values()):.1%} are noticed")


if __name__ == "__main__":
    sys.exit(main())
