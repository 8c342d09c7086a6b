"""Rate-monotonic hyperbolic bound: the product of U_i + 1 is at most 2.

Bini, Buttazzo, Buttazzo, "A hyperbolic bound for the rate monotonic algorithm", ECRTS 2001, theorem 1; "Rate monotonic
analysis: the hyperbolic bound", IEEE TC 52(7) 2003.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod

from socsched.schedulability.published.liu_layland import rate_monotonic
from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    percent,
)


def run(problem: Problem) -> Answer:
    """Return True when the product of (U_i + 1) is at most 2."""
    product = prod((1 + task.utilisation for task in problem.tasks), start=Fraction(1))
    terms = tuple((f"{task.name}: U + 1, ppm", percent(1 + task.utilisation)) for task in problem.tasks)
    if product <= 2:
        return deadlines_met(problem, terms, f"product {float(product):.4f} is at most 2")
    return Answer(None, terms=terms, note=f"product {float(product):.4f} is over 2")


TEST = SchedulabilityTest(
    "hyperbolic bound",
    "Bini, Buttazzo, Buttazzo, ECRTS 2001, theorem 1; IEEE TC 52(7) 2003",
    Scope(deadlines="implicit"),
    run,
    also=rate_monotonic,
    rank=2,
)
