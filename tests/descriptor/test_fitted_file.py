"""The section `fitted` of a precision: what is read, and where faults are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from descriptor_samples import PLATFORM, findings, replaced

from socsched.descriptor.fields import form_of
from socsched.descriptor.fit import NAMES, Fit, Parameters
from socsched.descriptor.platform_file import load_platform
from socsched.descriptor.provenance import coverage
from socsched.descriptor.source import read

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
