"""Chains of sporadic tasks: the term x R_i vanishes where a lower-priority reader shares the producer's processor.

Dürr, von der Brüggen, Chen, Chen, "End-to-end timing analysis of sporadic cause-effect chains in distributed systems",
ACM TECS 18(5s) 2019, theorems 5.4 (reaction) and 5.10 (reduced data age).
"""

from __future__ import annotations

import itertools

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.chain_davare import SCOPE
from socsched.schedulability.published.job_chains import REACTION, REDUCED, chain, in_time
from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest


def overtaken(problem: Problem, producer: PeriodicTask, consumer: PeriodicTask) -> bool:
    """Return whether a job of `consumer` released with one of `producer` may start before the producer has written.

    It cannot where both share a processor and the producer has the higher fixed priority.
    """
    rank = dict(zip((task.name for task in problem.taskset.tasks), problem.taskset.ranks, strict=True))
    together = problem.taskset.processors == 1 or (producer.cpu is not None and producer.cpu == consumer.cpu)
    fixed = problem.policy.rule in ("fp", "rm", "dm")
    plain = not problem.features - {"jitter"} and producer.jitter_ns == consumer.jitter_ns == 0
    return not (together and fixed and plain) or rank[consumer.name] < rank[producer.name]


def run(problem: Problem) -> Answer:
    """Return T_1 + R_n + sum of max(R_i, T_(i+1) + x R_i), and R_n + sum of (T_i + x R_i)."""
    tasks, response = chain(problem), problem.responses
    last = (f"{tasks[-1].name}: response", response[tasks[-1].name])
    reaction = [(f"{tasks[0].name}: period", tasks[0].period_ns)]
    age: list[tuple[str, int]] = []
    for producer, consumer in itertools.pairwise(tasks):
        own = response[producer.name]
        late = own if overtaken(problem, producer, consumer) else 0
        step = max(own, consumer.period_ns + late)
        reaction.append((f"{producer.name} to {consumer.name}: until the next job reads", step))
        age.append((f"{producer.name} to {consumer.name}: until the next output", producer.period_ns + late))
    found = {REACTION: (*reaction, last), REDUCED: (*age, last)}
    return Answer(None, chain={name: Bound(sum(v for _, v in terms), terms) for name, terms in found.items()})


TEST = SchedulabilityTest(
    "chain: Dürr",
    "Dürr et al., ACM TECS 18(5s) 2019, theorems 5.4 and 5.10",
    SCOPE,
    run,
    kind="chain",
    also=in_time,
    rank=31,
)
