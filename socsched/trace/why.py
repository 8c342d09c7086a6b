"""Slowdown attribution: the response time of a frame in parts that add up to it to the nanosecond.

`Why(trace, plan)` indexes a trace once; `explain(chain, frame)` and `worst()` return explanations.  All parts are
derived from the trace and its plan, so that simulated and measured results are treated alike.  The path job of a stage
is the first that reacts to the frame, so that the intervals along a chain abut and parts sum by construction.  Running
segments are split by the plan's own contention model and clocks: recording the rate at every change would make traces
larger, and runs have none.  Where jobs take the planned time, at most a nanosecond is left unexplained.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from socsched.cost.contention import ContentionModel, contention_model, draw
from socsched.cost.cost import Segment, Shared
from socsched.errors import UsageError
from socsched.planning.plan import ChainResult, Plan, Task
from socsched.planning.task import LOAD
from socsched.trace.chains import Record
from socsched.trace.columns import (
    ABORTED,
    CLOCK,
    DONE,
    DROPPED,
    FAULT_OVER,
    FAULT_SLOW,
    FAULT_STALL,
    FOREIGN,
    STATUS,
    THROTTLE,
    THROTTLE_OVER,
    UNFINISHED,
)
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Ints


KINDS: Mapping[str, str] = {
    "execution": "runs, as planned",
    "conversion": "converts, as planned",
    "share": "on a share of the engine, as planned",
    "memory": "own memory shared, as planned",
    "cache": "cache shared, as planned",
    "launches": "launch queue shared, as planned",
    "above": "runs, beyond the estimate",
    "waiting": "waits for the engine",
    "blocking": "blocked, no preemption",
    "preemption": "preempted",
    "queue": "behind launches in flight",
    "bandwidth": "slowed by DRAM contention",
    "throttling": "clock below plan",
    "lanes": "on slower lanes",
    "switch": "switches, reloads",
    "restart": "work lost, restarted",
    "fault": "engine slow or stalled",
    "held": "engine free, not granted",
    "release": "input released late",
    "join": "waits for other input",
    "copy": "weights are loaded",
    "sampling": "waits to be sampled",
    "lost": "lost; newer frame used",
}
"""Kind of a part -> its display text.

Only `above` may be negative: for a job that took less than the estimate.  `held`: the engine was available, but policy,
reservation, another process or (in a run) the executor did not grant it.
"""
PLANNED = ("execution", "conversion", "share", "memory", "cache", "launches")
OCCUPIED = ("waiting", "blocking", "preemption", "queue")
"""Kinds in which the job named in `by` held the engine at that time."""


@dataclass(frozen=True, slots=True)
class Part:
    """`ns` of a frame's response time spent at `task` between `from_ns` and `until_ns`.

    `engine` is empty before the task was ready.  `by`, `frame`: the cause, which is a job, a sensor, or foreign traffic
    (frame -1); empty without an external cause.  Parts of a job's execution (planned, bandwidth, ...) share their
    window; all others fill theirs.
    """

    task: str
    kind: str
    engine: str
    by: str
    frame: int
    ns: int
    from_ns: int
    until_ns: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """The total of parts of one kind, at one task, caused by jobs of one other task (`frames`, ascending)."""

    task: str
    kind: str
    engine: str
    by: str
    frames: tuple[int, ...]
    ns: int
    note: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One frame of a chain from its release to its reaction, in parts.

    `outcome`: completed | dropped | aborted | unfinished.  For the last three, `end_ns` is the time of that event or
    the end of the record, `reason` gives place and cause, and the lateness is measured up to `end_ns`.  `jobs`: the
    (task, frame) pairs that carried it.
    """

    chain: str
    frame: int
    outcome: str
    kind: str
    release_ns: int
    end_ns: int
    deadline_ns: int
    parts: tuple[Part, ...]
    jobs: tuple[tuple[str, int], ...]
    reason: str = ""

    @property
    def response_ns(self) -> int:
        """Return the time from release to reaction, or to the loss of the frame."""
        return self.end_ns - self.release_ns

    @property
    def lateness_ns(self) -> int:
        """Return response minus deadline; negative for a frame in time."""
        return self.response_ns - self.deadline_ns

    @property
    def planned_ns(self) -> int:
        """Return the time the plan expects without interference."""
        return sum(part.ns for part in self.parts if part.kind in PLANNED)

    @property
    def met(self) -> bool:
        """Return whether the frame completed in time."""
        return self.outcome == "completed" and self.lateness_ns <= 0

    def causes(self) -> tuple[Cause, ...]:
        """Return the parts grouped by task, kind, engine and cause, in path order."""
        groups: dict[tuple[str, str, str, str], list[Part]] = {}
        for part in self.parts:
            groups.setdefault((part.task, part.kind, part.engine, part.by), []).append(part)
        totals = []
        for (task, kind, engine, by), parts in groups.items():
            frames = tuple(sorted({part.frame for part in parts if part.frame >= 0}))
            note = next((part.note for part in parts if part.note), "")
            totals.append(Cause(task, kind, engine, by, frames, sum(part.ns for part in parts), note))
        return tuple(cause for cause in totals if cause.ns)

    def main_cause(self) -> Cause | None:
        """Return the largest cause beyond the plan, None if the frame went as planned."""
        return max((c for c in self.causes() if c.kind not in PLANNED and c.ns > 0), key=lambda c: c.ns, default=None)

    def document(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "chain": self.chain,
            "frame": self.frame,
            "outcome": self.outcome,
            "reason": self.reason,
            "kind": self.kind,
            "release_ns": self.release_ns,
            "end_ns": self.end_ns,
            "response_ns": self.response_ns,
            "deadline_ns": self.deadline_ns,
            "planned_ns": self.planned_ns,
            "lateness_ns": self.lateness_ns,
            "jobs": [{"task": task, "frame": frame} for task, frame in self.jobs],
            "parts": [asdict(part) for part in self.parts],
            "causes": [asdict(cause) for cause in self.causes()],
        }


