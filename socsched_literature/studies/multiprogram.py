"""Metrics of several programs that share a machine, as PREMA reports them.

Eyerman & Eeckhout, IEEE Micro 28(3) 2008, equations for NTT, ANTT and STP; PREMA (Choi & Rhu, HPCA 2020), section VI:
fairness by proportional progress, and satisfaction of service level agreements as multiples of the time alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from socsched.trace.summary import Histogram, bin_of

_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t at 97.5 % for 1 to 30 degrees of freedom."""


def antt(together: Sequence[float], alone: Sequence[float]) -> float:
    """Return the average normalised turnaround time: the mean of times together over times alone; 1 is best."""
    return math.fsum(t / a for t, a in zip(together, alone, strict=True)) / len(together)


def stp(together: Sequence[float], alone: Sequence[float]) -> float:
    """Return the system throughput: the progress made in programs' worth; the number of programs is best."""
    return math.fsum(a / t for t, a in zip(together, alone, strict=True))


def fairness(together: Sequence[float], alone: Sequence[float], priorities: Sequence[float]) -> float:
    """Return the smallest ratio of two programs' progress in proportion to priority, 1 when all have their share.

    Progress of i: (alone_i / together_i) / (priority_i / sum of priorities).
    """
    progress = [a / t / p for t, a, p in zip(together, alone, priorities, strict=True)]
    return min(progress) / max(progress)


def satisfaction(responses: Histogram, alone_ns: float, multiple: float) -> float:
    """Return the share of jobs that took at most a multiple of the time alone, to 2**-10 of it; 1 for no jobs."""
    if not responses.count:
        return 1.0
    limit = int(alone_ns * multiple)
    return float(responses.counts[: bin_of(limit) + 1].sum()) / responses.count


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and half the width of its 95 % confidence interval (Student's t); 0 for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    free = len(values) - 1
    return mean, (_T[free - 1] if free <= len(_T) else 1.96) * spread / math.sqrt(len(values))
