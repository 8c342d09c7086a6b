"""Simulated chains against exact end-to-end latencies (Guenzel et al., RTAS 2021 / TECS 2023; one processor, FP).

With execution times fixed and a synchronous release their local analysis is exact, so what is simulated must reach it:
the maximum reaction time counts from just after the previous start of the first task, the maximum data age until the
next output of the last.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise
from math import lcm
from typing import Any

import pytest
from datafiles import read

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability.published.choose import Analysis, analyse
from socsched.sim.simulate import simulate
from socsched.sim.tasksets import make_taskset_plan
from socsched.trace.trace import Job

Case = dict[str, Any]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return list(read("chains/e2e_oracle.json")["cases"])


def jobs_of(case: Case) -> tuple[list[list[Job]], int]:
    """Return every task's jobs for five hyperperiods and what they still lead to; each task reads its predecessor."""
    made = make_taskset_plan(taskset_from_mapping(case, "e2e_oracle.json"))
    before = {sink: source for source, sink in pairwise(case["chain"])}
    tasks = tuple(
        replace(task, reads=(made.tasks[before[index]].name,)) if index in before else task
        for index, task in enumerate(made.tasks)
    )
    hyperperiod = lcm(*(task.period_ns for task in tasks))
    trace = simulate(replace(made, tasks=tasks), 5 * hyperperiod + 4 * sum(task.period_ns for task in tasks))
    found: list[list[Job]] = [[] for _ in tasks]
    for job in trace.jobs:
        if job.status == "done":
            found[int(job.task)].append(job)
    return found, 5 * hyperperiod


def reaction_time(case: Case, jobs: list[list[Job]], until: int) -> int:
    """Return the longest from an event just after a start of the first task to the first output that knows of it."""
    starts = [[job.start_ns for job in own] for own in jobs]
    longest = 0
    for earlier, job in pairwise(jobs[case["chain"][0]]):
        if job.activation_ns >= until:
            break
        end = job.finish_ns
        for task in case["chain"][1:]:
            end = jobs[task][bisect_left(starts[task], end)].finish_ns
        longest = max(longest, end - earlier.start_ns)
    return longest


def data_age(case: Case, jobs: list[list[Job]], until: int) -> int:
    """Return the longest from a start of the first task to the last instant its data is still the newest output."""
    longest = 0
    for job, following in pairwise(jobs[case["chain"][-1]]):
        if job.activation_ns >= until:
            break
        for earlier in reversed(case["chain"][:-1]):
            frame = next(iter(job.sampled.values()), -1)
            if frame < 0:
                break
            job = jobs[earlier][frame]
        else:
            longest = max(longest, following.finish_ns - job.start_ns)
    return longest


def test_worst_responses_reaction_times_and_data_ages_are_exact(cases: list[Case]) -> None:
    assert len(cases) == 30
    for case in cases:
        jobs, until = jobs_of(case)
        assert [max(job.finish_ns - job.activation_ns for job in own) for own in jobs] == case["wcrt"], case["id"]
        assert reaction_time(case, jobs, until) == case["bounds"]["guenzel23_local_mrt"], case["id"]
        assert data_age(case, jobs, until) == case["bounds"]["guenzel23_local_mda"], case["id"]


def test_no_sampled_frame_is_older_or_newer_than_what_was_there(cases: list[Case]) -> None:
    for case in cases[:10]:
        jobs, _ = jobs_of(case)
        for source, sink in pairwise(case["chain"]):
            finishes = [job.finish_ns for job in jobs[source]]
            for job in jobs[sink]:
                # an output of the very instant a job starts is there for it
                assert next(iter(job.sampled.values()), -1) == bisect_left(finishes, job.start_ns + 1) - 1


METHODS = {
    "davare07": ("chain: Davare", "reaction_time"),
    "duerr19_mrt": ("chain: Dürr", "reaction_time"),
    "duerr19_mrda": ("chain: Dürr", "reduced_data_age"),
    "kloda18": ("chain: Kloda", "reaction_time"),
    "becker17_RESPONSE_TIMES": ("chain: Becker, response times", "reduced_data_age"),
    "guenzel23_local_mrt": ("chain: Günzel, local", "reaction_time"),
    "guenzel23_local_mda": ("chain: Günzel, local", "data_age"),
    "guenzel23_local_mrda": ("chain: Günzel, local", "reduced_data_age"),
    "hamann17": ("chain: LET, any phase", "reaction_time"),
    "becker17_LET": ("chain: LET, known phases", "reduced_data_age"),
}


def bound(analysis: Analysis, test: str, measure: str) -> int:
    (outcome,) = [o for o in analysis.outcomes if o.test.name == test]
    assert outcome.answer is not None, outcome.reason
    return outcome.answer.chain[measure].value


def test_all_methods_on_all_cases() -> None:
    cases = read("chains/e2e_oracle.json")["cases"]
    compared = 0
    for case in cases:
        assert set(case["bounds"]) == set(METHODS)
        taskset = taskset_from_mapping(case, "e2e_oracle.json")
        implicit, logical = analyse(taskset), analyse(replace(taskset, communication="let"))
        responses = [best.bound.value for best in implicit.tasks.values() if best.bound]
        assert responses == case["wcrt"]
        for method, expected in case["bounds"].items():
            test, measure = METHODS[method]
            by = logical if "LET" in test else implicit
            assert bound(by, test, measure) == expected, (case["id"], method)
            compared += 1
    assert compared == 10 * len(cases) >= 300


def test_the_tightest_is_chosen() -> None:
    cases = read("chains/e2e_oracle.json")["cases"]
    for case in cases:
        best = analyse(taskset_from_mapping(case, "e2e_oracle.json")).chain
        for measure, suffix in (("reaction_time", "mrt"), ("data_age", "mda"), ("reduced_data_age", "mrda")):
            assert best[measure].bound is not None
            assert best[measure].bound.value == case["bounds"][f"guenzel23_local_{suffix}"]