# Lane occupancy of the engines over time, and the service order of their jobs.


SWITCH, WAIT = "switch", "wait"
"""Names of slices in which a job switches to an engine, or keeps its lanes while it works elsewhere."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A slice: job (row), engine, lanes (mask), name, start and end; `row` is the slice's own row."""

    row: int
    job: int
    engine: str
    lanes: int
    name: str
    start_ns: int
    end_ns: int

    @property
    def works(self) -> bool:
        """Return whether the job made progress."""
        return self.name not in (SWITCH, WAIT)


class Places:
    """The slices of a trace by job and by time, and the state of its engines."""

    def __init__(self, columns: Columns, plan: Plan) -> None:
        self.columns, self.plan = columns, plan
        self.tasks = {task.name: task for task in plan.tasks}
        self.engines = {engine.id: engine for engine in plan.engines}
        self._segments: dict[int, dict[int, Segment]] = {}
        self._numbers = {task.name: number for number, task in enumerate(plan.tasks)}
        self._slow = {name: _slowdowns(columns, name) for name in self.engines}
        self._stalls = {name: _stalls(columns, name) for name in self.engines}

    def piece(self, row: int) -> Piece:
        """Return a slice by its row."""
        return self.pieces(np.array([row]))[0]

    def pieces(self, rows: Ints) -> list[Piece]:
        """Return slices by their rows."""
        columns, slices = self.columns, self.columns.slices
        fields = (slices.job, slices.engine, slices.lanes, slices.name, slices.start_ns, slices.end_ns)
        listed = zip(rows.tolist(), *(column[rows].tolist() for column in fields), strict=True)
        return [
            Piece(
                row, job, columns.engines[engine],
                mask if mask >= 0 else sum(1 << lane for lane in columns.lanes(mask)), columns.names[name], begin, end,
            )
            for row, job, engine, mask, name, begin, end in listed
        ]  # fmt: skip

    def of(self, job: int) -> list[Piece]:
        """Return the slices of a job in order, except those in which it only kept its lanes."""
        return [piece for piece in self.pieces(self.columns.slices_of(job)) if piece.name != WAIT]

    def between(self, begin: int, end: int, without: int) -> list[Piece]:
        """Return the slices of other jobs that overlap a window, in order of their start."""
        pieces = self.pieces(self.columns.slices_between(begin, end))
        inside = (p for p in pieces if p.start_ns < end and p.end_ns > begin and p.job != without)
        return sorted((p for p in inside if p.end_ns > p.start_ns), key=lambda p: (p.start_ns, p.row))

    def task(self, job: int) -> Task | None:
        """Return the planned task of a job, None if it is not in this plan."""
        return self.tasks.get(self.columns.tasks[int(self.columns.jobs.task[job])])

    def who(self, job: int) -> tuple[str, int]:
        """Return task and frame of a job."""
        jobs = self.columns.jobs
        return self.columns.tasks[int(jobs.task[job])], int(jobs.frame[job])

    def segment(self, piece: Piece) -> Segment:
        """Return the planned segment of a slice; the whole job if a slice covers all of it, as in a run."""
        if piece.job not in self._segments:
            self._segments[piece.job] = self._matched(piece.job)
        return self._segments[piece.job].get(piece.row) or Segment(piece.name, 0, 0, 0)

    def planned(self, job: int) -> int:
        """Return the time (ns) that the segments of the executed variant of a job take alone."""
        task = self.task(job)
        return sum(s.time_ns for s in self._variant(task, self.of(job))) if task else 0

    def _variant(self, task: Task, pieces: list[Piece]) -> tuple[Segment, ...]:
        own = task.segments or (Segment(task.name, task.cost_ns, 0, task.bytes),)
        first = next((piece.name for piece in pieces if piece.works), "")
        cheap = task.degraded
        return cheap if cheap and first == cheap[0].name and first != own[0].name else own

    def _matched(self, job: int) -> dict[int, Segment]:
        task, pieces = self.task(job), [piece for piece in self.of(job) if piece.works]
        if task is None:
            return {}
        own = self._variant(task, pieces)
        if any(piece.name not in {segment.name for segment in own} for piece in pieces):
            time, fixed = sum(s.time_ns for s in own), sum(s.fixed_ns for s in own)
            size = sum(s.bytes for s in own)
            return {piece.row: Segment(task.name, time, fixed, size) for piece in pieces}
        found, at, before = {}, -1, -1
        for piece in pieces:
            onwards = next((i for i in range(at + 1, len(own)) if own[i].name == piece.name), -1)
            # of two consecutive segments with the same name, the second begins where the first ended without a gap
            if onwards >= 0 and (at < 0 or own[at].name != piece.name or piece.start_ns == before):
                at = onwards
            found[piece.row], before = own[at], piece.end_ns
        return found

    # -- the state of engines

    def clock(self, engine: str, at: int) -> Fraction:
        """Return the ratio of planned to present clock."""
        steps = self.columns.counters.get(CLOCK + engine)
        if steps is None or not len(steps[0]):
            return Fraction(1)
        levels = self.engines[engine].levels if engine in self.engines else ()
        planned = levels[-1].clock_hz if levels else int(steps[1].max())
        now = int(steps[1][max(int(np.searchsorted(steps[0], at, side="right")) - 1, 0)])
        return Fraction(planned, now) if 0 < now < planned else Fraction(1)

    def slowdown(self, engine: str, at: int) -> tuple[Fraction, Fraction]:
        """Return the factors by which heat and other faults slow an engine."""
        heat = other = Fraction(1)
        for begin, end, factor, hot in self._slow.get(engine, ()):
            if begin <= at < end:
                heat, other = (heat * factor, other) if hot else (heat, other * factor)
        return heat, other

    def stalled(self, engine: str, at: int) -> bool:
        """Return whether an engine is stalled."""
        return any(begin <= at < end for begin, end in self._stalls.get(engine, ()))

    def foreign(self, at: int) -> list[tuple[str, int]]:
        """Return the present foreign traffic: engine and demand (bytes/s)."""
        found = []
        for name in self.columns.counters:
            if name.startswith(FOREIGN):
                times, rates = self.columns.counters[name]
                place = int(np.searchsorted(times, at, side="right")) - 1
                if place >= 0 and rates[place] > 0:
                    found.append((name.removeprefix(FOREIGN), round(float(rates[place]) * 1e9)))
        return found

    def edges(self, engine: str, begin: int, end: int) -> Iterator[int]:
        """Yield the instants in a window at which an engine's state or foreign traffic changes."""
        for name in self.columns.counters:
            if name == CLOCK + engine or name.startswith(FOREIGN):
                times = self.columns.counters[name][0]
                yield from (t for t in times.tolist() if begin < t < end)
        windows = [window[:2] for window in self._slow.get(engine, ())] + self._stalls.get(engine, [])
        yield from (t for window in windows for t in window if begin < t < end)

    def lane_speed(self, piece: Piece) -> int:
        """Return the speed of a slice's slowest lane, 1024 for full speed."""
        speeds = self.engines[piece.engine].capacities if piece.engine in self.engines else ()
        return min((speeds[lane] for lane in range(len(speeds)) if piece.lanes >> lane & 1), default=1024)

    # -- the order of service

    def preemptive(self, engine: str) -> bool:
        """Return whether a running job can be preempted at any instant."""
        chosen = self.engines.get(engine)
        return chosen is not None and chosen.preemption in ("full", "restart") and not chosen.policy.startswith("np-")

    def blocking(self, engine: str) -> str:
        """Return the kind of a wait for less urgent work: for what runs, or for what was launched ahead with it."""
        chosen = self.engines.get(engine)
        ahead = chosen is not None and chosen.preemption == "segment" and chosen.in_flight > 1
        return "queue" if ahead else "blocking"

    def after(self, engine: str, other: int, job: int) -> bool | None:
        """Return whether `job` is served after `other` on an engine; None if the order changes with time."""
        keys = [self._key(engine, number) for number in (other, job)]
        return None if keys[0] is None or keys[1] is None else keys[0] > keys[1]

    def _key(self, engine: str, job: int) -> tuple[int, ...] | None:
        task, jobs = self.task(job), self.columns.jobs
        if task is None:
            return None
        deadline, activation = int(jobs.deadline_ns[job]), int(jobs.activation_ns[job])
        orders = {
            "edf": (deadline, activation),
            "fp": (task.priority, activation),
            "fifo": (activation,),
            "rm": (task.period_ns,),
            "dm": (task.deadline_ns,),
        }
        policy = self.engines[engine].policy if engine in self.engines else ""
        found = orders.get(policy.removeprefix("np-"))
        return None if found is None else (*found, self._numbers[task.name])


