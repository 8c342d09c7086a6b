"""Bounds against exact worst-case response times of non-preemptive job sets (one processor; safe ones on two)."""

from __future__ import annotations

import pytest
from datafiles import read

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.schedulability.published.choose import analyse


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
