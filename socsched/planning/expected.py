"""Expected latencies of chains: costs along the path, half a period where data are sampled, and observed delays."""

from __future__ import annotations

from collections.abc import Sequence

from socsched.graph.taskgraph import TaskGraph
from socsched.planning.plan import Task
from socsched.planning.simulation_feedback import NOTHING, Observed
from socsched.schedulability.chains import Sources, Stretch


def expected_latencies(graph: TaskGraph, tasks: Sequence[Task], observed: Observed = NOTHING) -> dict[str, int]:
    """Return the latency (ns) of every chain: without interference, except for what was observed."""
    sources = Sources.of(tasks, graph.pipeline.sensors)
    known: dict[str, int] = {}
    return {
        chain.name: expected_latency(sources.stretches(chain.path), sources, known, observed)
        + observed.offset_ns.get(chain.name, 0)
        for chain in graph.pipeline.chains
    }


def expected_latency(
    parts: Sequence[Stretch], sources: Sources, known: dict[str, int], observed: Observed = NOTHING
) -> int:
    """Return the latency (ns): critical paths, plus half a period wherever data are sampled.

    `known` caches the results of `expected_end`.
    """
    total = 0
    for index, part in enumerate(parts):
        total += part.period // 2 if index else 0
        total += expected_end(part.last, sources, known, observed) - part.begin if part.last else 0
    return total


def expected_end(name: str, sources: Sources, known: dict[str, int], observed: Observed = NOTHING) -> int:
    """Return when the first frame of a task ends (ns) if it never waits: offsets and costs along the longest path.

    `known` caches results: in a network cut into parts, the number of paths multiplies.
    """
    if name not in known:
        task = sources.tasks[name]
        before = [
            expected_end(n, sources, known, observed) if n in sources.tasks else sources.sensors[n].offset_ns
            for n in task.after
        ]
        begin = task.offset_ns if task.timer else max(before)
        known[name] = begin + task.cost_ns + observed.extra_ns.get((name, task.engine), 0)
    return known[name]
