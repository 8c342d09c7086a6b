"""Fixed priority per task, as planned (0 is highest)."""

from __future__ import annotations

from socsched.plan.plan import Task
from socsched.trace.trace import Job


def key(job: Job, task: Task, now_ns: int) -> tuple[int, ...]:
    """Order by the task's priority; tasks that share one are served in order of activation."""
    return (task.priority, job.activation_ns)
