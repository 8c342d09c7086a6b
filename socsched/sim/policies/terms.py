"""Ordering keys of policies: terms the kernel evaluates itself, or a custom function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from socsched.cost.cost import Segment
from socsched.planning.plan import Task

# Mechanisms a policy may declare: preemption of engines, tokens, co-running jobs.
#
# The kernel implements these, independently of the policies that use them.

MODES = ("full", "segment", "none", "restart")
LOST_WORK = ("in-flight", "job")
DRAINS = ("", "slowdown", "share")


@dataclass(frozen=True, slots=True)
class PreemptionMechanism:
    """How a more urgent job preempts a running one, for preemption implemented in software.

    `mode` full | segment | none | restart, as in `PlannedEngine.preemption`.  `kinds`: engine kinds it applies to
    (the first match counts); empty: all engines without full preemption of their own.  `in_flight`: segments launched
    ahead, 0 for the engine's own.  `reset_ns`: delay of the preempting job while work is killed.  `save_ns`: its delay
    while the state of a job that keeps its progress is saved; that job later pays `restore_ns` on top of the engine's
    switch.

    `lost_work`, for a restart: ``in-flight`` goes back to the first segment that may be unfinished, `in_flight` before
    the last one launched but no further than where the job was resumed; ``job`` starts over.

    `drain`: let a running job finish (re-evaluated at every dispatch) rather than preempt it, if

    - ``slowdown``: the waiting job would slow it down by more (the rest of the waiting job, relative to the whole
      time of the running one) than the other way round;
    - ``share``: a larger share of it is left than of the waiting job.
    """

    mode: str
    kinds: tuple[str, ...] = ()
    in_flight: int = 0
    reset_ns: int = 0
    save_ns: int = 0
    restore_ns: int = 0
    lost_work: str = "in-flight"
    drain: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for names the kernel does not know."""
        named = ((self.mode, MODES), (self.lost_work, LOST_WORK), (self.drain, DRAINS))
        for value, known in named:
            if value not in known:
                raise ValueError(f"{value!r} is none of {', '.join(repr(name) for name in known)}")

    def applies_to(self, kind: str, preemption: str) -> bool:
        """Return whether this applies to an engine of a kind with the given preemption of its own."""
        return kind in self.kinds if self.kinds else preemption != "full"


@dataclass(frozen=True, slots=True)
class Tokens:
    """A job starts with its task's weight in tokens and earns that many more per own execution time it waits.

    Candidates are the jobs with at least as many as the threshold: the largest of `levels` that some job reaches, or
    `fixed`.  `strict`: more than that many.
    """

    levels: tuple[int, ...]
    fixed: int = 0
    strict: bool = False


@dataclass(frozen=True, slots=True)
class CoRunning:
    """On an engine occupied by one job as a whole, the first job in order that may co-run with it does.

    `times(host, segment, co-runner, its segment)`: duration in ns of each whole segment when both co-run, host's first;
    None: they do not co-run.  It is called once per pair, before the simulation starts.  `kinds`: engine kinds, empty:
    all.  With `once_per_segment` at most one co-running segment ends during a host's segment.  Co-runners occupy no
    slots; their energy is that of their work running alone, and their memory traffic is counted but neither waits nor
    delays other traffic.
    """

    times: Callable[[Task, Segment, Task, Segment], tuple[int, int] | None]
    kinds: tuple[str, ...] = ()
    once_per_segment: bool = False


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

    `about`: a line for lists of policies.
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
    about: str = field(default="", compare=False)
