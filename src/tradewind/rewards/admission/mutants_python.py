"""Small errors in Python source, and programs that know nothing of the task."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import Any

CONSTANTS: tuple[Any, ...] = (None, True, False, 0, 1, "", [])
"""What a function that knows nothing returns."""

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}


def python_mutants(source: str) -> Iterator[tuple[str, str]]:
    """What was done, and the program with that one error; in a fixed order.

    `source` must parse. Its comments and its layout are lost, which no verifier may look at.
    """
    tree = ast.parse(source)
    for rule in (_comparison, _arithmetic, _number, _truth, _returned):
        for at, node in enumerate(ast.walk(tree)):
            if (done := rule(copy.deepcopy(node))) is not None:
                changed = copy.deepcopy(tree)
                rule(_nth(changed, at))
                yield f"line {getattr(node, 'lineno', 1)}: {done}", ast.unparse(changed)


def constant_programs(source: str) -> Iterator[tuple[str, str]]:
    """The same functions, each of which returns a constant; nothing if it defines none."""
    for value in CONSTANTS:
        tree = ast.parse(source)
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
        for function in functions:
            function.body = [ast.Return(value=ast.parse(repr(value), mode="eval").body)]
        if functions:
            yield f"returns {value!r}", ast.unparse(ast.fix_missing_locations(tree))


_Rule = Callable[[ast.AST], str | None]
"""Changes a node in place and says what it did; None if there was nothing to do."""


def _nth(tree: ast.AST, at: int) -> ast.AST:
    for position, node in enumerate(ast.walk(tree)):
        if position == at:
            return node
    raise AssertionError(at)


def _comparison(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in _COMPARE:
        return None
    node.ops[0] = _COMPARE[type(node.ops[0])]()
    return f"comparison became {type(node.ops[0]).__name__}"


def _arithmetic(node: ast.AST) -> str | None:
    if not isinstance(node, ast.BinOp | ast.AugAssign) or type(node.op) not in _ARITHMETIC:
        return None
    node.op = _ARITHMETIC[type(node.op)]()
    return f"arithmetic became {type(node.op).__name__}"


def _number(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Constant) or type(node.value) not in (int, float):
        return None
    assert isinstance(node.value, int | float)
    node.value = node.value + 1
    return f"a number became {node.value}"


def _truth(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
        return f"became {node.value}"
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"became {type(node.op).__name__}"
    if isinstance(node, ast.If):
        node.test = ast.Constant(value=True)
        return "the condition always holds"
    return None


def _returned(node: ast.AST) -> str | None:
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    node.value = ast.Constant(value=None)
    return "returns None"
