"""`analyze` of a plan.json: the verdict from the plan alone, and undecided where a plan leaves the model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from socsched.api.analysis import analyze
from socsched.api.simulation import simulate_plan
from socsched.cli import root
from socsched.cost.cost import Segment
from socsched.descriptor.pipeline import Anchor, Chain, Pipeline, Sensor, Stage
from socsched.planning import io
from socsched.planning.admission import add, join_pipelines
from socsched.planning.plan import (
    ChainResult,
    Level,
    Necessity,
    Plan,
    PlannedEngine,
    PlannedSensor,
    Proof,
    Requirement,
    SearchReport,
    Throttle,
)
from socsched.planning.recheck import recheck
from socsched.planning.search import make_plan
from socsched.planning.task import ExecutionTimes, Task
from socsched.schedulability.coverage import CHECKED, FIELDS, NO_EFFECT, outside
from socsched.sim.simulate import simulate
from tests.sim.builders import engine, plan, task
from tests.sim.toy_platform import MS, figure, platform

US = 1000


def small(policy: str = "fp") -> Plan:
    """Return a feasible plan: a camera and a LiDAR joined, a timer that samples the join, two engines."""
    made = plan(
        [
            work("a", "gpu", 900 * US, after=("cam",), priority=1, deadline_ns=3_000 * US),
            work("b", "cpu", 700 * US, after=("lid",), priority=2, deadline_ns=3_000 * US),
            work("f", "cpu", 300 * US, after=("a", "b"), priority=0, deadline_ns=6_000 * US),
            work("t", "gpu", 200 * US, timer=True, reads=("f",), priority=3, release_jitter_ns=50 * US),
        ],
        [
            engine("cpu", policy=policy, preemption="full"),
            engine("gpu", policy=policy, preemption="segment", switch_ns=5 * US),
        ],
        sensors=(sensor("cam", 0), sensor("lid", 400 * US)),
    )
    limits = {"deadline_ns": 60_000 * US, "expected_ns": 0, "bound_ns": 1, "max_age_ns": None, "terms": ()}
    chains = (
        ChainResult("c", path=("cam", "a", "f", "t"), **limits),
        ChainResult("d", path=("lid", "b", "f"), **limits),
    )
    needed = Necessity("path", "deadline of chain c", 2, 1, "ns", (("made up", 2),))
    report = SearchReport(proof=Proof("lower bound", "made up", (needed,)))
    return replace(made, policy=policy, chains=chains, verdict="infeasible", solver=report)


def sensor(name: str, offset: int) -> PlannedSensor:
    return PlannedSensor(name, 10_000 * US, offset, 100 * US, 1000)


def work(name: str, where: str, cost: int, **changes: Any) -> Task:
    parts = (Segment(f"{name}.0", cost // 2, 0, 0), Segment(f"{name}.1", cost - cost // 2, 0, 0))
    base = {"period_ns": 10_000 * US, "deadline_ns": 9_000 * US, "queue": 2, "wcet_ns": cost, "engine": where}
    return task(name, cost, **{**base, "segments": parts, **changes})


def changed(made: Plan, member: str, name: str, **values: Any) -> Plan:
    """Return a plan with fields of one engine, sensor, task or chain replaced."""
    rows = tuple(
        replace(row, **values) if name in (getattr(row, "name", ""), getattr(row, "id", "")) else row
        for row in getattr(made, member)
    )
    return replace(made, **{member: rows})


LONE: dict[str, Callable[[Plan], Plan]] = {
    "PlannedEngine.policy": lambda p: changed(p, "engines", "gpu", policy="fifo"),
    "PlannedEngine.linger_ns": lambda p: changed(p, "engines", "gpu", linger_ns=1),
    "PlannedEngine.governor": lambda p: changed(p, "engines", "gpu", governor="ccedf"),
    "PlannedSensor.gap_ns": lambda p: changed(p, "sensors", "cam", gap_ns=1),
    "Task.gap_ns": lambda p: changed(changed(p, "tasks", "t", gap_ns=1), "tasks", "f", after=("a", "t"), reads=()),
    "Task.after": lambda p: (
        changed(p, "tasks", "f", after=("a", "slow"))
        if any(t.name == "slow" for t in p.tasks)
        else changed(
            replace(p, tasks=(*p.tasks, work("slow", "cpu", US, timer=True, period_ns=7 * US, priority=9))),
            "tasks",
            "f",
            after=("a", "slow"),
        )
    ),
    "Task.period_ns": lambda p: changed(p, "tasks", "a", period_ns=20_000 * US),
    "Task.closed_by": lambda p: changed(
        changed(p, "tasks", "t", closed_by="t"), "tasks", "f", after=("a", "t"), reads=()
    ),
    "Task.queue": lambda p: changed(p, "tasks", "f", queue=0),
    "Task.width": lambda p: changed(changed(p, "engines", "cpu", lanes=2), "tasks", "b", lanes=(0, 1), width=1),
    "Task.cost_ns": lambda p: changed(p, "tasks", "a", cost_ns=1),
    "Task.segments": lambda p: changed(p, "tasks", "a", segments=(Segment("a", 1, 0, 0),)),
    "Task.high_ns": lambda p: changed(p, "tasks", "a", high_ns=2_000 * US),
    "Task.priority": lambda p: changed(p, "tasks", "f", priority=2),
    "Task.deadline_ns": lambda p: changed(replace(small("edf"), policy="edf"), "tasks", "t", deadline_ns=50 * US),
    "Segment.engine": lambda p: changed(p, "tasks", "a", segments=(part(engine="cpu", lanes=(0,)),)),
    "Segment.lanes": lambda p: changed(p, "tasks", "a", segments=(part(lanes=(0,)),)),
    "Segment.hold": lambda p: changed(p, "tasks", "a", segments=(part(engine="cpu", lanes=(0,), hold=True),)),
    "ChainResult.path": lambda p: changed(p, "chains", "c", path=("cam", "f")),
    "Plan.policy": lambda p: replace(p, policy="fifo"),
    "Plan.engines": lambda p: changed(p, "engines", "gpu", linger_ns=1),
    "Plan.tasks": lambda p: changed(p, "tasks", "f", priority=2),
    "Plan.throttle": lambda p: replace(p, throttle=Throttle(US)),
    **{f"Throttle.{field.name}": lambda p: replace(p, throttle=Throttle(US)) for field in fields(Throttle)},
}
"""For every field that is covered within limits, a plan beyond them."""


def part(**changes: Any) -> Segment:
    return replace(Segment("a", 900 * US, 0, 0), **changes)


def reached(kind: type, seen: set[type] | None = None) -> set[type]:
    """Return the dataclasses that decide a schedule: those reached from a plan's parts that the simulator reads."""
    seen = set() if seen is None else seen
    seen.add(kind)
    for hint in get_type_hints(kind, include_extras=False).values():
        for part in [hint, *get_args(hint), *(inner for outer in get_args(hint) for inner in get_args(outer))]:
            if isinstance(part, type) and is_dataclass(part) and part not in seen:
                reached(part, seen)
    return seen


