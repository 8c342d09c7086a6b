"""EDF without, or with limited, preemption: demand and the longest region of a job due later fit every interval.

George, Rivierre, Spuri, "Preemptive and non-preemptive real-time uniprocessor scheduling", INRIA RR-2966 1996, theorem
14 (no preemption); regions after Baruah.
"""

from __future__ import annotations

from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, Scope, is_sporadic
from socsched.schedulability.published.qpa import judge


def run(problem: Problem) -> Answer:
    """Return whether demand and blocking fit every interval; with blocking, a failure means a miss in some phasing."""
    return judge(problem, exact=problem.preemption == "none" and is_sporadic(problem.tasks))


TEST = SchedulabilityTest(
    "EDF demand bound with blocking",
    "George, Rivierre, Spuri, INRIA RR-2966 1996, theorem 14; regions after Baruah",
    Scope(rules=("edf",), preemption=("none", "limited"), takes=frozenset({"jitter"})),
    run,
    rank=12,
)
