"""Shell completion: verbs, platforms, pipelines, modes, engines, stages, pins, policies, chains."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import which

import pytest
from click.shell_completion import ShellComplete

from socsched.cli.root import cli, run, verbs

BOARD = "jetson-agx-orin-64gb"


def completed(line: str) -> list[str]:
    """Return the completions of the last word of a line."""
    *words, last = line.split(" ")
    return [item.value for item in ShellComplete(cli, {}, "socsched", "_X").get_completions(words, last)]


@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("pl", {"plan", "platforms"}),
        ("plan point", {"pointpillars"}),
        ("plan pointpillars -p jetson-agx-o", {"jetson-agx-orin-32gb", BOARD}),
        (f"plan pointpillars -p {BOARD} --mode M", {"MAXN", "MODE_15W", "MODE_30W", "MODE_50W"}),
        (f"plan pointpillars -p {BOARD} --pin back", {"backbone=gpu", "backbone=dla0"}),
        (f"compile pointpillars -p {BOARD} --stage ", {"voxelise", "decode"}),
        (f"compile pointpillars -p {BOARD} --engine d", {"dla0", "dla1"}),
        (f"platforms show {BOARD} --mode MODE_1", {"MODE_15W"}),
        (f"platforms rules {BOARD} --engine d", {"dla0"}),
        ("simulate pointpillars --policy ed", {"edf", "edf-criticality"}),
        ("plan pointpillars --objective latency,en", {"latency,energy"}),
        ("plan pointpillars --solver c", {"cpsat"}),
        ("completion f", {"fish"}),
    ],
)
def test_names_complete(line: str, there: set[str]) -> None:
    found = completed(line)
    assert there <= set(found)
    assert all(item.startswith(line.split(" ")[-1]) for item in found)


def test_chains_and_stages_of_a_plan_complete(tmp_path: Path) -> None:
    plan = {"chains": [{"name": "lidar-detection"}], "stages": [{"name": "pfn"}], "platform": BOARD}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    assert completed(f"why {tmp_path} --chain l") == ["lidar-detection"]
    assert completed(f"compile {tmp_path}/plan.json --stage ") == ["pfn"]
    assert completed(f"compile {tmp_path}/plan.json --engine dla1") == ["dla1"]


@pytest.mark.parametrize(
    "line", ["plan nothing --pin ", "why nowhere --chain ", "plan pointpillars -p nothing --mode "]
)
def test_a_line_that_makes_no_sense_completes_nothing(line: str) -> None:
    assert completed(line) == []


def test_every_verb_completes() -> None:
    assert set(completed("")) == set(verbs())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_name_the_program_and_parse(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_SOCSCHED_COMPLETE" in script
    if which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
    assert run(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shell"] == shell


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
