"""A steady clock or a race to idle: what spends least while every bound holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.api.simulation import simulate
from socsched.planning.clocks import at_level, busy_mw, with_steady_clocks
from socsched.planning.plan import Level, Plan, Power
from tests.runtime.run_plans import MS, plan, task

CLOCKS = (400, 600, 800, 1000)


def made(exponent: float, deadline_ms: float = 20, cost_ms: int = 5) -> Plan:
    """Return one job every 20 ms on an engine whose power grows with a power of its clock."""
    job = task(
        "net", period_ns=20 * MS, deadline_ns=round(deadline_ms * MS), cost_ns=cost_ms * MS, wcet_ns=cost_ms * MS
    )
    small = replace(job, segments=(replace(job.segments[0], time_ns=cost_ms * MS),), queue=1)
    found = plan(small, lanes=1)
    levels = tuple(Level(clock * 10**6, round(4000 * (clock / 1000) ** exponent)) for clock in CLOCKS)
    engine = replace(found.engines[0], levels=levels, dynamic_mw=4000, preemption="full")
    power = Power(1500.0, None, (("base", 500), ("cpu dynamic", 1000)))
    return replace(found, engines=(engine,), verdict="feasible", power=power)


def test_where_voltage_falls_with_the_clock_it_is_steady() -> None:
    """P ~ f^3: the slowest clock that keeps the deadline, 12.5 ms of 20."""
    chosen = with_steady_clocks(made(3))
    assert chosen.engines[0].levels[-1].clock_hz == 400_000_000 and chosen.tasks[0].cost_ns == 12.5 * MS
    assert "steady: 0.84 W less" in (chosen.solver.notes or {})["cpu"]
    assert chosen.power.expected_mw == pytest.approx(500 + 160, abs=1) and chosen.verdict == "feasible"


@pytest.mark.parametrize("deadline, clock", [(20, 400), (12, 600), (8, 800), (6, 1000)])
def test_a_clock_that_breaks_a_bound_is_not_chosen(deadline: float, clock: int) -> None:
    chosen = with_steady_clocks(made(3, deadline))
    assert chosen.engines[0].levels[-1].clock_hz == clock * 10**6
    outcome = simulate(replace(chosen, chains=made(3, deadline).chains), "1s")
    assert outcome.trace is not None
    ends = [job.finish_ns - job.activation_ns for job in outcome.trace.jobs if job.finish_ns > 0]
    assert ends and max(ends) <= deadline * MS


def test_where_power_falls_with_the_clock_alone_it_races() -> None:
    """Energy is the same at every clock, so that the jobs may as well end early."""
    start = made(1)
    chosen = with_steady_clocks(start)
    assert chosen.tasks == start.tasks and "races to idle at 1000 MHz" in (chosen.solver.notes or {})["cpu"]
    slow = at_level(start, start.engines[0], 0)
    assert busy_mw(slow, slow.engines[0]) == pytest.approx(busy_mw(start, start.engines[0]))
