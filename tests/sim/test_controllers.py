"""Declared controllers behave in the kernel as their classes do in Python, and neither causes a deadline miss."""

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
from socsched.planning.plan import ExecutionTimes, Level, Plan
from socsched.sim.build import load_kernel
from socsched.sim.lower import CHOOSING, NOTHING, SWITCHING, lower
from socsched.sim.policies import REGISTERED, Policy, Term
from socsched.sim.policies.adaptive import CALM, SAFE, Adaptive
from socsched.sim.policies.controllers import Choosing, Controller, Switching
from socsched.sim.policies.learned import ACTIONS, FEATURES, Learned
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


def alike(
    made: Plan, pair: tuple[Switching | Choosing, Made], preemptive: bool, harm: Any = None
) -> list[SimulationRun]:
    """Simulate with a declared controller in both kernels, and with its class, and return all three."""
    declared, maker = pair
    first = declared.safe if isinstance(declared, Switching) else declared.choices[0][0]
    own = Policy("own", first, preemptive, controller=declared)
    asked = Policy("asked", first, preemptive, dynamic=True, controller=maker)
    with known(own=own, asked=asked):
        native = [run(made, HORIZON, 3, "own", harm, implementation=kind) for kind in ("python", compiled())]
        done = [*native, run(made, HORIZON, 3, "asked", harm, implementation=compiled())]
    expected = content(done[2])
    for other in done[:2]:
        for name, value in content(other).items():
            assert value == expected[name], name
    return done


@settings(max_examples=150)
@given(busy_units(), controllers(), st.sampled_from([True, True, True, False]))
@pytest.mark.needs("Python headers")
def test_declared_controllers_do_what_their_classes_do(
    made: Plan, pair: tuple[Switching | Choosing, Made], preemptive: bool
) -> None:
    alike(made, pair, preemptive)


@settings(max_examples=40)
@given(st.data())
@pytest.mark.needs("Python headers")
def test_and_so_they_do_on_any_plan_with_faults(data: st.DataObject) -> None:
    made = data.draw(plans(rich=True))
    alike(made, data.draw(controllers()), True, data.draw(faults(made, rich=True)))


def steered(made: Plan, control: Switching | Choosing, **changes: Any) -> int:
    """Return the kind of controller the kernel has on the first unit of a plan."""
    first = control.safe if isinstance(control, Switching) else control.choices[0][0]
    with known(own=Policy("own", first, controller=control, **changes)):
        return int(lower(made, 0, "own").tables["u_controller"][0])


ROWS = tuple(tuple(0.1 * (a + 1) * (-1) ** k for k in range(len(FEATURES))) for a in range(len(ACTIONS)))


def test_only_units_with_slack_to_know_have_a_controller() -> None:
    tasks = [task("a", 2 * MS, period_ns=20 * MS), task("b", 9 * MS, period_ns=50 * MS, deadline_ns=40 * MS)]
    switching, choosing = Switching(SAFE, CALM, 0.5, 0.7, 5, MS), Choosing(ACTIONS, ROWS, MS)
    made = plan(tasks)
    assert (steered(made, switching), steered(made, choosing)) == (SWITCHING, CHOOSING)
    host, hasty = made.engines[0], replace(tasks[0], deadline_ns=8 * MS)
    for other in (
        replace(made, engines=(replace(host, lanes=2),), tasks=(tasks[0], replace(tasks[1], lanes=(0, 1)))),
        replace(made, engines=(replace(host, linger_ns=5),)),
        replace(made, engines=(replace(host, preemption="restart"),)),
        # a job of b, once begun, would keep lanes for longer than a has
        replace(made, engines=(replace(host, preemption="none"),), tasks=(hasty, tasks[1])),
        replace(made, tasks=(tasks[0], replace(tasks[1], queue=0))),
        replace(made, tasks=(tasks[0], replace(tasks[1], segments=(Segment("b", 32 * MS, 0, 0),), wcet_ns=46 * MS))),
    ):  # fmt: skip
        assert steered(other, switching) == steered(other, choosing) == NOTHING
    held = replace(made, engines=(replace(host, preemption="none"),))
    assert steered(held, switching) == SWITCHING and steered(held, switching, preemptive=False) == SWITCHING


