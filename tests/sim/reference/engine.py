"""Discrete-event simulation of a plan: the same tasks, lanes, policies and costs, on a clock of integer nanoseconds.

Meaning.  Events are ordered by (time, kind, id), completions before sensor releases before timers; what happens at one
instant is handled as a whole before any job is dispatched.  A task serves its frames in order, one job at a time; at
most `queue` frames wait, and one that still finds the queue full after the instant's dispatching is dropped.  A
dispatcher serves the lanes of an engine greedily by policy order: a job takes its fixed lanes together, jobs of lower
priority fill lanes that are left.  A running job can be preempted at any instant (preemption `full`), at ends of
segments (`segment`) or never (`none`); a resuming job pays `switch_ns` first.  Running segments share the DRAM
bandwidth (`memory`).  What is left of a segment is kept in 2**-64 ns of its present pace and rounded up when the pace
changes: nothing finishes early, and at one pace a segment takes exactly that long, however often it is preempted.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, insort
from fractions import Fraction
from heapq import heapify, heappop, heappush, heapreplace
from random import Random

from socsched.faults.model import Faults
from socsched.planning.plan import Plan
from socsched.trace.trace import Instant, Job, Slice, Trace
from socsched.units import format_duration
from tests.sim.reference.memory import Memory
from tests.sim.reference.meters import Meters
from tests.sim.reference.model import NO_JOB, NO_SLICE, Model, Origin, Piece, TaskState, Unit, lower

_COMPLETION, _SENSOR, _TIMER, _FAULT = range(4)
_ONE = 64
"""log2 of the units one nanosecond of progress is counted in."""


def simulate(
    plan: Plan, duration_ns: int, seed: int = 0, policy: str | None = None, faults: Faults | None = None
) -> Trace:
    """Simulate `plan` from 0 to `duration_ns` and return what happened; the same arguments give the same trace.

    `seed` feeds release jitter and faults; `policy` overrides every engine's own.  Jobs still running at the end stay
    `unfinished`, their slices end there.  Raises UsageError for a plan or policy that cannot be simulated.
    """
    simulation = Simulation(lower(plan, seed, policy), duration_ns, seed, faults or Faults())
    # The loop makes records, never cycles, and looking for cycles among millions of records takes half the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return simulation.run()
    finally:
        if collecting:
            gc.enable()


class Simulation:
    """One simulation under way; `simulate` is the way in."""

    def __init__(self, model: Model, duration_ns: int, seed: int, faults: Faults) -> None:
        self.model, self.end, self.faults = model, duration_ns, faults
        self.trace = Trace("simulated", duration_ns, seed)
        self.origins: dict[int, Origin] = {}
        self.jobs, self.slices = self.trace.jobs, self.trace.slices
        self.tasks, self.sources = model.tasks, model.sources
        self.heap: list[tuple[int, int, int, int]] = []
        self.memory = Memory(model.plan.dram_bandwidth)
        self.memory_changed = False
        self.dirty: list[Unit] = []
        self.touched: list[TaskState] = []
        self.meters = Meters(model.plan, model.power_scale)
        self.overruns = {f.stage: (f, Random(f"{seed}:overrun:{f.stage}")) for f in faults.overruns}

    def run(self) -> Trace:
        """Handle events until the end of time and return the trace."""
        heap, end = self.heap, self.end
        handlers = (self._complete, self._release, self._release, self._edge)
        self._prime()
        while heap and heap[0][0] <= end:
            now = heap[0][0]
            while heap and heap[0][0] == now:
                _, kind, ident, extra = heap[0]
                handlers[kind](now, ident, extra)
            if now < end:
                self._settle(now)
        self._close_books()
        return self.trace

    def _prime(self) -> None:
        for index, source in enumerate(self.sources):
            first = source.release_ns(0)
            if first < self.end:
                self.heap.append((first, _TIMER if source.timer else _SENSOR, index, 0))
        for index, slowdown in enumerate(self.faults.slowdowns):
            self.heap += [(slowdown.from_ns, _FAULT, index, 1), (slowdown.until_ns, _FAULT, index, 0)]
        heapify(self.heap)

    # -- events: each handler takes its own event off the heap

    def _release(self, now: int, ident: int, frame: int) -> None:
        source = self.sources[ident]
        following = source.release_ns(frame + 1)
        if following < self.end:
            heapreplace(self.heap, (following, _TIMER if source.timer else _SENSOR, ident, frame + 1))
        else:
            heappop(self.heap)
        source.releases.append(now)
        if self.faults.dropouts and self._lost(source.name, now):
            self.trace.instants.append(Instant(now, "drop", source.name, frame, "frame lost: sensor dropout injected"))
            return
        origin = {source.name: (frame, now)}
        source.latest, source.latest_frame = origin, frame
        for follower in source.followers:
            self._deliver(follower, frame, now, origin, now)

    def _complete(self, now: int, index: int, generation: int) -> None:
        heappop(self.heap)
        state = self.tasks[index]
        if state.generation != generation:
            return
        self._end_slice(state, now)
        if state.switching:
            state.switching = False
            self._begin(state, now)
            return
        unit, position = state.unit, state.position + 1
        if state.piece.demand:
            self._leave_memory(state)
        if position == len(state.todo):
            self._retire(state, now)
            return
        self._load(state, position)
        if unit.segmented:
            state.locked = False
            unit.held &= ~state.mask
            self._mark(unit)
        else:
            self._begin(state, now)

    def _edge(self, now: int, index: int, begins: int) -> None:
        heappop(self.heap)
        fault = self.faults.slowdowns[index]
        text = f"everything takes {float(fault.factor):g} times as long" if begins else "back to normal speed"
        self.trace.instants.append(Instant(now, "fault", fault.engine, -1, text))
        self.memory_changed = True
        for unit in self.model.units:
            if unit.engine.id == fault.engine:
                slow = (unit.slow or Fraction(1)) * (fault.factor if begins else 1 / fault.factor)
                unit.slow = None if slow == 1 else slow
                for state in unit.running:
                    if state.slice is not NO_SLICE and not state.switching and not state.piece.demand:
                        self._pace(state, _slowed(state.piece.time_ns, unit.slow), now)

    # -- from data to jobs

    def _deliver(self, state: TaskState, frame: int, release: int, origin: Origin, now: int) -> None:
        if state.need > 1:
            parts = state.partial.setdefault(frame, [])
            parts.append((release, origin))
            if len(parts) < state.need:
                return
            # Inputs arrive in frame order, so what is older and incomplete will never be complete.
            state.partial = {other: kept for other, kept in state.partial.items() if other > frame}
            release, origin = min(part[0] for part in parts), _oldest([part[1] for part in parts])
        job = Job(state.name, frame, now, release + state.deadline_ns)
        self.origins[id(job)] = origin
        number = len(self.jobs)
        self.jobs.append(job)
        if state.job is NO_JOB:
            self._promote(state, number, job, now)
        else:
            state.waiting.append(number)
        self.touched.append(state)

    def _promote(self, state: TaskState, number: int, job: Job, now: int) -> None:
        state.job, state.number = job, number
        state.todo = self._overrun(state, job, now) if state.name in self.overruns else state.pieces
        self._load(state, 0)
        state.entry = (state.key(job, state.task, now), state.index, state)
        insort(state.unit.order, state.entry)
        self._mark(state.unit)

    def _mark(self, unit: Unit) -> None:
        if not unit.dirty:
            unit.dirty = True
            self.dirty.append(unit)

    def _retire(self, state: TaskState, now: int) -> None:
        job = state.job
        job.finish_ns, job.status = now, "done"
        if now > job.deadline_ns:
            text = f"{format_duration(now - job.deadline_ns)} late"
            self.trace.instants.append(Instant(now, "miss", state.name, job.frame, text))
        self._vacate(state)
        state.latest, state.latest_frame = self.origins[id(job)], job.frame
        release = job.deadline_ns - state.deadline_ns
        self._forget(state, now)
        for follower in state.followers:
            self._deliver(follower, job.frame, release, self.origins[id(job)], now)

    def _forget(self, state: TaskState, now: int) -> None:
        """Let the oldest job of a task go and put the next one in its place."""
        order = state.unit.order
        del order[bisect_left(order, state.entry)]
        state.job, state.blocked_ns = NO_JOB, -1
        if state.waiting:
            number = state.waiting.popleft()
            self._promote(state, number, self.jobs[number], now)
        self._mark(state.unit)

    def _overrun(self, state: TaskState, job: Job, now: int) -> tuple[Piece, ...]:
        fault, rng = self.overruns[state.name]
        if (rng.getrandbits(62) >> 9) >= fault.probability * 2**53:
            return state.pieces
        text = f"takes {float(fault.factor):g} times its planned work"
        self.trace.instants.append(Instant(now, "fault", state.name, job.frame, text))
        return self.model.stretch(state, fault.factor)

    def _lost(self, sensor: str, now: int) -> bool:
        return any(f.sensor == sensor and f.from_ns <= now < f.until_ns for f in self.faults.dropouts)

    # -- dispatching, once an instant

    def _settle(self, now: int) -> None:
        for unit in self.dirty:
            unit.dirty = False
            self._dispatch(unit, now)
        self.dirty.clear()
        if self.touched:
            self._limit_queues(now)
        if self.memory_changed:
            self._share(now)
        self.meters.read(now)

    def _dispatch(self, unit: Unit, now: int) -> None:
        taken, everything, chosen = unit.held, unit.mask, []
        for _, _, state in unit.order:
            if taken == everything:
                break
            if not state.mask & taken:
                taken |= state.mask
                chosen.append(state)
        for state in [state for state in unit.running if not state.locked and state not in chosen]:
            self._preempt(state, now)
        for state in chosen:
            if not state.running:
                self._start(state, now)
            elif unit.segmented:
                self._hold(state, now)
        if not unit.preemptive:
            _note_blocking(unit, now)

    def _start(self, state: TaskState, now: int) -> None:
        unit, job = state.unit, state.job
        state.running = True
        unit.running.append(state)
        self.meters.load += state.power
        if job.start_ns < 0:
            job.start_ns = now
            if state.reads:
                self.origins[id(job)] = _oldest([self.origins[id(job)], *(read.latest for read in state.reads)])
                job.sampled = {read.name: read.latest_frame for read in state.reads if read.latest_frame >= 0}
            if state.depth:
                self.touched.append(state)
        if unit.preemptive:
            self._begin(state, now)
        else:
            self._hold(state, now)

    def _hold(self, state: TaskState, now: int) -> None:
        state.locked = True
        state.unit.held |= state.mask
        self._begin(state, now)

    def _preempt(self, state: TaskState, now: int) -> None:
        if state.slice is not NO_SLICE:
            self._end_slice(state, now)
            if not state.switching:
                self._advance(state, now)
                if state.piece.demand:
                    self._leave_memory(state)
        self._vacate(state)
        state.job.preemptions += 1
        state.switching = state.unit.engine.switch_ns > 0
        state.generation += 1

    def _vacate(self, state: TaskState) -> None:
        state.running = state.locked = False
        state.unit.running.remove(state)
        state.unit.held &= ~state.mask
        self.meters.load -= state.power

    def _limit_queues(self, now: int) -> None:
        for state in self.touched:
            waiting = state.waiting
            depth = len(waiting) + (state.job is not NO_JOB and state.job.start_ns < 0)
            while depth > state.queue:
                self._drop(state, now)
                depth -= 1
            if depth != state.depth:
                state.depth = depth
                self.meters.depth(now, state.name, depth)
        self.touched.clear()

    def _drop(self, state: TaskState, now: int) -> None:
        number = state.waiting.pop() if state.waiting else state.number
        job = self.jobs[number]
        job.status = "dropped"
        text = f"{state.queue} frames wait already" if state.queue else "busy, and no frame may wait"
        self.trace.instants.append(Instant(now, "drop", state.name, job.frame, text))
        if number == state.number:
            self._forget(state, now)

    # -- progress of the pieces of running jobs

    def _load(self, state: TaskState, position: int) -> None:
        piece = state.todo[position]
        state.position, state.piece = position, piece
        state.pace_ns = state.base_ns = piece.time_ns
        state.left = piece.time_ns << _ONE

    def _begin(self, state: TaskState, now: int) -> None:
        unit, piece = state.unit, state.piece
        name = "switch" if state.switching else piece.segment.name
        state.slice = Slice(unit.engine.id, state.task.lanes, state.number, name, now, -1)
        self.slices.append(state.slice)
        state.since_ns = now
        if state.switching:
            state.generation += 1
            heappush(self.heap, (now + unit.engine.switch_ns, _COMPLETION, state.index, state.generation))
        elif piece.demand:
            state.timed = False
            self.memory.active.append(state)
            self.memory_changed = True
        else:
            state.timed = False
            self._pace(state, _slowed(piece.time_ns, unit.slow), now)

    def _pace(self, state: TaskState, pace: int, now: int) -> None:
        """Let the running piece take `pace` ns as a whole from now on, and expect its end accordingly."""
        if state.timed:
            if state.pace_ns == pace:
                return
            self._advance(state, now)
        state.pace_ns, state.timed = pace, True
        state.generation += 1
        left = state.left if pace == state.base_ns else _repaced(state)
        heappush(self.heap, (now - (-left >> _ONE), _COMPLETION, state.index, state.generation))

    def _advance(self, state: TaskState, now: int) -> None:
        elapsed, state.since_ns = now - state.since_ns, now
        # A pace that held for no time must leave no rounding behind.
        if elapsed:
            if state.pace_ns != state.base_ns:
                state.left, state.base_ns = _repaced(state), state.pace_ns
            state.left -= elapsed << _ONE

    def _end_slice(self, state: TaskState, now: int) -> None:
        piece = state.slice
        state.slice = NO_SLICE
        piece.end_ns = now
        state.job.exec_ns += now - piece.start_ns

    def _leave_memory(self, state: TaskState) -> None:
        self.memory.active.remove(state)
        self.memory_changed = True

    def _share(self, now: int) -> None:
        paces = self.memory.paces()
        for state, pace in zip(self.memory.active, paces, strict=True):
            self._pace(state, _slowed(pace, state.unit.slow), now)
        self.memory_changed = False
        self.meters.rate = self.memory.bytes_per_ns()

    # -- the end

    def _close_books(self) -> None:
        trace, end = self.trace, self.end
        for state in self.tasks:
            if state.slice is not NO_SLICE:
                self._end_slice(state, end)
            if state.blocked_ns >= 0:
                state.job.blocking_ns += end - state.blocked_ns
        text = "unfinished at its deadline"
        for job in self.jobs:
            if job.status == "unfinished" and job.deadline_ns <= end:
                trace.instants.append(Instant(job.deadline_ns, "miss", job.task, job.frame, text))
        trace.instants.sort(key=lambda instant: instant.time_ns)
        trace.releases = {source.name: source.releases for source in self.sources}
        trace.counters = self.meters.counters()


def _slowed(time_ns: int, slow: Fraction | None) -> int:
    return time_ns if slow is None else int(-(-time_ns * slow // 1))


def _repaced(state: TaskState) -> int:
    """Return the remaining time of the running piece at its present pace, rounded up."""
    return -(-state.left * state.pace_ns // state.base_ns)


def _oldest(origins: list[Origin]) -> Origin:
    """Merge lineages: of every sensor or timer the oldest frame counts."""
    merged: dict[str, tuple[int, int]] = {}
    for origin in origins:
        for name, data in origin.items():
            merged[name] = min(merged.get(name, data), data)
    return merged


def _note_blocking(unit: Unit, now: int) -> None:
    """Book the time of jobs whose every obstacle is of lower priority and could not be preempted."""
    for _, _, state in unit.order:
        occupants = () if state.running else [other for other in unit.running if other.mask & state.mask]
        if occupants and all(other.entry > state.entry for other in occupants):
            state.blocked_ns = now if state.blocked_ns < 0 else state.blocked_ns
        elif state.blocked_ns >= 0:
            state.job.blocking_ns += now - state.blocked_ns
            state.blocked_ns = -1
