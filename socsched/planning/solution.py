"""The best mapping of whole stages in one power mode: list scheduling and local search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from socsched.errors import UsageError
from socsched.planning.candidate import Candidate, judge, make_improvement_test, score
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.mapping.mapper import Improved, Score, improve, initial_mapping
from socsched.planning.workload import Unconnectable, Workload

if TYPE_CHECKING:
    from socsched.planning.mapping.stages import Exact
    from socsched.planning.necessity import Proof


@dataclass(frozen=True, slots=True)
class Solution:
    """The best solution found in one mode.

    `floors`: least time (ns) of stages that may be cut, whatever the cuts; `notes`: why some of them are whole;
    `whole`: status of the proof for whole stages; `proof`: that no mapping meets every requirement, if that is known;
    `least`: what no mapping is below (ns), by requirement, if neither a plan nor a proof was found.
    """

    candidate: Candidate
    search: Improved
    score: Score
    exact: Exact[Candidate] | None = None
    floors: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""
    proof: Proof | None = None
    least: Mapping[str, int] = field(default_factory=dict)


def solve(workload: Workload, goals: Sequence[str], budget: int = 400, clock: Clock = NO_CLOCK) -> Solution:
    """Map by HEFT, then improve; UsageError if neighbours cannot be connected whatever the mapping."""

    search = improve(
        initial_mapping(workload), workload.options(), make_improvement_test(workload, goals), budget, clock
    )
    try:
        candidate = judge(workload, search.mapping)
    except Unconnectable as error:
        raise UsageError(str(error), "let an engine of the platform declare `converts: true`") from None
    return Solution(candidate, search, score(candidate, goals))


def mend(solution: Solution, goals: Sequence[str], budget: int, clock: Clock) -> Solution:
    """Return a solution that meets every requirement if moving stages one by one leads to one, else the given one.

    Moves are judged by the full analysis, while the preceding search spends less on each.
    """
    deployment = solution.candidate.deployment
    workload, mapping = deployment.workload, dict(deployment.mapping)
    found = improve(mapping, workload.options(), make_improvement_test(workload, goals, thorough=True), budget, clock)
    counted = replace(solution.search, evaluated=solution.search.evaluated + found.evaluated)
    candidate = judge(workload, found.mapping)
    if score(candidate, goals) >= solution.score:
        return replace(solution, search=counted)
    return replace(solution, candidate=candidate, score=score(candidate, goals), search=counted)
