"""Translation of ONNX operators into several layers: rearranged pixels, contractions, norms and activations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.models.onnx_graph import Node
from socsched.models.onnx_shape_operators import reduction

if TYPE_CHECKING:
    from socsched.models.onnx_layers import Translation

_CHECK = "check the file with onnx.checker"


def depth_to_space(t: Translation, node: Node) -> None:
    """Emit DepthToSpace, in either order of the channels."""
    batch, channels, height, width = t.graph.tensor(node.inputs[0]).shape
    size = int(node.attrs["blocksize"])
    kept, rest = divmod(channels, size * size)
    if rest or size < 0:
        raise t.refused(f"{channels} channels are not blocks of {size} x {size} pixels", _CHECK)
    if node.attrs.get("mode", "DCR") == "CRD":
        split, order = (batch, kept, size, size, height, width), (0, 1, 4, 2, 5, 3)
    else:
        split, order = (batch, size, size, kept, height, width), (0, 3, 4, 1, 5, 2)
    _rearrange(t, node, split, order, (batch, kept, height * size, width * size))


def space_to_depth(t: Translation, node: Node) -> None:
    """Emit SpaceToDepth."""
    batch, channels, height, width = t.graph.tensor(node.inputs[0]).shape
    size = int(node.attrs["blocksize"])
    (high, low), (wide, side) = divmod(height, size), divmod(width, size)
    if low or side or size < 0:
        raise t.refused(f"{height} x {width} pixels are not blocks of {size} x {size}", _CHECK)
    result = (batch, channels * size * size, high, wide)
    _rearrange(t, node, (batch, channels, high, size, wide, size), (0, 3, 5, 1, 2, 4), result)


def _rearrange(t: Translation, node: Node, split: Sequence[int], order: Sequence[int], result: Sequence[int]) -> None:
    x = t.emit(node, "reshape", [t.source(node.inputs[0])], shape=tuple(split))
    x = t.emit(node, "transpose", [x], order=tuple(order))
    t.emit(node, "reshape", [x], shape=tuple(result))


def prelu(t: Translation, node: Node) -> None:
    """Emit PRelu: max(x, 0) + slope min(x, 0)."""
    slope, x = t.constant(node, 1, "the slope"), t.source(node.inputs[0])
    assert slope is not None, "no slope"
    if slope.size == 1:
        t.emit(node, "leaky_relu", [x], alpha=float(slope.reshape(())))
        return
    positive = t.emit(node, "relu", [x])
    negative = t.emit(node, "subtract", [x, positive])
    scaled = t.emit(node, "multiply", [negative], weights={"constant": t.param(slope)})
    t.emit(node, "add", [positive, scaled])


def mish(t: Translation, node: Node) -> None:
    """Emit Mish: x tanh(ln(1 + exp x))."""
    x = t.source(node.inputs[0])
    t.emit(node, "multiply", [x, t.emit(node, "tanh", [t.emit(node, "softplus", [x])])])


def swish(t: Translation, node: Node) -> None:
    """Emit Swish: x / (1 + exp(-alpha x))."""
    x, alpha = t.source(node.inputs[0]), float(node.attrs.get("alpha", 1.0))
    steep = x if alpha == 1 else t.emit(node, "multiply", [x], weights={"constant": t.param(np.float32(alpha))})
    t.emit(node, "multiply", [x, t.emit(node, "sigmoid", [steep])])


def reduce_l2(t: Translation, node: Node) -> None:
    """Emit ReduceL2: the root of the sum of squares."""
    x = t.source(node.inputs[0])
    t.emit(node, "sqrt", [reduction(t, node, "reduce_sum", t.emit(node, "multiply", [x, x]))])


def lp_normalization(t: Translation, node: Node) -> None:
    """Emit LpNormalization with p = 2: x over its length."""
    if int(node.attrs.get("p", 2)) != 2:
        raise t.refused("only lengths by squares are known", "export with p = 2")
    x = t.source(node.inputs[0])
    squares = t.emit(node, "multiply", [x, x])
    total = t.emit(node, "reduce_sum", [squares], axis=(t.axis(node, -1),), keepdims=True)
    t.emit(node, "divide", [x, t.emit(node, "sqrt", [total])])


def lrn(t: Translation, node: Node) -> None:
    """Emit LRN across channels: x / (bias + alpha * mean of squares in a window)^(3/4)."""
    size, beta = int(node.attrs["size"]), float(node.attrs.get("beta", 0.75))
    if size % 2 == 0 or beta != 0.75:
        raise t.refused("only odd windows and a beta of 0.75 are known", "export with batch normalisation instead")
    x, (batch, channels, height, width) = t.source(node.inputs[0]), t.graph.tensor(node.inputs[0]).shape
    if not 0 < size < 2 * channels:
        raise t.refused(f"a window of {size} over {channels} channels is not known", "no wider than all channels")
    squares = t.emit(node, "multiply", [x, x])
    rows = t.emit(node, "reshape", [squares], shape=(batch, 1, channels, height * width))
    side = (size - 1) // 2
    mean = t.emit(node, "avg_pool", [rows], kernel=(size, 1), stride=1, padding=(side, 0, side, 0), count_padding=True)
    mean = t.emit(node, "reshape", [mean], shape=(batch, channels, height, width))
    alpha, bias = float(node.attrs.get("alpha", 1e-4)), float(node.attrs.get("bias", 1.0))
    scaled = t.emit(node, "multiply", [mean], weights={"constant": t.param(np.float32(alpha))})
    root = t.emit(node, "sqrt", [t.emit(node, "add", [scaled], weights={"constant": t.param(np.float32(bias))})])
    power = t.emit(node, "multiply", [root, t.emit(node, "sqrt", [root])])
    t.emit(node, "divide", [x, power])


def einsum(t: Translation, node: Node) -> None:
    """Emit Einsum of two computed values as one product of matrices between transposes."""
    terms, arrow, result = str(node.attrs["equation"]).replace(" ", "").partition("->")
    given = terms.split(",")
    if len(given) != 2 or not arrow or any(not term.isalpha() or len(set(term)) < len(term) for term in given):
        raise t.refused(f"Einsum of {terms} is not known", "write it as several MatMul and Transpose")
    left, right = given
    sides: dict[str, int] = {}
    for term, name in zip(given, node.inputs, strict=True):
        for letter, side in zip(term, t.graph.tensor(name).shape, strict=True):
            if sides.setdefault(letter, side) != side:
                raise t.refused(f"{letter} of {terms} is {sides[letter]} and {side}", _CHECK)
    both = [one for one in left if one in right]
    batch, inner = [one for one in both if one in result], [one for one in both if one not in result]
    rows = [one for one in left if one not in both]
    columns = [one for one in right if one not in both]
    if sorted(result) != sorted([*batch, *rows, *columns]):
        raise t.refused(f"Einsum of {terms} to {result} is not known", "write it as several MatMul and Transpose")
    outer = [sides[one] for one in batch]
    a = _matrices(t, node, 0, left, [*batch, *rows, *inner], [*outer, _size(rows, sides), _size(inner, sides)])
    b = _matrices(t, node, 1, right, [*batch, *inner, *columns], [*outer, _size(inner, sides), _size(columns, sides)])
    x = t.emit(node, "matmul", [a, b])
    made = [*batch, *rows, *columns]
    x = t.emit(node, "reshape", [x], shape=tuple(sides[one] for one in made))
    if list(result) != made:
        t.emit(node, "transpose", [x], order=tuple(made.index(one) for one in result))


def _matrices(t: Translation, node: Node, index: int, term: str, order: list[str], shape: list[int]) -> str:
    x = t.source(node.inputs[index])
    if list(term) != order:
        x = t.emit(node, "transpose", [x], order=tuple(term.index(one) for one in order))
    return t.emit(node, "reshape", [x], shape=tuple(shape))


def _size(letters: Sequence[str], sides: dict[str, int]) -> int:
    return prod(sides[one] for one in letters)


def over_rows(t: Translation, node: Node, op: str, weights: dict[str, Any], **attrs: Any) -> None:
    """Emit a one-dimensional convolution as one of images that are one row high."""
    batch, channels, length = t.graph.tensor(node.inputs[0]).shape
    x = t.emit(node, "reshape", [t.source(node.inputs[0])], shape=(batch, channels, 1, length))
    x = t.emit(node, op, [x], weights=weights, **attrs)
    t.emit(node, "reshape", [x], shape=t.graph.tensor(node.outputs[0]).shape)
