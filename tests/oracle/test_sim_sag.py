"""Non-preemptive fixed priority against schedule-abstraction graphs (Nasri & Brandenburg, RTSS 2017; ECRTS 2018).

Their answer is about the jobs of one hyperperiod from a synchronous release, each taking anything in [bcet, wcet]: best
and worst response of every task, exact on one processor and safe on two.  Here every job of the hyperperiod is a timer
task of its own that comes again after a pause, so that one run holds a thousand draws, none touched by the last one's
backlog.  Priorities are unique in all sets given, so that ties cannot matter (checked).
"""

from __future__ import annotations

from dataclasses import replace
from heapq import heappop, heappush
from math import lcm
from random import Random
from typing import Any

import numpy as np
import pytest
from datafiles import read

from socsched.descriptor.taskset import PeriodicTask, TaskSet, taskset_from_mapping
from socsched.planning.plan import ExecutionTimes, Plan, Task
from socsched.schedulability.published.choose import analyse
from socsched.sim.simulate import run
from socsched.sim.tasksets import make_taskset_plan, simulate_taskset

DRAWS = 1000
Case = dict[str, Any]


@pytest.fixture(scope="module")
def given() -> tuple[Case, ...]:
    return tuple(read("sag/np_oracle.json.xz")["cases"])


