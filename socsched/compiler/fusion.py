"""The Relax module read back as fused operators: what analysis counts and what the CPU lowering turns into kernels.

Bias and ReLU are folded into the convolution, deconvolution, dense layer or addition that feeds nothing else; the
Pillar Feature Net (decorate, dense, ReLU, maximum over slots) becomes one operator, since its [P, slots, channels]
intermediate must never reach memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from socsched.compiler.relax_import import DTYPES
from socsched.errors import CompileError
from socsched.graph.network import Network
from socsched.graph.operators import TensorType

_NAMES = {name: dtype for dtype, name in DTYPES.items()}
_BIASED = ("conv2d", "conv2d_transpose", "dense")
_RECTIFIED = (*_BIASED, "add")


@dataclass(frozen=True, slots=True)
class Group:
    """One fused operator: `inputs` and `output` name values, `weights` maps role -> key of `Network.params`.

    `attrs` are those of `graph.operators.Operator`; `options` what only lowering needs (pillar size, grid, ...).
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    output: str
    weights: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    relu: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """Fused operators in topological order; `values` gives every value's logical type (-1 where it varies).

    `calls` holds the Relax expression behind every value, `params` the weight behind every parameter's name.
    """

    network: Network
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    groups: tuple[Group, ...]
    values: Mapping[str, TensorType]
    calls: Mapping[str, Any] = field(default_factory=dict, compare=False)
    params: Mapping[str, str] = field(default_factory=dict, compare=False)

    def consumers(self, value: str) -> list[Group]:
        """Return the operators that read `value`."""
        return [group for group in self.groups if value in group.inputs]

    def used_once(self, value: str) -> bool:
        """Return whether `value` has exactly one reader and does not leave the graph."""
        return value not in self.outputs and sum(group.inputs.count(value) for group in self.groups) == 1

    def in_place(self, group: Group) -> bool:
        """Return whether a concatenation costs nothing, because every input can be written straight into its slice."""
        by_output = {other.output: other for other in self.groups}
        return (
            group.kind == "concat"
            and group.attrs["axis"] == 1
            and all(
                self.used_once(value)
                and value in by_output
                and by_output[value].kind in ("conv2d", "conv2d_transpose")
                and len(self.values[value].shape) == 4
                for value in group.inputs
            )
        )


