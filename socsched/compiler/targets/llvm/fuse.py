"""Fusion beyond bias and ReLU, for CPUs: residual additions and activations are merged into the preceding convolution.

The activation is kept in `Group.options["activation"]` (`llvm.fuse`); a residual is a second input of the
convolution.  The fused group takes the position of its last part, after everything it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from socsched.compiler.environment import T, tirx
from socsched.graph.enlargements import resizes
from socsched.graph.epilogues import gelu, number
from socsched.graph.fusion import Graph, Group
from socsched.graph.index_maps import ROWS

_UNARY = ("sigmoid", "tanh", "clip", "leaky_relu", "relu")
GATES = ("silu", "hard_sigmoid", "hard_swish")
_SIXTH = 1 / 6
_LEAST = -3.4e38
"""Lower bound of a clip that has only an upper one."""
_LINEAR = ("conv2d", "conv2d_transpose", "dense", "add")


def fuse(graph: Graph, weights: Mapping[str, Any]) -> Graph:
    """Return `graph` with activations and residual additions inside the operators that feed only them."""
    graph = with_numbers(gelus(hard_gates(_biases(graph))), weights)
    for step in (_gates, _residuals, _activations, _rows):
        graph = step(graph)
    return graph


def fuse_activations(graph: Graph) -> Graph:
    """Return `graph` with biases and activations inside the operators that feed only them."""
    return _activations(_gates(_biases(graph)))


def activation(group: Group) -> Activation:
    """Return the activation `group` applies to its sum, or the function of an element-wise operator."""
    if "activation" in group.options:
        return tuple(group.options["activation"])
    if group.relu:
        return ("relu",)
    return unary(group) if group.kind in _UNARY else ()


def unary(group: Group) -> Activation:
    """Return an element-wise operator of one input as an activation."""
    if group.kind == "clip":
        return ("clip", float(group.options.get("low", _LEAST)), float(group.options["high"]))
    if group.kind == "leaky_relu":
        return ("leaky_relu", float(group.options["alpha"]))
    return (group.kind,)


def _plain(group: Group | None) -> bool:
    return group is not None and group.kind in _LINEAR and not group.relu and "activation" not in group.options


def _without(groups: Iterable[Group], *gone: Group) -> list[Group]:
    return [group for group in groups if group not in gone]


def _put(graph: Graph, at: Group, new: Group, *gone: Group) -> Graph:
    groups = [new if group is at else group for group in graph.groups]
    return replace(graph, groups=tuple(_without(groups, *gone)))


def _producer(graph: Graph, value: str) -> Group | None:
    return next((group for group in graph.groups if group.output == value), None)


def _biases(graph: Graph) -> Graph:
    """Return `graph` with sums of a dense layer and a parameter by column as biases, as exports write them."""
    for total in graph.groups:
        shapes = [graph.network.params.get(name) for name in total.weights.values()]
        columns = graph.values[total.output].shape[-1:]
        if total.kind != "add" or len(total.inputs) != 1 or shapes != [columns] or columns == (1,):
            continue
        dense = _producer(graph, total.inputs[0])
        if dense is None or dense.kind != "dense" or "bias" in dense.weights or not graph.used_once(dense.output):
            continue
        if dense.relu or "activation" in dense.options or len(dense.inputs) != 1:
            continue
        weights = {**dense.weights, "bias": next(iter(total.weights.values()))}
        joined = replace(
            dense, weights=weights, output=total.output, relu=total.relu, options={**dense.options, **total.options}
        )
        graph = _put(graph, total, joined, dense)
    return graph


def _gates(graph: Graph) -> Graph:
    """Replace x * sigmoid(x) by one activation (SiLU)."""
    for product in graph.groups:
        if product.kind != "multiply" or len(product.inputs) != 2:
            continue
        for value, other in (product.inputs, product.inputs[::-1]):
            gate = _producer(graph, other)
            if gate is None or gate.kind != "sigmoid" or gate.inputs != (value,) or not graph.used_once(other):
                continue
            silu = Group(product.name, "silu", (value,), product.output, options={"activation": ("silu",)})
            graph = _put(graph, product, silu, gate)
            break
    return graph


def _residuals(graph: Graph) -> Graph:
    for total in graph.groups:
        if total.kind != "add" or len(total.inputs) != 2 or total.inputs[0] == total.inputs[1]:
            continue
        shapes = {graph.values[value].shape for value in (*total.inputs, total.output)}
        candidates = [
            group
            for group in graph.groups
            if group.output in total.inputs
            and len(group.inputs) == 1  # kernels add one other image
            and (_plain(group) if group.kind == "conv2d" else resizes(graph, group))
            and graph.used_once(group.output)
        ]
        if len(shapes) > 1 or not candidates:
            continue
        conv = candidates[-1]
        other = total.inputs[1 - total.inputs.index(conv.output)]
        joined = replace(conv, inputs=(*conv.inputs, other), output=total.output, relu=total.relu)
        graph = _put(graph, total, joined, conv)
    return graph


def _activations(graph: Graph) -> Graph:
    for group in graph.groups:
        if group.kind not in (*_UNARY, *GATES, "gelu") or len(group.inputs) != 1:
            continue
        moves, source = _behind_moves(graph, group.inputs[0])
        if source is None or not _plain(source) or not graph.used_once(source.output):
            continue
        if moves and (source.kind != "conv2d" or not graph.is_image(source.output)):
            continue  # the value before the moves has a name and no definition but that of a rule
        options = {**source.options, "activation": activation(group)}
        if not moves:
            graph = _put(graph, group, replace(source, output=group.output, options=options), source)
            continue
        last = moves[0]
        operation = replace(graph.operations[last.output], name=group.output)
        graph = replace(graph, operations={**graph.operations, group.output: operation})
        graph = _put(graph, group, replace(last, output=group.output), last)
        graph = _put(graph, source, replace(source, options=options))
    return graph


def _behind_moves(graph: Graph, value: str) -> tuple[list[Group], Group | None]:
    """Return the reshapes and transposes before a value, the last first, and the operator before them."""
    moves: list[Group] = []
    while (maker := _producer(graph, value)) is not None and maker.kind in ("reshape", "transpose"):
        if not graph.used_once(value):
            return moves, None
        moves.append(maker)
        (value,) = maker.inputs
    return moves, maker


def _rows(graph: Graph) -> Graph:
    """Replace the moves between images and rows of channels, as tokens have them, by one operator each."""
    for turn in graph.groups:
        if turn.kind != "transpose":
            continue
        order, first, last = tuple(turn.options["order"]), turn.inputs[0], turn.output
        kind, gone = next((kind for kind, turned in ROWS.items() if turned == order), ""), [turn]
        if order in ((0, 2, 1), (1, 0)):
            before = _producer(graph, first)
            after = next(iter(graph.consumers(last)), None) if graph.used_once(last) else None
            if before is not None and before.kind == "reshape" and graph.used_once(first):
                kind, first = "image_to_rows", before.inputs[0]
                gone = [before, turn]
            elif after is not None and after.kind == "reshape":
                kind, last = "rows_to_image", after.output
                gone = [turn, after]
        image, rows = (first, last) if kind == "image_to_rows" else (last, first)
        if not kind or not graph.is_image(image):
            continue
        (batch, channels, height, width), sizes = graph.values[image].shape, graph.values[rows].shape
        if batch == 1 and sizes[-1] == channels and prod(sizes) == channels * height * width:
            graph = _put(graph, gone[-1], Group(turn.name, kind, (first,), last, layer=turn.layer), *gone[:-1])
    return graph


def gelus(graph: Graph) -> Graph:
    """Replace x (erf(x / a) + b) c by one operator; its numbers are the names of parameters (`with_numbers`)."""
    for erf in graph.groups:
        found = gelu(graph, erf) if erf.kind == "erf" else None
        if found is not None:
            source, last, gone, numbers = found
            new = Group(last.name, "gelu", (source,), last.output, options={"activation": ("gelu", *numbers)})
            graph = _put(graph, last, new, *gone)
    return graph


def with_numbers(graph: Graph, weights: Mapping[str, Any]) -> Graph:
    """Return `graph` with the numbers of its GELUs in place of the parameters' names."""

    def resolved(group: Group) -> Group:
        found = group.options.get("activation")
        if not found or found[0] != "gelu":
            return group
        numbers = (
            (one if isinstance(one, float) else float(np.asarray(weights[one]).reshape(-1)[0]), inverse)
            for one, inverse in found[1:]
        )
        values = (1 / number if inverse else number for number, inverse in numbers)
        return replace(group, options={**group.options, "activation": ("gelu", *values)})

    return replace(graph, groups=tuple(map(resolved, graph.groups)))


