"""A plan on its way: what the search found, and what remains to be computed if the plan is kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from socsched.descriptor.limits import Objective
from socsched.planning.candidate import judge
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.mapping.local_search import Solution
from socsched.planning.plan import Plan
from socsched.planning.uncertainty import uncertainty


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan without its uncertainty, which is computed only for plans that are kept.

    `solution` is None for a plan without tasks, whose costs are not in doubt.
    """

    plan: Plan
    solution: Solution | None
    objective: Objective

    def finished(self, clock: Clock = NO_CLOCK) -> Plan:
        """Return the plan with its uncertainty, as far as it is known when the `clock` runs out."""
        if self.solution is None:
            return self.plan
        deployment = self.solution.candidate.deployment
        open_ = uncertainty(self.plan, deployment.workload, deployment.mapping, judge, self.objective, clock)
        return replace(self.plan, uncertainty=open_)