def _marks(columns: Columns, engine: str) -> list[tuple[int, int, int]]:
    """Return time, code and value of the instants of an engine, in order."""
    notes = columns.instants
    # a task may have the name of an engine: only engine events count
    codes = (FAULT_SLOW, FAULT_OVER, FAULT_STALL, THROTTLE, THROTTLE_OVER)
    rows = columns.instants_of(engine, last=True)
    rows = rows[np.isin(notes.kind[rows], codes)]
    return [(int(notes.time_ns[r]), int(notes.kind[r]), int(notes.value[r])) for r in rows]


def _slowdowns(columns: Columns, engine: str) -> list[tuple[int, int, Fraction, bool]]:
    """Return the windows and factors by which faults slowed an engine, and whether the cause was heat.

    Throttling by the board itself shows in the clock and is excluded here.
    """
    intervals, open_ = [], list[tuple[int, int, bool]]()
    steps = columns.counters.get(CLOCK + engine)
    own = set(steps[0][1:].tolist()) if steps is not None else set()
    for time, code, value in _marks(columns, engine):
        if value <= 0 or code == FAULT_STALL or (code in (THROTTLE, THROTTLE_OVER) and time in own):
            continue
        hot = code in (THROTTLE, THROTTLE_OVER)
        if code in (FAULT_SLOW, THROTTLE):
            open_.append((time, value, hot))
            continue
        begun = next((entry for entry in open_ if entry[1:] == (value, hot)), None)
        if begun is not None:
            open_.remove(begun)
            intervals.append((begun[0], time, value, hot))
    intervals += [(time, 1 << 62, value, hot) for time, value, hot in open_]
    return [(begin, end, _factor(value, hot), hot) for begin, end, value, hot in intervals]


def _factor(value: int, hot: bool) -> Fraction:
    """Return the exact factor behind an instant's millionths, assuming at most four digits."""
    return Fraction(10**6, value).limit_denominator(10_000) if hot else Fraction(value, 10**6)


def _stalls(columns: Columns, engine: str) -> list[tuple[int, int]]:
    """Return the windows in which an engine was stalled."""
    intervals, begun = [], -1
    for time, code, value in _marks(columns, engine):
        if code == FAULT_STALL and begun < 0:
            begun = time
        elif code == FAULT_OVER and value == 0 and begun >= 0:
            intervals.append((begun, time))
            begun = -1
    return [*intervals, (begun, 1 << 62)] if begun >= 0 else intervals


def cuts(begin: int, end: int, instants: Iterator[int] | list[int]) -> list[tuple[int, int]]:
    """Return a window split at instants, in order."""
    edges = sorted({begin, end, *(t for t in instants if begin < t < end)})
    return list(pairwise(edges))


