"""EDF-VD and AMC: published conditions by hand, and no simulated response above a bound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from socsched.descriptor.taskset import PeriodicTask, TaskSet, taskset_from_mapping
from socsched.errors import DescriptorError, UsageError
from socsched.schedulability.published import mixed_criticality as published
from socsched.schedulability.published.choose import analyse, problems
from socsched.schedulability.published.mixed_criticality import scaling
from socsched.schedulability.published.model import Problem
from socsched.sim.tasksets import make_taskset_plan

# Task sets with criticality levels on single processors, simulated: overruns, mode switches, dropped work.
#
# The rules are those of AMC (fixed priorities; Baruah, Burns, Davis, RTSS 2011) and EDF-VD (Baruah et al., ECRTS
# 2012): a processor starts at level 0; a job that has run for its task's bound of the present level without ending
# raises the level; jobs of lower criticality are then aborted, and later ones are dropped or run degraded.  An idle
# instant returns the processor to level 0.  Under EDF, deadlines of higher criticality are scaled at level 0.

Times = Callable[[PeriodicTask, int], int]
"""The execution time (ns) of job number k of a task, at most its WCET."""


@dataclass(slots=True)
class Figures:
    """Jobs of one task: released, completed, aborted by a switch, dropped (not released), late, longest response."""

    released: int = 0
    completed: int = 0
    aborted: int = 0
    dropped: int = 0
    late: int = 0
    response_max: int = 0


@dataclass(slots=True)
class _Job:
    task: int
    arrival: int
    left: int
    ran: int
    due: int
    degraded: bool


@dataclass(slots=True)
class Processor:
    """One processor: its tasks by rank, level, pending jobs and switches (ns, level)."""

    problem: Problem
    times: Times
    figures: list[Figures] = field(init=False)
    switches: list[tuple[int, int]] = field(default_factory=list)
    level: int = 0

    def __post_init__(self) -> None:
        """Start all figures at zero."""
        self.figures = [Figures() for _ in self.problem.tasks]

    def run(self, until: int) -> None:
        """Simulate up to an instant (ns)."""
        tasks, jobs = self.problem.tasks, list[_Job]()
        factor = scaling(self.problem) if self.problem.policy.rule == "edf" else Fraction(1)
        assert factor is not None, "EDF-VD finds no virtual deadlines"
        arrivals, counts = [task.offset_ns for task in tasks], [0] * len(tasks)
        now = 0
        while now <= until:
            self._release(now, jobs, arrivals, counts)
            following = min(arrivals)
            if not jobs:
                if self.level:
                    self.level = 0
                    self.switches.append((now, 0))
                now = following
                continue
            job = min(jobs, key=lambda job: self._urgency(job, factor))
            task = tasks[job.task]
            budget = task.wcet_at(self.level) if task.level > self.level else task.wcet_ns
            length = min(job.left, following - now, max(budget - job.ran, 0) if task.level > self.level else job.left)
            now += length
            job.left, job.ran = job.left - length, job.ran + length
            if not job.left:
                self._complete(now, job, jobs)
            elif task.level > self.level and job.ran >= budget:
                self._switch(now, jobs)

    def _release(self, now: int, jobs: list[_Job], arrivals: list[int], counts: list[int]) -> None:
        for index, task in enumerate(self.problem.tasks):
            while arrivals[index] <= now:
                arrival, mine = arrivals[index], self.figures[index]
                low = task.level < self.level
                arrivals[index] += task.degraded_ns[1] if low and task.degraded_ns else task.period_ns
                counts[index] += 1
                if low and not task.degraded_ns:
                    mine.dropped += 1
                    continue
                mine.released += 1
                time = self.times(task, counts[index] - 1)
                if low and task.degraded_ns:
                    time = min(time, task.degraded_ns[0])
                jobs.append(_Job(index, arrival, time, 0, arrival + task.deadline_ns, low))

    def _urgency(self, job: _Job, factor: Fraction) -> tuple[Fraction | int, int]:
        if self.problem.policy.rule != "edf":
            return self.problem.ranks[job.task], job.arrival
        task = self.problem.tasks[job.task]
        scaled = task.level > self.level
        return job.arrival + (factor * task.deadline_ns if scaled else task.deadline_ns), job.task

    def _complete(self, now: int, job: _Job, jobs: list[_Job]) -> None:
        jobs.remove(job)
        mine = self.figures[job.task]
        mine.completed += 1
        mine.late += now > job.due
        mine.response_max = max(mine.response_max, now - job.arrival)

    def _switch(self, now: int, jobs: list[_Job]) -> None:
        self.level += 1
        self.switches.append((now, self.level))
        for job in [job for job in jobs if self.problem.tasks[job.task].level < self.level and not job.degraded]:
            jobs.remove(job)
            self.figures[job.task].aborted += 1


def simulate(taskset: TaskSet, duration_ns: int, times: Times | None = None) -> list[Processor]:
    """Simulate a partitioned or uniprocessor set with levels; by default every job takes its WCET."""
    made = [Processor(problem, times or (lambda task, _: task.wcet_ns)) for _, problem in problems(taskset)]
    for processor in made:
        processor.run(duration_ns)
    return made


def made(policy: str, *rows: dict[str, Any]) -> TaskSet:
    return taskset_from_mapping({"policy": policy, "tasks": list(rows)}, "levels")


def problem(taskset: TaskSet) -> Problem:
    return problems(taskset)[0][1]


def test_amc_by_hand() -> None:
    """R_LO = 2 + 2 + 2 = 6; over an overrun R = 5 + ceil(6 / 10) 2 + ceil(R / 8) 4 = 15, by AMC-max too."""
    taskset = made(
        "FP",
        {"period": 8, "wcet": 4, "wcets": [2, 4], "prio": 0},
        {"period": 10, "wcet": 2, "prio": 1},
        {"period": 40, "wcet": 5, "wcets": [2, 5], "prio": 2},
    )
    found = published.amc_rtb.run(problem(taskset))
    assert (found.schedulable, [bound.value for bound in found.bounds.values()]) == (True, [4, 4, 15])
    assert published.amc_max.run(problem(taskset)).bounds["t2"].value == 15


def test_edf_vd_scales_deadlines_by_the_smallest_factor() -> None:
    """U_LO = 1/2, U_HI = 1/5 and 3/5: x = 1/5 / (1 - 1/2) = 2/5, and 2/5 * 1/2 + 3/5 = 4/5."""
    taskset = made("EDF", {"period": 10, "wcet": 5}, {"period": 10, "wcet": 6, "wcets": [2, 6]})
    assert published.scaling(problem(taskset)) == Fraction(2, 5)
    assert published.edf_vd.run(problem(taskset)).schedulable is True
    heavy = made("EDF", {"period": 10, "wcet": 5}, {"period": 10, "wcet": 9, "wcets": [2, 9]})
    assert published.edf_vd.run(problem(heavy)).schedulable is None


def test_what_the_tests_do_not_cover_is_undecided() -> None:
    three = made("FP", {"period": 20, "wcet": 4, "wcets": [1, 2, 4], "prio": 0}, {"period": 30, "wcet": 2, "prio": 1})
    assert analyse(three).verdict == "undecided"
    served = made(
        "EDF",
        {"period": 10, "wcet": 5, "degraded": {"wcet": 1, "period": 20}},
        {"period": 10, "wcet": 6, "wcets": [2, 6]},
    )
    assert published.edf_vd.unmet(problem(served)) == "it drops low criticality, with no degraded service"


def test_no_other_test_takes_a_set_with_levels() -> None:
    taskset = made("FP", {"period": 8, "wcet": 4, "wcets": [2, 4], "prio": 0}, {"period": 10, "wcet": 5, "prio": 1})
    new = {"AMC-rtb", "AMC-max", "EDF-VD"}
    assert [o.test.name for o in analyse(taskset).outcomes if o.answer and o.test.name not in new] == []


def test_levels_are_checked() -> None:
    with pytest.raises(DescriptorError, match=r"ascending times, the last being the wcet of 4"):
        made("EDF", {"period": 10, "wcet": 4, "wcets": [4, 2]})
    with pytest.raises(DescriptorError, match=r"at least the period of 10"):
        made("EDF", {"period": 10, "wcet": 4, "degraded": {"wcet": 1, "period": 5}})


def test_an_overrun_drops_low_criticality_until_the_processor_idles() -> None:
    taskset = made("FP", {"period": 10, "wcet": 4, "wcets": [2, 4], "prio": 0}, {"period": 5, "wcet": 2, "prio": 1})
    done = simulate(taskset, 19, lambda task, job: 4 if task.level and job == 0 else task.wcet_at(0))
    high, low = done[0].figures
    assert done[0].switches == [(2, 1), (4, 0)]
    assert (high.released, high.completed, high.response_max) == (2, 2, 4)
    assert (low.released, low.aborted, low.dropped, low.completed) == (4, 1, 0, 3)


def test_degraded_service_runs_at_its_own_rate() -> None:
    taskset = made(
        "FP",
        {"period": 10, "wcet": 9, "wcets": [1, 9], "prio": 0},
        {"period": 4, "wcet": 2, "prio": 1, "degraded": {"wcet": 1, "period": 8}},
    )
    low = simulate(taskset, 9)[0].figures[1]
    assert (low.released, low.aborted, low.dropped) == (2, 1, 0)


def test_sets_with_levels_are_analysed_not_simulated() -> None:
    with pytest.raises(UsageError, match="criticality levels, which is analysed but not simulated"):
        make_taskset_plan(made("EDF", {"period": 10, "wcet": 4, "wcets": [2, 4]}))


def _draw(random: Random, policy: str) -> TaskSet:
    rows = []
    for rank in range(random.randint(2, 4)):
        period = random.choice((5, 6, 8, 10, 12, 15))
        low = random.randint(1, max(period // 4, 1))
        row: dict[str, Any] = {"period": period, "wcet": low, "prio": rank}
        if random.random() < 0.6:
            row |= {"wcet": random.randint(low, min(3 * low, period)), "wcets": [low]}
            row["wcets"] = [low, row["wcet"]]
        elif policy == "FP" and random.random() < 0.4:
            row["degraded"] = {"wcet": random.randint(1, low), "period": random.randint(period, 2 * period)}
        rows.append(row)
    return made(policy, *rows)


def _times(seed: int) -> Any:
    random = Random(seed)
    return lambda task, job: task.wcet_ns if random.random() < 0.4 else task.wcet_at(0)


@pytest.mark.parametrize("policy", ["FP", "EDF"])
def test_no_simulated_response_is_above_a_bound(policy: str) -> None:
    random, checked = Random(policy), 0
    for number in range(150):
        taskset = _draw(random, policy)
        if not any(task.level for task in taskset.tasks):
            continue
        answers = {o.test.name: o.answer for o in _answers(taskset) if o.answer}
        if not any(answer.bounds for answer in answers.values()):
            continue
        for run in range(12):
            offsets = [random.randrange(task.period_ns) if run > 2 else 0 for task in taskset.tasks]
            tasks = tuple(replace(t, offset_ns=at) for t, at in zip(taskset.tasks, offsets, strict=True))
            figures = simulate(replace(taskset, tasks=tasks), 300, _times(1000 * number + run))[0].figures
            for task, mine in zip(tasks, figures, strict=True):
                for answer in answers.values():
                    bound = answer.bounds.get(task.name)
                    # The bound of a degraded task holds until an overrun; it is released in both modes.
                    if bound is not None and not task.degraded_ns:
                        checked += 1
                        assert mine.response_max <= bound.value, (taskset, offsets, run)
    assert checked > 500


def _answers(taskset: TaskSet) -> Any:
    from socsched.schedulability.published.choose import Outcome

    parts = problem(taskset)
    for test in (published.amc_rtb, published.amc_max, published.edf_vd):
        reason = test.unmet(parts)
        yield Outcome(test, None if reason else test.run(parts), reason)


def test_audsley_finds_an_order_that_deadline_monotonic_misses() -> None:
    """The only order that fits is by name, not by deadline."""
    orders = {("b", ("a",)), ("a", ())}
    assert published.audsley_order(["b", "a"], lambda task, above: (task, tuple(sorted(above))) in orders) == ["a", "b"]
    assert published.audsley_order(["b", "a"], lambda task, above: False) is None


def test_amc_max_accepts_whatever_amc_rtb_accepts() -> None:
    random = Random(3)
    for _ in range(200):
        tasks: tuple[PeriodicTask, ...] = _draw(random, "FP").tasks
        for index, task in enumerate(tasks):
            loose = published.adaptive_response(task, tasks[:index])
            tight = published.adaptive_response(task, tasks[:index], published.over_each_overrun)
            assert loose is None or (tight is not None and tight <= loose)
