"""``result.json`` against worked examples."""

from __future__ import annotations

import json
from fractions import Fraction
from math import comb

import pytest
import reference_metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from random_traces import recorded

from socsched.planning.plan import ChainResult, Plan
from socsched.sim.simulate import simulate
from socsched.trace import metrics
from socsched.trace.metrics import _summary, frame_fates, result
from socsched.trace.scenario import CONSTANT, SINGLE, Measured, discardable, passes, queries_needed
from socsched.trace.trace import Instant, Job, Slice, Trace
from tests.sim.builders import chain, engine, plan, sensor, task

NONE = {"mean": None, "p50": None, "p99": None, "p99_9": None, "max": None}


def test_fields_are_those_of_the_format() -> None:
    stage = task("t", 3, after=("s",), period_ns=10)
    made = plan([stage], sensors=[sensor("s", 10)], chains=[chain("c", ("s", "t"), 5)])
    trace = simulate(made, 100, seed=4)
    figures = result(trace, made)
    stats = {"mean": 3, "p50": 3, "p99": 3, "p99_9": 3, "max": 3}
    assert figures == {
        "schema_version": "1",
        "kind": "simulated",
        "duration_ns": 100,
        "chains": {
            "c": {
                "released": 10,
                "completed": 10,
                "missed": 0,
                "dropped": 0,
                "stale": 0,
                "response_time_ns": stats,
                "data_age_ns": {"p50": 3, "p99": 3, "max": 3},
            }
        },
        "stages": {
            "t": {
                "jobs": 10,
                "exec_ns": {"mean": 3, "p50": 3, "p99": 3, "max": 3},
                "blocking_ns": 0,
                "preemptions": 0,
            }
        },
        "engines": {"cpu": {"utilization": 0.3, "energy_mj": 0.0, "busy_ns": 30}},
        "power_mw": {"mean": 0.0, "peak": 0.0},
        "energy_mj": 0.0,
        "bandwidth_gbps": {"mean": 0.0, "peak": 0.0},
        "seed": 4,
    }
    assert json.dumps(result(simulate(made, 100, seed=4), made)) == json.dumps(figures), "in the same order"


def test_multi_rate_chain_by_hand() -> None:
    """A detector every 100 that takes 30, sampled by a controller every 40 from 10 on that takes 5.

    Frame 0 is out at 30 and first sampled at 50, done 55: reaction 55.  Frame 1: out at 130, sampled at 130 (a
    completion comes before a start at the same instant), done 135: 35.  Frame 2: out at 230, sampled at 250: 55.
    Ages: from 55 to 215 jobs use frames 0 0 (55, 95), 1 1 1 (135, 175, 215) and 2 ... at 255, 295.
    """
    tasks = [
        task("detect", 30, after=("s",), period_ns=100, deadline_ns=100),
        task("control", 5, period_ns=40, offset_ns=10, reads=("detect",), lanes=(1,)),
    ]
    required = chain("c", ("s", "detect", "control"), 50)
    made = plan(tasks, [engine(lanes=2)], sensors=[sensor("s", 100)], chains=[required])
    trace = simulate(made, 300)
    figures = result(trace, made)["chains"]["c"]
    assert frame_fates(trace, made, made.chains[0]).response_ns.tolist() == [55, 35, 55]
    assert figures["missed"] == 2
    assert figures["response_time_ns"] == {"mean": 48, "p50": 55, "p99": 55, "p99_9": 55, "max": 55}
    # ages 55 95 | 35 75 115 | 55 95
    assert figures["data_age_ns"] == {"p50": 75, "p99": 115, "max": 115}


def hand_made(**changes: object) -> Trace:
    jobs = [
        Job("t", 0, 0, 50, start_ns=0, finish_ns=40, exec_ns=40, status="done"),
        Job("t", 1, 100, 150, start_ns=110, finish_ns=160, exec_ns=50, blocking_ns=10, preemptions=2, status="done"),
        Job("t", 2, 200, 250, status="dropped"),
        Job("t", 3, 300, 350, start_ns=300, exec_ns=45),
        Job("t", 4, 345, 395),
    ]
    slices = [Slice("cpu", (0, 1), 0, "t", 0, 40), Slice("cpu", (0,), 1, "t", 110, 160)]
    return Trace("measured", 350, 0, jobs, slices, releases={"s": [0, 100, 200, 300, 345]}, **changes)  # type: ignore[arg-type]


MADE = plan(
    [task("t", 40, after=("s",))],
    [engine(lanes=2, idle_mw=10, dynamic_mw=100)],
    sensors=[sensor("s", 100)],
    chains=[chain("c", ("s", "t"), 50)],
)


