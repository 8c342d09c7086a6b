"""Every policy on a worked example that distinguishes it from the others."""

from __future__ import annotations

import pytest
from builders import MS, engine, plan, spans, task, times

from socsched.cost.cost import Segment
from socsched.planning.plan import Plan, Task
from socsched.sim.simulate import simulate


def once(name: str, cost: int, **changes: object) -> Task:
    return task(name, cost, **{"period_ns": 1000, **changes})


def three() -> Plan:
    return plan([once("a", 10), once("b", 3, offset_ns=2), once("c", 6, offset_ns=4)])


def test_shortest_remaining_time_first() -> None:
    """At 2 a has 8 left and gives way to 3; at 5 the 6 of c go first, too."""
    trace = simulate(three(), 100, policy="srtf")
    assert spans(trace) == [("a", 0, 2), ("b", 2, 5), ("c", 5, 11), ("a", 11, 19)]


def test_first_in_first_out() -> None:
    assert spans(simulate(three(), 100, policy="fifo")) == [("a", 0, 10), ("b", 10, 13), ("c", 13, 19)]


def test_round_robin_takes_turns_of_a_quantum() -> None:
    made = plan([once("a", 7), once("b", 4)], [engine(policy="rr", quantum_ns=3)])
    assert spans(simulate(made, 100)) == [("a", 0, 3), ("b", 3, 6), ("a", 6, 9), ("b", 9, 10), ("a", 10, 11)]


@pytest.mark.parametrize("policy", ["fifo", "edf", "fp", "llf"])
def test_a_quantum_means_nothing_to_policies_without_turns(policy: str) -> None:
    """Whatever else an engine's file states, equals do not take turns and no job is interrupted."""
    tasks = [once("a", 7), once("b", 4), once("c", 5, offset_ns=2)]
    plain, left_over = (simulate(plan(tasks, [engine(policy=policy, quantum_ns=ns)]), 100) for ns in (0, 3))
    assert spans(left_over) == spans(plain) and left_over == plain


def test_round_robin_lets_a_late_comer_wait_for_its_turn() -> None:
    made = plan([once("a", 7), once("b", 4), once("c", 3, offset_ns=4)], [engine(policy="rr", quantum_ns=3)])
    # c queues up at 4, behind a (which queued at 3) and before b (which queues at 6)
    expected = [("a", 0, 3), ("b", 3, 6), ("a", 6, 9), ("c", 9, 12), ("b", 12, 13), ("a", 13, 14)]
    assert spans(simulate(made, 100)) == expected


