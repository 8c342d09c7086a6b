"""A plan as a DAG file of Apollo CyberRT: the activation of every task, with channels named `/socsched/TASK`.

Format: cyber/proto/dag_conf.proto and component_conf.proto.  Library and class of a component are the user's: they are
named after the task.  A component runs on every message of its first reader; a task that waits for several predecessors
cannot be stated, nor can a period that is no whole number of milliseconds.
"""

from __future__ import annotations

from socsched.errors import UsageError
from socsched.planning.export.textproto import quoted
from socsched.planning.export.threads import Request, proof

CHANNEL = "/socsched/"
_MS = 10**6


def write(request: Request) -> str:
    """Return the file; UsageError for a task that the format cannot state."""
    lines = [f"# {request.plan.pipeline}, as planned by socsched. Library and class are to be replaced."]
    for task in request.plan.tasks:
        name = request.names.get(task.name, task.name)
        if len(task.after) > 1:
            raise UsageError(
                f"{task.name} waits for {', '.join(task.after)}: a CyberRT component is triggered by one channel",
                "let it read all but the last one: `reads` in place of `after`",
            )
        if task.timer and task.period_ns % _MS:
            raise UsageError(
                f"{task.name}: {task.period_ns} ns is no whole number of milliseconds", "change the period"
            )
        kind = "timer_components" if task.timer else "components"
        lines += [f"# {proof(request, task.name)}", "module_config {", f"  module_library: {quoted(f'lib{name}.so')}"]
        lines += [f"  {kind} {{", f"    class_name: {quoted(name)}", "    config {", f"      name: {quoted(name)}"]
        if task.timer:
            lines.append(f"      interval: {task.period_ns // _MS}")
        for source in (*task.after, *task.reads):
            channel = quoted(CHANNEL + request.names.get(source, source))
            lines.append(f"      # reads {channel}" if task.timer else f"      readers {{ channel: {channel} }}")
        lines += ["    }", "  }", "}"]
    return "\n".join(lines) + "\n"
