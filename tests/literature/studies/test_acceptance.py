"""Acceptance studies: what the papers prove of the tests holds in the counts, and the results are written as stated."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import pytest

from socsched.cli.root import run
from socsched_literature.studies import acceptance
from socsched_literature.studies.acceptance import Panel, uunifast

DOMINATED = {
    "One processor, 10 tasks, D = T": [
        "RM: Liu & Layland",
        "RM: hyperbolic",
        "RM: response times",
        "EDF: utilisation (exact)",
    ],
    "One processor, 10 tasks, D in the upper half of [C, T]": ["DM: response times", "EDF: demand bound"],
    "Four processors, global, 20 tasks, D = T": [
        "DM: interference (BCL)",
        "DM: response times",
        "DM: limited carry-in",
    ],
}
"""Panel -> tests of which each accepts every set that the one before accepts."""


@pytest.mark.parametrize("panel", acceptance.PANELS, ids=lambda panel: panel.title)
def test_tests_dominate_each_other_set_by_set_as_proved(panel: Panel) -> None:
    order = DOMINATED.get(panel.title, [])
    curves = {curve.label: curve for curve in panel.curves}
    for load in panel.loads[1::3]:
        drawn = panel.draw(Random(f"{panel.title} {load}"), load)
        said = {name: curves[name].accepts(drawn) for name in order}
        assert all(said[one] <= said[other] for one, other in pairwise(order)), (load, said)


def test_schemes_of_mixed_criticality_dominate_each_other_as_proved() -> None:
    panel = acceptance.mixed_criticality_panel(8, 2, 0.5)
    accepted = 0
    for load in panel.loads:
        for number in range(6):
            drawn = panel.draw(Random(f"{load}/{number}"), load)
            said = {curve.label: curve.accepts(drawn) for curve in panel.curves}
            order = ("CrMPO", "SMC", "AMC-rtb", "AMC-max", "UB-H&L")
            assert all(said[one] <= said[other] for one, other in pairwise(order)), (load, number, said)
            assert said["EDF, reserved"] <= said["EDF-VD"]
            accepted += said["AMC-max"]
    assert 0 < accepted < 6 * len(panel.loads)


def test_utilisations_add_up() -> None:
    shares = uunifast(10, 0.7, Random(1))
    assert len(shares) == 10 and sum(shares) == pytest.approx(0.7) and min(shares) > 0


def test_a_study_writes_the_same_counts_in_every_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["study", "mixed-criticality", "--sets", "4", "--tasks", "6", "--seed", "3", "--json", "-q"]
    assert run([*arguments, "-o", str(tmp_path / "study")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "study" / "mixed-criticality.json").read_text()) == {"schema_version": "1", **shown}
    (panel,) = shown["panels"]
    rows = list(csv.DictReader((tmp_path / "study" / "mixed-criticality.csv").read_text().splitlines()))
    counts = {(row["test"], float(row["load"])): int(row["accepted"]) for row in rows}
    assert counts == {
        (test, load): count
        for test, row in panel["accepted"].items()
        for load, count in zip(panel["loads"], row, strict=True)
    }
    drawing = ElementTree.parse(tmp_path / "study" / "mixed-criticality.svg").getroot()
    lines = drawing.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(panel["accepted"]) == 7
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out) == shown, "the same seed gives the same counts"


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["study", "acceptance", "--sets", "0"], "0 is not in the range"),
        (["study", "mixed-criticality", "--factor", "0.5"], "--factor"),
        (["study", "mixed-criticality", "--share", "nan"], "--share"),
        (["study", "mixed-criticality", "--share", "150%"], "--share"),
    ],
)
def test_options_out_of_range_are_refused(
    arguments: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert reported in capsys.readouterr().err
