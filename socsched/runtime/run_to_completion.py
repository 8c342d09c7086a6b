"""Engines whose jobs a plan preempts, for executors that run them to completion."""

from __future__ import annotations

from collections import Counter

from socsched.planning.plan import Plan
from socsched.sim.mechanisms import apply_policies
from socsched.sim.policies import get_policy


def unpreempted(plan: Plan) -> list[str]:
    """Return a notice for every engine whose jobs the plan preempts: those with preemption and a shared lane."""
    users = Counter((task.engine, lane) for task in plan.tasks for lane in task.lanes)
    shared = {engine for (engine, _), count in users.items() if count > 1}
    effective = apply_policies(plan, [get_policy(engine.policy) for engine in plan.engines]).engines
    return [
        f"jobs on {engine.id} run to completion, but the plan preempts them ({engine.preemption}): "
        f"responses can be longer than planned"
        for engine in effective
        if engine.preemption != "none" and engine.id in shared
    ]
