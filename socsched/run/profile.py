"""Measure what each stage costs on this machine, one stage at a time on otherwise idle cores."""

from __future__ import annotations

import datetime
import platform as system
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import MachineError
from socsched.plan.plan import Plan, Task
from socsched.run.backends.base import Backend, Setting
from socsched.run.backends.choose import sort_of
from socsched.run.boards import local
from socsched.run.executor import execute

Note = Callable[[str], None]


def measure(
    plan: Plan,
    pipeline: Pipeline,
    *,
    repeat: int = 10,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    seed: int = 0,
    backends: Mapping[str, Backend] | None = None,
    note: Note = lambda text: None,
) -> Profile:
    """Return measured costs of the stages of `plan`, which must be for this machine.

    Frames run one after the other, `repeat` of them for each share (one core, and all); a stage that cannot share runs
    on one core.  A cost is the longest time seen, its error the spread down to the shortest: planning with the longest
    is what makes a bound hold.  Stages known by their times only are left out, as running them would prove nothing.
    """
    here = local.platform_for(plan)
    setting = Setting(plan, pipeline, here, {}, weights, seed)
    sorts = {task.name: sort_of(task, setting) for task in plan.tasks}
    lanes = {engine.id: engine.lanes for engine in plan.engines}
    costs: dict[tuple[str, int], MeasuredCost] = {}
    for share in sorted({1, max(lanes.values())}):
        note(f"measuring with {share} core{'s' if share > 1 else ''} a stage, {repeat} frames")
        tasks = tuple(_on(task, share if sorts[task.name] == "network" else 1, lanes) for task in plan.tasks)
        trial = replace(plan, tasks=tasks)
        trace = execute(
            trial, pipeline, scans=scans, weights=weights, frames=repeat, seed=seed, pace="asap", backends=backends
        )
        for task in tasks:
            times = [job.exec_ns for job in trace.jobs if job.task == task.name and job.status == "done"]
            if times and sorts[task.name] != "synthetic":
                costs[task.name, len(task.lanes)] = _cost(task, plan.mode, times)
    if not costs:
        raise MachineError("no stage could be measured", "give a pipeline with models, and at least one usable scan")
    tool = f"socsched profile on {system.machine()}"
    return Profile(plan.platform, tuple(costs.values()), tool, datetime.date.today().isoformat())


def _on(task: Task, share: int, lanes: Mapping[str, int]) -> Task:
    return replace(task, lanes=tuple(range(min(share, lanes[task.engine]))))


def _cost(task: Task, mode: str, times: Sequence[int]) -> MeasuredCost:
    longest = max(times)
    error = round((longest - min(times)) / max(longest, 1), 3)
    return MeasuredCost(task.name, task.engine, mode, task.precision, len(task.lanes), longest, error, len(times))
