"""One parallel graph alone on m processors: R <= L + (V - L) / m.

Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied Mathematics 17(2) 1969, whose theorems
state ratios of makespans; in this form it is used throughout the literature on parallel graphs.
"""

from __future__ import annotations

from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    responses,
    with_jitter,
)
from socsched.schedulability.published.parallel import length


def run(problem: Problem) -> Answer:
    """Return the response of the only task; none if it does not end within its period."""
    (task,) = problem.tasks
    path = length(task)
    rest = (task.wcet_ns - path) // problem.processors
    value = task.jitter_ns + path + rest
    terms = with_jitter(task, (("longest path", path), (f"the rest on {problem.processors} processors", rest)))
    return responses([(task, value if value <= task.period_ns else None, terms)], exact=False)


def alone(problem: Problem) -> str:
    """Return why a bound for a single graph does not apply, empty if the graph is alone."""
    return "" if len(problem.tasks) == 1 else "the graph shares the processors with other tasks"


TEST = SchedulabilityTest(
    "graph alone (Graham)",
    "Graham, SIAM J. Appl. Math. 17(2) 1969",
    Scope(
        rules=("edf", "fp", "rm", "dm", "fifo"),
        preemption=("full", "none"),
        processors="any",
        takes=frozenset({"jitter"}),
        needs=frozenset({"graph"}),
    ),
    run,
    also=alone,
    rank=21,
)
