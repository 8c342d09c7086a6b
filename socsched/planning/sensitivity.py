"""How far stages may slow down, and how much traffic may be added, with every requirement still proved.

Bisection on one parameter as in Bini, Di Natale, Buttazzo, "Sensitivity analysis for fixed-priority real-time systems",
Real-Time Systems 39, 2008: bounds only grow with execution times, so what holds at a value holds below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from socsched.cost.contention import ContentionModel, Rival, contention_model
from socsched.planning.execution import slowed_by_lanes, with_wcet
from socsched.planning.plan import Plan
from socsched.schedulability import edf
from socsched.schedulability.chains import data_age, reaction_time
from socsched.schedulability.plan_analysis import Corunning, Quieter, due_of, respond_simply, shorten, stretches, unmet
from socsched.schedulability.tasks import Response, RtTask, components, rt_tasks, single_resource

LARGEST = 64.0
ACCURACY = 1.01
_STEPS = 10
"""Bisection steps for the bandwidth: to a thousandth of the memory's."""


@dataclass(frozen=True, slots=True)
class Spare:
    """How far a parameter may grow: `value` (ns, or bytes/s) and `factor`; `first`: requirements lost first beyond it.

    `whole`: no requirement was lost at the largest value tried.
    """

    value: int
    factor: float
    first: tuple[str, ...]
    whole: bool = False


def growth(plan: Plan, names: frozenset[str] | None = None) -> float | None:
    """Return the largest factor on the WCETs of `names` (None: all tasks) with which every deadline is provable.

    A lower bound, 1 % accurate and at most 64: mapping and priorities stay; where tasks share some of their lanes,
    local deadlines under EDF may use up the chains' slack.  None if the deadlines cannot be proved as planned.
    """
    found = spare(plan, names)
    return found.factor if found else None


def proved(plan: Plan, responses: Mapping[str, Response]) -> bool:
    """Return whether every requirement of a plan is proved, by `responses` or with local deadlines stretched."""
    return not unmet(plan, responses) or not _unmet(plan, rt_tasks(plan))


def spare(plan: Plan, names: frozenset[str] | None = None, known: bool = False) -> Spare | None:
    """Return how far (ns) the WCETs of `names` together may grow; None if the plan cannot be proved as it is.

    `known`: it is known to be `proved`.
    """
    tasks, quieter = rt_tasks(plan), Corunning.of(plan).without_absent
    chosen = frozenset(tasks) if names is None else names

    def slower(factor: float) -> dict[str, RtTask]:
        return {
            name: replace(task, wcet=round(task.wcet * factor), segment=round(task.segment * factor))
            if name in chosen
            else task
            for name, task in tasks.items()
        }

    def lost(factor: float) -> list[str]:
        costs = {t.name: round(t.cost_ns * factor) if t.name in chosen else t.cost_ns for t in plan.tasks}
        return _unmet(plan, slower(factor), costs, quieter)

    if not known and lost(1.0):
        return None
    total = sum(task.wcet for name, task in tasks.items() if name in chosen)
    low, high, first = 1.0, LARGEST, list[str]()
    if not (overloaded := _overloaded(slower(high))) and not (first := lost(high)):
        return Spare(int(total * (LARGEST - 1)), LARGEST, (), True)
    while high / low > ACCURACY:
        middle = (low * high) ** 0.5
        if _overloaded(slower(middle)):
            high, overloaded = middle, True
        elif more := lost(middle):
            high, first, overloaded = middle, more, False
        else:
            low = middle
    return Spare(int(total * (low - 1)), low, tuple(lost(high) if overloaded else first))


def _overloaded(tasks: Mapping[str, RtTask]) -> bool:
    """Return whether a lane has more work than time: a task there has no bound, which need not be analysed."""
    used: dict[tuple[str, int], Fraction] = {}
    for task in tasks.values():
        for lane in task.lanes:
            used[lane] = used.get(lane, Fraction()) + Fraction(task.wcet, task.period)
    return any(share > 1 for share in used.values())


