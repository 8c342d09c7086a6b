"""`socsched advise`: answers agree with the plans, in the order of their certainty; table, picture and exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from socsched.api.advise import AdviseOptions, advise
from socsched.api.loading import load_pipeline, load_platform
from socsched.api.options import PlanOptions
from socsched.api.planning import plan_with
from socsched.cli.root import run
from tests.models.onnx_files import trunk

BOARDS = ("jetson-orin-nx-16gb", "qcs8550")
ON = [word for board in BOARDS for word in ("-p", board)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("networks") / "trunk.onnx"
    trunk(path)
    return path


def answers(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, Any]]:
    assert run(["advise", *words, "--json"]) == code
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["advice"]
    return found


def test_a_board_is_as_its_plan_says(network: Path) -> None:
    (found,) = advise([network], AdviseOptions(BOARDS[:1]))
    plan = plan_with(load_pipeline(network), load_platform(BOARDS[0]), None, PlanOptions(refine=False))
    assert (found.mode, found.latency_ns) == (plan.mode, round(plan.chains[0].expected_ns))
    assert found.low_ns is not None and found.latency_ns is not None and found.high_ns is not None
    assert 0 < found.low_ns < found.latency_ns < found.high_ns < found.deadline_ns
    assert found.answer == "yes" and found.measure


def test_a_tighter_deadline_lowers_the_answer(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loose = answers(capsys, str(network), *ON, "--deadline", "100ms")
    assert [one["answer"] for one in loose] == ["yes", "yes"]
    assert loose[0]["power_mw"] <= loose[1]["power_mw"]
    tight = answers(capsys, str(network), *ON, "--deadline", "1us", code=1)
    assert {one["board"] for one in tight} == set(BOARDS)
    assert not {one["answer"] for one in tight} & {"yes", "likely"}


def test_data_types_are_those_asked_for(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for precision in ("fp16", "int8"):
        for one in answers(capsys, str(network), *ON, "--precision", precision):
            assert {place.split()[-1] for _, place in one["places"]} == {precision}


def test_table_and_picture(network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["advise", str(network), *ON, "--plot", str(tmp_path / "boards.svg")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(board in said for board in BOARDS) and "noise floor" in said
    picture = (tmp_path / "boards.svg").read_text()
    assert picture.startswith("<svg") and all(board in picture for board in BOARDS)


def test_an_unknown_board_is_a_usage_error(network: Path) -> None:
    assert run(["advise", str(network), "-p", "no-such-board"]) == 2
