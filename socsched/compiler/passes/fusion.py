"""Reads the Relax module of a network back as operations and fuses them (`graph.fusion`) for lowering."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from socsched.compiler.passes.relax_import import DTYPES
from socsched.compiler.target import Compilation
from socsched.errors import CompileError
from socsched.graph import fusion
from socsched.graph.expand import reduction
from socsched.graph.fusion import Graph, Operation
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

_NAMES = {name: dtype for dtype, name in DTYPES.items()}


def fuse(compilation: Compilation) -> Compilation:
    """Return the network's fused operators; CompileError if one is unknown."""
    return replace(compilation, graph=read(compilation.module, compilation.asked.network))


def read(module: Any, network: Network) -> Graph:
    """Return the fused operators of `main` in `module`, the import of `network`; CompileError if one is unknown."""
    return _Reader(module, network).graph()


def tensor_type(ty: Any) -> TensorType:
    """Return the logical type of a Relax tensor type; a symbolic dimension becomes -1."""
    shape = tuple(_static(size) for size in ty.shape)
    return TensorType(shape, _NAMES[str(ty.dtype)], "NCHW" if len(shape) == 4 else "")


def _static(size: Any) -> int:
    try:
        return int(size)
    except TypeError:
        return -1


class _Reader:
    def __init__(self, module: Any, network: Network) -> None:
        self.module, self.network = module, network
        self.main = module["main"]
        count = int(self.main.attrs["num_input"])
        self.inputs = {str(var.name): tensor_type(var.ty) for var in self.main.params[:count]}
        self.weights = dict(zip((str(v.name) for v in self.main.params[count:]), network.params, strict=True))
        self.shapes = {name: tensor.shape for name, tensor in self.inputs.items()}
        self.helpers: set[str] = set()

    def graph(self) -> Graph:
        *body, result = [binding for block in self.main.body.blocks for binding in block.bindings]
        calls = {str(binding.var.name): binding.value for binding in body}
        params = dict(self.weights)
        found = [self.operation(name, call) for name, call in calls.items()]
        outputs = tuple(str(item.name) for item in result.value.fields)
        return fusion.fuse(self.network, self.inputs, [op for op in found if op is not None], outputs, calls, params)

    def operation(self, name: str, call: Any) -> Operation | None:
        """Return the operation of a binding; None for a reshaped parameter and for a part of another kernel."""
        args = _operands(call)
        if args and all(arg in self.weights for arg in args):  # a parameter converted to the form its operator takes
            self.weights[name] = self.weights[args[0]]
            return None
        kernel = self.kernel_kind(call)
        if kernel == "pillar_sums":  # part of the pillar_features it feeds
            self.helpers.add(name)
            return None
        inputs = tuple(arg for arg in args if arg not in self.weights and arg not in self.helpers)
        weights = tuple(self.weights[arg] for arg in args if arg in self.weights)
        result = tensor_type(call.ty)
        self.shapes[name] = result.shape
        first = bool(args) and args[0] in self.weights
        if kernel:
            layer = next(layer for layer in self.network.layers if layer.op == kernel)
            return Operation(name, kernel, inputs, result, weights, options=layer.attrs, weight_first=first)
        op = str(call.op.name)
        if op not in _KINDS:
            raise CompileError(f"{self.network.name}: {name}: no analysis for operator {op}")
        kind, attrs = _KINDS[op]
        if kind == "dense" and not weights:
            kind = "matmul"
        params = attrs(
            call, [self.shapes[value] for value in inputs], [self.network.params[key] for key in weights[:1]]
        )
        axes = tuple(int(axis) for axis in call.attrs.axis) if kind == "reduce_max" else ()
        return Operation(name, kind, inputs, result, weights, params, axes=axes, weight_first=first)

    def kernel_kind(self, call: Any) -> str:
        """Return the kind of a custom kernel, "" for a Relax operator."""
        if str(call.op.name) != "relax.call_tir":
            return ""
        return str(self.module[call.args[0]].attrs["socsched.kind"])


def _operands(expression: Any) -> tuple[str, ...]:
    """Return the names of the values an expression reads, through tuples, without the kernel's own name."""
    from socsched.compiler.environment import relax

    if isinstance(expression, relax.Tuple):
        return tuple(name for item in expression.fields for name in _operands(item))
    if isinstance(expression, relax.Var):
        return (str(expression.name),)
    return tuple(name for item in getattr(expression, "args", ()) for name in _operands(item))


