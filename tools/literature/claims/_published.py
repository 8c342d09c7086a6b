"""The folder of published measurements that claims are checked against."""

from __future__ import annotations

from pathlib import Path

from tools import ROOT

DATA = ROOT / "tests" / "data"


def data(*parts: str) -> Path:
    """Return a file or folder of tests/data."""
    return DATA.joinpath(*parts)