def hard_gates(graph: Graph) -> Graph:
    """Replace clip(x * a + b, 0, 1) by one operator, and its product with x where that is HardSwish."""
    for clip in graph.groups:
        found = _gate_of(graph, clip)
        if found is None:
            continue
        parts, factors = found
        source, gone, last = parts[0].inputs, list(parts), clip
        options: dict[str, Activation] = {"activation": ("hard_sigmoid", *factors)}
        product = next(iter(graph.consumers(clip.output)), None)
        if (
            product is not None
            and product.kind == "multiply"
            and sorted(product.inputs) == sorted((*source, clip.output))
            and graph.used_once(clip.output)
            and abs(factors[0] - _SIXTH) < 1e-6
            and factors[1] == 0.5
        ):
            options, last = {"activation": ("hard_swish",)}, product
            gone.append(clip)
        new = Group(last.name, options["activation"][0], source, last.output, options=options)
        kept = (new if group is last else group for group in graph.groups if group not in gone)
        graph = replace(graph, groups=tuple(kept))
    return graph


def _gate_of(graph: Graph, clip: Group) -> tuple[tuple[Group, Group], tuple[float, float]] | None:
    """Return the operators before a clip that make it a hard sigmoid, with slope and offset; None for other clips."""
    if clip.kind != "clip" or unary(clip)[1:] != (0.0, 1.0):
        return None
    moved = next((group for group in graph.groups if group.output == clip.inputs[0]), None)
    if moved is None or moved.kind != "add" or moved.relu or (beta := number(moved)) is None:
        return None
    scaled = next((group for group in graph.groups if group.output == moved.inputs[0]), None)
    if scaled is None or scaled.kind != "multiply" or (alpha := number(scaled)) is None:
        return None
    if not (graph.used_once(moved.output) and graph.used_once(scaled.output)):
        return None
    return (scaled, moved), (alpha, beta)


