"""Console text of trtexec: the options it echoes, its performance summary, and the tables of --dumpProfile.

TensorRT 5, 6    Average over 10 runs is 1.2 ms (host walltime is 1.5 ms, 99% percentile time is 1.4)
TensorRT 7       "GPU Compute", then lines "min: 3.6 ms", "mean:", "median:", "percentile: 3.88 ms at 99%"
TensorRT 8, 10   GPU Compute Time: min = 3.6 ms, ..., median = 3.7 ms, percentile(90%) = ..., percentile(99%) = 3.9 ms
Tables           "Layer  Time (ms)  Avg. Time (ms)  [Median Time (ms)]  Time %" with the name first (7.0 to 8.5), or
                 "Time(ms)  Avg.(ms)  Median(ms)  Time(%)  Layer" with the name last (8.6 on)

A log may hold any of them, between prefixes of a logger ("[05/10/2024-12:25:00] [I] ") and of quotations.  The echoed
precision is that of a build: of an engine that was loaded it says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.layers import is_range, parse_row
from socsched.interchange.recording import MISSING, Board, Recording, Row, Section, Spread

_PREFIX = re.compile(r"^[\s>#|]{0,40}(?:\[[\d/:-]{8,30}\]\s?)?(?:\[[IWEV]\]\s?)?(?:\[TRT\]\s?)?")
_RUNNING = re.compile(r"&&&& RUNNING TensorRT\.\w+(?: \[[^\]]*\])? # (.*)")
_TABLE = re.compile(r"=== (?:.{0,40} )?Profile \((\d{1,9}) iterations? ?\) ===")
_NUMBER = r"(\d{1,9}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?)"
_IS_NUMBER = re.compile(_NUMBER).fullmatch
_COMPUTE = re.compile(r"GPU Compute(?: Time)?:\s*(min = .*)")
_NAMED = re.compile(
    rf"(min|max|mean|median|percentile)(?:\(([\d.]{{1,6}})%\))?\s*[=:]\s*{_NUMBER}\s*ms(?: at ([\d.]{{1,6}})%)?"
)
_AVERAGE = re.compile(rf"Average on (\d{{1,6}}) runs - GPU latency: {_NUMBER} ms")
_OLDEST = re.compile(rf"Average over (\d{{1,6}}) runs is {_NUMBER} ms(?:.{{0,80}}99% percentile time is {_NUMBER})?")
_IN_ALL = re.compile(rf"(?:Total GPU Compute Time|total compute time): {_NUMBER} s")
_QUERIES = re.compile(r"Timing trace has (\d{1,9}) queries")
_OPTION = re.compile(
    r"(Precision|DLACore|Load engine|Max batch|Batch|Streams|Inference Streams|Selected Device|SMs): ?(.*)"
)
_SHAPE = re.compile(r"Input inference shapes? ?: ([^=\s]{1,200}=\d{1,9}(?:x\d{1,9})*)")
_DLA_LAYER = re.compile(r"\[DlaLayer\] (.+)")
_LISTED_LAYER = re.compile(r"Name: (.*), LayerType: (\w+)")
_OLD_SUMMARY = re.compile(r"GPU Compute\s*\n")
_PRECISIONS = ("int8", "fp16", "fp32")
"""Data types from the fastest: a build with several may compute in each, and does most of it in the first."""


def accepts(text: str) -> bool:
    """Return whether a text holds a command, a summary or a table of trtexec."""
    marks = (_RUNNING, _TABLE, _COMPUTE, _AVERAGE, _OLD_SUMMARY, _OLDEST)
    return any(mark.search(text) is not None for mark in marks)


@dataclass(slots=True)
class _Log:
    """What the lines of a log state, gathered one by one."""

    commands: dict[str, None] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    summary: dict[str, float] = field(default_factory=dict)
    averages: list[tuple[int, float, float]] = field(default_factory=list)
    """Runs, their mean, and their 99th percentile, 0: not stated."""
    shapes: list[str] = field(default_factory=list)
    queries: int = 0
    count: int = 0
    rows: list[Row] = field(default_factory=list)
    total_ns: float = 0.0
    on_dla: set[str] = field(default_factory=set)

    @property
    def command(self) -> str:
        return next(iter(self.commands), "")

    @property
    def core(self) -> int | None:
        """Number of the DLA that the engine was built for, None for the GPU."""
        stated = re.search(r"--useDLACore=(\d{1,2})\b", self.command) or re.match(
            r"(\d{1,2})", self.options.get("DLACore", "")
        )
        return int(stated[1]) if stated else None

    @property
    def precisions(self) -> tuple[str, ...]:
        """Data types that the build was allowed, the fastest first; empty where the log does not say."""
        if "--loadEngine=" in self.command or self.options.get("Load engine"):
            return ()
        flags = set(re.findall(r"--(int8|fp16|fp32|best|stronglyTyped)\b", self.command))
        allowed = self.options.get("Precision", "").lower()
        if "stronglyTyped" in flags or "typed" in allowed:
            return ()
        return tuple(name for name in _PRECISIONS if name in flags or name in allowed or "best" in flags)


def recording(path: Path, text: str) -> Recording:
    """Return the recording of a log; InputError if it states no time, or those of several engines."""
    log = _read(text)
    if len(log.commands) > 1:
        raise InputError(f"{path}: {len(log.commands)} runs of trtexec in one log", "cut it into one file for each run")
    whole = _spread(log)
    if not log.rows and whole is None:
        failed = next((line.strip() for line in text.splitlines() if "[E] " in line or "FAILED" in line), "")
        raise InputError(
            f"{path}: the log of trtexec states no time" + (f"; it failed: {failed[:200]}" if failed else ""),
            "expected a performance summary, or the table of --dumpProfile",
        )
    listed = sum(row.mean_ns for row in log.rows)
    if log.total_ns and abs(listed - log.total_ns) > max(MISSING * log.total_ns, 10.0 * len(log.rows)):
        raise InputError(
            f"{path}: the rows add up to {listed / 1e6:.3f} ms, the table states {log.total_ns / 1e6:.3f} ms in all",
            "give the whole table: rows of it are missing",
        )
    on_dla = log.on_dla
    if log.core is not None and not on_dla:
        on_dla = {base for row in log.rows if is_range(base := parse_row(row.name).base)}
    sections: tuple[Section, ...] = ()
    if not log.rows and whole is not None:
        kind = "gpu" if log.core is None else "dla"
        sections = (Section("", 0, kind, (), whole.mean_ns, spread=whole, core=log.core),)
    return Recording(
        str(path),
        "trtexec",
        sections,
        log.count or (whole.samples if whole else 0),
        precisions=log.precisions,
        whole=whole,
        accelerated=frozenset(on_dla),
        board=Board(device=log.options.get("Selected Device", "")[:80], units=_count(log.options.get("SMs", ""))),
        notes=tuple(f"{path.name}: {note}" for note in _notes(log)),
        rows=tuple(log.rows),
        core=log.core,
    )


def _read(text: str) -> _Log:
    log, names_last, columns, in_table, old_summary = _Log(), False, 0, False, False
    for raw in text.splitlines():
        line = raw[_PREFIX.match(raw).end() :].rstrip()  # type: ignore[union-attr]
        if match := _RUNNING.search(raw):
            log.commands[match[1].strip()] = None
        elif match := _TABLE.search(line):
            log.count, in_table = int(match[1]), True
            log.rows.clear()
        elif in_table and "Layer" in line and "Time" in line:
            names_last, columns = line.endswith("Layer"), 3 + ("Median" in line)
        elif in_table and (row := _row(line, names_last, columns, log.count)):
            in_table = row.name != "Total"
            if in_table:
                log.rows.append(row)
            else:
                log.total_ns = row.mean_ns
        elif match := _COMPUTE.search(line):
            log.summary |= _figures(match[1])
        elif line == "GPU Compute":
            old_summary = True
        elif match := _IN_ALL.search(line):
            log.summary["total"] = float(match[1]) * 1000
        elif old_summary and (figures := _figures(line)):
            log.summary |= figures
        else:
            in_table, old_summary = in_table and not line, False
            _state(log, line)
    return log


def _state(log: _Log, line: str) -> None:
    """Take down what a line outside summaries and tables states."""
    if match := _AVERAGE.search(line):
        log.averages.append((int(match[1]), float(match[2]), 0.0))
    elif match := _OLDEST.search(line):
        log.averages.append((int(match[1]), float(match[2]), float(match[3] or 0)))
    elif match := _QUERIES.search(line):
        log.queries = int(match[1])
    elif match := _SHAPE.match(line):
        log.shapes.append(match[1])
    elif match := _DLA_LAYER.search(line):
        log.on_dla.add(match[1].strip())
    elif match := _LISTED_LAYER.match(line):
        log.on_dla |= {match[1]} if "DLA" in match[2].upper() else set()
    elif match := _OPTION.fullmatch(line):
        log.options.setdefault(match[1], match[2].strip())


def _row(line: str, names_last: bool, columns: int, count: int) -> Row | None:
    """Return a row of a table with its mean time, exact to the digits of the total, and its median where stated."""
    words = line.split()
    numbers, name = (words[:columns], words[columns:]) if names_last else (words[-columns:], words[:-columns])
    if not name or len(numbers) < 3 or not all(map(_IS_NUMBER, numbers)):
        return None
    values = [float(word) for word in numbers]
    mean = values[0] / count if count else values[1]
    return Row(" ".join(name), mean * 1e6, values[2] * 1e6 if len(values) == 4 else 0.0)


def _figures(text: str) -> dict[str, float]:
    """Return min, max, mean, median and "percentile" -> ms, and "share" -> the percentile's, the highest below 100."""
    found = dict[str, float]()
    for name, before, value, after in _NAMED.findall(text):
        share = float(before or after or 99)
        if name != "percentile":
            found[name] = float(value)
        elif found.get("share", 0) < share < 100:
            found |= {"percentile": float(value), "share": share}
    return found


