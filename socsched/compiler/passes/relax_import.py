"""Import of a `graph.network.Network` as a Relax module.

The function `main` takes the network's inputs, then one parameter per entry of `Network.params` in that order (those
beyond the attribute `num_input`).  Dimensions of -1 become one symbolic variable `P`.  Activations are in logical NCHW;
layouts are chosen by lowering.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from socsched.compiler.environment import relax, tirx, tvm
from socsched.compiler.passes.generic_ops import expression
from socsched.compiler.passes.reference_kernels import pillar_features, pillar_sums, scatter
from socsched.compiler.target import Compilation
from socsched.errors import CompileError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType

DTYPES = {"fp32": "float32", "fp16": "float16", "int8": "int8", "uint8": "uint8", "int32": "int32", "int64": "int64"}
_FLOATS = ("fp32", "fp16")


def import_layers(compilation: Compilation) -> Compilation:
    """Return the network as a Relax module in fp32."""
    return replace(compilation, module=import_network(compilation.asked.network))


def bind_constants(compilation: Compilation) -> Compilation:
    """Return the module of layers in the precision of the code, with the weights as constants; int8 counts as fp32.

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
    return _Importer(network, precision).module()


def layer_types(network: Network) -> dict[str, Any]:
    """Return the Relax type of every layer's result."""
    importer = _Importer(network, "fp32")
    importer.module()
    return {layer.name: importer.values[layer.name].ty for layer in network.layers}


class _Importer:
    def __init__(self, network: Network, precision: str) -> None:
        self.network = network
        self.precision = precision
        self.dynamic = tirx.Var("P", "int64")
        self.builder = relax.BlockBuilder()
        self.values: dict[str, Any] = {}

    def dtype(self, dtype: str) -> str:
        return DTYPES[self.precision if dtype in _FLOATS else dtype]

    def tensor(self, tensor: TensorType) -> Any:
        shape = [self.dynamic if size < 0 else size for size in tensor.shape]
        return relax.TensorType(shape, self.dtype(tensor.dtype))

    def module(self) -> Any:
        inputs = [
            relax.Var(name.replace(".", "_"), self.tensor(tensor)) for name, tensor in self.network.inputs.items()
        ]
        weights = [
            relax.Var(name.replace(".", "_"), relax.TensorType(shape, self.dtype("fp32")))
            for name, shape in self.network.params.items()
        ]
        self.values = dict(zip((*self.network.inputs, *self.network.params), (*inputs, *weights), strict=True))
        with self.builder.function("main", [*inputs, *weights], attrs={"num_input": len(inputs)}):
            with self.builder.dataflow():
                for layer in self.network.layers:
                    self.values[layer.name] = self.emit(layer.name, self.expression(layer))
                results = tuple(self.values[name] for name in self.network.outputs)
                output = self.builder.emit_output(results)
            self.builder.emit_func_output(output)
        return self.builder.get()

    def emit(self, name: str, expression: Any) -> Any:
        return self.builder.emit(expression, name_hint=name.replace(".", "_"))

    def expression(self, layer: Layer) -> Any:
        args = [self.values[name] for name in layer.inputs]
        weights = {role: self.values[name] for role, name in layer.weights.items()}
        if layer.op in _BUILDERS:
            return _BUILDERS[layer.op](self, layer, args, weights)
        emitted = expression(layer, args, weights, self.emit, self.dtype("fp32"))
        if emitted is None:
            raise CompileError(f"{self.network.name}: layer {layer.name!r}: unknown op {layer.op!r}")
        return emitted

    def biased(self, layer: Layer, value: Any, weights: Mapping[str, Any]) -> Any:
        if "bias" not in weights:
            return value
        bias = weights["bias"]
        if layer.op != "dense":
            bias = self.emit(f"{layer.name}.bias4d", relax.op.reshape(bias, (1, -1, 1, 1)))
        return relax.op.add(self.emit(f"{layer.name}.linear", value), bias)

    def kernel(self, name: str, function: Any, args: list[Any], shape: list[Any], dtype: str = "") -> Any:
        variable = self.builder.add_func(function, name)
        return relax.call_tir(variable, args, relax.TensorType(shape, dtype or self.dtype("fp32")))


