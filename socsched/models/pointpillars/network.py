"""The network stages of PointPillars (Lang et al., CVPR 2019), KITTI three-class configuration.

Architecture as in the public SECOND-FPN configurations: 0.16 m pillars on a 432 x 496 grid, nine decorated features, 64
channels, three blocks of 4/6/6 3x3 convolutions (64/128/256), deconvolutions of kernel = stride = 1/2/4 to 128 channels
each, and 1x1 heads for six anchors per cell.  Batch norm is folded: every convolution has a bias.

Layer ops special to this network:
    pillar_features  voxels [P, S, 4], counts [P], coords [P, 2] -> [P, S, 9]: x, y, z, r, offsets from the mean of the
                     pillar's points, x and y offsets from the pillar centre; slots from counts on are zero.
                     Attributes: pillar (edge in m), origin (x, y of the grid's corner in m).
    scatter          features [P, C], coords [P, 2] (x, y) -> [1, C, ny, nx]: zero except at the pillars; a pillar whose
                     coordinates lie outside the grid (padding) is left out.  Attributes: ny, nx.
The maximum over slots includes the zero slots, which contribute relu(bias), as in the implementations the published
weights come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from socsched.errors import UsageError
from socsched.graph.network import Layer, Network
from socsched.graph.operators import TensorType
from socsched.models.layers import Layers
from socsched.models.model import Model, Port
from socsched.models.pointpillars.grid import KITTI, Grid
from socsched.models.weights import Weights

NX, NY, _ = KITTI.cells
CHANNELS = 64
BLOCKS = ((4, 64), (6, 128), (6, 256))
"""Convolutions and channels of each backbone block; the first convolution of a block has its stride."""
STRIDES = (2, 2, 2)
UPSAMPLE, UP_CHANNELS = (1, 2, 4), 128
HEADS = (("cls", 18), ("reg", 42), ("dir", 12))

_PARAMS = {"pillars": 6000, "max_pillars": 16000, "max_points": 32, "points": 20000, "taps": False}


def check_params(params: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(params) - set(_PARAMS))
    if unknown:
        raise UsageError(f"pointpillars: unknown parameter {unknown[0]!r}", f"parameters: {', '.join(sorted(_PARAMS))}")
    merged = {**_PARAMS, **params}
    for name in ("pillars", "max_points"):
        if not isinstance(merged[name], int) or isinstance(merged[name], bool) or merged[name] < 1:
            raise UsageError(f"pointpillars: {name} must be a positive integer, got {merged[name]!r}")
    return merged


def image(channels: int, height: int, width: int) -> TensorType:
    return TensorType((1, channels, height, width), "fp32", "NCHW")


@dataclass(frozen=True, slots=True)
class SecondFpn:
    """The widths of a SECOND backbone with its FPN neck: channels of the canvas, of each block and of each scale.

    `blocks` are convolutions and channels of each block, `up_channels` those of each upsampled scale; `strides` are
    those of the blocks' first convolutions; with `pointwise` a scale that is not upsampled goes through a 1x1
    convolution rather than a transposed one of stride 1, which is the same function with its weights transposed.
    """

    channels: int = CHANNELS
    strides: tuple[int, int, int] = STRIDES
    blocks: tuple[tuple[int, int], ...] = BLOCKS
    up_channels: int = UP_CHANNELS
    pointwise: bool = False


def pillar_network(name: str, slots: int, channels: int, grid: Grid) -> Network:
    """Return a Pillar Feature Net of one layer, 9 features to `channels`, for `slots` points per pillar of `grid`."""
    build = Layers()
    decorated = build.add(
        "decorate", "pillar_features", "voxels", "counts", "coords", pillar=grid.pillar[0], origin=grid.low[:2]
    )
    weights = {"weight": "pfn.weight", "bias": "pfn.bias"}
    build.layers.append(Layer("linear", "dense", (decorated,), weights))
    build.params |= {"pfn.weight": (channels, 9), "pfn.bias": (channels,)}
    build.add("features", "reduce_max", build.add("relu", "relu", "linear"), axis=1)
    inputs = {
        "voxels": TensorType((-1, slots, 4), "fp32"),
        "counts": TensorType((-1,), "int32"),
        "coords": TensorType((-1, 2), "int32"),
    }
    return build.network(name, inputs, "features")


def scatter_network(
    ny: int = NY, nx: int = NX, channels: int = CHANNELS, name: str = "pointpillars.scatter"
) -> Network:
    """Return the scatter stage for a grid of `ny` x `nx` cells."""
    return Network(
        name,
        {"features": TensorType((-1, channels), "fp32"), "coords": TensorType((-1, 2), "int32")},
        (Layer("canvas", "scatter", ("features", "coords"), attrs={"ny": ny, "nx": nx}),),
        ("canvas",),
    )


def second_fpn(name: str, ny: int, nx: int, widths: SecondFpn | None = None, taps: bool = False) -> Network:
    """Return the backbone with its neck on a canvas of `ny` x `nx`; with `taps` the blocks' results are outputs too."""
    w = widths or SecondFpn()
    build = Layers()
    previous, width, ends = "canvas", w.channels, []
    for block, ((count, wide), stride) in enumerate(zip(w.blocks, w.strides, strict=True)):
        for index in range(count):
            layer = build.conv(f"blocks.{block}.{index}", previous, width, wide, 3, 1 if index else stride)
            previous, width = build.relu(layer), wide
        ends.append((previous, wide))
    ups = []
    for block, ((source, wide), stride) in enumerate(zip(ends, UPSAMPLE, strict=True)):
        if w.pointwise and stride == 1:
            layer = build.conv(f"de.{block}", source, wide, w.up_channels, 1)
        else:
            shape = (wide, w.up_channels, stride, stride)
            layer = build.weighted(f"de.{block}", "conv2d_transpose", source, shape, w.up_channels, stride=stride)
        ups.append(build.relu(layer))
    build.add("neck", "concat", *ups, axis=1)
    blocks = [source for source, _ in ends] if taps else []
    return build.network(name, {"canvas": image(w.channels, ny, nx)}, "neck", *blocks)


