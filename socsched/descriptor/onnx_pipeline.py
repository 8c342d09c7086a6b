"""A pipeline around a single network: one sensor, one stage, one chain, so that an ONNX file can be planned."""

from __future__ import annotations

import re
from pathlib import Path

from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.errors import UsageError

SUFFIX = ".onnx"
PERIOD = "10 Hz"


def onnx_pipeline(path: Path) -> Pipeline:
    """Return the pipeline of an ONNX file: a frame every 100 ms, due before the next; UsageError if it is missing."""
    if not path.is_file():
        raise UsageError(f"{path}: does not exist", "expected an ONNX file, or the name of a pipeline")
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", path.stem).lstrip("_.-")[:64] or "network"
    why = "no rate given: assuming ten frames per second, each done before the next"
    mapping = {
        "schema_version": "1",
        "name": name,
        "title": f"{path.name} on its own",
        "sensors": {"frames": {"kind": "frames", "period": PERIOD, "assumed": why}},
        "stages": {
            "network": {
                "title": path.name,
                "onnx": path.name,
                "after": ["frames"],
                "precisions": ["fp32", "fp16"],
            }
        },
        "chains": {"frame": {"path": ["frames", "network"], "deadline": "100 ms", "assumed": why}},
    }
    return pipeline_from_mapping(mapping, str(path))
