"""Reading a code cell as Python: magics turned into calls, then the syntax tree."""

import ast

from IPython.core.inputtransformer2 import TransformerManager


def tree(source: str) -> ast.Module:
    """The cell's syntax tree. Raises SyntaxError if the cell is not Python once its magics are calls."""
    return ast.parse(python(source))


def python(source: str) -> str:
    """The cell with `%magic` and `!command` lines written as the calls that IPython makes of them."""
    return TransformerManager().transform_cell(source)


def shows_something(source: str) -> bool:
    """Whether running this cell must leave an output: it prints, checks, shows, or ends in a bare expression.

    A call inside a function that the cell only defines does not count, nor one in a branch that may not run.
    """
    body = tree(source).body
    ends_in_expression = bool(body) and isinstance(body[-1], ast.Expr) and not _is_call_for_effect(body[-1])
    silenced = source.rstrip().endswith(";")
    return (ends_in_expression and not silenced) or any(_surely_shows(statement) for statement in body)


def asserts_something(source: str) -> bool:
    return any(isinstance(node, ast.Assert) for node in ast.walk(tree(source)))


_SHOWING = {"print", "check", "display", "show"}
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _is_call_for_effect(statement: ast.Expr) -> bool:
    """A magic: `get_ipython().run_line_magic(…)` returns None as a rule."""
    return "get_ipython()" in ast.unparse(statement)


def _surely_shows(node: ast.AST) -> bool:
    if isinstance(node, _DEFINITIONS):
        return False
    if isinstance(node, ast.If):
        branches = (node.body, node.orelse)
        return _surely_shows(node.test) or all(any(map(_surely_shows, branch)) for branch in branches)
    if isinstance(node, ast.Try):
        return any(map(_surely_shows, node.body + node.finalbody))
    if isinstance(node, ast.Call) and _called(node) in _SHOWING:
        return True
    return any(_surely_shows(child) for child in ast.iter_child_nodes(node))


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
