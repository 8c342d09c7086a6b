"""Faults on the clock: engines that stall, fail or throttle, frames that arrive late or in bursts, foreign traffic."""

from __future__ import annotations

from fractions import Fraction

from builders import engine, notes, plan, sensor, spans, task, times

from socsched.faults.model import Burst, Delay, Dropout, Faults, Hog, Slowdown, Stall
from socsched.planning.plan import Task
from socsched.sim.simulate import simulate


def once(name: str, cost: int, **changes: object) -> Task:
    return task(name, cost, **{"period_ns": 1000, **changes})


def test_a_stalled_engine_resumes_where_it_stopped() -> None:
    tasks = [once("a", 10), once("b", 1, offset_ns=6, deadline_ns=5)]
    trace = simulate(plan(tasks), 100, faults=Faults(stalls=(Stall("cpu", 5, 8),)))
    # b comes meanwhile and has the earlier deadline: it goes first when the engine moves again
    assert spans(trace) == [("a", 0, 5), ("b", 8, 9), ("a", 9, 14)]


def test_a_stall_touches_its_engine_only() -> None:
    tasks = [once("a", 10), once("b", 10, engine="gpu")]
    trace = simulate(plan(tasks, [engine(), engine("gpu")]), 100, faults=Faults(stalls=(Stall("gpu", 5, 8),)))
    assert [job.finish_ns for job in trace.jobs] == [10, 13]


def test_a_dead_engine_loses_running_jobs_and_serves_those_that_arrived_meanwhile() -> None:
    often = task("often", 4, period_ns=10)
    trace = simulate(plan([often]), 40, faults=Faults(stalls=(Stall("cpu", 12, 26, lost=True),)))
    # 10 is lost at 12; 20 waits for 26
    assert [(job.status, job.start_ns, job.finish_ns) for job in trace.jobs] == [
        ("done", 0, 4), ("aborted", 10, -1), ("done", 26, 30), ("done", 30, 34),
    ]  # fmt: skip


def test_slow_engines_take_longer_while_they_are_slow() -> None:
    """4 ns at half speed do 2 ns of work; twice slowed, a quarter."""
    for throttle, kind in ((False, "fault"), (True, "throttle")):
        trace = simulate(plan([once("a", 10)]), 100, faults=Faults(
            slowdowns=(Slowdown("cpu", 5, 9, Fraction(2), throttle),)))  # fmt: skip
        assert spans(trace) == [("a", 0, 12)]
        assert [time for time, _, _ in notes(trace, kind)] == [5, 9]
    both = Faults(slowdowns=(Slowdown("cpu", 0, 8, Fraction(2)), Slowdown("cpu", 4, 12, Fraction(2))))
    # 0-4 half: 2, 4-8 quarter: 1, 8-12 half: 2, then 5 more
    assert spans(simulate(plan([once("a", 10)]), 100, faults=both)) == [("a", 0, 17)]


def test_a_lost_frame_reaches_no_stage() -> None:
    stage = task("t", 5, after=("s",), period_ns=100)
    trace = simulate(plan([stage], sensors=[sensor("s", 100)]), 300, faults=Faults(dropouts=(Dropout("s", 50, 150),)))
    assert [(job.frame, job.activation_ns) for job in trace.jobs] == [(0, 0), (2, 200)]


def test_frames_of_a_delay_arrive_late_and_keep_their_deadline() -> None:
    stage = task("t", 5, after=("s",), period_ns=100, deadline_ns=50)
    faults = Faults(delays=(Delay("s", 50, 150, 30),))
    trace = simulate(plan([stage], sensors=[sensor("s", 100)]), 300, faults=faults)
    found = [(job.frame, job.activation_ns, job.deadline_ns, job.finish_ns) for job in trace.jobs]
    assert found == [(0, 0, 50, 5), (1, 130, 150, 135), (2, 200, 250, 205)]


def test_a_frame_overtaken_by_none_arrives_with_those_that_caught_up() -> None:
    """Delayed by more than a period, frame 1 arrives at 350, together with those due meanwhile, in order."""
    stage = task("t", 5, after=("s",), period_ns=100, deadline_ns=50)
    faults = Faults(delays=(Delay("s", 50, 150, 250),))
    trace = simulate(plan([stage], sensors=[sensor("s", 100)]), 500, faults=faults)
    found = [(job.frame, job.activation_ns, job.deadline_ns, job.finish_ns) for job in trace.jobs]
    assert found == [
        (0, 0, 50, 5), (1, 350, 150, 355), (2, 350, 250, 360), (3, 350, 350, 365), (4, 400, 450, 405),
    ]  # fmt: skip


def test_a_burst_brings_frames_at_once() -> None:
    stage = task("t", 5, after=("s",), period_ns=100)
    trace = simulate(plan([stage], sensors=[sensor("s", 100)]), 300, faults=Faults(bursts=(Burst("s", 50, 2),)))
    assert [(job.frame, job.activation_ns, job.finish_ns) for job in trace.jobs] == [
        (0, 0, 5), (1, 100, 105), (2, 100, 110), (3, 100, 115), (4, 200, 205),
    ]  # fmt: skip


def test_foreign_traffic_takes_its_share_of_the_memory() -> None:
    """1 byte/ns demanded of 1: a hog that demands half leaves half (max-min), so 50 ns do 25 ns of work."""
    job = once("a", 100, bytes=100)
    made = plan([job], dram_bandwidth=10**9)
    trace = simulate(made, 1000, faults=Faults(hogs=(Hog("cpu", 50, 100, 5 * 10**8),)))
    assert times(trace, "a") == [(0, 125)]
    small = simulate(made, 1000, faults=Faults(hogs=(Hog("cpu", 0, 1000, 2 * 10**8),)))
    assert times(small, "a") == [(0, 125)]
    assert small.counters["bandwidth_gbps"] == [(0, 0.0), (0, 1.0), (125, 0.2)]
