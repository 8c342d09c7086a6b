"""Operators of a file that no layer computes: taken as they are, with the types of their results and their work.

A layer `onnx` holds the operator with its attributes and constants, so that a runtime that reads ONNX computes it and
plans know its cost; `reason` says why no kernel of socsched does.  One layer stands for each result that is in use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.models.onnx_graph import DTYPES_OF, Array, Node
from socsched.models.onnx_types import operations

if TYPE_CHECKING:
    from socsched.models.onnx_operators import Translation

_STORED = 4096
"""Values of a constant up to which it may lie in the attributes of a layer, where fp32 does not hold it exactly."""
_TRACE = "export by tracing, so that control flow is unrolled for the fixed shapes"
_FLOATS = (10, 16)
"""Codes of the data types of numbers that a file may state in place of fp32: the planner chooses the precision."""


def take_whole(t: Translation, node: Node, reason: str) -> None:
    """Emit a node as layers of its own, one a result; UnknownOperator for one that has no types or constants."""
    if node.graphs:
        raise t.refused("its body is computed turn by turn, which is read only where it can be written out", _TRACE)
    outputs = [place for place, name in enumerate(node.outputs) if name]
    results = {place: t.graph.tensor(node.outputs[place]) for place in outputs}
    inputs: list[str] = []
    operands: list[int | str] = []
    weights: dict[str, str] = {}
    types: dict[str, str] = {}
    stored: dict[str, tuple[Any, ...]] = {}
    for place, name in enumerate(node.inputs):
        if not name:
            operands.append("")
        elif name in t.graph.constants:
            role, array = f"c{place}", t.graph.constants[name]
            operands.append(role)
            _keep(t, role, array, weights, types, stored)
        else:
            operands.append(len(inputs))
            inputs.append(t.source(name))
    constants = t.graph.constants
    known = [constants[name].shape if name in constants else t.graph.tensor(name).shape for name in node.inputs if name]
    attributes = {name: _plain(node, name, value) for name, value in node.attrs.items()}
    attrs: dict[str, Any] = {
        "operator": "ScatterElements" if node.op == "Scatter" and not node.domain else node.op,  # its newer name
        "domain": node.domain,
        "opset": _since(node, t.graph.opsets.get(node.domain, 1)),
        "attributes": attributes,
        "operands": tuple(operands),
        "types": types,
        "stored": stored,
        "results": len(node.outputs),
        "reason": reason,
        "plugin": int(not _in_onnxruntime(node)),
        "rule": t.rule_name(node),
    }
    first = ""
    for place, kind in results.items():
        work = 0 if first else operations(node, known, [kind.shape for kind in results.values()])
        varies = node.outputs[place] in t.graph.varying and t.graph.varying.isdisjoint(node.inputs)
        more = {
            "varies": varies,
            "first": first,
            "result": place,
            "shape": kind.shape,
            "dtype": kind.dtype,
            "flops": work,
        }
        name = t.emit(node, "onnx", inputs, place, weights=weights, **attrs, **more)
        first = first or name


def _keep(
    t: Translation,
    role: str,
    array: Array,
    weights: dict[str, str],
    types: dict[str, str],
    stored: dict[str, tuple[Any, ...]],
) -> None:
    """Keep a constant as a weight, which is fp32, or among the attributes where fp32 is not exact."""
    dtype = DTYPES_OF.get(array.dtype)
    if dtype is None:
        raise t.refused(f"a constant of {array.dtype} is not read", "export it in fp32, or in integers")
    if exact(array):
        weights[role], types[role] = t.param(array), "fp32" if dtype == "fp16" else dtype
    elif array.size <= _STORED:
        stored[role] = (dtype, tuple(array.shape), tuple(array.reshape(-1).tolist()))
    else:
        raise t.refused(f"{array.size} constants of {array.dtype} do not fit fp32", "export them in fp32 or int32")


def _since(node: Node, opset: int) -> int:
    """Return the oldest opset in which an operator means what it means in the file's."""
    from onnx import defs

    if node.op == "Scatter" and not node.domain:
        return 11
    if node.domain or not defs.has(node.op, opset, ""):
        return opset
    return int(defs.get_schema(node.op, opset, "").since_version)


def _in_onnxruntime(node: Node) -> bool:
    """Return whether ONNX Runtime may know an operator: ONNX's own, and those of its own domain."""
    from onnx import defs

    return node.domain == "com.microsoft" or defs.has(node.op, node.domain)


def exact(array: Array) -> bool:
    """Return whether fp32 holds all values of a constant."""
    if array.dtype in (np.float32, np.float16):
        return True
    with np.errstate(invalid="ignore"):
        return np.array_equal(array, array.astype(np.float32).astype(array.dtype))


def _plain(node: Node, name: str, value: Any) -> Any:
    """Return an attribute as plain data; tensors as their encoding."""
    if node.op in ("Cast", "DequantizeLinear") and name in ("to", "output_dtype") and value in _FLOATS:
        return 1
    return value.SerializeToString() if hasattr(value, "SerializeToString") else value
