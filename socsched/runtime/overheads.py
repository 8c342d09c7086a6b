"""Overheads of the executor, from a trace: release jitter, and the dispatch latency of ready jobs.

A job is ready once it is activated and all previous holders of its lanes have ended; from then to its start it waits
only for the executor.
"""

from __future__ import annotations

from collections.abc import Sequence

from socsched.descriptor.distribution import nearest_rank
from socsched.trace.io import Overhead, Overheads
from socsched.trace.trace import Trace

RELEASE = "release_late_ns."
"""Prefix of the counters in which a run records the lateness of each release."""


def overheads(trace: Trace) -> Overheads:
    """Return `dispatch_ns` by stage and overall, and `release_jitter_ns` by source: p50, p99, max and count."""
    waits = dispatch_waits(trace)
    late = {n.removeprefix(RELEASE): [int(v) for _, v in s] for n, s in trace.counters.items() if n.startswith(RELEASE)}
    return {
        "dispatch_ns": summary([wait for found in waits.values() for wait in found]),
        "dispatch_ns_by_stage": {name: summary(found) for name, found in sorted(waits.items())},
        "release_jitter_ns": {name: summary(found) for name, found in sorted(late.items())},
    }


def dispatch_waits(trace: Trace) -> dict[str, list[int]]:
    """Return, for every task, the time from when each job could have started to when it did, in ns."""
    freed: dict[tuple[str, int], int] = {}
    waits: dict[str, list[int]] = {}
    for piece in sorted(trace.slices, key=lambda piece: piece.start_ns):
        job = trace.jobs[piece.job]
        lanes = [(piece.engine, lane) for lane in piece.lanes]
        ready = max([job.activation_ns, *(freed.get(lane, 0) for lane in lanes)])
        if job.start_ns == piece.start_ns:
            waits.setdefault(job.task, []).append(max(piece.start_ns - ready, 0))
        freed.update(dict.fromkeys(lanes, piece.end_ns))
    return waits


def summary(values: Sequence[int]) -> Overhead | None:
    """Return p50, p99, max and count (nearest rank); None without values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p99 = (nearest_rank(ordered, share) for share in (50, 99))
    return {"p50": p50, "p99": p99, "max": ordered[-1], "count": len(ordered)}
