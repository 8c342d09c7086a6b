"""MLPerf Automotive's scenarios for the chains of a run: percentile and early stopping.

A frame is a query of one sample.  `constant-stream`: frames at the sensor's rate, the percentile has to be within the
deadline.  `single-stream`: the next frame once the last one is answered, the percentile is the result, the value at
index n p of the sorted latencies.  Unlike LoadGen's queries, frames can be lost: they count as over the latency limit,
and make a result invalid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

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
        if not counted.any():
            continue
        responses = tuple(sorted(fates.response_ns.tolist()))
        found.append(Measured(scenario, chain, responses, int(counted.sum()) - len(responses)))
    return found
