"""Rockchip's table of layers: printed by `rknn.eval_perf()` with times, and by a verbose `rknn.build()` with cycles.

A change of target (NPU, CPU, GPU) begins a section.  The operators that hand tensors to and from the host at both ends
are a hand-over.  The compiler's cycles are its own estimate (the larger of memory's and the NPU's).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from socsched.bounded import read_bytes
from socsched.errors import InputError
from socsched.interchange.recording import HINT, MOST_BYTES, Recording, Section

TITLE = "Network Layer Information Table"
_PREFIX = re.compile(r"^(?:\x1b\[[0-9;]*m)*(?:[DIWE] RKNN: \[[\d:.]+\] ?)?")
_CYCLES = re.compile(r"\d{1,15}/\d{1,15}/(\d{1,15})")
_CLOCKS = re.compile(r"(CPU|NPU|DDR) Current Frequency List:\s*\n((?:\s+- \S+\n?)+)")
_PRECISIONS = {"FLOAT16": "fp16", "FLOAT32": "fp32", "INT8": "int8", "UINT8": "int8"}
_ENDS = ("InputOperator", "OutputOperator")
_AGAIN = "print it with rknn.init_runtime(..., perf_debug=True) and rknn.eval_perf()"


@dataclass(frozen=True, slots=True)
class _Layer:
    op: str
    target: str
    precision: str
    name: str
    time_ns: int
    cycles: int


def accepts(head: str) -> bool:
    """Return whether a text holds the title of the table."""
    return TITLE in head


def recording(path: Path, data: object = None) -> Recording:
    """Return the recording of the last table of a file; InputError if it has no rows."""
    text = read_bytes(path, "table", HINT, MOST_BYTES).decode("utf-8", "replace")
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    starts = [number for number, line in enumerate(lines) if TITLE in line]
    layers, timed = list[_Layer](), False
    for line in lines[starts[-1] :] if starts else ():
        if re.match(r"\s*ID\s+OpType\b", line):
            timed = "Time(us)" in line
        elif layer := _layer(line.split(), timed):
            layers.append(layer)
        elif layers and line.strip() and not line.startswith("-"):
            break
    if not layers:
        raise InputError(f"{path}: expected a table of layers with cycles", _AGAIN)
    handover = sum(layer.time_ns for layer in layers if layer.op in _ENDS)
    inner = [layer for layer in layers if layer.op not in _ENDS]
    if not any(layer.time_ns or layer.cycles for layer in inner):
        raise InputError(f"{path}: the table states no time", _AGAIN)
    groups = [(target, list(found)) for target, found in groupby(inner, key=lambda layer: layer.target)]
    sections = tuple(
        _section(0 if len(groups) == 1 else number, target.lower(), found, timed)
        for number, (target, found) in enumerate(groups, 1)
    )
    kinds = [layer.precision for layer in inner if layer.precision and layer.target == "NPU"]
    precision = max(kinds, key=kinds.count) if kinds else ""
    tool = "rknn.eval_perf" if timed else "RKNN compiler"
    return Recording(str(path), tool, sections, 1, handover, precision, state=_state(text))


def _layer(words: Sequence[str], timed: bool) -> _Layer | None:
    """Return the layer of a row "ID operator type target shapes... cycles [time] ... name", None for other lines."""
    if len(words) < 5 or not words[0].isdecimal() or words[3] not in ("NPU", "CPU", "GPU"):
        return None
    place = next((place for place, word in enumerate(words) if _CYCLES.fullmatch(word)), -1)
    if place < 0:
        return None
    cycles, rest = words[place].rpartition("/")[2], words[place + 1 :]
    time = int(rest[0]) * 1000 if timed and rest and re.fullmatch("[0-9]{1,11}", rest[0]) else 0
    name = rest[-1].partition(":")[2] if rest and ":" in rest[-1] else f"{words[1]}_{words[0]}"
    return _Layer(words[1], words[3], _PRECISIONS.get(words[2], ""), name, time, int(cycles))


def _section(number: int, kind: str, layers: Sequence[_Layer], timed: bool) -> Section:
    names = tuple(layer.name for layer in layers)
    if timed:
        note = "single run with profiling, which slows it down"
        return Section("", number, kind, names, sum(layer.time_ns for layer in layers), note=note)
    cycles = sum(layer.cycles for layer in layers)
    return Section("", number, kind, names, 0, note=f"{cycles} cycles by the compiler's estimate", cycles=cycles)


def _state(text: str) -> str:
    found = []
    for name, listed in _CLOCKS.findall(text):
        clocks = [int(word) for word in re.findall(r"- (\d{1,12})\b", listed)]
        if clocks:
            scale = 10**3 if name == "CPU" else 10**6  # kHz for CPUs, Hz for the others
            found.append(f"{name.lower()} {', '.join(str(clock // scale) for clock in clocks)} MHz")
    return "; ".join(found)
