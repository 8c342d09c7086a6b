"""Applicability of the GPU rules and grouping of operators into kernels: decisions only, no code generation."""

from __future__ import annotations

from socsched.compiler.targets.cuda.shapes import EDGE, VECTOR, round_up
from socsched.graph.fusion import Graph, Group

KINDS = (
    *("conv2d", "conv2d_transpose", "dense", "concat", "max_pool", "global_avg_pool", "add", "relu", "reshape"),
    *("pillar_features", "scatter"),
)
"""Operators with a rule."""


def lying(channels: int) -> int:
    """Return the number of channels that an image of `channels` occupies in memory inside a network."""
    return round_up(channels, VECTOR if channels <= VECTOR else EDGE)


def unsupported_reason(graph: Graph) -> str:
    """Return the reason a network cannot be lowered by these rules, empty if it can."""
    for group in graph.groups:
        if group.kind not in KINDS:
            return f"no rule for {group.kind}"
        a, shapes = group.attrs, [graph.values[name].shape for name in (*group.inputs, group.output)]
        if a.get("uneven") or a.get("groups", 1) != 1 or a.get("dilation", 1) != 1:
            return f"no rule for {group.kind} with groups, dilation or uneven padding"
        if group.kind in ("conv2d", "max_pool") and a["stride_h"] != a["stride_w"]:
            return f"no rule for {group.kind} with different strides"
        if group.kind == "conv2d_transpose" and not (
            a["kernel_h"] == a["kernel_w"] == a["stride_h"] == a["stride_w"] and not a["pad"]
        ):
            return "no rule for transposed convolutions whose kernel is not their stride"
        if any(len(shape) == 4 and shape[0] != 1 for shape in shapes):
            return "no rule for batches"
        if group.kind in ("add", "relu", "concat") and any(len(shape) != 4 for shape in shapes):
            return f"no rule for {group.kind} of anything but images"
        if group.kind == "add" and (len(group.inputs) != 2 or len(set(shapes)) > 1):
            return "no rule for additions that broadcast"
        if group.kind == "concat" and (a["axis"] != 1 or any(shape[1] % EDGE for shape in shapes)):
            return f"no rule for concatenations of anything but multiples of {EDGE} channels"
        if group.kind == "reshape" and (len(shapes[0]) != 4 or shapes[0][2:] != (1, 1) or len(shapes[1]) != 2):
            return "no rule for reshape"
        if group.kind == "dense" and (len(shapes[0]) != 2 or shapes[0][0] < 1):
            return "no rule for dense layers of anything but vectors"
        if group.kind == "scatter" and shapes[-1][1] % VECTOR:
            return f"no rule for a scatter of other than multiples of {VECTOR} channels"
    return ""


def slices(graph: Graph) -> dict[str, tuple[Group, int]]:
    """Return, per value written directly into a concatenation, that concatenation and the value's first channel."""
    found: dict[str, tuple[Group, int]] = {}
    for group in graph.groups:
        first = 0
        for value in group.inputs if graph.in_place(group) else ():
            found[value] = (group, first)
            first += graph.values[value].shape[1]
    return found


def siblings(graph: Graph) -> dict[str, list[Group]]:
    """Return, by its first member's output, each set of 1x1 convolutions that are one product (detection heads).

    They share their input and activation, and all their results leave the network.
    """
    heads: dict[tuple[str, bool], list[Group]] = {}
    for group in graph.groups:
        a = group.attrs
        pointwise = group.kind == "conv2d" and a["kernel_h"] == a["kernel_w"] == a["stride_h"] == 1 and not a["pad"]
        if pointwise and group.output in graph.outputs and not graph.consumers(group.output):
            heads.setdefault((group.inputs[0], group.relu), []).append(group)
    return {members[0].output: members for members in heads.values() if len(members) > 1}


def sums(graph: Graph, taken: dict[str, tuple[Group, int]]) -> dict[str, Group]:
    """Return the additions merged into a convolution, by its output: the later operand, if nothing else reads it.

    Values in `taken` are written into a concatenation and are not merged.
    """
    order = {group.output: index for index, group in enumerate(graph.groups)}
    found: dict[str, Group] = {}
    for group in graph.groups:
        if group.kind != "add" or group.inputs[0] == group.inputs[1]:
            continue
        last = max(group.inputs, key=lambda value: order.get(value, -1))
        if last not in order or not graph.used_once(last) or last in taken:
            continue
        producer = graph.groups[order[last]]
        if producer.kind == "conv2d" and not producer.relu:
            found[last] = group
    return found
