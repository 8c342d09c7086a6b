"""A network in integers: every layer's weights, biases and multipliers, computed once from weights and scales.

Rounding: weights to -127..127, symmetric, one step per output channel (largest magnitude / 127); biases to the step of
the sums; a layer's sums to the step of its result.  An addition that follows a convolution used nowhere else is
computed on the convolution's sums, which are never rounded to eight bits.  Results that only leave the network leave it
as fp32 sums times their step, again without rounding to eight bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from socsched.compiler.quantize.fixed_point import (
    INT32,
    LARGEST_MULTIPLIER,
    RATIO_SHIFT,
    RESIDUAL_SHIFT,
    SHIFT,
    Array,
    Scale,
    multiplier,
)
from socsched.compiler.quantize.scales import Means, Scales, key_of
from socsched.errors import CompileError
from socsched.graph.fusion import Graph, Group
from socsched.graph.integers import CONVOLUTIONS, formless, has_int8, values_in_bytes

_BIAS_LIMIT = 2.0**26


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution's integers: weight (int8, as in the network), bias and multiplier (int32 [C]), step of sums [C]."""

    weight: Array
    bias: Array
    multiplier: Array
    factor: Array


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: `group` (an absorbed addition changes its `output` and `relu`), and its integers.

    `factors` are the inputs' multipliers: for an addition, a concatenation or a standalone ReLU, with RATIO_SHIFT
    fraction bits; with `residual` (the value added to a convolution's sums), that value's, with RESIDUAL_SHIFT.  With
    `exact` the operator has no int8 form and is computed in fp32, its inputs dequantised, its result quantised for int8
    readers.
    """

    group: Group
    output: str
    relu: bool
    layer: Layer | None = None
    factors: tuple[int, ...] = ()
    residual: str = ""
    exact: bool = False

    @property
    def shift(self) -> int:
        """Return the fraction bits of the layer's multiplier."""
        return RESIDUAL_SHIFT if self.residual else SHIFT


@dataclass(frozen=True, slots=True)
class QuantisedGraph:
    """Steps in topological order; `scales` of every value that is stored in bytes; `floats` leave as fp32 sums.

    `rounded`: values for which a file states a scale, so that they are rounded whoever computes and reads them.
    """

    graph: Graph
    steps: tuple[Step, ...]
    scales: Mapping[str, Scale]
    floats: frozenset[str]
    rounded: frozenset[str] = frozenset()

    def consumers(self, value: str) -> list[Step]:
        """Return the steps that read `value`."""
        return [step for step in self.steps if value in step.group.inputs or value == step.residual]


def require(graph: Graph) -> None:
    """Raise CompileError for a network without any operator worth computing in int8."""
    if not has_int8(graph):
        name, reason = next((group.name, why) for group in graph.groups if (why := formless(graph, group)))
        raise CompileError(f"{graph.network.name}: {name}: {reason}", "plan this stage in fp16 or fp32")


def quantise_weight(
    weight: Array, axis: int, least: Array | float = 0.0, stated: Sequence[float] = ()
) -> tuple[Array, Array]:
    """Return (int8 weights, step of each channel along `axis`): the steps `stated`, or those of the largest weights.

    `least` bounds the latter from below.
    """
    w = np.asarray(weight, np.float64)
    others = tuple(i for i in range(w.ndim) if i != axis)
    step = np.maximum(np.maximum(np.abs(w).max(axis=others) / 127, least), 1e-30)
    if stated:
        step = np.asarray(stated, np.float64)
    shape = [1] * w.ndim
    shape[axis] = -1
    return np.clip(np.rint(w / step.reshape(shape)), -127, 127).astype(np.int8), step


def make_layer(
    group: Group,
    weights: Mapping[str, Array],
    source: Scale,
    target: Scale,
    shift: int = SHIFT,
    means: Means | None = None,
    stated: Sequence[float] = (),
) -> Layer:
    """Return the integers of a convolution between values stored with scales `source` and `target`.

    `stated` are the steps of the weights where a file gives them.  With the input's `means` the bias compensates the
    mean error that rounding input and weights adds to a sum (Nagel et al., Data-Free Quantization through Weight
    Equalization and Bias Correction, ICCV 2019, section 4.2). Most of a bird's-eye view is background with one value
    per channel, whose rounding error is the same everywhere and otherwise grows from layer to layer.
    """
    weight = np.asarray(weights[group.weights["weight"]], np.float64)
    axis = 1 if group.kind == "conv2d_transpose" else 0
    bias = np.zeros(weight.shape[axis])
    if "bias" in group.weights:
        bias = np.asarray(weights[group.weights["bias"]], np.float64)
    integers, step = quantise_weight(weight, axis, np.abs(bias) / source.step / _BIAS_LIMIT, stated)
    factor = step * source.step
    if means is not None:
        reached = int(group.attrs["stride_h"]) ** 2 if axis else 1  # one tap in this many reaches a pixel
        exact = np.tensordot(weight.sum(axis=(2, 3)), means.real, (1 - axis, 0))
        stored = np.tensordot(integers.sum(axis=(2, 3), dtype=np.int64), means.stored, (1 - axis, 0)) * step
        bias = bias + (exact - stored) / reached
    if (factor / target.step).max() > LARGEST_MULTIPLIER >> SHIFT:
        raise CompileError(
            f"{group.name}: its result's step {target.step:.3g} is too fine for its sums", "give another"
        )
    rounded, scaled = np.rint(bias / factor).astype(np.int32), multiplier(factor / target.step, shift)
    return check(group, Layer(integers, rounded, scaled, factor.astype(np.float32)))


def check(group: Group, layer: Layer) -> Layer:
    """Return `layer`; CompileError if its sums could exceed 32 bits."""
    axis = 1 if group.kind == "conv2d_transpose" else 0
    others = tuple(i for i in range(4) if i != axis)
    largest = np.abs(layer.weight.astype(np.int64)).sum(axis=others) * 510 + np.abs(layer.bias.astype(np.int64))
    if largest.max(initial=0) > INT32:
        raise CompileError(f"{group.name}: sums of {largest.max()} do not fit 32 bits", "keep this stage in fp16")
    return layer


def quantise(graph: Graph, weights: Mapping[str, Array], scales: Scales, float_outputs: bool = True) -> QuantisedGraph:
    """Return `graph` in integers for the given scale of every value; CompileError without int8 form.

    The result of max pooling has its input's scale, regardless of `scales`, unless a file states another.  Operators
    without int8 form, and of a file's network those whose values or weights it leaves in floats, are computed in fp32.
    """
    if not scales.partial:
        require(graph)
    known = dict(scales.values) | {
        name: scales.values[key_of(name)] for name in graph.values if key_of(name) in scales.values
    }
    apart: Collection[str] = ()
    if scales.partial:
        known, apart = values_in_bytes(graph, known, scales.weights)
    for group in graph.groups if not scales.partial else ():
        if group.kind == "max_pool" and not formless(graph, group) and group.inputs[0] in known:
            known[group.output] = known[group.inputs[0]]
    rounded = frozenset(known) & set(graph.values) if scales.partial else frozenset[str]()
    absorbed = {
        value: (add, conv, other)
        for value, (add, conv, other) in _absorbed(graph).items()
        if not scales.partial
        or (
            value not in known
            and {other, add.output, conv.inputs[0]} <= known.keys()
            and conv.weights["weight"] in scales.weights
        )
    }
    if scales.partial:
        _complete(graph, weights, scales, known, absorbed)
    exact = {
        group.name
        for group in graph.groups
        if formless(graph, group) or group.name in apart or (scales.partial and _beyond(group, known, scales))
    }
    ruled = [group for group in graph.groups if group.name not in exact]
    missing = [name for group in ruled for name in (*group.inputs, group.output) if name not in known]
    if missing:
        raise CompileError(
            f"{graph.network.name}: no scale for {missing[0]}", "calibrate the network, or give its scale"
        )
    absorbed = {
        value: (add, conv, other)
        for value, (add, conv, other) in absorbed.items()
        if known[other].step <= known[add.output].step * _finest(RESIDUAL_SHIFT)
    }
    steps = []
    for group in graph.groups:
        if group.output in absorbed:
            continue
        conv = next((c for c in absorbed.values() if c[0] is group), None)
        if group.name in exact:
            steps.append(Step(group, group.output, group.relu, exact=True))
        elif conv is not None:
            _, producer, other = conv
            layer = _layer(producer, group.output, known, weights, scales, RESIDUAL_SHIFT)
            ratio = _ratio(known, other, group.output, RESIDUAL_SHIFT)
            steps.append(Step(producer, group.output, group.relu, layer, (ratio,), other))
        elif group.kind in CONVOLUTIONS:
            layer = _layer(group, group.output, known, weights, scales, SHIFT)
            steps.append(Step(group, group.output, group.relu, layer))
        elif group.kind in _RESCALED:
            factors = tuple(_ratio(known, value, group.output, RATIO_SHIFT) for value in group.inputs)
            steps.append(Step(group, group.output, group.relu or group.kind == "relu", None, factors))
        else:
            steps.append(Step(group, group.output, group.relu))
    floats = _floats(graph, steps) - rounded if float_outputs else frozenset[str]()
    return QuantisedGraph(graph, tuple(steps), known, floats, rounded)


_RESCALED = ("add", "concat", "relu")
"""Operators that bring their inputs to the step of their result."""


def _layer(
    group: Group, target: str, known: Mapping[str, Scale], weights: Mapping[str, Array], scales: Scales, shift: int
) -> Layer:
    """Return the integers of a convolution whose sums become the value `target`."""
    source, stated = group.inputs[0], scales.weights.get(group.weights["weight"], ())
    return make_layer(group, weights, known[source], known[target], shift, scales.means.get(key_of(source)), stated)


def _beyond(group: Group, known: Mapping[str, Scale], scales: Scales) -> bool:
    """Return whether a file's scales leave an operator in floats: one is missing, or too fine for another."""
    if any(name not in known for name in (*group.inputs, group.output)):
        return True
    step = known[group.output].step
    if group.kind in CONVOLUTIONS:
        stated = max(scales.weights.get(group.weights["weight"], (0.0,)))
        return stated * known[group.inputs[0]].step / step > LARGEST_MULTIPLIER >> SHIFT
    return group.kind in _RESCALED and any(known[name].step > step * _finest(RATIO_SHIFT) for name in group.inputs)


def _complete(
    graph: Graph,
    weights: Mapping[str, Array],
    scales: Scales,
    known: dict[str, Scale],
    absorbed: Mapping[str, tuple[Group, Group, str]],
) -> None:
    """Add the scales that a file with QuantizeLinear and DequantizeLinear need not state.

    A convolution's sums that an addition takes have none, and those that leave the network neither: their step here is
    that of the sums, and is not used.
    """
    makers = {group.output: group for group in graph.groups}

    def sums(group: Group) -> float:
        stated = scales.weights.get(group.weights["weight"], ())
        weight, axis = np.asarray(weights[group.weights["weight"]]), 1 if group.kind == "conv2d_transpose" else 0
        return float(quantise_weight(weight, axis, 0.0, stated)[1].max() * known[group.inputs[0]].step)

    for group in graph.groups:
        value, leaves = group.output, group.output in graph.outputs and not graph.consumers(group.output)
        if value in absorbed:
            add, _, other = absorbed[value]
            if known[other].step <= known[add.output].step * _finest(RESIDUAL_SHIFT):
                known[value] = known[add.output]
        elif value in known or not leaves:
            continue
        elif group.kind in CONVOLUTIONS and group.inputs[0] in known and group.weights["weight"] in scales.weights:
            known[value] = Scale(sums(group), True)
        elif group.kind == "concat" and graph.in_place(group):
            parts = [makers[name] for name in group.inputs]
            if all(
                part.output not in known and part.inputs[0] in known and part.weights["weight"] in scales.weights
                for part in parts
            ):
                scale = Scale(max(map(sums, parts)), True)
                known.update(dict.fromkeys((value, *group.inputs), scale))


def _ratio(scales: Mapping[str, Scale], value: str, target: str, shift: int) -> int:
    ratio = scales[value].step / scales[target].step
    if ratio > _finest(shift):
        raise CompileError(
            f"{target}: its step is {ratio:.0f} times finer than that of {value}", "scales differ too much"
        )
    return int(multiplier(ratio, shift))


def _finest(shift: int) -> int:
    """Return the largest ratio of an operand's step to the result's for which products fit 32 bits."""
    return 1 << (21 - shift)


def _absorbed(graph: Graph) -> dict[str, tuple[Group, Group, str]]:
    """Return the convolutions that absorb an addition: their output -> (addition, convolution, other operand)."""
    order = {group.output: index for index, group in enumerate(graph.groups)}
    absorbed: dict[str, tuple[Group, Group, str]] = {}
    for group in graph.groups:
        if group.kind != "add" or len(set(group.inputs)) != 2 or formless(graph, group):
            continue
        for value in sorted(group.inputs, key=lambda name: -order.get(name, -1)):
            producer = graph.maker(value)
            if producer is None or producer.kind != "conv2d" or producer.relu or formless(graph, producer):
                continue
            if graph.used_once(value):
                (other,) = (name for name in group.inputs if name != value)
                absorbed[value] = (group, producer, other)
                break
    return absorbed


def _floats(graph: Graph, steps: list[Step]) -> frozenset[str]:
    """Return the values that only leave the network and are directly a convolution's sums."""
    by_output = {step.output: step for step in steps}
    floats: set[str] = set()
    for value in graph.outputs:
        step = by_output.get(value)
        if step is None or graph.consumers(value):
            continue
        if step.layer is not None and not step.residual:
            floats.add(value)
        elif step.group.kind == "concat" and graph.in_place(step.group):
            parts = [by_output.get(name) for name in step.group.inputs]
            if all(part is not None and part.layer is not None and not part.residual for part in parts):
                floats |= {value, *step.group.inputs}
    return frozenset(floats)


def planned_slices(q: QuantisedGraph, takes: Callable[[Step], bool]) -> dict[str, tuple[str, int]]:
    """Return the inputs written directly into concatenations: (the concatenation, first channel).

    No byte is changed by those; `takes` says whether a target writes all inputs of one so.
    """
    found: dict[str, tuple[str, int]] = {}
    for step in q.steps:
        if step.group.kind != "concat" or step.exact or not q.graph.in_place(step.group):
            continue
        unchanged = step.output in q.floats or (
            all(factor == 1 << RATIO_SHIFT for factor in step.factors)
            and all(q.scales[value].low == q.scales[step.output].low for value in step.group.inputs)
        )
        first = 0
        for value in step.group.inputs if unchanged and takes(step) else ():
            found[value] = (step.output, first)
            first += q.graph.values[value].shape[1]
    return found


def planned_siblings(q: QuantisedGraph, leaves: Callable[[Step], bool]) -> dict[str, list[Step]]:
    """Return sets of 1x1 convolutions of one input that are one product each, by the first: a detection head.

    `leaves` says whether the sums of one leave the network in a form that allows it.
    """
    heads: dict[tuple[str, bool], list[Step]] = {}
    for step in q.steps:
        a = step.group.attrs
        pointwise = step.group.kind == "conv2d" and a["kernel_h"] == a["stride_h"] == 1 and not a["pad"]
        if pointwise and step.output in q.floats and leaves(step):
            heads.setdefault((step.group.inputs[0], step.relu), []).append(step)
    return {members[0].output: members for members in heads.values()}