def co_runner(plan: Plan, known: bool = False) -> Spare | None:
    """Return the most traffic (bytes/s) that a new co-runner may draw from the DRAM continuously; as in `spare`.

    It runs on none of the plan's lanes.  Where the contention model distinguishes engines, the worst of them counts.
    """
    if not known and _unmet(plan, rt_tasks(plan)):
        return None
    if not plan.dram_bandwidth:
        return Spare(0, 1.0, (), True)

    def lost(bytes_per_s: int) -> list[str]:
        return _unmet(plan, rt_tasks(with_foreign_traffic(plan, bytes_per_s)))

    low, high = 0, plan.dram_bandwidth
    first = lost(high)
    if not first:
        return Spare(high, 1.0, (), True)
    for _ in range(_STEPS):
        middle = (low + high) // 2
        more = lost(middle)
        low, high, first = (low, middle, more) if more else (middle, high, first)
    return Spare(low, low / plan.dram_bandwidth, tuple(first))


def with_foreign_traffic(plan: Plan, bytes_per_s: int) -> Plan:
    """Return the plan with the WCETs of its tasks under that much continuous foreign traffic."""
    kinds = {engine.id: engine.kind for engine in plan.engines}
    model = contention_model(plan.contention, plan.dram_bandwidth, kinds)
    from_where = list(kinds) if plan.contention else list(kinds)[:1]
    worst = [_wcets(plan, model, [Rival(engine, float(bytes_per_s), 1)]) for engine in from_where]
    tasks = tuple(replace(t, wcet_ns=max(found[t.name] for found in worst)) for t in plan.tasks)
    return replace(plan, tasks=tasks)


def _wcets(plan: Plan, model: ContentionModel, more: Sequence[Rival]) -> dict[str, int]:
    tasks = slowed_by_lanes(with_wcet(plan.tasks, model, more), plan.engines)
    return {task.name: task.wcet_ns for task in tasks}


def relax_deadlines(plan: Plan, share: float = 1.0) -> dict[str, int]:
    """Return local deadlines (ns) stretched by a `share` of the tightest chain's slack, at most to the period.

    A chain's bounds by local deadlines are sums of these and of sampling periods, so stretching the former by limit /
    bound keeps the limit.
    """
    tasks = rt_tasks(plan)
    due = edf.responses(edf.System.of(tasks), {name: task.deadline for name, task in tasks.items()}, True)
    slack = 1.0 if not plan.chains else float("inf")
    for chain in plan.chains:
        parts = stretches(plan, chain)
        slack = min(slack, chain.deadline_ns / max(reaction_time(parts, due)[0], 1))
        if chain.max_age_ns is not None:
            slack = min(slack, chain.max_age_ns / max(data_age(parts, due)[0], 1))
    factor = 1 + share * max(slack - 1, 0.0)
    return {t.name: min(int(t.deadline_ns * factor), max(t.deadline_ns, t.period_ns)) for t in plan.tasks}


def _unmet(
    plan: Plan,
    tasks: Mapping[str, RtTask],
    costs: Mapping[str, int] | None = None,
    quieter: Quieter | None = None,
) -> list[str]:
    """Return the requirements that no analysis proves with local deadlines as planned, or stretched if that helps.

    `costs`: times alone (ns) in place of the plan's.
    """
    asked = replace(plan, tasks=tuple(replace(t, cost_ns=costs[t.name]) for t in plan.tasks)) if costs else plan
    choices: list[Callable[[], dict[str, int] | None]] = [lambda: None]
    groups = components(tasks.values())
    shared = any(not single_resource(group) or any(t.release_jitter for t in group) for group in groups)
    if plan.policy == "edf" and shared:
        choices += [lambda share=share: relax_deadlines(plan, share) for share in (0.25, 0.5, 0.75, 1.0)]  # type: ignore[misc]
    quieter = quieter or Corunning.of(plan).without_absent
    first, simple = list[str](), list[tuple[dict[str, int] | None, Mapping[str, Response]]]()
    for choice in choices:  # windows of paths take most of the time, and only shorten responses that may suffice
        deadlines = due_of(plan.policy, tasks, choice())
        simple.append((deadlines, respond_simply(plan.policy, tasks, deadlines, explained=False).tight))
        if not unmet(asked, simple[-1][1]):
            return []
    for deadlines, responses in simple:
        found = unmet(asked, shorten(tasks, deadlines, responses, quieter))
        if not found:
            return []
        first = first or found
    return first
