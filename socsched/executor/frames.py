"""Frames of sensors for the native executor: written to files before the run, in the form run.json describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES
from socsched.errors import UsageError
from socsched.graph.operators import TensorType
from socsched.planning.plan import Plan
from socsched.runtime import timetable
from socsched.runtime.frames import Frame, FrameSource

MOST_BYTES = 2 << 30
"""Bytes of all frames of a run: they stay in memory."""
INPUTS = "native-input-{}.bin"
"""The file of a sensor's frames."""
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


@dataclass(slots=True)
class Written:
    """The written frames of a sensor: `facts` (of one period of repetition) describe them in the results of a run.

    `types`: the type of each port, with -1 for sizes that vary.  `document`: the sensor's entry in run.json.
    """

    types: list[TensorType]
    document: dict[str, Any]
    facts: list[dict[str, Any]] = field(default_factory=list)


def write_inputs(
    plan: Plan, feeds: Mapping[str, FrameSource], ports: Mapping[str, Sequence[str]], horizon_ns: int, folder: Path
) -> dict[str, Written]:
    """Write the frames that sensors with `ports` release before the horizon; return them by sensor.

    Raises UsageError for frames of more than MOST_BYTES, or of images whose sizes differ.
    """
    written: dict[str, Written] = {}
    left = MOST_BYTES
    for name in timetable.names(plan):
        if not ports.get(name):
            continue
        frames = _different(feeds[name], max(timetable.frames_of(plan, name, horizon_ns), 1))
        file = folder / INPUTS.format(len(written))
        written[name], size = _write(name, frames, feeds[name].warm(), ports[name], file, left)
        left -= size
    return written


def most_rows(document: Mapping[str, Any]) -> int:
    """Return the most rows that any tensor of a sensor's frames has."""
    frames = [*document["frames"], document["warm"]]
    return max((shape[0] for frame in frames for shape in frame.get("shapes", ()) if shape), default=0)


def _different(feed: FrameSource, wanted: int) -> list[Frame]:
    """Return the first frames of a source, up to the one after which they repeat."""
    found: list[Frame] = []
    for number in range(min(wanted, feed.count or wanted)):
        frame = feed.frame(number)
        if found and frame is found[0]:
            break
        found.append(frame)
    return found


def _write(
    name: str, frames: Sequence[Frame], warm: Frame, ports: Sequence[str], file: Path, left: int
) -> tuple[Written, int]:
    entries: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    types: list[TensorType] = []
    size = 0
    with file.open("wb") as target:
        for frame in (*frames, warm):
            facts.append(_facts(frame))
            if frame.problem:
                entries.append({"problem": frame.problem[:1000]})
                continue
            arrays = [np.ascontiguousarray(frame.outputs[port]) for port in ports]
            size += sum(array.nbytes for array in arrays)
            if size > left:
                raise UsageError(
                    f"the native executor keeps all frames in memory: those of {name} need more than {left >> 20} MiB",
                    "run fewer frames, or with --executor event-chained",
                )
            types = _common(types, arrays)
            entries.append({"shapes": [list(array.shape) for array in arrays]})
            for array in arrays:
                target.write(array.tobytes())
    document = {
        "file": file.name,
        "ports": [{"dtype": kind.dtype, "layout": kind.layout, "shape": list(kind.shape)} for kind in types],
        "frames": entries[:-1],
        "warm": entries[-1],
    }
    return Written(types, document, facts[:-1]), size


def _facts(frame: Frame) -> dict[str, Any]:
    """Return what the results say about a frame, as `runtime.releases` notes it."""
    if frame.problem:
        return {"input": frame.title, "problem": frame.problem}
    return {"input": frame.title, "points": len(frame.outputs["points"])} if "points" in frame.outputs else {}


def _common(types: Sequence[TensorType], arrays: Sequence[Any]) -> list[TensorType]:
    """Return types that hold for these arrays, too: sizes that differ become -1."""
    found = [TensorType(array.shape, _NAMES[array.dtype], "") for array in arrays]
    if not types:
        return found
    return [
        TensorType(tuple(a if a == b else -1 for a, b in zip(old.shape, new.shape, strict=True)), new.dtype, "")
        for old, new in zip(types, found, strict=True)
    ]
