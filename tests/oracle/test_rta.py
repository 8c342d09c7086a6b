"""A sample of tools/verify/rta.py: bounds equal those of analyses verified in PROSA, or differ for a known reason."""

from __future__ import annotations

import pytest


@pytest.mark.needs("response-time-analysis")
def test_bounds_agree_with_the_verified_analyses() -> None:
    from tools.verify import rta
    from tools.verify.cases import Tally

    found: set[str] = set()
    for name in rta.MODELS:
        tally = Tally()
        for number in range(20):
            tally.add(rta.check(name, f"{name}/0/{number}"))
        assert tally.faults == []
        found |= {model for model, _, kind in tally.counts["comparisons"] if kind in ("equal", "in range")}
    assert found == set(rta.MODELS)
