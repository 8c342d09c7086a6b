"""The exact evaluator of schedules, against the simulator and worked examples."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.cost.cost import Segment
from socsched.errors import UsageError
from socsched.planning.mapping.problem import (
    Budget,
    Edge,
    Group,
    Hop,
    JobKey,
    Lanes,
    Option,
    Problem,
    Requirement,
    Schedule,
)
from socsched.sim.simulate import simulate
from socsched_literature.mapping.evaluate import Impossible, evaluate
from socsched_literature.mapping.lists import list_schedule
from tests.literature.mapping.mapping_problems import plan_of, random_problem, random_schedule


def work(time: int, size: int = 0, fixed: int = 0) -> tuple[Segment, ...]:
    return (Segment("work", time, fixed, size),)


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4), st.sampled_from([0, 8, 14, 20]))
@settings(max_examples=40, deadline=None)
def test_every_job_ends_when_the_simulator_says(
    seed: int, networks: int, groups: int, engines: int, bandwidth: int
) -> None:
    rng = Random(seed)
    problem = random_problem(rng, networks, groups, engines, bandwidth)
    schedule = random_schedule(rng, problem)
    ends = {
        (f"{problem.edges[s.key.index].source}>{problem.edges[s.key.index].sink}")
        if s.key.conversion
        else problem.groups[s.key.index].name: (s.start_ns, s.end_ns)
        for s in evaluate(problem, schedule).spans
    }
    trace = simulate(plan_of(problem, schedule), 10**9)
    # Equal demands come in another order there, and the last bit of a share can round a duration up or not.
    seen = {job.task: (job.start_ns, job.finish_ns) for job in trace.jobs}
    assert seen.keys() == ends.keys()
    assert max(abs(a - b) for name in ends for a, b in zip(seen[name], ends[name], strict=True)) <= len(ends)


def test_two_that_want_more_than_there_is_share_it() -> None:
    # 1000 ns at 10 bytes/ns each, of 10 there are: both at half speed.
    groups = tuple(Group(name, (Option(name, work(1000, 10_000)),)) for name in ("a", "b"))
    problem = Problem((Lanes("a"), Lanes("b")), groups, bandwidth=10 * 10**9)
    found = evaluate(problem, list_schedule(problem))
    assert (found.makespan_ns, found.interval_ns) == (2000, 2000)


def test_hand_over_conversion_and_delay_follow_each_other() -> None:
    hop = Hop(handoff_ns=5, delay_ns=7, engine="b", segments=work(11), energy_uj=4, draws=(("power", 2),))
    problem = Problem(
        (Lanes("a"), Lanes("b")),
        (
            Group("x", (Option("a", work(100), energy_uj=10),), release_ns=3),
            Group("y", (Option("b", work(50), energy_uj=20),)),
        ),
        (Edge("x", "y", ((hop,),)),),
        (Requirement("chain", ("y",), 150, sampling_ns=30),),
        (Budget("power", 1),),
    )
    found = evaluate(problem, list_schedule(problem))
    assert [(s.start_ns, s.end_ns) for s in found.spans] == [(3, 108), (108, 119), (126, 176)]
    assert found.energy_uj == 34
    assert dict(found.latencies) == {"chain": 206}
    assert found.excess == (("chain", 206, 150), ("power", 2, 1))
    assert found.slack_ppm == -(-206 * 10**6 // 150)


def test_lanes_are_taken_in_order_and_several_frames_keep_theirs() -> None:
    problem = Problem(
        (Lanes("cpu", 2),),
        (
            Group("wide", (Option("cpu", work(10), share=2),), period_ns=5, frames=2),
            Group("thin", (Option("cpu", work(4)),), frames=1),
        ),
    )
    order = (JobKey(0, 1), JobKey(0, 0), JobKey(1, 0))
    spans = evaluate(problem, Schedule((0, 0), order)).spans
    assert [(s.key.index, s.start_ns, s.end_ns, s.lanes) for s in spans] == [
        (1, 0, 4, (0,)),
        (0, 4, 14, (0, 1)),
        (0, 14, 24, (0, 1)),
    ]


def test_what_cannot_run_is_refused() -> None:
    groups = (Group("x", (Option("a", work(1)),)), Group("y", (Option("a", work(1)),)))
    problem = Problem((Lanes("a"),), groups, (Edge("x", "y", ((Hop(),),)),))
    with pytest.raises(Impossible, match="waits for itself"):
        evaluate(problem, Schedule((0, 0), (JobKey(0, 1), JobKey(0, 0))))
    with pytest.raises(Impossible, match="every job exactly once"):
        evaluate(problem, Schedule((0, 0), (JobKey(0, 0),)))
    closed = Problem((Lanes("a"),), groups, (Edge("x", "y", ((None,),)),))
    with pytest.raises(Impossible, match="x -> y"):
        evaluate(closed, Schedule((0, 0), (JobKey(0, 0), JobKey(0, 1))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objectives": ("beauty",)}, "unknown objective 'beauty'"),
        ({"edges": (Edge("x", "z", ((Hop(),),)),)}, "no group for the edge"),
        ({"edges": (Edge("x", "x", ((Hop(),),)),)}, "in a cycle"),
        ({"edges": (Edge("x", "y", ((Hop(), Hop()),)),)}, "one hop for each pair"),
        ({"edges": (Edge("x", "y", ((Hop(engine="?"),),)),)}, "no engine '\\?'"),
        ({"requirements": (Requirement("r", ("q",)),)}, "no group 'q'"),
        ({"engines": (Lanes("b"),)}, "no 1 lanes on engine 'a'"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    parts = {
        "engines": (Lanes("a"),),
        "groups": (Group("x", (Option("a", work(1)),)), Group("y", (Option("a", work(1)),))),
    }
    with pytest.raises(UsageError, match=message):
        Problem(**{**parts, **change})  # type: ignore[arg-type]


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=25, deadline=None)
def test_list_schedules_run_and_keep_precedence(
    seed: int, networks: int, groups: int, engines: int, frames: int
) -> None:
    problem = random_problem(Random(seed), networks, groups, engines, 12, frames)
    found = evaluate(problem, list_schedule(problem))
    ends = {span.key: span.end_ns for span in found.spans}
    starts = {span.key: span.start_ns for span in found.spans}
    for edge in problem.edges:
        for frame in range(frames):
            source, sink = (JobKey(frame, problem.index[name]) for name in (edge.source, edge.sink))
            assert ends[source] <= starts[sink]
    for a in found.spans:
        for b in found.spans:
            if a.key < b.key and a.engine == b.engine:
                assert a.end_ns <= b.start_ns or b.end_ns <= a.start_ns
