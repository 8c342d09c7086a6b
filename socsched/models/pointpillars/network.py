"""The network stages of PointPillars (Lang et al., CVPR 2019), KITTI three-class configuration.

Architecture as in the public SECOND-FPN configurations: 0.16 m pillars on a 432 x 496 grid, nine decorated features, 64
channels, three blocks of 4/6/6 3x3 convolutions (64/128/256), deconvolutions of kernel = stride = 1/2/4 to 128 channels
each, and 1x1 heads for six anchors a cell.  Batch norm is folded: every convolution has a bias.

Layer ops special to this network:
    pillar_features  voxels [P, S, 4], counts [P], coords [P, 2] -> [P, S, 9]: x, y, z, r, offsets from the mean of the
                     pillar's points, x and y offsets from the pillar centre; slots from counts on are zero.
                     Attributes: pillar (edge in m), origin (x, y of the grid's corner in m).
    scatter          features [P, C], coords [P, 2] (x, y) -> [1, C, ny, nx]: zero except at the pillars; a pillar whose
                     coordinates lie outside the grid (padding) is left out.  Attributes: ny, nx.
The maximum over slots takes in the zero slots, which contribute relu(bias), as in the implementations the published
weights come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.registry import Model, Port

NY, NX = 496, 432
PILLAR_M = 0.16
ORIGIN_M = (0.0, -39.68)
CHANNELS = 64
BLOCKS = ((4, 64), (6, 128), (6, 256))
"""Convolutions and channels of each backbone block; the first convolution of a block has stride 2."""
UPSAMPLE, UP_CHANNELS = (1, 2, 4), 128
HEADS = (("cls", 18), ("reg", 42), ("dir", 12))
NECK = (1, UP_CHANNELS * len(BLOCKS), NY // 2, NX // 2)

_PARAMS = {"pillars": 6000, "max_pillars": 16000, "max_points": 32, "points": 20000, "taps": False}


def _checked(params: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(params) - set(_PARAMS))
    if unknown:
        raise UsageError(f"pointpillars: unknown parameter {unknown[0]!r}", f"parameters: {', '.join(sorted(_PARAMS))}")
    merged = {**_PARAMS, **params}
    for name in ("pillars", "max_points"):
        if not isinstance(merged[name], int) or isinstance(merged[name], bool) or merged[name] < 1:
            raise UsageError(f"pointpillars: {name} must be a positive integer, got {merged[name]!r}")
    return merged


def _image(channels: int, height: int, width: int) -> TensorType:
    return TensorType((1, channels, height, width), "fp32", "NCHW")


def _model(name: str, network: Callable[[], Network], ports: Mapping[str, TensorType], pillars: int) -> Model:
    """Ports of a network with its varying dimension replaced by the nominal pillar count."""
    built = network()
    inputs = tuple(Port(port, _nominal(tensor, pillars)) for port, tensor in built.inputs.items())
    outputs = tuple(Port(port, _nominal(tensor, pillars)) for port, tensor in ports.items())
    return Model(name, inputs, outputs, network=network)


def _nominal(tensor: TensorType, pillars: int) -> TensorType:
    return TensorType(tuple(pillars if size < 0 else size for size in tensor.shape), tensor.dtype, tensor.layout)


def pfn(params: Mapping[str, Any]) -> Model:
    """Pillar Feature Net: decorate, linear 9 -> 64, ReLU, maximum over the slots of a pillar."""
    chosen = _checked(params)
    ports = {"features": TensorType((-1, CHANNELS), "fp32")}
    return _model("pointpillars.pfn", lambda: pfn_network(chosen["max_points"]), ports, chosen["pillars"])


def pfn_network(slots: int = 32) -> Network:
    """Return the Pillar Feature Net for `slots` points a pillar."""
    decorate = Layer(
        "decorate",
        "pillar_features",
        ("voxels", "counts", "coords"),
        attrs={"pillar": PILLAR_M, "origin": ORIGIN_M},
    )
    return Network(
        "pointpillars.pfn",
        {
            "voxels": TensorType((-1, slots, 4), "fp32"),
            "counts": TensorType((-1,), "int32"),
            "coords": TensorType((-1, 2), "int32"),
        },
        (
            decorate,
            Layer("linear", "dense", ("decorate",), {"weight": "pfn.weight", "bias": "pfn.bias"}),
            Layer("relu", "relu", ("linear",)),
            Layer("features", "reduce_max", ("relu",), attrs={"axis": 1}),
        ),
        ("features",),
        {"pfn.weight": (CHANNELS, 9), "pfn.bias": (CHANNELS,)},
    )


def scatter(params: Mapping[str, Any]) -> Model:
    """Pillar features back onto the bird's-eye grid."""
    ports = {"canvas": _image(CHANNELS, NY, NX)}
    return _model("pointpillars.scatter", scatter_network, ports, _checked(params)["pillars"])


