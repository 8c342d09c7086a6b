"""The simulator's semantics, by small worked examples."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from builders import MS, engine, notes, places, plan, sensor, spans, task, times

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.faults.model import Burst, Delay, Dropout, Faults, Hog, Overrun, Slowdown, Stall
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.sim.kernel import values
from socsched.sim.simulate import run, simulate
from socsched.trace.metrics import result
from socsched.trace.trace import Trace


def pair(preemption: str, switch_ns: int = 0) -> Plan:
    """A long job of three segments, and a short one of higher priority that arrives in the middle of the second."""
    parts = tuple(Segment(f"k{i}", 10, 0, 0) for i in range(3))
    low = task("low", segments=parts, period_ns=1000, priority=1)
    high = task("high", 4, period_ns=1000, offset_ns=15)
    return plan([low, high], [engine(policy="fp", preemption=preemption, switch_ns=switch_ns)])


@pytest.mark.parametrize(
    ("preemption", "high", "low", "blocking", "preemptions"),
    [("full", (15, 19), (0, 34), 0, 1), ("segment", (20, 24), (0, 34), 5, 1), ("none", (30, 34), (0, 30), 15, 0)],
)
def test_preemption_kinds(
    preemption: str, high: tuple[int, int], low: tuple[int, int], blocking: int, preemptions: int
) -> None:
    trace = simulate(pair(preemption), 100)
    assert (times(trace, "high"), times(trace, "low")) == ([high], [low])
    assert [job.blocking_ns for job in trace.jobs] == [0, blocking]
    assert [job.preemptions for job in trace.jobs] == [preemptions, 0]


def test_the_resuming_job_pays_for_the_switch() -> None:
    trace = simulate(pair("full", switch_ns=3), 100)
    assert spans(trace) == [
        ("k0", 0, 10),
        ("k1", 10, 15),
        ("high", 15, 19),
        ("switch", 19, 22),
        ("k1", 22, 27),
        ("k2", 27, 37),
    ]
    assert [job.exec_ns for job in trace.jobs] == [33, 4]


def test_full_queue_drops_the_newest_and_nothing_downstream_runs() -> None:
    slow = task("slow", 25, after=("s",), period_ns=10, deadline_ns=90, queue=1)
    last = task("last", 1, after=("slow",), period_ns=10, deadline_ns=90, lanes=(1,))
    trace = simulate(plan([slow, last], [engine(lanes=2)], sensors=[sensor("s", 10)]), 100)
    # 0 runs to 25, 1 waits, 2 finds it full; 1 runs to 50, 3 took the place at 30, 4 is lost; at 50 frame 5 follows 3.
    assert [job.frame for job in trace.jobs if job.status == "dropped"] == [2, 4, 6, 7, 9]
    assert [job.frame for job in trace.jobs if job.task == "last"] == [0, 1, 3, 5]
    drops = [(n.time_ns, n.subject, n.frame) for n in trace.instants if n.kind == "drop"]
    assert drops == [(20, "slow", 2), (40, "slow", 4), (60, "slow", 6), (70, "slow", 7), (90, "slow", 9)]


def test_energy_and_utilization_equal_hand_computation() -> None:
    job = task("t", 4 * MS, bytes=8 * MS, period_ns=10 * MS, lanes=(0, 1))
    cpu = engine(lanes=4, idle_mw=100, dynamic_mw=2000)
    memory = {"dram_bandwidth": 10**11, "dram_picojoule_per_byte": 30.0}
    made = plan([job], [cpu, engine("gpu", idle_mw=50)], base_mw=500, **memory)
    figures = result(simulate(made, 1_000 * MS), made)
    busy = 100 * 2 * 4 * MS
    assert figures["engines"]["cpu"] == {"utilization": 0.2, "energy_mj": 100 + 2000 * 0.2, "busy_ns": busy}
    assert figures["engines"]["gpu"] == {"utilization": 0.0, "energy_mj": 50.0, "busy_ns": 0}
    # base + idle + dynamic + DRAM, in mJ over one second; the peak is while the job runs, 2 bytes/ns at 30 pJ each.
    assert figures["energy_mj"] == 500 + 150 + 400 + 100 * 8 * MS * 30 / 1e9
    assert figures["power_mw"] == {"mean": figures["energy_mj"], "peak": 500 + 150 + 1000 + 60}
    assert figures["bandwidth_gbps"] == {"mean": 0.8, "peak": 2.0}


def test_faults() -> None:
    stages = [task("a", 10, after=("s",), period_ns=100), task("b", 10, after=("a",), period_ns=100)]
    made = plan(stages, sensors=[sensor("s", 100)])
    faults = Faults(
        dropouts=(Dropout("s", 100, 200),),
        slowdowns=(Slowdown("cpu", 205, 215, Fraction(2)),),
        overruns=(Overrun("b", Fraction(1), Fraction(3)),),
    )
    trace = simulate(made, 400, faults=faults)
    # 5 at full speed, 10 at half, the rest of a at full: a ends at 215; b always takes three times its 10.
    assert times(trace, "a") == [(0, 10), (200, 215), (300, 310)]
    assert times(trace, "b") == [(10, 40), (215, 245), (310, 340)]
    assert [(n.time_ns, n.kind, n.subject) for n in trace.instants] == [
        (10, "fault", "b"),
        (100, "drop", "s"),
        (205, "fault", "cpu"),
        (215, "fault", "cpu"),
        (215, "fault", "b"),
        (310, "fault", "b"),
    ]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"engine": "npu"}, "engine 'npu'"),
        ({"lanes": (3,)}, r"lanes \[3\]"),
        ({"after": ("missing",)}, "'missing' is no task"),
        ({"timer": False}, "must trigger"),
        ({"period_ns": 0}, "period above 0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        simulate(plan([task("t", 1, **changes)]), 100)


def test_the_compiled_kernel_is_told_every_named_number_and_function() -> None:
    """What the interpreted kernel takes from values.py is C in the compiled one: declared in kernel.pxd, each once."""
    declared = Path(values.__file__).with_name("kernel.pxd").read_text()
    numbers = [name for name in vars(values) if name.isupper()]
    assert sorted(re.findall(r'(\w+) "SOCSCHED_\1"', declared)) == sorted(numbers)
    functions = [name for name, value in vars(values).items() if callable(value) and name.islower()]
    assert functions and all(re.search(rf'\b{name} "(?i:SOCSCHED_)\w+" \(', declared) for name in functions)


# Accelerators: forms of preemption, jobs that alternate between engines, regrouped lanes, weights in memory.


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


# A job that cannot be preempted blocks until its end and no longer.


@pytest.mark.parametrize(("preemption", "start", "blocking"), [("none", 10, 6), ("full", 4, 0)])
def test_lower_priority_blocks_until_it_ends(preemption: str, start: int, blocking: int) -> None:
    low = task("low", 10, period_ns=100, priority=2)
    high = task("high", 3, period_ns=100, offset_ns=4, priority=1)
    trace = simulate(plan([high, low], [engine(policy="fp", preemption=preemption)]), 100)
    job = next(job for job in trace.jobs if job.task == "high")
    assert (job.start_ns, job.blocking_ns) == (start, blocking)


# Faults on the clock: engines that stall, fail or throttle, frames that arrive late or in bursts, foreign traffic.


def once(name: str, cost: int, **changes: object) -> Task:
    return task(name, cost, **{"period_ns": 1000, **changes})


def test_a_stalled_engine_resumes_where_it_stopped() -> None:
    tasks = [once("a", 10), once("b", 1, offset_ns=6, deadline_ns=5)]
    trace = simulate(plan(tasks), 100, faults=Faults(stalls=(Stall("cpu", 5, 8),)))
    # b comes meanwhile and has the earlier deadline: it goes first when the engine moves again
    assert spans(trace) == [("a", 0, 5), ("b", 8, 9), ("a", 9, 14)]


def test_a_dead_engine_loses_running_jobs_and_serves_those_that_arrived_meanwhile() -> None:
    often = task("often", 4, period_ns=10)
    trace = simulate(plan([often]), 40, faults=Faults(stalls=(Stall("cpu", 12, 26, lost=True),)))
    # 10 is lost at 12; 20 waits for 26
    assert [(job.status, job.start_ns, job.finish_ns) for job in trace.jobs] == [
        ("done", 0, 4), ("aborted", 10, -1), ("done", 26, 30), ("done", 30, 34),
    ]  # fmt: skip


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


# Jobs on several lanes: global, clustered and partitioned, the cost of migration, cores of different speed.


def free(name: str, cost: int, **changes: object) -> Task:
    """Return a task that takes one of two lanes, whichever is free."""
    return task(name, cost, **{"lanes": (0, 1), "width": 1, "period_ns": 1000, **changes})


def test_global_fixed_priority_serves_the_most_urgent_two() -> None:
    made = plan([free("a", 4, priority=0), free("b", 7, priority=1), free("c", 6, priority=2)],
                [engine(lanes=2, policy="fp")])  # fmt: skip
    trace = simulate(made, 100)
    assert [places(trace, name) for name in "abc"] == [[((0,), 0, 4)], [((1,), 0, 7)], [((0,), 4, 10)]]


def test_a_preempted_job_goes_on_where_a_lane_is_free_and_pays_switch_and_migration() -> None:
    """At 2 the pinned job takes lane 0; its tenant moves to lane 1 and drives out the least urgent, which must wait."""
    pinned = task("pinned", 3, lanes=(0,), offset_ns=2, priority=0, period_ns=1000)
    mobile = free("mobile", 6, priority=1)
    least = task("least", 4, lanes=(1,), priority=2, period_ns=1000)
    trace = simulate(plan([pinned, mobile, least], [engine(lanes=2, policy="fp", switch_ns=2, migration_ns=1)]), 100)
    assert places(trace, "pinned") == [((0,), 2, 5)]
    assert places(trace, "mobile") == [((0,), 0, 2), ((1,), 2, 5), ((1,), 5, 9)]
    assert spans(trace, "least") == [("least", 0, 2), ("switch", 9, 11), ("least", 11, 13)]
    assert [(job.preemptions, job.migrations) for job in trace.jobs] == [(1, 1), (1, 0), (0, 0)]


def test_global_edf_suffers_from_dhalls_effect_and_fixed_priority_need_not() -> None:
    """Dhall & Liu (Oper. Res. 26(1) 1978): light tasks with earlier deadlines make the heavy one late."""
    light = [free(f"l{i}", 2, period_ns=10, priority=1 + i) for i in range(2)]
    heavy = free("heavy", 10, period_ns=11, priority=0)
    made = plan([*light, heavy], [engine(lanes=2)])
    assert times(simulate(made, 13), "heavy")[0] == (2, 12)
    assert simulate(made, 13).instants[0].kind == "miss"
    by_priority = simulate(made, 11, policy="fp")
    assert times(by_priority, "heavy") == [(0, 10)]
    assert [times(by_priority, f"l{i}")[0] for i in range(2)] == [(0, 2), (2, 4)]
    assert not by_priority.instants


@pytest.mark.parametrize(("width", "end"), [(1, 10), (2, 20)])
def test_wide_jobs_take_as_many_lanes_as_they_need(width: int, end: int) -> None:
    jobs = [free(f"j{i}", 10, width=width) for i in range(2)]
    trace = simulate(plan(jobs, [engine(lanes=2)]), 100)
    assert [job.finish_ns for job in trace.jobs] == [10, end]


def test_faster_cores_are_taken_first_and_slower_ones_take_longer() -> None:
    """Capacities 512 and 1024: twice the time on the little core, and a job that runs there stays."""
    made = plan([free("a", 10), free("b", 10), free("c", 10, offset_ns=12)], [engine(lanes=2, capacities=(512, 1024))])
    trace = simulate(made, 100)
    assert [places(trace, name) for name in "abc"] == [[((1,), 0, 10)], [((0,), 0, 20)], [((1,), 12, 22)]]


# Overload: the treatment of a job that will be late, and the frame a full queue drops.


def overloaded(on_late: str) -> Trace:
    """12 ns of work every 10 ns, due 13 ns after the release."""
    job = task("t", 12, period_ns=10, deadline_ns=13, on_late=on_late, degraded=(Segment("less", 5, 0, 0),))
    return simulate(plan([job]), 49)


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


# Every policy on a worked example that distinguishes it from the others.


def test_round_robin_takes_turns_of_a_quantum() -> None:
    made = plan([once("a", 7), once("b", 4)], [engine(policy="rr", quantum_ns=3)])
    assert spans(simulate(made, 100)) == [("a", 0, 3), ("b", 3, 6), ("a", 6, 9), ("b", 9, 10), ("a", 10, 11)]


@pytest.mark.parametrize("policy", ["fifo", "edf", "fp", "llf"])
def test_a_quantum_means_nothing_to_policies_without_turns(policy: str) -> None:
    """Whatever else an engine's file states, equals do not take turns and no job is interrupted."""
    tasks = [once("a", 7), once("b", 4), once("c", 5, offset_ns=2)]
    plain, left_over = (simulate(plan(tasks, [engine(policy=policy, quantum_ns=ns)]), 100) for ns in (0, 3))
    assert spans(left_over) == spans(plain) and left_over == plain


