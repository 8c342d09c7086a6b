"""Translation of ONNX operators that move, choose or reduce values: one small function per operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from socsched.models.onnx_graph import Node

if TYPE_CHECKING:
    from socsched.models.onnx_layers import Translation

Handler = Callable[["Translation", Node], Any]


def scalar(array: Any) -> float:
    """Return the only value of a constant, of shape [] or [1]."""
    return float(np.asarray(array).reshape(()))


def same(t: Translation, node: Node) -> None:
    """Give the output the value of the first input."""
    t.values[node.outputs[0]] = t.source(node.inputs[0])


def argmax(t: Translation, node: Node) -> None:
    """Emit ArgMax."""
    if node.attrs.get("select_last_index", 0):
        raise t.refused("the last of several maxima is not known", "export with select_last_index = 0")
    axis, keep = t.axis(node, 0), bool(node.attrs.get("keepdims", 1))
    t.emit(node, "argmax", [t.source(node.inputs[0])], axis=axis, keepdims=keep)


def topk(t: Translation, node: Node) -> None:
    """Emit TopK, a layer for each output in use."""
    count, axis = t.constant(node, 1, "the number of places"), t.axis(node, -1)
    size = t.graph.tensor(node.inputs[0]).shape[axis]
    k = int(scalar(count)) if count is not None else int(node.attrs["k"])
    if not 0 < k <= size:
        raise t.refused(f"{k} of {size} values", "check it with onnx.checker")
    attrs = {"axis": axis, "k": k, "largest": bool(node.attrs.get("largest", 1))}
    for output, (name, result) in enumerate(zip(node.outputs, ("values", "indices"), strict=False)):
        if name:
            t.emit(node, "topk", [t.source(node.inputs[0])], output, **attrs, result=result)


def grid_sample(t: Translation, node: Node) -> None:
    """Emit GridSample."""
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(found := node.attrs.get("mode", "bilinear"), found)
    padding = node.attrs.get("padding_mode", "zeros")
    if mode not in ("bilinear", "nearest") or padding not in ("zeros", "border", "reflection"):
        raise t.refused(f"sampling in mode {mode} with padding {padding} is not known", "use bilinear or nearest")
    if t.rank(node.inputs[0]) != 4:
        raise t.refused("only images are sampled", "fold other dimensions into the batch")
    sources = [t.source(name) for name in node.inputs]
    t.emit(node, "grid_sample", sources, mode=mode, padding=padding, align=bool(node.attrs.get("align_corners", 0)))


def scatter_nd(t: Translation, node: Node) -> None:
    """Emit ScatterND."""
    if node.attrs.get("reduction", "none") != "none":
        raise t.refused("scattering with a reduction is not known", "write it as Add of two tensors")
    t.emit(node, "scatter_nd", [t.source(name) for name in node.inputs])


def gather(t: Translation, node: Node) -> None:
    """Emit Gather: a table lookup, a slice, or a choice of constant places."""
    table = t.graph.constants.get(node.inputs[0])
    if table is not None:
        axis = int(node.attrs.get("axis", 0)) % table.ndim
        t.emit(node, "gather", [t.source(node.inputs[1])], weights={"table": t.param(table)}, axis=axis)
        return
    axis = t.axis(node, 0)
    if node.inputs[1] in t.values:
        t.emit(node, "gather", [t.source(name) for name in node.inputs], axis=axis)
        return
    indices = t.constant(node, 1, "the index")
    assert indices is not None, "no indices"
    x, size = t.source(node.inputs[0]), t.graph.tensor(node.inputs[0]).shape[axis]
    places = [int(place) for place in indices.reshape(-1)]
    if not places or not all(-size <= place < size for place in places):
        raise t.refused(f"an index is outside of -{size} to {size - 1}", "check the file with onnx.checker")
    places = [place % size for place in places]
    step = places[1] - places[0] if len(places) > 1 else 1
    if step > 0 and places == list(range(places[0], places[-1] + 1, step)):
        x = t.emit(node, "slice", [x], axes=(axis,), begin=(places[0],), end=(places[-1] + 1,), step=(step,))
    else:
        x = t.emit(node, "gather", [x], axis=axis, indices=tuple(places))
    if indices.ndim != 1:
        t.emit(node, "reshape", [x], shape=t.graph.tensor(node.outputs[0]).shape)


def reduce(op: str) -> Handler:
    """Return the handler of a reduction."""

    def handle(t: Translation, node: Node) -> None:
        reduction(t, node, op, t.source(node.inputs[0]))

    return handle


def reduction(t: Translation, node: Node, op: str, source: str) -> str:
    """Emit the reduction of a layer over the axes that a node states, and return its name."""
    axes = t.constant(node, 1, "the axes")
    given = [int(a) for a in axes] if axes is not None else [int(a) for a in node.attrs.get("axes", [])]
    rank = t.rank(node.inputs[0])
    axis = tuple(a % rank for a in given) or tuple(range(rank))
    keep = bool(node.attrs.get("keepdims", 1))
    return t.emit(node, op, [source], axis=axis[0] if len(axis) == 1 and not keep else axis, keepdims=keep)


def split(t: Translation, node: Node) -> None:
    """Emit Split as one slice per output."""
    axis = t.axis(node, 0)
    begin = 0
    for output, name in enumerate(node.outputs):
        end = begin + t.graph.tensor(name).shape[axis]
        t.emit(node, "slice", [t.source(node.inputs[0])], output, axes=(axis,), begin=(begin,), end=(end,), step=(1,))
        begin = end


def slice_(t: Translation, node: Node) -> None:
    """Emit Slice."""

    def given(index: int, name: str) -> list[int] | None:
        found = t.constant(node, index, f"the {name}")
        return [int(v) for v in found] if found is not None else node.attrs.get(name)

    shape = t.graph.tensor(node.inputs[0]).shape
    starts, ends = given(1, "starts"), given(2, "ends")
    assert starts is not None and ends is not None
    axes = [a % len(shape) for a in given(3, "axes") or range(len(starts))]
    steps = given(4, "steps") or [1] * len(starts)
    if any(step < 1 for step in steps):
        raise t.refused("slices that run backwards are not known", "flip the weights of the next layer instead")
    ranges = [slice(s, e).indices(shape[a])[:2] for s, e, a in zip(starts, ends, axes, strict=True)]
    begin, end = tuple(r[0] for r in ranges), tuple(r[1] for r in ranges)
    t.emit(node, "slice", [t.source(node.inputs[0])], axes=tuple(axes), begin=begin, end=end, step=tuple(steps))


def resize(t: Translation, node: Node) -> None:
    """Emit Resize or Upsample."""
    mode = node.attrs.get("mode", "nearest")
    where = node.attrs.get("coordinate_transformation_mode", "asymmetric" if node.op == "Upsample" else "half_pixel")
    if mode not in ("nearest", "linear") or where not in (
        "asymmetric",
        "half_pixel",
        "align_corners",
        "pytorch_half_pixel",
    ):
        raise t.refused(
            f"resizing in mode {mode} with {where} is not known", "use nearest or linear, asymmetric or half_pixel"
        )
    rounding = node.attrs.get("nearest_mode", "floor" if node.op == "Upsample" else "round_prefer_floor")
    source, target = t.graph.tensor(node.inputs[0]).shape, t.graph.tensor(node.outputs[0]).shape
    if len(source) != 4 or source[:2] != target[:2]:
        raise t.refused("only height and width of images are resized", "keep batch and channels as they are")
    attrs = {"size": target[2:], "bilinear": mode == "linear", "coordinates": where, "rounding": rounding}
    t.emit(node, "resize2d", [t.source(node.inputs[0])], **attrs)


def reshape(t: Translation, node: Node) -> None:
    """Emit an operator that changes the shape alone."""
    t.emit(node, "reshape", [t.source(node.inputs[0])], shape=t.graph.tensor(node.outputs[0]).shape)


def transpose(t: Translation, node: Node) -> None:
    """Emit Transpose."""
    order = tuple(node.attrs.get("perm") or reversed(range(t.rank(node.inputs[0]))))
    t.emit(node, "transpose", [t.source(node.inputs[0])], order=order)


def pad(t: Translation, node: Node) -> None:
    """Emit Pad."""
    if node.attrs.get("mode", "constant") != "constant":
        raise t.refused("only padding with a constant is known", "pad with zeros, or inside the convolution")
    given = t.constant(node, 1, "the padding")
    pads = tuple(int(p) for p in (given if given is not None else node.attrs["pads"]))
    value = t.constant(node, 2, "the padding's value")
    filler = scalar(value) if value is not None else float(node.attrs.get("value", 0.0))
    t.emit(node, "pad", [t.source(node.inputs[0])], pads=pads, value=filler)
