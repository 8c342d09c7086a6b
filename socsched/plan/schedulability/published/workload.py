"""What global tests share: how much a task can execute in a window of given length."""

from __future__ import annotations

from socsched.descriptor.taskset_model import PeriodicTask


def carry_in(task: PeriodicTask, window: int, response: int) -> int:
    """Return the most a task executes in a window, a job of it possibly begun before.

    Its first job ends just `response` after its arrival, the others run as early as they can (Bertogna & Cirinei, RTSS
    2007, equation 4).
    """
    jobs = (window + response - task.wcet_ns) // task.period_ns
    rest = window + response - task.wcet_ns - jobs * task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, rest)


def no_carry_in(task: PeriodicTask, window: int) -> int:
    """Return the most a task executes in a window when no job of it is unfinished at its start."""
    return window // task.period_ns * task.wcet_ns + min(task.wcet_ns, window % task.period_ns)


def due_within(task: PeriodicTask, window: int, slack: int) -> int:
    """Return the most a task executes in a window at whose end a job of it is due, under EDF.

    `slack` is how long before its deadline each job of it is known to end (Bertogna & Cirinei, RTSS 2007, equation 5).
    """
    jobs = window // task.period_ns
    return jobs * task.wcet_ns + min(task.wcet_ns, max(window - jobs * task.period_ns - slack, 0))
