"""`socsched guard`: CI templates around it replayed as a runner would, commits judged, each with its cause."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from socsched.cli.root import run
from tools.verify import gate_commits
from tools.verify.gate_commits import HARMFUL, HARMLESS, Commit

BOARD = "jetson-agx-orin-64gb"
FAST = ["-p", BOARD, "--mode", "MAXN", "--duration", "1s", "-q"]
CHANGES = {
    "feasible": ("", ""),
    "infeasible": ("deadline: 100 ms", "deadline: 5 ms"),
    "regressed": ("model: pointpillars.backbone", "model: pointpillars.backbone\n    engines: [dla0]"),
    "without an engine": ("model: pointpillars.voxelise", "model: pointpillars.voxelise\n    engines: [dla0]"),
    "invalid": ("deadline: 100 ms", "deadline: soon"),
}
EXIT = {"feasible": 0, "infeasible": 1, "regressed": 1, "without an engine": 1, "invalid": 2}
SAYS = {
    "feasible": ("no regression", "**feasible**"),
    "infeasible": ("**infeasible**", "verdict feasible → infeasible"),
    "regressed": ("**feasible**", "backbone moved"),
    "without an engine": ("**infeasible**", "Nothing to simulate"),
    "invalid": ("no verdict", "deadline"),
}


def changed(checkout: Path, case: str) -> str:
    """Return the text of the pipeline with the change of a case."""
    before, after = CHANGES[case]
    text = (checkout / "pipelines" / "pointpillars.yaml").read_text(encoding="utf-8")
    assert before in text
    return text.replace(before, after)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("baseline") / "plan.json"
    assert run(["plan", "pointpillars", "-p", BOARD, "--mode", "MAXN", "-q", "-o", str(file)]) == 0
    return file


@dataclass
class Runner:
    """A machine that runs a job's steps: one that fails skips all later ones but those that are always run."""

    place: Path
    checkout: Path

    def __post_init__(self) -> None:
        tools = self.place / "tools"
        tools.mkdir()
        # the install line is inspected, not run: it would install the code under test
        self._tool(tools / "pip", '#!/bin/sh\n[ "$1" = install ] && [ -f "$2/pyproject.toml" ]\n')
        self._tool(tools / "socsched", f"#!{sys.executable}\nfrom socsched.cli import main\nmain()\n")
        (self.place / "socsched").symlink_to(self.checkout)
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "PYTHONPATH": str(self.checkout)}
        self.env["GITHUB_STEP_SUMMARY"] = str(self.place / "step-summary")

    @staticmethod
    def _tool(file: Path, text: str) -> None:
        file.write_text(text)
        file.chmod(0o755)

    def sh(self, script: str, env: dict[str, str]) -> int:
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        return subprocess.run(command, cwd=self.place, env={**self.env, **env}, check=False).returncode

    def job(self, steps: list[dict[str, Any]], env: dict[str, str]) -> dict[str, int]:
        """Run the steps and return the exit codes of those that ran."""
        codes: dict[str, int] = {}
        for step in (step for step in steps if "run" in step):
            condition = step.get("if", "success()")
            assert condition in ("success()", "always()")
            if condition == "always()" or not any(codes.values()):
                codes[step["name"]] = self.sh(step["run"], {**env, **step.get("env", {})})
        return codes


def left(place: Path, case: str) -> None:
    """Assert that JUnit and summary exist and agree with the case."""
    root = ElementTree.fromstring((place / "junit.xml").read_text(encoding="utf-8").split("\n", 1)[1])
    wrong = [*root.iter("failure"), *root.iter("error")]
    assert bool(wrong) == (case != "feasible")
    summary = (place / "summary.md").read_text(encoding="utf-8")
    for text in SAYS[case]:
        assert text in summary


@pytest.mark.parametrize("case", ["feasible", "infeasible", "regressed"])
@pytest.mark.sampled(3)
def test_the_workflow_leaves_summary_and_junit_whatever_the_plan(
    case: str, checkout: Path, baseline: Path, tmp_path: Path
) -> None:
    runner = Runner(tmp_path, checkout)
    (tmp_path / "baseline").mkdir()
    shutil.copy(baseline, tmp_path / "baseline" / "plan.json")
    (tmp_path / "mine.yaml").write_text(changed(checkout, case), encoding="utf-8")
    job = yaml.safe_load((checkout / "docs/ci/github-actions.yml").read_text(encoding="utf-8"))["jobs"]["deployment"]
    codes = runner.job(job["steps"], {**job["env"], "PIPELINE": "mine.yaml"})
    assert codes == {"Install": 0, "Guard": EXIT[case], "Summary": 0}
    left(tmp_path / "out", case)
    assert (tmp_path / "step-summary").read_text() == (tmp_path / "out" / "summary.md").read_text()


def test_the_other_templates_run_the_same_guard_and_keep_what_it_leaves(checkout: Path) -> None:
    folder = checkout / "docs" / "ci"
    (line,) = re.findall(r"run: (socsched guard .*)", (folder / "github-actions.yml").read_text(encoding="utf-8"))
    gitlab = yaml.safe_load((folder / "gitlab-ci.yml").read_text(encoding="utf-8"))["deployment"]
    assert gitlab["script"][-1] == line
    assert gitlab["artifacts"] == {"when": "always", "paths": ["out/"], "reports": {"junit": "out/junit.xml"}}
    jenkins = (folder / "Jenkinsfile").read_text(encoding="utf-8")
    assert f".venv/bin/{line}" in jenkins
    assert "junit 'out/junit.xml'" in jenkins[jenkins.index("always {") :]


