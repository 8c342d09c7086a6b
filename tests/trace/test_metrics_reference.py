"""Figures from columns equal those computed record by record, to the byte."""

from __future__ import annotations

import json

import pytest
import reference_metrics
from hypothesis import given, settings
from random_traces import recorded

from socsched.planning.plan import Plan
from socsched.sim.simulate import simulate
from socsched.trace import metrics
from socsched.trace.trace import Trace
from tests.sim.builders import chain, engine, plan, sensor, task


def same(trace: Trace, made: Plan) -> None:
    expected, found = reference_metrics.result(trace, made), metrics.result(trace, made)
    assert json.dumps(found) == json.dumps(expected)
    for required in made.chains:
        fates = metrics.frame_fates(trace, made, required)
        plain = reference_metrics.frame_fates(trace, made, required)
        assert fates.finish_ns.tolist() == [fate.finish_ns for fate in plain]
        assert fates.dropped.tolist() == [fate.dropped for fate in plain]
        assert fates.missed.tolist() == [fate.missed for fate in plain]


@settings(max_examples=200)
@given(recorded())
def test_random_traces(drawn: tuple[Plan, Trace]) -> None:
    made, trace = drawn
    same(trace, made)


@pytest.mark.parametrize("seed", range(6))
def test_a_simulation_with_sampled_links_conversions_and_losses(seed: int) -> None:
    tasks = [
        task("net", 7, after=("lidar",), period_ns=10, queue=seed % 3, lanes=(0, 1)),
        task("net->track", 2, kind="conversion", after=("net",), period_ns=10),
        task("track", 3, reads=("net->track", "camera"), period_ns=15, offset_ns=seed),
        task("fuse", 3 + seed, after=("camera",), reads=("track",), period_ns=12, queue=1, lanes=(1,)),
        task("act", 1, reads=("fuse",), period_ns=7),
    ]
    sensors = [sensor("lidar", 10, jitter_ns=4), sensor("camera", 12, jitter_ns=5)]
    paths = [("lidar", "net", "track", "fuse", "act"), ("camera", "track", "fuse"), ("camera", "fuse"), ("act",)]
    chains = [chain(f"c{i}", path, 40) for i, path in enumerate([*paths, ("lidar", "net")])]
    made = plan(tasks, [engine(lanes=2, dynamic_mw=37, idle_mw=3)], sensors=sensors, chains=chains)
    trace = simulate(made, 3000, seed=seed)
    assert {job.status for job in trace.jobs} >= {"done"} and any(job.sampled for job in trace.jobs)
    same(trace, made)
