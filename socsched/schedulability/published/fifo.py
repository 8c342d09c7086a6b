"""FIFO on one processor: jobs in order of release, which is EDF with one relative deadline for all.

Spuri, INRIA RR-2772 1996, with D_i = D for all i.  FIFO by itself: George & Minet, "A FIFO worst case analysis for a
hard real-time distributed problem with consistency constraints", ICDCS 1997.
"""

from __future__ import annotations

from dataclasses import replace

from socsched.schedulability.published.edf_response import rows
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest, Scope, responses


def run(problem: Problem) -> Answer:
    """Return the response of every task; ties are assumed to go against it."""
    due = max(task.deadline_ns for task in problem.tasks)
    policy = replace(problem.policy, rule="edf", preemptive=True)  # no later release goes first
    tasks = tuple(replace(task, deadline_ns=due, regions_ns=(), longest_region_ns=0) for task in problem.tasks)
    alike = replace(problem, taskset=replace(problem.taskset, policy=policy), tasks=tasks)
    by_name = {task.name: task for task in problem.tasks}
    found = [(by_name[task.name], value, terms) for task, value, terms in rows(alike)]
    return responses(found, exact=False)


TEST = SchedulabilityTest(
    "FIFO response times",
    "Spuri, INRIA RR-2772 1996, with one deadline for all; George & Minet, ICDCS 1997",
    Scope(rules=("fifo",), preemption=("full", "limited", "none")),
    run,
    rank=13,
)
