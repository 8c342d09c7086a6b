"""A made-up table of measurements and two tiny networks."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from tests.models.onnx_files import mobilenet, trunk

BOARD = "jetson-agx-orin-64gb"
COLUMNS = [
    "id", "platform", "engine", "precision", "mode", "share", "network", "measured_ms", "statistic", "flag", "note",
    "source",
]  # fmt: skip


def row(number: int, **cells: str) -> list[str]:
    """Return a sound row with other values in some cells."""
    known = {
        "id": f"m{number}", "platform": BOARD, "engine": "gpu", "precision": "fp16", "mode": "MAXN", "share": "",
        "network": "trunk", "measured_ms": "0.05", "statistic": "mean", "flag": "", "note": "made up", "source": "here",
    }  # fmt: skip
    assert set(cells) <= set(known)
    return [str({**known, **cells}[name]) for name in COLUMNS]


ROWS = [
    row(1),
    row(2, measured_ms="0.04"),
    row(3, measured_ms="0.001", flag="NOISY"),
    row(4, network="mobilenet"),
    row(5, engine="cpu0", precision="fp32", share="4", measured_ms="0.2"),
    row(6, engine="cpu0", precision="fp32", share="4", network="mobilenet", measured_ms="0.3"),
    row(7, engine="cpu0", precision="fp32", share="1", measured_ms="0.7"),
]


def table(rows: list[list[str]], columns: list[str] | None = None) -> str:
    """Return rows as CSV text."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([columns or COLUMNS, *rows])
    return out.getvalue()


def folder(root: Path, rows: list[list[str]] | None = None) -> Path:
    """Write pairs.csv and the networks into a folder, and return it."""
    (root / "networks").mkdir(parents=True, exist_ok=True)
    trunk(root / "networks" / "trunk.onnx")
    mobilenet(root / "networks" / "mobilenet.onnx")
    (root / "pairs.csv").write_text(table(ROWS if rows is None else rows))
    return root
