"""EDF on one processor: utilisation at most 1, deadlines not before the ends of the periods.

Liu & Layland, JACM 20(1) 1973, theorem 7.
"""

from __future__ import annotations

from socsched.schedulability.published.model import (
    Answer,
    Problem,
    SchedulabilityTest,
    Scope,
    deadlines_met,
    percent,
)


def run(problem: Problem) -> Answer:
    """Return whether the utilisation is at most 1, which is necessary as well."""
    terms = tuple((f"{task.name}, ppm", percent(task.utilisation)) for task in problem.tasks)
    note = f"utilisation {float(problem.utilisation):.4f}"
    return deadlines_met(problem, terms, note) if problem.utilisation <= 1 else Answer(False, terms=terms, note=note)


TEST = SchedulabilityTest(
    "EDF utilisation",
    "Liu & Layland, JACM 20(1) 1973, theorem 7",
    Scope(rules=("edf",), deadlines="implicit"),
    run,
    exact=True,
    rank=8,
)
