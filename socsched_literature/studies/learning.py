"""A small policy-gradient agent in numpy: REINFORCE with a baseline, linear softmax, masked actions.

Williams, Machine Learning 8, 1992; the baseline is the mean return at each step over the episodes of a batch, with the
same seeds (input-driven variance, Mao et al., ICLR 2019).  The result is the best of the evaluated weights by misses,
then by reward, on validation seeds.  The safe action alone is among the candidates, so the result is never worse there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from socsched.errors import InputError, UsageError
from socsched.faults.model import Faults
from socsched.files import write_file
from socsched.planning.plan import Plan
from socsched.sim.build import load_kernel
from socsched.sim.callbacks import Callbacks
from socsched.sim.lower import lower
from socsched.sim.policies import REGISTERED, Policy, Term
from socsched.sim.policies.controllers import View
from socsched.sim.policies.learned import ACTIONS, FEATURES, SAFE, MaskedFeatures, Observer, act, select_guarded
from socsched_literature.studies.policies import vary_plan

# A Gymnasium-style environment over the simulator: each step chooses the order on one unit for one period.
#
# `reset(seed)` and `step(action)` return the same values as `gymnasium.Env`, without needing the package: an
# observation (float64, `learned.FEATURES`), the reward, whether the episode has ended, whether it was truncated, and
# a dictionary with the `mask` of allowed actions.  An action that is masked at the time of its application is
# replaced by the first one, so that no agent can violate the guarantees of `policies.slack_stealing`.
#
# Reward of a step: minus `miss_cost` for every late job of a guarded task, `soft_cost` for any other, minus
# `tardiness_cost` for every period a late job spends waiting, minus `energy_cost` for every mJ.


Observation = NDArray[np.float64]
Choice = Callable[[Observation, NDArray[np.bool_]], int]
"""choice(observation, mask) -> action."""
_NAME = "environment"


@dataclass(frozen=True, slots=True)
class Costs:
    """Weights of the reward terms."""

    miss: float = 10.0
    soft: float = 1.0
    tardiness: float = 0.1
    energy: float = 0.0


class _AgentController:
    """Observes, waits a nanosecond for the action chosen on that observation, and applies it if still allowed."""

    def __init__(self, unit: int, period_ns: int) -> None:
        self.unit, self.step_ns, self.period_ns = unit, period_ns, period_ns
        self.observer = Observer(period_ns)
        self.view: View | None = None
        self.observation: MaskedFeatures | None = None
        self.seen_ns, self.samples, self.action, self.applied, self.refused = 0, 0, 0, 0, 0
        self.choosing = False

    def decide(self, view: View, now_ns: int) -> tuple[tuple[Term, Term], int | None]:
        if view.unit != self.unit:
            self.period_ns = self.step_ns
            return SAFE, None
        if not self.choosing:
            self.view, self.observation, self.seen_ns = view, self.observer.observe(view, now_ns, self.applied), now_ns
            self.samples += 1
            self.choosing, self.period_ns = True, 1
            return act(view, self.applied)
        self.choosing, self.period_ns = False, self.step_ns - 1
        assert self.observation is not None
        allowed = self.observation.mask[self.action]
        self.refused += not allowed
        self.applied = self.action if allowed else 0
        return act(view, self.applied)


class Environment:
    """The order on one unit of a plan (`unit`, else the unit with most tasks), decided every `period_ns`.

    Other engines keep the plan's policies.  An episode lasts `duration_ns`; its seed draws phases and execution times
    as in `policies.vary_plan`.
    """

    def __init__(
        self,
        plan: Plan,
        duration_ns: int = 500_000_000,
        period_ns: int = 1_000_000,
        spread: float = 0.3,
        costs: Costs = Costs(),
        unit: int | None = None,
    ) -> None:
        lowered = lower(plan, 0)
        if not lowered.units:
            raise UsageError("a plan without tasks has nothing to learn from")
        own = [lowered.tables["g_unit"][row] for row in lowered.tables["t_first"][: len(plan.tasks)]]
        self.unit = unit if unit is not None else max(range(len(lowered.units)), key=lambda u: (own.count(u), -u))
        if not 0 <= self.unit < len(lowered.units):
            raise UsageError(f"no unit {self.unit}", f"units: 0 to {len(lowered.units) - 1}")
        self.engine = lowered.plan.engines[lowered.units[self.unit].engine].id
        self.plan, self.duration_ns, self.period_ns, self.spread, self.costs = (
            plan,
            duration_ns,
            period_ns,
            spread,
            costs,
        )
        self._tasks = [number for number, u in enumerate(own) if u == self.unit]
        self._guarded = set(select_guarded(plan, self._tasks))
        self.actions, self.features = len(ACTIONS), len(FEATURES)
        self._kernel: Any = None

    def reset(self, seed: int = 0) -> tuple[Observation, dict[str, Any]]:
        """Start an episode and return the first observation."""
        varied = vary_plan(self.plan, seed, self.spread)
        self._controller = controller = _AgentController(self.unit, self.period_ns)
        rule = Policy(_NAME, SAFE, dynamic=True, controller=lambda: controller)
        engines = tuple(e if e.id != self.engine else replace(e, policy=_NAME) for e in varied.engines)
        REGISTERED[_NAME] = rule
        try:
            lowered = lower(replace(varied, engines=engines), seed)
        finally:
            del REGISTERED[_NAME]
        callbacks = Callbacks(lowered, Faults(), seed)
        made_for = load_kernel(None, 1 << 40, lowered.tables["numbers"]["words"])
        self._kernel = made_for(lowered.tables, callbacks, self.duration_ns, 0)
        callbacks.controllers.kernel = self._kernel
        self._late = (0, 0)
        self._spent = 0.0
        self._over = False
        self._advance()
        self._late, self._spent = self._counts(), self._energy()
        return self._observed(), self._info()

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Apply an action for one period and return (observation, reward, terminated, truncated, info)."""
        if self._kernel is None or self._over:
            raise UsageError("the episode is over", "call reset first")
        if not 0 <= int(action) < self.actions:
            raise UsageError(f"no action {action}", f"actions: 0 to {self.actions - 1}")
        self._controller.action = int(action)
        self._over = not self._advance()
        late, spent = self._counts(), self._energy()
        guarded, soft = late[0] - self._late[0], late[1] - self._late[1]
        energy = (spent - self._spent) / 1e9
        self._late, self._spent = late, spent
        reward = -self.costs.miss * guarded - self.costs.soft * soft - self.costs.energy * energy
        reward -= self.costs.tardiness * self._waiting_late()
        return self._observed(), reward, self._over, False, self._info()

    def misses(self) -> tuple[int, int]:
        """Return the number of late or lost jobs so far: of guarded tasks, of others."""
        return self._counts()

    def _advance(self) -> bool:
        """Advance to the next observation; return False if the episode ends before."""
        samples = self._controller.samples
        while self._controller.samples == samples:
            if not self._kernel.run_events(1):
                return False
        return True

    def _observed(self) -> Observation:
        assert self._controller.observation is not None
        return np.array(self._controller.observation.features)

    def _info(self) -> dict[str, Any]:
        assert self._controller.observation is not None
        mask = np.array(self._controller.observation.mask)
        return {"mask": mask, "time_ns": self._controller.seen_ns, "refused": self._controller.refused}

    def _counts(self) -> tuple[int, int]:
        view = self._controller.view
        if view is None:
            return 0, 0
        lost = [sum(int(view.counts[name][t]) for name in ("late", "dropped", "aborted")) for t in self._tasks]
        guarded = sum(n for t, n in zip(self._tasks, lost, strict=True) if t in self._guarded)
        return guarded, sum(lost) - guarded

    def _energy(self) -> float:
        """Return the dynamic energy of the unit's engine so far (mW ns)."""
        view = self._controller.view
        if view is None:
            return 0.0
        index = next(i for i, e in enumerate(view.plan.engines) if e.id == self.engine)
        engine = view.plan.engines[index]
        powers = [point.dynamic_mw for point in engine.levels] or [engine.dynamic_mw]
        levels = max(len(e.levels) or 1 for e in view.plan.engines)
        powers = [powers[0]] * (levels - len(powers)) + powers
        spent: Sequence[int] = view.counts["busy_time"][index * levels : (index + 1) * levels]
        return sum(t * p for t, p in zip(spent, powers, strict=True)) / max(engine.lanes, 1)

    def _waiting_late(self) -> float:
        """Return the number of late waiting jobs, each weighted by the step as a fraction of its period (at most 1)."""
        view, now = self._controller.view, self._controller.seen_ns
        if view is None:
            return 0.0
        late = [job for job in view.ready() if job.deadline_ns < now]
        return sum(min(self.period_ns / max(job.task.period_ns, 1), 1.0) for job in late)


def rollout(environment: Environment, seed: int, choose: Choice) -> tuple[float, tuple[int, int]]:
    """Play an episode and return its reward, and its misses of guarded tasks and others."""
    observation, info = environment.reset(seed)
    total, over = 0.0, False
    while not over:
        observation, reward, over, _, info = environment.step(choose(observation, info["mask"]))
        total += reward
    return total, environment.misses()


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