@pytest.mark.parametrize("case", ["without an engine", "invalid"])
def test_a_guard_without_anything_to_simulate_leaves_summary_and_junit(
    case: str, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(changed(checkout, case), encoding="utf-8")
    assert run(["guard", str(tmp_path / "mine.yaml"), *FAST, "-o", str(tmp_path / "out")]) == EXIT[case]
    left(tmp_path / "out", case)
    assert (tmp_path / "out" / "plan.json").exists() == (case != "invalid")


def test_a_guard_without_its_baseline_says_how_to_make_one(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["guard", str(baseline), "--duration", "1s", "-q", "-o", str(tmp_path / "out")]
    assert run([*line, "--baseline", str(tmp_path / "none.json")]) == 2
    assert "commit it as" in capsys.readouterr().err
    for name in ("junit.xml", "summary.md"):
        assert "baseline not found" in (tmp_path / "out" / name).read_text(encoding="utf-8")
    # nothing of the first guard is left once the second has a verdict
    assert run([*line, "--baseline", str(baseline)]) == 0
    assert "no regression" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


def test_a_guard_never_overwrites_what_it_reads(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = baseline.read_bytes()
    assert run(["guard", "pointpillars", *FAST, "--baseline", str(baseline), "-o", str(baseline.parent)]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert baseline.read_bytes() == before


def test_a_guard_takes_what_plan_takes_and_asks_for_slack(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    options = ["--no-cuts", "--pin", "backbone=gpu", "--require-slack", "99%", "--solver", "heft"]
    assert run(["guard", "pointpillars", *FAST, *options, "--baseline", str(baseline), "-o", str(out)]) == 1
    summary = (out / "summary.md").read_text(encoding="utf-8")
    assert "options: none → --solver heft --pin backbone=gpu --no-cuts" in summary.replace("\\", "")
    assert "required 99 ms" in summary and "required 99 ms" in (out / "junit.xml").read_text(encoding="utf-8")
    assert run(["guard", str(baseline), "--duration", "1s", "-q", "--require-slack", "1ms", "-o", str(out)]) == 0
    assert run(["guard", str(baseline), "--pin", "backbone=gpu", "-q", "-o", str(out)]) == 2
    assert "--pin is a planning option" in capsys.readouterr().err


def test_a_weaker_requirement_fails_a_guard_unless_it_is_allowed(
    checkout: Path, baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (checkout / "pipelines" / "pointpillars.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("deadline: 100 ms", "deadline: 110 ms"), encoding="utf-8")
    line = ["guard", str(tmp_path / "mine.yaml"), *FAST, "--baseline", str(baseline), "-o", str(tmp_path / "out")]
    assert run(line) == 1
    for name in ("summary.md", "junit.xml"):
        assert "deadline of chain lidar-detection: 100 ms → 110 ms" in (tmp_path / "out" / name).read_text("utf-8")
    assert run([*line, "--allow-weaker", "lidar-detection"]) == 0
    assert "weaker (allowed)" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
    assert run([*line, "--allow-weaker", "lidar"]) == 1
    assert "--allow-weaker lidar: no requirement of that name" in capsys.readouterr().err


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate") / "repository"
    gate_commits.start(folder)
    return folder


def test_there_are_enough_of_each() -> None:
    assert len(HARMLESS) >= 10 and len(HARMFUL) >= 20
    assert all(commit.says for commit in HARMFUL)
    assert {commit.code for commit in HARMLESS} == {0} and 0 not in {commit.code for commit in HARMFUL}


@pytest.mark.needs("git")
@pytest.mark.sampled(24)
@pytest.mark.parametrize("commit", [*HARMLESS, *HARMFUL], ids=lambda commit: commit.what)
def test_a_commit_is_judged_rightly(commit: Commit, repository: Path, tmp_path: Path) -> None:
    assert gate_commits.judge(repository, commit, tmp_path) == []


@pytest.mark.needs("git")
def test_a_plan_has_the_same_bytes_in_every_checkout(repository: Path, tmp_path: Path) -> None:
    """In another folder at another depth, and planned again where the baseline is from."""
    baseline = (repository / "baseline" / "plan.json").read_bytes()
    clone = tmp_path / "a" / "b" / "another"
    subprocess.run(["git", "clone", "-q", repository, clone], check=True)
    assert gate_commits.socsched(clone, "plan", *gate_commits.PLAN, "-o", "plan.json") == 0
    assert (clone / "plan.json").read_bytes() == baseline
    plan = json.loads(baseline)
    files = {task["params"]["file"] for task in plan["tasks"] if "file" in task["params"]}
    assert files == {"../networks/det.onnx", "../networks/seg.onnx"}
    assert {"networks/det.onnx", "rules/nvdla-v2.yaml", "profiles/measured.json", "socsched"} <= set(plan["inputs"])


@pytest.mark.needs("git")
def test_an_export_finds_the_networks_of_a_plan_and_refuses_others(repository: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", repository, clone], check=True)
    line = ("plan", "baseline/plan.json", "--export", "onnxruntime", "-o", "exported")
    assert gate_commits.socsched(clone, *line) == 0
    shutil.copy(clone / "networks" / "seg.onnx", clone / "networks" / "det.onnx")
    command = [sys.executable, "-m", "socsched", *line]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "not the network of the plan" in done.stderr, done.stderr