REPORTED = {
    "Violation", "Conflict", "Power", "Bandwidth", "Memory", "Provenance", "Tie", "Measurement", "Condition",
    "Uncertainty", "SearchReport", "ModeResult", "Proof", "Necessity", "OpenRequirement",
}  # fmt: skip
"""Parts of a plan that only report: their field of `Plan` is classified as having no effect, or recomputed."""


def test_every_field_of_a_plan_is_classified() -> None:
    """A new field of the schema has to be classed: modelled, recomputed, checked, or of no effect."""
    kinds = {kind for kind in reached(Plan) if kind.__name__ not in REPORTED}
    assert {kind.__name__ for kind in kinds} == {kind.__name__ for kind in FIELDS}
    for kind, classes in FIELDS.items():
        listed = [name for names in classes.values() for name in names.split()]
        assert sorted(listed) == sorted(field.name for field in fields(kind)), kind.__name__


def test_every_checked_field_has_a_plan_beyond_it() -> None:
    names = {f"{kind.__name__}.{name}" for kind, classes in FIELDS.items() for name in classes.get(CHECKED, "").split()}
    assert names == set(LONE)


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_a_plan_within_the_model_is_feasible_whatever_the_file_states(policy: str) -> None:
    found = analyze(small(policy))
    assert (found.verdict, found.document["stated_verdict"], found.document["outside"]) == (
        "feasible",
        "infeasible",
        [],
    )
    assert all(chain["bound_ns"] > 1 for chain in found.document["chains"])


