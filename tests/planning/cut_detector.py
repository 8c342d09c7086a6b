"""The camera pipeline with its detector alone, which a plan cuts between engines."""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.catalog import get_pipeline
from socsched.descriptor.pipeline import Pipeline

ORIN = "jetson-agx-orin-64gb"
MS = 1_000_000


def detector(period_ns: int, precisions: tuple[str, ...] = ("int8",)) -> Pipeline:
    """Return a camera that feeds the detector directly, two frames under way."""
    whole = get_pipeline("camera-detection")
    camera = replace(whole.sensors[0], period_ns=period_ns)
    stage = replace(whole.stage("detect"), after=(camera.name,), queue=2, precisions=precisions)
    chain = replace(whole.chains[0], path=(camera.name, stage.name), deadline_ns=40 * MS)
    return replace(whole, sensors=(camera,), stages=(stage,), chains=(chain,))
