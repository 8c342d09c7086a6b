"""The layers of a network as typed operations before fusion: the input of any compiler.

Biases become additions, and composite layers (batch normalisation, hard sigmoid, hard swish) become the operations they
consist of.  A varying dimension is -1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from socsched.errors import CompileError
from socsched.graph.fusion import Graph, Operation, fuse
from socsched.graph.network import Layer, Network
from socsched.graph.operator_shapes import OTHERS, WEIGHTED, Shape, broadcast, product
from socsched.graph.operators import TensorType


def fuse_network(network: Network) -> Graph:
    """Return the fused operators of a network, types in fp32; CompileError for an unknown layer op."""
    expansion = _Expansion(network)
    return fuse(network, expansion.inputs, expansion.operations, tuple(expansion.name[n] for n in network.outputs))


def layer_types(network: Network) -> dict[str, TensorType]:
    """Return layer name -> logical type of its result in fp32."""
    expansion = _Expansion(network)
    return {layer.name: expansion.type[layer.name] for layer in network.layers}


def _typed(shape: Shape, dtype: str = "fp32") -> TensorType:
    return TensorType(shape, "fp32" if dtype in ("fp16", "int8") else dtype, "NCHW" if len(shape) == 4 else "")


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
        found = plain
        while found in self.taken:
            number += 1
            found = f"{plain}_{number}"
        self.taken.add(found)
        return found

    def emit(
        self, layer: Layer, part: str, kind: str, inputs: list[str], shape: Shape, dtype: str = "fp32", **more: Any
    ) -> str:
        """Add an operation for all or part of a layer and return the name of its result."""
        name = self.free(f"{layer.name}.{part}" if part else layer.name)
        whole = layer.op if layer.op in _WHOLE else ""
        self.operations.append(
            Operation(name, kind, tuple(inputs), _typed(shape, dtype), whole=whole, layer=layer.name, **more)
        )
        if not part:
            self.name[layer.name], self.type[layer.name] = name, _typed(shape, dtype)
        return name

    def layer(self, layer: Layer) -> None:
        inputs = [self.name[name] for name in layer.inputs]
        types = [self.type[name] for name in layer.inputs]
        shapes = [tensor.shape for tensor in types]
        if layer.op in _SPELT_OUT:
            _SPELT_OUT[layer.op](self, layer, inputs, shapes[0])
        elif layer.op in ("conv2d", "conv2d_transpose", "dense"):
            weight = self.network.params[layer.weights["weight"]]
            shape, attrs = WEIGHTED[layer.op](layer.attrs, shapes[0], weight)
            self.biased(layer, inputs, shape, attrs)
        elif layer.op in _ELEMENTWISE and layer.op != "matmul":
            constant = layer.weights.get("constant")
            other = self.network.params[constant] if constant else shapes[1] if len(shapes) > 1 else ()
            first = bool(constant and layer.attrs.get("swapped"))
            given = inputs if constant or not layer.attrs.get("swapped") else inputs[::-1]
            more: dict[str, Any] = {"weights": (constant,) if constant else (), "weight_first": first}
            self.emit(layer, "", layer.op, given, broadcast(shapes[0], other), types[0].dtype, **more)
        elif layer.op == "cast":
            self.emit(layer, "", "cast", inputs, shapes[0])
        elif layer.op in OTHERS:
            shape, attrs, more = OTHERS[layer.op](layer.attrs, shapes)
            if layer.op == "matmul" and "constant" in layer.weights:
                self.matmul_constant(layer, inputs, shapes[0])
                return
            if layer.op in ("pillar_features", "scatter"):
                more = {**more, "options": next(one for one in self.network.layers if one.op == layer.op).attrs}
            dtype = "int64" if _indices(layer) else types[0].dtype
            self.emit(layer, "", layer.op, inputs, shape, dtype, attrs=attrs, **more)
        else:
            raise CompileError(f"{self.network.name}: layer {layer.name!r}: unknown op {layer.op!r}")

    def biased(self, layer: Layer, inputs: list[str], shape: Shape, attrs: Mapping[str, float]) -> None:
        weights = (layer.weights["weight"],)
        if "bias" not in layer.weights:
            self.emit(layer, "", layer.op, inputs, shape, attrs=attrs, weights=weights)
            return
        linear = self.emit(layer, "linear", layer.op, inputs, shape, attrs=attrs, weights=weights)
        self.emit(layer, "", "add", [linear], shape, weights=(layer.weights["bias"],))

    def matmul_constant(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        """Add a product with a constant, which is a dense layer with a transposed weight."""
        constant = layer.weights["constant"]
        weight, first = self.network.params[constant], bool(layer.attrs.get("swapped"))
        result = product(weight, shape) if first else product(shape, weight)
        attrs = {"in_channels": weight[1], "out_channels": weight[0]}
        self.emit(layer, "", "dense", inputs, result, attrs=attrs, weights=(constant,), weight_first=first)

    def batch_norm(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        params = self.network.params
        scaled = broadcast(shape, params[layer.weights["scale"]])
        name = self.emit(layer, "scaled", "multiply", inputs, scaled, weights=(layer.weights["scale"],))
        moved = broadcast(scaled, params[layer.weights["shift"]])
        self.emit(layer, "", "add", [name], moved, weights=(layer.weights["shift"],))

    def hard_sigmoid(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        self.gate(layer, "", inputs, shape)

    def hard_swish(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        gate = self.gate(layer, "gate", inputs, shape)
        self.emit(layer, "", "multiply", [*inputs, gate], shape)

    def elu(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        positive = self.emit(layer, "positive", "relu", inputs, shape)
        negative = self.emit(layer, "negative", "clip", inputs, shape)
        power = self.emit(layer, "power", "exp", [negative], shape)
        moved = self.emit(layer, "moved", "subtract", [power], shape)
        scaled = self.emit(layer, "scaled", "multiply", [moved], shape)
        self.emit(layer, "", "add", [positive, scaled], shape)

    def softplus(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        positive = self.emit(layer, "positive", "relu", inputs, shape)
        size = self.emit(layer, "size", "abs", inputs, shape)
        below = self.emit(layer, "below", "multiply", [size], shape)
        power = self.emit(layer, "power", "exp", [below], shape)
        moved = self.emit(layer, "moved", "add", [power], shape)
        rest = self.emit(layer, "rest", "log", [moved], shape)
        self.emit(layer, "", "add", [positive, rest], shape)

    def group_norm(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        attrs = {"groups": int(layer.attrs["groups"]), "in_channels": shape[1]}
        weights = tuple(layer.weights[role] for role in ("scale", "shift"))
        self.emit(layer, "", "group_norm", inputs, shape, attrs=attrs, weights=weights)

    def grid_sample(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        batch, height, width, pair = self.type[layer.inputs[1]].shape
        grid = self.emit(layer, "grid", "transpose", [inputs[1]], (batch, pair, height, width))
        attrs = {"bilinear": int(layer.attrs["mode"] == "bilinear")}
        self.emit(layer, "", "grid_sample", [inputs[0], grid], (*shape[:2], height, width), attrs=attrs)

    def scatter_nd(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        data, indices, updates = inputs
        places = self.type[layer.inputs[1]]
        below = self.emit(layer, "below", "minimum", [indices], places.shape, places.dtype)
        inside = self.emit(layer, "inside", "maximum", [below], places.shape, places.dtype)
        self.emit(layer, "", "scatter_nd", [data, inside, updates], shape, self.type[layer.inputs[0]].dtype)

    def layer_norm(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        axis = int(layer.attrs["axis"]) % len(shape)
        attrs = {"axis": axis, "axis_dim": prod(shape[axis:])}
        weights = tuple(layer.weights[role] for role in ("scale", "shift"))
        self.emit(layer, "", "layer_norm", inputs, shape, attrs=attrs, weights=weights)

    def gather(self, layer: Layer, inputs: list[str], shape: Shape) -> None:
        axis, table = int(layer.attrs["axis"]), layer.weights.get("table")
        if len(inputs) == 2:  # computed places
            result = (*shape[:axis], *self.type[layer.inputs[1]].shape, *shape[axis + 1 :])
            self.emit(layer, "", "gather", inputs, result, self.type[layer.inputs[0]].dtype, attrs={"axis": axis})
            return
        if table is None:
            result = (*shape[:axis], len(layer.attrs["indices"]), *shape[axis + 1 :])
            self.emit(layer, "", "gather", inputs, result, self.type[layer.inputs[0]].dtype, attrs={"axis": axis})
            return
        rows = self.network.params[table]
        result = (*rows[:axis], *shape, *rows[axis + 1 :])
        self.emit(layer, "", "gather", inputs, result, attrs={"axis": axis}, weights=(table,), weight_first=True)

    def gate(self, layer: Layer, part: str, inputs: list[str], shape: Shape) -> str:
        scaled = self.emit(layer, "scaled", "multiply", inputs, shape)
        moved = self.emit(layer, "moved", "add", [scaled], shape)
        return self.emit(layer, part, "clip", [moved], shape)


def _indices(layer: Layer) -> bool:
    """Return whether a layer's result is places rather than values."""
    return layer.op == "argmax" or (layer.op == "topk" and layer.attrs["result"] == "indices")


_SPELT_OUT: dict[str, Callable[[_Expansion, Layer, list[str], Shape], None]] = {
    "batch_norm": _Expansion.batch_norm,
    "hard_sigmoid": _Expansion.hard_sigmoid,
    "hard_swish": _Expansion.hard_swish,
    "elu": _Expansion.elu,
    "softplus": _Expansion.softplus,
    "group_norm": _Expansion.group_norm,
    "scatter_nd": _Expansion.scatter_nd,
    "grid_sample": _Expansion.grid_sample,
    "layer_norm": _Expansion.layer_norm,
    "gather": _Expansion.gather,
}
_WHOLE = frozenset(("hard_sigmoid", "hard_swish", "elu", "softplus"))
"""Layers that runtimes take as one operator, although they are counted as those they consist of."""
_ELEMENTWISE = frozenset(
    ("add", "subtract", "multiply", "divide", "maximum", "minimum", "sigmoid", "tanh", "exp", "sqrt", "erf", "clip",
     "relu", "leaky_relu", "log", "abs")
)  # fmt: skip
