"""What a policy orders by: terms the kernel works out itself, or a function of the policy's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from socsched.planning.plan import Task
from socsched.sim.policies.control import Choosing, Controller, Switching
from socsched.sim.policies.mechanisms import Batch, Beside, Taking, Tokens


class Term(IntEnum):
    """A number of a ready job; the smaller, the sooner it is served.  Times in ns.

    `DEADLINE` absolute; `ACTIVATION` instant at which it became ready; `RELATIVE_DEADLINE` and `PERIOD` of its task;
    `LAXITY` deadline minus what remains to be done; `TURN` the end of the queue at that moment; `SERVER` deadline of
    its task's reservation; `REMAINING` and `COST` work left, and of the whole job, alone on the board; `CANDIDATE` 0
    for who has enough tokens, 1 for others; `CRITICAL` 0 for whose laxity is below the policy's `margin_ns`, 1 for
    others; `SERVICE` time its task has had, divided by its weight; `BEST_EFFORT` 1 for soft tasks, 0 for others.
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
    ASKED = 12
    CANDIDATE = 13
    CRITICAL = 14
    SERVICE = 15
    BEST_EFFORT = 16


class Ready(NamedTuple):
    """A ready job as a policy written in Python sees it; times in ns, `start_ns` -1 before it first ran.

    `exec_ns` is the time it has run, `remaining_ns` what is left alone on the board, `number` tells tasks apart.
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


Key = Callable[[Ready, int], tuple[int, ...]]
"""key(job, now_ns): at most two whole numbers, the smallest is served first; equal keys by task order."""


@dataclass(frozen=True, slots=True)
class Policy:
    """In which order the ready jobs of an engine are served, and when that is looked at again.

    `order`: two terms, compared one after the other, then the tasks' order; or a function (slower: Python is asked).
    A job's keys are worked out when it becomes ready at the engine; with `dynamic` again whenever somebody is
    dispatched, and every `tick_ns` while jobs wait.  `preemptive` False keeps what runs until it ends.  `sliced`: a job
    that has run for the engine's quantum goes to the end (at the end of its segment where it cannot be stopped before).
    `serves` reservations (`Task.budget_ns` of every `Task.server_ns`).  `across`: engines under this policy are served
    together: none runs a job less urgent, by its first key, than the most urgent one anywhere.

    `taking`: how engines are taken from jobs, in place of their own way.  `weight`: of a task, in tokens or in shares
    of service (above 0, below 2**20).  `tokens` are earned by waiting (`CANDIDATE`).  `margin_ns`: laxity below which a
    job is `CRITICAL`.  `beside`: who may run beside whom on an engine that one job has whole.  `batch`: waiting jobs of
    a task that are served together.  `control` changes the order while a simulation runs: as declared,
    or as a class of one's own does (slower: Python is asked).
    """

    name: str
    order: tuple[Term, Term] | Key
    preemptive: bool = True
    dynamic: bool = False
    tick_ns: int = 0
    sliced: bool = False
    serves: bool = False
    across: bool = False
    taking: tuple[Taking, ...] = ()
    weight: Callable[[Task], int] | None = None
    tokens: Tokens | None = None
    margin_ns: int = 0
    beside: Beside | None = None
    batch: Batch | None = None
    control: Callable[[], Controller] | Switching | Choosing | None = None
