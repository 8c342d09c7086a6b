"""A sample of tools/verify/exhaustive.py, and the explorer itself on systems solved by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.schedulability.chains import Stretch, data_age
from tools.verify import exhaustive, small_plans
from tools.verify.cases import Tally
from tools.verify.explorer import System, Task, explore

THREE = (Task(4, 1, 1, 0, 4), Task(6, 2, 1, 1, 6), Task(12, 3, 2, 2, 12))
"""Periods 4, 6, 12 and times 1, 2, 3, rate monotonic."""
PHASES = [[0, 0, 0], [1, 1, 0], [0, 1, 0]]


def test_preemptive_fixed_priorities_reach_the_critical_instant() -> None:
    """R = 3 + ceil(R / 4) + 2 ceil(R / 6) = 10."""
    truth = explore(System(THREE, "fp"), PHASES)
    assert (truth.responses, truth.complete) == ([1, 3, 10], True)


def test_without_preemption_a_job_just_begun_blocks() -> None:
    """The first waits 2 ticks of the third; the second 2 of the third and 1 of the first."""
    tasks = tuple(replace(task, regions=(task.worst,)) for task in THREE)
    assert explore(System(tasks, "fp"), PHASES).responses == [3, 5, 6]


def test_floating_regions_block_anywhere_but_guarantee_no_end() -> None:
    tasks = tuple(replace(task, floating=task.worst) for task in THREE)
    assert explore(System(tasks, "fp"), PHASES).responses == [3, 5 + 1, 10]


def test_release_jitter_brings_releases_together() -> None:
    """Released at 3 and 4 instead of 0 and 4, the first runs twice before the second: 1 + 1 + 2."""
    tasks = (Task(4, 1, 1, 0, 8, jitter=3), Task(12, 2, 2, 1, 12))
    assert explore(System(tasks, "fp"), [[0, 3], [0, 0]]).responses == [4, 4]


def test_two_readers_of_memory_share_its_bandwidth() -> None:
    tasks = (Task(6, 1, 1, 0, 6, lanes=1, traffic=12), Task(6, 2, 2, 1, 6, lanes=2, traffic=12))
    assert explore(System(tasks, "fp"), [[0, 0]]).responses == [2, 3]


def test_a_lower_priority_fills_the_lane_a_waiting_gang_cannot_use() -> None:
    """The gang needs both lanes; each is taken anew before the other is free."""
    tasks = (
        Task(12, 1, 1, 0, 12, lanes=3, regions=(1,)),
        Task(12, 3, 3, 1, 12, lanes=1, regions=(3,)),
        Task(12, 4, 4, 2, 12, lanes=2, regions=(4,)),
    )
    assert explore(System(tasks, "fp"), [[1, 0, 2]]).responses[0] == 6


def test_a_sampled_output_waits_for_the_next_job_of_its_reader() -> None:
    """Read at 1, 7, 13, ... and finished 2 later; the frame of 4 k ends at 4 k + 1."""
    tasks = (Task(4, 1, 1, 0, 4), Task(6, 2, 2, 1, 6, lanes=2))
    truth = explore(System(tasks, "fp", chain=((0,), (1,))), [[0, 2], [0, 1], [0, 0], [0, 3]])
    assert (truth.reaction, truth.age) == (8, 6)


@pytest.mark.parametrize("family", [*exhaustive.SETS, *exhaustive.PLANS])
def test_no_bound_is_below_the_truth(family: str) -> None:
    tally = Tally()
    for number in range(2):
        tally.add(exhaustive.check(150, family, f"{family}/test/{number}"))
    assert tally.faults == []


def test_an_age_without_sampling_periods_is_seen_to_be_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        small_plans, "data_age", lambda parts, found: data_age([Stretch(0, part.last) for part in parts], found)
    )
    below = [line for number in range(12) for line in exhaustive.check(200, "plan, fp, chain", f"m/{number}").faults]
    assert any("age reaches" in line for line in below)


def test_a_bound_without_blocking_is_seen_to_be_below() -> None:
    tasks = tuple(replace(task, regions=(task.worst,)) for task in THREE)
    optimistic: list[tuple[str, int | str, int]] = [("no blocking", 0, 1)]
    tally = exhaustive.compare("test 0", System(tasks, "fp"), PHASES, optimistic, 500)
    assert len(tally.faults) == 1
