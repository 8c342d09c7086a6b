from __future__ import annotations

import heapq
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_plans import MS, plan, task

from socsched.errors import UsageError
from socsched.runtime.activation import Activation
from socsched.runtime.dispatch import Dispatcher
from socsched.trace.trace import Trace


def dispatcher(made: Any, needs: dict[str, set[str]] | None = None) -> Dispatcher:
    return Dispatcher(made, needs or {}, Trace("measured", 0, 0))


def names(started: list[Activation]) -> list[str]:
    return [act.task.name for act in started]


def test_edf_serves_the_earliest_absolute_deadline_first() -> None:
    late, soon = task("late", "s", deadline_ns=9 * MS), task("soon", "s", deadline_ns=3 * MS)
    d = dispatcher(plan(late, soon, sensors={"s": MS}))
    d.release("s", 0, 0, 0, {})
    assert names(d.start(0)) == ["soon"]


def test_fixed_priority_ignores_deadlines() -> None:
    made = plan(
        task("low", "s", deadline_ns=MS, priority=1), task("high", "s", priority=0), sensors={"s": MS}, policy="fp"
    )
    d = dispatcher(made)
    d.release("s", 0, 0, 0, {})
    assert names(d.start(0)) == ["high"]


def test_fifo_serves_in_order_of_activation() -> None:
    made = plan(
        task("second", "b", deadline_ns=MS), task("first", "a"), task("now", "c"), sensors={"a": MS, "b": MS, "c": MS},
        policy="fifo",
    )  # fmt: skip
    d = dispatcher(made)
    d.release("c", 0, 0, 0, {})
    (now,) = d.start(0)
    d.release("a", 0, 0, 1, {})
    d.release("b", 0, 0, 2, {})
    assert d.start(2) == []
    d.finish(now, 0, 3, {})
    assert names(d.start(3)) == ["first"]


def test_a_shield_keeps_less_critical_jobs_back_but_not_for_ever() -> None:
    hard = [task("first", "a", criticality="hard"), task("second", "first", criticality="hard", lanes=(1,))]
    soft = task("soft", "b", lanes=(2,), period_ns=4 * MS, criticality="soft")
    made = plan(*hard, soft, sensors={"a": 80 * MS, "b": 4 * MS}, lanes=3)
    open_, shielded = dispatcher(made), Dispatcher(made, {}, Trace("measured", 0, 0), shield=True)
    for d in (open_, shielded):
        d.release("a", 0, 0, 0, {})
        (first,) = d.start(0)
        d.release("b", 0, MS, MS, {})
        assert names(d.start(MS)) == (["soft"] if d is open_ else [])
    shielded.finish(first, 0, 2 * MS, {})
    (second,) = shielded.start(2 * MS)
    assert second.task.name == "second", "the next stage of the same frame is still before it"
    assert names(shielded.start(3 * MS)) == []
    assert names(shielded.start(5 * MS)) == ["soft"], "it has waited for a period"
    shielded.release("b", 1, 5 * MS, 5 * MS, {})
    shielded.finish(second, 2 * MS, 6 * MS, {})
    shielded.finish(next(iter(shielded.running.values())), 5 * MS, 7 * MS, {})
    assert names(shielded.start(7 * MS)) == ["soft"], "nothing more critical is left"


