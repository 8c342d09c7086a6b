"""Declared controllers do in the kernel what their classes do in Python, and neither costs a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import MS, chain, engine, plan, sensor, task
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import HORIZON, faults, plans

from socsched.cost.cost import Segment
from socsched.errors import MachineError, UsageError
from socsched.plan.plan import ExecutionTimes, Level, Plan
from socsched.sim.build import kernel
from socsched.sim.controls import CHOOSING, NOTHING, SWITCHING
from socsched.sim.engine import Simulated, run
from socsched.sim.lower import lower
from socsched.sim.policies import POLICIES, Policy, Term
from socsched.sim.policies.adaptive import CALM, SAFE, Adaptive
from socsched.sim.policies.control import Choosing, Controller, Switching
from socsched.sim.policies.learned import ACTIONS, FEATURES, Learned


@contextmanager
def known(**rules: Policy) -> Iterator[None]:
    """Have policies known by their names for a while."""
    POLICIES.update(rules)
    try:
        yield
    finally:
        for name in rules:
            del POLICIES[name]


Made = Callable[[], Controller]


@st.composite
def controllers(draw: st.DrawFn) -> tuple[Switching | Choosing, Made]:
    """Draw a declared controller, and what makes the same one in Python."""
    period = draw(st.integers(1, 60))
    if draw(st.booleans()):
        low = draw(st.integers(0, 95)) / 100
        high, window = low + draw(st.integers(1, 10)) / 100, draw(st.integers(1, 20))
        return Switching(SAFE, CALM, low, high, window, period), lambda: Adaptive(low, high, period, window)
    numbers = st.floats(-2, 2, allow_nan=False)
    weights = tuple(tuple(draw(numbers) for _ in FEATURES) for _ in ACTIONS)
    return Choosing(ACTIONS, weights, period), lambda: Learned(weights, period)


@st.composite
def busy_units(draw: st.DrawFn) -> Plan:
    """Draw one engine whose jobs take all its lanes, timers and frames of a sensor, often with slack."""
    lanes = draw(st.integers(1, 2))
    host = engine(
        preemption=draw(st.sampled_from(["full", "full", "segment", "none"])),
        lanes=lanes, switch_ns=draw(st.integers(0, 2)), in_flight=draw(st.integers(1, 2)), dynamic_mw=70,
        levels=draw(st.sampled_from([(), (Level(500, 20), Level(1000, 70)), (Level(400, 9), Level(500, 20), Level(999, 70))])),
        memory_bytes=draw(st.sampled_from([0, 0, 100])), swap_bandwidth=10**11,
    )  # fmt: skip
    tasks = []
    count = draw(st.integers(1, 6))
    source = sensor("s", draw(st.integers(60, 300)), jitter_ns=draw(st.integers(0, 30)), gap_ns=draw(st.integers(0, 20)))
    for i in range(count):
        after = draw(st.sampled_from([(), (), ("s",)])) if i else ()
        period = source.period_ns if after else draw(st.integers(50, 400))
        cost = max(draw(st.integers(1, max(period * 3 // (2 * count), 1))), 1)
        cut = draw(st.integers(0, cost - 1))
        parts = (Segment(f"t{i}a", cut, 0, 0), Segment(f"t{i}b", cost - cut, 0, draw(st.sampled_from([0, 50]))))
        times = draw(st.sampled_from([None, ExecutionTimes(tuple(range(max(cost // 2, 1), cost + 1)))]))
        tasks.append(
            task(
                f"t{i}", segments=parts, lanes=tuple(range(lanes)), after=after, period_ns=period, times=times,
                offset_ns=draw(st.integers(0, 100)), deadline_ns=draw(st.integers(period // 2, 2 * period)),
                queue=draw(st.sampled_from([0, 1, 2, 1 << 40, 1 << 40])), priority=i,
                criticality=draw(st.sampled_from(["hard", "firm", "soft"])),
                on_late=draw(st.sampled_from(["continue", "continue", "skip", "abort", "degrade"])),
                degraded=draw(st.sampled_from([(), (Segment("less", 1, 0, 0),)])),
                release_jitter_ns=draw(st.sampled_from([0, 0, 15])), gap_ns=draw(st.sampled_from([0, 0, 50])),
                weights_bytes=draw(st.sampled_from([0, 60])),
            )
        )  # fmt: skip
    chains = [chain(f"c{i}", ("s", t.name), 400) for i, t in enumerate(tasks) if t.after]
    return plan(tasks, [host], sensors=(source,), chains=tuple(chains), dram_bandwidth=2 * 10**9)


def content(done: Simulated) -> dict[str, Any]:
    assert done.trace is not None
    trace = done.trace
    return {
        "jobs": trace.jobs,
        "slices": sorted((s.start_ns, s.end_ns, s.engine, tuple(s.lanes), s.name, s.job) for s in trace.slices),
        "instants": sorted((i.time_ns, i.kind, i.subject, i.frame) for i in trace.instants),
        "releases": trace.releases,
        **{name: done.outcome.ints(name).tolist() for name in ("done", "late", "dropped", "aborted", "spent")},
    }


def compiled() -> str:
    try:
        kernel("compiled")
    except MachineError as error:
        pytest.skip(str(error))
    return "compiled"


def alike(made: Plan, pair: tuple[Switching | Choosing, Made], preemptive: bool, harm: Any = None) -> list[Simulated]:
    """Simulate with a declared controller in both kernels, and with its class, and return all three."""
    declared, maker = pair
    first = declared.safe if isinstance(declared, Switching) else declared.choices[0][0]
    own = Policy("own", first, preemptive, control=declared)
    asked = Policy("asked", first, preemptive, dynamic=True, control=maker)
    with known(own=own, asked=asked):
        native = [run(made, HORIZON, 3, "own", harm, implementation=kind) for kind in ("python", compiled())]
        done = [*native, run(made, HORIZON, 3, "asked", harm, implementation=compiled())]
    expected = content(done[2])
    for other in done[:2]:
        for name, value in content(other).items():
            assert value == expected[name], name
    return done


@settings(max_examples=150)
@given(busy_units(), controllers(), st.booleans())
def test_declared_controllers_do_what_their_classes_do(
    made: Plan, pair: tuple[Switching | Choosing, Made], preemptive: bool
) -> None:
    alike(made, pair, preemptive)


@settings(max_examples=40)
@given(st.data())
def test_and_so_they_do_on_any_plan_with_faults(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    alike(made, data.draw(controllers()), True, data.draw(faults(made, rich=True)))
