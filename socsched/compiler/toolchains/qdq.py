"""ONNX models with quantisation stated as QuantizeLinear and DequantizeLinear, as vendors' compilers read it.

`quantised` rounds a model in fp32 by given scales: signed values about zero, unsigned ones (after a ReLU) over the
whole range of a byte, as in our own int8 networks.  Weights are symmetric with one scale per output channel, biases are
int32 in units of input scale times weight scale.  A value between a convolution or sum and its activation is not
rounded: compilers fuse the pair.

`to_qdq` writes an int8 network that was built here: weights, biases and scales are those of the compiled code, not
rounded again.

In both a weight's step is stated such that input step times weight step over result step is the fixed-point multiplier
of our int8 network, so that a runtime that computes in integers rounds the same sums by the same ratio.  Two
differences remain.  ONNX rounds halves to even where `fixed_point` rounds them up, and runtimes multiply by the ratio
in fp32: a sum within about 1e-5 of a half may be rounded the other way, by one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import LARGEST_MULTIPLIER, SHIFT, Array, Scale, multiplier
from socsched.compiler.quantize.network import QuantisedGraph, Step
from socsched.compiler.quantize.scales import key_of
from socsched.compiler.toolchains.onnx_model import to_onnx
from socsched.errors import CompileError
from socsched.graph.expand import layer_types

_CHANNELS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0, "MatMul": 1}
"""Operator with weights -> axis of the weights' output channels."""
_COMPUTING = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Concat")
"""Operators whose constant inputs are values, rather than shapes, axes or bounds."""
_FUSED = ("Relu", "Clip")
_LARGEST = 127


def quantised(model: Any, scales: Mapping[str, Scale], unsigned: bool, whole_gelu: bool = False) -> Any:
    """Return a copy of `model` (ONNX ModelProto, fp32, from `to_onnx`) with every value quantised by `scales`.

    `unsigned`: bytes are stored as uint8, otherwise as int8.  `whole_gelu`: a written-out GELU is rounded at its input
    and result alone, since it becomes one operator.  Raises CompileError naming a value without a scale, which
    is one inside a layer that ONNX writes as several operators.
    """
    import onnx

    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return _ByScales(copied, scales, unsigned, _inside_gelus(copied) if whole_gelu else set()).run()


