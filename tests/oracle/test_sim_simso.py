"""Equality with an independent simulator (SimSo 0.8.5, confirmed by a second one) on every task set given.

SimSo's integer inputs avoid its own truncation; "equal" is to the nanosecond.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from datafiles import DATA, read

from socsched.cli.root import run as command_line
from socsched.descriptor.taskset import TaskSet, load_taskset
from socsched.sim.tasksets import simulate_taskset, summarise_taskset
from socsched.trace.trace import Trace

SETS = [
    "w1_edf_uni_off_1",
    "w1_edf_uni_sync_1",
    "w2_gedf_4cpu_off_1",
    "w3_prm_4cpu_off_1",
    "w3_prm_4cpu_sync_1",
    "x1_edf_uni_constrained",
    "x2_edf_uni_overload",
]
GLOBAL = "w2_gedf_4cpu_off_1"
SECONDS_LISTED = 2
SETTLED_NS = 10 * 10**9
"""By then every job listed has ended, in the overloaded set too."""


@pytest.fixture(params=SETS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def taskset_file(name: str) -> Path:
    return DATA / "simso" / f"{name}.taskset.json"


@lru_cache
def published(name: str) -> dict[str, Any]:
    return dict(read(f"simso/{name}.simso.json.xz"))


@lru_cache
def trace_of(name: str) -> tuple[TaskSet, Trace]:
    """Return the events of the first ten seconds."""
    tasks = load_taskset(taskset_file(name))
    trace = simulate_taskset(tasks, min(tasks.horizon_ns or 0, SETTLED_NS), record=True).trace
    assert trace is not None
    return tasks, trace


def test_every_set_given_is_compared() -> None:
    given = sorted(path.name.split(".")[0] for path in (DATA / "simso").glob("*.taskset.json"))
    assert given == SETS


def test_every_figure_of_every_task_is_equal(name: str) -> None:
    tasks = load_taskset(taskset_file(name))
    done = simulate_taskset(tasks)
    found = summarise_taskset(tasks, done)["tasks"]
    sums, counts = (done.outcome.ints_of("responses", which) for which in (1, 3))
    expected = published(name)["per_task"]
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    for index, (ours, row) in enumerate(zip(found, expected, strict=True)):
        for figure in ("jobs_released", "jobs_completed", "response_max", "deadline_misses"):
            assert ours[figure] == row[figure], (row["id"], figure)
        # ours is the float nearest to the exact mean; the published one, rounded otherwise, gives back the same sum
        total, count = int(sums[index]), int(counts[index])
        assert ours["response_mean"] == float(Fraction(total, count * tasks.unit_ns))
        assert total == round(row["response_mean"] * count) * tasks.unit_ns
        assert row["response_mean"] == pytest.approx(ours["response_mean"], rel=1e-14)
        if tasks.policy.scheme == "partitioned":
            assert ours["migrations"] == row["migrations"] == 0


def test_every_listed_job_is_equal(name: str) -> None:
    tasks, trace = trace_of(name)
    listed = published(name)["jobs_first_2s"]
    assert listed["columns"] == ["task_id", "activation", "first_execution", "end"]
    limit = SECONDS_LISTED * 10**9
    early = [job for job in trace.jobs if job.activation_ns < limit and job.status == "done"]
    unit = tasks.unit_ns
    assert not any(t % unit for job in early for t in (job.activation_ns, job.start_ns, job.finish_ns))
    rows = [[int(job.task), *(t // unit for t in (job.activation_ns, job.start_ns, job.finish_ns))] for job in early]
    assert sorted(rows) == sorted(listed["rows"])


@pytest.mark.parametrize("name", [name for name in SETS if name not in (GLOBAL, "x2_edf_uni_overload")], indirect=True)
@pytest.mark.sampled(5)
def test_interruptions_mean_the_same(name: str) -> None:
    """SimSo counts every activation on the processor during a job as its preemption, even if it continues immediately.

    Ours counts a job that loses its lane, so SimSo's figure is rebuilt from the slices.  In overload SimSo delays
    activations behind late jobs, and under global EDF it picks processors in their order rather than where a job ran
    last (its migrations are of that rule): there the figures mean different things and are not compared.
    """
    tasks = load_taskset(taskset_file(name))
    trace = simulate_taskset(tasks, record=True).trace
    assert trace is not None and tasks.horizon_ns is not None
    horizon = tasks.horizon_ns
    cpu = {task.id: task.cpu or 0 for task in tasks.tasks}
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
    for row in published(name)["per_task"]:
        assert abs(interrupted[row["id"]] - row["preemptions"]) <= (row["id"] in open_end), row


def test_preemptions_and_migrations_are_those_of_the_slices() -> None:
    """Under global EDF: a job that stopped before its end was preempted, one that went on elsewhere migrated."""
    tasks, trace = trace_of(GLOBAL)
    pieces: dict[int, list[tuple[int, int, tuple[int, ...]]]] = defaultdict(list)
    for piece in trace.slices:
        pieces[piece.job].append((piece.start_ns, piece.end_ns, piece.lanes))
    moved = 0
    for number, job in enumerate(trace.jobs):
        if job.status != "done":
            continue
        own = sorted(pieces[number])
        assert sum(end - start for start, end, _ in own) == job.exec_ns
        assert job.preemptions == len(own) - 1
        moved += _moves(own)
    simulated = simulate_taskset(tasks, trace.duration_ns - 1)
    unfinished = sum(_moves(pieces[n]) for n, job in enumerate(trace.jobs) if job.status == "unfinished")
    assert 0 < moved + unfinished == int(simulated.outcome.ints("migrated").sum())


def _moves(own: list[tuple[int, int, tuple[int, ...]]]) -> int:
    ordered = sorted(own)
    return sum(before[2] != after[2] for before, after in pairwise(ordered))


def test_the_command_line_answers_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    name = "w1_edf_uni_off_1"
    assert command_line(["simulate", str(taskset_file(name)), "--json", "--jobs", "100"]) == 0
    document = json.loads(capsys.readouterr().out)
    expected = published(name)
    for ours, row in zip(document["tasks"], expected["per_task"], strict=True):
        for figure in ("id", "jobs_released", "jobs_completed", "response_max", "deadline_misses"):
            assert ours[figure] == row[figure]
        assert ours["response_mean"] == pytest.approx(row["response_mean"], rel=1e-14)
    rows = [[job[key] for key in ("task", "activation", "first_execution", "end")] for job in document["jobs"]]
    assert len(rows) == 100
    assert rows == sorted(expected["jobs_first_2s"]["rows"], key=lambda row: row[1])[:100]


def test_the_command_line_says_when_deadlines_are_missed(capsys: pytest.CaptureFixture[str]) -> None:
    name = "x2_edf_uni_overload"
    assert command_line(["simulate", str(taskset_file(name)), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert sum(row["deadline_misses"] for row in document["tasks"]) == published(name)["totals"]["misses"]
