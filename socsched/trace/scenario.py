"""MLPerf Automotive's scenarios for the chains of a run: percentile, early stopping, and LoadGen's log files.

A frame is a query of one sample.  `constant-stream`: frames at the sensor's rate, the percentile has to be within the
deadline.  `single-stream`: the next frame once the last one is answered, the percentile is the result.  Names, order
and formats of the logs are those of LoadGen (mlcommons/mlperf_automotive, `loadgen/results.cc`), so that its tools read
them; the percentile is the value at index n p of the sorted latencies, as there.  Unlike LoadGen's queries, frames can
be lost: they count as over the latency limit, and make a result invalid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from socsched import __version__
from socsched.files import write_file
from socsched.planning.plan import ChainResult, Plan
from socsched.trace.io import ScenarioDocument
from socsched.trace.metrics import frame_fates
from socsched.trace.trace import Trace

# MLPerf's early stopping: how sure a percentile of latencies is after so many queries.
#
# Of n independent queries each is slower than the p-quantile with probability 1 - p.  If t or fewer slow ones occur
# with a probability below 1 - c, the t-th highest latency bounds the p-quantile with confidence c (MLPerf Inference
# rules, appendix on early stopping; LoadGen, `early_stopping.cc`, with c = 0.99 and no tolerance).


CONFIDENCE = 0.99


def discardable(queries: int, percentile: float) -> int:
    """Return t: the t-th highest latency of `queries` is the estimate of the percentile; 0 if there are too few.

    As in LoadGen an estimate needs at least one query beyond it, so 1 is the least number that allows one.
    """
    allowed = 1 - CONFIDENCE
    most = sum(1 for _ in takewhile(lambda odds: odds < allowed, _odds(queries, percentile))) - 1
    return max(most, 0)


def passes(queries: int, over: int, percentile: float) -> bool:
    """Return whether `over` slow queries of `queries` show the percentile to be within the limit."""
    if over >= queries:
        return False
    for slow, odds in enumerate(_odds(queries, percentile)):
        if odds >= 1 - CONFIDENCE:
            return False
        if slow == over:
            return True
    return False


def queries_needed(over: int, percentile: float) -> int:
    """Return the least number of queries of which `over` may be slow."""
    low, high = over, over + 1
    while not passes(high, over, percentile):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle, over, percentile) else (middle, high)
    return high


def _odds(queries: int, percentile: float) -> Iterator[float]:
    """Yield the probability of at most 0, 1, 2 ... slow queries, each slow with probability 1 - percentile."""
    ratio = math.log1p(-percentile) - math.log(percentile)
    term, total = queries * math.log(percentile), 0.0
    for slow in range(queries + 1):
        total += math.exp(term)
        yield total
        if slow < queries:
            term += math.log((queries - slow) / (slow + 1)) + ratio


SINGLE, CONSTANT = "single-stream", "constant-stream"
SCENARIOS = (CONSTANT, SINGLE)
PERCENTILE = 0.999
"""Of MLPerf Automotive, both scenarios."""
LOGS = "mlperf"
SUMMARY, DETAIL = "mlperf_log_summary.txt", "mlperf_log_detail.txt"
_SHOWN = (0.5, 0.9, 0.95, 0.97, 0.99, 0.999)
_SECOND = 0.99
"""The percentile that LoadGen estimates in addition."""
_NAMES = {SINGLE: "SingleStream", CONSTANT: "ConstantStream"}


def least_frames() -> int:
    """Return the number of frames from which the percentile can be estimated."""
    return queries_needed(1, PERCENTILE)


@dataclass(frozen=True, slots=True)
class Measured:
    """The latencies (ns, ascending) of a chain's frames under a scenario; `lost` frames have none."""

    scenario: str
    chain: ChainResult
    latencies: tuple[int, ...]
    lost: int
    last_release_ns: int
    end_ns: int
    rate: float

    @property
    def queries(self) -> int:
        """Return the number of frames."""
        return len(self.latencies) + self.lost

    @property
    def over(self) -> int:
        """Return the number of frames over the deadline or lost."""
        return self.lost + sum(latency > self.chain.deadline_ns for latency in self.latencies)

    def at(self, percentile: float) -> int | None:
        """Return a percentile, None if it falls on a lost frame."""
        index = int(self.queries * percentile)
        return self.latencies[index] if index < len(self.latencies) else None

    def estimate(self, percentile: float) -> int | None:
        """Return the upper bound of a percentile with the confidence of early stopping, None with too few frames."""
        beyond = discardable(self.queries, percentile)
        index = self.queries - beyond
        return self.latencies[index] if beyond and index < len(self.latencies) else None

    @property
    def stopping_met(self) -> bool:
        """Return whether there are enough frames, for `constant-stream` also within the deadline."""
        if self.scenario == CONSTANT:
            return passes(self.queries, self.over, PERCENTILE)
        return self.estimate(PERCENTILE) is not None

    @property
    def in_time(self) -> bool:
        """Return whether the percentile is within the deadline, which `single-stream` does not ask for."""
        found = self.at(PERCENTILE)
        return self.scenario == SINGLE or (found is not None and found <= self.chain.deadline_ns)

    @property
    def valid(self) -> bool:
        """Return whether the result counts."""
        return self.stopping_met and self.in_time and not self.lost

    def document(self) -> ScenarioDocument:
        """Return the figures for result.json."""
        needed = queries_needed(self.over if self.scenario == CONSTANT else 1, PERCENTILE)
        return {
            "scenario": self.scenario,
            "valid": self.valid,
            "frames": self.queries,
            "frames_needed": needed,
            "lost": self.lost,
            "over_deadline": self.over,
            "p99_9_ns": self.at(PERCENTILE),
            "p99_9_estimate_ns": self.estimate(PERCENTILE),
            "early_stopping_met": self.stopping_met,
        }


