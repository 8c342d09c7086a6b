"""Interference-aware placement: every stage goes where its predicted slowdown from resident stages is least.

Mendoza, Romero, Li, Yadwadkar, Kozyrakis, "Interference-Aware Scheduling for Inference Serving", EuroMLSys 2021: one
model predicts the latency degradation of a network from its own features, those of its co-runners and the machine, for
any number of co-runners; the scheduler takes argmin over machines of the predicted degradation, where others take the
least loaded one.

Reconstructed: the available texts do not give the features or the regression.  Here it is a ridge regression (numpy) on
mean and peak traffic demand, and on sum and maximum of the co-runners' mean demand.  It is trained on co-runs of the
pipeline's own stages, drawn with a fixed seed and evaluated by the platform's contention model; queueing on one engine
counts as its utilisation.  Machines are the engines of one SoC, so the degradation is applied to the stage's time there
(`weight` 0 gives plain earliest finish by load).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from socsched.cost.contention import ContentionModel, draw
from socsched.cost.cost import Cost, Segment
from socsched.planning.mapping.local_search import transfer_ns
from socsched.planning.planners import Ask, Option, Planner, Proposal
from socsched.planning.workload import Workload

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Predictor:
    """A linear model of degradation (factor on the time alone) over `features`."""

    weights: Array
    error: float

    def degradation(self, me: Cost, others: Sequence[Cost], capacity: float) -> float:
        """Return the predicted slowdown factor of a stage co-running with others; at least 1."""
        return max(1.0, float(features(me, others, capacity) @ self.weights))


def features(me: Cost, others: Sequence[Cost], capacity: float) -> Array:
    """Return the features of a stage and its co-runners; traffic relative to `capacity` (bytes/s)."""
    mine, theirs = _drawn(me, capacity), [_drawn(other, capacity) for other in others]
    total, most = sum(theirs), max(theirs, default=0.0)
    peak = max(map(draw, me.segments), default=0.0) / max(capacity, 1.0)
    over = max(peak + total - 1.0, 0.0)
    return np.array([1.0, mine, peak, total, most, mine * total, peak * total, over, mine * over, float(len(others))])


def _drawn(cost: Cost, capacity: float) -> float:
    return cost.bytes * 1e9 / max(cost.time_ns, 1) / max(capacity, 1.0)


def train(costs: Sequence[Cost], model: ContentionModel, capacity: float, samples: int, seed: int) -> Predictor:
    """Return a predictor fitted to co-runs drawn from `costs` with at most one stage per engine (ridge, 1e-3)."""
    drawn = random.Random(seed)
    rows, targets = [], []
    for _ in range(samples):
        me = drawn.choice(costs)
        others: dict[str, Cost] = {}
        for other in drawn.sample(costs, min(len(costs), drawn.randint(0, 4))):
            if other.engine != me.engine:
                others[other.engine] = other
        corunners = list(others.values())
        rows.append(features(me, corunners, capacity))
        targets.append(measure_slowdown(me, corunners, model))
    x, y = np.array(rows), np.array(targets)
    half = len(y) // 2
    fitted = _ridge(x[:half], y[:half])
    error = float(np.mean(np.abs(np.maximum(x[half:] @ fitted, 1.0) / y[half:] - 1.0))) if half else 0.0
    return Predictor(_ridge(x, y), error)


def _ridge(x: Array, y: Array) -> Array:
    return np.asarray(np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ y))


def measure_slowdown(me: Cost, others: Sequence[Cost], model: ContentionModel) -> float:
    """Return the slowdown factor of a stage, segment by segment, with co-runners that draw their mean traffic."""
    corunners = [(cost.engine, Segment(cost.stage, cost.time_ns, 0, cost.bytes)) for cost in others]
    taken = sum(model.paces([(me.engine, segment), *corunners])[0] for segment in me.segments)
    return taken / max(me.time_ns, 1)


def place(workload: Workload, predictor: Predictor, weight: float) -> dict[str, Cost]:
    """Return the engine of least predicted time for every stage, in order of precedence, given earlier placements."""
    graph, capacity = workload.graph, workload.model.dram
    mapping: dict[str, Cost] = {}
    load: dict[str, float] = {}
    for name in graph.order:
        best = min(
            (_predicted(workload, cost, mapping, load, predictor, weight, capacity), number, cost)
            for number, cost in enumerate(workload.model.candidates(graph.stage(name)))
        )[2]
        mapping[name] = best
        load[best.engine] = load.get(best.engine, 0.0) + _utilisation(workload, best)
    return mapping


def _utilisation(workload: Workload, cost: Cost) -> float:
    lanes = workload.lanes(cost.engine)
    return cost.time_ns / workload.graph.period_ns[cost.stage] * min(cost.share, lanes) / lanes


def _predicted(
    workload: Workload,
    cost: Cost,
    mapping: Mapping[str, Cost],
    load: Mapping[str, float],
    predictor: Predictor,
    weight: float,
    capacity: float,
) -> float:
    corunners = {c.engine: c for c in mapping.values() if c.engine != cost.engine}
    factor = 1.0 + weight * (predictor.degradation(cost, list(corunners.values()), capacity) - 1.0)
    used = load.get(cost.engine, 0.0) + _utilisation(workload, cost)
    if used >= 1.0:
        return 1e18 * used
    moved = sum(transfer_ns(workload, mapping[p], cost) for p in workload.graph.predecessors(cost.stage))
    return (cost.time_ns * factor + moved) / (1.0 - load.get(cost.engine, 0.0))


def propose(ask: Ask) -> Proposal:
    """Place whole stages; nothing is cut."""
    workload, options = ask.workload, ask.options
    costs = [cost for found in workload.options().values() for cost in found]
    capacity = workload.model.dram
    predictor = train(costs, workload.contention(), capacity, options["samples"], options["seed"])
    mapping = place(workload, predictor, options["weight"])
    facts = {"error": round(predictor.error, 4), "samples": options["samples"]}
    return Proposal(workload, mapping, facts=facts)


__all__ = ["PLANNER", "Predictor", "features", "measure_slowdown", "place", "train"]

PLANNER = Planner(
    "interference",
    "whole stages where a learned model predicts the least degradation",
    propose,
    "Mendoza et al., EuroMLSys 2021",
    {
        "weight": Option(1.0, "how much predicted degradation counts; 0: load only"),
        "samples": Option(400, "co-runs to learn from"),
        "seed": Option(0, "of the co-runs drawn"),
    },
)
