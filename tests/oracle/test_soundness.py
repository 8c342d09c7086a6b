"""A sample of tools/soundness.py: no observed response above a bound, over every family of systems."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
soundness: ModuleType = importlib.import_module("soundness")
FAMILIES = soundness.FAMILIES


@pytest.mark.parametrize("family", list(FAMILIES))
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_response_is_above_a_bound(family: str, seed: int) -> None:
    tally = soundness.check(FAMILIES[family](Random(seed)), 6, seed)
    assert tally.violations == []


def test_every_built_in_test_is_checked() -> None:
    """A test no family draws systems for would be sound by silence."""
    from socsched.plan.schedulability.published.registry import tests

    checked: set[str] = set()
    for family, make in FAMILIES.items():
        for number in range(40):
            analysis = soundness.analyse(make(Random(f"{family}/{number}")))
            for outcome in analysis.outcomes:
                if outcome.answer and (outcome.answer.bounds or outcome.answer.chain):
                    checked.add(outcome.test.name)
    # The utilisation test only says no; one simply adds to the WCET.
    assert {test.name for test in tests()} - checked == {"utilisation", "memory accesses in the WCET"}


def test_the_search_sees_an_unsound_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspension as jitter of S alone is known to be unsound: the search has to notice."""
    from socsched.plan.schedulability.published import suspension_jitter

    honest = suspension_jitter.rta_fp.classic
    wcet: dict[str, int] = {}

    def wrong(higher, late):  # type: ignore[no-untyped-def]
        return honest(higher, {name: min(value, wcet.get(name, 0)) for name, value in late.items()})

    monkeypatch.setattr(suspension_jitter.rta_fp, "classic", wrong)
    found: list[str] = []
    for seed in range(60):
        found += soundness.check(FAMILIES["self-suspension"](Random(seed)), 8, seed).violations
    assert any(line.startswith("suspension as jitter") for line in found)
