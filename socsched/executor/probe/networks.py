"""Layers of several sizes for every family of kernels, as networks without an edge between two layers.

A call takes less than a millisecond on one core of a server, so that it fits between what other programs do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from socsched.cost.kernel_times import POINTS
from socsched.graph.expand import fuse_network
from socsched.graph.integers import CONVOLUTIONS as CONVOLUTION_KINDS
from socsched.graph.integers import formless
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.pointpillars.grid import KITTI
from socsched.models.pointpillars.network import pillar_network, scatter_network

READER = "max_pool"
"""Operator that reads the results of convolutions in int8."""
Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

CONVOLUTIONS = (
    (32, 32, 56, 3, 1, 1), (64, 64, 28, 3, 1, 1), (32, 128, 24, 3, 1, 1), (128, 64, 24, 3, 1, 1),
    (16, 16, 192, 3, 1, 1), (32, 32, 192, 1, 1, 1), (128, 128, 14, 3, 1, 1), (64, 256, 12, 3, 1, 1),
    (64, 64, 16, 3, 1, 1), (64, 64, 28, 3, 2, 1), (32, 64, 40, 3, 2, 1), (64, 64, 14, 5, 1, 1),
    (256, 128, 7, 3, 1, 1), (128, 128, 10, 3, 1, 1), (3, 32, 112, 3, 2, 1), (3, 64, 56, 7, 2, 1),
    (3, 16, 128, 3, 1, 1), (64, 64, 28, 1, 1, 1), (256, 64, 14, 1, 1, 1), (64, 256, 28, 1, 1, 1),
    (512, 256, 7, 1, 1, 1), (16, 96, 56, 1, 1, 1), (128, 768, 7, 1, 1, 1), (256, 48, 1, 1, 1, 1),
    (960, 240, 1, 1, 1, 1), (240, 960, 1, 1, 1, 1),
    (40, 64, 28, 3, 1, 1), (40, 64, 32, 1, 1, 1),
    (64, 64, 56, 3, 1, 64), (256, 256, 14, 3, 2, 256), (128, 128, 28, 5, 1, 128), (512, 512, 7, 3, 1, 512),
)  # fmt: skip
"""Input and output channels, pixels, kernel, stride, groups."""
TRANSPOSED = ((64, 64, 14, 2), (128, 64, 20, 2), (32, 32, 40, 2))
MATRICES = (((1, 512), 1000), ((1, 256), 256), ((1, 2048), 1600), ((64, 384), 384), ((197, 192), 192), ((49, 768), 256),
            ((1, 196, 64), 128), ((1, 64, 384), 96), ((1, 49, 128), 64), ((1, 196, 128), 512), ((1, 50, 768), 768),
            ((1, 49, 384), 1152))  # fmt: skip
"""Shape of the first operand and columns of the constant second one."""
PRODUCTS = (((1, 2, 197, 64), (1, 2, 64, 197)), ((1, 4, 49, 32), (1, 4, 32, 49)), ((1, 2, 197, 197), (1, 2, 197, 64)),
            ((1, 3, 100, 32), (1, 3, 32, 100)), ((1, 12, 1, 64), (1, 12, 64, 500)), ((1, 12, 1, 500), (1, 12, 500, 64)),
            ((1, 4, 1, 32), (1, 4, 32, 200)))  # fmt: skip
PILLARS = ((32, 124), (64, 200), (32, 300))
"""Channels of pillars, and rows and columns of the grid they are scattered to."""
ROWS = 1500
"""Pillars."""
IMAGES = ((1, 64, 56, 56), (1, 32, 14, 14), (1, 256, 28, 28))
TOKENS = ((1, 197, 384), (1, 49, 96), (1, 64, 768))
UNARY: tuple[tuple[str, tuple[Shape, ...], Mapping[str, Any]], ...] = (
    ("sigmoid", IMAGES, {}),
    ("clip", IMAGES[::2], {"low": 0.0, "high": 6.0}),
    ("max_pool", IMAGES[:2], {"kernel": 3, "stride": 2, "padding": 1, "ceil": False}),
    ("avg_pool", IMAGES[1:], {"kernel": 2, "stride": 2, "padding": 0, "ceil": False, "count_padding": True}),
    ("global_avg_pool", IMAGES[1:], {}),
    ("resize2d", IMAGES[:2], {"bilinear": False, "coordinates": "asymmetric", "rounding": "floor"}),
    ("resize2d", IMAGES, {"bilinear": True, "coordinates": "half_pixel", "rounding": "round"}),
    ("erf", TOKENS, {}),
    ("softmax", ((1, 3, 197, 197), (1, 8, 49, 49), (1, 2, 100, 100)), {"axis": 3}),
    ("transpose", ((1, 197, 3, 64),), {"order": (0, 2, 1, 3)}),
    ("transpose", ((1, 64, 28, 28),), {"order": (0, 2, 3, 1)}),
    ("transpose", ((1, 196, 128),), {"order": (0, 2, 1)}),
    ("slice", IMAGES[1:], {"axes": (1,), "begin": (0,), "end": (16,), "step": (1,)}),
    ("slice", TOKENS, {"axes": (1,), "begin": (1,), "end": (40,), "step": (1,)}),
    ("reduce_mean", TOKENS, {"axis": (1,), "keepdims": False}),
)


@dataclass(frozen=True, slots=True)
class Probed:
    """A network of the probe; `rows`: the most rows of inputs that vary; `inputs`: content of some inputs by number."""

    network: Network
    rows: int = 1
    inputs: Mapping[int, Array] = field(default_factory=dict)


class _Maker:
    """A network as it grows by layers that read inputs of their own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: dict[str, TensorType] = {}
        self.layers: list[Layer] = []
        self.params: dict[str, Shape] = {}

    def layer(
        self, op: str, shapes: tuple[Shape, ...], weights: Mapping[str, Shape] | None = None, **attrs: Any
    ) -> None:
        name = f"{op}_{len(self.layers)}"
        names = [f"{name}_in{number}" for number in range(len(shapes))]
        self.inputs.update((n, TensorType(shape, "fp32")) for n, shape in zip(names, shapes, strict=True))
        roles = {role: f"{name}.{role}" for role in weights or {}}
        self.params.update((roles[role], shape) for role, shape in (weights or {}).items())
        self.layers.append(Layer(name, op, tuple(names), roles, attrs))

    def network(self) -> Network:
        return Network(self.name, self.inputs, tuple(self.layers), tuple(one.name for one in self.layers), self.params)


