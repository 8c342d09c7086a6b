"""Traces in the Best Trace Format, version 2.2 (Vector Informatik, technical specification 2.2.0), and read back.

A line is ``time,source,instance,type,target,instance,event,note`` in ns.  Frames of a task are its instances.  A task
is a process (T) on each lane it occupies: `task`, and `task/1` and so on for further lanes; on an engine that it uses
while it holds another, `task/ENGINE`.  Its segments are runnables (R).  BTF has no deadlines, drops or aborts: the note
of an activation carries them (``deadline=NS``, ``dropped``, ``finish=NS``) for `read`.  Not carried: power, bandwidth
and queue depths, faults, the frames that `reads` sampled, counts of preemptions and blocking.

Other writers leave out more.  Read, and tried on: libBtf 1 (starts without activations, ``#timescale``), the FreeRTOS
trace logger of 2024 and 2026 (tasks only ``resume`` and ``preempt``; the source of a resume is the task before;
``[CORE/ID]name``; times in us), and traces of the specification's examples (waits, releases, interrupts).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from socsched.bounded import read_text
from socsched.descriptor.limits import MOST_NS
from socsched.errors import DescriptorError, Finding
from socsched.limits import LONGEST_NS
from socsched.text import one_line
from socsched.trace.trace import Job, Slice, Trace

VERSION = "2.2.0"
MOST_BYTES = 256 * 2**20
_AT_ONCE = 8192
"""Jobs of a long trace that are written at once."""
_SPECIAL = re.compile(r"[,%#/\s\x00-\x1f\x7f-\x9f]|[^\x00-\x7f]")
_SCALES = {"ps": (1, 1000), "ns": (1, 1), "us": (10**3, 1), "ms": (10**6, 1), "s": (10**9, 1)}
"""Time scale -> ns as a fraction."""
_PROCESSES = ("T", "I")
_ACTIVATIONS = ("activate", "mtalimitexceeded")
_STARTS = ("start", "resume", "run", "poll_parking")
_STOPS = ("preempt", "terminate", "wait", "park")
_ENGINE = "cpu"
"""The engine whose lanes are the cores of other writers."""
_FREERTOS = re.compile(r"\[([0-9]{1,4})/([0-9]{1,9})\](.*)", re.ASCII)
"""A task as the FreeRTOS trace logger names it: core, number, name."""
_IDLE = re.compile(r"(?:\[[0-9]*\])?IDLE[0-9]*", re.ASCII)
_WAYS = {
    "instance": "No activations are recorded of {}: the start of a job is taken as its activation.",
    "wait": "Terminations are not recorded of {}: a job lasts from its release to its next wait.",
    "run": (
        "Only switches to and from a core are recorded of {}: each time on one is taken as a job, its start or "
        "resume as the activation, so that a job that was preempted counts as several."
    ),
}
"""What separates jobs where activations or terminations are missing."""
_END, _RELEASE, _START = range(3)
"""Order of events at one instant: ends, activations, starts."""
_STATUS = ("unfinished", "dropped", "aborted")
_Event = tuple[int, int, int, str]


def text(trace: Trace) -> str:
    """Return a trace as BTF; names are percent-encoded where they hold a separator."""
    return "".join(parts(trace))


def parts(trace: Trace) -> Iterator[str]:
    """Yield the parts of `text`."""
    lines = [f"#version {VERSION}", "#creator socsched", "#timeScale ns"]
    lines += [f"# kind {_name(trace.kind)}", f"# seed {trace.seed}", f"# duration {trace.duration_ns}"]
    yield "\n".join(lines) + "\n"
    events = list[_Event]()
    for jobs, slices, upto in _read_parts(trace):
        events = sorted([*events, *_events(jobs, slices)], key=lambda event: event[:3])
        now = bisect_left(events, upto, key=lambda event: event[0])
        yield "".join(f"{line}\n" for *_, line in events[:now])
        del events[:now]


def _read_parts(trace: Trace) -> Iterator[tuple[dict[int, Job], list[Slice], int]]:
    """Yield jobs by number, their slices, and the time before which all is known; a long trace in parts."""
    if trace.columns.stored is None:
        yield dict(enumerate(trace.jobs)), trace.slices, MOST_NS + 1
        return
    import numpy as np

    from socsched.trace.convert import jobs_of, slices_of

    columns, jobs = trace.columns, trace.columns.jobs
    parts = [slice(at, min(at + _AT_ONCE, len(jobs))) for at in range(0, len(jobs), _AT_ONCE)]
    begins = [int(jobs.activation_ns[part].min()) for part in parts]
    later = np.minimum.accumulate([MOST_NS + 1, *begins[:0:-1]])[::-1].tolist()
    for part, begin, upto in zip(parts, begins, later, strict=False):
        ends = np.where(jobs.start_ns[part] < 0, -1, jobs.finish_ns[part] % (MOST_NS + 1))  # without an end: the last
        rows = columns.slices_between(begin, int(ends.max()))
        of = columns.slices.job[rows]
        own = rows[(of >= part.start) & (of < part.stop)]
        yield dict(enumerate(jobs_of(columns, part), part.start)), slices_of(columns, own), upto


def _name(plain: str) -> str:
    return _SPECIAL.sub(lambda m: "".join(f"%{byte:02X}" for byte in m[0].encode("utf-8", "surrogatepass")), plain)


def _events(jobs: Mapping[int, Job], pieces: Iterable[Slice]) -> Iterator[_Event]:
    """Yield (time, order, job, line) of every job."""
    slices: dict[int, list[Slice]] = {}
    for piece in pieces:
        slices.setdefault(piece.job, []).append(piece)
    for number, job in jobs.items():
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


def read(path: str | Path) -> Trace:
    """Return the trace in a file; see `read_noted`."""
    return read_noted(path)[0]


def read_noted(path: str | Path) -> tuple[Trace, tuple[str, ...]]:
    """Return the trace in a file, and what was assumed or left out; DescriptorError with line and column for a fault.

    Slices are in the order of their starts.  Entities other than processes (T, I), runnables and stimuli are ignored.
    """
    text = read_text(path, "BTF trace", "give a trace in Best Trace Format 2", MOST_BYTES, "replace")
    lines = text.splitlines()
    survey = _Survey(str(path))
    for number, line in enumerate(lines, 1):
        survey.line(number, line, last=number == len(lines) and not text.endswith(("\n", "\r")))
    reader = _Reader(survey)
    for number in survey.kept():
        reader.line(number, lines[number - 1])
    return reader.trace(), tuple(survey.notes() + reader.notes())


@dataclass(slots=True)
class _Shown:
    """How often a process was activated, started, terminated and made to wait."""

    activations: int = 0
    starts: int = 0
    ends: int = 0
    waits: int = 0

    @property
    def way(self) -> str:
        """Return what separates its jobs: activations and terminations, waits, or the times at which it runs."""
        if self.ends or self.activations > 1:
            return "instance"
        return "wait" if self.waits else "run"


class _Survey:
    """What must be known before events can be followed: the header, the time scale, how each process is recorded."""

    def __init__(self, file: str) -> None:
        self.file, self.number = file, 0
        self.head: dict[str, str] = {}
        self.scale = (1, 1)
        self.processes: dict[str, _Shown] = {}
        self.cores: dict[str, int] = {}
        """Every core of a writer that does not name cores as this module does -> its lane."""
        self.clocks: list[tuple[int, int, int]] = []
        """First line, last line and number of events between jumps of the clock."""
        self.time, self.cut = -1, False

    def fault(self, column: int, expected: str) -> DescriptorError:
        return DescriptorError([Finding(self.file, self.number, column, "event", expected)])

    def line(self, number: int, line: str, last: bool) -> None:
        """Take in a line; `last`: it has no end, so that it may be cut off."""
        self.number = number
        if line.startswith("#"):
            key, _, value = line.lstrip("# ").partition(" ")
            key, value = key.lower(), value.strip()
            self.head[key] = value
            if key == "timescale":
                if value.lower() not in _SCALES:
                    raise self.fault(1, f"expected #timeScale {', '.join(_SCALES)}, got {value[:20]!r}")
                if self.clocks and _SCALES[value.lower()] != self.scale:
                    raise self.fault(1, "expected #timeScale before the first event")
                self.scale = _SCALES[value.lower()]
            return
        if not line.strip():
            return
        try:
            fields = self.fields(line)
            time = self.time_of(fields)
        except DescriptorError:
            if not (last and self.clocks):
                raise
            self.cut = True
            return
        if time < self.time:
            raise self.fault(1, f"expected a time from {self.time} ns on, as events are in the order of time")
        if not self.clocks or time - self.time > LONGEST_NS:
            self.clocks.append((number, number, 0))
        first, _, count = self.clocks[-1]
        self.clocks[-1] = first, number, count + 1
        self.time = time
        kind, event = fields[3], fields[6]
        if kind == "C":
            self.cores.setdefault(fields[4], len(self.cores))
        elif kind in _PROCESSES:
            process = self.processes.setdefault(self.name(fields[4]), _Shown())
            process.activations += event in _ACTIVATIONS
            process.starts += event in ("start", "resume")
            process.ends += event == "terminate"
            process.waits += event == "wait"

    def fields(self, line: str) -> list[str]:
        fields = line.split(",", 7)
        if len(fields) < 7:
            raise self.fault(1, f"expected time,source,instance,type,target,instance,event, got {len(fields)} fields")
        return fields

    def time_of(self, fields: list[str]) -> int:
        """Return the time of a line in ns."""
        match = re.fullmatch(r"([0-9]{1,24})(?:\.([0-9]{1,12}))?", fields[0], re.ASCII)
        if match is None:
            raise self.fault(1, f"expected a whole number as the time, got {fields[0][:20]!r}")
        times, parts = self.scale
        part = match[2] or ""
        return int(match[1] + part) * times // int(parts * 10 ** len(part))

    def name(self, text: str) -> str:
        """Return what identifies a process: FreeRTOS's names begin with the core that it happens to be on."""
        match = _FREERTOS.fullmatch(text) if self.freertos else None
        return f"[{match[2]}]{match[3]}" if match else text

    @property
    def freertos(self) -> bool:
        """Return whether FreeRTOS's trace logger wrote the trace."""
        return "FreeRTOS" in self.head.get("creator", "")

    @property
    def own(self) -> bool:
        """Return whether this module wrote the trace, whose names have parts and are encoded."""
        return self.head.get("creator") == "socsched"

    def kept(self) -> range:
        """Return the lines of the clock that has the most events."""
        if not self.clocks:
            return range(0)
        first, last, _ = max(self.clocks, key=lambda clock: clock[2])
        return range(first, last + 1)

    def notes(self) -> list[str]:
        found = []
        if len(self.clocks) > 1:
            left = sum(count for *_, count in self.clocks) - max(count for *_, count in self.clocks)
            found.append(
                f"The clock jumps by more than an hour {len(self.clocks) - 1} times: the longest stretch is used, and "
                f"{left} events of the others are left out."
            )
        if self.cut:
            found.append("The last line is cut off and left out.")
        return found


