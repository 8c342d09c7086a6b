"""How much slower stages may become before the plan's analysis can no longer prove its deadlines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from socsched.plan.plan import Plan
from socsched.plan.schedulability import edf
from socsched.plan.schedulability.holistic import holistic
from socsched.plan.schedulability.tasks import RtTask, rt_tasks

LARGEST = 64.0
ACCURACY = 1.01


def growth(plan: Plan, names: frozenset[str] | None = None) -> float | None:
    """Return the largest factor on the WCETs of `names` (None: all tasks) with which every deadline is still provable.

    A lower bound, 1 % accurate and at most 64: mapping and priorities stay, local deadlines under EDF may use up the
    chains' slack.  None when the plan's deadlines cannot be proved as they are.
    """
    tasks = rt_tasks(plan)
    chosen = frozenset(tasks) if names is None else names
    choices = [relaxed_deadlines(plan, share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    if not _holds(plan, tasks, chosen, 1.0, choices):
        return None
    low, high = 1.0, LARGEST
    if _holds(plan, tasks, chosen, high, choices):
        return high
    while high / low > ACCURACY:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _holds(plan, tasks, chosen, middle, choices) else (low, middle)
    return low


def relaxed_deadlines(plan: Plan, share: float = 1.0) -> dict[str, int]:
    """Return local deadlines (ns) stretched by a `share` of what the tightest chain leaves, at most to the period.

    A chain's bound is a sum of local deadlines and sampling periods, so stretching the former by deadline / bound keeps
    the deadline.  A limit on data age counts like one on the reaction time, which the age never exceeds (Dürr et al.,
    "End-to-End Timing Analysis of Sporadic Cause-Effect Chains in Distributed Systems", TECS 18(5s), 2019).
    """
    limits = [(min(chain.deadline_ns, chain.max_age_ns or chain.deadline_ns), chain.bound_ns) for chain in plan.chains]
    slack = min((limit / bound for limit, bound in limits if bound), default=1.0)
    factor = 1 + share * max(slack - 1, 0.0)
    return {t.name: min(int(t.deadline_ns * factor), max(t.deadline_ns, t.period_ns)) for t in plan.tasks}


def _holds(
    plan: Plan,
    tasks: Mapping[str, RtTask],
    names: frozenset[str],
    factor: float,
    choices: list[dict[str, int]],
) -> bool:
    slower = {name: _slower(task, factor) if name in names else task for name, task in tasks.items()}
    if plan.policy == "edf":
        system = edf.System.of(slower)
        return not system.hopeless and any(edf.test(system, deadlines) is None for deadlines in choices)
    answers = holistic(slower)
    return all(answers[name].bounded and answers[name].value <= task.deadline for name, task in slower.items())


def _slower(task: RtTask, factor: float) -> RtTask:
    return replace(task, wcet=round(task.wcet * factor), segment=round(task.segment * factor))
