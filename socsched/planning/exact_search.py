"""Constraint programming for a better mapping, or a proof that there is none; latency only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.cost.cost import Cost
from socsched.planning.candidate import Candidate, judge, objective_value, score
from socsched.planning.clock import Clock
from socsched.planning.cutting.divisible import Legs
from socsched.planning.cutting.search import Cutter
from socsched.planning.mapping.stages import exact_mapping
from socsched.planning.solution import Solution
from socsched.planning.workload import Unconnectable, Workload

WHOLE = 0.3
"""Share of the evaluations spent on mappings of whole stages, whose proof is much easier."""


def prove(
    solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock, cutter: Cutter | None = None
) -> Solution:
    """Search for a better mapping with CP-SAT and bound all others; only for latency as the first objective.

    With a `cutter`, mappings of its stages in parts that follow each other are tried as well, after those of whole
    stages; `whole` is the status of the latter.
    """
    if cutter is None or not cutter.stages:
        return _proved(solution, workload, goals, clock, None)
    first = _proved(solution, workload, goals, clock.part(WHOLE), None)
    status = first.exact.status if first.exact else ""
    return replace(_proved(first, workload, goals, clock, cutter), whole=status)


def _proved(
    solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock, cutter: Cutter | None
) -> Solution:
    def judged(mapping: Mapping[str, Cost], cuts: Mapping[str, Legs]) -> tuple[int, Candidate] | None:
        mapped = cutter.mapping(mapping, cuts) if cutter and cuts else (workload, mapping)
        if mapped is None:
            return None
        try:
            candidate = judge(*mapped)
        except Unconnectable:
            return None
        feasible = candidate.verdict == "feasible"
        return (int(objective_value(candidate, goals[0])), candidate) if feasible else None

    feasible = solution.candidate.verdict == "feasible"
    known = int(solution.score[1]) if feasible else None
    exact = exact_mapping(workload, judged, known, clock, divided=cutter.stages if cutter else None)
    if exact.best is None:
        return replace(solution, exact=exact)
    found = score(exact.best, goals)
    if feasible and found >= solution.score:
        return replace(solution, exact=exact)
    return replace(solution, candidate=exact.best, score=found, exact=exact)
