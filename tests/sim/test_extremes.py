"""Plans and task sets up to every documented limit: compiled and interpreted agree."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
from extreme_plans import LANES, case, task_set
from twins import compiled, content, equal_outcomes

from socsched.errors import UsageError
from socsched.sim.lower import NARROW_SLOTS
from socsched.sim.simulate import SimulationRun, run
from socsched.sim.tasksets import simulate_taskset

FEW, SETS, MANY = range(9), range(200), range(1000)


def check_plan(seed: int) -> bool:
    """Compare the plan of a seed; False where it is one that cannot be simulated, alike in both."""
    drawn = case(seed)
    found: list[Any] = []
    for implementation in (compiled(), "python"):
        try:
            found.append(run(drawn.plan, drawn.duration_ns, seed, None, drawn.faults, implementation=implementation))
        except UsageError as error:
            found.append(str(error))
    if isinstance(found[0], str) or isinstance(found[1], str):
        assert found[0] == found[1]
        return False
    equal_outcomes(*found)
    for column in ("done", "late", "busy_time", "released"):
        assert int(found[0].outcome.ints(column).min(initial=0)) >= 0
    return True


def check_task_set(seed: int) -> None:
    """Compare the task set of a seed."""
    tasks, horizon = task_set(seed)
    ours, theirs = (_simulated(tasks, horizon, which) for which in (compiled(), "python"))
    equal_outcomes(ours, theirs)


def _simulated(tasks: Any, horizon: int, implementation: str) -> SimulationRun:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOCSCHED_KERNEL", implementation)
        return simulate_taskset(tasks, horizon, record=True)


@pytest.mark.needs("Python headers")
def test_plans_of_narrow_engines_agree() -> None:
    """Those of wider engines take a second kernel, which compiles for 20 s."""
    narrow = (seed for seed in MANY if all(engine.lanes <= NARROW_SLOTS for engine in case(seed).plan.engines))
    assert sum(check_plan(seed) for seed in islice(narrow, len(FEW))) > len(FEW) // 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_plans_up_to_the_limits_agree(part: int) -> None:
    seeds = FEW[part::3]
    assert sum(check_plan(seed) for seed in seeds) > len(seeds) // 2


@pytest.mark.needs("Python headers")
def test_task_sets_of_few_processors_agree() -> None:
    for seed in islice((seed for seed in MANY if task_set(seed)[0].processors <= NARROW_SLOTS), len(FEW)):
        check_task_set(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_a_thousand_plans_agree(part: int) -> None:
    seeds = MANY[part::20]
    simulated = sum(check_plan(seed) for seed in seeds)
    print(f"{simulated} of {len(seeds)} plans simulated")
    assert simulated > 0.8 * len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_task_sets_up_to_the_limits_agree(part: int) -> None:
    for seed in SETS[part::10]:
        check_task_set(seed)


def test_word_boundaries_are_among_the_samples() -> None:
    assert {31, 32, 33, 62, 63, 64, 65, 1023, 1024} <= set(LANES)
    assert content is not None
