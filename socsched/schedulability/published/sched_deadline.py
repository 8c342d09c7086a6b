"""Admission test of Linux SCHED_DEADLINE: a reservation of the WCET per deadline.

Linux kernel documentation, Documentation/scheduler/sched-deadline.rst, section 4 (bandwidth management); Abeni &
Buttazzo, "Integrating multimedia applications in hard real-time systems", RTSS 1998 (constant bandwidth server).
"""

from __future__ import annotations

from fractions import Fraction

from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    percent,
)

LIMIT = Fraction(950_000, 1_000_000)
"""sched_rt_runtime_us / sched_rt_period_us by kernel default."""


def run(problem: Problem) -> Answer:
    """Return whether sum of C/T is at most 0.95 m; on one processor with D >= T that guarantees the deadlines."""
    total, limit = problem.utilisation, LIMIT * problem.processors
    terms = tuple((f"{task.name}, ppm", percent(task.utilisation)) for task in problem.tasks)
    note = f"bandwidth {float(total):.4f} {'is at most' if total <= limit else 'is over'} {float(limit):.4f}"
    if total > limit:
        return Answer(None, terms=terms, note=f"not admitted: {note}")
    if problem.processors == 1 and all(task.deadline_ns >= task.period_ns for task in problem.tasks):
        return deadlines_met(problem, terms, f"admitted: {note}")
    return Answer(None, terms=terms, note=f"admitted, which does not guarantee the deadlines here: {note}")


TEST = SchedulabilityTest(
    "SCHED_DEADLINE admission",
    "Linux sched-deadline.rst, section 4; Abeni & Buttazzo, RTSS 1998",
    Scope(rules=("edf",), processors="any"),
    run,
    rank=14,
)
