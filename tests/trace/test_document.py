"""result.json conforms to its types, whether made from a trace, from totals or from a run."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

import socsched as ss
from socsched.trace.io import ResultDocument


@pytest.mark.parametrize("record", [True, False])
def test_results_have_the_documented_fields(record: bool) -> None:
    plan = ss.plan("pointpillars-s", "jetson-agx-orin-64gb", "MAXN", refine=False, explain=False)
    figures = dict(ss.simulate(plan, "1s", record=record).figures)
    checked = TypeAdapter(ResultDocument).validate_python(figures, strict=True)
    assert checked == figures
    assert set(figures) <= set(ResultDocument.__annotations__)
