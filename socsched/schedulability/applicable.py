"""The plan's own tests: the tasks and chains each of them bounds, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.planning.plan import Plan
from socsched.schedulability import edf_holistic, path_windows
from socsched.schedulability.coverage import outside
from socsched.schedulability.tasks import RtTask, components, rt_tasks, single_resource


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
    (edf_holistic.NAME, edf_holistic.SOURCE, "edf", "one", ()),
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
