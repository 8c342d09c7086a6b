"""Results of a run for each frame, and their file: detections always, figures of every tensor on request.

The figures are those used to compare against a reference implementation: shape, mean, population standard deviation,
minimum, maximum and Euclidean norm, all in double precision, and digests of the voxels.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from socsched.bounded import open_file, read_lines
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import InputError
from socsched.files import replacing, write_file
from socsched.models.registry import get_model
from socsched.runtime.backends import plain
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
    prefix = next((p for p in PREFIXES if all(p + port in outputs for port in DETECTION_PORTS)), None)
    if prefix is not None:
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


# The results of a run in a file that grows during the run: `frames.jsonl`, one object per line.

NAME = "frames.jsonl"
INTERVAL_S = 0.25
_BACKLOG = 1024
_AT_ONCE = 8
"""Detections serialised before the interpreter lock is offered to other threads: some 50 us of work."""
_FRAME = re.compile(rb'\{"frame": (\d{1,15})\b')
_HINT = "run again with -o, into this folder"
_LONGEST = 64 * 2**20
"""Bytes of a line: a thousand detections take 100 KiB."""

Part = Mapping[str, Any]
"""Data about a frame, by name; a value may be an iterator of plain data, which writing consumes."""


class FramesFile:
    """Writes parts of frames to `path`; a context manager around the run.  `error` holds a write failure, if any."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.error: Exception | None = None
        self._path = path
        self._file = path.open("w", encoding="utf-8")
        self._parts: deque[tuple[int, Part]] = deque()
        self._room = threading.Semaphore(_BACKLOG)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="frames", daemon=True)

    def __enter__(self) -> FramesFile:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)
        self._write()
        self._file.close()
        if self.error is None:
            settle(self._path)

    def add(self, frame: int, part: Part) -> None:
        """Queue a part of a frame for writing."""
        if self.error is None:
            self._room.acquire()
            self._parts.append((frame, part))

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            self._write()

    def _write(self) -> None:
        try:
            while self._parts:
                frame, part = self._parts.popleft()
                self._room.release()
                if self.error is None:
                    self._file.write("".join(_pieces(frame, part)))
            if self.error is None:
                self._file.flush()  # the kernel has it now, even if this process dies
        except Exception as error:
            self.error = error
            self._parts.clear()
            self._room.release(_BACKLOG)  # unblock threads that wait for room


def _pieces(frame: int, part: Part) -> Iterator[str]:
    """Yield the line of a part, offering the interpreter lock to other threads every `_AT_ONCE` rows."""
    yield json.dumps({"frame": frame})[:-1]
    for name, value in part.items():
        yield f", {json.dumps(name)}: "
        if not isinstance(value, Iterator):
            yield json.dumps(value)
            continue
        yield "["
        for number, row in enumerate(value):
            yield (", " if number else "") + json.dumps(row)
            if number % _AT_ONCE == _AT_ONCE - 1:
                time.sleep(0)
        yield "]"
    yield "}\n"


def read_frames(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the data of every frame, in frame order, even for a killed run; a truncated line is skipped."""
    places = _places(Path(path))
    with open_file(path, "results of a run", _HINT) as file:
        for _, offsets in sorted(places.items()):
            yield _merged(_lines(Path(path), file, offsets))


def settle(path: Path) -> None:
    """Merge the file into one object per frame, in frame order; delete it if empty.

    Memory holds only a few numbers per frame.
    """
    places = _places(path)
    if not places:
        path.unlink()  # the run produced no data
        return
    if all(len(found) == 1 for found in places.values()) and list(places) == sorted(places):
        return
    with replacing(path) as file:
        for frame in read_frames(path):
            file.write(json.dumps(frame).encode() + b"\n")


def _places(path: Path) -> dict[int, list[int]]:
    """Return, for every frame, the file offsets of its lines."""
    found: dict[int, list[int]] = {}
    offset = 0
    for line in read_lines(path, "results of a run", _HINT, _LONGEST):
        if (match := _FRAME.match(line)) and line.endswith(b"\n"):
            found.setdefault(int(match[1]), []).append(offset)
        offset += len(line)
    return found


def _lines(path: Path, file: BinaryIO, offsets: Iterable[int]) -> Iterator[dict[str, Any]]:
    for offset in offsets:
        file.seek(offset)
        part = JsonFile(file.readline(_LONGEST), str(path), _HINT).data
        if not isinstance(part, dict) or not isinstance(part.get("tensors", {}), dict):
            raise InputError(f"{path}: byte {offset}: expected the results of a frame by name", _HINT)
        yield part


def _merged(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for part in parts:
        merge(whole, part)
    return whole


def merge(whole: dict[str, Any], part: Mapping[str, Any]) -> None:
    """Add a part of a frame's results to the others; tensors of several stages stand together."""
    tensors = {**whole.get("tensors", {}), **part.get("tensors", {})}
    whole.update(part)
    if tensors:
        whole["tensors"] = tensors
