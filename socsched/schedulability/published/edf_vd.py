"""EDF with virtual deadlines (EDF-VD): two criticality levels, implicit deadlines, one processor.

Baruah, Bonifaci, D'Angelo, Li, Marchetti-Spaccamela, van der Ster, Stougie, "The preemptive uniprocessor scheduling of
mixed-criticality implicit-deadline sporadic task systems", ECRTS 2012, section 3: until the first overrun, deadlines of
the higher level are scaled by x; from then on, the lower level is dropped and full deadlines apply.
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


def scaling(problem: Problem) -> Fraction | None:
    """Return the factor x of the virtual deadlines (1: plain EDF), None if the test does not accept the set."""
    low, between, high = loads(problem)
    if low + high <= 1:
        return Fraction(1)
    if low >= 1:
        return None
    factor = between / (1 - low)  # the smallest that is feasible before an overrun (theorem 1)
    return factor if factor * low + high <= 1 else None  # feasible after one (theorem 2)


def loads(problem: Problem) -> tuple[Fraction, Fraction, Fraction]:
    """Return the utilisations of the lower level, and of the higher one before and after an overrun."""
    low = sum((task.utilisation for task in problem.tasks if not task.level), Fraction(0))
    before = sum((Fraction(task.wcet_at(0), task.period_ns) for task in problem.tasks if task.level), Fraction(0))
    after = sum((task.utilisation for task in problem.tasks if task.level), Fraction(0))
    return low, before, after


def run(problem: Problem) -> Answer:
    """Return whether every deadline is met: those of the higher level always, the others until an overrun."""
    names = ("low criticality (ppm)", "high criticality, no overrun (ppm)", "high criticality (ppm)")
    terms = tuple((name, percent(load)) for name, load in zip(names, loads(problem), strict=True))
    factor = scaling(problem)
    if factor is None:
        return Answer(None, terms=terms, note="no virtual deadlines pass")
    if factor == 1:
        return deadlines_met(problem, terms, "plain EDF serves every level")
    return deadlines_met(problem, terms, f"deadlines of high criticality times {float(factor):.4f} until an overrun")


def two_levels(problem: Problem) -> str:
    """Return why a set is outside the two-level model, empty if it is not."""
    return "it covers two criticality levels" if any(task.level > 1 for task in problem.tasks) else ""


def dropping(problem: Problem) -> str:
    """Return why a set is outside the two-level model that drops the lower level, empty if it is not."""
    degraded = any(task.degraded_ns for task in problem.tasks)
    return two_levels(problem) or ("it drops low criticality, with no degraded service" if degraded else "")


TEST = SchedulabilityTest(
    "EDF-VD",
    "Baruah et al., ECRTS 2012, section 3",
    Scope(rules=("edf",), deadlines="equal", needs=frozenset({"levels"})),
    run,
    also=dropping,
    rank=40,
)
