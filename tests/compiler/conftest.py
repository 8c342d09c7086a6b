"""Fixtures: engines to compile for, and the recorded scans with the weights of their oracles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from recorded import Recorded

from socsched.descriptor.operator_rules import OperatorRules
from socsched.descriptor.platform import Engine, Figure, Precision, Preemption
from socsched.models.pointpillars.scan import read_scan
from socsched.models.weights import Weights, load_weights


@pytest.fixture(scope="session")
def make_engine() -> Callable[..., Engine]:
    """Return a factory of engines that differ in the fields compilation reads."""

    def make(
        target: Mapping[str, Any] | None = None,
        precisions: tuple[str, ...] = ("fp32",),
        operators: OperatorRules | None = None,
        id: str = "cpu",
    ) -> Engine:
        figure = Figure(1, "assumed")
        zero = Figure(0, "assumed")
        return Engine(
            id=id,
            kind=id,
            title=id,
            units=4,
            unit="core",
            shares="unit",
            clock_hz=figure,
            precisions={name: Precision(name, figure, "NCHW", {}) for name in precisions},
            bandwidth=figure,
            sram=None,
            preemption=Preemption("full", zero),
            launch_ns=zero,
            submit_ns=zero,
            handoff_ns=zero,
            converts=True,
            operators=operators or OperatorRules(host_code=True),
            idle_mw=zero,
            dynamic_mw=zero,
            target=target or {"kind": "llvm", "host": True},
        )

    return make


@pytest.fixture(scope="module")
def scans(recorded: Recorded) -> list[np.ndarray[Any, Any]]:
    return [read_scan(scan) for scan in recorded.scans]


@pytest.fixture(scope="module")
def weights(recorded: Recorded) -> Weights:
    return load_weights(recorded.weights)
