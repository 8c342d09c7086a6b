"""Plan, simulate, plan again: expected times are those of the simulated schedule, and never worse than the first."""

from __future__ import annotations

import pytest

from socsched.api.planning import mean_times
from socsched.api.planning import plan as plan_of
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning import search
from socsched.planning.plan import Plan, Uncertainty
from socsched.planning.search import make_plan, refine, steady_ns
from socsched.planning.workload import Observed
from socsched.sim.simulate import run
from socsched.trace.metrics import result

SECOND = 10**9


def both(pipeline: str, platform: str, mode: str) -> tuple[Plan, Plan]:
    """Return a plan as first made, and refined."""
    workload, board = get_pipeline(pipeline), get_platform(platform)

    def again(observed: Observed) -> Plan:
        return make_plan(workload, board, mode, work=stage_work, observed=observed, cuts=False)

    first = again(Observed())
    return first, refine(first, mean_times, again)


def means(plan: Plan, duration_ns: int, seed: int) -> dict[str, float]:
    """Return the mean response of every chain as simulated."""
    trace = run(plan, duration_ns, seed).trace
    assert trace is not None
    return {name: chain["response_time_ns"]["mean"] for name, chain in result(trace, plan)["chains"].items()}


@pytest.mark.parametrize(
    ("pipeline", "platform", "mode"),
    [
        ("pointpillars", "jetson-agx-orin-64gb", "30W"),
        ("camera-detection", "jetson-agx-orin-64gb", "MAXN"),
        ("autoware-reference", "jetson-agx-orin-64gb", "MAXN"),
        pytest.param("perception-stack", "jetson-agx-orin-64gb", "MAXN", marks=pytest.mark.slow),
        pytest.param("perception-stack", "jetson-agx-orin-64gb", "50W", marks=pytest.mark.slow),
        pytest.param("perception-stack", "jetson-agx-xavier", "MAXN", marks=pytest.mark.slow),
        pytest.param("waters2019", "jetson-agx-orin-64gb", "MAXN", marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled(3)
def test_expected_times_are_the_simulators_within_one_percent(pipeline: str, platform: str, mode: str) -> None:
    first, plan = both(pipeline, platform, mode)
    if first.verdict != "feasible":
        assert plan == first
        return
    seen = means(plan, 3 * steady_ns(plan) + SECOND, seed=5)
    for chain in plan.chains:
        assert chain.expected_ns == pytest.approx(seen[chain.name], rel=0.01), chain.name
    assert plan.solver.rounds >= 1 and plan.solver.value == sum(chain.expected_ns for chain in plan.chains)
    # Refining compares simulations, so what it ends with is no slower than what it began with.
    assert sum(seen.values()) <= sum(means(first, 3 * steady_ns(first) + SECOND, seed=5).values()) * 1.01


@pytest.mark.slow
def test_an_overloaded_plan_is_left_unchanged() -> None:
    plan = make_plan(get_pipeline("centerpoint-pillar"), get_platform("jetson-agx-orin-64gb"), "15W", work=stage_work)
    assert plan.verdict == "infeasible"
    assert refine(plan, mean_times) is plan


def test_a_network_cut_between_engines_takes_what_the_plan_expects() -> None:
    """Frames in flight on two engines slow each other down; the estimate without interference does not see it."""
    from tests.planning.cut_detector import MS, by_rooflines, detector

    plan = make_plan(detector(7 * MS // 2), by_rooflines(), "15W", work=stage_work)
    assert plan.verdict == "feasible" and len(plan.tasks) > 1
    (chain,) = refine(plan, mean_times).chains
    assert chain.expected_ns == pytest.approx(means(plan, SECOND, seed=3)[chain.name], rel=2e-4)
    assert chain.expected_ns > plan.chains[0].expected_ns


def test_only_the_plan_that_is_kept_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    explained = []

    def record(plan: Plan, *_: object) -> Uncertainty:
        explained.append(plan)
        return Uncertainty("latency")

    monkeypatch.setattr(search, "uncertainty", record)
    plan = plan_of("autoware-reference", "rk3588", "performance", evaluations=None)
    assert plan.solver.rounds > 1
    assert [each.tasks for each in explained] == [plan.tasks]
    assert plan.uncertainty.objective == "latency"
