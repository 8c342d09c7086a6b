"""Switches between the plans of a book, by the idle-time protocol, and their bounds.

Protocol (K. Tindell, A. Alonso, "A very simple protocol for mode changes in priority preemptive systems", technical
report, Universidad Politécnica de Madrid, 1996; synchronous and without periodicity in the survey of J. Real,
A. Crespo, "Mode change protocols for real-time systems: a survey and a new proposal", Real-Time Systems 26(2), 2004):
from the request on, no sensor or timer releases a frame to the old plan; the frames released before end under it; once
none is left, the board is set up and the new plan starts with the next release of every source.  Sources that share a
period start with the same frame number, so that joins stay aligned.  A frame is unpaired if a join needs it together
with a frame of another source that comes after the request: the join never gets that one, so it starts no job.

Bounds.  The jobs that run are those all of whose frames came before the request, and so did those of the jobs they wait
for.  They meet the old plan's responses: releases that stop are a case of the arrivals that its analysis admits.  So
the last ends within the largest response bound.  In addition, some of them executes at any instant before the last
end, since every lane is work-conserving; so the drain lasts no longer than the work of all frames that can be
pending.  The smaller bound counts.  The new plan starts without pending work and with a suffix
of its own arrivals, so its analysis holds from its first release on.  No frame is under two plans.

Overlapping protocols have shorter pauses, but need an analysis of both plans together for every pair of cells; here
both keep their own, and the only new proof is that of the drain.

A hotter thermal state slows the old plan while it drains: its times are stretched by the largest ratio of clocks.  A
lost engine ends the jobs that need it; tasks on other engines drain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from socsched.modebook.cells import NONE, Axes, Cell, CellContext
from socsched.planning.plan import Plan
from socsched.schedulability.plan_analysis import respond
from socsched.schedulability.tasks import Response, RtTask, rt_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from socsched.modebook.build import Entry

RESPONSES, WORK = "response bounds of the old plan", "pending work of the old plan"


@dataclass(frozen=True, slots=True)
class Drain:
    """The longest time (ns) from the request to the end of the last frame of the old plan, and what gives it.

    `worst`: the task with the largest response, if responses give the bound.
    """

    ns: int
    by: str
    worst: str = ""


@dataclass(frozen=True, slots=True)
class Switch:
    """A transition between two cells with its bounds (ns, from the request).

    `switch_ns`: until the new plan runs; `held`: source -> the most frames released between the plans, which neither
    serves; `first_ns`: chain -> the first output of the new plan, None without a bound.  `why`: the reason why there is
    no switch while the board runs, empty if there is one.  `unpaired`: source -> the most frames that are unpaired.
    """

    source: Cell
    target: Cell
    drain: Drain | None
    setup_ns: int
    held: Mapping[str, int]
    first_ns: Mapping[str, int | None]
    why: str = ""
    unpaired: Mapping[str, int] = field(default_factory=dict)

    @property
    def switch_ns(self) -> int:
        """Return the longest time (ns) from the request until the new plan runs."""
        return (self.drain.ns if self.drain else 0) + self.setup_ns


def switches(entries: list[Entry], axes: Axes, context: CellContext, setup_ns: int) -> list[Switch]:
    """Return the transitions between cells that differ in one coordinate, from cells with a feasible plan.

    A thermal state changes to its neighbours, a loss to and from none.
    """
    by_cell = {entry.cell: entry for entry in entries}
    drains: dict[tuple[Cell, Fraction, str], Drain | None] = {}
    found = []
    for entry in entries:
        if entry.plan.verdict != "feasible":
            continue
        for target in neighbours(entry.cell, axes):
            lost = target.loss if entry.cell.loss == NONE else NONE
            key = (entry.cell, slowdown(entry.cell, target, context), lost)
            if key not in drains:
                drains[key] = drain(entry.plan, key[1], lost)
            found.append(_switch(entry, by_cell[target], drains[key], setup_ns, context))
    return found


def neighbours(cell: Cell, axes: Axes) -> Iterator[Cell]:
    """Yield the cells that one change leads to."""
    for mode in axes.modes:
        if mode != cell.mode:
            yield replace(cell, mode=mode)
    at = axes.thermal.index(cell.thermal)
    for state in axes.thermal[max(at - 1, 0) : at + 2]:
        if state != cell.thermal:
            yield replace(cell, thermal=state)
    for loss in axes.losses if cell.loss == NONE else (NONE,):
        if loss != cell.loss:
            yield replace(cell, loss=loss)
    for condition in axes.conditions:
        if condition != cell.condition:
            yield replace(cell, condition=condition)


def slowdown(source: Cell, target: Cell, context: CellContext) -> Fraction:
    """Return the largest factor by which the old plan's jobs slow down at the request: only heat slows them."""
    if source.thermal == target.thermal:
        return Fraction(1)
    here, there = context.mode(source), context.mode(replace(source, thermal=target.thermal))
    return (
        max(
            (
                Fraction(state.clock_hz, there.engines[name].clock_hz)
                for name, state in here.engines.items()
                if state.units and there.engines[name].clock_hz
            ),
            default=Fraction(1),
        ).limit_denominator(10**6)
        if there.name != here.name
        else Fraction(1)
    )


