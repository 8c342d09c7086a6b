"""The shipped pipelines on the shipped board: the simulation conforms to the plan."""

from __future__ import annotations

import pytest

from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result

BOARD = "jetson-agx-orin-64gb"
SECOND = 10**9
CASES = [(pipeline, policy) for pipeline in ("pointpillars", "perception-stack") for policy in ("edf", "fp")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def made(request: pytest.FixtureRequest) -> Plan:
    pipeline, policy = request.param
    return make_plan(get_pipeline(pipeline), get_platform(BOARD), "MAXN", policy=policy, work=stage_work, budget=20)


@pytest.mark.slow
def test_mean_power_and_traffic_are_as_planned(made: Plan) -> None:
    figures = result(simulate(made, 20 * SECOND), made)
    assert figures["power_mw"]["mean"] == pytest.approx(made.power.expected_mw, rel=0.01)
    # The plan also counts what sensors write into memory; the simulator moves the bytes of jobs only.
    arriving = sum(sensor.bytes_per_frame / sensor.period_ns for sensor in made.sensors)
    assert figures["bandwidth_gbps"]["mean"] == pytest.approx(made.bandwidth.expected_gbps - arriving, rel=0.01)
    assert figures["bandwidth_gbps"]["peak"] <= made.dram_bandwidth / 1e9
