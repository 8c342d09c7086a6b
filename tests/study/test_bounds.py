"""Exact bounds of shares, against exact arithmetic and published values."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.study import bounds


def exact_at_most(k: int, n: int, p: Fraction) -> Fraction:
    """P(X <= k) in whole numbers: no rounding anywhere."""
    return sum((comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)), Fraction(0))


@settings(max_examples=60)
@given(st.integers(1, 60), st.data(), st.integers(1, 999))
def test_tails_are_those_of_exact_arithmetic(n: int, data: st.DataObject, thousandths: int) -> None:
    k, p = data.draw(st.integers(0, n)), Fraction(thousandths, 1000)
    below = exact_at_most(k, n, p)
    assert bounds.at_most(k, n, float(p)) == pytest.approx(float(below), rel=1e-9, abs=1e-15)
    above = 1 - exact_at_most(k - 1, n, p) if k else Fraction(1)
    assert bounds.at_least(k, n, float(p)) == pytest.approx(float(above), rel=1e-9, abs=1e-15)


@settings(max_examples=40)
@given(st.integers(1, 80), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
def test_ends_of_the_interval_leave_exactly_the_tail(n: int, data: st.DataObject, confidence: float) -> None:
    k = data.draw(st.integers(0, n))
    low, high = bounds.interval(k, n, confidence)
    tail = (1 - confidence) / 2
    assert 0 <= low <= k / n <= high <= 1
    if k < n:
        assert float(exact_at_most(k, n, Fraction(high))) == pytest.approx(tail, rel=1e-6)
    if k > 0:
        assert float(1 - exact_at_most(k - 1, n, Fraction(low))) == pytest.approx(tail, rel=1e-6)


def test_published_intervals() -> None:
    """Clopper-Pearson at 95 %: 1 of 10 and 5 of 20 from tables, 0 of n is 1 - 0.025^(1/n)."""
    assert bounds.interval(1, 10, 0.95) == pytest.approx((0.0025, 0.4450), abs=5e-5)
    assert bounds.interval(5, 20, 0.95) == pytest.approx((0.0866, 0.4910), abs=5e-5)
    assert bounds.interval(0, 100, 0.95) == pytest.approx((0.0, 1 - 0.025**0.01))
    assert bounds.interval(0, 0, 0.95) == (0.0, 1.0)


def test_large_counts_are_fast_and_agree_with_the_normal_limit() -> None:
    low, high = bounds.interval(30_000, 10_000_000, 0.95)
    spread = 1.959964 * (0.003 * 0.997 / 1e7) ** 0.5
    assert (low, high) == pytest.approx((0.003 - spread, 0.003 + spread), rel=1e-4)


def test_a_verdict_settles_when_the_interval_leaves_the_limit() -> None:
    limit, confidence = 0.01, 0.99
    enough = next(n for n in range(1, 2000) if bounds.interval(0, n, confidence)[1] <= limit)
    assert bounds.compare_with_limit(0, enough - 1, limit, confidence) == "open"
    assert bounds.compare_with_limit(0, enough, limit, confidence) == "holds"
    assert bounds.compare_with_limit(0, enough, limit, confidence, looks=10) == "open", (
        "each look has a part of the error"
    )
    assert bounds.compare_with_limit(50, 1000, limit, confidence) == "fails"
    assert bounds.compare_with_limit(10, 1000, limit, confidence) == "open"
    assert bounds.compare_with_limit(0, 10**9, 0.0, confidence) == "open", "that nothing is ever missed cannot be shown"
    assert bounds.compare_with_limit(1, 10, 0.0, confidence) == "fails"


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_looking_often_errs_no_more_than_promised(seed: int) -> None:
    """At a true share equal to the limit, either verdict is wrong: 1 - confidence bounds how often one is given."""
    from random import Random

    rng, wrong, trials = Random(seed), 0, 60
    for _ in range(trials):
        k = n = 0
        for _ in range(5):
            n += 200
            k += sum(rng.random() < 0.05 for _ in range(200))
            if bounds.compare_with_limit(k, n, 0.05, 0.9, looks=5) != "open":
                wrong += 1
                break
    # 60 trials at 10 %: 18 or more has a probability of 2e-5
    assert wrong < 18


def test_clusters_widen_the_interval_and_independence_does_not() -> None:
    together = [(100, 100), *[(0, 100)] * 99]
    alone = [(1, 100)] * 100
    low, high, effect = bounds.cluster_interval(together, 0.95)
    assert effect == pytest.approx(100 * 100 / 100 * 1.0, rel=0.05)
    assert bounds.cluster_interval(alone, 0.95) == (*bounds.interval(100, 10_000, 0.95), 1.0)
    assert low < bounds.interval(100, 10_000, 0.95)[0] and high > bounds.interval(100, 10_000, 0.95)[1]
