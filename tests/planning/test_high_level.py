"""The high level of criticality in plans: rules by hand, bounds never below a simulation, verdicts, refused files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from socsched.api.simulation import simulate_plan
from socsched.cli.results import outcome_code
from socsched.cost.cost import Segment
from socsched.descriptor.pipeline import PER_COST, High, Pipeline, Stage
from socsched.faults.model import Faults, Overrun
from socsched.models.work import stage_work
from socsched.planning.plan import Plan, Task
from socsched.planning.search import make_plan
from socsched.planning.task import ExecutionTimes
from socsched.schedulability.high_level import AMC, RESERVED, high_level, judge_high_level, unmet
from socsched.sim.simulate import run, simulate
from socsched.trace.trace import Trace
from tests.sim.builders import MS, chain, engine, plan, sensor, task
from tests.sim.toy_platform import figure, lines, platform, takes

US = 1_000


def hard(name: str, low: int, high: int, period: int, priority: int, **changes: Any) -> Task:
    """Return a timer task of high criticality, times in ms."""
    made = {"period_ns": period * MS, "priority": priority, "queue": 1, **changes}
    return task(name, low * MS, high_ns=high * MS, criticality="hard", **made)


def soft(name: str, cost: int, period: int, priority: int, **changes: Any) -> Task:
    return task(name, cost * MS, period_ns=period * MS, priority=priority, queue=1, **changes)


def fixed(*tasks: Task, lanes: int = 1, **changes: Any) -> Plan:
    chains = [chain(t.name, [t.name], t.period_ns) for t in tasks]
    return plan(tasks, [engine(policy="fp", lanes=lanes)], policy="fp", verdict="feasible", chains=chains, **changes)


def always(*names: str, factor: Fraction = Fraction(2), probability: Fraction = Fraction(1)) -> Faults:
    return Faults(overruns=tuple(Overrun(name, probability, factor) for name in names))


def jobs(trace: Trace, name: str) -> list[tuple[int, int, str]]:
    """Return activation, end and status of the jobs of a task, in ms."""
    found = [j for j in trace.jobs if j.task == name]
    return [(j.activation_ns // MS, j.finish_ns // MS if j.finish_ns >= 0 else -1, j.status) for j in found]


def test_amc_by_hand() -> None:
    """R_LO = 2 + 2 + 2 = 6; over an overrun R = 5 + ceil(6 / 10) 2 + ceil(R / 8) 4 = 15, as in the task set's test."""
    made = fixed(hard("a", 2, 4, 8, 0), soft("b", 2, 10, 1), hard("c", 2, 5, 40, 2))
    level = high_level(made)
    assert (level.test, level.reason) == (AMC, "")
    assert {name: answer.value // MS for name, answer in level.responses.items()} == {"a": 4, "c": 15}
    assert judge_high_level(made) == made


@pytest.mark.parametrize("implementation", ["python", None])
def test_an_overrun_drops_what_is_not_hard_until_nothing_is_left(implementation: str | None) -> None:
    """`a` overruns at 2 ms: `b` has not begun and is dropped, so is its next job at 5; at 7 all is idle."""
    made = fixed(hard("a", 2, 4, 20, 0), soft("b", 1, 5, 1), hard("c", 3, 3, 20, 2))
    trace = run(made, 20 * MS, faults=always("a"), implementation=implementation).trace
    assert trace is not None
    assert jobs(trace, "a") == [(0, 4, "done")]
    assert jobs(trace, "c") == [(0, 7, "done")]
    assert jobs(trace, "b") == [(0, -1, "dropped"), (5, -1, "dropped"), (10, 11, "done"), (15, 16, "done")]
    marks = [(note.time_ns // MS, note.kind, note.subject) for note in trace.instants]
    assert marks.count((2, "overload", "a")) == 1
    assert [mark for mark in marks if mark[1] == "drop"] == [(2, "drop", "b"), (5, "drop", "b")]


def test_a_job_that_has_begun_ends() -> None:
    made = fixed(hard("a", 2, 4, 20, 0, offset_ns=1 * MS), soft("b", 3, 20, 1))
    trace = simulate(made, 20 * MS, faults=always("a"))
    assert jobs(trace, "b") == [(0, 7, "done")]
    assert jobs(simulate(made, 20 * MS), "b") == [(0, 5, "done")]


def test_longer_times_than_planned_are_overruns_whatever_their_cause() -> None:
    made = fixed(hard("a", 2, 5, 20, 0, times=ExecutionTimes((3 * MS,))), soft("b", 1, 20, 1))
    trace = simulate(made, 20 * MS)
    assert jobs(trace, "a") == [(0, 3, "done")]
    assert jobs(trace, "b") == [(0, -1, "dropped")]
    short = fixed(hard("a", 2, 5, 20, 0, times=ExecutionTimes((1 * MS,))), soft("b", 1, 20, 1))
    assert jobs(simulate(short, 20 * MS), "b") == [(0, 2, "done")]


def random_plan(seed: int) -> Plan:
    """Return a plan of up to three lanes with a few tasks each, half of them hard."""
    draw, tasks = Random(seed), list[Task]()
    lanes = draw.randint(1, 3)
    for lane in range(lanes):
        for number in range(draw.randint(2, 5)):
            period = draw.choice((4, 5, 8, 10, 20, 40))
            low = draw.randint(1, max(period * US // 5, 1)) * US
            values: dict[str, Any] = {
                "lanes": (lane,), "period_ns": period * MS, "priority": draw.randint(0, 9), "queue": 1,
                "offset_ns": draw.choice((0, 0, draw.randint(0, period) * MS)),
            }  # fmt: skip
            if draw.random() < 0.5:
                values |= {"criticality": "hard", "high_ns": low * draw.randint(1, 3)}
            tasks.append(task(f"t{lane}{number}", low, **values))
    return fixed(*tasks, lanes=lanes)


def test_no_simulated_response_is_above_its_bound() -> None:
    """Of all random plans with levels, simulated with overruns up to the time of the high level; both kernels agree."""
    bounded = dropped = 0
    for seed in range(150):
        made = random_plan(seed)
        level = high_level(made)
        if not any(one.high_ns for one in made.tasks):
            continue
        assert level.test == AMC
        draw = Random(seed)
        faults = Faults(
            overruns=tuple(
                Overrun(t.name, Fraction(draw.choice((1, 2, 4)), 4), Fraction(t.high_ns, t.cost_ns))
                for t in made.tasks
                if t.high_ns > t.cost_ns
            )
        )
        trace = simulate(made, 400 * MS, seed, faults=faults)
        if seed % 10 == 0:
            assert repr(run(made, 400 * MS, seed, faults=faults, implementation="python").trace) == repr(trace)
        dropped += any(note.text == "dropped at the high level of criticality" for note in trace.instants)
        safe = {name for name, answer in level.responses.items() if answer.bounded}
        lanes = {lane for t in made.tasks for lane in t.lanes if t.criticality == "hard" and t.name not in safe}
        for job in trace.jobs:
            mine = next(t for t in made.tasks if t.name == job.task)
            if job.task in safe and not set(mine.lanes) & lanes and job.status == "done":
                bounded += 1
                assert job.finish_ns - job.activation_ns <= level.responses[job.task].value, (seed, job)
    assert bounded > 3000 and dropped > 60


def _pipeline(factor: float, cost: float = 2.0, follows: bool = False) -> Pipeline:
    """Return a hard stage and a soft one on one core, and with `follows` a hard one after the first."""
    high = High(int(factor * PER_COST), relative=True)

    def stage(name: str, ms: float, criticality: str, **changes: Any) -> Stage:
        costs = (takes("cpu", figure(ms * MS), 1),)
        return Stage(name, name, None, costs=costs, share=1, criticality=criticality, **changes)

    line = (stage("brake", cost, "hard", high=high), *([stage("steer", 1.0, "hard")] if follows else []))
    return lines((10 * MS, 10 * MS, line), (20 * MS, 20 * MS, (stage("film", 3.0, "soft"),)))


@pytest.mark.parametrize(
    ("factor", "policy", "follows", "verdict", "test"),
    [
        (2.0, "fp", False, "feasible", AMC),
        (6.0, "fp", False, "undecided", AMC),
        (2.0, "edf", False, "feasible", RESERVED),
        (2.0, "fp", True, "feasible", RESERVED),
        (6.0, "edf", True, "undecided", RESERVED),
    ],
)
def test_verdicts_hold_at_both_levels(factor: float, policy: str, follows: bool, verdict: str, test: str) -> None:
    made = make_plan(_pipeline(factor, follows=follows), platform("full", "segment"), work=stage_work, policy=policy)
    assert made.verdict == verdict
    level = high_level(made)
    assert level.test == test
    assert bool(level.reason) == (test == RESERVED)
    assert bool(unmet(made, level)) == (verdict == "undecided")
    for violation in made.violations:
        assert "at the high level of criticality" in violation.requirement
        assert sum(value for _, value in violation.terms) == violation.demand > violation.bound
    names = [t.name for t in made.tasks if t.high_ns]
    trace = simulate(made, 400 * MS, faults=always(*names, factor=Fraction(factor)))
    late = [job for job in trace.jobs if job.task == "brake" and job.finish_ns > job.activation_ns + 10 * MS]
    assert not late or verdict == "undecided"


def test_work_at_the_planned_times_only_is_not_affected() -> None:
    made = make_plan(_pipeline(2.0), platform("full", "segment"), work=stage_work, policy="fp")
    plain = replace(made, tasks=tuple(replace(t, high_ns=0) for t in made.tasks))
    assert repr(simulate(made, 400 * MS)) == repr(simulate(plain, 400 * MS))


def two_sides(*path: str, **criticality: str) -> Plan:
    """Return a hard line a, c; c also waits for d, b; each task on its own lane, c on the last one."""
    after = {"a": ("cam",), "d": ("cam",), "b": ("d",), "c": ("a", "b")}
    times = {"a": 3, "d": 2, "b": 4, "c": 1}
    tasks = [
        task(
            name, times[name] * MS, after=names, period_ns=20 * MS, queue=2, lanes=(lane,), priority=lane,
            criticality=criticality.get(name, "hard"), high_ns=6 * MS if name == "a" else 0,
        )
        for lane, (name, names) in enumerate(after.items())
    ]  # fmt: skip
    cores = engine(policy="fp", lanes=4)
    chains = (chain("brake", path or ["cam", "a", "c"], 20 * MS),)
    return plan(tasks, [cores], policy="fp", verdict="feasible", sensors=(sensor("cam", 20 * MS),), chains=chains)


@pytest.mark.parametrize("loose", [{"b": "firm"}, {"d": "firm", "b": "firm"}, {"a": "soft"}, {"d": "soft"}])
def test_a_hard_task_that_waits_for_one_that_is_dropped_is_not_proved(loose: dict[str, str]) -> None:
    """Whichever of the join's sides it is, the slower one too; with every trigger hard the plan is proved."""
    made = two_sides(**loose)
    found = judge_high_level(made)
    assert found.verdict == "undecided"
    assert all("dropped at the high level" in violation.requirement for violation in found.violations)
    assert judge_high_level(two_sides()).verdict == "feasible"
    assert judge_high_level(two_sides(c="firm", b="firm", d="soft")).verdict == "feasible"


def test_a_hard_chain_through_a_stage_that_is_dropped_is_not_proved() -> None:
    made = two_sides("cam", "a", "c", c="firm")
    assert judge_high_level(made).verdict == "feasible"
    (found,) = judge_high_level(made, {"brake"}).violations
    assert found.requirement.startswith("c, in hard chain brake, is firm")


def test_the_age_of_data_is_judged_at_the_high_level() -> None:
    """30 + 50 + 2 ms once `a` takes 30; the frames of a sensor that is sampled are 50 ms old at most."""
    tasks = (
        hard("a", 10, 30, 50, 0, timer=False, after=("cam",)),
        hard("ctl", 2, 2, 30, 1, lanes=(1,), reads=("a",)),
    )
    made = fixed(*tasks, lanes=2, sensors=(sensor("cam", 50 * MS),))
    for most, verdict in ((81, "undecided"), (82, "feasible")):
        aged = replace(chain("c", ["cam", "a", "ctl"], 200 * MS), max_age_ns=most * MS)
        assert judge_high_level(replace(made, chains=(aged,))).verdict == verdict
    for most, verdict in ((51, "undecided"), (52, "feasible")):
        aged = replace(chain("c", ["cam", "ctl"], 200 * MS), max_age_ns=most * MS)
        reads = replace(tasks[1], reads=("cam",))
        assert judge_high_level(replace(made, tasks=(tasks[0], reads), chains=(aged,))).verdict == verdict


@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_killed_job_loses_its_longer_segment_at_the_high_level(in_flight: int) -> None:
    """`low` overruns and is killed by `top` in its last part, which it begins again: 2 + 9 + 2 x (what it had done)."""
    parts = tuple(Segment(f"low.{n}", 3 * MS, 0, 0) for n in range(2))
    low = task(
        "low", period_ns=60 * MS, segments=parts, high_ns=12 * MS, criticality="hard", priority=1, queue=1,
        offset_ns=1 * MS,
    )  # fmt: skip
    top = hard("top", 2, 2, 20, 0)
    unit = engine(policy="fp", preemption="restart", in_flight=in_flight)
    made = plan([top, low], [unit], policy="fp", verdict="feasible", chains=[chain("low", ["low"], 60 * MS)])
    answer = high_level(made).responses["low"]
    assert answer.bounded
    worst = 0
    for shift in range(0, 20):
        moved = replace(made, tasks=(replace(top, offset_ns=shift * MS), low))
        trace = simulate(moved, 600 * MS, faults=always("low"))
        worst = max(worst, *(end - 1 - n * 60 for n, (_, end, _) in enumerate(jobs(trace, "low"))))
    assert 16 < worst * MS <= answer.value


def test_outputs_with_data_above_the_largest_age_count_as_stale() -> None:
    tasks = (
        task("a", 2 * MS, after=("cam",), period_ns=50 * MS),
        task("ctl", 1 * MS, reads=("a",), period_ns=20 * MS, lanes=(1,)),
    )
    ages = [replace(chain(f"c{most}", ["cam", "a", "ctl"], 900 * MS), max_age_ns=most * MS) for most in (31, 40, 60)]
    made = plan(tasks, [engine(lanes=2)], sensors=(sensor("cam", 50 * MS),), chains=ages)
    found = simulate_plan(made, 1000 * MS)
    # samples at 20 n: ages after the end are 21, 41, 11, 31, 51 in turn
    stale = {name: entry["stale"] for name, entry in found.figures["chains"].items()}
    assert stale == {"c31": 19, "c40": 19, "c60": 0}
    assert outcome_code(found.figures) == 1
    kept = replace(made, chains=(ages[2],))
    assert outcome_code(simulate_plan(kept, 1000 * MS).figures) == 0


def test_a_hard_stage_may_sample_one_that_is_dropped_through_a_conversion() -> None:
    """The conversion is hard like its reader, which does not wait for it; a hard stage that does is not proved."""
    tasks = (
        soft("a", 2, 20, 0),
        task(
            "a>c", 1 * MS, after=("a",), period_ns=20 * MS, kind="conversion", criticality="hard", queue=1, lanes=(1,)
        ),
        hard("c", 2, 4, 20, 1, reads=("a>c",), lanes=(2,)),
    )
    made = plan(
        tasks, [engine(policy="fp", lanes=3)], policy="fp", verdict="feasible", chains=[chain("c", ["c"], 20 * MS)]
    )
    assert judge_high_level(made).verdict == "feasible"
    waits = replace(tasks[2], timer=False, after=("a>c",), reads=())
    assert judge_high_level(replace(made, tasks=(*tasks[:2], waits))).verdict == "undecided"
