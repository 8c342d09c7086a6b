"""MLPerf's early stopping: how sure a percentile of latencies is after so many queries.

Of n independent queries each is slower than the p-quantile with probability 1 - p.  If t or fewer slow ones occur with
a probability below 1 - c, the t-th highest latency bounds the p-quantile with confidence c (MLPerf Inference rules,
appendix on early stopping; LoadGen, `early_stopping.cc`, with c = 0.99 and no tolerance).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import takewhile

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
