"""MLPerf's scenarios: early stopping against exact arithmetic and published logs."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest

from socsched.planning.plan import ChainResult
from socsched.trace.scenario import CONSTANT, SINGLE, Measured, discardable, passes, queries_needed

MS = 10**6
CHAIN = ChainResult("front", ("camera", "net"), 100 * MS, 50 * MS, 60 * MS, None, ())


def exact(queries: int, over: int, percentile: Fraction) -> bool:
    slow = 1 - percentile
    odds = sum(comb(queries, k) * slow**k * percentile ** (queries - k) for k in range(over + 1))
    return odds < Fraction(1, 100)


@pytest.mark.parametrize("percentile", [Fraction(9, 10), Fraction(99, 100), Fraction(1, 2)])
def test_odds_equal_those_of_exact_arithmetic(percentile: Fraction) -> None:
    for queries in (1, 5, 43, 44, 63, 64, 200, 458, 459, 661, 662):
        for over in (0, 1, 2, 5, 20, 100):
            assert passes(queries, over, float(percentile)) == (over < queries and exact(queries, over, percentile))


@pytest.mark.parametrize(
    ("queries", "percentile", "discarded"),
    [(2048, 0.9, 172), (7469, 0.9, 685), (2145, 0.9, 181), (2116, 0.9, 178), (1_179_125, 0.99, 11_539)],
)
def test_discarded_queries_are_those_of_published_results(queries: int, percentile: float, discarded: int) -> None:
    """The figures are from summaries in the results repositories of MLPerf Inference."""
    assert discardable(queries, percentile) - 1 == discarded


def test_least_numbers_of_queries() -> None:
    assert [queries_needed(1, p) for p in (0.9, 0.99, 0.999)] == [64, 662, 6636]
    assert queries_needed(0, 0.99) == 459  # a published summary: 21 processed, 438 more needed
    assert discardable(6635, 0.999) == 0
    assert discardable(6636, 0.999) == 1
    for over in (0, 3, 17):
        least = queries_needed(over, 0.99)
        assert passes(least, over, 0.99) and not passes(least - 1, over, 0.99)


def run(scenario: str, queries: int, over: int = 0, lost: int = 0) -> Measured:
    good = [40 * MS + number for number in range(queries - over - lost)]
    late = [150 * MS + number for number in range(over)]
    return Measured(scenario, CHAIN, (*good, *late), lost)


@pytest.mark.parametrize(
    ("found", "valid"),
    [
        (run(CONSTANT, 4603), True),
        (run(CONSTANT, 4602), False),
        (run(CONSTANT, 6635, 1), False),
        (run(CONSTANT, 6636, 1), True),
        (run(CONSTANT, 20_000, 0, 1), False),
        (run(SINGLE, 6635), False),
        (run(SINGLE, 6636, 5), True),
        (run(SINGLE, 7000, 0, 1), False),
    ],
)
def test_validity(found: Measured, valid: bool) -> None:
    assert found.valid == valid
    assert found.document()["valid"] == valid


def test_percentile_and_estimate() -> None:
    found = run(CONSTANT, 20_000, 10)
    document = found.document()
    assert document["p99_9_ns"] == found.latencies[19_980]
    assert document["p99_9_estimate_ns"] == found.latencies[20_000 - discardable(20_000, 0.999)]
    assert document["p99_9_estimate_ns"] > document["p99_9_ns"]
    assert (document["over_deadline"], document["frames_needed"]) == (10, queries_needed(10, 0.999))
    assert run(SINGLE, 10, 0, 1).at(0.99) is None
