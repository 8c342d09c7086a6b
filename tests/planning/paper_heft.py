"""HEFT as published: the product's upward rank and insertion, for processors that each run one task at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.planning.mapping.local_search import Edges, earliest_slot, upward_ranks


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and when a task runs: processor index, start and end in the unit of the costs."""

    processor: int
    start: float
    end: float


def heft(cost: Sequence[Sequence[float]], edges: Edges) -> list[Placement]:
    """Map and schedule a DAG: `cost[task][processor]`; return a placement per task (communication as in the paper)."""
    ranks = upward_ranks([sum(row) / len(row) for row in cost], edges)
    before: dict[int, list[int]] = {task: [] for task in range(len(cost))}
    for task, successor in edges:
        before[successor].append(task)
    busy: list[list[tuple[float, float]]] = [[] for _ in cost[0]]
    placed: dict[int, Placement] = {}
    for task in sorted(before, key=lambda t: (-ranks[t], t)):
        options = []
        for processor, duration in enumerate(cost[task]):
            arrivals = [
                placed[p].end + (edges[p, task] if placed[p].processor != processor else 0) for p in before[task]
            ]
            start = earliest_slot(busy[processor], max(arrivals, default=0.0), duration)
            options.append(Placement(processor, start, start + duration))
        best = min(options, key=lambda o: (o.end, o.processor))
        placed[task] = best
        busy[best.processor] = sorted([*busy[best.processor], (best.start, best.end)])
    return [placed[task] for task in range(len(cost))]
