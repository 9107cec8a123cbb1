"""Turn the assertions of a cell into measurements: how far is each from its limit?

`rewrite` changes a cell's code so that nothing is demanded any more, and a `Recorder` hears of everything: of every
comparison of numbers both sides and the margin, the distance to the limit, positive where the demand is met; of
everything else whether it held. `a < b < c` is two comparisons. Of `all(... for ...)`, of tensors and of `(...).all()`
the worst counts, of `a or b` the first that holds. `allclose` compares the largest difference, as a
share of what is allowed, with 1, and `must_break(error, at_least)` is `error >= at_least`, in an assertion or not.
"""

import ast
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

RECORDER = "__recorder__"  # its name in the namespace of the cells
BELOW = {"Lt": "<", "LtE": "<="}
ABOVE = {"Gt": ">", "GtE": ">="}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}
EXACT_CALLS = {"equal", "isfinite", "isnan"}  # what these say of tensors is yes or no
LEAST_BREAK = 1e-3  # of `posenc.symmetry.must_break`

Key = tuple[int, int, int]  # assertion of the notebook, its how manyeth run, comparison within it


@dataclass(frozen=True)
class Assertion:
    """An assertion of a notebook: the id of its cell, its source, and the sources of its comparisons."""

    cell: str
    source: str
    comparisons: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Margin:
    """One comparison of numbers: its sides, and how far they are from breaking it (negative: broken)."""

    left: float
    right: float
    margin: float


# ---- the code


