"""Processes that share an accelerator: closed loops, an engine that stays with one process, work launched ahead."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from builders import engine, plan, spans, task, times

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.sim.simulate import run, simulate

BOTH = pytest.mark.parametrize("implementation", ["auto", "python"])


@BOTH
def test_a_closed_loop_releases_when_the_last_frame_ended(implementation: str) -> None:
    """10 ns after each release at the soonest, and not before the net has done with it: 4 + 9 ns."""
    front = task("decode", 4, period_ns=10, closed_by="net")
    net = task("net", 9, after=("decode",), engine="gpu", period_ns=10)
    trace = run(plan([front, net], [engine(), engine("gpu")]), 60, implementation=implementation).trace
    assert trace is not None
    assert trace.releases["decode"] == [0, 13, 26, 39, 52]
    assert times(trace, "net") == [(4, 13), (17, 26), (30, 39), (43, 52), (56, -1)]
    slow = replace(front, period_ns=30)
    assert simulate(plan([slow, net], [engine(), engine("gpu")]), 100).releases["decode"] == [0, 30, 60, 90]


def test_a_closed_loop_outlives_frames_it_loses() -> None:
    """The net could never be in time and is skipped: a lost frame releases the next one."""
    front = task("decode", 4, period_ns=5, closed_by="net")
    net = task("net", 1, after=("decode",), engine="gpu", period_ns=10, deadline_ns=3, on_late="skip")
    trace = simulate(plan([front, net], [engine(), engine("gpu")]), 30)
    assert [job.status for job in trace.jobs if job.task == "net"][:5] == 5 * ["dropped"]
    assert trace.releases["decode"] == [0, 5, 10, 15, 20, 25]


def test_think_time_counts_from_the_last_release() -> None:
    loop = task("a", 10, period_ns=20, gap_ns=30, closed_by="a", times=ExecutionTimes((10, 70)))
    trace = simulate(plan([loop]), 20_000, seed=4)
    ends = {job.frame: job.finish_ns for job in trace.jobs}
    released = trace.releases["a"]
    gaps = [after - before for before, after in pairwise(released)]
    assert min(gaps) >= 20 and {20 <= gap <= 50 or gap == 70 for gap in gaps} == {True}
    assert all(released[frame + 1] >= ends[frame] for frame in range(len(released) - 1))


def test_a_loop_must_be_closed_by_what_its_data_leads_to() -> None:
    stranger = task("b", 5)
    for made in ([task("a", 5, closed_by="b"), stranger], [task("a", 5, closed_by="missing")]):
        with pytest.raises(UsageError, match="closed by"):
            simulate(plan(made), 100)


def contexts(linger_ns: int, slice_ns: int, *, process: str = "", policy: str = "fifo") -> Plan:
    """Two that submit to an accelerator through one context each: 30 ns and, from 5 ns on, 7 ns of work, twice."""

    def one(name: str, work: int, offset: int) -> Task:
        parts = (Segment("submit", 0, 0, 0, "ctx", (0,)), Segment(f"{name}.work", work, 0, 0))
        made = task(name, segments=parts * 2, engine=f"acc-{name}", period_ns=1000, offset_ns=offset, process=process)
        return replace(made, priority=int(name == "a"))

    gate = engine("ctx", preemption="segment", policy=policy, linger_ns=linger_ns, quantum_ns=slice_ns)
    engines = [gate, *(engine(f"acc-{name}", preemption="segment", policy=policy) for name in "ab")]
    return plan([one("a", 30, 0), one("b", 7, 5)], engines)


@BOTH
@pytest.mark.parametrize(
    ("linger_ns", "slice_ns", "starts"),
    [
        (0, 50, [(5, 12), (12, 19)]),  # anybody's at once
        (20, 1000, [(20, 27), (27, 34)]),  # 20 ns after a used it at 0, then b's
        (1000, 16, [(16, 23), (23, 30)]),  # the end of the slice comes first
        (1000, 1000, [(1000, 1007), (1007, 1014)]),  # a's second submission at 30 keeps it
    ],
)
def test_a_context_stays_for_its_linger_time_or_until_its_slice_ends(
    implementation: str, linger_ns: int, slice_ns: int, starts: list[tuple[int, int]]
) -> None:
    trace = run(contexts(linger_ns, slice_ns), 1100, implementation=implementation).trace
    assert trace is not None
    assert [(s, e) for name, s, e in spans(trace) if name == "b.work"][:2] == starts


def test_tasks_of_one_process_share_their_context() -> None:
    trace = simulate(contexts(1000, 1000, process="p"), 100)
    assert [(s, e) for name, s, e in spans(trace) if name == "b.work"] == [(5, 12), (12, 19)]


@BOTH
@pytest.mark.parametrize(("in_flight", "low", "high"), [(1, [0], 10), (2, [0, 10], 20), (3, [0, 10, 20], 30)])
def test_what_was_launched_ahead_runs_before_an_urgent_job_elsewhere(
    implementation: str, in_flight: int, low: list[int], high: int
) -> None:
    """XSched's level 1 across engines: submissions and kernels alternate, the urgent job arrives at 5 ns."""
    parts = (Segment("submit", 0, 0, 0, "cpu", (0,)), Segment("kernel", 10, 0, 0))
    slow = task("slow", segments=parts * 4, engine="gpu", period_ns=1000, priority=1)
    urgent = task("urgent", segments=parts[1:] * 2, engine="gpu", period_ns=1000, offset_ns=5)
    engines = [
        engine("cpu", preemption="segment", policy="hhpf"),
        engine("gpu", preemption="segment", policy="hhpf", in_flight=in_flight),
    ]
    trace = run(plan([slow, urgent], engines), 200, implementation=implementation).trace
    assert trace is not None
    gpu = sorted((s.start_ns, trace.jobs[s.job].task) for s in trace.slices if s.engine == "gpu")
    assert [start for start, name in gpu if name == "slow" and start < high] == low[:1]
    assert [start for start, name in gpu if name == "urgent"] == [10, 20]
    assert times(trace, "slow")[0][1] == 60
