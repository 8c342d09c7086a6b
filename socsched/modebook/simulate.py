"""Simulation of a book: plans one after another, switched by the idle-time protocol, with every frame accounted for.

Each stretch under one plan is a simulation of its own (`sim.simulate`), from the switch until its last frame has ended.
The kernel stays as it is, whose tables of one plan are constant, and accounts of frames are kept outside it.
Sources keep their phase: frame k of a source is released at its offset plus k periods, whichever plan serves it.
A change that is requested while a switch is in progress takes effect when it has ended; a change that leads to no plan,
or to none that the board reaches while it runs, is refused, and the old plan goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from socsched.errors import UsageError
from socsched.faults.model import Dropout, Faults, Slowdown, Stall
from socsched.limits import HORIZON_NS
from socsched.modebook.cells import NONE, Cell
from socsched.modebook.transitions import beyond
from socsched.progress import tell
from socsched.sim.simulate import run
from socsched.trace.metrics import frame_fates

if TYPE_CHECKING:
    from socsched.modebook.book import Book, Change, Drive, SwitchEntry
    from socsched.planning.plan import Plan, Task
    from socsched.trace.trace import Job, Trace

LINGERS = 10**9
"""Time (ns) for which a fault that has ended may still show in the backlog of a plan."""


@dataclass(slots=True)
class SwitchRecord:
    """A simulated switch, or a refused change (`why`); times in ns: of the request, drains and outputs from it.

    A drain ends at its bound: frames that are not done then are `abandoned`.  `disturbed`: an injected fault may have
    delayed the drain or the frames before it.
    """

    source: Cell
    target: Cell
    requested_ns: int
    why: str = ""
    drain_ns: int = 0
    drain_bound_ns: int = 0
    switch_ns: int = 0
    switch_bound_ns: int = 0
    held: Counter[str] = field(default_factory=Counter)
    held_bound: Mapping[str, int] = field(default_factory=dict)
    unpaired: Counter[str] = field(default_factory=Counter)
    unpaired_bound: Mapping[str, int] = field(default_factory=dict)
    first_ns: dict[str, int] = field(default_factory=dict)
    first_bound_ns: Mapping[str, int | None] = field(default_factory=dict)
    abandoned: int = 0
    disturbed: bool = False

    @property
    def within(self) -> bool:
        """Return whether every figure is within its bound."""
        return (
            self.drain_ns <= self.drain_bound_ns
            and (self.disturbed or not self.abandoned)
            and (
                self.disturbed  # books written before the bound have none
                or all(count <= self.unpaired_bound.get(name, count) for name, count in self.unpaired.items())
            )
            and self.switch_ns <= self.switch_bound_ns
            and all(count <= self.held_bound[name] for name, count in self.held.items())
            and all(
                bound is None or value <= bound
                for name, value in self.first_ns.items()
                for bound in [self.first_bound_ns.get(name)]
            )
        )


@dataclass(slots=True)
class BookSimulation:
    """A simulated book: frames by source and fate, responses of chains (ns), late frames, and the switches.

    `expected`: source -> the least and the most frames that it releases, which jitter makes differ at the end and
    where a period changes, as do injected delays; sporadic sources, and those that send bursts or delay frames by more
    than a period, have no such numbers.
    """

    duration_ns: int
    seed: int
    switches: list[SwitchRecord] = field(default_factory=list)
    frames: dict[str, Counter[str]] = field(default_factory=dict)
    expected: dict[str, tuple[int, int]] = field(default_factory=dict)
    longest_ns: dict[str, int] = field(default_factory=dict)
    late: Counter[str] = field(default_factory=Counter)
    completed: Counter[str] = field(default_factory=Counter)
    stretches: list[tuple[Cell, int, int]] = field(default_factory=list)

    @property
    def unaccounted(self) -> int:
        """Return the frames without a known fate, and those by which the accounts differ from the releases."""
        lost = sum(count[UNACCOUNTED] for count in self.frames.values())
        totals = [(self.frames[name].total(), least, most) for name, (least, most) in self.expected.items()]
        return lost + sum(max(least - total, total - most, 0) for total, least, most in totals)

    @property
    def met(self) -> bool:
        """Return whether all frames are accounted for, none is late, and every switch is within its bounds."""
        return not self.unaccounted and not self.late.total() and all(one.within for one in self.switches)

    def document(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "schema_version": "1",
            "kind": "book",
            "duration_ns": self.duration_ns,
            "seed": self.seed,
            "unaccounted": self.unaccounted,
            "frames": {name: {fate: count[fate] for fate in FATES} for name, count in self.frames.items()},
            "chains": {
                name: {"completed": self.completed[name], "late": self.late[name], "max_ns": self.longest_ns[name]}
                for name in self.longest_ns
            },
            "stretches": [{"cell": str(c), "from_ns": a, "until_ns": b} for c, a, b in self.stretches],
            "switches": [_plain(one) for one in self.switches],
        }


def _plain(one: SwitchRecord) -> dict[str, Any]:
    where = {"from": str(one.source), "to": str(one.target), "requested_ns": one.requested_ns}
    if one.why:
        return {**where, "refused": one.why}
    return {
        **where,
        "within": one.within,
        "abandoned": one.abandoned,
        "drain_ns": one.drain_ns,
        "drain_bound_ns": one.drain_bound_ns,
        "switch_ns": one.switch_ns,
        "switch_bound_ns": one.switch_bound_ns,
        "held": dict(one.held),
        "held_bound": dict(one.held_bound),
        "unpaired": dict(one.unpaired),
        "unpaired_bound": dict(one.unpaired_bound),
        "first_ns": dict(one.first_ns),
        "first_bound_ns": dict(one.first_bound_ns),
    }


def simulate_book(
    book: Book, drive: Drive, duration_ns: int, seed: int = 0, faults: Faults | None = None
) -> BookSimulation:
    """Simulate a book through a drive for `duration_ns`; `faults` apply in addition, at their own instants.

    Raises UsageError if the first cell has no feasible plan or the duration is out of range.
    """
    if not 0 < duration_ns <= HORIZON_NS // 2:
        raise UsageError(f"expected a duration from 1 to {HORIZON_NS // 2} ns, got {duration_ns} ns")
    if book.entry(drive.start).verdict != "feasible":
        raise UsageError(f"cell {drive.start} has no feasible plan", "start elsewhere")
    done = BookSimulation(duration_ns, seed)
    delays: dict[str, int] = {}
    for delay in faults.delays if faults else ():
        delays[delay.sensor] = max(delays.get(delay.sensor, 0), delay.by_ns)
    clocks = _Clocks(delays)
    cell, start, reached = drive.start, 0, 0
    pending: SwitchRecord | None = None
    waiting = list(drive.changes)
    while True:
        plan = book.plan(cell)
        change, entry = _next(book, cell, waiting, start, duration_ns, done)
        until = duration_ns if change is None else max(change.at_ns, start)
        stretch = _Stretch(book, plan, cell, start, until, change, entry)
        trace = stretch.run(seed + reached, faults or Faults())
        stretch.account(trace, done, pending, faults or Faults())
        done.stretches.append((cell, start, until))
        tell("simulating", until, duration_ns, "ns")
        if change is None or entry is None:
            break
        pending = stretch.switched(change, entry, done, faults or Faults(), pending, clocks)
        start = until + pending.switch_ns
        cell, reached = change.target, reached + 1
        if start >= duration_ns:
            break
    bursts = {burst.sensor for burst in faults.bursts} if faults else set[str]()
    for name, source in _sources(book.plan(cell)).items():
        piled_up = source.jitter_ns + delays.get(name, 0) > source.period_ns and name in delays
        if not source.sporadic and name not in bursts and not piled_up:
            done.expected[name] = clocks.count(name, source, duration_ns)
    return done


def _next(
    book: Book, cell: Cell, waiting: list[Change], start: int, duration_ns: int, done: BookSimulation
) -> tuple[Change | None, SwitchEntry | None]:
    """Return the next change that can be made, recording those that cannot."""
    while waiting and max(waiting[0].at_ns, start) < duration_ns:
        change = waiting.pop(0)
        target = change.target
        entry = book.switch(cell, target)
        if target == cell:
            continue
        why = entry.why if entry is not None else "more than one coordinate differs from the plan in charge"
        if entry is not None and not why:
            return change, entry
        done.switches.append(SwitchRecord(cell, target, max(change.at_ns, start), why))
    return None, None


class _Stretch:
    """The time under one plan: from `start` until a change is requested or the simulation ends."""

    def __init__(
        self,
        book: Book,
        plan: Plan,
        cell: Cell,
        start: int,
        until: int,
        change: Change | None,
        entry: SwitchEntry | None,
    ) -> None:
        self.book, self.cell, self.start, self.until = book, cell, start, until
        self.change, self.entry = change, entry
        self.first = first_frames(plan, start)
        self.plan = phased(plan, start, self.first)
        self.lost = change.target.loss if change is not None and cell.loss == NONE else NONE
        self.ended = 0
        self.served: dict[str, int] = {}
        self.abandoned = 0
        self.unpaired = Counter[str]()

    def run(self, seed: int, faults: Faults) -> Trace:
        """Simulate the stretch with its drain; sources stop at the request."""
        length = self.until - self.start
        room = self.entry.drain_ns or 0 if self.entry is not None else 0
        more = shifted(faults, self.start, self.plan)
        if self.change is not None:
            stop = length + room + 2
            silent = tuple(Dropout(name, length, stop) for name in _sources(self.plan))
            more = replace(more, dropouts=(*more.dropouts, *silent))
            if self.lost != NONE and self.lost in {engine.id for engine in self.plan.engines}:
                more = replace(more, stalls=(*more.stalls, Stall(self.lost, length, stop, True)))
            factor = self._heat()
            if factor > 1:
                hot = tuple(Slowdown(engine.id, length, stop, factor, True) for engine in self.plan.engines)
                more = replace(more, slowdowns=(*more.slowdowns, *hot))
        trace = run(self.plan, length + room + 1 if self.change else length, seed, None, more).trace
        assert trace is not None
        return trace

    def _heat(self) -> Fraction:
        """Return the factor by which a hotter state slows the drain."""
        assert self.change is not None
        shares = self.book.document.thermal
        here, there = shares[self.cell.thermal], shares[self.change.target.thermal]
        return max(Fraction(str(here)) / Fraction(str(there)), Fraction(1))

    def account(self, trace: Trace, done: BookSimulation, pending: SwitchRecord | None, faults: Faults) -> None:
        """Add the frames and responses of the stretch, and the first outputs after the switch that led to it.

        A first output that injected faults may have delayed is left out, since bounds do not cover them, and so is one
        after the next request.
        """
        length = self.until - self.start
        gone = frozenset(beyond(self.plan, self.lost)) if self.lost != NONE else frozenset[str]()
        fates, self.ended = account(self.plan, trace, length, gone, self.change is None)
        self.served = {source: count.total() for source, count in fates.items()}
        self.abandoned = sum(count[ABANDONED] for count in fates.values())
        self.unpaired = Counter({source: count[UNPAIRED] for source, count in fates.items() if count[UNPAIRED]})
        for source, count in fates.items():
            done.frames.setdefault(source, Counter()).update(count)
        for chain in self.plan.chains:
            found = frame_fates(trace, self.plan, chain)
            answered = found.completed & (found.release_ns < length)
            times = (found.finish_ns - found.release_ns)[answered]
            done.completed[chain.name] += len(times)
            done.late[chain.name] += int((times > chain.deadline_ns).sum())
            done.longest_ns[chain.name] = max(done.longest_ns.get(chain.name, 0), int(times.max(initial=0)))
            outputs = found.finish_ns[found.completed & (found.finish_ns <= length)]
            bound = pending.first_bound_ns.get(chain.name) if pending is not None else None
            if (
                pending is not None
                and bound is not None
                and len(outputs)
                and not disturbed(faults, pending.requested_ns, pending.requested_ns + bound)
            ):
                pending.first_ns[chain.name] = self.start + int(outputs.min()) - pending.requested_ns

    def switched(
        self,
        change: Change,
        entry: SwitchEntry,
        done: BookSimulation,
        faults: Faults,
        before: SwitchRecord | None,
        clocks: _Clocks,
    ) -> SwitchRecord:
        """Return the record of the switch that ends the stretch, and count the frames held between the plans.

        `before`: the switch that began the stretch.  A source whose period changes releases no more of the frames that
        were counted as held then and would come only now.
        """
        limit = entry.drain_ns or 0
        drained = limit if self.abandoned else max(self.ended - (self.until - self.start), 0)
        record = SwitchRecord(
            self.cell,
            change.target,
            self.until,
            drain_ns=drained,
            drain_bound_ns=limit,
            switch_ns=drained + entry.setup_ns,
            switch_bound_ns=entry.switch_ns or 0,
            held_bound=entry.held,
            unpaired=self.unpaired,
            unpaired_bound=entry.unpaired,
            first_bound_ns=entry.first_ns,
            abandoned=self.abandoned,
            disturbed=disturbed(faults, self.until - LINGERS, self.until + limit),
        )
        done.switches.append(record)
        target = self.book.plan(change.target)
        here = _sources(self.book.plan(self.cell))
        following = first_frames(target, min(self.until + record.switch_ns, done.duration_ns))
        resumed = self.until + record.switch_ns < done.duration_ns
        for name, source in _sources(target).items():
            end = source.before(done.duration_ns)
            begins = min(following[name], end) if resumed else end
            if here[name].period_ns != source.period_ns:
                clocks.change(name, here[name], source, self.until)
                early = max(self.first[name] - here[name].before(self.until), 0)
                ended = source.before(self.until)
                if before is not None and early:
                    before.held[name] -= early
                    done.frames[name][HELD] -= early
            elif source.sporadic:  # held frames are counted as if they came at the shortest distance
                ended = max(self.first[name], source.before(self.until))
            else:
                nominal = max(source.before(self.until) - self.first[name], 0)
                ended = self.first[name] + min(self.served.get(name, 0), nominal)
            held = max(begins - ended, 0)
            record.held[name] = held
            done.frames[name][HELD] += held
        return record


@dataclass(frozen=True, slots=True)
class _Source:
    """Releases of a sensor or timer (ns): frame k at the offset plus k periods, up to the jitter later."""

    period_ns: int
    offset_ns: int
    jitter_ns: int
    sporadic: bool

    def before(self, until_ns: int) -> int:
        """Return how many nominal releases come before an instant."""
        return -(-max(until_ns - self.offset_ns, 0) // self.period_ns)


def _sources(plan: Plan) -> dict[str, _Source]:
    sensors = {s.name: _Source(s.period_ns, s.offset_ns, s.jitter_ns, bool(s.gap_ns)) for s in plan.sensors}
    return sensors | {
        t.name: _Source(t.period_ns, t.offset_ns, t.release_jitter_ns, bool(t.gap_ns or t.closed_by))
        for t in plan.tasks
        if t.timer
    }


class _Clocks:
    """The frames that sources release by the clock alone, whichever plans serve them.

    `delays`: sensor -> the largest delay (ns) that a fault injects, after which a frame may come too late to count.
    """

    def __init__(self, delays: Mapping[str, int]) -> None:
        self._delays = delays
        self._begun: dict[str, int] = {}
        self._past: dict[str, tuple[int, int]] = {}

    def count(self, name: str, source: _Source, until_ns: int) -> tuple[int, int]:
        """Return the least and the most frames of a source before an instant."""
        least, most = self._past.get(name, (0, 0))
        begun = self._begun.get(name, 0)
        late = source.before(until_ns - source.jitter_ns - self._delays.get(name, 0))
        return least + max(late - begun, 0), most + max(source.before(until_ns) - begun, 0)

    def change(self, name: str, old: _Source, new: _Source, at_ns: int) -> None:
        """Go on with another period: frames of the old one end, and those of the new one begin, at an instant."""
        self._past[name] = self.count(name, old, at_ns)
        self._begun[name] = new.before(at_ns)


def first_frames(plan: Plan, start_ns: int) -> dict[str, int]:
    """Return source -> the first frame served by a plan that starts at an instant: the same for equal periods."""
    first: dict[int, int] = {}
    for source in _sources(plan).values():
        first[source.period_ns] = max(first.get(source.period_ns, 0), source.before(start_ns))
    return {name: first[source.period_ns] for name, source in _sources(plan).items()}


def phased(plan: Plan, start_ns: int, first: Mapping[str, int]) -> Plan:
    """Return a plan that starts at an instant, its sources in their phase."""

    def offset(name: str, period: int, own: int) -> int:
        return own + first[name] * period - start_ns

    return replace(
        plan,
        sensors=tuple(replace(s, offset_ns=offset(s.name, s.period_ns, s.offset_ns)) for s in plan.sensors),
        tasks=tuple(
            replace(t, offset_ns=offset(t.name, t.period_ns, t.offset_ns)) if t.timer else t for t in plan.tasks
        ),
    )


def shifted(faults: Faults, start_ns: int, plan: Plan) -> Faults:
    """Return faults on the clock of a stretch, without those that ended before it or concern nothing in its plan."""
    engines = {engine.id for engine in plan.engines}
    names = {sensor.name for sensor in plan.sensors}

    def window(fault: Any) -> Any:
        return replace(fault, from_ns=max(fault.from_ns - start_ns, 0), until_ns=fault.until_ns - start_ns)

    def kept(listed: tuple[Any, ...], known: set[str], key: str) -> tuple[Any, ...]:
        return tuple(window(one) for one in listed if one.until_ns > start_ns and getattr(one, key) in known)

    bursts = tuple(replace(b, at_ns=b.at_ns - start_ns) for b in faults.bursts if b.at_ns >= start_ns)
    stages = {task.name for task in plan.tasks}
    return Faults(
        dropouts=kept(faults.dropouts, names, "sensor"),
        slowdowns=kept(faults.slowdowns, engines, "engine"),
        overruns=tuple(one for one in faults.overruns if one.stage in stages),
        stalls=kept(faults.stalls, engines, "engine"),
        delays=kept(faults.delays, names, "sensor"),
        bursts=bursts,
        hogs=kept(faults.hogs, engines, "engine"),
    )


def disturbed(faults: Faults, from_ns: int, until_ns: int) -> bool:
    """Return whether an injected fault may act between two instants."""
    windows: tuple[Any, ...] = (*faults.dropouts, *faults.slowdowns, *faults.stalls, *faults.delays, *faults.hogs)
    return (
        bool(faults.overruns)
        or any(from_ns <= burst.at_ns < until_ns for burst in faults.bursts)
        or any(one.from_ns < until_ns and one.until_ns > from_ns for one in windows)
    )


COMPLETED, DROPPED, ABORTED, LOST, DROPOUT, UNPAIRED, HELD, ABANDONED, UNFINISHED, UNACCOUNTED = (
    "completed", "dropped", "aborted", "lost", "dropout", "unpaired", "held", "abandoned", "unfinished", "unaccounted",
)  # fmt: skip
"""Fates: all jobs done; dropped by a queue or before its start; aborted; lost with an engine; never delivered by its
sensor; released before a switch was requested, while the frame that a join needs with it was held; released between two
plans; not done when the drain's bound ends a plan, which faults alone can cause; in progress at the end of the
simulation; none of these, which is an error."""
FATES = (COMPLETED, DROPPED, ABORTED, LOST, DROPOUT, UNPAIRED, HELD, ABANDONED, UNFINISHED, UNACCOUNTED)
_ORDER = (UNACCOUNTED, LOST, ABORTED, DROPPED, DROPOUT, ABANDONED, UNPAIRED, UNFINISHED, COMPLETED)
"""The fate of a frame is the first of these among its jobs'."""


