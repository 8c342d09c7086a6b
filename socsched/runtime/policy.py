"""Service orders of ready jobs in the executor: the rules of the plan's analysis and the simulator, for real jobs."""

from __future__ import annotations

from collections.abc import Callable

from socsched.errors import UsageError
from socsched.planning.plan import Task
from socsched.trace.trace import Job

Key = Callable[[Job, Task], tuple[int, ...]]


def edf(job: Job, task: Task) -> tuple[int, ...]:
    """Order by absolute deadline, then by activation (Liu & Layland, JACM 20(1) 1973, theorem 7)."""
    return (job.deadline_ns, job.activation_ns)


def fp(job: Job, task: Task) -> tuple[int, ...]:
    """Order by planned priority (0 is highest), then by activation."""
    return (task.priority, job.activation_ns)


def fifo(job: Job, task: Task) -> tuple[int, ...]:
    """Order by activation."""
    return (job.activation_ns,)


POLICIES: dict[str, Key] = {"edf": edf, "fp": fp, "fifo": fifo}


def policy(name: str) -> Key:
    """Return the ordering rule `name`; raise UsageError if the executor has none."""
    if name not in POLICIES:
        raise UsageError(f"policy {name!r} cannot be run on a machine", f"policies: {', '.join(POLICIES)}; plan again")
    return POLICIES[name]