def measured(trace: Trace, plan: Plan, scenario: str) -> list[Measured]:
    """Return the latencies of every chain with frames; a frame whose deadline is not over at the end does not count."""
    found = []
    for chain in plan.chains:
        fates = frame_fates(trace, plan, chain)
        counted = fates.completed | fates.dropped | fates.missed
        releases = fates.release_ns[counted]
        if not len(releases):
            continue
        responses = tuple(sorted(fates.response_ns.tolist()))
        periods = {sensor.name: sensor.period_ns for sensor in plan.sensors}
        periods |= {task.name: task.period_ns for task in plan.tasks if task.timer}
        period = periods.get(chain.path[0], 0)
        rate = 1e9 / period if scenario == CONSTANT and period else 0.0
        last, end = int(releases.max()), int(max(fates.finish_ns.max(), 1))
        found.append(Measured(scenario, chain, responses, len(releases) - len(responses), last, end, rate))
    return found


def write_logs(found: list[Measured], plan: Plan, trace: Trace, folder: Path) -> list[Path]:
    """Write LoadGen's summary and detail of every chain to `folder`/mlperf/CHAIN, and return the folders."""
    written = []
    for one in found:
        place = folder / LOGS / one.chain.name
        place.mkdir(parents=True, exist_ok=True)
        name = f"{plan.pipeline} on {plan.platform}, {one.chain.name}, {trace.kind}"
        write_file(place / SUMMARY, "\n".join(_summary(one, name)) + "\n")
        write_file(place / DETAIL, "".join(_line(one, key, value) for key, value in _detail(one, name, trace)))
        written.append(place)
    return written


def _summary(one: Measured, name: str) -> Iterator[str]:
    rule = "=" * 48
    percentile = f"{PERCENTILE * 100:.1f}th percentile latency (ns) : {_ns(one.at(PERCENTILE))}"
    yield from (rule, "MLPerf Results Summary", rule)
    yield from (f"SUT name : {name}", f"Scenario : {_NAMES[one.scenario]}", "Mode     : PerformanceOnly")
    if one.scenario == CONSTANT:
        yield f"Completed samples per second    : {_completed(one):.2f}"
    yield percentile
    yield f"Result is : {_valid(one)}"
    if one.scenario == CONSTANT:
        yield f"  Performance constraints satisfied : {_yes(one.in_time)}"
    yield "  Min duration satisfied : Yes"
    yield f"  Min queries satisfied : {_yes(not one.lost)}"
    yield f"  Early stopping satisfied: {_yes(one.stopping_met)}"
    if reasons := _reasons(one):
        yield "Recommendations:"
        yield from (f" * {reason}" for reason in reasons)
    yield "Early Stopping Result:"
    yield from _stopping(one)
    yield from ("", rule, "Additional Stats", rule)
    if one.scenario == SINGLE:
        yield f"QPS w/ loadgen overhead         : {_scheduled(one):.2f}"
        yield f"QPS w/o loadgen overhead        : {1e9 / _mean(one) if _mean(one) else 0:.2f}"
        yield ""
    else:
        yield f"Scheduled samples per second : {_scheduled(one):.2f}"
    yield f"Min latency (ns)                : {_ns(one.latencies[0] if one.latencies else None)}"
    yield f"Max latency (ns)                : {_ns(one.latencies[-1] if one.latencies else None)}"
    yield f"Mean latency (ns)               : {_mean(one)}"
    yield from (f"{value * 100:.2f} percentile latency (ns)   : {_ns(one.at(value))}" for value in _SHOWN)
    yield from ("", rule, "Test Parameters Used", rule)
    yield from (f"{shown}{'' if shown.endswith(')') else ' '}: {value}" for shown, (_, value) in _settings(one).items())
    yield from ("", "No warnings encountered during test.", "", "No errors encountered during test.")


