"""Rockchip's tables of layers and operators, of RKNN Toolkit 1 and 2.

Toolkit 1       `rknn.eval_perf()`: "Layer ID  Name  Operator  Uid  Time(us)", long names go on in the next line; then
                "Total Time(us)" and "FPS(800MHz)", the clock of the NPU
Toolkit 2       `rknn.eval_perf()` with perf_debug, RKNN_QUERY_PERF_DETAIL: "ID  OpType  DataType  Target ... Time(us)"
                (columns of cycles apart in 1.x, "Cycles(DDR/NPU/Total)" in 2.x), then a ranking of operators
`rknn.build()`  verbose: the table of Toolkit 2 without times, or with zeros; cycles are the compiler's own estimate
                (the larger of memory's and the NPU's)
perf_debug off  "Total Time(us)" alone

A change of target (NPU, CPU, GPU) begins a section.  The operators that hand tensors to and from the host at both ends
are a hand-over.  A ranking alone gives the time of every target, in no order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.profile_model import MISSING, Board, Recording, Section

_PREFIX = re.compile(r"^(?:\x1b\[[0-9;]*m)*(?:[DIWE] RKNN: \[[\d:.]+\] ?)?[>#|]?")
_HEAD = re.compile(r"\s*ID\s+OpType\s+DataType\s+Target\b")
_OLD_HEAD = re.compile(r"\s*Layer ID\s+Name\s+Operator\b.*\bTime\(us\)")
_RANKING = re.compile(r"\s*OpType\s+Call ?Number\b.*\bTotal ?Time\(us\)")
_TOTAL = re.compile(r"\s*Total (?:Operator Elapsed )?(?:Per Frame )?Time\(us\):\s*(\d{1,12})\b")
_TARGET = re.compile(
    r"\btarget (?:platform: ?|(?:is )?set (?:by user is: ?|to ?:? ?))([A-Za-z]{2,6}\d{3,5}\w{0,4})\b", re.I
)
_CLOCK = re.compile(r"\bFPS\((\d{1,5})MHz\)")
_JOINED = re.compile(
    r"\b(DDR|NPU|CPU|GPU|Total|Max|Call|Task|Lut|Regcmd|Time) (Cycles|Time\(us\)|Number|Size|Ratio\(%\))"
)
"""Names of columns with a blank in them, as Toolkit 1.x of RKNPU2 writes them."""
_CYCLES = re.compile(r"\d{1,15}/\d{1,15}/(\d{1,15})")
_TIME = re.compile(r"\d{1,11}(?:\.\d{1,6})?")
_SHARES = re.compile(r"(\d{1,3}(?:\.\d+)?)%/(\d{1,3}(?:\.\d+)?)%/(\d{1,3}(?:\.\d+)?)%")
_CLOCKS = re.compile(r"(CPU|NPU|DDR) Current Frequency List:\s*\n((?:[^\S\n]+- \S+\n?)+)")
_PRECISIONS = {"FLOAT16": "fp16", "FLOAT32": "fp32", "INT8": "int8", "UINT8": "int8"}
_TARGETS = ("NPU", "CPU", "GPU")
_ENDS = ("InputOperator", "OutputOperator")
MOST_LAYERS = 20_000
_AGAIN = "print it with rknn.init_runtime(..., perf_debug=True) and rknn.eval_perf()"
_SLOWED = "single run with profiling, which slows it down"


@dataclass(frozen=True, slots=True)
class _Layer:
    op: str
    target: str
    precision: str
    name: str
    time_ns: int
    cycles: int
    cores: tuple[bool, ...] = ()


def accepts(text: str) -> bool:
    """Return whether a text holds the head of a table, or the total of a run that was not traced."""
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    heads = (_HEAD, _OLD_HEAD, _RANKING)
    return any(head.match(line) for line in lines for head in heads) or (
        any(_TOTAL.match(line) for line in lines) and ("FPS" in text or "Performance" in text)
    )


def recording(path: Path, text: str) -> Recording:
    """Return the recording of the last table of a file; InputError if it has no rows or states no time."""
    lines = [_PREFIX.sub("", line) for line in text.splitlines()]
    board = _board(text)
    heads = [(at, read) for at, line in enumerate(lines) for head, read in _READERS if head.match(line)]
    layers, timed, ranked = list[_Layer](), False, False
    for kind in (_new, _old, _ranking):
        for at, _ in [entry for entry in heads if entry[1] is kind][-1:]:
            layers = kind(lines[at:])
            timed, ranked = kind is not _new or any(layer.time_ns for layer in layers), kind is _ranking
        if layers:
            break
    if len(layers) > MOST_LAYERS:
        raise InputError(f"{path}: a table of more than {MOST_LAYERS} layers", _AGAIN)
    inner = [layer for layer in layers if layer.op not in _ENDS]
    total = next((int(match[1]) for line in reversed(lines) if (match := _TOTAL.match(line))), 0)
    if not inner:
        if heads or not total:
            raise InputError(f"{path}: expected a table of layers with times or cycles, got one without rows", _AGAIN)
        section = Section("", 0, "npu", (), total * 1000, note="mean of a run without profiling")
        return Recording(str(path), "rknn.eval_perf", (section,), 1, state=_state(text), board=board)
    if not any(layer.time_ns or layer.cycles for layer in inner):
        raise InputError(f"{path}: the table states no time", _AGAIN)
    listed = sum(layer.time_ns for layer in layers)
    if total and listed and abs(listed - total * 1000) > MISSING * total * 1000:
        raise InputError(
            f"{path}: the rows add up to {listed // 1000} us, the table states {total} us in all",
            "give the whole table: rows of it are missing",
        )
    if ranked:
        inner.sort(key=lambda layer: -_TARGETS[::-1].index(layer.target))
    groups = [(target, list(found)) for target, found in groupby(inner, key=lambda layer: layer.target)]
    sections = tuple(
        _section(0 if len(groups) == 1 else number, target.lower(), found, timed)
        for number, (target, found) in enumerate(groups, 1)
    )
    kinds = [layer.precision for layer in inner if layer.precision and layer.target == "NPU"]
    stated = sorted(dict.fromkeys(kinds), key=lambda name: -kinds.count(name))
    return Recording(
        str(path),
        "rknn.eval_perf" if timed else "RKNN compiler",
        sections,
        1,
        sum(layer.time_ns for layer in layers if layer.op in _ENDS),
        tuple(stated),
        state=_state(text),
        board=board,
        notes=tuple(f"{path.name}: {note}" for note in _notes(inner, ranked, len(groups))),
    )


def _notes(layers: Sequence[_Layer], ranked: bool, groups: int) -> list[str]:
    cores = [sum(layer.cores) for layer in layers if layer.target == "NPU" and any(layer.cores)]
    lines = []
    if cores and max(cores) > 1:
        lines.append(f"{max(cores)} cores of the NPU shared the work; the time is booked on the first of them")
    if ranked and groups > 1:
        lines.append("a ranking of operators does not state their order: the parts are the times of NPU and CPU in all")
    return lines


def _new(lines: Sequence[str]) -> list[_Layer]:
    """Return the layers of a table of Toolkit 2 that begins with its head."""
    columns = {name: place for place, name in enumerate(_words(lines[0]))}
    layers = list[_Layer]()
    for line in lines[1:]:
        words = line.split()
        if len(words) >= 5 and words[0].isdecimal() and words[3] in _TARGETS:
            layers.append(_layer(words, columns))
            if len(layers) > MOST_LAYERS:
                break
        elif layers and line.strip() and not set(line.strip()) <= set("-="):
            break
    return layers


def _words(head: str) -> list[str]:
    return _JOINED.sub(r"\1\2", head).split()


def _layer(words: Sequence[str], columns: Mapping[str, int]) -> _Layer:
    """Return a row; cells up to the time hold no blanks and are never empty, so words stand for columns."""
    cells = {name: words[place] if place < len(words) else "" for name, place in columns.items()}
    slashed = _CYCLES.fullmatch(cells.get("Cycles(DDR/NPU/Total)", ""))
    cycles = slashed[1] if slashed else cells.get("TotalCycles", cells.get("MaxCycles", "0"))
    time = cells.get("Time(us)", "")
    shares = next((match for word in words if (match := _SHARES.fullmatch(word))), None)
    label = words[-1] if ":" in words[-1] else ""
    return _Layer(
        words[1],
        words[3],
        _PRECISIONS.get(words[2], ""),
        label.partition(":")[2] or f"{words[1]}_{words[0]}",
        round(float(time) * 1000) if _TIME.fullmatch(time) else 0,
        int(cycles) if cycles.isdecimal() and len(cycles) < 16 else 0,
        tuple(float(share) > 0 for share in shares.groups()) if shares else (),
    )


def _old(lines: Sequence[str]) -> list[_Layer]:
    """Return the layers of a table of Toolkit 1: all on the NPU, names continued in lines of their own."""
    layers = list[_Layer]()
    for line in lines[1:]:
        words = line.split()
        if len(words) >= 5 and words[0].isdecimal() and words[-2].isdecimal() and _TIME.fullmatch(words[-1]):
            name = " ".join(words[1:-3])
            layers.append(_Layer(words[-3], "NPU", "", name, round(float(words[-1]) * 1000), 0))
        elif layers and len(words) == 1 and line.startswith(" "):
            last = layers[-1]
            layers[-1] = _Layer(last.op, last.target, "", last.name + words[0], last.time_ns, 0)
        elif layers and line.strip():
            break
    return layers


def _ranking(lines: Sequence[str]) -> list[_Layer]:
    """Return one layer for every operator and target of a ranking."""
    columns = _words(lines[0])
    layers = list[_Layer]()
    for line in lines[1:]:
        words = line.split()
        if len(words) == len(columns) and words[1].isdecimal():
            for target in _TARGETS:
                place = columns.index(f"{target}Time(us)") if f"{target}Time(us)" in columns else -1
                if place > 0 and _TIME.fullmatch(words[place]) and float(words[place]):
                    layers.append(_Layer(words[0], target, "", words[0], round(float(words[place]) * 1000), 0))
        elif layers and line.strip() and not set(line.strip()) <= set("-="):
            break
    return layers


_READERS = ((_HEAD, _new), (_OLD_HEAD, _old), (_RANKING, _ranking))


def _section(number: int, kind: str, layers: Sequence[_Layer], timed: bool) -> Section:
    names = tuple(layer.name for layer in layers)
    used = [place for place in range(3) if any(layer.cores[place : place + 1] == (True,) for layer in layers)]
    core = used[0] if kind == "npu" and used else None
    if timed:
        return Section("", number, kind, names, sum(layer.time_ns for layer in layers), note=_SLOWED, core=core)
    cycles = sum(layer.cycles for layer in layers)
    note = f"{cycles} cycles by the compiler's estimate"
    return Section("", number, kind, names, 0, note=note, cycles=cycles, core=core)


def _frequencies(text: str) -> dict[str, list[int]]:
    """Return the clocks (Hz) of CPUs, NPU and DDR that a text lists."""
    found = dict[str, list[int]]()
    for name, listed in _CLOCKS.findall(text):
        scale = 10**3 if name == "CPU" else 1  # kHz for CPUs, Hz for the others
        found[name.lower()] = [int(word) * scale for word in re.findall(r"- (\d{1,12})\b", listed)]
    if clock := _CLOCK.search(text):
        found.setdefault("npu", [int(clock[1]) * 10**6])
    return {name: clocks for name, clocks in found.items() if clocks}


def _board(text: str) -> Board:
    clocks = {name: max(listed) for name, listed in _frequencies(text).items() if name != "ddr"}
    target = _TARGET.search(text)
    busy = {"npu": clocks["npu"]} if "npu" in clocks else {}
    return Board(clocks_hz=clocks, busy_hz=busy, device=target[1] if target else "")


def _state(text: str) -> str:
    listed = (
        f"{n} {', '.join(str(clock // 10**6) for clock in clocks)} MHz" for n, clocks in _frequencies(text).items()
    )
    return "; ".join(listed)
