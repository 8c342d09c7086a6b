"""The high level of criticality of a plan: bounds for hard tasks once a job has run for longer than its planned time.

From then until no job is left, work that is not hard is dropped; jobs that have begun end.  Two tests:

- AMC-rtb (Baruah, Burns, Davis, RTSS 2011, as in `published.mixed_criticality`) where each task is alone with
  preemptive others of one CPU lane under fixed priorities, with neither predecessor nor jitter, and its deadline is
  within its period.
- Otherwise all work, hard tasks at their times of the high level: a level that drops work only removes interference.
  No theorem covers engines, gangs or chains more tightly, so that a plan which fails here is undecided.

Neither holds if a hard task waits for one that is not hard, whose jobs may be dropped: such a plan is undecided, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from socsched.planning.plan import Plan, Task, Violation
from socsched.schedulability.chains import Sources, data_age, reaction_time
from socsched.schedulability.plan_analysis import respond
from socsched.schedulability.published.model import fixed_point
from socsched.schedulability.tasks import Response, RtTask, ceil_div, components, convert, rt_tasks, single_resource

AMC = "AMC-rtb"
RESERVED = "all work at the times of the high level"
DROPPED = "its jobs are dropped at the high level of criticality"


class Triggered(Protocol):
    """A stage or task: its name, its triggers and its criticality."""

    @property
    def name(self) -> str: ...
    @property
    def after(self) -> tuple[str, ...]: ...
    @property
    def criticality(self) -> str: ...


@dataclass(frozen=True, slots=True)
class HighLevel:
    """Responses of hard tasks at the high level, the `test` that bounds them, and why AMC-rtb does not (`reason`)."""

    test: str
    responses: Mapping[str, Response]
    reason: str = ""


def is_mixed(plan: Plan) -> bool:
    """Return whether any task of a plan has a time at the high level of criticality."""
    return any(task.high_ns for task in plan.tasks)


def wcet_high(task: Task) -> int:
    """Return a task's WCET (ns) at its own level, under the worst co-running traffic in proportion."""
    return max(ceil_div(task.high_ns * task.wcet_ns, max(task.cost_ns, 1)), task.wcet_ns)


def high_level(plan: Plan) -> HighLevel:
    """Return the bounds of hard tasks at the high level of criticality."""
    tasks = rt_tasks(plan)
    reason = _not_covered(plan, tasks)
    if not reason:
        return HighLevel(AMC, _adaptive(plan, tasks))
    # whatever follows from execution times follows from the longer ones: segments, and what a killed job loses
    longer = convert([replace(task, wcet_ns=wcet_high(task)) for task in plan.tasks], plan.engines, plan.sensors)
    found = respond(plan.policy, longer, {name: task.deadline for name, task in tasks.items()})
    return HighLevel(RESERVED, {task.name: found.tight[task.name] for task in plan.tasks if is_hard(task)}, reason)


def is_hard(task: Triggered) -> bool:
    """Return whether no job of a stage or task is dropped at the high level of criticality."""
    return task.criticality == "hard"


def loose_triggers(stages: Iterable[Triggered]) -> Iterator[tuple[str, str]]:
    """Yield each hard stage or task that waits for one that is not hard, and the latter."""
    known = {stage.name: stage for stage in stages}
    for stage in known.values():
        for name in stage.after if is_hard(stage) else ():
            if name in known and not is_hard(known[name]):
                yield stage.name, name


def judge_high_level(plan: Plan, hard_chains: Collection[str] = ()) -> Plan:
    """Return a feasible plan with levels as undecided where hard requirements are not proved at the high level.

    `hard_chains`: chains that are hard themselves, and so may not lose a frame, whatever their stages.
    """
    if plan.verdict != "feasible" or not is_mixed(plan):
        return plan
    found = unmet(plan, high_level(plan), hard_chains)
    return replace(plan, verdict="undecided", violations=found) if found else plan


