"""Bounds on the probability that a frame misses its chain's deadline, where execution times have distributions.

All jobs that may run between a frame's release and its deadline are known by their releases: a rival released earlier
than its worst-case response before has ended.  A frame that misses keeps its path pending throughout, so the sum of
their execution times exceeds the deadline.  The distribution of that sum is a convolution (von der Brüggen et al.,
"Efficiently Approximating the Probability of Deadline Misses in Real-Time Systems", ECRTS 2018); jobs carried in are
counted, as Chen, Günzel, von der Brüggen, Chen, "Critical Instant for Probabilistic Timing Guarantees: Refuted and
Revisited", RTSS 2022, show to be necessary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from socsched.planning.plan import ChainResult, Plan
from socsched.planning.task import Task
from socsched.schedulability.chains import Stretch, reaction_time
from socsched.schedulability.coverage import outside
from socsched.schedulability.path_windows import NEVER, Path, PathSystem, Rival, Window, frames, paths_to
from socsched.schedulability.plan_analysis import Corunning, respond, stretches
from socsched.schedulability.tasks import Response, RtTask, rt_tasks

SECTION = "Probability of misses"
STEPS = 4000
"""Steps that a deadline is divided into; execution times are rounded up to whole steps."""
Vector = np.ndarray
"""Probability of 0, 1, ... steps; the last entry: that many or more."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Jobs by task, each task's number of them, and the rest that is constant (ns)."""

    jobs: Mapping[str, int]
    constant: int


def miss_probabilities(plan: Plan) -> dict[str, float | None]:
    """Return a bound on the probability that a frame is late by chain, None without distributions or bounds."""
    if outside(plan) or not any(task.times for task in plan.tasks):
        return dict.fromkeys((chain.name for chain in plan.chains), None)
    tasks = rt_tasks(plan)
    responses = respond(plan.policy, tasks, None, Corunning.of(plan).without_absent).tight
    return {chain.name: _probability(plan, chain, tasks, responses) for chain in plan.chains}


def _probability(
    plan: Plan, chain: ChainResult, tasks: Mapping[str, RtTask], responses: Mapping[str, Response]
) -> float | None:
    """Return a bound on the probability that a frame of a chain is late, None without bounds.

    The job times of a task are independent of each other and of other tasks', with the plan's distributions.  Of the
    chain's stretches, one varies and the others take their worst case, whichever gives the smallest bound.
    """
    by_name = {task.name: task for task in plan.tasks}
    if not all(response.bounded for response in responses.values()):
        return None
    parts = stretches(plan, chain)
    worst, bounded, _ = reaction_time(parts, responses)
    if not bounded:
        return None
    if worst <= chain.deadline_ns:
        return 0.0
    system = PathSystem.of(tasks, {name: t.deadline for name, t in tasks.items()} if plan.policy == "edf" else None)
    finish = {name: response.value for name, response in responses.items()}
    found = []
    for part in (part for part in parts if part.last):
        left = chain.deadline_ns - worst + responses[part.last].value
        ways = paths_to(system, part.last)
        if left > 0 and ways and _in_time(parts, responses, part.last, left, chain.deadline_ns):
            found.append(sum(_path(system, path, finish, left, by_name, tasks) for path in ways))
    return min(1.0, *found) if found else None


def _in_time(parts: Sequence[Stretch], responses: Mapping[str, Response], name: str, left: int, deadline: int) -> bool:
    """Return whether a chain meets its deadline if the task `name` takes `left` ns and others their worst case.

    It may not while the first frame waits for a timer that begins late.
    """
    return reaction_time(parts, {**responses, name: Response(left, True, (("", left),))})[0] <= deadline


def _path(
    system: PathSystem,
    path: Path,
    finish: Mapping[str, int],
    left: int,
    by_name: Mapping[str, Task],
    tasks: Mapping[str, RtTask],
) -> float:
    """Return a bound on the probability that a path takes longer than `left` ns after its last task's release."""
    window = Window.of(system, path, finish)
    if window is None:
        return 1.0
    span = left - window.origin
    total = _sum(path.tasks, window, span, tasks)
    step = max(-(-span // STEPS), 1)
    # rounding up adds less than a step a job; what exceeds the deadline by no more is not a miss for certain
    reach = (span - total.constant) // step
    if reach < 0:
        return 1.0
    whole = np.zeros(reach + 2)
    whole[0] = 1.0
    for name, count in total.jobs.items():
        one = _distribution(by_name[name], tasks[name], step, reach)
        whole = _plus(whole, _power(one, count))
    return min(float(whole[-1]) * (1 + 1e-9) + 1e-300, 1.0)


def _sum(path: Sequence[str], window: Window, span: int, tasks: Mapping[str, RtTask]) -> Sum:
    """Return the jobs that may run within `span` ns of the release of a path, the most over all phases."""
    jobs = dict.fromkeys(path, 1)
    constant = window.alone - sum(tasks[name].wcet for name in path)
    for rival in window.aligned:
        count = sum(at <= rival.latest for _, at in frames(rival, 0, span + 1))
        constant += count * rival.switch
        if rival.wcet:
            jobs[rival.name] = jobs.get(rival.name, 0) + count
    for rival in (rival for rivals in window.foreign for rival in rivals):
        count = _most(rival, span)
        constant += count * rival.switch
        if rival.wcet:
            jobs[rival.name] = jobs.get(rival.name, 0) + count
    every = [rival for rivals in (*window.foreign, window.aligned) for rival in rivals]
    for run in range(window.runs):
        constant += max((time for rival in every for number, time, _ in rival.blocks if number == run), default=0)
    return Sum(jobs, constant)


def _most(rival: Rival, span: int) -> int:
    """Return the most jobs of a rival of any phase that are released by `span` and end after the path's release."""
    last = span if rival.latest == -NEVER else min(rival.latest, span)
    return max((last + rival.finish - 1) // rival.period + 1, 0)


def _distribution(task: Task, known: RtTask, step: int, reach: int) -> Vector:
    """Return the distribution of a job's time in steps, stretched like its WCET; of a task without one, its WCET."""
    values = task.times.values_ns if task.times else (known.wcet,)
    most = max(values)
    extra = known.wcet - task.wcet_ns if task.times else 0
    stretch = task.wcet_ns / most if task.times else 1.0
    if task.times and task.times.interpolate and len(values) > 1:
        values = values[1:]  # a value between two quantiles is at most the upper one
    found = np.zeros(reach + 2)
    for value in values:
        longest = min(math.ceil(value * stretch * (1 + 1e-12)) + extra, known.wcet) if task.times else value
        found[min(-(-longest // step), reach + 1)] += 1 / len(values)
    return found


def _plus(one: Vector, other: Vector) -> Vector:
    """Return the distribution of a sum; the probability of the last entry absorbs all larger sums."""
    both = np.convolve(one, other)
    kept: Vector = both[: len(one)].copy()
    kept[-1] = both[len(one) - 1 :].sum()
    return kept


def _power(one: Vector, count: int) -> Vector:
    """Return the distribution of the sum of `count` independent values, by repeated squaring."""
    result = np.zeros(len(one))
    result[0] = 1.0
    while count:
        if count & 1:
            result = _plus(result, one)
        one, count = (_plus(one, one), count >> 1) if count > 1 else (one, 0)
    return result
