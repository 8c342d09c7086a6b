"""Timelines: windows, bars, the worst frames."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from report_samples import MS, build_trace

from socsched.planning.plan import Plan
from socsched.reporting import timeline as gantt
from socsched.reporting import timeline as gantt_data
from socsched.reporting.timeline import timeline, worst_frames
from socsched.trace.trace import Instant, Job, Slice, Trace


def busy(plan: Plan, count: int = 3000, late: tuple[int, ...] = (17, 2400)) -> Trace:
    """Return jobs of one task on one lane, one every 10 us for 4 us; those in `late` missed their deadline."""
    trace = Trace("simulated", count * 10_000, 0)
    for number in range(count):
        start = number * 10_000
        deadline = start + (1000 if number in late else 9000)
        job = Job("pfn", number, start, deadline, start_ns=start, finish_ns=start + 4000, exec_ns=4000, status="done")
        trace.jobs.append(job)
        trace.slices.append(Slice("gpu", (0,), number, "pfn", start, start + 4000))
    return trace


def test_every_execution_interval_in_the_window_appears_once(plan: Plan, trace: Trace) -> None:
    record = gantt_data.Recorded.of(plan, trace)
    window = (300 * MS, 600 * MS)
    data = gantt_data.document(record, window, window)
    drawn = Counter()
    for lanes, job, start, length in data["stays"]:
        task, frame = data["jobs"][job][:2]
        rows = tuple(data["rows"][row][0] for row in data["sets"][lanes])
        drawn[data["tasks"][task][0], frame, rows, start + data["start"], length] += 1
    lanes = {"gpu": lambda _: "gpu", "dla0": lambda _: "dla0", "cpu": lambda lane: f"cpu #{lane}"}
    expected = Counter(
        (
            trace.jobs[s.job].task,
            trace.jobs[s.job].frame,
            tuple(lanes[s.engine](lane) for lane in s.lanes),
            s.start_ns,
            s.end_ns - s.start_ns,
        )
        for s in trace.slices
        if s.end_ns > window[0] and s.start_ns < window[1]
    )
    assert drawn == expected
    assert data["resolution"] == 0


def test_bars_come_in_order_of_their_start(plan: Plan, trace: Trace) -> None:
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (0, 1))
    starts = [start for _, _, start, _ in data["stays"]]
    assert starts == sorted(starts)


def test_arrows_lead_to_the_jobs_whose_data_was_used(plan: Plan, trace: Trace) -> None:
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (0, 1))
    names = [(data["tasks"][job[0]][0], job[1]) for job in data["jobs"]]
    senders = {name: [names[sender] for sender in job[10]] for name, job in zip(names, data["jobs"], strict=True)}
    order = ["voxelise", "pfn", "scatter", "scatter>backbone", "backbone", "head", "decode"]
    for before, after in itertools.pairwise(order):
        assert senders[after, 5] == [(before, 5)]
    assert senders["voxelise", 5] == []


def test_the_outcome_of_jobs_is_shown(plan: Plan, trace: Trace) -> None:
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (0, 1))
    states = {(data["tasks"][job[0]][0], job[1]): job[9] for job in data["jobs"]}
    assert (states["decode", 7], states["decode", 6]) == (1, 0)
    assert [mark[1] for mark in data["marks"]] == ["miss"]
    assert data["inputs"] == [["lidar", trace.releases["lidar"]]]


@pytest.mark.parametrize("room", [2000, 300, 20])
def test_joined_bars_state_their_number_and_late_jobs_are_not_joined(plan: Plan, room: int) -> None:
    trace = busy(plan)
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (0, 1), room)
    assert len(data["stays"]) <= room + 2
    assert data["resolution"] > 0
    assert sum(1 if job >= 0 else -job for _, job, _, _ in data["stays"]) == 3000
    late = {data["jobs"][job][1] for _, job, _, _ in data["stays"] if job >= 0 and data["jobs"][job][9] == 1}
    assert late == {17, 2400}
    ends = [start + length for _, _, start, length in data["stays"]]
    assert all(end <= start for end, (_, _, start, _) in zip(ends, data["stays"][1:], strict=False))


def test_what_is_shown_first_is_not_joined(plan: Plan) -> None:
    trace = busy(plan)
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (1_000_000, 1_500_000), 300)
    single = {data["jobs"][job][1] for _, job, _, _ in data["stays"] if job >= 0}
    assert single >= set(range(100, 150))
    assert len(data["stays"]) <= 350
    assert sum(1 if job >= 0 else -job for _, job, _, _ in data["stays"]) == 3000


def test_of_too_many_late_jobs_the_latest_are_kept(plan: Plan) -> None:
    trace = busy(plan, 1000, tuple(range(1000)))
    trace.jobs[500].deadline_ns -= 500
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (0, 1), 50)
    assert len(data["stays"]) <= 110
    assert any(job >= 0 and data["jobs"][job][1] == 500 for _, job, _, _ in data["stays"])


def test_marks_are_thinned_evenly(plan: Plan, trace: Trace) -> None:
    trace.instants = [Instant(at, "miss", "decode", at, "late") for at in range(10_000)]
    data = gantt_data.document(gantt_data.Recorded.of(plan, trace), (0, trace.duration_ns), (0, 1))
    times = np.array([mark[0] for mark in data["marks"]])
    assert len(times) <= gantt_data.MOST_MARKS
    assert np.unique(np.diff(times)).tolist() == [25]


def test_windows(plan: Plan) -> None:
    assert gantt.hyperperiod_ns(plan) == 100 * MS
    assert gantt.steady_window(plan, build_trace(plan)) == (100 * MS, 200 * MS)
    assert gantt.steady_window(plan, build_trace(plan, frames=1)) == (0, 100 * MS)
    assert gantt.first_view(plan, (0, 3300 * MS)) == (0, 300 * MS)


def test_the_data_cannot_end_its_element(plan: Plan, trace: Trace) -> None:
    trace.instants = [Instant(5, "miss", "decode", 0, "</script><b>")]
    figure = gantt.gantt(gantt_data.Recorded.of(plan, trace), (0, 100), "g", "label")
    body = re.search(r'<script type="application/json">(.*?)</script>', figure)
    assert body and json.loads(body[1])["marks"][0][2].endswith("</script><b>")


def test_a_miss_comes_before_slack(plan: Plan, trace: Trace) -> None:
    found = worst_frames(plan, trace)
    assert [(worst.chain.name, worst.frame) for worst in found] == [("lidar-detection", 7), ("planning", 0)]
    assert found[0].pressure > 1 > found[1].pressure
    start, end = found[0].window
    assert start < 700 * MS < 800 * MS < found[0].release_ns + (found[0].response_ns or 0) < end


def test_the_hops_follow_one_another_up_to_the_response(plan: Plan, trace: Trace) -> None:
    worst = worst_frames(plan, trace)[0]
    names = ["voxelise", "pfn", "scatter", "scatter>backbone", "backbone", "head", "decode"]
    assert [hop.task for hop in worst.hops] == names
    assert {hop.frame for hop in worst.hops} == {7}
    assert worst.hops[0].ready_ns == worst.release_ns
    assert worst.hops[-1].end_ns == worst.release_ns + (worst.response_ns or 0)
    assert all(hop.start_ns >= hop.ready_ns and hop.runs_ns <= hop.end_ns - hop.start_ns for hop in worst.hops)


def test_the_timeline_of_a_frame_has_the_deadline_of_its_chain(plan: Plan, trace: Trace) -> None:
    """Not that of the chain's last job, which is when EDF wants it done."""
    for job in trace.jobs:
        job.deadline_ns -= 7 * MS
    page = timeline(plan, trace, "t", 4000)
    data = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    worst = worst_frames(plan, trace)[0]
    steady, first = data[:2]
    assert steady["limit"] is None
    due = worst.release_ns + worst.chain.deadline_ns
    assert first["limit"] == [due - first["start"], f"deadline of {worst.chain.name}"]
    assert first["jobs"][first["chosen"]][3] == first["limit"][0] - 7 * MS


def test_the_tightest_slack_counts_where_nothing_is_late(plan: Plan) -> None:
    trace = build_trace(plan, late_frame=-1)
    assert [(worst.chain.name, worst.frame) for worst in worst_frames(plan, trace)] == [
        ("lidar-detection", 19),  # every frame takes a little longer than the one before
        ("planning", 0),
    ]


def test_a_chain_that_never_arrives_is_worst_of_all(plan: Plan, trace: Trace) -> None:
    for job in trace.jobs:
        if job.task == "planning":
            job.status, job.finish_ns = "dropped", -1
    lost = worst_frames(plan, trace)[0]
    assert (lost.chain.name, lost.response_ns, lost.hops) == ("planning", None, ())
    assert lost.pressure == float("inf")
    del trace.releases["planning"]
    assert [worst.chain.name for worst in worst_frames(plan, trace)] == ["lidar-detection"]  # nothing was due


def test_a_trace_without_frames_has_no_worst_one(plan: Plan) -> None:
    assert worst_frames(replace(plan), Trace("simulated", 0, 0)) == []
