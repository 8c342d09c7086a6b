"""Self-suspending tasks, fixed priorities: suspension counts as computation, in the task and all of higher priority.

Suspension-oblivious analysis: Chen, Nelissen, Huang, "A unifying response time analysis framework for dynamic
self-suspending tasks", ECRTS 2016, section III, equation 1; reviewed in Chen et al., "Many suspensions, many problems:
a review of self-suspending tasks in real-time systems", RTS 55(1) 2019.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.schedulability.published import rta
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, Scope, responses


def run(problem: Problem) -> Answer:
    """Return the response of every task with S added to its C."""
    by_name = {task.name: task for task in problem.tasks}
    longer = tuple(replace(task, wcet_ns=task.wcet_ns + task.suspension_ns, suspension_ns=0) for task in problem.tasks)
    rows = rta.window(replace(problem, tasks=longer), whole=False)
    return responses([(by_name[task.name], value, terms) for task, value, terms in rows], exact=False)


TEST = SchedulabilityTest(
    "suspension as computation",
    "Chen, Nelissen, Huang, ECRTS 2016, equation 1; Chen et al., RTS 55(1) 2019",
    Scope(deadlines="constrained", takes=frozenset({"jitter"}), needs=frozenset({"suspension"})),
    run,
    rank=24,
)
