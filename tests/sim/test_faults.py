"""The faults file: every fault in it is reported at once, and what is right arrives as written."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from builders import engine, plan, sensor, task

from socsched.errors import DescriptorError
from socsched.sim.faults import Dropout, Faults, Overrun, Slowdown, load_faults

PLAN = plan([task("head", 1, engine="gpu")], [engine("gpu")], sensors=[sensor("lidar", 100)])


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "dropouts: [{sensor: lidar, from: 2 s, until: 3 s}]\n"
        "slowdowns:\n  - {engine: gpu, from: 500 ms, until: 1 s, factor: 1.5}\n"
        "overruns: [{stage: head, probability: 0.01, factor: 2}]\n"
    )
    assert load_faults(file, PLAN) == Faults(
        (Dropout("lidar", 2 * 10**9, 3 * 10**9),),
        (Slowdown("gpu", 5 * 10**8, 10**9, Fraction(3, 2)),),
        (Overrun("head", Fraction(1, 100), Fraction(2)),),
    )


def test_json_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "faults.json"
    file.write_text('{"dropouts": [{"sensor": "lidar", "from": "0 s", "until": "1 ms"}]}')
    assert load_faults(file, PLAN) == Faults(dropouts=(Dropout("lidar", 0, 10**6),))


def test_every_finding_is_reported_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "dropouts:\n"
        "  - {sensor: radar, from: 2 s, until: 1}\n"
        "  - {sensor: lidar, from: 2 s, until: 1 s}\n"
        "slowdowns: 7\n"
        "overruns:\n"
        "  - {stage: head, probability: 2, factr: 1}\n"
        "meteors: []\n"
    )
    with pytest.raises(DescriptorError) as caught:
        load_faults(file, PLAN)
    found = {(f.line, f.field) for f in caught.value.findings}
    assert found == {
        (2, "dropouts[0].sensor"),
        (2, "dropouts[0].until"),
        (3, "dropouts[1].until"),
        (4, "slowdowns"),
        (6, "overruns[0].probability"),
        (6, "overruns[0].factr"),
        (6, "overruns[0].factor"),
        (7, "meteors"),
    }
    assert "lidar" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "dropouts: [", "dropouts: [3]", "overruns: [{stage: [head]}]"])
def test_nonsense_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(text)
    with pytest.raises(DescriptorError):
        load_faults(file, PLAN)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptorError, match="readable"):
        load_faults(tmp_path / "none.yaml", PLAN)
