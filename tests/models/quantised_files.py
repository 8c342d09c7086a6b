"""Random small networks that compute in integers, as tools write them: Q/DQ or operators on integers, of any scales."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]
RUNTIME = "com.microsoft"


@dataclass(frozen=True)
class Style:
    """How a file states its integers: `form` (qdq, qoperator or dynamic) and what scales it has."""

    form: str
    signed: bool
    asymmetric: bool
    by_channel: bool
    odd_weights: bool


@dataclass(frozen=True)
class Value:
    """A value: its name as bytes, the names of its step and zero point, and its channels and size."""

    name: str
    step: str
    zero: str
    shape: tuple[int, ...]


class Network:
    """Nodes and weights as they accumulate, for one style."""

    def __init__(self, seed: int, style: Style) -> None:
        self.random, self.style = np.random.default_rng(seed), style
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.asymmetric = False

    def constant(self, array: Any, name: str = "") -> str:
        name = name or f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, kind: str, inputs: list[str], domain: str = "", **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], f"{kind}_{len(self.nodes)}", domain=domain, **attrs))
        return name

    def scale(self, low: float, high: float) -> tuple[str, str]:
        """Return step and zero point of values in a range, as the style has them."""
        dtype, least = (np.int8, -128) if self.style.signed else (np.uint8, 0)
        if self.style.asymmetric:
            step = (high - low) / 255
            zero = int(np.clip(np.rint(-low / step), 0, 255))
            self.asymmetric |= zero not in (0, 128)
        else:
            step, zero = (high / 255, 0) if low >= 0 else (max(-low, high) / 127, 128)
        return self.constant(np.float32(step)), self.constant(dtype(zero + least))

    def stored(self, real: str, low: float, high: float, shape: tuple[int, ...]) -> Value:
        """Return a value in floats as bytes."""
        step, zero = self.scale(low, high)
        return Value(self.op("QuantizeLinear", [real, step, zero]), step, zero, shape)

    def real(self, value: Value) -> str:
        return self.op("DequantizeLinear", [value.name, value.step, value.zero])

    def weight(self, *shape: int) -> tuple[str, str, str, Array]:
        """Return names of integers, steps and zero points of a weight by its first axis, and its steps."""
        by_channel = self.style.by_channel
        step = self.random.uniform(0.5, 2, shape[0] if by_channel else ()) / 127 / np.sqrt(np.prod(shape[1:]))
        bytes_ = self.random.integers(-127, 128, shape).astype(np.int8)
        zero = np.zeros(np.shape(step), np.int8)
        if self.style.odd_weights and self.random.random() < 0.5:
            zero += 3
        return self.constant(bytes_), self.constant(step.astype(np.float32)), self.constant(zero), step

    def conv(self, x: Value, cout: int, kernel: int, stride: int, groups: int, rectified: bool) -> Value:
        _, cin, height, width = x.shape
        weight, step, zero, steps = self.weight(cout, cin // groups, kernel, kernel)
        source = numpy_helper.to_array(next(w for w in self.weights if w.name == x.step))
        sums = np.broadcast_to(steps * source, cout).astype(np.float32)
        bias = self.constant(np.rint(self.random.normal(0, 0.3, cout) / sums).astype(np.int32))
        attrs: dict[str, Any] = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups}
        size = [(side + 2 * (kernel // 2) - kernel) // stride + 1 for side in (height, width)]
        low, high = (0.0 if rectified else -2.0, 2.5)
        if self.style.form == "qoperator":
            to = self.scale(low, high)
            inputs = [x.name, x.step, x.zero, weight, step, zero, *to, bias]
            return Value(self.op("QLinearConv", inputs, **attrs), *to, (1, cout, *size))
        real_weight = self.op("DequantizeLinear", [weight, step, zero], axis=0)
        scale = self.constant(sums if self.style.by_channel else np.float32(sums[0]))
        real_bias = self.op("DequantizeLinear", [bias, scale], axis=0)
        y = self.op("Conv", [self.real(x), real_weight, real_bias], **attrs)
        if rectified and self.random.random() < 0.5:  # otherwise the range of the bytes cuts below zero
            y = self.op("Relu", [y])
        return self.stored(y, low, high, (1, cout, *size))

    def dense(self, x: Value, out: int) -> Value:
        """Return a product with a matrix along the last axis."""
        weight, step, zero, _ = self.weight(out, x.shape[-1])
        turned = numpy_helper.to_array(next(w for w in self.weights if w.name == weight)).T.copy()
        turned_name = self.constant(turned)
        shape = (*x.shape[:-1], out)
        if self.style.form == "qoperator":
            to = self.scale(-2.0, 2.0)
            inputs = [x.name, x.step, x.zero, turned_name, step, zero, *to]
            return Value(self.op("QLinearMatMul", inputs), *to, shape)
        real = self.op("DequantizeLinear", [turned_name, step, zero], axis=1)
        return self.stored(self.op("MatMul", [self.real(x), real]), -2.0, 2.0, shape)

    def add(self, x: Value, y: Value) -> Value:
        if self.style.form == "qoperator":
            to = self.scale(-3.0, 3.0)
            inputs = [x.name, x.step, x.zero, y.name, y.step, y.zero, *to]
            return Value(self.op("QLinearAdd", inputs, RUNTIME), *to, x.shape)
        return self.stored(self.op("Add", [self.real(x), self.real(y)]), -3.0, 3.0, x.shape)

    def unary(self, kind: str, x: Value, low: float, high: float, shape: tuple[int, ...], **attrs: Any) -> Value:
        own = {"Sigmoid": "QLinearSigmoid", "GlobalAveragePool": "QLinearGlobalAveragePool"}
        if self.style.form == "qoperator" and kind in own:
            to = self.scale(low, high)
            return Value(self.op(own[kind], [x.name, x.step, x.zero, *to], RUNTIME, **attrs), *to, shape)
        return self.stored(self.op(kind, [self.real(x)], **attrs), low, high, shape)


def quantised(path: Path, seed: int, style: Style) -> bool:
    """Write a network; return whether a value in it is asymmetric."""
    net = Network(seed, style)
    random = net.random
    channels = int(random.choice([3, 16, 32]))
    shape = (1, channels, int(random.integers(6, 14)), int(random.integers(6, 14)))
    x = net.stored("x", -2.2, 2.6, shape)
    for _ in range(int(random.integers(2, 5))):
        kind = random.choice(["conv", "conv", "conv", "depthwise", "residual", "pool", "sigmoid"])
        cin = x.shape[1]
        if kind == "conv":
            x = net.conv(x, int(random.choice([8, 16, 32])), int(random.choice([1, 3])), int(random.choice([1, 2])),
                         1, bool(random.random() < 0.5))  # fmt: skip
        elif kind == "depthwise":
            x = net.conv(x, cin, 3, 1, cin, True)
        elif kind == "residual":
            x = net.add(net.conv(x, cin, 3, 1, 1, False), x)
        elif kind == "sigmoid":
            x = net.unary("Sigmoid", x, 0.0, 1.0, x.shape)
        elif min(x.shape[2:]) >= 4:
            size = tuple((side - 2) // 2 + 1 for side in x.shape[2:])
            name = net.op(
                "MaxPool", [x.name if style.form == "qoperator" else net.real(x)], kernel_shape=[2, 2], strides=[2, 2]
            )
            pooled = (1, cin, *size)
            if style.form == "qoperator":
                x = Value(name, x.step, x.zero, pooled)
            else:
                x = Value(net.op("QuantizeLinear", [name, x.step, x.zero]), x.step, x.zero, pooled)
    if random.random() < 0.5:
        x = net.unary("GlobalAveragePool", x, -1.0, 2.0, (1, x.shape[1], 1, 1))
        flat = net.op("Flatten", [x.name])
        x = net.dense(Value(flat, x.step, x.zero, (1, x.shape[1])), 10)
    net.nodes.append(helper.make_node("DequantizeLinear", [x.name, x.step, x.zero], ["y"], "last"))
    _save(path, net, list(shape))
    return net.asymmetric


def dynamic(path: Path, seed: int) -> None:
    """Write a network that quantises at run time, as ONNX Runtime's dynamic quantisation does."""
    net = Network(seed, Style("dynamic", False, True, False, False))
    rows, width = int(net.random.integers(2, 6)), int(net.random.choice([16, 48]))
    x = "x"
    for number in range(2):
        out = int(net.random.choice([16, 24]))
        y, scale, zero = (f"{part}{number}" for part in ("bytes", "scale", "zero"))
        net.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [y, scale, zero], f"dynamic_{number}"))
        weight = net.constant(net.random.integers(-127, 128, (width, out)).astype(np.int8))
        step = net.constant(np.float32(0.5 / 127 / np.sqrt(width)))
        product = net.op("MatMulInteger", [y, weight, zero, net.constant(np.int8(0))])
        real = net.op("Cast", [product], to=T.FLOAT)
        both = net.op("Mul", [real, net.op("Mul", [scale, step])])
        x, width = net.op("Relu", [net.op("Add", [both, net.constant(np.full(out, 0.1, np.float32))])]), out
    net.nodes.append(helper.make_node("Tanh", [x], ["y"], "last"))
    first = next(w for w in net.weights if len(w.dims) == 2)
    _save(path, net, [1, rows, first.dims[0]])


def _save(path: Path, net: Network, shape: list[int]) -> None:
    source = helper.make_tensor_value_info("x", T.FLOAT, shape)
    result = helper.make_tensor_value_info("y", T.FLOAT, None)
    graph = helper.make_graph(net.nodes, "net", [source], [result], net.weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(RUNTIME, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
