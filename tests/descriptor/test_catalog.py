"""Descriptors by name, and the hashes by which a plan identifies them.

Every number of a descriptor states its source, or is reported.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from descriptor_samples import PIPELINE, PLATFORM, replaced

from socsched.cli import root
from socsched.descriptor import catalog
from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.source import parse, read
from socsched.descriptor.validation import coverage, require_grounds
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


CHECKOUT = Path(__file__).parents[2]
COST = """\
    costs:
      - {platform: p, mode: m, engine: cpu, precision: fp32, time: {value: 5 ms, kind: measured, source: bench}}
"""
SHIPPED = sorted([*CHECKOUT.glob("platforms/*.yaml"), *CHECKOUT.glob("pipelines/*.yaml")])


def uncovered(text: str) -> list[str]:
    return [".".join(map(str, number.path)) for number in coverage(parse(text.encode(), "f")).uncovered]


def test_figures_vouch_for_themselves() -> None:
    assert uncovered("a: {value: 5 ms, kind: measured, source: book}") == []
    assert uncovered("a: {value: 5 ms, kind: assumed, note: a guess, error: 0.5}") == []
    assert uncovered("a: {value: 5 ms, kind: assumed}") == ["a.value"]
    assert uncovered("a: {kind: published, source: book, points: [{clock: 1 GHz, voltage: 0.8 V}]}") == []


def test_a_source_or_a_reason_covers_what_is_below_it() -> None:
    assert uncovered("a: {source: book, units: 4, deep: {clock: 1 GHz, list: [1, 2]}}") == []
    assert uncovered("a: {assumed: because, units: 4}\nb: {units: 4}") == ["b.units"]
    assert uncovered("a: {assumed: '  ', units: 4}") == ["a.units"]
    assert uncovered("a: {source: '', units: 4}") == ["a.units"]


def test_what_is_a_number() -> None:
    numbers = "a: {x: 10 ms, y: 1e3, z: 5, u: 204.8 GB/s, v: -1 W, w: 0.85 V, t: 40 pJ/B}"
    assert len(uncovered(numbers)) == 7
    texts = 'a: {x: true, y: text, z: 12th, schema_version: "1", version: "8.6", note: 10 ms, title: 4 x 4, name: 15W}'
    assert uncovered(texts) == []
    assert uncovered("sources: {book: {title: 2021, where: 5 W}}") == []


def test_a_known_time_is_a_source_for_the_configurations_it_covers() -> None:
    cost = "{engine: cpu, units: 4, time: {value: 5 ms, kind: assumed, note: a guess}}"
    assert uncovered(f"costs: [{cost}]") == []


def test_counts_add_up() -> None:
    found = coverage(parse(PLATFORM.encode(), "f"))
    assert found.total == found.sourced + found.derived + found.assumed + len(found.uncovered)
    assert found.sourced >= 10 and found.assumed > 10 and found.uncovered
    assert sum(found.kinds.values()) + len(found.uncovered) == found.total


@pytest.mark.parametrize("kind", PROVENANCE)
@pytest.mark.parametrize("source", ["", ", source: book"])
def test_a_number_counts_as_its_kind(kind: str, source: str) -> None:
    figure = f"{{value: 5 ms, kind: {kind}{source}, note: why, error: 0.5, interval: [4 ms, 6 ms]}}"
    found = coverage(parse(f"a: {figure}\nb: {{source: book, units: 4, deep: {figure}}}".encode(), "f"))
    assert found.total == 9 and found.kinds == {kind: 8, "source": 1}
    wanted = {"assumed": (1, 0, 8)}.get(kind, (9, 0, 0) if source else (1, 8, 0))
    assert (found.sourced, found.derived, found.assumed) == wanted


def test_a_file_of_placeholders_has_no_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert root.run(["platforms", "new", "my-board", "-q"]) == 0
    assert root.run(["platforms", "check", "my-board"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    total = int(re.search(r"of (\d+) numbers 0 have a source, (\d+) are assumed", said)[1])  # type: ignore[index]
    assert f"{total} are assumed" in said and total > 40


def test_what_a_shipped_board_assumes_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert root.run(["platforms", "check", "jetson-agx-orin-64gb", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["numbers"]
    text = (CHECKOUT / "platforms" / "jetson-agx-orin-64gb.yaml").read_text(encoding="utf-8")
    assert counts["assumed"] > text.count("kind: assumed") > 20 and counts["sourced"] > 100
    assert counts["kinds"]["assumed"] == counts["assumed"]


def test_all_uncovered_numbers_are_reported_with_their_place() -> None:
    with pytest.raises(DescriptorError) as caught:
        require_grounds(parse(PIPELINE.encode(), "small.yaml"))
    lines = PIPELINE.splitlines()
    assert [f.field for f in caught.value.findings if "period" in f.field] == [
        "sensors.lidar.period", "sensors.camera.period", "stages.control.period",
    ]  # fmt: skip
    for finding in caught.value.findings:
        assert lines[finding.line - 1][finding.column - 1].isdigit(), finding


def test_strict_check_is_a_switch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(replaced(PIPELINE, "    model: pointpillars.backbone\n", COST))
    assert root.run(["pipelines", "check", str(path)]) == 0
    assert "4 have neither (--strict lists them)" in capsys.readouterr().out
    assert root.run(["pipelines", "check", "--strict", str(path)]) == 2
    assert f"{path}:7:" in capsys.readouterr().err


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_number_we_ship_has_grounds(path: Path) -> None:
    found = require_grounds(read(path))
    assert found.total > 0 and not found.uncovered
