"""The page of how far off predictions are, from a summary."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx", reason="the onnx package is not installed")

from socsched.validation.validate import validate
from tests.validation.pairs import folder
from tools.generate.fidelity import page


def test_the_page_states_data_date_and_every_engine(tmp_path: Path) -> None:
    place = folder(tmp_path)
    summary = validate(place / "pairs.csv", place / "networks").document
    text = page(summary, "made-up | times", "2030-01-02")
    assert "made-up \\| times" in text
    assert ", 2030-01-02" in text
    assert summary["sha256"] in text
    assert "| jetson-agx-orin-64gb | cpu0 | fp32 | 3 |" in text
    assert "| **all** |  |  | 5 |" in text
