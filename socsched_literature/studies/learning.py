"""A small policy-gradient agent in numpy: REINFORCE with a baseline, linear softmax, masked actions.

Williams, Machine Learning 8, 1992; the baseline is the mean return at each step over the episodes of a batch, with the
same seeds (input-driven variance, Mao et al., ICLR 2019).  The result is the best of the evaluated weights by misses,
then by reward, on validation seeds.  The safe action alone is among the candidates, so the result is never worse there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from socsched.errors import InputError
from socsched.files import write_file
from socsched.sim.policies.learned import ACTIONS, FEATURES, SAFE
from socsched_literature.studies.environment import Environment, rollout

Weights = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trained:
    """Weights (actions by features); reward and misses on validation seeds for them and for the safe action alone."""

    weights: Weights
    reward: float
    misses: tuple[int, int]
    safe_reward: float
    safe_misses: tuple[int, int]
    history: tuple[float, ...]
    period_ns: int


def probabilities(weights: Weights, observation: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the probability of every action; 0 for masked ones."""
    found = np.where(mask, weights @ observation, -np.inf)
    found = np.exp(found - found.max())
    return np.asarray(found / found.sum())


def greedy(weights: Weights) -> Callable[[NDArray[np.float64], NDArray[np.bool_]], int]:
    """Return a function that chooses the allowed action with the highest score, the first of equals."""
    return lambda observation, mask: int(np.argmax(np.where(mask, weights @ observation, -np.inf)))


def train(
    environment: Environment,
    batches: int = 40,
    episodes: int = 6,
    rate: float = 1.0,
    discount: float = 0.98,
    seed: int = 0,
    validation: Sequence[int] = tuple(range(9000, 9006)),
    progress: Callable[[str], None] = lambda text: None,
) -> Trained:
    """Train for `batches` of `episodes` each, all episodes of a batch on one seed, and return the best weights."""
    draw = np.random.default_rng(seed)
    weights = np.zeros((environment.actions, environment.features))
    weights[0, 0] = 1.0
    safe = _evaluated(environment, _safe_only(environment), validation)
    best, best_score = _safe_only(environment), safe
    history: list[float] = []
    for batch in range(batches):
        played = [_episode(environment, 1 + seed * 1000 + batch, weights, draw, discount) for _ in range(episodes)]
        history.append(float(np.mean([total for total, _, _ in played])))
        length = max(len(returns) for _, returns, _ in played)
        padded = np.array([np.pad(returns, (0, length - len(returns))) for _, returns, _ in played])
        baseline, scale = padded.mean(axis=0), padded.std() + 1e-9
        step = np.zeros_like(weights)
        for _, returns, gradients in played:
            advantage = (returns - baseline[: len(returns)]) / scale
            step += np.tensordot(advantage, gradients, axes=1) / len(returns)
        weights = weights + rate * step / episodes
        progress(f"batch {batch + 1} of {batches}: mean reward {history[-1]:.2f}")
        if batch % 5 == 4 or batch == batches - 1:
            score = _evaluated(environment, weights, validation)
            if _better(score, best_score):
                best, best_score = weights.copy(), score
    return Trained(best, *best_score, *safe, tuple(history), environment.period_ns)


def _safe_only(environment: Environment) -> Weights:
    weights = np.zeros((environment.actions, environment.features))
    weights[0, 0] = 1.0
    return weights


def _better(a: tuple[float, tuple[int, int]], b: tuple[float, tuple[int, int]]) -> bool:
    """Return whether `a` is better than `b`: no more guarded misses, no more misses in total, and more reward."""
    return a[1][0] <= b[1][0] and sum(a[1]) <= sum(b[1]) and a[0] > b[0]


def _evaluated(environment: Environment, weights: Weights, seeds: Sequence[int]) -> tuple[float, tuple[int, int]]:
    found = [rollout(environment, seed, greedy(weights)) for seed in seeds]
    return sum(reward for reward, _ in found), (sum(m[0] for _, m in found), sum(m[1] for _, m in found))


def _episode(
    environment: Environment, seed: int, weights: Weights, draw: np.random.Generator, discount: float
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Play an episode; return its reward, discounted returns by step, and gradients of log-probabilities by step."""
    observation, info = environment.reset(seed)
    rewards: list[float] = []
    gradients: list[NDArray[np.float64]] = []
    over = False
    while not over:
        likely = probabilities(weights, observation, info["mask"])
        action = int(draw.choice(len(likely), p=likely))
        chosen = -likely
        chosen[action] += 1.0
        gradients.append(np.outer(chosen, observation))
        observation, reward, over, _, info = environment.step(action)
        rewards.append(reward)
    returns = np.zeros(len(rewards))
    ahead = 0.0
    for place in range(len(rewards) - 1, -1, -1):
        ahead = rewards[place] + discount * ahead
        returns[place] = ahead
    return float(sum(rewards)), returns, np.array(gradients)


def save(path: Path, trained: Trained, what: str) -> None:
    """Write weights for the policy `learned`; InputError if that fails."""
    order = [[f"{first.name}, {second.name}", slow] for (first, second), slow in ACTIONS]
    assert ACTIONS[0][0] == SAFE
    data = {
        "schema_version": "1",
        "kind": "weights",
        "trained_on": what,
        "period_ns": trained.period_ns,
        "features": list(FEATURES),
        "actions": order,
        "weights": [[round(x, 9) for x in row] for row in trained.weights.tolist()],
        "validation": {
            "reward": trained.reward,
            "misses": list(trained.misses),
            "safe_reward": trained.safe_reward,
            "safe_misses": list(trained.safe_misses),
        },
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(data, indent=2) + "\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}", "choose a writable folder") from None
