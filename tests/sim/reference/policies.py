"""Orders of service as functions of a job, its task and the time."""

from __future__ import annotations

from collections.abc import Callable

from socsched.planning.plan import Task
from socsched.trace.trace import Job

Policy = Callable[[Job, Task, int], tuple[int, ...]]


def edf(job: Job, task: Task, now_ns: int) -> tuple[int, ...]:
    return (job.deadline_ns, job.activation_ns)


def fifo(job: Job, task: Task, now_ns: int) -> tuple[int, ...]:
    return (job.activation_ns,)


def fp(job: Job, task: Task, now_ns: int) -> tuple[int, ...]:
    return (task.priority, job.activation_ns)


def policy(name: str) -> Policy:
    return {"edf": edf, "fp": fp, "fifo": fifo}[name]
