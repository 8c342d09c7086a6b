"""Chains under logical execution times, any phases: the sum of periods and deadlines.

Hamann, Dasari, Kramer, Pressler, Wurst, "Communication centric design in complex automotive embedded systems",
ECRTS 2017.
"""

from __future__ import annotations

from socsched.schedulability.published.chain_davare import SCOPE
from socsched.schedulability.published.job_chains import AGE, REACTION, chain, logical
from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest


def run(problem: Problem) -> Answer:
    """Return the sum of T + D over the chain, for reaction time and data age."""
    terms: list[tuple[str, int]] = []
    for task in chain(problem):
        terms += [(f"{task.name}: period", task.period_ns), (f"{task.name}: deadline", task.deadline_ns)]
    bound = Bound(sum(value for _, value in terms), tuple(terms))
    return Answer(None, chain={REACTION: bound, AGE: bound})


TEST = SchedulabilityTest(
    "chain: LET, any phase", "Hamann et al., ECRTS 2017", SCOPE, run, kind="chain", also=logical, rank=35
)
