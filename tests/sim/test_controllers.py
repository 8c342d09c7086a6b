"""Controllers do the same in both kernels, and the adaptive one causes no deadline miss."""

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
from socsched.errors import MachineError
from socsched.planning.plan import ExecutionTimes, Level, Plan
from socsched.sim.build import load_kernel
from socsched.sim.policies import REGISTERED, Policy
from socsched.sim.policies.adaptive import SAFE, Adaptive
from socsched.sim.policies.controllers import Controller
from socsched.sim.policies.slack_stealing import SlackStealer
from socsched.sim.simulate import SimulationRun, run


@contextmanager
def known(**rules: Policy) -> Iterator[None]:
    """Have policies known by their names for a while."""
    REGISTERED.update(rules)
    try:
        yield
    finally:
        for name in rules:
            del REGISTERED[name]


@st.composite
def controllers(draw: st.DrawFn) -> Callable[[], Controller]:
    """Draw what makes an adaptive controller."""
    low, period = draw(st.integers(0, 95)) / 100, draw(st.integers(1, 60))
    high, window = low + draw(st.integers(1, 10)) / 100, draw(st.integers(1, 20))
    return lambda: Adaptive(low, high, period, window)


LEVELS = (Level(400, 9), Level(500, 20), Level(999, 70))