def overlapping(pieces: list[Piece], starts: list[int], begin: int, end: int) -> list[Piece]:
    """Return the pieces (in order of their `starts`) that overlap a window."""
    return [piece for piece in pieces[: bisect_right(starts, end - 1)] if piece.end_ns > begin]


# The path of a frame along its chain: the job of every stage and conversion that carried it, with start and end.


@dataclass(frozen=True, slots=True)
class Carrier:
    """A job (its row in the trace) that carried a frame from `from_ns` to `until_ns`; row -1: no such job exists.

    `sampled`: it sampled its data at its start, instead of being triggered by them.
    """

    task: Task
    row: int
    sampled: bool
    from_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Way:
    """The path of a frame: its carriers in order, each starting where its predecessor ended."""

    release_ns: int
    end_ns: int
    outcome: str
    carriers: tuple[Carrier, ...]


class Ways:
    """The paths of all frames of one chain.

    A stage's carrier is its first job that acts on the frame or, if the chain samples, on a newer one: the reaction
    of the chain up to that stage (`metrics.chain_figures`).  A dropped frame is followed up to its loss: what a newer
    one causes is no response to it.  Times never decrease along the chain.
    """

    def __init__(self, record: Record, plan: Plan, chain: ChainResult) -> None:
        self.record, self.plan, self.chain = record, plan, chain
        self.tasks = {task.name: task for task in plan.tasks}
        self.path = _expanded(chain.path, self.tasks)
        self.releases = record.released(chain)
        self._samples = [a not in self.tasks[b].after for a, b in pairwise(self.path)]
        self._exact = not any(self._samples)
        self._dropped = record.fates(chain).dropped
        self._acts: dict[int, tuple[Ints, Ints]] = {}

    def way(self, frame: int) -> Way:
        """Return the path of a released frame."""
        release = int(self.releases[frame])
        carriers: list[Carrier] = []
        at, expected = release, frame
        jobs = self.record.columns.jobs
        for place in range(0 if self.path[0] in self.tasks else 1, len(self.path)):
            task, sampled = self.tasks[self.path[place]], bool(place and self._samples[place - 1])
            row = self._carrier(place, frame)
            # a frame is dropped before the first stage that samples
            if row < 0 or (self._dropped[frame] and (sampled or int(jobs.frame[row]) != expected)):
                return self._ended(release, (*carriers,), task, sampled, at, expected, bool(self._dropped[frame]))
            until = max(int(jobs.finish_ns[row]), at)
            carriers.append(Carrier(task, row, sampled, at, until))
            at, expected = until, int(jobs.frame[row])
        return Way(release, at, "completed", tuple(carriers))

    def _carrier(self, place: int, frame: int) -> int:
        """Return the first job of a stage that acts on a frame (or a newer one) along the path, -1 for none."""
        if place not in self._acts:
            rows, frames = self.record.acted_on(self.path[: place + 1])
            if not self._exact:
                frames = np.maximum.accumulate(frames) if len(frames) else frames
            elif len(frames):
                order = np.lexsort((np.arange(len(frames)), frames))
                rows, frames = rows[order], frames[order]
            self._acts[place] = rows, frames
        rows, frames = self._acts[place]
        found = int(np.searchsorted(frames, frame))
        if found == len(frames) or (self._exact and frames[found] != frame):
            return -1
        return int(rows[found])

    def _ended(
        self,
        release: int,
        carriers: tuple[Carrier, ...],
        task: Task,
        sampled: bool,
        at: int,
        expected: int,
        dropped: bool,
    ) -> Way:
        """Return the path of a frame that did not get past `task`."""
        columns, end = self.record.columns, max(self.record.end_ns, at)
        jobs, rows = columns.jobs, self.record.rows(task.name)
        if sampled:
            open_rows = rows[
                (jobs.status[rows] == UNFINISHED)
                & ((jobs.start_ns[rows] >= at) | (jobs.start_ns[rows] < 0))
                & (not dropped)
            ]
        else:
            open_rows = rows[jobs.frame[rows] == expected]
        if not len(open_rows):
            lost = self._lost_at(self.path[0], expected) if not carriers else None
            outcome = "unfinished" if lost is None else "dropped"
            until = end if lost is None else min(max(lost, at), end)
            return Way(release, until, outcome, (*carriers, Carrier(task, -1, sampled, at, until)))
        row = int(open_rows[0])
        status = int(jobs.status[row])
        until = end
        if status == DROPPED:
            at_queue = self._lost_at(task.name, int(jobs.frame[row]))
            until = int(jobs.activation_ns[row]) if at_queue is None else at_queue
        elif status in (ABORTED, DONE):
            until = int(jobs.finish_ns[row]) if jobs.finish_ns[row] >= 0 else self._aborted_at(task.name, row, end)
        until = min(max(until, at), end)
        outcome = STATUS[status] if status != DONE else "unfinished"
        return Way(release, until, outcome, (*carriers, Carrier(task, row, sampled, at, until)))

    def _lost_at(self, subject: str, frame: int) -> int | None:
        return instant(self.record, subject, frame, "drop")

    def _aborted_at(self, subject: str, row: int, end: int) -> int:
        abort_ns = instant(self.record, subject, int(self.record.columns.jobs.frame[row]), "abort")
        return end if abort_ns is None else abort_ns


def instant(record: Record, subject: str, frame: int, kind: str) -> int | None:
    """Return the time of the first instant of a kind for a frame of a subject, None if there is none."""
    row = instant_row(record, subject, frame, kind)
    return None if row is None else int(record.columns.instants.time_ns[row])


def instant_row(record: Record, subject: str, frame: int, kind: str) -> int | None:
    """Return the row of the first instant of a kind for a frame of a subject, None if there is none."""
    columns, notes = record.columns, record.columns.instants
    about = columns.instants_of(subject)
    about = about[notes.frame[about] == frame]
    return next((row for row in about.tolist() if columns.kind(int(notes.kind[row])) == kind), None)


