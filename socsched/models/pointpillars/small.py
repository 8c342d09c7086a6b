"""PointPillars-S: the stages of the KITTI three-class network with narrower channels, and shipped weights.

Voxelising and decoding are those of the full network (`pointpillars.voxelise`, `pointpillars.decode`): grid, anchors
and box coding are the same.  The weights are trained on synthetic scans only (docs/models/pointpillars-s.md), by
tools/train/pointpillars.py.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from socsched.models.pointpillars.network import PillarDetector, SecondFpn
from socsched.models.weights import Weights, load_weights

CHANNELS = 32
FILE = Path(__file__).parents[2] / "trained" / "pointpillars-s.npz"
"""Trained weights, fp16, batch norm folded."""
SCALES = str(FILE.with_name("pointpillars-s.scales.json"))
"""int8 scales of backbone and head with these weights, from synthetic scenes not used for any reported figure."""


@lru_cache(maxsize=1)
def _trained() -> Weights:
    return load_weights(FILE, SMALL.networks())


def load_trained_weights() -> Weights:
    """Return the weights shipped with socsched, fp32 by parameter name."""
    return dict(_trained())


SMALL = PillarDetector(
    "pointpillars-s",
    SecondFpn(CHANNELS, blocks=((4, 32), (5, 64), (3, 96)), up_channels=64),
    trained=load_trained_weights,
    scales=SCALES,
)
pfn, scatter, backbone, head, networks = SMALL.pfn, SMALL.scatter, SMALL.backbone, SMALL.head, SMALL.networks