def _inside_gelus(model: Any) -> set[str]:
    """Return the values inside of each x / 2 (1 + erf(x / sqrt 2)), in any order of its products, but for its result.

    These are the chain of sums and products with constants from the error function on, up to the product with x.
    """
    makers = {node.output[0]: node for node in model.graph.node}
    readers: dict[str, list[Any]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    constants = {entry.name for entry in model.graph.initializer}
    outputs = {value.name for value in model.graph.output}

    def computed(node: Any) -> list[str]:
        return [name for name in node.input if name not in constants]

    def alone(value: str) -> Any | None:
        """Return the only reader of a value that is not an output."""
        found = readers.get(value, [])
        return found[0] if len(found) == 1 and value not in outputs else None

    def scaled(value: str) -> str:
        """Return what a constant scales to make a value, the value itself if none does."""
        maker = makers.get(value)
        return computed(maker)[0] if maker is not None and _scales(maker) and len(computed(maker)) == 1 else value

    inside: set[str] = set()
    for erf in (node for node in model.graph.node if node.op_type == "Erf"):
        x, chain, node = scaled(erf.input[0]), [erf.input[0], erf.output[0]], alone(erf.output[0])
        sums = 0
        while node is not None and node.op_type in ("Add", "Mul") and len(computed(node)) == 1:
            chain.append(node.output[0])
            sums += 1
            node = alone(node.output[0])
        if node is None or node.op_type != "Mul" or x == erf.input[0]:
            continue
        other = next((name for name in node.input if name != chain[-1]), "")
        if x != other and (x != scaled(other) or alone(other) is None):
            continue
        last = alone(node.output[0])
        halved = other if other != x else ""
        if not halved and sums == 1:  # the product with x is halved after it
            if last is None or not _scales(last) or len(computed(last)) > 1:
                continue
            chain.append(node.output[0])
        inside |= {value for value in (*chain, halved) if value and value not in outputs}
    return inside


def _scales(node: Any) -> bool:
    return node.op_type in ("Mul", "Div")


def to_qdq(network: QuantisedGraph, weights: Mapping[str, Array], signed: bool = False) -> Any:
    """Return the ONNX ModelProto of an int8 network whose convolutions' weights are stored as integers.

    Bytes are uint8 about 128 or from 0 on; with `signed` int8 about 0 or from -128 on.  Operators that are computed in
    fp32 stay so.  CompileError for a layer without ONNX operator.
    """
    source = network.graph.network
    return _OfIntegers(network, to_onnx(source, weights, layer_types(source)), signed).run()


def bytes_at_borders(model: Any) -> Any:
    """Return a model with Q/DQ whose inputs and outputs are the int8 tensors, without conversions there."""
    from onnx import TensorProto

    graph = model.graph
    inputs, outputs = {value.name for value in graph.input}, {value.name for value in graph.output}
    kept = []
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in inputs:
            continue
        if node.op_type == "QuantizeLinear" and node.output[0].removesuffix(".bytes") in outputs:
            node.output[0] = node.output[0].removesuffix(".bytes")
        elif node.op_type == "DequantizeLinear" and node.output[0] in outputs:
            node.input[0], node.output[0] = node.output[0], f"{node.output[0]}.inner"
        elif node.op_type == "DequantizeLinear" and node.input[0].removesuffix(".bytes") in inputs:
            node.input[0] = node.input[0].removesuffix(".bytes")
        else:
            for place, name in enumerate(node.input):
                node.input[place] = f"{name}.inner" if name in outputs else name
        kept.append(node)
    read = {name for node in kept for name in node.input}
    del graph.node[:]
    graph.node.extend(node for node in kept if not node.output[0].endswith(".inner") or node.output[0] in read)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.INT8
    return model


class _Writer:
    """The nodes and initialisers of a model that is rewritten in place; `rounded`: value -> its dequantised name."""

    def __init__(self, model: Any, unsigned: bool) -> None:
        self.model, self.graph, self.unsigned = model, model.graph, unsigned
        self.outputs = {value.name for value in model.graph.output}
        self.nodes: list[Any] = []
        self.added: dict[str, Any] = {}
        self.rounded: dict[str, str] = {}

    def add(self, name: str, array: Any) -> str:
        from onnx import numpy_helper

        self.added[name] = numpy_helper.from_array(np.array(array, order="C"), name)  # keeps scalars scalar
        return name

    def round(self, real: str, value: str, scale: Scale, stem: str, final: bool = False) -> None:
        """Quantise and dequantise the tensor `real`; readers of `value` get the result.  `stem` names the scale."""
        from onnx import helper

        zero = -scale.low - (0 if self.unsigned else 128)
        step = self.add(f"{stem}.step", np.float32(scale.step))
        point = self.add(f"{stem}.zero", np.asarray(zero, np.uint8 if self.unsigned else np.int8))
        result = value if final else f"{value}.rounded"
        self.nodes.append(helper.make_node("QuantizeLinear", [real, step, point], [f"{value}.bytes"], f"{value}.q"))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{value}.bytes", step, point], [result], f"{value}.d"))
        self.rounded[value] = result

    def dequantise(self, name: str, stored: str, integers: Any, steps: Any, result: str, **attrs: Any) -> str:
        """Add integers as an initialiser, `stored`, and the node that gives them as the numbers `result`."""
        from onnx import helper

        zero = np.full(np.shape(steps), 128 if integers.dtype == np.uint8 else 0, integers.dtype)
        inputs = [self.add(stored, integers), self.add(f"{name}.step", np.asarray(steps, np.float32))]
        inputs.append(self.add(f"{name}.zero", zero))
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [result], f"{name}.d", **attrs))
        return result

    def finished(self) -> Any:
        """Return the model with the nodes written, and the initialisers that they read."""
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        read = {name for node in self.nodes for name in node.input}
        kept = [entry for entry in self.graph.initializer if entry.name in read]
        del self.graph.initializer[:]
        self.graph.initializer.extend([*kept, *(entry for name, entry in self.added.items() if name in read)])
        return self.model


