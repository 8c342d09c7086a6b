"""An ONNX file as plain data: nodes with attributes, constants as arrays, the type of every value; constants folded.

Operators that compute shapes and indices are folded, with bounds on their results.  Any other operator with constant
inputs (loops, regular expressions, convolutions) is left as a node, which translation refuses: its run time is
unbounded, and no export needs it folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from socsched.errors import InputError, OpenShape, UnknownOperator
from socsched.graph.operators import TensorType
from socsched.models.onnx_file import MOST_NODES, OnnxFile, body, branch, first_line, written_out
from socsched.models.onnx_integers import on_floats

Array = np.ndarray[Any, Any]
_DTYPES = {
    1: "fp32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "fp16",
    11: "fp64", 12: "uint32", 13: "uint64",
}  # fmt: skip
_CODES = {name: code for code, name in _DTYPES.items()}
DTYPES_OF = {
    np.dtype(kind): name
    for kind, name in (("f4", "fp32"), ("f2", "fp16"), ("f8", "fp64"), ("i8", "int64"), ("i4", "int32"), ("?", "bool"))
} | {np.dtype(name): name for name in ("uint8", "int8", "uint16", "int16", "uint32", "uint64")}
"""Names of data types of constants."""
_NUMPY = {name: dtype for dtype, name in DTYPES_OF.items()}
_SHAPELIKE = 64
"""Elements up to which a constant may determine the shape of a result."""
MOST_ELEMENTS = 2**31
"""Elements of a tensor: more than any automotive network has."""
FORMS = (ArithmeticError, AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a node that is not of its operator's form ends in, wherever that shows."""
_HINT = "export the network with fixed shapes and float weights, or simplify the file (onnxsim)"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator: `op` is its ONNX name (`domain` "" for ONNX's own), `inputs` has "" for an omitted optional one."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    graphs: bool = False
    """Whether it holds graphs, as loops do."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A constant that is stored as integers: its values, and the step of each index along `axis` (-1: one for all).

    `steps` is empty for integers that kernels cannot multiply: about another zero than that of their type, or -128.
    """

    values: Array
    steps: tuple[float, ...]
    axis: int


@dataclass(slots=True)
class OnnxGraph:
    """A file's graph: the nodes that remain after constant folding, in topological order; `opsets` by domain."""

    path: Path
    nodes: list[Node]
    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    inputs: list[str]
    outputs: list[str]
    opsets: Mapping[str, int] = field(default_factory=dict)
    steps: dict[str, Stored] = field(default_factory=dict)
    """Constants that the file stores as integers."""
    varying: set[str] = field(default_factory=set)
    """Values whose size depends on computed values, and is taken to be the largest that it can be."""
    open_batch: tuple[str, ...] = ()
    """Inputs whose batch the file leaves open; it is taken to be 1."""
    dynamic: set[str] = field(default_factory=set)
    """Bytes whose scale is computed at run time: whole numbers in 0..255 here."""

    def tensor(self, name: str) -> TensorType:
        """Return the type of a value; InputError when its shape is not fixed."""
        shape = self.shapes.get(name)
        if self.dtypes.get(name) == "":
            raise self.error(f"{name!r} holds no numbers of a type that is known", "export it in fp32, or in integers")
        if shape is not None and math.prod(shape) > MOST_ELEMENTS:
            raise self.error(f"{name!r} has the shape {list(shape)}: more than {MOST_ELEMENTS} values")
        if self.is_empty(name):
            raise self.error(f"{name!r} has no values: its shape is {list(shape or ())}", "leave it out of the export")
        if shape is None or any(size < 1 for size in shape):
            raise OpenShape(
                f"{self.path.name}: the shape of {name!r} is not fixed: {list(shape) if shape else 'unknown'}",
                "export with fixed sizes, or set those of its inputs: --shape INPUT=1x3x384x640, --dim NAME=1..8, or "
                "in a pipeline params: {shapes: {INPUT: [1, 3, 384, 640]}, dims: {NAME: 1..8}}",
            )
        return TensorType(shape, self.dtypes.get(name, "fp32"), "NCHW" if len(shape) == 4 else "")

    def is_empty(self, name: str) -> bool:
        """Return whether a value is known to have no elements: it is a constant then."""
        return bool(name) and min(self.shapes.get(name, (1,)), default=1) == 0

    def fixed(self, name: str) -> bool:
        """Return whether every dimension of a value is known."""
        return name in self.shapes and min(self.shapes[name], default=1) > 0

    def error(self, problem: str, hint: str = "export the network with fixed shapes and float weights") -> InputError:
        """Return the error for a problem with this file; `hint` suggests a remedy."""
        return InputError(f"{self.path.name}: {problem}", hint)

    def refused(self, node: Node, problem: str, hint: str = "") -> UnknownOperator:
        """Return the error for a node, with its operator and operator-set version."""
        domain = f"{node.domain} " if node.domain else ""
        where = f"{node.op}, {domain}opset {self.opsets.get(node.domain, '?')}"
        return UnknownOperator(f"{self.path.name}: {node.name}: {problem} ({where})", hint or _HINT)


def read(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None, values: bool = True) -> OnnxGraph:
    """Return the graph of a file with constants folded; InputError if it is no ONNX file or computes in integers.

    `shapes` sets input sizes that the file leaves open; InputError where they contradict the file.  Without `values`,
    large weights have their shape only.
    """
    file = OnnxFile(path, values)
    model = file.model = written_out(file.model)
    open_batch = _fix(model, path, shapes or {})
    held = model.graph
    graph = OnnxGraph(path, [], dict(file.constants), {}, {}, [], [item.name for item in held.output])
    graph.opsets = {_domain(item.domain): item.version for item in model.opset_import}
    graph.open_batch = open_batch
    graph.inputs = [item.name for item in held.input if item.name not in graph.constants]
    for item in (*held.input, *held.value_info, *held.output):
        tensor = item.type.tensor_type
        if tensor.elem_type:
            graph.dtypes[item.name] = _DTYPES.get(tensor.elem_type, "")
        if tensor.HasField("shape"):
            graph.shapes[item.name] = _shape(tensor)
    fold = _Folding(graph, file, model.opset_import)
    queue = list(reversed(held.node))
    for index in range(MOST_NODES):
        if not queue:
            return graph
        proto = queue.pop()
        try:
            queue += reversed(fold.add(index, proto))
        except FORMS as error:
            known = f": {first_line(error)}" if str(error) else ""
            raise graph.error(
                f"{proto.name or proto.op_type}: no form of {proto.op_type} that is understood{known}"
            ) from None
    raise graph.error(f"more than {MOST_NODES} nodes, those of its branches included")


def _shape(kind: Any) -> tuple[int, ...]:
    """Return the shape of a tensor's type, -1 where a size is open."""
    return tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _fix(model: Any, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Set input sizes to `shapes` and a symbolic batch to 1, and drop the shapes inferred from the old ones.

    Returns the inputs whose batch is open.
    """
    initial = {item.name for item in model.graph.initializer}
    inputs = {item.name: item for item in model.graph.input if item.name not in initial}
    for name, sizes in shapes.items():
        if name not in inputs:
            raise InputError(f"{path.name}: shapes: the file has no input {name!r}", f"there are: {', '.join(inputs)}")
        dims = inputs[name].type.tensor_type.shape.dim
        said = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
        fits = len(said) == len(sizes) and all(
            not size or own in (None, size) for own, size in zip(said, sizes, strict=True)
        )
        if not fits:
            stated = ", ".join("?" if own is None else str(own) for own in said)
            raise InputError(f"{path.name}: shapes: {name} is [{stated}], not {list(sizes)}", "give what ? stands for")
        for dim, size in zip(dims, sizes, strict=True):
            if size:  # 0: it stays open
                dim.dim_value = size
    open_batch = []
    for item in model.graph.input:
        dims = item.type.tensor_type.shape.dim
        if item.name not in initial and dims and not dims[0].HasField("dim_value"):
            dims[0].dim_value = 1
            open_batch.append(item.name)
    del model.graph.value_info[:]
    for item in model.graph.output:
        item.type.tensor_type.ClearField("shape")
    return tuple(open_batch)


def dequantised(graph: OnnxGraph, node: Node) -> Stored:
    """Return a constant that a file stores as bytes or int32 with steps; InputError if its scales do not fit."""
    inputs = [graph.constants[name] if name else None for name in node.inputs]
    stored, scale = inputs[0], inputs[1] if len(inputs) > 1 else None
    if stored is None or scale is None or stored.dtype not in (np.int8, np.uint8, np.int32):
        raise graph.refused(node, "only int8, uint8 and int32 are dequantised", "export in int8")
    zero = inputs[2] if len(inputs) > 2 and inputs[2] is not None else np.zeros((), stored.dtype)
    steps = scale.reshape(-1).astype(np.float64)
    axis = int(node.attrs.get("axis", 1)) if scale.size > 1 else -1
    axis = axis + stored.ndim if axis < 0 <= axis + stored.ndim and scale.size > 1 else axis
    if scale.ndim > 1 or (scale.size > 1 and (not 0 <= axis < stored.ndim or stored.shape[axis] != scale.size)):
        raise graph.refused(node, "its scales fit no axis of the weights", "use one scale, or one a channel")
    if zero.size not in (1, scale.size):
        raise graph.refused(node, "it has another number of zero points than of scales", "check it with onnx.checker")
    if not np.all(np.isfinite(steps) & (steps > 0)):
        raise graph.refused(node, "a scale is no positive number", "quantise the network again")
    shape = [-1 if place == axis else 1 for place in range(stored.ndim)]

    def along(array: Array) -> Array:
        return array.reshape(shape) if array.size > 1 else array.reshape(())

    wide = stored.astype(np.int64) - along(zero.astype(np.int64))
    values = np.asarray(wide * along(steps), np.float32).reshape(stored.shape)
    middle = 128 if stored.dtype == np.uint8 else 0
    multiplied = bool(np.all(zero == middle)) and (stored.dtype == np.int32 or wide.min(initial=0) >= -127)
    return Stored(values, tuple(map(float, steps)) if multiplied else (), axis)


def rounded(graph: OnnxGraph, node: Node) -> Array:
    """Return a constant that a file states as numbers and rounds to bytes; InputError if its scales do not fit."""
    values, scale = graph.constants[node.inputs[0]], graph.constants[node.inputs[1]]
    zero = graph.constants[node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else np.zeros((), np.uint8)
    axis = int(node.attrs.get("axis", 1))
    if zero.dtype not in (np.int8, np.uint8) or scale.ndim > 1 or not np.all(np.isfinite(scale) & (scale > 0)):
        raise graph.refused(node, "only bytes with positive scales, one or one a channel, are read", "export in int8")
    shape: list[int] = []
    if scale.size > 1:
        if not -values.ndim <= axis < values.ndim or values.shape[axis] != scale.size or zero.size != scale.size:
            raise graph.refused(node, "its scales fit no axis of the weights", "use one scale, or one a channel")
        shape = [-1 if place == axis % values.ndim else 1 for place in range(values.ndim)]
    bounds = np.iinfo(zero.dtype)
    quotient = np.rint(values / scale.reshape(shape)) + zero.reshape(shape).astype(np.float32)
    return np.asarray(np.clip(quotient, bounds.min, bounds.max).astype(zero.dtype))


class _Folding:
    """Processes nodes one by one: those with constant inputs are computed, the others kept."""

    def __init__(self, graph: OnnxGraph, file: OnnxFile, opsets: Any) -> None:
        from onnx import checker

        self.graph, self.file, self.opsets = graph, file, opsets
        self.count = self.elements = 0
        self.unrolled = Unrolled(graph, file.array)
        self.context = checker.C.CheckerContext()
        self.context.ir_version = file.model.ir_version
        self.context.opset_imports = graph.opsets

    def add(self, index: int, proto: Any) -> list[Any]:
        """Take a node of the file; returns the nodes that stand in its place: those of the branch that an If takes."""
        from onnx import helper

        graph = self.graph
        name = proto.name or f"{proto.op_type} number {index}"
        graphs = any(item.type in (item.GRAPH, item.GRAPHS) for item in proto.attribute)
        stated = (
            (item.name, helper.get_attribute_value(item))
            for item in proto.attribute
            if item.type not in (item.GRAPH, item.GRAPHS)  # control flow: written out, or refused by name
            and not item.ref_attr_name  # of a function that this is no part of
        )
        self.check(proto, name, graphs)
        attrs = {name: _attribute(value) for name, value in stated if value is not None}
        node = Node(name, proto.op_type, tuple(proto.input), tuple(proto.output), attrs, _domain(proto.domain), graphs)
        if not node.outputs:
            raise graph.refused(node, "it has no output")
        if self.unrolled.takes(node):
            return self.unrolled.rewrite(index, node, proto)
        leaves = node.op == "DynamicQuantizeLinear" and not set(graph.outputs).isdisjoint(node.outputs)
        try:
            if (
                not leaves
                and (plain := on_floats(proto, name, graph.dynamic, [self.rank(one) for one in node.inputs]))
                is not None
            ):
                return plain
        except FORMS:  # it stays an operator on integers
            pass
        constant = all(source in graph.constants for source in node.inputs if source)
        if node.op == "Constant" and not node.domain:
            graph.constants[node.outputs[0]] = self.constant(node)
        elif node.op == "Shape" and node.inputs and (shape := graph.shapes.get(node.inputs[0])) and min(shape) > 0:
            graph.constants[node.outputs[0]] = np.array(shape, np.int64)[attrs.get("start", 0) : attrs.get("end")]
        elif node.op == "Identity" and constant and not node.domain and node.inputs:  # a weight that layers share
            graph.constants[node.outputs[0]] = graph.constants[node.inputs[0]]
        elif node.inputs and constant and not node.domain and node.op in FOLDED and not _interpolates(node):
            graph.constants.update(self.folded(node, proto))
        elif node.op == "QuantizeLinear" and constant and not node.domain and len(node.inputs) > 1:
            graph.constants[node.outputs[0]] = rounded(graph, node)
        elif node.op == "DequantizeLinear" and constant and not node.domain and node.inputs:
            stored = dequantised(graph, node)
            graph.constants[node.outputs[0]], graph.steps[node.outputs[0]] = stored.values, stored
        else:
            self.infer(node, proto)
            for one in filter(graph.is_empty, node.outputs):
                graph.constants[one] = np.zeros(graph.shapes[one], _NUMPY.get(graph.dtypes.get(one, "fp32"), "f4"))
            if any(one not in graph.constants for one in node.outputs if one):
                graph.nodes.append(node)
        return []

    def check(self, proto: Any, name: str, graphs: bool) -> None:
        """Refuse a node whose inputs, outputs or attributes are not those of its operator, as runtimes do."""
        from onnx import checker, defs

        opset = self.graph.opsets.get("", 1)
        if graphs or _domain(proto.domain) or proto.op_type == "Constant" or not defs.has(proto.op_type, opset, ""):
            return
        try:
            checker.check_node(proto, self.context)
        except checker.ValidationError as error:
            problem = f"{name}: is no {proto.op_type} of opset {opset}: {first_line(error)}"
            raise self.graph.error(problem, "check the file with onnx.checker") from None

    def infer(self, node: Node, proto: Any) -> None:
        """Set the types of a node's results, from those of its inputs and the constants folded above."""
        graph = self.graph
        if not graph.varying.isdisjoint(node.inputs):
            graph.varying.update(node.outputs)
        if all(graph.fixed(name) for name in node.outputs if name):
            return
        shapes = [
            tuple(graph.constants[name].shape) if name in graph.constants else graph.shapes.get(name, (-1,))
            for name in node.inputs
        ]
        for name, kind in ({} if node.domain else self.inferred(node, proto)).items():
            if kind.elem_type:
                graph.dtypes[name] = _DTYPES.get(kind.elem_type, "")
            if kind.HasField("shape"):
                graph.shapes[name] = _shape(kind)
        for name, (shape, dtype) in bounds(node, shapes, graph.constants).items():
            if not graph.fixed(name) and not graph.is_empty(name):
                if node.op in VARYING and not node.domain:
                    graph.varying.add(name)
                graph.shapes[name] = shape
                graph.dtypes[name] = dtype or self.dtype(node.inputs[0])

    def rank(self, name: str) -> int:
        """Return the number of a value's dimensions, 0 where it is not known."""
        return len(
            self.graph.constants[name].shape if name in self.graph.constants else self.graph.shapes.get(name, ())
        )

    def dtype(self, name: str) -> str:
        array = self.graph.constants.get(name)
        return DTYPES_OF.get(array.dtype, "fp32") if array is not None else self.graph.dtypes.get(name, "fp32")

    def inferred(self, node: Node, proto: Any) -> Mapping[str, Any]:
        """Return the types of a node's results by ONNX's own inference, none where it does not know them."""
        from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

        graph = self.graph
        types: dict[str, Any] = {}
        data: dict[str, Any] = {}
        for name in filter(None, node.inputs):
            array = graph.constants.get(name)
            if array is not None:
                types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                if array.size <= _SHAPELIKE:
                    data[name] = numpy_helper.from_array(np.array(array), name)
            elif graph.fixed(name):
                code = _CODES.get(graph.dtypes.get(name, "fp32"), TensorProto.FLOAT)
                types[name] = helper.make_tensor_type_proto(code, graph.shapes[name])
            else:
                return {}
        try:
            schema, version = defs.get_schema(node.op, graph.opsets.get("", 1), ""), self.file.model.ir_version
            found = shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=list(self.opsets), ir_version=version
            )
        except Exception:  # the shape stays unknown, which is reported where it is needed
            return {}
        return {name: result.tensor_type for name, result in found.items()}

    def constant(self, node: Node) -> Array:
        for key, value in node.attrs.items():
            if key == "value":
                return self.file.array(value)
            if key in ("value_float", "value_floats"):
                return np.array(value, np.float32)
            if key in ("value_int", "value_ints"):
                return np.array(value, np.int64)
        raise self.graph.error(f"{node.name}: Constant without a numeric value")

    def folded(self, node: Node, proto: Any) -> dict[str, Array]:
        """Return the outputs of a node whose inputs are all constant, as the reference implementation computes them."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        graph = self.graph
        sources = [name for name in dict.fromkeys(node.inputs) if name]
        arrays = [graph.constants[name] for name in node.inputs if name]
        try:
            results = [_shape(kind) for kind in self.inferred(node, proto).values() if kind.HasField("shape")]
            if not results or min((side for shape in results for side in shape), default=0) < 0:
                raise ValueError("the size of its result is not known")
            work = operations(node, [array.shape for array in arrays], results) // (2 if node.op == "Einsum" else 512)
            size = max(sum(map(math.prod, results)), work)
            self.count += 1
            self.elements += size
            largest = max(MOST_FOLDED_ELEMENTS, 2 * max(array.size for array in arrays))
            room = MOST_TOTAL + 4 * sum(array.size for array in self.file.constants.values())
            if not 0 <= size <= largest or self.elements > room or self.count > MOST_FOLDED:
                raise graph.refused(node, f"folding constants makes too many values ({size} here)", _HINT)
            if node.op in DIRECT:
                return dict(zip(node.outputs, DIRECT[node.op](arrays, node.attrs), strict=True))
            inputs = [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(graph.constants[n].dtype), None)
                for n in sources
            ]
            outputs = [helper.make_tensor_value_info(name, 0, None) for name in node.outputs]
            single = helper.make_graph([proto], "one", inputs, outputs)
            evaluator = ReferenceEvaluator(helper.make_model(single, opset_imports=self.opsets))
            with np.errstate(all="ignore"):
                results = evaluator.run(None, {name: graph.constants[name] for name in sources})
            arrays_out = [np.asarray(value) for value in results]
        except InputError:
            raise
        except Exception as error:  # numpy and the evaluator may raise anything for inputs that do not fit
            raise graph.error(f"{node.name}: {node.op} of constants cannot be computed: {first_line(error)}") from None
        return dict(zip(node.outputs, arrays_out, strict=True))


def _interpolates(node: Node) -> bool:
    """Return whether a node is a Resize between values, as of embeddings of places, which stays a layer."""
    other = any(node.attrs.get(name) for name in ("axes", "antialias"))
    return node.op == "Resize" and (other or node.attrs.get("mode", "nearest") != "nearest")


def _attribute(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return list(value) if isinstance(value, (list, tuple)) else value


MOST_FOLDED_ELEMENTS = 2**24
"""Elements that a node may produce from smaller inputs."""
MOST_FOLDED = 12_000
"""Nodes folded per file."""
MOST_TOTAL = 2**26
"""Elements that all folded nodes may produce, in addition to the file's own tensors."""


def _scattered(inputs: Sequence[Array], attrs: Any) -> list[Array]:
    """Return ScatterND at once; the reference implementation goes through the places one by one."""
    data, places, updates = inputs
    if attrs.get("reduction", "none") != "none":
        raise ValueError("scattering with a reduction is not known")
    result = data.copy()
    result[tuple(np.moveaxis(places, -1, 0))] = updates
    return [result]


def _picked(inputs: Sequence[Array], attrs: Any) -> list[Array]:
    """Return GatherElements at once; the reference implementation fails where rows are shared."""
    data, places = inputs
    axis = int(attrs.get("axis", 0))
    kept = tuple(slice(None) if side == axis % data.ndim else slice(size) for side, size in enumerate(places.shape))
    return [np.take_along_axis(data[kept], places, axis)]


def _picked_rows(inputs: Sequence[Array], attrs: Any) -> list[Array]:
    """Return GatherND at once; the reference implementation goes through the places one by one."""
    data, places = inputs
    lead = data.shape[: int(attrs.get("batch_dims", 0))]
    data, places = (array.reshape(-1, *array.shape[len(lead) :]) for array in (data, places))
    rows = [one[tuple(np.moveaxis(where, -1, 0))] for one, where in zip(data, places, strict=True)]
    return [np.stack(rows).reshape(*lead, *rows[0].shape)]


def _enlarged_sides(inputs: Sequence[Array]) -> list[int]:
    data, last = inputs[0], inputs[-1]
    if last.size != data.ndim or (last.dtype.kind == "f" and not np.all(last > 0)):
        raise ValueError("its sizes do not fit")
    if last.dtype.kind == "f":
        return [int(side * scale) for side, scale in zip(data.shape, last, strict=True)]
    return [int(side) for side in last]


def _nearest(inputs: Sequence[Array], attrs: Any) -> list[Array]:
    """Return a Resize to the nearest at once; the reference implementation goes from element to element."""
    data, sides = inputs[0], _enlarged_sides(inputs)
    turns: dict[str, Callable[[Array], Array]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    }
    rounding = turns[attrs.get("nearest_mode", "round_prefer_floor")]
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode not in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"):
        raise ValueError(f"{mode} is not known of constants")
    places = []
    for axis, (old, new) in enumerate(zip(data.shape, sides, strict=True)):
        scale = np.float32(inputs[-1][axis] if inputs[-1].dtype.kind == "f" else new / old)
        at = np.arange(new, dtype=np.float32)  # in fp32, as runtimes compute: ties depend on it
        if mode == "align_corners":
            where = at * np.float32(old - 1) / np.float32(max(new - 1, 1))
        elif mode == "asymmetric":
            where = at / scale
        else:
            half = np.float32(0.5)
            where = (at + half) / scale - half if new > 1 or mode == "half_pixel" else 0 * at
        places.append(np.clip(rounding(where), 0, old - 1).astype(np.int64))
    return [data[np.ix_(*places)]]


DIRECT: dict[str, Callable[[Sequence[Array], Any], list[Array]]] = {
    "ScatterND": _scattered,
    "GatherElements": _picked,
    "GatherND": _picked_rows,
    "Resize": _nearest,
}
"""Operators that are folded without the reference implementation."""
FOLDED = frozenset(
    ("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Concat", "ConstantOfShape", "Cos", "CumSum", "Div", "Einsum",
     "Equal", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gemm", "Greater",
     "GreaterOrEqual", "Identity", "LayerNormalization", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Min", "Mod",
     "Mul", "Neg", "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
     "ReduceSum", "Relu", "Reshape", "Resize", "Round", "ScatterND", "Shape", "Sigmoid", "Sin", "Size", "Slice",
     "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where")
)  # fmt: skip
"""Operators that are computed where their inputs are constant."""


# Types of results that ONNX's shape inference leaves open (sizes that depend on values, other domains), and work.
#
# A size that depends on computed values (how many boxes are left, how many elements are not zero) is taken to be the
# largest that it can be: plans hold for that, runs stay below it.


VARYING = frozenset(("NonZero", "NonMaxSuppression", "Compress", "Unique", "Slice", "TopK"))
"""Operators whose results may be smaller than stated here."""
Shape = tuple[int, ...]
Result = tuple[Shape, str]
"""Shape and data type, "" for that of the first input."""
Constants = Mapping[str, np.ndarray[Any, Any]]


def bounds(node: Node, shapes: Sequence[Shape], constants: Constants) -> dict[str, Result]:
    """Return the types of a node's results by name, none where no rule knows the operator or an input's shape."""
    rule = _RULES.get((node.domain, node.op)) or _RULES.get(("", node.op) if node.domain == _MICROSOFT else ("", ""))
    if rule is None or any(min(shape, default=1) < 0 for shape in shapes):
        return {}
    try:
        results = rule(node, shapes, constants)
    except (IndexError, KeyError, ValueError, TypeError):  # inputs of other ranks than the operator has
        return {}
    return {name: result for name, result in zip(node.outputs, results, strict=False) if name}


Rule = Callable[["Node", Sequence[Shape], Constants], list[Result]]


def _value(node: Node, place: int, constants: Constants) -> int | None:
    """Return a constant input of one value; None where it is left out or computed."""
    array = constants.get(node.inputs[place]) if place < len(node.inputs) else None
    return int(array.reshape(-1)[0]) if array is not None and array.size else None


def _suppressed(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """Boxes [batch, boxes, 4] and scores [batch, classes, boxes]: at most so many boxes of each class."""
    batch, boxes, _ = shapes[0]
    most = _value(node, 2, constants)
    return [((max(batch * shapes[1][1] * min(boxes if most is None else most, boxes), 1), 3), "int64")]


def _compressed(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    chosen, shape = constants.get(node.inputs[1]), shapes[0]
    axis = node.attrs.get("axis")
    if axis is None:
        shape, axis = (prod(shape),), 0
    most = int(chosen.sum()) if chosen is not None else min(shapes[1][0], shape[axis])
    axis %= len(shape)
    return [((*shape[:axis], most, *shape[axis + 1 :]), "")]


def _unique(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    axis, shape = node.attrs.get("axis"), shapes[0]
    count = prod(shape) if axis is None else shape[axis]
    return [(shape if axis is not None else (count,), ""), *[((count,), "int64")] * 3]


def _efficient_nms(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """TensorRT's plugins: boxes and scores of a fixed number of detections, and how many of them count."""
    batch, most = shapes[0][0], int(node.attrs.get("max_output_boxes", node.attrs.get("keepTopK", 100)))
    count = [((batch, 1), "int32"), ((batch, most, 4), ""), ((batch, most), "")]
    kind = "int32" if node.op == "EfficientNMS_TRT" else ""
    return [*count, ((batch, most), kind)]


def _slid(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """Return the result of a convolution of another domain, whose attributes are those of Conv."""
    data, weight = shapes[0], shapes[{"MMCVModulatedDeformConv2d": 3, "MMCVDeformConv2d": 2}.get(node.op, 1)]
    rank = len(data) - 2
    strides, dilations = (
        list(node.attrs.get(name) or node.attrs.get(short) or [1] * rank)
        for name, short in (("strides", "stride"), ("dilations", "dilation"))
    )
    pads = list(node.attrs.get("pads") or [*(node.attrs.get("padding") or [0] * rank)] * 2)
    sides = [
        (data[2 + n] + pads[n] + pads[n + rank] - dilations[n] * (weight[2 + n] - 1) - 1) // strides[n] + 1
        for n in range(rank)
    ]
    return [((data[0], weight[0], *sides), "")]


def _deformable_attention(node: Node, shapes: Sequence[Shape], constants: Constants) -> list[Result]:
    """Values [batch, keys, heads, width], places [batch, queries, heads, levels, points, 2]."""
    values, places = shapes[0], next(shape for shape in shapes if len(shape) == 6)
    return [((values[0], places[1], values[2] * values[3]), "")]


_MICROSOFT = "com.microsoft"
_ACTIVATIONS = (*("SkipSimplifiedLayerNormalization", "BiasAdd", "RotaryEmbedding", "MultiHeadAttention"),)
_AS_FIRST: Rule = lambda node, shapes, _: [(shapes[0], "")]  # noqa: E731
"""At most the whole of the first input: what a Slice with computed ends leaves, activations of other domains."""
_RULES: dict[tuple[str, str], Rule] = {
    **dict.fromkeys(
        (("", name) for name in ("Gelu", "GroupNormalization", "LayerNormalization", "MeanVarianceNormalization",
                                 "SimplifiedLayerNormalization")), _AS_FIRST,
    ),
    ("", "NonZero"): lambda node, shapes, _: [((len(shapes[0]), max(prod(shapes[0]), 1)), "int64")],
    ("", "NonMaxSuppression"): _suppressed,
    ("", "Compress"): _compressed,
    ("", "Unique"): _unique,
    ("", "Slice"): _AS_FIRST,
    ("", "TopK"): lambda node, shapes, _: [(shapes[0], ""), (shapes[0], "int64")],  # all places
    **dict.fromkeys(((_MICROSOFT, name) for name in _ACTIVATIONS), _AS_FIRST),
    (_MICROSOFT, "Attention"): lambda node, shapes, constants: [((*shapes[0][:2], shapes[1][1] // 3), "")],
    **dict.fromkeys(
        ((domain, name)
         for domain in ("", "TRT", "trt.plugins", "nvinfer1", "com.nvidia")
         for name in ("EfficientNMS_TRT", "BatchedNMS_TRT", "BatchedNMSDynamic_TRT")), _efficient_nms,
    ),
    **dict.fromkeys(
        ((domain, name)
         for domain in ("", "mmcv", "mmdeploy", "TRT", "custom")
         for name in ("MMCVModulatedDeformConv2d", "MMCVDeformConv2d")), _slid,
    ),
    **dict.fromkeys(
        ((domain, name)
         for domain in ("", "mmcv", "mmdeploy", "TRT", "custom", "torchvision")
         for name in ("MultiscaleDeformableAttnPlugin_TRT", "MultiScaleDeformableAttention",
                      "MMCVMultiScaleDeformableAttention")), _deformable_attention,
    ),
}  # fmt: skip


# Work of operators.


def operations(node: Node, shapes: Sequence[Shape], results: Sequence[Shape]) -> int:
    """Return the arithmetic operations of a node: multiply-adds where it has any, else one for each of its values."""
    rule = _WORK.get(node.op)
    try:
        if rule is not None:
            return int(rule(node.attrs, shapes, results[0]))
    except (IndexError, KeyError, ValueError, TypeError):  # inputs of other ranks than the operator has
        pass
    return max(sum(map(prod, shapes)), sum(map(prod, results)))


Work = Callable[[Mapping[str, Any], Sequence[Shape], Shape], float]


def _window_work(place: int) -> Work:
    """Return the work of a convolution whose weight [out, in, ...] is the input at a place."""
    return lambda attrs, shapes, out: 2 * prod(out) * prod(shapes[place][1:])


def _product(left: int, right: int) -> Work:
    def work(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
        turned = attrs.get("transA", 0)
        return 2 * prod(out) * shapes[left][-2 if turned and len(shapes[left]) > 1 else -1]

    return work


def _recurrent(gates: int) -> Work:
    """Return the work of a recurrent layer: every step multiplies the input and the state with every gate's weights."""

    def work(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
        (one, other, width), (directions, rows, _) = shapes[0], shapes[1]
        return 2 * one * other * directions * rows * (width + rows // gates)

    return work


def _einsum(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
    terms = str(attrs["equation"]).replace(" ", "").partition("->")[0].split(",")
    sides: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        sides |= zip(term, shape, strict=True)
    return len(terms) * prod(sides.values())


def _suppression(attrs: Mapping[str, Any], shapes: Sequence[Shape], out: Shape) -> float:
    """Sorting, and a comparison of areas for every box with every one that is kept before it."""
    boxes, classes = shapes[0][1], shapes[1][1]
    kept = max(out[0] // classes, 1)
    return shapes[0][0] * classes * boxes * (boxes.bit_length() + 10 * kept)


def _each(operations: int) -> Work:
    return lambda attrs, shapes, out: operations * prod(out)


_WORK: dict[str, Work] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _window_work(1)),
    "QLinearConv": _window_work(3),
    "ConvTranspose": lambda attrs, shapes, out: 2 * prod(shapes[0]) * prod(shapes[1][1:]),
    "MMCVModulatedDeformConv2d": _window_work(3),
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger"), _product(0, 1)),
    "QLinearMatMul": _product(0, 3),
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    "Einsum": _einsum,
    # queries, keys and values of the same width: two products with every key
    **dict.fromkeys(
        ("Attention", "MultiHeadAttention"), lambda attrs, shapes, out: 4 * prod(shapes[0]) * shapes[1][-2]
    ),
    "NonMaxSuppression": _suppression,
    **dict.fromkeys(
        ("MaxPool", "AveragePool", "LpPool"), lambda attrs, shapes, out: prod(out) * prod(attrs["kernel_shape"])
    ),
    # four products for each point of two dimensions, eight for each of three, and their weights
    "GridSample": lambda attrs, shapes, out: prod(out) << (len(out) - 1),
    "RoiAlign": _each(32),
    "TopK": lambda attrs, shapes, out: prod(shapes[0]) * max(out[-1].bit_length(), 1),
    "DFT": lambda attrs, shapes, out: 5 * prod(out) * max(prod(out).bit_length(), 1),
    **dict.fromkeys(
        ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization"), _each(6),
    ),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _each(4)),
    "BatchNormalization": _each(2),
}  # fmt: skip
"""Operator -> its operations, from attributes, shapes of inputs, and the shape of the first result."""


# Control flow and sequences of an ONNX file written out: the branch of an If, the turns of a Loop, lists of tensors.
#
# A Loop whose end is known is written out turn by turn, as its condition folds to a constant, a Scan at once;
# sequences exist while the file is read only, as lists of names.  What depends on computed values is refused, since its
# work has no bound.


_LOOP = "export by tracing, so that control flow is unrolled for the fixed shapes"
_COMPUTED = "it depends on a computed value, so that its work has no bound"


class Unrolled:
    """Rewrites nodes of a graph that is being read; `array` returns the values of a tensor of the file."""

    def __init__(self, graph: OnnxGraph, array: Callable[[Any], Array]) -> None:
        self.graph, self.array = graph, array
        self.lists: dict[str, list[str]] = {}
        """Sequence -> the values in it."""
        self.scans: dict[str, list[list[str]]] = {}
        """First output of a Loop -> the values that each of its scan outputs has so far."""

    def takes(self, node: Node) -> bool:
        """Return whether a node is control flow or about sequences, and so is none of the graph."""
        return not node.domain and (node.op in _REWRITES or (node.op == "Identity" and node.inputs[0] in self.lists))

    def rewrite(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes that stand in a node's place; UnknownOperator where computed values decide on them."""
        if node.op == "Identity":
            self.lists[node.outputs[0]] = self.lists[node.inputs[0]]
            return []
        nodes: list[Any] = _REWRITES[node.op](self, index, node, proto)
        return nodes

    def constant(self, node: Node, place: int, what: str, default: int | None = None) -> int:
        """Return the only value of a constant input."""
        name = node.inputs[place] if place < len(node.inputs) else ""
        if not name and default is not None:
            return default
        array = self.graph.constants.get(name)
        if array is None:
            raise self.graph.refused(node, f"{what} is not known on export: {_COMPUTED}", _LOOP)
        if array.size != 1:
            raise self.graph.refused(node, f"{what} has {array.size} values", "check it with onnx.checker")
        return int(array.reshape(()))

    def decided(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes of the branch that an If with a constant condition takes; its weights join the graph's."""
        condition = bool(self.constant(node, 0, "the condition"))
        try:
            nodes, tensors = branch(proto, condition, f"{node.name}/{index}/")
        except (StopIteration, ValueError) as error:
            raise self.graph.refused(node, f"its branches are not usable: {error}") from None
        self.graph.constants |= {tensor.name: self.array(tensor) for tensor in tensors}
        return nodes

    def turn(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes of a Loop's next turn and the Loop for what is left, or the values that it ends with."""
        left, goes_on = self.constant(node, 0, "its end", 2**31), self.constant(node, 1, "its condition", 1)
        carried = list(proto.input[2:])
        scans = self.scans.setdefault(node.outputs[0], [[] for _ in proto.output[len(carried) :]])
        if left <= 0 or not goes_on:
            del self.scans[node.outputs[0]]
            return self.ended(node, proto, carried, scans)
        prefix = f"{node.name}/{index}/"
        names = {"turn": f"{prefix}turn", "on": f"{prefix}on", "left": f"{prefix}left"}
        done = next((item.i for item in proto.attribute if item.name == "turns"), 0)
        self.graph.constants |= {
            names["turn"]: np.array(done, np.int64), names["on"]: np.array(True), names["left"]: np.array(left - 1),
        }  # fmt: skip
        try:
            nodes, tensors, results = body(proto, (names["turn"], names["on"], *carried), prefix)
        except (StopIteration, ValueError) as error:
            raise self.graph.refused(node, f"its body is not usable: {error}") from None
        self.graph.constants |= {tensor.name: self.array(tensor) for tensor in tensors}
        for values, name in zip(scans, results[1 + len(carried) :], strict=True):
            values.append(name)
        rest = type(proto).FromString(proto.SerializeToString())
        del rest.input[:]
        rest.input.extend([names["left"], results[0], *results[1 : 1 + len(carried)]])
        del rest.attribute[:]
        rest.attribute.extend(item for item in proto.attribute if item.name != "turns")
        rest.attribute.add(name="turns", type=2, i=done + 1)
        rest.name = node.name
        return [*nodes, rest]

    def scanned(self, index: int, node: Node, proto: Any) -> list[Any]:
        """Return the nodes of all turns of a Scan, whose number is the size of what it goes along."""
        from onnx import helper

        count = int(node.attrs.get("num_scan_inputs", 0))
        if self.graph.opsets.get("", 1) < 9 or not 0 < count <= len(proto.input):
            raise self.graph.refused(node, "a Scan of this form is not read", _LOOP)
        states, along = list(proto.input[:-count]), list(proto.input[-count:])
        axes, turned = (list(node.attrs.get(f"scan_input_{name}") or [0] * count) for name in ("axes", "directions"))
        out_axes, out_turned = (
            list(node.attrs.get(f"scan_output_{name}") or [0] * len(proto.output)) for name in ("axes", "directions")
        )
        constants, turns = self.graph.constants, self.turns(node, proto, along[0], axes[0])
        nodes: list[Any] = []
        scans: list[list[str]] = [[] for _ in proto.output[len(states) :]]
        for turn in range(turns):
            prefix = f"{node.name}/{index}/{turn}/"
            rows = [f"{prefix}along{place}" for place in range(count)]
            for name, row, axis, back in zip(along, rows, axes, turned, strict=True):
                constants[f"{row}/place"] = np.array(turns - 1 - turn if back else turn)
                nodes.append(helper.make_node("Gather", [name, f"{row}/place"], [row], axis=axis))
            try:
                more, tensors, results = body(proto, (*states, *rows), prefix)
            except (StopIteration, ValueError) as error:
                raise self.graph.refused(node, f"its body is not usable: {error}") from None
            constants |= {tensor.name: self.array(tensor) for tensor in tensors}
            nodes += more
            states, last = results[: len(states)], results[len(states) :]
            for values, name in zip(scans, last, strict=True):
                values.append(name)
        for name, output in zip(states, proto.output, strict=False):
            nodes += [helper.make_node("Identity", [name], [output])] if output else []
        for place, (values, output) in enumerate(zip(scans, proto.output[len(states) :], strict=True)):
            values = values[::-1] if out_turned[place] else values
            nodes += self.joined(proto, values, output, out_axes[place], True) if output else []
        return nodes

    def turns(self, node: Node, proto: Any, along: str, axis: int) -> int:
        """Return the size of what a Scan goes along; UnknownOperator where that is open, or much too large."""
        held = self.graph.constants.get(along)
        shape = held.shape if held is not None else self.graph.shapes.get(along, ())
        turns = shape[axis] if -len(shape) <= axis < len(shape) else 0
        inner = next((len(item.g.node) for item in proto.attribute if item.name == "body"), 0)
        if not 0 < turns * max(inner, 1) <= MOST_NODES:
            raise self.graph.refused(node, f"{turns} turns of {inner} nodes are not written out", _LOOP)
        return turns

    def ended(self, node: Node, proto: Any, carried: list[str], scans: list[list[str]]) -> list[Any]:
        made: list[Any] = []
        for name, output in zip(carried, proto.output, strict=False):
            if output:
                made.append(type(proto)(op_type="Identity", input=[name], output=[output]))
        for values, output in zip(scans, proto.output[len(carried) :], strict=True):
            if output and not values:
                raise self.graph.refused(node, "a loop without a turn has results without values", _LOOP)
            made += self.joined(proto, values, output, 0, True) if output else []
        return made

    def joined(self, proto: Any, values: Sequence[str], output: str, axis: int, new: bool) -> list[Any]:
        """Return the nodes that join values along an axis, which is `new` or their own."""
        made = []
        if new:
            self.graph.constants[f"{output}/axis"] = np.array([axis])
            for number, name in enumerate(values):
                one = type(proto)(op_type="Unsqueeze", input=[name, f"{output}/axis"], output=[f"{output}/{number}"])
                if self.graph.opsets.get("", 13) < 13:
                    del one.input[1:]
                    one.attribute.add(name="axes", type=7, ints=[axis])
                made.append(one)
            values = [f"{output}/{number}" for number in range(len(values))]
        whole = type(proto)(op_type="Concat", input=values, output=[output], name=proto.name)
        whole.attribute.add(name="axis", type=2, i=axis)
        return [*made, whole]

    # Sequences.

    def of(self, node: Node, place: int = 0) -> list[str]:
        if node.inputs[place] not in self.lists:
            raise self.graph.refused(node, f"{node.inputs[place]!r} is no sequence that is known on export", _LOOP)
        return self.lists[node.inputs[place]]

    def listed(self, index: int, node: Node, proto: Any) -> list[Any]:
        self.lists[node.outputs[0]] = list(node.inputs)
        return []

    def inserted(self, index: int, node: Node, proto: Any) -> list[Any]:
        values = list(self.of(node))
        place = self.constant(node, 2, "the place", len(values))
        if not -len(values) <= place <= len(values):
            raise self.graph.refused(node, f"there is no place {place} among {len(values)}")
        values.insert(place if place >= 0 else place + len(values), node.inputs[1])
        self.lists[node.outputs[0]] = values
        return []

    def erased(self, index: int, node: Node, proto: Any) -> list[Any]:
        values = list(self.of(node))
        place = self.constant(node, 1, "the place", -1)
        if not -len(values) <= place < len(values):
            raise self.graph.refused(node, f"there is no place {place} among {len(values)}")
        del values[place]
        self.lists[node.outputs[0]] = values
        return []

    def picked(self, index: int, node: Node, proto: Any) -> list[Any]:
        values, place = self.of(node), self.constant(node, 1, "the place")
        if not -len(values) <= place < len(values):
            raise self.graph.refused(node, f"there is no place {place} among {len(values)}")
        return [type(proto)(op_type="Identity", input=[values[place]], output=list(node.outputs))]

    def counted(self, index: int, node: Node, proto: Any) -> list[Any]:
        self.graph.constants[node.outputs[0]] = np.array(len(self.of(node)), np.int64)
        return []

    def concatenated(self, index: int, node: Node, proto: Any) -> list[Any]:
        values = self.of(node)
        if not values:
            raise self.graph.refused(node, "it joins no values")
        return self.joined(proto, values, node.outputs[0], int(node.attrs["axis"]), bool(node.attrs.get("new_axis", 0)))

    def split(self, index: int, node: Node, proto: Any) -> list[Any]:
        shape = self.graph.tensor(node.inputs[0]).shape
        axis = int(node.attrs.get("axis", 0)) % max(len(shape), 1)
        size, stated = shape[axis], self.graph.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        if len(node.inputs) > 1 and node.inputs[1] and stated is None:
            raise self.graph.refused(node, f"its sizes are not known on export: {_COMPUTED}", _LOOP)
        step = 1 if stated is None else int(stated.reshape(-1)[0])
        if step < 1:
            raise self.graph.refused(node, f"pieces of {step}")
        sizes = [min(step, size - begin) for begin in range(0, size, step)]
        if stated is not None and stated.ndim:
            sizes = [int(one) for one in stated]
        output = node.outputs[0]
        names = [f"{output}/{number}" for number in range(len(sizes))]
        pieces = type(proto)(op_type="Split", input=[node.inputs[0]], output=names, name=node.name)
        pieces.attribute.add(name="axis", type=2, i=axis)
        if self.graph.opsets.get("", 13) < 13:
            pieces.attribute.add(name="split", type=7, ints=sizes)
        else:
            self.graph.constants[f"{output}/sizes"] = np.array(sizes)
            pieces.input.append(f"{output}/sizes")
        made = [pieces]
        self.lists[output] = names
        if stated is None and not node.attrs.get("keepdims", 1):
            self.lists[output] = [f"{name}/row" for name in names]
            made += [self.row(name, axis) for name in names]
        return made

    def row(self, name: str, axis: int) -> Any:
        from onnx import helper

        if self.graph.opsets.get("", 13) < 13:
            return helper.make_node("Squeeze", [name], [f"{name}/row"], axes=[axis])
        self.graph.constants[f"{name}/axis"] = np.array([axis])
        return helper.make_node("Squeeze", [name, f"{name}/axis"], [f"{name}/row"])


_REWRITES: dict[str, Callable[[Unrolled, int, Node, Any], list[Any]]] = {
    "If": Unrolled.decided,
    "Loop": Unrolled.turn,
    "Scan": Unrolled.scanned,
    "SequenceEmpty": Unrolled.listed,
    "SequenceConstruct": Unrolled.listed,
    "SequenceInsert": Unrolled.inserted,
    "SequenceErase": Unrolled.erased,
    "SequenceAt": Unrolled.picked,
    "SequenceLength": Unrolled.counted,
    "ConcatFromSequence": Unrolled.concatenated,
    "SplitToSequence": Unrolled.split,
}