@pytest.mark.parametrize("name", LONE)
def test_a_plan_outside_every_model_is_undecided(name: str) -> None:
    found = analyze(LONE[name](replace(small(), verdict="feasible")))
    assert found.verdict == "undecided"
    assert found.document["outside"]
    assert [chain["bound_ns"] for chain in found.document["chains"]] == [None, None]
    assert [row["bound_ns"] for row in found.document["tasks"]] == [None] * len(found.plan.tasks)
    assert found.document["sensitivity"] is None


OTHER = {int: 77_000, str: "other", float: 0.5}
PLAIN: dict[str, Any] = {
    "PlannedEngine.levels": (Level(10**9, 5),),
    "Task.reads": None,  # what is sampled is no part of the order of jobs; the chains that follow it are checked
    "Task.params": {"a": 1}, "Task.model": "other",
}  # fmt: skip
NAMES = {"PlannedEngine.id", "PlannedSensor.name", "Task.name", "ChainResult.name", "Segment.name"}
"""Names: a plan with another name of one part refers to no such part."""


@pytest.mark.parametrize("member", ["engines", "sensors", "tasks", "chains"])
def test_fields_of_no_effect_have_none_on_the_schedule(member: str) -> None:
    made = small()
    expected = schedule(made)
    kind = type(getattr(made, member)[0])
    for name in FIELDS[kind][NO_EFFECT].split():
        label = f"{kind.__name__}.{name}"
        if label in NAMES or PLAIN.get(label, 0) is None:
            continue
        rows = []
        for row in getattr(made, member):
            values = {name: PLAIN.get(label, OTHER.get(type(getattr(row, name))))}
            if name == "budget_ns":  # a reservation, which only policies with servers heed
                values["server_ns"] = values[name]
            rows.append(replace(row, **values))
        assert schedule(replace(made, **{member: tuple(rows)})) == expected, label
        assert outside(replace(made, **{member: tuple(rows)})) == (), label


def schedule(made: Plan) -> list[tuple[Any, ...]]:
    trace = simulate(made, 200_000 * US)
    return [(job.task, job.frame, job.activation_ns, job.start_ns, job.finish_ns, job.status) for job in trace.jobs]


def test_a_job_that_may_be_dropped_at_its_local_deadline_leaves_a_plan_undecided() -> None:
    tight = changed(small(), "tasks", "b", deadline_ns=690 * US, on_late="skip")
    found = recheck(tight)
    assert found.plan.verdict == "undecided"
    assert [v.requirement for v in found.plan.violations] == ["local deadline of b, after which its jobs skip"]
    assert recheck(changed(tight, "tasks", "b", on_late="continue")).plan.verdict == "feasible"


def test_times_under_contention_are_computed_anew() -> None:
    slow = replace(small(), dram_bandwidth=10**9)
    moving = [(t.name, tuple(replace(p, bytes=p.time_ns) for p in t.segments)) for t in slow.tasks]
    for name, parts in moving:
        slow = changed(slow, "tasks", name, segments=parts, bytes=sum(p.bytes for p in parts))
    found = recheck(slow)
    assert len(found.changed) == 4
    assert all(after.wcet_ns > before.wcet_ns for before, after in zip(slow.tasks, found.plan.tasks, strict=True))
    whole = replace(slow, tasks=tuple(replace(t, segments=()) for t in slow.tasks))  # the simulator makes one of each
    assert len(recheck(whole).changed) == 4


def test_what_no_order_of_jobs_can_meet_is_infeasible() -> None:
    late = recheck(changed(small(), "chains", "d", deadline_ns=999 * US)).plan
    assert (late.verdict, late.violations[0].requirement) == ("infeasible", "deadline of chain d")
    assert late.solver.proof
    assert [needed.theorem for needed in late.solver.proof.necessities] == ["path"]
    full = changed(small(), "tasks", "t", cost_ns=9_500 * US, wcet_ns=9_500 * US, segments=())
    assert recheck(full).plan.verdict == "infeasible"


