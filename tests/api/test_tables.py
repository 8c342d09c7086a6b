"""Tables of a result hold what the result holds: jobs, chains and tasks, as columns, CSV and DataFrame."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import socsched as ss
from socsched.api.results import Rows
from socsched.errors import EXIT_MACHINE, SocschedError, UsageError

TASKS = [
    {"id": 3, "name": "a", "period": 10, "wcet": 6},
    {"id": 5, "name": "b, c", "period": 15, "wcet": 5, "offset": 2},
    {"id": 6, "name": "late", "period": 60, "wcet": 20, "deadline": 30},
]


@pytest.fixture(scope="module")
def of_plan() -> ss.Simulation:
    plan = ss.plan("pointpillars-s", "jetson-agx-orin-64gb", "MAXN", refine=False, explain=False)
    return ss.simulate(plan, "450ms")


@pytest.fixture(scope="module")
def of_taskset() -> ss.TaskSetSimulation:
    return ss.simulate(ss.load_taskset({"policy": "EDF", "tasks": TASKS}), 100, record=True)


def same(value: Any, other: Any) -> bool:
    return bool(np.isnan(value)) if other is None else bool(value == other)


def test_jobs_are_those_of_the_trace(of_plan: ss.Simulation, of_taskset: ss.TaskSetSimulation) -> None:
    names = {str(task["id"]): task["name"] for task in TASKS}
    for result, trace in ((of_plan, of_plan.trace), (of_taskset, of_taskset.simulated.trace)):
        assert trace is not None and trace.jobs
        columns = result.columns("jobs")
        assert {len(column) for column in columns.values()} == {len(trace.jobs)}
        for row, job in enumerate(trace.jobs):
            assert columns["task"][row] == (names[job.task] if result is of_taskset else job.task)
            for name in (
                "frame",
                "activation_ns",
                "deadline_ns",
                "exec_ns",
                "blocking_ns",
                "preemptions",
                "migrations",
                "status",
            ):
                assert columns[name][row] == getattr(job, name)
            for name in ("start_ns", "finish_ns"):
                value = getattr(job, name)
                assert same(columns[name][row], value if value >= 0 else None)
            assert same(columns["response_ns"][row], job.finish_ns - job.activation_ns if job.finish_ns >= 0 else None)
    unfinished = of_taskset.columns("jobs")
    assert np.isnan(unfinished["finish_ns"][unfinished["status"] == "unfinished"]).all()
    assert np.isnan(unfinished["finish_ns"]).any()


def test_chains_and_tasks_are_those_of_the_result(of_plan: ss.Simulation, of_taskset: ss.TaskSetSimulation) -> None:
    chains = of_plan.columns("chains")
    for row, chain in enumerate(of_plan.chains.values()):
        assert (chains["chain"][row], chains["met"][row]) == (chain.name, chain.met)
        for name in ("released", "completed", "missed", "dropped", "stale"):
            assert chains[name][row] == getattr(chain, name)
        for name in ("deadline", "mean", "p50", "p99", "p99_9", "max"):
            assert same(chains[f"{name}_ns"][row], getattr(chain, name))
    tasks = of_plan.columns("tasks")
    assert tasks["task"].tolist() == list(of_plan.figures["stages"])
    for row, name in enumerate(tasks["task"]):
        found = of_plan.figures["stages"][name]
        assert tasks["jobs"][row] == found["jobs"] and tasks["exec_max_ns"][row] == found["exec_ns"]["max"]
    figures = of_taskset.columns("tasks")
    assert figures["task"].tolist() == ["a", "b, c", "late"] and figures["id"].tolist() == [3, 5, 6]
    for row, task in enumerate(of_taskset.tasks):
        for name in ("released", "completed", "late", "unfinished", "preemptions", "migrations"):
            assert figures[name][row] == getattr(task, name)
        assert same(figures["response_max_ns"][row], task.response_max_ns)


@pytest.mark.parametrize("rows", ["jobs", "chains", "tasks"])
def test_csv_reads_back_as_the_columns(rows: Rows, of_plan: ss.Simulation, tmp_path: Path) -> None:
    columns = of_plan.columns(rows)
    of_plan.to_csv(tmp_path / "table.csv", rows)
    with (tmp_path / "table.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == list(columns) and len(read) == len(next(iter(columns.values())))
    for name, column in columns.items():
        for row, value in zip(read, column.tolist(), strict=True):
            if isinstance(value, bool):
                assert row[name] == str(value).lower()
            elif isinstance(value, float):
                assert np.isnan(value) if row[name] == "" else float(row[name]) == value
            else:
                assert row[name] == str(value)


@pytest.mark.needs("pandas")
@pytest.mark.parametrize("rows", ["jobs", "tasks"])
def test_a_data_frame_holds_the_columns(rows: Rows, of_plan: ss.Simulation, of_taskset: ss.TaskSetSimulation) -> None:
    for result in (of_plan, of_taskset):
        frame = result.to_pandas(rows)
        for name, column in result.columns(rows).items():
            assert np.array_equal(frame[name].to_numpy(), column, equal_nan=column.dtype.kind == "f")
    table = ss.analyze_many([of_taskset.taskset])
    import pandas

    assert pandas.DataFrame(table)["verdict"].tolist() == table["verdict"].tolist()


def test_without_pandas_the_error_says_what_else_there_is(
    of_plan: ss.Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SocschedError, match="pandas is not installed") as caught:
        of_plan.to_pandas()
    assert caught.value.exit_code == EXIT_MACHINE and "to_csv()" in caught.value.hint


def test_tables_that_are_not_there(of_plan: ss.Simulation, of_taskset: ss.TaskSetSimulation, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no table of 'chains'"):
        of_taskset.columns("chains")
    with pytest.raises(UsageError, match="no table of 'engines'"):
        of_plan.columns("engines")  # type: ignore[arg-type]
    bare = ss.simulate(of_taskset.taskset, 100)
    with pytest.raises(UsageError, match="no jobs were recorded"):
        bare.to_csv(tmp_path / "jobs.csv")
    assert not (tmp_path / "jobs.csv").exists()
    with pytest.raises(SocschedError, match="cannot be written"):
        bare.to_csv(tmp_path / "missing" / "tasks.csv", "tasks")
