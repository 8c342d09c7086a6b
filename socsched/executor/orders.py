"""Declared orders of policies, as an executor can serve them: two terms that are constant while a job waits."""

from __future__ import annotations

from socsched.errors import UsageError
from socsched.sim.policies import Term, get_policy

Terms = tuple[str, str]
CONSTANT = frozenset(
    (
        Term.NOTHING, Term.PRIORITY, Term.DEADLINE, Term.ACTIVATION, Term.PERIOD, Term.RELATIVE_DEADLINE,
        Term.CRITICALITY, Term.LAXITY, Term.REMAINING, Term.COST, Term.BEST_EFFORT,
    )
)  # fmt: skip
"""The terms that do not change while a job waits: the time common to all waiting jobs does not change their order."""


def declared_terms(name: str) -> Terms:
    """Return the two terms by which the policy `name` orders jobs that are not preempted.

    Raises UsageError for a policy whose order changes while jobs wait, or that needs more than an order.
    """
    rule = get_policy(name)
    more = rule.sliced or rule.serves or rule.across or rule.tokens or rule.corun
    if callable(rule.order) or more or not set(rule.order) <= CONSTANT:
        raise UsageError(f"policy {name!r} cannot be run on a machine", "plan again with edf, fp or fifo")
    first, second = rule.order
    return first.name.lower(), second.name.lower()


def preemption_of(name: str) -> str:
    """Return how the policy `name` preempts: "as-engine", "never", or "mechanism" for one that the policy declares."""
    rule = get_policy(name)
    return "never" if not rule.preemptive else "mechanism" if rule.preemption else "as-engine"
