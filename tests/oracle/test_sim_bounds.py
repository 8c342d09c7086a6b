"""No simulated response exceeds a bound of any analysis: random task sets of every kind that both support."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability.published.choose import analyse
from socsched.sim.tasksets import simulate_taskset
from tools.verify.random_systems import from_any_phase

POLICIES = ("FP", "RM", "DM", "EDF", "NP-FP", "NP-EDF", "FIFO", "G_FP", "G_EDF", "P_FP", "P_EDF")
PERIODS = (4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60)


def random_set(draw: Random, policy: str) -> dict[str, Any]:
    """Return a task set: utilisations by UUniFast (Bini & Buttazzo 2005), some with jitter and shorter deadlines."""
    processors = draw.randint(2, 3) if policy[1] == "_" else 1
    count = draw.randint(2, 6)
    left = draw.uniform(0.3, 0.98) * processors
    jittery = draw.random() < 0.3
    tasks = []
    for index in range(count):
        following = left * draw.random() ** (1 / (count - index - 1)) if index < count - 1 else 0.0
        period = draw.choice(PERIODS) * 10
        wcet = max(1, min(period, int((left - following) * period)))
        left = following
        deadline = draw.randint(wcet, period) if draw.random() < 0.3 else period
        row = {"period": period, "deadline": deadline, "wcet": wcet, "bcet": draw.randint(1, wcet), "prio": index}
        if policy.startswith("P_"):
            row["cpu"] = draw.randrange(processors)
        if jittery:
            row["jitter"] = draw.randint(0, period // 4)
        tasks.append(row)
    if "FP" in policy:
        for rank, row in enumerate(sorted(tasks, key=lambda row: (row["deadline"], row["prio"]))):
            row["prio"] = rank
    return {"policy": policy, "processors": processors, "tasks": tasks}


def exceeded(data: dict[str, Any], draw: Random) -> tuple[list[str], int, int]:
    """Simulate a set at several offsets with longest and random times.

    Returns violated bounds, how many bounds there are, and how many simulations reached one.
    """
    taskset = taskset_from_mapping(data, "random")
    analysis = analyse(from_any_phase(taskset))
    bounds = [
        (outcome.test.name, index, outcome.answer.bounds[task.name].value)
        for outcome in analysis.outcomes if outcome.answer
        for index, task in enumerate(taskset.tasks) if task.name in outcome.answer.bounds
    ]  # fmt: skip
    if not bounds and analysis.verdict != "feasible":
        return [], 0, 0
    violated, reached = [], 0
    for attempt in range(3):
        offsets = [0 if attempt == 0 else draw.randrange(row["period"]) for row in data["tasks"]]
        rows = [{**row, "offset": offset} for row, offset in zip(data["tasks"], offsets, strict=True)]
        moved = taskset_from_mapping({**data, "tasks": rows}, "random")
        outcome = simulate_taskset(
            moved, 6000, execution="random" if attempt == 2 else "wcet", seed=attempt
        ).outcome  # fmt: skip
        most = outcome.ints_of("responses", 2)
        for name, index, bound in bounds:
            reached += most[index] == bound
            if most[index] > bound:
                violated.append(f"{name}: task {index} took {most[index]}, bound {bound}: {rows}")
        if analysis.verdict == "feasible" and outcome.ints("late").sum() + outcome.ints("overdue").sum():
            violated.append(f"{analysis.decided_by}: missed: {rows}")
    return violated, len(bounds), int(reached)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.sampled(4)
def test_no_bound_is_exceeded(policy: str) -> None:
    check(policy, 30)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_no_bound_is_exceeded_in_ten_thousand_sets(policy: str) -> None:
    check(policy, 10_000 // len(POLICIES) + 1)


def check(policy: str, sets: int) -> None:
    draw = Random(f"bounds {policy}")
    compared = attained = 0
    for _ in range(sets):
        violated, held, reached = exceeded(random_set(draw, policy), draw)
        assert not violated, violated[0]
        compared += held
        attained += reached
    assert compared > sets / 4 and attained > 0, (compared, attained)
