"""The camera pipeline with its detector alone, which a plan cuts between engines."""

from __future__ import annotations

from dataclasses import replace

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Engine, Platform

ORIN = "jetson-agx-orin-64gb"
MS = 1_000_000
PERIOD = 5 * MS // 2
"""Shorter than the detector takes on any engine in mode 15W."""


def detector(period_ns: int, precisions: tuple[str, ...] = ("int8",)) -> Pipeline:
    """Return a camera that feeds the detector directly, two frames under way."""
    whole = get_pipeline("camera-detection")
    camera = replace(whole.sensors[0], period_ns=period_ns)
    stage = replace(whole.stage("detect"), after=(camera.name,), queue=2, precisions=precisions)
    chain = replace(whole.chains[0], path=(camera.name, stage.name), deadline_ns=40 * MS)
    return replace(whole, sensors=(camera,), stages=(stage,), chains=(chain,))


def by_rooflines() -> Platform:
    """Return Orin without fitted cost models: its DLAs then draw enough memory bandwidth to slow each other down."""

    def plain(engine: Engine) -> Engine:
        precisions = {dtype: replace(found, fitted=()) for dtype, found in engine.precisions.items()}
        return replace(engine, precisions=precisions)

    board = get_platform(ORIN)
    return replace(board, engines=tuple(map(plain, board.engines)))
