"""The searches that planning tries in order: the next one starts only if the previous ones found no feasible plan.

Each is limited by counters of work, and the order is fixed: plans do not depend on the speed of the machine unless the
guard rail on time ends a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from socsched.planning.clock import Clock
from socsched.planning.mapping.program import available
from socsched.planning.plan_writer import SPENT
from socsched.schedulability.high_level import is_mixed

if TYPE_CHECKING:
    from socsched.api.planning import PlanOptions
    from socsched.planning.draft import Draft
    from socsched.planning.plan import Plan

AUTO = "auto"
"""As a policy: EDF, and fixed priorities if no plan is found."""
PORTFOLIO = "portfolio"
"""As a solver: all of them in order."""
_NAMES = {"heft": "list search", "restarts": "restarts", "cpsat": "CP-SAT", "auto": "CP-SAT if installed"}
_WEIGHTS = {"restarts": 2, "cpsat": 1}
"""Weights of searches among which the budget is divided: of the plans found late, restarts find most."""
_LAST = 0.85
"""Share of the budget left for all further searches; the rest explains a plan that is not feasible."""


@dataclass(frozen=True, slots=True)
class Member:
    """A search: a solver under a policy."""

    policy: str
    solver: str

    @property
    def name(self) -> str:
        """Return the name that reports state."""
        return f"{_NAMES.get(self.solver, self.solver)} under {self.policy}"


def members(options: PlanOptions) -> list[Member]:
    """Return the searches that options ask for, in order.

    CP-SAT is one only where OR-Tools is installed and planning has a budget: it ends by that alone.
    """
    policies = ("edf", "fp") if options.policy == AUTO else (options.policy,)
    if options.solver != PORTFOLIO:
        return [Member(policy, options.solver) for policy in policies]
    latency = options.objective.split(",")[0] == "latency"  # the only objective that CP-SAT minimises
    exact = latency and available() and options.evaluations is not None
    solvers = ("restarts", "cpsat") if exact else ("restarts",)
    # Restarts begin with a list search, so that only the first policy needs one of its own.
    return [Member(policies[0], "heft"), *(Member(policy, solver) for solver in solvers for policy in policies)]


def first_feasible(
    names: list[str], others: list[Member], search: Callable[[Member, Clock], Draft], clock: Clock
) -> Draft | None:
    """Return the first feasible draft of `others`, with a report of the searches tried; None if none finds one.

    `names`: the searches tried before, to which this one adds.
    """
    end = clock.part(_LAST)
    for number, member in enumerate(others):
        if end.over():
            break
        names.append(member.name)
        weights = [_WEIGHTS.get(other.solver, 1) for other in others[number:]]
        draft = search(member, end.part(weights[0] / sum(weights)))
        if draft.plan.verdict == "feasible":
            report = replace(draft.plan.solver, portfolio=tuple(names), found_by=member.name)
            return replace(draft, plan=replace(draft.plan, solver=report))
    return None


def undecided(plan: Plan, tried: Sequence[str], options: PlanOptions) -> Plan:
    """Return an undecided plan with the searches tried and what would decide it; any other plan as it is."""
    if plan.verdict != "undecided":
        return plan
    lines = []
    if plan.solver.cut_off:
        lines.append(f"more time than {options.time_limit:g} s, which cut the search off: --time-limit")
    elif plan.solver.status == SPENT and options.evaluations is not None:
        lines.append(f"more evaluations than {options.evaluations}, which ended the search: --evaluations")
    if not any(_NAMES["cpsat"] in name for name in tried):
        if not available():
            lines.append("an exact search, for which OR-Tools is not installed: pip install ortools")
        elif options.objective.split(",")[0] != "latency":
            lines.append("an exact search: --objective latency --solver cpsat")
        else:
            lines.append("an exact search: --solver cpsat")
    if options.policy == "edf" and is_mixed(plan):
        lines.append("fixed priorities, under which more is proved at the high level of criticality: --policy fp")
    unbounded = [chain.name for chain in plan.chains if chain.bound_ns is None]
    if unbounded and not plan.violations:
        lines.append(f"a bound for {', '.join(unbounded)}: no analysis has one (socsched analyze gives the reasons)")
    return replace(plan, solver=replace(plan.solver, portfolio=tuple(tried), decide=tuple(lines)))
