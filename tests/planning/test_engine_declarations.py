"""What a platform file declares about an engine reaches plan, bounds and simulation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from socsched.cost.cost import Segment
from socsched.descriptor.pipeline import Pipeline, Stage
from socsched.descriptor.platform import Figure, OperatingPoint, OperatingPoints, Platform, Preemption, WeightsMemory
from socsched.errors import UsageError
from socsched.planning.execution import slowed_by_lanes
from socsched.planning.io import from_document, to_document
from socsched.planning.plan import Level, Plan
from socsched.planning.search import make_plan
from socsched.planning.workload import apply_governor
from socsched.schedulability.tasks import rt_tasks, switch_cost
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result
from tests.sim.toy_platform import MS, lines, platform, takes

US = 1000


def known(value: float) -> Figure:
    return Figure(value, "measured")


def board(**changes: Any) -> Platform:
    """Return the toy board with an accelerator declared otherwise."""
    made = platform("full", "segment")
    return replace(made, engines=(made.engines[0], replace(made.engines[1], **changes)))


def two_on_the_accelerator() -> Pipeline:
    """Return an urgent stage every 10 ms and a long one every 40 ms, both on the accelerator."""
    made = (("urgent", 10 * MS, 2 * MS), ("long", 40 * MS, 12 * MS))
    stages = (Stage(name, name, None, costs=(takes("acc", known(cost)),), queue=2) for name, _, cost in made)
    return lines(*((period, 2 * period, (stage,)) for stage, (_, period, _) in zip(stages, made, strict=True)))


def planned(made: Platform, policy: str = "fp") -> Plan:
    return make_plan(two_on_the_accelerator(), made, policy=policy, work=lambda *_: None, budget=4)


RESTART = Preemption("restart", known(5 * US), reset_ns=known(40 * US), migration_ns=known(7 * US))


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_restart_reaches_the_simulation_and_its_bound_covers_lost_work(policy: str) -> None:
    plan = planned(board(preemption=RESTART), policy)
    engine = next(e for e in plan.engines if e.id == "acc")
    assert (engine.preemption, engine.reset_ns, engine.migration_ns) == ("restart", 40 * US, 7 * US)
    assert switch_cost(engine, plan.tasks) >= 12 * MS + 52 * US
    assert from_document(to_document(plan)) == plan
    figures = result(simulate(plan, 400 * MS), plan)
    for chain in plan.chains:
        worst = figures["chains"][chain.name]["response_time_ns"]["max"]
        assert chain.bound_ns is None or worst is None or worst <= chain.bound_ns


def test_launching_ahead_lengthens_what_blocks() -> None:
    def segments(plan: Plan) -> Plan:
        parts = tuple(Segment(f"k{i}", 2 * MS, 0, 0) for i in range(6))
        tasks = (replace(t, segments=parts, wcet_ns=12 * MS) if t.name == "long" else t for t in plan.tasks)
        return replace(plan, tasks=tuple(tasks))

    def blocking(ahead: int) -> int:
        made = board(preemption=Preemption("segment", known(0), "kernel", in_flight=ahead))
        return rt_tasks(segments(planned(made)))["long"].segment

    blocks = {ahead: blocking(ahead) for ahead in (1, 3, 100)}
    assert blocks == {1: 2 * MS, 3: 6 * MS, 100: 12 * MS}


def test_regrouping_and_fetching_are_paid_by_every_dispatch() -> None:
    memory = WeightsMemory(known(2**20), known(1e9))
    plan = planned(board(reconfigure_ns=known(30 * US), weights=memory, quantum_ns=3 * MS))
    engine = next(e for e in plan.engines if e.id == "acc")
    assert (engine.reshape_ns, engine.memory_bytes, engine.swap_bandwidth) == (30 * US, 2**20, 10**9)
    assert engine.quantum_ns == 3 * MS
    heavy = replace(plan, tasks=tuple(replace(t, weights_bytes=500_000) for t in plan.tasks))
    assert rt_tasks(heavy)["urgent"].wcet == heavy.tasks[0].wcet_ns + 530 * US


def test_a_slow_lane_lengthens_the_worst_case() -> None:
    made = platform("full", "segment")
    mixed = replace(made, engines=(replace(made.engines[0], capacities=(512, 1024, 1024)), made.engines[1]))
    plan = planned(mixed)
    cpu = next(e for e in plan.engines if e.id == "cpu")
    assert cpu.capacities == (512, 1024, 1024)
    tasks = [replace(plan.tasks[0], engine="cpu", lanes=lanes, wcet_ns=4 * MS) for lanes in ((0,), (1,), (0, 1))]
    assert [task.wcet_ns for task in slowed_by_lanes(tasks, [cpu])] == [8 * MS + 1, 4 * MS, 8 * MS + 1]


def test_the_power_of_slow_lanes_is_that_of_a_simulation() -> None:
    made = platform("full", "segment")
    slow = replace(made, engines=(replace(made.engines[0], capacities=(300, 512, 300)), made.engines[1]))
    stage = Stage("calm", "calm", None, costs=(takes("cpu", known(2 * MS)),))
    plan = make_plan(lines((20 * MS, 20 * MS, (stage,))), slow, work=lambda *_: None, budget=4)
    assert plan.verdict == "feasible" and plan.power and dict(plan.power.terms)["cpu dynamic"] > 0
    measured = result(simulate(plan, 2000 * MS), plan)["power_mw"]["mean"]
    assert plan.power.expected_mw == pytest.approx(measured, rel=0.005)


POINTS = OperatingPoints(
    (OperatingPoint(250_000_000, None, None, 100.0), OperatingPoint(500_000_000, None, None, 300.0),
     OperatingPoint(1_000_000_000, None, None, 1000.0)), "measured", "x",
)  # fmt: skip


def test_a_governor_saves_energy_and_keeps_deadlines() -> None:
    plan = planned(board(points=POINTS), "edf")
    engine = next(e for e in plan.engines if e.id == "acc")
    assert engine.levels == (Level(250_000_000, 100), Level(500_000_000, 300), Level(1_000_000_000, 1000))
    calm = replace(plan, tasks=tuple(t for t in plan.tasks if t.name == "urgent"), sensors=plan.sensors[:1], chains=())
    calm = replace(calm, tasks=tuple(replace(t, deadline_ns=t.period_ns) for t in calm.tasks))
    slow = apply_governor(calm, "ccedf")
    assert [e.governor for e in slow.engines] == ["static", "ccedf"]
    plain, saved = (simulate(p, 1000 * MS) for p in (calm, slow))
    assert result(saved, slow)["energy_mj"] < result(plain, calm)["energy_mj"]
    assert all(job.finish_ns <= job.deadline_ns for job in saved.jobs if job.status == "done")
    assert {job.exec_ns for job in plain.jobs} == {2 * MS} and {job.exec_ns for job in saved.jobs} == {8 * MS}


def test_the_lack_of_a_governable_engine_is_reported() -> None:
    with pytest.raises(UsageError, match="operating points"):
        apply_governor(planned(board()), "ccedf")
    with pytest.raises(UsageError, match="unknown governor"):
        apply_governor(planned(board()), "turbo")
