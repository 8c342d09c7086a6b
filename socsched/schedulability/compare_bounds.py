"""All bounds of a plan: its own, those of published tests per resource, and the tightest of each task and chain.

Delay by a predecessor counts as release jitter, as in the plan's own analysis (Tindell & Clark 1994).  Resources whose
tasks occupy different lanes are covered by the plan's own tests only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.planning.plan import ChainResult, Plan
from socsched.schedulability import edf_holistic, path_windows
from socsched.schedulability.chains import Stretch, reaction_time
from socsched.schedulability.corunning import Corunning
from socsched.schedulability.coverage import outside
from socsched.schedulability.plan_analysis import DEMAND, FIXED, Whole, respond, stretches
from socsched.schedulability.published.choose import Analysis, analyse
from socsched.schedulability.resource import resource
from socsched.schedulability.tasks import Response, RtTask, activation, components, rt_tasks, single_resource

OWN = "the plan's own"


@dataclass(frozen=True, slots=True)
class TaskBound:
    """Bounds of a task in ns from its nominal release: the plan's own, and the tightest of all with its test.

    `own` is the first test's (EDF: the local deadline).  None without a bound; `reason` states why published tests were
    not run; `since` as in `Response`.
    """

    task: str
    own: int | None
    bound: int | None
    test: str
    reason: str
    since: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Resource:
    """The tasks of one resource and the results of every published test; a `reason` where none was run."""

    lanes: tuple[str, ...]
    tasks: tuple[str, ...]
    analysis: Analysis | None
    reason: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """All bounds of a plan: `rows` by task, `resources`, and by chain each analysis with its bound (ns) or a reason."""

    rows: tuple[TaskBound, ...]
    resources: tuple[Resource, ...]
    chains: Mapping[str, tuple[tuple[str, int | None, str], ...]]


def task_bounds(plan: Plan) -> list[TaskBound]:
    """Return the bounds of every task of a plan."""
    return list(bounds(plan).rows)


def chain_bound(plan: Plan, chain: ChainResult, rows: Sequence[TaskBound]) -> tuple[int, tuple[str, ...]] | None:
    """Return the bound (ns) of a chain from its tasks' tightest bounds, and their tests; None without a bound.

    Its own bound consists of a response per stretch and a period where data are sampled; only the responses change.
    """
    parts = stretches(plan, chain)
    tight = _reaction(parts, _answers(rows))
    if tight is None or (chain.bound_ns is not None and tight >= chain.bound_ns):
        return None if chain.bound_ns is None else (chain.bound_ns, (OWN,))
    ends = {part.last for part in parts}
    return tight, tuple(dict.fromkeys(row.test for row in rows if row.task in ends))


def _answers(rows: Sequence[TaskBound]) -> dict[str, Response]:
    """Return the tightest bounds as responses."""
    return {r.task: Response(r.bound or 0, r.bound is not None, (("", r.bound or 0),), "", r.since) for r in rows}


def _reaction(parts: Sequence[Stretch], responses: Mapping[str, Response]) -> int | None:
    total, bounded, _ = reaction_time(parts, responses)
    return total if bounded else None


def bounds(plan: Plan) -> Bounds:
    """Return every bound of a plan's tasks and chains, and the reason for each test without one."""
    tasks = rt_tasks(plan)
    gaps = outside(plan)
    if gaps:
        reason = "; ".join(gaps)
        rows = tuple(TaskBound(name, None, None, "", reason) for name in tasks)
        return Bounds(rows, (), {chain.name: ((OWN, None, reason),) for chain in plan.chains})
    whole = respond(plan.policy, tasks, None, Corunning.of(plan).without_absent)
    finish = {name: response.value for name, response in whole.tight.items()}
    jitter = {name: activation(task, tasks, finish).jitter for name, task in tasks.items()}
    known: dict[str, TaskBound] = {}
    resources = []
    for group in components(tasks.values()):
        reason = _unfit(plan.policy, group, whole.tight)
        found = None if reason else analyse(resource(plan.policy, group, jitter))
        lanes = sorted({lane for task in group for lane in task.lanes})
        names = tuple(f"{engine} {lane}" for engine, lane in lanes)
        resources.append(Resource(names, tuple(task.name for task in group), found, reason))
        for task in group:
            known[task.name] = _row(plan.policy, task.name, whole, found, reason)
    rows = tuple(known[name] for name in tasks)
    return Bounds(rows, tuple(resources), {c.name: _ways(plan, c, whole, rows) for c in plan.chains})


def _row(policy: str, name: str, whole: Whole, found: Analysis | None, reason: str) -> TaskBound:
    mine, tight = whole.own[name], whole.tight[name]
    own = mine.value if mine.bounded else None
    best = found.tasks[name] if found else None
    if best and best.bound and (not tight.bounded or best.bound.value < tight.value):
        return TaskBound(name, own, best.bound.value, best.test, "", tight.since)
    if not tight.bounded:
        return TaskBound(name, own, None, "", reason or "no test bounds it")
    return TaskBound(name, own, tight.value, whole.test(name, policy), reason, tight.since)


def _ways(
    plan: Plan, chain: ChainResult, whole: Whole, rows: Sequence[TaskBound]
) -> tuple[tuple[str, int | None, str], ...]:
    """Return each analysis of a chain with its bound or the reason for its absence, shortest first."""
    parts = stretches(plan, chain)
    under = {"edf": "EDF", "fp": "fixed priorities"}[plan.policy]
    ways: list[tuple[str, int | None, str]] = []
    if plan.policy == "edf":
        own, tight = _reaction(parts, whole.own), _reaction(parts, whole.holistic)
        ways.append((DEMAND, own, "" if own is not None else "no local deadlines pass the demand bound"))
        ways.append((edf_holistic.NAME, tight, "" if tight is not None else "a response along the chain has no bound"))
        ways.append((FIXED, None, f"it applies to fixed priorities, the policy is {under}"))
    else:
        own = _reaction(parts, whole.own)
        ways.append((FIXED, own, "" if own is not None else "a response along the chain has no bound"))
        ways += [(name, None, f"it applies to EDF, the policy is {under}") for name in (DEMAND, edf_holistic.NAME)]
    windows = _reaction(parts, whole.tight)
    ways.append((path_windows.NAME, windows, "" if windows is not None else "a response along the chain has no bound"))
    best = _reaction(parts, _answers(rows))
    last = [row for row in rows if row.task in {part.last for part in parts}]
    tests = " and ".join(dict.fromkeys(row.test for row in last if row.test))
    reason = "" if best is not None else "a response along the chain has no bound"
    ways.append((f"shortest of every test ({tests})" if tests else "shortest of every test", best, reason))
    return tuple(sorted(ways, key=lambda way: (way[1] is None, way[1] or 0)))


def _unfit(policy: str, group: Sequence[RtTask], responses: Mapping[str, Response]) -> str:
    if not single_resource(group):
        return "its resource is shared lane by lane"
    if policy == "edf" and any(task.release_jitter for task in group):
        return "deadlines move with the jitter of sensors"
    before = {name for task in group for name in task.after if name in responses}
    if not all(responses[name].bounded for name in before):
        return "a predecessor is unbounded"
    return ""
