"""HEFT list scheduling: upward rank, then insertion-based earliest finish.

Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous computing", IEEE TPDS
13(3) 2002, sections 4.1 (upward rank, eq. 8) and 4.2 (insertion-based earliest finish time).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

Edges = Mapping[tuple[int, int], float]
"""(task, successor) -> communication cost, paid when the two run on different processors."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where and when a task runs: processor index, start and end in the unit of the costs."""

    processor: int
    start: float
    end: float


def upward_ranks(mean_cost: Sequence[float], edges: Edges) -> list[float]:
    """Return rank_u of every task: mean cost plus the longest path to an exit task (eq. 8)."""
    after: dict[int, list[int]] = {task: [] for task in range(len(mean_cost))}
    for task, successor in edges:
        after[task].append(successor)
    ranks = [0.0] * len(mean_cost)
    for task in TopologicalSorter(after).static_order():
        ranks[task] = mean_cost[task] + max((edges[task, s] + ranks[s] for s in after[task]), default=0.0)
    return ranks


def earliest_slot(busy: Sequence[tuple[float, float]], ready: float, duration: float) -> float:
    """Return the earliest start >= `ready` at which `duration` fits between the sorted `busy` intervals."""
    start = ready
    for begin, end in busy:
        if start + duration <= begin:
            break
        start = max(start, end)
    return start


def heft(cost: Sequence[Sequence[float]], edges: Edges) -> list[Placement]:
    """Map and schedule a DAG: `cost[task][processor]`; return a placement per task (communication as in the paper)."""
    means = [sum(row) / len(row) for row in cost]
    ranks = upward_ranks(means, edges)
    before: dict[int, list[int]] = {task: [] for task in range(len(cost))}
    for task, successor in edges:
        before[successor].append(task)
    busy: list[list[tuple[float, float]]] = [[] for _ in cost[0]]
    placed: dict[int, Placement] = {}
    for task in sorted(before, key=lambda t: (-ranks[t], t)):
        options = []
        for processor, duration in enumerate(cost[task]):
            ready = max((_arrival(placed[p], processor, edges[p, task]) for p in before[task]), default=0.0)
            start = earliest_slot(busy[processor], ready, duration)
            options.append(Placement(processor, start, start + duration))
        best = min(options, key=lambda o: (o.end, o.processor))
        placed[task] = best
        busy[best.processor] = sorted([*busy[best.processor], (best.start, best.end)])
    return [placed[task] for task in range(len(cost))]


def _arrival(producer: Placement, processor: int, communication: float) -> float:
    return producer.end + (communication if producer.processor != processor else 0.0)
