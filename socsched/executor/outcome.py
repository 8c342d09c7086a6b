"""The results of the native executor: its journal as a trace, executed.json, and what stages detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from socsched.bounded import read_bytes
from socsched.descriptor.json_file import JsonFile
from socsched.descriptor.limits import Amount, Count, Ns, Text
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError
from socsched.executor.settings import EXECUTED, JOURNAL
from socsched.runtime.collect import (
    DETECTION_PORTS,
    FramesFile,
    class_names,
    described,
    detecting_stages,
    detections,
    merge,
)
from socsched.runtime.journal import read_journal
from socsched.runtime.options import Options
from socsched.trace.trace import Trace

_HINT = "run the plan again"
_MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class FrameAccount:
    """Frames of one source by outcome."""

    released: Count
    completed: Count
    dropped: Count
    aborted: Count


@dataclass(frozen=True, slots=True)
class Executed:
    """The contents of executed.json: length and start (monotonic) of a run, its accounts, its failure (empty: none).

    `processor_ns`: time of processors that all of its threads used together, warm-up left out.
    """

    format: Literal["socsched-executed"]
    version: Literal[1]
    duration_ns: Ns
    origin_ns: Ns
    accounts: Mapping[Text, FrameAccount]
    interrupted: bool
    failure: Text
    failed_stage: Text
    failed_frame: Amount
    journal_error: Text
    notices: tuple[Text, ...]
    processor_ns: Ns = 0


def read_executed(folder: Path) -> Executed:
    """Return the outcome of a complete run without its trace; InputError or DescriptorError for a damaged file."""
    file = folder / EXECUTED
    source = JsonFile(read_bytes(file, "outcome of a run", _HINT, _MOST_BYTES), str(file), _HINT)
    executed: Executed = source.load(Executed)
    return executed


def read_outcome(folder: Path) -> tuple[Trace, Executed]:
    """Return the trace and the outcome of a complete run; InputError or DescriptorError for damaged files."""
    executed = read_executed(folder)
    trace = read_journal(folder / JOURNAL)
    trace.duration_ns = executed.duration_ns
    trace.instants.sort(key=lambda instant: instant.time_ns)
    trace.slices.sort(key=lambda piece: piece.start_ns)
    for job, intervals in Counter(piece.job for piece in trace.slices).items():
        trace.jobs[job].preemptions = intervals - 1
    return trace, executed


# The results of each frame of a native run: what its input was, and what stages detected.

DETECTIONS = "detections.jsonl"
_MOST_DETECTIONS = 4 << 30


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
    for line in read_bytes(file, "detections of a run", "run the plan again", _MOST_DETECTIONS).splitlines():
        found = JsonFile(line, str(file), "run the plan again").data
        prefix, stage = prefixes[found["stage"]], found["stage"]
        kinds = (np.float32, np.float32, np.int32)
        arrays = [np.array(found[port], kind) for port, kind in zip(DETECTION_PORTS, kinds, strict=True)]
        outputs = dict(zip((prefix + port for port in DETECTION_PORTS), arrays, strict=True))
        yield found["frame"], {f"{prefix}detections": detections(outputs, classes[stage], prefix)}
