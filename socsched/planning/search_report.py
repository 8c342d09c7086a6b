"""The report of the search behind a plan: the method, the value it reached, and the proof if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from socsched.descriptor.limits import Amount, Json, Line, LongLine, Number, Objectives, Setting
from socsched.planning.necessity import Proof

TIME_LIMIT = "time limit"
"""Status of a search that a limit on time ended."""
IMPORTED = "imported"
"""`SearchReport.name` of a plan that describes a recording: nothing was searched for."""


@dataclass(frozen=True, slots=True)
class ModeResult:
    """The verdict and objective value of the best plan in a power mode."""

    verdict: Line | None = None
    value: Number | None = None


@dataclass(frozen=True, slots=True)
class OpenRequirement:
    """A requirement of an undecided plan: the `demand` of the best mapping found, and the `bound` it exceeds.

    `least`: what no mapping is below, None if unknown; between it and `bound` another mapping may lie.
    """

    requirement: Line
    demand: Number
    least: Number | None
    bound: Number
    unit: Line


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The planner or solver, how it ended, and the value of the plan in the unit of the first objective.

    The unit is ns for latency and longest, mW for energy, a share for throughput and slack.  `bound`: a lower bound of
    the value, None if unknown; `gap`: the share of the value above it, None for a plan that does not meet every
    requirement; `overrun`: the share by which requirements are exceeded, summed over them.  `evaluated`: mappings
    tried; `modes`: the outcome in each power mode; `notes`: stage -> the reason why it is cut as it is, or whole.

    Of a CP-SAT search: `proposed` mappings, `conflict`, the requirements it cannot meet together; where networks may be
    cut, the `scope` of its proof and its status for `whole_stages`.  Of an infeasible plan: the `proof`.  Of a
    planner other than the built-in search: its `source`, `options` and `facts`.  Of a refined plan: the number of
    `rounds`, and whether they reached a `fixed_point`.  Of the best of several planners: `compared_latency_ns`, the
    simulated latency (ns) of each.  Where the first search of a portfolio found no feasible plan: `portfolio`, the
    searches tried in order, and `found_by`, the one that found this plan, if any.  Of an undecided plan: the `open`
    requirements, and what would decide them (`decide`), a line each.  `chosen`: what the planner chose beyond the
    mapping, where the pipeline states nothing (`planning.choices`), by stage.  What does not apply is None.

    `cut_off`: true where a limit on time ended the search before its budget of evaluations did, so that another run may
    give another plan; absent otherwise.
    """

    name: Line = ""
    status: Line | None = None
    objective: Objectives = ()
    value: Number | None = None
    bound: Number | None = None
    gap: Number | None = None
    overrun: Number | None = None
    evaluated: Amount | None = None
    modes: Mapping[Line, ModeResult] = field(default_factory=dict)
    notes: Mapping[Line, Line] | None = None
    proposed: Amount | None = None
    conflict: tuple[Line, ...] | None = None
    scope: Line | None = None
    whole_stages: Line | None = None
    proof: Proof | None = None
    source: Line | None = None
    options: Mapping[Line, Setting] | None = None
    facts: Mapping[str, Json] | None = None
    rounds: Amount | None = None
    fixed_point: bool | None = None
    compared_latency_ns: Mapping[Line, Amount] | None = None
    portfolio: tuple[Line, ...] | None = None
    found_by: Line | None = None
    open: tuple[OpenRequirement, ...] | None = None
    decide: tuple[LongLine, ...] | None = None
    chosen: Mapping[Line, Mapping[Line, Amount]] | None = None
    cut_off: bool | None = None

    @property
    def cut_short(self) -> bool:
        """Return whether a limit on time ended the search, as plans of versions before 0.2 say by their `status`."""
        return bool(self.cut_off) or self.status == TIME_LIMIT


def gap(value: float | None, bound: float | None) -> float | None:
    """Return the share of a value that lies above its lower bound, None without a bound or for a value of 0."""
    return None if bound is None or not value else round(max(value - bound, 0) / value, 6)
