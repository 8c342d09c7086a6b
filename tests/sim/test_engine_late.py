"""Overload: the treatment of a job that will be late, and the frame a full queue drops."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import engine, notes, plan, sensor, task, times

from socsched.cost.cost import Segment
from socsched.faults.model import Burst, Faults
from socsched.planning.plan import ExecutionTimes, Task
from socsched.sim.simulate import run, simulate
from socsched.trace.trace import Trace


def overloaded(on_late: str) -> Trace:
    """12 ns of work every 10 ns, due 13 ns after the release."""
    job = task("t", 12, period_ns=10, deadline_ns=13, on_late=on_late, degraded=(Segment("less", 5, 0, 0),))
    return simulate(plan([job]), 49)


def test_late_jobs_continue_by_default() -> None:
    trace = overloaded("continue")
    assert times(trace, "t")[:4] == [(0, 12), (12, 24), (24, 36), (36, 48)]
    assert [frame for _, _, frame in notes(trace, "miss")] == [1, 2, 3]


def test_a_job_that_cannot_end_in_time_is_skipped() -> None:
    """Frame 1 would end at 24, due 23; frame 2 starts on arrival; frame 3 would end at 44, due 43."""
    trace = overloaded("skip")
    assert times(trace, "t") == [(0, 12), (-1, -1), (20, 32), (-1, -1), (40, -1)]
    assert [job.status for job in trace.jobs] == ["done", "dropped", "done", "dropped", "unfinished"]


def test_a_job_that_is_late_is_aborted_at_its_deadline() -> None:
    trace = overloaded("abort")
    assert times(trace, "t")[:4] == [(0, 12), (12, -1), (23, -1), (33, -1)]
    assert [job.status for job in trace.jobs][:4] == ["done", "aborted", "aborted", "aborted"]
    assert [job.exec_ns for job in trace.jobs][:4] == [12, 11, 10, 10]


def test_a_job_that_would_be_late_takes_the_cheaper_variant() -> None:
    trace = overloaded("degrade")
    assert times(trace, "t")[:4] == [(0, 12), (12, 17), (20, 32), (32, 37)]
    assert {job.status for job in trace.jobs[:4]} == {"done"}
    assert not notes(trace, "miss")


def aborted(**changes: object) -> Task:
    return task("t", **{"period_ns": 100, "deadline_ns": 13, "on_late": "abort", **changes})


def test_a_waiting_job_is_aborted_too() -> None:
    top = task("top", 20, priority=0, period_ns=100)
    trace = simulate(plan([top, aborted(cost_ns=5, priority=1)], [engine(policy="fp")]), 100)
    assert [(job.task, job.status, job.start_ns) for job in trace.jobs] == [("top", "done", 0), ("t", "aborted", -1)]


def test_an_aborted_job_gives_back_both_engines_it_is_on() -> None:
    """Waiting busily at 13 for a kernel of 20 that started at 4: core and accelerator are free again at once."""
    parts = (Segment("pre", 4, 0, 0), Segment("kernel", 20, 0, 0, "gpu", (0,), True))
    others = [task(name, 3, engine=name, offset_ns=6, period_ns=100, deadline_ns=90) for name in ("cpu", "gpu")]
    engines = [engine(), engine("gpu", preemption="none")]
    trace = simulate(plan([aborted(segments=parts), *others], engines), 100)
    assert [job.status for job in trace.jobs] == ["aborted", "done", "done"]
    assert [job.finish_ns for job in trace.jobs] == [-1, 16, 16]


@pytest.mark.parametrize(
    ("overflow", "served", "lost"),
    [("newest", [0, 1, 3, 5], [2, 4, 6, 7, 9]), ("oldest", [0, 2, 4, 7], [1, 3, 5, 6, 8])],
)
def test_a_full_queue_gives_up_one_end(overflow: str, served: list[int], lost: list[int]) -> None:
    """25 ns a frame, one every 10 ns, one may wait: starts at 0, 25, 50, 75, each with the oldest or the latest."""
    slow = task("slow", 25, after=("s",), period_ns=10, deadline_ns=90, queue=1, overflow=overflow)
    trace = simulate(plan([slow], sensors=[sensor("s", 10)]), 100)
    started = [(job.frame, job.start_ns) for job in trace.jobs if job.start_ns >= 0]
    assert started == list(zip(served, (0, 25, 50, 75), strict=True))
    assert sorted(frame for _, _, frame in notes(trace, "drop")) == lost


def test_a_dropped_job_that_takes_others_with_it_is_dropped_once() -> None:
    """A full queue drops the job before it; those behind it are skipped at once, and then there is room."""
    spread = ExecutionTimes((0, 100), interpolate=False)
    stage = task("t", 50, after=("s",), period_ns=1000, deadline_ns=20, queue=1, overflow="oldest", on_late="skip")
    busy = task("busy", 50, period_ns=1000, deadline_ns=5)
    made = plan([replace(stage, times=spread), busy], sensors=[sensor("s", 1000, offset_ns=10)])
    taken = 0
    for seed in range(60):
        trace = simulate(made, 1000, seed=seed, faults=Faults(bursts=(Burst("s", 0, 3),)))
        jobs = [job for job in trace.jobs if job.task == "t"]
        assert [job.frame for job in jobs] == [0, 1, 2, 3]
        taken += all(job.status == "dropped" for job in jobs)
    assert taken, "no case of jobs that went with another one"


@pytest.mark.parametrize("implementation", ["auto", "python"])
def test_a_queue_that_overflows_with_hopeless_jobs_is_emptied_once(implementation: str) -> None:
    """Frames arrive three at a time and none may wait; half of those accepted cannot be in time and are skipped."""
    times = ExecutionTimes((10, 500))
    late = task("late", 10, after=("s",), period_ns=100, deadline_ns=90, queue=0, on_late="skip", times=times)
    blocker = task("busy", 90, period_ns=100, deadline_ns=1)
    bursts = tuple(Burst("s", at, 2) for at in range(50, 1000, 100))
    for overflow in ("oldest", "newest"):
        made = plan([blocker, replace(late, overflow=overflow)], sensors=(sensor("s", 100, offset_ns=10),))
        for seed in range(8):
            trace = run(made, 1000, seed, faults=Faults(bursts=bursts), implementation=implementation).trace
            assert trace is not None
            frames = [job.frame for job in trace.jobs if job.task == "late"]
            assert frames == list(range(len(trace.releases["s"])))
