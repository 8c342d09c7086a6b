"""The page of how far off predictions are, from a summary."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the onnx package is not installed")

from socsched.validation.validate import validate
from tests.validation.pairs import folder
from tools.generate.fidelity import COMMANDS, PAGE, README, page

BOARDS = Path(__file__).parents[1] / "data" / "boards"


def test_the_page_states_data_date_and_every_engine(tmp_path: Path) -> None:
    place = folder(tmp_path)
    summary = validate(place / "pairs.csv", place / "networks").document
    text = page(summary, "made-up | times", "2030-01-02")
    assert "made-up \\| times" in text
    assert ", 2030-01-02" in text
    assert summary["sha256"] in text
    assert "| jetson-agx-orin-64gb | cpu0 | fp32 | 3 |" in text
    assert "| **all** |  |  | 5 |" in text


def test_the_command_beside_the_headline_reads_what_is_shipped() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert COMMANDS[0] in README.read_text(encoding="utf-8") and "\n".join(COMMANDS) in text
    words = shlex.split(COMMANDS[0])
    assert (PAGE.parents[1] / words[2]) == BOARDS / "pairs.csv.gz" and (
        PAGE.parents[1] / words[4]
    ) == BOARDS / "networks"
    assert hashlib.sha256((BOARDS / "pairs.csv.gz").read_bytes()).hexdigest() in text


@pytest.mark.slow
def test_the_page_is_what_the_shipped_measurements_give() -> None:
    text = PAGE.read_text(encoding="utf-8")
    summary = validate(BOARDS / "pairs.csv.gz", BOARDS / "networks").document
    date = re.search(r"- socsched \S+, ([\d-]+)", text)
    words = text.partition("- Measurements: ")[2].partition("\n")[0]
    assert date and page(summary, words, date[1]) == text, "run the commands of the page"
