"""The output of every verb fits terminals of 80 and 60 columns, and has no colour where none is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from socsched.cli.root import run, verbs
from tests.validation import pairs

BOARD = "jetson-agx-orin-64gb"
LINES = {
    "platforms": ["platforms list", f"platforms show {BOARD} --mode 30W", f"platforms show {BOARD} --engine gpu"],
    "pipelines": ["pipelines list", "pipelines show perception-stack", "pipelines check pointpillars"],
    "plan": [f"plan pointpillars -p {BOARD} --mode MAXN --no-refine"],
    "book": [f"book pointpillars -p {BOARD} --mode MAXN --loss gpu"],
    "analyze": ["analyze {root}/plan.json"],
    "simulate": ["simulate {root}/plan.json --duration 300ms", "simulate --policies"],
    "why": ["why {root}/good", "why {root}/slow --frame 1"],
    "compare": ["compare {root}/good {root}/slow", "compare {root}/plan.json {root}/other.json"],
    "lint": [],  # one line per diagnostic, for editors and grep
    "validate": ["validate {root}/pairs.csv --networks {root}/networks"],
    "report": ["report {root}/good -o {root}/x.md"],
    "guard": ["guard {root}/plan.json --duration 300ms -o {root}/guarded-{width}"],
    "doctor": ["doctor"],
    "plugins": ["plugins", "plugins models"],
    "profile": [],  # its table is that of `plan`, and making it takes a minute
    "fit": ["fit qcs8550 --engine npu"],
    "run": [],
    "compile": [],
    "calibrate": [],
    "demo": [],
    "sweep": ["sweep {root}/tiny.yaml -o {root}/swept-{width}"],
    "fleet": [],  # takes as long as it has vehicles
    "study": [
        "study policies {root}/plan.json --policies edf,fifo --seeds 2 --duration 300ms",
        f"study sharing pointpillars -p {BOARD} --seeds 1 --duration 1s --loads 1",
        "study planners --list",
    ],
    "weights": [],
    "completion": [],  # a script
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two plans and two results."""
    folder = tmp_path_factory.mktemp("w")
    plan = ["plan", "pointpillars", "-p", BOARD, "--mode", "MAXN", "--no-refine", "-q"]
    assert run([*plan, "-o", str(folder / "plan.json")]) == 0
    assert run([*plan, "--pin", "backbone=dla0", "-o", str(folder / "other.json")]) == 0
    (folder / "tiny.yaml").write_text(
        f"schema_version: '1'\nname: tiny\nparameters: {{platform: {BOARD}, mode: MAXN, pipeline: pointpillars}}\n"
        "simulate: {duration: 100 ms}\n"
    )
    pairs.folder(folder)
    (folder / "faults.yaml").write_text("slowdowns: [{engine: gpu, from: 0 s, until: 1 s, factor: 30}]\n")
    simulate = ["simulate", str(folder / "plan.json"), "--duration", "300ms", "-q", "-o"]
    assert run([*simulate, str(folder / "good")]) == 0
    assert run([*simulate, str(folder / "slow"), "--faults", str(folder / "faults.yaml")]) == 1
    return folder


def test_every_verb_is_here() -> None:
    assert set(LINES) == set(verbs())


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("line", [line for lines in LINES.values() for line in lines])
@pytest.mark.sampled(5)
def test_tables_fit(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    capsys.readouterr()
    assert run([word.format(root=root, width=width) for word in line.split()]) in (0, 1)
    out = capsys.readouterr().out
    assert out
    assert "\x1b[" not in out
    # a path that is longer than the screen is left whole, to be copied
    wide = [text for text in out.splitlines() if cell_len(text) > width and " " in text and "/" not in text.split()[-1]]
    assert wide == []


@pytest.mark.parametrize("line", ["platforms list", "doctor"])
def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], line: str) -> None:
    capsys.readouterr()
    run([*line.split(), "-q"])
    assert capsys.readouterr().out == ""
