"""The network stages of CenterPoint (Yin et al., CVPR 2021) with pillars, as Autoware deploys it.

Encoder, scatter, SECOND backbone with FPN neck, and a centre head at the full resolution of the grid.  Sources:
- input 32 x 480 x 480, maps heatmap 5, reg 2, height 1, dim 3, rot 2, vel 2: autowarefoundation/autoware.universe,
  perception/autoware_lidar_centerpoint/include/.../centerpoint_config.hpp at 02ee90f, and lidar_centerpoint/config/
  centerpoint_ml_package.param.yaml at b81ec45 (5 classes, downsample factor 1);
- blocks of 1 + 3/5/5 convolutions, 64/128/256 channels, strides 1/2/2, upsampled 1/2/4 to 128 each, the first scale by
  a 1x1 convolution: tier4/AWML, projects/CenterPoint/configs/t4dataset/Centerpoint/second_secfpn_2xb8_121m_base.py at
  3bace00;
- shared 3x3 convolution to 64, then for every map 1x1 to 64 and 1x1 to its channels (share_conv_channel 64,
  final_kernel 1): tier4/AWML, projects/CenterPoint/configs/default/second_secfpn_base.py at 997e5cf.  mmdetection3d's
  own configuration has final_kernel 3, but the 20.14 MB of the deployed file correspond to 5.03 M parameters, which
  only 1x1 heads give (autowarefoundation/modelzoo, centerpoint_backbone/.../pts_backbone_neck_head_centerpoint.onnx at
  0da13b8).
Batch norm is folded.  One simplification: Autoware's encoder has two layers (9 to 16, joined by their maximum, then 32
to 32; README of perception/autoware_lidar_centerpoint at 0fa81d5), this one a single layer, 9 to 32 features.
That omits 0.5 of 193 billion multiply-adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.layers import Layers
from socsched.models.model import Model
from socsched.models.pointpillars.grid import Grid, check_params, grid_of
from socsched.models.pointpillars.network import (
    BLOCKS,
    UP_CHANNELS,
    SecondFpn,
    image,
    network_model,
    pillar_network,
    scatter_network,
    second_fpn,
)

AUTOWARE = Grid((-76.8, -76.8, -4.0), (76.8, 76.8, 6.0), (0.32, 0.32, 10.0))
"""480 x 480 pillars all around the vehicle (autowarefoundation/autoware.universe at b81ec45,
perception/lidar_centerpoint/config/centerpoint_ml_package.param.yaml)."""
MAX_PILLARS, MAX_POINTS = 40000, 32
"""Limits Autoware deploys: max_voxel_size of the same file; points per pillar of
perception/autoware_lidar_centerpoint/include/.../centerpoint_config.hpp at 02ee90f."""
MULTIPLE = 4
"""The backbone halves the grid twice."""

PARAMS: dict[str, Any] = {
    "points": 128000,
    "pillars": 18600,
    "max_pillars": MAX_PILLARS,
    "max_points": MAX_POINTS,
    "range": None,
}
"""Params common to all stages.  Nominal sizes are those of the fullest of 32 full KITTI turns: 128 thousand points, and
18552 pillars of 0.16 m ahead of the vehicle; full turns of the synthetic street fill about as many pillars of this grid
as of that one (9.5 to 13.0 against 8.8 to 11.6 thousand)."""


def settle(stage: str, params: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Grid]:
    """Return the params of a stage with defaults filled in (`own` are specific to it), and its grid.

    Raises UsageError for an unknown or unusable param.
    """
    chosen = check_params(stage, params, {**PARAMS, **(own or {})})
    return chosen, grid_of(stage, chosen["range"], AUTOWARE, MULTIPLE)


CHANNELS = 32
STRIDES = (1, 2, 2)
SHARED = 64
"""Channels of the head's shared convolution and of the first convolution of every map."""
CLASSES = ("Car", "Truck", "Bus", "Bicycle", "Pedestrian")
MAPS = (("heatmap", len(CLASSES)), ("reg", 2), ("height", 1), ("dim", 3), ("rot", 2), ("vel", 2))
"""Output maps and their channels, in the order in which Autoware binds them."""
NECK = UP_CHANNELS * len(BLOCKS)


def pfn(params: Mapping[str, Any]) -> Model:
    """Return the Pillar Feature Net stage: decorate, linear 9 -> 32, ReLU, maximum over the slots of a pillar."""
    chosen, grid = settle("centerpoint.pfn", params)
    built = pfn_network(chosen["max_points"], grid)
    return _model(built, {"features": TensorType((-1, CHANNELS), "fp32")}, chosen)


def pfn_network(slots: int = 32, grid: Grid = AUTOWARE) -> Network:
    """Return the Pillar Feature Net for `slots` points per pillar of `grid`."""
    return pillar_network("centerpoint.pfn", slots, CHANNELS, grid)


def scatter(params: Mapping[str, Any]) -> Model:
    """Return the stage that scatters pillar features onto the bird's-eye grid."""
    chosen, grid = settle("centerpoint.scatter", params)
    nx, ny, _ = grid.cells
    return _model(scatter_network(ny, nx, CHANNELS, "centerpoint.scatter"), {"canvas": image(CHANNELS, ny, nx)}, chosen)


def backbone(params: Mapping[str, Any]) -> Model:
    """Return the stage of backbone and neck, at the resolution of the grid."""
    chosen, grid = settle("centerpoint.backbone", params)
    nx, ny, _ = grid.cells
    return _model(backbone_network(ny, nx), {"neck": image(NECK, ny, nx)}, chosen)


def backbone_network(ny: int, nx: int) -> Network:
    """Return the backbone with its neck on a canvas of `ny` x `nx` (multiples of 4)."""
    return second_fpn("centerpoint.backbone", ny, nx, SecondFpn(CHANNELS, STRIDES, pointwise=True))


def head(params: Mapping[str, Any]) -> Model:
    """Return the centre-head stage: class heatmap, offset, height, size, heading and velocity of every cell."""
    chosen, grid = settle("centerpoint.head", params)
    nx, ny, _ = grid.cells
    return _model(head_network(ny, nx), {name: image(channels, ny, nx) for name, channels in MAPS}, chosen)


def head_network(ny: int, nx: int) -> Network:
    """Return the head over a neck of `ny` x `nx` cells."""
    build = Layers()
    shared = build.relu(build.conv("shared", "neck", NECK, SHARED, 3))
    for name, channels in MAPS:
        build.conv(name, build.relu(build.conv(f"{name}.0", shared, SHARED, SHARED, 1)), SHARED, channels, 1)
    return build.network("centerpoint.head", {"neck": image(NECK, ny, nx)}, *(name for name, _ in MAPS))


def _model(network: Network, outputs: Mapping[str, TensorType], chosen: Mapping[str, Any]) -> Model:
    return network_model(lambda: network, outputs, min(chosen["pillars"], chosen["max_pillars"]))
