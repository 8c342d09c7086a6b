"""Chains on one processor, released together: the reading release, job by job.

Kloda, Bertout, Sorel, "Latency analysis for data chains of real-time periodic tasks", ETFA 2018.
"""

from __future__ import annotations

import itertools

from socsched.schedulability.published.chain_davare import SCOPE
from socsched.schedulability.published.chain_duerr import overtaken
from socsched.schedulability.published.job_chains import REACTION, chain, hyperperiods, in_time
from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest
from socsched.schedulability.rta_fp import ceil_div


def run(problem: Problem) -> Answer:
    """Return the longest path over all releases of the head in a hyperperiod, plus the head's period before it."""
    tasks = chain(problem)
    span = hyperperiods(tasks, tasks)
    assert span is not None
    waits = [
        problem.responses[producer.name] if overtaken(problem, producer, consumer) else 0
        for producer, consumer in itertools.pairwise(tasks)
    ]
    worst: tuple[int, list[tuple[str, int]]] = (-1, [])
    for first in range(0, span[0], tasks[0].period_ns):
        release, terms = first, []
        for wait, consumer in zip(waits, tasks[1:], strict=True):
            following = ceil_div(release + wait, consumer.period_ns) * consumer.period_ns
            terms.append((f"until {consumer.name} is released", following - release))
            release = following
        if release - first > worst[0]:
            worst = (release - first, terms)
    last = (f"{tasks[-1].name}: response", problem.responses[tasks[-1].name])
    found = ((f"{tasks[0].name}: period", tasks[0].period_ns), *worst[1], last)
    return Answer(None, chain={REACTION: Bound(sum(value for _, value in found), found)})


def _together(problem: Problem) -> str:
    tasks = chain(problem)
    if any(task.offset_ns or task.jitter_ns for task in tasks):
        return "it applies to tasks released together without jitter"
    return in_time(problem) or ("" if hyperperiods(tasks, tasks) else "the hyperperiod has too many jobs")


TEST = SchedulabilityTest(
    "chain: Kloda", "Kloda, Bertout, Sorel, ETFA 2018", SCOPE, run, kind="chain", also=_together, rank=32
)
