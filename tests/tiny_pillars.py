"""A pillar detector small enough to be compiled in seconds, for tests of its execution rather than its detections.

Stages and ports are PointPillars'; the grid is 25.6 m square, blocks are a convolution each.  Importing this makes its
models known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from socsched import plugins
from socsched.models.pointpillars.grid import Grid
from socsched.models.pointpillars.network import PillarDetector, SecondFpn
from socsched.models.weights import draw_weights

PIPELINE = Path(__file__).parent / "data" / "scan" / "tiny.yaml"
GRID = Grid((0.0, -12.8, -3.0), (25.6, 12.8, 1.0))
NX, NY, _ = GRID.cells
CHANNELS, BLOCKS, UP = 16, ((1, 16), (1, 16), (1, 16)), 16


TINY = PillarDetector("tiny", SecondFpn(CHANNELS, blocks=BLOCKS, up_channels=UP), GRID)
pfn, scatter, backbone, head = TINY.pfn, TINY.scatter, TINY.backbone, TINY.head
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
