"""Chrome traces of the PyTorch profiler (Kineto): annotated ranges, launches, kernels; times in microseconds.

A job is an instance of a `record_function` range; without one, a profiler step.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.interchange.profile_model import (
    MOST_RANGES,
    Board,
    Interval,
    Recording,
    device_times,
    number,
    range_sections,
)

_STEP = re.compile(r"ProfilerStep\s*#\d+")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCH = ("cuda_runtime", "cuda_driver")


def accepts(data: Any) -> bool:
    """Return whether parsed JSON is an object with traceEvents."""
    return isinstance(data, Mapping) and isinstance(data.get("traceEvents"), list)


def recording(path: Path, data: Any) -> Recording:
    """Return the recording of a file; InputError if it has no range that ran anything."""
    ranges, steps, launches, kernels = (list[Interval]() for _ in range(4))
    threads: dict[str, int] = {}
    for event in data["traceEvents"]:
        if not isinstance(event, Mapping) or event.get("ph") != "X":
            continue
        start, length, category = number(event, "ts"), number(event, "dur"), event.get("cat")
        if start is None or length is None:
            continue
        arguments = event.get("args")
        key = number(arguments, "correlation") if isinstance(arguments, Mapping) else None
        thread = threads.setdefault(f"{event.get('pid')}/{event.get('tid')}", len(threads))
        name = str(event.get("name", ""))
        begin = round(start * 1000)
        found = Interval(name, thread, begin, begin + round(length * 1000), round(key or 0))
        if category == "user_annotation":
            (steps if _STEP.fullmatch(name) else ranges).append(found)
        elif category in _LAUNCH and key is not None:
            launches.append(found)
        elif category in _DEVICE and key is not None:
            kernels.append(found)
    ranges = ranges or [Interval("ProfilerStep", s.thread, s.start_ns, s.end_ns) for s in steps]
    if not ranges or len(ranges) > MOST_RANGES:
        raise InputError(
            f"{path}: expected 1 to {MOST_RANGES} annotated ranges, found {len(ranges)}",
            "mark jobs with torch.profiler.record_function(NAME), or call profiler.step() after each",
        )
    if kernels:
        sections = range_sections(device_times(ranges, launches, kernels), "gpu")
    else:
        jobs = dict[str, list[tuple[int, int, int, int, int]]]()
        for found in ranges:
            jobs.setdefault(found.name, []).append((found.start_ns, found.start_ns, found.end_ns, 0, 0))
        sections = tuple(replace(section, note="") for section in range_sections(jobs, "cpu"))
    if not sections:
        raise InputError(f"{path}: no annotated range launched a kernel", "annotate the thread that launches the work")
    board = _board(data.get("deviceProperties")) if kernels else Board()
    return Recording(str(path), "PyTorch profiler", sections, max(len(s.times_ns) for s in sections), board=board)


def _board(devices: Any) -> Board:
    """Return the GPU that was recorded; nothing where there were several."""
    if not isinstance(devices, list) or len(devices) != 1 or not isinstance(devices[0], Mapping):
        return Board()
    return Board(device=str(devices[0].get("name", ""))[:80], units=round(number(devices[0], "numSms") or 0))
