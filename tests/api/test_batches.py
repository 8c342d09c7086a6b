"""Batch calls give exactly what single calls give, in columns; faults in arrays are said with their places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import socsched as ss
from socsched.descriptor.taskset import TaskSet
from socsched.errors import SocschedError, UsageError
from socsched.schedulability import many_sets

PERIODS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 50]


@st.composite
def tasksets(draw: st.DrawFn) -> TaskSet:
    """Draw a set of up to six tasks: mostly plain, under any policy, at any load."""
    scale = draw(st.sampled_from([1, 7, 10**6, 2**32]))
    tasks: list[dict[str, Any]] = []
    plain = draw(st.integers(0, 4)) > 0
    synchronous = draw(st.booleans())
    kind = draw(st.sampled_from(["implicit", "constrained", "arbitrary"]))
    for _ in range(draw(st.integers(1, 6))):
        period = draw(st.sampled_from(PERIODS))
        wcet = draw(st.integers(1, max(1, period // draw(st.sampled_from([1, 2, 3, 6])))))
        due = {"implicit": (period, period), "constrained": (1, period), "arbitrary": (1, 3 * period)}[kind]
        deadline = draw(st.integers(*due))
        row = {
            "period": period * scale,
            "wcet": wcet * scale,
            "deadline": deadline * scale,
            "prio": draw(st.integers(0, 3)),
        }
        row["offset"] = 0 if synchronous else draw(st.integers(0, 9)) * scale
        if not plain:
            extra = draw(st.sampled_from(["jitter", "blocking", "longest_region", "distance", "suspension", "bcet"]))
            row[extra] = min(draw(st.integers(1, 3)) * scale, row["wcet"], row["period"])
        if draw(st.integers(0, 5)) == 0:
            row["arrivals"] = "sporadic"
        tasks.append(row)
    names = ["EDF", "RM", "DM", "FP"] * (3 if plain else 1) + ["NP-EDF", "NP-FP", "FIFO"]
    processors = draw(st.sampled_from([1, 1, 1, 1, 2]))
    policy = draw(st.sampled_from(names if processors == 1 else ["EDF", "DM"]))
    return ss.load_taskset({"processors": processors, "policy": policy, "tasks": tasks})


def assert_as_alone(sets: list[TaskSet]) -> None:
    alone = [ss.analyze(one) for one in sets]
    table, tasks = ss.analyze_many(sets), ss.analyze_many(sets, by="task")
    assert table["verdict"].tolist() == [one.verdict for one in alone]
    assert table["decided_by"].tolist() == [one.decided_by for one in alone]
    best = [found.tasks[task.name] for found in alone for task in found.taskset.tasks]
    bounds = [None if np.isnan(bound) else int(bound) for bound in tasks["bound_ns"]]
    assert bounds == [None if one.bound is None else one.bound.value for one in best]
    assert tasks["test"].tolist() == [one.test for one in best]
    assert tasks["set"].tolist() == [k for k, one in enumerate(sets) for _ in one.tasks]


@settings(max_examples=150, deadline=None)
@given(st.lists(tasksets(), min_size=1, max_size=6))
def test_many_sets_are_analysed_as_each_alone(sets: list[TaskSet]) -> None:
    assert_as_alone(sets)


def plain(policy: str, *rows: tuple[int, ...]) -> TaskSet:
    tasks = [dict(zip(("period", "wcet", "deadline"), row, strict=False)) | {"prio": n} for n, row in enumerate(rows)]
    return ss.load_taskset({"policy": policy, "tasks": tasks})


def test_limits_of_the_bounds_are_decided_exactly() -> None:
    """A product of exactly 2, a utilisation of exactly 1, one part in 10**12 above and below."""
    sets = [
        plain("RM", (3, 1), (2, 1)),
        plain("RM", (10, 10)),
        plain("EDF", (2, 1), (4, 2)),
        plain("EDF", (6, 3, 4), (8, 4)),
    ]
    fine = 10**11
    for policy in ("EDF", "RM", "FP"):
        sets += [plain(policy, (2 * fine, fine), (fine, fine // 2 + more)) for more in (-1, 0, 1)]
    assert_as_alone(sets)


def test_most_sets_take_the_compiled_way(monkeypatch: pytest.MonkeyPatch) -> None:
    if many_sets.build_shared_object(many_sets.Path(many_sets.__file__).with_suffix(".c")) is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(many_sets, "judge_single", lambda taskset: pytest.fail("analysed alone"))
    for policy in ("EDF", "RM", "DM", "FP"):
        ss.analyze_many([plain(policy, (10, 3), (20, 5, 15)), plain(policy, (10, 7), (20, 11), (40, 9, 90))])


def test_without_a_compiler_the_answers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [plain("EDF", (10, 3), (20, 5, 15)), plain("RM", (10, 7), (20, 11), (40, 9, 90))]
    compiled = [ss.analyze_many(sets, by=rows) for rows in ("set", "task")]
    monkeypatch.setattr(many_sets, "build_shared_object", lambda *files: None)
    for before, after in zip(compiled, (ss.analyze_many(sets, by=rows) for rows in ("set", "task")), strict=True):
        assert all(
            np.array_equal(before[name], after[name], equal_nan=before[name].dtype.kind == "f") for name in before
        )


def arrays() -> dict[str, Any]:
    return {
        "period": [[10, 20, 40], [5, 50, np.nan], [8, 9, 0]],
        "wcet": [[2.5, 4, 8], [1, 30, 77], [4, 5, 0]],
        "deadline": [[10, 15, 40], [5, 50, 0], [8, 9, 0]],
        "prio": [[2, 1, 0], [0, 1, 0], [0, 0, 0]],
    }


@pytest.mark.parametrize("processors", [1, 2])
@pytest.mark.parametrize("policy", ["EDF", "FP", "RM", "DM", "NP-FP", None])
def test_arrays_are_sets(policy: str | None, processors: int) -> None:
    listed = []
    for row, periods in enumerate(arrays()["period"]):
        tasks = [
            {"id": j, **{name: values[row][j] for name, values in arrays().items()}}
            for j, p in enumerate(periods)
            if p > 0
        ]
        data = {"time_unit": "ms", "processors": processors, "tasks": tasks}
        listed.append(ss.load_taskset({**data, **({"policy": policy} if policy else {})}))
    for by in ("set", "task"):
        given = ss.analyze_many(arrays(), policy=policy, processors=processors, time_unit="ms", by=by)
        for name, column in ss.analyze_many(listed, by=by).items():
            assert (
                column.tolist() == pytest.approx(given[name].tolist(), nan_ok=True)
                if column.dtype.kind == "f"
                else (column.tolist() == given[name].tolist())
            ), name
        ran = ss.simulate_many(arrays(), policy=policy, processors=processors, time_unit="ms", by=by, duration="1s")
        for name, column in ss.simulate_many(listed, by=by, duration="1s").items():
            assert np.array_equal(column, ran[name], equal_nan=column.dtype.kind == "f"), name


@settings(max_examples=20, deadline=None)
@given(st.lists(tasksets(), min_size=1, max_size=3), st.sampled_from(["wcet", "bcet", "random"]))
def test_many_sets_are_simulated_as_each_alone(sets: list[TaskSet], execution: str) -> None:
    try:
        alone = [
            ss.simulate(one, 10**9 if one.tasks[0].period_ns > 10**5 else 10**3, execution=execution) for one in sets
        ]
    except SocschedError:
        with pytest.raises(SocschedError):
            ss.simulate_many(sets, 10**3, execution=execution)
        return
    for one, found in zip(sets, alone, strict=True):
        length = found.simulated.duration_ns - 1
        table = ss.simulate_many([one], length, execution=execution)
        assert (bool(table["met"][0]), int(table["missed"][0])) == (found.met, found.missed)
        tasks = ss.simulate_many([one], length, execution=execution, by="task")
        for row, task in enumerate(found.tasks):
            for name in ("released", "completed", "late", "unfinished", "preemptions", "migrations"):
                assert tasks[name][row] == getattr(task, name)
            for name in ("response_max_ns", "response_mean_ns"):
                value = getattr(task, name)
                assert np.isnan(tasks[name][row]) if value is None else tasks[name][row] == value


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"wcets": [[1]]}, "unknown parameter 'wcets'"),
        ({"wcet": [[1, 2]]}, r"wcet has the shape \(1, 2\)"),
        ({"period": [1, 2, 3]}, r"period has the shape \(3,\)"),
        ({"wcet": [[2.5, 4, 8], [1, float("nan"), 0], [4, 5, 0]]}, r"wcet\[1, 1\]: expected a number"),
        ({"wcet": [[2.5, 4, 8], [1, 30, 0], [1 / 3e6, 5, 0]]}, r"wcet\[2, 0\]: expected a whole number of ns"),
        ({"wcet": [[2.5, 4, 0], [1, 30, 0], [4, 5, 0]]}, r"wcet\[0, 2\]: expected at least 1 ns"),
        ({"period": [[10, 20, 40], [5, -50, 0], [8, 9, 0]]}, r"period\[1, 1\]: expected a time"),
        ({"period": [[10, 20, 40], [5, 5e9, 0], [8, 9, 0]]}, r"period\[1, 1\]: expected at most"),
        ({"period": [[10, 20, 40], [0, 0, 0], [8, 9, 0]]}, "set 1 has no task"),
        ({"bcet": [[3, 4, 8], [1, 30, 0], [4, 5, 0]]}, r"bcet\[0, 0\]: expected at most the wcet"),
        ({"cpu": [[0, 0, 1], [0, 0, 0], [0, 0, 0]]}, r"cpu\[0, 2\]: expected a processor below 1"),
    ],
)
def test_faults_in_arrays_are_said_with_their_places(change: dict[str, Any], reported: str) -> None:
    with pytest.raises(UsageError, match=reported):
        ss.analyze_many({**arrays(), **change}, time_unit="ms")


def test_other_faults_of_batches() -> None:
    with pytest.raises(UsageError, match="unknown time_unit 'min'"):
        ss.analyze_many(arrays(), time_unit="min")
    with pytest.raises(UsageError, match="by='job'"):
        ss.analyze_many([], by="job")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="are for arrays"):
        ss.analyze_many([plain("RM", (3, 1))], policy="EDF")
    assert ss.analyze_many([])["verdict"].tolist() == [] == ss.simulate_many([])["met"].tolist()
