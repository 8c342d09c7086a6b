"""Expected latencies of chains: costs along the path, half a period where data are sampled, and observed delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from socsched.graph.taskgraph import TaskGraph
from socsched.planning.deadlines import stretches
from socsched.planning.plan import Task
from socsched.planning.schedulability.chains import Stretch
from socsched.planning.simulation_feedback import NOTHING, Observed


def expected_latencies(graph: TaskGraph, tasks: Sequence[Task], observed: Observed = NOTHING) -> dict[str, int]:
    """Return the latency (ns) of every chain: without interference, except for what was observed."""
    by_name = {task.name: task for task in tasks}
    known: dict[str, int] = {}
    return {
        chain.name: expected_latency(stretches(graph, chain, by_name), by_name, known, observed)
        + observed.offset_ns.get(chain.name, 0)
        for chain in graph.pipeline.chains
    }


def expected_latency(
    parts: Sequence[Stretch],
    tasks: Mapping[str, Task],
    known: dict[str, int] | None = None,
    observed: Observed = NOTHING,
) -> int:
    """Return the latency (ns): critical paths, plus half a period wherever data are sampled."""
    total, known = 0, {} if known is None else known
    for index, part in enumerate(parts):
        total += critical_path(part.last, tasks, known, observed) + (part.period // 2 if index else 0)
    return total


def critical_path(name: str, tasks: Mapping[str, Task], known: dict[str, int], observed: Observed = NOTHING) -> int:
    """Return the longest sum of costs (ns) over the tasks that lead to the end of a task by triggering.

    `known` caches results: in a network cut into parts, the number of paths multiplies.
    """
    if name not in known:
        task = tasks[name]
        before = (critical_path(n, tasks, known, observed) for n in task.after if n in tasks)
        known[name] = task.cost_ns + observed.extra_ns.get((name, task.engine), 0) + max(before, default=0)
    return known[name]