def _window(attrs: Any, kernel: Any) -> dict[str, float]:
    """Return the geometry common to sliding-window operators; `pad` is the largest of the four."""
    pads = [int(value) for value in attrs.padding]
    found: dict[str, float] = {
        "kernel_h": int(kernel[0]),
        "kernel_w": int(kernel[1]),
        "stride_h": int(attrs.strides[0]),
        "stride_w": int(attrs.strides[1]),
        "pad": max(pads),
        "dilation": max(int(value) for value in attrs.dilation),
    }
    if len(set(pads)) > 1:  # sides differ
        found |= {"pad_h": max(pads[0], pads[-2]), "pad_w": max(pads[1], pads[-1]), "uneven": 1}
        found |= {"pad_top": pads[0], "pad_left": pads[1]}
    if found["dilation"] > 1:
        found |= {"dilation_h": int(attrs.dilation[0]), "dilation_w": int(attrs.dilation[1])}
    return found


def _conv2d(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    out_channels, in_channels, *kernel = weights[0]
    groups = int(call.attrs.groups)
    channels = {"groups": groups, "in_channels": in_channels * groups, "out_channels": out_channels}
    return {**_window(call.attrs, kernel), **channels}


def _conv2d_transpose(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    in_channels, out_channels, *kernel = weights[0]
    groups = int(call.attrs.groups)
    channels = {"groups": groups, "in_channels": in_channels, "out_channels": out_channels * groups}
    return {**_window(call.attrs, kernel), **channels}


def _max_pool(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    channels = inputs[0][1]
    geometry = _window(call.attrs, call.attrs.pool_size)
    return {**geometry, "window": geometry["kernel_h"], "in_channels": channels, "out_channels": channels}


def _reduce(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    axes = [int(a) for a in call.attrs.axis] if call.attrs.axis is not None else list(range(len(inputs[0])))
    return reduction(inputs[0], axes)


def _global_pool(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    _, channels, height, width = inputs[0]
    shape = {"in_channels": channels, "out_channels": channels}
    return {"kernel_h": height, "kernel_w": width, "window": max(height, width), **shape}


def _softmax(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    axis = int(call.attrs.axis) % len(inputs[0])
    length = inputs[0][axis]
    return {"axis": axis, "axis_dim": length, "other_dims": prod(inputs[0]) // max(length, 1)}


def _layer_norm(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    axis = min(int(one) % len(inputs[0]) for one in call.attrs.axes)
    return {"axis": axis, "axis_dim": prod(inputs[0][axis:])}


def _resize(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    height, width = (int(size) for size in call.args[1].values)
    scales = {"scale_h": height / inputs[0][2], "scale_w": width / inputs[0][3]}
    return {**scales, "scale": max(scales.values()), "bilinear": int("linear" in str(call.attrs.method))}


def _dense(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    if weights:
        return {"in_channels": weights[0][1], "out_channels": weights[0][0]}
    return {"in_channels": inputs[1][-2], "out_channels": inputs[1][-1]}


def _group_norm(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    return {"groups": int(call.attrs.num_groups), "in_channels": inputs[0][1]}


def _axis(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    return {"axis": int(call.attrs.axis) % len(inputs[0])}


def _nothing(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    return {}


_KINDS: dict[str, tuple[str, Any]] = {
    "relax.nn.conv2d": ("conv2d", _conv2d),
    "relax.nn.conv2d_transpose": ("conv2d_transpose", _conv2d_transpose),
    "relax.nn.max_pool2d": ("max_pool", _max_pool),
    "relax.nn.avg_pool2d": ("avg_pool", _max_pool),
    "relax.nn.adaptive_avg_pool2d": ("global_avg_pool", _global_pool),
    "relax.matmul": ("dense", _dense),
    "relax.concat": ("concat", lambda call, i, w: {"axis": int(call.attrs.axis)}),
    "relax.max": ("reduce_max", _reduce),
    "relax.mean": ("reduce_mean", _reduce),
    "relax.sum": ("reduce_sum", _reduce),
    "relax.nn.softmax": ("softmax", _softmax),
    "relax.nn.group_norm": ("group_norm", _group_norm),
    "relax.argmax": ("argmax", _axis),
    "relax.topk": ("topk", lambda call, i, w: {**_axis(call, i, w), "kept": int(call.attrs.k)}),
    "relax.image.grid_sample": (
        "grid_sample",
        lambda call, i, w: {"bilinear": int(str(call.attrs.method) == "bilinear")},
    ),
    "relax.scatter_nd": ("scatter_nd", _nothing),
    "relax.nn.layer_norm": ("layer_norm", _layer_norm),
    "relax.take": ("gather", lambda call, i, w: {"axis": int(call.attrs.axis)}),
    "relax.image.resize2d": ("resize2d", _resize),
    "relax.strided_slice": ("slice", _nothing),
    "relax.permute_dims": ("transpose", _nothing),
    "relax.nn.leakyrelu": ("leaky_relu", _nothing),
    **{
        f"relax.{op}": (op, _nothing)
        for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "sqrt")
    },
    "relax.astype": ("cast", _nothing),
    **{f"relax.{op}": (op, _nothing) for op in ("erf", "clip", "reshape", "log", "abs")},
    **{f"relax.nn.{op}": (op, _nothing) for op in ("relu", "pad")},
}
