"""A plan as the thread configuration of Autoware's callback isolated executor, and such a file read back.

Format: callback_isolated_executor_doc, docs/yaml-specification.md, and agnocast_doc,
docs/callback-isolated-executor/yaml-specification.md, which adds rt_throttling, kernel_threads and irqs.  A worker
thread of a task is no callback group and is listed under non_ros_threads; its `id` and `name` are equal, since the two
specifications name that key differently.  Versions before `nice` write the nice value of SCHED_OTHER as `priority`, as
their prerun mode's template does.  An id holds within a ROS domain (`domain_id`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from socsched.bounded import read_plain
from socsched.descriptor.source import Document, kind_of, parse, read
from socsched.errors import UsageError
from socsched.planning.export.linux import (
    ExportRequest,
    Thread,
    crowded,
    proof,
    quoted,
    refused,
    remarks,
    spare,
    threads,
)

POLICIES = {
    "deadline": "SCHED_DEADLINE",
    "fifo": "SCHED_FIFO",
    "rr": "SCHED_RR",
    "other": "SCHED_OTHER",
    "batch": "SCHED_BATCH",
    "idle": "SCHED_IDLE",
}
MOST_BYTES = 16 * 2**20
UNMANAGEABLE = "UNMANAGEABLE"
_RANGES = {"priority": (1, 99), "nice": (-20, 19)}
_REAL_TIME = ("fifo", "rr")
_OTHER_UNIT = 100
"""A timer and a budget's period that differ by this factor are in different units."""
TIMER = re.compile(r"@Timer\((\d{1,17})\)")
_TIMES = ("runtime", "deadline", "period")


def write(request: ExportRequest) -> str:
    """Return the YAML; with a template, its callback groups, interrupts and kernel threads that the plan leaves alone.

    Raises UsageError if a task has no callback group in the template, or several.
    """
    listed = threads(request)
    template = read(request.template) if request.template else None
    document: dict[str, Any] = template.data if template else {}
    groups = _groups(template) if template else []
    ids = _ids(request, listed, groups) if template else {t.task: request.names.get(t.task, t.task) for t in listed}
    lines = [f"# {line}" for line in remarks(request, listed)]
    if isinstance(document.get("hardware_info"), dict):
        lines += ["hardware_info:"]
        lines += [f"  {quoted(str(key))}: {_scalar(value)}" for key, value in document["hardware_info"].items()]
    if not template:
        lines.append("# The ids are names of tasks: replace them, or give the file of the prerun mode with --template")
    over = crowded(request, listed)
    if over:
        lines.append(f"# CPUs {', '.join(map(str, over))} need more than the default share of real-time threads")
    lines += ["rt_throttling:", "  period_us: 1000000", f"  runtime_us: {-1 if over else 950000}", "callback_groups:"]
    chosen = {group["id"]: group for group in reversed(groups)}  # of several domains the first in the file
    for thread in listed:
        if not thread.worker and ids[thread.task]:
            domain = chosen.get(ids[thread.task], {}).get("domain_id")
            lines += [f"  # {proof(request, thread.task)}", *_entry({"id": ids[thread.task]}, thread, domain)]
    used = set(ids.values())
    for group in groups:
        if group["id"] not in used or group is not chosen[group["id"]]:
            lines += _kept(group)
    workers = [thread for thread in listed if thread.worker]
    others = [item for item in document.get("non_ros_threads") or [] if isinstance(item, dict)]
    if workers or others:
        lines.append("non_ros_threads:")
    for thread in workers:
        lines += _entry({"id": thread.name, "name": thread.name}, thread)
    for item in others:
        lines += _kept(item)
    return "\n".join([*lines, *_away(document, request, listed)]) + "\n"


def load(path: str | Path) -> list[Thread]:
    """Return the threads of a configuration, named by their ids; DescriptorError with every fault and its position."""
    raw = read_plain(path, "configuration", "expected a thread configuration (YAML)", MOST_BYTES)
    document = parse(raw, str(path))
    sections = ("callback_groups", "non_ros_threads")
    rows = [((section, number), item) for section in sections for number, item in _items(document, section)]
    places = [place for place, _ in rows]
    found = [_thread(document, place, item) for place, item in rows]
    seen: set[tuple[str, str]] = set()
    for place, thread in zip(places, found, strict=True):
        if thread and (_identity(thread.name), thread.scope) in seen:
            document.report((*place, "id"), f"expected every id once in a ROS domain, got {thread.name!r} again")
        elif thread:
            seen.add((_identity(thread.name), thread.scope))
    document.check()
    return [thread for thread in found if thread]


