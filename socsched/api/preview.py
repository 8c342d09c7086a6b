"""The trace that is shown for a plan: a simulation of its first hyperperiod."""

from __future__ import annotations

from typing import TYPE_CHECKING

from socsched.errors import UsageError

if TYPE_CHECKING:
    from socsched.planning.plan import Plan
    from socsched.trace.trace import Trace

LONGEST_NS = 10 * 10**9
"""Longest part (ns) of a hyperperiod that is simulated."""


def preview(plan: Plan) -> Trace:
    """Return a simulation of a plan for one hyperperiod, or for two of its longest periods if that is longer."""
    from socsched.planning.export.accelerators import hyperperiod_ns
    from socsched.sim.engine import simulate as traced

    if not plan.tasks:
        raise UsageError("nothing to show: a stage has no engine", "run `socsched plan` to see which stage and why")
    length = min(hyperperiod_ns(plan.tasks), LONGEST_NS)
    return traced(plan, max(length, 2 * max(t.period_ns for t in plan.tasks)))
