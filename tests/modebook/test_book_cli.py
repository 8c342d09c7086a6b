"""`socsched book`, and `simulate` of its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from socsched.cli.root import run
from tests.modebook.conftest import document


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(document()))
    place = tmp_path / "book"
    arguments = ["book", str(file), "-p", "jetson-agx-orin-64gb", "--mode", "50W", "--loss", "gpu", "--loss", "none"]
    assert run([*arguments, "--condition", "base", "-o", str(place), "--evaluations", "768"]) == 0
    shown = capsys.readouterr().out
    assert "6 cells, 6 feasible" in shown and "without gpu" in shown
    return place


def test_a_drive_of_a_book_is_simulated(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive = folder.parent / "drive.yaml"
    drive.write_text("events:\n- {at: 1 s, thermal: warm}\n- {at: 2 s, loss: gpu}\n")
    code = run(["simulate", str(folder), "--drive", str(drive), "--duration", "3s", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and found["unaccounted"] == 0
    assert [one["within"] for one in found["switches"]] == [True, True]
    assert run(["simulate", str(folder), "--switches", "5", "--duration", "3s", "-o", str(folder.parent / "r")]) == 0
    assert "0 frames unaccounted for" in capsys.readouterr().out
    assert json.loads((folder.parent / "r" / "result.json").read_text())["kind"] == "book"


def test_wrong_uses_end_with_a_message(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", str(folder), "--drive", "x.yaml", "--switches", "2"]) == 2
    assert "exclude each other" in capsys.readouterr().err
    assert run(["simulate", "plan.json", "--switches", "2"]) == 2
    assert "belong to the simulation of a book" in capsys.readouterr().err
    (folder / "book.json").write_text("{}")
    assert run(["simulate", str(folder)]) == 2
    assert "book.json:1:1" in capsys.readouterr().err
