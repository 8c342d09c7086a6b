"""Traces in the Best Trace Format, version 2.2 (Vector Informatik, technical specification 2.2.0), and read back.

A line is ``time,source,instance,type,target,instance,event,note`` in ns.  Frames of a task are its instances.  A task
is a process (T) on each lane it occupies: `task`, and `task/1` and so on for further lanes; on an engine that it uses
while it holds another, `task/ENGINE`.  Its segments are runnables (R).  BTF has no deadlines, drops or aborts: the note
of an activation carries them (``deadline=NS``, ``dropped``, ``finish=NS``) for `read`.  Not carried: power, bandwidth
and queue depths, faults, the frames that `reads` sampled, counts of preemptions and blocking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from socsched.bounded import read_bytes
from socsched.descriptor.limits import MOST_NS
from socsched.errors import DescriptorError, Finding
from socsched.trace.trace import Job, Slice, Trace

VERSION = "2.2.0"
MOST_BYTES = 256 * 2**20
_SPECIAL = re.compile(r"[,%#/\s\x00-\x1f\x7f-\x9f]|[^\x00-\x7f]")
_END, _RELEASE, _START = range(3)
"""Order of events at one instant: ends, activations, starts."""
_STATUS = ("unfinished", "dropped", "aborted")
_Event = tuple[int, int, int, str]


def text(trace: Trace) -> str:
    """Return a trace as BTF; names are percent-encoded where they hold a separator."""
    lines = [f"#version {VERSION}", "#creator socsched", "#timeScale ns"]
    lines += [f"# kind {_name(trace.kind)}", f"# seed {trace.seed}", f"# duration {trace.duration_ns}"]
    events = sorted(_events(trace), key=lambda event: event[:3])
    return "\n".join([*lines, *(line for *_, line in events)]) + "\n"


def _name(plain: str) -> str:
    return _SPECIAL.sub(lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode("utf-8", "surrogatepass")), plain)


def _events(trace: Trace) -> Iterator[_Event]:
    """Yield (time, order, job, line) of every job."""
    slices: dict[int, list[Slice]] = {}
    for piece in trace.slices:
        slices.setdefault(piece.job, []).append(piece)
    for number, job in enumerate(trace.jobs):
        task, at = _name(job.task), job.frame
        stimulus = f"stimulus_{task}"
        note = f"deadline={job.deadline_ns}"
        if job.status != "done":
            note += f" {job.status}" + (f" finish={job.finish_ns}" if job.finish_ns >= 0 else "")
        yield job.activation_ns, _RELEASE, number, f"{job.activation_ns},{stimulus},{at},STI,{stimulus},{at},trigger"
        event = "mtalimitexceeded" if job.status == "dropped" else "activate"
        yield job.activation_ns, _RELEASE, number, f"{job.activation_ns},{stimulus},{at},T,{task},{at},{event},{note}"
        engines: dict[str, list[Slice]] = {}
        for piece in slices.get(number, []):
            engines.setdefault(piece.engine, []).append(piece)
        for place, pieces in enumerate(engines.values()):
            process = f"{task}/{_name(pieces[0].engine)}" if place else task
            yield from _run(number, job, process, pieces)


def _run(number: int, job: Job, task: str, pieces: list[Slice]) -> Iterator[_Event]:
    """Yield the intervals of a job on an engine; if it goes on at once on the same lanes, its processes do not stop."""
    at, seen, last = job.frame, set[str](), len(pieces) - 1
    for position, piece in enumerate(pieces):
        cores = [f"{_name(piece.engine)}.{lane}" for lane in piece.lanes]
        processes = [(core, f"{task}/{worker}" if worker else task) for worker, core in enumerate(cores)]
        joined = position > 0 and _joined(pieces[position - 1], piece)
        for core, process in processes if not joined else ():
            verb = "resume" if process in seen else "start"
            yield piece.start_ns, _START, number, f"{piece.start_ns},{core},0,T,{process},{at},{verb}"
            seen.add(process)
        runnable = f"{task},{at},R,{_name(piece.name)},{at}"
        ending = _START if piece.end_ns == piece.start_ns else _END
        yield piece.start_ns, _START, number, f"{piece.start_ns},{runnable},start"
        yield piece.end_ns, ending, number, f"{piece.end_ns},{runnable},terminate"
        if position < last and _joined(piece, pieces[position + 1]):
            continue
        verb = "terminate" if job.status in ("done", "aborted") and position == last else "preempt"
        for core, process in processes:
            yield piece.end_ns, ending, number, f"{piece.end_ns},{core},0,T,{process},{at},{verb}"


def _joined(first: Slice, second: Slice) -> bool:
    return (first.engine, first.lanes, first.end_ns) == (second.engine, second.lanes, second.start_ns)


@dataclass(slots=True)
class _Open:
    """A job on an engine while it is read: its cores by worker, and the runnable in execution."""

    job: Job
    index: int
    cores: dict[int, tuple[str, int]]
    runnable: str = ""
    since: int = -1


def read(path: str | Path) -> Trace:
    """Return a trace written by `text`; DescriptorError with line and column for a fault.

    Slices are in the order of their starts.  Entities other than processes, runnables and stimuli are ignored.
    """
    raw = read_bytes(path, "BTF trace", "give a trace in Best Trace Format 2", MOST_BYTES)
    reader = _Reader(str(path))
    for number, line in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        reader.line(number, line)
    return reader.trace()


class _Reader:
    def __init__(self, file: str) -> None:
        self.file, self.number, self.time = file, 0, 0
        self.head: dict[str, str] = {}
        self.open: dict[tuple[str, int], dict[str, _Open]] = {}
        self.jobs: list[Job] = []
        self.slices: list[Slice] = []

    def fault(self, column: int, expected: str) -> DescriptorError:
        return DescriptorError([Finding(self.file, self.number, column, "event", expected)])

    def line(self, number: int, line: str) -> None:
        self.number = number
        if line.startswith("#"):
            key, _, value = line.lstrip("# ").partition(" ")
            self.head[key] = value.strip()
            scale = self.head.get("timeScale", "ns")
            if scale != "ns":
                raise self.fault(1, f"expected #timeScale ns, got {scale[:20]!r}")
            return
        if not line.strip():
            return
        fields = line.split(",", 7)
        if len(fields) < 7:
            raise self.fault(1, f"expected time,source,instance,type,target,instance,event, got {len(fields)} fields")
        time = self.whole(fields, 0)
        if time < self.time:
            raise self.fault(1, f"expected a time from {self.time} on, as events are in the order of time")
        self.time = time
        kind, event = fields[3], fields[6]
        if kind == "T":
            self.process(fields, event, fields[7] if len(fields) > 7 else "")
        elif kind == "R":
            self.runnable(fields, event)

    def whole(self, fields: list[str], place: int) -> int:
        value = fields[place]
        if not (value.isdecimal() and value.isascii() and len(value) < 18 and int(value) <= MOST_NS):
            column = sum(len(field) + 1 for field in fields[:place]) + 1
            raise self.fault(column, f"expected a whole number up to {MOST_NS}, got {value[:20]!r}")
        return int(value)

    def process(self, fields: list[str], event: str, note: str) -> None:
        frame, time = self.whole(fields, 5), self.time
        if event in ("activate", "mtalimitexceeded"):
            self.activate(unquote(fields[4]), frame, note)
            return
        name, slash, worker = fields[4].rpartition("/")
        if not slash or not (worker.isdecimal() and worker.isascii() and len(worker) < 6):
            name, worker = fields[4], "0"
        entry = self.entry(name, frame)
        if event in ("start", "resume"):
            engine, _, lane = unquote(fields[1]).rpartition(".")
            if not engine or not (lane.isdecimal() and lane.isascii() and len(lane) < 6):
                raise self.fault(1, f"expected a core such as cpu0.1, got {fields[1][:40]!r}")
            entry.cores[int(worker)] = (engine, int(lane))
            if entry.job.start_ns < 0:
                entry.job.start_ns = time
        elif event in ("preempt", "terminate"):
            entry.cores.pop(int(worker), None)
            if event == "terminate" and entry.job.status in ("unfinished", "done"):
                entry.job.finish_ns, entry.job.status = time, "done"

    def activate(self, task: str, frame: int, note: str) -> None:
        times = {key: int(value) for key, value in re.findall(r"(deadline|finish)=(-?[0-9]{1,17})\b", note)}
        job = Job(task, frame, self.time, times.get("deadline", -1), finish_ns=times.get("finish", -1))
        job.status = next((status for status in _STATUS if status in note.split()), "unfinished")
        self.jobs.append(job)
        self.open[task, frame] = {"": _Open(job, len(self.jobs) - 1, {})}

    def entry(self, process: str, frame: int) -> _Open:
        """Return a job on an engine, by the name of its process there (`task` or `task/ENGINE`, encoded)."""
        name, _, engine = process.partition("/")
        task = unquote(name)
        if (task, frame) not in self.open:
            raise self.fault(1, f"expected an activation of {task[:40]!r}, instance {frame}, before this event")
        places = self.open[task, frame]
        return places.setdefault(engine, _Open(places[""].job, places[""].index, {}))

    def runnable(self, fields: list[str], event: str) -> None:
        entry = self.entry(fields[1], self.whole(fields, 2))
        if event in ("start", "resume"):
            entry.runnable, entry.since = unquote(fields[4]), self.time
        elif event in ("terminate", "suspend") and entry.since >= 0:
            cores = [entry.cores[worker] for worker in sorted(entry.cores)]
            if not cores or len({engine for engine, _ in cores}) > 1:
                raise self.fault(1, "expected the process of a runnable to be on cores of one engine")
            lanes = tuple(lane for _, lane in cores)
            self.slices.append(Slice(cores[0][0], lanes, entry.index, entry.runnable, entry.since, self.time))
            entry.job.exec_ns += self.time - entry.since
            entry.since = -1

    def trace(self) -> Trace:
        duration = self.head.get("duration", "")
        length = int(duration) if re.fullmatch("[0-9]{1,17}", duration) else self.time
        seed = self.head.get("seed", "")
        self.slices.sort(key=lambda piece: (piece.start_ns, piece.job))
        known = int(seed) if re.fullmatch("[0-9]{1,17}", seed) else 0
        return Trace(unquote(self.head.get("kind", "measured")), length, known, self.jobs, self.slices)
