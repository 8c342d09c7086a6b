"""What a run found in each frame: detections always, figures of every intermediate tensor on request.

Detections are kept as arrays and put into words later, since that takes long, and the interpreter: when the run is
over, or where the run has a file for them by the thread that writes it.

The figures are those a reference implementation is compared by: shape, mean, population standard deviation, least and
greatest value and Euclidean norm, all in double precision, and digests of the voxels.  Collecting is done in a thread
of its own from outputs the stages have let go; with figures it takes processor time from the stages.
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
from socsched.runtime.backends.base import plain
from socsched.runtime.frames_file import NAME, FramesFile
from socsched.trace.trace import Trace

TENSOR_NAMES = {"features": "pfn", "canvas": "bev"}
"""Output port -> name in the figures, where they differ."""
DETECTION_PORTS = ("boxes", "scores", "labels")
"""Outputs that together are detections; those of a camera carry the prefix "image_"."""
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
    counts = np.asarray(outputs["counts"])
    return {
        "pillars": len(counts),
        "points_in_pillars": int(counts.sum()),
        "voxels_sha256": hashlib.sha256(np.asarray(outputs["voxels"]).tobytes()).hexdigest(),
        "coords_sha256": hashlib.sha256(np.asarray(outputs["coords"]).tobytes()).hexdigest(),
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
    """Return the prefix of the ports in which detections stand, None where there are none."""
    return next((p for p in PREFIXES if all(p + port in outputs for port in DETECTION_PORTS)), None)


def class_names(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """Return, for every stage with a built-in model, the names of the classes it finds."""
    return {stage.name: get_model(stage.model, stage.params).classes for stage in pipeline.stages if stage.model}


class Collector:
    """Turns stage outputs into `Trace.details`, one dict a frame, or lines of `file`; a context manager around the run.

    `classes` names, for every stage that gives labels, what they stand for.  An exception while collecting is kept and
    raised on exit.
    """

    def __init__(
        self, trace: Trace, figures: bool, classes: Mapping[str, Sequence[str]], file: FramesFile | None = None
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
            raise MachineError(f"what frame figures are made of is broken: {self._error}") from self._error

    def note(self, frame: int, **facts: Any) -> None:
        """Record facts about a frame's input."""
        self._keep(frame, facts)

    def wants(self, stage: str, outputs: Any) -> bool:
        """Whether anything is made of a stage's outputs: their ports are the same for every frame."""
        wanted = self._wanted.get(stage)
        if wanted is None:
            wanted = self._wanted[stage] = self._figures or _prefix(outputs) is not None
        return wanted

    def add(self, frame: int, stage: str, outputs: Mapping[str, Any]) -> None:
        """Hand over what a stage put out for a frame; waits when figures cannot keep up."""
        prefix = _prefix(outputs)
        if prefix is None:
            if self._figures:
                self._queue.put((frame, stage, outputs))
            return
        arrays = [np.array(outputs[prefix + port]) for port in DETECTION_PORTS]  # what they lie in may be used again
        found = (stage, *arrays) if self._file is None else _worded(arrays, self._classes[stage])
        self._keep(frame, {f"{prefix}detections": found})

    def drain(self) -> None:
        """Wait until everything handed over is collected."""
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
    """Write `Trace.details` as frames.jsonl (one object a frame, in frame order) into `folder`; returns the file."""
    path = Path(folder) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(trace.details[frame]) + "\n" for frame in sorted(trace.details)]
    write_file(path, "".join(lines))
    return path
