"""Chains on one processor with known phases and execution times: the actual schedule, job by job.

Günzel, Chen, Ueter, von der Brüggen, Dürr, Chen, "Timing analysis of asynchronized distributed cause-effect chains",
RTAS 2021, analysis of one ECU, exact for fixed execution times; extended in "Compositional timing analysis of
asynchronized distributed cause-effect chains", ACM TECS 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.chain_davare import SCOPE
from socsched.schedulability.published.job_chains import (
    Events,
    answer,
    chain,
    hyperperiods,
    implicit,
    longest,
)
from socsched.schedulability.published.model import Answer, Problem, SchedulabilityTest


def schedule(tasks: Sequence[PeriodicTask], ranks: Sequence[int], until: int) -> list[Events]:
    """Return the start and end of every job released before `until` under preemptive fixed priorities."""
    releases = sorted(
        (at, ranks[i], i) for i, task in enumerate(tasks) for at in range(task.offset_ns, until, task.period_ns)
    )
    events: list[Events] = [([], []) for _ in tasks]
    ready: list[tuple[int, int, int, int]] = []  # rank, release, task, remaining work
    now, position = 0, 0
    while ready or position < len(releases):
        if not ready:
            now = max(now, releases[position][0])
        while position < len(releases) and releases[position][0] <= now:
            at, rank, index = releases[position]
            heappush(ready, (rank, at, index, tasks[index].wcet_ns))
            position += 1
        rank, at, index, left = heappop(ready)
        if left == tasks[index].wcet_ns:
            events[index][0].append(now)
        next_release = releases[position][0] if position < len(releases) else now + left
        ran = min(left, next_release - now)
        now += ran
        if ran == left:
            events[index][1].append(now)
        else:
            heappush(ready, (rank, at, index, left - ran))
    return events


def run(problem: Problem) -> Answer:
    """Return reaction time and data age, full and reduced, of the repeating schedule."""
    tasks = problem.taskset.tasks
    span = hyperperiods(chain(problem), tasks)
    assert span is not None
    events = schedule(tasks, problem.taskset.ranks, span[1])
    return answer(longest([events[index] for index in problem.taskset.chain]))


def _known(problem: Problem) -> str:
    policy, tasks = problem.policy, problem.taskset.tasks
    if problem.taskset.processors > 1 or policy.rule not in ("fp", "rm", "dm") or problem.preemption != "full":
        return "it applies to preemptive fixed priorities on one processor"
    if problem.features or any(task.bcet_ns != task.wcet_ns for task in tasks):
        return "it applies to plain tasks with constant execution times"
    if problem.utilisation > 1:
        return "the processor is overloaded"
    return implicit(problem) or ("" if hyperperiods(chain(problem), tasks) else "the hyperperiod has too many jobs")


TEST = SchedulabilityTest(
    "chain: Günzel, local",
    "Günzel et al., RTAS 2021, analysis of one ECU; ACM TECS 2023",
    replace(SCOPE, takes=frozenset()),
    run,
    exact=True,
    kind="chain",
    also=_known,
    rank=34,
)
