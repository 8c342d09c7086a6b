"""What global tests share: how much a task can execute in a window of given length."""

from __future__ import annotations

from collections.abc import Callable

from socsched.descriptor.taskset_model import PeriodicTask


def carry_in(task: PeriodicTask, window: int, response: int) -> int:
    """Return the most a task executes in a window, a job of it possibly begun before.

    Its first job ends just `response` after its arrival, the others run as early as they can (Bertogna & Cirinei, RTSS
    2007, equation 4, and 8 where `response` is below the deadline).
    """
    jobs = (window + response - task.wcet_ns) // task.period_ns
    rest = window + response - task.wcet_ns - jobs * task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, rest)


def no_carry_in(task: PeriodicTask, window: int) -> int:
    """Return the most a task executes in a window when no job of it is unfinished at its start.

    Guan, Stigge, Yi, Yu, RTSS 2009, equation 5.
    """
    return window // task.period_ns * task.wcet_ns + min(task.wcet_ns, window % task.period_ns)


def due_within(task: PeriodicTask, window: int, slack: int) -> int:
    """Return the most a task executes in a window at whose end a job of it is due, under EDF.

    `slack` is how long before its deadline each job of it is known to end (Bertogna & Cirinei, RTSS 2007, equations
    5 and 9).
    """
    jobs = window // task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, max(window - jobs * task.period_ns - slack, 0))


def settle(need: Callable[[int], int], start: int, limit: int) -> int | None:
    """Return a window (ns) with need(window) <= window, as small as can be found; None when none is within `limit`.

    `need` must not fall as windows grow.  Steps towards the least such window can be as short as 1 ns, so after some
    the search leaps and comes back: with need(x) <= x, need(x) is such a window as well.
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
"""Steps before `settle` leaps, and back again after."""
