"""Every bound of a plan by every analysis, why others do not apply, and the sections of docs/proofs.md they rest on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from socsched.planning.plan import ChainResult, Plan
from socsched.schedulability import edf, path_windows
from socsched.schedulability.chains import Stretch, reaction_time
from socsched.schedulability.coverage import outside
from socsched.schedulability.plan_analysis import DEMAND, FIXED, Corunning, Whole, respond, stretches
from socsched.schedulability.published.choose import Analysis, analyse
from socsched.schedulability.tasks import (
    Response,
    RtTask,
    activation,
    as_taskset,
    components,
    rt_tasks,
    single_resource,
)

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


def chain_bound(
    plan: Plan, chain: ChainResult, rows: Sequence[TaskBound], answers: Mapping[str, Response] | None = None
) -> tuple[int, tuple[str, ...]] | None:
    """Return the bound (ns) of a chain from its tasks' tightest bounds, and their tests; None without a bound.

    Its own bound consists of a response per stretch and a period where data are sampled; only the responses change.
    `answers`: of these tasks, as from `as_responses`.
    """
    parts = stretches(plan, chain)
    tight = _reaction(parts, as_responses(rows) if answers is None else answers)
    if tight is None or (chain.bound_ns is not None and tight >= chain.bound_ns):
        return None if chain.bound_ns is None else (chain.bound_ns, (OWN,))
    ends = {part.last for part in parts}
    return tight, tuple(dict.fromkeys(row.test for row in rows if row.task in ends))


def as_responses(rows: Sequence[TaskBound]) -> dict[str, Response]:
    """Return the tightest bounds as responses."""
    return {r.task: Response(r.bound or 0, r.bound is not None, (("", r.bound or 0),), "", r.since) for r in rows}


def _reaction(parts: Sequence[Stretch], responses: Mapping[str, Response]) -> int | None:
    total, bounded, _ = reaction_time(parts, responses)
    return total if bounded else None


def bounds(plan: Plan, whole: Whole | None = None) -> Bounds:
    """Return every bound of a plan's tasks and chains, and the reason for each test without one.

    `whole`: the responses of its tasks, if they are known.
    """
    tasks = rt_tasks(plan)
    gaps = outside(plan)
    if gaps:
        reason = "; ".join(gaps)
        rows = tuple(TaskBound(name, None, None, "", reason) for name in tasks)
        return Bounds(rows, (), {chain.name: ((OWN, None, reason),) for chain in plan.chains})
    whole = whole or respond(plan.policy, tasks, None, Corunning.of(plan).without_absent)
    finish = {name: response.value for name, response in whole.tight.items()}
    jitter = {name: activation(task, tasks, finish).jitter for name, task in tasks.items()}
    known: dict[str, TaskBound] = {}
    resources = []
    for group in components(tasks.values()):
        reason = _unfit(plan.policy, group, whole.tight)
        found = None if reason else analyse(as_taskset(plan.policy, group, jitter))
        lanes = sorted({lane for task in group for lane in task.lanes})
        names = tuple(f"{engine} {lane}" for engine, lane in lanes)
        resources.append(Resource(names, tuple(task.name for task in group), found, reason))
        for task in group:
            known[task.name] = _row(plan.policy, task.name, whole, found, reason)
    rows = tuple(known[name] for name in tasks)
    answers = as_responses(rows)
    return Bounds(rows, tuple(resources), {c.name: _ways(plan, c, whole, rows, answers) for c in plan.chains})


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
    plan: Plan, chain: ChainResult, whole: Whole, rows: Sequence[TaskBound], answers: Mapping[str, Response]
) -> tuple[tuple[str, int | None, str], ...]:
    """Return each analysis of a chain with its bound or the reason for its absence, shortest first."""
    parts = stretches(plan, chain)
    under = {"edf": "EDF", "fp": "fixed priorities"}[plan.policy]
    ways: list[tuple[str, int | None, str]] = []
    if plan.policy == "edf":
        own, tight = _reaction(parts, whole.own), _reaction(parts, whole.holistic)
        ways.append((DEMAND, own, "" if own is not None else "no local deadlines pass the demand bound"))
        ways.append((edf.HOLISTIC, tight, "" if tight is not None else "a response along the chain has no bound"))
        ways.append((FIXED, None, f"it applies to fixed priorities, the policy is {under}"))
    else:
        own = _reaction(parts, whole.own)
        ways.append((FIXED, own, "" if own is not None else "a response along the chain has no bound"))
        ways += [(name, None, f"it applies to EDF, the policy is {under}") for name in (DEMAND, edf.HOLISTIC)]
    windows = _reaction(parts, whole.tight)
    ways.append((path_windows.NAME, windows, "" if windows is not None else "a response along the chain has no bound"))
    best = _reaction(parts, answers)
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


@dataclass(frozen=True, slots=True)
class Used:
    """A test, the tasks or chains it bounds, and why it bounds no others."""

    name: str
    source: str
    bounds: tuple[str, ...]
    reason: str


_PLANNED = (
    ("holistic response times", "Tindell & Clark 1994; Lehoczky, RTSS 1990", "fp", "one", ("full", "segment")),
    (
        "non-preemptive response times",
        "Davis, Burns, Bril, Lukkien, RTS 35 2007",
        "fp",
        "one",
        ("none",),
    ),
    ("carry-in on partly shared lanes", "Bertogna & Cirinei, RTSS 2007, workload bound", "fp", "many", ()),
    ("EDF demand bound (QPA)", "Baruah, Rosier, Howell, RTS 2 1990; Zhang & Burns, TC 58(9) 2009", "edf", "one", ()),
    (edf.HOLISTIC, edf.HOLISTIC_SOURCE, "edf", "one", ()),
    ("EDF demand on partly shared lanes", "after Bertogna, Cirinei, Lipari, ECRTS 2005", "edf", "many", ()),
)


def applicable_tests(plan: Plan) -> list[Used]:
    """Return every test of a plan with the tasks or chains it bounds."""
    gaps = outside(plan)
    if gaps:
        return [Used(name, source, (), "; ".join(gaps)) for name, source, *_ in _PLANNED]
    groups = components(rt_tasks(plan).values())
    found = [_planned(plan, groups, *row) for row in _PLANNED]
    bounded = tuple(chain.name for chain in plan.chains if chain.bound_ns is not None)
    on_paths = tuple(chain.name for chain in plan.chains if path_windows.NAME in chain.test.split(" and "))
    shorter = "" if on_paths else "other bounds are at least as short"
    found.append(Used(path_windows.NAME, path_windows.SOURCE, on_paths, shorter))
    rest = [chain.name for chain in plan.chains if chain.bound_ns is None]
    reason = f"a response is unbounded in {', '.join(rest)}" if rest else ""
    found.append(Used("chain: sampling after responses", "Davare et al., DAC 2007", bounded, reason))
    return found


def _planned(
    plan: Plan,
    groups: Sequence[Sequence[RtTask]],
    name: str,
    source: str,
    policy: str,
    lanes: str,
    kinds: Sequence[str],
) -> Used:
    if plan.policy != policy:
        return Used(name, source, (), f"the plan's policy is {plan.policy}")
    right = [group for group in groups if single_resource(group) == (lanes == "one")]
    if not right:
        other = "different lanes" if lanes == "one" else "the same lanes or none in common"
        return Used(name, source, (), f"all tasks that share a resource occupy {other}")
    names = [task.name for group in right for task in group if not kinds or task.preemption in kinds]
    return Used(name, source, tuple(names), "" if names else f"no engine has {' or '.join(kinds)} preemption")


PAGE = "docs/proofs.md"
COMMON = "Common model"
INFEASIBLE = "Infeasible"
SECTIONS = {
    INFEASIBLE: (),
    "Execution times under shared bandwidth": (),
    "Fixed priorities, response times": ("response-time analysis", "busy-period analysis"),
    "Fixed priorities, no preemption": ("non-preemptive fixed priorities",),
    "Schedule abstraction": ("schedule abstraction",),
    "Fixed preemption points": ("fixed preemption points",),
    "Event streams": ("event streams",),
    "Utilisation bounds": (
        "utilisation",
        "Liu-Layland bound",
        "hyperbolic bound",
        "EDF utilisation",
        "SCHED_DEADLINE admission",
    ),
    "EDF demand bound": (
        "EDF demand bound (QPA)",
        "EDF demand bound with blocking",
        "non-preemptive EDF",
        DEMAND,
    ),
    "EDF response times": ("EDF response times",),
    "FIFO response times": ("FIFO response times",),
    "Global scheduling": (
        "global EDF density (GFB)",
        "global interference (BCL)",
        "global response times",
        "global response times, limited carry-in",
        "global non-preemptive fixed priorities",
        "global EDF tardiness",
    ),
    "Parallel graphs": ("graph alone (Graham)", "global graphs (Melani)", "typed graph alone (Han)"),
    "Self-suspension and accelerators": (
        "suspension as computation",
        "suspension as jitter R - C",
        "accelerator, busy waiting",
        "accelerator, server",
    ),
    "Memory reservations": ("memory accesses in the WCET", "bandwidth reservations (MemGuard)"),
    "Holistic response times": (FIXED, edf.HOLISTIC),
    "Windows of paths": (path_windows.NAME,),
    "Gangs": (),
    "Sampled chains": (
        "chain: Davare",
        "chain: Dürr",
        "chain: Kloda",
        "chain: Becker, response times",
        "chain: Günzel, local",
        "chain: LET, any phase",
        "chain: LET, known phases",
    ),
    "Mixed criticality": ("EDF-VD", "AMC-rtb", "AMC-max"),
}
"""Section -> the analyses whose assumptions it states."""
_OF = {name: section for section, names in SECTIONS.items() for name in names}


def sections(tests: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    """Return the sections that bounds by these analyses rest on, `more` sections included, in the page's order.

    An analysis that is not built in is cited by its own name: its assumptions are its author's.
    """
    used = {_OF.get(test, test) for test in tests if test} | set(more)
    if not used:
        return []
    known = [section for section in SECTIONS if section in used]
    return [COMMON, *known, *sorted(used - set(known))]


def chain_sections(plan: Plan) -> dict[str, list[str]]:
    """Return the sections that the bound of each of a plan's chains rests on; empty without a bound."""
    groups = components(rt_tasks(plan).values())
    return {chain.name: _chain_sections(plan, chain, groups) for chain in plan.chains}


