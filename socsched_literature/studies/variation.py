"""Variants of a plan: other loads, and source phases and execution times drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from socsched.errors import UsageError
from socsched.planning.plan import ChainResult, ExecutionTimes, Plan, Task


def scale_rates(plan: Plan, load: float) -> Plan:
    """Return the plan with every source `load` times as fast, offsets and jitters in proportion; deadlines stay."""
    if load <= 0:
        raise UsageError(f"a load must be above 0, got {load:g}")

    def faster(value: int) -> int:
        return round(value / load)

    sensors = tuple(
        replace(
            s, period_ns=max(faster(s.period_ns), 1), offset_ns=faster(s.offset_ns), jitter_ns=faster(s.jitter_ns),
            gap_ns=faster(s.gap_ns),
        )
        for s in plan.sensors
    )  # fmt: skip
    tasks = tuple(
        replace(
            t, period_ns=faster(t.period_ns) or t.period_ns, offset_ns=faster(t.offset_ns), gap_ns=faster(t.gap_ns),
            release_jitter_ns=faster(t.release_jitter_ns),
        )
        for t in plan.tasks
    )  # fmt: skip
    return replace(plan, sensors=sensors, tasks=tasks)


def vary_plan(plan: Plan, seed: int, spread: float) -> Plan:
    """Return the plan with sources at drawn phases, and jobs that take from ``1 - spread`` of their cost up to it.

    Tasks with given execution times keep them; the cost in a plan is the maximum execution time of a job.
    """

    def phase(name: str, period_ns: int) -> int:
        return Random(f"{seed}:phase:{name}").randrange(max(period_ns, 1))

    def task(each: Task) -> Task:
        cost = sum(segment.time_ns for segment in each.segments) or each.cost_ns
        drawn = each.times
        if drawn is None and spread > 0 and cost:
            drawn = ExecutionTimes((max(round(cost * (1 - spread)), 1), cost), True)
        offset = each.offset_ns + phase(each.name, each.period_ns) if each.timer else each.offset_ns
        return replace(each, times=drawn, offset_ns=offset)

    sensors = tuple(replace(s, offset_ns=s.offset_ns + phase(s.name, s.period_ns)) for s in plan.sensors)
    return replace(plan, sensors=sensors, tasks=tuple(map(task, plan.tasks)))


def programs(plan: Plan) -> tuple[ChainResult, ...]:
    """Return the plan's programs: its chains, or each task by itself if it has none."""
    if plan.chains:
        return plan.chains
    return tuple(ChainResult(t.name, (t.name,), t.deadline_ns, t.cost_ns, None, None, ()) for t in plan.tasks)


def alone(plan: Plan, chain: ChainResult) -> Plan:
    """Return the plan reduced to the needs of a chain: its tasks, and those whose data they wait for or read."""
    known = {task.name: task for task in plan.tasks}
    needed: set[str] = set()
    left = [name for name in chain.path if name in known]
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left += [other for other in (*known[name].after, *known[name].reads) if other in known]
    tasks = tuple(task for task in plan.tasks if task.name in needed)
    return replace(plan, tasks=tasks, chains=(chain,))


def importance(plan: Plan, chain: ChainResult) -> int:
    """Return a chain's priority in PREMA's terms: 9, 3 or 1 for its most critical task (hard, firm, soft)."""
    known = {task.name: task.criticality for task in plan.tasks}
    return max(({"hard": 9, "firm": 3}.get(known[name], 1) for name in chain.path if name in known), default=1)


def applicable(name: str, plan: Plan) -> str:
    """Return the reason why a policy would have no effect on a plan, empty if it applies."""
    from socsched.sim.policies import get_policy

    rule = get_policy(name)
    kinds = {engine.kind for engine in plan.engines if any(task.engine == engine.id for task in plan.tasks)}
    ways = [way for way in rule.preemption if way.kinds]
    if ways and not any(set(way.kinds) & kinds for way in ways):
        return (
            f"applies only to {', '.join(sorted({kind for way in ways for kind in way.kinds}))}, and the plan uses none"
        )
    if rule.serves and not any(task.budget_ns for task in plan.tasks):
        return "serves reservations, and no task has one"
    if len({task.criticality for task in plan.tasks}) == 1 and name in ("reef", "edf-criticality"):
        return "distinguishes criticalities, and all tasks have the same one"
    return ""


def needs(names: Sequence[str]) -> None:
    """Raise UsageError unless all these policies are known."""
    from socsched.sim.policies import get_policy

    for name in names:
        get_policy(name)
