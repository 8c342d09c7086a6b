"""Fixtures made from `report_samples`."""

from __future__ import annotations

from typing import Any

import pytest
import report_samples

from socsched.planning.plan import Plan
from socsched.trace.trace import Trace


@pytest.fixture
def plan() -> Plan:
    """Return a feasible plan with two chains."""
    return report_samples.make_plan()


@pytest.fixture
def infeasible(plan: Plan) -> Plan:
    """Return the plan with a violated deadline."""
    return report_samples.make_infeasible(plan)


@pytest.fixture
def trace(plan: Plan) -> Trace:
    """Return a trace of twenty frames, one of them late."""
    return report_samples.build_trace(plan)


@pytest.fixture
def result() -> dict[str, Any]:
    """Return a result document in the layout of result.json."""
    return report_samples.make_result()
