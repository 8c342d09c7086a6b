"""Networks cut between engines: candidates, costs of parts, branches at once, cuts that are required or preferred."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from cut_detector import MS, ORIN, PERIOD, detector
from hypothesis import given
from hypothesis import strategies as st

import socsched as ss
from socsched.cli import root
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Anchor, Pipeline
from socsched.descriptor.platform import Engine, Figure, Platform
from socsched.errors import DescriptorError, UsageError
from socsched.graph import partition
from socsched.lint import check as lint
from socsched.models.parts import uncut
from socsched.models.registry import bindings, get_model
from socsched.models.work import stage_work
from socsched.planning.cutting.divisible import Divisible, Leg, Legs, Place, divisible
from socsched.planning.cutting.pipelines import PARTS, as_planned, with_preferences
from socsched.planning.cutting.segmentation import (
    Branch,
    branches,
    duration_ns,
    merge_neighbours,
    segmentations,
    shift_borders,
)
from socsched.planning.feasibility.infeasible_plan import require_engines
from socsched.planning.io import from_document, to_document
from socsched.planning.pareto import cuts, shares
from socsched.planning.plan import Plan, Task
from socsched.planning.search import CostCache, make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from tests.models.onnx_files import Builder


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


PLACES = tuple(Place(name, "fp16", 1) for name in ("a", "b", "c"))


class Fake(Divisible):
    """Units whose changes of engine cost the entries of a table."""

    def change(self, cut: int, source: int, sink: int) -> tuple[int, int] | None:
        """Return a made-up cost; going from c to a is impossible."""
        return None if (source, sink) == (2, 0) else (self.least_ns[0] * (1 + cut + sink), 0)


def fake(times: list[list[int | None]], entry: list[int], change: int) -> Fake:
    """Return a stage of given unit times."""
    rows = tuple(tuple(row) for row in times)
    zeros = tuple(tuple(0 for _ in row) for row in rows)
    cuts = tuple((f"u{number}",) for number in range(len(rows) - 1))
    crossing: tuple[tuple[()], ...] = tuple(() for _ in cuts)
    none: object = None
    return Fake(
        none,
        none,
        {},
        cuts,
        crossing,
        PLACES,
        rows,
        zeros,
        tuple(entry),
        (0, 0, 0),
        (change,),
        (),
        (),
        (),
        none,  # type: ignore[arg-type]
    )


units = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(1, 40))] * 2, st.integers(1, 40)), min_size=2, max_size=5)


@given(units, st.lists(st.integers(0, 20), min_size=3, max_size=3), st.integers(0, 9))
def test_the_fastest_way_is_among_those_proposed(
    times: list[tuple[int | None, int | None, int]], entry: list[int], change: int
) -> None:
    stage = fake([list(row) for row in times], entry, change)
    every = (_legs(choice) for choice in product(PLACES, repeat=stage.units))
    least = min(time for legs in every if (time := duration_ns(stage, legs)) is not None)
    found = segmentations(stage)
    assert len(set(found)) == len(found)
    known = [time for legs in found if (time := duration_ns(stage, legs)) is not None]
    assert min(known) == least
    assert all(legs[-1].end == stage.units and merge_neighbours(legs) == legs for legs in found)


@given(units, st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_neighbours_are_ways_through_all_units(
    times: list[tuple[int | None, int | None, int]], entry: list[int]
) -> None:
    stage = fake([list(row) for row in times], entry, 1)
    for legs in segmentations(stage):
        for other in shift_borders(stage, legs):
            ends = [leg.end for leg in other]
            assert ends == sorted(set(ends)) and ends[-1] == stage.units
            assert abs(len(other) - len(legs)) <= 2


def _legs(choice: tuple[Place, ...]) -> Legs:
    return merge_neighbours(tuple(Leg(number + 1, place) for number, place in enumerate(choice)))


DEPTH = 4


def forked(file: Path, in_turn: bool) -> Pipeline:
    """Return a stem and two equal branches that a concatenation joins; `in_turn`: the file lists layers in turn."""
    net = Builder()
    a = b = net.conv("image", 3, 32)
    if in_turn:
        for _ in range(DEPTH):
            a, b = net.conv(a, 32, 32), net.conv(b, 32, 32)
    else:
        for _ in range(DEPTH):
            a = net.conv(a, 32, 32)
        for _ in range(DEPTH):
            b = net.conv(b, 32, 32)
    pipeline = get_pipeline(str(net.save(file, [1, 3, 256, 256], [net.op("Concat", a, b, axis=1)])))
    stages = (replace(stage, engines=("dla",), precisions=("fp16",)) for stage in pipeline.stages)
    return replace(pipeline, stages=tuple(stages))


@pytest.mark.parametrize("in_turn", [False, True])
def test_two_accelerators_take_a_branch_each(tmp_path: Path, in_turn: bool) -> None:
    pipeline = forked(tmp_path / "net.onnx", in_turn)
    whole, cut = (ss.plan(pipeline, ORIN, "MAXN", cuts=cuts, explain=False) for cuts in (False, True))
    times = [plan.chains[0].expected_ns for plan in (whole, cut)]
    assert cut.verdict == "feasible" and times[1] < 0.75 * times[0]
    by_name = {task.name: task for task in cut.tasks}
    join = by_name["network.4"]
    left, right = (by_name[name] for name in join.after)
    assert {left.engine, right.engine} == {"dla0", "dla1"} and left.after == right.after == ("network.1",)
    found = ss.simulate(cut, "2s").chains["frame"]
    assert found.missed == 0 and found.max is not None and found.max < times[0]
    assert found.max <= (cut.chains[0].bound_ns or 0) < 1.5 * times[0]


def test_units_are_listed_branch_by_branch(tmp_path: Path) -> None:
    def listed(in_turn: bool) -> list[int]:
        stage = forked(tmp_path / f"{in_turn}.onnx", in_turn).stages[0]
        build = get_model(stage.model or "", stage.params).network
        assert build is not None
        network = build()
        layers = {layer.name: layer for layer in network.layers}
        groups = partition.units(network)
        home = {name: number for number, group in enumerate(groups) for name in group}
        read = [{home[n] for m in group for n in layers[m].inputs if n in home} - {i} for i, group in enumerate(groups)]
        assert all(need < i for i, needs in enumerate(read) for need in needs), "topological"
        return [i for i, needs in enumerate(read) if i and i - 1 not in needs]

    assert listed(True) == listed(False) == [DEPTH + 1]


def test_a_branch_has_units_beside_it(tmp_path: Path) -> None:
    pipeline, board = forked(tmp_path / "net.onnx", False), get_platform(ORIN)
    stage = divisible(pipeline, pipeline.stages[0], CostCache(board, stage_work).model(board.mode("MAXN")))
    assert stage is not None
    assert branches(stage) == [Branch(1, DEPTH + 1, 2 * DEPTH + 1, tuple(range(1, DEPTH + 1)))]


def board() -> Platform:
    """Return an Orin on which only DLAs run convolutions; they refuse a global average pool."""

    def changed(engine: Engine) -> Engine:
        if engine.kind == "dla":
            return engine
        known = get_platform(ORIN).engine("dla0").operators.allowed or {}
        kinds = dict.fromkeys(("global_avg_pool", "reduce_mean", "flatten", "reshape"), known["relu"])
        return replace(engine, operators=replace(engine.operators, allowed=kinds, host_code=False))

    orin = get_platform(ORIN)
    return replace(orin, engines=tuple(map(changed, orin.engines)))


@pytest.fixture
def network(tmp_path: Path) -> Pipeline:
    net = Builder()
    pooled = net.op("GlobalAveragePool", net.conv(net.conv("image", 3, 16), 16, 32))
    return get_pipeline(str(net.save(tmp_path / "net.onnx", [1, 3, 32, 32], [net.conv(pooled, 32, 8, 1, norm=False)])))


def test_a_network_that_no_engine_takes_whole_is_planned_in_parts(network: Pipeline) -> None:
    model = CostCache(board(), stage_work).model(board().mode("MAXN"))
    assert not model.candidates(network.stage("network")), "else there is nothing to show here"
    plan = ss.plan(network, board(), "MAXN")
    assert plan.verdict == "feasible"
    assert all(uncut(task.name, task.params) == "network" for task in stages(plan))
    assert {"dla0"} < {task.engine for task in stages(plan)}
    assert (plan.solver.notes or {})["network"].startswith("no engine takes it whole: cut after ")
    assert plan.solver.bound is not None and plan.solver.bound <= sum(task.cost_ns for task in stages(plan))


def test_where_it_must_be_cut_proves_nothing_about_other_cuts(network: Pipeline) -> None:
    plan = ss.plan(network, board(), "MAXN")
    chain = replace(network.chains[0], deadline_ns=max(task.cost_ns for task in stages(plan)))
    late = ss.plan(replace(network, chains=(chain,)), board(), "MAXN", solver="heft")
    assert late.verdict == "undecided" and late.violations and late.solver.proof is None
    assert [gap.requirement for gap in late.solver.open or ()] == [item.requirement for item in late.violations]
    assert [line.partition(",")[0].partition(":")[0] for line in late.solver.decide or ()] == ["an exact search"]


def test_without_cuts_no_engine_is_left(network: Pipeline) -> None:
    plan = ss.plan(network, board(), "MAXN", cuts=False)
    assert plan.verdict == "infeasible" and not plan.tasks
    assert plan.violations[0].requirement == "an engine for stage network"


def test_operators_that_no_engine_runs_leave_it_infeasible(network: Pipeline) -> None:
    without = replace(board(), engines=tuple(engine for engine in board().engines if engine.kind != "dla"))
    plan = ss.plan(network, without, "MAXN")
    assert plan.verdict == "infeasible" and not plan.tasks


def test_lint_warns_of_it_and_the_check_of_engines_accepts_it(network: Pipeline, tmp_path: Path) -> None:
    at = lambda _: lint.Place("net.onnx", 1, 1)  # noqa: E731
    (found,) = [d for d in lint.check_pipeline(network, board(), (), at) if d.rule == lint.NO_ENGINE]
    assert found.level == "warning" and "plans cut it between engines" in found.message
    (tmp_path / "net.yaml").write_text("stages:\n  network: {}\n")
    network = replace(network, file=str(tmp_path / "net.yaml"))
    require_engines(network, board(), stage_work)
    pinned = replace(network, stages=tuple(replace(stage, engines=("dla",)) for stage in network.stages))
    (found,) = [d for d in lint.check_pipeline(pinned, board(), (), at) if d.rule == lint.NO_ENGINE]
    assert found.level == "error"
    with pytest.raises(DescriptorError, match=r"net\.yaml:2:3: stages\.network: no engine"):
        require_engines(pinned, board(), stage_work)


def stages(plan: Plan) -> list[Task]:
    return [task for task in plan.tasks if task.kind == "stage"]


def test_an_engine_that_takes_every_layer_gets_the_whole_stage() -> None:
    board, pipeline = get_platform(ORIN), get_pipeline("pointpillars-s")
    known = CostCache(board, stage_work)
    made = with_preferences(pipeline, known.model(board.mode("MAXN")), {"backbone": ("dla0",)})
    plan = make_plan(made, board, "MAXN", work=stage_work, costs=known, budget=20, explain=False, cuts=False)
    assert {task.name: task.engine for task in plan.tasks}["backbone"] == "dla0"


def test_layers_an_engine_does_not_take_run_elsewhere(tmp_path: Path) -> None:
    board = get_platform(ORIN)
    net = Builder()
    pooled = net.op("GlobalAveragePool", net.conv(net.conv("image", 3, 16), 16, 32))
    file = net.save(tmp_path / "net.onnx", [1, 3, 32, 32], [net.conv(pooled, 32, 8, 1, norm=False)])
    pipeline = get_pipeline(str(file))
    known = CostCache(board, stage_work)
    model = known.model(board.mode("MAXN"))
    refused = {r.engine for r in model.refused(pipeline.stage("network"))}
    assert "dla0" in refused, "else there is nothing to show here"
    made = with_preferences(pipeline, model, {"network": ("dla0",)})
    assert 1 < len(made.stages) <= PARTS and {"dla0"} == {e for s in made.stages for e in s.engines}
    plan = make_plan(made, board, "MAXN", work=stage_work, costs=known, budget=40, explain=False)
    assert plan.verdict == "feasible" and {"dla0"} < {task.engine for task in plan.tasks}


def test_an_engine_that_takes_no_layer_is_refused_with_its_reasons() -> None:
    board, pipeline = get_platform(ORIN), get_pipeline("pointpillars-s")
    model = CostCache(board, stage_work).model(board.mode("MAXN"))
    with pytest.raises(UsageError, match="no layer of 'voxelise' can run on dla0") as caught:
        with_preferences(pipeline, model, {"voxelise": ("dla0",)})
    assert "dla0" in caught.value.hint


@pytest.mark.parametrize(
    ("option", "meant"), [("backbon=gpu", "backbone"), ("backbone=dla7", "dla"), ("backbone", "expected STAGE=ENGINE")]
)
def test_names_there_are_not_get_the_nearest_ones(option: str, meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("--pin", "--prefer"):
        assert root.run(["plan", "pointpillars", "-p", ORIN, name, option]) == 2
        assert meant in capsys.readouterr().err


def test_a_platform_is_suggested_by_a_part_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["plan", "pointpillars", "-p", "orin"]) == 2
    assert ORIN in capsys.readouterr().err
