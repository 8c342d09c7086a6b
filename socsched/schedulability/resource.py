"""The tasks of one resource in the form of published tests: delay by predecessors is release jitter.

Tindell & Clark, "Holistic schedulability analysis for distributed hard real-time systems", Microprocessing and
Microprogramming 40 1994.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from socsched.descriptor.taskset_model import PeriodicTask, Policy, TaskSet
from socsched.schedulability.tasks import RtTask


def resource(
    policy: str, group: Sequence[RtTask], jitter: Mapping[str, int], deadlines: Mapping[str, int] | None = None
) -> TaskSet:
    """Return the tasks of one resource under ``edf`` or ``fp``.

    `jitter`: latest activation of each task after its nominal release (ns); `deadlines` (ns) override the tasks' own.
    Each arrival is charged one preemption, to the preempting task.
    """
    tasks = tuple(
        PeriodicTask(
            id=index,
            name=task.name,
            period_ns=task.period,
            deadline_ns=(deadlines[task.name] if deadlines else task.deadline) + task.release_jitter,
            wcet_ns=task.wcet + task.switch,
            bcet_ns=0,
            offset_ns=task.offset,
            jitter_ns=jitter[task.name],
            cpu=0,
            prio=task.priority,
            longest_region_ns=task.segment + task.switch if task.preemption == "segment" else 0,
        )
        for index, task in enumerate(group)
    )
    whole = all(task.preemption == "none" for task in group)
    rule = Policy("edf" if policy == "edf" else "fp", "partitioned", not whole)
    return TaskSet("resource", 1, rule, 1, None, tasks, ())
