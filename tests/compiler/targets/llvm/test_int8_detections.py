"""Detections in int8 and fp16 on whole scans against those in fp32: the same boxes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from detections import Array, Chain, recall
from recorded import Recorded

from socsched.compiler.quantize.calibrate import calibrate_pipeline
from socsched.compiler.quantize.scales import Scales
from socsched.descriptor.platform import Engine
from socsched.models.weights import Weights

CALIBRATED = 2
# The small network keeps fewer boxes in int8 (40 of 53): its first layer's range is 40 times a background value.
BARS = {
    ("fp16", "pointpillars"): 0.99,
    ("fp16", "pointpillars-s"): 0.99,
    ("int8", "pointpillars"): 0.95,
    ("int8", "pointpillars-s"): 0.7,
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_same_boxes_as_in_fp32(
    precision: str,
    recorded: Recorded,
    scans: list[Array],
    weights: Weights,
    make_engine: Callable[..., Engine],
) -> None:
    scales: dict[str, Scales] = {}
    if precision == "int8":  # the other scans were never calibrated with
        frames = [{"points": scan} for scan in scans[:CALIBRATED]]
        scales = calibrate_pipeline(recorded.pipeline(), weights, frames)
        assert set(scales) == {"backbone", "head"}
    engine = make_engine({"kind": "simulated"}, ("fp32", "fp16", "int8"))
    expected, found = (
        [chain(scan) for scan in scans]
        for chain in (Chain(engine, "fp32", recorded, weights, {}), Chain(engine, precision, recorded, weights, scales))
    )
    hits, total = recall(expected, found)
    assert total >= 10, "too few boxes to say anything"
    assert hits / total >= BARS[precision, recorded.network], f"{hits} of {total}"
