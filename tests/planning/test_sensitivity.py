"""How much slower tasks may become: the factor found still passes, more fails, and it shrinks with load."""

from __future__ import annotations

from dataclasses import replace

import pytest

from socsched.cost.cost import Segment
from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Figure
from socsched.faults.model import Faults, Hog
from socsched.planning.plan import Bandwidth, ChainResult, Plan, PlannedEngine, PlannedSensor, Power, SearchReport, Task
from socsched.planning.search import make_plan
from socsched.planning.sensitivity import (
    ACCURACY,
    LARGEST,
    co_runner,
    growth,
    relax_deadlines,
    spare,
    with_foreign_traffic,
)
from socsched.schedulability.plan_analysis import respond, unmet
from socsched.schedulability.tasks import rt_tasks
from socsched.sim.simulate import simulate
from socsched.trace.metrics import result
from tests.sim.toy_platform import MS, lines, platform, shaken, takes


def grown(plan: Plan, names: frozenset[str], factor: float) -> Plan:
    """Return a plan whose tasks `names` take `factor` times as long, in every segment."""

    def longer(task: Task) -> Task:
        parts = tuple(replace(part, time_ns=int(part.time_ns * factor)) for part in task.segments)
        cost = sum(part.time_ns for part in parts)
        return replace(task, segments=parts, cost_ns=cost, wcet_ns=max(int(task.wcet_ns * factor), cost))

    return replace(plan, tasks=tuple(longer(task) if task.name in names else task for task in plan.tasks))


def task(name: str, cost_ms: float, period_ms: int, deadline_ms: int, priority: int) -> Task:
    """Return a timer task on the one lane."""
    cost = round(cost_ms * MS)
    return Task(
        name=name,
        kind="stage",
        engine="cpu",
        lanes=(0,),
        precision="fp32",
        after=(),
        reads=(),
        timer=True,
        period_ns=period_ms * MS,
        offset_ns=0,
        queue=1,
        cost_ns=cost,
        wcet_ns=cost,
        bytes=0,
        energy_uj=0,
        segments=(Segment(name, cost, 0, 0),),
        priority=priority,
        deadline_ns=deadline_ms * MS,
        jitter_ns=0,
        criticality="hard",
        provenance="assumed",
        source="",
        error=0.0,
    )


def plan_of(policy: str, *tasks: Task) -> Plan:
    """Return a plan of independent tasks on a preemptive core that switches for free."""
    chains = tuple(ChainResult(t.name, (t.name,), t.deadline_ns, t.cost_ns, t.deadline_ns, None, ()) for t in tasks)
    return Plan(
        platform="p",
        mode="m",
        pipeline="w",
        verdict="feasible",
        policy=policy,
        engines=(PlannedEngine("cpu", "cpu", 1, "full", 0, policy, 10**9, 0, 0),),
        sensors=(PlannedSensor("none", 100 * MS, 0, 0, 0),),
        tasks=tasks,
        transitions=(),
        chains=chains,
        violations=(),
        power=Power(),
        bandwidth=Bandwidth(),
        solver=SearchReport(),
        inputs={},
    )


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_one_task_may_grow_to_its_deadline(policy: str) -> None:
    found = growth(plan_of(policy, task("a", 2, 20, 10, 0)))
    assert found is not None
    assert 5 / ACCURACY <= found <= 5.0


def test_edf_grows_to_full_utilisation_and_fixed_priority_to_the_exact_response() -> None:
    """Periods 4 and 6 ms, implicit deadlines: EDF up to utilisation 1; under FP R(b) = 2a + b = 6 ms is the limit."""
    a, b = task("a", 1, 4, 4, 0), task("b", 1, 6, 6, 1)
    edf, fixed = growth(plan_of("edf", a, b)), growth(plan_of("fp", a, b))
    assert edf is not None
    assert fixed is not None
    assert 2.4 / ACCURACY <= edf <= 2.4
    assert 2.0 / ACCURACY <= fixed <= 2.0