@st.composite
def busy_units(draw: st.DrawFn) -> Plan:
    """Draw one engine whose jobs take all its lanes, timers and frames of a sensor, often with slack."""
    lanes = draw(st.integers(1, 2))
    host = engine(
        preemption=draw(st.sampled_from(["full"] * 4 + ["segment", "none"])),
        lanes=lanes, switch_ns=draw(st.integers(0, 2)), in_flight=draw(st.integers(1, 2)), dynamic_mw=70,
        levels=draw(st.sampled_from([(), LEVELS[1:], LEVELS])),
        memory_bytes=draw(st.sampled_from([0, 0, 0, 100])), swap_bandwidth=10**11,
    )  # fmt: skip
    tasks = []
    count = draw(st.integers(1, 6))
    source = sensor(
        "s", draw(st.integers(60, 300)), jitter_ns=draw(st.integers(0, 30)), gap_ns=draw(st.integers(0, 20))
    )
    for i in range(count):
        after = draw(st.sampled_from([(), (), ("s",)])) if i else ()
        period = source.period_ns if after else draw(st.integers(50, 400))
        cost = draw(st.integers(1, max(period // count, 1)))
        cut = draw(st.integers(0, cost - 1))
        parts = (Segment(f"t{i}a", cut, 0, 0), Segment(f"t{i}b", cost - cut, 0, draw(st.sampled_from([0, 50]))))
        times = draw(st.sampled_from([None, ExecutionTimes(tuple(range(max(cost // 2, 1), cost + 1)))]))
        tasks.append(
            task(
                f"t{i}", segments=parts, lanes=tuple(range(lanes)), after=after, period_ns=period, times=times,
                offset_ns=draw(st.integers(0, 100)), deadline_ns=draw(st.integers(period // 2, 2 * period)),
                queue=draw(st.sampled_from([1 << 40] * 6 + [0, 1, 2])), priority=i,
                criticality=draw(st.sampled_from(["hard", "firm", "soft"])),
                on_late=draw(st.sampled_from(["continue", "continue", "skip", "abort", "degrade"])),
                degraded=draw(st.sampled_from([(), (Segment("less", 1, 0, 0),)])),
                release_jitter_ns=draw(st.sampled_from([0, 0, 15])), gap_ns=draw(st.sampled_from([0, 0, 50])),
                weights_bytes=draw(st.sampled_from([0, 60])),
            )
        )  # fmt: skip
    chains = [chain(f"c{i}", ("s", t.name), 400) for i, t in enumerate(tasks) if t.after]
    return plan(tasks, [host], sensors=(source,), chains=tuple(chains), dram_bandwidth=2 * 10**9)


def content(done: SimulationRun) -> dict[str, Any]:
    assert done.trace is not None
    trace = done.trace
    return {
        "jobs": trace.jobs,
        "slices": sorted((s.start_ns, s.end_ns, s.engine, tuple(s.lanes), s.name, s.job) for s in trace.slices),
        "instants": sorted((i.time_ns, i.kind, i.subject, i.frame) for i in trace.instants),
        "releases": trace.releases,
        **{name: done.outcome.ints(name).tolist() for name in ("done", "late", "dropped", "aborted", "busy_time")},
    }


def compiled() -> str:
    try:
        load_kernel("compiled")
    except MachineError as error:
        pytest.skip(str(error))
    return "compiled"


def alike(made: Plan, maker: Callable[[], Controller], preemptive: bool, harm: Any = None) -> None:
    """Simulate with a controller in both kernels and compare."""
    own = Policy("own", SAFE, preemptive, dynamic=True, controller=maker)
    with known(own=own):
        kinds = ("python", compiled())
        expected, other = (content(run(made, HORIZON, 3, "own", harm, implementation=kind)) for kind in kinds)
    for name, value in other.items():
        assert value == expected[name], name


@settings(max_examples=60)
@given(busy_units(), controllers(), st.sampled_from([True, True, True, False]))
@pytest.mark.needs("Python headers")
def test_both_kernels_do_what_a_controller_decides(
    made: Plan, maker: Callable[[], Controller], preemptive: bool
) -> None:
    alike(made, maker, preemptive)


@settings(max_examples=40)
@given(st.data())
@pytest.mark.needs("Python headers")
def test_and_so_they_do_on_any_plan_with_faults(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    alike(made, data.draw(controllers()), True, data.draw(faults(made, rich=True)))


def bounded(made: Plan) -> bool:
    everyone = range(len(made.tasks))
    return SlackStealer(made, everyone, everyone).bounded


def test_only_units_with_slack_to_know_have_any() -> None:
    tasks = [task("a", 2 * MS, period_ns=20 * MS), task("b", 9 * MS, period_ns=50 * MS, deadline_ns=40 * MS)]
    made = plan(tasks)
    assert bounded(made)
    host, hasty = made.engines[0], replace(tasks[0], deadline_ns=8 * MS)
    for other in (
        replace(made, engines=(replace(host, lanes=2),), tasks=(tasks[0], replace(tasks[1], lanes=(0, 1)))),
        replace(made, engines=(replace(host, linger_ns=5),)),
        replace(made, engines=(replace(host, preemption="restart"),)),
        # a job of b, once begun, would keep lanes for longer than a has
        replace(made, engines=(replace(host, preemption="none"),), tasks=(hasty, tasks[1])),
        replace(made, tasks=(tasks[0], replace(tasks[1], queue=0))),
        replace(made, tasks=(tasks[0], replace(tasks[1], segments=(Segment("b", 32 * MS, 0, 0),), wcet_ns=46 * MS))),
    ):
        assert not bounded(other)
    assert bounded(replace(made, engines=(replace(host, preemption="none"),)))


@pytest.mark.parametrize("kind", [pytest.param("compiled", marks=pytest.mark.needs("Python headers")), "python"])
def test_it_serves_the_shortest_first_while_calm(kind: str) -> None:
    if kind == "compiled":
        compiled()
    rows = [("long", 40, 100, 100), ("short", 1, 10, 60)]
    made = plan([task(n, c * MS, period_ns=p * MS, deadline_ns=d * MS) for n, c, p, d in rows])
    with known(calm=Policy("calm", SAFE, dynamic=True, controller=lambda: Adaptive(0.9, 0.99, MS, 10))):
        edf, calm = (run(made, 2000 * MS, policy=p, implementation=kind) for p in ("edf", "calm"))
    assert [int(np.array(done.outcome.ints("late")).sum()) for done in (edf, calm)] == [0, 0]

    def mean(done: SimulationRun) -> float:
        assert done.trace is not None
        return float(
            np.mean([j.finish_ns - j.activation_ns for j in done.trace.jobs if j.task == "short" and j.finish_ns > 0])
        )

    assert mean(calm) < mean(edf)


@settings(max_examples=150)
@given(busy_units(), controllers())
@pytest.mark.needs("Python headers")
def test_no_deadline_is_lost_by_it(made: Plan, maker: Callable[[], Controller]) -> None:
    # times that contention adds are in worst cases already
    made = replace(made, dram_bandwidth=0)
    with known(own=Policy("own", SAFE, dynamic=True, controller=maker), safe=Policy("safe", SAFE)):
        own, safe = (run(made, HORIZON, 3, name, record=False, implementation=compiled()) for name in ("own", "safe"))
    lost = [sum(int(done.outcome.ints(name).sum()) for name in ("late", "dropped", "aborted")) for done in (own, safe)]
    assert lost[0] <= lost[1]