def test_a_shield_holds_back_jobs_that_would_still_run_at_a_more_critical_release() -> None:
    hard = task("hard", "a", period_ns=10 * MS, criticality="hard")
    soft = task("soft", "b", lanes=(1,), period_ns=10 * MS, criticality="soft")
    made = plan(hard, soft, sensors={"a": 10 * MS, "b": 10 * MS}, lanes=2)
    d = Dispatcher(made, {}, Trace("measured", 0, 0), shield=True)
    asap = Dispatcher(made, {}, Trace("measured", 0, 0), shield=True, lossless=True)
    for one in (d, asap):
        one.release("a", 0, 0, 0, {})
        one.finish(one.start(0)[0], 0, MS, {})
        one.release("b", 0, 2 * MS, 2 * MS, {})
        (first,) = one.start(2 * MS)  # its time is unknown
        one.finish(first, 2 * MS, 5 * MS, {})
        one.release("b", 1, 6 * MS, 6 * MS, {})
    assert names(asap.start(7 * MS + 1)) == ["soft"], "without a clock nothing is due"
    (second,) = d.start(7 * MS)
    assert second.task.name == "soft", "3 ms are left"
    d.finish(second, 7 * MS, 8 * MS, {})
    d.release("b", 2, 8 * MS, 8 * MS, {})
    assert names(d.start(8 * MS)) == [], "2 ms are not enough"
    d.lose("a", 1, 10 * MS, "broken")
    (third,) = d.start(10 * MS)
    assert third.task.name == "soft", "the frame came, and was of no use"
    d.finish(third, 10 * MS, 11 * MS, {})
    d.release("b", 3, 18 * MS, 18 * MS, {})
    assert names(d.start(18 * MS)) == [] == names(d.start(20 * MS + 1)), "it is late, but will come"
    assert names(d.start(28 * MS)) == ["soft"], "it has waited for a period"
    d.finish(next(iter(d.running.values())), 28 * MS, 29 * MS, {})
    d.release("b", 4, 31 * MS, 31 * MS, {})
    assert names(d.start(31 * MS)) == ["soft"], "a sensor that is a period late is not waited for"


def test_a_full_queue_drops_the_newest_frame() -> None:
    d = dispatcher(plan(task("t", "s", queue=1), sensors={"s": MS}))
    for frame in range(3):
        d.release("s", frame, frame * MS, frame * MS, {})
        d.start(frame * MS)
    assert [job.status for job in d.trace.jobs] == ["unfinished", "unfinished", "dropped"]
    drop = next(note for note in d.trace.instants if note.kind == "drop")
    assert (drop.subject, drop.frame, drop.time_ns) == ("t", 2, 2 * MS)
    assert d.trace.counters["queue.t"] == [(0, 0.0), (MS, 1.0)]
    assert d.outstanding == 2


def test_without_a_queue_a_frame_is_taken_only_by_an_idle_stage() -> None:
    d = dispatcher(plan(task("t", "s", queue=0), sensors={"s": MS}))
    for frame in range(2):
        d.release("s", frame, frame * MS, frame * MS, {})
        d.start(frame * MS)
    assert [job.status for job in d.trace.jobs] == ["unfinished", "dropped"]


def test_jobs_of_lower_priority_fill_the_lanes_a_waiting_gang_cannot_use_yet() -> None:
    gang = task("gang", "b", lanes=(0, 1), deadline_ns=5 * MS)
    made = plan(task("one", "a"), gang, task("two", "c", lanes=(1,)), sensors={"a": MS, "b": MS, "c": MS})
    d = dispatcher(made)
    d.release("a", 0, 0, 0, {})
    (one,) = d.start(0)
    d.release("b", 0, 0, 1, {})
    d.release("c", 0, 0, 1, {})
    (two,) = d.start(1)
    assert two.task.name == "two"
    d.finish(one, 0, 7, {})
    assert d.start(7) == []
    d.finish(two, 1, 9, {})
    assert names(d.start(9)) == ["gang"]
    assert d.trace.jobs[1].blocking_ns == 8, "the gang waited for jobs of later deadline"
    assert d.trace.jobs[2].blocking_ns == 0


def test_lineage_keeps_the_oldest_frame_of_every_source() -> None:
    made = plan(
        task("slow", "a"), task("fast", "b", lanes=(1,)), task("both", "slow", reads=("fast", "b"), lanes=(2,)),
        sensors={"a": 10 * MS, "b": MS},
    )  # fmt: skip
    d = dispatcher(made)
    d.release("b", 0, 0, 0, {})
    (fast,) = d.start(0)
    d.release("a", 0, 10, 10, {})
    (slow,) = d.start(10)
    d.finish(fast, 0, 20, {})
    d.release("b", 1, 25, 25, {})
    d.start(25)
    d.finish(slow, 10, 30, {})
    both = next(act for act in d.start(30) if act.task.name == "both")
    assert both.origin == {"a": (0, 10), "b": (0, 0)}
    assert both.job.deadline_ns == 10 + 10 * MS


