"""The layers of a network as typed operations before fusion: the input of any compiler.

Biases become additions, and composite layers (batch normalisation, hard sigmoid, hard swish) become the operations they
consist of.  A varying dimension is -1.  Shapes and attributes of results follow from those of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, prod
from typing import Any

from socsched.errors import CompileError
from socsched.graph.fusion import Graph, Operation, fuse
from socsched.graph.network import Layer, Network, pair, sides_of
from socsched.graph.operators import TensorType

Shape = tuple[int, ...]


def _window(attrs: Mapping[str, Any], kernel: Shape) -> dict[str, float]:
    """Return the geometry common to sliding-window operators; `pad` is the largest of the four."""
    pads, (stride_h, stride_w) = sides_of(attrs.get("padding", 0)), pair(attrs.get("stride", 1))
    dilation = pair(attrs.get("dilation", 1))
    geometry: dict[str, float] = {
        "kernel_h": kernel[0], "kernel_w": kernel[1], "stride_h": stride_h, "stride_w": stride_w,
        "pad": max(pads), "dilation": max(dilation),
    }  # fmt: skip
    if len(set(pads)) > 1:  # sides differ
        geometry |= {"pad_h": max(pads[0], pads[2]), "pad_w": max(pads[1], pads[3]), "uneven": 1}
        geometry |= {"pad_top": pads[0], "pad_left": pads[1]}
    if max(dilation) > 1:
        geometry |= {"dilation_h": dilation[0], "dilation_w": dilation[1]}
    return geometry


def _slid(attrs: Mapping[str, Any], size: Shape, kernel: Shape, up: bool = False) -> Shape:
    """Return height and width after sliding a window; `up`: rounded up, so a window may extend past the border."""
    pads, strides, dilation = sides_of(attrs.get("padding", 0)), pair(attrs.get("stride", 1)), attrs.get("dilation", 1)
    sides = []
    for axis in (0, 1):
        span = size[axis] + pads[axis] + pads[axis + 2] - pair(dilation)[axis] * (kernel[axis] - 1) - 1
        count = (ceil(span / strides[axis]) if up else span // strides[axis]) + 1
        # a window that would start in the padding after the image is omitted
        sides.append(count - (up and (count - 1) * strides[axis] >= size[axis] + pads[axis]))
    return tuple(sides)


def _conv2d(attrs: Mapping[str, Any], shape: Shape, weight: Shape) -> tuple[Shape, dict[str, float]]:
    out_channels, in_channels, *kernel = weight
    groups = int(attrs.get("groups", 1))
    channels = {"groups": groups, "in_channels": in_channels * groups, "out_channels": out_channels}
    result = (shape[0], out_channels, *_slid(attrs, shape[2:], tuple(kernel)))
    return result, {**_window(attrs, tuple(kernel)), **channels}


def _conv2d_transpose(attrs: Mapping[str, Any], shape: Shape, weight: Shape) -> tuple[Shape, dict[str, float]]:
    in_channels, out_channels, *kernel = weight
    groups = int(attrs.get("groups", 1))
    pads, strides = sides_of(attrs.get("padding", 0)), pair(attrs.get("stride", 1))
    dilation, more = pair(attrs.get("dilation", 1)), pair(attrs.get("output_padding", 0))
    sides = [
        (shape[2 + axis] - 1) * strides[axis]
        - pads[axis]
        - pads[axis + 2]
        + dilation[axis] * (kernel[axis] - 1)
        + 1
        + more[axis]
        for axis in (0, 1)
    ]
    channels = {"groups": groups, "in_channels": in_channels, "out_channels": out_channels * groups}
    return (shape[0], out_channels * groups, *sides), {**_window(attrs, tuple(kernel)), **channels}


WEIGHTED: dict[str, Callable[[Mapping[str, Any], Shape, Shape], tuple[Shape, dict[str, float]]]] = {
    "conv2d": _conv2d,
    "conv2d_transpose": _conv2d_transpose,
    "dense": lambda attrs, shape, weight: (
        (*shape[:-1], weight[0]),
        {"in_channels": weight[1], "out_channels": weight[0]},
    ),
}
"""Shape and attributes of operators with a weight, from attributes, input shape and weight shape."""


def broadcast(one: Shape, other: Shape) -> Shape:
    """Return the shape of an element-wise operation on two shapes."""
    length = max(len(one), len(other))
    left, right = (1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other
    return tuple(b if a == 1 else a if b == 1 else b if a < 0 else a for a, b in zip(left, right, strict=True))


def product(left: Shape, right: Shape) -> Shape:
    """Return the shape of a matrix product."""
    if len(left) == 1 or len(right) == 1:
        return (*left[:-1], *right[:-2], *right[len(right) - 1 :][: len(right) - 1])
    return (*broadcast(left[:-2], right[:-2]), left[-2], right[-1])


Found = tuple[Shape, dict[str, float], dict[str, Any]]


def _pool(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    kernel, (batch, channels, *size) = pair(attrs["kernel"]), shapes[0]
    geometry = _window(attrs, kernel)
    result = (batch, channels, *_slid(attrs, tuple(size), kernel, bool(attrs.get("ceil", False))))
    return result, {**geometry, "window": geometry["kernel_h"], "in_channels": channels, "out_channels": channels}, {}


def _global_pool(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    batch, channels, *size = shapes[0]
    geometry = {"kernel_h": size[0], "kernel_w": size[-1], "window": max(size)}
    result = (batch, channels, *(1 for _ in size))
    return result, {**geometry, "in_channels": channels, "out_channels": channels}, {}


def _reduce(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    shape, axis = shapes[0], attrs["axis"]
    axes = [axis] if isinstance(axis, int) else list(axis)
    gone = {one % len(shape) for one in axes}
    kept = bool(attrs.get("keepdims", False))
    result = tuple(1 if n in gone else size for n, size in enumerate(shape) if kept or n not in gone)
    return result, reduction(shape, axes), {"axes": tuple(axes)}


def reduction(shape: Shape, axes: list[int]) -> dict[str, float]:
    """Return the attributes of a reduction: `spatial` is 1 where it is over height and width of an image, a pooling."""
    attrs: dict[str, float] = {"axis": axes[0], "window": prod(shape[one] for one in axes), "spatial": 0}
    if len(shape) == 4 and {one % 4 for one in axes} == {2, 3}:
        attrs |= {"spatial": 1, "kernel_h": shape[2], "kernel_w": shape[3]}
    return attrs


def _concat(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis = int(attrs["axis"]) % len(shapes[0])
    total = sum(shape[axis] for shape in shapes)
    return (*shapes[0][:axis], total, *shapes[0][axis + 1 :]), {"axis": int(attrs["axis"])}, {}


def _matmul(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    if len(shapes) < 2:
        return shapes[0], {}, {}
    left, right = reversed(shapes) if attrs.get("swapped") else shapes
    return product(left, right), {"in_channels": right[-2], "out_channels": right[-1]}, {}


def _sliced(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    shape = list(shapes[0])
    for axis, begin, end, step in zip(attrs["axes"], attrs["begin"], attrs["end"], attrs["step"], strict=True):
        shape[axis] = len(range(*slice(begin, end, step).indices(shape[axis])))
    return tuple(shape), {}, {}


def _resize2d(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    height, width = (int(size) for size in attrs["size"])
    scales = {"scale_h": height / shapes[0][2], "scale_w": width / shapes[0][3]}
    factors = {**scales, "scale": max(scales.values()), "bilinear": int(bool(attrs["bilinear"]))}
    return (*shapes[0][:2], height, width), factors, {}


def _reshape(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    sizes = [shapes[0][n] if size == 0 else int(size) for n, size in enumerate(attrs["shape"])]
    if -1 in sizes and min(shapes[0], default=1) >= 0:
        sizes[sizes.index(-1)] = prod(shapes[0]) // max(-prod(sizes), 1)
    return tuple(sizes), {}, {}


def _softmax(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis = int(attrs["axis"]) % len(shapes[0])
    length = shapes[0][axis]
    return shapes[0], {"axis": axis, "axis_dim": length, "other_dims": prod(shapes[0]) // max(length, 1)}, {}


def _argmax(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis = int(attrs["axis"]) % len(shapes[0])
    kept = (1,) if attrs["keepdims"] else ()
    return (*shapes[0][:axis], *kept, *shapes[0][axis + 1 :]), {"axis": axis}, {}


def _topk(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    axis, kept = int(attrs["axis"]) % len(shapes[0]), int(attrs["k"])
    return (*shapes[0][:axis], kept, *shapes[0][axis + 1 :]), {"axis": axis, "kept": kept}, {}


def _padded(attrs: Mapping[str, Any], shapes: list[Shape]) -> Found:
    pads, half = attrs["pads"], len(attrs["pads"]) // 2
    return tuple(size + pads[n] + pads[n + half] for n, size in enumerate(shapes[0])), {}, {}


OTHERS: dict[str, Callable[[Mapping[str, Any], list[Shape]], Found]] = {
    "max_pool": _pool,
    "avg_pool": _pool,
    "global_avg_pool": _global_pool,
    "reduce_max": _reduce,
    "reduce_mean": _reduce,
    "reduce_sum": _reduce,
    "concat": _concat,
    "matmul": _matmul,
    "slice": _sliced,
    "resize2d": _resize2d,
    "reshape": _reshape,
    "transpose": lambda attrs, shapes: (tuple(shapes[0][axis] for axis in attrs["order"]), {}, {}),
    "softmax": _softmax,
    "pad": _padded,
    "argmax": _argmax,
    "topk": _topk,
    "pillar_features": lambda attrs, shapes: ((shapes[0][0], shapes[0][1], 9), {}, {}),
    "scatter": lambda attrs, shapes: ((1, shapes[0][1], attrs["ny"], attrs["nx"]), {}, {}),
}
"""Shape, attributes and further fields of other operators, from attributes and input shapes."""


def fuse_network(network: Network) -> Graph:
    """Return the fused operators of a network, types in fp32; CompileError for an unknown layer op."""
    expansion = _Expansion(network)
    return fuse(network, expansion.inputs, expansion.operations, tuple(expansion.name[n] for n in network.outputs))


def layer_types(network: Network) -> dict[str, TensorType]:
    """Return layer name -> logical type of its result in fp32."""
    expansion = _Expansion(network)
    return {layer.name: expansion.type[layer.name] for layer in network.layers}


def _typed(shape: Shape, dtype: str = "fp32") -> TensorType:
    return TensorType(shape, "fp32" if dtype == "fp16" else dtype, "NCHW" if len(shape) == 4 else "")


def _turns(attrs: Mapping[str, Any], shapes: Sequence[Shape]) -> dict[str, float]:
    """Return the number of products, one after another, of a recurrent operator: one a step and direction."""
    if attrs["operator"] not in ("GRU", "LSTM", "RNN") or attrs["operands"][0] != 0:
        return {}
    step = 1 if attrs["attributes"].get("layout", 0) else 0
    directions = 2 if attrs["attributes"].get("direction") in (b"bidirectional", "bidirectional") else 1
    return {"turns": shapes[0][step] * directions, "directions": directions}


class _Expansion:
    """`operations` in topological order; `name` and `type` of the result of every layer and of every network input."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.operations: list[Operation] = []
        self.name: dict[str, str] = {}
        self.type: dict[str, TensorType] = {}
        self.taken: set[str] = set()
        for name, tensor in network.inputs.items():
            self.name[name], self.type[name] = self.free(name), _typed(tensor.shape, tensor.dtype)
        self.inputs = {self.name[name]: self.type[name] for name in network.inputs}
        for layer in network.layers:
            self.layer(layer)

    def free(self, name: str) -> str:
        """Return a name that no other value has."""
        plain, number = name.replace(".", "_"), 0
        unique = plain
        while unique in self.taken:
            number += 1
            unique = f"{plain}_{number}"
        self.taken.add(unique)
        return unique

    def emit(
        self, layer: Layer, part: str, kind: str, inputs: list[str], shape: Shape, dtype: str = "fp32", **more: Any
    ) -> str:
        """Add an operation for all or part of a layer and return the name of its result."""
        name = self.free(f"{layer.name}.{part}" if part else layer.name)
        whole = layer.op if layer.op in _WHOLE else ""
        self.operations.append(
            Operation(
                *(name, kind, tuple(inputs), _typed(shape, dtype)),
                **{"options": layer.attrs, "whole": whole, "layer": layer.name, **more},
            )
        )
        if not part:
            self.name[layer.name], self.type[layer.name] = name, _typed(shape, dtype)
        return name

    def layer(self, layer: Layer) -> None:
        inputs = [self.name[name] for name in layer.inputs]
        if layer.op == "onnx":
            a = layer.attrs
            weights = tuple(layer.weights.values())
            facts: dict[str, float] = {
                **{name: 1 for name in ("varies", "plugin") if a.get(name)},
                **_turns(a, [self.type[name].shape for name in layer.inputs]),
            }
            self.emit(
                layer,
                "",
                "onnx",
                inputs,
                tuple(a["shape"]),
                a["dtype"],
                weights=weights,
                whole=a["rule"],
                attrs=facts,
            )
            return
        if layer.op == "constant":
            weights = (layer.weights["value"],)
            self.emit(layer, "", "constant", [], self.network.params[weights[0]], layer.attrs["dtype"], weights=weights)
            return
        types = [self.type[name] for name in layer.inputs]
        shapes = [tensor.shape for tensor in types]
        if layer.op in _SPELT_OUT:
            getattr(self, layer.op)(layer, inputs, shapes[0])
        elif layer.op in ("conv2d", "conv2d_transpose", "dense"):
            weight = self.network.params[layer.weights["weight"]]
            shape, attrs = WEIGHTED[layer.op](layer.attrs, shapes[0], weight)
            self.biased(layer, inputs, shape, attrs)
        elif layer.op in COMPARISONS or layer.op == "where":
            shape = shapes[0]
            for other in shapes[1:]:
                shape = broadcast(shape, other)
            dtype = "bool" if layer.op in COMPARISONS else types[1].dtype
            self.emit(layer, "", layer.op, inputs, shape, dtype)
        elif layer.op in _ELEMENTWISE and layer.op != "matmul":
            constant = layer.weights.get("constant")
            other = self.network.params[constant] if constant else shapes[1] if len(shapes) > 1 else ()
            # The order of a sum's operands says nothing: exporters write Add(bias, y) as often as Add(y, bias).
            first = bool(constant and layer.attrs.get("swapped") and layer.op not in _EITHER_WAY)
            operands = inputs if constant or not layer.attrs.get("swapped") else inputs[::-1]
            more: dict[str, Any] = {"weights": (constant,) if constant else (), "weight_first": first}
            self.emit(layer, "", layer.op, operands, broadcast(shapes[0], other), types[0].dtype, **more)
        elif layer.op == "cast":
            self.emit(layer, "", "cast", inputs, shapes[0], layer.attrs.get("dtype", "fp32"))
        elif layer.op in OTHERS:
            shape, attrs, more = OTHERS[layer.op](layer.attrs, shapes)
            if layer.op == "matmul" and "constant" in layer.weights:
                self.matmul_constant(layer, inputs, shapes[0])
                return
            places = layer.op == "argmax" or (layer.op == "topk" and layer.attrs["result"] == "indices")
            dtype = "int64" if places else types[0].dtype
            self.emit(layer, "", layer.op, inputs, shape, dtype, attrs=attrs, **more)
        else:
            raise CompileError(f"{self.network.name}: layer {layer.name!r}: unknown op {layer.op!r}")

    def biased(self, layer: Layer, inputs: list[str], shape: Shape, attrs: Mapping[str, float]) -> None:
        weights = (layer.weights["weight"],)
        if "bias" not in layer.weights:
            self.emit(layer, "", layer.op, inputs, shape, attrs=attrs, weights=weights)
            return
        linear = self.emit(layer, "linear", layer.op, inputs, shape, attrs=attrs, weights=weights)
        self.emit(layer, "", "add", [linear], shape, weights=(layer.weights["bias"],), options={"biases": layer.op})

    def matmul_constant(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        """Add a product with a constant, which is a dense layer with a transposed weight."""
        constant = layer.weights["constant"]
        weight, first = self.network.params[constant], bool(layer.attrs.get("swapped"))
        result = product(weight, shape) if first else product(shape, weight)
        attrs = {"in_channels": weight[-1 if first else -2], "out_channels": weight[-2 if first else -1]}
        more: dict[str, Any] = {"weights": (constant,), "weight_first": first, "options": {"untransposed": True}}
        self.emit(layer, "", "dense", inputs, result, attrs=attrs, **more)

    def batch_norm(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        params = self.network.params
        scaled = broadcast(shape, params[layer.weights["scale"]])
        name = self.emit(layer, "scaled", "multiply", inputs, scaled, weights=(layer.weights["scale"],))
        moved = broadcast(scaled, params[layer.weights["shift"]])
        self.emit(layer, "", "add", [name], moved, weights=(layer.weights["shift"],))

    def hard_sigmoid(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        self.gate(layer, "", inputs, shape, layer.attrs["alpha"], layer.attrs["beta"])

    def hard_swish(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        gate = self.gate(layer, "gate", inputs, shape, 1 / 6, 0.5)
        self.emit(layer, "", "multiply", [*inputs, gate], shape)

    def elu(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        positive = self.emit(layer, "positive", "relu", inputs, shape)
        negative = self.emit(layer, "negative", "clip", inputs, shape, options={"high": 0.0})
        power = self.emit(layer, "power", "exp", [negative], shape)
        moved = self.emit(layer, "moved", "subtract", [power], shape, options={"number": 1.0})
        scaled = self.emit(layer, "scaled", "multiply", [moved], shape, options={"number": layer.attrs["alpha"]})
        self.emit(layer, "", "add", [positive, scaled], shape)

    def softplus(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        """Add max(x, 0) + log(1 + exp(-|x|)), in which no exponential overflows."""
        positive = self.emit(layer, "positive", "relu", inputs, shape)
        size = self.emit(layer, "size", "abs", inputs, shape)
        below = self.emit(layer, "below", "multiply", [size], shape, options={"number": -1.0})
        power = self.emit(layer, "power", "exp", [below], shape)
        moved = self.emit(layer, "moved", "add", [power], shape, options={"number": 1.0})
        rest = self.emit(layer, "rest", "log", [moved], shape)
        self.emit(layer, "", "add", [positive, rest], shape)

    def group_norm(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        attrs = {"groups": int(layer.attrs["groups"]), "in_channels": shape[1]}
        weights = tuple(layer.weights[role] for role in ("scale", "shift"))
        self.emit(layer, "", "group_norm", inputs, shape, attrs=attrs, weights=weights)

    def grid_sample(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        batch, height, width, pair = self.type[layer.inputs[1]].shape
        order = {"order": (0, 3, 1, 2)}  # compilers take the grid as [N, 2, H, W]
        grid = self.emit(layer, "grid", "transpose", [inputs[1]], (batch, pair, height, width), options=order)
        attrs = {"bilinear": int(layer.attrs["mode"] == "bilinear")}
        self.emit(layer, "", "grid_sample", [inputs[0], grid], (*shape[:2], height, width), attrs=attrs)

    def scatter_nd(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        """Add a scatter whose computed places stay inside the data whatever they are."""
        data, indices, updates = inputs
        places = self.type[layer.inputs[1]]
        last = {"number": [side - 1 for side in shape[: places.shape[-1]]]}
        below = self.emit(layer, "below", "minimum", [indices], places.shape, places.dtype, options=last)
        inside = self.emit(layer, "inside", "maximum", [below], places.shape, places.dtype, options={"number": 0})
        self.emit(layer, "", "scatter_nd", [data, inside, updates], shape, self.type[layer.inputs[0]].dtype)

    def layer_norm(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        axis = int(layer.attrs["axis"]) % len(shape)
        attrs = {"axis": axis, "axis_dim": prod(shape[axis:])}
        weights = tuple(layer.weights[role] for role in ("scale", "shift"))
        self.emit(layer, "", "layer_norm", inputs, shape, attrs=attrs, weights=weights)

    def gather(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        axis, table = int(layer.attrs["axis"]), layer.weights.get("table")
        if table is not None and len(inputs) == 1:
            rows = self.network.params[table]
            result = (*rows[:axis], *shape, *rows[axis + 1 :])
            self.emit(layer, "", "gather", inputs, result, attrs={"axis": axis}, weights=(table,), weight_first=True)
            return
        # computed places, or stated ones
        places = self.type[layer.inputs[1]].shape if len(inputs) == 2 else (len(layer.attrs["indices"]),)
        result = (*shape[:axis], *places, *shape[axis + 1 :])
        self.emit(layer, "", "gather", inputs, result, self.type[layer.inputs[0]].dtype, attrs={"axis": axis})

    def gate(self, layer: Layer, part: str, inputs: list[str], shape: Shape, slope: float, offset: float) -> str:
        """Add clip(x * slope + offset, 0, 1) and return its result."""
        scaled = self.emit(layer, "scaled", "multiply", inputs, shape, options={"number": slope})
        moved = self.emit(layer, "moved", "add", [scaled], shape, options={"number": offset})
        return self.emit(layer, part, "clip", [moved], shape, options={"low": 0.0, "high": 1.0})


_SPELT_OUT = frozenset(
    ("batch_norm", "hard_sigmoid", "hard_swish", "elu", "softplus", "group_norm", "scatter_nd", "grid_sample",
     "layer_norm", "gather")
)  # fmt: skip
"""Layers with a method of their own, of the same name."""
COMPARISONS = frozenset(
    ("equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
     "logical_not", "isnan", "isinf")
)  # fmt: skip
"""Element-wise operators whose results are true or false."""
_EITHER_WAY = frozenset(("add", "multiply", "maximum", "minimum"))
_WHOLE = frozenset(("hard_sigmoid", "hard_swish", "elu", "softplus"))
"""Layers that runtimes take as one operator, although they are counted as those they consist of."""
_ELEMENTWISE = frozenset(
    ("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "sqrt", "erf", "clip",
     "relu", "leaky_relu", "log", "abs", "sin", "cos", "floor", "ceil", "round", "sign", "power", "floor_mod")
)  # fmt: skip