class Hyperperiod:
    """The jobs of one hyperperiod, as tasks released every `period` ns; `owner[i]` is the task job i belongs to."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.tasks: TaskSet = taskset_from_mapping(case, "np_oracle.json")
        self.length = lcm(*(task.period_ns for task in self.tasks.tasks))
        work = sum(task.wcet_ns * (self.length // task.period_ns) for task in self.tasks.tasks)
        self.period = self.length + work
        self.jobs: list[tuple[PeriodicTask, int]] = []
        self.planned: list[Task] = []
        made = make_taskset_plan(self.tasks)
        for task, planned in zip(self.tasks.tasks, made.tasks, strict=True):
            for release in range(0, self.length, task.period_ns):
                name = f"{task.id}.{len(self.jobs)}"
                self.jobs.append((task, release))
                self.planned.append(replace(planned, name=name, period_ns=self.period, offset_ns=release))
        self.made: Plan = made

    def plan(self, times: list[tuple[int, ...]]) -> Plan:
        """Return the plan in which job i takes any of `times[i]`, drawn alike."""
        tasks = tuple(
            replace(task, cost_ns=max(own), segments=(replace(task.segments[0], time_ns=max(own)),),
                    times=ExecutionTimes(own) if len(own) > 1 else None)
            for task, own in zip(self.planned, times, strict=True)
        )  # fmt: skip
        return replace(self.made, tasks=tasks)

    def extremes(self, times: list[tuple[int, ...]], repeats: int, seed: int = 0) -> tuple[Any, Any]:
        """Simulate `repeats` hyperperiods; return the least and the largest response of every job."""
        outcome = run(self.plan(times), self.period * repeats, seed, record=False).outcome
        assert (outcome.ints("done") == repeats).all() and not outcome.ints("preempted").any()
        return outcome.ints_of("responses", 4), outcome.ints_of("responses", 2)

    def by_task(self, values: Any, choose: Any) -> dict[int, int]:
        found: dict[int, int] = {}
        for (task, _), value in zip(self.jobs, values, strict=True):
            found[task.id] = int(value) if task.id not in found else choose(found[task.id], int(value))
        return found

    def responses(self, times: list[int]) -> list[int]:
        """Return the response of every job on one processor, computed here only to propose simulations."""
        order = sorted(range(len(self.jobs)), key=lambda i: self.jobs[i][1])
        ready: list[tuple[int, int, int]] = []
        found, now, at = [0] * len(order), 0, 0
        while ready or at < len(order):
            while at < len(order) and self.jobs[order[at]][1] <= now:
                task, release = self.jobs[order[at]]
                heappush(ready, (task.prio or 0, release, order[at]))
                at += 1
            if not ready:
                now = self.jobs[order[at]][1]
                continue
            job = heappop(ready)[2]
            now += times[job]
            found[job] = now - self.jobs[job][1]
        return found

    def climb(self, wanted: int, bound: int, draw: Random, steps: int) -> list[int] | None:
        """Search execution times under which a job of task `wanted` takes `bound` to respond."""
        targets = [i for i, (task, _) in enumerate(self.jobs) if task.id == wanted]
        loose = [i for i, (task, _) in enumerate(self.jobs) if task.bcet_ns < task.wcet_ns]
        best = [task.wcet_ns for task, _ in self.jobs]
        reached = max(self.responses(best)[i] for i in targets)
        for step in range(steps):
            if reached == bound:
                return best
            if not loose:
                return None
            tried = list(best)
            if step % 200 == 199:
                for i in loose:
                    tried[i] = draw.choice((self.jobs[i][0].bcet_ns, self.jobs[i][0].wcet_ns))
            for i in draw.sample(loose, min(len(loose), draw.randint(1, 3))):
                tried[i] = draw.randint(self.jobs[i][0].bcet_ns, self.jobs[i][0].wcet_ns)
            found = max(self.responses(tried)[i] for i in targets)
            if found >= reached or step % 200 == 199:
                best, reached = tried, found
        return best if reached == bound else None


@pytest.mark.slow
def test_draws_stay_within_the_bounds_and_reach_the_worst_on_one_processor(given: tuple[Case, ...]) -> None:
    compared, best_reached = {1: 0, 2: 0}, 0
    for case in given:
        assert len({task["prio"] for task in case["tasks"]}) == len(case["tasks"])
        hyper = Hyperperiod(case)
        times = [tuple(range(task.bcet_ns, task.wcet_ns + 1)) for task, _ in hyper.jobs]
        least, most = hyper.extremes(times, DRAWS)
        low, high = hyper.by_task(least, min), hyper.by_task(most, max)
        bounds = {int(name): (row["bcrt"], row["wcrt"]) for name, row in case["per_task"].items()}
        assert set(bounds) == set(high)
        for task, (bcrt, wcrt) in bounds.items():
            assert bcrt <= low[task] <= high[task] <= wcrt, (case["id"], task, low[task], high[task])
            compared[case["processors"]] += 1
        if case["processors"] > 1:
            continue
        draw = Random(case["id"])
        for task, (bcrt, wcrt) in bounds.items():
            best_reached += low[task] == bcrt
            if high[task] < wcrt:
                # what the draws do not happen upon is searched for, and then simulated
                proposed = hyper.climb(task, wcrt, draw, 20_000)
                assert proposed is not None, (case["id"], task, high[task], wcrt)
                _, most = hyper.extremes([(time,) for time in proposed], 1)
                assert hyper.by_task(most, max)[task] == wcrt
    assert compared == {1: 292, 2: 148}
    assert best_reached >= 290


def test_the_evaluation_that_proposes_agrees_with_the_simulator(given: tuple[Case, ...]) -> None:
    for case in [case for case in given if case["processors"] == 1][:20]:
        hyper = Hyperperiod(case)
        draw = Random(case["id"])
        times = [draw.randint(task.bcet_ns, task.wcet_ns) for task, _ in hyper.jobs]
        _, most = hyper.extremes([(time,) for time in times], 1)
        assert np.array_equal(most, hyper.responses(times)), case["id"]


def test_unmodified_task_sets_stay_within_the_bounds(given: tuple[Case, ...]) -> None:
    """Through the task-set path, a thousand hyperperiods on end: schedulable sets leave no backlog between them."""
    for case in given:
        if not case["schedulable"]:
            continue
        tasks = taskset_from_mapping(case, "np_oracle.json")
        length = lcm(*(task.period_ns for task in tasks.tasks)) * DRAWS
        outcome = simulate_taskset(tasks, length - 1, execution="random").outcome
        assert np.array_equal(outcome.ints("done"), outcome.ints("released"))
        for index, task in enumerate(tasks.tasks):
            bound = case["per_task"][str(task.id)]
            least, most = (int(outcome.ints_of("responses", which)[index]) for which in (4, 2))
            assert bound["bcrt"] <= least <= most <= bound["wcrt"], (case["id"], task.id)


# Bounds against exact worst-case response times of non-preemptive job sets (one processor; safe ones on two).


def test_no_bound_is_below_the_exact_response() -> None:
    cases = read("sag/np_oracle.json.xz")["cases"]
    compared = {1: 0, 2: 0}
    for case in cases:
        taskset = taskset_from_mapping(case, "np_oracle.json")
        analysis = analyse(taskset)
        for outcome in analysis.outcomes:
            for name, bound in outcome.answer.bounds.items() if outcome.answer else ():
                task = next(task for task in taskset.tasks if task.name == name)
                exact = case["per_task"][str(task.id)]["wcrt"]
                assert bound.value >= exact, (case["id"], outcome.test.name, name)
                compared[taskset.processors] += 1
        # What the exact search finds unschedulable, no sufficient test may accept.
        assert case["schedulable"] or analysis.verdict != "feasible"
    assert compared[1] > 200 and compared[2] > 80


def test_bound_of_the_lowest_priority_is_attained_on_one_processor() -> None:
    """No job can block it, and the synchronous release of these sets is its critical instant."""
    cases = read("sag/np_oracle.json.xz")["cases"]
    single = [case for case in cases if case["processors"] == 1]
    for case in single:
        taskset = taskset_from_mapping(case, "np_oracle.json")
        lowest = max(taskset.tasks, key=lambda task: task.prio or 0)
        found = analyse(taskset).tasks[lowest.name].bound
        assert found is not None and found.value == case["per_task"][str(lowest.id)]["wcrt"], case["id"]
    assert len(single) >= 60


@pytest.mark.slow
def test_blocking_that_cannot_happen_is_all_that_keeps_the_others_apart() -> None:
    """Without lower priorities to block, the bound of every task is attained as well."""
    cases = read("sag/np_oracle.json.xz")["cases"]
    for case in (case for case in cases if case["processors"] == 1):
        for task in case["tasks"]:
            alone = [other for other in case["tasks"] if other["prio"] <= task["prio"]]
            found = analyse(taskset_from_mapping({**case, "tasks": alone}, "np_oracle.json"))
            bound = found.tasks[f"t{task['id']}"].bound
            assert bound is not None and bound.value <= case["per_task"][str(task["id"])]["wcrt"], case["id"]
