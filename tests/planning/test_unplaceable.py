"""Stages that no engine can run: the verdict with its reasons, and the operators that engines refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from socsched.cli import root
from socsched.cli.root import run
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.feasibility.infeasible_plan import refused_operators

PIPELINE = """\
schema_version: "1"
name: odd
title: one stage only a video unit could run
sources: {b: {title: a bench}}
sensors: {camera: {kind: camera, period: 33 ms}}
stages:
  encode:
    title: encode the image
    after: [camera]
    costs:
      - {platform: a video board, mode: m, engine: vpu, precision: fp32, time: {value: 5 ms, kind: measured, source: b}}
chains:
  c: {path: [camera, encode], deadline: 30 ms}
"""
BOARD = ("-p", "jetson-agx-orin-64gb")


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    path = tmp_path / "odd.yaml"
    path.write_text(PIPELINE)
    return str(path)


def test_the_verdict_names_the_stage_and_why_each_engine_refuses(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert root.run(["plan", pipeline, *BOARD, "--mode", "MAXN", "--json"]) == 1
    plan = json.loads(capsys.readouterr().out)
    assert plan["verdict"] == "infeasible" and plan["stages"] == []
    (violation,) = plan["violations"]
    assert violation["requirement"] == "an engine for stage encode"
    assert sum(term["value"] if isinstance(term, dict) else term[1] for term in violation["terms"]) == 1
    text = " ".join(violation["levers"])
    assert all(engine in text for engine in ("cpu0, cpu1, cpu2, gpu in fp32", "dla0, dla1 in fp32"))


def test_every_verb_takes_such_a_plan(pipeline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    assert root.run(["plan", pipeline, *BOARD, "-o", str(file)]) == 1
    for verb in ("simulate", "analyze", "run"):
        assert root.run([verb, str(file)]) == 1, verb
        assert "an engine for stage encode" in capsys.readouterr().out, verb


def test_check_reports_its_position(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["pipelines", "check", pipeline]) == 0
    assert root.run(["pipelines", "check", pipeline, *BOARD]) == 2
    assert f"{pipeline}:7:3: stages.encode: no engine of jetson-agx-orin-64gb can run this" in capsys.readouterr().err


def test_places_that_do_not_exist_are_named(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = PIPELINE.replace("a video board, mode: m", "jetson-agx-orin-64gb, mode: MAXM")
    Path(pipeline).write_text(text)
    assert root.run(["pipelines", "check", pipeline]) == 2
    said = capsys.readouterr().err
    assert ":11:62: stages.encode.costs[0].engine: unknown engine" in said and "did you mean 'gpu'?" in said
    assert ":11:48: stages.encode.costs[0].mode: unknown power mode" in said and "did you mean 'MAXN'?" in said
    Path(pipeline).write_text(PIPELINE.replace("a video board", "jetson-agx-orin-64gbb"))
    assert root.run(["pipelines", "check", pipeline]) == 2
    assert "did you mean 'jetson-agx-orin-64gb'?" in capsys.readouterr().err


def test_every_refusal_is_one_of_the_rules_and_has_a_source() -> None:
    pipeline, platform = get_pipeline("pointpillars"), get_platform(BOARD[1])
    found = refused_operators(pipeline, platform, stage_work)
    assert found
    ruled = {engine.id for engine in platform.engines if engine.operators.allowed is not None}
    for row in found:
        assert set(row.engines) <= ruled and row.operators and row.reason
    by_rule = [row for row in found if "host code" not in row.reason]
    assert by_rule and all(row.sources for row in by_rule)


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["pipelines", "check", "pointpillars", "--platform", BOARD[1], "--json"]) == 0
    refused = json.loads(capsys.readouterr().out)["refused"]
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pipelines", "check", "pointpillars", "--platform", BOARD[1]]) == 0
    shown = capsys.readouterr().out
    assert "Operators that accelerators do not support" in shown
    assert all(row["stage"] in shown for row in refused)
    assert max(map(len, shown.splitlines())) <= 80
