"""A published test: a pure function from tasks that share processors to an answer, declared with its source and system.

Times are integer ns and events happen at integer times, so a job that started before another was released did so at
least 1 ns before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from socsched.descriptor.limits import Verdict
from socsched.descriptor.taskset import PeriodicTask, Policy, TaskSet
from socsched.schedulability.tasks import RtTask, Terms

Row = tuple[PeriodicTask, int | None, Terms]
"""A task, the bound of its response from its arrival (ns, None without one), and the terms of that."""
VERDICTS: dict[bool | None, Verdict] = {True: "feasible", False: "infeasible", None: "undecided"}
"""Whether every deadline is met, None if that is open -> the verdict."""
FEATURES = {
    "jitter": "release jitter",
    "blocking": "blocking by shared resources",
    "suspension": "self-suspension",
    "accelerator": "accelerator requests",
    "graph": "parallel graphs",
    "types": "nodes bound to typed processors",
    "memory": "memory accesses priced one by one",
    "memguard": "memory-bandwidth reservations",
    "levels": "execution times by criticality level",
}
"""Features beyond plain periodic tasks -> description."""
PLAIN = frozenset(FEATURES) - {"levels"}
"""Features that leave every task a single execution time, and every job to be run."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound (ns) and the terms that add up to it."""

    value: int
    terms: Terms


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a test: whether all deadlines are met (None: inconclusive), bounds by task, by measure of the chain.

    `terms` are the quantities compared by a test of the whole set, `note` states how (``demand 12 over 10``).
    """

    schedulable: bool | None
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    chain: Mapping[str, Bound] = field(default_factory=dict)
    terms: Terms = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Tasks that share processors: all of a global task set, those of one processor of a partitioned one.

    `ranks` are fixed priorities, 0 first; `responses` (ns, from the arrival) are set for chain tests only.
    """

    taskset: TaskSet
    tasks: tuple[PeriodicTask, ...]
    ranks: tuple[int, ...]
    processors: int
    responses: Mapping[str, int] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """Return the scheduling policy of the tasks."""
        return self.taskset.policy

    @property
    def utilisation(self) -> Fraction:
        """Return the sum of WCET over period."""
        return sum((task.utilisation for task in self.tasks), Fraction(0))

    @property
    def preemption(self) -> str:
        """Return ``full``, ``none``, or ``limited`` where a task has non-preemptive regions."""
        if not self.policy.preemptive:
            return "none"
        return "limited" if any(task.region_ns for task in self.tasks) else "full"

    @property
    def deadlines(self) -> str:
        """Return ``implicit`` (every deadline at least the period is as good), ``constrained`` or ``arbitrary``."""
        if all(task.deadline_ns == task.period_ns for task in self.tasks):
            return "implicit"
        return "constrained" if all(t.deadline_ns <= t.period_ns for t in self.tasks) else "arbitrary"

    @property
    def features(self) -> frozenset[str]:
        """Return the members of `FEATURES` that the tasks have."""
        found = {
            "jitter": any(task.jitter_ns for task in self.tasks),
            "blocking": any(task.blocking_ns for task in self.tasks),
            "suspension": any(task.suspension_ns for task in self.tasks),
            "accelerator": any(task.requests for task in self.taskset.tasks),  # its server may run on this processor
            "graph": any(task.graph for task in self.tasks),
            "types": bool(self.taskset.types),
            "memory": self.taskset.memory is not None and any(task.accesses for task in self.tasks),
            "memguard": self.taskset.memguard is not None,
            "levels": any(task.level or task.degraded_ns for task in self.taskset.tasks),
        }
        return frozenset(name for name, there in found.items() if there)

    def by_rank(self) -> list[tuple[PeriodicTask, list[PeriodicTask], list[PeriodicTask]]]:
        """Return (task, tasks of higher priority, tasks of lower priority), highest first."""
        order = [task for _, task in sorted(zip(self.ranks, self.tasks, strict=True), key=lambda pair: pair[0])]
        return [(task, order[:index], order[index + 1 :]) for index, task in enumerate(order)]


@dataclass(frozen=True, slots=True)
class Scope:
    """Systems to which a test applies; `needs` are features without which it adds nothing new."""

    rules: tuple[str, ...] = ("fp", "rm", "dm")
    preemption: tuple[str, ...] = ("full",)
    processors: str = "one"
    deadlines: str = "arbitrary"
    takes: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()

    def unmet(self, problem: Problem) -> str:
        """Return why a test of this scope does not apply to a system, empty if it does."""
        policy, extra = problem.policy, problem.features
        if policy.rule not in self.rules:
            return f"it applies to {' or '.join(self.rules)}, the policy is {policy.rule}"
        if self.processors == "one" and problem.processors > 1:
            return f"it applies to one processor, these tasks share {problem.processors}"
        if self.processors == "many" and problem.processors == 1:
            return "it applies to tasks that share several processors"
        if problem.preemption not in self.preemption:
            words = " or ".join("no" if kind == "none" else kind for kind in self.preemption)
            return f"it applies to {words} preemption, here it is {problem.preemption}"
        if self.deadlines == "implicit" and any(t.deadline_ns < t.period_ns for t in problem.tasks):
            return "a deadline is shorter than its period"
        if self.deadlines == "equal" and problem.deadlines != "implicit":
            return "a deadline differs from its period"
        if self.deadlines == "constrained" and problem.deadlines == "arbitrary":
            return "a deadline is longer than its period"
        over = sorted(FEATURES[name] for name in extra - self.takes - self.needs)
        if over:
            return f"it does not cover {', '.join(over)}"
        missing = sorted(FEATURES[name] for name in self.needs - extra)
        return f"the task set has no {', '.join(missing)}" if missing else ""


