"""A network's operations as Relax expressions: a whole module, or one operator left to TVM's general schedules.

The function `main` of a module takes the network's inputs, then one parameter per entry of `Network.params` in that
order (those beyond the attribute `num_input`).  Dimensions of -1 become one symbolic variable `P`.  Activations are in
logical NCHW; layouts are chosen by lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from socsched.compiler.environment import relax, tirx, tvm
from socsched.compiler.passes.reference_kernels import pillar_features, pillar_sums, scatter
from socsched.compiler.quantize.fixed_point import Scale
from socsched.compiler.target import Compilation
from socsched.errors import CompileError
from socsched.graph.expand import fuse_network
from socsched.graph.fusion import Graph, Group, Operation
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

DTYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "int8": "int8",
    "uint8": "uint8",
    "int32": "int32",
    "int64": "int64",
    "bool": "bool",
}
_FLOATS = ("fp32", "fp16")
_LEAST = {"float32": -3.4e38, "float16": -65504.0}
"""Lower bound of a clip that has only an upper one."""


def bind_constants(compilation: Compilation) -> Compilation:
    """Return the module of operations in the precision of the code, with the weights as constants; int8 counts as fp32.

    For operators that are left to TVM's general schedules.  Tensors at the border are plain NCHW.
    """
    network, graph = compilation.asked.network, compilation.graph
    precision = "fp16" if compilation.asked.precision == "fp16" else "fp32"
    module = bind_weights(import_network(network, precision), network, compilation.weights, precision)
    inputs, outputs = (
        in_precision(tuple(graph.values[name] for name in names), precision) for names in (graph.inputs, graph.outputs)
    )
    return replace(compilation, module=module, inputs=inputs, outputs=outputs)


def in_precision(tensors: tuple[TensorType, ...], precision: str) -> tuple[TensorType, ...]:
    """Return `tensors` with `precision` in place of fp32."""
    return tuple(TensorType(t.shape, precision if t.dtype == "fp32" else t.dtype, t.layout) for t in tensors)


def import_network(network: Network, precision: str = "fp32") -> Any:
    """Return the tvm IRModule of `network` with floating-point tensors in `precision` ("fp32" or "fp16").

    Raises CompileError for an unknown layer op.
    """
    if precision not in _FLOATS:
        raise CompileError(
            f"{network.name}: no lowering in {precision}: the network has no quantisation parameters",
            "accept fp16 or fp32 for this stage (`precisions` in the pipeline)",
        )
    graph, builder, dynamic = fuse_network(network), relax.BlockBuilder(), tirx.Var("P", "int64")

    def variable(name: str, tensor: TensorType) -> Any:
        shape = [dynamic if size < 0 else size for size in tensor.shape]
        dtype = DTYPES[precision if tensor.dtype in _FLOATS else tensor.dtype]
        return relax.Var(name.replace(".", "_"), relax.TensorType(shape, dtype))

    values = {name: variable(name, graph.values[name]) for name in graph.inputs}
    weights = {name: variable(name, TensorType(shape, "fp32")) for name, shape in network.params.items()}

    def emit(name: str, expression: Any) -> Any:
        return builder.emit(expression, name_hint=name.replace(".", "_"))

    form = _Form(DTYPES[precision], emit, builder.add_func, dynamic)
    with builder.function("main", [*values.values(), *weights.values()], attrs={"num_input": len(graph.inputs)}):
        with builder.dataflow():
            for name, op in graph.operations.items():
                args, own = [values[value] for value in op.inputs], [weights[key] for key in op.weights]
                values[name] = emit(name, form.expression(op, args, own))
            output = builder.emit_output(tuple(values[name] for name in graph.outputs))
        builder.emit_func_output(output)
    return builder.get()


def bind_weights(module: Any, network: Network, weights: Mapping[str, Any], precision: str = "fp32") -> Any:
    """Return `module` with every weight parameter replaced by its array, cast to `precision`."""
    dtype = DTYPES[precision]
    arrays = {name.replace(".", "_"): weights[name].astype(dtype) for name in network.params}
    bound = relax.transform.BindParams("main", {name: tvm.runtime.tensor(array) for name, array in arrays.items()})
    return relax.transform.FoldConstant()(bound(module))


class Images(Protocol):
    """A lowering in progress that can return any value in plain fp32 form."""

    graph: Graph
    weights: Mapping[str, np.ndarray[Any, Any]]
    builder: Any
    dtype: str

    def plain_of(self, name: str) -> Any: ...


def emit_general(images: Images, group: Group) -> Any:
    """Return the plain result of an operator without a rule, from the plain values of its inputs; computed in fp32."""
    graph, emit = images.graph, images.builder.emit
    values = {name: images.plain_of(name) for name in group.inputs}
    half = images.dtype != "float32" and group.kind not in ("reshape", "transpose")
    for name in group.inputs if half else ():
        if graph.values[name].dtype == "fp32":
            values[name] = emit(relax.op.astype(values[name], "float32"))
    form = _Form("float32", lambda name, expression: emit(expression))
    constants: dict[str, Any] = {}

    def weight(key: str) -> Any:
        if key not in constants:
            constants[key] = relax.const(np.ascontiguousarray(images.weights[key], np.float32), "float32")
        return constants[key]

    def value(name: str) -> Any:
        if name not in values:
            op = graph.operations[name]
            if op.kind in ("pillar_features", "scatter"):
                raise CompileError(
                    f"{graph.network.name}: {name}: this kernel has a CPU form only where a dense layer follows"
                )
            args = [value(source) for source in op.inputs]
            values[name] = emit(form.expression(op, args, [weight(key) for key in op.weights]))
        return values[name]

    result = value(group.output)
    exact = graph.values[group.output].dtype != "fp32"
    return emit(relax.op.astype(result, images.dtype)) if half and not exact else result


_ROUNDER = 12582912.0
"""1.5 * 2^23: an fp32 number added to it and taken away again is rounded, halves to even."""


def rounded(emit: Callable[[Any], Any], value: Any, scale: Scale) -> Any:
    """Return an fp32 tensor rounded to the integers of a scale, as QuantizeLinear and DequantizeLinear do."""

    def number(of: float) -> Any:
        return relax.const(np.float32(of), "float32")

    low, high = scale.range
    steps = emit(relax.op.clip(emit(relax.op.multiply(value, number(1.0 / scale.step))), low, high))
    whole = emit(relax.op.subtract(emit(relax.op.add(steps, number(_ROUNDER))), number(_ROUNDER)))
    return emit(relax.op.multiply(whole, number(scale.step)))


@dataclass(frozen=True, slots=True)
class _Form:
    """Where expressions go: `emit` binds one to a variable by its name, `add` makes a kernel part of the module."""

    dtype: str
    emit: Callable[[str, Any], Any]
    add: Callable[[Any, str], Any] | None = None
    dynamic: Any = None

    def expression(self, op: Operation, args: list[Any], weights: list[Any]) -> Any:
        """Return the Relax expression of an operation."""
        if op.kind in _BINARY:
            if "biases" in op.options:
                (bias,) = weights
                if op.options["biases"] != "dense":
                    bias = self.emit(f"{op.layer}.bias4d", relax.op.reshape(bias, (1, -1, 1, 1)))
                return relax.op.add(args[0], bias)
            if "number" in op.options:
                dtype = self.dtype if op.type.dtype in _FLOATS else DTYPES[op.type.dtype]
                weights = [relax.const(np.array(op.options["number"], dtype), dtype)]
            pair = [*weights, *args] if op.weight_first else [*args, *weights]
            return getattr(relax.op, op.kind)(*pair)
        if op.kind in _UNARY:
            return getattr(relax.op, op.kind)(args[0])
        return _EXPRESSIONS[op.kind](self, op, args, weights)

    def kernel(self, name: str, function: Any, args: list[Any], shape: list[Any], dtype: str = "") -> Any:
        assert self.add is not None
        return relax.call_tir(self.add(function, name), args, relax.TensorType(shape, dtype or self.dtype))


_BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "matmul", "power", "floor_mod", "equal", "less"),
    *("less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor"),
)
_UNARY = (
    *("sigmoid", "tanh", "exp", "sqrt", "erf", "log", "abs", "sin", "cos", "floor", "ceil", "round", "sign"),
    *("logical_not", "isnan", "isinf"),
)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _convolution(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    given = op.options
    padding = given.get("padding", 0)
    window: dict[str, Any] = {
        "strides": _pair(given.get("stride", 1)),
        "padding": padding if isinstance(padding, int) else list(padding),
    }
    for name in ("dilation", "output_padding"):
        if name in given:
            window[name] = _pair(given[name])
    if "groups" in given:
        window["groups"] = int(given["groups"])
    return getattr(relax.op.nn, op.kind)(args[0], weights[0], **window)


def _dense(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    if "untransposed" in op.options:
        return relax.op.matmul(*([*weights, *args] if op.weight_first else [*args, *weights]))
    return relax.op.matmul(args[0], form.emit(f"{op.layer}.weight_io", relax.op.permute_dims(weights[0])))


def _pool(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    given = op.options
    padding = given.get("padding", 0)
    window = {
        "strides": _pair(given["stride"]),
        "padding": (padding, padding) if isinstance(padding, int) else tuple(padding),
        "ceil_mode": bool(given.get("ceil", False)),
    }
    if op.kind == "max_pool":
        return relax.op.nn.max_pool2d(args[0], _pair(given["kernel"]), **window)
    counted = bool(given.get("count_padding", False))
    return relax.op.nn.avg_pool2d(args[0], _pair(given["kernel"]), count_include_pad=counted, **window)


def _pillar_features(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    slots = int(args[0].ty.shape[1])
    sums = form.kernel("pillar_sums", pillar_sums(slots, form.dtype), args[:2], [form.dynamic, 3], "float32")
    args = [*args, form.emit(f"{op.layer}.sums", sums)]
    x, y = op.options["origin"]
    function = pillar_features(slots, op.options["pillar"], x, y, form.dtype)
    return form.kernel("pillar_features", function, args, [form.dynamic, slots, 9])


def _scatter(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    channels, ny, nx = int(args[0].ty.shape[1]), op.options["ny"], op.options["nx"]
    return form.kernel("scatter", scatter(channels, ny, nx, form.dtype), args, [1, channels, ny, nx])


def _typed(form: _Form, op: Operation, weight: Any) -> Any:
    """Return a weight, which is stored as a number, in the type of the value that it stands for."""
    if op.type.dtype in _FLOATS:
        return weight
    if hasattr(weight, "data"):  # a constant, rather than a parameter of the module
        return relax.const(weight.data.numpy().astype(DTYPES[op.type.dtype]))
    return relax.op.astype(weight, DTYPES[op.type.dtype])


def _reduce(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    make = getattr(relax.op, op.kind.removeprefix("reduce_"))
    return make(args[0], axis=list(op.axes), keepdims=bool(op.options.get("keepdims", False)))


def _group_norm(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    axes = list(range(2, len(args[0].ty.shape)))
    return relax.op.nn.group_norm(args[0], *weights, int(op.options["groups"]), 1, axes, op.options["epsilon"])


def _layer_norm(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    axes = list(range(-len(weights[0].ty.shape), 0))
    return relax.op.nn.layer_norm(args[0], *weights, axes, op.options["epsilon"])


def _gather(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    if weights or len(args) == 2:  # computed indices stay inside the table whatever they are
        return relax.op.take(*weights, *args, op.options["axis"], mode="clip")
    return relax.op.take(args[0], relax.const(np.array(op.options["indices"], np.int64)), op.options["axis"])


def _resize2d(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    return relax.op.image.resize2d(
        args[0],
        size=tuple(op.options["size"]),
        layout="NCHW",
        method="linear" if op.options["bilinear"] else "nearest_neighbor",
        coordinate_transformation_mode=op.options["coordinates"],
        rounding_method=op.options["rounding"],
    )


def _topk(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    a = op.options
    return relax.op.topk(args[0], a["k"], a["axis"], a["result"], a["largest"], "int64")


def _grid_sample(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    a = op.options
    return relax.op.image.grid_sample(*args, a["mode"], "NCHW", a["padding"], a["align"])


def _pad(form: _Form, op: Operation, args: list[Any], weights: list[Any]) -> Any:
    pads, half = op.options["pads"], len(op.options["pads"]) // 2
    interleaved = [side for axis in range(half) for side in (pads[axis], pads[axis + half])]
    return relax.op.nn.pad(args[0], interleaved, pad_value=op.options["value"])


_EXPRESSIONS: dict[str, Callable[[_Form, Operation, list[Any], list[Any]], Any]] = {
    "relu": lambda form, op, args, weights: relax.op.nn.relu(args[0]),
    "global_avg_pool": lambda form, op, args, weights: relax.op.nn.adaptive_avg_pool2d(args[0], (1, 1)),
    "conv2d": _convolution,
    "conv2d_transpose": _convolution,
    "dense": _dense,
    **dict.fromkeys(("max_pool", "avg_pool"), _pool),
    "pillar_features": _pillar_features,
    "scatter": _scatter,
    "leaky_relu": lambda form, op, args, weights: relax.op.nn.leakyrelu(args[0], op.options["alpha"]),
    "clip": lambda form, op, args, weights: relax.op.clip(
        args[0], op.options.get("low", _LEAST[form.dtype]), op.options["high"]
    ),
    "constant": lambda form, op, args, weights: _typed(form, op, weights[0]),
    "where": lambda form, op, args, weights: relax.op.where(*args),
    "cast": lambda form, op, args, weights: relax.op.astype(
        args[0], form.dtype if op.type.dtype in _FLOATS else DTYPES[op.type.dtype]
    ),
    "concat": lambda form, op, args, weights: relax.op.concat(args, axis=op.options["axis"]),
    **dict.fromkeys(("reduce_max", "reduce_mean", "reduce_sum"), _reduce),
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "argmax": lambda form, op, args, weights: relax.op.argmax(args[0], op.options["axis"], op.options["keepdims"]),
    "topk": _topk,
    "grid_sample": _grid_sample,
    "scatter_nd": lambda form, op, args, weights: relax.op.scatter_nd(*args, "update"),
    "gather": _gather,
    "slice": lambda form, op, args, weights: relax.op.strided_slice(
        args[0], *(list(op.options[name]) for name in ("axes", "begin", "end", "step"))
    ),
    "resize2d": _resize2d,
    "reshape": lambda form, op, args, weights: relax.op.reshape(args[0], tuple(op.options["shape"])),
    "transpose": lambda form, op, args, weights: relax.op.permute_dims(args[0], list(op.options["order"])),
    "softmax": lambda form, op, args, weights: relax.op.nn.softmax(args[0], axis=op.options["axis"]),
    "pad": _pad,
}
KINDS = frozenset((*_BINARY, *_UNARY, *_EXPRESSIONS))
"""Operations with an expression."""


def emit_main(own: Any, inputs: Sequence[TensorType], variables: Sequence[Any], operators: Callable[[], Any]) -> None:
    """Emit `main` of a network: what `own` (with `builder`, `graph`, `enter` and `leave`) makes of its operators."""
    with own.builder.function("main", variables, attrs={"num_input": len(variables)}):
        with own.builder.dataflow():
            for name, tensor, variable in zip(own.graph.inputs, inputs, variables, strict=True):
                own.enter(name, tensor, variable)
            operators()
            output = own.builder.emit_output(tuple(own.leave(name) for name in own.graph.outputs))
        own.builder.emit_func_output(output)
