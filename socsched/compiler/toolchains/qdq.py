"""An ONNX model with quantisation stated as QuantizeLinear and DequantizeLinear, as vendors' compilers read it.

Every value of a layer is rounded with its scale: signed values about zero, unsigned ones (after a ReLU) over the whole
range of a byte, as in our own int8 networks.  Weights are symmetric with one scale per output channel, biases are int32
in units of input scale times weight scale.  A weight's step is stated such that input step times weight step over
result step is the fixed-point multiplier of our int8 network, so that the same sums are rounded by the same ratio.  A
value between a convolution or sum and its activation is not rounded: compilers fuse the pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.compiler.quantize.fixed_point import LARGEST_MULTIPLIER, SHIFT, Scale, multiplier
from socsched.errors import CompileError

_CHANNELS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0, "MatMul": 1}
"""Operator with weights -> axis of the weights' output channels."""
_FUSED = ("Relu", "Clip")
_LARGEST = 127


def quantised(model: Any, scales: Mapping[str, Scale], unsigned: bool) -> Any:
    """Return a copy of `model` (ONNX ModelProto, fp32, from `to_onnx`) with every value quantised by `scales`.

    `unsigned`: bytes are stored as uint8, otherwise as int8.  Raises CompileError naming a value without a scale, which
    is one inside a layer that ONNX writes as several operators.
    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    return _Quantiser(made, scales, unsigned).run()


class _Quantiser:
    def __init__(self, model: Any, scales: Mapping[str, Scale], unsigned: bool) -> None:
        from onnx import numpy_helper

        self.model, self.scales, self.unsigned = model, scales, unsigned
        self.constants = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
        self.nodes: list[Any] = []
        self.added: dict[str, Any] = {}
        self.renamed: dict[str, str] = {}
        """Value -> its dequantised name."""
        self.fused: dict[str, str] = {}
        """Value that is not rounded -> result of the operator that is fused with its own."""
        self.exact: dict[str, Any] = {}
        """Weight -> the steps by which it is rounded."""

    def run(self) -> Any:
        graph = self.model.graph
        outputs = {value.name for value in graph.output}
        readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        for value in graph.input:
            if value.type.tensor_type.elem_type == 1:
                self._round(value.name, value.name)
        for node in graph.node:
            name = node.output[0]
            following = readers.get(name, [])
            if len(following) == 1 and following[0].op_type in _FUSED and name not in outputs:
                self.fused[name] = following[0].output[0]
            self._inputs(node)
            self.nodes.append(node)
            if name in self.fused:
                continue
            if name in outputs:
                node.output[0] = f"{name}.real"
            self._round(node.output[0], name, final=name in outputs)
        del graph.node[:]
        graph.node.extend(self.nodes)
        kept = Counter(name for node in self.nodes for name in node.input)
        entries = [entry for entry in graph.initializer if entry.name in kept]
        del graph.initializer[:]
        graph.initializer.extend([*entries, *(entry for name, entry in self.added.items() if name in kept)])
        return self.model

    def _inputs(self, node: Any) -> None:
        axis = _CHANNELS.get(node.op_type)
        weighted = axis is not None and len(node.input) > 1 and node.input[1] in self.constants
        for index, name in enumerate(node.input):
            if weighted and index == 1:
                node.input[1] = self._weight(node, name, self._axis(node, axis or 0))
            elif weighted and index == 2:
                node.input[2] = self._bias(node, name)
            elif name in self.constants and self._is_value(node, index):
                node.input[index] = self._constant(name)
            else:
                node.input[index] = self.renamed.get(name, name)

    @staticmethod
    def _axis(node: Any, axis: int) -> int:
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return axis if node.op_type != "Gemm" or transposed else 1

    def _is_value(self, node: Any, index: int) -> bool:
        """Return whether a constant input is a tensor of the computation rather than a shape, axis or bound."""
        return node.op_type in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Concat") and (
            self.constants[node.input[index]].dtype == np.float32
        )

    def _scale(self, value: str) -> Scale:
        found = self.scales.get(value)
        if found is None:
            raise CompileError(
                f"{self.model.graph.name}: no scale for {value!r}, a value inside a layer that ONNX writes as several "
                "operators",
                "choose fp16 for this stage, or cut the network before that layer",
            )
        return found

    def _round(self, real: str, value: str, final: bool = False) -> None:
        """Quantise and dequantise the tensor `real`; readers of `value` get the result."""
        from onnx import helper

        scale = self._scale(value)
        zero = (128 if scale.signed else 0) - (0 if self.unsigned else 128)
        dtype = np.uint8 if self.unsigned else np.int8
        step = self._add(f"{value}.step", np.float32(scale.step))
        point = self._add(f"{value}.zero", np.asarray(zero, dtype))
        result = value if final else f"{value}.rounded"
        self.nodes.append(helper.make_node("QuantizeLinear", [real, step, point], [f"{value}.bytes"], f"{value}.q"))
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{value}.bytes", step, point], [result], f"{value}.d"))
        self.renamed[value] = result

    def _weight(self, node: Any, name: str, axis: int) -> str:
        array = self.constants[name].astype(np.float64)
        others = tuple(a for a in range(array.ndim) if a != axis)
        exact = np.maximum(np.abs(array).max(axis=others), 1e-8) / _LARGEST
        shape = [-1 if a == axis else 1 for a in range(array.ndim)]
        stored = np.clip(np.rint(array / exact.reshape(shape)), -_LARGEST, _LARGEST).astype(np.int8)
        self.exact.setdefault(name, exact)
        source = self._scale(node.input[0].removesuffix(".rounded")).step
        target = self._scale(self.fused.get(node.output[0], node.output[0])).step
        ratio = exact * source / target
        fixed = multiplier(ratio) * 2.0**-SHIFT * float(np.float32(target)) / float(np.float32(source))
        steps = np.where(ratio < LARGEST_MULTIPLIER * 2.0**-SHIFT, fixed, exact).astype(np.float32)
        return self._stored(name, stored, steps, axis)

    def _bias(self, node: Any, name: str) -> str:
        source = self._scale(node.input[0].removesuffix(".rounded")).step
        weight = node.input[1].removesuffix(".rounded")
        stored = np.rint(self.constants[name].astype(np.float64) / (self.exact[weight] * source))
        stored = np.clip(stored, -(2**31) + 1, 2**31 - 1).astype(np.int32)
        return self._stored(name, stored, np.float32(source) * self.added_array(f"{weight}.step"), 0)

    def _constant(self, name: str) -> str:
        array = self.constants[name].astype(np.float32)
        step = np.float32(max(float(np.abs(array).max(initial=0.0)), 1e-8) / _LARGEST)
        zero = 128 if self.unsigned else 0
        dtype = np.uint8 if self.unsigned else np.int8
        return self._stored(name, (np.rint(array / step) + zero).astype(dtype), step, None)

    def _stored(self, name: str, stored: Any, steps: Any, axis: int | None) -> str:
        from onnx import helper

        result = f"{name}.rounded"
        if name not in self.renamed:
            zero = np.zeros(np.shape(steps), stored.dtype)
            if stored.dtype == np.uint8:
                zero = np.full(np.shape(steps), 128, np.uint8)
            inputs = [self._add(f"{name}.bytes", stored), self._add(f"{name}.step", np.asarray(steps, np.float32))]
            inputs.append(self._add(f"{name}.zero", zero))
            attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
            self.nodes.append(helper.make_node("DequantizeLinear", inputs, [result], f"{name}.d", **attrs))
            self.renamed[name] = result
        return result

    def added_array(self, name: str) -> Any:
        from onnx import numpy_helper

        return numpy_helper.to_array(self.added[name])

    def _add(self, name: str, array: Any) -> str:
        from onnx import numpy_helper

        self.added[name] = numpy_helper.from_array(np.array(array, order="C"), name)  # keeps scalars scalar
        return name
