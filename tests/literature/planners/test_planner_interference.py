"""Placement by predicted degradation: the learned model, its reproducibility, and a worked example of the choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from socsched.cost.contention.max_min import MaxMin
from socsched.cost.cost import Cost, Segment
from socsched.cost.model import CostModel
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.graph.taskgraph import task_graph
from socsched.models.work import stage_work
from socsched.planning.workload import Workload
from socsched_literature.planners.interference import Predictor, features, measure_slowdown, place, train

CAPACITY = 10e9


def cost(engine: str, time_ns: int, gbps: float, stage: str = "s") -> Cost:
    size = round(gbps * time_ns)
    segments = (Segment(stage, time_ns, 0, size),)
    return Cost(stage, engine, "m", "fp16", 1, time_ns, size, 0, segments, "", "", 0.0)


COSTS = [cost(f"e{n % 4}", 1000 * (n + 1), 1.5 * (n % 7), f"s{n}") for n in range(20)]


def test_degradation_is_that_of_the_contention_model() -> None:
    """8 GB/s and 6 GB/s share 10: max-min gives 5 to each, so the first takes 8/5 of its time."""
    assert measure_slowdown(cost("a", 1000, 8), [cost("b", 1000, 6)], MaxMin(CAPACITY)) == pytest.approx(1.6)
    assert measure_slowdown(cost("a", 1000, 2), [cost("b", 1000, 6)], MaxMin(CAPACITY)) == 1.0
    seen = features(cost("a", 1000, 8), [cost("b", 1000, 6), cost("c", 1000, 1)], CAPACITY)
    assert seen[1] == pytest.approx(0.8) and seen[3] == pytest.approx(0.7) and seen[4] == pytest.approx(0.6)


def test_training_is_reproducible_and_predicts_co_runs_it_has_not_seen() -> None:
    model = MaxMin(CAPACITY)
    first, again = (train(COSTS, model, CAPACITY, 400, 3) for _ in range(2))
    assert np.array_equal(first.weights, again.weights)
    assert not np.array_equal(first.weights, train(COSTS, model, CAPACITY, 400, 4).weights)
    # Better by far than taking the mean for everything.
    pairs = [(me, [a, b]) for me in COSTS for a in COSTS[::3] for b in COSTS[::5]]
    pairs = [(me, others) for me, others in pairs if len({me.engine, *(o.engine for o in others)}) == 3]
    truth = np.array([measure_slowdown(me, others, model) for me, others in pairs])
    reported = np.array([first.degradation(me, others, CAPACITY) for me, others in pairs])
    assert truth.max() > 1.5
    assert np.abs(reported - truth).mean() < 0.4 * np.abs(truth - truth.mean()).mean()
    assert first.error < 0.15


def test_the_engine_with_the_least_predicted_time_is_chosen() -> None:
    """Post-processing takes as long on either free CPU cluster.  Co-running with the detector and pre-processing it is
    slowed twice if co-runners count, on the cluster of pre-processing only once.
    """
    platform = get_platform("jetson-agx-orin-64gb")
    model = CostModel(platform, platform.mode("50W"), stage_work)
    whole = get_pipeline("camera-detection")
    stages = [stage if stage.name == "detect" else replace(stage, engines=("cpu",)) for stage in whole.stages]
    workload = Workload.of(task_graph(replace(whole, stages=tuple(stages))), model, "edf")
    plain = place(workload, Predictor(np.zeros(10), 0.0), 1.0)
    assert plain["detect"].engine in ("gpu", "dla0", "dla1")
    assert plain["decode"].engine != plain["preprocess"].engine
    tax = np.zeros(10)
    tax[-1] = 10.0
    taxed = place(workload, Predictor(tax, 0.0), 1.0)
    assert taxed["decode"].engine == taxed["preprocess"].engine
    assert place(workload, Predictor(tax, 0.0), 0.0) == plain
