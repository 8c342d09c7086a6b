"""Task urgency in the few levels of published policies, and the corresponding tokens or shares."""

from __future__ import annotations

from collections.abc import Callable

from socsched.planning.plan import Task

STEPS = {"hard": 2, "firm": 1, "soft": 0}
"""A plan's criticality as low, medium and high priority."""


def by_criticality(low: int, medium: int, high: int) -> Callable[[Task], int]:
    """Return the value of a task by its criticality."""

    def worth(task: Task) -> int:
        return (low, medium, high)[STEPS[task.criticality]]

    return worth


def by_priority(base: int, factor: float, steps: int) -> Callable[[Task], int]:
    """Return ``base * factor ** -priority`` (0 is the highest priority), for `steps` priorities at most."""

    def worth(task: Task) -> int:
        return max(round(base * factor ** -min(task.priority, steps)), 1)

    return worth
