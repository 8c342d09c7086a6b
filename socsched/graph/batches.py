"""Batches of images, as networks of several cameras have, as images one by one: kernels for images take one at a time.

Only the layers change that are about images; others see the batch, put together where the first of them reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from socsched.graph.expand import fuse_network, layer_types
from socsched.graph.fusion import Graph
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType

_WINDOWED = ("conv2d", "conv2d_transpose", "max_pool", "avg_pool", "global_avg_pool", "resize2d")
_POINTWISE = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "relu", "sigmoid", "tanh", "clip", "leaky_relu"),
    *("hard_sigmoid", "hard_swish", "exp", "sqrt", "batch_norm"),
)
_MOST = 16
"""Images of a batch at most: every one has kernels of its own in the launch list."""


def one_by_one(graph: Graph, stacks: bool = False) -> Graph:
    """Return the graph of the network with its batches of images computed image by image; `graph` if it has none.

    With `stacks` a convolution of single pixels takes a whole batch as one image, its images above each other.
    """
    if stacks and (tall := _stacked(graph.network)) is not graph.network:
        graph = fuse_network(tall)
    types = {**graph.network.inputs, **layer_types(graph.network)}
    apart: dict[str, int] = {}
    for layer in graph.network.layers:
        count = _images(layer, types, graph.network.params)
        if count and (layer.op in _WINDOWED or any(name in apart for name in layer.inputs)):
            apart[layer.name] = count
    return fuse_network(_apart(graph.network, apart)) if apart else graph


def _images(layer: Layer, types: Mapping[str, TensorType], params: Mapping[str, tuple[int, ...]]) -> int:
    """Return the images that a layer computes independently, 0 where it computes one or anything else."""
    joined = layer.op == "concat" and int(layer.attrs["axis"]) in (1, -3)
    if layer.op not in (*_WINDOWED, *_POINTWISE) and not joined:
        return 0
    shapes = [types[name].shape for name in (*layer.inputs, layer.name)]
    count = shapes[-1][0] if shapes[-1] else 0
    if not 1 < count <= _MOST or any(len(shape) != 4 or shape[0] != count for shape in shapes):
        return 0
    constant = params[layer.weights["constant"]] if "constant" in layer.weights else ()
    return 0 if len(constant) == 4 and constant[0] != 1 else count


def _stacked(network: Network) -> Network:
    types = {**network.inputs, **layer_types(network)}
    layers: list[Layer] = []
    for layer in network.layers:
        weight = network.params[layer.weights["weight"]] if layer.op == "conv2d" else ()
        single = weight[2:] == (1, 1) and layer.attrs.get("groups", 1) == 1
        same = single and types[layer.inputs[0]].shape[2:] == types[layer.name].shape[2:]  # no stride, no border
        if not same or layer.inputs[0] not in network.inputs or not _images(layer, types, network.params):
            layers.append(layer)
            continue
        count, channels, height, width = types[layer.inputs[0]].shape
        made, turn, name = types[layer.name].shape[1], {"order": (1, 0, 2, 3)}, layer.name
        layers += [
            Layer(f"{name}.turned", "transpose", layer.inputs, {}, turn),
            Layer(f"{name}.tall", "reshape", (f"{name}.turned",), {}, {"shape": (1, channels, count * height, width)}),
            replace(layer, name=f"{name}.stack", inputs=(f"{name}.tall",)),
            Layer(f"{name}.apart", "reshape", (f"{name}.stack",), {}, {"shape": (made, count, height, width)}),
            Layer(name, "transpose", (f"{name}.apart",), {}, turn),
        ]
    return network if len(layers) == len(network.layers) else replace(network, layers=tuple(layers))


def _apart(network: Network, apart: Mapping[str, int]) -> Network:
    layers: dict[str, Layer] = {}

    def image(name: str, number: int) -> str:
        """Return the name of an image of a batch, which is cut out of it where it has none."""
        part = f"{name}.image{number}"
        if name not in apart and part not in layers:
            cut = {"axes": (0,), "begin": (number,), "end": (number + 1,), "step": (1,)}
            layers[part] = Layer(part, "slice", (name,), {}, cut)
        return part

    whole = {name for layer in network.layers if layer.name not in apart for name in layer.inputs} | {*network.outputs}
    for layer in network.layers:
        count = apart.get(layer.name, 0)
        for number in range(count):
            inputs = tuple(image(name, number) for name in layer.inputs)
            part = image(layer.name, number)
            layers[part] = replace(layer, name=part, inputs=inputs)
        if not count:
            layers[layer.name] = layer
        elif layer.name in whole:
            parts = tuple(image(layer.name, number) for number in range(count))
            layers[layer.name] = Layer(layer.name, "concat", parts, {}, {"axis": 0})
    return replace(network, layers=tuple(layers.values()))