def test_a_join_waits_for_the_same_frame_of_all_inputs() -> None:
    made = plan(
        task("left", "a"), task("right", "b", lanes=(1,), queue=0), task("join", "left", "right", lanes=(2,)),
        sensors={"a": MS, "b": MS},
    )  # fmt: skip
    d = dispatcher(made)
    for frame in range(2):  # `right` is busy with frame 0 when frame 1 comes
        d.release("a", frame, frame, frame, {})
        d.release("b", frame, frame, frame, {})
        for act in d.start(frame):
            if act.task.name == "left":
                d.finish(act, frame, frame, {})
            elif act.task.name == "right":
                right = act
    assert [job.frame for job in d.trace.jobs if job.task == "join"] == []
    d.finish(right, 0, 9, {})
    assert [(act.task.name, act.job.frame) for act in d.start(9)] == [("join", 0)]


def test_data_reach_the_stage_that_reads_them_and_are_let_go_behind_it() -> None:
    made = plan(task("a", "s"), task("b", "a"), task("c", "b"), sensors={"s": MS})
    d = dispatcher(made, {"a": {"s"}, "b": {"a"}, "c": {"a", "b"}})
    d.release("s", 0, 0, 0, {"points": 1})
    (a,) = d.start(0)
    assert a.values == {"s": {"points": 1}}
    d.finish(a, 0, 1, {"x": 2})
    (b,) = d.start(1)
    assert b.values == {"a": {"x": 2}}
    d.finish(b, 1, 2, {"y": 3})
    (c,) = d.start(2)
    assert c.values == {"a": {"x": 2}, "b": {"y": 3}}


def test_a_stage_that_has_nothing_to_sample_yet_drops_the_frame_and_frees_its_lanes() -> None:
    made = plan(task("reader", "a", reads=("b",)), task("other", "a", deadline_ns=20 * MS), sensors={"a": MS, "b": MS})
    d = dispatcher(made, {"reader": {"b"}})
    d.release("a", 0, 0, 0, {})
    assert names(d.start(0)) == ["other"]
    assert d.trace.jobs[0].status == "dropped"
    assert "no data from b" in d.trace.instants[0].text


def test_an_unusable_frame_is_marked_and_starts_nothing() -> None:
    d = dispatcher(plan(task("t", "s"), sensors={"s": MS}))
    d.lose("s", 0, 5, "empty file")
    assert d.start(5) == [] and d.outstanding == 0
    assert [(note.kind, note.subject, note.frame) for note in d.trace.instants] == [("input", "s", 0), ("drop", "s", 0)]
    assert d.trace.releases == {"s": [5]}


def test_a_late_job_leaves_a_miss() -> None:
    d = dispatcher(plan(task("t", "s", deadline_ns=10), sensors={"s": MS}))
    d.release("s", 0, 0, 0, {})
    (act,) = d.start(0)
    d.finish(act, 1, 11, {})
    assert [(note.kind, note.time_ns) for note in d.trace.instants] == [("miss", 11)]
    assert (d.trace.jobs[0].start_ns, d.trace.jobs[0].exec_ns, d.trace.jobs[0].status) == (1, 10, "done")


def test_unknown_lanes_and_policies_are_refused() -> None:
    with pytest.raises(UsageError, match="lanes"):
        dispatcher(plan(task("t", "s", lanes=(7,)), sensors={"s": MS}))
    with pytest.raises(UsageError, match="policy 'magic'"):
        dispatcher(plan(task("t", "s"), sensors={"s": MS}, policy="magic"))


