"""Study files: every fault with its position, units in the names of columns, the shipped study."""

from __future__ import annotations

import pytest
from study_files import Writer

from socsched.descriptor.distribution import Distribution
from socsched.descriptor.study import load_study
from socsched.errors import DescriptorError, UsageError
from socsched.study.columns import column_of, columns, values
from socsched.study.inputs import gather
from socsched.study.sweep import configurations


@pytest.mark.parametrize(
    ("more", "parameters", "line", "message"),
    [
        ("", "  polcy: edf", 7, "unknown parameter 'polcy'; did you mean 'policy'"),
        ("", "  load: []", 7, "expected at least one value"),
        ("", "  load: [1, 1]", 7, "expected every value once"),
        ("", "  load: [1, fast]", 7, "expected values of one kind"),
        ("", "  load: {between: [2, 1], steps: 3}", 7, "expected ends in order"),
        ("", "  load: {between: [1, 2]}", 7, "expected steps"),
        ("", "  load: -1", 7, "expected at least 0.01"),
        ("", "  seed: 1.5", 7, "expected a whole number"),
        ("", "  objective: fastest", 7, "unknown objective 'fastest'"),
        ("", "  faults: nothing-there.yaml", 7, "nothing-there.yaml does not exist"),
        ("design: {kind: random}", "", 8, "expected points"),
        ("smallest: [price]", "", 8, "expected prices"),
        ("holds: {slack: 20}", "", 8, "expected a number below 1"),
        ("fleet: {vehicles: 9, ambient: 20 C}", "", 8, "expected thermal as well"),
        ("fleet: {vehicles: 9, load: {uniform: [2, 1]}}", "", 8, "ascending"),
        ("fleet: {vehicles: 9, load: {uniform: [-1, 1]}}", "", 8, "expected at least 0.01"),
        ("simulate: {duration: 10}", "", 8, "the unit is missing"),
    ],
)
def test_a_fault_is_reported_with_its_position(
    write: Writer, more: str, parameters: str, line: int, message: str
) -> None:
    with pytest.raises(DescriptorError) as caught:
        load_study(write(more, parameters))
    assert {finding.line for finding in caught.value.findings} == {line}
    assert message in str(caught.value)


def test_names_are_looked_up(write: Writer) -> None:
    path = write()
    path.write_text(path.read_text().replace("camera-detection", "camera-detektion"))
    with pytest.raises(DescriptorError, match=r"yaml:6:13: .*unknown pipeline .* 'camera-detection'"):
        load_study(path)
    with pytest.raises(UsageError, match="no study is called 'orin-mode'"):
        load_study("orin-mode")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("  platform.engines.gpu.clok.value: 1 GHz", "unknown field 'clok'"),
        ("  rate.lidar: 10", "unknown sensor or timer 'lidar'; expected one of camera"),
        ("  pipeline.stages.camera-detect.params.x.y: 1", "unknown field"),
    ],
)
def test_unknown_fields_are_reported_before_anything_runs(write: Writer, parameters: str, message: str) -> None:
    with pytest.raises(DescriptorError, match=message) as caught:
        gather(load_study(write(parameters=parameters)))
    assert caught.value.findings[0].line == 7


def test_columns_carry_units(write: Writer) -> None:
    fields = "  platform.dram.achievable.value: [60 GB/s, 87 GB/s]\n  rate.camera: 30\n  platform.engines.gpu.units: 8"
    study = load_study(write(parameters=fields))
    names = [column_of(parameter) for parameter in study.parameters]
    assert names[3:] == ["platform.dram.achievable.value_bytes_per_s", "rate.camera_hz", "platform.engines.gpu.units"]
    chosen = {parameter.name: parameter.values[0] for parameter in study.parameters}
    assert values(study, chosen) == dict(zip(names[3:], [60e9, 30.0, 8.0], strict=True))
    assert all(column.meaning for column in columns(study))


def test_the_shipped_study_asks_about_every_orin_and_every_mode() -> None:
    study = load_study("orin-modes")
    assert study.holds.slack == 0.2 and study.smallest[0] == "platform_tdp_mw"
    found = configurations(study)
    assert {(point.platform, point.mode) for point in found} >= {
        ("jetson-orin-nano-8gb", "7W"),
        ("jetson-orin-nx-16gb", "40W"),
        ("jetson-agx-orin-64gb", "MODE_50W"),
    }
    gather(study)


def test_distributions_are_drawn_between_their_quantiles() -> None:
    half = Distribution((0, 100, 1000))
    assert [half.at(n, 4) for n in range(4)] == [0, 50, 100, 550]
    assert Distribution.constant(7).at(3, 4) == 7
