"""`socsched study planners` and `socsched plan --planner`: tables, data, figure, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from socsched.api.comparison import OURS, select_planners
from socsched.cli.output import Output
from socsched.cli.root import run as main
from socsched.errors import UsageError
from socsched.planning.io import load_plan
from socsched_literature.cli.study import planners as command


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


HOW = ["camera-detection", "-p", "jetson-agx-orin-64gb", "--mode", "50W"]


def study(arguments: list[str]) -> int:
    return int(command.main(arguments, obj=Output(), standalone_mode=False))


@pytest.mark.slow
def test_planners_are_compared_in_a_table_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--planners", OURS, "--planners", "axonn:share=0.7", "--planners", "jedi:stage=camera-detect"]
    assert study([*HOW, *names, "-o", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "axonn:share=0.7" in text
    assert (tmp_path / "out" / "planners.svg").read_text().count("<circle") == 3
    assert len(json.loads((tmp_path / "out" / "planners.json").read_text())["planners"]) == 3


def test_the_data_agree_with_the_plans(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["--planners", OURS, "--planners", "axonn:share=0.7", "--planners", "herald"]
    assert study([*HOW, *names, "--json"]) == 0
    ours, axonn, herald = json.loads(capsys.readouterr().out)["planners"]
    assert ours["verdict"] == axonn["verdict"] == "feasible" and not ours["refusal"]
    # Ours is the fastest, AxoNN the more frugal; neither beats the other.
    assert ours["latency_ns"] <= herald["latency_ns"] and ours["latency_ns"] < axonn["latency_ns"]
    assert axonn["power_mw"] < ours["power_mw"] and ours["on_front"] and axonn["on_front"]
    for each in (ours, axonn, herald):
        assert each["longest_ns"] == each["latency_ns"] <= each["bound_ns"] and not each["lost"]
        assert each["energy_mj"] == pytest.approx(each["power_mw"] * each["round_ns"] / 1e9, rel=1e-3)
    assert axonn["options"] == {"share": "0.7"} and axonn["facts"]["energy_uj"] <= axonn["facts"]["cap_uj"]


def test_no_feasible_plan_is_a_violation() -> None:
    assert study(["perception-stack", "-p", "hikey960", "--planners", "herald"]) == 1


def test_planners_are_listed_with_papers_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert study(["--list"]) == 0
    text = capsys.readouterr().out
    assert "herald" in text and "Zhang et al., DAC 2022" in text and "share=0.8" in text
    assert study(["--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["axonn"]["options"]["transitions"]["default"] is not None
    with pytest.raises(click.UsageError):
        study([])


def test_choices_are_read_and_checked() -> None:
    both = [("axonn", {"share": "0.7", "transitions": "4"}), (OURS, {})]
    assert select_planners(["axonn:share=0.7,transitions=4", OURS]) == both
    assert len(select_planners([])) == 6
    with pytest.raises(UsageError, match="no planner 'axon'"):
        select_planners(["axon"])
    with pytest.raises(UsageError, match="NAME:OPTION=VALUE"):
        select_planners(["axonn:share"])


def test_a_plan_by_a_planner_is_written_and_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert main(["plan", *HOW, "--planner", "axonn", "-O", "share=0.7", "-o", str(file)]) == 0
    plan = load_plan(file)
    assert plan.solver.name == "axonn" and plan.solver.options["share"] == 0.7
    # The expected time is that of the simulation, contention included, which the estimate leaves out.
    assert main(["plan", *HOW, "--planner", "axonn", "--no-refine", "-o", str(tmp_path / "raw.json")]) == 0
    assert load_plan(tmp_path / "raw.json").chains[0].expected_ns <= plan.chains[0].expected_ns
    assert plan.solver.fixed_point is True
    assert main(["simulate", str(file), "--duration", "1s"]) == 0
    assert main(["plan", *HOW, "-O", "share=0.7"]) == 2
    assert main(["plan", *HOW, "--planner", "axonn", "-O", "share"]) == 2
    assert main(["plan", *HOW, "--planner", "axon"]) == 2
    assert "did you mean axonn?" in capsys.readouterr().err
