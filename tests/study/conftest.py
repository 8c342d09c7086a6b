"""Small studies as files."""

from __future__ import annotations

from pathlib import Path

import pytest
from study_files import Writer


@pytest.fixture
def write(tmp_path: Path) -> Writer:
    """Return a function that writes a study of the camera pipeline, with more of its sections as text."""

    def write(more: str = "", parameters: str = "", name: str = "small") -> Path:
        text = f"""schema_version: "1"
name: {name}
parameters:
  platform: jetson-agx-orin-64gb
  mode: MODE_30W
  pipeline: camera-detection
{parameters}
{more}
"""
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write
