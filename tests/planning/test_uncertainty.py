"""Ties and the measurement to make first, on systems small enough for worked examples."""

from __future__ import annotations

import pytest

from socsched.descriptor.pipeline import Stage
from socsched.descriptor.platform import Figure
from socsched.planning.plan import Plan
from socsched.planning.planner import make_plan
from socsched.planning.uncertainty import _expected
from tests.sim.toy_platform import MS, lines, platform, takes


def planned(*stages: tuple[dict[str, tuple[float, float]], int]) -> Plan:
    """Return the plan of stages, each with a sensor: times (ms) and errors by engine, and a deadline (ms)."""
    made = []
    for number, (costs, deadline) in enumerate(stages):
        times = tuple(
            takes(e, Figure(time * MS, "derived", f"bench of {e}", error=error), int(e == "cpu"))
            for e, (time, error) in costs.items()
        )
        made.append((40 * MS, deadline * MS, (Stage(f"t{number}", "", None, costs=times, share=1),)))
    return make_plan(lines(*made), platform("full", "segment"), work=lambda *_: None, time_limit=None)


def test_a_plan_closer_than_its_error_is_a_tie_and_the_weak_figure_is_to_be_measured() -> None:
    plan = planned(({"acc": (4.0, 0.05), "cpu": (4.4, 0.5)}, 40))
    assert plan.tasks[0].engine == "acc"
    (tie,) = plan.uncertainty.ties
    assert (tie.stage, tie.instead) == ("t0", "cpu fp32")
    assert tie.difference == pytest.approx(0.4 * MS) and tie.error == pytest.approx((0.2 + 2.2) * MS)
    wish = plan.uncertainty.measure
    assert (wish.stage, wish.engine) == ("t0", "cpu")
    # cpu in 2.2 to 6.6 ms: better by (4 - t) where t < 4, that is on 1.8 of 4.4 ms, by 0.9 ms on average
    assert wish.gain == pytest.approx(1.8 / 4.4 * 0.9 * MS, rel=1e-3) and wish.verdict_flips == 0


def test_what_differs_by_more_than_the_error_is_no_tie() -> None:
    plan = planned(({"acc": (4.0, 0.05), "cpu": (8.0, 0.1)}, 40))
    assert plan.uncertainty.ties == () and plan.uncertainty.measure is None


def test_what_may_overturn_the_verdict_comes_first() -> None:
    plan = planned(({"acc": (4.0, 0.05), "cpu": (4.4, 0.5)}, 40), ({"acc": (16.0, 0.5)}, 22))
    assert plan.verdict == "feasible"
    wish = plan.uncertainty.measure
    assert (wish.stage, wish.engine) == ("t1", "acc") and 0 < wish.verdict_flips <= 0.5
    assert (wish.low_ns, wish.high_ns) == (8 * MS, 24 * MS)


def test_a_refused_plan_names_the_figure_that_would_save_it() -> None:
    plan = planned(({"acc": (16.0, 0.5)}, 14), ({"cpu": (3.0, 0.1)}, 40))
    assert plan.verdict == "infeasible"
    assert plan.uncertainty.measure.stage == "t0" and plan.uncertainty.ties == ()


def test_the_mean_of_the_positive_part() -> None:
    assert _expected(3.0, -1.0) == pytest.approx(9 / 8)
    assert _expected(-1.0, -2.0) == 0 and _expected(1.0, 3.0) == 2


def test_a_condition_is_the_break_even_of_the_most_uncertain_stage() -> None:
    """The factor holds when the cost is scaled by it, and the accuracy's width beyond it does not."""
    from socsched.api.planning import PlanOptions, plan_with

    plan = plan_with("camera-detection", "jetson-agx-orin-64gb", "15W", PlanOptions(refine=False))
    assert plan.verdict == "feasible" and plan.uncertainty.upper in ("feasible", "not proved")
    (condition,) = plan.uncertainty.conditions
    task = next(t for t in plan.tasks if t.name == condition.stage)
    assert condition.interval == round(1 + task.error, 4)
    assert condition.factor >= 1