def _identity(name: str) -> str:
    """Return an id without the waitables at its end, which the executor ignores."""
    while name.endswith("@Waitable"):
        name = name.removesuffix("@Waitable")
    return name


def _items(document: Document, section: str) -> list[tuple[int, dict[str, Any]]]:
    rows = document.data.get(section)
    if rows is None:
        return []
    if not isinstance(rows, list):
        document.report((section,), f"expected a list, got {kind_of(rows)}")
        return []
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            document.report((section, number), f"expected a mapping of fields, got {kind_of(row)}")
    return [(number, row) for number, row in enumerate(rows) if isinstance(row, dict)]


def _groups(template: Document) -> list[dict[str, Any]]:
    groups = []
    for number, row in _items(template, "callback_groups"):
        if isinstance(row.get("id"), str):
            groups.append(row)
        else:
            template.report(("callback_groups", number, "id"), f"expected text, got {kind_of(row.get('id'))}")
    template.check()
    return groups


def _thread(document: Document, path: tuple[str, int], row: dict[str, Any]) -> Thread | None:
    """Return an entry as a thread; None after a finding."""
    before = len(document.findings)
    name = row.get("id", row.get("name"))
    if not isinstance(name, str):
        document.report((*path, "id"), f"expected text, got {kind_of(name)}")
    policy = next((known for known, text in POLICIES.items() if text == row.get("policy")), "")
    if not policy:
        expected = f"expected one of {', '.join(POLICIES.values())}, got {kind_of(row.get('policy'))}"
        document.report((*path, "policy"), expected)
    affinity = row.get("affinity") or []
    if not isinstance(affinity, list) or not all(type(cpu) is int and 0 <= cpu < 4096 for cpu in affinity):
        document.report((*path, "affinity"), "expected a list of CPU numbers")
    values = _values(document, path, policy, row)
    domain = row.get("domain_id")
    if domain is not None and (type(domain) is not int or not 0 <= domain <= 232):
        document.report((*path, "domain_id"), f"expected a whole number from 0 to 232, got {kind_of(domain)}")
    timers = [int(text) for text in TIMER.findall(str(name)) if int(text)]
    every = values.get("period_ns", 0)
    if every and timers and all(max(every, t) >= _OTHER_UNIT * min(every, t) for t in timers):
        stated = " and ".join(f"Timer({timer})" for timer in timers)
        document.report((*path, "period"), f"expected nanoseconds, as in the id's {stated}, got {every}")
    if len(document.findings) > before:
        return None
    return Thread(str(name), policy, tuple(affinity), scope=f"domain {domain}" if domain else "", **values)


def _values(document: Document, path: tuple[str, int], policy: str, row: dict[str, Any]) -> dict[str, int]:
    """Return the parameters of a policy, checked as the kernel checks them; findings for the others."""
    before = len(document.findings)
    if policy == "deadline":
        keys: tuple[str, ...] = _TIMES
    else:
        keys = ("priority",) if policy in _REAL_TIME else ("nice",) if policy else ()
    values: dict[str, int] = {}
    for key in keys:
        low, high = _RANGES.get(key, (1, 2**63 - 1))
        old = key == "nice" and "nice" not in row and "priority" in row
        stated = "priority" if old else key
        value = row.get(stated)
        if type(value) is not int or not low <= value <= high:
            document.report((*path, stated), f"expected a whole number from {low} to {high}, got {_got(value)}")
        else:
            values[f"{key}_ns" if key in _TIMES else key] = value
    if policy == "deadline" and len(document.findings) == before:
        fault = refused(**values)
        if fault:
            document.report((*path, fault[0]), fault[1])
    return values


def _got(value: object) -> str:
    return str(value) if type(value) is int and abs(value) < 10**30 else kind_of(value)


