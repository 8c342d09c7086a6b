"""Frames abandoned by stages, counted by stage and reason from a trace."""

from __future__ import annotations

from socsched.trace.columns import ABORT_KILLED, ABORT_LATE, DROP_LATE, DROP_QUEUE, KILL_RESTART
from socsched.trace.trace import Trace

REASONS = {
    "skipped": DROP_LATE,
    "aborted": ABORT_LATE,
    "killed": ABORT_KILLED,
    "restarted": KILL_RESTART,
    "queue_full": DROP_QUEUE,
}
"""Reason -> code of the instants that record it (`columns.MARKS`)."""


def count_abandoned(trace: Trace) -> dict[str, dict[str, int]]:
    """Return the counts of `REASONS` for each stage that skipped, aborted, lost, restarted or had no room for a job."""
    import numpy as np

    columns, found = trace.columns, dict[str, dict[str, int]]()
    for reason, code in REASONS.items():
        subjects, counts = np.unique(columns.instants.subject[columns.instants.kind == code], return_counts=True)
        for subject, count in zip(subjects.tolist(), counts.tolist(), strict=True):
            found.setdefault(columns.subjects[subject], dict.fromkeys(REASONS, 0))[reason] += count
    return {name: found[name] for name in columns.tasks if name in found}
