"""Priorities by Audsley's algorithm: the lowest level goes to a task that meets its local deadline there.

Audsley, "On priority assignment in fixed priority scheduling", Information Processing Letters 79, 2001.  It is optimal
if a response depends on the set of more urgent tasks alone (Davis, Burns, "Improved optimal priority assignment for
global fixed priority pre-emptive scheduling", RTS 47, 2011).  The holistic analysis is not of that kind: the order
upstream changes activations.  With every predecessor taken to end at its local deadline, activations are fixed, and the
test of each resource is; the priorities found are then analysed holistically.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.schedulability.holistic import respond_alone
from socsched.schedulability.tasks import RtTask, activation, components

_HORIZON = 4
"""Multiple of the longest period or deadline beyond which a response counts as without bound."""


def assign(tasks: Mapping[str, RtTask], deadlines: Mapping[str, int]) -> dict[str, int]:
    """Return unique priorities, 0 highest, for local deadlines (ns after the nominal release).

    Where no task meets its deadline at a level, the one that exceeds it least, in proportion, is placed there.
    """
    horizon = _HORIZON * max((max(t.period, deadlines[n]) for n, t in tasks.items()), default=0)
    jitter = {name: activation(task, tasks, deadlines).jitter for name, task in tasks.items()}
    lowest_first = [name for group in components(tasks.values()) for name in _levels(group, jitter, deadlines, horizon)]
    return {name: level for level, name in enumerate(reversed(lowest_first))}


def _levels(
    group: Sequence[RtTask], jitter: Mapping[str, int], deadlines: Mapping[str, int], horizon: int
) -> list[str]:
    """Return the tasks of a group, lowest priority first."""
    left, placed = sorted(group, key=lambda task: -deadlines[task.name]), list[RtTask]()
    while left:
        chosen, least = left[0], float("inf")
        for task in left:
            level = [
                *(replace(other, priority=0) for other in left if other is not task),
                replace(task, priority=1),
                *(replace(other, priority=2) for other in placed),
            ]
            value, bounded = respond_alone(level[len(left) - 1], level, jitter, deadlines, horizon)
            excess = value / max(deadlines[task.name], 1) if bounded else 1e9
            if excess < least:
                chosen, least = task, excess
            if excess <= 1:  # of those that fit, the one with the latest deadline
                chosen = task
                break
        placed.append(chosen)
        left = [task for task in left if task is not chosen]
    return [task.name for task in placed]
