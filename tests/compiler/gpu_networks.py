"""Small networks that take every GPU rule, and their outputs in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from tests.compiler import references

references.LAYERS.setdefault("global_avg_pool", lambda layer, inputs, weights: inputs[0].mean((2, 3), keepdims=True))
references.LAYERS.setdefault("reshape", lambda layer, inputs, weights: inputs[0].reshape(layer.attrs["shape"]))


def image(channels: int, height: int, width: int) -> TensorType:
    """Return the type of an image."""
    return TensorType((1, channels, height, width), "fp32", "NCHW")


class Builder:
    """Layers in order, named by what they are."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        self.inputs = {"x": image(channels, height, width)}
        self.layers: list[Layer] = []
        self.params: dict[str, tuple[int, ...]] = {}

    def layer(self, name: str, op: str, *inputs: str, relu: bool = False, shape: Any = None, **attrs: Any) -> str:
        """Add a layer, with weights of `shape` and a bias if one is given, and a ReLU behind it if asked for."""
        weights = {}
        if shape is not None:
            outputs = shape[1] if op == "conv2d_transpose" else shape[0]
            self.params |= {f"{name}.w": shape, f"{name}.b": (outputs,)}
            weights = {"weight": f"{name}.w", "bias": f"{name}.b"}
        self.layers.append(Layer(name, op, inputs, weights, attrs))
        if relu:
            self.layers.append(Layer(f"{name}.relu", "relu", (name,)))
            return f"{name}.relu"
        return name

    def network(self, *outputs: str) -> Network:
        """Return the network."""
        return Network("net", self.inputs, tuple(self.layers), outputs, self.params)


def residual(channels: int = 3, height: int = 38, width: int = 46, width0: int = 32, classes: int = 10) -> Network:
    """A residual network in small: 7x7 stem, pooling, a block with and one without a projection, classifier."""
    b = Builder(channels, height, width)
    x = b.layer("stem", "conv2d", "x", relu=True, shape=(width0, channels, 7, 7), stride=2, padding=3)
    x = b.layer("pool", "max_pool", x, kernel=3, stride=2, padding=1)
    for index, (wide, stride) in enumerate(((2 * width0, 1), (2 * width0, 2), (2 * width0, 1))):
        given = width0 if index == 0 else 2 * width0
        y = b.layer(f"{index}.a", "conv2d", x, relu=True, shape=(width0, given, 1, 1), stride=1, padding=0)
        y = b.layer(f"{index}.b", "conv2d", y, relu=True, shape=(width0, width0, 3, 3), stride=stride, padding=1)
        y = b.layer(f"{index}.c", "conv2d", y, shape=(wide, width0, 1, 1), stride=1, padding=0)
        if index < 2:
            x = b.layer(f"{index}.d", "conv2d", x, shape=(wide, given, 1, 1), stride=stride, padding=0)
        x = b.layer(f"{index}.sum", "add", y, x, relu=True)
    x = b.layer("gap", "global_avg_pool", x)
    x = b.layer("flat", "reshape", x, shape=None)
    b.layers[-1] = Layer("flat", "reshape", ("gap",), {}, {"shape": (1, 2 * width0)})
    return b.network(b.layer("fc", "dense", "flat", shape=(classes, 2 * width0)))


def pyramid(height: int = 16, width: int = 24) -> Network:
    """PointPillars in small: three scales, transposed convolutions into one concatenation, and three heads."""
    b = Builder(32, height, width)
    x, ups = "x", []
    for scale, wide, given in ((1, 32, 32), (2, 48, 32), (4, 64, 48)):
        x = b.layer(f"down{scale}", "conv2d", x, relu=True, shape=(wide, given, 3, 3), stride=2, padding=1)
        x = b.layer(f"same{scale}", "conv2d", x, relu=True, shape=(wide, wide, 3, 3), stride=1, padding=1)
        up = b.layer(f"up{scale}", "conv2d_transpose", x, relu=True, shape=(wide, 32, scale, scale), stride=scale)
        ups.append(up)
    neck = b.layer("neck", "concat", *ups, axis=1)
    heads = [b.layer(f"head{n}", "conv2d", neck, shape=(n, 96, 1, 1), stride=1, padding=0) for n in (18, 42, 12)]
    return b.network(*heads)


def loose() -> Network:
    """Operators that nothing fuses: ReLU alone, addition of pooled images, concatenation by copies, odd channels."""
    b = Builder(6, 9, 11)
    a = b.layer("a", "conv2d", "x", shape=(32, 6, 3, 3), stride=1, padding=0)
    r = b.layer("r", "relu", a)
    p = b.layer("p", "max_pool", r, kernel=2, stride=1, padding=0)
    q = b.layer("q", "max_pool", a, kernel=2, stride=1, padding=0)
    s = b.layer("s", "add", p, q, relu=True)
    c = b.layer("c", "concat", s, p, axis=1)
    wide = b.layer("wide", "conv2d", c, shape=(21, 64, 3, 3), stride=2, padding=1)
    narrow = b.layer("narrow", "conv2d", wide, relu=True, shape=(5, 21, 1, 1), stride=1, padding=0)
    return b.network(c, narrow)


def run(network: Network, weights: Mapping[str, Any], x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
    """Return the outputs in float64 with weights and input rounded to half precision."""
    half = {
        name: array.astype(np.float16).astype(np.float32) if name.endswith(".w") else array
        for name, array in weights.items()
    }
    return references.run(network, half, {"x": x.astype(np.float16).astype(np.float32)})