def _window(layer: Layer) -> dict[str, Any]:
    """Return strides, padding (top, left, bottom, right), dilation and groups under Relax's names."""
    attrs = layer.attrs
    padding = attrs.get("padding", 0)
    window = {
        "strides": _pair(attrs.get("stride", 1)),
        "padding": padding if isinstance(padding, int) else list(padding),
    }
    if "dilation" in attrs:
        window["dilation"] = _pair(attrs["dilation"])
    if "output_padding" in attrs:
        window["output_padding"] = _pair(attrs["output_padding"])
    if "groups" in attrs:
        window["groups"] = int(attrs["groups"])
    return window


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _conv2d(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    return self.biased(layer, relax.op.nn.conv2d(args[0], weights["weight"], **_window(layer)), weights)


def _conv2d_transpose(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    return self.biased(layer, relax.op.nn.conv2d_transpose(args[0], weights["weight"], **_window(layer)), weights)


def _dense(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    transposed = self.emit(f"{layer.name}.weight_io", relax.op.permute_dims(weights["weight"]))
    return self.biased(layer, relax.op.matmul(args[0], transposed), weights)


def _max_pool(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    return relax.op.nn.max_pool2d(args[0], _pair(layer.attrs["kernel"]), **_pooling(layer))


def _avg_pool(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    counted = bool(layer.attrs.get("count_padding", False))
    return relax.op.nn.avg_pool2d(args[0], _pair(layer.attrs["kernel"]), count_include_pad=counted, **_pooling(layer))


def _pooling(layer: Layer) -> dict[str, Any]:
    padding = layer.attrs.get("padding", 0)
    sides = (padding, padding) if isinstance(padding, int) else tuple(padding)
    return {
        "strides": _pair(layer.attrs["stride"]),
        "padding": sides,
        "ceil_mode": bool(layer.attrs.get("ceil", False)),
    }


def _pillar_features(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    slots = int(args[0].ty.shape[1])
    dtype = self.dtype("fp32")
    sums = self.kernel("pillar_sums", pillar_sums(slots, dtype), args[:2], [self.dynamic, 3], "float32")
    args = [*args, self.emit(f"{layer.name}.sums", sums)]
    x, y = layer.attrs["origin"]
    function = pillar_features(slots, layer.attrs["pillar"], x, y, dtype)
    return self.kernel("pillar_features", function, args, [self.dynamic, slots, 9])


def _scatter(self: _Importer, layer: Layer, args: list[Any], weights: Mapping[str, Any]) -> Any:
    channels, ny, nx = int(args[0].ty.shape[1]), layer.attrs["ny"], layer.attrs["nx"]
    return self.kernel("scatter", scatter(channels, ny, nx, self.dtype("fp32")), args, [1, channels, ny, nx])


_BUILDERS: dict[str, Callable[[_Importer, Layer, list[Any], Mapping[str, Any]], Any]] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": _dense,
    "relu": lambda self, layer, args, weights: relax.op.nn.relu(args[0]),
    "concat": lambda self, layer, args, weights: relax.op.concat(args, axis=layer.attrs["axis"]),
    "reduce_max": lambda self, layer, args, weights: relax.op.max(
        args[0], axis=layer.attrs["axis"], keepdims=bool(layer.attrs.get("keepdims", False))
    ),
    "max_pool": _max_pool,
    "avg_pool": _avg_pool,
    "pillar_features": _pillar_features,
    "scatter": _scatter,
}


def bind_weights(module: Any, network: Network, weights: Mapping[str, Any], precision: str = "fp32") -> Any:
    """Return `module` with every weight parameter replaced by its array, cast to `precision`."""
    dtype = DTYPES[precision]
    arrays = {name.replace(".", "_"): weights[name].astype(dtype) for name in network.params}
    bound = relax.transform.BindParams("main", {name: tvm.runtime.tensor(array) for name, array in arrays.items()})
    return relax.transform.FoldConstant()(bound(module))
