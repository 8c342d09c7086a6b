"""What lanes do not separate is kept apart in time: less critical jobs make way for more critical ones.

Interpreter, caches, memory and devices are shared whatever the lanes, and a job that has begun cannot be stopped.  So a
job does not start while a more critical one is under way anywhere, nor when it would probably still run at the next
release of a more critical frame (idle time on purpose, as in non-preemptive scheduling by the clock; Ekelin, ECRTS
2006).  It waits for a period of its own at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from socsched.planning.plan import Plan, Task
from socsched.runtime.activation import Activation
from socsched.runtime.overload import CRITICALITIES

_FORGET = 32
"""A longest time seen loses one part in this many with every job that took less."""


class Shield:
    """When less critical jobs may start; times in ns.  Not thread safe.

    With `ahead` releases are expected a period after the last one; else, as where frames are released when there is
    room, only what is under way counts.
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
        """Take note of a frame: the next one comes a period later."""
        if source in self._sources:
            self._due[source] = release_ns + self._sources[source][1]

    def ended(self, task: str, exec_ns: int) -> None:
        """Take note of how long a job took."""
        before = self._longest.get(task, 0)
        self._longest[task] = max(exec_ns, before - before // _FORGET)

    def under_way(self, jobs: Iterable[Activation]) -> int:
        """Return the highest criticality among jobs."""
        return max((self._rank[act.task.name] for act in jobs), default=0)

    def holds_back(self, act: Activation, first: int, now_ns: int) -> bool:
        """Whether a job is not to start now, when the most critical work under way is of rank `first`."""
        task = act.task
        rank = self._rank[task.name]
        if now_ns - act.job.activation_ns >= task.period_ns:
            return False
        return rank < first or (self._ahead and self._in_the_way(task, rank, now_ns))

    def _in_the_way(self, task: Task, rank: int, now_ns: int) -> bool:
        end = now_ns + self._longest.get(task.name, 0)
        for source, due in self._due.items():
            above, period = self._sources[source]
            if above > rank and due < end and now_ns < due + period:  # else it does not come any more
                return True
        return False

    def _highest(self, source: str, plan: Plan) -> int:
        """Return the highest criticality of all that follows a source, or of the source where it is a timer."""
        reached = {source}
        while more := {task.name for task in plan.tasks if reached.intersection(task.after)} - reached:
            reached |= more
        return max((self._rank[name] for name in reached if name in self._rank), default=0)
