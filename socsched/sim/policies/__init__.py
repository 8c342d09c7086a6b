"""Scheduling policies: in which order the ready jobs of an engine are served.

A policy is one function ``key(job, task, now_ns) -> tuple[int, ...]``, asked once, when the job becomes the oldest
unfinished one of its task; the job with the smallest key is served first.  It sees the job as traced and the task as
planned, and must not depend on anything else, so that a simulation can be repeated.  The simulator breaks ties by task
order.  Third parties register under the entry-point group ``socsched.policies``.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

from socsched.errors import UsageError
from socsched.plan.plan import Task
from socsched.sim.policies import edf, fifo, fp
from socsched.trace.trace import Job

Policy = Callable[[Job, Task, int], tuple[int, ...]]
GROUP = "socsched.policies"

POLICIES: dict[str, Policy] = {"edf": edf.key, "fp": fp.key, "fifo": fifo.key}


def policy(name: str) -> Policy:
    """Return the policy of this name, built in or installed; UsageError naming the known ones when there is none."""
    if name in POLICIES:
        return POLICIES[name]
    installed = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in installed:
        known = ", ".join(sorted({*POLICIES, *installed}))
        raise UsageError(f"unknown scheduling policy {name!r}", hint=f"known policies: {known}")
    found: Policy = installed[name].load()
    return found
