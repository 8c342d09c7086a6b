"""Profiles of Qualcomm's QNN as CSV: of ONNX Runtime's QNN provider (profiling_level), and of qnn-profile-viewer.

A job is one execution of a graph: its time is the accelerator's where the profile states it, else the host's.  Rows of
nodes state cycles, which are not times: they give the layers and the share of the longest one.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.profile_model import Recording, Section

HEAD = "Msg Timestamp,Message,Time,Unit of Measurement,Timing Source,Event Level,Event Identifier"
_UNITS = {"NS": 1, "US": 1000, "MS": 10**6}
_JOBS = (
    "QNN accelerator (execute) time",
    "QNN accelerator (execute excluding wait) time",
    "Accelerator (execute) time",
    "Accelerator (execute excluding wait) time",
    "QNN (execute) time",
)
"""Identifiers of an execution, the most exact first; without any, rows EXECUTE of level ROOT."""
_HOST = ("QNN (execute) time", "EXECUTE")
_NODE = re.compile(r"(?:_token_\d+(?:_\d+)*)?(?::OpId_\d+)?(?: \(cycles\))?$")
_LARGEST = 10**15
_AGAIN = "set the provider option profiling_level=basic or detailed, and profiling_file_path"


def accepts(text: str) -> bool:
    """Return whether a file begins as these profiles do."""
    return text.startswith(HEAD)


def recording(path: Path, text: str) -> Recording:
    """Return the recording of a file; InputError with the line of a fault, or if nothing was executed."""
    times, cycles = dict[str, list[int]](), dict[str, int]()
    reader = csv.reader(text.splitlines())
    try:
        for row in reader:
            if reader.line_num > 1 and len(row) >= 7:
                _row(f"{path}:{reader.line_num}", row, times, cycles)
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: expected comma-separated values: {error}", _AGAIN) from None
    chosen = next((name for name in (*_JOBS, "EXECUTE") if times.get(name)), "")
    if not chosen:
        raise InputError(f"{path}: no row states the time of an execution", _AGAIN)
    jobs = tuple(times[chosen])
    mean, said = sum(jobs) / len(jobs), [f"rows {chosen!r}"]
    host = next((times[name] for name in _HOST if name != chosen and len(times.get(name, ())) == len(jobs)), None)
    if host:
        said.append(f"{max(0, sum(host) / len(host) - mean) / 1000:.0f} us on the host in addition")
    if total := sum(cycles.values()):
        most = max(cycles, key=lambda name: cycles[name])
        said.append(f"{cycles[most] / total:.0%} of the cycles in {most}")
    section = Section("", 0, "QNN", tuple(cycles), mean, jobs, note="; ".join(said))
    return Recording(str(path), "QNN profile", (section,), len(jobs))


def _row(place: str, row: list[str], times: dict[str, list[int]], cycles: dict[str, int]) -> None:
    message, value, unit, level, name = row[1].strip(), row[2].strip(), row[3].strip().upper(), row[5], row[6].strip()
    if unit not in _UNITS and unit != "CYCLES":
        return
    if not (value.isascii() and value.isdecimal() and int(value[:16]) <= _LARGEST):
        raise InputError(f"{place}: Time: expected a whole number up to {_LARGEST}, got {value[:20]!r}", _AGAIN)
    number = int(value)
    if unit == "CYCLES":
        if message == "NODE":
            layer = _NODE.sub("", name)
            cycles[layer] = cycles.get(layer, 0) + number
    elif name in _JOBS:
        times.setdefault(name, []).append(number * _UNITS[unit])
    elif message == "EXECUTE" and level.strip() == "ROOT":
        times.setdefault(message, []).append(number * _UNITS[unit])
