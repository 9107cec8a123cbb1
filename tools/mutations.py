"""Change code in one place, in every way that we know: an operator, a number, a name, an argument, a statement."""

import ast
import copy
import difflib
from collections.abc import Callable, Iterator
from typing import Any

Change = Callable[[Any], ast.AST]  # from a node that it may spoil to what stands there instead
Path = tuple[tuple[str, int | None], ...]  # from the root to a node: fields, and places in those that are lists

ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div}
ARITHMETIC |= {ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.MatMult: ast.Mult, ast.BitAnd: ast.BitOr}
ARITHMETIC |= {ast.BitOr: ast.BitAnd}
ONE_WAY = (ast.Sub, ast.Div, ast.FloorDiv, ast.MatMult, ast.Pow, ast.Mod)
COMPARISON = {ast.Lt: [ast.LtE, ast.Gt], ast.LtE: [ast.Lt, ast.GtE], ast.Gt: [ast.GtE, ast.Lt]}
COMPARISON |= {ast.GtE: [ast.Gt, ast.LtE], ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot]}
COMPARISON |= {ast.IsNot: [ast.Is], ast.In: [ast.NotIn], ast.NotIn: [ast.In]}
NAMES = {"sin": "cos", "max": "min", "amax": "amin", "maximum": "minimum", "argmax": "argmin", "sum": "mean"}
NAMES |= {"tril": "triu", "any": "all", "float64": "float32", "ceil": "floor", "softmax": "log_softmax"}
NAMES |= {"exp": "expm1", "log": "log1p", "log2": "log", "ones": "zeros", "flatten": "squeeze", "stack": "cat"}
NAMES |= {"repeat_interleave": "repeat", "isinf": "isnan"}
NAMES |= {new: old for old, new in NAMES.items() if new not in NAMES}
SYMMETRIC = {"max", "min", "maximum", "minimum", "logaddexp", "gcd", "lcm", "equal", "allclose"}
STAYING = (ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Pass)  # statements that nothing runs without
UNSEEN = {"item", "tolist", "contiguous", "keys"}  # a result looks the same without these calls


def mutants(cell: ast.Module) -> Iterator[tuple[str, str]]:
    """Every code that differs from this cell's in one place: what was changed, and the code. None comes twice."""
    original = ast.unparse(cell)
    seen = {original}
    for path, node in _places(cell):
        for operator in OPERATORS:
            for change in operator(node):
                code = ast.unparse(ast.fix_missing_locations(_changed(cell, path, change)))
                if code not in seen:
                    seen.add(code)
                    yield _difference(original, code), code


def _places(node: ast.AST, path: Path = ()) -> Iterator[tuple[Path, ast.AST]]:
    """All nodes whose change can matter: no annotations, no docstrings."""
    yield path, node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for k, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from _places(child, (*path, (name, k if isinstance(value, list) else None)))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _changed(root: ast.Module, path: Path, change: Change) -> ast.AST:
    """A copy of the tree with one node changed. The original is not touched."""
    node: Any = copy.deepcopy(root)
    root, put = node, None
    for name, k in path:
        held = getattr(node, name)
        put = (held.__setitem__, k) if k is not None else (node.__setattr__, name)
        node = held[k] if k is not None else held
    new = change(node)
    if put is None:
        return new
    put[0](put[1], new)
    return root


def _difference(before: str, after: str) -> str:
    """The changed line as it is now: `x = y + 2`, or `without x = y + 1`."""
    lines = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "-+"]
    old, new = ([line[2:].strip() for line in lines if line[0] == sign] for sign in "-+")
    return "without " + "; ".join(old) if new in ([], ["pass"]) else "; ".join(new)


# ---- the operators: which changes a node allows


def other_operator(node: ast.AST) -> Iterator[Change]:
    """`a + b` becomes `a - b`, `a < b` becomes `a <= b`, `a and b` becomes `a or b`."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in ARITHMETIC:
        yield lambda n: _with(n, op=ARITHMETIC[type(n.op)]())
    if isinstance(node, ast.BoolOp):
        yield lambda n: _with(n, op=ast.Or() if isinstance(n.op, ast.And) else ast.And())
    if isinstance(node, ast.Compare):
        for other in COMPARISON.get(type(node.ops[0]), []):
            yield lambda n, other=other: _with(n, ops=[other(), *n.ops[1:]])


def swapped_sides(node: ast.AST) -> Iterator[Change]:
    """`a - b` becomes `b - a`, `a if c else b` becomes `b if c else a`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ONE_WAY):
        yield lambda n: _with(n, left=n.right, right=n.left)
    if isinstance(node, ast.IfExp):
        yield lambda n: _with(n, body=n.orelse, orelse=n.body)


