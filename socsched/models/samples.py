"""Inputs of networks in the range that their first layers expect, seeded: for self-tests, runs without data, `verify`.

Noise in 0..255 means nothing to a network that takes normalised images, and an index beyond a table is refused by the
runtime that reads it.  What an input holds is therefore read from the layers that take it:

    bytes                                   0..255
    places in a table or along an axis      whole numbers below its size
    other whole numbers, truth values       masks: ones, every tenth a zero
    quantised by the file                   the range of its integers
    sampling positions of GridSample        -1..1
    scaled and shifted by constants         0..255 where they scale bytes, else such that the result is standard normal
    other numbers                           standard normal
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.graph.expand import layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model

Array = np.ndarray[Any, Any]
_DTYPES: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "uint8": np.uint8, "int8": np.int8}
_DTYPES |= {"int32": np.int32, "int64": np.int64, "bool": np.bool_}
_MASKED = 0.1
"""Share of zeros in masks."""
_SAME = ("cast", "reshape", "transpose", "slice", "pad")
"""Layers whose values are those of their input."""
_BYTE_SCALE = 1 / 8
"""Scale of a first layer below which its input is taken for bytes."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What an input holds: `index`, `mask`, `uniform` (between `low` and `high`) or `normal` (mean, deviation)."""

    kind: str
    low: float = 0.0
    high: float = 1.0

    def draw(self, kind: TensorType, generator: np.random.Generator) -> Array:
        """Return values of this kind in the shape of a tensor."""
        shape, dtype = tuple(max(side, 1) for side in kind.shape), _DTYPES[kind.dtype]
        if self.kind == "index":
            whole = dtype if np.issubdtype(dtype, np.integer) else np.int64
            return generator.integers(int(self.low), int(self.high) + 1, shape, dtype=whole).astype(dtype, copy=False)
        if self.kind == "mask":
            return (generator.random(shape) >= _MASKED).astype(dtype)
        if self.kind == "uniform":
            return generator.uniform(self.low, self.high, shape).astype(dtype)
        return (self.low + self.high * generator.standard_normal(shape)).astype(dtype)


def draw(model: Model, generator: np.random.Generator) -> dict[str, Array]:
    """Return one input of a model by port, in its ports' logical shapes."""
    domains = expected(model)
    return {port.name: domains[port.name].draw(port.type, generator) for port in model.inputs}


def expected(model: Model) -> dict[str, Domain]:
    """Return what each input port of a model holds; of a host function all that is known is the data type."""
    if model.network is None:
        return {port.name: _by_type(port.type) for port in model.inputs}
    network, stated = model.network(), model.quantised() if model.quantised else None
    ranges: dict[str, tuple[float, float]] = {}
    for name, (step, zero) in stated.values.items() if stated else ():
        ranges[name] = -step * zero, step * (255 - zero)
    walk = _Walk(network, model.weights)
    return {
        port.name: walk.domain(name, port.type, ranges.get(name))
        for name, port in zip(network.inputs, model.inputs, strict=True)
    }


def whole_numbers(network: Network) -> dict[str, Domain]:
    """Return what each input of a network holds that takes no floats: places in tables, masks, bytes."""
    walk = _Walk(network, None)
    inputs = network.inputs.items()
    return {name: walk.domain(name, kind, None) for name, kind in inputs if kind.dtype not in ("fp32", "fp16")}


def _by_type(kind: TensorType) -> Domain:
    if kind.dtype == "uint8":
        return Domain("index", 0, 255)
    if kind.dtype == "int8":
        return Domain("index", -128, 127)
    return Domain("normal") if kind.dtype in ("fp32", "fp16") else Domain("mask")


class _Walk:
    """The layers that read an input, up to the first that computes."""

    def __init__(self, network: Network, weights: Any) -> None:
        self.network, self._weights = network, weights
        self.readers: dict[str, list[Layer]] = {}
        for layer in network.layers:
            for name in layer.inputs:
                self.readers.setdefault(name, []).append(layer)
        self.types: Mapping[str, TensorType] = {}

    def domain(self, name: str, kind: TensorType, stored: tuple[float, float] | None) -> Domain:
        if kind.dtype in ("uint8", "int8"):
            return _by_type(kind)
        if stored is not None:
            return Domain("uniform", *stored)
        scale, shift, layer, value = self.followed(name)
        if layer is not None and (found := self.special(layer, value)) is not None:
            return found
        if abs(scale) < _BYTE_SCALE:
            return Domain("index", 0, 255)
        if kind.dtype not in ("fp32", "fp16"):
            return _by_type(kind)
        return Domain("normal", -shift / scale, 1 / abs(scale))

    def special(self, layer: Layer, value: str) -> Domain | None:
        """Return what a layer takes as `value`, None if any number."""
        second = len(layer.inputs) > 1 and layer.inputs[1] == value
        if layer.op == "gather" and "table" in layer.weights:
            return Domain("index", 0, self.network.params[layer.weights["table"]][int(layer.attrs["axis"])] - 1)
        if layer.op == "gather" and second:
            return Domain("index", 0, self.shape(layer.inputs[0])[int(layer.attrs["axis"])] - 1)
        if layer.op == "scatter_nd" and second:
            return Domain("index", 0, min(self.shape(layer.inputs[0])[: self.shape(value)[-1]]) - 1)
        if layer.op == "grid_sample" and second:
            return Domain("uniform", -1, 1)
        return Domain("uniform", 0.1, 2) if layer.op in ("log", "sqrt") else None

    def shape(self, value: str) -> tuple[int, ...]:
        self.types = self.types or layer_types(self.network)
        return (self.types.get(value) or self.network.inputs[value]).shape

    def followed(self, name: str) -> tuple[float, float, Layer | None, str]:
        """Return the scale and shift that an input gets before the first layer that computes, that layer and its input.

        Of several readers the one with places, else the first counts.
        """
        scale, shift = 1.0, 0.0
        while readers := self.readers.get(name):
            layer = next((one for one in readers if one.op == "gather" and name in one.inputs[1:]), readers[0])
            if layer.op == "batch_norm":
                factor, offset = self.mean(layer, "scale"), self.mean(layer, "shift")
                if factor:
                    scale, shift = scale * factor, shift * factor + offset
                return scale, shift, None, name
            if layer.op not in _SAME:
                constant = self.mean(layer, "constant") if "constant" in layer.weights else None
                moved = None if constant is None else _moved(layer, constant, scale, shift)
                if moved is None:
                    return scale, shift, layer, name
                scale, shift = moved
            name = layer.name
        return scale, shift, None, name

    def mean(self, layer: Layer, role: str) -> float:
        if callable(self._weights):
            self._weights = self._weights()
        array = (self._weights or {}).get(layer.weights[role])
        return 0.0 if array is None or not array.size else float(np.mean(array))


def _moved(layer: Layer, constant: float, scale: float, shift: float) -> tuple[float, float] | None:
    """Return scale and shift after an operation with a constant, None if it is another or makes them unusable."""
    sign = -1 if layer.attrs.get("swapped") else 1
    if layer.op == "add":
        return scale, shift + constant
    if layer.op == "subtract":
        return sign * scale, sign * (shift - constant)
    factor = {"multiply": constant, "divide": 1 / constant if constant and sign > 0 else 0.0}.get(layer.op, 0.0)
    return (scale * factor, shift * factor) if np.isfinite(factor) and abs(factor) > 1e-6 else None