def _entry(names: dict[str, str], thread: Thread, domain: object = None) -> list[str]:
    head, *rest = [f"{key}: {quoted(value)}" for key, value in names.items()]
    rest += [f"domain_id: {_scalar(domain)}"] if domain is not None else []
    lines = [f"  - {head}", *(f"    {line}" for line in rest), f"    policy: {POLICIES[thread.policy]}"]
    if thread.policy == "deadline":
        lines += [f"    {key}: {getattr(thread, f'{key}_ns')}" for key in _TIMES]
    elif thread.policy in _REAL_TIME:
        lines.append(f"    priority: {thread.priority}")
    else:
        lines.append(f"    nice: {thread.nice}")
    return [*lines, f"    affinity: {list(thread.processors)}"]


def _ids(request: ExportRequest, listed: Sequence[Thread], groups: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the id of every task in the template: the one given, or that of the node with the task's name.

    Empty for a task that the user leaves out (`TASK=`).
    """
    known = [str(group["id"]) for group in groups]
    found: dict[str, str] = {}
    for task in dict.fromkeys(thread.task for thread in listed):
        if task in request.names:
            if request.names[task] and request.names[task] not in known:
                raise UsageError(
                    f"{request.template}: no callback group {request.names[task]!r}, which --map gives {task}",
                    "copy the id from the template",
                )
            found[task] = request.names[task]
            continue
        near = _near(task, [identity for identity in known if _serves(identity)])
        if len(near) != 1:
            problem = f"{len(near)} callback groups" if near else "no callback group"
            raise UsageError(
                f"{request.template}: {problem} of a node named like task {task}",
                f"give its id: --map '{task}=ID', or leave the task out: --map '{task}='",
            )
        found[task] = near[0]
    double = [i for i in found.values() if i and list(found.values()).count(i) > 1]
    if double:
        tasks = [task for task, identity in found.items() if identity == double[0]]
        raise UsageError(
            f"{request.template}: {' and '.join(tasks)} have the same callback group {double[0]!r}, and so one thread",
            f"give each a callback group of its own in the node, or leave one out: --map '{tasks[-1]}='",
        )
    return found


def _near(task: str, identities: Sequence[str]) -> list[str]:
    """Return the groups of the node with the task's name, else those of the longest name that the task's begins with.

    A name is that of a node alone or with its namespace, as in names of imported callbacks.
    """
    name = _plain(task)
    best, found = "", list[str]()
    for identity in identities:
        place = _plain(identity.partition("@")[0].strip("/"))
        for node in (place.rpartition("/")[2], place.replace("/", "_")):
            if (name == node or name.startswith(f"{node}_")) and len(node) >= len(best):
                found = [*found, identity] if node == best and identity not in found else [identity]
                best = node
    return found


def _plain(text: str) -> str:
    return text.replace("-", "_").lower()


def _serves(identity: str) -> bool:
    """Return whether a group has a timer or a subscription other than that of the node's own parameters."""
    calls = identity.split("@")[1:]
    return any(call.startswith(("Timer(", "Subscription(")) and "/parameter_events" not in call for call in calls)


def _kept(row: dict[str, Any]) -> list[str]:
    """Return an entry of the template as it was."""
    return [f"  {'-' if not n else ' '} {quoted(str(key))}: {_scalar(row[key])}" for n, key in enumerate(row)]


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_scalar(item) for item in value)}]"
    if value is None or isinstance(value, bool):
        return {None: "~", True: "true", False: "false"}[value]
    return str(value) if isinstance(value, int | float) else quoted(str(value))


def _away(document: dict[str, Any], request: ExportRequest, listed: Sequence[Thread]) -> list[str]:
    """Return the interrupts and kernel threads of the template, moved off the plan's CPUs where others are left."""
    taken = {cpu for thread in listed for cpu in thread.processors}
    free = spare(request, listed)
    lines = []
    for section in ("kernel_threads", "irqs"):
        rows = [row for row in document.get(section) or [] if isinstance(row, dict)]
        if rows:
            lines.append(f"{section}:")
        for row in rows:
            cpus = row.get("affinity")
            if isinstance(cpus, list) and free and taken & {cpu for cpu in cpus if isinstance(cpu, int)}:
                row = {**row, "affinity": [cpu for cpu in cpus if cpu not in taken] or free}
            lines += _kept(row)
    if not lines and not request.template:
        cpus = ", ".join(map(str, free)) or "none"
        lines.append(f"# irqs and kernel_threads: keep them off the CPUs above; left for them: {cpus}")
    return lines
