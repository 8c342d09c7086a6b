"""Cycle-conserving EDF where lanes share a clock: no deadline is lost, and the clock is the least that is needed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from builders import engine, plan, task
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.planning.plan import ExecutionTimes, Level, Plan
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result

LEVELS = tuple(Level(clock, clock**3 // 10**6) for clock in range(100, 1001, 100))


@st.composite
def loads(draw: st.DrawFn, everywhere: bool) -> Plan:
    """Draw tasks that EDF serves in time at full speed by the published test: U <= 1 a lane, or GFB for any lane."""
    lanes = draw(st.integers(1, 4))
    # a clock is a whole number of steps, and a segment ends at a whole nanosecond: leave that much of each task
    tasks, used = [], [0.0] * lanes
    for number in range(draw(st.integers(1, 8))):
        period = draw(st.sampled_from([1000, 1500, 2000, 4000, 6000]))
        cost = draw(st.integers(10, period // 2))
        lane = draw(st.integers(0, lanes - 1))
        trial = [*used]
        trial[lane] += (cost + 12) / period
        largest = max([(cost + 12) / period, *((t.cost_ns + 12) / t.period_ns for t in tasks)])
        if sum(trial) > lanes - (lanes - 1) * largest if everywhere else max(trial) > 1:
            continue
        used = trial
        shorter = tuple(sorted(draw(st.lists(st.integers(1, cost), min_size=1, max_size=3))))
        where = tuple(range(lanes)) if everywhere else (lane,)
        more = {"offset_ns": draw(st.integers(0, 500)), "times": ExecutionTimes((*shorter, cost))}
        tasks.append(task(f"t{number}", cost, period_ns=period, lanes=where, width=int(everywhere), **more))
    return plan(tasks, [engine(lanes=lanes, dynamic_mw=1000, levels=LEVELS, governor="ccedf")])


@pytest.mark.parametrize("everywhere", [False, True])
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_no_deadline_is_lost(everywhere: bool, data: st.DataObject) -> None:
    made = data.draw(loads(everywhere))
    trace = simulate(made, 40_000, 1)
    assert all(0 <= job.finish_ns <= job.deadline_ns for job in trace.jobs if job.deadline_ns <= 40_000)


def test_the_clock_is_what_the_fullest_lane_needs() -> None:
    """0.49 and 0.2 on a lane each: 500 of 1000; where either may take any lane (0.69 + 0.49) / 2: 600."""
    loads = [(490, (0,)), (200, (1,))]
    fixed = [task(f"t{i}", cost, period_ns=1000, lanes=lanes) for i, (cost, lanes) in enumerate(loads)]
    free = [replace(t, lanes=(0, 1), width=1) for t in fixed]
    for tasks, clock in ((fixed, 500.0), (free, 600.0)):
        trace = simulate(plan(tasks, [engine(lanes=2, dynamic_mw=1000, levels=LEVELS, governor="ccedf")]), 3000)
        steps = [*trace.counters["clock_hz.cpu"], (3000, 0.0)]
        assert max(before[1] for before, after in pairwise(steps) if after[0] > before[0]) == clock


def test_energy_of_an_engine_is_the_integral_of_its_power() -> None:
    tasks = [task(f"t{i}", 300 + 100 * i, period_ns=1000 + 500 * i, lanes=(i,)) for i in range(2)]
    made = plan(tasks, [engine(lanes=2, dynamic_mw=10**9, idle_mw=5, levels=tuple(
        Level(x.clock_hz, x.dynamic_mw * 10**6) for x in LEVELS), governor="ccedf")])  # fmt: skip
    trace = simulate(made, 20_000)
    power = [*trace.counters["power_mw"], (20_000, 0.0)]
    integral = sum((after[0] - before[0]) * before[1] for before, after in pairwise(power))
    found = result(trace, made)["engines"]["cpu"]
    assert found["energy_mj"] == pytest.approx(integral / 1e9, rel=1e-9)
    static = result(simulate(replace(made, engines=(replace(made.engines[0], governor="static"),)), 20_000), made)
    assert found["energy_mj"] < 0.6 * static["engines"]["cpu"]["energy_mj"]
