"""Power at operating points, masks, ranges: the statements of files and the derived values."""

from __future__ import annotations

from pathlib import Path

import pytest
from descriptor_samples import PLATFORM, findings, replaced

from socsched.descriptor.platform import Gating, Platform
from socsched.descriptor.platform_file import load_platform

DYNAMIC = "    dynamic: {value: 4 W, kind: measured, source: book, error: 0.1}\n"
POINTS = """\
    dynamic_coefficient: {value: 400, kind: published, source: book}
    operating_points:
      {kind: published, source: book, points: [{clock: 1 GHz, voltage: 0.8 V}, {clock: 2 GHz, voltage: 1 V}]}
"""
MODE = "      cpu: {units: 4, clock: 2 GHz, dynamic: {value: 4 W, kind: assumed, note: a guess}}"
LOW = "      cpu0: {units: 2, clock: 1 GHz, dynamic: {value: 1 W, kind: assumed, note: a guess}}"


def load(text: str, folder: Path) -> Platform:
    path = folder / "board.yaml"
    path.write_text(text)
    return load_platform(path)


def test_power_follows_from_capacitance_voltage_and_clock(tmp_path: Path) -> None:
    text = replaced(replaced(PLATFORM, DYNAMIC, POINTS), MODE, "      cpu: {units: 4, clock: 2 GHz}")
    text = replaced(text, LOW, "      cpu0: {units: 2, clock: 1 GHz}")
    platform = load(text, tmp_path)
    # 400 uW/MHz/V^2 x 2000 MHz x 1 V^2 = 800 mW a core; at 1 GHz and 0.8 V: 256 mW
    assert platform.engine("cpu0").dynamic_mw.value == 4 * 800
    assert platform.mode("MAX").engines["cpu1"].dynamic_mw.value == 4 * 800
    low = platform.mode("LOW").engines["cpu0"].dynamic_mw
    assert low.value == 2 * 256 and low.kind == "derived" and low.source == "book" and "(0.8 V)^2" in low.note


def test_a_clock_between_points_takes_the_voltage_of_the_next(tmp_path: Path) -> None:
    text = replaced(replaced(PLATFORM, DYNAMIC, POINTS), LOW, "      cpu0: {units: 1, clock: 1.5 GHz}")
    assert load(text, tmp_path).mode("LOW").engines["cpu0"].dynamic_mw.value == 400 * 1500 / 1000


def test_power_of_points_comes_first_and_linear_scaling_last(tmp_path: Path) -> None:
    measured = "    operating_points: {kind: measured, source: book, points: [{clock: 1 GHz, power: 300 mW}]}\n"
    text = replaced(replaced(PLATFORM, DYNAMIC, DYNAMIC + measured), LOW, "      cpu0: {units: 2, clock: 1 GHz}")
    assert load(text, tmp_path).mode("LOW").engines["cpu0"].dynamic_mw.value == 600
    linear = load(replaced(PLATFORM, LOW, "      cpu0: {units: 2, clock: 1 GHz}"), tmp_path)
    figure = linear.mode("LOW").engines["cpu0"].dynamic_mw
    assert figure.value == 4000 * 2 / 4 * 1 / 2 and figure.error == 0.5 and "voltage is not known" in figure.note


def test_masks_gate_groups() -> None:
    # AGX Orin: eight TPCs of two SMs; the vendor's masks of its power modes
    orin = Gating(groups=8, units=2)
    assert [orin.online(mask, 16) for mask in (0, 128, 240, 248, 252, 255)] == [16, 14, 8, 6, 4, 0]
    xavier = Gating(groups=4, units=2)
    assert [xavier.online(mask, 8) for mask in (0, 5)] == [8, 4]
    assert Gating(8, 2).online(240, 8) == 8, "bits beyond what the chip has gate nothing more"


def test_masks_in_files(tmp_path: Path) -> None:
    text = replaced(PLATFORM, "    converts: true\n", "    converts: true\n    gating: {groups: 4, units: 1}\n")
    low = replaced(text, LOW, "      cpu0: {mask: 5, clock: 1 GHz}")
    assert load(low, tmp_path).mode("LOW").engines["cpu0"].units == 2
    assert (
        load(replaced(text, LOW, "      cpu0: {mask: 15, clock: 1 GHz}"), tmp_path).mode("LOW").engines["cpu0"].units
        == 0
    )


def test_a_range_alone_becomes_its_middle_and_half_its_width(tmp_path: Path) -> None:
    platform = load(replaced(PLATFORM, "{value: 20 GB/s, kind:", "{range: [10 GB/s, 30 GB/s], kind:"), tmp_path)
    figure = platform.engine("cpu0").bandwidth
    assert figure.value == 20e9 and figure.error == pytest.approx(0.5) and figure.interval == (10e9, 30e9)
    text = replaced(PLATFORM, "{value: 20 GB/s, kind:", "{value: 12 GB/s, range: [10 GB/s, 30 GB/s], kind:")
    figure = load(text, tmp_path).engine("cpu0").bandwidth
    assert figure.value == 12e9 and figure.error == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{value: 20 GB/s, kind:", "{kind:", "expected value, or range where only limits are known"),
        ("{value: 20 GB/s, kind:", "{range: [30 GB/s, 10 GB/s], kind:", "expected range as [lowest, highest]"),
        ("{value: 20 GB/s, kind:", "{value: 5 GB/s, range: [10 GB/s, 30 GB/s], kind:", "expected value within range"),
        (DYNAMIC, "", "expected dynamic, the power at full load"),
        (DYNAMIC, POINTS.replace("clock: 2 GHz", "clock: 3 GHz"), "expected at most the engine's clock of 2 GHz"),
        (DYNAMIC, POINTS.replace("clock: 1 GHz", "clock: 2 GHz"), "expected operating points by clock, slowest first"),
        (LOW, "      cpu0: {mask: 1, clock: 1 GHz}", "the engine declares no gating"),
        (LOW, "      cpu0: {clock: 1 GHz}", "expected units or mask, got neither"),
        (LOW, "      cpu0: {units: 1}", "an engine with units online needs clock"),
        (LOW, "      cpu0: {units: 1, clock: 1 GHz, dynamic: {value: 1 W, kind: derived}}", "needs note, its formula"),
    ],
)
def test_malformed(old: str, new: str, expected: str, tmp_path: Path) -> None:
    found = findings("platform", replaced(PLATFORM, old, new), tmp_path)
    assert any(expected in line for line in found), found
