"""How long lanes may do something else before a deadline that earliest deadline first would meet is lost.

Slack stealing for EDF (after Tia, Liu & Shankar, Real-Time Systems 10, 1996): work of any other order is harmless for
q ns from now if for every deadline d ahead the work due by then, what is left of present jobs and whole jobs of frames
to come, still fits into d - now - q.  Times are worst cases; frames come as early as they may.  The guarantee is for
lanes that jobs only take all together, for given arrivals of data: other units have no slack here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from socsched.plan.plan import Plan, Task
from socsched.sim.policies.control import View

_MOST = 4000
"""Deadlines looked at; where more would have to be, there is no slack."""


@dataclass(frozen=True, slots=True)
class Load:
    """A task with deadlines on a unit: its worst case, and the source of its frames with its jitter (all ns)."""

    number: int
    worst_ns: int
    period_ns: int
    deadline_ns: int
    source: str
    timer: bool
    jitter_ns: int


class Guard:
    """The slack of one unit for the tasks `kept` (numbers in the plan), whose deadlines count.

    `region_ns`: the longest that lanes are held once given, which comes on top of what is asked for.
    """

    def __init__(self, plan: Plan, tasks: Collection[int], kept: Collection[int]) -> None:
        engine = next((e for e in plan.engines if tasks and e.id == plan.tasks[min(tasks)].engine), None)
        self.loads = [_load(plan, number, engine.switch_ns if engine else 0) for number in sorted(kept)]
        self.usage = sum(load.worst_ns / load.period_ns for load in self.loads)
        own = [plan.tasks[number] for number in tasks]
        together = len({task.lanes for task in own}) == 1 and not any(
            task.width or any(s.engine for s in (*task.segments, *task.degraded)) for task in own
        )
        self.possible = together and self.usage < 1 and all(load.source for load in self.loads)
        self.region_ns = 0
        if engine and engine.preemption != "full":
            whole = engine.preemption == "none"
            self.region_ns = max((_longest(task, whole) * max(engine.in_flight, 1) for task in own), default=0)

    def slack_ns(self, view: View, now_ns: int, enough_ns: int) -> int:
        """Return for how long from now any order is harmless (ns), up to `enough_ns`; 0 where only EDF is known to be.

        Deadlines are looked at up to the end of the longest busy time that may begin now, with `enough_ns` of other
        work in it.
        """
        if not self.possible:
            return 0
        due: list[tuple[int, int]] = []
        newest: dict[int, int] = {}
        known = {load.number: load for load in self.loads}
        for job in view.ready():
            load = known.get(job.number)
            if load is None:
                continue
            newest[job.number] = max(newest.get(job.number, -1), job.frame)
            left = max(load.worst_ns - job.exec_ns, job.remaining_ns)
            if job.deadline_ns <= now_ns + left:
                return 0
            due.append((job.deadline_ns, left))
        backlog = sum(left for _, left in due)
        asked = enough_ns + self.region_ns
        busy = (backlog + asked + sum(load.worst_ns for load in self.loads)) / (1 - self.usage)
        horizon = now_ns + round(busy) + 1
        horizon = max([horizon, *(deadline for deadline, _ in due)])
        frames = view.next_frames()
        for load in self.loads:
            release, frame = frames[load.source]
            if not load.timer:
                # frames under way elsewhere may still come; those that are here or behind are counted already
                behind = newest.get(load.number, -1)
                while frame > behind + 1 and release - load.period_ns + load.deadline_ns > now_ns:
                    release, frame = release - load.period_ns, frame - 1
            early = load.jitter_ns
            while release + load.deadline_ns <= horizon:
                due.append((release + load.deadline_ns, load.worst_ns))
                if len(due) > _MOST:
                    return 0
                release += load.period_ns - early
                early = 0
        return max(min(_least_spare(due, now_ns), asked) - self.region_ns, 0)


def _least_spare(due: list[tuple[int, int]], now_ns: int) -> int:
    spare, work = 1 << 62, 0
    for deadline, left in sorted(due):
        work += left
        spare = min(spare, deadline - now_ns - work)
    return spare


def _load(plan: Plan, number: int, switch_ns: int) -> Load:
    task = plan.tasks[number]
    worst = max(task.wcet_ns, task.cost_ns, *(task.times.values_ns if task.times else (0,)))
    # each job may interrupt one other
    source = _source(plan, task)
    jitter = next((sensor.jitter_ns for sensor in plan.sensors if sensor.name == source), 0)
    return Load(number, worst + 2 * switch_ns, task.period_ns, task.deadline_ns, source, task.timer, jitter)


def _source(plan: Plan, task: Task) -> str:
    """Return the sensor or timer whose frames a task gets; empty where there are several."""
    known = {other.name: other for other in plan.tasks}
    found: set[str] = set()
    left = [task]
    seen: set[str] = set()
    while left:
        here = left.pop()
        if here.timer:
            found.add(here.name)
        for name in here.after:
            if name not in known:
                found.add(name)
            elif name not in seen:
                seen.add(name)
                left.append(known[name])
    return found.pop() if len(found) == 1 else ""


def _longest(task: Task, whole: bool) -> int:
    times = [segment.time_ns for segment in (*task.segments, *task.degraded)] or [task.cost_ns]
    stretch = max(task.wcet_ns, task.cost_ns) / max(task.cost_ns, 1)
    return round((sum(times) if whole else max(times)) * stretch) + 1
