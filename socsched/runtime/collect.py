"""Results of a run for each frame: detections always, figures of every intermediate tensor on request.

The figures are those used to compare against a reference implementation: shape, mean, population standard deviation,
minimum, maximum and Euclidean norm, all in double precision, and digests of the voxels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from socsched.descriptor.pipeline import Pipeline
from socsched.files import write_file
from socsched.models.registry import get_model
from socsched.runtime.backends.base import plain
from socsched.runtime.frames_file import NAME
from socsched.trace.trace import Trace

TENSOR_NAMES = {"features": "pfn", "canvas": "bev"}
"""Output port -> name in the figures, if different."""
DETECTION_PORTS = ("boxes", "scores", "labels")
"""Outputs that together form detections; camera detections have the prefix "image_"."""
PREFIXES = ("", "image_")


def tensor_figures(array: Any) -> dict[str, Any]:
    """Return shape, mean, std, min, max and l2 of an array, computed in double precision; zeros when it is empty."""
    values = np.asarray(array, np.float64)
    figures: dict[str, Any] = {"shape": list(values.shape)}
    if not values.size:
        return figures | dict.fromkeys(("mean", "std", "min", "max", "l2"), 0.0)
    figures |= {"mean": float(values.mean()), "std": float(values.std())}
    figures |= {"min": float(values.min()), "max": float(values.max())}
    return figures | {"l2": float(np.sqrt(np.square(values).sum()))}


def voxel_figures(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return pillar and point counts and SHA-256 of voxels and coordinates (raw bytes, C order)."""
    counts = np.asarray(plain(outputs["counts"]))
    return {
        "pillars": len(counts),
        "points_in_pillars": int(counts.sum()),
        "voxels_sha256": hashlib.sha256(np.asarray(plain(outputs["voxels"])).tobytes()).hexdigest(),
        "coords_sha256": hashlib.sha256(np.asarray(plain(outputs["coords"])).tobytes()).hexdigest(),
    }


def detections(outputs: Mapping[str, Any], classes: Sequence[str], prefix: str = "") -> list[dict[str, Any]]:
    """Return boxes, scores and classes as plain data, best first; `classes` names the labels.

    Boxes are x, y, z_bottom, w, l, h, ry in m and rad, or with the prefix "image_" left, top, right, bottom in pixels.
    """
    rows = zip(*(outputs[prefix + port] for port in DETECTION_PORTS), strict=True)
    return [
        {"class": classes[int(label)], "label": int(label), "score": float(score), "box": [float(v) for v in box]}
        for box, score, label in rows
    ]


def _prefix(outputs: Mapping[str, Any]) -> str | None:
    """Return the prefix of the detection ports, None without detections."""
    return next((p for p in PREFIXES if all(p + port in outputs for port in DETECTION_PORTS)), None)


def class_names(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return, for every stage with a built-in model, the names of the classes it detects."""
    return {stage.name: get_model(stage.model, stage.params).classes for stage in pipeline.stages if stage.model}


def detecting_stages(pipeline: Pipeline) -> dict[str, str]:
    """Return, for every stage that detects objects, the prefix of its detection ports."""
    return {
        stage.name: next(p for p in PREFIXES if p + DETECTION_PORTS[0] in {port.name for port in model.outputs})
        for stage in pipeline.stages
        if stage.model and (model := get_model(stage.model, stage.params)).classes and model.function is not None
    }


def described(outputs: Mapping[str, Any], classes: Sequence[str], figures: bool) -> dict[str, Any]:
    """Return a part of a frame's results from a stage's outputs: detections, or `figures` of tensors if wanted."""
    if (prefix := _prefix(outputs)) is not None:
        plain_outputs = {name: plain(value) for name, value in outputs.items()}
        return {f"{prefix}detections": detections(plain_outputs, classes, prefix)}
    if not figures:
        return {}
    if {"voxels", "counts", "coords"} <= set(outputs):
        return voxel_figures(outputs)
    return {"tensors": {TENSOR_NAMES.get(port, port): tensor_figures(plain(v)) for port, v in outputs.items()}}


def write_frames(trace: Trace, folder: str | Path) -> Path:
    """Write `Trace.details` as frames.jsonl (one object per frame, in frame order) into `folder`; return its path."""
    path = Path(folder) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(trace.details[frame]) + "\n" for frame in sorted(trace.details)]
    write_file(path, "".join(lines))
    return path
