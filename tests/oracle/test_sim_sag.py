"""Non-preemptive fixed priority against schedule-abstraction graphs (Nasri & Brandenburg, RTSS 2017; ECRTS 2018).

Their answer is about the jobs of one hyperperiod from a synchronous release, each taking anything in [bcet, wcet]: best
and worst response of every task, exact on one processor and safe on two.  Here every job of the hyperperiod is a timer
task of its own that comes again after a pause, so that one run holds a thousand draws, none touched by the last one's
backlog.  Priorities are unique in all sets given, so that ties cannot matter (checked).
"""

from __future__ import annotations

from math import lcm
from typing import Any

import numpy as np
import pytest
from datafiles import read

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability.published.choose import analyse
from socsched.sim.tasksets import simulate_taskset

DRAWS = 1000
Case = dict[str, Any]


@pytest.fixture(scope="module")
def given() -> tuple[Case, ...]:
    return tuple(read("sag/np_oracle.json.xz")["cases"])


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