def scatter_network(ny: int = NY, nx: int = NX, channels: int = CHANNELS) -> Network:
    """Return the scatter stage for a grid of `ny` x `nx` cells."""
    return Network(
        "pointpillars.scatter",
        {"features": TensorType((-1, channels), "fp32"), "coords": TensorType((-1, 2), "int32")},
        (Layer("canvas", "scatter", ("features", "coords"), attrs={"ny": ny, "nx": nx}),),
        ("canvas",),
    )


def backbone(params: Mapping[str, Any]) -> Model:
    """Backbone and neck; with params {"taps": True} the blocks' outputs follow as block1, block2, block3."""
    chosen = _checked(params)
    ports = {"neck": _image(*NECK[1:])}
    if chosen["taps"]:
        sizes = ((channels, NY >> i + 1, NX >> i + 1) for i, (_, channels) in enumerate(BLOCKS))
        ports |= {f"block{i + 1}": _image(*size) for i, size in enumerate(sizes)}
    return _model("pointpillars.backbone", lambda: backbone_network(chosen["taps"]), ports, chosen["pillars"])


def backbone_network(taps: bool = False, ny: int = NY, nx: int = NX) -> Network:
    """Return the backbone with its neck on a canvas of `ny` x `nx` (multiples of 8)."""
    layers: list[Layer] = []
    shapes: dict[str, tuple[int, ...]] = {}
    previous, width, ends = "canvas", CHANNELS, []
    for block, (count, channels) in enumerate(BLOCKS):
        for index in range(count):
            name, stride = f"blocks.{block}.{index}", 2 if index == 0 else 1
            shapes |= {f"{name}.weight": (channels, width, 3, 3), f"{name}.bias": (channels,)}
            attrs = {"stride": stride, "padding": 1}
            previous, width = _conv_relu(layers, name, "conv2d", previous, attrs), channels
        ends.append((previous, channels))
    ups = []
    for block, ((source, channels), stride) in enumerate(zip(ends, UPSAMPLE, strict=True)):
        name = f"de.{block}"
        shapes |= {f"{name}.weight": (channels, UP_CHANNELS, stride, stride), f"{name}.bias": (UP_CHANNELS,)}
        ups.append(_conv_relu(layers, name, "conv2d_transpose", source, {"stride": stride}))
    layers.append(Layer("neck", "concat", tuple(ups), attrs={"axis": 1}))
    outputs = ("neck", *(source for source, _ in ends)) if taps else ("neck",)
    return Network("pointpillars.backbone", {"canvas": _image(CHANNELS, ny, nx)}, tuple(layers), outputs, shapes)


def _conv_relu(layers: list[Layer], name: str, op: str, source: str, attrs: Mapping[str, Any]) -> str:
    weights = {"weight": f"{name}.weight", "bias": f"{name}.bias"}
    layers += [Layer(name, op, (source,), weights, attrs), Layer(f"{name}.relu", "relu", (name,))]
    return f"{name}.relu"


def head(params: Mapping[str, Any]) -> Model:
    """Anchor head: class scores, box regression and direction, six anchors a cell."""
    pillars = _checked(params)["pillars"]
    ports = {name: _image(channels, *NECK[2:]) for name, channels in HEADS}
    return _model("pointpillars.head", head_network, ports, pillars)


def head_network(height: int = NECK[2], width: int = NECK[3]) -> Network:
    """Return the three 1x1 convolutions over a neck of `height` x `width`."""
    layers = tuple(
        Layer(
            name,
            "conv2d",
            ("neck",),
            {"weight": f"{name}.weight", "bias": f"{name}.bias"},
            {"stride": 1, "padding": 0},
        )
        for name, _ in HEADS
    )
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (channels, NECK[1], 1, 1) for name, channels in HEADS}
    shapes |= {f"{name}.bias": (channels,) for name, channels in HEADS}
    names = tuple(name for name, _ in HEADS)
    return Network("pointpillars.head", {"neck": _image(NECK[1], height, width)}, layers, names, shapes)
