"""Decisions before an integer network is lowered for a GPU: concatenations in place, convolutions of one input."""

from __future__ import annotations

from collections.abc import Container

from socsched.compiler.quantize.fixed_point import RATIO_SHIFT
from socsched.compiler.quantize.network import QuantisedGraph, Step

_UNITY = 1 << RATIO_SHIFT


def planned_slices(q: QuantisedGraph) -> dict[str, tuple[str, int]]:
    """Return the inputs written directly into concatenations: (the concatenation, first channel)."""
    found: dict[str, tuple[str, int]] = {}
    for step in q.steps:
        if step.group.kind != "concat" or step.exact or not q.graph.in_place(step.group):
            continue
        inputs, scales = step.group.inputs, q.scales
        unchanged = step.output in q.floats or (
            all(factor == _UNITY for factor in step.factors)
            and all(scales[value].signed == scales[step.output].signed for value in inputs)
        )
        computed = {other.output for other in q.steps if other.layer}
        if not unchanged or any(value not in computed for value in inputs):
            continue
        first = 0
        for value in inputs:
            found[value] = (step.output, first)
            first += q.graph.values[value].shape[1]
    return found


def planned_siblings(q: QuantisedGraph, slices: Container[str]) -> dict[str, list[Step]]:
    """Return sets of 1x1 convolutions of one input whose sums all leave: one product each (detection heads)."""
    heads: dict[tuple[str, bool], list[Step]] = {}
    for step in q.steps:
        leaves, a = step.output in q.floats and step.output not in slices, step.group.attrs
        pointwise = step.group.kind == "conv2d" and a["kernel_h"] == a["kernel_w"] == a["stride_h"] == 1
        if leaves and pointwise and not a["pad"]:
            heads.setdefault((step.group.inputs[0], step.relu), []).append(step)
    return {members[0].output: members for members in heads.values()}