def head_network(
    height: int = NY // 2,
    width: int = NX // 2,
    channels: int = UP_CHANNELS * len(BLOCKS),
    name: str = "pointpillars.head",
) -> Network:
    """Return the three 1x1 convolutions over a neck of `channels` x `height` x `width`."""
    build = Layers()
    for output, wide in HEADS:
        build.conv(output, "neck", channels, wide, 1)
    build.params = dict(sorted(build.params.items(), key=lambda one: len(one[1]) == 1))  # weights before biases
    return build.network(name, {"neck": image(channels, height, width)}, *(output for output, _ in HEADS))


def network_model(network: Callable[[], Network], ports: Mapping[str, TensorType], pillars: int) -> Model:
    """Return the model of a network, its varying dimension set to the nominal pillar count in the ports."""
    built = network()

    def port(name: str, tensor: TensorType) -> Port:
        shape = tuple(pillars if size < 0 else size for size in tensor.shape)
        return Port(name, TensorType(shape, tensor.dtype, tensor.layout))

    inputs = tuple(port(name, tensor) for name, tensor in built.inputs.items())
    return Model(built.name, inputs, tuple(port(name, tensor) for name, tensor in ports.items()), network=network)


@dataclass(frozen=True, slots=True)
class PillarDetector:
    """The network stages of an anchor-head detector of these widths on a grid, and the models that share them.

    `trained` returns weights shipped with socsched, `scales` the file of int8 scales that belongs to them.
    """

    name: str
    widths: SecondFpn = field(default_factory=SecondFpn)
    grid: Grid = KITTI
    trained: Callable[[], Weights] | None = None
    scales: str = ""

    def pfn(self, params: Mapping[str, Any]) -> Model:
        """Return the Pillar Feature Net stage: decorate, linear, ReLU, maximum over the slots of a pillar."""
        chosen = check_params(params)
        ports = {"features": TensorType((-1, self.widths.channels), "fp32")}
        return self._model(lambda: self.pfn_network(chosen["max_points"]), ports, chosen)

    def pfn_network(self, slots: int = 32) -> Network:
        """Return the Pillar Feature Net for `slots` points per pillar."""
        return pillar_network(f"{self.name}.pfn", slots, self.widths.channels, self.grid)

    def scatter(self, params: Mapping[str, Any]) -> Model:
        """Return the stage that scatters pillar features onto the bird's-eye grid."""
        nx, ny, _ = self.grid.cells
        network = scatter_network(ny, nx, self.widths.channels, f"{self.name}.scatter")
        return self._model(lambda: network, {"canvas": image(self.widths.channels, ny, nx)}, check_params(params))

    def backbone(self, params: Mapping[str, Any]) -> Model:
        """Return the stage of backbone and neck; params {"taps": True} add the block outputs block1, block2, block3."""
        chosen = check_params(params)
        nx, ny, _ = self.grid.cells
        ports = {"neck": image(*self.neck)}
        if chosen["taps"]:
            sizes = ((channels, ny >> i + 1, nx >> i + 1) for i, (_, channels) in enumerate(self.widths.blocks))
            ports |= {f"block{i + 1}": image(*size) for i, size in enumerate(sizes)}
        return self._model(lambda: self.backbone_network(chosen["taps"]), ports, chosen)

    def backbone_network(self, taps: bool = False) -> Network:
        """Return the backbone with its neck."""
        nx, ny, _ = self.grid.cells
        return second_fpn(f"{self.name}.backbone", ny, nx, self.widths, taps)

    def head(self, params: Mapping[str, Any]) -> Model:
        """Return the anchor-head stage: class scores, box regression and direction, six anchors per cell."""
        ports = {name: image(channels, *self.neck[1:]) for name, channels in HEADS}
        return self._model(self.head_network, ports, check_params(params))

    def head_network(self) -> Network:
        """Return the three 1x1 convolutions over the neck."""
        channels, height, width = self.neck
        return head_network(height, width, channels, f"{self.name}.head")

    def networks(self) -> tuple[Network, ...]:
        """Return the networks of the stages that have parameters."""
        return self.pfn_network(), self.backbone_network(), self.head_network()

    @property
    def neck(self) -> tuple[int, int, int]:
        """Return channels, rows and columns of the neck's map."""
        nx, ny, _ = self.grid.cells
        return self.widths.up_channels * len(self.widths.blocks), ny // 2, nx // 2

    def _model(
        self, network: Callable[[], Network], ports: Mapping[str, TensorType], chosen: Mapping[str, Any]
    ) -> Model:
        model = network_model(network, ports, chosen["pillars"])
        return replace(model, trained=self.trained, scales=self.scales) if network().params else model


FULL = PillarDetector("pointpillars")
pfn, scatter, backbone, head = FULL.pfn, FULL.scatter, FULL.backbone, FULL.head


def pfn_network(slots: int = 32) -> Network:
    """Return the full Pillar Feature Net for `slots` points per pillar."""
    return FULL.pfn_network(slots)


def backbone_network(taps: bool = False, ny: int = NY, nx: int = NX) -> Network:
    """Return the full backbone with its neck on a canvas of `ny` x `nx` (multiples of 8)."""
    return second_fpn("pointpillars.backbone", ny, nx, taps=taps)
