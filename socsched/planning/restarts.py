"""A wider search for a mapping that meets every requirement: local searches from perturbed mappings.

Lourenço, Martin, Stützle, "Iterated Local Search", Handbook of Metaheuristics, 2003.  A local search by single moves
stops where two or three stages would have to move together; a perturbation moves that many at random, most of them
stages that violations name.  The random numbers are seeded and the rounds counted, so that equal inputs give equal
mappings unless the clock ends the search.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from socsched.cost.cost import Cost
from socsched.planning.candidate import Candidate, judge, make_improvement_test, score
from socsched.planning.clock import Clock
from socsched.planning.mapping.mapper import improve
from socsched.planning.solution import Solution
from socsched.planning.workload import Unconnectable, Workload

ROUNDS = 60
"""Local searches at most."""
BUDGET = 120
"""Mappings evaluated by each."""
_MOVED = (2, 3, 4)
"""Stages that a perturbation moves."""
_INVOLVED = 0.7
"""Chance that a stage to move is one that a violation names."""
_BACK = 6
"""Rounds without a better mapping after which the search returns to the best one."""


def restart(solution: Solution, workload: Workload, goals: Sequence[str], clock: Clock) -> Solution:
    """Return a solution that meets every requirement if one of the searches finds one, else the best one seen."""
    options, draws = workload.options(), random.Random(0)
    movable = [name for name in workload.graph.order if len(options[name]) > 1]
    start = dict(solution.candidate.deployment.mapping)
    if not movable or set(start) != set(options):
        return solution
    best, here, idle, evaluated = solution.candidate, solution.candidate, 0, 0
    for _ in range(ROUNDS):
        if clock.over() or best.verdict == "feasible":
            break
        mapping = _perturbed(here, options, movable, draws)
        found = improve(mapping, options, make_improvement_test(workload, goals), BUDGET, clock, enough=0.0)
        evaluated += found.evaluated
        try:
            candidate = judge(workload, found.mapping)
        except Unconnectable:
            continue
        here = candidate if score(candidate, goals) < score(here, goals) or not idle else here
        if score(candidate, goals) < score(best, goals):
            best, here, idle = candidate, candidate, 0
        else:
            idle += 1
            if idle % _BACK == 0:
                here = best
    if best.verdict == "feasible" and not clock.over():
        mapping = dict(best.deployment.mapping)
        found = improve(mapping, options, make_improvement_test(workload, goals), BUDGET, clock)
        evaluated += found.evaluated
        candidate = judge(workload, found.mapping)
        if score(candidate, goals) < score(best, goals):
            best = candidate
    counted = replace(solution.search, evaluated=solution.search.evaluated + evaluated)
    return replace(solution, candidate=best, score=score(best, goals), search=counted)


def _perturbed(
    candidate: Candidate, options: Mapping[str, Sequence[Cost]], movable: Sequence[str], draws: random.Random
) -> dict[str, Cost]:
    named = {term.split(":")[0] for violation in candidate.violations for term, _ in violation.terms}
    involved = [name for name in movable if name in named]
    mapping = dict(candidate.deployment.mapping)
    for _ in range(draws.choice(_MOVED)):
        names = involved if involved and draws.random() < _INVOLVED else movable
        name = draws.choice(names)
        mapping[name] = draws.choice(options[name])
    return mapping
