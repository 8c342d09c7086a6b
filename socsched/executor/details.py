"""The results of each frame of a native run: what its input was, and what stages detected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError
from socsched.runtime.collect import DETECTION_PORTS, class_names, described, detecting_stages, detections
from socsched.runtime.frames_file import FramesFile, merge
from socsched.runtime.options import Options
from socsched.trace.trace import Trace

DETECTIONS = "detections.jsonl"
_MOST_BYTES = 4 << 30


class Details:
    """The results of the frames of a run, for `Trace.details`, the file `options.frames`, or `options.results`."""

    def __init__(self, pipeline: Pipeline, options: Options) -> None:
        self._pipeline, self._options = pipeline, options
        self._classes = class_names(pipeline)
        self._parts: list[tuple[int, dict[str, Any]]] = []

    def see(self, stage: str, frame: int, outputs: Mapping[str, Any]) -> None:
        """Take the outputs of a stage's job during the run."""
        part = described(outputs, self._classes.get(stage, ()), self._options.stats)
        if self._options.results is not None:
            self._options.results.add(frame, part)
        else:
            self._parts.append((frame, part))

    def collect(self, trace: Trace, folder: Path, facts: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Add the parts of frames to the trace, or write them; `facts`: by sensor, of its frames, which repeat."""
        parts = (*_inputs(trace, facts), *self._parts, *_detections(self._pipeline, folder))
        if (target := self._options.frames) is None:
            for frame, part in parts:
                merge(trace.details.setdefault(frame, {"frame": frame}), part)
            return
        with FramesFile(target) as file:
            for frame, part in parts:
                file.add(frame, part)
        if file.error is not None:
            raise MachineError(f"the results of frames cannot be written: {file.error}") from file.error


def _inputs(trace: Trace, facts: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for sensor, frames in facts.items():
        for number in range(len(trace.releases.get(sensor, ()))):
            if found := frames[number % len(frames)]:
                yield number, found


def _detections(pipeline: Pipeline, folder: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the detections in the executor's file; numbers are those of 32-bit floats."""
    file = folder / DETECTIONS
    if not file.is_file():
        return
    classes = class_names(pipeline)
    prefixes = detecting_stages(pipeline)
    for line in read_bytes(file, "detections of a run", "run the plan again", _MOST_BYTES).splitlines():
        found = JsonFile(line, str(file), "run the plan again").data
        prefix, stage = prefixes[found["stage"]], found["stage"]
        kinds = (np.float32, np.float32, np.int32)
        arrays = [np.array(found[port], kind) for port, kind in zip(DETECTION_PORTS, kinds, strict=True)]
        outputs = dict(zip((prefix + port for port in DETECTION_PORTS), arrays, strict=True))
        yield found["frame"], {f"{prefix}detections": detections(outputs, classes[stage], prefix)}
