"""`socsched simulate` of a task-set file: starved tasks, horizons, and the folder it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from socsched.cli.root import run


def write(folder: Path, **content: Any) -> Path:
    file = folder / "set.taskset.json"
    file.write_text(json.dumps({"time_unit": "ms", **content}))
    return file


def answered(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any], str]:
    code = run(["simulate", *map(str, arguments), "--json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_jobs_that_never_run_are_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [{"period": 10, "wcet": 10, "prio": 0}, {"period": 10, "wcet": 5, "prio": 1}]
    code, found, _ = answered(capsys, write(tmp_path, policy="FP", horizon=1000, tasks=tasks))
    starved = found["tasks"][1]
    assert code == 1
    assert (starved["jobs_released"], starved["jobs_completed"], starved["unfinished_misses"]) == (101, 0, 100)
    assert [row["deadline_misses"] for row in found["tasks"]] == [0, 0] and found["tasks"][0]["unfinished_misses"] == 0


def test_without_a_horizon_a_set_is_simulated_until_it_repeats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [{"period": 10, "wcet": 1}, {"period": 15, "wcet": 1, "offset": 7}]
    code, found, said = answered(capsys, write(tmp_path, tasks=tasks))
    assert (code, found["duration"]) == (0, 37) and "repeat" not in said


def test_a_set_that_takes_an_hour_to_repeat_is_cut_short_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [{"period": 33.333, "wcet": 1}, {"period": 100, "wcet": 1}]
    code, found, said = answered(capsys, write(tmp_path, tasks=tasks))
    assert (code, found["duration"]) == (0, 60_000)
    assert "warning: the schedule repeats after 3333 s" in said and "--duration" in said


def test_a_set_of_short_periods_is_cut_at_a_million_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [{"period": 997, "wcet": 1}, {"period": 991, "wcet": 1}, {"period": 983, "wcet": 1}]
    file = write(tmp_path, tasks=tasks)
    file.write_text(file.read_text().replace('"ms"', '"ns"'))
    _, found, said = answered(capsys, file)
    assert sum(task["jobs_released"] for task in found["tasks"]) == pytest.approx(10**6, rel=0.01) and "repeat" in said


def test_the_first_jobs_are_listed_without_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, horizon=100, tasks=[{"period": 10, "wcet": 3, "offset": 4}])
    assert run(["simulate", str(file), "--jobs", "2"]) == 0
    shown = capsys.readouterr().out
    assert "the first 2 jobs" in shown
    rows = [line.split() for line in shown.splitlines()]
    assert [row[1::2] for row in rows if len(row) > 6 and row[1] == "0"][-2:]
    assert any({"4", "7"} <= set(row) for row in rows) and any({"14", "17"} <= set(row) for row in rows)


def test_a_folder_gets_what_a_plan_would_leave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [{"period": 10, "wcet": 6, "prio": 0}, {"period": 15, "wcet": 5, "prio": 1}]
    file, folder = write(tmp_path, policy="FP", horizon=300, tasks=tasks), tmp_path / "out"
    assert run(["simulate", str(file), "-o", str(folder)]) == 1
    assert "wrote" in capsys.readouterr().err
    assert {"plan.json", "result.json", "trace.json.gz", "trace.pftrace", "report.html"} <= {
        entry.name for entry in folder.iterdir()
    }
    assert "<svg" in (folder / "report.html").read_text()
    assert run(["why", str(folder), "--chain", "1", "--json"]) == 1
    why = json.loads(capsys.readouterr().out)
    assert why["chain"] == "1"
    assert run(["report", str(folder), "-o", str(tmp_path / "again.html")]) == 0


def test_a_time_longer_than_the_simulator_counts_is_refused_where_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, tasks=[{"period": 30_000_000, "wcet": 20_000_000}])
    assert run(["simulate", str(file), "--duration", "60 s"]) == 2
    assert "expected at most 3600000 ms" in capsys.readouterr().err
