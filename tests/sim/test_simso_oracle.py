"""Equality with an independent simulator (SimSo 0.8.5, confirmed by a second one) on task sets of single lanes."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Any

import pytest
from builders import shared, task_set

from socsched.sim.engine import simulate
from socsched.trace.trace import Job, Trace

POLICY = {"EDF_mono": "edf", "P_RM": "fp"}
SETS = [
    "w1_edf_uni_off_1",
    "w1_edf_uni_sync_1",
    "w3_prm_4cpu_off_1",
    "w3_prm_4cpu_sync_1",
    "x1_edf_uni_constrained",
    "x2_edf_uni_overload",
]


def run(name: str) -> tuple[dict[str, Any], dict[str, Any], Trace]:
    data = json.loads(shared("rt", "simso", f"{name}.taskset.json").read_text())
    expected = json.loads(shared("rt", "simso", f"{name}.simso.json").read_text())
    # One more than the horizon, because SimSo still releases jobs at it.
    return data, expected, simulate(task_set(data, policy=POLICY[data["policy"]]), data["horizon"] * 1000 + 1)


@pytest.mark.parametrize("name", SETS)
def test_every_job_and_statistic_equals_simso(name: str) -> None:
    _, expected, trace = run(name)
    columns = expected["jobs_first_2s"]["columns"]
    assert columns == ["task_id", "activation", "first_execution", "end"]
    early = [job for job in trace.jobs if job.activation_ns < 2_000_000_000 and job.status == "done"]
    rows = [[int(job.task), *(t // 1000 for t in (job.activation_ns, job.start_ns, job.finish_ns))] for job in early]
    assert sorted(rows) == sorted(expected["jobs_first_2s"]["rows"])

    jobs = by_task(trace)
    for row in expected["per_task"]:
        done = [job for job in jobs[row["id"]] if job.status == "done"]
        responses = [job.finish_ns - job.activation_ns for job in done]
        assert len(jobs[row["id"]]) == row["jobs_released"]
        assert len(done) == row["jobs_completed"]
        assert max(responses) == row["response_max"] * 1000
        assert sum(responses) / len(responses) == pytest.approx(row["response_mean"] * 1000, rel=1e-12)
        assert sum(job.finish_ns > job.deadline_ns for job in done) == row["deadline_misses"]


@pytest.mark.parametrize("name", [name for name in SETS if name != "x2_edf_uni_overload"])
def test_interruptions_equal_simso(name: str) -> None:
    """SimSo counts every activation on the processor during a job as its preemption, even when the job goes on at once.

    Ours counts a job that loses its lane, so SimSo's figure is rebuilt from the slices.  (In overload SimSo delays
    activations behind late jobs and the two figures mean different things; that set is left out.)
    """
    data, expected, trace = run(name)
    cpu = {row["id"]: row.get("cpu", 0) for row in data["tasks"]}
    horizon = data["horizon"] * 1000
    activations: dict[int, set[int]] = defaultdict(set)
    for job in trace.jobs:
        if job.activation_ns < horizon:
            activations[cpu[int(job.task)]].add(job.activation_ns)
    instants = {lane: sorted(times) for lane, times in activations.items()}
    interrupted: dict[int, int] = defaultdict(int)
    for piece in trace.slices:
        job = trace.jobs[piece.job]
        times = instants[cpu[int(job.task)]]
        interrupted[int(job.task)] += bisect_left(times, piece.end_ns) - bisect_right(times, piece.start_ns)
        interrupted[int(job.task)] += piece.end_ns != job.finish_ns and piece.end_ns < horizon
    # Whether an activation at the horizon itself still interrupts is SimSo's own affair.
    open_end = {int(job.task) for job in trace.jobs if job.status == "unfinished"}
    for row in expected["per_task"]:
        assert abs(interrupted[row["id"]] - row["preemptions"]) <= (row["id"] in open_end), row


@pytest.mark.skip(reason="global EDF migrates jobs between processors; here a task keeps the lanes the plan gives it")
def test_global_edf_equals_simso() -> None:
    run("w2_gedf_4cpu_off_1")


def by_task(trace: Trace) -> dict[int, list[Job]]:
    jobs: dict[int, list[Job]] = defaultdict(list)
    for job in trace.jobs:
        jobs[int(job.task)].append(job)
    return jobs
