"""The best mapping of whole stages in one power mode: list scheduling and local search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from socsched.errors import UsageError
from socsched.plan.candidate import Candidate, beating, judge, score
from socsched.plan.mapping.mapper import Improved, Score, improve, initial_mapping
from socsched.plan.mapping.stages import Exact
from socsched.plan.workload import Unconnectable, Workload


@dataclass(frozen=True, slots=True)
class Solution:
    """The best found in one mode.

    `floors`: what stages that may be cut take at least (ns), whatever the cuts; `notes`: why some of them are whole;
    `whole`: how the proof for whole stages ended.
    """

    candidate: Candidate
    search: Improved
    score: Score
    exact: Exact[Candidate] | None = None
    floors: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    whole: str = ""


def solve(workload: Workload, goals: Sequence[str], budget: int = 400, time_limit: float | None = None) -> Solution:
    """Map by HEFT, then improve; UsageError when neighbours cannot be connected whatever the mapping."""

    search = improve(initial_mapping(workload), workload.options(), beating(workload, goals), budget, time_limit)
    try:
        candidate = judge(workload, search.mapping)
    except Unconnectable as error:
        raise UsageError(str(error), "let an engine of the platform declare `converts: true`") from None
    return Solution(candidate, search, score(candidate, goals))
