"""Global EDF: the density of all tasks leaves room for the densest.

Goossens, Funk, Baruah, "Priority-driven scheduling of periodic task systems on multiprocessors", RTS 25 2003; with
densities for constrained deadlines, Bertogna, Cirinei, Lipari, ECRTS 2005, theorem 4.
"""

from __future__ import annotations

from fractions import Fraction

from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    percent,
)


def run(problem: Problem) -> Answer:
    """Return True when the sum of C / min(D, T) is at most m (1 - largest) + largest."""
    shares = [Fraction(task.wcet_ns, min(task.deadline_ns, task.period_ns)) for task in problem.tasks]
    total, largest = sum(shares, Fraction(0)), max(shares)
    limit = problem.processors * (1 - largest) + largest
    terms = tuple((f"{t.name}, ppm", percent(share)) for t, share in zip(problem.tasks, shares, strict=True))
    if largest <= 1 and total <= limit:
        return deadlines_met(problem, terms, f"density {float(total):.4f} is at most {float(limit):.4f}")
    return Answer(None, terms=terms, note=f"density {float(total):.4f} is over {float(limit):.4f}")


TEST = SchedulabilityTest(
    "global EDF density (GFB)",
    "Goossens, Funk, Baruah, RTS 25 2003; Bertogna, Cirinei, Lipari, ECRTS 2005, theorem 4",
    Scope(rules=("edf",), processors="many"),
    run,
    rank=15,
)