def _expanded(path: tuple[str, ...], tasks: dict[str, Task]) -> tuple[str, ...]:
    """Return a path with the conversions between its stages."""
    found = list(path[:1])
    for producer, consumer in pairwise(path):
        found += _between(producer, consumer, tasks)
        found.append(consumer)
    return tuple(found)


def _between(producer: str, consumer: str, tasks: dict[str, Task]) -> list[str]:
    """Return the conversions from one stage to another, in order; empty if data goes directly."""
    inputs = (*tasks[consumer].after, *tasks[consumer].reads)
    if producer in inputs:
        return []
    for name in inputs:
        if name in tasks and tasks[name].kind == "conversion":
            before = tasks[name]
            if producer in (*before.after, *before.reads):
                return [name]
            further = _between(producer, name, tasks)
            if further:
                return [*further, name]
    return []


# Attribution of waiting times: the holders of the lanes that a job needed while it did not run.


FOREVER = 1 << 62


class Waits:
    """Attributes the waits of jobs.

    While an earlier frame of the same task is unfinished, the wait is due to that frame wherever it runs, and otherwise
    to the holders of the lanes it needs.  Of several jobs on the lanes, the one whose departure admits the waiting job
    counts.  Jobs served after the waiting one count only if no other job holds the lanes, since it does not queue
    behind them.
    """

    def __init__(self, places: Places, record: Record) -> None:
        self.places, self.record = places, record

    def parts(
        self,
        carrier: Carrier,
        begin: int,
        end: int,
        before: Piece | None,
        following: Piece | None,
        others: Sequence[Piece],
    ) -> Iterator[Part]:
        """Yield the parts of a carrier's wait between two of its slices (either may be None), in order of time.

        `others`: all slices of other jobs in the carrier's window.
        """
        places, task = self.places, carrier.task.name
        engine, lanes, width = self._wanted(carrier, before, following)
        claimed, earlier = self._claimed(carrier.row)
        near = [p for p in others if p.end_ns > begin and p.start_ns < end]
        taken = [p for p in near if p.engine == engine and p.lanes & lanes]
        own = [p for p in near if p.job in earlier and p.works] if claimed > begin else []
        changes = [claimed, *(t for p in (*taken, *own) for t in (p.start_ns, p.end_ns))]
        changes += places.edges(engine, begin, end)
        resumes = before is not None and before.engine == engine
        for a, b in cuts(begin, end, changes):
            ahead = [p for p in own if p.start_ns <= a < p.end_ns] if a < claimed else []
            here = [p for p in taken if p.start_ns <= a < p.end_ns]
            if ahead:
                kind, holder = "waiting", ahead[0]
            elif places.stalled(engine, a) or not here or _bits(lanes & ~_union(here)) >= width:
                kind = "fault" if places.stalled(engine, a) else "held"
                yield Part(task, kind, engine, "", -1, b - a, a, b)
                continue
            else:
                kind, holder = self._holder(carrier.row, engine, here, lanes, width, a >= claimed)
                kind = "preemption" if resumes and kind == "waiting" and a >= claimed else kind
            yield Part(task, kind, holder.engine, *places.who(holder.job), b - a, a, b)

    def _wanted(self, carrier: Carrier, before: Piece | None, following: Piece | None) -> tuple[str, int, int]:
        """Return the engine, the lanes, and the number of lanes a job waits for."""
        task = carrier.task
        home, width = sum(1 << lane for lane in set(task.lanes)), task.width or len(set(task.lanes))
        piece = following or before
        if piece is None or piece.engine == task.engine:
            return task.engine, home, width
        return piece.engine, piece.lanes, _bits(piece.lanes)

    def _claimed(self, job: int) -> tuple[int, set[int]]:
        """Return the end of all earlier jobs of a job's task, and those still open at its activation."""
        jobs = self.places.columns.jobs
        earlier = self.record.rows(self.places.columns.tasks[int(jobs.task[job])])
        earlier = earlier[earlier < job]
        open_ = earlier[
            (jobs.status[earlier] == UNFINISHED)
            | ((jobs.finish_ns[earlier] > jobs.activation_ns[job]) & (jobs.status[earlier] != DROPPED))
        ]
        ends = np.where(jobs.status[open_] == UNFINISHED, FOREVER, jobs.finish_ns[open_])
        return int(ends.max(initial=0)), set(open_.tolist())

    def _holder(
        self, job: int, engine: str, here: list[Piece], lanes: int, width: int, claims: bool
    ) -> tuple[str, Piece]:
        """Return "blocking", "queue" or "waiting" for a job, and the slice that it waits for."""
        places = self.places
        later = [p for p in here if places.after(engine, p.job, job)] if claims else []
        if len(later) == len(here):
            kind = "waiting" if places.preemptive(engine) else places.blocking(engine)
            return kind, _binding(here, lanes, width)
        return "waiting", _binding([p for p in here if p not in later], lanes, width)


def _binding(here: list[Piece], lanes: int, width: int) -> Piece:
    """Return the slice whose end frees `width` of `lanes` for a waiting job; the last one if all must end."""
    free = _bits(lanes & ~_union(here))
    leaving = sorted(here, key=lambda p: (p.end_ns, p.row))
    for piece in leaving:
        free += _bits(piece.lanes & lanes)
        if free >= width:
            return piece
    return leaving[-1]


def _union(pieces: list[Piece]) -> int:
    lanes = 0
    for piece in pieces:
        lanes |= piece.lanes
    return lanes


def _bits(lanes: int) -> int:
    return bin(lanes).count("1")