def unmet(plan: Plan, level: HighLevel, hard_chains: Collection[str] = ()) -> tuple[Violation, ...]:
    """Return the hard requirements that are not proved at the high level; `hard_chains` as in `judge_high_level`.

    While a hard task waits for one that is not hard, none is.
    """
    tasks = {task.name: task for task in plan.tasks}
    # a conversion of data that are sampled has the criticality of its reader, which does not wait for it
    awaited = {name for task in plan.tasks for name in task.after}
    waiting = [task for task in plan.tasks if task.kind == "stage" or task.name in awaited]
    lost = [(f"which triggers hard {name}", tasks[before]) for name, before in loose_triggers(waiting)]
    lost += [
        (f"in hard chain {chain.name}", tasks[name])
        for chain in plan.chains
        if chain.name in hard_chains
        for name in chain.path
        if name in tasks and not is_hard(tasks[name])
    ]
    found = [
        Violation(f"{task.name}, {where}, is {task.criticality}: {DROPPED}", 1, 0, 1, "stages", ((task.name, 1),), ())
        for where, task in lost
    ]
    if found:
        return tuple(found)
    why = f"at the high level of criticality, by {level.test}" + (f": {level.reason}" if level.reason else "")
    hard = {task.name for task in plan.tasks if is_hard(task)}
    sources = Sources.of(plan.tasks, plan.sensors)
    for chain in plan.chains:
        parts = sources.stretches(chain.path)
        named = {task.name for task in plan.tasks if task.name in chain.path}
        if not hard.issuperset({part.last for part in parts if part.last} | named):
            continue
        value, bounded, terms = reaction_time(parts, level.responses)
        if not bounded or value > chain.deadline_ns:
            found.append(_violation(f"deadline of chain {chain.name} {why}", value, chain.deadline_ns, terms))
        value, bounded, terms = data_age(parts, level.responses)
        if chain.max_age_ns is not None and (not bounded or value > chain.max_age_ns):
            found.append(_violation(f"data age of chain {chain.name} {why}", value, chain.max_age_ns, terms))
    for task in plan.tasks:
        answer = level.responses.get(task.name)
        room = sources.room(task)
        if answer is not None and (not answer.bounded or answer.value > room):
            found.append(_violation(f"queue of {task.name} {why}", answer.value, room, answer.terms))
        elif answer is not None and task.on_late != "continue" and answer.value > task.deadline_ns:
            text = f"local deadline of {task.name}, after which its jobs {task.on_late}, {why}"
            found.append(_violation(text, answer.value, task.deadline_ns, answer.terms))
    return tuple(found)


def _violation(text: str, value: int, bound: int, terms: Sequence[tuple[str, int]]) -> Violation:
    demand = max(value, bound + 1)
    known = sum(part for _, part in terms)
    rest = (("beyond what was analysed", demand - known),) if demand > known else ()
    return Violation(text, demand, bound, demand - bound, "ns", (*terms, *rest), ())


def _not_covered(plan: Plan, tasks: Mapping[str, RtTask]) -> str:
    """Return why AMC-rtb does not bound the hard tasks of a plan, empty if it does."""
    engines = {engine.id: engine for engine in plan.engines}
    if plan.policy != "fp":
        return "AMC-rtb is for fixed priorities"
    for task in plan.tasks:
        mine = tasks[task.name]
        if engines[task.engine].preemption != "full" or len(task.lanes) != 1 or task.width:
            return f"AMC-rtb does not cover {task.name}, on {task.engine}: for preemptive tasks of one lane"
        if set(mine.after) & set(tasks):
            return f"AMC-rtb does not cover {task.name}, which follows another task"
        if mine.release_jitter or mine.deadline > mine.period:
            return f"AMC-rtb does not cover {task.name}: for deadlines within the period, without jitter"
    if not all(single_resource(group) for group in components(tasks.values())):
        return "AMC-rtb is for one processor"
    return ""


def _adaptive(plan: Plan, tasks: Mapping[str, RtTask]) -> dict[str, Response]:
    """Return the responses of hard tasks by AMC-rtb; each job above may cost a switch, as in `response_times`."""
    hard = {task.name for task in plan.tasks if is_hard(task)}
    more = {task.name: wcet_high(task) - task.wcet_ns for task in plan.tasks}
    found: dict[str, Response] = {}
    for group in components(tasks.values()):
        for task in (task for task in group if task.name in hard):
            above = [o for o in group if o.name != task.name and o.priority <= task.priority]
            found[task.name] = _response(task, above, hard, more)
    return found


def _response(task: RtTask, above: Sequence[RtTask], hard: set[str], more: Mapping[str, int]) -> Response:
    def demand(length: int, other: RtTask, extra: int) -> int:
        return ceil_div(length, other.period) * (other.wcet + extra + other.switch)

    low_level = fixed_point(
        task.wcet, lambda length: task.wcet + sum(demand(length, other, 0) for other in above), task.period
    )
    if low_level is None:
        return Response(task.period + 1, False, (("without an overrun", task.period + 1),))
    own = task.wcet + more[task.name]
    low = sum(demand(low_level, other, 0) for other in above if other.name not in hard)
    high = fixed_point(
        own + low,
        lambda length: own + low + sum(demand(length, o, more[o.name]) for o in above if o.name in hard),
        task.period,
    )
    if high is None:
        return Response(task.period + 1, False, (("with an overrun", task.period + 1),))
    value = max(low_level, high)
    return Response(value, True, (("wcet at the high level", own), ("interference", value - own)))
