"""Temporal isolation of resources that lanes do not separate: less critical jobs yield to more critical ones.

Interpreter lock, caches, memory and devices are shared whatever the lanes, and a started job cannot be stopped.  So a
job does not start while a more critical one is ready or running anywhere, nor if it would probably still run at the
next release of a more critical frame (inserted idle time, as in clairvoyant non-preemptive scheduling; Ekelin, ECRTS
2006).  It waits for at most one period of its task.
"""

from __future__ import annotations

from collections.abc import Iterable

from socsched.planning.plan import Plan, Task
from socsched.runtime.activation import Activation
from socsched.runtime.overload import CRITICALITIES

_FORGET = 32
"""The recorded longest time shrinks by 1/`_FORGET` with every shorter job."""


class Shield:
    """Decides when less critical jobs may start; times in ns.  Not thread safe.

    With `ahead`, the next release is expected one period after the last; without it, as when frames are released
    whenever there is room, only ready and running jobs count.
    """

    def __init__(self, plan: Plan, ahead: bool = True) -> None:
        self._rank = {task.name: CRITICALITIES.index(task.criticality) for task in plan.tasks}
        self._ahead = ahead
        periods = {sensor.name: sensor.period_ns for sensor in plan.sensors}
        periods |= {task.name: task.period_ns for task in plan.tasks if task.timer}
        ranks = {name: self._highest(name, plan) for name in periods}
        self._sources = {name: (rank, periods[name]) for name, rank in ranks.items() if rank > min(self._rank.values())}
        self._due: dict[str, int] = {}
        self._longest: dict[str, int] = {}

    def released(self, source: str, release_ns: int) -> None:
        """Record the release of a frame: the next one is due a period later."""
        if source in self._sources:
            self._due[source] = release_ns + self._sources[source][1]

    def ended(self, task: str, exec_ns: int) -> None:
        """Record the execution time of a job."""
        before = self._longest.get(task, 0)
        self._longest[task] = max(exec_ns, before - before // _FORGET)

    def under_way(self, jobs: Iterable[Activation]) -> int:
        """Return the highest criticality among jobs."""
        return max((self._rank[act.task.name] for act in jobs), default=0)

    def holds_back(self, act: Activation, first: int, now_ns: int) -> bool:
        """Return whether a job must not start now; `first` is the highest rank among ready and running jobs."""
        task = act.task
        rank = self._rank[task.name]
        if now_ns - act.job.activation_ns >= task.period_ns:
            return False
        return rank < first or (self._ahead and self._in_the_way(task, rank, now_ns))

    def _in_the_way(self, task: Task, rank: int, now_ns: int) -> bool:
        end = now_ns + self._longest.get(task.name, 0)
        for source, due in self._due.items():
            above, period = self._sources[source]
            if above > rank and due < end and now_ns < due + period:  # not a whole period overdue
                return True
        return False

    def _highest(self, source: str, plan: Plan) -> int:
        """Return the highest criticality among all successors of a source, including the source if it is a timer."""
        reached = {source}
        while more := {task.name for task in plan.tasks if reached.intersection(task.after)} - reached:
            reached |= more
        return max((self._rank[name] for name in reached if name in self._rank), default=0)
