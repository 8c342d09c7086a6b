"""Accelerators: forms of preemption, jobs that alternate between engines, regrouped lanes, weights in memory."""

from __future__ import annotations

import pytest
from builders import engine, notes, plan, spans, task, times

from socsched.cost.cost import Segment
from socsched.planning.plan import Plan, Task
from socsched.sim.simulate import simulate


def kernels(count: int, each: int = 10, **changes: object) -> Plan:
    """A job of several kernels, and a short one of higher priority that arrives in the middle of the second."""
    parts = tuple(Segment(f"k{i}", each, 0, 0) for i in range(count))
    low = task("low", segments=parts, period_ns=1000, priority=1)
    high = task("high", 4, period_ns=1000, offset_ns=15)
    return plan([low, high], [engine(policy="fp", **changes)])


def test_kill_and_restart_loses_the_running_kernel_only() -> None:
    """REEF (Han et al., OSDI 2022): the urgent job waits for the reset; of k1 5 ns are lost."""
    trace = simulate(kernels(3, preemption="restart", reset_ns=2), 100)
    assert spans(trace) == [
        ("k0", 0, 10), ("k1", 10, 15), ("switch", 15, 17), ("high", 17, 21), ("k1", 21, 31), ("k2", 31, 41),
    ]  # fmt: skip
    assert [(job.exec_ns, job.preemptions) for job in trace.jobs] == [(35, 1), (6, 0)]
    assert notes(trace, "fault") == [(15, "low", 0)]


@pytest.mark.parametrize(("in_flight", "start", "end"), [(1, 20, 54), (2, 30, 54), (3, 40, 54), (4, 50, 54)])
def test_kernels_in_flight_run_before_a_preemption_takes_effect(in_flight: int, start: int, end: int) -> None:
    """XSched (Shen et al., OSDI 2025), level 1: what was launched ahead cannot be taken back."""
    trace = simulate(kernels(5, preemption="segment", in_flight=in_flight), 100)
    assert times(trace, "high") == [(start, start + 4)]
    assert times(trace, "low") == [(0, end if in_flight < 4 else 50)]


def offloading(hold: bool) -> Task:
    parts = (Segment("pre", 5, 0, 0), Segment("kernel", 10, 0, 0, "gpu", (0,), hold), Segment("post", 3, 0, 0))
    return task("offload", segments=parts, period_ns=1000, priority=1)


def two_engines(*tasks: Task) -> Plan:
    return plan(tasks, [engine(policy="fp"), engine("gpu", preemption="none", policy="fp")])


def test_busy_waiting_keeps_the_core() -> None:
    trace = simulate(two_engines(offloading(True), task("rest", 20, period_ns=1000, priority=2)), 100)
    assert spans(trace, "offload") == [("pre", 0, 5), ("wait", 5, 15), ("kernel", 5, 15), ("post", 15, 18)]
    assert spans(trace, "rest") == [("rest", 18, 38)]


def test_suspension_gives_the_core_to_others() -> None:
    trace = simulate(two_engines(offloading(False), task("rest", 20, period_ns=1000, priority=2)), 100)
    assert spans(trace, "offload") == [("pre", 0, 5), ("kernel", 5, 15), ("post", 15, 18)]
    assert spans(trace, "rest") == [("rest", 5, 15), ("rest", 18, 28)]


@pytest.mark.parametrize(("cost", "post"), [(4, (15, 18)), (12, (19, 22))])
def test_a_busy_waiting_job_can_be_preempted(cost: int, post: tuple[int, int]) -> None:
    """An urgent job at 7: its 4 are over before the kernel is, 12 are not, and then it is `post` that waits."""
    urgent = task("urgent", cost, offset_ns=7, priority=0, period_ns=1000)
    trace = simulate(two_engines(offloading(True), urgent), 100)
    assert times(trace, "urgent") == [(7, 7 + cost)]
    assert spans(trace, "offload")[-1] == ("post", *post)
    waits = [(start, end) for name, start, end in spans(trace, "offload") if name == "wait"]
    assert waits == ([(5, 7), (11, 15)] if cost == 4 else [(5, 7)])


def test_kernels_of_two_tasks_queue_up_on_the_accelerator() -> None:
    """Both suspend: the second's kernel waits for the first's, its core works meanwhile."""
    other = task("other", segments=(Segment("pre2", 2, 0, 0), Segment("kernel2", 6, 0, 0, "gpu", (0,))),
                 period_ns=1000, priority=0)  # fmt: skip
    trace = simulate(two_engines(offloading(False), other), 100)
    # pre2 0-2, kernel2 2-8; pre 2-7, kernel from 8 when the accelerator is free
    assert spans(trace, "other") == [("pre2", 0, 2), ("kernel2", 2, 8)]
    assert spans(trace, "offload") == [("pre", 2, 7), ("kernel", 8, 18), ("post", 18, 21)]


def test_lanes_used_in_another_grouping_are_regrouped_first() -> None:
    """As a spatial partition is reconfigured: whole, then half of it, then whole again."""
    whole = task("whole", 10, lanes=(0, 1, 2, 3), period_ns=100)
    half = task("half", 5, lanes=(0, 1), offset_ns=20, period_ns=1000)
    trace = simulate(plan([whole, half], [engine(lanes=4, reshape_ns=3)]), 300)
    assert spans(trace) == [
        ("whole", 0, 10), ("switch", 20, 23), ("half", 23, 28), ("switch", 100, 103), ("whole", 103, 113),
        ("whole", 200, 210),
    ]  # fmt: skip


def test_weights_used_longest_ago_make_room() -> None:
    """Three times 40 bytes in 100, fetched at 1 byte/ns: a and b, then c drives out b, which then drives out a or c.

    a at 0, 200, 400; b at 100, 500; c at 300.  At 300 b was used before a; at 500 c before a.
    """
    common = {"weights_bytes": 40, "deadline_ns": 90}
    tasks = [
        task("a", 5, period_ns=200, **common),
        task("b", 5, period_ns=400, offset_ns=100, **common),
        task("c", 5, period_ns=1000, offset_ns=300, **common),
    ]
    trace = simulate(plan(tasks, [engine(memory_bytes=100, swap_bandwidth=10**9)]), 590)
    responses = [(job.task, job.activation_ns, job.finish_ns - job.activation_ns) for job in trace.jobs]
    assert responses == [("a", 0, 45), ("b", 100, 45), ("a", 200, 5), ("c", 300, 45), ("a", 400, 5), ("b", 500, 45)]
    roomy = simulate(plan(tasks, [engine(memory_bytes=120, swap_bandwidth=10**9)]), 590)
    assert [job.finish_ns - job.activation_ns for job in roomy.jobs] == [45, 45, 5, 45, 5, 5]
