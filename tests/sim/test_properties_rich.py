"""Properties of plans with every feature of the simulator, faults included, tested on random small ones."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from builders import engine, plan, task, times
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import CAPACITY, HORIZON, faults, plans

from socsched.cost.contention import contention_model
from socsched.faults.model import Faults, Hog
from socsched.planning.plan import Plan, PlannedEngine
from socsched.sim.simulate import SimulationRun, run, simulate
from socsched.trace.metrics import result
from socsched.trace.trace import Job, Trace

MODERATE = settings(max_examples=20, deadline=None)


@st.composite
def simulations(draw: st.DrawFn) -> tuple[Plan, Faults, SimulationRun]:
    """Draw a plan and faults, and simulate them; without delays, which are known to be wrong (test_engine)."""
    made = draw(plans(rich=True))
    harm = replace(draw(faults(made, rich=True)), delays=())
    return made, harm, run(made, HORIZON, draw(st.integers(0, 3)), None, harm)


@MODERATE
@given(simulations())
def test_lanes_hold_one_job_at_a_time_and_time_runs_forwards(drawn: tuple[Plan, Faults, SimulationRun]) -> None:
    made, _, simulated = drawn
    trace = simulated.trace
    assert trace is not None
    lanes = {e.id: e.lanes for e in made.engines}
    busy: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for piece in trace.slices:
        assert 0 <= piece.start_ns <= piece.end_ns <= HORIZON
        assert piece.lanes and all(0 <= lane < lanes[piece.engine] for lane in piece.lanes)
        for lane in piece.lanes:
            busy[piece.engine, lane].append((piece.start_ns, piece.end_ns))
    for spans in busy.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))
    for steps in trace.counters.values():
        assert all(before[0] <= after[0] for before, after in pairwise(steps))
    for job in trace.jobs:
        assert job.start_ns < 0 or job.activation_ns <= job.start_ns
        assert job.finish_ns < 0 or job.start_ns <= job.finish_ns


def _stronger(host: PlannedEngine, factor: int) -> PlannedEngine:
    levels = tuple(replace(level, dynamic_mw=level.dynamic_mw * factor) for level in host.levels)
    return replace(host, idle_mw=host.idle_mw * factor, dynamic_mw=host.dynamic_mw * factor, levels=levels)


@MODERATE
@given(simulations())
def test_energy_is_the_integral_of_power_and_the_sum_of_what_lanes_took(
    drawn: tuple[Plan, Faults, SimulationRun],
) -> None:
    made, harm, simulated = drawn
    assert simulated.trace is not None
    power, traffic = (simulated.trace.counters[name] for name in ("power_mw", "bandwidth_gbps"))
    integral = sum((after[0] - before[0]) * before[1] for before, after in pairwise([*power, (HORIZON, 0.0)]))
    moved = sum((after[0] - before[0]) * before[1] for before, after in pairwise([*traffic, (HORIZON, 0.0)]))
    spent = simulated.outcome.ints("busy_time")
    levels = len(spent) // len(made.engines)
    taken = (made.base_mw + sum(e.idle_mw for e in made.engines)) * HORIZON + moved * made.dram_picojoule_per_byte
    for index, host in enumerate(made.engines):
        points = [level.dynamic_mw for level in host.levels] or [host.dynamic_mw]
        points = [points[0]] * (levels - len(points)) + points
        taken += sum(int(spent[index * levels + at]) * points[at] for at in range(levels)) / host.lanes
    assert integral == pytest.approx(taken, rel=1e-9)
    # each engine's own figure, at the clocks it had; powers as large as to show in figures rounded to a nanojoule
    large = replace(made, engines=tuple(_stronger(e, 10**6) for e in made.engines))
    figures = result(run(large, HORIZON, simulated.seed, None, harm).trace, large)["engines"]  # type: ignore[arg-type]
    for index, host in enumerate(large.engines):
        points = [level.dynamic_mw for level in host.levels] or [host.dynamic_mw]
        points = [points[0]] * (levels - len(points)) + points
        own = sum(int(spent[index * levels + at]) * points[at] for at in range(levels)) / host.lanes
        assert figures[host.id]["energy_mj"] == pytest.approx((own + host.idle_mw * HORIZON) / 1e9, abs=1e-6)
    assert result(simulated.trace, made)["energy_mj"] == pytest.approx(integral / 1e9, abs=1e-6)
    assert simulated.outcome.number("traffic") == pytest.approx(moved, rel=1e-9)


@MODERATE
@given(simulations())
def test_lanes_are_busy_for_as_long_as_jobs_hold_them(drawn: tuple[Plan, Faults, SimulationRun]) -> None:
    made, harm, simulated = drawn
    assert simulated.trace is not None
    spent = simulated.outcome.ints("busy_time").reshape(len(made.engines), -1).sum(axis=1)
    for index, host in enumerate(made.engines):
        own = [s for s in simulated.trace.slices if s.engine == host.id]
        shown = sum((s.end_ns - s.start_ns) * len(s.lanes) for s in own)
        # lanes of a job stay taken while their engine stands still, and while it finds itself at rest on arrival
        still = any(stall.engine == host.id for stall in harm.stalls)
        waits = any(s.engine for t in made.tasks for s in t.segments)
        assert shown <= spent[index] <= host.lanes * HORIZON
        assert still or waits or shown == spent[index]


@MODERATE
@given(simulations())
def test_bandwidth_stays_under_the_cap(drawn: tuple[Plan, Faults, SimulationRun]) -> None:
    """Without foreign traffic, which is counted as wanted, not as served (below).

    How long a segment takes is a whole number of nanoseconds, which is a part of its rate: half of it for two of them.
    """
    made, harm, simulated = drawn
    assert simulated.trace is not None
    slowed = bool(harm.hogs)
    shortest = min((s.time_ns for t in made.tasks for s in t.segments if s.bytes and s.time_ns), default=1)
    most = CAPACITY / 1e9 * (1 + 1 / shortest)
    assert slowed or all(v <= most * (1 + 1e-12) for _, v in simulated.trace.counters["bandwidth_gbps"])


def test_foreign_traffic_does_not_exceed_the_cap() -> None:
    made = plan([task("a", 100, bytes=100, period_ns=1000)], dram_bandwidth=10**9)
    trace = simulate(made, 500, faults=Faults(hogs=(Hog("cpu", 0, 500, 8 * 10**8),)))
    assert times(trace, "a") == [(0, 200)]
    assert trace.counters["bandwidth_gbps"] == [(0, 0.0), (0, 1.0), (200, 0.8)]


@MODERATE
@given(plans())
def test_fluid_retiming_conserves_work(made: Plan) -> None:
    """Between events every segment advances by time over its pace among those present, and ends when that is all of it.

    Ends are rounded up to a nanosecond, each change of pace by 2**-20 ns.
    """
    trace = simulate(made, HORIZON)
    model = contention_model(made.contention, made.dram_bandwidth, {e.id: e.kind for e in made.engines})
    names = [t.name for t in made.tasks]
    parts = {(t.name, s.name): (t.engine, s) for t in made.tasks for s in t.segments}
    progress: dict[tuple[int, str], float] = defaultdict(float)
    edges = sorted({t for piece in trace.slices for t in (piece.start_ns, piece.end_ns)})
    for begin, end in pairwise(edges):
        running = [s for s in trace.slices if s.start_ns <= begin and end <= s.end_ns and s.name != "switch"]
        # in the order of tasks, as the simulator asks: sums of shares round differently in another
        running.sort(key=lambda s: names.index(trace.jobs[s.job].task))
        keys = [(piece.job, piece.name) for piece in running]
        segments = [parts[trace.jobs[job].task, name] for job, name in keys]
        drawing = [i for i, (_, s) in enumerate(segments) if s.bytes]
        paces = dict(zip(drawing, model.paces([segments[i] for i in drawing]), strict=True))
        for i, key in enumerate(keys):
            progress[key] += (end - begin) / paces.get(i, segments[i][1].time_ns)
    for number, job in enumerate(trace.jobs):
        owner = next(t for t in made.tasks if t.name == job.task)
        for segment in owner.segments if job.status == "done" else ():
            if segment.time_ns:
                done = progress[number, segment.name]
                assert 1 - 1e-5 <= done < 1 + (1 + 1e-5) / segment.time_ns, (job, segment)


@st.composite
def edf_plans(draw: st.DrawFn) -> Plan:
    """Draw plans whose engines are preemptive EDF, with jobs that take fixed lanes or any."""
    made = draw(plans())
    hosts = tuple(replace(e, policy="edf", preemption="full") for e in made.engines)
    tasks = tuple(replace(t, width=draw(st.sampled_from([0, 1, len(t.lanes)]))) for t in made.tasks)
    return replace(made, engines=hosts, tasks=tasks)


@MODERATE
@given(edf_plans())
def test_no_deadline_inversion_under_edf(made: Plan) -> None:
    """At no instant does a ready job wait that could have lanes which are idle or held by later deadlines."""
    trace = simulate(made, HORIZON)
    owners = {t.name: (i, t) for i, t in enumerate(made.tasks)}
    edges = sorted({t for piece in trace.slices for t in (piece.start_ns, piece.end_ns)} | {0, HORIZON})

    def urgency(job: Job) -> tuple[int, int, int]:
        return job.deadline_ns, job.activation_ns, owners[job.task][0]

    for begin, end in pairwise(edges):
        running = {s.job: s for s in trace.slices if s.start_ns <= begin and end <= s.end_ns}
        for number, job in _heads(trace, begin):
            owner = owners[job.task][1]
            if number in running:
                continue
            ahead = {
                lane for other, s in running.items() if s.engine == owner.engine
                and urgency(trace.jobs[other]) < urgency(job) for lane in s.lanes
            }  # fmt: skip
            left = set(owner.lanes) - ahead
            needed = owner.width or len(owner.lanes)
            assert len(left) < needed, (begin, job)


def _heads(trace: Trace, now: int) -> list[tuple[int, Job]]:
    """Return the job each task is executing at an instant, at most one per task."""
    seen: set[str] = set()
    found = []
    for number, job in enumerate(trace.jobs):
        over = job.finish_ns if job.finish_ns >= 0 else HORIZON
        if job.status != "dropped" and job.task not in seen and job.activation_ns <= now < over:
            seen.add(job.task)
            found.append((number, job))
    return found


def test_the_check_for_inversions_can_fail() -> None:
    """Under FIFO the later deadline keeps the lane."""
    late = task("late", 10, deadline_ns=90, period_ns=100)
    soon = task("soon", 2, offset_ns=1, deadline_ns=5, period_ns=100)
    made = plan([late, soon], [engine(policy="fifo")])
    trace = simulate(made, 50)
    assert [job.start_ns for job in trace.jobs] == [0, 10]
    assert [job.task for _, job in _heads(trace, 5)] == ["late", "soon"]
