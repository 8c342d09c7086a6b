"""Analyses in C against the Python functions, on random plans: equal to the nanosecond, term by term."""

from __future__ import annotations

from random import Random

import pytest

from socsched.schedulability import edf, native_demand, native_responses, native_windows, path_windows
from socsched.schedulability.plan_analysis import respond
from socsched.schedulability.tasks import Response, RtTask, rt_tasks
from tools.verify.random_plans import draw_case, make_plan
from tools.verify.small_plans import plan_system


def bounds(policy: str, tasks: dict[str, RtTask], monkeypatch: pytest.MonkeyPatch, native: bool) -> dict[str, Response]:
    with monkeypatch.context() as patch:
        if not native:
            for module in (native_windows, native_responses, native_demand):
                patch.setattr(module, "library", lambda: None)
        return dict(respond(policy, tasks).tight)


def compared(policy: str, tasks: dict[str, RtTask], monkeypatch: pytest.MonkeyPatch) -> int:
    mine, reference = (bounds(policy, tasks, monkeypatch, native) for native in (True, False))
    assert mine == reference
    return sum(path_windows.bounds(response) for response in mine.values())


@pytest.mark.parametrize("part", [*range(4), *(pytest.param(part, marks=pytest.mark.slow) for part in range(4, 84))])
def test_random_plans_have_the_bounds_of_the_python_functions(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gangs, accelerators, joins, timers with jitter, sporadic sensors, under both policies."""
    windows = 0
    for seed in range(part * 60, part * 60 + 60):
        plan = make_plan(draw_case(seed))
        if plan.policy in ("edf", "fp"):
            windows += compared(plan.policy, rt_tasks(plan), monkeypatch)
    assert windows > 30


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_small_plans_have_the_bounds_of_the_python_functions(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(
        compared(policy, rt_tasks(plan_system(policy, "pipeline", Random(seed)).plan), monkeypatch)
        for seed in range(200)
    )


def test_times_that_might_not_fit_64_bits_are_left_to_python() -> None:
    long = RtTask("long", frozenset({("cpu", 0)}), 1, 2, 3 << 60, priority=0, after=("s",), release_jitter=1 << 60)
    system = path_windows.PathSystem.of({"long": long}, None)
    assert native_windows.Windows.of(system, {"long": 1 << 60}, {}) is None


@pytest.mark.parametrize("seed", range(40))
def test_deadlines_are_found_as_by_the_python_functions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all tasks together, and of one of them; gangs, segments and overloads among them."""
    tasks = rt_tasks(make_plan(draw_case(seed)))
    system = edf.System.of(tasks)
    deadlines = {name: max(task.deadline // Random(seed).choice((1, 2, 8)), 1) for name, task in tasks.items()}
    groups = [frozenset(tasks), frozenset([next(iter(tasks))])]
    mine = [edf.smallest_factor(system, deadlines, names, 12) for names in groups], edf.test(system, deadlines)
    for module in (native_windows, native_responses, native_demand):
        monkeypatch.setattr(module, "library", lambda: None)
    assert mine == (
        [edf.smallest_factor(system, deadlines, names, 12) for names in groups],
        edf.test(system, deadlines),
    )
