"""EDF over a whole plan: local deadlines are tested component by component, then shrunk as far as the test allows.

A job activated by a predecessor is activated by the predecessor's local deadline at the latest; as the first missed
deadline would require an earlier miss or an overfull interval, testing all components with these windows suffices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.schedulability.edf_demand import DemandTask, Overload, gang_overload, overload
from socsched.schedulability.tasks import (
    Activation,
    Response,
    RtTask,
    activation,
    ceil_div,
    components,
    single_resource,
    topological,
)

Deadlines = Mapping[str, int]
ALLOWED = "EDF slack up to local deadline"
"""Term of a response that is a local deadline: the slack beyond the WCET."""


@dataclass(frozen=True, slots=True)
class System:
    """Tasks with all deadline-independent data: components, precedence order, and the hopeless part.

    `hopeless` are tasks on overutilised lanes, and everything such tasks can delay.
    """

    tasks: Mapping[str, RtTask]
    groups: tuple[tuple[RtTask, ...], ...]
    order: tuple[str, ...]
    hopeless: frozenset[str]

    @staticmethod
    def of(tasks: Mapping[str, RtTask]) -> System:
        """Return the system of these tasks."""
        groups = tuple(tuple(group) for group in components(tasks.values()))
        return System(tasks, groups, tuple(topological(tasks)), _hopeless(tasks, groups))


def _hopeless(tasks: Mapping[str, RtTask], groups: Sequence[Sequence[RtTask]]) -> frozenset[str]:
    lost: set[str] = set()
    for group in groups:
        for lane in {lane for task in group for lane in task.lanes}:
            if sum(task.utilisation for task in group if lane in task.lanes) > 1 - 1e-9:
                lost |= {task.name for task in group}
    while True:
        reached = {n for n, t in tasks.items() if lost & set(t.after)}
        more = {t.name for group in groups if any(x.name in reached for x in group) for t in group} - lost
        if not more:
            return frozenset(lost)
        lost |= more


def latest_activations(system: System, deadlines: Deadlines) -> dict[str, Activation]:
    """Return the latest activation of every task if all predecessors meet their local deadlines.

    A deadline counts from the actual release, which may itself be late by the release jitter.
    """
    finish = {name: deadlines[name] + system.tasks[name].release_jitter for name in system.order}
    return {name: activation(system.tasks[name], system.tasks, finish) for name in system.order}


def test(system: System, deadlines: Deadlines) -> Overload | None:
    """Return an overfull interval of a component that is not hopeless, None if every job there meets `deadlines`."""
    jitter = {name: a.jitter for name, a in latest_activations(system, deadlines).items()}
    for group in system.groups:
        if group[0].name not in system.hopeless:
            found = _test_group(group, deadlines, jitter)
            if found is not None:
                return found
    return None


def _test_group(group: Sequence[RtTask], deadlines: Deadlines, jitter: Mapping[str, int]) -> Overload | None:
    if single_resource(group):
        return overload([_demand_task(t, deadlines, jitter, 1) for t in group])
    lanes = len({lane for task in group for lane in task.lanes})
    if all(task.preemption == "full" for task in group):
        # A job with the earliest deadline always runs, so the component meets its deadlines if one processor would.
        found = overload([_demand_task(t, deadlines, jitter, 2 * lanes) for t in group])
        if found is None:
            return None
    return _test_gangs(group, deadlines, jitter)


def _demand_task(task: RtTask, deadlines: Deadlines, jitter: Mapping[str, int], switches: int) -> DemandTask:
    return DemandTask(
        name=task.name,
        wcet=task.wcet + switches * task.switch,
        period=task.period,
        window=deadlines[task.name] - jitter[task.name],
        deadline=deadlines[task.name],
        segment=task.segment + (task.switch if task.segment else 0),
        release_jitter=task.release_jitter,
    )


def _test_gangs(group: Sequence[RtTask], deadlines: Deadlines, jitter: Mapping[str, int]) -> Overload | None:
    plain = {task.name: _demand_task(task, deadlines, jitter, 0) for task in group}
    for task in group:
        sharing = [plain[t.name] for t in group if t is not task and t.lanes & task.lanes]
        window = max(plain[task.name].window, 0)
        events = 2 * sum(
            ceil_div(window + deadlines[t.name] + t.release_jitter, t.period) for t in group if t is not task
        )
        found = gang_overload(plain[task.name], sharing, events * len(task.lanes) * task.switch)
        if found is not None:
            return found
    return None


def responses(system: System, deadlines: Deadlines, holds: bool) -> dict[str, Response]:
    """Return local deadlines as responses after the nominal release, unbounded where the test does not hold.

    The terms of a task are its WCET and the rest of its window.
    """
    latest, result = latest_activations(system, deadlines), {}
    for name in system.order:
        task, at = system.tasks[name], latest[name]
        value = deadlines[name] + task.release_jitter
        start = deadlines[at.via] + system.tasks[at.via].release_jitter if at.via else task.release_jitter
        jitter = (("release jitter", task.release_jitter),) if task.release_jitter and not at.via else ()
        terms = (*jitter, ("wcet", task.wcet), (ALLOWED, value - start - task.wcet))
        result[name] = Response(value, holds and name not in system.hopeless, terms, at.via)
    return {name: result[name] for name in system.tasks}


def scale_deadlines(system: System, deadlines: Deadlines, factors: Mapping[str, float]) -> dict[str, int]:
    """Return deadlines times each task's factor, rounded, at least 1 ns."""
    return {name: max(round(deadlines[name] * factors[name]), 1) for name in system.order}


def smallest_factor(
    system: System, deadlines: Deadlines, names: frozenset[str], base: Mapping[str, float], steps: int
) -> float | None:
    """Return the smallest factor on the deadlines of `names` found to pass by bisection, None if none up to 64 does.

    The other tasks keep their factor of `base`.
    """

    if names <= system.hopeless:
        return None

    def passes(factor: float) -> bool:
        return (
            test(system, scale_deadlines(system, deadlines, {n: factor if n in names else base[n] for n in base}))
            is None
        )

    high = 1.0
    while not passes(high):
        high *= 1.5
        if high > 64:
            return None
    low = high / 1.5 if high > 1 else 0.0
    for _ in range(steps):
        middle = (low + high) / 2
        if passes(middle):
            high = middle
        else:
            low = middle
    return high