def rewrite(source: str, cell: str, assertions: list[Assertion]) -> ast.Module:
    """The cell's code with recordings in place of assertions, which are added to the list."""
    tree = _Rewriter(cell, assertions).visit(ast.parse(source))
    return ast.fix_missing_locations(tree)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, cell: str, assertions: list[Assertion]):
        self.cell, self.assertions, self.current = cell, assertions, None

    def visit_Assert(self, node: ast.Assert) -> ast.Expr:
        before, self.current = self.current, self._new(ast.unparse(node.test))
        number, truth = self.current, self.truth(node.test, True)
        self.current = before
        return ast.copy_location(ast.Expr(_record("asserted", ast.Constant(number), truth)), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if not (isinstance(node.func, ast.Name) and node.func.id == "must_break"):
            return node
        if self.current is not None:
            return _record("must_break", *self._place(ast.unparse(node)), *node.args, keywords=node.keywords)
        number = self._new(ast.unparse(node))
        self.assertions[number].comparisons.append(ast.unparse(node))
        place = ast.Constant(number), ast.Constant(0)
        return _record("must_break_alone", *place, *node.args, keywords=node.keywords)

    def truth(self, node: ast.expr, positive: bool) -> ast.expr:
        """What stands where it is asked for true (positive) or false, with recordings in it."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ast.UnaryOp(ast.Not(), self.truth(node.operand, not positive))
        if isinstance(node, ast.BoolOp):
            return self._several(node, positive)
        if isinstance(node, ast.IfExp):
            return ast.IfExp(self.visit(node.test), self.truth(node.body, positive), self.truth(node.orelse, positive))
        if isinstance(node, ast.Compare):
            return self._compare(node, positive)
        if isinstance(node, ast.Call):
            return self._call(node, positive)
        return self._other(node, positive, "opaque")

    def _several(self, node: ast.BoolOp, positive: bool) -> ast.expr:
        values = [self.truth(value, positive) for value in node.values]
        if isinstance(node.op, ast.And) == positive:  # each must be so: recorded one by one
            return ast.BoolOp(node.op, values)
        ways = [ast.Lambda(_NO_ARGUMENTS, value) for value in values]
        return _record("first", ast.Constant(self.current), ast.Constant(positive), *ways)

    def _compare(self, node: ast.Compare, positive: bool, reduce: str = "", pick: ast.expr | None = None) -> ast.expr:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq) and isinstance(node.left, ast.Compare):
            inner = node.left  # `(a < b) == flag`
            if len(inner.ops) == 1:
                flag = self.visit(node.comparators[0])
                return self._leaf(inner, ast.Constant(positive), reduce, pick, flag)
        return self._leaf(node, ast.Constant(positive), reduce, pick, None)

    def _leaf(
        self, node: ast.Compare, positive: ast.expr, reduce: str, pick: ast.expr | None, flag: ast.expr | None
    ) -> ast.expr:
        sides = [node.left, *node.comparators]
        labels = [
            f"{ast.unparse(a)} {_SIGN.get(type(op).__name__, type(op).__name__)} {ast.unparse(b)}"
            for a, op, b in zip(sides, node.ops, sides[1:], strict=False)
        ]
        first = self._labelled(*labels)
        constant = [isinstance(a, ast.Constant) and isinstance(b, ast.Constant) for a, b in itertools.pairwise(sides)]
        return _record(
            "compare",
            ast.Constant(self.current),
            ast.Constant(first),
            ast.Constant(tuple(type(op).__name__ for op in node.ops)),
            ast.Constant(tuple(constant)),
            ast.Tuple([self.visit(side) for side in sides], ast.Load()),
            positive,
            ast.Constant(reduce),
            pick or ast.Constant(None),
            flag or ast.Constant(None),
        )

    def _call(self, node: ast.Call, positive: bool) -> ast.expr:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "allclose":
            arguments = [self.visit(each) for each in node.args]
            place = self._place(ast.unparse(node))
            return _record("close", *place, ast.Constant(positive), *arguments, keywords=node.keywords)
        if name == ("all" if positive else "any") and isinstance(node.func, ast.Name) and len(node.args) == 1:
            (of,) = node.args
            if isinstance(of, (ast.GeneratorExp, ast.ListComp)):
                generators = [self.visit(generator) for generator in of.generators]
                return ast.Call(node.func, [ast.ListComp(self.truth(of.elt, positive), generators)], [])
        if name in ("all", "any") and isinstance(node.func, ast.Attribute) and not node.args:
            of, pick = node.func.value, None
            if isinstance(of, ast.Subscript):
                of, pick = of.value, self.visit(of.slice)
            if isinstance(of, ast.Compare):
                receiver = self._compare(of, positive, name, pick)
                return ast.Call(ast.Attribute(receiver, name, ast.Load()), [], [])
        if isinstance(node.func, ast.Name) and name == "must_break":
            return self.visit(node)
        calls = {getattr(each.func, "attr", "") for each in ast.walk(node) if isinstance(each, ast.Call)}
        return self._other(node, positive, "exact" if calls & EXACT_CALLS else "opaque")

    def _other(self, node: ast.expr, positive: bool, kind: str) -> ast.expr:
        number = ast.Constant(self.current)
        return _record("other", number, ast.Constant(kind), self.visit(node))

    def _new(self, source: str) -> int:
        self.assertions.append(Assertion(self.cell, source))
        return len(self.assertions) - 1

    def _labelled(self, *labels: str) -> int:
        known = self.assertions[self.current].comparisons
        known.extend(labels)
        return len(known) - len(labels)

    def _place(self, label: str) -> tuple[ast.expr, ast.expr]:
        return ast.Constant(self.current), ast.Constant(self._labelled(label))


_NO_ARGUMENTS = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
_SIGN = {**BELOW, **ABOVE, "Eq": "==", "NotEq": "!=", "In": "in", "NotIn": "not in", "Is": "is", "IsNot": "is not"}


def _record(what: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name(RECORDER, ast.Load()), what, ast.Load()), list(arguments), keywords or [])


# ---- the measurements


class Recorder:
    """What the assertions of one run of a notebook said.

    margins: by (assertion, how manyeth time it ran, comparison) the worst of its comparisons.
    held: for each assertion, whether it held, each time it ran.
    kinds: for each assertion, what it consists of: "margin", "exact" (yes or no), "opaque" (a truth whose numbers are
    not in sight).
    """

    def __init__(self) -> None:
        self.margins: dict[Key, Margin] = {}
        self.held: dict[int, list[bool]] = {}
        self.kinds: dict[int, set[str]] = {}
        self._heard: dict[int, list[tuple[int, Margin]]] = {}

    def asserted(self, assertion: int, truth: Any) -> None:
        times = self.held.setdefault(assertion, [])
        for comparison, margin in self._heard.pop(assertion, []):
            key = assertion, len(times), comparison
            if key not in self.margins or not margin.margin >= self.margins[key].margin:
                self.margins[key] = margin
        times.append(bool(truth))

    def other(self, assertion: int, kind: str, value: Any) -> Any:
        self.kinds.setdefault(assertion, set()).add(kind)
        return value

    def first(self, assertion: int, positive: bool, *ways: Callable[[], Any]) -> Any:
        """One of several ways must do: only what the first one that does compared is kept."""
        heard = self._heard.setdefault(assertion, [])
        start, value = len(heard), None
        for way in ways:
            begun = len(heard)
            value = way()
            if bool(value) == positive:
                del heard[start:begun]
                return value
        return value

    def compare(
        self,
        assertion: int,
        first: int,
        names: tuple[str, ...],
        constant: tuple[bool, ...],
        sides: tuple,
        positive: bool,
        reduce: str,
        pick: Any,
        flag: Any,
    ) -> Any:
        """What Python would say of the (chained) comparison, after noting it."""
        wanted = positive if flag is None else positive == bool(flag)
        result: Any = True
        for place, (name, left, right) in enumerate(zip(names, sides, sides[1:], strict=False)):
            held = COMPARE[name](left, right)
            result = held if result is True else (result and held)
            if not (constant[place] and name in BELOW | ABOVE):
                self._note(assertion, first + place, name, left, right, wanted, reduce, pick)
        if pick is not None:
            result = result[pick]
        return result if flag is None else result == flag

    def close(
        self, assertion: int, comparison: int, positive: bool, left: Any, right: Any, *tolerances: float, **more: Any
    ) -> bool:
        """`allclose(left, right, rtol, atol)` of torch and numpy, whose first two tolerances are in this order."""
        rtol, atol = [*tolerances, *(1e-5, 1e-8)[len(tolerances) :]]
        rtol, atol = more.get("rtol", rtol), more.get("atol", atol)
        left, right = _numbers(left), _numbers(right)
        difference, tolerance = np.abs(left - right), atol + rtol * np.abs(right)
        share = np.divide(difference, tolerance, out=np.where(difference > 0, math.inf, 0.0), where=tolerance > 0)
        self._measure(assertion, comparison, share, np.ones(()), 1 - share, positive, "all")
        return bool((difference <= tolerance).all())

    def must_break(self, assertion: int, comparison: int, error: float, at_least: float = LEAST_BREAK) -> float:
        self._note(assertion, comparison, "GtE", error, at_least, True, "", None)
        return error

    def must_break_alone(self, assertion: int, comparison: int, error: float, at_least: float = LEAST_BREAK) -> float:
        self.must_break(assertion, comparison, error, at_least)
        self.asserted(assertion, error >= at_least)
        return error

    def _note(
        self, assertion: int, comparison: int, name: str, left: Any, right: Any, positive: bool, reduce: str, pick: Any
    ) -> None:
        a, b = _numbers(left), _numbers(right)
        if a is None or b is None or name not in BELOW | ABOVE:
            self.kinds.setdefault(assertion, set()).add("exact")
            return
        margin = b - a if name in BELOW else a - b
        if pick is not None:
            where = pick.numpy() if isinstance(pick, torch.Tensor) else pick
            a, b = (np.broadcast_to(side, margin.shape)[where] for side in (a, b))
            margin = margin[where]
        self._measure(assertion, comparison, a, b, margin, positive, reduce or "all")

    def _measure(
        self, assertion: int, comparison: int, a: Any, b: Any, margin: Any, positive: bool, reduce: str
    ) -> None:
        self.kinds.setdefault(assertion, set()).add("margin")
        margin = np.asarray(margin if positive else -margin)
        if not margin.size:
            return
        worst = int(margin.argmin() if (reduce == "all") == positive else margin.argmax())
        left, right = (float(np.broadcast_to(side, margin.shape).flat[worst]) for side in (a, b))
        value = float(margin.flat[worst])
        value = -math.inf if math.isnan(value) else value
        self._heard.setdefault(assertion, []).append((comparison, Margin(left, right, value)))


def _numbers(value: Any) -> np.ndarray | None:
    """As float64, or None if it is no number, or several in a list (which are compared as lists)."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return None if value.dtype == torch.bool or value.is_complex() else value.double().numpy()
    if isinstance(value, np.ndarray):
        return value.astype(np.float64) if value.dtype.kind in "iuf" else None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return None
    try:
        return np.asarray(float(value))
    except OverflowError:
        return None
