"""The planner interface: ordinary plans from every planner, checks of options and names, third-party planners."""

from __future__ import annotations

import re

import pytest

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning import planners
from socsched.planning.io import from_document, to_document
from socsched.planning.planners.propose import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result

ORIN = "jetson-agx-orin-64gb"
OPTIONS = {"axonn": {"stage": "camera-detect"}, "jedi": {"stage": "backbone"}}


@pytest.mark.parametrize("name", planners.planner_names())
@pytest.mark.sampled(8)
def test_plans_are_bounded_simulated_and_written_like_ours(name: str) -> None:
    """The perception stack: simulation never exceeds a bound, and the file survives a round trip."""
    if name == "haxconn":
        pytest.importorskip("ortools", reason="the exact solver needs OR-Tools")
    pipeline = get_pipeline("perception-stack")
    plan = make_plan(
        planners.planner(name), pipeline, get_platform(ORIN), "50W", work=stage_work, options=OPTIONS.get(name)
    )
    assert plan.solver.name == name and plan.solver.source
    assert from_document(to_document(plan)) == plan
    seen = result(run(plan, 2 * 10**9).trace, plan)["chains"]  # type: ignore[arg-type]
    for chain in plan.chains:
        assert seen[chain.name]["completed"]
        if chain.bound_ns is not None:
            assert seen[chain.name]["response_time_ns"]["max"] <= chain.bound_ns
    if plan.verdict == "feasible":
        assert not any(each["missed"] or each["dropped"] for each in seen.values())


def test_axonn_keeps_its_cap_or_reports_the_least_possible_one() -> None:
    pipeline, platform = get_pipeline("camera-detection"), get_platform(ORIN)

    def made(**options: str):  # type: ignore[no-untyped-def]
        return make_plan(planners.planner("axonn"), pipeline, platform, "50W", work=stage_work, options=options)

    for share in ("0.95", "0.8", "0.65"):
        facts = made(share=share).solver.facts
        assert facts["energy_uj"] <= float(share) * facts["fastest"]["energy_uj"] + 1
        assert facts["time_ns"] > facts["fastest"]["time_ns"]
    with pytest.raises(UsageError, match=r"the least is ([0-9.]+)") as caught:
        made(cap="0.001")
    least = float(re.findall(r"the least is ([0-9.]+)", str(caught.value))[0])
    assert made(cap=str(least * 1.001)).solver.facts["energy_uj"] <= least * 1001


def test_names_and_options_are_checked() -> None:
    with pytest.raises(UsageError, match="no planner 'axon'") as caught:
        planners.planner("axon")
    assert "did you mean axonn?" in caught.value.hint
    found = planners.planner("axonn")
    with pytest.raises(UsageError, match="no option 'speed'"):
        found.settings({"speed": "1"})
    with pytest.raises(UsageError, match="expected int"):
        found.settings({"transitions": "two"})
    assert found.settings({"transitions": "3"})["transitions"] == 3
    assert set(planners.descriptions()) == set(planners.planner_names())


def test_single_network_planners_ask_which_one() -> None:
    for name in ("axonn", "jedi"):
        with pytest.raises(UsageError, match="is defined for 1 network") as caught:
            make_plan(
                planners.planner(name), get_pipeline("perception-stack"), get_platform(ORIN), "50W", work=stage_work
            )
        assert "-O stage=NAME" in caught.value.hint
