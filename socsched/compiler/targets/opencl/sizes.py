"""Values of the sizes in a launch plan."""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from typing import Any

from socsched.errors import InputError

_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(size: int | str, symbols: Mapping[str, int]) -> int:
    """Return the value of a size of a launch plan; InputError for anything but its arithmetic."""
    if isinstance(size, int):
        return size
    return _evaluate(ast.parse(size, mode="eval").body, symbols, size)


def _evaluate(node: ast.expr, symbols: Mapping[str, int], text: str) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name) and node.id in symbols:
        return symbols[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = (_evaluate(side, symbols, text) for side in (node.left, node.right))
        return int(_OPERATIONS[type(node.op)](left, right))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        values = [_evaluate(argument, symbols, text) for argument in node.args]
        return min(values) if node.func.id == "min" else max(values)
    raise InputError(
        f"launch plan: {text!r} is not a size", f"sizes are arithmetic on {', '.join(symbols) or 'numbers'}"
    )
