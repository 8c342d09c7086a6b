"""Times of the host functions on one core of a reference CPU, with its 7-zip score.

`python -m tools.bench.host_table` measures them and prints this table; 7-zip is run on the same core.
"""

from __future__ import annotations

from collections.abc import Mapping

from socsched.descriptor.functions import FunctionCost
from socsched.descriptor.platform import Figure

SOURCE = (
    "measured with tools.bench.host_table on one virtual core of an Intel Xeon (Sapphire Rapids), vectors of 128 bits"
)
MIPS = Figure(3375, "measured", SOURCE, "7-zip 16.02, 7za b -mmt1, median of four runs from 3322 to 3456")
"""7-zip MIPS of the reference core, on the scale of `Engine.performance`."""


def _figure(milliseconds: float) -> Figure:
    return Figure(milliseconds * 1e6, "measured", SOURCE, "2026-11-26, processor time, median of four runs", 0.3)


MEASURED: Mapping[str, FunctionCost] = {
    "voxelise": FunctionCost(
        _figure(0.298), {"points": 20000, "pillars": 6000}, {"points": _figure(6.2), "pillars": _figure(30.2)}
    ),
    "anchor-decode": FunctionCost(
        _figure(0.345),
        {"anchors": 321408, "candidates": 100},
        {"anchors": _figure(0.54), "candidates": _figure(630)},
    ),
    "center-decode": FunctionCost(_figure(0.816), {"candidates": 500}, {"candidates": _figure(411)}),
    "camera-preprocess": FunctionCost(_figure(0.678), {"output_pixels": 245760}, {"output_pixels": _figure(4.09)}),
    "camera-resize": FunctionCost(_figure(7.61), {"output_pixels": 245760}, {"output_pixels": _figure(27.9)}),
    "camera-normalise": FunctionCost(_figure(0.447), {"output_pixels": 245760}, {"output_pixels": _figure(1.85)}),
    "camera-decode": FunctionCost(_figure(0.102), {"candidates": 100}, {"candidates": _figure(65)}),
}
"""Function -> its time on the reference core."""
