"""Slack stealing: how long slots may serve another order before losing a deadline that EDF would meet.

For earliest deadline first (EDF; after Tia, Liu & Shankar, Real-Time Systems 10, 1996): any other order is harmless for
q ns from now if for every future deadline d the work due by then (the rest of present jobs and whole jobs of coming
frames) still fits into d - now - q.  Frames after the next one of a task count by their rate from its deadline on, an
upper bound that is exact at every such deadline (Albers & Slomka, ECRTS 2004), so only deadlines of present jobs and of
the next frames need to be checked.  Times are worst cases; frames arrive as early as possible.  The guarantee holds for
slots that jobs always take all together, and for given arrivals of data: other units have no slack here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.sim.policies.controllers import View

UNIT = 1 << 20
"""Utilization of the whole unit."""
_MOST = 4000
"""Most deadlines checked; if more may be needed, no slack is assumed."""


@dataclass(frozen=True, slots=True)
class GuardedTask:
    """A task with deadlines on a unit: its worst case, and the source of its frames (all ns).

    `jitter_ns`, `gap_ns`: largest delay of a frame after its nominal instant, and beyond one period after its
    predecessor.  `share`: utilization in 2**-20.  `cost_ns`: work of the next frame, plus what may follow if the one
    after is early.
    """

    number: int
    worst_ns: int
    period_ns: int
    deadline_ns: int
    source: str
    timer: bool
    jitter_ns: int
    gap_ns: int

    @property
    def share(self) -> int:
        """Return the utilization in 2**-20, rounded up."""
        return -(-self.worst_ns * UNIT // self.period_ns)

    @property
    def cost_ns(self) -> int:
        """Return the work that arrives with the next frame."""
        return self.worst_ns + -(-self.share * self.jitter_ns // UNIT)

    @property
    def most_frames(self) -> int:
        """Return the most past frames that may still be in transit."""
        return 0 if self.timer else (self.deadline_ns + self.jitter_ns) // self.period_ns + 1


class SlackStealer:
    """The slack of one unit for the tasks `guarded` (numbers in the plan), whose deadlines are kept.

    `bounded`: slack can be bounded.  `region_ns`: the longest non-preemptible occupancy of the slots, added to any
    requested slack.  `slack_until_ns`: instant until which any order is known to be harmless.
    """

    def __init__(self, plan: Plan, tasks: Collection[int], guarded: Collection[int]) -> None:
        engine = next((e for e in plan.engines if tasks and e.id == plan.tasks[min(tasks)].engine), None)
        own = [plan.tasks[number] for number in tasks]
        extra = _overhead(engine, own) if engine else 0
        self.guarded = [_guard_task(plan, number, extra) for number in sorted(guarded)]
        self.bounded = bool(self.guarded) and engine is not None and _together(plan, engine, own)
        self.bounded = self.bounded and sum(task.share for task in self.guarded) < UNIT and all(
            task.source and plan.tasks[task.number].queue * task.period_ns >= task.deadline_ns + task.jitter_ns
            for task in self.guarded
        )  # fmt: skip
        self.bounded = self.bounded and sum(task.most_frames + 2 for task in self.guarded) <= _MOST
        self.region_ns = 0
        if engine and engine.preemption != "full":
            whole = engine.preemption == "none"
            self.region_ns = max((_longest(task, whole) * max(engine.in_flight, 1) for task in own), default=0)
            self.bounded = self.bounded and self._tolerates(self.region_ns)
        self.slack_until_ns = 0

    def _tolerates(self, held_ns: int) -> bool:
        """Return whether no deadline is lost if all tasks begin at once while the slots are held for `held_ns`.

        If slots can be held, another order may have started the job that holds them at that moment, and EDF alone might
        not.
        """
        points = [(task.deadline_ns, task.cost_ns, task.share) for task in self.guarded]
        return _least_spare(sorted(points), 0, held_ns) >= held_ns

    def get_slack_ns(self, view: View, now_ns: int, need_ns: int, enough_ns: int) -> int:
        """Return for how long from now any order is harmless (ns), recomputing if not above `need_ns`.

        An earlier result still holds, less the elapsed time: deadlines do not move and work only decreases.
        """
        if self.slack_until_ns - now_ns <= need_ns:
            self.slack_until_ns = now_ns + self.compute_slack_ns(view, now_ns, enough_ns, need_ns)
        return self.slack_until_ns - now_ns

    def compute_slack_ns(self, view: View, now_ns: int, enough_ns: int, need_ns: int = 0) -> int:
        """Return for how long from now any order is harmless (ns), up to `enough_ns`; 0 if only EDF is known to be.

        The result may also be 0 if the slack is not above `need_ns`.
        """
        if not self.bounded:
            return 0
        points: list[tuple[int, int, int]] = []
        known = {task.number: task for task in self.guarded}
        frames = view.next_frames()
        here: dict[int, int] = {}
        for job in view.ready():
            task = known.get(job.number)
            if task is None:
                continue
            # of a timer's frames queued behind the present one, only the number is known
            if task.timer and frames[task.source][1] > job.frame + 1:
                return 0
            here[job.number] = job.frame
            points.append((job.deadline_ns, max(task.worst_ns - job.exec_ns, job.remaining_ns), 0))
        for task in self.guarded:
            release, frame = frames[task.source]
            points.append((release + task.deadline_ns, task.cost_ns, task.share))
            behind = frame - 1 if task.timer else here.get(task.number, -1)
            # frames in transit elsewhere may still arrive; those present or queued behind are already counted
            first, last = release - task.jitter_ns + task.deadline_ns, release + task.jitter_ns + task.deadline_ns
            while frame > behind + 1 and last - task.period_ns > now_ns:
                first, last, frame = first - task.period_ns - task.gap_ns, last - task.period_ns, frame - 1
                points.append((first, task.worst_ns, 0))
        wanted = enough_ns + self.region_ns
        spare = _least_spare(sorted(points), now_ns, wanted)
        return spare - self.region_ns if spare > need_ns + self.region_ns else 0


def _least_spare(points: list[tuple[int, int, int]], now_ns: int, most_ns: int) -> int:
    """Return the least time left at any deadline, given (deadline, work by then, rate of work from then on)."""
    spare, work, rate, before = most_ns, 0, 0, now_ns
    for deadline, cost, share in points:
        work += -(-rate * (deadline - before) // UNIT) + cost
        before = deadline
        rate += share
        spare = min(spare, deadline - now_ns - work)
    return spare


def _together(plan: Plan, engine: PlannedEngine, own: Collection[Task]) -> bool:
    """Return whether jobs take the slots of a unit one after the other, with no delays beyond `worst_ns`."""
    rows = [segment.engine for task in plan.tasks for segment in (*task.segments, *task.degraded)]
    apart = any(task.width or any(s.engine for s in (*task.segments, *task.degraded)) for task in own)
    return (
        len({task.lanes for task in own}) == 1
        and not apart
        and engine.id not in rows
        and engine.preemption != "restart"
        and engine.governor == "static"
        and not engine.linger_ns
    )


def _overhead(engine: PlannedEngine, own: Collection[Task]) -> int:
    """Return the overhead of starting a job and of resuming the job it interrupted (ns)."""
    once = engine.switch_ns
    if engine.memory_bytes:
        rate = engine.swap_bandwidth or engine.bandwidth or 1
        once += max((-(-task.weights_bytes * 10**9 // rate) for task in own), default=0)
    return 2 * once


def _guard_task(plan: Plan, number: int, extra_ns: int) -> GuardedTask:
    task = plan.tasks[number]
    worst = max(task.wcet_ns, task.cost_ns, *(task.times.values_ns if task.times else (0,)))
    source = _source(plan, task)
    sensor = next((sensor for sensor in plan.sensors if sensor.name == source), None)
    timer = next((other for other in plan.tasks if other.name == source), task)
    # a timer's jitter moves the arrival of its job, not its deadline
    jitter, gap = (sensor.jitter_ns, sensor.gap_ns) if sensor else (0, timer.gap_ns)
    period = max(sensor.period_ns if sensor else timer.period_ns, 1)
    return GuardedTask(number, worst + extra_ns, period, task.deadline_ns, source, task.timer, jitter, gap)


def _source(plan: Plan, task: Task) -> str:
    """Return the sensor or timer whose frames a task receives; empty if there are several."""
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
