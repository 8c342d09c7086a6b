"""Schedule abstraction against every schedule of small job sets, one by one, and against nptest's figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import lcm, prod
from random import Random

import pytest
from datafiles import read

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability.published.choose import analyse, problems
from socsched.schedulability.published.earliest_deadline_first import np_edf_demand, np_edf_jeffay
from socsched.schedulability.published.fixed_priorities import np_fp
from socsched.schedulability.published.model import VERDICTS
from socsched.schedulability.published.schedule_abstraction import Job, by_task, decide, schedule_abstraction, simulate

MOST = 3000


def schedules(jobs: list[Job], processors: int) -> list[tuple[int, int]] | None:
    """Return the earliest and latest end of every job over all releases and costs; None if there are too many."""
    spans = [range(job.least_release, job.most_release + 1) for job in jobs]
    spans += [range(job.least_cost, job.most_cost + 1) for job in jobs]
    if prod(map(len, spans)) > MOST:
        return None
    ends = [simulate(jobs, processors, c[: len(jobs)], c[len(jobs) :]) for c in product(*spans)]
    return [(min(column), max(column)) for column in zip(*ends, strict=True)]


def random_jobs(draw: Random, precedence: bool, least_cost: int = 1) -> list[Job]:
    jobs = []
    for number in range(draw.randint(2, 7)):
        at, cost = draw.randint(0, 12), draw.randint(least_cost, 6)
        late, more = draw.choice((0, 0, 0, 1, 3)), draw.choice((0, 0, 1, 2, 3))
        before = tuple(draw.sample(range(number), min(number, draw.choice((0, 0, 1, 2))))) if precedence else ()
        due = at + max(cost, 1) + more + draw.randint(0, 10)
        cost_most = max(cost + more, 1)
        jobs.append(Job(draw.randint(1, 3), number, at, at + late, cost, cost_most, due, draw.randint(1, 4), before))
    return jobs


@pytest.mark.parametrize("processors", [1, 2, 3])
@pytest.mark.parametrize("precedence", [False, True])
def test_the_verdict_is_that_of_all_schedules(processors: int, precedence: bool) -> None:
    draw, answers = Random(processors + 10 * precedence), {True: 0, False: 0}
    while sum(answers.values()) < 60:
        jobs = random_jobs(draw, precedence, draw.choice((0, 1, 1)))
        truth = schedules(jobs, processors)
        if truth is None:
            continue
        verdict = decide(jobs, processors)
        met = all(end[1] <= job.deadline for job, end in zip(jobs, truth, strict=True))
        answers[met] += 1
        assert verdict.met is met, jobs
        for job, bound, end in zip(jobs, verdict.completions, truth, strict=True):
            assert bound[0] <= end[0] <= end[1] <= bound[1], (job, jobs)
            if processors == 1 and all(job.least_cost for job in jobs):
                assert bound == end, (job, jobs)
        if verdict.missed:
            index, end_ns = verdict.missed
            assert truth[index][0] <= end_ns <= truth[index][1] and end_ns > jobs[index].deadline
    assert min(answers.values()) >= 8, answers


def test_bounds_are_those_of_nptest() -> None:
    """The 100 task sets whose answers nptest gave, as job sets: verdict, best and worst response of every task."""
    compared = 0
    for case in read("sag/np_oracle.json.xz")["cases"]:
        until = lcm(*(task["period"] for task in case["tasks"]))
        jobs = [
            Job(t["id"], n, at, at + t["jitter"], t["bcet"], t["wcet"], at + t["deadline"], t["prio"])
            for t in case["tasks"]
            for n, at in enumerate(range(0, until, t["period"]))
        ]
        verdict = decide(jobs, case["processors"])
        assert verdict.met is case["schedulable"]
        for task, found in by_task(jobs, verdict.completions).items():
            expected = case["per_task"][str(task)]
            assert found == (expected["bcrt"], expected["wcrt"]), (case["id"], task)
            compared += 1
    assert compared == 440


def test_the_limit_on_states_leaves_a_set_undecided_and_a_cycle_is_an_error() -> None:
    jobs = [Job(1, n, 0, 40, 1, 9, 10_000, n) for n in range(12)]
    verdict = decide(jobs, 2, limit=50)
    assert verdict.met is None and verdict.why == "more than 50 states" and not verdict.completions
    late = [replace(job, deadline=1) for job in jobs]
    assert decide(late, 2, limit=50).met is False  # a schedule that misses is found without the graph
    with pytest.raises(ValueError, match="cyclic"):
        decide([replace(jobs[0], before=(1,)), replace(jobs[1], before=(0,))])


SETS = [  # Nasri & Brandenburg 2017, figure 1: T = 10, 30, 60
    ("NP-EDF", 1, False),
    ("G_NP-EDF", 2, True),
]


@pytest.mark.parametrize(("policy", "processors", "met"), SETS)
def test_periodic_sets_of_figure_1_are_decided(policy: str, processors: int, met: bool) -> None:
    tasks = [{"period": t, "bcet": b, "wcet": w} for t, b, w in ((10, 1, 2), (30, 7, 8), (60, 3, 13))]
    found = analyse(taskset_from_mapping({"policy": policy, "processors": processors, "tasks": tasks}, "f.json"))
    assert found.verdict == VERDICTS[met] and found.decided_by == "schedule abstraction"


def test_sets_are_decided_as_their_jobs_over_many_hyperperiods() -> None:
    """With offsets, jitter and late deadlines: what is called met is met for four hyperperiods more."""
    draw, answers = Random(5), {True: 0, False: 0, None: 0}
    for _ in range(150):
        tasks = []
        for _ in range(draw.randint(2, 4)):
            period = draw.choice((4, 6, 8, 12))
            worst = draw.randint(1, max(1, period // 2))
            row: dict[str, int] = {
                "period": period,
                "wcet": worst,
                "bcet": draw.randint(1, worst),
                "offset": draw.choice((0, 0, 1, 3)),
            }
            tasks.append(row | {"deadline": period + draw.choice((0, 0, 2)), "jitter": draw.choice((0, 0, 1))})
        processors = draw.choice((1, 2))
        scheme = "G_" if processors > 1 else ""
        policy = f"{scheme}NP-{draw.choice(('EDF', 'RM'))}"
        found = taskset_from_mapping({"policy": policy, "processors": processors, "tasks": tasks}, "f.json")
        ((_, problem),) = problems(found)
        answer = schedule_abstraction.run(problem)
        answers[answer.schedulable] += 1
        jobs = []
        for index, task in enumerate(found.tasks):
            for n in range(5 * lcm(*(t.period_ns for t in found.tasks)) // task.period_ns):
                at = task.offset_ns + n * task.period_ns
                due = at + task.deadline_ns
                urgency = due if found.policy.rule == "edf" else found.ranks[index]
                jobs.append(Job(index, n, at, at + task.jitter_ns, task.bcet_ns, task.wcet_ns, due, urgency))
        if answer.schedulable is not None:
            for _ in range(40):
                releases = [draw.choice((job.least_release, job.most_release)) for job in jobs]
                costs = [draw.randint(job.least_cost, job.most_cost) for job in jobs]
                ends = simulate(jobs, processors, releases, costs)
                for job, end in zip(jobs, ends, strict=True):
                    if answer.schedulable:
                        bound = answer.bounds[found.tasks[job.task].name].value
                        assert end - job.least_release <= bound <= found.tasks[job.task].deadline_ns
    assert min(answers[True], answers[False]) >= 20, answers


def test_sporadic_tasks_are_decided_where_periodic_ones_are_not() -> None:
    """A job of the long task may begin just before the others arrive: for sporadic tasks it does."""
    rows: list[dict[str, int | str]] = [{"period": 10, "wcet": 2}, {"period": 60, "wcet": 13, "offset": 3}]
    for arrivals, verdict in (("periodic", None), ("sporadic", False)):
        tasks = [row | {"arrivals": arrivals} for row in rows]
        found = taskset_from_mapping({"policy": "NP-EDF", "tasks": tasks}, "f.json")
        ((_, problem),) = problems(found)
        for test in (np_edf_jeffay, np_edf_demand):
            assert test.run(problem).schedulable is verdict
        assert bool(schedule_abstraction.unmet(problem)) is (arrivals == "sporadic")
    tasks = [row | {"arrivals": "sporadic", "prio": n} for n, row in enumerate(rows)]
    ((_, problem),) = problems(taskset_from_mapping({"policy": "NP-FP", "tasks": tasks}, "f.json"))
    assert np_fp.run(problem).schedulable is False
    whole = analyse(taskset_from_mapping({"policy": "NP-FP", "tasks": tasks, "chain": [0, 1]}, "f.json"))
    assert whole.verdict == "infeasible" and not whole.chain  # nothing bounds how long a sporadic task stays away
