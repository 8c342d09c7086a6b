"""Fixed priorities, any deadlines: every job of the level-i busy period.

Lehoczky, "Fixed priority scheduling of periodic task sets with arbitrary deadlines", RTSS 1990; jitter as in
Tindell, Burns, Wellings, "An extendible approach for analysing fixed priority hard real-time tasks", RTS 6(2) 1994.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.schedulability.published import rta
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, responses


def run(problem: Problem) -> Answer:
    """Return the response of every task, none for a task whose busy period exceeds 64 times the longest period."""
    exact = "blocking" not in problem.features and problem.preemption == "full"
    return responses(rta.window(problem, whole=True), exact)


TEST = SchedulabilityTest(
    "busy-period analysis",
    "Lehoczky, RTSS 1990; Tindell, Burns, Wellings, RTS 6(2) 1994",
    replace(rta.SCOPE, deadlines="arbitrary"),
    run,
    exact=True,
    rank=4,
)
