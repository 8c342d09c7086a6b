"""Engines whose jobs a plan preempts, for executors that run them to completion."""

from __future__ import annotations

from collections import Counter

from socsched.planning.plan import Plan


def unpreempted(plan: Plan) -> list[str]:
    """Return a notice for every engine whose jobs the plan preempts: those with preemption and a shared lane.

    Policies called ``np-NAME`` do not preempt.
    """
    users = Counter((task.engine, lane) for task in plan.tasks for lane in task.lanes)
    shared = {engine for (engine, _), count in users.items() if count > 1}
    return [
        f"jobs on {engine.id} run to completion, but the plan preempts them ({engine.preemption}): "
        f"responses can be longer than planned"
        for engine in plan.engines
        if not engine.policy.startswith("np-") and engine.preemption != "none" and engine.id in shared
    ]
