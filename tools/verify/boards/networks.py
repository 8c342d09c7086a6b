"""Networks of published co-runs, layer by layer as their files list them, and parts of them as models.

GoogleNet, AlexNet and ResNet-101 have the layers of the Caffe files that HaX-CoNN used (`layer_names.json`), so that a
part is named by the indices its authors state.  Normalisation across channels (LRN) is left out: no engine's rules or
fits know it.  Batch normalisation is folded into convolutions, as every runtime does, and dense layers are
convolutions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from socsched import plugins
from socsched.graph.expand import layer_types
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.graph.partition import prefixes
from socsched.models.model import Model, Port
from socsched.models.parts import PartOf, part_model
from tools import ROOT
from tools.literature.claims._networks import Builder

LAYERS = ROOT / "tests" / "data" / "haxconn" / "layer_names.json"
INCEPTION = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
"""Szegedy et al., "Going deeper with convolutions", CVPR 2015, table 1: filters of each module's branches."""


class _Caffe(Builder):
    """A builder that gives layers the names of a Caffe file."""

    def __init__(self) -> None:
        super().__init__()
        self.channels["data"] = 3

    def _named(self, name: str, count: int) -> str:
        """Rename the last `count` layers after `name`; return the last one's name."""
        made = self.layers[-count:]
        new = {layer.name: name if number == 0 else f"{name}/relu" for number, layer in enumerate(made)}
        for number, layer in enumerate(made, len(self.layers) - count):
            inputs = tuple(new.get(source, source) for source in layer.inputs)
            self.layers[number] = Layer(new[layer.name], layer.op, inputs, layer.weights, layer.attrs)
        last = new[made[-1].name]
        self.channels[last] = self.channels.pop(made[-1].name)
        return last

    def named(self, name: str, source: str, outputs: int, kernel: int = 1, stride: int = 1, pad: int = 0) -> str:
        """Add a convolution with ReLU."""
        self.conv(source, outputs, kernel, stride, pad)
        return self._named(name, 2)

    def plain(self, name: str, source: str, outputs: int, stride: int = 1, kernel: int = 1, pad: int = 0) -> str:
        """Add a convolution without ReLU."""
        self.conv(source, outputs, kernel, stride, pad)
        relu = self.layers.pop()
        self.channels[self.layers[-1].name] = self.channels.pop(relu.name)
        return self._named(name, 1)

    def pooled(self, name: str, source: str, kernel: int, stride: int, padding: int = 0, op: str = "max_pool") -> str:
        """Add a pooling layer, its output rounded up as Caffe's is."""
        self.pool(source, op, kernel, stride, padding)
        layer = self.layers[-1]
        self.layers[-1] = Layer(layer.name, op, layer.inputs, layer.weights, {**layer.attrs, "ceil": True})
        return self._named(name, 1)

    def joined(self, name: str, *sources: str) -> str:
        """Add a concatenation."""
        self.concat(*sources)
        return self._named(name, 1)


def _googlenet() -> tuple[Builder, str, int]:
    b = _Caffe()
    x = b.pooled("pool1/3x3_s2", b.named("conv1/7x7_s2", "data", 64, 7, 2, 3), 3, 2)
    x = b.named("conv2/3x3", b.named("conv2/3x3_reduce", x, 64), 192, 3, 1, 1)
    x = b.pooled("pool2/3x3_s2", x, 3, 2)
    for key, (one, reduce3, three, reduce5, five, pool) in INCEPTION.items():
        if key in ("4a", "5a"):
            x = b.pooled(f"pool{int(key[0]) - 1}/3x3_s2", x, 3, 2)
        at = f"inception_{key}/"
        first = b.named(f"{at}1x1", x, one)
        second = b.named(f"{at}3x3", b.named(f"{at}3x3_reduce", x, reduce3), three, 3, 1, 1)
        third = b.named(f"{at}5x5", b.named(f"{at}5x5_reduce", x, reduce5), five, 5, 1, 2)
        fourth = b.named(f"{at}pool_proj", b.pooled(f"{at}pool", x, 3, 1, 1), pool)
        x = b.joined(f"{at}output", first, second, third, fourth)
    x = b.pooled("pool5/7x7_s1", x, 7, 1, 0, "avg_pool")
    return b, b.plain("loss3/classifier", x, 1000), 224


def _alexnet() -> tuple[Builder, str, int]:
    """Krizhevsky et al., NIPS 2012, in one column as Caffe runs it; groups are left out, as they are of two."""
    b = _Caffe()
    x = b.pooled("pool1", b.named("conv1", "data", 96, 11, 4), 3, 2)
    x = b.pooled("pool2", b.named("conv2", x, 256, 5, 1, 2), 3, 2)
    x = b.named("conv4", b.named("conv3", x, 384, 3, 1, 1), 384, 3, 1, 1)
    x = b.pooled("pool5", b.named("conv5", x, 256, 3, 1, 1), 3, 2)
    x = b.named("fc7", b.named("fc6", x, 4096, 6), 4096)
    return b, b.plain("fc8", x, 1000), 227


