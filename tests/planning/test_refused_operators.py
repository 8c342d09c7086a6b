"""`pipelines check --platform` lists the operators that accelerators refuse, with the source of each rule."""

from __future__ import annotations

import json

import pytest

from socsched.cli.root import run
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.feasibility.infeasible_plan import refused_operators

BOARD = "jetson-agx-orin-64gb"


def test_every_refusal_is_one_of_the_rules_and_has_a_source() -> None:
    pipeline, platform = get_pipeline("pointpillars"), get_platform(BOARD)
    found = refused_operators(pipeline, platform, stage_work)
    assert found
    ruled = {engine.id for engine in platform.engines if engine.operators.allowed is not None}
    for row in found:
        assert set(row.engines) <= ruled and row.operators and row.reason
    by_rule = [row for row in found if "host code" not in row.reason]
    assert by_rule and all(row.sources for row in by_rule)


def test_the_command_shows_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["pipelines", "check", "pointpillars", "--platform", BOARD, "--json"]) == 0
    refused = json.loads(capsys.readouterr().out)["refused"]
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["pipelines", "check", "pointpillars", "--platform", BOARD]) == 0
    shown = capsys.readouterr().out
    assert "Operators that accelerators do not support" in shown
    assert all(row["stage"] in shown for row in refused)
    assert max(map(len, shown.splitlines())) <= 80
