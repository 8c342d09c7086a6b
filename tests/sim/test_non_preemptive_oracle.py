"""Non-preemptive fixed priority against the exact bounds of schedule-abstraction graphs (SAG) on one processor."""

from __future__ import annotations

import json
from math import lcm

import pytest
from builders import shared, task_set

from socsched.sim.engine import simulate


def test_responses_lie_within_the_exact_bounds() -> None:
    cases = json.loads(shared("rt", "sag", "np_oracle.json").read_text())["cases"]
    single = [case for case in cases if case["processors"] == 1 and case.get("per_task")]
    touched = 0
    for case in single:
        if any(task["jitter"] for task in case["tasks"]):
            continue
        bounds = case["per_task"]
        hyperperiod = lcm(*(task["period"] for task in case["tasks"]))
        for pick in ("bcet", "wcet"):
            chosen = {**case, "tasks": [{**task, "wcet": task[pick]} for task in case["tasks"]]}
            trace = simulate(task_set(chosen, policy="fp", preemption="none"), 2 * hyperperiod * 1000)
            for job in trace.jobs:
                if job.activation_ns < hyperperiod * 1000 and job.status == "done":
                    response = (job.finish_ns - job.activation_ns) // 1000
                    bound = bounds[job.task]
                    assert bound["bcrt"] <= response <= bound["wcrt"], (case["id"], job)
                    touched += response == bound["wcrt"]
            assert all(job.preemptions == 0 for job in trace.jobs)
    assert touched > 0


@pytest.mark.parametrize(("preemption", "start", "blocking"), [("none", 10, 6), ("full", 4, 0)])
def test_lower_priority_blocks_until_it_ends(preemption: str, start: int, blocking: int) -> None:
    low = {"id": 2, "period": 100, "deadline": 100, "wcet": 10, "prio": 2}
    high = {"id": 1, "period": 100, "deadline": 100, "wcet": 3, "offset": 4, "prio": 1}
    data = {"processors": 1, "tasks": [high, low]}
    trace = simulate(task_set(data, policy="fp", preemption=preemption), 100_000)
    job = next(job for job in trace.jobs if job.task == "1")
    assert (job.start_ns // 1000, job.blocking_ns // 1000) == (start, blocking)
