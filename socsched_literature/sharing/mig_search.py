"""MIG-Serving's slow algorithm: a genetic algorithm whose crossover erases GPUs and refills them by tree search.

Tan et al., arXiv 2109.11067, section 5.3: individuals are deployments; mutation swaps services between instances of one
size, which only affects what a later crossover can erase; crossover erases some GPUs at random and fills the missing
demand by Monte Carlo tree search, customised: children are the best-scored configurations only, a rollout continues
greedily and is memoised by the missing demand (rounded to a percent).  The best deployment never gets worse.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log, sqrt

from socsched_literature.sharing.mig_serving import Choices, Config, Problem, greedy, is_complete, lower_bound, trim


@dataclass(frozen=True, slots=True)
class Search:
    """Limits: `rounds` of the genetic algorithm, `population`, `erased` share of GPUs, `visits` and `children`."""

    rounds: int = 12
    population: int = 4
    erased: float = 0.5
    visits: int = 40
    children: int = 6
    exploration: float = 1.0
    seed: int = 0


@dataclass(slots=True)
class _Node:
    completed: tuple[float, ...]
    path: tuple[Config, ...]
    visits: int = 0
    reward: float = 0.0
    children: list[_Node] | None = None


@dataclass(slots=True)
class Mcts:
    """Tree search for the fewest configurations that complete the missing demand."""

    choices: Choices
    search: Search
    draw: random.Random
    known: dict[tuple[int, ...], list[Config]] = field(default_factory=dict)

    def solve(self, completed: Sequence[float]) -> list[Config]:
        """Return configurations that complete the rest; the greedy ones if no better were found."""
        root = _Node(tuple(completed), ())
        best = self._rollout(root.completed)
        if not best:
            return []
        scale = len(best)
        for _ in range(self.search.visits):
            trail, node = [root], root
            while node.children:
                node = self._choose(node)
                trail.append(node)
            if not is_complete(node.completed) and node.visits:
                node.children = [
                    _Node(
                        tuple(min(1.0, a + b) for a, b in zip(node.completed, utility, strict=True)),
                        (*node.path, config),
                    )
                    for config, utility in self.choices.ranked(node.completed, self.search.children)
                ]
                node = node.children[self.draw.randrange(len(node.children))]
                trail.append(node)
            found = [*node.path, *self._rollout(node.completed)]
            if len(found) < len(best):
                best = found
            for one in trail:
                one.visits += 1
                one.reward += scale / max(1, len(found))
        return best

    def _choose(self, node: _Node) -> _Node:
        children = node.children or []
        fresh = [child for child in children if not child.visits]
        if fresh:
            return fresh[0]
        pull = self.search.exploration * sqrt(log(node.visits))
        return max(children, key=lambda one: one.reward / one.visits + pull / sqrt(one.visits))

    def _rollout(self, completed: tuple[float, ...]) -> list[Config]:
        if is_complete(completed):
            return []
        # Rounded down: every state sharing an entry misses no more than the state the entry was computed for.
        key = tuple(int(min(1.0, c) * 100 + 1e-9) for c in completed)
        if key not in self.known:
            self.known[key] = _grown(self.choices, [c / 100 for c in key])
        return self.known[key]


def _grown(choices: Choices, completed: Sequence[float]) -> list[Config]:
    have, chosen = list(completed), []
    while not is_complete(have):
        config, utility = choices.ranked(have)[0]
        chosen.append(config)
        have = [a + b for a, b in zip(have, utility, strict=True)]
    return chosen


def search(given: Problem, limits: Search = Search()) -> list[Config]:
    """Return GPU configurations by the slow algorithm: never more than from the fast one."""
    draw = random.Random(limits.seed)
    choices = Choices(given)
    mcts = Mcts(choices, limits, draw)
    first = greedy(given, choices=choices)
    least = lower_bound(given)
    people = [first]
    for _ in range(limits.rounds):
        if len(people[0]) <= least:
            break
        born = []
        for parent in people:
            for _ in range(max(1, limits.population // len(people))):
                mutant = swap_services(parent, draw)
                kept = [config for config in mutant if draw.random() >= limits.erased]
                child = trim(given, [*kept, *mcts.solve(given.completed(kept))])
                born.append(child)
        people = sorted([*people, *born], key=lambda one: (len(one), _instances(one), one))[: limits.population]
    return people[0]


def _instances(configs: Sequence[Config]) -> int:
    return sum(len(config) for config in configs)


def swap_services(configs: Sequence[Config], draw: random.Random) -> list[Config]:
    """Return the deployment with services exchanged between two equal-sized instances on two GPUs, if possible."""
    changed = [list(config) for config in configs]
    places = [(i, j) for i, config in enumerate(changed) for j in range(len(config))]
    draw.shuffle(places)
    for a in range(len(places)):
        i, j = places[a]
        for k, m in places[a + 1 :]:
            (one, mine), (other, yours) = changed[i][j], changed[k][m]
            if i != k and one == other and mine != yours:
                changed[i][j], changed[k][m] = (one, yours), (other, mine)
                return [tuple(sorted(config)) for config in changed]
    return [tuple(config) for config in configs]
