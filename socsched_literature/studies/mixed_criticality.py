"""Acceptance of mixed-criticality tests against utilisation, drawn as in the papers.

As in Baruah, Burns, Davis, RTSS 2011, section V: `tasks` tasks, UUniFast utilisations at low criticality, periods
log-uniform over a factor of 100, D = T, C(HI) = `factor` C(LO), a task is of high criticality with probability `share`.
Fixed priorities are assigned by Audsley's algorithm.  UB-H&L is the paper's upper bound for AMC: schedulable at each
level by itself; SMC is the static scheme with run-time monitoring, CrMPO criticality-monotonic priorities.  EDF-VD
(Baruah et al., ECRTS 2012) is compared with EDF that reserves every task's own bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from socsched.descriptor.taskset_model import PeriodicTask, Policy, TaskSet
from socsched.schedulability.published.mixed_criticality import (
    Over,
    adaptive_response,
    audsley_order,
    over_any_overrun,
    over_each_overrun,
    scaling,
)
from socsched.schedulability.published.model import Problem, fixed_point
from socsched.schedulability.tasks import ceil_div
from socsched_literature.studies.acceptance import BLUE, GREEN, GREY, ORANGE, RED, VIOLET, Curve, Panel, uunifast

LOADS = tuple(x / 100 for x in range(30, 100, 5))
Tasks = Sequence[PeriodicTask]


def draw(count: int, load: float, factor: float, share: float, random: Random) -> list[PeriodicTask]:
    """Return a drawn task set; times in us."""
    tasks = []
    for index, part in enumerate(uunifast(count, load, random)):
        period = round(math.exp(random.uniform(math.log(10_000), math.log(1_000_000))))
        low = max(round(part * period), 1)
        levels = (low, max(round(low * factor), low)) if random.random() < share else (low,)
        tasks.append(
            PeriodicTask(
                index, f"t{index}", period, period, levels[-1], low, 0, 0, 0, None,
                wcets_ns=levels if len(levels) > 1 else (),
            )
        )  # fmt: skip
    return tasks


def _by_deadline(tasks: Tasks, wcet: Callable[[PeriodicTask], int]) -> bool:
    order = sorted(tasks, key=lambda task: task.deadline_ns)
    return all(_plain(task, order[:index], wcet) for index, task in enumerate(order))


def _plain(task: PeriodicTask, above: Tasks, wcet: Callable[[PeriodicTask], int]) -> bool:
    own = wcet(task)
    found = fixed_point(
        own, lambda length: own + sum(ceil_div(length, o.period_ns) * wcet(o) for o in above), task.deadline_ns
    )
    return found is not None


def upper_bound(tasks: Tasks) -> bool:
    """Return whether each level is schedulable by itself: necessary for every scheme of fixed priorities."""
    high = [task for task in tasks if task.level]
    return _by_deadline(tasks, lambda task: task.wcet_at(0)) and _by_deadline(high, lambda task: task.wcet_ns)


def static(tasks: Tasks) -> bool:
    """Return whether SMC accepts: each task at its own level, no job exceeds the bound of its task's level."""

    def fits(task: PeriodicTask, above: Tasks) -> bool:
        return _plain(task, above, lambda other: other.wcet_at(task.level))

    return audsley_order(tasks, fits) is not None


def monotonic(tasks: Tasks) -> bool:
    """Return whether priorities by criticality, then by deadline, are accepted."""
    order = sorted(tasks, key=lambda task: (-task.level, task.deadline_ns))
    return all(
        _plain(task, order[:index], lambda other, level=task.level: other.wcet_at(level))  # type: ignore[misc]
        for index, task in enumerate(order)
    )


def adaptive(over: Over) -> Callable[[Tasks], bool]:
    """Return the acceptance by an AMC test with the best priorities."""
    return lambda tasks: (
        audsley_order(tasks, lambda task, above: adaptive_response(task, above, over) is not None) is not None
    )


def virtual(tasks: Tasks) -> bool:
    """Return whether EDF-VD accepts."""
    return scaling(_problem(tasks)) is not None


def reserved(tasks: Tasks) -> bool:
    """Return whether plain EDF accepts with every task's own bound."""
    return sum(task.utilisation for task in tasks) <= 1


def _problem(tasks: Tasks) -> Problem:
    made = TaskSet("drawn", 1, Policy("edf", "partitioned", True), 1, None, tuple(tasks), ())
    return Problem(made, made.tasks, made.ranks, 1)


CURVES = (
    Curve("UB-H&L", upper_bound, GREY, "2 3"),
    Curve("AMC-max", adaptive(over_each_overrun), GREEN),
    Curve("AMC-rtb", adaptive(over_any_overrun), BLUE),
    Curve("SMC", static, ORANGE),
    Curve("CrMPO", monotonic, RED),
    Curve("EDF-VD", virtual, VIOLET),
    Curve("EDF, reserved", reserved, VIOLET, "6 4"),
)


def panel(tasks: int, factor: float, share: float) -> Panel:
    """Return the panel of sets of `tasks` tasks, C(HI) = `factor` C(LO), of high criticality with chance `share`."""
    return Panel(
        f"{tasks} tasks, C(HI) = {factor:g} C(LO), {share:.0%} of high criticality",
        "utilisation at low criticality",
        LOADS,
        lambda random, load: draw(tasks, load, factor, share, random),
        CURVES,
    )