@dataclass(slots=True)
class _Open:
    """A job on an engine while it is read: its cores by worker, and the runnables in execution, innermost last.

    `index`: of the job, negative if it began before the recording.  `covered`: processes that run on its core now.
    """

    index: int
    cores: dict[int, tuple[str, int]] = field(default_factory=dict)
    runnables: list[str] = field(default_factory=list)
    since: int = -1
    covered: int = 0
    fresh: bool = False
    """Whether nothing of the innermost runnable has been recorded yet."""


class _Reader:
    def __init__(self, survey: _Survey) -> None:
        self.survey, self.zero, self.time = survey, -1, 0
        self.own = survey.own
        self.open: dict[tuple[str, int], dict[str, _Open]] = {}
        self.current: dict[str, int] = {}
        """Process -> the instance that events without a job of their own belong to."""
        self.running: dict[tuple[str, int], list[_Open]] = {}
        self.jobs: list[Job] = []
        self.slices: list[Slice] = []
        self.places: dict[str, tuple[str, int]] = {}
        """Process, as it is written -> the core on which it ran last."""
        self.assumed: dict[str, str] = {}
        """Task -> what its jobs were taken to be, in the absence of activations."""
        self.partial, self.stray = 0, 0
        """Jobs that began before the recording, and runnables of none."""

    def line(self, number: int, line: str) -> None:
        if line.startswith("#") or not line.strip():
            return
        self.survey.number = number
        fields = self.survey.fields(line)
        kind, event = fields[3], fields[6].strip()
        if kind not in _PROCESSES and kind != "R":
            return
        time = self.survey.time_of(fields)
        if self.zero < 0:
            self.zero = 0 if self.own else time
        self.time = time - self.zero
        if self.time > MOST_NS:
            raise self.survey.fault(1, f"expected a time up to {MOST_NS} ns")
        if kind == "R":
            self.runnable(fields, event)
        else:
            self.process(fields, event, fields[7] if len(fields) > 7 else "")

    def whole(self, fields: list[str], place: int) -> int:
        value = fields[place]
        if not (value.isdecimal() and value.isascii() and len(value) < 18 and int(value) <= MOST_NS):
            column = sum(len(field) + 1 for field in fields[:place]) + 1
            raise self.survey.fault(column, f"expected a whole number up to {MOST_NS}, got {value[:20]!r}")
        return int(value)

    def process(self, fields: list[str], event: str, note: str) -> None:
        name, frame, worker = self.survey.name(fields[4]), self.whole(fields, 5), 0
        way = "instance" if self.own else self.survey.processes[name].way
        if self.own and event not in _ACTIVATIONS:
            name, worker = self.worker(name)
        if event in _ACTIVATIONS or (way == "wait" and event == "release" and self.over(name, frame)):
            self.activate(name, frame, note)
        elif event in _STARTS:
            entry = self.starting(name, frame, event, way)
            core = self.core(fields)
            self.places[fields[4]] = core
            self.enter(entry, worker, core)
            if entry.index >= 0 and self.jobs[entry.index].start_ns < 0:
                self.jobs[entry.index].start_ns = self.time
        elif event in _STOPS and (stopped := self.entry(name, frame)):
            ran = self.leave(stopped, worker)
            ends = event == "terminate" or (ran and (way == "run" or (way == "wait" and event == "wait")))
            if ends and stopped.index >= 0 and self.jobs[stopped.index].status in ("unfinished", "done"):
                self.jobs[stopped.index].finish_ns, self.jobs[stopped.index].status = self.time, "done"

    @staticmethod
    def worker(name: str) -> tuple[str, int]:
        """Return a process of this module without its worker, and the worker."""
        process, slash, worker = name.rpartition("/")
        own = slash and worker.isdecimal() and worker.isascii() and len(worker) < 6
        return (process, int(worker)) if own else (name, 0)

    def activate(self, process: str, frame: int, note: str) -> None:
        times = {key: int(value) for key, value in re.findall(r"(deadline|finish)=(-?[0-9]{1,17})\b", note)}
        task = unquote(process) if self.own else process
        job = Job(task, frame, self.time, times.get("deadline", -1), finish_ns=times.get("finish", -1))
        job.status = next((status for status in _STATUS if status in note.split()), "unfinished")
        self.jobs.append(job)
        self.open[process, frame] = {"": _Open(len(self.jobs) - 1)}

    def starting(self, process: str, frame: int, event: str, way: str) -> _Open:
        """Return the job that begins or goes on; a new one where its start is all that is recorded of an activation."""
        idle = self.survey.freertos and _IDLE.fullmatch(process)
        recorded = way == "instance" and (event != "start" or self.own or self.survey.processes[process].activations)
        if self.over(process, frame) and not recorded and not idle:
            self.assumed[process] = way
            self.activate(process, frame, "")
        entry = self.entry(process, frame)
        if entry is None:
            self.partial += not idle
            self.open[process.partition("/")[0] if self.own else process, frame] = {"": _Open(-1)}
            entry = self.entry(process, frame)
            assert entry is not None
        return entry

    def over(self, process: str, frame: int) -> bool:
        """Return whether a process has no job in progress."""
        entry = self.entry(process, frame)
        return entry is None or (entry.index >= 0 and self.jobs[entry.index].status == "done")

    def entry(self, process: str, frame: int) -> _Open | None:
        """Return a job on an engine, by the name of its process there (`task` or, here, `task/ENGINE`)."""
        name, _, engine = process.partition("/") if self.own else (process, "", "")
        places = self.open.get((name, frame))
        if places is None:
            return None
        return places.setdefault(engine, _Open(places[""].index))

    def core(self, fields: list[str]) -> tuple[str, int]:
        """Return the engine and lane of a start: its source, or the core in the name that FreeRTOS's writer gives."""
        source, cores = fields[1], self.survey.cores
        if self.own:
            engine, _, lane = unquote(source).rpartition(".")
            if not engine or not (lane.isdecimal() and lane.isascii() and len(lane) < 6):
                raise self.survey.fault(1, f"expected a core such as cpu0.1, got {source[:40]!r}")
            return engine, int(lane)
        if source in cores:
            return _ENGINE, cores[source]
        if self.survey.freertos and (match := _FREERTOS.fullmatch(fields[4]) or _FREERTOS.fullmatch(source)):
            return _ENGINE, int(match[1])
        if self.survey.name(source) in self.survey.processes:  # the process before it
            return self.places.get(source, (_ENGINE, 0))
        return _ENGINE, cores.setdefault(source, len(cores))

    def head(self, key: str) -> str:
        return self.survey.head.get(key, "")

    def enter(self, entry: _Open, worker: int, core: tuple[str, int]) -> None:
        """Let a job run on a core; what ran there, if its end was not recorded, is interrupted."""
        self.close(entry)
        stack = self.running.setdefault(core, [])
        if worker in entry.cores:
            self.leave(entry, worker)
        if stack:
            self.close(stack[-1])
            stack[-1].covered += 1
        stack.append(entry)
        entry.cores[worker] = core
        self.go_on(entry)

    def leave(self, entry: _Open, worker: int) -> bool:
        """Take a job from a core, to which what it interrupted returns; return whether it was on one."""
        self.close(entry)
        core = entry.cores.pop(worker, None)
        if core is None:
            return False
        stack = self.running[core]
        top = stack[-1] is entry
        stack.remove(entry)
        if top and stack:
            stack[-1].covered -= 1
            self.go_on(stack[-1])
        elif not top:
            entry.covered -= 1
        self.go_on(entry)
        return True

    def go_on(self, entry: _Open) -> None:
        entry.since = self.time if entry.cores and not entry.covered else -1

    def close(self, entry: _Open, zero: bool = False) -> None:
        """Record what a job ran since the last change of its state; `zero`: even if that took no time."""
        if entry.since >= 0 and entry.index >= 0 and (self.time > entry.since or zero):
            cores = [entry.cores[worker] for worker in sorted(entry.cores)]
            if len({engine for engine, _ in cores}) > 1:
                raise self.survey.fault(1, "expected the process of a runnable to be on cores of one engine")
            job = self.jobs[entry.index]
            lanes = tuple(lane for _, lane in cores)
            name = entry.runnables[-1] if entry.runnables else job.task
            self.slices.append(Slice(cores[0][0], lanes, entry.index, name, entry.since, self.time))
            job.exec_ns += self.time - entry.since
            entry.fresh = False
        self.go_on(entry)

    def runnable(self, fields: list[str], event: str) -> None:
        entry = self.entry(self.survey.name(fields[1]), self.whole(fields, 2))
        if entry is None:
            self.stray += 1
            return
        name = unquote(fields[4]) if self.own else fields[4]
        if event == "start":
            self.close(entry)
            entry.runnables.append(name)
            entry.fresh = True
        elif event == "terminate" and name in entry.runnables:
            self.close(entry, zero=entry.fresh)
            while entry.runnables.pop() != name:
                pass

    def trace(self) -> Trace:
        for places in self.open.values():
            for entry in places.values():
                self.close(entry)
        duration, seed = self.head("duration"), self.head("seed")
        length = int(duration) if self.own and re.fullmatch("[0-9]{1,17}", duration) else self.time
        self._renumber()
        self.slices.sort(key=lambda piece: (piece.start_ns, piece.job))
        number = int(seed) if re.fullmatch("[0-9]{1,17}", seed) else 0
        return Trace(unquote(self.head("kind") or "measured"), length, number, self.jobs, self.slices)

    def _renumber(self) -> None:
        """Count the jobs of every task whose writer does not count its instances."""
        frames: dict[str, list[Job]] = {}
        for job in self.jobs:
            frames.setdefault(job.task, []).append(job)
        for jobs in frames.values():
            if any(after.frame <= before.frame for before, after in pairwise(jobs)) and not self.own:
                for frame, job in enumerate(jobs):
                    job.frame = frame

    def notes(self) -> list[str]:
        found = [
            text.format(_listed(tasks))
            for way, text in _WAYS.items()
            if (tasks := [task for task, other in self.assumed.items() if other == way])
        ]
        if self.partial:
            found.append(f"{self.partial} jobs had begun before the recording and are left out.")
        if self.survey.freertos and any(_IDLE.fullmatch(name) for name in self.survey.processes):
            found.append("The idle tasks of FreeRTOS are left out.")
        if self.stray:
            found.append(f"{self.stray} events of runnables belong to no job and are left out.")
        if self.survey.cores and not self.own:
            lanes = [f"{one_line(core)} is lane {lane}" for core, lane in self.survey.cores.items()]
            found.append(f"Cores are lanes of the engine {_ENGINE}: {_listed(lanes)}.")
        return found


def _listed(names: list[str]) -> str:
    shown = ", ".join(one_line(name)[:60] for name in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
