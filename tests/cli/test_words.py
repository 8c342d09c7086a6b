"""What commands say about a run with late and dropped frames: its own outcome first, the same counts everywhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from socsched.cli.outcomes import outcome_code
from socsched.cli.root import run
from socsched.reporting.compare import compare
from socsched.reporting.terminal import observed

PIPELINE = """
schema_version: "1"
name: cart
title: a camera sampled by a timer
sensors:
  cam: {kind: camera, period: 100 ms, bytes_per_frame: 1 kB, assumed: a test}
stages:
  see: {title: see, after: [cam], share: 1, queue: 1, assumed: a test, costs: [COST20]}
  act: {title: act, reads: [see], period: 50 ms, share: 1, assumed: a test, costs: [COST1]}
chains:
  react: {path: [cam, see, act], deadline: 120 ms, assumed: a test}
  image: {path: [cam, see], deadline: 60 ms, assumed: a test}
"""
COST = (
    "{platform: jetson-agx-orin-64gb, mode: MAXN, engine: cpu, precision: fp32, units: 1, "
    "time: {value: %d ms, kind: assumed, note: a test, error: 0.1}}"
)
FAULTS = """
dropouts:  [{sensor: cam, from: 1 s, until: 1.35 s}]
slowdowns: [{engine: cpu0, from: 2 s, until: 3 s, factor: 12}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a plan, its simulation without faults (`quiet`) and with them (`lossy`)."""
    place = tmp_path_factory.mktemp("words")
    (place / "cart.yaml").write_text(PIPELINE.replace("COST20", COST % 20).replace("COST1", COST % 1))
    (place / "faults.yaml").write_text(FAULTS)
    plan = str(place / "plan.json")
    assert run(["plan", str(place / "cart.yaml"), "-p", "jetson-agx-orin-64gb", "--mode", "MAXN", "-o", plan]) == 0
    assert run(["simulate", plan, "--duration", "5s", "-o", str(place / "quiet")]) == 0
    faults = ["--faults", str(place / "faults.yaml")]
    assert run(["simulate", plan, "--duration", "5s", *faults, "-o", str(place / "lossy")]) == 1
    return place


def test_simulate_says_first_what_became_of_the_frames(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(folder / "plan.json")
    assert run(["simulate", plan, "--duration", "5s", "--faults", str(folder / "faults.yaml")]) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "✗ simulated: 10 late, 18 dropped of 100 frames of 2 chains"
    assert second == "plan: feasible under edf, cart on jetson-agx-orin-64gb, mode MAXN"
    assert run(["simulate", plan, "--duration", "5s", "--policy", "fifo"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "✓ simulated: none late or dropped of 100 frames of 2 chains"
    assert "mode MAXN; engines under fifo, for which it was not proved" in " ".join(" ".join(rest).split())


def test_guard_says_the_outcome_of_its_simulation_before_the_verdict_of_its_plan(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["guard", str(folder / "plan.json"), "--duration", "1s", "-o", str(tmp_path / "guard")]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "✓ simulated: none late or dropped of 20 frames of 2 chains"
    assert second.startswith("plan: feasible under edf")


def test_compare_tells_late_from_dropped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", str(folder / "quiet"), str(folder / "lossy")]) == 1
    text = capsys.readouterr().out
    assert "✗ react: 5 of 50 frames late (0.00% -> 10.00%)" in text
    assert "✗ react: 9 of 50 frames dropped (0.00% -> 18.00%)" in text


def test_a_dropped_frame_has_no_response_anywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Frame 11 is lost by its sensor, frame 22 at a full queue; the timer samples newer frames instead."""
    counts = json.loads((folder / "lossy" / "result.json").read_text())["chains"]["react"]
    page = (folder / "lossy" / "report.html").read_text()
    drawn = page[page.index("Chains: response times against deadlines") :]
    chart = drawn[drawn.index("react: response times over time") :].split("</svg>")[0]
    assert "9 without a response" in chart
    crosses = re.search(r'<path d="([^"]*)" class="late-dot"', chart)
    dots = re.search(r'<path d="([^"]*)" class="dot"', chart)
    assert crosses is not None and dots is not None
    assert crosses[1].count("M") == counts["missed"] == 5
    assert crosses[1].count("M") + dots[1].count("M") == counts["completed"] == 41
    assert "share of the completed frames" in drawn
    for frame, where in (("11", "cam"), ("22", "see")):
        assert run(["why", str(folder / "lossy"), "--chain", "react", "--frame", frame]) == 1
        assert f"react, frame {frame}: was dropped at {where}" in capsys.readouterr().out


def test_outputs_that_are_too_old_and_aborted_frames_fail_a_run_and_are_named() -> None:
    chain = {"released": 50, "completed": 50, "missed": 0, "dropped": 0, "stale": 3}
    good = {"kind": "simulated", "chains": {"c": {**chain, "stale": 0}}}
    old = {"kind": "simulated", "chains": {"c": chain}}
    gone = {**good, "run": {"accounts": {"cam": {"aborted": 2}}}}
    assert str(observed(good)) == "✓ simulated: none late or dropped of 50 frames" and outcome_code(good) == 0
    assert (
        str(observed(old)) == ("✗ simulated: none late or dropped of 50 frames; 3 outputs with data that are too old")
        and outcome_code(old) == 1
    )
    assert str(observed(gone)).endswith("of 50 frames; 2 frames aborted") and outcome_code(gone) == 1
    assert compare({**good, "stages": {}}, {**old, "stages": {}}, 0.05).regressions == (
        "c: outputs with data that are too old: 0 -> 3",
    )
    nothing = {"kind": "simulated", "chains": {"c": dict.fromkeys(chain, 0)}}
    assert str(observed(nothing)) == "? simulated: no frame was released"
