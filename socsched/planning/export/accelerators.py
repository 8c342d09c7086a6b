"""Schedules of accelerators: a compute graph for NVIDIA's System Task Manager, and hints for XSched.

System Task Manager's compiler turns its input into a static schedule.  Public reference:
developer.nvidia.com/docs/drive/drive-os/6.0.10, "Compute Graph And Constraints", input specification 3.0.0: Version, a
graph with Identifier, Resources, Hyperepochs (Period, Resources, Epochs with Period and Frames) and Clients (Epochs
with Runnables).  The keys of a runnable (WCET, Resources, Dependencies) do not appear in the part that could be read,
and no compiler was available: review the file before use.

XSched: environment variables for each task's process, and hints for C.  Formats: XpuOS/xsched,
protocol/include/xsched/protocol/def.h (environment variables) and include/xsched/hint.h (hints): larger priorities are
more urgent, PRIORITY_MAX is 255; a deadline counts from the instant at which a queue becomes ready.  Preemption level 1
(blocks of commands) is the only one that every driver has.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable

from socsched.errors import UsageError
from socsched.planning.export.linux import ExportRequest
from socsched.planning.export.networks import file_name
from socsched.planning.plan import Plan, Task
from socsched.text import one_line

STM_VERSION = "3.0.0"
LONGEST_HYPEREPOCH_NS = 60_000_000_000
"""A hyperepoch longer than a minute is not a practical static table."""


def identifier(text: str) -> str:
    """Return an identifier: the compiler reserves the period character, and > is not allowed in a name."""
    return re.sub(r"\W", "_", text.replace(">", "_to_"), flags=re.ASCII)


def resource(engine: str, lane: int, lanes: int) -> str:
    """Return the resource that stands for a lane of an engine; it executes one runnable at a time."""
    return identifier(f"{engine}_{lane}" if lanes > 1 else engine)


def hyperperiod_ns(tasks: Iterable[Task]) -> int:
    """Return the least common multiple of all periods (ns)."""
    return math.lcm(*(task.period_ns for task in tasks))


def stm(request: ExportRequest) -> str:
    """Return the plan as a compute graph; its runnables are not preempted, whatever the plan's engines allow."""
    plan = request.plan
    whole = hyperperiod_ns(plan.tasks)
    periods = sorted({task.period_ns for task in plan.tasks})
    graph = identifier(f"{plan.pipeline}_{plan.platform}")
    lines = [*_stm_remarks(plan, whole), f"Version: {STM_VERSION}", f"{graph}:", "  Identifier: 1", "  Resources:"]
    for engine in plan.engines:
        lanes = [resource(engine.id, lane, engine.lanes) for lane in range(engine.lanes)]
        lines.append(f"    {identifier(engine.id)}_units: [{', '.join(lanes)}]")
    every = [resource(e.id, lane, e.lanes) for e in plan.engines for lane in range(e.lanes)]
    lines += ["  Hyperepochs:", "  - Main:", f"      Period: {whole}ns", f"      Resources: [{', '.join(every)}]"]
    lines += ["      Epochs:"]
    for period in periods:
        lines += [f"      - {_epoch(period)}:", f"          Period: {period}ns", f"          Frames: {whole // period}"]
    lines += ["  Clients:", "  - socsched:", "      Epochs:"]
    for period in periods:
        lines += [f"      - Main.{_epoch(period)}:", "          Runnables:"]
        for task in (t for t in plan.tasks if t.period_ns == period):
            lines += _runnable(plan, task)
    return "\n".join(lines) + "\n"


def _epoch(period_ns: int) -> str:
    return f"every_{period_ns}ns"


def _runnable(plan: Plan, task: Task) -> list[str]:
    lanes = next(engine.lanes for engine in plan.engines if engine.id == task.engine)
    known = {other.name: other for other in plan.tasks}
    before = [f"socsched.{identifier(other)}" for other in task.after if other in known]
    resources = [resource(task.engine, lane, lanes) for lane in task.lanes]
    return [
        f"          - {identifier(task.name)}:",
        f"              WCET: {task.wcet_ns}ns",
        f"              Resources: [{', '.join(resources)}]",
        f"              Dependencies: [{', '.join(before)}]",
    ]


def _stm_remarks(plan: Plan, whole: int) -> list[str]:
    remarks = [
        f"{plan.pipeline} on {plan.platform} in {plan.mode}, as planned by socsched: {plan.verdict}.",
        "Structure after NVIDIA's public reference of System Task Manager, input specification 3.0.0. Unchecked, as "
        "no System Task Manager compiler was available: keys of runnables (WCET, Resources, Dependencies), units of "
        "time, and the file as a whole.",
        "System Task Manager does not preempt: the bounds of this plan hold for the plan's policy "
        f"({plan.policy}), not for the schedule built from this file.",
    ]
    sampled = [f"{task.name} samples {', '.join(task.reads)}" for task in plan.tasks if task.reads]
    if sampled:
        remarks.append(f"Not expressed, because sampling is not a dependency: {'; '.join(sampled)}.")
    late = [f"{s.name} at {s.offset_ns} ns" for s in plan.sensors if s.offset_ns]
    late += [f"{task.name} at {task.offset_ns} ns" for task in plan.tasks if task.timer and task.offset_ns]
    if late:
        remarks.append(f"Offsets not expressed, because epochs start together: {'; '.join(late)}.")
    if whole > LONGEST_HYPEREPOCH_NS:
        remarks.append(f"The hyperepoch lasts {whole / 1e9:g} s: round the periods to a common multiple first.")
    return [f"# {line}" for text in remarks for line in textwrap.wrap(one_line(text), 116)]


POLICIES = {"fp": "HPF", "edf": "EDF"}
HIGHEST, LEVELS = 255, 512
HEADER = "hints.h"


def xsched(request: ExportRequest) -> dict[str, str | bytes]:
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
