"""Measure every stage of a plan alone on this machine, for `socsched plan --profile`.

Stages with a model run on real data in dependency order, one at a time, on the lanes the plan gives them and, where
that is more than one, on a single lane as well.  Two untraced frames warm up first.  Stages known by their times only
are left out: there is nothing to measure.
"""

from __future__ import annotations

import platform as _platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.plan.plan import Plan, Task
from socsched.run.backends.base import Backend
from socsched.run.executor import execute
from socsched.run.worker import warn
from socsched.trace.trace import Trace
from socsched.units import format_duration

LEAST_ERROR = 0.02
"""Relative uncertainty stated at least: the same code measures so differently from one start to the next."""


def measure(
    plan: Plan,
    pipeline: Pipeline,
    *,
    repeat: int = 10,
    scans: Sequence[Path] | None = None,
    weights: Path | None = None,
    seed: int = 0,
    note: Callable[[str], None] = warn,
    platform: Platform | None = None,
    backends: Mapping[str, Backend] | None = None,
) -> Profile:
    """Return measured costs of the plan's stages: the 99th percentile of `repeat` frames in ns, at each share tried.

    A cost is planned with as if it were the longest there is, so it is taken from the slow end (with less than 100
    frames it is the longest seen); its error reaches down to the median.  `note` is told each result.
    Raises UsageError when the plan is for another machine or no stage has a model.
    """
    modelled = {stage.name for stage in pipeline.stages if stage.model}
    if not modelled & {task.name for task in plan.tasks}:
        raise UsageError("no stage of the pipeline has a model: nothing to measure", "its times are in its file")
    costs: dict[tuple[str, int], MeasuredCost] = {}
    for variant in _variants(plan):
        trace = execute(
            variant,
            pipeline,
            scans=scans,
            weights=weights,
            frames=repeat,
            seed=seed,
            pace="asap",
            alone=True,
            platform=platform,
            backends=backends,
        )
        for task in variant.tasks:
            key = (task.name, len(task.lanes))
            if task.name in modelled and key not in costs and (found := _cost(task, variant, trace, note)):
                costs[key] = found
    return Profile(plan.platform, tuple(costs.values()), _tool(), time.strftime("%Y-%m-%d"))


def _variants(plan: Plan) -> Iterator[Plan]:
    yield plan
    if any(len(task.lanes) > 1 for task in plan.tasks):
        yield replace(plan, tasks=tuple(replace(task, lanes=task.lanes[:1]) for task in plan.tasks))


def _cost(task: Task, plan: Plan, trace: Trace, note: Callable[[str], None]) -> MeasuredCost | None:
    times = sorted(job.exec_ns for job in trace.jobs if job.task == task.name and job.status == "done")
    if not times:
        return None
    median, p99 = (times[-(-len(times) * share // 100) - 1] for share in (50, 99))
    error = round(max((p99 - median) / p99, LEAST_ERROR), 3)
    spread = f"median {format_duration(median)}, p99 {format_duration(p99)}, n = {len(times)}"
    note(f"{task.name} on {len(task.lanes)} of {task.engine}: {spread}")
    share = len(task.lanes)
    return MeasuredCost(task.name, task.engine, plan.mode, task.precision, share, p99, error, len(times))


def _tool() -> str:
    packages = ("apache-tvm", "numpy")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    return f"socsched profile, each stage alone, p99 after 2 warm-up frames ({versions}, {_platform.platform()})"
