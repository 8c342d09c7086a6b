"""A plan as drop-ins for systemd services, one service per task (systemd.exec(5)).

A drop-in holds scheduling alone, so that the service keeps its own command.  All threads of the service inherit it.
"""

from __future__ import annotations

import re

from socsched.errors import UsageError
from socsched.planning.export.threads import Request, Thread, fixed_priorities, proof, remarks

FILE = "50-socsched.conf"
LONGEST = 200
"""Bytes of an escaped name; systemd allows 255 with the suffix."""


def escape(text: str) -> str:
    """Return text as part of a unit's name, as systemd-escape does: reversible, so that names stay different."""
    body = re.sub(
        rb"[^A-Za-z0-9:_.]", lambda m: b"-" if m[0] == b"/" else b"\\x%02x" % m[0][0], text.encode("utf-8", "replace")
    ).decode("ascii")
    return "\\x2e" + body[1:] if body.startswith(".") else body


def write(request: Request) -> dict[str, str]:
    """Return relative path -> text of every drop-in; UsageError for a plan of EDF, as systemd has no SCHED_DEADLINE."""
    listed = fixed_priorities(request, "systemd")
    tasks: dict[str, list[Thread]] = {}
    for thread in listed:
        tasks.setdefault(thread.task, []).append(thread)
    found: dict[str, str] = {}
    for task, mine in tasks.items():
        name = request.names.get(task, escape(task))
        if "/" in name or "\0" in name or not name or len(name) > LONGEST:
            raise UsageError(f"task {task}: {name[:60]!r} is no name of a service", f"give one: --map '{task}=SERVICE'")
        path = f"{name.removesuffix('.service')}.service.d/{FILE}"
        if path in found:
            raise UsageError(f"two tasks have the service {name}", "give each its own: --map TASK=SERVICE")
        cpus = " ".join(str(cpu) for thread in mine for cpu in thread.processors)
        lines = [f"# {line}" for line in (*remarks(request, listed), proof(request, task))]
        lines += ["[Service]", f"CPUAffinity={cpus}", "CPUSchedulingPolicy=fifo"]
        lines += [f"CPUSchedulingPriority={mine[0].priority}", f"LimitRTPRIO={mine[0].priority}"]
        found[path] = "\n".join(lines) + "\n"
    return found
