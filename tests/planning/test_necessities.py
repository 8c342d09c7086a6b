"""Necessary conditions: only they prove infeasibility, each holds for every schedule, and each finds its own kind."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_pipelines import load

from socsched.api.simulation import simulate_plan
from socsched.cli.root import run
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_platform
from socsched.descriptor.pipeline_file import pipeline_from_mapping
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.cutting.search import cutter_of
from socsched.planning.feasibility.lower_bounds import impossible
from socsched.planning.feasibility.refutation import by_bounds, by_search
from socsched.planning.io import from_document, to_document
from socsched.planning.plan import THEOREMS, Necessity, Plan, Proof, anchor
from socsched.planning.search import CostCache, make_plan
from socsched.planning.workload import Limits, Workload
from tools.verify.verdicts import INFEASIBLE, Writer, check_feasible, check_infeasible

ORIN = "jetson-agx-orin-64gb"
ROOT = Path(__file__).parents[2]
NECESSITY = Necessity("path", "deadline of chain c", 9, 8, "ns", (("a", 9),))


def stage(time: str, **fields: Any) -> dict[str, Any]:
    cost = {"platform": ORIN, "mode": "MAXN", "engine": "cpu", "precision": "fp32", "units": 1}
    figure = {"value": time, "kind": "assumed", "note": "x", "error": 0.1}
    made = {"title": "t", "precisions": ["fp32"], "share": 1, "output_bytes": "1 kB", "assumed": "x"}
    return made | {"costs": [cost | {"time": figure}]} | fields


def sensor(period: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "camera", "period": period, "bytes_per_frame": "1 kB", "assumed": "x"} | fields


def planned(sensors: dict[str, Any], stages: dict[str, Any], chains: dict[str, Any], **options: Any) -> Plan:
    """Return the plan of a pipeline on an Orin in MAXN."""
    asked = {name: chain | {"assumed": "x"} for name, chain in chains.items()}
    document = {"schema_version": "1", "name": "n", "title": "t", "sensors": sensors, "stages": stages, "chains": asked}
    pipeline = pipeline_from_mapping(document, "n.yaml")
    return make_plan(pipeline, get_platform(ORIN), "MAXN", work=lambda *_: None, explain=False, **options)


def test_a_proof_is_made_of_violated_necessities_alone() -> None:
    with pytest.raises(ValueError, match="within"):
        replace(NECESSITY, bound=9)
    with pytest.raises(ValueError, match="at least one"):
        Proof("lower bound", "nothing", ())
    plan = planned(
        {"cam": sensor("20 ms")}, {"a": stage("5 ms", after=["cam"])}, {"c": {"path": ["cam", "a"], "deadline": "9 ms"}}
    )
    assert plan.verdict == "feasible"
    with pytest.raises(ValueError, match="only with a proof"):
        replace(plan, verdict="infeasible")
    refuted = replace(
        plan, verdict="infeasible", solver=replace(plan.solver, proof=Proof("lower bound", "x", (NECESSITY,)))
    )
    assert from_document(to_document(refuted)) == refuted


def test_a_file_that_calls_a_plan_infeasible_without_necessities_is_read_as_undecided() -> None:
    plan = planned(
        {"cam": sensor("20 ms")}, {"a": stage("5 ms", after=["cam"])}, {"c": {"path": ["cam", "a"], "deadline": "4 ms"}}
    )
    assert plan.verdict == "infeasible"
    document = to_document(plan)
    del document["solver"]["proof"]["necessities"]
    assert from_document(document).verdict == "undecided"


def test_every_theorem_has_its_proof_in_the_documentation() -> None:
    headings = re.findall(r"^### (.*)$", (ROOT / "docs/proofs.md").read_text(), re.M)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert {anchor(theorem) for theorem in THEOREMS} <= anchors
    assert NECESSITY.section == "docs/proofs.md#infeasible-path"


JITTER = (
    {"cam": sensor("20 ms", jitter="10 ms")},
    {"a": stage("5 ms", after=["cam"])},
    {"c": {"path": ["cam", "a"], "deadline": "12 ms"}},
)
LATER_SOURCE = (
    {"cam": sensor("20 ms"), "lid": sensor("20 ms", offset="10 ms")},
    {"a": stage("4 ms", after=["cam"]), "b": stage("4 ms", after=["lid"]), "f": stage("1 ms", after=["a", "b"])},
    {"ca": {"path": ["cam", "a"], "deadline": "4.2 ms"}, "cf": {"path": ["lid", "b", "f"], "deadline": "15 ms"}},
)
READ_BY_A_TRIGGERED_STAGE = (
    {"cam": sensor("100 ms"), "lid": sensor("100 ms", offset="50 ms")},
    {
        "a": stage("1 ms", after=["cam"]),
        "x": stage("30 ms", after=["lid"]),
        "b": stage("1 ms", after=["x"], reads=["a"]),
    },
    {"c": {"path": ["cam", "a", "b"], "deadline": "85 ms"}},
)
IN_PHASE = (
    {"cam": sensor("50 ms")},
    {"a": stage("5 ms", after=["cam"]), "b": stage("5 ms", period="50 ms", offset="10 ms", reads=["a"])},
    {"c": {"path": ["cam", "a", "b"], "deadline": "20 ms", "max_age": "20 ms"}},
)
PIPELINED = (
    {"cam": sensor("10 ms")},
    {
        "a": stage("9 ms", after=["cam"]),
        "b": stage("9 ms", after=["a"], queue=1),
        "d": stage("9 ms", after=["b"], queue=1),
    },
    {"c": {"path": ["cam", "a", "b", "d"], "deadline": "30 ms"}},
)
DRAWN_SHORT = (
    {"cam": sensor("20 ms")},
    {"a": stage("10 ms", after=["cam"], execution={"assumed": "x", "uniform": [0.2, 0.5]})},
    {"c": {"path": ["cam", "a"], "deadline": "6 ms"}},
)


@pytest.mark.parametrize("case", [JITTER, LATER_SOURCE, READ_BY_A_TRIGGERED_STAGE, IN_PHASE, PIPELINED, DRAWN_SHORT])
def test_what_a_simulation_meets_is_never_infeasible(
    case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
) -> None:
    plan = planned(*case)
    seen = simulate_plan(plan, 5 * 10**9, record=False).figures["chains"]
    assert all(chain["completed"] > 30 and not chain["missed"] and not chain["dropped"] for chain in seen.values())
    assert plan.verdict != "infeasible", plan.solver.proof


@pytest.mark.parametrize("kind", INFEASIBLE)
def test_a_requirement_that_nothing_meets_is_proved(kind: str) -> None:
    for number in range(3):
        tally = check_infeasible(kind, f"{kind}/test/{number}")
        assert tally.counts["infeasible"] == {kind: 1}, number


@pytest.mark.parametrize("number", range(4))
def test_deadlines_just_above_a_simulation_are_never_proved_infeasible(number: int) -> None:
    assert not check_feasible(f"test/{number}", 6).faults


def test_weights_prove_what_no_set_of_engines_does() -> None:
    """Stages of half a core that take 0.6 of a core or 0.3 of the GPU: 14 fit on no division of 12 cores and a GPU."""
    writer = Writer(Random(1))
    writer.board, writer.mode = ORIN, "MAXN"
    for _ in range(26):
        writer.chain([writer.stage({"cpu": 11.0, "gpu": 6.0}, period="20 ms")])
    pipeline = pipeline_from_mapping(writer.drawn().document, "n.yaml")
    board = get_platform(ORIN)
    load = Workload.of(task_graph(pipeline), CostModel(board, board.mode("MAXN"), lambda *_: None), "edf")  # type: ignore[arg-type]
    (found,) = impossible(load)
    assert found.theorem == "joint capacity" and "weighed" in found.requirement
    assert sum(value for _, value in found.terms) == found.demand > found.bound


def test_a_search_excludes_mappings_by_necessities_and_names_them() -> None:
    """On the GPU a stage is fast enough, but only one of two fits there; no bound on all mappings sees both."""
    writer = Writer(Random(1))
    writer.board, writer.mode = ORIN, "MAXN"
    for _ in range(2):
        name = writer.stage({"cpu": 15.0, "gpu": 6.0}, period="10 ms")
        writer.chain([name], "8 ms")
    pipeline = pipeline_from_mapping(writer.drawn().document, "n.yaml")
    board = get_platform(ORIN)
    load = Workload.of(task_graph(pipeline), CostModel(board, board.mode("MAXN"), lambda *_: None), "edf")  # type: ignore[arg-type]
    proof = by_search(load, NO_CLOCK)
    assert proof is not None and proof.method == "all mappings"
    assert {"capacity", "joint capacity", "period"} & {one.theorem for one in proof.necessities}


def test_undecided_ends_with_its_own_code_and_states_the_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p.yaml"
    cost = f"{{platform: {ORIN}, mode: MAXN, engine: cpu, precision: fp32, units: 1, "
    cost += "time: {value: 5 ms, kind: assumed, note: x, error: 0.1}}"
    file.write_text(
        "schema_version: '1'\nname: jt\ntitle: t\n"
        "sensors: {cam: {kind: camera, period: 20 ms, jitter: 12 ms, bytes_per_frame: 1 kB, assumed: x}}\n"
        "stages:\n  a: {title: a, after: [cam], precisions: [fp32], share: 1, output_bytes: 1 kB, costs: ["
        + cost
        + "]}\n"
        "  b: {title: b, after: [a], precisions: [fp32], share: 1, output_bytes: 1 kB, costs: [" + cost + "]}\n"
        "  d: {title: d, reads: [b], period: 7 ms, precisions: [fp32], share: 1, output_bytes: 1 kB, costs: ["
        + cost
        + "]}\n"
        "chains: {c: {path: [cam, a, b, d], deadline: 16 ms, assumed: x}}\n"
    )
    assert run(["plan", str(file), "-p", ORIN, "-m", "MAXN"]) == 4
    assert "no mapping below 15 ms" in capsys.readouterr().out


@pytest.mark.parametrize("platform", [(ORIN, "MODE_30W"), ("rk3588", "performance")])
def test_a_feasible_plan_violates_no_necessity(platform: tuple[str, str]) -> None:
    """Its own figures as limits are met as well: deadlines at its bounds, caps at its power and traffic."""
    board, count = get_platform(platform[0]), 0
    known = CostCache(board, stage_work)
    model = known.model(board.mode(platform[1]))
    for seed in range(6):
        pipeline = load(Random(seed), networks=seed % 3 == 0)
        plan = make_plan(pipeline, board, platform[1], work=stage_work, costs=known, explain=False, budget=60)
        if plan.verdict != "feasible":
            continue
        count += 1
        bounds = {chain.name: int(chain.bound_ns or 0) for chain in plan.chains}
        chains = tuple(replace(chain, deadline_ns=bounds[chain.name]) for chain in pipeline.chains)
        graph = task_graph(replace(pipeline, chains=chains))
        limits = Limits(int(plan.power.expected_mw or 0), round((plan.bandwidth.expected_gbps or 0) * 1e9) + 1000)
        workload = Workload.of(graph, model, "edf", limits=limits)
        cutter = cutter_of(graph.pipeline, workload, ("latency",))
        assert by_bounds(workload, cutter.stages, cutter.left) is None, seed
        if not cutter.stages:
            assert by_search(workload, Clock.of(500)) is None, seed
    assert count
