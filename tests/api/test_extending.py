"""docs/extending.md: its package is installed as any third-party package is, and used through the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[2]
PAGE = CHECKOUT / "docs" / "extending.md"
Socsched = Callable[..., str]

WHERE = ("camera-detection", "-p", "jetson-agx-orin-64gb", "--mode", "50W")
TASKSET = """
processors: 1
policy: EDF
tasks: [{id: 1, period: 10, wcet: 2}, {id: 2, period: 20, wcet: 5}]
"""
PIPELINE = """
schema_version: "1"
name: threshold
title: a threshold
sensors:
  signal: {kind: other, period: 10 ms, bytes_per_frame: 4 kB, assumed: made up}
stages:
  keep: {title: keep, model: my.threshold, params: {limit: 0.2}, after: [signal]}
chains:
  through: {path: [signal, keep], deadline: 10 ms, assumed: made up}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the page's package, installed by pip."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    text = PAGE.read_text(encoding="utf-8")
    (project,) = re.findall(r"```toml\n(.*?)```", text, re.S)
    (source / "pyproject.toml").write_text(project)
    (source / "my_package").mkdir()
    (source / "my_package" / "__init__.py").write_text("")
    for name, code in re.findall(r"```python\n# (my_package/\w+\.py)\n(.*?)```", text, re.S):
        (source / name).write_text(code)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture
def socsched(installed: Path, tmp_path: Path) -> Socsched:
    """Return a function that runs the command line with that package installed and returns its output."""

    def call(*words: str, code: int = 0) -> str:
        path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "socsched", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.fixture
def plan(socsched: Socsched) -> str:
    socsched(
        "plan", "camera-detection", "-p", "jetson-agx-orin-64gb", "--mode", "50W", "--no-refine", "-o", "plan.json"
    )
    return "plan.json"


def test_everything_is_listed_with_its_package(socsched: Socsched) -> None:
    listed = socsched("plugins")
    for name in ("calm", "coolest", "half-load", "fixed", "vendor", "my.threshold", "emulated", "csv", "worst"):
        assert re.search(rf" {re.escape(name)} .*my_package\.\w+:\w+ +my-package 1\.0", listed), name
    assert "worst" in socsched("--help")


def test_a_policy_a_renderer_and_a_command(socsched: Socsched, plan: str, tmp_path: Path) -> None:
    assert "camera-detection" in socsched("simulate", plan, "--policy", "calm", "--duration", "1s", "-o", "out")
    socsched("report", "out", "-o", "chains.csv")
    assert (tmp_path / "chains.csv").read_text().startswith("chain,completed,missed\ncamera-detection,")
    assert re.match(r"camera-detection \d", socsched("worst", plan))


def test_a_planner(socsched: Socsched) -> None:
    assert "feasible" in socsched("plan", *WHERE, "--planner", "coolest", "-O", "slower=2")


def test_a_schedulability_test(socsched: Socsched, tmp_path: Path) -> None:
    (tmp_path / "set.taskset.yaml").write_text(TASKSET)
    assert "density 0.45" in socsched("analyze", "set.taskset.yaml")


def test_a_contention_model(socsched: Socsched, tmp_path: Path) -> None:
    board = (CHECKOUT / "platforms" / "rk3588.yaml").read_text()
    changed = re.sub(
        r"(?m)^dram:\n",
        "dram:\n  contention: {model: fixed, parameters: {factor: 1.5}, assumed: made up}\n",
        board,
        count=1,
    )
    assert changed != board
    (tmp_path / "board.yaml").write_text(changed)
    socsched("plan", "camera-detection", "-p", "board.yaml", "-o", "plan.json", "--no-refine")
    assert '"model": "fixed"' in (tmp_path / "plan.json").read_text()


def test_a_source_of_costs(socsched: Socsched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (rows,) = re.findall(r"```\n(platform,mode,engine.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    stage = rows.splitlines()[1].split(",")[3]

    def planned() -> dict[str, Any]:
        socsched("plan", *WHERE, "--no-refine", "-o", "plan.json")
        tasks = json.loads((tmp_path / "plan.json").read_text())["tasks"]
        found: dict[str, Any] = next(task for task in tasks if task["name"] == stage)
        return found

    before = planned()
    (tmp_path / "times.csv").write_text(rows)
    monkeypatch.setenv("VENDOR_TIMES", "times.csv")
    after = planned()
    assert (after["engine"], after["precision"]) == ("gpu", "int8") and before["cost_ns"] != 850_000
    assert sum(segment["time_ns"] for segment in after["segments"] if segment["name"] != "hand-over") == 850_000
    assert (after["provenance"], after["source"], after["error"]) == ("published", "vendor's table times.csv", 0.1)


def test_a_model(socsched: Socsched, tmp_path: Path) -> None:
    (tmp_path / "threshold.yaml").write_text(PIPELINE)
    assert "valid pipeline" in socsched("pipelines", "check", "threshold.yaml")
    assert "feasible" in socsched("plan", "threshold.yaml", "-p", "host", "-o", "plan.json")
    socsched("run", "plan.json", "--pipeline", "threshold.yaml", "--frames", "3", "--no-pace")


def test_a_target_with_its_backend(socsched: Socsched, tmp_path: Path) -> None:
    board = (CHECKOUT / "platforms" / "jetson-agx-orin-64gb.yaml").read_text()
    changed = re.sub(r"target: \{kind: llvm[^}]*\}", "target: {kind: emulated}", board)
    assert changed != board
    (tmp_path / "emulated.yaml").write_text(changed)
    words = ("compile", "pointpillars-s", "-p", "emulated.yaml", "--stage", "head", "--engine", "cpu0", "-o", "built")
    assert "emulated on this machine" in socsched(*words)
