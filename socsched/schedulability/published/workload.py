"""Helpers of global tests: bounds on the execution of a task in a window of given length."""

from __future__ import annotations

from collections.abc import Callable

from socsched.descriptor.taskset_model import PeriodicTask


def carry_in(task: PeriodicTask, window: int, response: int) -> int:
    """Return the most a task executes in a window, possibly with a carry-in job.

    Its first job ends exactly `response` after its arrival, the others run as early as possible (Bertogna & Cirinei,
    RTSS 2007, equation 4, and 8 where `response` is below the deadline).
    """
    jobs = (window + response - task.wcet_ns) // task.period_ns
    rest = window + response - task.wcet_ns - jobs * task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, rest)


def no_carry_in(task: PeriodicTask, window: int) -> int:
    """Return the most a task executes in a window with no job of it unfinished at the start.

    Guan, Stigge, Yi, Yu, RTSS 2009, equation 5.
    """
    return window // task.period_ns * task.wcet_ns + min(task.wcet_ns, window % task.period_ns)


def due_within(task: PeriodicTask, window: int, slack: int) -> int:
    """Return the most a task executes in a window at whose end a job of it is due, under EDF.

    `slack` is the least time before its deadline at which each job is known to end (Bertogna & Cirinei, RTSS 2007,
    equations 5 and 9).
    """
    jobs = window // task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, max(window - jobs * task.period_ns - slack, 0))


def settle(need: Callable[[int], int], start: int, limit: int) -> int | None:
    """Return a window (ns) with need(window) <= window, as small as can be found; None if none is within `limit`.

    `need` must not decrease as windows grow.  Steps towards the least such window can be as short as 1 ns, so after
    `PLAIN` steps the search leaps ahead and comes back: if need(x) <= x, need(x) is such a window as well.
    """
    window, steps = start, 0
    while (longer := need(window)) > window:
        steps += 1
        window = longer if steps < PLAIN else max(longer, window + (window - start) // 100)
        if window > limit:
            if longer > limit or need(limit) > limit:
                return None
            window = limit
    for _ in range(PLAIN if steps >= PLAIN else 0):
        if (shorter := need(window)) >= window:
            break
        window = max(shorter, start)
    return window if window <= limit else None


PLAIN = 40
"""Steps before `settle` leaps, and steps back afterwards."""
