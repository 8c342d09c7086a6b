"""Commits in a repository with a guard: those that break, weaken or slow something fail with its cause, no others."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.verify import gate_commits
from tools.verify.gate_commits import HARMFUL, HARMLESS, Commit


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
