"""A pillar detector small enough to be compiled in seconds, for tests of its execution rather than its detections.

Stages and ports are PointPillars'; the grid is 25.6 m square, blocks are a convolution each.  Importing this makes its
models known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.graph.operators import TensorType
from socsched.models.model import Model
from socsched.models.pointpillars.grid import Grid
from socsched.models.pointpillars.network import (
    HEADS,
    SecondFpn,
    check_params,
    head_network,
    image,
    network_model,
    pillar_network,
    scatter_network,
    second_fpn,
)
from socsched.models.weights import draw_weights

PIPELINE = Path(__file__).parent / "data" / "scan" / "tiny.yaml"
GRID = Grid((0.0, -12.8, -3.0), (25.6, 12.8, 1.0))
NX, NY, _ = GRID.cells
CHANNELS, BLOCKS, UP = 16, ((1, 16), (1, 16), (1, 16)), 16


def pfn(params: Mapping[str, Any]) -> Model:
    ports = {"features": TensorType((-1, CHANNELS), "fp32")}
    return network_model("tiny.pfn", lambda: pillar_network("tiny.pfn", 32, CHANNELS, GRID), ports, _pillars(params))


def scatter(params: Mapping[str, Any]) -> Model:
    network = lambda: scatter_network(NY, NX, CHANNELS, "tiny.scatter")  # noqa: E731
    return network_model("tiny.scatter", network, {"canvas": image(CHANNELS, NY, NX)}, _pillars(params))


def backbone(params: Mapping[str, Any]) -> Model:
    network = lambda: second_fpn("tiny.backbone", NY, NX, SecondFpn(CHANNELS, blocks=BLOCKS, up_channels=UP))  # noqa: E731
    return network_model("tiny.backbone", network, {"neck": image(3 * UP, NY // 2, NX // 2)}, _pillars(params))


def head(params: Mapping[str, Any]) -> Model:
    ports = {name: image(channels, NY // 2, NX // 2) for name, channels in HEADS}
    network = lambda: head_network(NY // 2, NX // 2, 3 * UP, "tiny.head")  # noqa: E731
    return network_model("tiny.head", network, ports, _pillars(params))


def _pillars(params: Mapping[str, Any]) -> int:
    return int(check_params(params)["pillars"])


FACTORIES = {"tiny.pfn": pfn, "tiny.scatter": scatter, "tiny.backbone": backbone, "tiny.head": head}
for _name in FACTORIES:
    plugins.provide("socsched.models", _name, f"tiny_pillars:{_name.split('.')[1]}")


def write_weights(path: Path) -> Path:
    """Write random weights that find something in every scan."""
    weights: dict[str, Any] = {}
    for factory in FACTORIES.values():
        model = factory({})
        assert model.network is not None
        weights |= draw_weights(model.network())
    weights["cls.bias"] += 3
    np.savez(path, **weights)
    return path
