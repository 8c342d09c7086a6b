"""Queue depths and time slices that nobody states: chosen where a plan needs them, and no deeper than needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Figure, Platform
from socsched.models.work import stage_work
from socsched.planning.choices import DEPTHS
from socsched.planning.io import from_document, to_document
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from tests.sim.toy_platform import MS, figure, lines, platform, takes, workloads


def _plan(pipeline: Pipeline, board: Platform) -> Plan:
    return make_plan(pipeline, board, work=stage_work)


def _open(pipeline: Pipeline, queue: int = 1) -> Pipeline:
    return replace(pipeline, stages=tuple(replace(s, queue=queue, open_queue=True) for s in pipeline.stages))


def _stage(name: str, engine: str, cost_ms: float, slice_ms: int = 0) -> Stage:
    time = takes(engine, figure(cost_ms * MS), 1 if engine == "cpu" else 0, slice_ms * MS)
    return Stage(name, name, None, costs=(time,), share=1)


def _accounted(plan: Plan) -> dict[str, int]:
    trace = run(plan, 2_000 * MS).trace
    assert trace is not None
    chains = result(trace, plan)["chains"].values()
    return {what: sum(chain[what] for chain in chains) for what in ("completed", "missed", "dropped")}


def _line(count: int, cost_ms: float) -> tuple[Stage, ...]:
    """Return stages of which each takes most of a period of 10 ms on an engine, or a core, of its own."""
    return tuple(_stage(f"t{number}", "cpu" if number else "acc", cost_ms) for number in range(count))


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_queues_are_as_deep_as_a_line_needs(count: int) -> None:
    pipeline = lines((10 * MS, 500 * MS, _line(count, 9.0)))
    plan = _plan(_open(pipeline), platform("full", "segment"))
    assert plan.verdict == "feasible"
    depths = {task.name: task.queue for task in plan.tasks if task.kind == "stage"}
    assert depths["t0"] == 1
    assert max(depths.values()) == max(count - 1, 1)
    assert plan.solver.chosen == ({name: {"queue": depth} for name, depth in depths.items() if depth > 1} or None)
    assert from_document(to_document(plan), "plan.json") == plan
    found = _accounted(plan)
    assert found["completed"] and not found["missed"] and not found["dropped"]
    stated = _plan(pipeline, platform("full", "segment"))
    # the second job begins when the first ends, after 9 of 10 ms, and the third after 18
    assert stated.verdict == ("feasible" if count < 3 else "undecided"), "one frame may wait, as stated"
    assert stated.solver.chosen is None and stated.solver.proof is None


def test_a_line_that_no_depth_saves_is_infeasible_with_a_proof_for_all_depths() -> None:
    plan = _plan(_open(lines((10 * MS, 20 * MS, _line(3, 9.0)))), platform("full", "segment"))
    assert plan.verdict == "infeasible"
    assert plan.solver.proof is not None and "deadline of chain c0" in plan.solver.proof.text
    crowded = _plan(_open(lines((10 * MS, 900 * MS, _line(12, 9.9)))), platform("full", "segment"))
    assert crowded.verdict == "infeasible", "three cores for eleven stages"


@given(workloads())
def test_open_queues_find_every_plan_that_a_stated_depth_allows(pipeline: Pipeline) -> None:
    board = platform("full", "segment")
    stated, chosen = _plan(pipeline, board), _plan(_open(pipeline), board)
    assert chosen.verdict == "feasible" or stated.verdict != "feasible"
    if chosen.verdict == "feasible":
        assert all(1 <= task.queue <= DEPTHS[-1] for task in chosen.tasks)
        found = _accounted(chosen)
        assert not found["missed"] and not found["dropped"]


def _sliced(board: Platform, low: float, high: float) -> Platform:
    value = Figure((low + high) / 2 * MS, "published", interval=(low * MS, high * MS))
    engines = tuple(
        replace(e, preemption=replace(e.preemption, slices_ns=value)) if e.id == "acc" else e for e in board.engines
    )
    return replace(board, engines=engines)


@pytest.mark.parametrize(
    ("deadline", "length"),
    [(60, None), (24, 16.0), (9, 4.0), (6, 1.0)],
)
def test_slices_are_the_longest_that_leave_a_plan_feasible(deadline: int, length: float | None) -> None:
    """A job of 48 ms every 200 ms beside one of 3 ms, which waits for the slice that runs when it is released."""
    long, short = (_stage("long", "acc", 48.0),), (_stage("short", "acc", 3.0),)
    pipeline = lines((200 * MS, 200 * MS, long), (100 * MS, deadline * MS, short))
    plan = _plan(pipeline, _sliced(platform("full", "segment"), 1, 16))
    assert plan.verdict == "feasible"
    parts = next(task.segments for task in plan.tasks if task.name == "long")
    assert max(part.time_ns for part in parts) == round((length or 48.0) * MS)
    assert (plan.solver.chosen or {}).get("long") == (None if length is None else {"slice_ns": round(length * MS)})
    assert (_plan(pipeline, platform("full", "segment")).verdict == "feasible") == (length is None)


def test_a_stated_slice_stays() -> None:
    long, short = (_stage("long", "acc", 40.0, 10),), (_stage("short", "acc", 3.0),)
    pipeline = lines((200 * MS, 200 * MS, long), (100 * MS, 20 * MS, short))
    plan = _plan(pipeline, _sliced(platform("full", "segment"), 1, 16))
    assert plan.verdict == "feasible"
    assert len(next(task.segments for task in plan.tasks if task.name == "long")) == 4
    assert plan.solver.chosen is None


def test_a_depth_in_a_pipeline_file_is_stated_and_none_is_open() -> None:
    stages = {stage.name: stage for stage in get_pipeline("perception-stack").stages}
    assert (stages["track"].queue, stages["track"].open_queue) == (2, False)
    assert (stages["decode"].queue, stages["decode"].open_queue) == (1, True)


def test_the_shortest_slices_of_the_tx2_are_declared() -> None:
    assert get_platform("jetson-tx2").engine("gpu").preemption.slices_ns is not None