def networks(precision: str = "fp32") -> Iterator[Probed]:
    """Yield the networks; where one cannot be compiled, the families that it alone has are unknown.

    In int8 they have the layers that are computed in integers.
    """
    if precision == "int8":
        yield from map(Probed, filter(None, map(_in_integers, _dense_networks())))
        return
    yield from map(Probed, _dense_networks())
    for channels, cells in PILLARS:
        name = f"probe_pillars_{channels}_{cells}"
        rows = ROWS * cells // 124
        coords = np.stack(np.divmod(np.arange(rows) * 7, cells), 1).astype(np.int32)
        counts = np.full(rows, POINTS, np.int32)
        yield Probed(pillar_network(name, 32, channels, KITTI), rows, {1: counts, 2: coords})
        yield Probed(scatter_network(cells, cells, channels, f"{name}_scatter"), rows, {1: coords})


def _dense_networks() -> Iterator[Network]:
    step = -(-len(CONVOLUTIONS) // 2)
    for number in range(2):
        maker = _Maker(f"probe_convolutions_{number}")
        for inputs, outputs, pixels, kernel, stride, groups in CONVOLUTIONS[number * step : (number + 1) * step]:
            weights = {"weight": (outputs, inputs // groups, kernel, kernel), "bias": (outputs,)}
            shape = {"stride": stride, "padding": kernel // 2, "dilation": 1, "groups": groups}
            maker.layer("conv2d", ((1, inputs, pixels, pixels),), weights, **shape)
        yield maker.network()
    maker = _Maker("probe_images")
    for inputs, outputs, pixels, stride in TRANSPOSED:
        weights = {"weight": (inputs, outputs, stride, stride), "bias": (outputs,)}
        maker.layer("conv2d_transpose", ((1, inputs, pixels, pixels),), weights, stride=stride, padding=0)
    for image in IMAGES:
        maker.layer("add", (image, image))
        maker.layer("concat", (image, image), axis=1)
    maker.layer("multiply", (IMAGES[0], (1, 64, 1, 1)))
    _unary(maker, lambda op, shape: len(shape) == 4 and op not in ("softmax", "transpose"))
    yield maker.network()
    maker = _Maker("probe_matrices")
    for rows, columns in MATRICES:
        weights = {"weight": (columns, rows[-1])} | ({"bias": (columns,)} if len(rows) == 2 else {})
        maker.layer("dense", (rows,), weights)
    for left, right in PRODUCTS:
        maker.layer("matmul", (left, right))
    for tokens in TOKENS:
        width = {"scale": tokens[-1:], "shift": tokens[-1:]}
        maker.layer("layer_norm", (tokens,), width, axis=2, epsilon=1e-5)
        maker.layer("add", (tokens, tokens))
        maker.layer("multiply", (tokens,), {"constant": (1,)})
    _unary(maker, lambda op, shape: len(shape) != 4 or op in ("softmax", "transpose"))
    yield maker.network()


def _in_integers(network: Network) -> Network | None:
    """Return a network of the layers that have a form in integers, None if there are none."""
    graph = fuse_network(network)
    layers = [layer for layer, group in zip(network.layers, graph.groups, strict=True) if not formless(graph, group)]
    if not layers:
        return None
    read = {name for layer in layers for name in layer.inputs}
    # what only leaves a network is never rounded to bytes: convolutions get a reader
    own = {"kernel": 1, "stride": 1, "padding": 0, "ceil": False}
    readers = {
        layer.name: Layer(f"{layer.name}_read", READER, (layer.name,), {}, own)
        for layer in layers
        if layer.op in CONVOLUTION_KINDS
    }
    params = {name for layer in layers for name in layer.weights.values()}
    return Network(
        f"{network.name}_int8",
        {name: tensor for name, tensor in network.inputs.items() if name in read},
        (*layers, *readers.values()),
        tuple(readers.get(layer.name, layer).name for layer in layers),
        {name: shape for name, shape in network.params.items() if name in params},
    )


def _unary(maker: _Maker, wanted: Any) -> None:
    for op, shapes, attrs in UNARY:
        for shape in shapes:
            if wanted(op, shape):
                size = {"size": tuple(2 * n for n in shape[2:])} if op == "resize2d" else {}
                maker.layer(op, (shape,), None, **attrs, **size)


def weights_of(network: Network) -> dict[str, Array]:
    """Return seeded weights that let values neither grow nor vanish."""
    generator = np.random.default_rng(0)
    return {
        name: (generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)
        for name, shape in network.params.items()
    }
