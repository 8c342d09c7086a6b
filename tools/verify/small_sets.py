"""Small random task sets for the explorer: one or several processors, every rule and preemption with a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from socsched.descriptor.taskset import PeriodicTask, Policy, TaskSet
from socsched.schedulability.published.choose import analyse
from socsched_literature.studies.acceptance import uunifast
from tools.verify.explorer import System, Task
from tools.verify.random_systems import cut, from_any_phase, taskset

PERIODS = (3, 4, 5, 6, 10, 12, 15, 20)
"""Periods drawn (ticks); all divide 60."""


def _tasks(draw: Random, total: float, least: int, most: int, jitter: bool, longer: bool) -> list[PeriodicTask]:
    tasks = []
    for index, share in enumerate(uunifast(draw.randint(least, most), total, draw)):
        period = draw.choice(PERIODS)
        worst = min(max(round(share * period), 1), period)
        best = worst if draw.random() < 0.5 else draw.randint(1, worst)
        due = draw.randint(worst, 2 * period if longer and draw.random() < 0.4 else period)
        late = draw.randint(1, max(period // 3, 1)) if jitter and draw.random() < 0.4 else 0
        tasks.append(PeriodicTask(index, f"t{index}", period, due, worst, best, 0, late, None, None))
    return tasks


def _one(rule: str, preemption: str, jitter: bool = False) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        tasks = _tasks(draw, draw.uniform(0.4, 1.0), 2, 4, jitter, True)
        if preemption == "regions":
            tasks = [cut(task, draw, 2) for task in tasks]
        elif preemption == "floating":
            tasks = [replace(t, longest_region_ns=draw.randint(1, t.wcet_ns) * (draw.random() < 0.7)) for t in tasks]
        policy = Policy(rule, "partitioned", preemption != "none")  # type: ignore[arg-type]
        return taskset(tasks, policy, 1, draw if draw.random() < 0.3 else None)

    return make


def _many(rule: str, preemptive: bool) -> Callable[[Random], TaskSet]:
    def make(draw: Random) -> TaskSet:
        tasks = _tasks(draw, draw.uniform(0.5, 1.8), 3, 5, preemptive and draw.random() < 0.3, False)
        return taskset(tasks, Policy(rule, "global", preemptive), 2)  # type: ignore[arg-type]

    return make


FAMILIES: dict[str, Callable[[Random], TaskSet]] = {
    f"{rule}, {preemption} preemption{', jitter' if jitter else ''}": _one(rule, preemption, jitter)
    for rule in ("fp", "edf")
    for preemption in ("full", "none", "regions", "floating")
    for jitter in (False, True)
} | {
    "fifo": _one("fifo", "none"),
    "global fp": _many("fp", True),
    "global fp, no preemption": _many("fp", False),
    "global edf": _many("edf", True),
}
"""Kind of task set -> a draw of one."""


def set_system(made: TaskSet, draw: Random) -> tuple[System, list[list[int]]]:
    """Return a task set in the explorer's terms, and vectors of first arrivals to explore from."""
    share = made.policy.scheme == "global"
    whole = not made.policy.preemptive
    tasks = tuple(
        Task(
            period=task.period_ns,
            worst=task.wcet_ns,
            best=task.bcet_ns,
            rank=rank,
            deadline=task.deadline_ns,
            lanes=0 if share else 1,
            jitter=task.jitter_ns,
            regions=(task.wcet_ns,) if whole else task.regions_ns,
            floating=0 if whole else task.longest_region_ns,
        )
        for task, rank in zip(made.tasks, made.ranks, strict=True)
    )
    rule = made.policy.rule if made.policy.rule in ("edf", "fifo") else "fp"
    system = System(tasks, rule, made.processors, draw.random() < 0.5)
    latest = max(task.jitter for task in tasks)
    together = [latest - task.jitter for task in tasks]
    phases = [together]
    for index in draw.sample(range(len(tasks)), 2):
        phases.append([at + (other != index) for other, at in enumerate(together)])
    phases.append([draw.randrange(task.period) for task in tasks])
    return system, phases


def set_bounds(made: TaskSet) -> list[tuple[str, int | str, int]]:
    """Return every bound of every applicable published test: (test, task number, ticks)."""
    index = {task.name: number for number, task in enumerate(made.tasks)}
    return [
        (outcome.test.name, index[name], bound.value)
        for outcome in analyse(from_any_phase(made)).outcomes
        if outcome.answer
        for name, bound in outcome.answer.bounds.items()
    ]
