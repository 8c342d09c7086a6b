"""Power of engines from what they did: together with base and DRAM it is the module's, which the simulator metered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from socsched.planning.plan import Level, Plan, Throttle
from socsched.sim.simulate import simulate
from socsched.trace.perfetto import ENGINE_POWER, complete_columns, unit
from socsched.trace.trace import Trace
from tests.sim.builders import engine, plan, task

LEVELS = (Level(500, 3000), Level(800, 6000), Level(1000, 10_000))


def made(**changes: object) -> Plan:
    """Return a plan of a CPU with two lanes and a GPU that the board slows down when it draws too much."""
    tasks = [
        task("net", 400, engine="gpu", period_ns=1000, bytes=2000),
        task("post", 300, after=("net",), period_ns=1000, lanes=(0, 1), bytes=500),
        task("control", 20, period_ns=250, offset_ns=40, lanes=(1,), priority=0),
    ]
    engines = [
        engine("gpu", idle_mw=300, dynamic_mw=10_000, levels=LEVELS),
        engine(lanes=2, idle_mw=90, dynamic_mw=800),
    ]
    return replace(plan(tasks, engines, dram_bandwidth=10**10), base_mw=1500, dram_picojoule_per_byte=20.0, **changes)


@pytest.mark.parametrize("throttle", [None, Throttle(period_ns=900, cap_mw=3500)])
def test_engines_base_and_dram_add_up_to_the_module(throttle: Throttle | None) -> None:
    deployment = made(throttle=throttle)
    trace = simulate(deployment, 40_000)
    columns = complete_columns(trace, deployment)
    if throttle:
        assert len(set(columns.counters["clock_hz.gpu"][1].tolist())) > 1
    instants = np.unique(np.concatenate([times for times, _ in columns.counters.values()]))
    instants = instants[instants < 40_000]  # where the record ends, what runs ends with it

    def at(name: str) -> np.ndarray:
        times, values = columns.counters[name]
        return values[np.maximum(np.searchsorted(times, instants, side="right") - 1, 0)]

    engines = sum(at(ENGINE_POWER + e.id) for e in deployment.engines)
    dram = at("bandwidth_gbps") * deployment.dram_picojoule_per_byte
    assert np.ptp(engines) > 5000
    np.testing.assert_allclose(deployment.base_mw + engines + dram, at("power_mw"), rtol=1e-9)


def test_constant_clocks_are_recorded_once() -> None:
    deployment = made()
    columns = complete_columns(simulate(deployment, 5000), deployment)
    times, clocks = columns.counters["clock_hz.gpu"]
    assert (times.tolist(), clocks.tolist()) == ([0], [1000.0])
    assert "clock_hz.cpu" not in columns.counters


def test_nothing_is_added_to_a_measurement() -> None:
    deployment = made()
    trace = simulate(deployment, 5000)
    measured = Trace("measured", 5000, 0, trace.jobs, trace.slices, [], trace.releases, {"rail_mw.VDD": [(0, 1.0)]})
    assert list(complete_columns(measured, deployment).counters) == ["rail_mw.VDD"]


def test_units() -> None:
    wanted = {
        "power_mw": "mW",
        "rail_mw.VDD_GPU": "mW",
        "engine_mw.gpu": "mW",
        "gpu_power_mw": "mW",
        "bandwidth_gbps": "GB/s",
        "clock_hz.gpu": "Hz",
        "emc_hz": "Hz",
        "celsius.gpu": "°C",
        "temperature_c": "°C",
        "queue.head": "frames",
        "release_late_ns.lidar": "ns",
        "overruns.head": "",
    }
    assert {name: unit(name) for name in wanted} == wanted