def _chain_sections(plan: Plan, chain: ChainResult, groups: Sequence[Sequence[RtTask]]) -> list[str]:
    if chain.bound_ns is None:
        return []
    tests = set(chain.test.split(" and "))
    more = {"Sampled chains"} if len(stretches(plan, chain)) > 1 else set()
    if any(task.wcet_ns > task.cost_ns for task in plan.tasks):
        more.add("Execution times under shared bandwidth")
    if not all(single_resource(group) for group in groups):
        more.add("Gangs")
    if path_windows.NAME in tests:
        tests.add(FIXED if plan.policy == "fp" else edf.HOLISTIC)  # other jobs end by these bounds
    if FIXED in tests:
        kinds = {task.preemption for group in groups if single_resource(group) for task in group}
        more |= {"Fixed priorities, no preemption"} if "none" in kinds else set()
        more |= {"Fixed priorities, response times"} if kinds - {"none"} else set()
    if edf.HOLISTIC in tests:
        more.add("EDF response times")
    return sections(tests, more)


def union(by_chain: Iterable[Iterable[str]], infeasible: bool = False) -> list[str]:
    """Return the sections of several chains together, in the page's order; `infeasible`: and of necessities."""
    more = {INFEASIBLE} if infeasible else set()
    return sections((), more | {section for found in by_chain for section in found} - {COMMON})


def taskset_sections(analysis: Analysis) -> list[str]:
    """Return the sections that the verdict and the bounds of a task set rest on."""
    best = [*analysis.tasks.values(), *analysis.chain.values()]
    decided = (analysis.decided_by,) if analysis.verdict == "infeasible" else ()
    return sections((*(found.test for found in best if found.bound), *decided))
