"""The planner's decision as a mapping problem: its bound holds for every mapping, its proofs, its refusals."""

from __future__ import annotations

from random import Random

import pytest

from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import UsageError
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import judge, objective_value
from socsched.planning.clock import Clock
from socsched.planning.cutting.divisible import Sliced, divisible
from socsched.planning.mapping.exact import Exact, exact_mapping, stage_problem
from socsched.planning.search import make_plan
from socsched.planning.workload import Unconnectable, Workload
from socsched_literature.mapping.evaluate import Impossible, evaluate
from socsched_literature.mapping.lists import list_schedule

pytest.importorskip("ortools", reason="the exact solver needs OR-Tools")


def workload(pipeline: str, platform: str, mode: str | None = None) -> Workload:
    board = get_platform(platform)
    graph = task_graph(get_pipeline(pipeline))
    return Workload.of(graph, CostModel(board, board.mode(mode), stage_work, None), "edf")


@pytest.mark.parametrize(
    ("pipeline", "platform"), [("pointpillars", "jetson-agx-xavier"), ("waters2019", "jetson-tx2")]
)
def test_expected_latency_of_any_mapping_is_at_least_the_problem_s(pipeline: str, platform: str) -> None:
    work, rng = workload(pipeline, platform), Random(7)
    problem = stage_problem(work)
    checked = 0
    for _ in range(12):
        choice = [rng.randrange(len(group.options)) for group in problem.groups]
        choice = [choice[problem.index[g.twin]] if g.twin else o for g, o in zip(problem.groups, choice, strict=True)]
        mapping = {
            name: work.model.candidates(work.graph.stage(name))[number]
            for name, number in zip(work.graph.order, choice, strict=False)
        }
        try:
            expected = objective_value(judge(work, mapping, thorough=False), "latency")
            least = evaluate(problem, list_schedule(problem, choice)).latency_ns
        except (Unconnectable, Impossible):
            continue
        checked += 1
        assert least == expected
    assert checked >= 6


@pytest.mark.slow
def test_mappings_come_in_order_until_none_left_can_be_better() -> None:
    work = workload("pointpillars", "jetson-agx-xavier", "MAXN")
    seen: list[int] = []

    def judged(mapping: object, cuts: object) -> tuple[int, str] | None:
        seen.append(len(seen))
        return (10**12, "bad") if len(seen) < 3 else (0, "good")

    found: Exact[str] = exact_mapping(work, judged, None, Clock.of(3000))
    assert (found.status, found.best, found.tried) == ("optimal", "good", 3)
    nothing: Exact[str] = exact_mapping(work, lambda *_: None, None, Clock.of(100))
    assert (nothing.status, nothing.best) == ("undecided", None)
    assert exact_mapping(work, lambda *_: None, 1, Clock.of(1000)).status == "optimal"


@pytest.mark.slow
def test_a_deadline_below_every_execution_time_is_refused_by_name() -> None:
    plan = make_plan(
        get_pipeline("waters2019"), get_platform("jetson-tx2"), "MAXN", work=stage_work, solver="cpsat", budget=40
    )
    assert plan.verdict == "infeasible"
    assert plan.solver.conflict == ("deadline of chain planner-deadline",)
    assert plan.solver.proof is not None
    (least,) = plan.solver.proof.necessities
    assert least.requirement == "deadline of chain planner-deadline" and least.demand > least.bound


@pytest.mark.slow
def test_the_plan_says_how_far_the_proof_came() -> None:
    board, pipeline = get_platform("jetson-agx-xavier"), get_pipeline("pointpillars")
    plain = make_plan(pipeline, board, "MAXN", work=stage_work)
    exact = make_plan(pipeline, board, "MAXN", work=stage_work, solver="cpsat", clock=Clock.of(400))
    assert exact.verdict == "feasible" and exact.solver.name == "cpsat"
    assert plain.solver.bound <= exact.solver.bound <= exact.solver.value <= plain.solver.value
    assert exact.solver.gap <= plain.solver.gap


def test_an_unknown_solver_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown solver 'magic'"):
        make_plan(
            get_pipeline("pointpillars"), get_platform("jetson-agx-xavier"), "MAXN", work=stage_work, solver="magic"
        )


def test_the_exact_search_cuts_networks_and_proves_what_the_local_search_finds() -> None:
    from tests.planning.cut_detector import MS, by_rooflines, detector

    pipeline, board = detector(4 * MS), by_rooflines()
    local = make_plan(pipeline, board, "15W", work=stage_work)
    exact = make_plan(pipeline, board, "15W", work=stage_work, solver="cpsat", clock=Clock.of(12_000))
    assert exact.verdict == "feasible" and exact.solver.status == "optimal"
    assert exact.solver.bound == exact.solver.value <= local.solver.value
    assert any("part" in task.params for task in exact.tasks)


def test_units_in_one_place_take_no_longer_than_the_whole() -> None:
    """What makes the problem with units a relaxation: a network in one place is worth what it costs, at most."""
    board, pipeline = get_platform("jetson-agx-orin-64gb"), get_pipeline("perception-stack")
    for mode in ("MAXN", "15W"):
        model = CostModel(board, board.mode(mode), Sliced(stage_work), None)
        work = Workload.of(task_graph(pipeline), model, "edf")
        stages = {s.name: d for s in pipeline.stages if (d := divisible(pipeline, s, model)) is not None}
        assert {"backbone", "head", "camera-detect"} <= set(stages)
        problem = stage_problem(work, stages)
        for name, divided in stages.items():
            for number, place in enumerate(divided.places):
                whole = model.at(divided.stage, place.engine, place.precision, place.share)
                groups = [group for group in problem.groups if group.name.startswith(f"{name}#")]
                assert len(groups) == divided.units
                if whole is not None:
                    assert sum(group.options[number].time_ns for group in groups) <= whole.time_ns
