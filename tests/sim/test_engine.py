"""The simulator's semantics, by small worked examples."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
from builders import MS, engine, plan, sensor, task

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.faults.model import Dropout, Faults, Overrun, Slowdown
from socsched.planning.plan import Plan
from socsched.sim.kernel import values
from socsched.sim.policies import get_policy
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result
from socsched.trace.trace import Trace


def spans(trace: Trace) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns, s.end_ns) for s in trace.slices]


def times(trace: Trace, name: str) -> list[tuple[int, int]]:
    return [(job.start_ns, job.finish_ns) for job in trace.jobs if job.task == name]


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


def test_gang_takes_its_lanes_together_and_others_fill_the_rest() -> None:
    gang = task("gang", 10, lanes=(0, 1), priority=1, period_ns=1000)
    top = task("top", 6, lanes=(0,), priority=0, period_ns=1000)
    filler = task("filler", 20, lanes=(1,), priority=2, period_ns=1000)
    trace = simulate(plan([gang, top, filler], [engine(lanes=2, policy="fp")]), 100)
    assert spans(trace) == [("top", 0, 6), ("filler", 0, 6), ("gang", 6, 16), ("filler", 16, 30)]


def test_jobs_of_a_task_run_one_at_a_time_in_frame_order() -> None:
    late = task("late", 15, period_ns=10, deadline_ns=10, lanes=(0, 1))
    trace = simulate(plan([late], [engine(lanes=4)]), 45)
    assert times(trace, "late") == [(0, 15), (15, 30), (30, 45), (-1, -1), (-1, -1)]
    assert [(n.time_ns, n.kind, n.frame) for n in trace.instants] == [
        (15, "miss", 0),
        (30, "miss", 1),
        (40, "miss", 3),
        (45, "miss", 2),
    ]


def test_join_waits_for_all_inputs_of_the_frame() -> None:
    sensors = [sensor("a", 100), sensor("b", 100, offset_ns=30)]
    fuse = task("fuse", 5, after=("a", "left"), period_ns=100, deadline_ns=50)
    left = task("left", 10, after=("b",), period_ns=100)
    trace = simulate(plan([fuse, left], sensors=sensors), 200)
    joined = [job for job in trace.jobs if job.task == "fuse"]
    assert [(job.frame, job.activation_ns, job.finish_ns) for job in joined] == [(0, 40, 45), (1, 140, 145)]
    assert joined[1].deadline_ns == 150


def test_full_queue_drops_the_newest_and_nothing_downstream_runs() -> None:
    slow = task("slow", 25, after=("s",), period_ns=10, deadline_ns=90, queue=1)
    last = task("last", 1, after=("slow",), period_ns=10, deadline_ns=90, lanes=(1,))
    trace = simulate(plan([slow, last], [engine(lanes=2)], sensors=[sensor("s", 10)]), 100)
    # 0 runs to 25, 1 waits, 2 finds it full; 1 runs to 50, 3 took the place at 30, 4 is lost; at 50 frame 5 follows 3.
    assert [job.frame for job in trace.jobs if job.status == "dropped"] == [2, 4, 6, 7, 9]
    assert [job.frame for job in trace.jobs if job.task == "last"] == [0, 1, 3, 5]
    drops = [(n.time_ns, n.subject, n.frame) for n in trace.instants if n.kind == "drop"]
    assert drops == [(20, "slow", 2), (40, "slow", 4), (60, "slow", 6), (70, "slow", 7), (90, "slow", 9)]


def test_a_frame_that_arrives_as_the_queue_empties_is_kept() -> None:
    slow = task("slow", 20, after=("s",), period_ns=10, queue=1)
    trace = simulate(plan([slow], sensors=[sensor("s", 20)]), 100)
    assert {job.status for job in trace.jobs} == {"done"}
    assert "queue.slow" not in trace.counters


def test_reads_sample_the_latest_finished_output_at_start() -> None:
    fast = task("fast", 2, after=("s",), period_ns=10)
    control = task("control", 3, period_ns=25, offset_ns=10, reads=("fast", "s"), lanes=(1,))
    trace = simulate(plan([fast, control], [engine(lanes=2)], sensors=[sensor("s", 10)]), 60)
    sampled = [(job.start_ns, dict(job.sampled)) for job in trace.jobs if job.task == "control"]
    assert sampled == [(10, {"fast": 0, "s": 1}), (35, {"fast": 3, "s": 3})]


def test_two_equal_memory_bound_jobs_each_take_exactly_twice() -> None:
    time, size = 1_000_000, 50_000_000
    jobs = [task(name, time, bytes=size, lanes=(i,), period_ns=10 * MS) for i, name in enumerate("ab")]
    capacity = size * 10**9 // time
    alone = simulate(plan(jobs[:1], [engine(lanes=2)], dram_bandwidth=capacity), 10 * MS)
    together = simulate(plan(jobs, [engine(lanes=2)], dram_bandwidth=capacity), 10 * MS)
    free = simulate(plan(jobs, [engine(lanes=2)]), 10 * MS)
    assert [job.finish_ns for job in alone.jobs] == [time]
    assert [job.finish_ns for job in free.jobs] == [time, time]
    assert [job.finish_ns for job in together.jobs] == [2 * time, 2 * time]


def test_bandwidth_is_shared_again_when_a_competitor_leaves() -> None:
    # 1 byte/ns each on a memory of 1 byte/ns: the short job has half the rate until 200, the long one then all of it.
    long = task("long", 1000, bytes=1000, lanes=(0,), period_ns=10_000)
    short = task("short", 100, bytes=100, lanes=(1,), period_ns=10_000, offset_ns=50)
    made = plan([long, short], [engine(lanes=2)], dram_bandwidth=10**9, dram_picojoule_per_byte=2.0)
    trace = simulate(made, 10_000)
    assert [job.finish_ns for job in trace.jobs] == [1100, 250]
    assert trace.counters["bandwidth_gbps"] == [(0, 0.0), (0, 1.0), (1100, 0.0)]
    assert result(trace, made)["energy_mj"] == round(1100 * 2 / 1e9, 6)


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


def test_sensor_jitter_is_seeded_and_bounded() -> None:
    made = plan([task("t", 1, after=("s",))], sensors=[sensor("s", 100, offset_ns=7, jitter_ns=20)])
    first, again, other = (simulate(made, 10_000, seed=seed).releases["s"] for seed in (1, 1, 2))
    assert first == again != other
    late = [release - 7 - 100 * frame for frame, release in enumerate(first)]
    assert min(late) >= 0 and max(late) <= 20 and len(set(late)) > 5


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


def test_overruns_follow_their_probability_and_seed() -> None:
    made = plan([task("t", 10, period_ns=100)])
    faults = Faults(overruns=(Overrun("t", Fraction(1, 4), Fraction(2)),))
    runs = [simulate(made, 200_000, seed=seed, faults=faults) for seed in (1, 1, 2)]
    counts = [sum(job.exec_ns == 20 for job in trace.jobs) for trace in runs]
    assert runs[0] == runs[1] != runs[2]
    assert all(400 < count < 600 for count in counts)


def test_policies_by_name() -> None:
    urgent = task("urgent", 10, period_ns=100, offset_ns=1, deadline_ns=20, priority=1)
    first = task("first", 10, period_ns=100, deadline_ns=90, priority=0)
    made = plan([urgent, first])
    order = {name: times(simulate(made, 100, policy=name), "urgent") for name in ("edf", "fp", "fifo")}
    assert order == {"edf": [(1, 11)], "fp": [(10, 20)], "fifo": [(10, 20)]}
    with pytest.raises(UsageError, match="fastest"):
        get_policy("fastest")


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
