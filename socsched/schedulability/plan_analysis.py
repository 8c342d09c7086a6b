"""A whole plan under its own analysis: responses of tasks, bounds of chains, and unmet requirements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from socsched.planning.plan import ChainResult, Plan, Violation
from socsched.schedulability import edf, edf_holistic, path_windows
from socsched.schedulability.chains import Sources, Stretch, data_age, reaction_time
from socsched.schedulability.holistic import holistic
from socsched.schedulability.tasks import Response, RtTask

Quieter = Callable[[Mapping[str, RtTask], Mapping[str, Response]], dict[str, RtTask] | None]
"""Tasks and responses that hold -> the tasks with the shorter execution times that follow, None if none is."""
DEMAND = "local deadlines (EDF demand bound)"
FIXED = "response times of fixed priorities, holistic"


@dataclass(frozen=True, slots=True)
class Whole:
    """Responses by the policy's simplest test (`own`; EDF: local deadlines), `holistic`, and the shortest, `tight`."""

    own: Mapping[str, Response]
    holistic: Mapping[str, Response]
    tight: Mapping[str, Response]

    def test(self, name: str, policy: str) -> str:
        """Return the name of the analysis that bounds a task, empty if none does."""
        if not self.tight[name].bounded:
            return ""
        if path_windows.bounds(self.tight[name]):
            return path_windows.NAME
        if policy != "edf":
            return FIXED
        mine = self.own[name]
        return DEMAND if mine.bounded and mine.value <= self.tight[name].value else edf_holistic.NAME


def respond(
    policy: str,
    tasks: Mapping[str, RtTask],
    deadlines: Mapping[str, int] | None = None,
    quieter: Quieter | None = None,
) -> Whole:
    """Return the responses of tasks under ``edf`` or ``fp``; `deadlines` (ns) replace their own under EDF.

    `quieter` shortens execution times that include traffic which the responses exclude.
    """
    if policy != "edf":
        found = holistic(tasks)
        return Whole(found, found, shorten(tasks, None, found, quieter))
    system = edf.System.of(tasks)
    due = dict(deadlines) if deadlines else {name: task.deadline for name, task in tasks.items()}
    own = edf.responses(system, due, edf.test(system, due) is None)
    found = edf_holistic.responses(system, due, own)
    return Whole(own, found, shorten(tasks, due, found, quieter))


def shorten(
    tasks: Mapping[str, RtTask],
    deadlines: Mapping[str, int] | None,
    responses: Mapping[str, Response],
    quieter: Quieter | None,
) -> dict[str, Response]:
    """Return responses shortened by windows of paths; `deadlines`: under EDF; `quieter` as in `respond`."""
    found = path_windows.tighten(tasks, deadlines, responses)
    less = quieter(tasks, found) if quieter else None
    return path_windows.tighten(less, deadlines, found) if less else found


def stretches(plan: Plan, chain: ChainResult) -> tuple[Stretch, ...]:
    """Return the data-triggered stretches of a plan's chain."""
    return Sources.of(plan.tasks, plan.sensors).stretches(chain.path)


def chain_bounds(plan: Plan, responses: Mapping[str, Response]) -> dict[str, tuple[int | None, int | None]]:
    """Return the bounds (ns) on reaction time and data age of every chain, None where there is none."""
    result = {}
    sources = Sources.of(plan.tasks, plan.sensors)
    for chain in plan.chains:
        parts = sources.stretches(chain.path)
        reaction, age = reaction_time(parts, responses), data_age(parts, responses)
        result[chain.name] = (reaction[0] if reaction[1] else None, age[0] if age[1] else None)
    return result


def without_contradictions(plan: Plan) -> Plan:
    """Return a plan without bounds below the expected latency of their chain, which no bound can be.

    A feasible plan that loses a bound is undecided, with the contradiction as its reason.
    """
    wrong = [chain for chain in plan.chains if chain.bound_ns is not None and chain.bound_ns < chain.expected_ns]
    if not wrong:
        return plan
    kept = tuple(replace(chain, bound_ns=None, test="") if chain in wrong else chain for chain in plan.chains)
    found = tuple(
        Violation(
            f"bound of chain {chain.name}, withdrawn because its expected latency is longer",
            chain.expected_ns,
            chain.bound_ns or 0,
            chain.expected_ns - (chain.bound_ns or 0),
            "ns",
            (("expected latency", chain.expected_ns),),
            (),
        )
        for chain in wrong
    )
    verdict = "undecided" if plan.verdict == "feasible" else plan.verdict
    return replace(plan, chains=kept, violations=(*plan.violations, *found), verdict=verdict)


def unmet(plan: Plan, responses: Mapping[str, Response]) -> list[str]:
    """Return the names of requirements not proved by responses (ns from nominal releases)."""
    found = []
    bounds = chain_bounds(plan, responses)
    for chain in plan.chains:
        reaction, age = bounds[chain.name]
        if reaction is None or reaction > chain.deadline_ns:
            found.append(f"deadline of chain {chain.name}")
        if chain.max_age_ns is not None and (age is None or age > chain.max_age_ns):
            found.append(f"data age of chain {chain.name}")
    sources = Sources.of(plan.tasks, plan.sensors)
    for task in plan.tasks:
        answer = responses[task.name]
        if not answer.bounded or answer.value > sources.room(task):
            found.append(f"queue of {task.name} ({task.queue} may wait)")
        elif plan.policy == "edf" and task.on_late != "continue" and answer.value > task.deadline_ns:
            found.append(f"local deadline of {task.name}, after which its jobs {task.on_late}")
    return found
