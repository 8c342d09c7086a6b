"""TensorRT's trtexec: its console text and its JSON.

JSON: --exportProfile (mean times of layers), --exportTimes (inferences), --exportLayerInfo (engines).

A subgraph of the DLA is started without waiting for it.  Its own row holds only the submission; the DLA's time appears
in the rows that wait for its result: its output reformatter, a copy "from nvm", the input reformatter of the next GPU
layer, and markers "... finish".  All rows from the block up to the next GPU layer are therefore the DLA's time
(HaX-CoNN's profiles, PPoPP 2024: 1.84 of 2.74 ms are in one "output reformatter"; TensorRT issue 3143).

Console text of trtexec: the options it echoes, its performance summary, and the tables of --dumpProfile.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from socsched.errors import InputError
from socsched.graph.network import Network
from socsched.graph.partition import Part
from socsched.interchange.profile_model import MISSING, Board, Recording, Row, Section, Spread, number

_ROLE = re.compile(
    r" (input reformatter \d+|output reformatter \d+|reformatted input \d+ finish|output to be reformatted \d+ finish"
    r"|copy finish|finish|from nvm|to nvm)$"
)
_COPY_NODE = re.compile(r"Reformatting CopyNode for (Input|Output) Tensor \d+ to (.*)", re.S)
_RANGE = re.compile(r"\{?ForeignNode\[(.+?)\.\.\.(.+?)\]\}?")


@dataclass(frozen=True, slots=True)
class RowName:
    """The parts of a row's name: `base` is the layer or block concerned; `role` is empty for the block itself.

    role: input | output (reformatters), finish (a synchronisation marker), from | to (copies of DLA memory).
    """

    base: str
    role: str = ""


def parse_row(name: str) -> RowName:
    """Return the base and the role of a row."""
    if match := _COPY_NODE.fullmatch(name):
        return RowName(match[2], match[1].lower())
    match = _ROLE.search(name)
    if match is None:
        return RowName(name)
    text = match[1]
    role = "finish" if text.endswith("finish") else text.split()[0]
    return RowName(name[: match.start()], role)


def is_list(base: str) -> bool:
    """Return whether a name is a block of listed layers, "{a,b,c}", as TensorRT 7 names subgraphs of the DLA."""
    return base.startswith("{") and base.endswith("}") and not _RANGE.fullmatch(base)


def is_range(base: str) -> bool:
    """Return whether a name is "{ForeignNode[first...last]}": a subgraph of the DLA or of TensorRT's GPU compiler."""
    return _RANGE.fullmatch(base) is not None


