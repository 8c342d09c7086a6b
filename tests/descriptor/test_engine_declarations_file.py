"""Preemption, capacities and memories of engines in platform files: accepted values, errors with positions."""

from __future__ import annotations

from pathlib import Path

import pytest
from descriptor_samples import PLATFORM, findings

from socsched.descriptor.platform import Engine
from socsched.descriptor.platform_file import platform_from_mapping
from socsched.descriptor.source import parse

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