def read(module: Any, network: Network) -> Graph:
    """Return the fused operators of `main` in `module`, the import of `network`; CompileError for one not known."""
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
        self.inputs = tuple(str(var.name) for var in self.main.params[:count])
        self.weights = dict(zip((str(v.name) for v in self.main.params[count:]), network.params, strict=True))
        self.values = {str(var.name): tensor_type(var.ty) for var in self.main.params[:count]}
        self.groups: list[Group] = []
        self.helpers: set[str] = set()
        self.biases = {layer.weights["bias"] for layer in network.layers if "bias" in layer.weights}
        self.uses: Counter[str] = Counter()

    def graph(self) -> Graph:
        bindings = [binding for block in self.main.body.blocks for binding in block.bindings]
        *body, result = bindings
        for binding in bindings:
            self.uses.update(_operands(binding.value))
        calls = {str(binding.var.name): binding.value for binding in body}
        params = dict(self.weights)
        for binding in body:
            self.add(str(binding.var.name), binding.value)
        outputs = tuple(str(item.name) for item in result.value.fields)
        return Graph(self.network, self.inputs, outputs, tuple(self.groups), self.values, calls, params)

    def add(self, name: str, call: Any) -> None:
        op = str(call.op.name)
        args = _operands(call)
        if args and all(arg in self.weights for arg in args):  # a parameter brought into the form its operator takes
            self.weights[name] = self.weights[args[0]]
            return
        if op == "relax.call_tir" and self.kernel_kind(call) == "pillar_sums":  # part of the pillar_features it feeds
            self.helpers.add(name)
            return
        self.values[name] = tensor_type(call.ty)
        producer = self.producer(args[0]) if args and args[0] not in self.weights else None
        if op == "relax.add" and self.is_bias(producer, args):
            assert producer is not None
            self.fold(producer, name, weights={**producer.weights, "bias": self.weights[args[1]]})
        elif op == "relax.nn.relu" and producer and producer.kind in _RECTIFIED and self.uses[args[0]] == 1:
            self.fold(producer, name, relu=True)
        elif op == "relax.max" and producer and self.fuse_pillars(producer, name, call):
            return
        else:
            self.groups.append(self.anchor(name.removesuffix("_linear"), name, op, args, call))

    def is_bias(self, producer: Group | None, args: tuple[str, ...]) -> bool:
        """Say whether an addition is the bias its layer asks for, the last thing that can join the layer."""
        if producer is None or producer.kind not in _BIASED or len(args) < 2 or args[1] not in self.weights:
            return False
        return "bias" not in producer.weights and not producer.relu and self.weights[args[1]] in self.biases

    def kernel_kind(self, call: Any) -> str:
        return str(self.module[call.args[0]].attrs["socsched.kind"])

    def producer(self, value: str) -> Group | None:
        return next((group for group in reversed(self.groups) if group.output == value), None)

    def fold(self, producer: Group, output: str, **changes: Any) -> None:
        index = self.groups.index(producer)
        self.groups[index] = replace(producer, output=output, **changes)

    def fuse_pillars(self, dense: Group, output: str, call: Any) -> bool:
        decorate = self.producer(dense.inputs[0]) if dense.kind == "dense" and dense.relu else None
        if decorate is None or decorate.kind != "pillar_features" or [int(a) for a in call.attrs.axis] != [1]:
            return False
        if self.uses[dense.inputs[0]] != 1 or self.uses[dense.output] != 1:
            return False
        self.groups.remove(dense)
        attrs = {**dense.attrs, "window": self.values[decorate.output].shape[1]}
        self.fold(decorate, output, name=output, attrs=attrs, weights=dense.weights, relu=True)
        return True

    def anchor(self, name: str, output: str, op: str, args: tuple[str, ...], call: Any) -> Group:
        given = [self.weights[arg] for arg in args if arg in self.weights]
        weights = dict(zip(("weight",), given, strict=False))
        inputs = tuple(arg for arg in args if arg not in self.weights and arg not in self.helpers)
        shapes = [self.network.params[key] for key in weights.values()]
        if op == "relax.call_tir":
            kind = self.kernel_kind(call)
            layer = next(layer for layer in self.network.layers if layer.op == kind)
            return Group(name, kind, inputs, output, options=layer.attrs)
        if op not in _KINDS:
            raise CompileError(f"{self.network.name}: {output}: no analysis for operator {op}")
        kind, attrs = _KINDS[op]
        if kind == "dense" and not weights:
            kind = "matmul"
        found = attrs(call, [self.values[value].shape for value in inputs], shapes)
        return Group(name, kind, inputs, output, weights, found)


def _operands(expression: Any) -> tuple[str, ...]:
    """Names of the values an expression reads, through tuples; a kernel's own name is left out."""
    from socsched.compiler.environment import relax

    if isinstance(expression, relax.Tuple):
        return tuple(name for item in expression.fields for name in _operands(item))
    if isinstance(expression, relax.Var):
        return (str(expression.name),)
    return tuple(name for item in getattr(expression, "args", ()) for name in _operands(item))


def _window(attrs: Any, kernel: Any) -> dict[str, float]:
    """Geometry every sliding-window operator has; `pad` is the largest of the four."""
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
    return {"axis": axes[0], "window": prod(inputs[0][axis] for axis in axes)}


def _global_pool(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    _, channels, height, width = inputs[0]
    shape = {"in_channels": channels, "out_channels": channels}
    return {"kernel_h": height, "kernel_w": width, "window": max(height, width), **shape}


def _softmax(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    axis = int(call.attrs.axis) % len(inputs[0])
    length = inputs[0][axis]
    return {"axis": axis, "axis_dim": length, "other_dims": prod(inputs[0]) // max(length, 1)}


def _resize(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    height, width = (int(size) for size in call.args[1].values)
    scales = {"scale_h": height / inputs[0][2], "scale_w": width / inputs[0][3]}
    return {**scales, "scale": max(scales.values()), "bilinear": int("linear" in str(call.attrs.method))}


def _dense(call: Any, inputs: Any, weights: Any) -> dict[str, float]:
    if weights:
        return {"in_channels": weights[0][1], "out_channels": weights[0][0]}
    return {"in_channels": inputs[1][-2], "out_channels": inputs[1][-1]}


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
    "relax.image.resize2d": ("resize2d", _resize),
    "relax.strided_slice": ("slice", _nothing),
    "relax.permute_dims": ("transpose", _nothing),
    "relax.nn.leakyrelu": ("leaky_relu", _nothing),
    **{
        f"relax.{op}": (op, _nothing)
        for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "sqrt")
    },
    **{f"relax.{op}": (op, _nothing) for op in ("clip", "reshape")},
    **{f"relax.nn.{op}": (op, _nothing) for op in ("relu", "pad")},
}
