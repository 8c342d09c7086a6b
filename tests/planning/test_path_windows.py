"""Windows of paths, on systems solved by hand; delays by a path's own sources against a sum over their frames."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from socsched.schedulability import edf, native_demand, native_responses, native_windows, path_windows
from socsched.schedulability.holistic import holistic
from socsched.schedulability.path_windows import NEVER, Rival, _at, frames
from socsched.schedulability.plan_analysis import Corunning, respond
from socsched.schedulability.tasks import Response, RtTask, rt_tasks
from tools.bench import scale
from tools.verify.exhaustive import compare
from tools.verify.random_plans import draw_case, make_plan
from tools.verify.small_plans import plan_bounds, plan_system

GPU, CPU = frozenset({("gpu", 0)}), frozenset({("cpu", 0)})
HIGH = RtTask("high", GPU, 10, 100, 100, priority=0, after=("s0",))
CHAIN = {
    "high": HIGH,
    "a": RtTask("a", GPU, 20, 100, 100, priority=1, after=("s1",)),
    "b": RtTask("b", CPU, 5, 100, 100, priority=0, after=("a",)),
    "c": RtTask("c", GPU, 20, 100, 100, priority=2, after=("b",)),
}


def bound(tasks: dict[str, RtTask], deadlines: dict[str, int] | None = None) -> dict[str, int]:
    found = path_windows.tighten(tasks, deadlines, holistic(tasks))
    for response in found.values():  # terms add up along predecessors
        start = found[response.via].value if response.via else 0
        assert start + sum(value for _, value in response.terms) == response.value
    return {name: response.value for name, response in found.items()}


def test_a_job_delays_a_path_once_although_it_precedes_two_of_its_tasks() -> None:
    """20 + 5 + 20 and one job of 10, where response times of tasks charge it to both `a` and `c`."""
    assert holistic(CHAIN)["c"].value == 65
    assert bound(CHAIN) == {"high": 10, "a": 30, "b": 35, "c": 55}


def test_a_job_of_the_same_sensor_that_has_ended_delays_no_longer() -> None:
    """`high` has ended after 10; `a` runs elsewhere until 15."""
    tasks = {
        "high": replace(HIGH, after=("s1",)),
        "a": RtTask("a", CPU, 15, 100, 100, priority=1, after=("s1",)),
        "c": RtTask("c", GPU, 20, 100, 100, priority=2, after=("a",)),
    }
    assert bound(tasks)["c"] == 35
    apart = {**tasks, "high": HIGH}
    assert bound(apart)["c"] == 45


def test_a_job_that_precedes_the_last_task_of_a_path_may_block_its_first() -> None:
    """`mid` yields to `a` and not to `c`; it has begun when `a` arrives, and delays the path by all of its time."""
    tasks = {
        "a": RtTask("a", GPU, 70, 800, 800, priority=0, segment=70, preemption="segment", after=("s0",)),
        "b": RtTask("b", CPU, 50, 800, 800, priority=0, after=("a",)),
        "c": RtTask("c", GPU, 30, 800, 800, priority=2, segment=30, preemption="segment", after=("b", "s1")),
        "mid": RtTask("mid", GPU, 60, 800, 800, priority=1, segment=60, preemption="segment", after=("s1",)),
    }
    assert bound(tasks)["c"] == 70 + 50 + 30 + 60


def test_a_branch_delays_only_what_comes_after_the_task_that_triggers_it() -> None:
    """`left` shares the GPU with `stem`, which triggers it, and with `join`, which waits for it."""
    tasks = {
        "stem": RtTask("stem", GPU, 10, 400, 400, priority=0, segment=10, preemption="none", after=("s0",)),
        "left": RtTask("left", GPU, 60, 400, 400, priority=1, segment=60, preemption="none", after=("stem",)),
        "right": RtTask("right", CPU, 70, 400, 400, priority=0, after=("stem",)),
        "join": RtTask("join", GPU, 5, 400, 400, priority=2, segment=5, preemption="none", after=("left", "right")),
    }
    assert bound(tasks) == {"stem": 10, "left": 70, "right": 80, "join": 85}


def test_a_window_of_too_many_jobs_keeps_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examined one by one, hundreds of jobs of a source that is late by many periods took minutes."""
    examined = {seed: bound(rt_tasks(plan_system("fp", "pipeline", Random(seed)).plan)) for seed in range(40)}
    monkeypatch.setattr(path_windows, "OWN_JOBS", 0)
    kept = {seed: bound(rt_tasks(plan_system("fp", "pipeline", Random(seed)).plan)) for seed in range(40)}
    assert all(kept[seed][name] >= value for seed, found in examined.items() for name, value in found.items())
    assert kept != examined


