"""The proof behind an "infeasible" verdict: no mapping meets every requirement.

Lower bounds come first (`impossible`), then all mappings one by one if there are few, then CP-SAT if requested.  The
last two do not cover networks that may be cut: there are too many ways to cut them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.cost.cost import Cost
from socsched.planning.candidate import Candidate, judge
from socsched.planning.clock import Clock
from socsched.planning.cutting.divisible import Divisible
from socsched.planning.impossible import all_costs, impossible
from socsched.planning.plan import Violation
from socsched.planning.workload import Unconnectable, Workload
from socsched.units import format_bandwidth, format_duration, format_power

FEW = 500
"""Maximum number of mappings tried one by one."""


@dataclass(frozen=True, slots=True)
class Refutation:
    """A proof that no mapping meets every requirement: how it was found, in words, and the bounds it rests on."""

    method: str
    text: str
    bounds: tuple[Violation, ...] = ()


def by_bounds(workload: Workload, divided: Mapping[str, Divisible], unknown: Sequence[str] = ()) -> Refutation | None:
    """Return the proof by lower bounds, None if they prove nothing; `unknown`: stages that may or may not be cut."""
    found = impossible(workload, divided, unknown)
    if not found:
        return None
    first = found[0]
    least = f"{first.requirement}: at least {_shown(first.demand, first)}, allowed {_shown(first.bound, first)}"
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Refutation("lower bound", f"{least}{more}", tuple(found))


def by_search(workload: Workload, exact: bool, clock: Clock) -> Refutation | None:
    """Return the proof by trying all mappings of whole stages, None if one may meet every requirement.

    With `exact`, CP-SAT skips those that a relaxation rules out, so that many can be covered.
    """
    options = {name: all_costs(workload, workload.graph.stage(name)) for name in workload.graph.order}
    count = math.prod(len(costs) for costs in options.values())
    if count <= FEW:
        names = list(options)
        for costs in itertools.product(*options.values()):
            if clock.over() or not _violates(workload, dict(zip(names, costs, strict=True))):
                return None
        return Refutation("exhaustive search", f"each of the {count} mappings violates a requirement")
    if not exact:
        return None

    def judged(mapping: Mapping[str, Cost], _: object) -> tuple[int, None] | None:
        return None if _violates(workload, mapping) else (0, None)

    from socsched.planning.mapping.stages import exact_mapping

    answer = exact_mapping(workload, judged, None, clock.left(), options=options)
    if answer.status != "infeasible":
        return None
    ruled = "CP-SAT finds no mapping within " + (", ".join(answer.conflict) or "all limits")
    tried = f"{ruled}, except {answer.tried} that violate a requirement when analysed" if answer.tried else ruled
    return Refutation("CP-SAT", tried)


def _violates(workload: Workload, mapping: Mapping[str, Cost]) -> bool:
    try:
        return bool(judge(workload, mapping).violations)
    except Unconnectable:
        return True


def _shown(value: int, violation: Violation) -> str:
    if violation.unit == "ns/s":
        return f"{value / 1e7:.4g} %"
    formatter = {"ns": format_duration, "mW": format_power, "B/s": format_bandwidth}.get(violation.unit)
    return formatter(value) if formatter else f"{value} {violation.unit}"


def meet_requirements(workload: Workload, mapping: Mapping[str, Cost]) -> Candidate | None:
    """Return the candidate of a mapping if it meets every requirement, else None."""
    try:
        candidate = judge(workload, mapping)
    except Unconnectable:
        return None
    return candidate if candidate.verdict == "feasible" else None
