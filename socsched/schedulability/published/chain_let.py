"""Chains under logical execution times with known phases: job by job, exactly.

Günzel, Chen, Ueter, von der Brüggen, Dürr, Chen, "Compositional timing analysis of asynchronized distributed
cause-effect chains", ACM TECS 2023 (forward and backward job chains under LET); the reduced data age also by Becker et
al., Journal of Systems Architecture 2017.
"""

from __future__ import annotations

from socsched.schedulability.published.chain_davare import SCOPE
from socsched.schedulability.published.job_chains import (
    Events,
    answer,
    chain,
    hyperperiods,
    logical,
    longest,
)
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest


def run(problem: Problem) -> Answer:
    """Return reaction time and data age, full and reduced; jobs read at their arrival and write at their deadline."""
    tasks = chain(problem)
    span = hyperperiods(tasks, tasks)
    assert span is not None
    events: list[Events] = []
    for task in tasks:
        reads = list(range(task.offset_ns, span[1], task.period_ns))
        events.append((reads, [read + task.deadline_ns for read in reads]))
    return answer(longest(events))


def _phased(problem: Problem) -> str:
    tasks = chain(problem)
    if any(task.jitter_ns or task.deadline_ns > task.period_ns for task in tasks):
        return "it applies to deadlines within periods, without jitter"
    return logical(problem) or ("" if hyperperiods(tasks, tasks) else "the hyperperiod has too many jobs")


TEST = SchedulabilityTest(
    "chain: LET, known phases",
    "Günzel et al., ACM TECS 2023; Becker et al., Journal of Systems Architecture 2017",
    SCOPE,
    run,
    exact=True,
    kind="chain",
    also=_phased,
    rank=36,
)