def test_what_a_declared_controller_cannot_be() -> None:
    made = plan([task("a", 2 * MS), task("b", 1 * MS)])
    calm = Switching(SAFE, (Term.TURN, Term.NOTHING), 0.5, 0.7, 5, MS)
    for control, changes, said in (
        (calm, {}, "a declared controller cannot order by"),
        (replace(calm, calm=CALM), {"sliced": True}, "excludes other mechanisms"),
        (Choosing(ACTIONS, ROWS[:2], MS), {}, "expected 10 weights for each of 4 choices"),
        (Choosing(ACTIONS[:3], ROWS[:3], MS), {}, "the last one alone at a slower operating point"),
    ):
        with pytest.raises(UsageError, match=said):
            steered(made, control, **changes)


@pytest.mark.parametrize("kind", [pytest.param("compiled", marks=pytest.mark.needs("Python headers")), "python"])
def test_it_does_change_order_and_clock(kind: str) -> None:
    """Shortest first while calm; the slow clock where weights say so and slack is left, else the fast one."""
    if kind == "compiled":
        compiled()
    rows = [("long", 40, 100, 100), ("short", 1, 10, 60)]
    made = plan([task(n, c * MS, period_ns=p * MS, deadline_ns=d * MS) for n, c, p, d in rows],
                [engine(levels=(Level(500, 20), Level(1000, 70)))])  # fmt: skip
    weights = tuple((float(a == 3), *[0.0] * (len(FEATURES) - 1)) for a in range(len(ACTIONS)))
    with known(
        switch=Policy("switch", SAFE, controller=Switching(SAFE, CALM, 0.9, 0.99, 10, MS)),
        slow=Policy("slow", ACTIONS[0][0], controller=Choosing(ACTIONS, weights, MS)),
    ):
        edf, calm, slow = (run(made, 2000 * MS, policy=p, implementation=kind) for p in ("edf", "switch", "slow"))
    totals = [int(np.array(done.outcome.ints("late")).sum()) for done in (edf, calm, slow)]
    assert totals == [0, 0, 0]
    assert edf.trace is not None and calm.trace is not None

    def mean(done: SimulationRun) -> float:
        assert done.trace is not None
        return float(
            np.mean([j.finish_ns - j.activation_ns for j in done.trace.jobs if j.task == "short" and j.finish_ns > 0])
        )

    assert mean(calm) < mean(edf)
    spent = slow.outcome.ints("busy_time")
    assert spent[0] > 0 and spent[1] > 0 and edf.outcome.ints("busy_time")[0] == 0


@settings(max_examples=150)
@given(busy_units(), controllers())
@pytest.mark.needs("Python headers")
def test_no_guarded_deadline_is_lost_by_them(made: Plan, pair: tuple[Switching | Choosing, Made]) -> None:
    declared, _ = pair
    first = declared.safe if isinstance(declared, Switching) else declared.choices[0][0]
    # times that contention or weights add are in worst cases already, or in `Guard`
    made = replace(made, dram_bandwidth=0)
    with known(own=Policy("own", first, controller=declared), safe=Policy("safe", first)):
        own, safe = (run(made, HORIZON, 3, name, record=False, implementation=compiled()) for name in ("own", "safe"))
    kinds = ("hard", "firm") if any(t.criticality != "soft" for t in made.tasks) else ("soft",)
    kinds = ("hard", "firm", "soft") if isinstance(declared, Switching) else kinds
    rows = [i for i, t in enumerate(made.tasks) if t.criticality in kinds]
    lost = [
        sum(int(done.outcome.ints(name)[rows].sum()) for name in ("late", "dropped", "aborted")) for done in (own, safe)
    ]
    assert lost[0] <= lost[1]
