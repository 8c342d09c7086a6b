"""Small plans built directly, for tests of the simulator and of figures computed from its traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from socsched.cost.cost import Segment
from socsched.planning.plan import Bandwidth, ChainResult, Plan, PlannedEngine, PlannedSensor, Power, SearchReport, Task
from socsched.trace.trace import Trace

MS = 1_000_000
UNLIMITED = 1 << 40


def engine(name: str = "cpu", **changes: Any) -> PlannedEngine:
    """Return an engine with one lane, fully preemptive EDF, no power and no switch cost unless changed."""
    base: dict[str, Any] = {"kind": "cpu", "lanes": 1, "preemption": "full", "switch_ns": 0, "policy": "edf"}
    return PlannedEngine(id=name, **{**base, "bandwidth": 0, "idle_mw": 0, "dynamic_mw": 0, **changes})


def task(name: str, cost_ns: int = 0, **changes: Any) -> Task:
    """Return a timer task of one segment on lane 0 of ``cpu`` unless changed; `after` makes it data-triggered."""
    segments = changes.pop("segments", (Segment(name, cost_ns, 0, changes.pop("bytes", 0)),))
    cost = sum(segment.time_ns for segment in segments)
    base: dict[str, Any] = {"kind": "stage", "engine": "cpu", "lanes": (0,), "precision": "fp32"}
    base.update(after=(), reads=())
    base.update(timer=not changes.get("after"), period_ns=10 * MS, offset_ns=0, queue=UNLIMITED, priority=0)
    base.update(wcet_ns=cost, energy_uj=0, jitter_ns=0, criticality="firm", provenance="assumed", source="", error=0.0)
    base.update(changes)
    base.setdefault("deadline_ns", base["period_ns"])
    return Task(name=name, cost_ns=cost, bytes=sum(s.bytes for s in segments), segments=segments, **base)


def sensor(name: str, period_ns: int, **changes: Any) -> PlannedSensor:
    """Return a sensor without offset and jitter unless changed."""
    return PlannedSensor(name, period_ns, **{"offset_ns": 0, "jitter_ns": 0, "bytes_per_frame": 0, **changes})


def chain(name: str, path: Sequence[str], deadline_ns: int) -> ChainResult:
    """Return a chain without bound or age requirement."""
    return ChainResult(name, tuple(path), deadline_ns, 0, None, None, ())


def plan(tasks: Sequence[Task], engines: Sequence[PlannedEngine] = (engine(),), **changes: Any) -> Plan:
    """Return a plan of these tasks."""
    base: dict[str, Any] = {"platform": "test", "mode": "test", "pipeline": "test", "verdict": "undecided"}
    base.update(policy="edf")
    base.update(sensors=(), transitions=(), chains=(), violations=(), inputs={})
    base.update(power=Power(), bandwidth=Bandwidth(), solver=SearchReport())
    return Plan(tasks=tuple(tasks), engines=tuple(engines), **{**base, **changes})


def task_set(data: dict[str, Any], unit_ns: int = 1000, **engine_changes: Any) -> Plan:
    """Return the plan of a periodic task set of the reference data: one lane a processor, times in `unit_ns`."""
    lanes = data["processors"]
    tasks = [
        task(
            str(row["id"]),
            row["wcet"] * unit_ns,
            period_ns=row["period"] * unit_ns,
            deadline_ns=row["deadline"] * unit_ns,
            offset_ns=row.get("offset", 0) * unit_ns,
            lanes=(row.get("cpu", 0),),
            priority=row.get("prio", row.get("rm_rank", 0)),
        )
        for row in data["tasks"]
    ]
    return plan(tasks, [engine(lanes=lanes, **engine_changes)])


def spans(trace: Trace, name: str | None = None) -> list[tuple[str, int, int]]:
    """Return the executions as (segment, start, end) in the order of starts; only those of task `name` if given.

    At an instant, pieces that held their lanes for no time are left out.
    """
    pieces = [s for s in trace.slices if name is None or trace.jobs[s.job].task == name]
    ordered = sorted(pieces, key=lambda s: (s.start_ns, s.end_ns, s.engine, s.lanes))
    return [(s.name, s.start_ns, s.end_ns) for s in ordered if s.start_ns < s.end_ns]


def places(trace: Trace, name: str) -> list[tuple[tuple[int, ...], int, int]]:
    """Return the executions of task `name` as (lanes, start, end)."""
    pieces = [s for s in trace.slices if trace.jobs[s.job].task == name]
    return [(tuple(s.lanes), s.start_ns, s.end_ns) for s in sorted(pieces, key=lambda s: s.start_ns)]


def times(trace: Trace, name: str) -> list[tuple[int, int]]:
    """Return start and end of every job of task `name`, -1 for what never came."""
    return [(job.start_ns, job.finish_ns) for job in trace.jobs if job.task == name]


def notes(trace: Trace, kind: str) -> list[tuple[int, str, int]]:
    """Return instants of a kind, as (time, subject, frame)."""
    return [(n.time_ns, n.subject, n.frame) for n in trace.instants if n.kind == kind]
