"""A network as an ONNX model including its weights, for third-party toolchains.

Opset 13 (TensorRT reads it from 7.2 on: onnx-tensorrt, operators.md) and the IR version of that release, so that older
tools can read the file too; later operators (HardSwish) are decomposed.  Values keep the names of the layers that
produce them, so that scales, calibration tables and messages of the vendor's tools refer to these layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from socsched.errors import CompileError, MachineError, extra
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.onnx_operators import BINARY, REDUCTIONS, UNARY

OPSET, IR_VERSION = 13, 7
_WINDOW = 8
"""Largest window of average pooling that every accelerator takes."""
Array = np.ndarray[Any, Any]


def to_onnx(network: Network, weights: Mapping[str, Array], types: Mapping[str, TensorType], nominal: int = 0) -> Any:
    """Return the ONNX ModelProto of `network`: static shapes, images in NCHW, weights in fp32.

    `types` are the types of the layers' results (`graph.expand`); `nominal` replaces a varying dimension.  Raises
    CompileError for a layer without ONNX operator, MachineError when the package onnx is missing.
    """
    try:
        import onnx
    except ImportError:
        raise MachineError("writing ONNX files needs the package onnx", extra("onnx")) from None
    export = _Export(network, weights, types)
    for layer in network.layers:
        export.add(layer)
    inputs = [_value(name, tensor, nominal) for name, tensor in network.inputs.items()]
    outputs = [_value(name, types[name], nominal) for name in network.outputs]
    graph = onnx.helper.make_graph(export.nodes, network.name, inputs, outputs, list(export.initializers.values()))
    versions = {"": export.opset, **export.domains}
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in versions.items()]
    ir_version = (
        IR_VERSION if export.opset == OPSET else onnx.helper.find_min_ir_version_for(opsets, ignore_unknown=True)
    )
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="socsched")


ROW = ".row"
"""Ending of the name of a value within, whose image is the output."""


def as_image(model: Any, name: str, shape: Sequence[int]) -> None:
    """Give an output of a model the shape of an image with the same values."""
    from onnx import helper, numpy_helper

    graph, inner, sizes = model.graph, name + ROW, f"{name}.image"
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [inner if one == name else one for one in names]
    graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), sizes))
    graph.node.append(helper.make_node("Reshape", [inner, sizes], [name], name=sizes))
    output = next(value for value in graph.output if value.name == name)
    kind = output.type.tensor_type
    output.CopyFrom(helper.make_tensor_value_info(name, kind.elem_type, list(shape)))


def without_operator(network: Network) -> list[str]:
    """Return the kinds of layers of a network that `to_onnx` cannot write."""
    return sorted({layer.op for layer in network.layers} - set(_OPERATORS))


def _value(name: str, tensor: TensorType, nominal: int) -> Any:
    from onnx import TensorProto, helper

    shape = [nominal if size < 0 else size for size in tensor.shape]
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(_DTYPES[tensor.dtype]), shape)


class _Export:
    """Nodes and initialisers as they accumulate."""

    def __init__(self, network: Network, weights: Mapping[str, Array], types: Mapping[str, TensorType]) -> None:
        self.network, self.weights = network, weights
        self.types = {**network.inputs, **types}
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        kept = [layer.attrs for layer in network.layers if layer.op == "onnx"]
        self.domains = {a["domain"]: int(a["opset"]) for a in kept if a["domain"]}
        newer = [16 for layer in network.layers if layer.op == "grid_sample"]
        self.opset = max([OPSET, *newer, *(int(a["opset"]) for a in kept if not a["domain"])])
        """That of the file where operators of it stand as they are: they mean what they mean there."""

    def add(self, layer: Layer) -> None:
        handler = _OPERATORS.get(layer.op)
        if handler is None:
            raise CompileError(
                f"{self.network.name}: layer {layer.name!r}: {layer.op} has no ONNX operator",
                "cut the network before or after it, or place the stage on another engine",
            )
        handler(self, layer)

    def node(self, op: str, layer: Layer, inputs: list[str], output: str = "", **attrs: Any) -> str:
        from onnx import helper

        output = output or layer.name
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attrs))
        return output

    def weight(self, name: str, array: Array | None = None) -> str:
        from onnx import numpy_helper

        if name not in self.initializers:
            value = np.asarray(self.weights[name], np.float32) if array is None else array
            self.initializers[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def constant(self, layer: Layer, role: str, value: Any, dtype: Any) -> str:
        return self.weight(f"{layer.name}.{role}", np.asarray(value, dtype))

    def mean(self, layer: Layer, value: str, axes: list[int], output: str) -> str:
        if self.opset < 18:
            return self.node("ReduceMean", layer, [value], output=output, axes=axes, keepdims=1)
        stated = self.constant(layer, "axes", axes, np.int64)
        return self.node("ReduceMean", layer, [value, stated], output=output, keepdims=1)

    def rank(self, layer: Layer) -> int:
        return len(self.types[layer.inputs[0]].shape)


Handler = Callable[[_Export, Layer], Any]


def _pair(value: Any) -> list[int]:
    return [value, value] if isinstance(value, int) else [int(v) for v in value]


def _pads(layer: Layer) -> list[int]:
    padding = layer.attrs.get("padding", 0)  # one number, (height, width) or  (top, left, bottom, right), ONNX's order
    sides = [padding] * 4 if isinstance(padding, int) else [int(side) for side in padding]
    return sides * 2 if len(sides) == 2 else sides


def _convolution(op: str) -> Handler:
    def handle(export: _Export, layer: Layer) -> None:
        kernel = list(export.network.params[layer.weights["weight"]][2:])
        inputs = [layer.inputs[0], *(export.weight(layer.weights[r]) for r in ("weight", "bias") if r in layer.weights)]
        a = layer.attrs
        window: dict[str, Any] = {"kernel_shape": kernel, "strides": _pair(a.get("stride", 1)), "pads": _pads(layer)}
        more: dict[str, Any] = {"dilations": _pair(a.get("dilation", 1)), "group": int(a.get("groups", 1))}
        if a.get("output_padding"):
            more["output_padding"] = _pair(a["output_padding"])
        export.node(op, layer, inputs, **window, **more)

    return handle


def _dense(export: _Export, layer: Layer) -> None:
    source = layer.inputs[0]
    weight = export.weight(layer.weights["weight"])
    bias = [export.weight(layer.weights["bias"])] if "bias" in layer.weights else []
    if export.rank(layer) == 2:
        export.node("Gemm", layer, [source, weight, *bias], transB=1)
        return
    transposed = export.constant(layer, "weight_io", np.asarray(export.weights[layer.weights["weight"]]).T, np.float32)
    product = export.node("MatMul", layer, [source, transposed], output=f"{layer.name}.linear" if bias else "")
    if bias:
        export.node("Add", layer, [product, *bias])


def _pool(op: str) -> Handler:
    def handle(export: _Export, layer: Layer) -> None:
        a = layer.attrs
        attrs: dict[str, Any] = {"kernel_shape": _pair(a["kernel"]), "strides": _pair(a["stride"])}
        attrs |= {"pads": _pads(layer), "ceil_mode": int(bool(a.get("ceil", False)))}
        if op == "AveragePool":
            attrs["count_include_pad"] = int(bool(a.get("count_padding", False)))
        export.node(op, layer, list(layer.inputs), **attrs)

    return handle


def _binary(op: str) -> Handler:
    def handle(export: _Export, layer: Layer) -> None:
        operands = list(layer.inputs)
        if "constant" in layer.weights:
            operands.append(export.weight(layer.weights["constant"]))
        export.node(op, layer, operands[::-1] if layer.attrs.get("swapped") else operands)

    return handle


def _unary(op: str, *names: str) -> Handler:
    def handle(export: _Export, layer: Layer) -> None:
        attrs: dict[str, Any] = {name: float(layer.attrs[name]) for name in names}
        export.node(op, layer, list(layer.inputs), **attrs)

    return handle


def _hard_swish(export: _Export, layer: Layer) -> None:  # a separate operator from opset 14 on
    gate = export.node("HardSigmoid", layer, list(layer.inputs), output=f"{layer.name}.gate", alpha=1 / 6, beta=0.5)
    export.node("Mul", layer, [layer.inputs[0], gate])


def _batch_norm(export: _Export, layer: Layer) -> None:
    scaled = export.node(
        "Mul", layer, [layer.inputs[0], export.weight(layer.weights["scale"])], output=f"{layer.name}.scaled"
    )
    export.node("Add", layer, [scaled, export.weight(layer.weights["shift"])])


def _layer_norm(export: _Export, layer: Layer) -> None:  # one operator from opset 17 on
    name, (x,) = layer.name, layer.inputs
    rank = export.rank(layer)
    axes = list(range(int(layer.attrs["axis"]) % rank, rank))
    mean = export.mean(layer, x, axes, f"{name}.mean")
    centred = export.node("Sub", layer, [x, mean], output=f"{name}.centred")
    two = export.constant(layer, "two", 2.0, np.float32)
    square = export.node("Pow", layer, [centred, two], output=f"{name}.square")
    variance = export.mean(layer, square, axes, f"{name}.variance")
    epsilon = export.constant(layer, "epsilon", layer.attrs["epsilon"], np.float32)
    moved = export.node("Add", layer, [variance, epsilon], output=f"{name}.moved")
    deviation = export.node("Sqrt", layer, [moved], output=f"{name}.deviation")
    normal = export.node("Div", layer, [centred, deviation], output=f"{name}.normal")
    scaled = export.node("Mul", layer, [normal, export.weight(layer.weights["scale"])], output=f"{name}.scaled")
    export.node("Add", layer, [scaled, export.weight(layer.weights["shift"])])


def _group_norm(export: _Export, layer: Layer) -> None:
    """Write a norm of groups as one of instances, whose channels are the groups: opset 13 has no other."""
    name, shape, groups = layer.name, export.types[layer.inputs[0]].shape, int(layer.attrs["groups"])
    flat = export.constant(layer, "flat", (shape[0], groups, -1), np.int64)
    x = export.node("Reshape", layer, [layer.inputs[0], flat], output=f"{name}.grouped")
    ones = export.constant(layer, "ones", np.ones(groups), np.float32)
    zeros = export.constant(layer, "zeros", np.zeros(groups), np.float32)
    epsilon = float(layer.attrs["epsilon"])
    x = export.node("InstanceNormalization", layer, [x, ones, zeros], output=f"{name}.normal", epsilon=epsilon)
    x = export.node("Reshape", layer, [x, export.constant(layer, "shape", shape, np.int64)], output=f"{name}.image")
    each = (1, -1, *[1] * (len(shape) - 2))
    scale, shift = (np.asarray(export.weights[layer.weights[role]]).reshape(each) for role in ("scale", "shift"))
    x = export.node("Mul", layer, [x, export.constant(layer, "scale", scale, np.float32)], output=f"{name}.scaled")
    export.node("Add", layer, [x, export.constant(layer, "shift", shift, np.float32)])


def _topk(export: _Export, layer: Layer) -> None:
    from onnx import helper

    a, count = layer.attrs, export.constant(layer, "count", [layer.attrs["k"]], np.int64)
    names = [layer.name, f"{layer.name}.other"]
    outputs = names if a["result"] == "values" else names[::-1]
    attrs = {"axis": int(a["axis"]), "largest": int(a["largest"])}
    export.nodes.append(helper.make_node("TopK", [layer.inputs[0], count], outputs, name=layer.name, **attrs))


def _gather(export: _Export, layer: Layer) -> None:
    axis = int(layer.attrs["axis"])
    operands = [*(export.weight(name) for name in layer.weights.values()), *layer.inputs]
    if len(operands) == 1:
        operands.append(export.constant(layer, "indices", layer.attrs["indices"], np.int64))
    export.node("Gather", layer, operands, axis=axis)


def _cast(export: _Export, layer: Layer) -> None:
    from onnx import TensorProto

    dtype = TensorProto.DataType.Value(_DTYPES[layer.attrs.get("dtype", "fp32")])
    export.node("Cast", layer, list(layer.inputs), to=int(dtype))


def _clip(export: _Export, layer: Layer) -> None:
    bounds = [export.constant(layer, side, layer.attrs[side], np.float32) for side in ("low", "high")]
    export.node("Clip", layer, [layer.inputs[0], *bounds])


def _whole_image(export: _Export, layer: Layer, kept: bool) -> bool:
    """Write the mean of a small image as average pooling, which accelerators take where they take no other mean."""
    size = list(export.types[layer.inputs[0]].shape[2:])
    if not 1 <= min(size) <= max(size) <= _WINDOW:
        return False
    name = layer.name if kept else f"{layer.name}.pooled"
    export.node("AveragePool", layer, list(layer.inputs), output=name, kernel_shape=size)
    if not kept:
        shape = export.constant(layer, "shape", export.types[layer.name].shape, np.int64)
        export.node("Reshape", layer, [name, shape])
    return True


def _global_avg_pool(export: _Export, layer: Layer) -> None:
    if not _whole_image(export, layer, kept=True):
        export.node("GlobalAveragePool", layer, list(layer.inputs))


def _reduce(op: str) -> Handler:
    def handle(export: _Export, layer: Layer) -> None:
        axis = layer.attrs["axis"]
        axes = [axis] if isinstance(axis, int) else list(axis)
        keep = int(bool(layer.attrs.get("keepdims", False)))
        spatial = op == "ReduceMean" and export.rank(layer) == 4 and {one % 4 for one in axes} == {2, 3}
        if spatial and _whole_image(export, layer, kept=bool(keep)):
            return
        if op == "ReduceSum" or export.opset >= 18:  # the only reduction whose axes are an input in opset 13
            axes_in = export.constant(layer, "axes", axes, np.int64)
            export.node(op, layer, [layer.inputs[0], axes_in], keepdims=keep)
        else:
            export.node(op, layer, list(layer.inputs), axes=axes, keepdims=keep)

    return handle


def _slice(export: _Export, layer: Layer) -> None:
    roles = {"begin": "begin", "end": "end", "axes": "axes", "step": "stride"}  # NAME.step is a scale (`qdq`)
    ranges = [export.constant(layer, role, layer.attrs[name], np.int64) for name, role in roles.items()]
    export.node("Slice", layer, [layer.inputs[0], *ranges])


def _resize(export: _Export, layer: Layer) -> None:
    a = layer.attrs
    _, _, height, width = export.types[layer.inputs[0]].shape
    scales = [1.0, 1.0, a["size"][0] / height, a["size"][1] / width]
    attrs: dict[str, Any] = {"mode": "linear" if a["bilinear"] else "nearest"}
    if not a["bilinear"]:
        attrs["nearest_mode"] = a["rounding"]
    # As scales: accelerators require them, and for integer multiples of the size they are equivalent.
    inputs = [layer.inputs[0], "", export.constant(layer, "scales", scales, np.float32)]
    export.node("Resize", layer, inputs, coordinate_transformation_mode=a["coordinates"], **attrs)


def _reshape(export: _Export, layer: Layer) -> None:
    export.node("Reshape", layer, [layer.inputs[0], export.constant(layer, "shape", layer.attrs["shape"], np.int64)])


def _pad(export: _Export, layer: Layer) -> None:
    pads = export.constant(layer, "pads", layer.attrs["pads"], np.int64)
    value = export.constant(layer, "value", layer.attrs["value"], np.float32)
    export.node("Pad", layer, [layer.inputs[0], pads, value])


def _grid_sample(export: _Export, layer: Layer) -> None:
    modes = {"bilinear": "linear", "bicubic": "cubic"} if export.opset >= 20 else {}
    a, mode = layer.attrs, layer.attrs["mode"]
    attrs = {"mode": modes.get(mode, mode), "padding_mode": a["padding"], "align_corners": int(a["align"])}
    export.node("GridSample", layer, list(layer.inputs), **attrs)


def _kept(export: _Export, layer: Layer) -> None:
    """Write an operator of the file as it stands there, with all its results that are in use."""
    from onnx import TensorProto, helper, numpy_helper

    a, first = layer.attrs, layer.attrs["first"] or layer.name
    results = {
        int(one.attrs["result"]): one.name
        for one in export.network.layers
        if one.op == "onnx" and first in (one.name, one.attrs["first"])
    }
    if layer.name != results[min(results)]:
        return

    def operand(place: int | str) -> str:
        if isinstance(place, int):
            return layer.inputs[place]
        if not place:
            return ""
        name = f"{first}.{place}"
        if place in a["stored"]:
            dtype, shape, values = a["stored"][place]
            array = np.array(values, _numpy(dtype)).reshape(shape)
        else:
            array = np.asarray(export.weights[layer.weights[place]]).astype(_numpy(a["types"][place]))
        export.initializers[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    inputs = [operand(place) for place in a["operands"]]
    names = [results.get(place, f"{first}.result{place}") for place in range(max(results) + 1)]
    attrs = {
        name: TensorProto.FromString(value) if isinstance(value, bytes) else value
        for name, value in a["attributes"].items()
    }
    export.nodes.append(helper.make_node(a["operator"], inputs, names, name=first, domain=a["domain"], **attrs))


def _numpy(dtype: str) -> Any:
    return {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16}.get(dtype) or np.dtype(dtype)


_DTYPES = {"fp32": "FLOAT", "fp16": "FLOAT16", "fp64": "DOUBLE"} | {
    name: name.upper()
    for name in ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
}  # fmt: skip
_OPERATORS: dict[str, Handler] = {
    **{kind: _unary(op) for op, kind in (*UNARY.items(), ("IsInf", "isinf"))},
    **{kind: _binary(op) for op, kind in BINARY.items()},
    **{
        kind: _binary(op)
        for kind, op in (("matmul", "MatMul"), ("power", "Pow"), ("floor_mod", "Mod"), ("where", "Where"))
    },
    **{kind: _reduce(op) for op, kind in REDUCTIONS.items()},
    "conv2d": _convolution("Conv"),
    "conv2d_transpose": _convolution("ConvTranspose"),
    "dense": _dense,
    "max_pool": _pool("MaxPool"),
    "avg_pool": _pool("AveragePool"),
    "global_avg_pool": _global_avg_pool,
    "leaky_relu": _unary("LeakyRelu", "alpha"),
    "hard_sigmoid": _unary("HardSigmoid", "alpha", "beta"),
    "hard_swish": _hard_swish,
    "group_norm": _group_norm,
    "argmax": lambda export, layer: export.node(
        "ArgMax", layer, list(layer.inputs), axis=int(layer.attrs["axis"]), keepdims=int(layer.attrs["keepdims"])
    ),
    "topk": _topk,
    "scatter_nd": lambda export, layer: export.node("ScatterND", layer, list(layer.inputs)),
    "elu": _unary("Elu", "alpha"),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "gather": _gather,
    "clip": _clip,
    "cast": _cast,
    "concat": lambda export, layer: export.node("Concat", layer, list(layer.inputs), axis=layer.attrs["axis"]),
    "slice": _slice,
    "resize2d": _resize,
    "reshape": _reshape,
    "transpose": lambda export, layer: export.node(
        "Transpose", layer, list(layer.inputs), perm=list(layer.attrs["order"])
    ),
    "softmax": lambda export, layer: export.node("Softmax", layer, list(layer.inputs), axis=layer.attrs["axis"]),
    "pad": _pad,
    "grid_sample": _grid_sample,
    "onnx": _kept,
    "constant": lambda export, layer: export.node(
        "Identity",
        layer,
        [export.constant(layer, "value", export.weights[layer.weights["value"]], _numpy(layer.attrs["dtype"]))],
    ),
}
