"""Frames of sensors for the native executor: written to files before the run, in the form run.json describes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from socsched.compiler.layouts import NUMPY_DTYPES
from socsched.graph.operators import TensorType
from socsched.planning.plan import Plan
from socsched.runtime import timetable
from socsched.runtime.frames import Frame, FrameSource, facts_of

MOST_BYTES = 2 << 30
"""Bytes of frames that stay in memory; further sensors' frames are read during the run."""
MOST_POINTS = 200_000
"""Rows for which there is room in a frame whose number of rows is not known before the run."""
INPUTS = "native-input-{}.bin"
"""The file of a sensor's frames."""
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


@dataclass(slots=True)
class Written:
    """The frames of a sensor: `facts` (of one period of repetition) describe them in the results of a run.

    `types`: the type of each port, with -1 for sizes that vary.  `document`: the sensor's entry in run.json.
    `coming`: those that are not in the file, since they would need too much memory; they are to be fed.
    """

    types: list[TensorType]
    document: dict[str, Any]
    facts: list[dict[str, Any]] = field(default_factory=list)
    coming: Iterable[Frame] | None = None


def write_inputs(
    plan: Plan,
    feeds: Mapping[str, FrameSource],
    ports: Mapping[str, Sequence[str]],
    horizon_ns: int,
    folder: Path,
    live: bool = False,
    fixed: Container[str] = (),
) -> dict[str, Written]:
    """Write the frames that sensors with `ports` release before the horizon; return them by sensor.

    Sensors that are `live` have a frame for the warm-up only.  `fixed`: ports whose tensors have one size.
    """
    written: dict[str, Written] = {}
    left = MOST_BYTES
    for name in timetable.names(plan):
        if not ports.get(name):
            continue
        file = folder / INPUTS.format(len(written))
        feed, count = feeds[name], max(timetable.frames_of(plan, name, horizon_ns), 1)
        if not live:
            written[name], size = _write(_different(feed, count), feed.warm(), ports[name], file, left)
            if size <= left:
                left -= size
                continue
        made, _ = _write((), feed.warm(), ports[name], file, sys.maxsize)
        made.types = [
            kind if port in fixed else _any_size(kind, live) for port, kind in zip(ports[name], made.types, strict=True)
        ]
        made.document["ports"] = [entry_of(kind) for kind in made.types]
        made.coming = () if live else (feed.frame(number) for number in range(count))
        written[name] = made
    return written


def fed(written: Written, ports: Sequence[str], over: Callable[[], bool]) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield the coming frames of a sensor as messages, header and arrays, until it is `over`."""
    for frame in written.coming or ():
        if over():
            return
        written.facts.append(facts_of(frame))
        yield message(frame, ports, written.types)


def message(
    frame: Frame, ports: Sequence[str], types: Sequence[TensorType], time_ns: int = 0
) -> tuple[dict[str, Any], list[Any]]:
    """Return the message that feeds a frame which arrived at `time_ns` (monotonic), header and arrays."""
    problem = frame.problem
    arrays = [] if problem else [frame.outputs[port] for port in ports]
    for array, kind in zip(arrays, types, strict=False):
        rows = len(array.shape) == len(kind.shape)
        if not rows or any(size not in (-1, own) for size, own in zip(kind.shape, array.shape, strict=True)):
            problem = f"its shape is {list(array.shape)}, expected {list(kind.shape)}"
    header: dict[str, Any] = {"time_ns": time_ns}
    return ({**header, "problem": problem[:1000]}, []) if problem else (header, arrays)


def _any_size(kind: TensorType, live: bool) -> TensorType:
    """Return a type for any number of rows, and for any size of an image in bytes if it is `live`."""
    if len(kind.shape) == 4:
        return replace(kind, shape=(*kind.shape[:2], -1, -1)) if live and kind.dtype == "uint8" else kind
    rows = len(kind.shape) == 2 and kind.dtype != "uint8"  # points, not the planes of an image
    return replace(kind, shape=(-1, *kind.shape[1:])) if rows else kind


def entry_of(kind: TensorType) -> dict[str, Any]:
    """Return a tensor as run.json states it."""
    return {"dtype": kind.dtype, "layout": kind.layout, "shape": list(kind.shape)}


def most_rows(document: Mapping[str, Any]) -> int:
    """Return the most rows that any tensor of a sensor's frames has, or may have where they come during the run."""
    frames = [*document["frames"], document["warm"]]
    if not document["frames"]:
        return MOST_POINTS
    return max((shape[0] for frame in frames for shape in frame.get("shapes", ()) if shape), default=0)


def _different(feed: FrameSource, wanted: int) -> Iterator[Frame]:
    """Yield the first frames of a source, up to the one after which they repeat."""
    first: Frame | None = None
    for number in range(min(wanted, feed.count or wanted)):
        frame = feed.frame(number)
        if frame is first:
            return
        first = first or frame
        yield frame


def _write(frames: Iterable[Frame], warm: Frame, ports: Sequence[str], file: Path, left: int) -> tuple[Written, int]:
    """Write frames, and one for the warm-up; return them and their bytes, of which more than `left` are not written."""
    entries: list[dict[str, Any]] = []
    facts: list[dict[str, Any]] = []
    types: list[TensorType] = []
    size = 0
    with file.open("wb") as target:
        for frame in chain(frames, (warm,)):
            facts.append(facts_of(frame))
            if frame.problem:
                entries.append({"problem": frame.problem[:1000]})
                continue
            arrays = [np.ascontiguousarray(frame.outputs[port]) for port in ports]
            size += sum(array.nbytes for array in arrays)
            if size > left:
                break
            types = _common(types, arrays)
            entries.append({"shapes": [list(array.shape) for array in arrays]})
            for array in arrays:
                target.write(array.tobytes())
    document = {
        "file": file.name,
        "ports": [entry_of(kind) for kind in types],
        "frames": entries[:-1],
        "warm": entries[-1] if entries else {},
    }
    return Written(types, document, facts[:-1]), size


def _common(types: Sequence[TensorType], arrays: Sequence[Any]) -> list[TensorType]:
    """Return types that hold for these arrays, too: sizes that differ become -1."""
    found = [TensorType(array.shape, _NAMES[array.dtype], "") for array in arrays]
    if not types:
        return found
    return [
        TensorType(tuple(a if a == b else -1 for a, b in zip(old.shape, new.shape, strict=True)), new.dtype, "")
        for old, new in zip(types, found, strict=True)
    ]
