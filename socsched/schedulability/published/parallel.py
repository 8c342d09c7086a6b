"""Helpers of parallel-graph tests: volume, longest path, and a sequential task as a graph of one node."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from socsched.descriptor.taskset_model import Graph, Node, PeriodicTask


def graph_of(task: PeriodicTask) -> Graph:
    """Return the graph of a task; one node for a sequential task."""
    return task.graph or Graph((Node(task.wcet_ns, ""),), ())


def longest_path(graph: Graph, weights: Sequence[int | Fraction]) -> tuple[Fraction, list[int]]:
    """Return the largest sum of weights along a path, and the positions on it."""
    best: list[tuple[Fraction, list[int]]] = []
    for index in range(len(graph.nodes)):  # edges lead to later positions
        before = [best[a] for a, b in graph.edges if b == index]
        value, path = max(before, key=lambda pair: pair[0], default=(Fraction(0), []))
        best.append((value + weights[index], [*path, index]))
    return max(best, key=lambda pair: pair[0])


def length(task: PeriodicTask) -> int:
    """Return the longest path of a task (ns)."""
    graph = graph_of(task)
    return int(longest_path(graph, [node.wcet_ns for node in graph.nodes])[0])
