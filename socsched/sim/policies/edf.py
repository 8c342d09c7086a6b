"""Earliest deadline first (Liu & Layland, JACM 20(1) 1973, section 7)."""

from __future__ import annotations

from socsched.plan.plan import Task
from socsched.trace.trace import Job


def key(job: Job, task: Task, now_ns: int) -> tuple[int, ...]:
    """Order by absolute deadline; of equal deadlines the job activated first, so that a tie never preempts."""
    return (job.deadline_ns, job.activation_ns)
