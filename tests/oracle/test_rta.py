"""A sample of tools/verify/rta.py: bounds equal those of analyses verified in PROSA, or differ for a known reason."""

from __future__ import annotations

import pytest


@pytest.mark.needs("response-time-analysis")
def test_bounds_agree_with_the_verified_analyses() -> None:
    from tools.verify import rta

    tally = rta.Tally()
    names = list(rta.MODELS)
    for number in range(20 * len(names)):
        name = names[number % len(names)]
        rta.check(name, f"{name}/test/{number}", tally)
    assert [key for key in tally.counts if "NOT EXPLAINED" in key[2]] == []
    assert tally.refuted == []
    assert {model for model, _, kind in tally.counts if kind in ("equal", "in range")} == set(names)
