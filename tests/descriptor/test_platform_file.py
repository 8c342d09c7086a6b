"""Platform files: accepted values, and every kind of error with the exact position and text of its finding."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from descriptor_samples import PLATFORM, findings, replaced

from socsched.descriptor.operator_rules import OperatorRule
from socsched.descriptor.platform import EngineMode, Figure, Preemption
from socsched.descriptor.platform_file import load_platform, platform_from_mapping
from socsched.descriptor.source import parse
from socsched.errors import DescriptorError


def test_sample_is_read(tmp_path: Path) -> None:
    (tmp_path / "board.yaml").write_text(PLATFORM)
    platform = load_platform(tmp_path / "board.yaml")
    assert [engine.id for engine in platform.engines] == ["cpu0", "cpu1"]
    engine = platform.engine("cpu1")
    assert engine.clock_hz == Figure(2e9, "published", "book")
    assert engine.dynamic_mw == Figure(4000, "measured", "book", error=0.1)
    assert engine.preemption == Preemption("full", Figure(5000, "assumed", note="a guess"))
    assert engine.precisions["fp32"].efficiency["default"].value == 0.02
    assert engine.operators.host_code
    assert engine.operators.allowed == {"conv2d": (OperatorRule("conv2d", {"kernel_h": (1, 32)}, ("fp32",)),)}
    assert platform.dram.size.value == 8 * 2**30 and platform.dram.picojoule_per_byte.value == 40
    assert platform.thermal["throttle"].value == 99.5
    low = platform.mode("low")
    assert low.cap_mw == Figure(10_000, "published", "book") and platform.mode().name == "MAX"
    assert platform.mode("FULL").cap_mw is None
    assert low.engines["cpu0"] == EngineMode(2, 10**9, Figure(1000, "assumed", note="a guess"))
    assert low.engines["cpu1"].units == 0 and low.engines["cpu1"].dynamic_mw.value == 0
    assert set(platform.mode("MAX").engines) == {"cpu0", "cpu1"}, "a group's setting holds for each of its engines"


def test_mapping_is_read_and_checked_like_a_file(tmp_path: Path) -> None:
    (tmp_path / "board.yaml").write_text(PLATFORM)
    data = parse(PLATFORM.encode(), "f").data
    data["engines"]["cpu"]["operators"]["allowed"]["conv2d"]["limits"]["kernel_h"] = (1, 32)
    built = platform_from_mapping(data, "built")
    assert dataclasses.replace(built, file="") == dataclasses.replace(load_platform(tmp_path / "board.yaml"), file="")
    data["engines"]["cpu"]["convertz"] = 3
    with pytest.raises(
        DescriptorError, match=r"^built:1:1: engines.cpu.convertz: unknown field; did you mean 'converts'\?$"
    ):
        platform_from_mapping(data, "built")


def test_engine_setting_goes_before_its_groups(tmp_path: Path) -> None:
    text = replaced(PLATFORM, "      cpu1: {units: 0}\n", "      cpu: {units: 0}\n")
    (tmp_path / "board.yaml").write_text(text)
    low = load_platform(tmp_path / "board.yaml").mode("LOW")
    assert [low.engines[name].units for name in ("cpu0", "cpu1")] == [2, 0]


CASES = [
    # structure
    ("vendor: acme\n", "", ["1:1: vendor: required field is missing; expected manufacturer"]),
    ("    shares: unit\n", "", [
        "15:3: engines.cpu.shares: required field is missing; expected a job occupies some units, or the engine"
        " as a whole",
    ]),
    ("    converts: true", "    convert: true", ["33:5: engines.cpu.convert: unknown field; did you mean 'converts'?"]),
    ("    converts: true", "    converts: yes", ["33:15: engines.cpu.converts: expected true or false, got 'yes'"]),
    ("    converts: true", "    converts: on", ["33:15: engines.cpu.converts: expected true or false, got 'on'"]),
    ("    converts: true", "    converts: 1", ["33:15: engines.cpu.converts: expected true or false, got 1"]),
    ("    count: 2", "    count: 0", [
        "18:12: engines.cpu.count: expected a number not below 1, got 0",
    ]),
    ("    units: 4\n", "    units: four\n", ["19:12: engines.cpu.units: expected a whole number, got 'four'"]),
    ("    shares: unit", "    shares: units", [
        "21:13: engines.cpu.shares: expected one of 'unit' or 'whole', got 'units'",
    ]),
    ("layout: NCHW16c", "layout: nchw", [
        "27:17: engines.cpu.precisions.fp32.layout: expected a layout: NCHW, NHWC or NCHW with a block of channels,"
        " such as NCHW16c, got 'nchw'",
    ]),
    ("      fp32:\n", "      fp31:\n", [
        "25:7: engines.cpu.precisions.fp31: expected one of 'fp32', 'fp16' or 'int8', got 'fp31'",
        "39:56: engines.cpu.operators.allowed.conv2d.dtypes[0]: unknown precision of this engine 'fp32';"
        " did you mean 'fp31'?",
    ]),
    ("kind: full", "kind: maybe", [
        "29:24: engines.cpu.preemption.kind: expected one of 'full', 'segment', 'none' or 'restart', got 'maybe'",
    ]),
    ("kind: full", "kind: segment", [
        "29:17: engines.cpu.preemption: segment preemption needs segment, the name of a segment (kernel,"
        " loadable, ...)",
    ]),
    # quantities and figures
    ("value: 2 GHz", "value: 2", [
        "22:20: engines.cpu.clock.value: expected a frequency such as '1.3 GHz': the unit is missing in '2'",
    ]),
    ("value: 2 GHz", "value: 2000", [
        "22:20: engines.cpu.clock.value: expected a frequency such as '1.3 GHz': the unit is missing in '2000'",
    ]),
    ("value: 20 GB/s", "value: 20 GBps", [
        "23:24: engines.cpu.bandwidth.value: expected a bandwidth such as '204.8 GB/s': unit 'GBps' is not one of"
        " B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s in '20 GBps'; did you mean 'GB/s'?",
    ]),
    ("value: 200 mW", "value: 200 mJ", [
        "34:19: engines.cpu.idle.value: expected a power such as '15 W': unit 'mJ' is not one of mW, W in '200 mJ'",
    ]),
    ("value: 200 mW", "value: -200 mW", [
        "34:19: engines.cpu.idle.value: expected a non-negative power, got '-200 mW'",
    ]),
    ("value: 40 pJ/B", "value: 40 pJ", [
        "11:19: dram.energy.value: expected an energy per byte such as '40 pJ/B':"
        " unit 'pJ' is not one of pJ/B, pJ/bit, nJ/B in '40 pJ'",
    ]),
    ("value: 99.5 C", "value: 99.5 F", [
        "13:21: thermal.throttle.value: expected a temperature such as '99 C': unit 'F' is not one of C in '99.5 F'",
    ]),
    ("value: 16,", "value: 0,", [
        "26:32: engines.cpu.precisions.fp32.ops_per_cycle.value: expected a number above 0, got 0",
    ]),
    ("value: 16,", "value: .nan,", [
        "26:32: engines.cpu.precisions.fp32.ops_per_cycle.value: expected a number, got '.nan'",
    ]),
    ("value: 0.6", "value: 1.6", [
        "28:36: engines.cpu.precisions.fp32.efficiency.conv.value: expected a number not above 1, got 1.6",
    ]),
    (", default: {value: 0.02, kind: assumed, note: guess}", "", [
        "28:21: engines.cpu.precisions.fp32.efficiency: expected default, the efficiency of operators without one of"
        " their own",
    ]),
    ("kind: measured, source: book}", "kind: measured, source: boko}", [
        "23:57: engines.cpu.bandwidth.source: unknown source 'boko'; did you mean 'book'?",
    ]),
    ("kind: measured, source: book}", "kind: measured}", [
        "23:16: engines.cpu.bandwidth: a measured figure needs source, a key of sources",
    ]),
    ("note: as others", "note: ' '", ["11:11: dram.energy: an assumed figure needs note, the reasoning behind it"]),
    ("note: 2 pipes x 4 lanes x 2", "source: book", [
        "26:24: engines.cpu.precisions.fp32.ops_per_cycle: a derived figure needs note, its formula",
    ]),
    ("source: book, error: 0.1", "source: book, error: 10 %", [
        "35:64: engines.cpu.dynamic.error: expected a number, got '10 %'",
    ]),
    # operators
    ("kernel_h: [1, 32]", "kernel_hh: [1, 32]", [
        "39:27: engines.cpu.operators.allowed.conv2d.limits.kernel_hh: unknown operator attribute 'kernel_hh';"
        " did you mean 'kernel_h'?",
    ]),
    ("kernel_h: [1, 32]", "kernel_h: [32, 1]", [
        "39:37: engines.cpu.operators.allowed.conv2d.limits.kernel_h: expected [smallest, largest], got 32 above 1",
    ]),
    ("kernel_h: [1, 32]", "kernel_h: [32]", [
        "39:37: engines.cpu.operators.allowed.conv2d.limits.kernel_h: expected a list or mapping, length at least 2,"
        " got a list",
    ]),
    ("dtypes: [fp32]", "dtypes: [int8]", [
        "39:56: engines.cpu.operators.allowed.conv2d.dtypes[0]: unknown precision of this engine 'int8'; expected one"
        " of fp32",
    ]),
    ("      host_code: true\n", "      source: boko\n", [
        "37:15: engines.cpu.operators.source: unknown source 'boko'; did you mean 'book'?",
    ]),
    # modes
    ("    default: true\n", "", ["41:1: modes: expected default: true in exactly one mode"]),
    ("    id: 1\n", "    id: 1\n    default: true\n", [
        "52:14: modes[1].default: expected one default mode, another one is marked above",
    ]),
    ("    id: 1\n", "    id: 0\n", ["51:9: modes[1].id: expected a unique mode number, 0 is taken"]),
    ("name: LOW", "name: Full", [
        "50:11: modes[1].name: expected a unique mode name, 'Full' is taken (case is ignored)",
    ]),
    ("      cpu1: {units: 0}\n", "", [
        "55:5: modes[1].engines: expected every engine of the platform, missing: cpu1",
    ]),
    ("      cpu1: {units: 0}\n", "      cpu1: {units: 0}\n      gpu: {units: 0}\n", [
        "58:7: modes[1].engines.gpu: unknown engine 'gpu'; did you mean 'cpu'?",
    ]),
    ("      cpu1: {units: 0}\n", "      cpu1: off\n", ["57:13: modes[1].engines.cpu1: expected a mapping, got 'off'"]),
    ("{units: 2, clock: 1 GHz", "{units: 5, clock: 1 GHz", [
        "56:21: modes[1].engines.cpu0.units: expected at most the 4 units of the engine, got 5",
    ]),
    ("{units: 2, clock: 1 GHz", "{units: 2, clock: 3 GHz", [
        "56:31: modes[1].engines.cpu0.clock: expected at most the engine's clock of 2 GHz",
    ]),
    ("{units: 2, clock: 1 GHz, ", "{units: 2, ", [
        "56:13: modes[1].engines.cpu0: an engine with units online needs clock",
    ]),
    ("value: 25 GB/s", "value: 60 GB/s", ["54:19: modes[1].dram.value: expected at most the memory's peak of 50 GB/s"]),
    ("value: 40 GB/s", "value: 60 GB/s", [
        "10:23: dram.achievable.value: expected at most the memory's peak of 50 GB/s",
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "expected"), CASES, ids=[f"{n}-{new[:24]!r}" for n, (_, new, _) in enumerate(CASES)]
)
def test_malformed(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    assert findings("platform", replaced(PLATFORM, old, new), tmp_path) == expected


def test_engines_of_the_same_id(tmp_path: Path) -> None:
    copy = (
        PLATFORM[PLATFORM.index("  cpu:\n") : PLATFORM.index("modes:")]
        .replace("cpu:", "cpu1:")
        .replace("    count: 2\n", "")
    )
    text = replaced(PLATFORM, "modes:\n", f"{copy}modes:\n")
    found = findings("platform", text, tmp_path)
    assert found[0] == "41:3: engines.cpu1: expected unique engine ids: 'cpu1' is already declared by 'cpu'"
