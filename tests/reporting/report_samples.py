"""A small plan with two chains on three engines and a trace of it made by a few lines of arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from socsched.cost.cost import Segment
from socsched.planning.plan import (
    Bandwidth,
    ChainResult,
    Necessity,
    Plan,
    PlannedEngine,
    PlannedSensor,
    Power,
    Proof,
    SearchReport,
    Task,
    Transition,
    Violation,
)
from socsched.trace.trace import Instant, Job, Slice, Trace

MS = 1_000_000
STAGES = (
    # name, kind, engine, lanes, precision, cost ms, after, provenance
    ("voxelise", "stage", "cpu", (0,), "fp32", 3.1, ("lidar",), "derived"),
    ("pfn", "stage", "gpu", (0,), "fp16", 1.9, ("voxelise",), "published"),
    ("scatter", "stage", "gpu", (0,), "fp16", 0.6, ("pfn",), "derived"),
    ("scatter>backbone", "conversion", "gpu", (0,), "int8", 0.9, ("scatter",), "derived"),
    ("backbone", "stage", "dla0", (0,), "int8", 17.5, ("scatter>backbone",), "published"),
    ("head", "stage", "dla0", (0,), "int8", 2.2, ("backbone",), "derived"),
    ("decode", "stage", "cpu", (0, 1), "fp32", 2.4, ("head",), "assumed"),
)


def _task(row: tuple[Any, ...], priority: int) -> Task:
    name, kind, engine, lanes, precision, cost, after, provenance = row
    cost_ns = round(cost * MS)
    return Task(
        name=name,
        kind=kind,
        engine=engine,
        lanes=lanes,
        precision=precision,
        after=after,
        reads=(),
        timer=False,
        period_ns=100 * MS,
        offset_ns=0,
        queue=1,
        cost_ns=cost_ns,
        wcet_ns=round(cost_ns * 1.2),
        bytes=4_000_000,
        energy_uj=3000,
        segments=(Segment(name, cost_ns, 10_000, 4_000_000),),
        priority=priority,
        deadline_ns=100 * MS,
        jitter_ns=0,
        criticality="firm",
        provenance=provenance,
        source="a paper",
        error=0.2,
        model=None,
        params={},
        why=f"{engine} is the fastest that takes <{name}>",
    )


def make_plan() -> Plan:
    """Return the plan: a LiDAR chain over seven tasks, and a timer task."""
    tasks = [_task(row, i) for i, row in enumerate(STAGES)]
    planning = replace(
        _task(("planning", "stage", "cpu", (2,), "fp32", 4.0, (), "assumed"), 7),
        timer=True,
        period_ns=20 * MS,
        deadline_ns=20 * MS,
        reads=("decode",),
    )
    engine = PlannedEngine("cpu", "cpu", 3, "full", 5000, "edf", 60 * 10**9, 1500, 9000)
    return Plan(
        platform="board",
        mode="MAXN",
        pipeline="toy",
        verdict="feasible",
        policy="edf",
        engines=(
            engine,
            replace(engine, id="gpu", kind="gpu", lanes=1, preemption="segment"),
            replace(engine, id="dla0", kind="dla", lanes=1, preemption="none", policy="fifo"),
        ),
        sensors=(PlannedSensor("lidar", 100 * MS, 0, 0, 320_000),),
        tasks=(*tasks, planning),
        transitions=(
            Transition(
                "scatter", "backbone", 27_000_000, "NCHW", "NCHW32c", "fp16", "int8", "gpu", "scatter>backbone", 900_000
            ),
        ),
        chains=(
            ChainResult(
                "lidar-detection",
                ("lidar", *(r[0] for r in STAGES if r[1] == "stage")),
                100 * MS,
                28_600_000,
                41 * MS,
                None,
                (("voxelise", 4 * MS), ("the rest", 37 * MS)),
            ),
            ChainResult("planning", ("planning",), 20 * MS, 4 * MS, 5 * MS, None, ()),
        ),
        violations=(),
        power=Power(14_000, 60_000),
        bandwidth=Bandwidth(4.2, 170.0),
        solver=SearchReport("heft", "done"),
        inputs={"toy.yaml": "ab" * 32},
        base_mw=5000,
        tool={"socsched": "0.1.0"},
    )


def make_infeasible(plan: Plan) -> Plan:
    """Return the plan with a violated deadline."""
    violation = Violation(
        "deadline of lidar-detection",
        120 * MS,
        100 * MS,
        20 * MS,
        "ns",
        (("execution", 90 * MS), ("interference on <cpu>", 30 * MS)),
        ("a faster mode: MAXN", "drop fp32"),
    )
    return refuted(replace(plan, violations=(violation,)))


def refuted(plan: Plan) -> Plan:
    """Return the plan as infeasible, with a proof of it."""
    necessity = Necessity("path", "deadline of lidar-detection", 90 * MS, 80 * MS, "ns", (("execution", 90 * MS),))
    proof = Proof("lower bound", "deadline of lidar-detection: at least 90 ms, allowed 80 ms", (necessity,))
    return replace(plan, verdict="infeasible", solver=replace(plan.solver, proof=proof))


def build_trace(plan: Plan, frames: int = 20, kind: str = "simulated", late_frame: int = 7) -> Trace:
    """Return a trace of `plan`: every frame runs its tasks one after the other, frame `late_frame` far slower."""
    trace = Trace(kind, frames * 100 * MS, 0)
    trace.releases["lidar"] = [k * 100 * MS for k in range(frames)]
    for frame, release in enumerate(trace.releases["lidar"]):
        now = release
        for task in plan.tasks[:7]:
            length = task.cost_ns * (15 if frame == late_frame and task.name == "voxelise" else 1)
            length = length * 3 if frame == late_frame and task.name == "backbone" else length + frame * 20_000
            _run(trace, task, frame, now, now + length, release + 100 * MS)
            now += length
        for tick in range(5):
            start = release + tick * 20 * MS
            _run(
                trace,
                plan.tasks[7],
                frame * 5 + tick,
                start,
                start + 4 * MS,
                start + 20 * MS,
            )
        trace.counters.setdefault("power_mw", []).extend([(release, 21_000.0), (release + 30 * MS, 9_000.0)])
    trace.releases["planning"] = [k * 20 * MS for k in range(5 * frames)]
    miss = late_frame * 100 * MS + 100 * MS
    trace.instants.append(Instant(miss, "miss", "decode", late_frame, "deadline of <lidar-detection>"))
    return trace


def _run(trace: Trace, task: Task, frame: int, start: int, end: int, deadline: int) -> None:
    job = Job(task.name, frame, start, deadline, start_ns=start, finish_ns=end, exec_ns=end - start, status="done")
    trace.slices.append(Slice(task.engine, task.lanes, len(trace.jobs), task.name, start, end))
    trace.jobs.append(job)


def make_result() -> dict[str, Any]:
    """Return a result document in the layout of result.json."""
    times = {"mean": 30.0e6, "p50": 29.0e6, "p99": 98e6, "p99_9": 101e6, "max": 102.7e6}
    quick = {"mean": 4e6, "p50": 4e6, "p99": 4e6, "p99_9": 4e6, "max": 4e6}
    return {
        "schema_version": "1",
        "kind": "simulated",
        "duration_ns": 2_000 * MS,
        "seed": 0,
        "chains": {
            "lidar-detection": {
                "released": 20,
                "completed": 20,
                "missed": 1,
                "dropped": 0,
                "stale": 0,
                "response_time_ns": times,
                "data_age_ns": {"max": 103e6},
            },
            "planning": {
                "released": 100,
                "completed": 100,
                "missed": 0,
                "dropped": 0,
                "stale": 0,
                "response_time_ns": quick,
                "data_age_ns": {},
            },
        },
        "stages": {
            row[0]: {
                "jobs": 20,
                "exec_ns": {
                    "mean": row[5] * MS,
                    "p50": row[5] * MS * 1.1,
                    "p99": row[5] * MS * 1.3,
                    "max": row[5] * MS * 1.5,
                },
            }
            for row in STAGES
        },
        "engines": {
            name: {"utilization": u, "busy_ns": int(u * 2e9), "energy_mj": 900.0}
            for name, u in (("cpu", 0.2), ("gpu", 0.05), ("dla0", 0.21))
        },
        "power_mw": {"mean": 13_200.0, "peak": 21_000.0},
        "energy_mj": 26_400.0,
        "bandwidth_gbps": {"mean": 2.1, "peak": 60.0},
    }
