"""Failures during a run: reported, bounded, survived."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_plans import HERE, MS, WARMUP_FRAMES, Scripted, plan, run, sleep, task

import socsched as ss
from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import DescriptorError
from socsched.faults.model import Failure, Faults
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.runtime.limp_home import lanes_lost_with, limp_home_plans, without
from socsched.runtime.options import Options, Policies, StagePolicy, load_policies
from socsched.trace.trace import Trace

PERIOD = 40 * MS


def two_lanes() -> Plan:
    return plan(
        task("a", "s", period_ns=PERIOD, deadline_ns=PERIOD),
        task("b", "a", lanes=(1,), period_ns=PERIOD, deadline_ns=PERIOD),
        sensors={"s": PERIOD},
    )


def spare(made: Plan) -> Plan:
    """Return `made` with lane 3 in place of lane 1."""
    return replace(made, tasks=tuple(replace(t, lanes=(3,)) if t.lanes == (1,) else t for t in made.tasks))


def test_without_another_plan_the_frames_of_a_lost_engine_are_aborted_and_the_rest_goes_on() -> None:
    made = plan(task("a", "s", period_ns=PERIOD), task("b", "t", lanes=(1,), period_ns=PERIOD),
                sensors={"s": PERIOD, "t": PERIOD})  # fmt: skip
    options = Options(faults=Faults(failures=(Failure("cpu", 4 * PERIOD, "hang", (1,)),)), hang_ns=8 * PERIOD)
    accounts: dict[str, Any] = {}
    trace = run(made, Scripted(lambda *_: sleep(1)), duration_ns=25 * PERIOD, options=options, accounts=accounts)
    assert accounts["s"] == {"released": 25, "completed": 25, "dropped": 0, "aborted": 0}
    assert accounts["t"]["aborted"] >= 6 and accounts["t"]["completed"] >= 3
    assert next(note.text for note in trace.instants if note.kind == "fault").endswith("no plan can take over")


def test_overruns_late_jobs_and_growing_queues_are_reported_while_they_happen() -> None:
    slow = task("slow", "s", wcet_ns=2 * MS, deadline_ns=20 * MS, queue=50)
    calls = iter(range(10**6))
    trace = run(
        plan(slow, sensors={"s": 10 * MS}),
        Scripted(lambda *_: sleep(45 if next(calls) >= WARMUP_FRAMES else 1)),
        frames=40,  # a busy machine may release some late and together: the queue has to grow in four periods in a row
    )
    assert trace.counters["overruns.slow"][-1][1] >= 8
    late = [note for note in trace.instants if note.kind == "late"]
    assert late and all(note.time_ns >= next(
        job.deadline_ns for job in trace.jobs if job.frame == note.frame) for note in late)  # fmt: skip
    assert any(
        job.start_ns <= note.time_ns < job.finish_ns for note in late for job in trace.jobs if job.frame == note.frame
    ), "reported before the job ended"
    assert any(note.kind == "overload" and "its queue grew" in note.text for note in trace.instants)


def burdened(policy: StagePolicy, **changes: Any) -> tuple[Trace, dict[str, Any], Scripted]:
    """Run two stages of which the first overruns in every other frame so that the second would be late."""
    first = task("first", "s", period_ns=PERIOD, wcet_ns=5 * MS, deadline_ns=PERIOD)
    last = task("last", "first", lanes=(1,), period_ns=PERIOD, wcet_ns=10 * MS, deadline_ns=30 * MS, **changes)
    behind = task("behind", "last", lanes=(2,), period_ns=PERIOD, deadline_ns=10 * PERIOD)
    made = plan(first, last, behind, sensors={"s": PERIOD})
    backend = Scripted(
        lambda name, n: sleep((33 if n >= WARMUP_FRAMES and n % 2 == 0 else 1) if name == "first" else 1)
    )
    accounts: dict[str, Any] = {}
    options = Options(policies=Policies({"last": policy}))
    return run(made, backend, frames=8, options=options, accounts=accounts), accounts, backend


def test_skip_drops_a_job_that_would_be_late_before_it_starts() -> None:
    trace, accounts, backend = burdened(StagePolicy("skip"))
    skipped = [note for note in trace.instants if note.kind == "drop" and "skipped" in note.text]
    assert {note.frame for note in skipped} >= {1, 3, 5, 7} and accounts["s"]["dropped"] == len(skipped)
    assert backend.calls.count("last") == 8 + WARMUP_FRAMES - len(skipped)


def test_abort_throws_a_late_job_away_and_runs_nothing_behind_it() -> None:
    trace, accounts, _backend = burdened(StagePolicy("abort"))
    aborted = {job.frame for job in trace.jobs if job.status == "aborted"}
    assert aborted >= {1, 3, 5, 7} and accounts["s"]["aborted"] == len(aborted)
    assert {job.frame for job in trace.jobs if job.task == "behind"} == set(range(8)) - aborted


def test_degrade_runs_the_cheaper_variant_when_time_is_short() -> None:
    prepared: list[tuple[str, str]] = []
    ran: list[str] = []

    class Variants(Scripted):
        def prepare(self, task: Any, stage: Any, setting: Any) -> Any:
            prepared.append((task.name, task.precision))
            call = super().prepare(task, stage, setting)

            def noted(values: Any) -> Any:
                if task.name == "last":
                    ran.append(task.precision)
                return call(values)

            return noted

    first = task("first", "s", period_ns=PERIOD, wcet_ns=5 * MS)
    last = task("last", "first", lanes=(1,), period_ns=PERIOD, wcet_ns=10 * MS, deadline_ns=30 * MS)
    backend = Variants(
        lambda name, n: sleep((33 if n >= WARMUP_FRAMES and n % 2 == 0 else 1) if name == "first" else 1)
    )
    options = Options(policies=Policies({"last": StagePolicy("degrade", "int8")}))
    run(plan(first, last, sensors={"s": PERIOD}), backend, frames=8, options=options)
    assert ("last", "fp32") in prepared and ("last", "int8") in prepared and ("first", "int8") not in prepared
    assert ran[:WARMUP_FRAMES] == ["fp32"] * WARMUP_FRAMES
    late = ran[WARMUP_FRAMES + 1 :: 2]
    assert late == ["int8"] * 4, "the frames whose first stage took long"
    assert "fp32" in ran[WARMUP_FRAMES:]


def test_shed_frames_are_dropped_in_a_run() -> None:
    made = plan(
        task("hard", "s", period_ns=PERIOD, deadline_ns=35 * MS, criticality="hard"),
        task("soft", "t", lanes=(1,), period_ns=PERIOD, criticality="soft"), sensors={"s": PERIOD, "t": PERIOD},
    )  # fmt: skip
    backend = Scripted(lambda name, n: sleep(60 if (name, n) == ("hard", WARMUP_FRAMES + 3) else 1))
    accounts: dict[str, Any] = {}
    options = Options(policies=Policies(shed_below="hard", shed_ns=3 * PERIOD))
    trace = run(made, backend, frames=14, options=options, accounts=accounts)
    shed = [note for note in trace.instants if note.kind == "drop" and note.text.startswith("shed")]
    assert len(shed) >= 2 and {note.subject for note in shed} == {"soft"}
    assert accounts["t"]["dropped"] == len(shed) and accounts["s"]["dropped"] == 0
    assert accounts["t"]["completed"] == 14 - len(shed) >= 1


def test_a_policy_file_is_read_with_all_its_findings(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "stages: {a: {policy: skip}, b: {policy: degrade, precision: int8}}\nshed: {below: hard, for: 2 s}\n"
    )
    found = load_policies(file, two_lanes())
    assert found.stages["b"].precision == "int8" and (found.shed_below, found.shed_ns) == ("hard", 2 * 10**9)
    cheaper = found.cheaper(task("b", "a"))
    assert cheaper is not None and cheaper.precision == "int8" and found.cheaper(task("a", "s")) is None
    file.write_text(
        "stages: {z: {policy: skip}, a: {policy: nap}, b: {policy: degrade}}\nshed: {below: soft}\nmore: 1\n"
    )
    with pytest.raises(DescriptorError) as caught:
        load_policies(file, two_lanes())
    assert len(caught.value.findings) == 5


def test_plans_without_the_lanes_lost_are_made_beforehand(checkout: Path) -> None:
    pipe = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    made = make_plan(pipe, HERE, work=stage_work)
    narrow = replace(made, tasks=tuple(replace(t, lanes=t.lanes[:2]) if len(t.lanes) > 2 else t for t in made.tasks))
    found = limp_home_plans(narrow, pipe, HERE, stage_work)
    losses = {lanes_lost_with(t.engine, t.lanes) for t in narrow.tasks}
    assert len(found) >= 1
    for lost in losses:
        other = without(narrow, lost, pipe, HERE, stage_work)
        assert other is not None and {t.name for t in other.tasks} == {t.name for t in narrow.tasks}
        assert not {(t.engine, lane) for t in other.tasks for lane in t.lanes} & lost
        assert {(e.id, e.lanes) for e in other.engines} == {(e.id, e.lanes) for e in narrow.engines}
    everything = frozenset(("cpu", lane) for lane in range(4))
    assert without(made, everything, pipe, HERE, stage_work) is None


# Limp-home plans of a described board: stated times and contention parameters keep their meaning without an engine.


@pytest.mark.parametrize("lost", [frozenset({("gpu", 0)}), frozenset({("cpu1", 1)})])
def test_a_plan_in_another_mode_than_the_stated_times_survives_a_loss(lost: frozenset[tuple[str, int]]) -> None:
    pipeline, board = ss.load_pipeline("perception-stack"), ss.load_platform("jetson-agx-orin-64gb")
    plan = ss.plan(pipeline, board, "50W", explain=False, refine=False, solver="heft", policy="edf")
    spare = without(plan, lost, pipeline, board, stage_work)
    assert spare is not None and spare.verdict == "feasible"
    assert not lost & {(task.engine, lane) for task in spare.tasks for lane in task.lanes}
    assert {engine.id for engine in spare.engines} == {engine.id for engine in plan.engines}
