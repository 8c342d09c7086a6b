"""The worst frame of a chain, and its path."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from report_samples import MS, build_trace

from socsched.planning.plan import Plan
from socsched.reporting.timeline import timeline, worst_frames
from socsched.trace.trace import Trace


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
