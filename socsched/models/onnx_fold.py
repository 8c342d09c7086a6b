"""Constant folding of ONNX nodes: operators that work out shapes and indices, with bounds on what they may make.

Whatever else has constants for inputs (loops, regular expressions, convolutions) is left as a node, which translation
refuses: those operators take any time, and no export needs them folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 2**22
"""Elements a node may make of smaller inputs."""
MOST_FOLDED = 2_000
"""Nodes of a file that are folded."""
MOST_TOTAL = 2**25
"""Elements all of them may make, beside those of the file's own tensors."""

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


SIZES: dict[str, Size] = {
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Where", "Equal", "Less", "LessOrEqual", "Greater",
         "GreaterOrEqual", "And", "Or"), _broadcast,
    ),
    **dict.fromkeys(
        ("Abs", "Cast", "Ceil", "Concat", "Exp", "Flatten", "Floor", "Identity", "Log", "Neg", "Not", "Reciprocal",
         "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Round", "Shape", "Size", "Slice", "Split",
         "Sqrt", "Squeeze", "Transpose", "Unsqueeze"), _moved,
    ),
    "ConstantOfShape": _stated,
    "Expand": _expanded,
    "Gather": _gathered,
    "Range": _counted,
    "Tile": _tiled,
}  # fmt: skip
"""Operator -> how many elements it makes of constant inputs; ValueError and the like where it cannot."""
