"""A plan as the thread configuration of Autoware's callback isolated executor, and such a file read back.

Format: callback_isolated_executor_doc, docs/yaml-specification.md, and agnocast_doc,
docs/callback-isolated-executor/yaml-specification.md, which adds rt_throttling, kernel_threads and irqs.  A worker
thread of a task is no callback group and is listed under non_ros_threads; its `id` and `name` are equal, since the two
specifications name that key differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from socsched.descriptor.source import Document, kind_of, read
from socsched.errors import UsageError
from socsched.planning.export.threads import Request, Thread, crowded, proof, quoted, remarks, spare, threads

POLICIES = {"deadline": "SCHED_DEADLINE", "fifo": "SCHED_FIFO", "other": "SCHED_OTHER"}
UNMANAGEABLE = "UNMANAGEABLE"
_RANGES = {"priority": (1, 99), "nice": (-20, 19)}
_TIMES = ("runtime", "deadline", "period")


def write(request: Request) -> str:
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
    for thread in listed:
        if not thread.worker and ids[thread.task]:
            lines += [f"  # {proof(request, thread.task)}", *_entry({"id": ids[thread.task]}, thread)]
    used = set(ids.values())
    for group in groups:
        if group["id"] not in used:
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
    document = read(path)
    found = [_thread(document, ("callback_groups", n), item) for n, item in _items(document, "callback_groups")]
    found += [_thread(document, ("non_ros_threads", n), item) for n, item in _items(document, "non_ros_threads")]
    document.check()
    return [thread for thread in found if thread]


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
    keys = {"deadline": _TIMES, "fifo": ("priority",), "other": ("nice",)}.get(policy, ())
    for key in keys:
        low, high = _RANGES.get(key, (1, 2**53))
        value = row.get(key)
        if type(value) is not int or not low <= value <= high:
            document.report((*path, key), f"expected a whole number from {low} to {high}, got {kind_of(value)}")
    if len(document.findings) > before:
        return None
    values = {f"{key}_ns" if key in _TIMES else key: row[key] for key in keys}
    return Thread(str(name), policy, tuple(affinity), **values)


def _entry(names: dict[str, str], thread: Thread) -> list[str]:
    head, *rest = [f"{key}: {quoted(value)}" for key, value in names.items()]
    lines = [f"  - {head}", *(f"    {line}" for line in rest), f"    policy: {POLICIES[thread.policy]}"]
    if thread.policy == "deadline":
        lines += [f"    {key}: {getattr(thread, f'{key}_ns')}" for key in _TIMES]
    elif thread.policy == "fifo":
        lines.append(f"    priority: {thread.priority}")
    else:
        lines.append(f"    nice: {thread.nice}")
    return [*lines, f"    affinity: {list(thread.processors)}"]


def _ids(request: Request, listed: Sequence[Thread], groups: Sequence[dict[str, Any]]) -> dict[str, str]:
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


def _away(document: dict[str, Any], request: Request, listed: Sequence[Thread]) -> list[str]:
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
