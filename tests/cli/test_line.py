"""The verbs over the real line: plan, analyze, simulate, report, compare on shipped files, with their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from socsched.cli.root import run

BOARD = "jetson-agx-orin-64gb"


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a plan of PointPillars on the board."""
    file = tmp_path_factory.mktemp("plan") / "deep" / "plan.json"
    assert run(["plan", "pointpillars", "-p", BOARD, "--mode", "MAXN", "-q", "-o", str(file)]) == 0
    return file


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):
    """Return a function that runs the command line with --json and gives exit code and object."""

    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return call


def test_an_infeasible_plan_exits_with_1_and_its_terms_add_up(said) -> None:
    code, document = said("plan", "camera-detection", "-p", "juno")
    assert code == 1
    assert document["violations"]
    for violation in document["violations"]:
        assert violation["demand"] - violation["bound"] == violation["gap"] > 0
        assert sum(value for _, value in violation["terms"]) == violation["demand"]
        assert violation["levers"]


def test_simulate_writes_a_folder_that_report_and_compare_read(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert run(["simulate", str(plan_file), "--duration", "1s", "-o", str(folder)]) == 0
    assert {file.name for file in folder.iterdir()} == {
        "plan.json",
        "result.json",
        "trace.bin",
        "report.html",
        "made.json",
    }
    assert (folder / "plan.json").read_bytes() == plan_file.read_bytes()
    for name in ("again.html", "trace.pftrace", "junit.xml", "result.json"):
        assert run(["report", str(folder), "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).stat().st_size > 100
    assert json.loads((tmp_path / "result.json").read_text()) == json.loads((folder / "result.json").read_text())
    assert run(["compare", str(folder), str(folder), "--max-regression", "0%"]) == 0
    assert "no regression" in capsys.readouterr().out


def test_compare_fails_on_a_regression(plan_file: Path, tmp_path: Path, said) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("slowdowns:\n  - {engine: gpu, from: 0 s, until: 1 s, factor: 1.2}\n")
    run(["simulate", str(plan_file), "--duration", "1s", "-q", "-o", str(tmp_path / "a")])
    run(["simulate", str(plan_file), "--duration", "1s", "-q", "-o", str(tmp_path / "b"), "--faults", str(faults)])
    code, document = said("compare", str(tmp_path / "a"), str(tmp_path / "b"))
    assert code == 1
    assert "backbone median" in document["regressions"]
    assert said("compare", str(tmp_path / "a"), str(tmp_path / "b"), "--max-regression", "50%")[0] == 0


def test_analyze_shows_terms_that_add_up_to_the_bound(plan_file: Path, said) -> None:
    code, document = said("analyze", str(plan_file))
    assert code == 0
    chain = document["chains"][0]
    assert sum(term["ns"] for term in chain["terms"]) == chain["bound_ns"]
    assert document["growth"]["all"] > 1
    assert all(factor >= document["growth"]["all"] for factor in document["growth"]["tasks"].values())


def test_analyze_lists_every_analysis_of_a_chain_and_every_test_of_a_resource(plan_file: Path, said) -> None:
    _, document = said("analyze", str(plan_file))
    for chain in document["chains"]:
        ways = chain["ways"]
        bounds = [way["bound_ns"] for way in ways if way["bound_ns"] is not None]
        assert bounds == sorted(bounds) and bounds[0] == chain["bound_ns"] and chain["test"]
        assert all(way["reason"] for way in ways if way["bound_ns"] is None)
    for resource in document["resources"]:
        assert resource["reason"] or len(resource["tests"]) >= 30
        for test in resource["tests"]:
            assert test["applies"] or test["reason"]
            assert set(test["bounds_ns"]) <= set(resource["tasks"])
    stages = document["sensitivity"]["stages"]
    assert all(row["spare_ns"] > 0 and (row["first"] or row["whole"]) for row in stages.values())
    assert document["sensitivity"]["co_runner"]["bytes_per_s"] > 0


def test_analyze_says_which_test_bounds_what(plan_file: Path, said) -> None:
    _, document = said("analyze", str(plan_file))
    rows = {row["name"]: row for row in document["tests"]}
    stages = {name for row in rows.values() for name in row["bounds"]} - {c["name"] for c in document["chains"]}
    assert {"voxelise", "backbone"} <= stages
    assert rows["chain: sampling after responses"]["bounds"] == [chain["name"] for chain in document["chains"]]
    assert rows["holistic response times"]["bounds"] == []
    assert rows["holistic response times"]["reason"] == "the plan's policy is edf"
    assert all(row["bounds"] or row["reason"] for row in rows.values())


def test_a_board_plan_cannot_be_run_here(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", str(plan_file), "--frames", "1"]) == 2
    assert "socsched plan pointpillars -p host" in capsys.readouterr().err
