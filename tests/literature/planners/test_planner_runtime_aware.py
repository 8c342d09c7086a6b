"""Runtime-aware: worked examples of pointers, comparison with all settings, and barriers in a simulated plan."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.pipeline import Pipeline
from socsched.errors import UsageError
from socsched.models.work import stage_work
from socsched.planning.planners import planner
from socsched.planning.planners.propose import make_plan
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from socsched_literature.planners.runtime_aware import (
    Streams,
    coordinate_descent,
    equal_shares,
    random_search,
    search_pointers,
)
from tests.literature.planners.small_graphs import graph, kernel, random_graph


def chain(*kernels):  # type: ignore[no-untyped-def]
    return graph([[n - 1] if n else [] for n in range(len(kernels))], kernels)


def test_pointers_by_hand() -> None:
    """Tenant a: 10 on all four units, then 30 on one; tenant b: 30 on one, then 10 on all four; no launches.

    Without barriers each has its share for good, two units: 20 + 30 = 50.  With a barrier after a's first, and one
    before b's last, 10 + 30 + 10 = 50 as well.  With b's last alone, a on three units before: 40 / 3 rounded up, and
    30, then 10: 54.
    """
    a = chain(kernel("a0", 10, 4), kernel("a1", 30, 1))
    b = chain(kernel("b0", 30, 1), kernel("b1", 10, 4))
    streams = Streams([a, b], 0)
    assert streams.time_ns(((), ())) == 50
    assert streams.time_ns(((1, 2), (0, 1))) == 10 + 30 + 10
    assert streams.time_ns(((2,), (1,))) == 44 + 10
    time, pointers = search_pointers(streams, 2, "coordinate", 20, 0, 0)
    assert time == streams.time_ns(pointers) == 50


def test_a_barrier_pays_where_shares_should_change() -> None:
    """First a fills one unit and b three, then the other way round: with one barrier both always have what they fill,
    60 + 1 + 60 + 1; without a barrier the kernel that fills three takes 90 on two: 150.
    """
    a = chain(kernel("a0", 60, 1), kernel("a1", 60, 3))
    b = chain(kernel("b0", 60, 3), kernel("b1", 60, 1))
    streams = Streams([a, b], 1)
    assert streams.time_ns(((), ())) == 151
    assert search_pointers(streams, 1, "coordinate", 20, 0, 0) == (122, ((1,), (1,)))


@pytest.mark.parametrize("seed", range(8))
def test_coordinate_descent_ends_where_no_pointer_helps_and_never_beats_brute_force(seed: int) -> None:
    rng = Random(seed)
    tenants = [random_graph(rng, rng.randint(2, 4)) for _ in range(2)]
    streams = Streams(tenants, rng.randint(0, 5))
    time, pointers = search_pointers(streams, 2, "coordinate", 50, 0, 0)
    every = [list(itertools.combinations_with_replacement(range(len(g.nodes) + 1), 2)) for g in tenants]
    best = min(streams.time_ns(each) for each in itertools.product(*every))
    assert best <= time == streams.time_ns(pointers)
    for tenant, number in itertools.product(range(2), range(2)):
        for place in range(len(tenants[tenant].nodes) + 1):
            row = list(pointers[tenant])
            row[number] = place
            moved = [*pointers]
            moved[tenant] = tuple(row)
            if row == sorted(row):
                assert streams.time_ns(tuple(moved)) >= time
    # Streams without barriers and one tenant after the other are among what it starts from.
    serial = sum(sum(k.time_ns(4, 4) for n in g.nodes for k in n.kernels) for g in tenants)
    assert time <= min(streams.time_ns(((), ())), serial)
    assert random_search(streams, 2, 200, seed)[0] >= best
    assert coordinate_descent(streams, equal_shares(streams, 2), 50)[0] >= best


def twins(period_ns: int = 100_000_000) -> Pipeline:
    """Two detectors behind one camera."""
    whole = get_pipeline("camera-detection")
    camera = replace(whole.sensors[0], period_ns=period_ns)
    one = replace(whole.stage("detect"), name="left", after=(camera.name,), precisions=("fp16",), queue=2)
    stages = (one, replace(one, name="right"))
    chains = tuple(
        replace(whole.chains[0], name=s.name, path=(camera.name, s.name), deadline_ns=period_ns) for s in stages
    )
    return replace(whole, sensors=(camera,), stages=stages, chains=chains)


def test_networks_wait_for_one_another_at_barriers() -> None:
    plan = make_plan(
        planner("runtime-aware"),
        twins(),
        get_platform("jetson-agx-orin-64gb"),
        "MAXN",
        work=stage_work,
        options={"pointers": "2", "search": "random", "samples": "30"},
    )
    trace = run(plan, 10**9).trace
    assert trace is not None
    figures = result(trace, plan)["chains"]
    for chain_ in plan.chains:
        seen = figures[chain_.name]
        assert not seen["missed"] and not seen["dropped"] and seen["completed"]
        assert chain_.bound_ns is None or seen["response_time_ns"]["max"] <= chain_.bound_ns
    parts = [task for task in plan.tasks if task.name[-1].isdigit()]
    assert {task.name.split(".")[0] for task in parts} == {"left", "right"}
    waits = {task.name: set(task.after) for task in parts}
    assert any({name.split(".")[0] for name in after} == {"left", "right"} for after in waits.values())
    assert all(task.engine == "gpu" for task in plan.tasks)
    makespan = max(figures[name]["response_time_ns"]["mean"] for name in ("left", "right"))
    assert makespan == pytest.approx(plan.solver.facts["round_ns"], rel=0.15)


def test_one_network_alone_is_refused() -> None:
    with pytest.raises(UsageError, match="several networks of one rate"):
        make_plan(
            planner("runtime-aware"),
            get_pipeline("camera-detection"),
            get_platform("jetson-agx-orin-64gb"),
            "MAXN",
            work=stage_work,
        )
