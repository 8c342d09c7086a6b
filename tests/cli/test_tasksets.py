"""Task sets on the command line: analysed, simulated, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datafiles import read

from socsched.cli.root import run
from socsched.schedulability.published.choose import tests as all_tests


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
    assert {"plan.json", "result.json", "trace.bin", "report.html"} <= {entry.name for entry in folder.iterdir()}
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


def analysed(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run(["analyze", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


def written(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "set.taskset.json"
    path.write_text(json.dumps(data))
    return path


THREE = [
    {"name": "camera", "period": 10, "wcet": 2, "prio": 0},
    {"name": "fusion", "period": 20, "wcet": 4, "prio": 1},
    {"name": "control", "period": 40, "wcet": 6, "prio": 2},
]


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [
        ("x1_edf_uni_constrained", 0, "feasible"),
        ("x2_edf_uni_overload", 1, "infeasible"),
        ("w2_gedf_4cpu_off_1", 4, "undecided"),
    ],
)
def test_exit_codes_say_the_verdict(
    data: Path, name: str, code: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, document = analysed(data / "simso" / f"{name}.taskset.json", capsys)
    assert (found, document["verdict"], document["time_unit"]) == (code, verdict, "us")
    seen = {row["id"]: row["response_max"] for row in read(f"simso/{name}.simso.json.xz")["per_task"]}
    for task in document["tasks"]:
        assert task["bound"] is None or task["bound"] >= seen[task["id"]]  # in the file's own unit


def test_every_test_is_listed_with_bounds_or_the_reason_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"time_unit": "ms", "policy": "FP", "tasks": THREE, "chain": ["camera", "fusion", "control"]}
    code, document = analysed(written(tmp_path, data), capsys)
    assert code == 0
    assert [test["name"] for test in document["tests"] if test["kind"] != "chain"] == [
        test.name for test in all_tests() if test.kind != "chain"
    ]
    assert all(test["applies"] or test["reason"] for test in document["tests"])
    by_name = {test["name"]: test for test in document["tests"]}
    assert by_name["response-time analysis"]["bounds"] == {"camera": 2, "fusion": 6, "control": 14}
    assert by_name["Liu-Layland bound"]["bounds"] == {"camera": 10, "fusion": 20, "control": 40}
    assert by_name["EDF utilisation"]["reason"] == "it applies to edf, the policy is fp"
    assert by_name["chain: LET, any phase"]["reason"].endswith("here data move at the start and end of jobs")
    assert [(task["bound"], task["test"]) for task in document["tasks"]] == [
        (2, "response-time analysis"),
        (6, "response-time analysis"),
        (14, "response-time analysis"),
    ]
    assert all("next" in task["why"] for task in document["tasks"])
    for task in document["tasks"]:
        assert sum(term["value"] for term in task["terms"]) == task["bound"]
    assert document["chain"]["measures"]["data_age"]["test"] == "chain: Günzel, local"
    assert by_name["chain: Davare"]["chain"]["reaction_time"] == 70 + 22


def test_bounds_below_the_unit_are_not_rounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {"time_unit": "us", "policy": "NP-FP", "tasks": [row | {"arrivals": "sporadic"} for row in THREE]}
    _, document = analysed(written(tmp_path, data), capsys)
    # the longest lower job has begun 1 ns before
    assert [task["bound"] for task in document["tasks"]] == [7.999, 11.999, 12]


def test_partitioned_sets_are_analysed_processor_by_processor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{**row, "cpu": index % 2} for index, row in enumerate(THREE)]
    data = {"policy": "P_RM", "processors": 2, "tasks": rows}
    _, document = analysed(written(tmp_path, data), capsys)
    by_name = {test["name"]: test for test in document["tests"]}
    assert by_name["response-time analysis"]["bounds"] == {"camera": 2, "fusion": 4, "control": 8}
    assert by_name["response-time analysis"]["cpus"] == [0, 1]


@pytest.mark.parametrize(
    ("more", "tasks", "test", "bounds"),
    [
        (
            {"processors": 2, "policy": "EDF"},
            [{"name": "net", "period": 20, "wcet": 10, "graph": {"nodes": [{"wcet": w} for w in (1, 4, 4, 1)],
              "edges": [[0, 1], [0, 2], [1, 3], [2, 3]]}}],
            "graph alone (Graham)",
            {"net": 8},  # L + (V - L) / m = 6 + 4 / 2
        ),
        (
            {"processors": 3, "policy": "FP", "types": {"cpu": 2, "gpu": 1}},
            [{"name": "net", "period": 30, "wcet": 10, "prio": 0, "graph": {"nodes": [
                {"wcet": 2, "type": "cpu"}, {"wcet": 4, "type": "gpu"}, {"wcet": 4, "type": "cpu"}],
              "edges": [[0, 1], [0, 2]]}}],
            "typed graph alone (Han)",
            {"net": 10},  # path cpu 2 / 2 + cpu 4 / 2 = 3, volumes 6 / 2 + 4 / 1 = 7
        ),
        (
            {"policy": "FP"},
            [{"name": "a", "period": 10, "wcet": 2, "prio": 0, "suspension": 3},
             {"name": "b", "period": 20, "wcet": 4, "prio": 1, "suspension": 2}],
            "suspension as jitter R - C",
            {"a": 5, "b": 10},  # b: 4 + ceil((w + 3) / 10) 2 + 2, with w = 10
        ),
        (
            {"policy": "FP", "processors": 2, "accelerator": {"wait": "busy"}},
            [{"name": "a", "period": 20, "wcet": 2, "prio": 0, "cpu": 0, "requests": [{"time": 3}]},
             {"name": "b", "period": 30, "wcet": 4, "prio": 1, "cpu": 1, "requests": [{"time": 5}]}],
            "accelerator, busy waiting",
            {"a": 10, "b": 12},  # own request after the longest of the other processor
        ),
        (
            {"policy": "FP", "processors": 2, "accelerator": {"wait": "server", "cpu": 0}},
            [{"name": "a", "period": 20, "wcet": 2, "prio": 0, "cpu": 0, "requests": [{"time": 3}]},
             {"name": "b", "period": 30, "wcet": 4, "prio": 1, "cpu": 1, "requests": [{"time": 5}]}],
            "accelerator, server",
            {"a": 10, "b": 15},  # b: 4 + 5 and two requests of a
        ),
        (
            {"policy": "FP", "memory": {"latency": 1, "contention": 2}},
            [{"name": "a", "period": 50, "wcet": 4, "prio": 0, "accesses": 3}],
            "memory accesses in the WCET",
            {"a": 13},
        ),
        (
            {"policy": "FP", "memguard": {"period": 10, "budgets": [4], "guaranteed": 8}},
            [{"name": "a", "period": 90, "wcet": 12, "prio": 0, "accesses": 8}],
            "bandwidth reservations (MemGuard)",
            {"a": 42},  # 12 + (1 + 8 / 4) 10
        ),
        (
            {"policy": "FP"},
            [{"name": "a", "period": 10, "wcet": 2, "prio": 0},
             {"name": "b", "period": 30, "wcet": 6, "prio": 1, "regions": [3, 3]}],
            "fixed preemption points",
            {"a": 4, "b": 8},  # a waits for a region of 3 begun 1 before; b cannot be preempted in its last region
        ),
        (
            {"policy": "FIFO"},
            [{"name": "a", "period": 10, "wcet": 2}, {"name": "b", "period": 20, "wcet": 6}],
            "FIFO response times",
            {"a": 8, "b": 8},
        ),
    ],
)  # fmt: skip
def test_what_goes_beyond_plain_tasks_reaches_its_test(
    more: dict[str, Any],
    tasks: list[dict[str, Any]],
    test: str,
    bounds: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, document = analysed(written(tmp_path, {**more, "tasks": tasks}), capsys)
    (row,) = [row for row in document["tests"] if row["name"] == test]
    assert row["applies"], row["reason"]
    assert row["bounds"] == bounds
    # and tests that do not know it say so
    assert not any(r["applies"] and r["name"] == "response-time analysis" for r in document["tests"]) or test == (
        "fixed preemption points"
    )


def test_suspension_as_jitter_of_its_own_length_is_not_offered() -> None:
    assert [test.name for test in all_tests() if "suspension" in test.name] == [
        "suspension as computation",
        "suspension as jitter R - C",
    ]


def test_a_table_is_shown_without_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["analyze", str(written(tmp_path, {"time_unit": "ms", "policy": "FP", "tasks": THREE}))]) == 0
    shown = capsys.readouterr().out
    for text in ("feasible", "response-time analysis", "tightest of", "Tests not applicable", "policy is fp"):
        assert text in shown


def test_faults_are_named_with_their_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.taskset.yaml"
    path.write_text("tasks:\n  - {period: 10, wcet: 1.5}\n")
    assert run(["analyze", str(path)]) == 2
    assert "bad.taskset.yaml:2:24: tasks[0].wcet: expected a whole number of ns" in capsys.readouterr().err


def test_a_task_set_is_known_by_its_content_too(tmp_path: Path) -> None:
    path = tmp_path / "plain.json"
    path.write_text(json.dumps({"policy": "FP", "tasks": THREE}))
    assert run(["analyze", str(path), "-q"]) == 0