def test_late_lost_open_and_pending_frames_are_distinguished() -> None:
    figures = result(hand_made(), MADE)
    assert figures["chains"]["c"] == {
        "released": 5,
        "completed": 2,
        "missed": 2,  # frame 1 was late, frame 3 unfinished at its deadline; frame 4 has until 395
        "dropped": 1,
        "stale": 0,
        "response_time_ns": {"mean": 50, "p50": 40, "p99": 60, "p99_9": 60, "max": 60},
        "data_age_ns": {"p50": 40, "p99": 60, "max": 60},
    }
    exec_ns = {"mean": 45, "p50": 40, "p99": 50, "max": 50}
    assert figures["stages"]["t"] == {"jobs": 2, "exec_ns": exec_ns, "blocking_ns": 10, "preemptions": 2}
    busy = 2 * 40 + 50
    assert figures["engines"]["cpu"]["busy_ns"] == busy
    assert figures["engines"]["cpu"]["utilization"] == round(busy / 700, 6)
    assert figures["engines"]["cpu"]["energy_mj"] == round((10 * 350 + 100 * busy / 2) / 1e9, 6)


@pytest.mark.parametrize(("deadline_ns", "missed"), [(40, 2), (39, 3)])
def test_finishing_at_the_deadline_is_in_time(deadline_ns: int, missed: int) -> None:
    required = chain("c", ("s", "t"), deadline_ns)
    jobs = hand_made().jobs
    trace = Trace("measured", 350, 0, jobs, releases={"s": [0, 100, 200, 300, 345]})
    assert frame_fates(trace, MADE, required).missed.sum() == missed


def test_a_frame_lost_at_the_sensor_counts_as_dropped() -> None:
    trace = hand_made(instants=[Instant(300, "drop", "s", 3, "lost")])
    assert result(trace, MADE)["chains"]["c"]["dropped"] == 2


def test_power_and_bandwidth_without_counters_are_unknown() -> None:
    figures = result(hand_made(), MADE)
    assert figures["energy_mj"] is None
    assert figures["power_mw"] == figures["bandwidth_gbps"] == {"mean": None, "peak": None}


def test_counters_are_integrated_as_steps() -> None:
    trace = hand_made()
    trace.counters = {"power_mw": [(50, 1000.0), (100, 3000.0), (100, 9e9), (100, 2000.0), (400, 7e9)]}
    figures = result(trace, MADE)
    # 1000 mW up to 100 (the first reading also holds for the time before it), 2000 mW up to the end at 350.
    assert figures["energy_mj"] == round((1000 * 100 + 2000 * 250) / 1e9, 6)
    assert figures["power_mw"] == {"mean": round((100_000 + 500_000) / 350, 6), "peak": 2000.0}


def test_nothing_done_gives_null_statistics() -> None:
    trace = Trace("simulated", 10, 0, releases={"s": []})
    assert result(trace, MADE)["chains"]["c"]["response_time_ns"] == NONE


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=300))
def test_percentiles_are_nearest_rank(values: list[int]) -> None:
    found = _summary(values, ("mean", "p50", "p99", "p99_9", "max"))
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999)):
        value = found[name]
        assert value in values
        assert sum(v <= value for v in values) >= share * len(values) - 1e-9
        smaller = [v for v in values if v < value]
        assert len(smaller) < share * len(values)
    assert found["max"] == max(values)
    assert found["mean"] == pytest.approx(sum(values) / len(values), abs=0.5)


# Figures from columns equal those computed record by record, to the byte.


def same(trace: Trace, made: Plan) -> None:
    expected, found = reference_metrics.result(trace, made), metrics.result(trace, made)
    assert json.dumps(found) == json.dumps(expected)
    for required in made.chains:
        fates = metrics.frame_fates(trace, made, required)
        plain = reference_metrics.frame_fates(trace, made, required)
        assert fates.finish_ns.tolist() == [fate.finish_ns for fate in plain]
        assert fates.dropped.tolist() == [fate.dropped for fate in plain]
        assert fates.missed.tolist() == [fate.missed for fate in plain]


@settings(max_examples=200)
@given(recorded())
def test_random_traces(drawn: tuple[Plan, Trace]) -> None:
    made, trace = drawn
    same(trace, made)


@pytest.mark.parametrize("seed", range(6))
def test_a_simulation_with_sampled_links_conversions_and_losses(seed: int) -> None:
    tasks = [
        task("net", 7, after=("lidar",), period_ns=10, queue=seed % 3, lanes=(0, 1)),
        task("net->track", 2, kind="conversion", after=("net",), period_ns=10),
        task("track", 3, reads=("net->track", "camera"), period_ns=15, offset_ns=seed),
        task("fuse", 3 + seed, after=("camera",), reads=("track",), period_ns=12, queue=1, lanes=(1,)),
        task("act", 1, reads=("fuse",), period_ns=7),
    ]
    sensors = [sensor("lidar", 10, jitter_ns=4), sensor("camera", 12, jitter_ns=5)]
    paths = [("lidar", "net", "track", "fuse", "act"), ("camera", "track", "fuse"), ("camera", "fuse"), ("act",)]
    chains = [chain(f"c{i}", path, 40) for i, path in enumerate([*paths, ("lidar", "net")])]
    made = plan(tasks, [engine(lanes=2, dynamic_mw=37, idle_mw=3)], sensors=sensors, chains=chains)
    trace = simulate(made, 3000, seed=seed)
    assert {job.status for job in trace.jobs} >= {"done"} and any(job.sampled for job in trace.jobs)
    same(trace, made)


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