def _of_other_types(model: Any) -> set[str]:
    """Return the values of a model that are no floats, such as places and masks, which keep their type."""
    from onnx import TensorProto, shape_inference

    graph = shape_inference.infer_shapes(model).graph
    known = (*graph.value_info, *graph.output)
    return {
        value.name
        for value in known
        if value.type.tensor_type.elem_type not in (TensorProto.UNDEFINED, TensorProto.FLOAT)
    }


class _ByScales(_Writer):
    """A model in fp32, rounded by scales: see `quantised`."""

    def __init__(self, model: Any, scales: Mapping[str, Scale], unsigned: bool, inside: set[str]) -> None:
        """Prepare; values `inside` of what becomes one operator keep their numbers, as do the constants they meet."""
        from onnx import numpy_helper

        super().__init__(model, unsigned)
        self.scales, self.inside = scales, inside
        self.constants = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
        self.fused: dict[str, str] = {}
        """Value that is not rounded -> result of the operator that is fused with its own."""
        self.exact: dict[str, Any] = {}
        """Weight -> the steps by which it is rounded."""

    def run(self) -> Any:
        readers: dict[str, list[Any]] = {}
        for node in self.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        whole = _of_other_types(self.model)
        for value in self.graph.input:
            if value.type.tensor_type.elem_type == 1:
                self.round(value.name, value.name, self.scale(value.name), value.name)
        for node in self.graph.node:
            name = node.output[0]
            following = readers.get(name, [])
            if len(following) == 1 and following[0].op_type in _FUSED and name not in self.outputs:
                self.fused[name] = following[0].output[0]
            self.read(node)
            self.nodes.append(node)
            if name in self.fused or name in whole or self.within(name):
                continue
            if name in self.outputs:
                node.output[0] = f"{name}.real"
            self.round(node.output[0], name, self.scale(name), name, final=name in self.outputs)
        return self.finished()

    def within(self, name: str) -> bool:
        """Return whether a value lies inside a layer that ONNX writes as several operators: it is not rounded."""
        return name in self.inside or (name not in self.scales and name.rpartition(".")[0] in self.scales)

    def read(self, node: Any) -> None:
        """Let a node read rounded values."""
        weighted = node.op_type in _CHANNELS and [name in self.constants for name in node.input[:2]] == [False, True]
        exact = not self.inside.isdisjoint((*node.input, *node.output))
        for index, name in enumerate(node.input):
            if weighted and index == 1:
                node.input[1] = self.weight(node, name)
            elif weighted and index == 2 and name in self.constants and self.constants[name].ndim < 2:
                node.input[2] = self.bias(node, name)
            elif (
                name in self.constants
                and not exact
                and node.op_type in _COMPUTING
                and self.constants[node.input[index]].dtype == np.float32
            ):
                node.input[index] = self.constant(name)
            else:
                node.input[index] = self.rounded.get(name, name)

    def scale(self, value: str) -> Scale:
        scale = self.scales.get(value)
        if scale is None:
            raise CompileError(
                f"{self.graph.name}: no scale for {value!r}, a value inside a layer that ONNX writes as several "
                "operators",
                "choose fp16 for this stage, or cut the network before that layer",
            )
        return scale

    def weight(self, node: Any, name: str) -> str:
        turned = node.op_type == "Gemm" and not any(a.name == "transB" and a.i for a in node.attribute)
        axis = 1 if turned else _CHANNELS[node.op_type]
        array = self.constants[name].astype(np.float64)
        others = tuple(a for a in range(array.ndim) if a != axis)
        exact = np.maximum(np.abs(array).max(axis=others), 1e-8) / _LARGEST
        shape = [-1 if a == axis else 1 for a in range(array.ndim)]
        stored = np.clip(np.rint(array / exact.reshape(shape)), -_LARGEST, _LARGEST).astype(np.int8)
        self.exact.setdefault(name, exact)
        source = self.scale(node.input[0].removesuffix(".rounded")).step
        target = self.scale(self.fused.get(node.output[0], node.output[0])).step
        ratio = exact * source / target
        fixed = multiplier(ratio) * 2.0**-SHIFT * float(np.float32(target)) / float(np.float32(source))
        steps = np.where(ratio < LARGEST_MULTIPLIER * 2.0**-SHIFT, fixed, exact).astype(np.float32)
        return self.once(name, stored, steps, axis=axis)

    def bias(self, node: Any, name: str) -> str:
        from onnx import numpy_helper

        source = self.scale(node.input[0].removesuffix(".rounded")).step
        weight = node.input[1].removesuffix(".rounded")
        stored = np.rint(self.constants[name].astype(np.float64) / (self.exact[weight] * source))
        stored = np.clip(stored, -(2**31) + 1, 2**31 - 1).astype(np.int32)
        return self.once(name, stored, np.float32(source) * numpy_helper.to_array(self.added[f"{weight}.step"]), axis=0)

    def constant(self, name: str) -> str:
        array = self.constants[name].astype(np.float32)
        step = np.float32(max(float(np.abs(array).max(initial=0.0)), 1e-8) / _LARGEST)
        zero, dtype = (128, np.uint8) if self.unsigned else (0, np.int8)
        return self.once(name, (np.rint(array / step) + zero).astype(dtype), step)

    def once(self, name: str, integers: Any, steps: Any, **attrs: Any) -> str:
        if name not in self.rounded:
            result = f"{name}.rounded"
            self.rounded[name] = self.dequantise(name, f"{name}.bytes", integers, steps, result, **attrs)
        return self.rounded[name]