def test_high_level_is_judged_anew() -> None:
    hard = replace(small(), tasks=tuple(replace(t, criticality="hard", high_ns=t.cost_ns) for t in small().tasks))
    assert recheck(hard).plan.verdict == "feasible"
    longer = replace(hard, tasks=tuple(replace(t, high_ns=30 * t.cost_ns) for t in hard.tasks))
    assert recheck(longer).plan.verdict == "undecided"


def test_execution_times_above_the_cost_are_counted() -> None:
    drawn = changed(small(), "tasks", "b", times=ExecutionTimes((US, 8_000 * US)))
    found = recheck(drawn)
    assert found.plan.tasks[1].wcet_ns >= 8_000 * US
    assert isinstance(found.plan.engines[0], PlannedEngine)


def sampled(**chain_changes: Any) -> Plan:
    """Return a plan that states a bound of 2 ms for a 30 ms timer that samples a 50 ms camera, and feasible."""
    host, ctl = engine("cpu", policy="fp"), work("ctl", "cpu", 2_000 * US, timer=True, reads=("cam",), queue=1)
    camera = PlannedSensor("cam", 50_000 * US, 0, 0, 1000)
    limits = {"deadline_ns": 20_000 * US, "expected_ns": 12_000 * US, "bound_ns": 2_000 * US, "max_age_ns": 30_000 * US}
    chain = ChainResult("c", ("cam", "ctl"), **{**limits, "terms": (("ctl: wcet", 2_000 * US),), "test": "stated"})
    made = plan([replace(ctl, period_ns=30_000 * US)], [host], sensors=(camera,), policy="fp", verdict="feasible")
    return replace(made, chains=(replace(chain, **chain_changes),))


def test_bounds_of_the_file_are_not_believed() -> None:
    found = recheck(sampled())
    assert found.plan.chains[0].bound_ns == 32_000 * US
    assert (found.stated, found.plan.verdict) == ("feasible", "undecided")
    assert [v.requirement for v in found.plan.violations] == ["deadline of chain c", "data age of chain c"]
    seen = simulate_plan(sampled(), 10**10).figures["chains"]["c"]
    assert 20_000 * US < (seen["response_time_ns"]["max"] or 0) <= 32_000 * US
    assert 30_000 * US < (seen["data_age_ns"]["max"] or 0) <= 52_000 * US
    met = recheck(sampled(deadline_ns=32_000 * US, max_age_ns=52_000 * US))
    assert met.plan.verdict == "feasible"


def test_a_chain_without_a_bound_is_not_met() -> None:
    """A timer in a closed loop has no longest time between samples, although each response has a bound."""
    looped = changed(sampled(deadline_ns=32_000 * US, max_age_ns=None), "tasks", "ctl", closed_by="ctl")
    found = recheck(looped).plan
    assert (found.verdict, found.chains[0].bound_ns) == ("undecided", None)


def test_chains_are_held_to_what_was_asked() -> None:
    """Looser limits of a chain than those that the plan was asked for do not count; a hard chain loses no frame."""
    deadline = Requirement("chain c", "deadline", 5_000 * US)
    assert recheck(small()).plan.verdict == "feasible"
    late = recheck(replace(small(), requirements=(deadline,))).plan
    assert (late.verdict, late.chains[0].deadline_ns) == ("undecided", 5_000 * US)
    old = recheck(replace(small(), requirements=(Requirement("chain c", "max age", 5_000 * US),))).plan
    assert [v.requirement for v in old.violations] == ["data age of chain c"]
    mixed = changed(small(), "tasks", "b", criticality="hard", high_ns=800 * US)
    lossy = replace(mixed, requirements=(Requirement("chain d", "criticality", names=("hard",)),))
    assert recheck(mixed).plan.verdict == "feasible"
    assert "f, in hard chain d, is firm" in recheck(lossy).plan.violations[0].requirement


