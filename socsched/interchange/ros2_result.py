"""Results from ROS 2 traces: the recording as a plan and a trace, which reports and `why` read like a run.

The executor's threads are the lanes of one engine.  A job is an execution of a callback, ready when the message that it
took was published, or when its timer was due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from socsched.cost.cost import Segment
from socsched.interchange.recorded_plan import RECORDED
from socsched.interchange.ros2 import Graph, Node
from socsched.limits import LONGEST_NS
from socsched.planning.plan import ChainResult, Plan, PlannedEngine, PlannedSensor
from socsched.planning.task import ExecutionTimes, Task
from socsched.runtime.profile import quantiles
from socsched.trace.metrics import result
from socsched.trace.trace import Job, Slice, Trace

ENGINE = "executor"


@dataclass(frozen=True, slots=True)
class Response:
    """The longest and the median response time of a path (ns)."""

    longest_ns: int
    median_ns: int


def responses(graph: Graph) -> dict[str, Response]:
    """Return the recorded response times of every path that was completed, as results state them."""
    unknown = dict.fromkeys(graph.paths, Response(LONGEST_NS, LONGEST_NS))
    figures = result(trace_of(graph, unknown), plan_of(graph, "recorded", unknown))["chains"]
    times = {name: figures[name]["response_time_ns"] for name in graph.paths}
    return {n: Response(t["max"], t["p50"]) for n, t in times.items() if t["max"] is not None and t["p50"] is not None}


def _release(graph: Graph, name: str, frame: int) -> int:
    if name in graph.sources:
        return graph.sources[name].times[frame]
    node = graph.nodes[name]
    return node.releases[frame] if node.releases else node.frames[frame].start_ns


def _sampled(node: Node, before_ns: int) -> int | None:
    """Return the frame of the latest execution of a stage finished by a time, None if there is none."""
    done = [(i.end_ns, frame) for frame, i in node.frames.items() if i.end_ns <= before_ns]
    return max(done)[1] if done else None


def trace_of(graph: Graph, found: Mapping[str, Response]) -> Trace:
    """Return the executions of a graph as a trace; times from its earliest release, deadlines from `found`."""
    zero, lanes = graph.start_ns, {thread: lane for lane, thread in enumerate(graph.threads)}
    due = _due(graph, found)
    rows = []
    for node in graph.nodes.values():
        for frame, instance in node.frames.items():
            ready = instance.taken.time_ns if instance.taken else _release(graph, node.after or node.name, frame)
            release = _release(graph, _origin(graph, node), frame)
            times = (ready - zero, release - zero + due.get(node.name, node.period_ns))
            rows.append((times[0], node, frame, instance, times[1]))
    rows.sort(key=lambda row: (row[0], row[1].name))
    jobs, slices = list[Job](), list[Slice]()
    for ready, node, frame, instance, deadline in rows:
        start, end = instance.start_ns - zero, instance.end_ns - zero
        reads = {name: _sampled(graph.nodes[name], instance.start_ns) for name in node.reads}
        sampled = {name: found for name, found in reads.items() if found is not None}
        slices.append(Slice(ENGINE, (lanes[instance.thread],), len(jobs), node.name, start, end))
        jobs.append(Job(node.name, frame, ready, deadline, start, end, end - start, status="done", sampled=sampled))
    releases = {node.name: [t - zero for t in node.releases] for node in graph.nodes.values() if node.releases}
    releases |= {source.name: [t - zero for t in source.times] for source in graph.sources.values()}
    slices.sort(key=lambda s: s.start_ns)
    return Trace("measured", max(s.end_ns for s in slices), 0, jobs, slices, [], releases, {})


def _origin(graph: Graph, node: Node) -> str:
    while node.after in graph.nodes:
        node = graph.nodes[node.after]
    return node.after or node.name


def _due(graph: Graph, found: Mapping[str, Response]) -> dict[str, int]:
    """Return the deadline of the last stage of every path."""
    return {graph.paths[name][-1]: response.longest_ns for name, response in found.items()}


def plan_of(graph: Graph, pipeline: str, found: Mapping[str, Response]) -> Plan:
    """Return a plan that describes the recording: lanes are threads, times as recorded, no bound is proved.

    `found`: paths with a deadline, their longest response.
    """
    engine = PlannedEngine(ENGINE, "cpu", len(graph.threads), "full", 0, "fifo", 0, 0, 0)
    due = _due(graph, found)
    chains = tuple(
        ChainResult(name, graph.paths[name], response.longest_ns, response.median_ns, None, None, ())
        for name, response in found.items()
    )
    sensors = tuple(
        PlannedSensor(s.name, s.period_ns, s.times[0] - graph.start_ns, s.jitter_ns, 0) for s in graph.sources.values()
    )
    tasks = tuple(
        _task(graph, node, due.get(node.name, node.period_ns), len(graph.threads)) for node in graph.nodes.values()
    )
    return Plan(
        platform=_name(f"recorded-{graph.host}"),
        mode="recorded",
        pipeline=pipeline,
        engines=(engine,),
        sensors=sensors,
        tasks=tasks,
        chains=chains,
        **RECORDED,
    )


def _name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "-" for c in text).strip("-")[:200]


def _task(graph: Graph, node: Node, deadline: int, threads: int) -> Task:
    times = sorted(max(1, i.end_ns - i.start_ns) for i in node.callback.instances)
    median = times[len(times) // 2]
    return Task(
        name=node.name,
        kind="stage",
        after=(node.after,) if node.after else (),
        reads=node.reads,
        timer=not node.after,
        period_ns=node.period_ns,
        offset_ns=node.releases[0] - graph.start_ns if node.releases else 0,
        queue=1,
        jitter_ns=0,
        release_jitter_ns=min(node.jitter_ns, node.period_ns) if not node.after else 0,
        engine=ENGINE,
        lanes=tuple(range(threads)),
        width=1,
        precision="fp32",
        cost_ns=median,
        wcet_ns=times[-1],
        bytes=0,
        energy_uj=0,
        segments=(Segment(node.name, median, 0, 0),),
        provenance="measured",
        source=" ".join(["trace of ROS 2;", *graph.losses]).rstrip(";"),
        error=round((times[-1] - median) / median, 3),
        times=ExecutionTimes(quantiles(times)),
        priority=0,
        deadline_ns=deadline,
        criticality="firm",
        why="as recorded",
    )
