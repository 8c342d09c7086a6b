"""Jobs on several lanes: global, clustered and partitioned, the cost of migration, cores of different speed."""

from __future__ import annotations

import pytest
from builders import engine, places, plan, spans, task, times

from socsched.planning.plan import Task
from socsched.sim.simulate import simulate


def free(name: str, cost: int, **changes: object) -> Task:
    """Return a task that takes one of two lanes, whichever is free."""
    return task(name, cost, **{"lanes": (0, 1), "width": 1, "period_ns": 1000, **changes})


def test_global_fixed_priority_serves_the_most_urgent_two() -> None:
    made = plan([free("a", 4, priority=0), free("b", 7, priority=1), free("c", 6, priority=2)],
                [engine(lanes=2, policy="fp")])  # fmt: skip
    trace = simulate(made, 100)
    assert [places(trace, name) for name in "abc"] == [[((0,), 0, 4)], [((1,), 0, 7)], [((0,), 4, 10)]]


def test_a_preempted_job_goes_on_where_a_lane_is_free_and_pays_switch_and_migration() -> None:
    """At 2 the pinned job takes lane 0; its tenant moves to lane 1 and drives out the least urgent, which must wait."""
    pinned = task("pinned", 3, lanes=(0,), offset_ns=2, priority=0, period_ns=1000)
    mobile = free("mobile", 6, priority=1)
    least = task("least", 4, lanes=(1,), priority=2, period_ns=1000)
    trace = simulate(plan([pinned, mobile, least], [engine(lanes=2, policy="fp", switch_ns=2, migration_ns=1)]), 100)
    assert places(trace, "pinned") == [((0,), 2, 5)]
    assert places(trace, "mobile") == [((0,), 0, 2), ((1,), 2, 5), ((1,), 5, 9)]
    assert spans(trace, "least") == [("least", 0, 2), ("switch", 9, 11), ("least", 11, 13)]
    assert [(job.preemptions, job.migrations) for job in trace.jobs] == [(1, 1), (1, 0), (0, 0)]


def test_a_job_that_resumes_where_it_was_does_not_migrate() -> None:
    urgent = [free(f"u{i}", 3, offset_ns=2, deadline_ns=10) for i in range(2)]
    long = free("long", 6, deadline_ns=100)
    trace = simulate(plan([*urgent, long], [engine(lanes=2, migration_ns=7)]), 100)
    assert places(trace, "long") == [((0,), 0, 2), ((0,), 5, 9)]
    assert [job.migrations for job in trace.jobs] == [0, 0, 0]


def test_global_edf_suffers_from_dhalls_effect_and_fixed_priority_need_not() -> None:
    """Dhall & Liu (Oper. Res. 26(1) 1978): light tasks with earlier deadlines make the heavy one late."""
    light = [free(f"l{i}", 2, period_ns=10, priority=1 + i) for i in range(2)]
    heavy = free("heavy", 10, period_ns=11, priority=0)
    made = plan([*light, heavy], [engine(lanes=2)])
    assert times(simulate(made, 13), "heavy")[0] == (2, 12)
    assert simulate(made, 13).instants[0].kind == "miss"
    by_priority = simulate(made, 11, policy="fp")
    assert times(by_priority, "heavy") == [(0, 10)]
    assert [times(by_priority, f"l{i}")[0] for i in range(2)] == [(0, 2), (2, 4)]
    assert not by_priority.instants


def test_clusters_do_not_help_each_other() -> None:
    near = [free(f"n{i}", 4) for i in range(3)]
    far = free("far", 10, lanes=(2, 3))
    trace = simulate(plan([*near, far], [engine(lanes=4)]), 100)
    assert [times(trace, f"n{i}") for i in range(3)] == [[(0, 4)], [(0, 4)], [(4, 8)]]
    assert places(trace, "far") == [((2,), 0, 10)]


@pytest.mark.parametrize(("width", "end"), [(1, 10), (2, 20)])
def test_wide_jobs_take_as_many_lanes_as_they_need(width: int, end: int) -> None:
    jobs = [free(f"j{i}", 10, width=width) for i in range(2)]
    trace = simulate(plan(jobs, [engine(lanes=2)]), 100)
    assert [job.finish_ns for job in trace.jobs] == [10, end]


def test_faster_cores_are_taken_first_and_slower_ones_take_longer() -> None:
    """Capacities 512 and 1024: twice the time on the little core, and a job that runs there stays."""
    made = plan([free("a", 10), free("b", 10), free("c", 10, offset_ns=12)], [engine(lanes=2, capacities=(512, 1024))])
    trace = simulate(made, 100)
    assert [places(trace, name) for name in "abc"] == [[((1,), 0, 10)], [((0,), 0, 20)], [((1,), 12, 22)]]


def test_a_gang_is_as_slow_as_its_slowest_core() -> None:
    made = plan([free("gang", 9, width=0)], [engine(lanes=2, capacities=(1024, 768))])
    assert times(simulate(made, 100), "gang") == [(0, 12)]


def test_work_left_is_done_at_the_speed_of_the_new_core() -> None:
    """4 of 10 done on the fast core when it is taken away for 20: the other 6 take 12 on the slow one."""
    top = task("top", 20, lanes=(1,), offset_ns=4, priority=0, period_ns=1000)
    made = plan([top, free("a", 10, priority=1)], [engine(lanes=2, policy="fp", capacities=(512, 1024))])
    assert places(simulate(made, 100), "a") == [((1,), 0, 4), ((0,), 4, 16)]
