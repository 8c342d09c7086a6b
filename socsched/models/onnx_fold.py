"""Constant folding of ONNX nodes: operators that compute shapes and indices, with bounds on their results.

Any other operator with constant inputs (loops, regular expressions, convolutions) is left as a node, which translation
refuses: its run time is unbounded, and no export needs it folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 2**22
"""Elements that a node may produce from smaller inputs."""
MOST_FOLDED = 12_000
"""Nodes folded per file."""
MOST_TOTAL = 2**25
"""Elements that all folded nodes may produce, in addition to the file's own tensors."""

Size = Callable[[Sequence[Array], Any], int]


def _broadcast(inputs: Sequence[Array], _: Any) -> int:
    return math.prod(np.broadcast_shapes(*(array.shape for array in inputs)))


def _moved(inputs: Sequence[Array], _: Any) -> int:
    return sum(array.size for array in inputs)


def _stated(inputs: Sequence[Array], _: Any) -> int:
    return math.prod(int(side) for side in inputs[0].reshape(-1))


def _expanded(inputs: Sequence[Array], _: Any) -> int:
    return math.prod(np.broadcast_shapes(inputs[0].shape, tuple(int(side) for side in inputs[1].reshape(-1))))


def _tiled(inputs: Sequence[Array], _: Any) -> int:
    return inputs[0].size * math.prod(int(count) for count in inputs[1].reshape(-1))


def _counted(inputs: Sequence[Array], _: Any) -> int:
    start, limit, delta = (float(array.reshape(-1)[0]) for array in inputs)
    return max(math.ceil((limit - start) / delta), 0)


def _gathered(inputs: Sequence[Array], attrs: Any) -> int:
    data, indices = inputs[0], inputs[1]
    axis = int(attrs.get("axis", 0)) % max(data.ndim, 1)
    kept = [int(side) for place, side in enumerate(data.shape) if place != axis]
    return int(indices.size) * math.prod(kept)


def _contracted(inputs: Sequence[Array], attrs: Any) -> int:
    """Return the products of an Einsum over single-letter indices."""
    terms = str(attrs["equation"]).replace(" ", "").partition("->")[0].split(",")
    sides: dict[str, int] = {}
    for term, array in zip(terms, inputs, strict=True):
        if len(term) != array.ndim or not term.isalpha():
            raise ValueError(f"the indices {term} do not fit {list(array.shape)}")
        sides |= zip(term, array.shape, strict=True)
    return math.prod(sides.values())


def _multiplied(inputs: Sequence[Array], _: Any) -> int:
    """Return the products of a MatMul."""
    left, right = inputs
    if min(left.ndim, right.ndim) < 2:
        raise ValueError("products of vectors are not known")
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return math.prod((*batch, *left.shape[-2:], right.shape[-1]))


def _scattered(inputs: Sequence[Array], attrs: Any) -> list[Array]:
    """Return ScatterND at once; the reference implementation goes through the places one by one."""
    data, places, updates = inputs
    if attrs.get("reduction", "none") != "none":
        raise ValueError("scattering with a reduction is not known")
    found = data.copy()
    found[tuple(np.moveaxis(places, -1, 0))] = updates
    return [found]


def _picked(inputs: Sequence[Array], attrs: Any) -> list[Array]:
    """Return GatherElements at once; the reference implementation fails where rows are shared."""
    data, places = inputs
    axis = int(attrs.get("axis", 0))
    kept = tuple(slice(None) if side == axis % data.ndim else slice(size) for side, size in enumerate(places.shape))
    return [np.take_along_axis(data[kept], places, axis)]


DIRECT: dict[str, Callable[[Sequence[Array], Any], list[Array]]] = {
    "ScatterND": _scattered,
    "GatherElements": _picked,
}
"""Operators that are folded without the reference implementation."""
SIZES: dict[str, Size] = {
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Where", "Equal", "Less", "LessOrEqual", "Greater",
         "GreaterOrEqual", "And", "Or"), _broadcast,
    ),
    **dict.fromkeys(
        ("Abs", "Cast", "Ceil", "Clip", "Concat", "Cos", "CumSum", "Exp", "Flatten", "Floor", "Identity", "Log", "Neg",
         "Not", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape",
         "Round", "ScatterND", "Shape", "Sigmoid", "Sin", "Size", "Slice", "Softmax", "Split", "Sqrt", "Squeeze",
         "Tanh", "Transpose", "Trilu", "Unsqueeze"), _moved,
    ),
    "ConstantOfShape": _stated,
    "Einsum": _contracted,
    "Expand": _expanded,
    "Gather": _gathered,
    "GatherElements": _moved,
    "MatMul": _multiplied,
    "Range": _counted,
    "Tile": _tiled,
}  # fmt: skip
"""Operator -> number of elements it produces from constant inputs; ValueError and the like where it cannot."""
