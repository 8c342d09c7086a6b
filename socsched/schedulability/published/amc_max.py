"""Adaptive mixed criticality, maximum over the instant of the overrun (AMC-max): fixed priorities, two levels, D <= T.

Baruah, Burns, Davis, "Response-time analysis for mixed criticality systems", RTSS 2011, section IV.B: for each instant
s of the overrun, low criticality is released up to s, and only the jobs of high criticality that end after s take long.
"""

from __future__ import annotations

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.amc_rtb import SCOPE, Tasks, degraded, fixed_point, rows
from socsched.schedulability.published.edf_vd import two_levels
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, responses
from socsched.schedulability.rta_fp import ceil_div


def after_overrun(task: PeriodicTask, higher: Tasks, quiet: int) -> int | None:
    """Return the longest response (ns) over all instants of the overrun, of which `quiet` is the last."""
    low = [other for other in higher if not other.level]
    instants = sorted({0, *(at for other in low for at in range(0, quiet, other.period_ns))})
    worst = 0
    for instant in instants:
        found = _response(task, higher, low, instant)
        if found is None:
            return None
        worst = max(worst, found)
    return worst


def _response(task: PeriodicTask, higher: Tasks, low: Tasks, instant: int) -> int | None:
    fixed = task.wcet_ns + sum((instant // other.period_ns + 1) * other.wcet_at(0) for other in low)
    high = [other for other in higher if other.level]

    def longer(length: int) -> int:
        return fixed + sum(_interference(other, instant, length) for other in high) + degraded(low, length)

    return fixed_point(fixed, longer, task.deadline_ns)


def _interference(other: PeriodicTask, instant: int, length: int) -> int:
    """Return the work (ns) of a task of high criticality in a window of `length` with the overrun at `instant`."""
    jobs = ceil_div(length, other.period_ns)
    # A job that ends after the overrun has its deadline after it.
    long = min(max(ceil_div(length - instant - (other.period_ns - other.deadline_ns), other.period_ns) + 1, 0), jobs)
    return long * other.wcet_ns + (jobs - long) * other.wcet_at(0)


def run(problem: Problem) -> Answer:
    """Return the response of every task; at most that of AMC-rtb."""
    return responses(rows(problem, after_overrun), exact=False)


TEST = SchedulabilityTest(
    "AMC-max", "Baruah, Burns, Davis, RTSS 2011, section IV.B", SCOPE, run, also=two_levels, rank=42
)
