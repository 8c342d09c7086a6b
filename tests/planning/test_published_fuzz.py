"""Every valid task set is analysed without an error, quickly, with terms that add up."""

from __future__ import annotations

import time
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.reporting.analysis import taskset_document
from socsched.schedulability.published.choose import analyse

POLICIES = ("EDF", "FP", "RM", "DM", "FIFO", "NP-FP", "NP-EDF", "P_EDF", "P_RM", "P_NP-FP", "G_FP", "G_NP-FP")


def anything(draw: Random) -> dict:  # type: ignore[type-arg]
    policy, m = draw.choice(POLICIES), draw.choice([1, 1, 2, 4])
    scale = draw.choice([1, 10, 1_000_000])
    tasks = []
    for index in range(draw.randint(1, 8)):
        period = draw.choice([1, 2, 3, 7, 10, 97, 100, 1000, 99991]) * scale
        wcet = draw.choice([1, max(period // 10, 1), max(period // 3, 1), period, 2 * period])
        row = {"period": period, "wcet": wcet, "prio": index, "deadline": draw.choice([1, period, 5 * period, wcet])}
        if policy.startswith("P_") and m > 1:
            row["cpu"] = draw.randrange(m)
        for key, chance in (("jitter", 0.2), ("offset", 0.3), ("suspension", 0.1), ("blocking", 0.1)):
            if draw.random() < chance:
                row[key] = draw.choice([0, 1, period // 2, 3 * period])
        if draw.random() < 0.1:
            row["longest_region"] = draw.choice([1, wcet])
        if draw.random() < 0.05:
            row["requests"] = [{"time": draw.choice([1, period])}]
        if draw.random() < 0.1:
            row["graph"] = {"nodes": [{"wcet": wcet}], "edges": []}
        if draw.random() < 0.1:
            row["accesses"] = draw.choice([1, 1000])
        tasks.append(row)
    data = {"policy": policy, "processors": m, "tasks": tasks, "communication": draw.choice(["implicit", "let"])}
    if any("requests" in row for row in tasks):
        data["accelerator"] = {"wait": draw.choice(["busy", "server"])}
    if draw.random() < 0.1:
        data["memory"] = {"latency": 1}
    if draw.random() < 0.1:
        data["memguard"] = {"period": scale, "budgets": [3] * m, "guaranteed": 100}
    if draw.random() < 0.5:
        data["chain"] = [draw.randrange(len(tasks)) for _ in range(draw.randint(1, 4))]
    return data


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_analysis_answers(seed: int) -> None:
    began = time.thread_time()
    analysis = analyse(taskset_from_mapping(anything(Random(seed)), "anything"))
    assert time.thread_time() - began < 20, "no search without an end"
    for outcome in analysis.outcomes:
        assert outcome.answer is not None or outcome.reason
        for bound in (*outcome.answer.bounds.values(), *outcome.answer.chain.values()) if outcome.answer else ():
            assert sum(value for _, value in bound.terms) == bound.value
    if analysis.verdict == "feasible":
        assert all(task.deadline_ns >= task.wcet_ns or task.graph for task in analysis.taskset.tasks)
    # A yes and a no of two tests would contradict each other.
    said = {outcome.answer.schedulable for outcome in analysis.outcomes if outcome.answer}
    partitioned = analysis.taskset.policy.scheme == "partitioned" and analysis.taskset.processors > 1
    assert not {True, False} <= said or partitioned
    assert taskset_document(analysis)["verdict"] in ("feasible", "infeasible", "undecided")
