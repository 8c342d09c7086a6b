"""Audsley's optimal priority assignment, lowest priority first.

Audsley, "On priority assignment in fixed priority scheduling", Information Processing Letters 79(1) 2001: optimal for
every test whose answer for a task depends on the set of tasks above and below it, not on their order, and does not get
worse when the task is raised.  AMC-rtb and AMC-max are such tests (Baruah, Burns, Davis, RTSS 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def assign(tasks: Sequence[T], fits: Callable[[T, Sequence[T]], bool]) -> list[T] | None:
    """Return the tasks by priority, highest first, None if no order passes; `fits(task, those above)` is the test."""
    left, lowest = list(tasks), list[T]()
    while left:
        for index, task in enumerate(left):
            above = [*left[:index], *left[index + 1 :]]
            if fits(task, above):
                lowest.append(task)
                left = above
                break
        else:
            return None
    return lowest[::-1]
