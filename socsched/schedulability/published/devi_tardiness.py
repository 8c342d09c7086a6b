"""Global EDF: tardiness is bounded as long as the processors are not overutilised.

Devi & Anderson, "Tardiness bounds under global EDF scheduling on a multiprocessor", RTSS 2005 and Real-Time Systems
2008, with sums over the largest costs and utilisations as in Devi's thesis, corollary 4.11.
"""

from __future__ import annotations

from math import ceil

from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest, Scope


def run(problem: Problem) -> Answer:
    """Return deadline + x + C, x = (m - 1 largest C, less the least C) / (m - the m - 2 largest utilisations)."""
    m = problem.processors
    if problem.utilisation > m or any(task.wcet_ns > task.period_ns for task in problem.tasks):
        return Answer(
            None, note=f"utilisation {float(problem.utilisation):.4f} is over {m}, or that of one task is over 1"
        )
    costs = sorted((task.wcet_ns for task in problem.tasks), reverse=True)
    shares = sorted((task.utilisation for task in problem.tasks), reverse=True)
    late = max(sum(costs[: m - 1]) - costs[-1], 0) / (m - sum(shares[: max(m - 2, 0)]))
    bounds = {
        task.name: Bound(
            task.deadline_ns + ceil(late) + task.wcet_ns,
            (("deadline", task.deadline_ns), ("wcet", task.wcet_ns), ("tardiness of all, x", ceil(late))),
        )
        for task in problem.tasks
    }
    return Answer(None, bounds, note="a bound of tardiness, not a proof that deadlines are met")


TEST = SchedulabilityTest(
    "global EDF tardiness",
    "Devi & Anderson, RTSS 2005 and Real-Time Systems 2008",
    Scope(rules=("edf",), processors="many", deadlines="equal"),
    run,
    rank=20,
)
