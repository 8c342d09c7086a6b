"""Periodic tasks on identical processors, implemented independently: at every event the most urgent jobs run."""

from __future__ import annotations

from collections.abc import Callable

from socsched.descriptor.taskset import PeriodicTask, TaskSet

Key = tuple[int, ...]
_KEYS: dict[str, Callable[[PeriodicTask, int, int], Key]] = {
    "edf": lambda task, rank, arrival: (arrival + task.deadline_ns, arrival),
    "fifo": lambda task, rank, arrival: (arrival,),
}


def finishes(tasks: TaskSet, horizon_ns: int) -> list[list[int]]:
    """Return when the jobs of every task end (ns), as far as they do by the horizon; without jitter or regions."""
    if tasks.policy.scheme == "global" or tasks.processors == 1:
        return _finishes(tasks, list(range(len(tasks.tasks))), tasks.processors, horizon_ns)
    found: list[list[int]] = [[] for _ in tasks.tasks]
    for processor in range(tasks.processors):
        own = [index for index, task in enumerate(tasks.tasks) if task.cpu == processor]
        for index, ends in zip(own, _finishes(tasks, own, 1, horizon_ns), strict=True):
            found[index] = ends
    return found


def _finishes(tasks: TaskSet, own: list[int], processors: int, horizon_ns: int) -> list[list[int]]:
    rows, ranks, preemptive = [tasks.tasks[i] for i in own], tasks.ranks, tasks.policy.preemptive
    key = _KEYS.get(tasks.policy.rule, lambda task, rank, arrival: (rank, arrival))
    ends: list[list[int]] = [[] for _ in rows]
    # of the job each task is at: its arrival and what is left of it
    arrival = [task.offset_ns for task in rows]
    left = [task.wcet_ns for task in rows]
    running: list[int] = []
    now = 0
    while now <= horizon_ns:
        ready = [i for i in range(len(rows)) if arrival[i] <= now]
        ready.sort(key=lambda i: (*key(rows[i], ranks[own[i]], arrival[i]), i))
        if preemptive:
            running = ready[:processors]
        else:
            running += [i for i in ready if i not in running][: processors - len(running)]
        later = [a for a in arrival if a > now]
        step = min([*(left[i] for i in running), *(a - now for a in later)], default=horizon_ns + 1)
        now += step
        for i in running:
            left[i] -= step
        for i in [i for i in running if left[i] == 0]:
            if now <= horizon_ns:
                ends[i].append(now)
            arrival[i], left[i] = arrival[i] + rows[i].period_ns, rows[i].wcet_ns
        running = [i for i in running if left[i] < rows[i].wcet_ns or arrival[i] < now] if not preemptive else []
        running = [i for i in running if left[i] != rows[i].wcet_ns]
    return ends
