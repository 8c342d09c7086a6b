"""Rate-monotonic utilisation bound: n (2^(1/n) - 1).

Liu & Layland, "Scheduling algorithms for multiprogramming in a hard-real-time environment", JACM 20(1) 1973, theorem 5.
"""

from __future__ import annotations

import itertools

from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    percent,
)


def run(problem: Problem) -> Answer:
    """Return True when the utilisation is at most n (2^(1/n) - 1), compared exactly as (1 + U/n)^n <= 2."""
    count, total = len(problem.tasks), problem.utilisation
    limit = count * (2 ** (1 / count) - 1)
    terms = (("utilisation, ppm", percent(total)), ("bound, ppm", int(limit * 1_000_000)))
    if (1 + total / count) ** count <= 2:
        return deadlines_met(problem, terms, f"utilisation {float(total):.4f} is at most {limit:.4f}")
    return Answer(None, terms=terms, note=f"utilisation {float(total):.4f} is over {limit:.4f}")


def rate_monotonic(problem: Problem) -> str:
    """Return why priorities are not rate monotonic, empty if they are."""
    ordered = [task for task, _, _ in problem.by_rank()]
    if any(a.period_ns > b.period_ns for a, b in itertools.pairwise(ordered)):
        return "priorities do not follow the periods"
    return ""


TEST = SchedulabilityTest(
    "Liu-Layland bound",
    "Liu & Layland, JACM 20(1) 1973, theorem 5",
    Scope(deadlines="implicit"),
    run,
    also=rate_monotonic,
    rank=1,
)