@dataclass(frozen=True, slots=True)
class SchedulabilityTest:
    """A published test (`published` makes one of a function); `exact` if a predicted miss can occur in some phasing."""

    name: str
    source: str
    scope: Scope
    run: Callable[[Problem], Answer]
    exact: bool = False
    kind: str = "task"
    """``task``: run for tasks that share processors; ``chain``: run once, over the chain."""
    also: Callable[[Problem], str] | None = None
    """Returns a further reason why the test does not apply, empty if there is none."""
    rank: int = 100
    """Smaller first: of equal bounds the one of the first test is reported."""

    def unmet(self, problem: Problem) -> str:
        """Return why the test does not apply, empty if it does."""
        if self.kind == "chain" and any(problem.taskset.tasks[index].sporadic for index in problem.taskset.chain):
            return "it applies to periodic tasks: nothing bounds how long a sporadic one stays away"
        return self.scope.unmet(problem) or (self.also(problem) if self.also else "")


def published(
    name: str,
    source: str,
    system: Scope,
    *,
    exact: bool = False,
    kind: str = "task",
    also: Callable[[Problem], str] | None = None,
    rank: int = 100,
) -> Callable[[Callable[[Problem], Answer]], SchedulabilityTest]:
    """Declare a function as a published test: its name, source (paper and equation or section), and system."""
    return lambda function: SchedulabilityTest(name, source, system, function, exact, kind, also, rank)


def responses(rows: Iterable[Row], exact: bool = False, none_is_late: bool = False) -> Answer:
    """Return response-time bounds as an answer.

    A response that an exact test finds too late is a miss if all tasks can be released at once; so is a missing
    response, if it can only mean lateness (`none_is_late`) and not an abandoned search.
    """
    rows = list(rows)
    bounds = {task.name: Bound(value, terms) for task, value, terms in rows if value is not None}
    late = [task for task, value, _ in rows if value is None or value > task.deadline_ns]
    if not late:
        return Answer(True, bounds)
    proved = [task for task, value, _ in rows if (none_is_late if value is None else value > task.deadline_ns)]
    miss = exact and bool(proved) and is_synchronous([task for task, _, _ in rows])
    names = ", ".join(task.name for task in late[:8]) + (", ..." if len(late) > 8 else "")
    return Answer(False if miss else None, bounds, note=f"late, or without a bound: {names}")


def highest_first(
    problem: Problem,
    respond: Callable[[PeriodicTask, list[PeriodicTask], list[PeriodicTask], dict[str, int]], tuple[int | None, Terms]],
) -> list[Row]:
    """Return the row of every task from those above and below it and their responses; none below one without."""
    known: dict[str, int] = {}
    rows: list[Row] = []
    for task, higher, lower in problem.by_rank():
        ready = len(known) == len(higher)
        value, terms = respond(task, higher, lower, known) if ready else (None, ())
        if value is not None:
            known[task.name] = value
        rows.append((task, value, terms))
    return rows


def for_tasks_of(problem: Problem, rows: Iterable[Row]) -> Answer:
    """Return the bounds that a changed copy of a problem has (longer costs, other deadlines) as those of its tasks."""
    by_name = {task.name: task for task in problem.tasks}
    return responses((by_name[task.name], value, terms) for task, value, terms in rows)


def fixed_point(start: int, longer: Callable[[int], int], limit: int) -> int | None:
    """Return the least fixed point from `start`, None if it exceeds `limit` (ns)."""
    length = start
    while length <= limit:
        following = longer(length)
        if following <= length:
            return length
        length = following
    return None


def is_synchronous(tasks: Iterable[PeriodicTask]) -> bool:
    """Return whether all tasks release their first jobs at one instant, so that a predicted miss does occur."""
    found = {(0 if task.sporadic else task.offset_ns, task.jitter_ns) for task in tasks}
    return len(found) == 1 and not any(jitter for _, jitter in found)


def is_sporadic(tasks: Iterable[PeriodicTask]) -> bool:
    """Return whether any phases of any tasks occur, so that a miss in some phasing does."""
    return all(task.sporadic and not task.jitter_ns for task in tasks)


def deadlines_met(problem: Problem, terms: Terms = (), note: str = "") -> Answer:
    """Return the answer of a test of the whole set that succeeded: every deadline is a bound."""
    return Answer(
        True, {t.name: Bound(t.deadline_ns, (("deadline, which is met", t.deadline_ns),)) for t in problem.tasks},
        terms=terms, note=note,
    )  # fmt: skip


_FULL = 1 - 1e-6
"""Utilisation from which on rounding might decide."""


def endless(task: PeriodicTask, higher: Iterable[PeriodicTask], blocking: int) -> bool:
    """Return whether the busy period of a task and all of higher priority may be unbounded."""
    tasks = [task, *higher]
    if sum(other.wcet_ns / other.period_ns for other in tasks) < _FULL:
        return False
    load = sum((other.utilisation for other in tasks), Fraction(0))
    return load > 1 or (load == 1 and bool(blocking or any(other.jitter_ns for other in tasks)))


def rt_task(task: PeriodicTask, wcet: int | None = None) -> RtTask:
    """Return a task in the form used by the plan's own tests, on one lane."""
    return RtTask(
        name=task.name,
        lanes=frozenset({("cpu", task.cpu or 0)}),
        wcet=task.wcet_ns if wcet is None else wcet,
        period=task.period_ns,
        deadline=task.deadline_ns,
        release_jitter=task.jitter_ns,
    )


def with_jitter(task: PeriodicTask, terms: Terms) -> Terms:
    """Return the terms of a response, adding the omitted release jitter."""
    return (("release jitter", task.jitter_ns), *terms) if task.jitter_ns else terms


def percent(value: Fraction) -> int:
    """Return a share in parts per million, since terms are integers."""
    return round(value * 1_000_000)