def account(
    plan: Plan, trace: Trace, until_ns: int, gone: frozenset[str], last: bool
) -> tuple[dict[str, Counter[str]], int]:
    """Return source -> fates of the frames released before `until_ns`, and the instant the last of their jobs ended.

    `gone`: tasks that need an engine lost at `until_ns`; `last`: the simulation ends then, else the drain, in which
    sources deliver nothing.  A frame from then on that has a job all the same is unaccounted.
    """
    jobs = {(job.task, job.frame): job for job in trace.jobs}
    undelivered = {
        (one.subject, one.frame): one.time_ns
        for one in trace.instants
        if one.kind == "drop" and one.subject in trace.releases and one.text.startswith("frame lost")
    }
    # releases of timers are listed at their nominal instants, so a late one may be listed before the request
    released = {
        source: sum(at < until_ns and undelivered.get((source, k), -1) < until_ns for k, at in enumerate(releases))
        for source, releases in trace.releases.items()
    }
    tasks = {task.name: task for task in plan.tasks}
    fates: dict[str, Counter[str]] = {source: Counter() for source in trace.releases}
    ended = 0
    for source, releases in trace.releases.items():
        behind = _followers(source, plan.tasks)
        for frame in range(len(releases)):
            own = [job for name in behind if (job := jobs.get((name, frame))) is not None]
            if frame < released[source]:
                story = _Frame(frame, tasks, jobs, undelivered, released, gone, last, {})
                fates[source][min((story.fate(name) for name in (source, *behind)), key=_ORDER.index)] += 1
                ended = max(ended, *(job.finish_ns for job in own), 0)
            elif own:
                fates[source][UNACCOUNTED] += 1
    return fates, ended


