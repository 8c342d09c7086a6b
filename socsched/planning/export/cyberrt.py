"""A plan as the scheduler configuration of Apollo CyberRT (choreography), and such a file read back.

Format: `scheduler_conf` with `choreography_conf` in text-format protocol buffers (cyber/proto/scheduler_conf.proto,
choreography_conf.proto; cyber/conf/example_sched_choreography.conf).  A task is pinned to a processor, an index into
choreography_cpuset; coroutines of a processor run in the order of `prio` and do not preempt each other.
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
    """Return the tasks of the choreography, then the named threads; DescriptorError with position for a fault.

    A task without a processor runs in the pool, on all of its processors.
    """
    root = textproto.read(path, "CyberRT configuration")
    conf = root.message("scheduler_conf")
    choreography = conf.message("choreography_conf")
    cpus = _numbers(choreography, "choreography_cpuset")
    pool = _numbers(choreography, "pool_cpuset")
    found = []
    for task in choreography.messages("tasks"):
        index = task.number("processor", -1)
        if index >= len(cpus):
            raise task.fault("processor", f"expected an index below {len(cpus)}, the CPUs of choreography_cpuset")
        fixed = index >= 0
        where = (cpus[index],) if fixed else tuple(pool)
        found.append(Thread(task.text("name"), "fifo" if fixed else "other", where, priority=task.number("prio", 1)))
    for thread in conf.messages("threads"):
        kind = {"SCHED_FIFO": "fifo", "SCHED_OTHER": "other"}.get(thread.text("policy"))
        if kind is None:
            raise thread.fault("policy", "expected SCHED_FIFO or SCHED_OTHER")
        where = tuple(_numbers(thread, "cpuset"))
        found.append(Thread(thread.text("name"), kind, where, priority=thread.number("prio", 1)))
    return found


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