def _spread(log: _Log) -> Spread | None:
    """Return the figures of whole inferences, from the summary, else from the averages of the trace before it."""
    runs = sum(count for count, _, _ in log.averages)
    count = log.queries or runs
    if mean := log.summary.get("mean", 0.0):
        count = log.queries or round(log.summary.get("total", 0.0) / mean)
        median = log.summary.get("median", mean)
        high, share = log.summary.get("percentile", log.summary.get("max", mean)), log.summary.get("share", 100)
    elif runs:
        mean = median = sum(count * value for count, value, _ in log.averages) / runs
        high, share = max(high for _, _, high in log.averages) or max(value for _, value, _ in log.averages), 99
    else:
        return None
    if not 0 < mean < 1e9:
        return None
    return Spread(mean * 1e6, median * 1e6, max(high, median) * 1e6, round(share), count)


def _notes(log: _Log) -> Iterator[str]:
    if "mean" not in log.summary and log.averages and not log.rows:
        yield "no summary: the spread is that of averages of several runs, which hides single slow ones"
    if log.core is not None and "--allowGPUFallback" in log.command and not log.rows:
        yield "layers that the DLA cannot compute ran on the GPU, and their time is booked on the DLA"
    if log.core is not None and not log.on_dla and log.rows:
        yield f"blocks ForeignNode are booked on DLA {log.core}, for which the engine was built"
    if (batch := max(_count(log.options.get("Batch", "")), _count(_flag(log, "batch")))) > 1:
        yield f"a job is a batch of {batch}"
    if batched := [shape for shape in log.shapes if _count(shape.partition("=")[2].partition("x")[0]) > 1]:
        yield f"inference shapes {', '.join(batched[:4])}"
    streams = max(_count(log.options.get(name, "")) for name in ("Streams", "Inference Streams"))
    if max(streams, _count(_flag(log, "streams"))) > 1:
        yield "several streams at once: a time includes waiting for the others"


def _flag(log: _Log, name: str) -> str:
    found = re.search(rf"--{name}=(\S{{1,40}})", log.command)
    return found[1] if found else ""


def _count(text: str) -> int:
    found = re.match(r"\d{1,6}\b", text)
    return int(found[0]) if found else 0
