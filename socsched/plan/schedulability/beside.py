"""Published tests beside the plan's own: each resource of a plan as a task set, and the tighter bound of each task.

What a predecessor delays counts as release jitter, as in the plan's own analysis (Tindell & Clark 1994).  Resources
whose tasks occupy different lanes are left to the plan's own tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from socsched.descriptor.taskset_model import PeriodicTask, Policy, TaskSet
from socsched.plan.plan import ChainResult, Plan
from socsched.plan.schedulability import edf
from socsched.plan.schedulability.holistic import holistic
from socsched.plan.schedulability.published.choose import analyse
from socsched.plan.schedulability.tasks import Response, RtTask, activation, components, rt_tasks, single_resource

OWN = "the plan's own"


@dataclass(frozen=True, slots=True)
class TaskBound:
    """Bounds of a task in ns from its nominal release: the plan's own, and the tightest of all with its test.

    None where there is none; `reason` says why published tests were not asked.
    """

    task: str
    own: int | None
    bound: int | None
    test: str
    reason: str


def chain_bound(plan: Plan, chain: ChainResult, bounds: Sequence[TaskBound]) -> tuple[int, tuple[str, ...]] | None:
    """Return the bound (ns) of a chain from the tightest ones of its tasks, and their tests; None without a bound.

    Of the terms of its own bound, a response after each stretch and a period where data are sampled, only the responses
    change.
    """
    if chain.bound_ns is None:
        return None
    by_name, tasks = {bound.task: bound for bound in bounds}, {task.name: task for task in plan.tasks}
    ends = [
        f"{one}>{other}" if f"{one}>{other}" in tasks else one
        for one, other in pairwise(chain.path)
        if one in tasks and (tasks[other].timer or not {one, f"{one}>{other}"} & set(tasks[other].after))
    ]
    ends.append(chain.path[-1])
    rows = [by_name[name] for name in ends]
    waits = sum(tasks[name].period_ns for name in ends[1:])
    if waits + sum(row.own or 0 for row in rows) != chain.bound_ns:
        return chain.bound_ns, (OWN,)  # a plan made elsewhere: its bound is taken as it is
    tight = waits + sum(row.bound or 0 for row in rows)
    return tight, tuple(dict.fromkeys(row.test for row in rows))


def task_bounds(plan: Plan) -> list[TaskBound]:
    """Return the bounds of every task of a plan."""
    tasks = rt_tasks(plan)
    if plan.policy == "edf":
        system = edf.System.of(tasks)
        deadlines = {name: task.deadline for name, task in tasks.items()}
        holds = edf.test(system, deadlines) is None
        own = edf.responses(system, deadlines, holds)
        jitter = {name: found.jitter for name, found in edf.latest_activations(system, deadlines).items()}
    elif plan.policy == "fp":
        own = holistic(tasks)
        finish = {name: response.value for name, response in own.items()}
        jitter = {name: activation(task, tasks, finish).jitter for name, task in tasks.items()}
    else:
        return [TaskBound(name, None, None, "", f"policy {plan.policy} has no analysis") for name in tasks]
    found: dict[str, TaskBound] = {}
    for group in components(tasks.values()):
        for bound in _group(plan.policy, group, own, jitter):
            found[bound.task] = bound
    return [found[name] for name in tasks]


def _group(
    policy: str, group: Sequence[RtTask], own: Mapping[str, Response], jitter: Mapping[str, int]
) -> list[TaskBound]:
    reason = _unfit(policy, group, own)
    best = {} if reason else {name: b for name, b in analyse(_taskset(policy, group, jitter)).tasks.items() if b.bound}
    rows = []
    for task in group:
        answer = own[task.name]
        mine = answer.value if answer.bounded else None
        other = best.get(task.name)
        if other and other.bound and (mine is None or other.bound.value < mine):
            rows.append(TaskBound(task.name, mine, other.bound.value, other.test, ""))
        else:
            rows.append(TaskBound(task.name, mine, mine, OWN if mine is not None else "", reason))
    return rows


def _unfit(policy: str, group: Sequence[RtTask], own: Mapping[str, Response]) -> str:
    if not single_resource(group):
        return "its resource is shared lane by lane"
    if policy == "edf" and any(task.release_jitter for task in group):
        return "deadlines move with the jitter of sensors"
    before = {name for task in group for name in task.after if name in own}
    if not all(own[name].bounded for name in before):
        return "a predecessor is unbounded"
    return ""


def _taskset(policy: str, group: Sequence[RtTask], jitter: Mapping[str, int]) -> TaskSet:
    tasks = tuple(
        PeriodicTask(
            id=index,
            name=task.name,
            period_ns=task.period,
            deadline_ns=task.deadline + task.release_jitter,
            wcet_ns=task.wcet + task.switch,  # a preemption each arrival, paid for by who preempts
            bcet_ns=0,
            offset_ns=task.offset,
            jitter_ns=jitter[task.name],
            cpu=0,
            prio=task.priority,
            longest_region_ns=task.segment + task.switch if task.preemption == "segment" else 0,
        )
        for index, task in enumerate(group)
    )
    whole = all(task.preemption == "none" for task in group)
    rule = Policy("edf" if policy == "edf" else "fp", "partitioned", not whole)
    return TaskSet("resource", 1, rule, 1, None, tasks, ())
