"""The threads of a plan: what every export to an operating system or a middleware on Linux carries.

A task has a thread on each of its lanes: the first runs the callback, the others are its workers (`task/1`, `task/2`).
The values are those of `export.linux`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from socsched.errors import UsageError
from socsched.planning.export.linux import SHARE, entries
from socsched.planning.plan import Plan
from socsched.text import one_line


@dataclass(frozen=True, slots=True)
class Thread:
    """Scheduling of one thread: `policy` deadline (times in ns), fifo, rr (`priority`), other, batch or idle (`nice`).

    `processors`: Linux CPU numbers it may run on; none: all.  `scope`: where its name holds, such as a ROS domain.
    """

    name: str
    policy: str
    processors: tuple[int, ...] = ()
    runtime_ns: int = 0
    deadline_ns: int = 0
    period_ns: int = 0
    priority: int = 0
    nice: int = 0
    scope: str = ""

    @property
    def task(self) -> str:
        """Return the task the thread belongs to."""
        return self.name.partition("/")[0]

    @property
    def worker(self) -> bool:
        """Return whether the thread only helps the one that runs the callback."""
        return "/" in self.name


@dataclass(frozen=True, slots=True)
class Request:
    """A plan to export; `processors`: Linux CPU numbers of the lanes of each engine, `mode_id`: that of nvpmodel.

    `template`: a file of the target whose identifiers are kept; `names`: task -> identifier given by the user.
    """

    plan: Plan
    processors: Mapping[str, Sequence[int]] = field(default_factory=dict)
    mode_id: int | None = None
    template: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def cpu(self, engine: str, lane: int) -> int:
        """Return the Linux CPU number of a lane."""
        numbers = self.processors.get(engine, ())
        return numbers[lane] if lane < len(numbers) else lane


def threads(request: Request) -> list[Thread]:
    """Return the threads of all tasks that Linux schedules, those of a task in the order of its lanes."""
    found, seen = list[Thread](), dict[str, int]()
    for entry in entries(request.plan):
        number = seen[entry.task] = seen.get(entry.task, -1) + 1
        name = f"{entry.task}/{number}" if number else entry.task
        cpus = (request.cpu(entry.engine, entry.lane),)
        times = (entry.runtime_ns, entry.deadline_ns, entry.period_ns)
        found.append(Thread(name, entry.kind, cpus, *times, entry.priority))
    return found


def fixed_priorities(request: Request, target: str) -> list[Thread]:
    """Return the threads for a target without SCHED_DEADLINE; UsageError if the plan is one of EDF."""
    if request.plan.policy == "edf":
        raise UsageError(
            f"{target} has no budgets and periods, which this plan (policy edf) needs for its bounds",
            "plan with --policy fp, or export as autoware or linux, which have SCHED_DEADLINE",
        )
    return threads(request)


def spare(request: Request, listed: Sequence[Thread]) -> list[int]:
    """Return the CPU numbers of the plan's cores on which no thread of the plan runs."""
    taken = {cpu for thread in listed for cpu in thread.processors}
    cores = [engine for engine in request.plan.engines if engine.preemption == "full"]
    every = {request.cpu(engine.id, lane) for engine in cores for lane in range(engine.lanes)}
    return sorted(every - taken)


def crowded(request: Request, listed: Sequence[Thread]) -> list[int]:
    """Return the CPU numbers whose threads need more than Linux grants real-time threads by default (`SHARE`)."""
    used: dict[int, float] = {}
    tasks = {task.name: task for task in request.plan.tasks}
    for thread in listed:
        task = tasks[thread.task]
        for cpu in thread.processors:
            used[cpu] = used.get(cpu, 0.0) + task.wcet_ns / task.period_ns
    return sorted(cpu for cpu, share in used.items() if share > SHARE)


def remarks(request: Request, listed: Sequence[Thread]) -> list[str]:
    """Return what a reader of the export must know: verdict, bounds, and what the target does not carry."""
    plan = request.plan
    lines = [
        f"{plan.pipeline} on {plan.platform} in {plan.mode}, as planned by socsched: {plan.verdict}. Read before use.",
        f"Bounds hold for policy {plan.policy}, the CPU numbers below and the WCETs given per task:",
    ]
    for chain in plan.chains:
        bound = f"at most {chain.bound_ns} ns" if chain.bound_ns is not None else "no bound"
        lines.append(f"  chain {chain.name}: {bound}, deadline {chain.deadline_ns} ns ({chain.test or 'no test'})")
    here = {thread.task for thread in listed}
    elsewhere = [f"{task.name} on {task.engine}" for task in plan.tasks if task.name not in here]
    if elsewhere:
        lines.append(f"Not scheduled by Linux, and not listed: {', '.join(elsewhere)}.")
    gangs = [task.name for task in plan.tasks if task.name in here and len(task.lanes) > 1]
    if gangs:
        lines.append(f"Linux does not start the lanes of a task together, as the bounds assume: {', '.join(gangs)}.")
    return [one_line(line) for line in lines]


def proof(request: Request, task: str) -> str:
    """Return the comment on a task: its WCET and period, and the chains with bounds that it is part of."""
    found = next(t for t in request.plan.tasks if t.name == task)
    parts = [f"wcet {found.wcet_ns} ns, period {found.period_ns} ns"]
    for chain in request.plan.chains:
        if task in chain.path and chain.bound_ns is not None:
            parts.append(f"{chain.name} <= {chain.bound_ns} ns")
    return one_line(f"{task}: {'; '.join(parts)}")


def quoted(text: str) -> str:
    """Return text as a double-quoted scalar that YAML and JSON readers take back unchanged; ASCII only."""
    return "".join(f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else json.dumps(char)[1:-1] for char in text).join('""')
