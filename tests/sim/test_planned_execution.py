"""Other execution times than planned, cheaper variants and lateness, from the pipeline to plan and simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from toy_platform import MS, lines, platform, takes

from socsched.descriptor.pipeline import PER_COST, Anchor, Degraded, Execution, Pipeline, Stage
from socsched.descriptor.platform import Figure
from socsched.planning.io import from_document, to_document
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.sim.simulate import simulate

BEST = 10


def planned(pipeline: Pipeline, policy: str, cores: str = "full", accelerator: str = "segment") -> Plan:
    return make_plan(
        pipeline, platform(cores, accelerator), policy=policy, work=lambda *_: None, budget=BEST, explain=False
    )


def one_stage(**changes: Any) -> Pipeline:
    cost = takes("cpu", Figure(4 * MS, "measured"), 1)
    return lines((10 * MS, 20 * MS, (Stage("work", "work", None, costs=(cost,), share=1, **changes),)))


def test_the_worst_case_is_the_longest_time() -> None:
    plain = planned(one_stage(), "edf").tasks[0]
    assert plain.times is None and plain.wcet_ns == plain.cost_ns == 4 * MS
    drawn = planned(one_stage(execution=Execution((PER_COST // 2, 2 * PER_COST), True, False)), "edf")
    (task,) = drawn.tasks
    assert task.times is not None and task.times.values_ns == (2 * MS, 8 * MS) and task.cost_ns == 4 * MS
    assert 8 * MS <= task.wcet_ns <= 8 * MS + 1
    executed = {job.exec_ns for job in simulate(drawn, 10**9).jobs if job.status == "done"}
    assert executed == {2 * MS, 8 * MS}
    bound = drawn.chains[0].bound_ns
    assert bound is not None and bound >= 8 * MS
    shorter = planned(one_stage(execution=Execution((2 * MS, 3 * MS), False, True)), "edf").tasks[0]
    assert shorter.wcet_ns == 4 * MS, "faults and other plans still count on what was planned"


def test_everything_survives_the_plan_file() -> None:
    made = planned(
        one_stage(
            execution=Execution((2 * MS, 6 * MS), False, True),
            overflow="oldest",
            on_late="degrade",
            degraded=Degraded("", PER_COST // 4, True),
        ),
        "fp",
    )
    (task,) = made.tasks
    assert (task.overflow, task.on_late, sum(s.time_ns for s in task.degraded)) == ("oldest", "degrade", MS)
    assert from_document(to_document(made)) == made


def test_a_variant_that_is_not_cheaper_is_left_out() -> None:
    made = planned(one_stage(on_late="degrade", degraded=Degraded("", 5 * MS)), "edf")
    assert made.tasks[0].degraded == ()


def test_a_late_job_runs_the_cheaper_precision() -> None:
    pipeline = one_stage(on_late="degrade", degraded=Degraded("int8"))
    (stage,) = pipeline.stages
    cheap = Anchor("toy", "only", "cpu", "int8", Figure(MS, "measured"), 1)
    pipeline = replace(pipeline, stages=(replace(stage, costs=(*stage.costs, cheap)),))
    board = platform("full", "segment")
    rates = {d: replace(board.engines[0].precisions["fp32"], dtype=d) for d in ("fp32", "int8")}
    board = replace(board, engines=(replace(board.engines[0], precisions=rates), *board.engines[1:]))
    made = make_plan(pipeline, board, policy="edf", work=lambda *_: None, budget=BEST)
    (task,) = made.tasks
    assert task.precision == "fp32" and sum(segment.time_ns for segment in task.degraded) == MS
    hurried = replace(made, tasks=(replace(task, deadline_ns=2 * MS),))
    assert {job.exec_ns for job in simulate(hurried, 10**8).jobs} == {MS}
