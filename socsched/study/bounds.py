"""Exact confidence bounds of a proportion from counts.

Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", Biometrika 26,
1934; for clustered counts Korn and Graubard, Survey Methodology 24, 1998.

The upper limit is the p with P(X <= k | p) = alpha / 2, the lower one that with P(X >= k | p) = alpha / 2.  Tails are
regularised incomplete beta functions, P(X >= k) = I_p(k, n - k + 1), by their continued fraction (DLMF 8.17.22).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

_TINY = 1e-300
_CLOSE = 1e-15
_MOST_TERMS = 100_000


def at_least(k: float, n: float, p: float) -> float:
    """Return P(X >= k) of a binomial variable of n trials with probability p (k and n may be fractional)."""
    if k <= 0:
        return 1.0
    return beta(k, n - k + 1, p) if k <= n else 0.0


def at_most(k: float, n: float, p: float) -> float:
    """Return P(X <= k) of a binomial variable of n trials with probability p."""
    if k >= n:
        return 1.0
    return beta(n - k, k + 1, 1.0 - p)


def beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b) of positive a and b."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(front) * _fraction(a, b, x) / a
    return 1.0 - math.exp(front) * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of I_x(a, b), by Lentz's method."""
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1.0 / _away(1.0 + term * d), _away(1.0 + term / c)
            found *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return found


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def interval(k: float, n: float, confidence: float) -> tuple[float, float]:
    """Return the two-sided interval of the proportion given `k` of `n` (0 to 1 without observations)."""
    if n <= 0:
        return 0.0, 1.0
    tail = (1.0 - confidence) / 2
    if k <= 0:
        return 0.0, -math.expm1(math.log(tail) / n)
    if k >= n:
        return math.exp(math.log(tail) / n), 1.0
    share = k / n
    low = _root(lambda p: at_least(k, n, p) - tail, 0.0, share)
    high = _root(lambda p: tail - at_most(k, n, p), share, 1.0)
    return low, high


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return the zero of a rising function by the Illinois method, in a bracket that at least halves each time."""
    below, above = rising(low), rising(high)
    side = 0
    for _ in range(200):
        if high - low <= 1e-13 * high:
            break
        at = (low * above - high * below) / (above - below) if above > below else (low + high) / 2
        if not low < at < high:
            at = (low + high) / 2
        found = rising(at)
        if found == 0:
            return at
        if found > 0:
            high, above = at, found
            below, side = (below / 2 if side == 1 else below), 1
        else:
            low, below = at, found
            above, side = (above / 2 if side == -1 else above), -1
    return (low + high) / 2


def compare_with_limit(k: int, n: int, limit: float, confidence: float, looks: int = 1) -> str:
    """Compare the proportion given `k` of `n` with a limit: ``holds`` (below), ``fails`` or ``open`` (not significant).

    `looks`: number of tests on growing counts; each test gets an equal part of the error (Bonferroni).
    """
    if n <= 0:
        return "open"
    tail = (1.0 - confidence) / 2 / looks
    if limit < 1.0 and at_most(k, n, limit) <= tail:
        return "holds"
    if at_least(k, n, limit) <= tail:
        return "fails"
    return "holds" if limit >= 1.0 else "open"


def cluster_interval(counts: Sequence[tuple[int, int]], confidence: float) -> tuple[float, float, float]:
    """Return the interval of the proportion given counts (k, n) of independent clusters, and their design effect.

    The design effect is the variance of the ratio over that of independent trials (at least 1); it divides the sample
    size before the exact interval is computed (Korn & Graubard).
    """
    k, n, m = sum(c for c, _ in counts), sum(c for _, c in counts), len(counts)
    if n <= 0:
        return 0.0, 1.0, 1.0
    share, effect = k / n, 1.0
    if m > 1 and 0 < k < n:
        residual = sum((hit - share * size) ** 2 for hit, size in counts)
        variance = residual * m / (m - 1) / n**2
        effect = max(variance / (share * (1 - share) / n), 1.0)
    low, high = interval(k / effect, n / effect, confidence)
    return low, high, effect
