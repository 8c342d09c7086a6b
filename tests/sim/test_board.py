"""A board that protects itself: power cap and temperature against hand computation."""

from __future__ import annotations

from math import exp

import pytest
from builders import MS, engine, plan, task

from socsched.errors import UsageError
from socsched.planning.plan import Level, Plan, Throttle
from socsched.sim.simulate import simulate
from socsched.trace.trace import Trace

LEVELS = (Level(400, 3000), Level(700, 6000), Level(1000, 10_000))


def busy(rule: Throttle) -> Plan:
    """An accelerator that is never idle: 500 mW of board, 3, 6 or 10 W by operating point."""
    gpu = engine("gpu", dynamic_mw=10_000, levels=LEVELS)
    job = task("a", 10 * MS, engine="gpu", period_ns=10 * MS)
    return plan([job], [gpu], throttle=rule, base_mw=500)


def notes(trace: Trace) -> list[tuple[int, str]]:
    return [(note.time_ns // MS, note.text) for note in trace.instants if note.kind == "throttle"]


def test_power_over_the_cap_takes_the_clock_down_until_it_fits() -> None:
    trace = simulate(busy(Throttle(50 * MS, cap_mw=7_000)), 400 * MS)
    # 10.5 W at full clock, 6.5 W at 70 %, which is above 90 % of the cap: it stays there
    assert notes(trace) == [(50, "slowed to 70 % of its speed")]
    assert {power for _, power in trace.counters["power_mw"]} == {500.0, 10_500.0, 6_500.0}


def test_a_cap_that_leaves_room_lets_the_clock_up_again() -> None:
    trace = simulate(busy(Throttle(50 * MS, cap_mw=10_000)), 250 * MS)
    assert notes(trace) == [
        (50, "slowed to 70 % of its speed"),
        (100, "back to full speed"),
        (150, "slowed to 70 % of its speed"),
        (200, "back to full speed"),
        (250, "slowed to 70 % of its speed"),
    ]


def test_a_job_in_the_middle_goes_on_at_the_new_clock() -> None:
    gpu = engine("gpu", dynamic_mw=10_000, levels=LEVELS)
    job = task("a", 70 * MS, engine="gpu", period_ns=1000 * MS)
    trace = simulate(plan([job], [gpu], throttle=Throttle(35 * MS, cap_mw=6_100), base_mw=0), 1000 * MS)
    # 35 ms of work at full clock, then 35 ms of work at 70 %: 50 ms
    assert trace.jobs[0].finish_ns == 85 * MS


def test_temperature_follows_its_differential_equation() -> None:
    rule = Throttle(MS, ambient_mc=25_000, resistance_mk_per_w=4_000, time_constant_ns=500 * MS)
    trace = simulate(busy(rule), 1_000 * MS)
    for instant, degrees in trace.counters["temperature_c"][1:]:
        exact = 25 + 10.5 * 4 * (1 - exp(-instant / (500 * MS)))
        assert degrees == pytest.approx(exact, abs=0.3)
    assert not notes(trace)


def test_a_trip_point_is_kept_within_a_step() -> None:
    rule = Throttle(10 * MS, 0, 0.9, 25_000, 4_000, 500 * MS, trip_mc=50_000, recover_mc=45_000)
    trace = simulate(busy(rule), 5_000 * MS)
    assert max(degrees for _, degrees in trace.counters["temperature_c"]) < 51
    assert notes(trace)[0][1] == "slowed to 70 % of its speed"
    # 6.5 W would settle at 51 degrees, 3.5 W at 39: the clock goes to and fro between 70 and 40 %
    assert {text for _, text in notes(trace)} == {"slowed to 70 % of its speed", "slowed to 40 % of its speed"}


def test_an_engine_with_one_operating_point_is_left_alone() -> None:
    gpu = engine("gpu", dynamic_mw=10_000)
    made = plan([task("a", 8 * MS, engine="gpu")], [gpu], throttle=Throttle(50 * MS, cap_mw=100))
    assert not notes(simulate(made, 500 * MS))


def test_a_board_without_sampling_is_refused() -> None:
    with pytest.raises(UsageError, match=r"throttle\.period_ns: expected from 1 to"):
        simulate(busy(Throttle(0, cap_mw=1)), MS)
