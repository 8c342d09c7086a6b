"""Sets of requirements that conflict: minimal by the search that found them, proved where the fastest costs suffice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from socsched.cli import root
from socsched.cli.root import run
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.candidate import judge
from socsched.planning.feasibility.conflicts import ConflictSearch, all_keys, conflict, key, relax, restore_violations
from socsched.planning.feasibility.infeasible_plan import refused_operators
from socsched.planning.feasibility.lower_bounds import impossible
from socsched.planning.mapping.local_search import solve
from socsched.planning.search import make_plan
from socsched.planning.workload import Workload
from tests.sim.toy_platform import MS, figure, lines, platform, takes, workloads


def workload(pipeline: Pipeline, policy: str) -> Workload:
    board = platform("full", "segment")
    return Workload.of(task_graph(pipeline), CostModel(board, board.modes[0], lambda *_: None), policy)


def tightened(pipeline: Pipeline, percent: int) -> Pipeline:
    chains = tuple(replace(c, deadline_ns=c.deadline_ns * percent // 400) for c in pipeline.chains)
    return replace(pipeline, chains=chains, stages=tuple(replace(s, queue=1) for s in pipeline.stages))


def accelerated(*costs: tuple[int, int, int]) -> Pipeline:
    """Return stages on the accelerator alone, each with a sensor: (cost, period, deadline) in ms."""
    times = (takes("acc", figure(cost * MS), slice_ns=MS) for cost, _, _ in costs)
    stages = (Stage(f"t{number}", "t", None, costs=(time,), queue=2) for number, time in enumerate(times))
    return lines(*((p * MS, d * MS, (stage,)) for stage, (_, p, d) in zip(stages, costs, strict=True)))


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["edf", "fp"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(pipeline=workloads(), percent=st.integers(20, 120))
def test_without_any_member_the_rest_can_be_met_and_with_all_it_cannot(
    policy: str, pipeline: Pipeline, percent: int
) -> None:
    load = workload(tightened(pipeline, percent), policy)
    candidate = solve(load, "latency", 40).candidate
    assume(candidate.verdict != "feasible")
    search = ConflictSearch(load)
    for found in conflict(load, candidate.violations, search=search):
        names = frozenset(key(v.requirement) for v in found.requirements)
        assert names
        assume(found.minimal)
        for v in found.requirements:
            assert sum(value for _, value in v.terms) == v.demand
            assert v.gap == v.demand - v.bound > 0
        always = frozenset(f"utilisation of {e.id}" for e in load.engines()) - names
        assert search.meets(names | always) is None, names
        if not found.proved:
            for name in names:
                witness = search.meets(always | names - {name})
                assert witness is not None, f"{names} without {name}"
                assert not {key(v.requirement) for v in restore_violations(witness, load)} & (names - {name})


def test_two_of_three_deadlines_conflict_and_the_third_is_not_named() -> None:
    """One accelerator: 6 and 6 ms cannot both be done in 8 ms, while the third has all the time there is."""
    pipeline = accelerated((6, 20, 8), (6, 20, 8), (1, 40, 40))
    load = workload(pipeline, "fp")
    candidate = solve(load, "latency", 40).candidate
    (found,) = conflict(load, candidate.violations)
    assert not found.proved and found.minimal
    assert {v.requirement for v in found.requirements} == {"deadline of chain c0", "deadline of chain c1"}
    assert all(v.demand > v.bound == 8 * MS for v in found.requirements)


def test_what_no_mapping_can_do_is_proved_by_its_fastest_stages() -> None:
    (late,) = impossible(workload(accelerated((6, 20, 5), (1, 20, 20)), "edf"))
    assert (late.requirement, late.demand, late.bound) == ("deadline of chain c0", 6 * MS, 5 * MS)
    (full,) = impossible(workload(accelerated((12, 20, 20), (9, 20, 20)), "edf"))
    assert (full.requirement, full.demand, full.bound) == ("utilisation of acc", 1_050_000_000, 10**9)
    assert dict(full.terms) == {"t0": 600_000_000, "t1": 450_000_000}


def test_levers_close_the_gap_when_they_are_pulled() -> None:
    """The test applies a lever to the pipeline itself; a plan of that pipeline no longer violates the requirement."""
    pipeline = accelerated((6, 20, 8), (6, 20, 8))
    board = platform("full", "segment")
    plan = make_plan(pipeline, board, policy="fp", work=lambda *_: None, budget=20)
    (violation,) = plan.violations
    later = [lever for lever in violation.levers if lever.startswith("allow ")]
    assert len(later) == 1 and later[0].endswith("where every requirement is met")
    allowed = round(float(later[0].split()[1]) * MS)
    name = violation.requirement.removeprefix("deadline of chain ")
    chains = tuple(replace(c, deadline_ns=allowed) if c.name == name else c for c in pipeline.chains)
    again = make_plan(replace(pipeline, chains=chains), board, policy="fp", work=lambda *_: None, budget=20)
    assert again.verdict == "feasible"


def test_a_lower_rate_is_a_lever_for_an_overfull_engine() -> None:
    pipeline = accelerated((12, 20, 20), (9, 20, 20))
    board = platform("full", "segment")
    plan = make_plan(pipeline, board, policy="fp", work=lambda *_: None, budget=20)
    full = next(v for v in plan.violations if v.requirement == "utilisation of acc")
    lever = next(lever for lever in full.levers if lever.startswith("run s0 every "))
    period = round(float(lever.split()[3]) * MS)
    sensors = tuple(replace(s, period_ns=period) if s.name == "s0" else s for s in pipeline.sensors)
    again = make_plan(replace(pipeline, sensors=sensors), board, policy="fp", work=lambda *_: None, budget=20)
    assert not any(v.requirement == "utilisation of acc" for v in again.violations)
    assert plan.conflicts[0].proved and plan.conflicts[0].requirements[0].requirement == "utilisation of acc"


def test_a_relaxed_engine_has_a_lane_for_every_task() -> None:
    load = workload(accelerated((12, 20, 20), (9, 20, 20)), "fp")
    everything = frozenset(all_keys(load))
    free = relax(load, everything - {"utilisation of acc"})
    mapping = {name: free.model.candidates(free.graph.stage(name))[0] for name in free.graph.order}
    candidate = judge(free, mapping)
    lanes = [lane for task in candidate.deployment.tasks for lane in task.lanes]
    assert len(lanes) == len(set(lanes)) and candidate.verdict == "feasible"
    (full,) = restore_violations(candidate, load)
    assert (full.requirement, full.demand, full.bound) == ("utilisation of acc", 1_050_000_000, 10**9)


# Stages that no engine can run: the verdict with its reasons, and the operators that engines refuse.

PIPELINE = """\
schema_version: "1"
name: odd
title: one stage only a video unit could run
sources: {b: {title: a bench}}
sensors: {camera: {kind: camera, period: 33 ms}}
stages:
  encode:
    title: encode the image
    after: [camera]
    costs:
      - {platform: a video board, mode: m, engine: vpu, precision: fp32, time: {value: 5 ms, kind: measured, source: b}}
