"""A plan in the input format of NVIDIA's System Task Manager, whose compiler turns it into a static schedule.

Public reference: developer.nvidia.com/docs/drive/drive-os/6.0.10, "Compute Graph And Constraints", input specification
3.0.0: Version, a graph with Identifier, Resources, Hyperepochs (Period, Resources, Epochs with Period and Frames) and
Clients (Epochs with Runnables).  The keys of a runnable (WCET, Resources, Dependencies) do not appear in the part that
could be read, and no compiler was available: review the file before use.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable

from socsched.planning.plan import Plan, Task
from socsched.text import one_line

VERSION = "3.0.0"
LONGEST_NS = 60_000_000_000
"""A hyperepoch longer than a minute is not a practical static table."""


def name(text: str) -> str:
    """Return an identifier: the compiler reserves the period character, and > is not allowed in a name."""
    return re.sub(r"\W", "_", text.replace(">", "_to_"), flags=re.ASCII)


def resource(engine: str, lane: int, lanes: int) -> str:
    """Return the resource that stands for a lane of an engine; it executes one runnable at a time."""
    return name(f"{engine}_{lane}" if lanes > 1 else engine)


def hyperperiod_ns(tasks: Iterable[Task]) -> int:
    """Return the least common multiple of all periods (ns)."""
    return math.lcm(*(task.period_ns for task in tasks))


def stm(plan: Plan) -> str:
    """Return the plan as a compute graph; its runnables are not preempted, whatever the plan's engines allow."""
    whole = hyperperiod_ns(plan.tasks)
    periods = sorted({task.period_ns for task in plan.tasks})
    graph = name(f"{plan.pipeline}_{plan.platform}")
    lines = [*_remarks(plan, whole), f"Version: {VERSION}", f"{graph}:", "  Identifier: 1", "  Resources:"]
    for engine in plan.engines:
        lanes = [resource(engine.id, lane, engine.lanes) for lane in range(engine.lanes)]
        lines.append(f"    {name(engine.id)}_units: [{', '.join(lanes)}]")
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
    before = [f"socsched.{name(other)}" for other in task.after if other in known]
    resources = [resource(task.engine, lane, lanes) for lane in task.lanes]
    return [
        f"          - {name(task.name)}:",
        f"              WCET: {task.wcet_ns}ns",
        f"              Resources: [{', '.join(resources)}]",
        f"              Dependencies: [{', '.join(before)}]",
    ]


def _remarks(plan: Plan, whole: int) -> list[str]:
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
    if whole > LONGEST_NS:
        remarks.append(f"The hyperepoch lasts {whole / 1e9:g} s: round the periods to a common multiple first.")
    return [f"# {line}" for text in remarks for line in textwrap.wrap(one_line(text), 116)]