def test_an_engine_that_lingers_makes_work_wait_beyond_the_bounds_of_the_file() -> None:
    """The bounds that hold without `linger_ns`, stated in the file, are exceeded in simulation."""
    host = engine("gpu", policy="fp", linger_ns=2_000 * US)
    first = work("hp", "gpu", 1_000 * US, timer=True, offset_ns=1_500 * US, priority=0)
    second = work("lo", "gpu", 1_000 * US, timer=True, offset_ns=1_000 * US, priority=1, period_ns=40_000 * US)
    chains = tuple(
        ChainResult(f"k-{name}", (name,), 9_000 * US, 0, bound, None, (), "stated")
        for name, bound in (("hp", 1_000 * US), ("lo", 2_000 * US))
    )
    made = plan([first, second], [host], policy="fp", verdict="feasible", chains=chains)
    seen = simulate_plan(made, 2 * 10**9).figures["chains"]["k-hp"]["response_time_ns"]["max"]
    assert seen is not None
    assert seen > 1_000 * US
    found = recheck(made)
    assert (found.plan.verdict, [chain.bound_ns for chain in found.plan.chains]) == ("undecided", [None, None])
    plain = recheck(changed(made, "engines", "gpu", linger_ns=0)).plan
    assert (plain.verdict, [chain.bound_ns for chain in plain.chains]) == ("feasible", [1_000 * US, 2_000 * US])


def test_the_command_says_what_it_does_not_cover(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    io.save(replace(changed(small(), "engines", "gpu", linger_ns=2_000 * US), verdict="feasible"), file)
    done = subprocess.run([sys.executable, "-m", "socsched", "analyze", str(file)], capture_output=True, text=True)
    assert done.returncode == 4, done.stderr
    text = " ".join(done.stdout.split())
    assert "? undecided" in text
    assert "The file states feasible." in text
    assert "No analysis covers engine gpu: linger_ns" in text


# The admission test for a second pipeline: with stages kept in place, with stages moved, or rejected.


def one(name: str, costs: dict[str, int], period: int, sensor: str = "camera") -> Pipeline:
    """Return a pipeline of one stage with its execution times (ms) by engine."""
    anchors = tuple(Anchor("toy", "only", e, "fp32", figure(t * MS), 1 if e == "cpu" else 0) for e, t in costs.items())
    stage = Stage("work", name, None, (sensor,), costs=anchors, share=1, queue=1)
    sensors = (Sensor(sensor, "camera", period * MS),)
    return Pipeline(name, name, sensors, (stage,), (Chain("out", (sensor, "work"), period * MS),))


@pytest.mark.parametrize(
    ("first", "second", "answer", "moved"),
    [
        ({"acc": 4}, {"acc": 5}, "yes", ()),
        ({"acc": 12, "cpu": 15}, {"acc": 16}, "moving", ("work",)),
        ({"acc": 12}, {"acc": 16}, "no", ()),
    ],
)
def test_answers(first: dict[str, int], second: dict[str, int], answer: str, moved: tuple[str, ...]) -> None:
    board, own, new = platform("full", "segment"), one("own", first, 20), one("new", second, 20)
    plan = make_plan(own, board, work=lambda *_: None)
    assert plan.tasks[0].engine == "acc"
    found = add(plan, own, new, board, lambda *_: None)
    assert (found.answer, found.added, found.moved) == (answer, ("new-work",), moved)
    assert {task.name for task in found.plan.tasks} >= {"work", "new-work"}
    assert {chain.name for chain in found.plan.chains} == {"out", "new-out"}


def test_equal_sensors_are_shared_and_others_are_renamed() -> None:
    own, new = one("own", {"acc": 4}, 20), one("new", {"acc": 4}, 20)
    both, names = join_pipelines(own, new)
    assert len(both.sensors) == 1 and names == ("new-work",) and both.stages[1].after == ("camera",)
    faster = replace(new, sensors=(replace(new.sensors[0], period_ns=10 * MS),))
    both, _ = join_pipelines(own, faster)
    assert [s.name for s in both.sensors] == ["camera", "new-camera"] and both.stages[1].after == ("new-camera",)
    assert both.chains[1].path == ("new-camera", "new-work")


def test_the_command_answers_with_the_plan_of_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "plan.json")
    board = ("-p", "jetson-agx-orin-64gb", "-m", "MAXN")
    assert root.run(["plan", "camera-detection", *board, "-o", file, "-q"]) == 0
    capsys.readouterr()
    assert root.run(["analyze", file, "--add", "pointpillars", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["answer"] == "yes" and "backbone" in document["added"] and document["moved"] == []
    assert document["plan"]["verdict"] == "feasible"
