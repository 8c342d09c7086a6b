"""Real-time settings: derived from the plan, requested, restored; refusals are reported and not fatal."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from typing import Any

import numpy
import pytest
from run_plans import MS, Scripted, plan, run, sleep, task

from socsched.errors import UsageError
from socsched.runtime import realtime
from socsched.runtime.options import Options
from socsched.runtime.overheads import dispatch_waits, overheads, summary
from socsched.trace.trace import Job, Slice, Trace


def in_thread(function: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def test_fifo_priorities_follow_the_order_of_the_plan() -> None:
    tasks = [task(n, priority=p, deadline_ns=d) for n, p, d in (("a", 2, 5), ("b", 0, 9), ("c", 1, 1), ("d", 1, 1))]
    found = [realtime.fifo_priority([t], tasks) for t in tasks]
    assert found == [78, 80, 79, 79]
    assert realtime.fifo_priority(tasks, tasks) == 80, "a worker is as urgent as its most urgent task"
    many = [task(f"t{n}", priority=n) for n in range(100)]
    assert realtime.fifo_priority([many[-1]], many) == 1


def test_a_reservation_serves_all_tasks_of_a_worker_in_the_shortest_period() -> None:
    tasks = [task("a", period_ns=10 * MS, wcet_ns=2 * MS), task("b", period_ns=40 * MS, wcet_ns=8 * MS)]
    found = realtime.reservation(tasks)
    assert found == realtime.Reservation(4 * MS, 10 * MS, 10 * MS)
    soon = task("d", period_ns=20 * MS, wcet_ns=2 * MS, deadline_ns=3 * MS)
    assert realtime.reservation([tasks[0], soon]) == realtime.Reservation(3 * MS, 3 * MS, 10 * MS), "its deadline"
    urgent = replace(soon, deadline_ns=1 * MS)
    assert realtime.reservation([tasks[0], urgent]).deadline_ns == 3 * MS, "as long as the budget at least"
    assert realtime.reservation([task("e", period_ns=10 * MS, wcet_ns=1)]).runtime_ns == 1024
    full = realtime.reservation([task("c", period_ns=MS, wcet_ns=5 * MS, deadline_ns=9 * MS)])
    assert full.runtime_ns <= full.deadline_ns <= full.period_ns


def test_fifo_is_taken_by_workers_or_refused_in_words() -> None:
    def tried() -> tuple[str, int]:
        return realtime.set_fifo(5), os.sched_getscheduler(0)

    refused, kind = in_thread(tried)
    assert (kind == os.SCHED_FIFO) == (not refused)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER, "this thread stays as it was"


def test_a_worker_in_sched_deadline_has_the_budget_of_the_plan_or_says_why_not() -> None:
    def tried() -> tuple[str, int]:
        refused = realtime.set_deadline(realtime.Reservation(2 * MS, 10 * MS, 10 * MS))
        kind = os.sched_getscheduler(0) & ~getattr(os, "SCHED_RESET_ON_FORK", 0x40000000)
        realtime.set_ordinary()
        return refused, kind

    refused, kind = in_thread(tried)
    assert kind == (os.SCHED_OTHER if refused else 6)
    assert not refused or refused.startswith("SCHED_DEADLINE")


def test_refusal_is_a_notice_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(realtime, "_may_lock", lambda: False)
    made = plan(task("a", "s"), task("b", "a", lanes=(1,)), sensors={"s": 5 * MS})
    trace = run(made, Scripted(), frames=3, options=Options(realtime="fifo"))
    assert len(trace.jobs) == 6
    shown = capsys.readouterr().err
    assert shown.count("no real-time scheduling") == 1 and "ulimit -r" in shown and "ulimit -l" in shown


def test_auto_leaves_a_processor_to_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtime, "refusal", lambda: "")
    usable = len(os.sched_getaffinity(0))
    kind, notice = realtime.choose_class("auto", usable)
    assert kind == "off" and "every processor" in notice
    assert realtime.choose_class("auto", usable - 1) == ("fifo", "")
    assert realtime.choose_class("fifo", usable) == ("fifo", "") and realtime.choose_class("off", 1) == ("off", "")
    with pytest.raises(UsageError, match="turbo"):
        realtime.choose_class("turbo", 1)


def test_the_collector_and_the_switch_interval_are_set_for_the_loop_only() -> None:
    before = sys.getswitchinterval()
    with realtime.quiet_interpreter():
        assert not gc.isenabled() and gc.get_freeze_count() > 0 and sys.getswitchinterval() < before
    assert gc.isenabled() and gc.get_freeze_count() == 0 and sys.getswitchinterval() == before


def test_sleeping_never_ends_early_and_lateness_does_not_add_up() -> None:
    start, period = time.monotonic_ns(), MS
    late = []
    for number in range(1, 51):
        realtime.sleep_until(start + number * period)
        late.append(time.monotonic_ns() - start - number * period)
    assert min(late) >= 0
    realtime.sleep_until(start)  # long past
    # each instant is absolute: the last is no later than a loaded machine makes any of them
    assert min(late[-25:]) < 20 * MS


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


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor affinity here")
def test_a_thread_avoids_taken_processors_while_others_are_free() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        pytest.skip("a single processor")

    def kept(*taken: set[int]) -> set[int]:
        realtime.stay_off(taken, allowed)
        return os.sched_getaffinity(0)

    first, rest = {allowed[0]}, set(allowed[1:])
    assert in_thread(lambda: kept(first)) == rest
    assert in_thread(lambda: kept(set(allowed), rest)) == first, "not of all, so of the second set"
    assert in_thread(lambda: kept(set(allowed))) == set(allowed), "nothing would be left"


def test_short_time_slices_are_requested_for_the_calling_thread_only() -> None:
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 12):
        pytest.skip("the length of a turn cannot be asked for before Linux 6.12: boot a newer kernel (uname -r)")

    def turn() -> int:
        attr = realtime._Attr(ctypes.sizeof(realtime._Attr))
        number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
        assert not ctypes.CDLL(None).syscall(number, 0, ctypes.byref(attr), ctypes.sizeof(attr), 0)
        return int(attr.runtime)

    refused, short = in_thread(lambda: (realtime.short_turns(), turn()))
    if refused:
        pytest.skip(refused)
    assert short == 100_000 < turn()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not the C library of GNU")
def test_memory_is_there_before_it_is_needed() -> None:
    code = (
        "import resource, sys\n"
        "from socsched.runtime import realtime\n"
        "realtime.keep_memory()\n"
        "realtime.spare_memory()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "block = bytearray(8 * 2**20)\n"
        "small = [bytes(300) for _ in range(5000)]\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # 8 MiB and 1.5 MiB of small objects are 2,400 pages
    assert int(done.stdout) < 200, done.stdout


def test_names_that_numpy_makes_at_every_look_at_an_array_are_held() -> None:
    names = [*numpy.zeros(1).__array_interface__]
    assert {*names} <= {*realtime._NAMES}
    held = {id(name) for name in realtime._NAMES}
    assert all(id(name) in held for name in names), "the very same strings"


def test_every_run_keeps_the_memory_it_frees_from_its_first_warm_up_frame_on(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(realtime, "keep_memory", lambda: order.append("keep"))
    monkeypatch.setattr(realtime, "spare_memory", lambda: order.append("spare"))
    made = plan(task("a", "s"), sensors={"s": MS})
    run(made, Scripted(lambda *_: order.append("job")), frames=1)
    assert order[0] == "keep" and order.count("spare") == 1
    assert order[-2:] == ["spare", "job"], "spare memory is taken right before the first frame that counts"
