"""Networks cut between engines: where neither engine alone keeps up, frames in flight, limits, files."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cut_detector import MS, ORIN, PERIOD, detector

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Anchor
from socsched.descriptor.platform import Figure, Platform
from socsched.models.registry import bindings
from socsched.models.work import stage_work
from socsched.planning.cutting.pipelines import as_planned
from socsched.planning.io import from_document, to_document
from socsched.planning.pareto import cuts, shares
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result


def on(platform: Platform, jobs: int) -> Platform:
    """Return the platform whose accelerators hold only so many loadables."""
    engines = tuple(
        replace(engine, operators=replace(engine.operators, max_jobs=jobs)) if engine.operators.max_jobs else engine
        for engine in platform.engines
    )
    return replace(platform, engines=engines)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(detector(PERIOD), get_platform(ORIN), "15W", work=stage_work)


def test_what_no_engine_keeps_up_with_alone_two_do_together(plan: Plan) -> None:
    whole = make_plan(detector(PERIOD), get_platform(ORIN), "15W", work=stage_work, cuts=False)
    assert whole.verdict == "infeasible"
    assert plan.verdict == "feasible"
    assert len({task.engine for task in plan.tasks if task.kind == "stage"}) > 1
    assert plan.solver.bound <= plan.solver.value


def test_frames_in_flight_are_legitimate_and_happen(plan: Plan) -> None:
    """The chain takes longer than its period, every part keeps up with it, and no frame is lost or late."""
    assert plan.chains[0].expected_ns > PERIOD
    assert all(task.wcet_ns <= task.period_ns for task in plan.tasks)
    trace = run(plan, 100 * PERIOD).trace
    assert trace is not None
    chain = result(trace, plan)["chains"][plan.chains[0].name]
    assert chain["completed"] >= 98 and not chain["missed"] and not chain["dropped"]
    bound = plan.chains[0].bound_ns
    assert bound is not None and chain["response_time_ns"]["max"] <= bound


def test_the_file_names_parts_as_compile_does_and_comes_back(plan: Plan) -> None:
    document = to_document(plan)
    assert [stage["of"] for stage in document["stages"]] == ["detect"] * len(document["stages"])
    written = [stage["cut"] for stage in document["stages"]]
    assert written[0].startswith(":") and written[-1].endswith(":")
    assert [cut.partition(":")[2] for cut in written[:-1]] == [cut.partition(":")[0] for cut in written[1:]]
    assert from_document(document) == plan
    restored = as_planned(detector(PERIOD), plan)
    assert [stage.name for stage in restored.stages] == [task.name for task in plan.tasks if task.kind == "stage"]
    assert bindings(restored)["detect.1"] == {"camera_input": "camera"}


def test_a_plan_reports_its_cuts_and_the_engines_shares(plan: Plan) -> None:
    ((stage, places, points),) = cuts(plan)
    assert stage == "detect" and len(places) == len(points) + 1
    parts = dict(shares(detector(PERIOD), plan, stage_work))
    assert sum(parts.values()) == pytest.approx(1) and all(share > 0 for share in parts.values())


def test_loadables_are_counted_by_part(plan: Plan) -> None:
    tight = make_plan(detector(PERIOD), on(get_platform(ORIN), 1), "15W", work=stage_work)
    jobs = [task.engine for task in tight.tasks if task.engine.startswith("dla")]
    assert tight.verdict == "feasible" and len(jobs) == len(set(jobs))


def test_a_cut_that_gains_nothing_is_reported_but_not_made() -> None:
    plan = make_plan(detector(33 * MS), get_platform(ORIN), "MAXN", work=stage_work)
    (task,) = plan.tasks
    assert task.name == "detect" and plan.solver.notes["detect"].startswith("cut after ")


def _slow(stage: str) -> tuple[Anchor, ...]:
    """Return a stated time of preprocessing on a core, which is most of a period in 15W."""
    time = Figure(17 * MS, "assumed", note="an example", error=0.5)
    return (Anchor(ORIN, "MAXN", "cpu", "fp32", time, units=1),) if stage == "preprocess" else ()


@pytest.mark.parametrize(("queue", "verdict"), [(1, "undecided"), (2, "feasible")])
def test_stages_on_different_engines_overlap_frames_as_far_as_queues_allow(queue: int, verdict: str) -> None:
    """A frame takes longer than a period, no stage does: the queue lengths decide, and the violation states it."""
    whole = get_pipeline("camera-detection")
    camera = replace(whole.sensors[0], period_ns=40 * MS)
    stages = tuple(
        replace(
            stage, queue=queue, open_queue=False, costs=_slow(stage.name), engines=("cpu",) if _slow(stage.name) else ()
        )
        for stage in whole.stages
    )
    pipeline = replace(
        whole, sensors=(camera,), stages=stages, chains=(replace(whole.chains[0], deadline_ns=200 * MS),)
    )
    plan = make_plan(pipeline, get_platform(ORIN), "15W", work=stage_work, cuts=False)
    assert sum(task.wcet_ns for task in plan.tasks) > 40 * MS
    assert plan.verdict == verdict
    late = [violation for violation in plan.violations if violation.requirement.startswith("queue of")]
    assert len(late) == len(plan.violations)
    assert bool(late) == (queue == 1)
    assert all(any("queue: 2" in lever for lever in violation.levers) for violation in late)
    if queue > 1:
        trace = run(plan, 2_000 * MS).trace
        assert trace is not None
        seen = result(trace, plan)["chains"][plan.chains[0].name]
        assert seen["completed"] >= 48 and not seen["missed"] and not seen["dropped"]


def test_throughput_takes_the_rate_as_far_as_engines_allow() -> None:
    """With frames in flight the highest utilisation of a lane limits the rate, not the latency."""
    pipeline, platform = detector(PERIOD), get_platform(ORIN)
    fastest = make_plan(pipeline, platform, "15W", work=stage_work)
    widest = make_plan(pipeline, platform, "15W", "throughput", work=stage_work)
    assert widest.solver.value <= max(task.wcet_ns / task.period_ns for task in fastest.tasks)
    period = int(widest.solver.value * PERIOD) + 1
    quicker = replace(pipeline, sensors=(replace(pipeline.sensors[0], period_ns=period + period // 50),))
    stages = tuple(replace(stage, queue=4) for stage in quicker.stages)
    assert (
        make_plan(replace(quicker, stages=stages), platform, "15W", "throughput", work=stage_work).verdict == "feasible"
    )
