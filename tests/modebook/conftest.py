"""A small book: a pipeline known by its times on AGX Orin, with two operating conditions."""

from __future__ import annotations

from typing import Any

import pytest

from socsched.api.books import book
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.modebook.book import Book


def cost(engine: str, time: str, units: int = 1) -> dict[str, Any]:
    figure = {"value": time, "kind": "assumed", "note": "a test", "error": 0.1}
    return {
        "platform": "jetson-agx-orin-64gb", "mode": "MAXN", "engine": engine, "precision": "fp32", "units": units,
        "scales_with": "performance", "time": figure,
    }  # fmt: skip


def document() -> dict[str, Any]:
    return {
        "schema_version": "1",
        "name": "small",
        "title": "a camera, a detector, a controller",
        "sensors": {"camera": {"kind": "camera", "period": "40 ms", "offset": "3 ms", "assumed": "a test"}},
        "stages": {
            "detect": {
                "title": "detector", "after": ["camera"], "assumed": "a test", "queue": 2, "share": 1,
                "costs": [cost("gpu", "8 ms", 0), cost("cpu", "10 ms")],
            },
            "track": {"title": "tracker", "after": ["detect"], "share": 1, "assumed": "a test", "queue": 2,
                      "costs": [cost("cpu", "4 ms")]},
            "control": {
                "title": "controller", "period": "20 ms", "reads": ["track"], "engines": ["cpu0"], "share": 1,
                "assumed": "a test", "costs": [cost("cpu", "2 ms")],
            },
        },
        "chains": {
            "image-to-command": {
                "path": ["camera", "detect", "track", "control"], "deadline": "120 ms", "assumed": "a test",
            },
        },
        "conditions": {
            "night": {"title": "longer exposure", "assumed": "a test", "sensors": {"camera": {"period": "80 ms"}}},
            "town": {
                "title": "more objects", "assumed": "a test",
                "stages": {"track": {"load": 2.5}}, "chains": {"image-to-command": {"deadline": "140 ms"}},
            },
        },
    }  # fmt: skip


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    return pipeline_from_mapping(document(), "small.yaml")


@pytest.fixture(scope="session")
def small(pipeline: Pipeline) -> Book:
    """Three modes, three thermal states, three lost engines and three conditions: 108 cells."""
    return book(
        pipeline, "jetson-agx-orin-64gb", modes=["MAXN", "50W", "30W"], losses=["cpu0", "gpu", "dla0"], evaluations=768
    )
