"""Chains of tasks that sample each other: sum of periods and responses.

Davare, Zhu, Di Natale, Pinello, Kanajan, Sangiovanni-Vincentelli, "Period optimization for hard real-time distributed
automotive systems", DAC 2007.
"""

from __future__ import annotations

from socsched.schedulability.published.job_chains import AGE, REACTION, chain, implicit
from socsched.schedulability.published.model import PLAIN, Answer, Bound, Problem, SchedulabilityTest, Scope

SCOPE = Scope(
    rules=("edf", "fp", "rm", "dm", "fifo"),
    preemption=("full", "limited", "none"),
    processors="any",
    takes=PLAIN,
)


def run(problem: Problem) -> Answer:
    """Return the sum of T + R over the chain, for reaction time and data age."""
    terms: list[tuple[str, int]] = []
    for task in chain(problem):
        terms += [(f"{task.name}: period", task.period_ns), (f"{task.name}: response", problem.responses[task.name])]
    bound = Bound(sum(value for _, value in terms), tuple(terms))
    return Answer(None, chain={REACTION: bound, AGE: bound})


TEST = SchedulabilityTest("chain: Davare", "Davare et al., DAC 2007", SCOPE, run, kind="chain", also=implicit, rank=30)
