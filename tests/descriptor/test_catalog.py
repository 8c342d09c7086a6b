"""Descriptors by name, and the hashes by which a plan identifies them."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

import pytest
from descriptor_samples import PIPELINE, PLATFORM, replaced

from socsched.descriptor import catalog
from socsched.errors import DescriptorError, UsageError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind, name, text in (("platforms", "board", PLATFORM), ("pipelines", "small", PIPELINE)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("SOCSCHED_PATH", str(tmp_path))
    return tmp_path


def test_names_and_paths_give_the_same(folder: Path) -> None:
    assert catalog.get_platform("board") == catalog.get_platform(str(folder / "platforms" / "board.yaml"))
    assert catalog.get_pipeline("small").name == "small"
    assert "board" in catalog.platform_names() and catalog.HOST in catalog.platform_names()
    assert "small" in catalog.pipeline_names()


def test_a_changed_file_is_read_again(folder: Path) -> None:
    path = folder / "platforms" / "board.yaml"
    assert catalog.get_platform("board").title == "a board"
    path.write_text(replaced(PLATFORM, "title: a board", "title: another board"))
    os.utime(path, (1, 1))
    assert catalog.get_platform("board").title == "another board"


def test_unknown_names_and_broken_files(folder: Path) -> None:
    with pytest.raises(UsageError, match="no platform is called 'bord'") as caught:
        catalog.get_platform("bord")
    assert "did you mean board" in caught.value.hint
    (folder / "pipelines" / "broken.yaml").write_text("name: 3")
    with pytest.raises(DescriptorError, match=r"broken.yaml:1:7: name: expected text"):
        catalog.get_pipeline("broken")


def test_host_is_detected_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import socsched.descriptor.host as host

    marker = catalog.get_platform("jetson-agx-orin-64gb")
    monkeypatch.setattr(host, "detect", lambda cache=True: marker)
    assert catalog.get_platform("host") is marker


def test_hashes_are_of_the_files_and_name_no_folder(folder: Path) -> None:
    platform, pipeline = catalog.get_platform("board"), catalog.get_pipeline("small")
    hashes = catalog.input_hashes(platform, pipeline)
    assert hashes == {
        "platforms/board.yaml": hashlib.sha256(PLATFORM.encode()).hexdigest(),
        "pipelines/small.yaml": hashlib.sha256(PIPELINE.encode()).hexdigest(),
    }


def test_a_platform_without_file_is_hashed_by_content(folder: Path) -> None:
    platform, pipeline = dataclasses.replace(catalog.get_platform("board"), file=""), catalog.get_pipeline("small")
    other = dataclasses.replace(platform, vendor="another")
    key = "platforms/board"
    assert catalog.input_hashes(platform, pipeline)[key] == catalog.input_hashes(platform, pipeline)[key]
    assert catalog.input_hashes(platform, pipeline)[key] != catalog.input_hashes(other, pipeline)[key]
