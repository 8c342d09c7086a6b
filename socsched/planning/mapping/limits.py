"""Conflicting limits of a mapping problem."""

from __future__ import annotations

from dataclasses import replace

from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.mapping.cpsat import Program
from socsched.planning.mapping.problem import Problem


def conflict(problem: Problem, clock: Clock = NO_CLOCK, seed: int = 0) -> tuple[str, ...]:
    """Return a minimal set of limits that cannot hold together, by deletion; () if infeasibility was not proved.

    The limits are those of requirements and budgets; a limit stays in the set unless the rest is infeasible without it.
    Source: Chinneck & Dravnieks, "Locating minimal infeasible constraint sets", ORSA J. Computing 3(2), 1991.
    """
    names = [need.name for need in problem.requirements if need.limit_ns is not None]
    names += [budget.name for budget in problem.budgets]
    each = clock.left() / (len(names) + 1)
    if not _infeasible(problem, names, clock.next(each), seed):
        return ()
    kept = list(names)
    for name in names:
        rest = [other for other in kept if other != name]
        if _infeasible(problem, rest, clock.next(each), seed):
            kept = rest
    return tuple(kept)


def _infeasible(problem: Problem, names: list[str], clock: Clock, seed: int) -> bool:
    kept = replace(
        problem,
        requirements=tuple(
            need if need.name in names else replace(need, limit_ns=None) for need in problem.requirements
        ),
        budgets=tuple(budget for budget in problem.budgets if budget.name in names),
        objectives=("makespan",),
    )
    return Program(kept).solve_within(clock, "makespan", seed).status == "infeasible"
