"""The launch list: how a host program uses a network's or a function's kernels, without TVM.

    symbols   name -> {input, axis}: sizes that vary, each the extent of an axis of an input
    buffers   [{name, role: input | output | constant | scratch | part, dtype, shape, bytes, offset, storage, within}]:
              `offset` of a constant in the constants' file, of a part in the buffer `within`, which an output may be
              part of, too; scratch buffers of one `storage` share memory
    launches  [{kernel, arguments: [{buffer} | {value, dtype}], groups: [x, y, z], items: [x, y, z]}], in order; on CUDA
              also `shared`, the dynamic shared memory in bytes; on a CPU {kernel, arguments: [{buffer}]} alone, each an
              exported function `__tvm_ffi_NAME` of the code that takes tensors in main memory
    inputs, outputs  indices of buffers in port order

Sizes are numbers, or strings with the symbols, integers, parentheses, + - * // % and min/max of two: Python's
semantics, which for the non-negative operands here equal C's.  The host skips a launch with zero groups.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from socsched.compiler.store import write_json
from socsched.errors import InputError

Size = int | str
ALIGNMENT = 128
"""Alignment of constants in their file, in bytes."""


@dataclass(frozen=True, slots=True)
class ListFormat:
    """The version a list states, and the names of its file and of the constants'."""

    version: str
    file: str
    constants: str

    def write(self, folder: Path, document: Mapping[str, Any], constants: bytes, **more: Any) -> tuple[str, str]:
        """Write a list and its constants; return the files."""
        write_json(folder / self.file, {**document, "format": self.version, "weights": self.constants, **more})
        (folder / self.constants).write_bytes(constants)
        return self.file, self.constants


OPENCL = ListFormat("socsched-opencl-1", "launch.json", "weights.bin")
"""Networks for OpenCL, and functions for OpenCL and CUDA."""
CUDA = ListFormat("socsched-cuda-1", "launches.json", "constants.bin")
CPU = ListFormat("socsched-cpu-1", "launches.json", "constants.bin")

_OPERATIONS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def evaluate(size: Size, symbols: Mapping[str, int]) -> int:
    """Return the value of a size; InputError for anything but its arithmetic."""
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