def test_round_robin_lets_a_late_comer_wait_for_its_turn() -> None:
    made = plan([once("a", 7), once("b", 4), once("c", 3, offset_ns=4)], [engine(policy="rr", quantum_ns=3)])
    # c queues up at 4, behind a (which queued at 3) and before b (which queues at 6)
    expected = [("a", 0, 3), ("b", 3, 6), ("a", 6, 9), ("c", 9, 12), ("b", 12, 13), ("a", 13, 14)]
    assert spans(simulate(made, 100)) == expected


def test_least_laxity_first_is_evaluated_every_millisecond() -> None:
    """Laxities 4 (b) and 6 (a): a waits until its own is smaller, then both take turns; of equals the first listed."""
    made = plan([task("b", 6 * MS, deadline_ns=10 * MS, period_ns=100 * MS),
                 task("a", 3 * MS, deadline_ns=9 * MS, period_ns=100 * MS)])  # fmt: skip
    found = [(name, start // MS, end // MS) for name, start, end in spans(simulate(made, 50 * MS, policy="llf"))]
    assert found == [("b", 0, 3), ("a", 3, 4), ("b", 4, 5), ("a", 5, 6), ("b", 6, 7), ("a", 7, 8), ("b", 8, 9)]


def test_criticality_comes_before_deadlines() -> None:
    tasks = [
        once("soft", 5, deadline_ns=10, criticality="soft"),
        once("hard", 5, offset_ns=1, deadline_ns=100, criticality="hard"),
        once("hard-sooner", 2, offset_ns=2, deadline_ns=50, criticality="hard"),
    ]
    trace = simulate(plan(tasks), 100, policy="edf-criticality")
    assert spans(trace) == [
        ("soft", 0, 1), ("hard", 1, 2), ("hard-sooner", 2, 4), ("hard", 4, 8), ("soft", 8, 12),
    ]  # fmt: skip


def test_heterogeneous_highest_priority_first_stops_lower_ones_everywhere() -> None:
    """XSched's rule: while the urgent job is on the accelerator, the cores do nothing for others."""
    low = once("low", 10, priority=1)
    high = once("high", 5, engine="gpu", offset_ns=2, priority=0)
    trace = simulate(plan([low, high], [engine(), engine("gpu")]), 100, policy="hhpf")
    assert spans(trace) == [("low", 0, 2), ("high", 2, 7), ("low", 7, 15)]
    apart = simulate(plan([low, high], [engine(), engine("gpu")]), 100, policy="fp")
    assert spans(apart) == [("low", 0, 10), ("high", 2, 7)]


def test_non_preemptive_variants_start_in_order_and_run_to_the_end() -> None:
    tasks = [once("long", 10, deadline_ns=100), once("urgent", 2, offset_ns=1, deadline_ns=12),
             once("next", 2, offset_ns=1, deadline_ns=50)]  # fmt: skip
    trace = simulate(plan(tasks), 100, policy="np-edf")
    assert spans(trace) == [("long", 0, 10), ("urgent", 10, 12), ("next", 12, 14)]


def test_a_reservation_is_served_until_its_budget_is_spent_and_again_at_its_deadline() -> None:
    """Budget 2 in every 5, hard: 2 of 4 by its deadline 5, the rest from 5; no other job uses the gap."""
    served = once("served", 4, budget_ns=2, server_ns=5)
    plain = once("plain", 2, deadline_ns=4)
    trace = simulate(plan([served, plain], [engine(policy="cbs")]), 100)
    assert spans(trace) == [("plain", 0, 2), ("served", 2, 4), ("served", 5, 7)]


def test_an_overrunning_reservation_does_not_delay_others_beyond_its_share() -> None:
    """Abeni & Buttazzo's isolation: a job of 50 in a reservation of 2 in 10 leaves 8 in 10 to the other, EDF would not.

    Reservation: deadlines 10, 20, 30 ...; the other: 7 every 10, due at 10, 20 ...  Of equal deadlines the reserved job
    was activated first (0) and keeps its place: 0-2, 10-12, ...
    """
    greedy = once("greedy", 50, budget_ns=2, server_ns=10, deadline_ns=9)
    other = task("other", 7, period_ns=10, deadline_ns=10)
    trace = simulate(plan([greedy, other], [engine(policy="cbs")]), 40)
    assert times(trace, "other") == [(2, 9), (12, 19), (22, 29), (32, 39)]
    assert spans(trace, "greedy") == [("greedy", begin, begin + 2) for begin in (0, 10, 20, 30)]
    assert times(simulate(plan([greedy, other]), 70, policy="edf"), "other")[0] == (50, 57)


def test_a_reservation_that_wakes_up_with_too_much_budget_gets_a_new_deadline() -> None:
    """Budget 40 in 100.  At 0 it runs 10, due 100; at 40 the 30 left exceed (100 - 40) * 40/100: due 140, full.

    A job due at 120 is then served first; with the old deadline it would have come second.
    """
    woken = task("woken", 10, period_ns=40, budget_ns=40, server_ns=100)
    probe = once("probe", 35, offset_ns=40, deadline_ns=80)
    trace = simulate(plan([woken, probe], [engine(policy="cbs")]), 100)
    assert spans(trace)[:3] == [("woken", 0, 10), ("probe", 40, 75), ("woken", 75, 85)]


def test_a_reservation_that_wakes_up_with_little_budget_keeps_its_deadline() -> None:
    """At 80 the 5 left are within (100 - 80) * 40/100 = 8: due 100 still, before a job due at 120."""
    woken = task("woken", 35, period_ns=80, budget_ns=40, server_ns=100)
    probe = once("probe", 35, offset_ns=80, deadline_ns=40)
    trace = simulate(plan([woken, probe], [engine(policy="cbs")]), 160)
    # its 5 are spent by 85; the rest waits for 100, due 200
    assert spans(trace) == [("woken", 0, 35), ("woken", 80, 85), ("probe", 85, 120), ("woken", 120, 150)]


def test_a_turn_ends_where_a_job_leaves_the_lanes() -> None:
    """What is left of a quantum on one engine neither runs out on another nor is there on the way back."""
    parts = (Segment("there", 2, 0, 0), Segment("away", 20, 0, 0, engine="y", lanes=(0,)), Segment("back", 4, 0, 0))
    made = plan(
        [once("a", 26, segments=parts), once("b", 9, offset_ns=20)],
        [engine(policy="rr", quantum_ns=3), engine("y", policy="edf")],
    )
    assert sorted(spans(simulate(made, 100)), key=lambda span: span[1]) == [
        ("there", 0, 2),
        ("away", 2, 22),
        ("b", 20, 23),
        ("back", 23, 26),
        ("b", 26, 29),
        ("back", 29, 30),
        ("b", 30, 33),
    ]


def test_a_reservation_is_given_back_while_its_task_is_on_an_engine_without_them() -> None:
    """Budget 2 in 42 on x, rounds of 4 on y, where every job of `a` begins.

    Frame 0 is on y until 8 and spends its budget on x until 10, due 50, so that it is aborted at 20.  Frame
    1 comes at 40, shares y with `b`, which has been there since 37, and has its turn from 49 to 53: the budget given
    back at 50 neither ends that turn nor is lost.  What is on y does not wait for a budget.
    """
    parts = (Segment("y", 8, 0, 0, engine="y", lanes=(0,)), Segment("x", 5, 0, 0))
    first = task("a", 13, segments=parts, engine="x", period_ns=40, deadline_ns=20, on_late="abort",
                 budget_ns=2, server_ns=42)  # fmt: skip
    engines = [engine("x", policy="cbs"), engine("y", policy="rr", quantum_ns=4)]
    trace = simulate(plan([first, once("b", 12, engine="y", offset_ns=37)], engines), 80)
    assert spans(trace, "a") == [("y", 0, 8), ("x", 8, 10), ("y", 41, 45), ("y", 49, 53), ("x", 53, 55)]
    assert spans(trace, "b") == [("b", 37, 41), ("b", 45, 49), ("b", 53, 57)]


# Processes that share an accelerator: closed loops, an engine that stays with one process, work launched ahead.


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
