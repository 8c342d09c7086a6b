"""Layers of networks from files as Relax expressions; none has a custom rule, all use general schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from socsched.compiler.environment import relax
from socsched.graph.network import Layer

Emit = Callable[[str, Any], Any]


def expression(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    """Return the Relax expression of a layer, None for an unknown op.

    `emit` binds a subexpression to a variable; `dtype` is the type of scalars.
    """
    if layer.op in _BINARY:
        pair = [*args, weights["constant"]] if "constant" in weights else args
        left, right = reversed(pair) if layer.attrs.get("swapped") else pair
        return getattr(relax.op, _BINARY[layer.op])(left, right)
    if layer.op in _UNARY:
        return _UNARY[layer.op](args[0])
    if layer.op in _OTHERS:
        return _OTHERS[layer.op](layer, args, weights, emit, dtype)
    return None


_LEAST = {"float32": -3.4e38, "float16": -65504.0}
"""Lower bound of a clip that has only an upper one."""
_BINARY = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "maximum": "maximum",
    "minimum": "minimum",
    "matmul": "matmul",
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda x: relax.op.sigmoid(x),
    "tanh": lambda x: relax.op.tanh(x),
    "exp": lambda x: relax.op.exp(x),
    "sqrt": lambda x: relax.op.sqrt(x),
    "erf": lambda x: relax.op.erf(x),
    "log": lambda x: relax.op.log(x),
    "abs": lambda x: relax.op.abs(x),
    "global_avg_pool": lambda x: relax.op.nn.adaptive_avg_pool2d(x, (1, 1)),
}


def _leaky_relu(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return relax.op.nn.leakyrelu(args[0], layer.attrs["alpha"])


def _clip(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return relax.op.clip(args[0], layer.attrs["low"], layer.attrs["high"])


def _gate(layer: Layer, args: list[Any], emit: Emit, dtype: str, alpha: float, beta: float) -> Any:
    scaled = emit(f"{layer.name}.scaled", relax.op.multiply(args[0], relax.const(alpha, dtype)))
    moved = emit(f"{layer.name}.moved", relax.op.add(scaled, relax.const(beta, dtype)))
    return relax.op.clip(moved, 0.0, 1.0)


def _hard_sigmoid(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return _gate(layer, args, emit, dtype, layer.attrs["alpha"], layer.attrs["beta"])


def _hard_swish(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    gate = emit(f"{layer.name}.gate", _gate(layer, args, emit, dtype, 1 / 6, 0.5))
    return relax.op.multiply(args[0], gate)


def _elu(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    positive = emit(f"{layer.name}.positive", relax.op.nn.relu(args[0]))
    negative = emit(f"{layer.name}.negative", relax.op.clip(args[0], _LEAST[dtype], 0.0))
    power = emit(f"{layer.name}.power", relax.op.exp(negative))
    moved = emit(f"{layer.name}.moved", relax.op.subtract(power, relax.const(1.0, dtype)))
    scaled = emit(f"{layer.name}.scaled", relax.op.multiply(moved, relax.const(layer.attrs["alpha"], dtype)))
    return relax.op.add(positive, scaled)


def _softplus(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    """Return max(x, 0) + log(1 + exp(-|x|)), in which no exponential overflows."""
    positive = emit(f"{layer.name}.positive", relax.op.nn.relu(args[0]))
    size = emit(f"{layer.name}.size", relax.op.abs(args[0]))
    below = emit(f"{layer.name}.below", relax.op.multiply(size, relax.const(-1.0, dtype)))
    power = emit(f"{layer.name}.power", relax.op.exp(below))
    moved = emit(f"{layer.name}.moved", relax.op.add(power, relax.const(1.0, dtype)))
    rest = emit(f"{layer.name}.rest", relax.op.log(moved))
    return relax.op.add(positive, rest)


def _group_norm(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    groups, axes = int(layer.attrs["groups"]), list(range(2, len(args[0].ty.shape)))
    epsilon = layer.attrs["epsilon"]
    return relax.op.nn.group_norm(args[0], weights["scale"], weights["shift"], groups, 1, axes, epsilon)


def _argmax(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return relax.op.argmax(args[0], layer.attrs["axis"], layer.attrs["keepdims"])


def _topk(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    a = layer.attrs
    return relax.op.topk(args[0], a["k"], a["axis"], a["result"], a["largest"], "int64")


def _grid_sample(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    a = layer.attrs  # Relax takes the grid as [N, 2, H, W]
    grid = emit(f"{layer.name}.grid", relax.op.permute_dims(args[1], [0, 3, 1, 2]))
    return relax.op.image.grid_sample(args[0], grid, a["mode"], "NCHW", a["padding"], a["align"])


def _scatter_nd(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    data, indices, updates = args  # computed indices stay inside the data whatever they are
    most = [int(side) - 1 for side in list(data.ty.shape)[: int(indices.ty.shape[-1])]]
    below = emit(f"{layer.name}.below", relax.op.minimum(indices, relax.const(np.array(most, np.int64), "int64")))
    inside = emit(f"{layer.name}.inside", relax.op.maximum(below, relax.const(np.array(0, np.int64), "int64")))
    return relax.op.scatter_nd(data, inside, updates, "update")


def _batch_norm(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    scaled = emit(f"{layer.name}.scaled", relax.op.multiply(args[0], weights["scale"]))
    return relax.op.add(scaled, weights["shift"])


def _layer_norm(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    axes = list(range(-len(weights["scale"].ty.shape), 0))
    return relax.op.nn.layer_norm(args[0], weights["scale"], weights["shift"], axes, layer.attrs["epsilon"])


def _gather(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    if "table" in weights:  # computed indices stay inside the table whatever they are
        return relax.op.take(weights["table"], args[0], layer.attrs["axis"], mode="clip")
    if len(args) == 2:
        return relax.op.take(args[0], args[1], layer.attrs["axis"], mode="clip")
    return relax.op.take(args[0], relax.const(np.array(layer.attrs["indices"], np.int64)), layer.attrs["axis"])


def _reduce(op: str) -> Callable[..., Any]:
    def make(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
        axis = layer.attrs["axis"]
        axes = [axis] if isinstance(axis, int) else list(axis)
        return getattr(relax.op, op)(args[0], axis=axes, keepdims=layer.attrs["keepdims"])

    return make


def _slice(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    a = layer.attrs
    return relax.op.strided_slice(args[0], list(a["axes"]), list(a["begin"]), list(a["end"]), list(a["step"]))


def _resize2d(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    a = layer.attrs
    return relax.op.image.resize2d(
        args[0],
        size=tuple(a["size"]),
        layout="NCHW",
        method="linear" if a["bilinear"] else "nearest_neighbor",
        coordinate_transformation_mode=a["coordinates"],
        rounding_method=a["rounding"],
    )


def _reshape(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return relax.op.reshape(args[0], tuple(layer.attrs["shape"]))


def _transpose(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return relax.op.permute_dims(args[0], list(layer.attrs["order"]))


def _softmax(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    return relax.op.nn.softmax(args[0], axis=layer.attrs["axis"])


def _pad(layer: Layer, args: list[Any], weights: Mapping[str, Any], emit: Emit, dtype: str) -> Any:
    pads = layer.attrs["pads"]
    half = len(pads) // 2
    interleaved = [side for axis in range(half) for side in (pads[axis], pads[axis + half])]
    return relax.op.nn.pad(args[0], interleaved, pad_value=layer.attrs["value"])


_OTHERS: dict[str, Callable[..., Any]] = {
    "leaky_relu": _leaky_relu,
    "clip": _clip,
    "cast": lambda layer, args, weights, emit, dtype: relax.op.astype(args[0], dtype),
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "elu": _elu,
    "softplus": _softplus,
    "group_norm": _group_norm,
    "argmax": _argmax,
    "topk": _topk,
    "grid_sample": _grid_sample,
    "scatter_nd": _scatter_nd,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "gather": _gather,
    "reduce_mean": _reduce("mean"),
    "reduce_sum": _reduce("sum"),
    "slice": _slice,
    "resize2d": _resize2d,
    "reshape": _reshape,
    "transpose": _transpose,
    "softmax": _softmax,
    "pad": _pad,
}
