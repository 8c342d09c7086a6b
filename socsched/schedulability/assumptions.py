"""The sections of docs/proofs.md that bounds rest on, by name of the analysis."""

from __future__ import annotations

from collections.abc import Iterable

from socsched.planning.plan import ChainResult, Plan
from socsched.schedulability import edf_holistic, path_windows
from socsched.schedulability.plan_analysis import DEMAND, FIXED, stretches
from socsched.schedulability.published.choose import Analysis
from socsched.schedulability.tasks import components, rt_tasks, single_resource

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
    "Holistic response times": (FIXED, edf_holistic.NAME),
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
    "Probability of misses": (),
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


def chain_sections(plan: Plan, chain: ChainResult) -> list[str]:
    """Return the sections that the bound of a plan's chain rests on; empty without a bound."""
    if chain.bound_ns is None:
        return []
    tests = set(chain.test.split(" and "))
    more = {"Sampled chains"} if len(stretches(plan, chain)) > 1 else set()
    if any(task.wcet_ns > task.cost_ns for task in plan.tasks):
        more.add("Execution times under shared bandwidth")
    groups = components(rt_tasks(plan).values())
    if not all(single_resource(group) for group in groups):
        more.add("Gangs")
    if path_windows.NAME in tests:
        tests.add(FIXED if plan.policy == "fp" else edf_holistic.NAME)  # other jobs end by these bounds
    if FIXED in tests:
        kinds = {task.preemption for group in groups if single_resource(group) for task in group}
        more |= {"Fixed priorities, no preemption"} if "none" in kinds else set()
        more |= {"Fixed priorities, response times"} if kinds - {"none"} else set()
    if edf_holistic.NAME in tests:
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
