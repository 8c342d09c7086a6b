"""Lane occupancy of the engines over time, and the service order of their jobs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from socsched.cost.cost import Segment
from socsched.planning.plan import Plan, Task
from socsched.trace.columns import CLOCK, FAULT_OVER, FAULT_SLOW, FAULT_STALL, FOREIGN, THROTTLE, THROTTLE_OVER

if TYPE_CHECKING:
    from socsched.trace.columns import Columns, Ints

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
        slices = columns.slices
        order = np.lexsort((slices.start_ns, slices.job))
        self._by_job: Ints = order
        self._bounds = np.searchsorted(slices.job[order], np.arange(len(columns.jobs) + 1))
        self._segments: dict[int, dict[int, Segment]] = {}
        self._numbers = {task.name: number for number, task in enumerate(plan.tasks)}
        self._slow = {name: _slowdowns(columns, name) for name in self.engines}
        self._stalls = {name: _stalls(columns, name) for name in self.engines}

    def piece(self, row: int) -> Piece:
        """Return a slice by its row."""
        columns, slices = self.columns, self.columns.slices
        mask = int(slices.lanes[row])
        if mask < 0:
            mask = sum(1 << lane for lane in columns.lanes(mask))
        names = columns.engines[int(slices.engine[row])], mask, columns.names[int(slices.name[row])]
        return Piece(row, int(slices.job[row]), *names, int(slices.start_ns[row]), int(slices.end_ns[row]))

    def of(self, job: int) -> list[Piece]:
        """Return the slices of a job in order, except those in which it only kept its lanes."""
        rows = self._by_job[self._bounds[job] : self._bounds[job + 1]].tolist()
        return [piece for piece in map(self.piece, rows) if piece.name != WAIT]

    def between(self, begin: int, end: int, without: int) -> list[Piece]:
        """Return the slices of other jobs that overlap a window, in order of their start."""
        slices = self.columns.slices
        inside = (slices.start_ns < end) & (slices.end_ns > begin) & (slices.job != without)
        pieces = [self.piece(row) for row in np.flatnonzero(inside).tolist()]
        return sorted((p for p in pieces if p.end_ns > p.start_ns), key=lambda p: (p.start_ns, p.row))

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
        for name, (times, rates) in self.columns.counters.items():
            if name.startswith(FOREIGN):
                place = int(np.searchsorted(times, at, side="right")) - 1
                if place >= 0 and rates[place] > 0:
                    found.append((name.removeprefix(FOREIGN), round(float(rates[place]) * 1e9)))
        return found

    def edges(self, engine: str, begin: int, end: int) -> Iterator[int]:
        """Yield the instants in a window at which an engine's state or foreign traffic changes."""
        for name, (times, _) in self.columns.counters.items():
            if name == CLOCK + engine or name.startswith(FOREIGN):
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
    if engine not in columns.subjects:
        return []
    # a task may have the name of an engine: only engine events count
    codes = (FAULT_SLOW, FAULT_OVER, FAULT_STALL, THROTTLE, THROTTLE_OVER)
    last = len(columns.subjects) - 1 - columns.subjects[::-1].index(engine)
    rows = np.flatnonzero((notes.subject == last) & np.isin(notes.kind, codes))
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