class _OfIntegers(_Writer):
    """An int8 network: see `to_qdq`."""

    def __init__(self, network: QuantisedGraph, model: Any, signed: bool) -> None:
        super().__init__(model, not signed)
        self.q = network
        self.makers = {step.output: step for step in network.steps}
        self.layers = {step.group.name: step for step in network.steps if step.layer is not None}

    def run(self) -> Any:
        for value in self.graph.input:
            if self.stored(value.name):
                self.byte(value.name, value.name)
        for node in self.graph.node:
            step = self.layers.get(key_of(node.name).removesuffix("_linear"))
            if step is not None and node.op_type in ("Conv", "ConvTranspose"):
                self.integers(node, step)
            reader = self.reader(node)
            for place, name in enumerate(node.input):
                maker = self.makers.get(key_of(name))
                if name in self.rounded and ((maker and not maker.exact) or not (reader and reader.exact)):
                    node.input[place] = self.rounded[name]
            self.nodes.append(node)
            name = node.output[0]
            if not self.stored(name):
                continue
            final = name in self.outputs and not self.makers[key_of(name)].exact
            if final:
                node.output[0] = f"{name}.real"
            self.byte(node.output[0], name, final)
        return self.finished()

    def byte(self, real: str, value: str, final: bool = False) -> None:
        self.round(real, value, self.q.scales[key_of(value)], f"{value}.bytes", final)

    def reader(self, node: Any) -> Step | None:
        """Return the step that a node is a part of, None for one between steps."""
        names = (key_of(node.output[0]), key_of(node.name))
        return next((step for step in self.q.steps if step.output in names or step.group.name in names), None)

    def stored(self, name: str) -> bool:
        """Return whether a value of the model is stored in bytes: an int8 operator makes or reads it."""
        value, maker = key_of(name), self.makers.get(key_of(name))
        if value in self.q.floats or (maker is None and value not in self.q.graph.inputs):
            return False
        by_int8 = maker is not None and not maker.exact
        return value in self.q.scales and (by_int8 or any(not step.exact for step in self.q.consumers(value)))

    def integers(self, node: Any, step: Step) -> None:
        """Replace a convolution's weight and bias by the integers of the int8 network."""
        assert step.layer is not None
        layer, name = step.layer, node.output[0]
        source = np.float64(np.float32(self.q.scales[step.group.inputs[0]].step))
        if step.output in self.q.floats:
            steps = layer.factor.astype(np.float64) / source
        else:
            target = np.float64(np.float32(self.q.scales[step.output].step))
            steps = layer.multiplier.astype(np.float64) * 2.0**-step.shift * target / source
        steps = steps.astype(np.float32)
        sums = (steps.astype(np.float64) * source).astype(np.float32)
        axis = 1 if step.group.kind == "conv2d_transpose" else 0
        del node.input[1:]
        for part, array, scale, along in (
            ("weight", layer.weight, steps, axis),
            ("bias", layer.bias.astype(np.int32), sums, 0),
        ):
            part = f"{name}.{part}"
            node.input.append(self.dequantise(part, f"{part}.integers", array, scale, f"{part}.real", axis=along))