def test_least_laxity_first_is_evaluated_every_millisecond() -> None:
    """Laxities 4 (b) and 6 (a): a waits until its own is smaller, then both take turns; of equals the first listed."""
    made = plan([task("b", 6 * MS, deadline_ns=10 * MS, period_ns=100 * MS),
                 task("a", 3 * MS, deadline_ns=9 * MS, period_ns=100 * MS)])  # fmt: skip
    found = [(name, start // MS, end // MS) for name, start, end in spans(simulate(made, 50 * MS, policy="llf"))]
    assert found == [("b", 0, 3), ("a", 3, 4), ("b", 4, 5), ("a", 5, 6), ("b", 6, 7), ("a", 7, 8), ("b", 8, 9)]


def test_criticality_comes_before_deadlines() -> None:
    tasks = [
        once("soft", 5, deadline_ns=10, criticality="soft"),
        once("hard", 5, offset_ns=1, deadline_ns=100, criticality="hard"),
        once("hard-sooner", 2, offset_ns=2, deadline_ns=50, criticality="hard"),
    ]
    trace = simulate(plan(tasks), 100, policy="edf-criticality")
    assert spans(trace) == [
        ("soft", 0, 1), ("hard", 1, 2), ("hard-sooner", 2, 4), ("hard", 4, 8), ("soft", 8, 12),
    ]  # fmt: skip


def test_heterogeneous_highest_priority_first_stops_lower_ones_everywhere() -> None:
    """XSched's rule: while the urgent job is on the accelerator, the cores do nothing for others."""
    low = once("low", 10, priority=1)
    high = once("high", 5, engine="gpu", offset_ns=2, priority=0)
    trace = simulate(plan([low, high], [engine(), engine("gpu")]), 100, policy="hhpf")
    assert spans(trace) == [("low", 0, 2), ("high", 2, 7), ("low", 7, 15)]
    apart = simulate(plan([low, high], [engine(), engine("gpu")]), 100, policy="fp")
    assert spans(apart) == [("low", 0, 10), ("high", 2, 7)]


def test_rate_and_deadline_monotonic() -> None:
    tasks = [task("often", 4, period_ns=20, deadline_ns=20), task("tight", 4, period_ns=40, deadline_ns=10)]
    by_rate, by_deadline = (simulate(plan(tasks), 20, policy=name) for name in ("rm", "dm"))
    assert (times(by_rate, "often"), times(by_rate, "tight")) == ([(0, 4)], [(4, 8)])
    assert (times(by_deadline, "often"), times(by_deadline, "tight")) == ([(4, 8)], [(0, 4)])


def test_non_preemptive_variants_start_in_order_and_run_to_the_end() -> None:
    tasks = [once("long", 10, deadline_ns=100), once("urgent", 2, offset_ns=1, deadline_ns=12),
             once("next", 2, offset_ns=1, deadline_ns=50)]  # fmt: skip
    trace = simulate(plan(tasks), 100, policy="np-edf")
    assert spans(trace) == [("long", 0, 10), ("urgent", 10, 12), ("next", 12, 14)]


def test_a_reservation_is_served_until_its_budget_is_spent_and_again_at_its_deadline() -> None:
    """Budget 2 in every 5, hard: 2 of 4 by its deadline 5, the rest from 5; no other job uses the gap."""
    served = once("served", 4, budget_ns=2, server_ns=5)
    plain = once("plain", 2, deadline_ns=4)
    trace = simulate(plan([served, plain], [engine(policy="cbs")]), 100)
    assert spans(trace) == [("plain", 0, 2), ("served", 2, 4), ("served", 5, 7)]


def test_an_overrunning_reservation_does_not_delay_others_beyond_its_share() -> None:
    """Abeni & Buttazzo's isolation: a job of 50 in a reservation of 2 in 10 leaves 8 in 10 to the other, EDF would not.

    Reservation: deadlines 10, 20, 30 ...; the other: 7 every 10, due at 10, 20 ...  Of equal deadlines the reserved job
    was activated first (0) and keeps its place: 0-2, 10-12, ...
    """
    greedy = once("greedy", 50, budget_ns=2, server_ns=10, deadline_ns=9)
    other = task("other", 7, period_ns=10, deadline_ns=10)
    trace = simulate(plan([greedy, other], [engine(policy="cbs")]), 40)
    assert times(trace, "other") == [(2, 9), (12, 19), (22, 29), (32, 39)]
    assert spans(trace, "greedy") == [("greedy", begin, begin + 2) for begin in (0, 10, 20, 30)]
    assert times(simulate(plan([greedy, other]), 70, policy="edf"), "other")[0] == (50, 57)


def test_a_reservation_that_wakes_up_with_too_much_budget_gets_a_new_deadline() -> None:
    """Budget 40 in 100.  At 0 it runs 10, due 100; at 40 the 30 left exceed (100 - 40) * 40/100: due 140, full.

    A job due at 120 is then served first; with the old deadline it would have come second.
    """
    woken = task("woken", 10, period_ns=40, budget_ns=40, server_ns=100)
    probe = once("probe", 35, offset_ns=40, deadline_ns=80)
    trace = simulate(plan([woken, probe], [engine(policy="cbs")]), 100)
    assert spans(trace)[:3] == [("woken", 0, 10), ("probe", 40, 75), ("woken", 75, 85)]


def test_a_reservation_that_wakes_up_with_little_budget_keeps_its_deadline() -> None:
    """At 80 the 5 left are within (100 - 80) * 40/100 = 8: due 100 still, before a job due at 120."""
    woken = task("woken", 35, period_ns=80, budget_ns=40, server_ns=100)
    probe = once("probe", 35, offset_ns=80, deadline_ns=40)
    trace = simulate(plan([woken, probe], [engine(policy="cbs")]), 160)
    # its 5 are spent by 85; the rest waits for 100, due 200
    assert spans(trace) == [("woken", 0, 35), ("woken", 80, 85), ("probe", 85, 120), ("woken", 120, 150)]


def test_budget_that_fits_is_not_rounded_up() -> None:
    """As above with 4 in 10: 3 left at 4, of which (10 - 4) * 4/10 = 2.4 fit."""
    woken = task("woken", 1, period_ns=4, budget_ns=4, server_ns=10)
    probe = once("probe", 5, offset_ns=4, deadline_ns=8)
    trace = simulate(plan([woken, probe], [engine(policy="cbs")]), 10)
    assert spans(trace) == [("woken", 0, 1), ("probe", 4, 9), ("woken", 9, 10)]


def test_a_turn_ends_where_a_job_leaves_the_lanes() -> None:
    """What is left of a quantum on one engine neither runs out on another nor is there on the way back."""
    parts = (Segment("there", 2, 0, 0), Segment("away", 20, 0, 0, engine="y", lanes=(0,)), Segment("back", 4, 0, 0))
    made = plan(
        [once("a", 26, segments=parts), once("b", 9, offset_ns=20)],
        [engine(policy="rr", quantum_ns=3), engine("y", policy="edf")],
    )
    assert sorted(spans(simulate(made, 100)), key=lambda span: span[1]) == [
        ("there", 0, 2),
        ("away", 2, 22),
        ("b", 20, 23),
        ("back", 23, 26),
        ("b", 26, 29),
        ("back", 29, 30),
        ("b", 30, 33),
    ]


def test_a_reservation_is_given_back_while_its_task_is_on_an_engine_without_them() -> None:
    """Budget 2 in 42 on x, rounds of 4 on y, where every job of `a` begins.

    Frame 0 is on y until 8 and spends its budget on x until 10, due 50, so that it is aborted at 20.  Frame
    1 comes at 40, shares y with `b`, which has been there since 37, and has its turn from 49 to 53: the budget given
    back at 50 neither ends that turn nor is lost.  What is on y does not wait for a budget.
    """
    parts = (Segment("y", 8, 0, 0, engine="y", lanes=(0,)), Segment("x", 5, 0, 0))
    first = task("a", 13, segments=parts, engine="x", period_ns=40, deadline_ns=20, on_late="abort",
                 budget_ns=2, server_ns=42)  # fmt: skip
    engines = [engine("x", policy="cbs"), engine("y", policy="rr", quantum_ns=4)]
    trace = simulate(plan([first, once("b", 12, engine="y", offset_ns=37)], engines), 80)
    assert spans(trace, "a") == [("y", 0, 8), ("x", 8, 10), ("y", 41, 45), ("y", 49, 53), ("x", 53, 55)]
    assert spans(trace, "b") == [("b", 37, 41), ("b", 45, 49), ("b", 53, 57)]
