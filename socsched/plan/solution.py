"""The best mapping in one power mode: list scheduling, local search, and a proof where one is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from socsched.cost.cost import Cost
from socsched.errors import UsageError
from socsched.plan.candidate import Candidate, Score, better, judge, objective_value, score
from socsched.plan.deployment import Unconnectable, Workload
from socsched.plan.mapping.mapper import Improved, improve, initial_mapping
from socsched.plan.mapping.stages import Exact, exact_mapping


@dataclass(frozen=True, slots=True)
class Solution:
    """The best found in one mode.

    `floors`: what stages that may be cut take at least (ns), whatever the cuts; `notes`: why some of them are whole.
    """

    candidate: Candidate
    search: Improved
    score: Score
    exact: Exact[Candidate] | None = None
    floors: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def solve(workload: Workload, goals: Sequence[str], budget: int = 400, time_limit: float | None = None) -> Solution:
    """Map by HEFT, then improve; UsageError when neighbours cannot be connected whatever the mapping."""
    options = {name: workload.model.candidates(workload.graph.stage(name)) for name in workload.graph.order}

    def beats(mapping: Mapping[str, Cost], best: Score) -> Score | None:
        try:
            found = better(workload, mapping, goals, best)
        except Unconnectable:
            return None
        return score(found, goals) if found else None

    search = improve(initial_mapping(workload), options, beats, budget, time_limit)
    try:
        candidate = judge(workload, search.mapping)
    except Unconnectable as error:
        raise UsageError(str(error), "let an engine of the platform declare `converts: true`") from None
    return Solution(candidate, search, score(candidate, goals))


def prove(solution: Solution, workload: Workload, goals: Sequence[str], seconds: float) -> Solution:
    """Let CP-SAT look for a better mapping and bound all others; for the first objective latency only."""

    def judged(mapping: Mapping[str, Cost]) -> tuple[int, Candidate] | None:
        try:
            candidate = judge(workload, mapping)
        except Unconnectable:
            return None
        feasible = candidate.verdict == "feasible"
        return (int(objective_value(candidate, goals[0])), candidate) if feasible else None

    feasible = solution.candidate.verdict == "feasible"
    exact = exact_mapping(workload, judged, int(solution.score[1]) if feasible else None, seconds)
    if exact.best is None:
        return replace(solution, exact=exact)
    found = score(exact.best, goals)
    if feasible and found >= solution.score:
        return replace(solution, exact=exact)
    return Solution(exact.best, solution.search, found, exact)
