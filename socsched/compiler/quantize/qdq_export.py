"""An int8 network as an ONNX file with QuantizeLinear and DequantizeLinear: the same integers, scales and biases.

Weights, biases and scales are those of the compiled network, not rounded again.  A convolution's weight step is stated
such that input step times weight step over result step is the fixed-point multiplier, exactly: a runtime that computes
in integers then rounds the same sums by the same ratio.  Two differences remain.  ONNX rounds halves to even where
`fixed_point` rounds them up, and runtimes multiply by the ratio in fp32: a sum within about 1e-5 of a half may be
rounded the other way, by one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import Array
from socsched.compiler.quantize.network import QuantisedGraph, Step
from socsched.compiler.quantize.scales import key_of
from socsched.compiler.toolchains.onnx_model import to_onnx
from socsched.graph.expand import layer_types


def to_qdq(quantised: QuantisedGraph, weights: Mapping[str, Array], signed: bool = False) -> Any:
    """Return the ONNX ModelProto of an int8 network whose convolutions' weights are stored as integers.

    Bytes are uint8 about 128 or from 0 on; with `signed` int8 about 0 or from -128 on.  Operators that are computed in
    fp32 stay so.  CompileError for a layer without ONNX operator.
    """
    network = quantised.graph.network
    return _Export(quantised, to_onnx(network, weights, layer_types(network)), signed).run()


class _Export:
    def __init__(self, quantised: QuantisedGraph, model: Any, signed: bool) -> None:
        self.q, self.model, self.signed = quantised, model, signed
        self.nodes: list[Any] = []
        self.added: dict[str, Any] = {}
        self.makers = {step.output: step for step in quantised.steps}
        self.layers = {step.group.name: step for step in quantised.steps if step.layer is not None}
        self.rounded: dict[str, str] = {}
        """Value of the model -> its name after rounding to bytes."""

    def run(self) -> Any:
        graph = self.model.graph
        outputs = {value.name for value in graph.output}
        for value in graph.input:
            if self.stored(value.name):
                self.round(value.name, value.name)
        for node in graph.node:
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
            maker = self.makers[key_of(name)]
            final = name in outputs and not maker.exact
            if final:
                node.output[0] = f"{name}.real"
            self.round(node.output[0], name, final)
        del graph.node[:]
        graph.node.extend(self.nodes)
        used = {name for node in self.nodes for name in node.input}
        kept = [entry for entry in graph.initializer if entry.name in used]
        del graph.initializer[:]
        graph.initializer.extend([*kept, *(entry for name, entry in self.added.items() if name in used)])
        return self.model

    def reader(self, node: Any) -> Step | None:
        """Return the step that a node is a part of, None for one between steps."""
        names = (key_of(node.output[0]), key_of(node.name))
        return next(
            (step for step in self.q.steps if step.output in names or step.group.name in names),
            None,
        )

    def stored(self, name: str) -> bool:
        """Return whether a value of the model is stored in bytes: an int8 operator makes or reads it."""
        value, maker = key_of(name), self.makers.get(key_of(name))
        if value in self.q.floats or (maker is None and value not in self.q.graph.inputs):
            return False
        made = maker is not None and not maker.exact
        return value in self.q.scales and (made or any(not step.exact for step in self.q.consumers(value)))

    def round(self, real: str, value: str, final: bool = False) -> None:
        """Quantise and dequantise the tensor `real`; readers of `value` get the result."""
        from onnx import helper

        scale = self.q.scales[key_of(value)]
        zero = (128 if scale.signed else 0) - (128 if self.signed else 0)
        step = self.add(f"{value}.bytes.step", np.asarray(scale.step, np.float32))
        point = self.add(f"{value}.bytes.zero", np.asarray(zero, np.int8 if self.signed else np.uint8))
        result = value if final else f"{value}.rounded"
        self.nodes.append(helper.make_node("QuantizeLinear", [real, step, point], [f"{value}.bytes"], f"{value}.q"))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{value}.bytes", step, point], [result], f"{value}.d"))
        self.rounded[value] = result

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
        axis = 1 if step.group.kind == "conv2d_transpose" else 0
        weight = self.dequantise(f"{name}.weight", layer.weight, steps, axis)
        sums = (steps.astype(np.float64) * source).astype(np.float32)
        bias = self.dequantise(f"{name}.bias", layer.bias.astype(np.int32), sums, 0)
        del node.input[1:]
        node.input.extend([weight, bias])

    def dequantise(self, name: str, integers: Array, steps: Array, axis: int) -> str:
        from onnx import helper

        inputs = [self.add(f"{name}.integers", integers), self.add(f"{name}.step", steps)]
        inputs.append(self.add(f"{name}.zero", np.zeros(steps.shape, integers.dtype)))
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}.real"], f"{name}.d", axis=axis))
        return f"{name}.real"

    def add(self, name: str, array: Array) -> str:
        from onnx import numpy_helper

        self.added[name] = numpy_helper.from_array(np.array(array, order="C"), name)
        return name