def layers_of(base: str, order: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the layers of a fused name "a + b || c", a list "{a,b}", or a range "ForeignNode[first...last]".

    `order`: the network's layers, to expand a range; without it, or where an end is unknown, the two ends.
    """
    if match := _RANGE.fullmatch(base):
        first, last = match[1], match[2]
        if first in order and last in order:
            start, end = sorted((order.index(first), order.index(last)))
            return tuple(order[start : end + 1])
        return (first,) if first == last else (first, last)
    if is_list(base):
        return tuple(name for name in base[1:-1].split(",") if name)
    names: list[str] = []
    for text in re.split(r" \|\| | \+ ", base.removesuffix(" copy")):
        while match := re.fullmatch(r"(?:PWN|CONV|POOL|ELTWISE)\((.*)\)", text):
            text = match[1]
        names += [name for name in (part.strip() for part in text.split(", ")) if name]
    return tuple(names)


def parts_of(network: Network, sections: Sequence[Sequence[str]]) -> tuple[Part, ...]:
    """Return the parts of a network that consecutive sections ran, empty where their layers are not a cut of it.

    Layers that a compiler fused away belong to the section of the next layer that needs them.
    """
    by_name = {layer.name: layer for layer in network.layers}
    if not sections or not all(any(name in by_name for name in names) for names in sections):
        return ()
    before, ends = set[str](), [tuple[str, ...]()]
    for place, names in enumerate(sections[:-1]):
        open_ = [name for name in names if name in by_name]
        while open_:
            name = open_.pop()
            if name not in before:
                before.add(name)
                open_ += [source for source in by_name[name].inputs if source in by_name]
        if any(name in before for later in sections[place + 1 :] for name in later):
            return ()
        followed = {name for layer in network.layers if layer.name in before for name in layer.inputs}
        ends.append(tuple(layer.name for layer in network.layers if layer.name in before - followed))
    return tuple(Part(begin, end) for begin, end in zip(ends, [*ends[1:], ()], strict=True))


_PRECISIONS = (("int8", "int8"), ("half", "fp16"), ("fp16", "fp16"), ("float", "fp32"), ("fp32", "fp32"))


def accepts_json(data: Any) -> bool:
    """Return whether parsed JSON has the form of one of the three files."""
    if isinstance(data, Mapping):
        return isinstance(data.get("Layers"), Sequence) and not isinstance(data["Layers"], str)
    if not isinstance(data, list) or not data or not isinstance(data[0], Mapping):
        return False
    return any(key in data[0] for key in ("count", "averageMs", "computeMs"))


def json_recording(path: Path, data: Any) -> Recording:
    """Return the json_recording of a file; InputError names the entry that is not as expected."""
    if isinstance(data, Mapping):
        return _layer_info(path, data["Layers"])
    if "computeMs" in data[0]:
        times = tuple(round(_need(path, i, row, "computeMs") * 1e6) for i, row in enumerate(data))
        return Recording(str(path), "trtexec --exportTimes", samples=len(times), whole_ns=times)
    count, rows = 0, list[Row]()
    for index, row in enumerate(data):
        if isinstance(row, Mapping) and "count" in row:
            count = round(_need(path, index, row, "count"))
            continue
        if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
            raise InputError(f"{path}: [{index}]: expected an object with name and averageMs", _AGAIN)
        mean = _need(path, index, row, "averageMs") * 1e6
        rows.append(Row(row["name"], mean, (number(row, "medianMs") or 0) * 1e6))
    if not rows:
        raise InputError(f"{path}: expected rows with times", _AGAIN)
    return Recording(str(path), "trtexec --exportProfile", samples=count, rows=tuple(rows))


def sectioned(one: Recording, on_dla: frozenset[str], order: Sequence[str] = ()) -> Recording:
    """Return a json_recording with the sections of its rows; `on_dla`: blocks that other files place on the DLA.

    `order`: layers of the network, to expand ranges.  Raises InputError if the rows state no time.
    """
    timed = [(parse_row(row.name), row.mean_ns, row.median_ns) for row in one.rows]
    if not sum(mean for _, mean, _ in timed):
        raise InputError(f"{one.file}: expected rows with times", _AGAIN)
    blocks = _dla_blocks([name for name, _, _ in timed], on_dla | one.accelerated)
    parts, handover, waiting = list[_Part](), 0.0, False
    for name, mean, median in timed:
        if name.base in blocks and not name.role:
            parts.append(_Part("dla"))
            waiting = True
        elif (name.base in blocks and name.role == "input") or name.role == "to":
            handover += mean
            continue
        elif not (waiting and name.role):
            waiting = False
            if not parts or parts[-1].kind != "gpu":
                parts.append(_Part("gpu"))
        parts[-1].add(name, mean, median, order)
    whole = len(parts) == 1
    sections = tuple(part.section(0 if whole else index, one.core) for index, part in enumerate(parts, 1))
    return replace(one, sections=sections, handover_ns=handover)


_AGAIN = "record it again with trtexec --exportProfile"


class _Part:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.mean = self.median = self.hidden = 0.0
        self.layers: dict[str, None] = {}

    def add(self, name: RowName, mean: float, median: float, order: Sequence[str]) -> None:
        self.mean += mean
        self.median += median
        if self.kind == "dla" and name.role:
            self.hidden += mean
        elif not name.role:
            self.layers |= dict.fromkeys(layers_of(name.base, order))

    def section(self, index: int, core: int | None) -> Section:
        note = f"{self.hidden / self.mean:.0%} of it in rows that wait for the DLA" if self.hidden else ""
        layers, median = tuple(self.layers), round(self.median)
        core = core if self.kind == "dla" else None
        return Section("", index, self.kind, layers, self.mean, (), median, self.hidden, note, core=core)


def _dla_blocks(names: Sequence[RowName], on_dla: frozenset[str]) -> frozenset[str]:
    """Return the blocks that run on the DLA: listed, stated, or a range before DLA copies or markers."""
    blocks = {name.base for name in names if is_list(name.base)} | (on_dla & {name.base for name in names})
    for index, name in enumerate(names):
        if is_range(name.base) and not name.role:
            for later in names[index + 1 :]:
                if later.role in ("finish", "from"):
                    blocks.add(name.base)
                if not later.role:
                    break
    return frozenset(blocks)


def _layer_info(path: Path, layers: Sequence[Any]) -> Recording:
    blocks, precisions, elsewhere = set[str](), dict[str, int](), 0
    for layer in layers:
        if isinstance(layer, str):
            continue  # without --profilingVerbosity=detailed only names are listed
        if not isinstance(layer, Mapping) or not isinstance(layer.get("Name"), str):
            raise InputError(
                f"{path}: Layers: expected names, or objects with Name", "record it with --exportLayerInfo"
            )
        if "DLA" in str(layer.get("LayerType", "")).upper():
            blocks.add(layer["Name"])
        elif "reformat" not in str(layer.get("LayerType", "")).lower():
            elsewhere += 1
        outputs = layer.get("Outputs")
        for tensor in outputs if isinstance(outputs, list) else ():
            text = str(tensor.get("Format/Datatype", "")).lower() if isinstance(tensor, Mapping) else ""
            for word, precision in _PRECISIONS:
                if word in text:
                    precisions[precision] = precisions.get(precision, 0) + 1
                    break
    kind = "dla" if blocks and not elsewhere else ""
    stated = tuple(sorted(precisions, key=lambda name: -precisions[name]))
    return Recording(
        str(path), "trtexec --exportLayerInfo", precisions=stated, accelerated=frozenset(blocks), kind=kind
    )


def _need(path: Path, index: int, row: Any, key: str) -> float:
    value = number(row, key) if isinstance(row, Mapping) else None
    if value is None:
        raise InputError(f"{path}: [{index}].{key}: expected a number of at least 0", _AGAIN)
    return value


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
_ECHOED_PRECISIONS = ("int8", "fp16", "fp32")
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
        return tuple(name for name in _ECHOED_PRECISIONS if name in flags or name in allowed or "best" in flags)


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
    figures = dict[str, float]()
    for name, before, value, after in _NAMED.findall(text):
        share = float(before or after or 99)
        if name != "percentile":
            figures[name] = float(value)
        elif figures.get("share", 0) < share < 100:
            figures |= {"percentile": float(value), "share": share}
    return figures


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
    match = re.search(rf"--{name}=(\S{{1,40}})", log.command)
    return match[1] if match else ""


def _count(text: str) -> int:
    match = re.match(r"\d{1,6}\b", text)
    return int(match[0]) if match else 0
