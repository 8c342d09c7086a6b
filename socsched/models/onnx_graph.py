"""An ONNX file as plain data: nodes with attributes, constants as arrays, the type of every value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.errors import InputError
from socsched.graph.operators import TensorType

Array = np.ndarray[Any, Any]
_QUANTISED = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "ConvInteger", "MatMulInteger", "QLinearMatMul")
_DTYPES = {1: "fp32", 2: "uint8", 3: "int8", 6: "int32", 7: "int64", 9: "bool", 10: "fp16"}
_LARGEST = 2**31
_HINT = "export the network with fixed shapes and float weights, or simplify the file (onnxsim)"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: `op` as ONNX calls it (`domain` "" for its own), `inputs` with "" for an optional one left out."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""


@dataclass(slots=True)
class OnnxGraph:
    """A file's graph: nodes that are left after constant folding, in topological order; `opsets` by domain."""

    path: Path
    nodes: list[Node]
    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    inputs: list[str]
    outputs: list[str]
    opsets: Mapping[str, int] = field(default_factory=dict)

    def tensor(self, name: str) -> TensorType:
        """Return the type of a value; InputError when its shape is not fixed."""
        shape = self.shapes.get(name)
        if shape is None or any(size < 1 for size in shape):
            raise self.error(
                f"the shape of {name!r} is not fixed: {list(shape) if shape else 'unknown'}",
                "export with fixed sizes, or set those of its inputs: params: {shapes: {INPUT: [1, 3, 384, 640]}}",
            )
        return TensorType(shape, self.dtypes.get(name, "fp32"), "NCHW" if len(shape) == 4 else "")

    def error(self, problem: str, hint: str = "export the network with fixed shapes and float weights") -> InputError:
        """Return the error for a problem with this file; `hint` says what would help."""
        return InputError(f"{self.path.name}: {problem}", hint)

    def refused(self, node: Node, problem: str, hint: str = "") -> InputError:
        """Return the error for a node, with its operator and the version of the operator set it is from."""
        domain = f"{node.domain} " if node.domain else ""
        where = f"{node.op}, {domain}opset {self.opsets.get(node.domain, '?')}"
        return self.error(f"{node.name}: {problem} ({where})", hint or _HINT)


def read(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> OnnxGraph:
    """Return the graph of a file with constants folded; InputError when it is no ONNX file or quantised.

    `shapes` sets what the file leaves open of its inputs' sizes; InputError where the file says otherwise.
    """
    import onnx
    from onnx import numpy_helper, shape_inference

    if path.stat().st_size > _LARGEST:
        raise InputError(f"{path}: larger than 2 GiB", "ONNX files with external data are not read")
    try:
        model = onnx.load(str(path), load_external_data=False)
        _fix(model, path, shapes or {})
        model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except InputError:
        raise
    except Exception as error:  # the reader raises its own, protobuf's and plain errors
        raise InputError(
            f"{path}: not a usable ONNX file: {_first_line(error)}", "check it with onnx.checker"
        ) from None
    proto = model.graph
    constants = {item.name: np.asarray(numpy_helper.to_array(item)) for item in proto.initializer}
    graph = OnnxGraph(path, [], constants, {}, {}, [], [item.name for item in proto.output])
    graph.opsets = {_domain(item.domain): item.version for item in model.opset_import}
    graph.inputs = [item.name for item in proto.input if item.name not in constants]
    for item in (*proto.input, *proto.value_info, *proto.output):
        tensor = item.type.tensor_type
        graph.dtypes[item.name] = _DTYPES.get(tensor.elem_type, "fp32")
        if tensor.HasField("shape"):
            graph.shapes[item.name] = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim)
    for index, node in enumerate(proto.node):
        _add(graph, index, node, model)
    return graph


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _fix(model: Any, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Set sizes of the inputs to `shapes` and a symbolic batch to 1, and drop what was inferred with them."""
    initial = {item.name for item in model.graph.initializer}
    inputs = {item.name: item for item in model.graph.input if item.name not in initial}
    for name, sizes in shapes.items():
        if name not in inputs:
            raise InputError(f"{path.name}: shapes: the file has no input {name!r}", f"there are: {', '.join(inputs)}")
        dims = inputs[name].type.tensor_type.shape.dim
        said = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        if len(said) != len(sizes) or any(own not in (None, size) for own, size in zip(said, sizes, strict=True)):
            known = ", ".join("?" if own is None else str(own) for own in said)
            raise InputError(f"{path.name}: shapes: {name} is [{known}], not {list(sizes)}", "give what ? stands for")
        for dim, size in zip(dims, sizes, strict=True):
            dim.dim_value = size
    for item in model.graph.input:
        dims = item.type.tensor_type.shape.dim
        if item.name not in initial and dims and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
    del model.graph.value_info[:]
    for item in model.graph.output:
        item.type.tensor_type.ClearField("shape")


def _first_line(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error)).strip()[:200]


def _add(graph: OnnxGraph, index: int, proto: Any, model: Any) -> None:
    from onnx import helper

    attrs = {item.name: _attribute(helper.get_attribute_value(item)) for item in proto.attribute}
    name = proto.name or f"{proto.op_type} number {index}"
    node = Node(name, proto.op_type, tuple(proto.input), tuple(proto.output), attrs, _domain(proto.domain))
    if node.op in _QUANTISED:
        raise graph.refused(
            node, "files with quantised operators are not read", "export the float model; scales come from calibration"
        )
    if node.op == "Constant":
        graph.constants[node.outputs[0]] = _constant(graph, node)
    elif node.op == "Shape" and (shape := graph.shapes.get(node.inputs[0])) and min(shape, default=1) > 0:
        graph.constants[node.outputs[0]] = np.array(shape, np.int64)[attrs.get("start", 0) : attrs.get("end")]
    elif node.inputs and all(source in graph.constants for source in node.inputs if source):
        graph.constants.update(_folded(graph, node, proto, model))
    else:
        graph.nodes.append(node)


def _attribute(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else list(value) if isinstance(value, (list, tuple)) else value


def _constant(graph: OnnxGraph, node: Node) -> Array:
    from onnx import numpy_helper

    for key, value in node.attrs.items():
        if key == "value":
            return np.asarray(numpy_helper.to_array(value))
        if key in ("value_float", "value_floats"):
            return np.array(value, np.float32)
        if key in ("value_int", "value_ints"):
            return np.array(value, np.int64)
    raise graph.error(f"{node.name}: Constant without a numeric value")


def _folded(graph: OnnxGraph, node: Node, proto: Any, model: Any) -> dict[str, Array]:
    """Return the outputs of a node whose inputs are all constant, as the reference implementation computes them."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    sources = [name for name in node.inputs if name]
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(graph.constants[n].dtype), None)
        for n in sources
    ]
    outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.outputs]
    single = helper.make_graph([proto], "one", inputs, outputs)
    try:
        evaluator = ReferenceEvaluator(helper.make_model(single, opset_imports=model.opset_import))
        results = evaluator.run(None, {name: graph.constants[name] for name in sources})
    except Exception as error:
        raise graph.error(f"{node.name}: {node.op} of constants cannot be computed: {_first_line(error)}") from None
    return {name: np.asarray(value) for name, value in zip(node.outputs, results, strict=True)}
