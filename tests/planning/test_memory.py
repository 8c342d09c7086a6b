"""Main memory as a requirement: weights, activations and buffers against the capacity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import socsched as ss
from socsched.descriptor.platform import Figure, Platform
from socsched.models.work import stage_work
from socsched.planning.deployment import CAPACITY, capacity
from socsched.planning.io import from_document, to_document
from socsched.planning.plan import Plan

ORIN = "jetson-agx-orin-64gb"
QUICK: dict[str, Any] = {"mode": "MAXN", "refine": False, "explain": False, "solver": "heft", "policy": "edf"}


def with_memory(size: int, reserved: int | None = None) -> Platform:
    board = ss.load_platform(ORIN)
    left = Figure(reserved, "assumed", note="a test") if reserved is not None else None
    return replace(board, dram=replace(board.dram, size=Figure(size, "assumed", note="a test"), reserved=left))


@pytest.fixture(scope="module")
def roomy() -> Plan:
    return ss.plan("pointpillars", ORIN, **QUICK)


def test_terms_add_up_and_the_capacity_is_what_the_system_leaves(roomy: Plan) -> None:
    memory = roomy.memory
    assert memory.needed_bytes == sum(size for _, size in memory.terms)
    assert memory.capacity_bytes == 64 * 2**30 - 4976 * 2**20 == capacity(ss.load_platform(ORIN))
    assert from_document(to_document(roomy)).memory == memory


def test_weights_are_those_of_the_networks_and_buffers_those_of_the_queues(roomy: Plan) -> None:
    terms, pipeline = dict(roomy.memory.terms), ss.load_pipeline("pointpillars")
    for task in roomy.tasks:
        if task.kind == "stage" and task.name in {stage.name for stage in pipeline.stages}:
            work = stage_work(pipeline.stage(task.name), task.precision)
            weights = sum(operator.weight_bytes for operator in work.operators)
            assert terms.get(f"weights of {task.name}", 0) == weights
            if work.passes:
                live = max(one.live for one in work.passes)
                assert terms[f"activations of {task.name}"] == live * {"fp32": 4, "fp16": 2, "int8": 1}[task.precision]
    lidar = next(sensor for sensor in roomy.sensors)
    queue = max(task.queue for task in roomy.tasks if lidar.name in task.after)
    assert terms[f"frames of {lidar.name}"] == lidar.bytes_per_frame * (queue + 2)


def test_a_board_without_room_violates_the_capacity() -> None:
    plan = ss.plan("pointpillars", with_memory(60 * 2**20, 10 * 2**20), **QUICK)
    violation = next(one for one in plan.violations if one.requirement == CAPACITY)
    assert plan.verdict != "feasible" and violation.unit == "B"
    assert violation.bound == 50 * 2**20 == plan.memory.capacity_bytes
    assert violation.demand == plan.memory.needed_bytes == sum(size for _, size in violation.terms)
    assert violation.gap == violation.demand - violation.bound > 0


def test_weights_that_fit_in_no_data_type_prove_that_no_plan_exists() -> None:
    plan = ss.plan("pointpillars", with_memory(2**20), **QUICK)
    assert plan.verdict == "infeasible" and plan.solver.proof is not None
    assert plan.solver.proof.text.startswith("DRAM capacity: at least")


def test_a_smaller_data_type_may_be_what_fits(roomy: Plan) -> None:
    needed = int(roomy.memory.needed_bytes or 0)
    assert {task.precision for task in roomy.tasks if task.name == "backbone"} == {"fp16"}

    def verdict(precision: str) -> tuple[str, bool]:
        pipeline = ss.load_pipeline("pointpillars")
        stages = tuple(
            replace(s, precisions=(precision,) if s.name in ("backbone", "head") else s.precisions)
            for s in pipeline.stages
        )
        plan = ss.plan(replace(pipeline, stages=stages), with_memory(needed), **QUICK)
        return plan.verdict, CAPACITY in {one.requirement for one in plan.violations}

    assert verdict("fp16") == ("feasible", False)
    assert verdict("fp32") == ("undecided", True)