lane_sets = st.sets(st.integers(0, 2), min_size=1).map(lambda lanes: tuple(sorted(lanes)))
stages = st.lists(
    st.tuples(lane_sets, st.integers(1, 30), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=5
)  # lanes, duration, forerunner, queue


@settings(max_examples=150, deadline=None)
@given(stages, st.sampled_from(["edf", "fp", "fifo"]), st.integers(5, 25))
def test_any_load_is_served_in_order_without_sharing_a_lane(rows: Any, policy: str, period: int) -> None:
    """Whatever the load: lanes never overlap, frames of a task stay in order, and every job ends done or dropped."""
    tasks = [
        task(
            f"t{i}",
            f"t{before}" if before < i else "s",
            lanes=lanes,
            queue=queue,
            priority=i,
            deadline_ns=period * (1 + i),
        )
        for i, (lanes, _, before, queue) in enumerate(rows)
    ]
    durations = {f"t{i}": duration for i, (_, duration, _, _) in enumerate(rows)}
    d = dispatcher(plan(*tasks, sensors={"s": period}, policy=policy, lanes=3))
    events: list[tuple[int, int, Any]] = [(frame * period, frame, None) for frame in range(8)]
    heapq.heapify(events)
    serial = 1000
    while events:
        now, number, act = heapq.heappop(events)
        if act is None:
            d.release("s", number, now, now, {})
        else:
            d.finish(act, act.job.start_ns, now, {})
        for started in d.start(now):
            started.job.start_ns = now
            serial += 1
            heapq.heappush(events, (now + durations[started.task.name], serial, started))
    assert d.outstanding == 0
    assert {job.status for job in d.trace.jobs} <= {"done", "dropped"}
    for lane in range(3):
        pieces = sorted((p.start_ns, p.end_ns) for p in d.trace.slices if lane in p.lanes)
        assert all(before[1] <= after[0] for before, after in pairwise(pieces))
    for t in tasks:
        done = [job for job in d.trace.jobs if job.task == t.name and job.status == "done"]
        assert [j.frame for j in sorted(done, key=lambda j: j.start_ns)] == sorted(j.frame for j in done)


def test_an_overrun_drops_what_is_not_hard_until_nothing_is_left() -> None:
    watch = task("watch", "a", criticality="hard", high_ns=3 * MS)
    film, note = task("film", "b"), task("note", "b", lanes=(1,))
    d = dispatcher(plan(watch, film, note, sensors={"a": MS, "b": MS}))
    d.release("a", 0, 0, 0, {})
    d.release("b", 0, 0, 0, {})
    begun = {act.task.name: act for act in d.start(0)}
    assert set(begun) == {"watch", "note"}, "film waits for watch"
    d.overran(begun["watch"], MS)
    assert d.levels is not None and d.levels.high
    d.release("b", 1, MS, MS, {})
    assert [job.status for job in d.trace.jobs if job.task == "film"] == ["dropped", "dropped"]
    d.finish(begun["note"], 0, 2 * MS, {})
    d.finish(begun["watch"], 0, 2 * MS, {})
    assert [job.status for job in d.trace.jobs if job.task == "note"] == ["done", "dropped"]
    d.release("b", 2, 3 * MS, 3 * MS, {})
    assert not d.levels.high and sorted(names(d.start(3 * MS))) == ["film", "note"]


def test_a_job_longer_than_planned_raises_the_level_at_its_end_at_the_latest() -> None:
    made = plan(task("watch", "a", criticality="hard", high_ns=3 * MS), task("film", "a"), sensors={"a": MS})
    for took, status in ((MS, "unfinished"), (2 * MS, "dropped")):
        d = dispatcher(made)
        d.release("a", 0, 0, 0, {})
        first = next(act for act in d.start(0))
        if first.task.name == "film":
            d.finish(first, 0, 0, {})
            (first,) = d.start(0)
        d.release("a", 1, 0, 0, {})
        d.finish(first, 0, took, {})
        assert {job.status for job in d.trace.jobs if job.task == "film" and job.frame == 1} == {status}
    asap = Dispatcher(made, {}, Trace("measured", 0, 0), lossless=True)
    assert asap.levels is None
