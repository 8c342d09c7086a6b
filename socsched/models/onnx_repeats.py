"""Translation of ONNX operators that repeat values, choose them by computed places, or join them with constants."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from socsched.models.onnx_graph import Node

if TYPE_CHECKING:
    from socsched.models.onnx_layers import Translation

MOST_JOINED = 2**24
"""Values of a tensor that is joined from constants and computed values, or of zeros that repeat a value."""


def repeat(t: Translation, node: Node) -> None:
    """Emit an Expand or a Tile of single rows as an addition of zeros; repeated places are only noted.

    GatherElements, which alone takes repeated places, needs them once.
    """
    before, after = (t.graph.tensor(name) for name in (node.inputs[0], node.outputs[0]))
    if before.shape == after.shape and node.inputs[0] not in t.repeated:
        t.values[node.outputs[0]] = t.source(node.inputs[0])
    elif after.dtype in ("int32", "int64") and len(before.shape) == len(after.shape):
        t.repeated[node.outputs[0]] = t.repeated.get(node.inputs[0], node.inputs[0])
    else:
        _broadcast(t, node, before.shape, after.shape)


def _broadcast(t: Translation, node: Node, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    aligned = (1,) * (len(after) - len(before)) + before
    if len(after) < len(before) or any(one not in (1, size) for one, size in zip(aligned, after, strict=True)):
        raise t.refused("only sides of 1 are repeated", "write it as Concat of the value with itself")
    x = t.source(node.inputs[0])
    if aligned != before:
        x = t.emit(node, "reshape", [x], shape=aligned)
    sides = [1 if one == size else size for one, size in zip(aligned, after, strict=True)]
    if prod(sides) > MOST_JOINED:
        raise t.refused(f"a value is repeated more than {MOST_JOINED} times", "operators broadcast by themselves")
    zeros = np.zeros(sides, np.float32)
    t.emit(node, "add", [x], weights={"constant": t.param(zeros)})


def gather_elements(t: Translation, node: Node) -> None:
    """Emit GatherElements whose places are the same along every other axis: whole slices at computed places."""
    if node.inputs[1] in t.graph.constants:
        raise t.refused("constant places are not known", "write them as Gather, Slice or a 1x1 convolution")
    data, index = (t.graph.tensor(name).shape for name in node.inputs)
    axis = t.axis(node, 0)
    source = t.repeated.get(node.inputs[1], node.inputs[1])
    places = t.graph.tensor(source).shape
    whole = all(
        one == other and (one == 1 or source != node.inputs[1])
        for place, (one, other) in enumerate(zip(data, index, strict=True))
        if place != axis
    )
    if not whole or prod(places) != places[axis] or places[axis] != index[axis]:
        raise t.refused("only places that are the same along every other axis are known", "choose whole rows by Gather")
    flat = t.emit(node, "reshape", [t.source(source)], shape=(places[axis],))
    t.emit(node, "gather", [t.source(node.inputs[0]), flat], axis=axis)


def concat(t: Translation, node: Node) -> None:
    """Emit Concat; constants among its operands are added to a result that has zeros in their places."""
    result = t.graph.tensor(node.outputs[0])
    rank = len(result.shape)
    axis = int(node.attrs.get("axis", 1)) % rank
    constants = t.graph.constants
    computed = [name for name in node.inputs if name not in constants]
    if len(computed) == len(node.inputs) or result.dtype not in ("fp32", "fp16") or not computed:
        t.emit(node, "concat", [t.source(name) for name in node.inputs], axis=axis)
        return
    if prod(result.shape) > MOST_JOINED:
        raise t.refused(f"more than {MOST_JOINED} values are joined with a constant", "give the constant as an input")
    filled = np.broadcast_to(np.float32(0), result.shape) if t.hollow else np.zeros(result.shape, np.float32)
    pads = {name: [0] * (2 * rank) for name in computed}
    place, last = 0, ""
    for name in node.inputs:
        if name not in constants:
            last = name
            place += t.graph.tensor(name).shape[axis]
            continue
        size = constants[name].shape[axis]
        if not t.hollow:
            filled[(slice(None),) * axis + (slice(place, place + size),)] = constants[name]
        pads[last or computed[0]][axis + rank if last else axis] += size
        place += size
    if len(computed) != len(pads):
        raise t.refused("an operand that is joined twice", "copy it by Identity")
    parts = [
        t.emit(node, "pad", [t.source(name)], pads=tuple(pads[name]), value=0.0) if any(pads[name]) else t.source(name)
        for name in computed
    ]
    joined = parts[0] if len(parts) == 1 else t.emit(node, "concat", parts, axis=axis)
    t.emit(node, "add", [joined], weights={"constant": t.param(filled)})