def _resnet(blocks: Mapping[int, int]) -> tuple[Builder, str, int]:
    """He et al., CVPR 2016, table 1, its stride in the first convolution of a block as in the Caffe files."""
    b = _Caffe()
    x = b.pooled("pool1", b.named("conv1", "data", 64, 7, 2, 3), 3, 2)
    for stage, count in blocks.items():
        width = 2 ** (stage + 4)
        for number in range(count):
            letter = "a" if number == 0 else f"b{number}" if count > 3 else "abc"[number]
            at, stride = f"res{stage}{letter}", 2 if stage > 2 and number == 0 else 1
            side = b.plain(f"{at}_branch1", x, 4 * width, stride) if number == 0 else x
            y = b.named(f"{at}_branch2a", x, width, 1, stride)
            y = b.named(f"{at}_branch2b", y, width, 3, 1, 1)
            y = b.plain(f"{at}_branch2c", y, 4 * width)
            b.add(y, side)
            x = b._named(at, 2)
    x = b.pooled("pool5", x, 7, 1, 0, "avg_pool")
    return b, b.plain("fc1000", x, 1000), 224


BUILDERS = {
    "googlenet": _googlenet,
    "alexnet": _alexnet,
    "resnet50": lambda: _resnet({2: 3, 3: 4, 4: 6, 5: 3}),
    "resnet101": lambda: _resnet({2: 3, 3: 4, 4: 23, 5: 3}),
    "resnet152": lambda: _resnet({2: 3, 3: 8, 4: 36, 5: 3}),
}


CONVOLUTIONS = ROOT / "tests" / "data" / "haxconn" / "emc_conv_xavier.json"


def _convolution(name: str) -> tuple[Builder, str, tuple[int, ...]]:
    """Return one of the convolutions under which the load of the memory controller was measured."""
    shape = json.loads(CONVOLUTIONS.read_text(encoding="utf-8"))["conv_shapes"][name]
    b = _Caffe()
    b.channels["data"] = shape["input"][1]
    return b, b.plain(name, "data", shape["num_output"], 1, shape["kernel"], shape["pad"]), tuple(shape["input"])


@dataclass(frozen=True, slots=True)
class Built:
    """A network, the type of every layer's result, and the index of every layer in its file."""

    network: Network
    types: Mapping[str, TensorType]
    index: Mapping[str, int]

    @property
    def end(self) -> int:
        """Return the number of layers in the file."""
        return max(self.index.values()) + 1


@cache
def built(name: str) -> Built:
    """Return a network by name, or a convolution of `CONVOLUTIONS`."""
    if name in BUILDERS:
        b, last, side = BUILDERS[name]()
        shape: tuple[int, ...] = (1, 3, side, side)
    else:
        b, last, shape = _convolution(name)
    image = TensorType(shape, "fp32", "NCHW")
    network = Network(name, {"data": image}, tuple(b.layers), (last,), b.params)
    types = layer_types(network)
    listed = json.loads(LAYERS.read_text(encoding="utf-8"))["layers"].get(name, ())
    places = {layer: number for number, layer, _ in listed}
    index, at = {}, -1
    for layer in network.layers:
        plain = layer.name.removesuffix("/relu")
        at = places[plain] if listed else at + 1
        index[layer.name] = at + (layer.name.endswith("/relu") and bool(listed))
    return Built(network, types, index)


def cut(name: str, layer: int) -> str:
    """Return the cut of a network before a layer of its file, empty at its two ends."""
    known = built(name)
    inside = {each for each, place in known.index.items() if place < layer}
    if not inside or len(inside) == len(known.index):
        return ""
    return "+".join(next(c.after for c in prefixes(known.network, known.types, torn=True) if set(c.before) == inside))


def operations(name: str, first: int, end: int) -> int:
    """Return the number of operations of an accelerator in layers [first, end): convolutions and dense layers."""
    known = built(name)
    return max(
        sum(layer.op == "conv2d" and first <= known.index[layer.name] < end for layer in known.network.layers), 1
    )


def model(params: Mapping[str, Any]) -> Model:
    """Return the model of layers [first, end) of a network; the whole network without these params."""
    name = str(params["network"])
    known = built(name)
    image = Port("image", known.network.inputs["data"])
    result = Port(f"{name}.result", known.types[known.network.outputs[0]])
    whole = Model(f"boards.{name}", (image,), (result,), network=lambda: known.network)
    begin, end = cut(name, int(params.get("first", 0))), cut(name, int(params.get("end", known.end)))
    if not begin and not end:
        return whole
    return part_model(whole, PartOf(name, f"{begin}:{end}", 1, 1, (), known.types))


plugins.provide("socsched.models", "boards.network", f"{__name__}:model")