# Attribution of a job's time on its engine: its own work, DRAM traffic of others, clocks, faults, slower lanes.
#
# A segment that takes T ns alone takes P at its actual pace.  P - T is the delay the contention model adds for
# co-running segments (shared out by their demand; without a cause if the segment alone exceeds the bandwidth), then
# heat, other faults, the clock, and the slowest lane, each rounded up as in the simulator.  In dt ns the segment does
# T/P dt of its work, and loses the rest to these causes in proportion.  In a run this is not measured: the shares are
# the model's estimate for the co-running jobs, and the remainder is attributed to the job itself.


class Due(NamedTuple):
    """The cause of spent time: a kind of part, the engine, and the responsible task and frame."""

    kind: str
    engine: str
    by: str = ""
    frame: int = -1


Spent = dict[Due, Fraction]
WORK = "execution"


class Paces:
    """The paces of a trace's segments; `spent` attributes the time of a stretch of one."""

    def __init__(self, places: Places, plan: Plan) -> None:
        self.places = places
        self._short = plan.dram_bandwidth > 0 or bool(plan.contention)
        self._model: ContentionModel | None = None
        self._plan = plan
        self._known: dict[tuple[tuple[str, Segment], ...], tuple[int, ...]] = {}

    def spent(self, piece: Piece, begin: int, end: int, beside: list[Piece], starts: list[int]) -> Spent:
        """Return the attribution of a slice's time from `begin` to `end`; `beside`: other jobs' slices, by start."""
        own, found = self.places.segment(piece), Spent()
        rivals = overlapping(beside, starts, begin, end) if self._short and draw(own) else []
        rivals = [rival for rival in rivals if rival.works and draw(self.places.segment(rival))]
        changes = [t for rival in rivals for t in (rival.start_ns, rival.end_ns)]
        changes += self.places.edges(piece.engine, begin, end)
        for a, b in cuts(begin, end, changes):
            here = [rival for rival in rivals if rival.start_ns <= a < rival.end_ns]
            for due, share in self._shares(piece, own, here, a).items():
                found[due] = found.get(due, Fraction(0)) + (b - a) * share
        return found

    def _shares(self, piece: Piece, own: Segment, rivals: list[Piece], at: int) -> Spent:
        alone, places, engine = own.time_ns, self.places, piece.engine
        if not alone:
            return {Due(WORK, engine): Fraction(1)}
        foreign = places.foreign(at) if self._short and draw(own) else []
        solo = max(self._beside(engine, own, [], []), alone)
        corun = max(self._beside(engine, own, rivals, foreign), solo)
        heat, fault = places.slowdown(engine, at)
        hot = _ceil(corun * heat)
        slow = _ceil(corun * heat * fault)
        clocked = _ceil(slow * places.clock(engine, at))
        pace = _ceil(clocked * Fraction(1024, places.lane_speed(piece)))
        parts = {
            Due(WORK, engine): alone,
            Due("bandwidth", engine): solo - alone,
            Due("throttling", engine): hot - corun + clocked - slow,
            Due("fault", engine): slow - hot,
            Due("lanes", engine): pace - clocked,
        }
        found = {due: Fraction(time, pace) for due, time in parts.items() if time}
        demands = [(places.who(rival.job), draw(places.segment(rival))) for rival in rivals]
        demands += [(("foreign traffic", -1), float(rate)) for _, rate in foreign]
        total = sum(Fraction(demand) for _, demand in demands)
        for (by, frame), demand in demands:
            due = Due("bandwidth", engine, by, frame)
            share = Fraction(corun - solo, pace) * Fraction(demand) / total
            if share:
                found[due] = found.get(due, Fraction(0)) + share
        return found

    def _beside(self, engine: str, own: Segment, rivals: list[Piece], foreign: list[tuple[str, int]]) -> int:
        """Return the time (ns) of a segment while exactly these run."""
        if not self._short or not draw(own):
            return own.time_ns
        places = self.places
        running = [(engine, own), *((rival.engine, places.segment(rival)) for rival in rivals)]
        running += [(name, Segment("hog", 1_000_000_000, 0, rate)) for name, rate in foreign]
        key = tuple(running)
        if key not in self._known:
            if self._model is None:
                kinds = {engine.id: engine.kind for engine in self._plan.engines}
                self._model = contention_model(self._plan.contention, self._plan.dram_bandwidth, kinds)
            self._known[key] = self._model.paces(running)
        return self._known[key][0]


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def round_to_sum(spent: Mapping[Due, Fraction]) -> dict[Due, int]:
    """Return non-negative fractions of ns as whole ns of the same sum, each less than 1 ns off; work comes first."""
    total, given, found = Fraction(0), 0, {}
    for due in sorted(spent, key=lambda due: (due.kind != WORK, due)):
        total += spent[due]
        upto = _ceil(total - Fraction(1, 2)) if due.kind == WORK else int(total)
        found[due], given = max(upto, given) - given, max(upto, given)
    return found


# Breakdown of a frame's response time, from its release along its chain, carrier by carrier.


RESTARTED = "killed, starts its segment again"


def _severity(chain: ChainResult, figures: Mapping[str, Any]) -> tuple[bool, bool, bool, Fraction]:
    """Return what ranks the worst frame of a chain among those of others."""
    longest = figures["response_time_ns"]["max"]
    late = longest is not None and longest > chain.deadline_ns
    # where none completed late, those missed did not complete
    lost = not late and figures["missed"] + figures["dropped"] > 0
    shown = -1 if longest is None or lost else longest
    return figures["released"] > 0, late, lost, Fraction(shown, max(chain.deadline_ns, 1))


