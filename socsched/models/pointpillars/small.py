"""PointPillars-S: the stages of the KITTI three-class network with narrower channels, and shipped weights.

Voxelising and decoding are those of the full network (`pointpillars.voxelise`, `pointpillars.decode`): grid, anchors
and box coding are the same.  The weights are trained on synthetic scans only (docs/models/pointpillars-s.md), by
tools/train/pointpillars.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from socsched.graph.network import Network
from socsched.graph.operators import TensorType
from socsched.models.model import Model
from socsched.models.pointpillars.grid import KITTI
from socsched.models.pointpillars.network import (
    HEADS,
    NX,
    NY,
    SecondFpn,
    check_params,
    head_network,
    image,
    network_model,
    pillar_network,
    scatter_network,
    second_fpn,
)
from socsched.models.weights import Weights, load_weights

CHANNELS = 32
BLOCKS = ((4, 32), (5, 64), (3, 96))
UP_CHANNELS = 64
WIDTHS = SecondFpn(CHANNELS, blocks=BLOCKS, up_channels=UP_CHANNELS)
NECK = (1, UP_CHANNELS * len(BLOCKS), NY // 2, NX // 2)
FILE = Path(__file__).parents[2] / "trained" / "pointpillars-s.npz"
"""Trained weights, fp16, batch norm folded."""
SCALES = str(FILE.with_name("pointpillars-s.scales.json"))
"""int8 scales of backbone and head with these weights, from synthetic scenes not used for any reported figure."""


@lru_cache(maxsize=1)
def _trained() -> Weights:
    return load_weights(FILE, networks())


def load_trained_weights() -> Weights:
    """Return the weights shipped with socsched, fp32 by parameter name."""
    return dict(_trained())


def networks() -> tuple[Network, ...]:
    """Return the networks of the stages that have parameters."""
    return pfn_network(), backbone_network(), small_head_network()


def pfn_network(slots: int = 32) -> Network:
    """Return the Pillar Feature Net for `slots` points per pillar."""
    return pillar_network("pointpillars-s.pfn", slots, CHANNELS, KITTI)


def backbone_network(ny: int = NY, nx: int = NX, taps: bool = False) -> Network:
    """Return the backbone with its neck on a canvas of `ny` x `nx` (multiples of 8)."""
    return second_fpn("pointpillars-s.backbone", ny, nx, WIDTHS, taps)


def small_head_network(height: int = NECK[2], width: int = NECK[3]) -> Network:
    """Return the three 1x1 convolutions over a neck of `height` x `width`."""
    return head_network(height, width, NECK[1], "pointpillars-s.head")


def pfn(params: Mapping[str, Any]) -> Model:
    """Return the Pillar Feature Net stage: decorate, linear 9 -> 32, ReLU, maximum over the slots of a pillar."""
    known = check_params(params)
    ports = {"features": TensorType((-1, CHANNELS), "fp32")}
    return network_model(
        "pointpillars-s.pfn", lambda: pfn_network(known["max_points"]), ports, known["pillars"], load_trained_weights,
        SCALES,
    )  # fmt: skip


def scatter(params: Mapping[str, Any]) -> Model:
    """Return the stage that scatters pillar features onto the bird's-eye grid."""
    name, ports = "pointpillars-s.scatter", {"canvas": image(CHANNELS, NY, NX)}
    return network_model(name, lambda: scatter_network(NY, NX, CHANNELS, name), ports, check_params(params)["pillars"])


def backbone(params: Mapping[str, Any]) -> Model:
    """Return the stage of backbone and neck; params {"taps": True} add the block outputs block1, block2, block3."""
    known = check_params(params)
    ports = {"neck": image(*NECK[1:])}
    if known["taps"]:
        sizes = ((channels, NY >> i + 1, NX >> i + 1) for i, (_, channels) in enumerate(BLOCKS))
        ports |= {f"block{i + 1}": image(*size) for i, size in enumerate(sizes)}
    network = lambda: backbone_network(taps=known["taps"])  # noqa: E731
    return network_model("pointpillars-s.backbone", network, ports, known["pillars"], load_trained_weights, SCALES)


def head(params: Mapping[str, Any]) -> Model:
    """Return the anchor-head stage: class scores, box regression and direction, six anchors per cell."""
    ports = {name: image(channels, *NECK[2:]) for name, channels in HEADS}
    return network_model(
        "pointpillars-s.head", small_head_network, ports, check_params(params)["pillars"], load_trained_weights, SCALES
    )
