"""What was priced is what ships: a plan with a runtime that no bundle has is made anew, and the difference is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from socsched.api.deployment import _shippable
from socsched.api.planning import plan as make_plan
from socsched.api.stamp import options_in
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import MachineError
from socsched.executor.vendor_stages import lacks_runtime


def test_without_snpe_another_engine_takes_the_stages() -> None:
    pipeline, platform = get_pipeline("pointpillars-s"), get_platform("qrb5165")
    made, notes = make_plan(pipeline, platform), list[str]()
    lacking = [task for task in made.tasks if task.runtime == "snpe"]
    assert {task.engine for task in lacking} == {"npu"} and made.verdict == "feasible"
    other, parts = _shippable(made, pipeline, platform, notes.append)
    assert other.verdict == "feasible" and not [task for task in other.tasks if lacks_runtime(task, parts, platform)]
    assert notes[: len(lacking)] == [f"{task.name}: the executor has no adapter for SNPE" for task in lacking]
    assert notes[len(lacking)] == "planned anew without npu: feasible, was feasible"
    (chain,), (before,) = other.chains, made.chains
    told = notes[-1]
    assert told.startswith(f"{chain.name}: bound ") and " -> " in told and ", deadline " in told
    assert chain.bound_ns != before.bound_ns


def test_options_of_the_plan_hold_for_the_new_one() -> None:
    pipeline, platform = get_pipeline("pointpillars-s"), get_platform("qrb5165")
    asked: dict[str, Any] = {"pins": ("backbone=npu", "decode=prime"), "cuts": False}
    chain = pipeline.chains[0].name
    asked["deadlines"] = (f"{chain}=45ms",)
    made = make_plan(pipeline, platform, **asked)
    assert options_in(made) == asked
    notes: list[str] = []
    other, _ = _shippable(made, pipeline, platform, notes.append)
    assert other.chains[0].deadline_ns == 45 * 10**6 and "deadline 45 ms" in notes[-1]
    assert next(task for task in other.tasks if task.name == "decode").engine == "prime"
    hopeless = replace(made, verdict="feasible", tool={"options": f"--deadline {chain}=1ms"})
    with pytest.raises(MachineError, match="cannot ship as planned, and is infeasible without npu"):
        _shippable(hopeless, pipeline, platform, notes.append)


def test_what_ships_is_left_as_it_is() -> None:
    pipeline, platform = get_pipeline("pointpillars-s"), get_platform("qcs8550")
    made = make_plan(pipeline, platform)
    assert _shippable(made, pipeline, platform, pytest.fail) == (made, pipeline)