Activation = tuple[Any, ...]

_ERF = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""Coefficients of Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: 1.5e-7 absolute."""
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.44269504088896341, 0.693359375, -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def function(activation: Activation) -> Callable[[Any], Any]:
    """Return an activation as a function of a float32 expression; KeyError for one not listed above."""
    if not activation:
        return lambda value: value
    name, *parameters = activation
    return lambda value: _FUNCTIONS[name](value, *parameters)


def apply_activation(activation: Activation, dtype: str) -> Callable[[Any], Any]:
    """Return an activation as a function of a `dtype` expression, in half precision if the result is identical.

    Comparisons commute with rounding; everything else is computed in float32 and rounded once.
    """
    if dtype == "float32" or not activation:
        return function(activation)
    if activation[0] in ("relu", "clip"):
        low, high = (0.0, None) if activation[0] == "relu" else activation[1:]

        def bounded(x: Any) -> Any:
            x = T.max(x, tirx.const(low, dtype))
            return x if high is None else T.min(x, tirx.const(high, dtype))

        return bounded
    act = function(activation)
    return lambda x: act(x.astype("float32")).astype(dtype)


def is_known(activation: Activation) -> bool:
    """Return whether `function` has this activation."""
    return not activation or activation[0] in _FUNCTIONS


def finish(activation: Activation, residual: bool) -> Callable[..., Any]:
    """Return f(value, R, *indices): the value with the residual added if there is one, activated."""
    act = function(activation)
    if residual:
        return lambda value, buffer, *at: act(value + buffer[at].astype("float32"))
    return lambda value, buffer, *at: act(value)


def exponential(x: Any) -> Any:
    """Return e^x by Cephes' expf (range reduction and a polynomial of degree 5), 2 ulp, in vector instructions only.

    LLVM would instead call the C library once per lane.
    """
    bounded = T.max(T.min(x, T.float32(88.3762626647949)), T.float32(-87.3365478515625))
    whole = T.floor(bounded * T.float32(_LOG2E) + T.float32(0.5))
    rest = bounded - whole * T.float32(_LN2_HIGH) - whole * T.float32(_LN2_LOW)
    total = T.float32(_EXP[0])
    for factor in _EXP[1:]:
        total = total * rest + T.float32(factor)
    mantissa = total * rest * rest + rest + T.float32(1)
    return mantissa * T.reinterpret(T.shift_left(T.Cast("int32", whole) + 127, 23), dtype="float32")


def _erf(x: Any) -> Any:
    size = tirx.abs(x)
    t = T.float32(1) / (T.float32(1) + T.float32(0.3275911) * size)
    total = T.float32(_ERF[0])
    for factor in _ERF[1:]:
        total = total * t + T.float32(factor)
    near = T.float32(1) - total * t * exponential(T.float32(0) - size * size)
    return tirx.Select(x < T.float32(0), T.float32(0) - near, near)


def functions(exp: Callable[[Any], Any], tanh: Callable[[Any], Any] | None, erf: Callable[[Any], Any]) -> Any:
    """Return the activations of float32 expressions by name, from elementary functions; without tanh by the sigmoid."""

    def clip(x: Any, low: float, high: float) -> Any:
        return T.min(T.max(x, T.float32(low)), T.float32(high))

    def sigmoid(x: Any) -> Any:
        return T.float32(1) / (T.float32(1) + exp(T.float32(0) - x))

    def hard_sigmoid(x: Any, alpha: float, beta: float) -> Any:
        return clip(x * T.float32(alpha) + T.float32(beta), 0.0, 1.0)

    return {
        "relu": lambda x: T.max(x, T.float32(0)),
        "clip": clip,
        "leaky_relu": lambda x, alpha: T.max(x, T.float32(0)) + T.min(x, T.float32(0)) * T.float32(alpha),
        "sigmoid": sigmoid,
        "tanh": tanh or (lambda x: T.float32(2) * sigmoid(T.float32(2) * x) - T.float32(1)),
        "silu": lambda x: x * sigmoid(x),
        "hard_sigmoid": hard_sigmoid,
        "hard_swish": lambda x: x * hard_sigmoid(x, 1 / 6, 0.5),
        "erf": erf,
        "gelu": lambda x, inner, add, outer: x * (erf(x * T.float32(inner)) + T.float32(add)) * T.float32(outer),
    }


_FUNCTIONS = {**functions(exponential, None, _erf), "exp": exponential, "sqrt": lambda x: T.sqrt(x)}
