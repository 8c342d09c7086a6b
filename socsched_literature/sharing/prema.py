"""PREMA on the undivided array: tokens, and the shortest estimated job first among those with enough of them.

Choi & Rhu, "PREMA: a predictive multi-task scheduling algorithm for preemptible neural processing units", HPCA 2020. A
waiting task gains priority x (time waited / its time alone) tokens; candidates are those at or above the highest of the
levels 1, 3, 9 reached by the maximum token count.  The candidate with the least remaining time runs next, and takes
over (checkpoint) unless the running task loses less by ending first (drain).  It serves as a baseline of Planaria in
the same simulation; preemption between engines and its options are covered by the simulator's policies.  FCFS is its
non-preemptive baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched_literature.sharing.fission import Task
from socsched_literature.sharing.subarrays import Npu

LEVELS = (1.0, 3.0, 9.0)


@dataclass(frozen=True, slots=True)
class Prema:
    """The scheduler; `quantum` in cycles (0.25 ms at 700 MHz)."""

    quantum: int = 175_000

    def assign(self, tasks: Sequence[Task], now: int, npu: Npu) -> dict[int, tuple[int, bool]]:
        """Return the single task that gets the array."""
        for task in tasks:
            if not task.token:
                task.token = float(task.priority)
            if not task.have:
                task.token += task.priority * (now - task.since) / task.table.cycles(0)
            task.since = now
        most = max(task.token for task in tasks)
        level = max((one for one in LEVELS if one <= most), default=LEVELS[0])
        candidate = min(
            (task for task in tasks if task.token >= level or task.token == most),
            key=lambda task: (task.remaining(0, whole=True), task.number),
        )
        current = next((task for task in tasks if task.have), None)
        if current is not None and current is not candidate:
            left, coming = current.remaining(0, whole=True), candidate.remaining(0, whole=True)
            # Compare the slowdown of each if the other goes first, relative to its time alone.
            if coming / current.table.cycles(0) > left / candidate.table.cycles(0):
                candidate = current
        return {candidate.number: (npu.subarrays, True)}


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served on the undivided array."""

    quantum: int = 0

    def assign(self, tasks: Sequence[Task], now: int, npu: Npu) -> dict[int, tuple[int, bool]]:
        """Return the task that arrived first."""
        return {min(task.number for task in tasks): (npu.subarrays, True)}
