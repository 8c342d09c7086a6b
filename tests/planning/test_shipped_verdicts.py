"""Plans of the shipped pipelines: verdicts, terms that add up, the file format, published figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.io import load, save
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan

ORIN = "jetson-agx-orin-64gb"
FIELDS = {
    "schema_version": None,
    "platform": None,
    "mode": None,
    "pipeline": None,
    "verdict": None,
    "stages": {"name", "engine", "precision", "share", "cut", "cost_ns", "provenance"},
    "transitions": {"from", "to", "bytes", "layout_from", "layout_to", "cost_ns"},
    "chains": {"name", "deadline_ns", "bound_ns", "expected_ns"},
    "power": {"expected_mw", "cap_mw"},
    "bandwidth": {"expected_gbps", "cap_gbps"},
    "solver": {"name", "status", "objective", "bound", "gap"},
    "violations": {"requirement", "demand", "bound", "gap", "unit", "terms", "levers"},
    "inputs": None,
}
"""What plan.json must hold: field -> its members, of every entry where it is a list."""


def made(*wanted: tuple[str, str, str | None]) -> dict[tuple[str, str | None], Plan]:
    """Return the plans of pipelines on platforms in power modes."""
    return {
        (name, mode): make_plan(get_pipeline(name), get_platform(platform), mode, work=stage_work)
        for name, platform, mode in wanted
    }


@pytest.fixture(scope="module")
def plans() -> dict[tuple[str, str | None], Plan]:
    """Return feasible plans of the lowest and highest mode and one that is infeasible."""
    return made(("pointpillars", ORIN, "MAXN"), ("pointpillars", ORIN, "15W"), ("camera-detection", "juno", None))


@pytest.fixture(scope="module")
def many() -> dict[tuple[str, str | None], Plan]:
    modes = ("MAXN", "50W", "30W", "15W")
    stack = ("perception-stack", ORIN, "MAXN"), ("perception-stack", "juno", None)
    return made(*(("pointpillars", ORIN, mode) for mode in modes), *stack)


@pytest.mark.slow
def test_verdicts(many: dict[tuple[str, str | None], Plan]) -> None:
    found = {key: plan.verdict for key, plan in many.items()}
    assert found.pop(("perception-stack", None)) == "infeasible"
    assert set(found.values()) == {"feasible"}


def test_terms_add_up(plans: dict[tuple[str, str | None], Plan]) -> None:
    violations = [v for plan in plans.values() for v in plan.violations]
    assert violations
    for violation in violations:
        assert sum(value for _, value in violation.terms) == violation.demand, violation
        assert violation.gap == violation.demand - violation.bound > 0
        assert violation.levers, violation
    for plan in plans.values():
        assert (not plan.violations) == (plan.verdict == "feasible")
        assert (not plan.conflicts) == (plan.verdict == "feasible")
        for violation in (v for found in plan.conflicts for v in found.requirements):
            assert sum(value for _, value in violation.terms) == violation.demand > violation.bound
        for chain in plan.chains:
            if chain.bound_ns is not None:
                assert chain.test
                assert sum(value for _, value in chain.terms) == chain.bound_ns
                assert chain.expected_ns <= chain.bound_ns
                assert chain.bound_ns <= chain.deadline_ns or plan.verdict == "infeasible"


@pytest.mark.slow
def test_few_of_the_requirements_violated_cannot_be_met(many: dict[tuple[str, str | None], Plan]) -> None:
    plan = many["perception-stack", None]
    assert 1 < len(plan.conflicts) < len(plan.violations), "the others follow from these"
    assert any("utilisation of" in v.requirement for found in plan.conflicts for v in found.requirements)
    assert all(found.minimal and found.proved for found in plan.conflicts)
    assert plan.solver.proof and plan.solver.proof.method == "lower bound"
    assert all(lever.startswith("none of the") for lever in plan.violations[0].levers), "no single change is enough"


@pytest.mark.slow
def test_a_search_cut_short_is_undecided_with_its_best_plan_and_how_far_off_it_is() -> None:
    pipeline, platform = get_pipeline("perception-stack"), get_platform(ORIN)
    # At 5/12 this search finds the mapping that it always found, and that is feasible since windows of paths bound
    # chains: lidar-to-command by 77.7 ms of 83.3 ms, where the holistic analysis of EDF had 103.4 ms.
    chains = tuple(replace(c, deadline_ns=c.deadline_ns * 3 // 8) for c in pipeline.chains)
    plan = make_plan(replace(pipeline, chains=chains), platform, "30W", work=stage_work, budget=5)
    assert plan.verdict == "undecided" and plan.tasks and plan.violations
    assert plan.solver.gap is None and plan.solver.overrun > 0 and plan.solver.status == "budget used up"


def test_tasks_are_sound(plans: dict[tuple[str, str | None], Plan]) -> None:
    for plan in plans.values():
        lanes = {engine.id: engine.lanes for engine in plan.engines}
        for task in plan.tasks:
            assert task.lanes and all(0 <= lane < lanes[task.engine] for lane in task.lanes)
            assert sum(segment.time_ns for segment in task.segments) == task.cost_ns <= task.wcet_ns
            assert task.why and task.source is not None and task.error > 0
        assert plan.power.expected_mw == pytest.approx(plan.power.expected_mw)


def test_the_gpu_takes_about_as_long_as_published(plans: dict[tuple[str, str | None], Plan]) -> None:
    network = {"pfn", "scatter", "backbone", "head"}
    tasks = [task for task in plans["pointpillars", "MAXN"].tasks if task.name in network]
    assert {task.engine for task in tasks} == {"gpu"}
    # CUDA-PointPillars on Orin, TensorRT 8.6.11, FP16: 4.87 ms from pillar features to head
    pipeline, board = get_pipeline("pointpillars"), get_platform(ORIN)
    model = CostModel(board, board.mode("MAXN"), stage_work)
    costs = [model.at(pipeline.stage(name), "gpu", "fp16", 16) for name in network]
    assert sum(cost.time_ns for cost in costs if cost) == pytest.approx(4.87e6, rel=0.25) and None not in costs


@pytest.mark.slow
def test_lower_modes_are_slower(many: dict[tuple[str, str | None], Plan]) -> None:
    expected = [many["pointpillars", mode].chains[0].expected_ns for mode in ("MAXN", "50W", "30W", "15W")]
    assert expected == sorted(expected) and expected[0] < expected[-1]


@pytest.mark.slow
def test_energy_never_draws_more_than_latency() -> None:
    pipeline, platform = get_pipeline("pointpillars"), get_platform(ORIN)
    made = {
        objective: make_plan(pipeline, platform, None, objective, work=stage_work, budget=100)
        for objective in ("latency", "energy")
    }
    assert {plan.verdict for plan in made.values()} == {"feasible"}
    assert made["energy"].power.expected_mw < made["latency"].power.expected_mw
    assert made["latency"].chains[0].expected_ns < made["energy"].chains[0].expected_ns
    assert made["latency"].mode == "MAXN" and made["energy"].mode != "MAXN"


def test_plan_json_holds_the_documented_fields_and_loads_back(
    plans: dict[tuple[str, str | None], Plan], tmp_path: Path
) -> None:
    for number, plan in enumerate(plans.values()):
        file = tmp_path / f"{number}.json"
        save(plan, file)
        document = json.loads(file.read_text())
        for field, members in FIELDS.items():
            assert field in document
            entries = document[field] if isinstance(document[field], list) else [document[field]]
            for entry in entries if members else []:
                assert members <= set(entry), (field, members - set(entry))
        assert load(file) == plan


def test_a_plan_has_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    """Prices by the distance of networks are sums of floats over kinds of layers: in one order."""
    line = ["plan", "pointpillars-s", "-p", "tda4vm", "--solver", "heft", "--no-refine", "-q", "-o"]
    texts = []
    for seed in ("1", "77"):
        file = tmp_path / f"{seed}.json"
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-m", "socsched", *line, str(file)], env=environment, check=False)
        texts.append(file.read_bytes())
    assert texts[0] == texts[1]
