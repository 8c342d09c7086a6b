"""Chains with known phases: which job can read which, from read and data intervals.

Becker, Dasari, Mubeen, Behnam, Nolte, "End-to-end timing analysis of cause-effect chains in automotive embedded
systems", Journal of Systems Architecture 2017 (read and data intervals from response times).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from socsched.descriptor.taskset_model import PeriodicTask
from socsched.schedulability.published.chain_davare import SCOPE
from socsched.schedulability.published.job_chains import MOST_JOBS, REDUCED, chain, hyperperiods, in_time
from socsched.schedulability.published.model import Answer, Bound, Problem, SchedulabilityTest
from socsched.schedulability.rta_fp import ceil_div


def run(problem: Problem) -> Answer:
    """Return the longest reduced data age: from a release of the head to the end of the last job its data reach."""
    tasks = chain(problem)
    span = hyperperiods(tasks, tasks)
    assert span is not None
    head, last = tasks[0], tasks[-1]
    worst = (-1, 0, 0)
    for job in range(span[0] // head.period_ns):
        begin = head.offset_ns + job * head.period_ns
        release = _latest(tasks, problem, begin)
        end = release + problem.responses[last.name]
        worst = max(worst, (end - begin, begin, end))
    text = f"from the release at {worst[1]} ns to the end at {worst[2]} ns at the latest"
    return Answer(None, chain={REDUCED: Bound(worst[0], ((text, worst[0]),))})


def _latest(tasks: Sequence[PeriodicTask], problem: Problem, release: int) -> int:
    """Return the latest release of the last task that can read data of the head's job released at `release`.

    Data of a job are available from its earliest end until the latest end of the next; later jobs hold them longer, so
    the search follows the latest reader of each step.
    """
    for producer, consumer in itertools.pairwise(tasks):
        expiry = release + producer.period_ns + problem.responses[producer.name]
        release = (
            consumer.offset_ns + (ceil_div(expiry - consumer.offset_ns, consumer.period_ns) - 1) * consumer.period_ns
        )
    return release


def _phased(problem: Problem) -> str:
    tasks = chain(problem)
    if any(task.jitter_ns for task in tasks):
        return "it applies to tasks without release jitter"
    if not hyperperiods(tasks, tasks):
        return f"the hyperperiod has more than {MOST_JOBS} jobs"
    return in_time(problem)


TEST = SchedulabilityTest(
    "chain: Becker, response times",
    "Becker et al., Journal of Systems Architecture 2017, intervals from response times",
    SCOPE,
    run,
    kind="chain",
    also=_phased,
    rank=33,
)
