"""Platform files: accepted values, and every kind of error with the exact position and text of its finding.

Power at operating points, masks, ranges: the statements of files and the derived values.

Preemption, capacities and memories of engines in platform files: accepted values, errors with positions.

`platforms new`: a commented file that is valid unchanged and never overwrites another.

The section `fitted` of a precision: what is read, and where faults are found.

The operators named by rules exist: a rule with a misspelt name would never apply.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from descriptor_samples import PLATFORM, findings, replaced

from socsched.cli.root import run
from socsched.descriptor.fields import form_of
from socsched.descriptor.fit import NAMES, Fit, Parameters
from socsched.descriptor.operator_rules import OPERATORS, OperatorRule, load_rules
from socsched.descriptor.platform import Engine, EngineMode, Figure, Gating, Platform, Preemption
from socsched.descriptor.platform_file import load_platform, platform_from_mapping, write_skeleton
from socsched.descriptor.source import parse, read
from socsched.descriptor.validation import coverage
from socsched.errors import DescriptorError, UsageError
from socsched.graph.counting import ELEMENTWISE


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
    ("    converts: true", "    converts: yes", ["33:15: engines.cpu.converts: expected true or false, got 'yes'"]),
    ("    converts: true", "    converts: on", ["33:15: engines.cpu.converts: expected true or false, got 'on'"]),
    ("    converts: true", "    converts: 1", ["33:15: engines.cpu.converts: expected true or false, got 1"]),
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
    ("value: 200 mW", "value: -200 mW", [
        "34:19: engines.cpu.idle.value: expected a non-negative power, got '-200 mW'",
    ]),
    ("value: 99.5 C", "value: 99.5 F", [
        "13:21: thermal.throttle.value: expected a temperature such as '99 C': unit 'F' is not one of C in '99.5 F'",
    ]),
    # operators
    # modes
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
def test_malformed_operating_points(old: str, new: str, expected: str, tmp_path: Path) -> None:
    found = findings("platform", replaced(PLATFORM, old, new), tmp_path)
    assert any(expected in line for line in found), found


PREEMPTION = "preemption: {kind: full, cost: {value: 5 us, kind: assumed, note: a guess}}"


def with_preemption(text: str) -> str:
    assert PLATFORM.count(PREEMPTION) == 1
    return PLATFORM.replace(PREEMPTION, f"preemption: {{cost: {{value: 5 us, kind: assumed, note: a guess}}, {text}}}")


def with_field(text: str) -> str:
    return PLATFORM.replace(PREEMPTION, f"{PREEMPTION}\n    {text}")


def engine(text: str) -> Engine:
    return platform_from_mapping(parse(text.encode(), "f").data, "f").engines[0]


def test_declarations_are_read() -> None:
    guess = "kind: assumed, note: a guess"
    found = engine(with_preemption(f"kind: restart, reset: {{value: 40 us, {guess}}}")).preemption
    assert found.kind == "restart" and found.reset_ns is not None and found.reset_ns.value == 40_000
    found = engine(
        with_preemption(f"kind: segment, segment: k, in_flight: 4, migration: {{value: 1 us, {guess}}}")
    ).preemption
    assert found.in_flight == 4 and found.migration_ns is not None and found.migration_ns.value == 1000
    assert engine(with_field("quantum: 2 ms")).quantum_ns == 2_000_000
    assert engine(with_field("capacities: [512, 512, 1024, 1024]")).capacities == (512, 512, 1024, 1024)
    weights = engine(
        with_field(f"weights: {{size: {{value: 4 MiB, {guess}}}, swap: {{value: 1 GB/s, {guess}}}}}")
    ).weights
    assert weights is not None and (weights.size.value, weights.swap.value) == (4 * 2**20, 10**9)
    regrouping = engine(with_field(f"reconfigure: {{value: 1 ms, {guess}}}")).reconfigure_ns
    assert regrouping is not None and regrouping.value == 10**6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (with_preemption("kind: restart"), "engines.cpu.preemption: restart preemption needs reset"),
        (with_preemption("kind: full, in_flight: 2"), "preemption.in_flight: in_flight belongs to kind segment"),
        (with_preemption("kind: segment, segment: k, in_flight: 0"), "preemption.in_flight: expected a number not"),
        (with_field("capacities: [1024]"), "engines.cpu.capacities: expected one capacity for each of the 4 units"),
        (with_field("capacities: [512, 512, 512, 512]"), "engines.cpu.capacities: expected 1024"),
        (with_field("capacities: [2048, 1024, 1, 1]"), "capacities[0]: expected a number not above"),
        (with_field("quantum: 3"), "engines.cpu.quantum: expected a duration"),
        (with_field("weights: {}"), "engines.cpu.weights.size: required field is missing"),
    ],
)  # fmt: skip
def test_invalid_values_are_reported_with_their_position(tmp_path: Path, text: str, expected: str) -> None:
    found = findings("platform", text, tmp_path)
    assert any(expected in finding for finding in found), found


@pytest.mark.parametrize("name", ["my-board", "123", "true", "1.5"])
def test_the_skeleton_passes_the_strict_check(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["platforms", "new", name]) == 0
    file = tmp_path / "platforms" / f"{name}.yaml"
    assert run(["platforms", "check", str(file), "--strict"]) == 0, capsys.readouterr().err
    platform = load_platform(file)
    assert platform.name == name
    assert all(engine.clock_hz.kind == "assumed" for engine in platform.engines)
    assert file.read_text().count("placeholder") > 15


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_skeleton("a", file)
    assert file.read_text() == "mine"


@pytest.mark.parametrize("name", ["", "a b", "../a", "a\nb", "-a", "a" * 65, "ä"])
def test_names_that_no_platform_can_have_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be the name"):
        write_skeleton(name, tmp_path / "a.yaml")
    assert not list(tmp_path.iterdir())


PARAMETERS = ", ".join(f"{name}: {number / 4}" for number, name in enumerate(NAMES, 1))
SECTION = f"""\
        layout: NCHW16c
        fitted:
          - source: book
            networks: 7
            date: 2026-11-23
            error: 0.18
            interval: 0.35
            classes: [conv, pool]
            block: 32
            launch: 1 us
            submit: 75 us
            sram: 8 MiB
            taps: 0.8
            parameters: {{{PARAMETERS}}}
