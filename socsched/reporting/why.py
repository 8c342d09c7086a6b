"""Explanation of a late frame: a table whose times add up, and a one-sentence summary."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from socsched.planning.plan import Plan
from socsched.reporting.view_model import intervals_line, kept_intervals
from socsched.trace.why import KINDS, PLANNED, Cause, Explanation
from socsched.units import format_duration

_LOST = {
    "dropped": "was dropped",
    "aborted": "was aborted",
    "unfinished": "did not complete",
}


def headline(found: Explanation) -> str:
    """Return the outcome of the frame in one sentence."""
    name = f"{found.chain}, frame {found.frame}"
    deadline = f"deadline {format_duration(found.deadline_ns)}"
    after = format_duration(found.response_ns)
    if found.outcome != "completed":
        where = f" {found.reason}" if found.reason else ""
        return f"{name}: {_LOST[found.outcome]}{where}, {after} after its release ({deadline})"
    if found.lateness_ns > 0:
        return f"{name}: {format_duration(found.lateness_ns)} late (response time {after}, {deadline})"
    return f"{name}: in time, slack {format_duration(-found.lateness_ns)} (response time {after}, {deadline})"


def responsible_task(cause: Cause) -> str:
    """Return the task and frames responsible for a cause, and the reason if recorded."""
    frames = ", ".join(map(str, cause.frames[:3])) + (f" and {len(cause.frames) - 3} more" if cause.frames[3:] else "")
    name = f"{cause.by} {frames}".strip()
    return f"{name}: {cause.note}" if cause.note else name


def main_cause(found: Explanation) -> str:
    """Return the largest cause beyond the plan in a sentence; "" if the frame ran as planned."""
    cause = found.main_cause()
    if cause is None:
        return ""
    where = f" ({cause.engine})" if cause.engine else ""
    due = f", by {responsible_task(cause)}" if cause.by else ""
    return f"Main cause: {cause.task} {KINDS[cause.kind]}{where}, {format_duration(cause.ns)}{due}."


def worked(found: Explanation) -> dict[str, Any]:
    """Return the execution times of a measured frame's stages in the form of a result; empty for any other frame."""
    times: dict[str, int] = {}
    for part in found.parts:
        if part.kind in (*PLANNED, "above"):
            times[part.task] = times.get(part.task, 0) + part.ns
    complete = found.kind == "measured" and found.outcome == "completed"
    return {"stages": {task: {"exec_ns": {"p50": ns}} for task, ns in times.items() if complete}}


def view(found: Explanation, plan: Plan) -> RenderableType:
    """Return everything that `socsched why` prints; its times add up to the nanosecond.

    Stages of a measured frame that took another time than the interval which `plan` states for it are marked.
    """
    measured = worked(found)
    missed = kept_intervals(plan, measured)[2]
    unit, scale, digits = ("ms", 1e6, 6) if found.response_ns >= 1_000_000 else ("us", 1e3, 3)

    def show(ns: int) -> str:
        return f"{ns / scale:,.{digits}f}"

    causes = Table(box=None, pad_edge=False, header_style="dim")
    causes.add_column("stage", overflow="fold")
    causes.add_column(unit, justify="right", no_wrap=True)
    causes.add_column("what", no_wrap=True)
    causes.add_column("on", overflow="fold")
    causes.add_column("caused by", overflow="fold")
    before = ""
    for cause in found.causes():
        style = "" if cause.kind in PLANNED else "yellow"
        # a conversion is named after both its ends: one end per line
        stage = "" if cause.task == before else cause.task.replace(">", ">\n")
        what = KINDS[cause.kind] + " ✗" * (cause.kind == "above" and cause.task in missed)
        causes.add_row(*map(escape, (stage, show(cause.ns), what, cause.engine, responsible_task(cause))), style=style)
        before = cause.task
    summed = Table(box=None, pad_edge=False, show_header=False)
    summed.add_column()
    summed.add_column(justify="right", no_wrap=True)
    summed.add_column()
    sums = (
        ("", found.planned_ns, "as planned"),
        ("+", found.response_ns - found.planned_ns, "beyond plan"),
        ("=", found.response_ns, "response"),
        ("-", found.deadline_ns, "deadline"),
        ("=", abs(found.lateness_ns), "late" if found.lateness_ns > 0 else "slack"),
    )
    # for a lost frame, only the path up to the loss is known
    for sign, ns, text in sums if found.outcome == "completed" or found.lateness_ns > 0 else sums[:3]:
        summed.add_row(sign, show(ns), f"{unit} {text}")
    mark, style = ("✓", "bold green") if found.met else ("✗", "bold red")
    released = f"released at {format_duration(found.release_ns)}, {found.kind}"
    parts: list[RenderableType] = [Text(f"{mark} {headline(found)}", style), Text(released, "dim"), Text("")]
    parts += [causes, Text(""), summed]
    lines = [line for line in (main_cause(found), intervals_line(plan, measured)) if line]
    return Group(*parts, *([Text("")] if lines else []), *map(Text, lines))
