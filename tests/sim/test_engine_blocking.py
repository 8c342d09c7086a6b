"""A job that cannot be preempted blocks until its end and no longer."""

from __future__ import annotations

import pytest
from builders import engine, plan, task

from socsched.sim.simulate import simulate


@pytest.mark.parametrize(("preemption", "start", "blocking"), [("none", 10, 6), ("full", 4, 0)])
def test_lower_priority_blocks_until_it_ends(preemption: str, start: int, blocking: int) -> None:
    low = task("low", 10, period_ns=100, priority=2)
    high = task("high", 3, period_ns=100, offset_ns=4, priority=1)
    trace = simulate(plan([high, low], [engine(policy="fp", preemption=preemption)]), 100)
    job = next(job for job in trace.jobs if job.task == "high")
    assert (job.start_ns, job.blocking_ns) == (start, blocking)
