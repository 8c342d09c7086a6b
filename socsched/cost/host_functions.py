"""Times of the host functions on one core of a reference CPU, with its 7-zip score.

`python -m tools.bench.host_table` measures them and prints this table; 7-zip is run on the same core.
"""

from __future__ import annotations

from collections.abc import Mapping

from socsched.descriptor.functions import FunctionCost
from socsched.descriptor.platform import Figure

SOURCE = "measured with tools.bench.host_table on one virtual core of an AMD EPYC (Zen 5)"
MIPS = Figure(3250, "measured", SOURCE, "7-zip 16.02, 7za b -mmt1, seven runs from 2911 to 3330")
"""7-zip MIPS of the reference core, on the scale of `Engine.performance`."""


def _figure(milliseconds: float) -> Figure:
    return Figure(milliseconds * 1e6, "measured", SOURCE, "2026-11-23, processor time, larger of two medians", 0.3)


MEASURED: Mapping[str, FunctionCost] = {
    "voxelise": FunctionCost(
        _figure(0.286), {"points": 20000, "pillars": 6000}, {"points": _figure(10.6), "pillars": _figure(8.94)}
    ),
    "anchor-decode": FunctionCost(
        _figure(0.934),
        {"anchors": 321408, "candidates": 100},
        {"anchors": _figure(0.992), "candidates": _figure(2189)},
    ),
    "center-decode": FunctionCost(_figure(4.26), {"candidates": 500}, {"candidates": _figure(2046)}),
    "camera-preprocess": FunctionCost(_figure(7.83), {"output_pixels": 245760}, {"output_pixels": _figure(18.6)}),
    "camera-resize": FunctionCost(_figure(7.6), {"output_pixels": 245760}, {"output_pixels": _figure(20.2)}),
    "camera-normalise": FunctionCost(_figure(0.222), {"output_pixels": 245760}, {"output_pixels": _figure(0.9)}),
    "camera-decode": FunctionCost(_figure(0.799), {"candidates": 100}, {"candidates": _figure(6268)}),
}
"""Function -> its time on the reference core."""
