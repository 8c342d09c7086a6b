"""How urgent a task is in the few steps that published policies know, and how many tokens or shares that is worth."""

from __future__ import annotations

from collections.abc import Callable

from socsched.planning.plan import Task

STEPS = {"hard": 2, "firm": 1, "soft": 0}
"""A plan's criticality as low, medium and high priority."""


def by_criticality(low: int, medium: int, high: int) -> Callable[[Task], int]:
    """Return what a task of each criticality is worth."""

    def worth(task: Task) -> int:
        return (low, medium, high)[STEPS[task.criticality]]

    return worth


def by_priority(base: int, factor: float, steps: int) -> Callable[[Task], int]:
    """Return ``base * factor ** -priority`` (0 is the highest priority), for `steps` priorities at most."""

    def worth(task: Task) -> int:
        return max(round(base * factor ** -min(task.priority, steps)), 1)

    return worth
