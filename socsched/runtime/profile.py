"""Measure every stage of a plan alone on this machine, for `socsched plan --profile`.

Stages with a model run on real data in dependency order, one at a time, on their planned lanes and, if these are more
than one, on a single lane as well.  Untraced frames warm up first.  The number of frames is doubled until the
median of every stage is known within `interval`, up to `most`.  Stages with only a planned time are left out: there is
nothing to measure.

The interval of a median lies between the order statistics n/2 -+ 0.98 sqrt(n), which contains it with 95 % whatever
the distribution (David & Nagaraja, Order Statistics, 3rd ed., section 7.1).
"""

from __future__ import annotations

import math
import platform as _platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata

from socsched.cost.profile import MeasuredCost, Profile
from socsched.descriptor.distribution import nearest_rank
from socsched.descriptor.pipeline import Pipeline
from socsched.descriptor.platform import Platform
from socsched.errors import UsageError
from socsched.planning.plan import Plan, Task
from socsched.progress import tell
from socsched.runtime.backends import program_of
from socsched.runtime.errors import require_whole, warn
from socsched.runtime.frames import FrameReport
from socsched.trace.trace import Trace
from socsched.units import format_duration

QUANTILES = 200
"""Times of a stage kept in a profile: the simulator draws from them, so its percentiles match the machine."""
LEAST_ERROR = 0.02
"""Minimum relative uncertainty: measurements of the same code vary this much between process starts."""


Run = Callable[[Plan, int, Callable[[FrameReport], None]], Trace]
"""Runs a number of frames of a plan as fast as possible, one job at a time, and calls for every chain that ends."""


def measure(
    plan: Plan,
    pipeline: Pipeline,
    run: Run,
    *,
    repeat: int = 10,
    interval: float | None = None,
    most: int = 320,
    note: Callable[[str], None] = warn,
    platform: Platform | None = None,
) -> Profile:
    """Return measured costs of the plan's stages: the 99th percentile of `repeat` frames in ns, at each share tried.

    With `interval` (relative half width) more frames are run until every stage's median is known that well.  The plan
    treats a cost as a worst case, so it is taken from the slow end (with fewer than 100 frames it is the longest seen);
    its error reaches down to the median.  `note` is called with each result.
    Raises UsageError if the plan is for another machine or no stage has a model, KeyboardInterrupt after SIGINT.
    """
    modelled = {stage.name for stage in pipeline.stages if stage.model}
    if not modelled & {task.name for task in plan.tasks}:
        raise UsageError(
            "no stage of the pipeline has a model: nothing to measure",
            "the execution times of such stages stand in the pipeline file",
        )
    costs: dict[tuple[str, int], MeasuredCost] = {}
    for variant in _variants(plan):
        tasks = [task for task in variant.tasks if task.name in modelled and (task.name, len(task.lanes)) not in costs]
        times: dict[str, list[int]] = {task.name: [] for task in tasks}
        count, before, names = repeat, 0, ", ".join(times)

        def step(report: FrameReport, before: int = 0, names: str = names) -> None:
            tell("measuring", before + report.frame + 1, most if interval else repeat, "frames", names)

        while tasks:
            # warm-up frames are not reported and building the stages takes a while: announce the measurement first
            tell("measuring", before, most if interval else repeat, "frames", names)
            trace = run(variant, count, partial(step, before=before))
            require_whole(trace)
            for job in trace.jobs:
                if job.task in times and job.status == "done":
                    times[job.task].append(job.exec_ns)
            taken = before = max(map(len, times.values()))
            open_ = [name for name, found in times.items() if interval and half_width(found) > interval]
            if not open_ or taken >= most:
                break
            count = min(taken, most - taken)
        for task in tasks:
            target = platform.engine(task.engine).target if platform else {}
            program = program_of(task, str(target.get("kind", "")))
            if found := _cost(task, variant, times[task.name], note, program):
                costs[task.name, len(task.lanes)] = found
    return Profile(plan.platform, tuple(costs.values()), _tool(), time.strftime("%Y-%m-%d"))


def _variants(plan: Plan) -> Iterator[Plan]:
    yield plan
    if any(len(task.lanes) > 1 for task in plan.tasks):
        yield replace(plan, tasks=tuple(replace(task, lanes=task.lanes[:1]) for task in plan.tasks))


def half_width(values: Sequence[int]) -> float:
    """Return the relative half width of the median's 95 % interval; infinite for too few values."""
    ordered, count = sorted(values), len(values)
    low, high = math.floor(count / 2 - 0.98 * math.sqrt(count)), math.ceil(count / 2 + 0.98 * math.sqrt(count))
    if low < 1 or high > count:
        return math.inf
    return (ordered[high - 1] - ordered[low - 1]) / 2 / max(ordered[(count - 1) // 2], 1)


def _cost(
    task: Task, plan: Plan, values: Sequence[int], note: Callable[[str], None], program: str
) -> MeasuredCost | None:
    times = sorted(values)
    if not times:
        return None
    median, p99 = (nearest_rank(times, share) for share in (50, 99))
    error = round(max((p99 - median) / p99, LEAST_ERROR), 3)
    interval = f" ±{width:.1%}" if (width := half_width(times)) < math.inf else ""
    spread = f"median {format_duration(median)}{interval}, p99 {format_duration(p99)}, n = {len(times)}"
    note(f"{task.name} on {len(task.lanes)} of {task.engine}: {spread}")
    share = len(task.lanes)
    kept = quantiles(times)
    place = task.name, task.engine, plan.mode, task.precision, share
    return MeasuredCost(*place, p99, error, len(times), median, kept, runtime=program)


def quantiles(ordered: Sequence[int]) -> tuple[int, ...]:
    """Return all values if at most `QUANTILES`, else `QUANTILES` of them at the midpoints of equal steps."""
    if len(ordered) <= QUANTILES:
        return tuple(ordered)
    return tuple(ordered[(2 * step + 1) * len(ordered) // (2 * QUANTILES)] for step in range(QUANTILES))


def _tool() -> str:
    packages = ("apache-tvm", "numpy")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in packages)
    return f"socsched profile, each stage alone, p99 after warm-up frames ({versions}, {_platform.platform()})"