def test_what_does_not_hold_has_no_factor() -> None:
    assert growth(plan_of("edf", task("a", 12, 20, 10, 0))) is None
    assert growth(plan_of("fp", task("a", 6, 10, 10, 0), task("b", 6, 10, 10, 1))) is None


def test_a_single_task_may_grow_at_least_as_far_as_all_together() -> None:
    plan = plan_of("edf", task("a", 1, 4, 4, 0), task("b", 1, 6, 6, 1))
    everything = growth(plan)
    assert everything is not None
    for name in ("a", "b"):
        alone = growth(plan, frozenset([name]))
        assert alone is not None
        assert alone >= everything


def test_negligible_tasks_are_capped() -> None:
    assert growth(plan_of("edf", task("a", 0.001, 100, 100, 0))) == LARGEST


def test_deadlines_relax_by_the_tightest_chain_and_stay_within_the_period() -> None:
    plan = plan_of("edf", task("a", 1, 20, 10, 0), task("b", 1, 12, 10, 1))
    chains = (
        replace(plan.chains[0], deadline_ns=30 * MS, bound_ns=10 * MS),
        replace(plan.chains[1], deadline_ns=40 * MS, bound_ns=20 * MS),
    )
    relaxed = relax_deadlines(replace(plan, chains=chains))
    assert relaxed == {"a": 20 * MS, "b": 12 * MS}


def board_plan(policy: str) -> Plan:
    """Return a plan of two sensors' stages on a core and a segmented accelerator that share the memory."""
    made = []
    for name, period, first, second in (("a", 20, 3, 4), ("b", 40, 6, 7)):
        core, acc = takes("cpu", Figure(first * MS, "measured"), 1), takes("acc", Figure(second * MS, "measured"))
        begin = Stage(f"{name}0", "", None, costs=(core,), share=1, output_bytes=40_000_000)
        end = Stage(f"{name}1", "", None, costs=(acc,), output_bytes=60_000_000)
        made.append((period * MS, period * MS * 3 // 2, (begin, end)))
    return make_plan(lines(*made), platform("full", "segment"), policy=policy, work=lambda *_: None, budget=4)


def late(plan: Plan, faults: Faults | None = None) -> int:
    figures = result(simulate(plan, 800 * MS, 0, None, faults), plan)["chains"]
    return sum(chain["missed"] + chain["dropped"] for chain in figures.values())


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_at_the_stated_growth_nothing_is_late_and_beyond_it_nothing_is_proved(policy: str) -> None:
    plan = board_plan(policy)
    assert plan.verdict == "feasible"
    for name in ("a0", "a1", "b0", "b1"):
        found = spare(plan, frozenset([name]))
        assert found is not None and found.first and not found.whole
        wcet = rt_tasks(plan)[name].wcet
        assert found.value == int(wcet * (found.factor - 1))
        for seed in range(3):
            assert late(shaken(grown(plan, frozenset([name]), found.factor), seed)) == 0
        beyond = grown(plan, frozenset([name]), found.factor * ACCURACY * 1.01)
        assert unmet(beyond, respond(policy, rt_tasks(beyond)).tight)


@pytest.mark.parametrize("policy", ["edf", "fp"])
def test_with_the_stated_traffic_nothing_is_late_and_beyond_it_nothing_is_proved(policy: str) -> None:
    plan = board_plan(policy)
    assert with_foreign_traffic(plan, 0) == plan, "without traffic the execution times are those of the plan"
    tight = replace(plan, chains=tuple(replace(c, deadline_ns=(c.bound_ns or 0) * 103 // 100) for c in plan.chains))
    found = co_runner(tight)
    assert found is not None and found.first and 0 < found.value < plan.dram_bandwidth
    hogs = Faults(hogs=(Hog("acc", 0, 800 * MS, found.value),))
    assert late(tight, hogs) == 0
    more = rt_tasks(with_foreign_traffic(tight, found.value + tight.dram_bandwidth // 500))
    assert unmet(tight, respond(policy, more).tight)
