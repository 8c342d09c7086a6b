"""MLPerf's scenarios: early stopping against exact arithmetic and published logs, logs against LoadGen itself."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from math import comb
from pathlib import Path

import pytest

from socsched.planning.plan import ChainResult
from socsched.trace.scenario import CONSTANT, SINGLE, Measured, _detail, _summary, discardable, passes, queries_needed
from socsched.trace.trace import Trace

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
    return Measured(scenario, CHAIN, (*good, *late), lost, queries * 100 * MS, queries * 100 * MS + 40 * MS, 10.0)


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
    assert f"Result is : {'VALID' if valid else 'INVALID'}" in list(_summary(found, "x"))


def test_percentile_and_estimate() -> None:
    found = run(CONSTANT, 20_000, 10)
    document = found.document()
    assert document["p99_9_ns"] == found.latencies[19_980]
    assert document["p99_9_estimate_ns"] == found.latencies[20_000 - discardable(20_000, 0.999)]
    assert document["p99_9_estimate_ns"] > document["p99_9_ns"]
    assert (document["over_deadline"], document["frames_needed"]) == (10, queries_needed(10, 0.999))
    assert run(SINGLE, 10, 0, 1).at(0.99) is None
    missing = queries_needed(1, 0.999) - 5000
    text = "\n".join(_summary(run(CONSTANT, 5000, 1), "x"))
    assert f"Would need to run at least {missing} more queries" in text


@pytest.mark.needs("MLPerf LoadGen")
def test_logs_have_the_form_of_loadgens(tmp_path: Path) -> None:
    """LoadGen measures a program that answers at once; both logs then differ in figures only."""
    import mlperf_loadgen as loadgen

    def issue(samples: list[object]) -> None:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(one.id, 0, 0) for one in samples])

    settings = loadgen.TestSettings()
    settings.scenario, settings.mode = loadgen.TestScenario.SingleStream, loadgen.TestMode.PerformanceOnly
    settings.min_query_count = settings.max_query_count = 12_000
    settings.min_duration_ms = 0
    settings.single_stream_target_latency_percentile = 0.999
    logs = loadgen.LogSettings()
    logs.log_output.outdir, logs.log_output.copy_summary_to_stdout = str(tmp_path), False
    tested = loadgen.ConstructSUT(issue, lambda: None)
    library = loadgen.ConstructQSL(10, 10, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(tested, library, settings, logs)
    theirs = (tmp_path / "mlperf_log_summary.txt").read_text(encoding="utf-8").splitlines()
    ours = list(_summary(run(SINGLE, 12_000), "PySUT"))
    for sign in ("Processed", "discard"):
        assert [line for line in theirs if sign in line] == [line for line in ours if sign in line]

    def form(line: str) -> str:
        return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", line)

    left = [form(line) for line in theirs if not re.match(r"\S*(seed|accuracy|print|issue|sample_count)\S* :", line)]
    shown = [line for line in left if "warning" not in line]
    assert [form(line) for line in ours if "warning" not in line] == shown

    lines = (tmp_path / "mlperf_log_detail.txt").read_text(encoding="utf-8").splitlines()
    known = [json.loads(line.removeprefix(":::MLLOG ")) for line in lines]
    keys = [entry["key"] for entry in known]
    trace = Trace("measured", 0, 0)
    written = [key for key, _ in _detail(run(SINGLE, 12_000), "x", trace)]
    results = [key for key in keys if key.startswith(("result_", "early_"))]
    assert [key for key in written if key.startswith(("result_", "early_"))] == results
    assert {key for key in written if key.startswith("effective")} <= set(keys)
