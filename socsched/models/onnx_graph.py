"""An ONNX file as plain data: nodes with attributes, constants as arrays, the type of every value; constants folded.

Operators that compute shapes and indices are folded, with bounds on their results.  Any other operator with constant
inputs (loops, regular expressions, convolutions) is left as a node, which translation refuses: its run time is
unbounded, and no export needs it folded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.errors import InputError, OpenShape, UnknownOperator
from socsched.graph.operators import TensorType
from socsched.models.onnx_file import MOST_NODES, OnnxFile, first_line, written_out
from socsched.models.onnx_integers import on_floats
from socsched.models.onnx_types import VARYING, bounds, operations
from socsched.models.onnx_unroll import Unrolled

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
     "GreaterOrEqual", "Identity", "LayerNormalization", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Min", "Mod", "Mul", "Neg", "Not",
     "Or", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu",
     "Reshape", "Resize", "Round", "ScatterND", "Shape", "Sigmoid", "Sin", "Size", "Slice", "Softmax", "Split", "Sqrt",
     "Squeeze", "Sub", "Tanh", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where")
)  # fmt: skip
"""Operators that are computed where their inputs are constant."""
