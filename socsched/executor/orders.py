"""Declared orders of policies, as an executor can serve them: two terms that are constant while a job waits."""

from __future__ import annotations

from collections.abc import Callable

from socsched.errors import UsageError
from socsched.planning.plan import Task
from socsched.runtime.overload import CRITICALITIES
from socsched.runtime.policy import Key
from socsched.sim.policies import Term, get_policy
from socsched.trace.trace import Job

Terms = tuple[str, str]
Value = Callable[[Job, Task], int]


def _cost(task: Task) -> int:
    return sum(segment.time_ns for segment in task.segments) if task.segments else task.cost_ns


def _rank(task: Task) -> int:
    return CRITICALITIES.index("hard") - CRITICALITIES.index(task.criticality)


_VALUES: dict[Term, Value] = {
    Term.NOTHING: lambda job, task: 0,
    Term.PRIORITY: lambda job, task: task.priority,
    Term.DEADLINE: lambda job, task: job.deadline_ns,
    Term.ACTIVATION: lambda job, task: job.activation_ns,
    Term.PERIOD: lambda job, task: task.period_ns,
    Term.RELATIVE_DEADLINE: lambda job, task: task.deadline_ns,
    Term.CRITICALITY: lambda job, task: _rank(task),
    # the time common to all waiting jobs does not change their order
    Term.LAXITY: lambda job, task: job.deadline_ns - _cost(task),
    Term.REMAINING: lambda job, task: _cost(task),
    Term.COST: lambda job, task: _cost(task),
    Term.BEST_EFFORT: lambda job, task: int(task.criticality == "soft"),
}
"""The terms that do not change while a job waits, as the kernel computes them (`sim.kernel.kernel`)."""


def declared_terms(name: str) -> Terms:
    """Return the two terms by which the policy `name` orders jobs that are not preempted.

    Raises UsageError for a policy whose order changes while jobs wait, or that needs more than an order.
    """
    rule = get_policy(name)
    more = rule.sliced or rule.serves or rule.across or rule.tokens or rule.corun or rule.batch or rule.controller
    if callable(rule.order) or more or not set(rule.order) <= _VALUES.keys():
        raise UsageError(f"policy {name!r} cannot be run on a machine", "plan again with edf, fp or fifo")
    first, second = rule.order
    return first.name.lower(), second.name.lower()


def preemption_of(name: str) -> str:
    """Return how the policy `name` preempts: "as-engine", "never", or "mechanism" for one that the policy declares."""
    rule = get_policy(name)
    return "never" if not rule.preemptive else "mechanism" if rule.preemption else "as-engine"


def declared_key(name: str) -> Key:
    """Return the sort key of a policy for the Python dispatcher; raise UsageError as `declared_terms`."""
    first, second = (_VALUES[Term[term.upper()]] for term in declared_terms(name))
    return lambda job, task: (first(job, task), second(job, task))
