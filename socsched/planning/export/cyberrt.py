"""A plan as the scheduler configuration of Apollo CyberRT (choreography); such a file, and one of `classic`, read.

Format: `scheduler_conf` in text-format protocol buffers (cyber/proto/scheduler_conf.proto, choreography_conf.proto,
classic_conf.proto; the examples of Apollo 5.0 to 9.0 in cyber/conf).  Under `choreography` a task is pinned to a
processor, an index into choreography_cpuset; coroutines of a processor run in the order of `prio` and do not preempt
each other.  Under `classic`, the default, the tasks of a group share the threads and CPUs of that group.
"""

from __future__ import annotations

from pathlib import Path

from socsched.errors import UsageError
from socsched.planning.export import textproto
from socsched.planning.export.linux import TOP
from socsched.planning.export.textproto import Message, quoted
from socsched.planning.export.threads import Request, Thread, fixed_priorities, proof, remarks, spare


def write(request: Request) -> str:
    """Return the configuration; UsageError for a plan of EDF, since CyberRT has priorities alone."""
    listed = fixed_priorities(request, "cyberrt")
    if not listed:
        raise UsageError("nothing to export: no task runs on a CPU that Linux schedules", "use --export stm")
    owners = [thread for thread in listed if not thread.worker]
    cpus = sorted({cpu for thread in owners for cpu in thread.processors})
    every = sorted({cpu for thread in listed for cpu in thread.processors})
    pool = spare(request, listed) or every
    lines = [f"# {line}" for line in remarks(request, listed)]
    lines.append(
        "# Coroutines of a processor do not preempt each other: the bounds above hold only for tasks alone on theirs."
    )
    lines += ["scheduler_conf {", '  policy: "choreography"']
    lines.append(f'  process_level_cpuset: "{_cpuset(sorted({*every, *pool}))}"')
    for thread in (thread for thread in listed if thread.worker):
        name = request.names.get(thread.task, thread.task) + thread.name.removeprefix(thread.task)
        lines.append(f'  threads {{ name: {quoted(name)} cpuset: "{thread.processors[0]}"')
        lines.append(f'            policy: "SCHED_FIFO" prio: {thread.priority} }}')
    lines += [
        "  choreography_conf {",
        f"    choreography_processor_num: {len(cpus)}",
        '    choreography_affinity: "1to1"',
        f'    choreography_cpuset: "{_cpuset(cpus)}"',
        '    choreography_processor_policy: "SCHED_FIFO"',
        f"    choreography_processor_prio: {TOP}",
        f"    pool_processor_num: {len(pool)}",
        '    pool_affinity: "range"',
        f'    pool_cpuset: "{_cpuset(pool)}"',
        '    pool_processor_policy: "SCHED_OTHER"',
        "    pool_processor_prio: 0",
    ]
    for thread in owners:
        name = quoted(request.names.get(thread.task, thread.task))
        lines.append(f"    # {proof(request, thread.task)}")
        place = f"processor: {cpus.index(thread.processors[0])} prio: {thread.priority}"
        lines.append(f"    tasks {{ name: {name} {place} }}")
    return "\n".join([*lines, "  }", "}"]) + "\n"


def load(path: str | Path) -> list[Thread]:
    """Return the tasks of the policy, then the named threads; DescriptorError with position for a fault.

    choreography: a task without a processor runs in the pool, on all of its processors.  classic: `scope` is the group.
    """
    conf = textproto.read(path, "CyberRT configuration").message("scheduler_conf")
    stated = conf.text("policy", "choreography" if conf.messages("choreography_conf") else "classic")
    if stated not in ("classic", "choreography"):
        raise conf.fault("policy", f"expected classic or choreography, got {stated!r}")
    tasks = _classic(conf) if stated == "classic" else _choreography(conf.message("choreography_conf"))
    for thread in conf.messages("threads"):
        kind, where = _policy(thread, "policy"), tuple(_numbers(thread, "cpuset"))
        tasks.append(Thread(thread.text("name"), kind, where, priority=_priority(thread, "prio", kind, 1)))
    return tasks


def _choreography(conf: Message) -> list[Thread]:
    cpus, pool = _numbers(conf, "choreography_cpuset"), _numbers(conf, "pool_cpuset")
    _check_processors(conf, "choreography_")
    _check_processors(conf, "pool_")
    tasks = []
    for task in _once(conf.messages("tasks")):
        index = task.number("processor", -1)
        if index >= len(cpus):
            raise task.fault("processor", f"expected an index below {len(cpus)}, the CPUs of choreography_cpuset")
        fixed = index >= 0
        where = (cpus[index],) if fixed else tuple(pool)
        tasks.append(Thread(task.text("name"), "fifo" if fixed else "other", where, priority=task.number("prio", 1)))
    return tasks


def _classic(conf: Message) -> list[Thread]:
    groups = [group for classic in conf.messages("classic_conf") for group in classic.messages("groups")]
    tasks = []
    for group in groups:
        kind = _check_processors(group, "")
        where = tuple(_numbers(group, "cpuset"))
        scope = f"group {group.text('name', '')}".rstrip()
        for task in group.messages("tasks"):
            tasks.append((task, kind, where, scope))
    _once([task for task, *_ in tasks])
    return [
        Thread(task.text("name"), kind, where, priority=task.number("prio", 1), scope=scope)
        for task, kind, where, scope in tasks
    ]


def _once(tasks: list[Message]) -> list[Message]:
    """Return the tasks; DescriptorError for one that is there twice, of which CyberRT takes the last in silence."""
    seen: set[str] = set()
    for task in tasks:
        name = task.text("name")
        if name in seen:
            raise task.fault("name", f"expected every task once, got {name!r} again")
        seen.add(name)
    return tasks


def _check_processors(conf: Message, prefix: str) -> str:
    """Return the policy of the threads of a group or pool, whose priority must be one that Linux takes."""
    kind = _policy(conf, f"{prefix}processor_policy", "SCHED_OTHER")
    _priority(conf, f"{prefix}processor_prio", kind, 1 if kind in ("fifo", "rr") else 0)
    return kind


def _policy(message: Message, field: str, default: str | None = None) -> str:
    kinds = {"SCHED_FIFO": "fifo", "SCHED_RR": "rr", "SCHED_OTHER": "other"}
    kind = kinds.get(message.text(field, default))
    if kind is None:
        raise message.fault(field, f"expected one of {', '.join(kinds)}")
    return kind


def _priority(message: Message, field: str, kind: str, default: int) -> int:
    """Return a priority (fifo, rr) or nice value (other) in the range of Linux."""
    low, high = (1, 99) if kind in ("fifo", "rr") else (-20, 19)
    value = message.number(field, default)
    if not low <= value <= high:
        raise message.fault(field, f"expected {low} to {high}, got {value}")
    return value


def _cpuset(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))


def _numbers(message: Message, field: str) -> list[int]:
    """Return the CPUs of a set such as ``0-3, 6``."""
    found: list[int] = []
    for part in message.text(field, "").replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not part:
            continue
        if not (first.isdecimal() and first.isascii() and len(first) < 5) or (
            dash and not (last.isdecimal() and last.isascii() and len(last) < 5)
        ):
            raise message.fault(field, "expected CPU numbers and ranges such as 0-3,6")
        found += range(int(first), int(last or first) + 1)
        if len(found) > 4096:
            raise message.fault(field, "expected at most 4096 CPUs")
    return found