class Why:
    """Explains the response times of frames in a trace of `plan`; indexes are built once."""

    def __init__(self, trace: Trace, plan: Plan) -> None:
        self.plan, self.kind = plan, trace.kind
        self.record = Record(trace.columns, plan, trace.duration_ns)
        self.places = Places(self.record.columns, plan)
        self.paces = Paces(self.places, plan)
        self.waits = Waits(self.places, self.record)
        self._ways: dict[str, Ways] = {}

    def chain(self, name: str | None = None) -> ChainResult:
        """Return a chain by name, or the only one for None; raise UsageError with the known names."""
        names = [chain.name for chain in self.plan.chains]
        if not names:
            raise UsageError("the plan has no chains: nothing to explain", "add `chains` to the pipeline")
        if name is None:
            if len(names) > 1:
                raise UsageError("the plan has several chains", f"name one with --chain: {', '.join(names)}")
            return self.plan.chains[0]
        if name not in names:
            raise UsageError(f"no chain {name!r} in this plan", f"its chains: {', '.join(names)}")
        return self.plan.chains[names.index(name)]

    def worst(self, name: str | None = None, figures: Mapping[str, Any] | None = None) -> Explanation:
        """Return the frame, of one chain or of all, with the largest response time relative to its deadline.

        If none was late, a frame that was dropped, or missed its deadline without completing, ranks before those in
        time.  `figures`: the trace's (`metrics.result`), by which only the worst chain is looked at.  Raises UsageError
        if no frame was released.
        """
        best: tuple[tuple[bool, bool, Fraction], ChainResult, int] | None = None
        chains = self.plan.chains if name is None else (self.chain(name),)
        if figures is not None and len(chains) > 1:
            chains = (max(chains, key=lambda chain: _severity(chain, figures["chains"][chain.name])),)
        for chain in chains:
            fates = self.record.fates(chain)
            if not len(fates.release_ns):
                continue
            times = np.where(fates.completed, fates.finish_ns - fates.release_ns, -1)
            frame = int(times.argmax())
            late = bool(times[frame] > chain.deadline_ns)
            lost = np.flatnonzero((fates.missed | fates.dropped) & ~fates.completed)
            if not late and len(lost):
                frame = int(lost[0])
            key = (late, not late and len(lost) > 0, Fraction(int(times[frame]), max(chain.deadline_ns, 1)))
            if best is None or key > best[0]:
                best = key, chain, frame
        if best is None:
            self.chain(name)
            raise UsageError("no frame was released: nothing to explain", "simulate or run for longer")
        return self.explain(best[1], best[2])

    def explain(self, chain: ChainResult | str | None, frame: int) -> Explanation:
        """Return the parts of the response time of a frame (its number at the source) of a chain.

        Raises UsageError if there is no such chain or frame.
        """
        found = chain if isinstance(chain, ChainResult) else self.chain(chain)
        ways = self._ways.setdefault(found.name, Ways(self.record, self.plan, found))
        count = len(ways.releases)
        if not 0 <= frame < count:
            released = f"frames 0 to {count - 1} were released" if count else "none was released"
            raise UsageError(f"no frame {frame} of {found.path[0]}: {released}", "choose one of those, or --worst")
        way = ways.way(frame)
        parts = tuple(part for part in self._parts(way, frame, ways) if part.ns)
        jobs = self.record.columns.jobs
        carried = tuple((c.task.name, int(jobs.frame[c.row])) for c in way.carriers if c.row >= 0)
        times = (way.release_ns, way.end_ns, found.deadline_ns)
        reason = "" if way.outcome == "completed" else self._why_lost(way, frame, ways.path[0])
        return Explanation(found.name, frame, way.outcome, self.kind, *times, parts, carried, reason)

    def _why_lost(self, way: Way, frame: int, source: str) -> str:
        """Return the place where a frame was lost, and the recorded reason."""
        if not way.carriers:
            return ""
        last = way.carriers[-1]
        number = int(self.record.columns.jobs.frame[last.row]) if last.row >= 0 else frame
        reason = self._reason(last.task.name, number) if last.row >= 0 else self._reason(source, frame)
        return f"at {reason[0]}: {reason[2]}" if reason else f"at {last.task.name}"

    # -- parts

    def _parts(self, way: Way, frame: int, ways: Ways) -> Iterator[Part]:
        source, expected = ways.path[0], frame
        for carrier in way.carriers:
            jobs = self.record.columns.jobs
            if carrier.row < 0:
                yield from self._missing(carrier, source, expected)
                continue
            ready = min(max(int(jobs.activation_ns[carrier.row]), carrier.from_ns), carrier.until_ns)
            yield from self._before(carrier, ready, source, expected)
            yield from self._under_way(carrier, ready)
            source, expected = carrier.task.name, int(jobs.frame[carrier.row])

    def _missing(self, carrier: Carrier, source: str, expected: int) -> Iterator[Part]:
        """Yield the part of a frame that never became a job: its time up to the end of the record."""
        others = [name for name in carrier.task.after if name != source]
        kind = "sampling" if carrier.sampled else "join" if others else "lost"
        reason = self._reason(source, expected)
        yield self._part(carrier, kind, carrier.from_ns, carrier.until_ns, *(reason or ("", -1, "")))

    def _before(self, carrier: Carrier, ready: int, source: str, expected: int) -> Iterator[Part]:
        """Yield the parts until the carrier was ready: data in transit, join partners, lost jobs."""
        begin, task = carrier.from_ns, carrier.task
        if ready <= begin:
            return
        jobs, rows = self.record.columns.jobs, self.record.rows(task.name)
        gone = (jobs.status[rows] == DROPPED) | (jobs.status[rows] == ABORTED)
        inside = gone & (jobs.activation_ns[rows] >= begin) & (jobs.activation_ns[rows] < ready) & (rows != carrier.row)
        lost = int(rows[inside][0]) if inside.any() else -1
        until = int(jobs.activation_ns[lost]) if lost >= 0 else ready
        number = int(jobs.frame[carrier.row])
        if not carrier.sampled and source != task.name and lost < 0 and number != expected:
            # no data of the frame arrived here: it was lost by its sensor or by a join partner
            by = self._reason(source, expected) or (source, expected, "never came")
            yield self._part(carrier, "lost", begin, ready, *by)
            return
        if carrier.sampled:
            yield self._part(carrier, "sampling", begin, until)
        elif len(task.after) > 1:
            partner = self._partner(task, source, number if lost < 0 else expected)
            yield self._part(carrier, "copy" if partner[0].startswith(LOAD) else "join", begin, until, *partner)
        else:
            yield self._part(carrier, "release", begin, until, source if source != task.name else "", -1)
        if lost >= 0:
            frame = int(jobs.frame[lost])
            by = self._reason(task.name, frame) or (task.name, frame, "")
            yield self._part(carrier, "lost", until, ready, *by)

    def _partner(self, task: Task, source: str, frame: int) -> tuple[str, int, str]:
        """Return the producer, other than `source`, whose output for a frame reached a task last."""
        jobs, best = self.record.columns.jobs, ("", -1, "")
        latest = -1
        for name in task.after:
            rows = self.record.rows(name)
            rows = rows[(jobs.frame[rows] == frame) & (jobs.status[rows] == DONE)]
            if name != source and len(rows) and int(jobs.finish_ns[rows[-1]]) > latest:
                latest, best = int(jobs.finish_ns[rows[-1]]), (name, frame, "")
        return best

    def _reason(self, subject: str, frame: int) -> tuple[str, int, str] | None:
        """Return the subject that dropped or aborted a frame, the frame, and the reason."""
        for kind in ("drop", "abort"):
            row = instant_row(self.record, subject, frame, kind)
            if row is not None:
                notes, columns = self.record.columns.instants, self.record.columns
                return subject, frame, columns.text(int(notes.kind[row]), int(notes.value[row]))
        return None

    def _under_way(self, carrier: Carrier, ready: int) -> Iterator[Part]:
        """Yield the parts of a job's time from when it was ready: work, and waits between its slices."""
        begin, end, row = ready, carrier.until_ns, carrier.row
        own = [p for p in self.places.of(row) if p.start_ns < end and p.end_ns > begin and p.end_ns > p.start_ns]
        others = self.places.between(begin, end, row)
        starts = [piece.start_ns for piece in others]
        lost = self._restarted(carrier)
        spent: Spent = {}
        before: Piece | None = None
        at = begin
        for piece in own:
            start, stop = max(piece.start_ns, at), min(piece.end_ns, end)
            if start > at:
                yield from self.waits.parts(carrier, at, start, before, piece, others)
            if stop > start:
                took = self._took(piece, start, stop, others, starts, lost)
                for due, time in took.items():
                    spent[due] = spent.get(due, Fraction(0)) + time
            before, at = piece, max(at, stop)
        if end > at:
            yield from self.waits.parts(carrier, at, end, before, None, others)
        yield from self._worked(carrier, spent, own)

    def _took(
        self, piece: Piece, begin: int, end: int, others: list[Piece], starts: list[int], lost: set[int]
    ) -> Spent:
        if not piece.works:
            return {Due("switch", piece.engine): Fraction(end - begin)}
        if piece.row in lost:
            over = next((p for p in others if p.start_ns == piece.end_ns and p.engine == piece.engine), None)
            by = self.places.who(over.job) if over else ("", -1)
            return {Due("restart", piece.engine, *by): Fraction(end - begin)}
        return self.paces.spent(piece, begin, end, others, starts)

    def _restarted(self, carrier: Carrier) -> set[int]:
        """Return the slices of a job whose work was lost because their segment was restarted later."""
        columns, notes = self.record.columns, self.record.columns.instants
        rows = columns.instants_of(carrier.task.name)
        about = rows[notes.frame[rows] == columns.jobs.frame[carrier.row]].tolist()
        restarts = [r for r in about if columns.text(int(notes.kind[r]), int(notes.value[r])) == RESTARTED]
        kills = {int(notes.time_ns[r]) for r in restarts}
        if not kills:
            return set()
        pieces = [piece for piece in self.places.of(carrier.row) if piece.works]
        lost, same = set[int](), list[Piece]()
        for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
            same.append(piece)
            again = following is None or self.places.segment(following) is self.places.segment(piece)
            if again and piece.end_ns in kills:
                lost.update(p.row for p in same)
            if not again or piece.end_ns in kills:
                same.clear()
        return lost

    def _worked(self, carrier: Carrier, spent: Spent, own: list[Piece]) -> Iterator[Part]:
        """Yield a job's work, planned and beyond the plan, and its slowdowns."""
        if not own:
            return
        window = max(own[0].start_ns, carrier.from_ns), min(own[-1].end_ns, carrier.until_ns)
        work = 0
        for due, time in round_to_sum(spent).items():
            if due.kind == WORK:
                work += time
            else:
                yield Part(carrier.task.name, due.kind, due.engine, due.by, due.frame, time, *window)
        planned = self.places.planned(carrier.row)
        if self.record.columns.jobs.status[carrier.row] != DONE:
            planned = min(planned, work)
        kind = "conversion" if carrier.task.kind == "conversion" else "execution"
        shared, cost = carrier.task.shared or Shared(0), max(carrier.task.cost_ns, 1)
        longer = {name: planned * getattr(shared, f"{name}_ns") // cost for name in PLANNED[2:]}
        part = Part(carrier.task.name, kind, carrier.task.engine, "", -1, planned - sum(longer.values()), *window)
        yield part
        for name, ns in longer.items():
            yield replace(part, kind=name, ns=ns, by="" if name == "share" else shared.by)
        yield replace(part, kind="above", ns=work - planned)

    def _part(
        self, carrier: Carrier, kind: str, begin: int, end: int, by: str = "", frame: int = -1, note: str = ""
    ) -> Part:
        return Part(carrier.task.name, kind, "", by, frame, end - begin, begin, end, note)
