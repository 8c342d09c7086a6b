"""First in, first out: what an engine's hardware queue does without help."""

from __future__ import annotations

from socsched.plan.plan import Task
from socsched.trace.trace import Job


def key(job: Job, task: Task, now_ns: int) -> tuple[int, ...]:
    """Order by the instant the job was activated."""
    return (job.activation_ns,)
