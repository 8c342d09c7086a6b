"""A platform of four cores and an accelerator, and random pipelines with their times on it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import strategies as st

from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.pipeline import Anchor, Chain, Pipeline, Sensor, Stage
from socsched.descriptor.platform import Dram, Engine, EngineMode, Figure, Platform, PowerMode, Precision, Preemption
from socsched.planning.plan import Plan

MS = 1_000_000


def figure(value: float) -> Figure:
    return Figure(value, "measured", error=0.1)


def engine(name: str, units: int, preemption: str) -> Engine:
    nothing = figure(0)
    rate = Precision("fp32", figure(16), "NCHW", {"default": figure(1.0)})
    return Engine(
        id=name, kind=name, title=name, units=units, unit="core", shares="unit" if units > 1 else "whole",
        clock_hz=figure(1e9), precisions={"fp32": rate}, bandwidth=figure(20e9), sram=None,
        preemption=Preemption(preemption, figure(5_000), "kernel" if preemption == "segment" else ""),
        launch_ns=figure(1_000), submit_ns=nothing, handoff_ns=nothing, converts=True,
        operators=OperatorRules(host_code=True), idle_mw=nothing, dynamic_mw=figure(1000), target={"kind": "llvm"},
    )  # fmt: skip


def platform(cores: str, accelerator: str) -> Platform:
    engines = (engine("cpu", 3, cores), engine("acc", 1, accelerator))
    mode = PowerMode(
        "only", (), 0, True, None, figure(0), figure(25e9),
        {e.id: EngineMode(e.units, int(e.clock_hz.value), e.dynamic_mw) for e in engines},
    )  # fmt: skip
    memory = Dram(figure(25e9), figure(25e9), figure(2**30), figure(10))
    return Platform("toy", "toy", "none", engines, memory, (mode,), {})


def takes(engine: str, time: Figure, units: int = 0, slice_ns: int = 0) -> Anchor:
    """Return the time of a stage on an engine of the platform; 0 units are the whole engine."""
    return Anchor("toy", "only", engine, "fp32", time, units, slice_ns=slice_ns)


def lines(*given: tuple[int, int, tuple[Stage, ...]]) -> Pipeline:
    """Return lines of stages, each behind a sensor of its own, from (period, deadline, stages); times are ns.

    Sensors are s0, s1 ..., chains c0, c1 ....
    """
    sensors, stages, chains = [], [], []
    for number, (period, deadline, line) in enumerate(given):
        path = [f"s{number}"]
        sensors.append(Sensor(path[0], "lidar", period))
        for stage in line:
            stages.append(replace(stage, after=(path[-1],)))
            path.append(stage.name)
        chains.append(Chain(f"c{number}", tuple(path), deadline))
    return Pipeline("lines", "lines", tuple(sensors), tuple(stages), tuple(chains))


@st.composite
def workloads(draw: st.DrawFn) -> Pipeline:
    """Up to three sensors, each with a line of stages; some lines end in a timer that samples the line before."""
    sensors, stages, chains = [], [], []
    for line in range(draw(st.integers(1, 3))):
        period = draw(st.sampled_from([10, 20, 40])) * MS
        sensors.append(Sensor(f"s{line}", "lidar", period, 0, draw(st.sampled_from([0, MS]))))
        path = [f"s{line}"]
        for step in range(draw(st.integers(1, 3))):
            name = f"t{line}{step}"
            costs = [
                Anchor("toy", "only", kind, "fp32", figure(draw(st.integers(1, 60)) * period // 200), units)
                for kind, units in draw(st.sampled_from([[("cpu", 1)], [("cpu", 1), ("cpu", 3)], [("acc", 1)]]))
            ]
            share = 0 if any(cost.units == 3 for cost in costs) else 1
            size = draw(st.sampled_from([0, 4_000_000]))
            stages.append(
                Stage(name, name, None, (path[-1],), costs=tuple(costs), share=share, output_bytes=size, queue=3)
            )
            path.append(name)
        if draw(st.booleans()):
            timer = f"timer{line}"
            cost = Anchor("toy", "only", "cpu", "fp32", figure(MS // 2), 1)
            stages.append(Stage(timer, timer, None, (), 10 * MS, reads=(path[-1],), costs=(cost,), share=1))
            path.append(timer)
        chains.append(Chain(f"c{line}", tuple(path), 4 * period))
    return Pipeline("random", "random", tuple(sensors), tuple(stages), tuple(chains))


def shaken(plan: Plan, seed: int) -> Plan:
    """Return the plan with other offsets, as clocks of sensors and timers are not synchronised."""
    draw = Random(seed)
    sensors = tuple(replace(s, offset_ns=draw.randrange(s.period_ns)) for s in plan.sensors)
    tasks = tuple(replace(t, offset_ns=draw.randrange(t.period_ns)) if t.timer else t for t in plan.tasks)
    return replace(plan, sensors=sensors, tasks=tasks)
