"""Hints for XSched: environment variables for the process of each task on an accelerator, and functions for C.

Formats: XpuOS/xsched, protocol/include/xsched/protocol/def.h (environment variables) and include/xsched/hint.h (hints):
larger priorities are more urgent, PRIORITY_MAX is 255; a deadline counts from the instant at which a queue becomes
ready.  Preemption level 1 (blocks of commands) is the only one that every driver has.
"""

from __future__ import annotations

from socsched.errors import UsageError
from socsched.planning.export.linux import ExportRequest
from socsched.planning.export.networks import file_name
from socsched.planning.plan import Plan, Task
from socsched.text import one_line

POLICIES = {"fp": "HPF", "edf": "EDF"}
HIGHEST, LEVELS = 255, 512
HEADER = "hints.h"


def write(request: ExportRequest) -> dict[str, str | bytes]:
    """Return path -> content: TASK.env for each task on an accelerator, and hints.h; UsageError for other policies."""
    plan = request.plan
    policy = POLICIES.get(plan.policy)
    if policy is None:
        raise UsageError(f"XSched has no policy for {plan.policy}", "plan with --policy fp or edf")
    tasks = [task for task in plan.tasks if _preempted(plan, task)]
    if not tasks:
        raise UsageError("nothing to export: no task runs on an accelerator that is preempted between commands")
    order = sorted({task.priority for task in tasks})
    if len(order) > LEVELS:
        raise UsageError(f"XSched has {LEVELS} priorities, the plan's accelerators {len(order)}")
    rank = {priority: HIGHEST - number for number, priority in enumerate(order)}
    files: dict[str, str | bytes] = {}
    for task in tasks:
        lines = [f"# {one_line(task.name)} on {task.engine}: wcet {task.wcet_ns} ns"]
        lines += ["XSCHED_SCHEDULER=GLB", f"XSCHED_POLICY={policy}", "XSCHED_AUTO_XQUEUE=ON"]
        ahead = max(_ahead(plan, task), 1)
        lines += ["XSCHED_AUTO_XQUEUE_LEVEL=1", f"XSCHED_AUTO_XQUEUE_THRESHOLD={ahead}"]
        lines += [f"XSCHED_AUTO_XQUEUE_BATCH_SIZE={max(ahead // 2, 1)}"]
        if policy == "HPF":
            lines.append(f"XSCHED_AUTO_XQUEUE_PRIORITY={rank[task.priority]}")
        else:
            lines.append("# deadlines have no variable: call the task's function of hints.h")
        files[f"{file_name(task.name)}.env"] = "\n".join(lines) + "\n"
    files[HEADER] = _header(tasks, policy, rank)
    return files


def _preempted(plan: Plan, task: Task) -> bool:
    return any(e.id == task.engine and e.preemption == "segment" for e in plan.engines)


def _ahead(plan: Plan, task: Task) -> int:
    return next(engine.in_flight for engine in plan.engines if engine.id == task.engine)


def _header(tasks: list[Task], policy: str, rank: dict[int, int]) -> str:
    lines = ["#pragma once", '#include "xsched/hint.h"', ""]
    for task in tasks:
        hint = f"XHintPriority(queue, {rank[task.priority]})"
        if policy == "EDF":
            hint = f"XHintDeadline(queue, {max(task.deadline_ns - task.jitter_ns, 1000) // 1000})"
        lines.append(f"/* {one_line(task.name).replace('*/', '* /')} */")
        lines.append(f"static inline XResult hint_{file_name(task.name)}(XQueueHandle queue) {{ return {hint}; }}")
    return "\n".join(lines) + "\n"