chains:
  c: {path: [camera, encode], deadline: 30 ms}
"""
BOARD = ("-p", "jetson-agx-orin-64gb")


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    path = tmp_path / "odd.yaml"
    path.write_text(PIPELINE)
    return str(path)


def test_the_verdict_names_the_stage_and_why_each_engine_refuses(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert root.run(["plan", pipeline, *BOARD, "--mode", "MAXN", "--json"]) == 1
    plan = json.loads(capsys.readouterr().out)
    assert plan["verdict"] == "infeasible" and plan["stages"] == []
    (violation,) = plan["violations"]
    assert violation["requirement"] == "an engine for stage encode"
    assert sum(term["value"] if isinstance(term, dict) else term[1] for term in violation["terms"]) == 1
    text = " ".join(violation["levers"])
    assert all(engine in text for engine in ("cpu0, cpu1, cpu2, gpu in fp32", "dla0, dla1 in fp32"))


def test_every_verb_takes_such_a_plan(pipeline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert root.run(["plan", pipeline, *BOARD, "-o", str(file)]) == 1
    for verb in ("simulate", "analyze", "run"):
        assert root.run([verb, str(file)]) == 1, verb
        assert "an engine for stage encode" in capsys.readouterr().out, verb


def test_check_reports_its_position(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["pipelines", "check", pipeline]) == 0
    assert root.run(["pipelines", "check", pipeline, *BOARD]) == 2
    assert f"{pipeline}:7:3: stages.encode: no engine of jetson-agx-orin-64gb can run this" in capsys.readouterr().err


def test_places_that_do_not_exist_are_named(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = PIPELINE.replace("a video board, mode: m", "jetson-agx-orin-64gb, mode: MAXM")
    Path(pipeline).write_text(text)
    assert root.run(["pipelines", "check", pipeline]) == 2
    said = capsys.readouterr().err
    assert ":11:62: stages.encode.costs[0].engine: unknown engine" in said and "did you mean 'gpu'?" in said
    assert ":11:48: stages.encode.costs[0].mode: unknown power mode" in said and "did you mean 'MAXN'?" in said
    Path(pipeline).write_text(PIPELINE.replace("a video board", "jetson-agx-orin-64gbb"))
    assert root.run(["pipelines", "check", pipeline]) == 2
    assert "did you mean 'jetson-agx-orin-64gb'?" in capsys.readouterr().err


def test_every_refusal_is_one_of_the_rules_and_has_a_source() -> None:
    pipeline, platform = get_pipeline("pointpillars"), get_platform(BOARD[1])
    found = refused_operators(pipeline, platform, stage_work)
    assert found
    ruled = {engine.id for engine in platform.engines if engine.operators.allowed is not None}
    for row in found:
        assert set(row.engines) <= ruled and row.operators and row.reason
    by_rule = [row for row in found if "host code" not in row.reason]
    assert by_rule and all(row.sources for row in by_rule)


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["pipelines", "check", "pointpillars", "--platform", BOARD[1], "--json"]) == 0
    refused = json.loads(capsys.readouterr().out)["refused"]
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pipelines", "check", "pointpillars", "--platform", BOARD[1]]) == 0
    shown = capsys.readouterr().out
    assert "Operators that accelerators do not support" in shown
    assert all(row["stage"] in shown for row in refused)
    assert max(map(len, shown.splitlines())) <= 80
