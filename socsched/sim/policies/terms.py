"""Ordering keys of policies: terms the kernel evaluates itself, or a custom function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from socsched.planning.plan import Task
from socsched.sim.policies.mechanisms import CoRunning, PreemptionMechanism, Tokens


class Term(IntEnum):
    """An ordering key of a ready job; smaller values are served first.  Times in ns.

    `DEADLINE` absolute; `ACTIVATION` instant at which it became ready; `RELATIVE_DEADLINE` and `PERIOD` of its task;
    `LAXITY` deadline minus remaining work; `TURN` the end of the queue at that moment; `SERVER` deadline of its task's
    reservation; `REMAINING` and `COST` work left, and of the whole job, alone on the board; `CANDIDATE` 0 for jobs with
    enough tokens, 1 for others; `CRITICAL` 0 for jobs whose laxity is below the policy's `margin_ns`, 1 for others;
    `SERVICE` time its task has run, divided by its weight; `BEST_EFFORT` 1 for soft tasks, 0 for others.
    """

    NOTHING = 0
    PRIORITY = 1
    DEADLINE = 2
    ACTIVATION = 3
    PERIOD = 4
    RELATIVE_DEADLINE = 5
    CRITICALITY = 6
    LAXITY = 7
    TURN = 8
    SERVER = 9
    REMAINING = 10
    COST = 11
    CUSTOM = 12
    CANDIDATE = 13
    CRITICAL = 14
    SERVICE = 15
    BEST_EFFORT = 16


class ReadyJob(NamedTuple):
    """A ready job as seen by a policy written in Python; times in ns, `start_ns` -1 before it first ran.

    `exec_ns` is its execution time until now, `remaining_ns` the rest alone on the board, `number` identifies the task.
    """

    task: Task
    number: int
    frame: int
    activation_ns: int
    release_ns: int
    deadline_ns: int
    start_ns: int
    exec_ns: int
    remaining_ns: int
    running: bool


Key = Callable[[ReadyJob, int], tuple[int, ...]]
"""key(job, now_ns): at most two whole numbers, the smallest is served first; ties are broken by task order."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The order in which the ready jobs of an engine are served, and when it is re-evaluated.

    `order`: two terms, compared one after the other, then the tasks' order; or a function (slower: it runs in Python).
    A job's keys are computed when it becomes ready at the engine; with `dynamic` again at every dispatch, and every
    `tick_ns` while jobs wait.  `preemptive` False lets running jobs finish.  `sliced`: a job that has run for the
    engine's quantum goes to the end (after its segment if it cannot be stopped earlier).  `serves` reservations
    (`Task.budget_ns` of every `Task.server_ns`).  `across`: engines under this policy are scheduled together: none runs
    a job less urgent, by its first key, than the most urgent job on any of them.

    `preemption`: mechanisms in place of the engines' own preemption.  `weight`: of a task, in tokens or in shares of
    service (above 0, below 2**20).  `tokens` are earned by waiting (`CANDIDATE`).  `margin_ns`: laxity below which a
    job is `CRITICAL`.  `corun`: which jobs may co-run on an engine that one job occupies as a whole.
    """

    name: str
    order: tuple[Term, Term] | Key
    preemptive: bool = True
    dynamic: bool = False
    tick_ns: int = 0
    sliced: bool = False
    serves: bool = False
    across: bool = False
    preemption: tuple[PreemptionMechanism, ...] = ()
    weight: Callable[[Task], int] | None = None
    tokens: Tokens | None = None
    margin_ns: int = 0
    corun: CoRunning | None = None