def _followers(source: str, tasks: tuple[Task, ...]) -> list[str]:
    """Return the tasks that frames of a source trigger, itself if it is a timer."""
    followers = [task.name for task in tasks if task.name == source]
    reached = {source}
    more = True
    while more:
        fresh = [task.name for task in tasks if task.name not in reached and reached & set(task.after)]
        reached.update(fresh)
        followers += fresh
        more = bool(fresh)
    return followers


@dataclass(frozen=True, slots=True)
class _Frame:
    """Everything about the frames of one number: the arguments of `account` and what it derived from them."""

    number: int
    tasks: Mapping[str, Task]
    jobs: Mapping[tuple[str, int], Job]
    undelivered: Mapping[tuple[str, int], int]
    released: Mapping[str, int]
    gone: frozenset[str]
    last: bool
    known: dict[str, str]

    def fate(self, name: str) -> str:
        """Return the fate of a sensor's frame or a task's job; a job that never came has that of the input it lacks."""
        if name not in self.known:
            self.known[name] = self._fate(name)
        return self.known[name]

    def _fate(self, name: str) -> str:
        if self.number >= self.released.get(name, self.number + 1):  # a source whose frame has not come
            return UNFINISHED if self.last else UNPAIRED
        if (name, self.number) in self.undelivered:
            return DROPOUT
        job = self.jobs.get((name, self.number))
        if name not in self.tasks or (job is not None and job.status == "done"):
            return COMPLETED
        task = self.tasks[name]
        if name in self.gone and (job is not None or not task.after):
            return LOST
        if job is not None:
            return {"dropped": DROPPED, "aborted": ABORTED}.get(job.status, UNFINISHED if self.last else ABANDONED)
        lacking = min((self.fate(other) for other in task.after), key=_ORDER.index, default=COMPLETED)
        return UNACCOUNTED if lacking == COMPLETED else lacking  # if all inputs came, there should be a job
