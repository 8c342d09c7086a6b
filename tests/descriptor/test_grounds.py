"""Every number of a descriptor states its source, or is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from descriptor_samples import PIPELINE, PLATFORM, replaced

from socsched.cli import root
from socsched.descriptor.provenance import coverage, require_grounds
from socsched.descriptor.source import parse
from socsched.errors import DescriptorError

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
    assert found.total == found.figures + found.sourced + found.assumed + len(found.uncovered)
    assert found.figures > 20 and found.uncovered


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
    from socsched.descriptor.source import read

    found = require_grounds(read(path))
    assert found.total > 0 and not found.uncovered
