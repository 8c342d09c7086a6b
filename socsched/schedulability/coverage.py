"""What a plan may state that no analysis of plans covers, field by field of plan.json.

The planner writes plans within the model of docs/proofs.md; a file may hold anything that the simulator can run.  Every
field that decides a schedule is classified here, and a plan with a value outside the model has no bound at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from socsched.cost.cost import Segment, Shared
from socsched.descriptor.platform import ContentionChoice
from socsched.planning.plan import (
    ChainResult,
    Level,
    Plan,
    PlannedEngine,
    PlannedSensor,
    Requirement,
    Throttle,
    Transition,
)
from socsched.planning.task import ExecutionTimes, Task
from socsched.schedulability.tasks import components, rt_tasks, timer_jitter, upstream

POLICIES = ("edf", "fp")
MODELLED, RECOMPUTED, CHECKED, NO_EFFECT = "modelled", "recomputed", "checked", "no effect"
"""Counted by the analysis; derived anew from other fields; covered within limits (`outside`); of no schedule."""

FIELDS: Mapping[type, Mapping[str, str]] = {
    Plan: {
        MODELLED: "sensors dram_bandwidth contention requirements",
        RECOMPUTED: "verdict chains violations",
        CHECKED: "policy engines tasks throttle",
        NO_EFFECT: "platform mode pipeline transitions power bandwidth memory solver inputs base_mw"
        " dram_picojoule_per_byte provenance tool conflicts uncertainty",
    },
    PlannedEngine: {
        MODELLED: "lanes preemption in_flight switch_ns bandwidth migration_ns reshape_ns reset_ns capacities"
        " memory_bytes swap_bandwidth",
        CHECKED: "policy governor linger_ns",
        NO_EFFECT: "id kind idle_mw dynamic_mw quantum_ns levels look_ns busy_ppm",
    },
    PlannedSensor: {MODELLED: "period_ns offset_ns jitter_ns", CHECKED: "gap_ns", NO_EFFECT: "name bytes_per_frame"},
    Task: {
        MODELLED: "timer offset_ns overflow release_jitter_ns engine lanes weights_bytes bytes degraded"
        " times on_late criticality",
        RECOMPUTED: "wcet_ns jitter_ns",
        CHECKED: "after period_ns gap_ns closed_by queue width cost_ns segments high_ns priority deadline_ns",
        NO_EFFECT: "name kind reads precision process runtime energy_uj provenance source error budget_ns server_ns"
        " model params why shared",
    },
    Shared: {NO_EFFECT: "share_ns memory_ns cache_ns launches_ns by"},
    Segment: {MODELLED: "time_ns fixed_ns bytes", CHECKED: "engine lanes hold", NO_EFFECT: "name"},
    ExecutionTimes: {MODELLED: "values_ns interpolate"},
    ContentionChoice: {MODELLED: "model parameters engines"},
    Requirement: {MODELLED: "subject kind value names"},
    ChainResult: {
        MODELLED: "deadline_ns max_age_ns",
        RECOMPUTED: "bound_ns terms test",
        CHECKED: "path",
        NO_EFFECT: "name expected_ns",
    },
    Throttle: {CHECKED: "period_ns cap_mw recover ambient_mc resistance_mk_per_w time_constant_ns trip_mc recover_mc"},
    Level: {NO_EFFECT: "clock_hz dynamic_mw"},
    Transition: {NO_EFFECT: "source sink bytes layout_from layout_to dtype_from dtype_to engine task cost_ns"},
}
"""The class of every field under EDF and fixed priorities.  Of a throttle, its existence is outside."""


def outside(plan: Plan) -> tuple[str, ...]:
    """Return what no analysis covers, a line for each case; empty: the bounds of `plan_analysis` hold."""
    if plan.policy not in POLICIES:
        return (f"policy {plan.policy}: only plans under EDF or fixed priorities have bounds",)
    found: list[str] = []
    for check in (_board, _tasks, _sources, _order, _chains):
        found += check(plan)
    return tuple(dict.fromkeys(found))


def _board(plan: Plan) -> Iterator[str]:
    used = {task.engine for task in plan.tasks}
    for engine in plan.engines:
        if engine.id not in used:
            continue
        where = f"engine {engine.id}"
        if engine.policy != plan.policy:
            yield f"{where}: its policy is {engine.policy}, that of the plan {plan.policy}"
        if engine.linger_ns:
            yield f"{where}: linger_ns, which leaves it idle while work of another process waits"
        if engine.governor != "static":
            yield f"{where}: governor {engine.governor}; bounds hold for the planned clock"
    if plan.throttle is not None:
        yield "throttle: clocks that change at run time; bounds hold for the planned ones"


def _tasks(plan: Plan) -> Iterator[str]:
    for task in plan.tasks:
        where = f"task {task.name}"
        if not task.queue:
            yield f"{where}: queue 0, which loses a frame that comes while another is worked on"
        if task.width not in (0, len(set(task.lanes))):
            yield f"{where}: width {task.width}, lanes chosen at run time"
        if any(part.engine or part.lanes or part.hold for part in (*task.segments, *task.degraded)):
            yield f"{where}: a segment on another engine"
        planned = sum(part.time_ns for part in task.segments)
        if task.segments and planned != task.cost_ns:
            yield f"{where}: segments of {planned} ns in total, cost_ns {task.cost_ns}"
        if task.high_ns and task.criticality != "hard":
            yield f"{where}: high_ns of a task that is not hard"


def sources(plan: Plan) -> dict[str, frozenset[str]]:
    """Return the sensors and timers that trigger every task, directly or through others."""
    by_name = {task.name: task for task in plan.tasks}
    origins: dict[str, frozenset[str]] = {}

    def before(name: str) -> tuple[str, ...]:
        task = by_name.get(name)
        return () if task is None or task.timer else task.after

    for task in plan.tasks:
        for name in upstream(task.name, before, origins):
            own = name not in by_name or by_name[name].timer
            origins[name] = frozenset([name]) if own else frozenset().union(*(origins[other] for other in before(name)))
    return {name: origins[name] for name in by_name}


def _sources(plan: Plan) -> Iterator[str]:
    """Yield joins of frames that need not come together, and periods other than those of the sources."""
    loose = {s.name for s in plan.sensors if s.gap_ns}
    loose |= {task.name for task in plan.tasks if task.timer and (task.gap_ns or task.closed_by)}
    periods = {sensor.name: sensor.period_ns for sensor in plan.sensors}
    periods |= {task.name: task.period_ns for task in plan.tasks if task.timer}
    origins = sources(plan)
    for task in plan.tasks:
        mine = sorted(origins[task.name])
        other = next((name for name in mine if periods.get(name, task.period_ns) != task.period_ns), None)
        if other is not None:
            yield f"task {task.name}: period_ns {task.period_ns}, that of {other} is {periods[other]}"
        if len(mine) > 1 and loose & set(mine):
            first = sorted(loose & set(mine))[0]
            yield f"task {task.name}: a join with the sporadic {first}, whose frame k comes any time after the others'"


def _order(plan: Plan) -> Iterator[str]:
    """Yield orders of jobs that the analysis does not have: equal priorities, deadlines before a timer's lateness."""
    if plan.policy == "fp":
        for group in components(rt_tasks(plan).values()):
            seen: dict[int, str] = {}
            for task in group:
                if task.priority in seen:
                    yield f"tasks {seen[task.priority]} and {task.name}: equal priorities on shared lanes"
                seen[task.priority] = task.name
        return
    late = timer_jitter(plan.tasks)
    for own in plan.tasks:
        if own.deadline_ns <= late[own.name]:
            yield f"task {own.name}: deadline_ns {own.deadline_ns} is not beyond the lateness of its timer"


def _chains(plan: Plan) -> Iterator[str]:
    by_name = {task.name: task for task in plan.tasks}
    sources = {sensor.name for sensor in plan.sensors} | {task.name for task in plan.tasks if task.timer}
    for chain in plan.chains:
        where = f"chain {chain.name}"
        if chain.path and chain.path[0] not in sources:
            yield f"{where}: it begins at {chain.path[0]}, neither a sensor nor a timer"
        for one, other in pairwise(chain.path):
            task = by_name.get(other)
            inputs = {*task.after, *task.reads} if task else set()
            if not {one, f"{one}>{other}"} & inputs:
                yield f"{where}: {other} neither waits for nor reads {one}"
        if chain.path and chain.path[-1] not in by_name:
            yield f"{where}: it ends at {chain.path[-1]}, which is no task"
