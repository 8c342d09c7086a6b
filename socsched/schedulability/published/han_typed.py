"""One graph alone, whose nodes are bound to processor types, each with its own number of processors.

Han, Guan, Sun, He, Deng, Liu, "Response time bounds for typed DAG parallel tasks on heterogeneous multi-cores", IEEE
TPDS 2019, theorem 3.1: R <= max over paths of the sum of c (1 - 1/M) + sum over types of volume / M.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from socsched.schedulability.published.graham import alone
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    responses,
    with_jitter,
)
from socsched.schedulability.published.parallel import graph_of, longest_path


def run(problem: Problem) -> Answer:
    """Return the response of the only task; none if it does not end within its period."""
    (task,) = problem.tasks
    graph, count = graph_of(task), dict(problem.taskset.types)
    path, _ = longest_path(graph, [node.wcet_ns * (1 - Fraction(1, count[node.type])) for node in graph.nodes])
    volumes = {
        kind: Fraction(sum(node.wcet_ns for node in graph.nodes if node.type == kind), number)
        for kind, number in count.items()
    }
    total, given = path, ceil(path)
    terms = [("longest path, its nodes less their even share", given)]
    for kind, volume in volumes.items():
        total += volume
        terms.append((f"volume on {kind}, evenly shared", ceil(total) - given))
        given = ceil(total)
    value = task.jitter_ns + given
    found = with_jitter(task, tuple(term for term in terms if term[1]))
    return responses([(task, value if value <= task.period_ns else None, found)], exact=False)


TEST = SchedulabilityTest(
    "typed graph alone (Han)",
    "Han et al., IEEE TPDS 2019, theorem 3.1",
    Scope(
        rules=("edf", "fp", "rm", "dm", "fifo"),
        preemption=("full", "none"),
        processors="any",
        takes=frozenset({"jitter"}),
        needs=frozenset({"graph", "types"}),
    ),
    run,
    also=alone,
    rank=23,
)
