"""Global EDF and fixed priorities: the work that can keep all processors busy while a job waits.

Bertogna, Cirinei, Lipari, "Schedulability analysis of global scheduling algorithms on multiprocessor platforms", IEEE
TPDS 20(4) 2009, theorems 7 (EDF, equation 9) and 8 (fixed priorities, equation 10), for integer times; for EDF first in
"Improved schedulability analysis of EDF on multiprocessor platforms", ECRTS 2005, theorem 7.
"""

from __future__ import annotations

from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, Scope, deadlines_met
from socsched.schedulability.published.workload import carry_in, due_within


def run(problem: Problem) -> Answer:
    """Return True when, for every task k, the sum of min(W_i, S + 1) is below m (S + 1), with S = D_k - C_k."""
    for task, higher, lower in problem.by_rank():
        room = task.deadline_ns - task.wcet_ns + 1
        if problem.policy.rule == "edf":
            work = [(o, due_within(o, task.deadline_ns, 0)) for o in (*higher, *lower)]
        else:
            work = [(o, carry_in(o, task.deadline_ns, o.deadline_ns)) for o in higher]
        terms = tuple((f"interference by {other.name}", min(value, room)) for other, value in work)
        total = sum(value for _, value in terms)
        if room < 1 or total >= problem.processors * room:
            return Answer(None, terms=terms, note=f"{task.name}: {total} ns may fill {problem.processors} x {room} ns")
    return deadlines_met(problem, note="no task can be delayed beyond its slack")


TEST = SchedulabilityTest(
    "global interference (BCL)",
    "Bertogna, Cirinei, Lipari, IEEE TPDS 20(4) 2009, theorems 7 (EDF) and 8 (fixed priorities)",
    Scope(rules=("edf", "fp", "rm", "dm"), processors="many", deadlines="constrained"),
    run,
    rank=16,
)