def _detail(one: Measured, name: str, trace: Trace) -> Iterator[tuple[str, Any]]:
    yield "loadgen_version", f"none (log of socsched {__version__})"
    yield "sut_name", name
    for kind in ("requested", "effective"):
        yield f"{kind}_scenario", _NAMES[one.scenario]
        yield f"{kind}_test_mode", "PerformanceOnly"
        yield from ((f"{kind}_{key}", value) for key, value in _settings(one).values())
        yield f"{kind}_target_latency_percentile", PERCENTILE
    yield "result_validity", _valid(one)
    if one.scenario == CONSTANT:
        yield "result_perf_constraints_met", one.in_time
    yield "result_min_duration_met", True
    yield "result_min_queries_met", not one.lost
    yield "early_stopping_met", one.stopping_met
    if reasons := _reasons(one):
        yield "result_invalid_reason", " ".join(reasons)
    yield "early_stopping_result", " ".join(_stopping(one))
    yield "result_query_count", one.queries
    if one.scenario == CONSTANT:
        yield "result_overlatency_query_count", one.over
        yield "result_scheduled_samples_per_sec", _scheduled(one)
        yield "result_completed_samples_per_sec", _completed(one)
    else:
        yield "result_qps_with_loadgen_overhead", _scheduled(one)
        yield "result_qps_without_loadgen_overhead", 1e9 / _mean(one) if _mean(one) else 0.0
    yield "early_stopping_latency_ss", one.estimate(PERCENTILE) or 0
    yield "early_stopping_latency_ms", one.estimate(_SECOND) or 0
    yield "result_min_latency_ns", one.latencies[0] if one.latencies else None
    yield "result_max_latency_ns", one.latencies[-1] if one.latencies else None
    yield "result_mean_latency_ns", _mean(one)
    yield from ((f"result_{value * 100:.2f}_percentile_latency_ns", one.at(value)) for value in _SHOWN)
    yield "num_errors", 0


def _line(one: Measured, key: str, value: Any) -> str:
    entry = {
        "key": key,
        "value": value,
        "time_ms": 0.0 if key.startswith(("requested", "effective", "loadgen", "sut")) else one.end_ns / 1e6,
        "namespace": "mlperf::logging",
        "event_type": "POINT_IN_TIME",
        "metadata": {"is_error": False, "is_warning": False, "file": "socsched", "line_no": 0, "pid": 0, "tid": 0},
    }
    return f":::MLLOG {json.dumps(entry)}\n"


def _settings(one: Measured) -> dict[str, tuple[str, Any]]:
    """Return the parameters by their name in the summary, with their name in the detail."""
    rows: dict[str, Any] = {
        "samples_per_query": 1,
        "target_qps": one.rate if one.scenario == CONSTANT else 1e9 / max(_mean(one), 1),
        "target_latency (ns)": one.chain.deadline_ns if one.scenario == CONSTANT else 0,
        "max_async_queries": 1 if one.scenario == SINGLE else 0,
        "min_duration (ms)": 0,
        "max_duration (ms)": 0,
        "min_query_count": one.queries,
        "max_query_count": one.queries,
    }
    return {key: (key.replace(" (ns)", "_ns").replace(" (ms)", "_ms"), value) for key, value in rows.items()}


def _stopping(one: Measured) -> Iterator[str]:
    if one.scenario == CONSTANT:
        if not one.stopping_met:
            yield " * Run unsuccessful."
            yield f" * Processed {one.queries} queries."
            yield f" * Would need to run at least {queries_needed(one.over, PERCENTILE) - one.queries} more queries,"
            yield " with the run being successful if every additional"
            yield " query were under latency."
            return
        yield " * Run successful."
    elif not one.stopping_met:
        yield f" * Only processed {one.queries} queries."
        yield f" * Need to process at least {least_frames()} queries for early stopping."
        return
    else:
        yield f" * Processed at least {least_frames()} queries ({one.queries})."
        yield f" * Would discard {discardable(one.queries, PERCENTILE) - 1} highest latency queries."
    for percentile in (PERCENTILE, _SECOND):
        if (found := one.estimate(percentile)) is not None:
            yield f" * Early stopping {percentile * 100:.1f}th percentile estimate: {found}"


def _reasons(one: Measured) -> list[str]:
    reasons = [] if one.in_time else ["Reduce target QPS to improve latency."]
    return reasons + ([f"{one.lost} frames were lost: dropped, aborted or unfinished."] if one.lost else [])


def _mean(one: Measured) -> int:
    return sum(one.latencies) // len(one.latencies) if one.latencies else 0


def _scheduled(one: Measured) -> float:
    return (one.queries - 1) / (one.last_release_ns / 1e9) if one.last_release_ns else 0.0


def _completed(one: Measured) -> float:
    return (len(one.latencies) - 1) / (one.end_ns / 1e9) if one.latencies else 0.0


def _valid(one: Measured) -> str:
    return "VALID" if one.valid else "INVALID"


def _yes(met: bool) -> str:
    return "Yes" if met else "NO"


def _ns(value: int | None) -> str:
    return "none" if value is None else str(value)
