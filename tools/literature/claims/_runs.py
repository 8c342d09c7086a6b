"""Plans of planners for claims, simulated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.planners import planner
from socsched.planning.planners.propose import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result

ORIN, XAVIER = "jetson-agx-orin-64gb", "jetson-agx-xavier"
SECOND = 10**9


@cache
def _board(name: str) -> Any:
    return get_platform(name)


def planned(
    name: str, what: Pipeline, options: Mapping[str, str] | None = None, board: str = ORIN, mode: str | None = "MAXN"
) -> Plan:
    """Return a planner's plan; for "socsched" the one that `socsched plan` gives."""
    if name == "socsched":
        goal = dict(options or {}).get("objective", "latency")
        return plan_with(what, _board(board), mode, PlanOptions(objective=goal, explain=False))
    return make_plan(planner(name), what, _board(board), mode, work=stage_work, options=options)


def chains_ms(plan: Plan, seconds: float = 3.0) -> dict[str, float]:
    """Return the mean response of every chain (ms) as simulated."""
    trace = run(plan, round(seconds * SECOND)).trace
    assert trace is not None
    chains = result(trace, plan)["chains"]
    return {name: (each["response_time_ns"]["mean"] or float("nan")) / 1e6 for name, each in chains.items()}


def makespan_ms(
    name: str, what: Pipeline, options: Mapping[str, str] | None = None, board: str = ORIN, mode: str | None = "MAXN"
) -> float:
    """Return when the last of the chains that start together ends (ms), as simulated."""
    return max(chains_ms(planned(name, what, options, board, mode)).values())
