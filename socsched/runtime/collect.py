"""Results of a run for each frame: detections always, figures of every intermediate tensor on request.

Detections are kept as arrays and serialised later, since that is slow and holds the interpreter lock: at the end of
the run or, if the run has a file for them, by the thread that writes it.

The figures are those used to compare against a reference implementation: shape, mean, population standard deviation,
minimum, maximum and Euclidean norm, all in double precision, and digests of the voxels.  A dedicated thread collects
them from outputs the stages have released; computing figures takes CPU time from the stages.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError
from socsched.files import write_file
from socsched.models.registry import get_model
from socsched.runtime.arrivals import Results
from socsched.runtime.backends.base import plain
from socsched.runtime.frames_file import NAME
from socsched.trace.trace import Trace

TENSOR_NAMES = {"features": "pfn", "canvas": "bev"}
"""Output port -> name in the figures, if different."""
DETECTION_PORTS = ("boxes", "scores", "labels")
"""Outputs that together form detections; camera detections have the prefix "image_"."""
PREFIXES = ("", "image_")
_BACKLOG = 16


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
    return list(_worded([outputs[prefix + port] for port in DETECTION_PORTS], classes))


def _worded(arrays: Sequence[Any], classes: Sequence[str]) -> Iterator[dict[str, Any]]:
    for box, score, label in zip(*arrays, strict=True):
        yield {"class": classes[int(label)], "label": int(label), "score": float(score), "box": [float(v) for v in box]}


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


class Collector:
    """Turns stage outputs into `Trace.details`, one dict per frame, or lines of `file`; a context manager for the run.

    `classes` gives, for every stage with labels, the class names.  An exception while collecting is kept and raised on
    exit.
    """

    def __init__(
        self, trace: Trace, figures: bool, classes: Mapping[str, Sequence[str]], file: Results | None = None
    ) -> None:
        self._details = trace.details
        self.slow = figures
        self._wanted: dict[str, bool] = {}
        self._figures, self._classes, self._file = figures, classes, file
        self._queue: queue.Queue[tuple[int, str, Mapping[str, Any]] | None] = queue.Queue(_BACKLOG if figures else 0)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="collect", daemon=True)

    def __enter__(self) -> Collector:
        if self._file is not None:
            self._file.__enter__()
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._queue.put(None)
        self._thread.join(timeout=60)
        try:
            self._put_into_words()
            if self._file is not None:
                self._file.__exit__()
                self._error = self._error or self._file.error
        except Exception as error:
            self._error = self._error or error
        if self._error is not None and kind is None:
            raise MachineError(f"the figures of frames cannot be collected: {self._error}") from self._error

    def note(self, frame: int, **facts: Any) -> None:
        """Record facts about a frame's input."""
        self._keep(frame, facts)

    def wants(self, stage: str, outputs: Any) -> bool:
        """Return whether a stage's outputs are collected; the answer is cached, since ports do not change."""
        wanted = self._wanted.get(stage)
        if wanted is None:
            wanted = self._wanted[stage] = self._figures or _prefix(outputs) is not None
        return wanted

    def add(self, frame: int, stage: str, outputs: Mapping[str, Any]) -> None:
        """Hand over a stage's outputs for a frame; block while figures cannot keep up."""
        prefix = _prefix(outputs)
        if prefix is None:
            if self._figures:
                self._queue.put((frame, stage, outputs))
            return
        arrays = [np.array(plain(outputs[prefix + port])) for port in DETECTION_PORTS]  # their buffers may be reused
        found = (stage, *arrays) if self._file is None else _worded(arrays, self._classes[stage])
        self._keep(frame, {f"{prefix}detections": found})

    def drain(self) -> None:
        """Wait until all outputs handed over are collected."""
        self._queue.join()

    def _keep(self, frame: int, part: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.add(frame, part)
        else:
            self._details.setdefault(frame, {"frame": frame}).update(part)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if self._error is None:
                    self._collect(*item)
            except Exception as error:
                self._error = error
            finally:
                self._queue.task_done()

    def _collect(self, frame: int, stage: str, outputs: Mapping[str, Any]) -> None:
        if {"voxels", "counts", "coords"} <= set(outputs):
            self._keep(frame, voxel_figures(outputs))
        else:
            tensors = {TENSOR_NAMES.get(port, port): tensor_figures(plain(value)) for port, value in outputs.items()}
            if self._file is None:
                tensors = {**self._details.get(frame, {}).get("tensors", {}), **tensors}
            self._keep(frame, {"tensors": tensors})

    def _put_into_words(self) -> None:
        for found in self._details.values():
            for prefix in PREFIXES:
                if isinstance(kept := found.get(f"{prefix}detections"), tuple):
                    stage, *arrays = kept
                    outputs = dict(zip((prefix + port for port in DETECTION_PORTS), arrays, strict=True))
                    found[f"{prefix}detections"] = detections(outputs, self._classes[stage], prefix)


def write_frames(trace: Trace, folder: str | Path) -> Path:
    """Write `Trace.details` as frames.jsonl (one object per frame, in frame order) into `folder`; return its path."""
    path = Path(folder) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(trace.details[frame]) + "\n" for frame in sorted(trace.details)]
    write_file(path, "".join(lines))
    return path
