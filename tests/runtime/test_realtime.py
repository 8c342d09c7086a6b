"""Real-time settings are requested; refusals are reported and not fatal; what the executor itself takes is measured."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from run_plans import MS, Scripted, plan, run, sleep, task

from socsched.runtime.conditions import STAT, Neighbours
from socsched.runtime.options import Options
from socsched.trace.metrics import dispatch_waits, overheads, summary
from socsched.trace.trace import Job, Slice, Trace


def test_releases_are_at_their_nominal_times_and_their_lateness_is_recorded() -> None:
    made = plan(task("a", "s"), sensors={"s": 5 * MS})
    trace = run(made, Scripted(), frames=20)
    assert trace.releases["s"] == [frame * 5 * MS for frame in range(20)]
    late = trace.counters["release_late_ns.s"]
    assert len(late) == 20 and all(value > 0 for _, value in late)
    for job in trace.jobs:
        assert job.activation_ns >= job.frame * 5 * MS
    assert overheads(trace)["release_jitter_ns"]["s"]["count"] == 20


def test_dispatch_overhead_is_the_wait_of_a_job_that_waits_for_nothing_else() -> None:

    def job(name: str, activation: int, start: int, end: int) -> Job:
        return Job(task=name, frame=0, activation_ns=activation, deadline_ns=99, start_ns=start, finish_ns=end,
                   exec_ns=end - start, status="done")  # fmt: skip

    trace = Trace("measured", 100, 0)
    trace.jobs = [job("a", 0, 3, 10), job("b", 5, 14, 20), job("c", 20, 21, 22)]
    rows = (("cpu", (0,), "a", 3, 10), ("cpu", (0, 1), "b", 14, 20), ("gpu", (0,), "c", 21, 22))
    trace.slices = [Slice(engine, lanes, n, name, a, b) for n, (engine, lanes, name, a, b) in enumerate(rows)]
    assert dispatch_waits(trace) == {"a": [3], "b": [4], "c": [1]}, "b could start when a had left lane 0"
    assert overheads(trace)["dispatch_ns"] == {"p50": 3, "p99": 4, "max": 4, "count": 3}
    assert summary([]) is None


def test_a_run_under_real_time_settings_finds_what_any_run_finds() -> None:
    made = plan(task("a", "s"), task("b", "a", lanes=(1,)), sensors={"s": 5 * MS})
    for kind in ("auto", "fifo", "deadline"):
        backend = Scripted(lambda *_: sleep(1))
        trace = run(made, backend, frames=4, options=Options(realtime=kind))
        assert [job.status for job in trace.jobs] == ["done"] * 8
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


# The share of the machine taken by other processes: from artificial counters, and with a process that spins.

TICK = os.sysconf("SC_CLK_TCK")


def stat(busy: int) -> str:
    """Return counters (ticks) with `busy` in six columns of busy time and much idleness."""
    return f"cpu  {busy} {busy} {busy} 99999 7777 {busy} {busy} {busy} 0 0\ncpu0 1 2 3\n"


def test_busy_time_that_is_not_ours_belongs_to_other_processes() -> None:
    texts, own, now = iter([stat(0), stat(10 * TICK)]), iter([5.0, 35.0]), iter([100.0, 120.0])
    neighbours = Neighbours(lambda: next(texts), lambda: next(own), lambda: next(now))
    assert neighbours.taken() == pytest.approx((60 - 30) / 20)


def test_nothing_is_known_without_the_counters() -> None:
    def missing() -> str:
        raise FileNotFoundError

    assert Neighbours(missing).taken() is None
    assert Neighbours(lambda: "nonsense").taken() is None


@pytest.mark.skipif(not STAT.exists(), reason="no /proc/stat")
def test_only_work_of_other_processes_is_counted() -> None:
    neighbours = Neighbours()
    before = time.process_time()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        while time.process_time() - before < 1.0:
            pass
        found = neighbours.taken()
        process.kill()
    assert found is not None and found > 0.1, "one process spins, however little it gets"