def drain(plan: Plan, factor: Fraction = Fraction(1), lost: str = NONE) -> Drain | None:
    """Return the longest drain of a plan, its jobs slowed by `factor` and without a lost engine; None if unbounded."""
    factor = max(factor, Fraction(1))
    normal = rt_tasks(plan)
    gone = using(plan, lost)  # tasks behind them may have jobs whose inputs came in time
    slow = {name: _stretched(task, factor) for name, task in normal.items()}
    usual = respond(plan.policy, normal).tight
    found = usual if factor == 1 else respond(plan.policy, slow).tight
    left = [name for name in normal if name not in gone]
    if any(segment.hold and segment.engine == lost for task in plan.tasks for segment in task.segments):
        return None  # a job that waits for the lost engine keeps its lanes
    if not left:
        return Drain(0, RESPONSES)
    options = []
    if all(found[name].bounded for name in left):
        worst = max(left, key=lambda name: found[name].value)
        options.append(Drain(found[worst].value, RESPONSES, worst))
    if _work_conserving(plan):
        frames = _pending(plan, usual)
        work = sum(frames[name] * (slow[name].wcet + slow[name].switch) for name in left)
        options.append(Drain(work, WORK))
    return min(options, key=lambda one: one.ns, default=None)


def _stretched(task: RtTask, factor: Fraction) -> RtTask:
    def times(value: int) -> int:
        return -(-value * factor.numerator // factor.denominator)

    return replace(task, wcet=times(task.wcet), segment=times(task.segment), switch=times(task.switch))


def using(plan: Plan, lost: str) -> set[str]:
    """Return the tasks that run on a lost engine, as a whole or in a segment."""
    return {task.name for task in plan.tasks if lost in (task.engine, *(segment.engine for segment in task.segments))}


def beyond(plan: Plan, lost: str) -> set[str]:
    """Return the tasks that need a lost engine, and those that wait for them."""
    gone = using(plan, lost)
    waiting = True
    while waiting:
        more = {task.name for task in plan.tasks if task.name not in gone and gone & set(task.after)}
        gone |= more
        waiting = bool(more)
    return gone


def _pending(plan: Plan, responses: Mapping[str, Response]) -> dict[str, int]:
    """Return the most frames of each task that are released and not done at any instant."""
    tasks = {task.name: task for task in plan.tasks}
    held: dict[str, int] = {}

    def waiting(name: str) -> int:
        """Return the frames that queues up to this task hold, one in progress at each."""
        if name not in held:
            task = tasks[name]
            held[name] = task.queue + 1 + sum(waiting(other) for other in task.after if other in tasks)
        return held[name]

    return {
        name: min(waiting(name), responses[name].value // task.period_ns + 1)
        if responses[name].bounded
        else waiting(name)
        for name, task in tasks.items()
    }


def _work_conserving(plan: Plan) -> bool:
    """Return whether a lane never idles while one of its jobs waits, and no work is done twice."""
    return not any(e.linger_ns or e.preemption == "restart" for e in plan.engines) and not any(
        task.budget_ns for task in plan.tasks
    )


def _switch(entry: Entry, to: Entry, drained: Drain | None, setup_ns: int, context: CellContext) -> Switch:
    def refused(why: str) -> Switch:
        return Switch(entry.cell, to.cell, drained, setup_ns, {}, {}, why)

    if to.plan.verdict != "feasible":
        return refused(f"no feasible plan: {to.plan.verdict}")
    if fixed := _gated(entry.cell, to.cell, context):
        return refused(f"needs a restart of the board, which sets the units of {', '.join(fixed)} once")
    if drained is None:
        return refused("the drain of the old plan has no bound")
    spreads = start_spread(to.plan)
    gap = drained.ns + setup_ns
    held, first = {}, {}
    for name, (period, jitter, spread) in spreads.items():
        held[name] = -(-(gap + spread + jitter) // period)
    for chain in to.plan.chains:
        period, jitter, spread = spreads[chain.path[0]]
        first[chain.name] = None if chain.bound_ns is None else gap + period + spread + jitter + chain.bound_ns
    return Switch(entry.cell, to.cell, drained, setup_ns, held, first, unpaired=unpaired(entry.plan))


def _gated(source: Cell, target: Cell, context: CellContext) -> list[str]:
    """Return the engines whose units change by power gating, which boards apply when they start."""
    here, there = context.mode(source).engines, context.mode(target).engines
    return [
        e.id
        for e in context.platform.engines
        if e.gating and source.loss == target.loss and here[e.id].units != there[e.id].units
    ]


def unpaired(plan: Plan) -> dict[str, int]:
    """Return source -> the most frames that a request leaves unpaired, for every source of a join.

    Frame k of it comes at its offset plus k periods at the earliest, that of a partner at the partner's offset plus k
    periods and its jitter at the latest; the request is between the two.
    """
    times = {s.name: (s.period_ns, s.offset_ns, s.jitter_ns) for s in plan.sensors}
    times |= {t.name: (t.period_ns, t.offset_ns, t.release_jitter_ns) for t in plan.tasks if t.timer}
    sources = {name: {name} for name in times}
    waiting = [task for task in plan.tasks if not task.timer]
    while waiting:
        for task in [one for one in waiting if all(name in sources for name in one.after)]:
            sources[task.name] = set().union(*(sources[name] for name in task.after))
            waiting.remove(task)
    most: dict[str, int] = {}
    for joined in sources.values():
        for name in joined if len(joined) > 1 else ():
            period, offset, _ = times[name]
            latest = max(times[other][1] + times[other][2] for other in joined - {name})
            most[name] = max(most.get(name, 0), -(-max(latest - offset, 0) // period))
    return most


def start_spread(plan: Plan) -> dict[str, tuple[int, int, int]]:
    """Return source -> period, jitter with gap, and its offset less the smallest of its period, in ns."""
    sources = {s.name: (s.period_ns, s.jitter_ns + s.gap_ns, s.offset_ns) for s in plan.sensors}
    sources |= {t.name: (t.period_ns, t.release_jitter_ns + t.gap_ns, t.offset_ns) for t in plan.tasks if t.timer}
    least: dict[int, int] = {}
    for period, _, offset in sources.values():
        least[period] = min(least.get(period, offset), offset)
    return {name: (period, jitter, offset - least[period]) for name, (period, jitter, offset) in sources.items()}