"""
FITTED = replaced(PLATFORM, "        layout: NCHW16c\n", SECTION)


def test_a_fit_is_read_with_its_evidence(tmp_path: Path) -> None:
    (tmp_path / "board.yaml").write_text(FITTED)
    fit = load_platform(tmp_path / "board.yaml").engine("cpu1").precisions["fp32"].fitted[0]
    parameters = Parameters(**{name: number / 4 for number, name in enumerate(NAMES, 1)})
    assert fit == Fit(
        parameters, 32, 1000, 75_000, 8.0 * 2**20, "book", 7, "2026-11-23", 0.18, 0.35, ("conv", "pool"), taps=0.8
    )


def test_its_numbers_rest_on_its_source(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(PLATFORM)
    (tmp_path / "board.yaml").write_text(FITTED)
    unsourced = replaced(FITTED, "          - source: book\n            networks", "          - networks")
    (tmp_path / "unsourced.yaml").write_text(unsourced)

    def uncovered(name: str) -> list[str]:
        return [number.key for number in coverage(read(tmp_path / name)).uncovered]

    assert uncovered("board.yaml") == uncovered("plain.yaml")
    assert {"block", "launch", "conv"} <= set(uncovered("unsourced.yaml"))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("source: book\n            networks", "source: bok\n            networks",
         "29:21: engines.cpu.precisions.fp32.fitted[0].source: unknown source 'bok'; did you mean 'book'?"),
        ("conv: 0.25, ", "",
         "40:25: engines.cpu.precisions.fp32.fitted[0].parameters.conv: required field is missing; expected share of"
         " the peak that a large convolution reaches"),
        ("conv: 0.25", "conv: 0",
         "40:32: engines.cpu.precisions.fp32.fitted[0].parameters.conv: expected a number above 0, got 0"),
        ("conv: 0.25", "convs: 0.25, conv: 0.25",
         "40:26: engines.cpu.precisions.fp32.fitted[0].parameters.convs: unknown field; did you mean 'conv'?"),
        ("[conv, pool]", "[conv, pools]",
         "34:29: engines.cpu.precisions.fp32.fitted[0].classes[1]: expected one of 'conv', 'pointwise', 'winograd',"
         " 'depthwise', 'grouped', 'gemm', 'matmul', 'pool', 'eltwise', 'copy', 'transpose', 'softmax', 'resize',"
         " 'pillars' or 'scatter', got 'pools'"),
        ("2026-11-23", "last autumn",
         "31:19: engines.cpu.precisions.fp32.fitted[0].date: expected a day such as 2026-11-23, got 'last autumn'"),
        ("submit: 75 us\n            sram", "submit: 75\n            sram",
         "37:21: engines.cpu.precisions.fp32.fitted[0].submit: expected a duration such as '10 ms': the unit is missing"
         " in '75'"),
        ("taps: 0.8", "joined: [cpu1, cpu9]",
         "39:28: engines.cpu.precisions.fp32.fitted[0].joined[1]: unknown engine 'cpu9'; did you mean 'cpu1'?"),
        ("block: 32", "block: 0",
         "35:20: engines.cpu.precisions.fp32.fitted[0].block: expected a number not below 1, got 0"),
    ],
)  # fmt: skip
def test_faults_are_found_where_they_are(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert findings("platform", replaced(FITTED, old, new), tmp_path) == [expected]


def test_the_file_has_every_parameter() -> None:
    assert tuple(form_of(Parameters).model_fields) == NAMES
    assert set(form_of(Fit).model_fields) >= {"parameters", "source", "networks", "error", "interval", "classes"}


@pytest.mark.parametrize(("right", "wrong"), [("conv2d", "conv2dd"), ("softmax", "soft_max")])
def test_a_misspelt_operator_is_found_with_the_right_name(
    right: str, wrong: str, checkout: Path, tmp_path: Path
) -> None:
    file = next(
        path for path in sorted((checkout / "platforms/rules").glob("*.yaml")) if f"\n  {right}:" in path.read_text()
    )
    broken = tmp_path / file.name
    broken.write_text(file.read_text().replace(f"\n  {right}:", f"\n  {wrong}:", 1))
    with pytest.raises(DescriptorError) as caught:
        load_rules(broken)
    assert f"unknown operator {wrong!r}" in str(caught.value) and right in str(caught.value)


def test_every_operator_that_networks_are_read_as_has_a_name_in_rules() -> None:
    from socsched.compiler.passes.relax_form import KINDS

    assert KINDS | ELEMENTWISE <= OPERATORS