def swapped_items(node: ast.AST) -> Iterator[Change]:
    """`f(a, b)` becomes `f(b, a)`, `(a, b)` becomes `(b, a)`; as an index, `[..., a, :]` becomes `[..., :, a]`."""
    if isinstance(node, ast.Call) and _name(node.func) not in SYMMETRIC and _can_swap(node.args[:2]):
        yield lambda n: _with(n, args=[n.args[1], n.args[0], *n.args[2:]])
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load) and _can_swap(node.elts[:2]):
        yield lambda n: _with(n, elts=[n.elts[1], n.elts[0], *n.elts[2:]])
    index = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(index, ast.Tuple) and not _can_swap(index.elts[:2]) and _can_swap(index.elts[-2:], (Ellipsis,)):
        yield lambda n: _with(n, slice=ast.Tuple([*n.slice.elts[:-2], n.slice.elts[-1], n.slice.elts[-2]], ast.Load()))


def without_operator(node: ast.AST) -> Iterator[Change]:
    """`-x` becomes `x`. Not a number's sign: that has neighbours, and as an axis 1 often is -1."""
    if isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield lambda n: n.operand


def without_call(node: ast.AST) -> Iterator[Change]:
    """`x.abs()` becomes `x`."""
    plain = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args + node.keywords
    if plain and node.func.attr not in UNSEEN:
        yield lambda n: n.func.value


def without_keyword(node: ast.AST) -> Iterator[Change]:
    """`f(x, dim=0)` becomes `f(x)`. Not `dtype=torch.float64`: that becomes float32, which most often is the same."""
    if isinstance(node, ast.Call):
        for k, keyword in enumerate(node.keywords):
            if _name(keyword.value) != "float64":
                yield lambda n, k=k: _with(n, keywords=n.keywords[:k] + n.keywords[k + 1 :])


def without_bound(node: ast.AST) -> Iterator[Change]:
    """`x[1:n:2]` loses a part. A start of 0 is none."""
    if isinstance(node, ast.Slice):
        for end in ("lower", "upper", "step"):
            part = getattr(node, end)
            if part and not (isinstance(part, ast.Constant) and part.value == 0):
                yield lambda n, end=end: _with(n, **{end: None})


def without_statement(node: ast.AST) -> Iterator[Change]:
    """A statement becomes `pass`; not a docstring, and not the return in which a function ends."""
    if isinstance(node, (ast.FunctionDef, ast.For, ast.If, ast.While, ast.With)):
        for k, statement in enumerate(node.body):
            ends = isinstance(node, ast.FunctionDef) and isinstance(statement, ast.Return)
            if not (ends or _is_text(statement) or isinstance(statement, STAYING)):
                yield lambda n, k=k: _with(n, body=[*n.body[:k], ast.Pass(), *n.body[k + 1 :]])


def other_number(node: ast.AST) -> Iterator[Change]:
    """`2` becomes `3` and `1`, `0.5` becomes `1.0` and `-0.5`, `True` becomes `False`."""
    value = node.value if isinstance(node, ast.Constant) else None
    others: list[int | float] = []
    if isinstance(value, bool):
        others = [not value]
    elif isinstance(value, int):
        others = [value + 1, value - 1]
    elif isinstance(value, float):
        others = [value * 2, -value] if value else [1.0]
    for other in others:
        yield lambda _, other=other: ast.Constant(other)


def other_name(node: ast.AST) -> Iterator[Change]:
    """`sin` becomes `cos`, `max` becomes `min`."""
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield lambda n: _with(n, attr=NAMES[n.attr])
    if isinstance(node, ast.Name) and node.id in NAMES:
        yield lambda n: _with(n, id=NAMES[n.id])


OPERATORS: tuple[Callable[[ast.AST], Iterator[Change]], ...] = (
    other_operator,
    swapped_sides,
    swapped_items,
    without_operator,
    without_call,
    without_keyword,
    without_bound,
    without_statement,
    other_number,
    other_name,
)


def _with(node: ast.AST, **changed: object) -> ast.AST:
    for name, value in changed.items():
        setattr(node, name, value)
    return node


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def _can_swap(nodes: list[ast.expr], kept: tuple = (Ellipsis, None, slice)) -> bool:
    """Whether these are two, and neither is something that keeps its place."""
    return len(nodes) == 2 and not any(isinstance(n, ast.Starred) or _axes(n) in kept for n in nodes)


def _axes(node: ast.expr) -> object:
    """Of an index: `...`, None or a slice, as what they are; else the node."""
    if isinstance(node, ast.Slice):
        return slice
    return node.value if isinstance(node, ast.Constant) and node.value in (..., None) else node
