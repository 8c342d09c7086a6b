"""Networks written in Python, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType


class Layers:
    """The layers of a network in the making, and the shapes of their weights; every method returns a layer's name."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.params: dict[str, tuple[int, ...]] = {}

    def add(self, name: str, op: str, *sources: str, **attrs: Any) -> str:
        """Add a layer without weights."""
        self.layers.append(Layer(name, op, sources, attrs=attrs))
        return name

    def weighted(self, name: str, op: str, source: str, shape: tuple[int, ...], outputs: int, **attrs: Any) -> str:
        """Add a layer with a weight of a shape, and a bias."""
        weights = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
        self.params |= {weights["weight"]: shape, weights["bias"]: (outputs,)}
        self.layers.append(Layer(name, op, (source,), weights, attrs))
        return name

    def relu(self, source: str) -> str:
        """Add the ReLU of a layer."""
        return self.add(f"{source}.relu", "relu", source)

    def conv(self, name: str, source: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> str:
        """Add a convolution that keeps the size but for its stride."""
        shape = (outputs, inputs, kernel, kernel)
        return self.weighted(name, "conv2d", source, shape, outputs, stride=stride, padding=kernel // 2)

    def network(self, name: str, inputs: Mapping[str, TensorType], *outputs: str) -> Network:
        """Return the network of all layers."""
        return Network(name, inputs, tuple(self.layers), outputs, self.params)
