"""Shares of engines in plans: lanes apart, bounds that a simulation keeps, and refusals that name what can be had."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.api.planning import plan
from socsched.api.simulation import simulate
from socsched.descriptor.catalog import get_platform
from socsched.errors import UsageError
from socsched.planning import shares
from socsched.planning.plan import Plan
from socsched.trace.why import Why

HERE = ("perception-stack", "jetson-agx-orin-64gb", "MAXN")
PINNED = {"pins": ("camera-detect=gpu",), "explain": False}


@pytest.fixture(scope="module")
def shared() -> Plan:
    return plan(*HERE, shares=("gpu=3",), **PINNED)


def test_the_most_urgent_stages_have_their_lanes_alone(shared: Plan) -> None:
    """Twelve of sixteen SMs for the hard chain: no lane of these is anybody else's, conversions included."""
    assert next(engine for engine in shared.engines if engine.id == "gpu").lanes == 4
    here = [task for task in shared.tasks if task.engine == "gpu"]
    urgent = {lane for task in here if task.criticality == "hard" for lane in task.lanes}
    others = {lane for task in here if task.criticality != "hard" for lane in task.lanes}
    assert urgent == {0, 1, 2} and others == {3}
    assert shared.verdict == "feasible"


def test_a_share_costs_time_and_frees_the_others(shared: Plan) -> None:
    """Urgent stages on 12 SMs take longer than on 16; the camera's bound no longer holds a LiDAR kernel."""
    whole = plan(*HERE, **PINNED)
    alone, part = ({task.name: task.cost_ns for task in one.tasks} for one in (whole, shared))
    assert alone["backbone"] < part["backbone"] < alone["backbone"] * 16 / 12 * 1.3
    bounds = [{chain.name: chain.bound_ns for chain in one.chains}["camera-detection"] for one in (whole, shared)]
    assert bounds[1] < bounds[0]


def test_a_simulation_keeps_the_bounds_of_shares(shared: Plan) -> None:
    outcome = simulate(shared, "2s", seed=1)
    worst = {name: entry["response_time_ns"]["max"] for name, entry in outcome.figures["chains"].items()}
    assert worst and all(worst[chain.name] <= chain.bound_ns for chain in shared.chains if worst[chain.name])


def test_auto_is_never_worse_for_hard_chains_than_whole_engines() -> None:
    whole, chosen = plan(*HERE, **PINNED), plan(*HERE, shares=("auto",), **PINNED)
    assert shares._rank(chosen) <= shares._rank(whole)


@pytest.mark.parametrize("text, words", [
    ("gpu=4", "not a share of its 16 SM in groups of 4"), ("gpu=0", "neither auto nor"),
    ("dla0=1", "no engine that can"), ("gpu=x", "neither auto nor"), ("some", "neither auto nor"),
])  # fmt: skip
def test_a_share_that_is_none_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        plan(*HERE, shares=(text,), **PINNED)


def test_instances_come_in_the_sizes_that_are_declared() -> None:
    division = get_platform("jetson-agx-orin-64gb").engine("gpu").division
    assert division is not None
    assert division.counts(16) == (1, 2, 3) and replace(division, group=2, sizes=(1, 3, 7)).counts(16) == (1, 3, 7)


def test_why_names_what_a_share_costs_and_what_is_shared(shared: Plan) -> None:
    """Of a stage's planned time, the parts of its share, of cache and launches; all parts add up to the response."""
    trace = simulate(shared, "1s").trace
    assert trace is not None
    found = Why(trace, shared).explain("camera-detection", 3)
    parts = {(part.task, part.kind): part.ns for part in found.parts}
    task = next(task for task in shared.tasks if task.name == "camera-detect")
    kinds = ("share", "memory", "cache", "launches")
    assert sum(parts.get((task.name, kind), 0) for kind in ("execution", *kinds)) == task.cost_ns
    assert task.shared is not None
    assert next(one for one in shared.tasks if one.name == task.shared.by).lanes == (0, 1, 2)
    for kind in kinds:
        assert parts.get((task.name, kind), 0) == getattr(task.shared, f"{kind}_ns")
    assert min(task.shared.share_ns, task.shared.cache_ns, task.shared.launches_ns) > 0 == task.shared.memory_ns
    assert {part.by for part in found.parts if (part.task, part.kind) == (task.name, "launches")} == {task.shared.by}
    assert task.shared.by in (shared.solver.notes or {})[task.name]
    assert sum(part.ns for part in found.parts) == found.response_ns
