"""A clock that follows the load: published latencies that depend on the rate, its limits, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.api.simulation import simulate
from socsched.cost.cost import Segment
from socsched.descriptor.catalog import get_platform
from socsched.errors import UsageError
from socsched.planning.plan import Level, Plan, Throttle
from socsched.planning.workload import apply_governor
from tests.runtime.run_plans import MS, plan, task

LEAST_HZ, TOP_HZ = 306_000_000, 1_530_000_000
FIRST, AT_30, AT_60 = 27.0, 13.6, 6.7
"""Published latencies (ms) of one network on a Jetson T4000: of the first frame, and of later ones by rate."""
BUSY = round(1e6 * AT_30 / (1000 / 30))
"""The share of time that the governor keeps, from the row at 30 Hz alone."""
COST_NS = round(FIRST * MS * LEAST_HZ / TOP_HZ)
"""The time at the highest clock, from the first frame alone, which runs at the lowest."""


def load_plan(rate: float, busy: int = BUSY, look: int = 100 * MS, cost: int = COST_NS) -> Plan:
    """Return the network at a rate on an engine with points 102 MHz apart, as drivers of Orin's GPU list them."""
    period = round(1e9 / rate)
    job = task("net", period_ns=period, deadline_ns=period, cost_ns=cost, wcet_ns=cost, queue=4)
    made = plan(replace(job, segments=(Segment("net", cost, 0, 0),)), lanes=1)
    levels = tuple(Level(clock, clock // 100_000) for clock in range(LEAST_HZ, TOP_HZ + 1, 102_000_000))
    engine = replace(made.engines[0], levels=levels, look_ns=look, busy_ppm=busy, dynamic_mw=levels[-1].dynamic_mw)
    return replace(made, engines=(engine,))


def latencies(made: Plan, governor: str = "load") -> list[float]:
    trace = simulate(made, "3s", governor=governor).trace
    assert trace is not None
    return [(job.finish_ns - job.activation_ns) / MS for job in trace.jobs if job.finish_ns and job.finish_ns > 0]


def test_latency_depends_on_the_rate_as_published() -> None:
    """Two of three rows set the two figures; the third, twice the rate at half the latency, follows."""
    slow, fast = latencies(load_plan(30)), latencies(load_plan(60))
    assert slow[0] == pytest.approx(FIRST, rel=0.01)
    assert slow[-1] == pytest.approx(AT_30, rel=0.06)  # the next point above is at most 102 MHz faster
    assert fast[-1] == pytest.approx(AT_60, rel=0.03)


def test_clocks_ramp_down_when_the_load_falls_and_stay_within_their_points() -> None:
    """Far too little work ends at the lowest point, too much at the highest."""
    idle, full = latencies(load_plan(1)), latencies(load_plan(100, cost=9 * MS))
    assert idle[-1] == pytest.approx(FIRST, rel=0.01) and full[-1] == pytest.approx(9.0, rel=0.01)
    assert latencies(load_plan(30), "static") == pytest.approx([COST_NS / MS] * 90, rel=1e-6)


def test_a_power_cap_bounds_the_clock_that_the_load_asks_for() -> None:
    """The board steps the highest point down; the governor chooses among those that are left."""
    made = replace(load_plan(100, cost=9 * MS), throttle=Throttle(50 * MS, cap_mw=6000))
    assert max(latencies(made)[-20:]) > 9.0 * 1.5


def test_an_engine_without_a_governor_of_its_own_cannot_follow_its_load() -> None:
    with pytest.raises(UsageError, match="no engine of the plan has operating points"):
        apply_governor(replace(load_plan(30), engines=(replace(load_plan(30).engines[0], look_ns=0),)), "load")


def test_a_look_every_nanosecond_ends() -> None:
    assert latencies(load_plan(30, look=1))


def test_the_board_of_the_figures_states_its_governor() -> None:
    governor = get_platform("jetson-t4000").engine("gpu").governor
    assert governor is not None and governor.load.value == pytest.approx(AT_30 / (1000 / 30), abs=0.01)
