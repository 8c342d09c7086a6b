"""Which operators of a network have a form in integers, and which of a file's values and operators stay in floats.

One table for planning, which says it, and for the compiler, which builds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from socsched.graph.epilogues import IN_CHAINS
from socsched.graph.fusion import Graph, Group
from socsched.graph.operators import Integers, Operator

Scale = TypeVar("Scale")

CONVOLUTIONS = ("conv2d", "conv2d_transpose")
FLOAT_KINDS = ("pillar_features", "scatter")
"""Operators whose stages stay fp32 in an int8 plan: eight bits cannot resolve centimetres in metre coordinates."""
IN_BLOCKS = (*CONVOLUTIONS, "max_pool", "avg_pool", "global_avg_pool")
"""Operators whose kernels in fp32 take images in blocks of channels."""
KEPT = (
    *("relu", "sigmoid", "tanh", "clip", "leaky_relu", "silu", "gelu", "exp", "sqrt", "hard_sigmoid", "hard_swish"),
    *("add", "subtract", "multiply", "maximum", "minimum", "concat", "slice", "resize2d", "reduce_mean"),
)
"""Operators whose kernels in fp32 compute images in blocks where one of them lies so."""
KINDS = (*CONVOLUTIONS, "max_pool", "concat", "add", "relu")
"""Operators with an int8 form."""
_WHOLE = 16
"""Channels of the largest block: slices of a concatenation begin at whole blocks on every target."""

STAYS_FLOAT = "int8: computed in fp32, as 8 bits cannot represent coordinates"
UNSCALED = "the network's file gives no scale for a value"
FLOAT_WEIGHTS = "the network's file has its weights in floats, or about another zero than that of their type"


def formless(graph: Graph, group: Group) -> str:
    """Return the reason an operator has no int8 form, empty if it has one."""
    if group.kind not in KINDS:
        return f"no int8 rule for {group.kind}"
    a = group.attrs
    if a.get("uneven") or a.get("groups", 1) != 1 or a.get("dilation", 1) != 1:
        return f"no int8 rule for {group.kind} with groups, dilation or uneven padding"
    if group.kind in (*CONVOLUTIONS, "max_pool") and a["stride_h"] != a["stride_w"]:
        return f"no int8 rule for {group.kind} with different strides"
    if group.kind == "conv2d_transpose" and a["kernel_h"] - 2 * a["pad"] != a["stride_h"]:
        return "no int8 rule for transposed convolutions with kernel - 2 padding other than stride"
    shapes = [graph.values[name].shape for name in (*group.inputs, group.output)]
    if any(len(shape) != 4 or shape[0] != 1 for shape in shapes):
        return f"no int8 rule for {group.kind} of anything but single images"
    if group.kind == "concat" and a["axis"] != 1:
        return "no int8 rule for concatenation of anything but channels"
    if group.kind == "concat" and any(shape[1] % _WHOLE for shape in shapes[:-1]):
        return f"no int8 rule for concatenation of channels that are not multiples of {_WHOLE}"
    if group.kind == "add" and (len(group.inputs) != 2 or len(set(shapes)) > 1):
        return "no int8 rule for additions that broadcast"
    return ""


def stays_float(graph: Graph) -> bool:
    """Return whether a stage is computed in fp32 although int8 was asked for."""
    return all(group.kind in FLOAT_KINDS for group in graph.groups)


def has_int8(graph: Graph) -> bool:
    """Return whether all of a network can be computed in int8, or at least a convolution."""
    ruled = [group for group in graph.groups if not formless(graph, group)]
    return len(ruled) == len(graph.groups) or any(group.kind in CONVOLUTIONS for group in ruled)


def values_in_bytes(
    graph: Graph, scales: Mapping[str, Scale], weights: Collection[str]
) -> tuple[dict[str, Scale], dict[str, str]]:
    """Return the scales of a file's values with those that follow, and the operators in floats with the reasons.

    `scales`: those stated, by value; `weights` that are stored as integers.  A rectified value has the scale of what is
    rectified, the result of max pooling its input's.
    """
    known = dict(scales)
    floats: dict[str, str] = {}
    for group in graph.groups:
        value, reason = group.output, formless(graph, group)
        if value not in known and group.relu and (before := graph.operations[value].inputs[0]) in known:
            known[value] = known[before]  # rounding and clipping below zero may change places
        if group.kind == "max_pool" and not reason and group.inputs[0] in known:
            known.setdefault(value, known[group.inputs[0]])
            if known[value] != known[group.inputs[0]]:
                reason = "max pooling to another scale"
        if not reason and group.kind in CONVOLUTIONS and group.weights["weight"] not in weights:
            reason = FLOAT_WEIGHTS
        if reason:
            floats[group.name] = reason
    return known, floats


def integers_of(graph: Graph, scales: Mapping[str, tuple[float, int]] | None, weights: Collection[str]) -> Integers:
    """Return how a network is computed in int8; `scales` (step, zero) and `weights` are those a file states, if any."""
    if scales is None:
        reasons = {group.name: reason for group in graph.groups if (reason := formless(graph, group))}
        return Integers(len(graph.groups), reasons, False, has_int8(graph) or stays_float(graph))
    stated = {name.replace(".", "_"): scale for name, scale in scales.items()}
    named = stated | {name: stated[own] for name in graph.values if (own := name.replace(".", "_")) in stated}
    known, floats = values_in_bytes(graph, named, weights)
    sums: set[str] = set()
    for group in graph.groups:
        value, joins = group.output, group.kind in ("add", "concat")
        if group.name in floats:
            continue
        if any(name not in known and not (joins and name in sums) for name in group.inputs):
            floats[group.name] = UNSCALED
        elif value not in known and (value in graph.outputs or graph.used_once(value)):
            sums.add(value)
        elif value not in known:
            floats[group.name] = UNSCALED
    asymmetric = any(zero not in (0, 128) for _, zero in scales.values())
    return Integers(len(graph.groups), floats, asymmetric, True)


def in_kernels(
    graph: Graph, integers: Integers, bytes_of: Sequence[Operator], floats_of: Sequence[Operator]
) -> tuple[Operator, ...]:
    """Return the operators of a network in int8 as kernels compute them, counted in int8 and in fp32 before.

    Those in fp32 state so (`floats`), and the values that change their form for their sake (`moves`): from bytes
    (`dequantise`) to blocks of channels, from blocks to rows (`unpack`) and back (`pack`), from either to bytes
    (`quantise`, `quantise of rows`).
    """
    forms: dict[str, set[str]] = {}
    """Value -> the forms in which it lies in memory."""
    read = {name for group in graph.groups if group.name not in integers.floats for name in group.inputs}
    chain: set[str] = set()
    found = []
    for group, whole, exact in zip(graph.groups, bytes_of, floats_of, strict=True):
        if group.name not in integers.floats:
            forms[group.output] = {"bytes"}
            found.append(whole)
            continue
        # no kernel computes them along with a convolution; general schedules fuse them among themselves
        joins = any(name in chain and graph.used_once(name) for name in group.inputs)
        if group.kind in IN_CHAINS or (group.kind == "reshape" and joins):
            chain.add(group.output)
        attrs = {name: value for name, value in exact.attrs.items() if name != "merged"}
        attrs |= {"merged": 1} if joins and group.kind in IN_CHAINS else {}
        lying = [forms.setdefault(name, {"rows"}) for name in group.inputs]
        near = any("blocks" in form or form == {"bytes"} for form in lying)
        blocks = group.kind in IN_BLOCKS or (group.kind in KEPT and near)
        blocks = blocks and graph.is_image(*group.inputs, group.output)
        moves = []
        for form, tensor in zip(lying, exact.inputs, strict=True):
            wanted = "blocks" if blocks else "rows"
            if form == {"bytes"}:
                moves += [("dequantise", tensor)] if blocks else [("dequantise", tensor), ("unpack", tensor)]
            elif wanted not in form:
                moves.append(("pack" if blocks else "unpack", tensor))
            form.add(wanted)
        forms[group.output] = {"blocks" if blocks else "rows"}
        if group.output in read:
            (result,) = exact.outputs
            moves.append(("quantise" if blocks and result.shape[1] >= _WHOLE else "quantise of rows", result))
        found.append(replace(exact, attrs={**attrs, "floats": 1}, moves=tuple(moves)))
    return tuple(found)
