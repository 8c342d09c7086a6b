"""The Pareto front over power modes: its members, its figure, and the verb that prints it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import refuted

from socsched.cli.root import run
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.models.work import stage_work
from socsched.planning.pareto import Point, explore, mark
from socsched.planning.search import make_plan
from socsched.reporting.pareto import figure

ORIN = "jetson-agx-orin-64gb"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def points() -> list[Point]:
    pipeline, platform = get_pipeline("camera-detection"), get_platform(ORIN)
    return explore(
        pipeline,
        platform,
        stage_work,
        lambda mode, objective: make_plan(pipeline, platform, mode, objective, work=stage_work, budget=5),
    )


def test_every_mode_is_there_mightiest_first(points: list[Point]) -> None:
    modes = list(dict.fromkeys(point.mode for point in points))
    assert modes == ["MAXN", "MODE_50W", "MODE_30W", "MODE_15W"]
    assert all(point.energy_uj == point.power_mw * point.round_ns // 10**6 for point in points)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()), min_size=1, max_size=8))
def test_the_front_holds_what_no_feasible_plan_beats(points: list[Point], drawn: list[tuple[int, int, bool]]) -> None:
    base = points[0]
    plans = {True: replace(base.plan, verdict="feasible"), False: refuted(base.plan)}
    made = mark([replace(base, latency_ns=a, power_mw=b, plan=plans[ok]) for a, b, ok in drawn])
    for point, (a, b, ok) in zip(made, drawn, strict=True):
        beaten = any(o and c <= a and d <= b and (c, d) != (a, b) for c, d, o in drawn)
        assert point.on_front == (ok and not beaten)


def test_the_figure_shows_every_plan_and_joins_the_front(points: list[Point]) -> None:
    root = ElementTree.fromstring(figure(points))
    marks = [mark for mark in root.iter(f"{SVG}g") if mark.find(f"{SVG}title") is not None]
    assert [mark.find(f"{SVG}text").text for mark in marks] == [str(n) for n in range(1, len(points) + 1)]
    assert [mark.get("class") == "slice c1" for mark in marks] == [p.plan.verdict == "feasible" for p in points]
    front = [point for point in points if point.on_front]
    assert [len(mark.findall(f"{SVG}circle")) == 2 for mark in marks] == [point.on_front for point in points]
    lines = [line.get("d", "") for line in root.iter(f"{SVG}path")]
    assert [line.count("L") + 1 for line in lines] == [len(front)] * (len(front) > 1)
    assert figure(points) == figure(points)


def test_the_verb_prints_draws_and_answers(
    points: list[Point], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    file = tmp_path / "front.svg"
    front = ["plan", "camera-detection", "-p", ORIN, "--pareto", "--no-refine"]
    assert run([*front, "--json", "-o", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any(point["on_front"] for point in document["points"])
    assert {"mode", "verdict", "latency_ns", "power_mw", "operations", "cuts", "notes"} <= set(document["points"][0])
    ElementTree.fromstring(file.read_text())
    monkeypatch.setattr("socsched.planning.pareto.explore", lambda *_: points)  # once is enough
    assert run(front) == 0
    assert "MODE_15W" in capsys.readouterr().out
    assert run([*front, "--mode", "15W"]) == 2
    assert run([*front, "-o", str(tmp_path / "plan.json")]) == 2


def test_objectives_and_modes_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "autoware-reference", "-p", ORIN, "-m", "auto", "--objective", "energy,latency", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["solver"]["objective"] == "energy,latency" and len(plan["solver"]["modes"]) == 4
    assert run(["plan", "autoware-reference", "-p", ORIN, "--objective", "energy,speed"]) == 2
    assert "'speed'" in capsys.readouterr().err
