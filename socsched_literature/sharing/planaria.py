"""Planaria: each task gets the subarrays it needs to be in time, spare ones go by priority over remaining time.

Ghodrati et al., MICRO 2020, algorithm 1.  EstimateResources: the fewest subarrays with which a task is answered within
its slack.  If all fit, AllocateFitTasks: each gets its need, the rest is distributed by score = priority / remaining.
Otherwise AllocateUnfitTasks: score = priority / (slack x need), the best are served first; tasks that cannot be in time
at all get what is left.  Published code: github.com/he-actlab/planaria.code, scheduler/scheduler.py.

Options for behaviour of the code that the paper leaves open: shares of spare subarrays are rounded half to even as in
Python and corrected starting from the most urgent; if no task can be in time, subarrays go by shortest remaining time
(`hopeless`: "shortest"), in the code in proportion to 1 / remaining ("shares").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from socsched_literature.sharing.fission import Task
from socsched_literature.sharing.subarrays import Npu


@dataclass(frozen=True, slots=True)
class Planaria:
    """The scheduler; `quantum` 0: it is called only when a task arrives or ends."""

    hopeless: Literal["shortest", "shares"] = "shares"
    quantum: int = 0

    def assign(self, tasks: Sequence[Task], now: int, npu: Npu) -> dict[int, tuple[int, bool]]:
        """Return by task number its subarrays."""
        needs = {task.number: need(task, now, npu) for task in tasks}
        if all(needs.values()) and sum(needs.values()) <= npu.subarrays:
            allocation = dict(needs)
            scores = {task.number: task.priority / max(1, task.remaining(needs[task.number])) for task in tasks}
        elif any(needs.values()):
            allocation, scores = self._unfit(tasks, needs, now, npu)
        else:
            allocation, scores = self._nobody(tasks, npu)
        return {number: (count, False) for number, count in _spread(allocation, scores, npu.subarrays).items()}

    def _unfit(
        self, tasks: Sequence[Task], needs: dict[int, int], now: int, npu: Npu
    ) -> tuple[dict[int, int], dict[int, float]]:
        scores = {
            task.number: task.priority / max(1, task.slack(now)) / needs[task.number]
            if needs[task.number]
            else -task.priority / max(1, task.remaining(npu.subarrays))
            for task in tasks
        }
        left = npu.subarrays
        given = {}
        for number in sorted(scores, key=lambda number: (-scores[number], number)):
            given[number] = min(needs[number], left)
            left -= given[number]
        # Spare subarrays go to tasks that can still be in time; once all needs are met, to late tasks.
        return given, {number: max(0.0, value) for number, value in scores.items()}

    def _nobody(self, tasks: Sequence[Task], npu: Npu) -> tuple[dict[int, int], dict[int, float]]:
        scores = {task.number: task.priority / max(1, task.remaining(npu.subarrays)) for task in tasks}
        if self.hopeless == "shortest":
            first = max(scores, key=lambda number: (scores[number], -number))
            return {first: npu.subarrays}, {first: 1.0}
        return {task.number: 0 for task in tasks}, scores


def need(task: Task, now: int, npu: Npu) -> int:
    """Return the fewest subarrays with which a task is in time, 0 if it cannot be (EstimateResources)."""
    slack = task.slack(now)
    return next((count for count in range(1, npu.subarrays + 1) if task.remaining(count) <= slack), 0)


def _spread(given: dict[int, int], scores: dict[int, float], total: int) -> dict[int, int]:
    """Return `given` with spare subarrays added in proportion to the scores, within `total`."""
    spare, weight = total - sum(given.values()), sum(scores.values())
    order = sorted(scores, key=lambda number: (-scores[number], number))
    result = dict(given)
    if spare <= 0 or weight <= 0:
        return result
    left = spare
    for number in order:
        more = min(left, round(spare * scores[number] / weight))
        result[number] = result.get(number, 0) + more
        left -= more
    if left:
        result[order[0]] += left
    return result
