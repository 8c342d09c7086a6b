"""The totals of a trace, the reference for those of a simulation that keeps none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from socsched.planning.plan import Plan
from socsched.trace import metrics
from socsched.trace.columns import ABORTED, DONE, DROPPED
from socsched.trace.summary import EXACT, ChainTotals, Histogram, TaskTotals, Totals
from socsched.trace.trace import Trace

if TYPE_CHECKING:
    from socsched.trace.columns import Ints


def bins_of(values: Ints) -> Ints:
    """Return the bins of values of 0 or more."""
    # below 2**52 a float64 is exact, and so is the exponent it shows
    e = np.where(values < EXACT, 0, np.frexp((values >> 11).astype(np.float64))[1]).astype(np.int64)
    return np.where(e == 0, values, EXACT + (e - 1) * 1024 + (values >> e) - 1024)


def histogram(values: Ints) -> Histogram:
    """Return the histogram of non-negative values."""
    if not len(values):
        return Histogram()
    least, most = int(values.min()), int(values.max())
    total = int(values.sum()) if most * len(values) < 1 << 62 else sum(values.tolist())
    return Histogram(np.bincount(bins_of(values)).astype(np.int64), len(values), total, least, most)


def totals(trace: Trace, plan: Plan) -> Totals:
    """Return the totals of a trace of `plan`, the reference for a simulation that keeps no trace."""
    record = metrics.record_of(trace, plan)
    columns, jobs = record.columns, record.columns.jobs
    tasks = {}
    for name in metrics.tasks_of(columns, plan):
        rows = record.rows(name)
        status = jobs.status[rows]
        done, dropped, aborted = (int((status == code).sum()) for code in (DONE, DROPPED, ABORTED))
        blocking, preemptions = int(jobs.blocking_ns[rows].max(initial=0)), int(jobs.preemptions[rows].sum())
        seen = histogram(jobs.exec_ns[rows][status == DONE])
        tasks[name] = TaskTotals(done, dropped, aborted, seen, blocking, preemptions)
    chains = {}
    for chain in plan.chains:
        arrivals = record.arrivals(chain)
        fates = record.fates(chain, arrivals)
        response, ages = fates.response_ns, record.ages(chain, arrivals)
        lost = (int(fates.missed.sum()), int(fates.dropped.sum()), metrics.stale(chain, ages))
        spread = (histogram(response), histogram(ages))
        chains[chain.name] = ChainTotals(len(fates.release_ns), len(response), *lost, *spread)
    power = metrics.Steps(columns, "power_mw", trace.duration_ns)
    traffic = metrics.Steps(columns, "bandwidth_gbps", trace.duration_ns)
    return Totals(
        trace.kind,
        trace.duration_ns,
        trace.seed,
        tasks,
        chains,
        metrics.busy_ns(columns, plan),
        power.level(),
        power.energy_mj(),
        traffic.level(),
    )