def test_tasks_that_follow_each_other_on_a_processor_are_blocked_once() -> None:
    tasks = {
        "a": RtTask("a", GPU, 20, 100, 100, priority=0, segment=5, preemption="segment", after=("s0",)),
        "b": RtTask("b", GPU, 20, 100, 100, priority=1, segment=5, preemption="segment", after=("a",)),
        "low": RtTask("low", GPU, 8, 100, 100, priority=2, segment=8, preemption="segment", after=("s1",)),
    }
    assert bound(tasks)["b"] == 48


def test_frames_in_flight_are_charged_the_rest_that_they_can_still_take() -> None:
    """A chain of three tasks of 40 on three processors, a frame every 50: each processor serves one frame at a time."""
    tasks = {
        name: RtTask(name, frozenset({(name, 0)}), 40, 50, 150, priority=0, after=(before,))
        for name, before in (("a", "s"), ("b", "a"), ("c", "b"))
    }
    assert bound(tasks) == {"a": 40, "b": 80, "c": 120}


@pytest.mark.parametrize(("policy", "seed"), [("fp", 21), ("edf", 21), ("fp", 48), ("edf", 55)])
def test_the_traffic_of_relatives_is_left_out_while_frames_end_within_a_period(policy: str, seed: int) -> None:
    small = plan_system(policy, "chain", Random(f"relatives/{seed}"))
    tasks = rt_tasks(small.plan)
    full = respond(policy, tasks).tight
    less = respond(policy, tasks, None, Corunning.of(small.plan).without_absent).tight
    assert all(less[name].value <= full[name].value for name in tasks)
    assert any(less[name].value < full[name].value for name in tasks)
    assert compare("chain", small.system, small.phases, plan_bounds(small), 150).faults == []


def rival(draw: Random) -> Rival:
    """Return a random rival with small times."""
    latest = draw.choice((NEVER, -NEVER, draw.randint(-30, 30)))
    blocks = tuple((run, draw.randint(1, 9), draw.choice((-NEVER, draw.randint(-5, 25)))) for run in range(2))
    wcet = draw.randint(0, 12)
    return Rival(
        "r", wcet, draw.randint(0, 2), draw.randint(1, 15), draw.randint(-30, 30), wcet + draw.randint(0, 40), latest,
        blocks[: draw.randint(0, 2)], draw.random() < 0.4, draw.choice((None, 0, 1, -1)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(20))
def test_a_delay_is_the_sum_over_the_frames_of_every_rival(seed: int) -> None:
    draw = Random(seed)
    for _ in range(200):
        rivals, window = [rival(draw) for _ in range(draw.randint(1, 3))], draw.randint(1, 60)
        total, blocked = 0, [0, 0]
        for each in rivals:
            for _, at in frames(each, 0, window):
                if at <= each.latest:
                    total += min(each.wcet, at + each.finish, window - at) + each.switch
                else:
                    for run, time, begin in each.blocks:
                        blocked[run] = max(blocked[run], time if at < begin else 0)
        sets = [0, blocked[0], blocked[1], sum(blocked)]
        assert _at(rivals, window, 2) == [total + value for value in sets], (rivals, window)
        assert _at(rivals, window, 2, counted=False) == sets, (rivals, window)
        assert _at(rivals, window, 0) == [total]


# Analyses in C against the Python functions, on random plans: equal to the nanosecond, term by term.


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


def test_a_full_processor_has_the_bounds_of_the_python_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of several periods, in which the same rivals are met again and again."""
    tasks = rt_tasks(scale.list_plan(*scale.instance("one", 24), "fp"))
    assert compared("fp", {n: replace(t, wcet=round(2.4 * t.wcet)) for n, t in tasks.items()}, monkeypatch) > 20


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
