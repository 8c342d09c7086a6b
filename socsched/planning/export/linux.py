"""A plan as Linux settings: power mode, affinity, and SCHED_DEADLINE or SCHED_FIFO parameters, in a script to review.

Documentation/scheduler/sched-deadline.rst of the kernel: runtime <= deadline <= period, 1024 ns of runtime at least,
and the sum of runtime / period at most rt_runtime / rt_period (0.95) of the processors of a root domain.  A deadline
thread may not be pinned within its root domain, so each lane becomes one (a partition of cgroup v2's cpuset).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.planning.plan import Plan, PlannedEngine, Task
from socsched.text import one_line

LEAST_NS = 1024
"""Least runtime of SCHED_DEADLINE (kernel/sched/deadline.c, __checkparam_dl)."""
LEAST_PERIOD_NS, MOST_PERIOD_NS = 100_000, 2**22 * 1000
"""Periods the kernel accepts by default (sched_deadline_period_min_us, sched_deadline_period_max_us; since 5.4)."""
SHARE = 0.95
"""Share the kernel allows real-time threads by default (sched_rt_runtime_us 950000 of sched_rt_period_us 1000000)."""
TOP = 80
"""SCHED_FIFO priority of the most urgent task; below the kernel's migration and watchdog threads (99)."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Scheduling of a task's thread on `lane` of `engine`; times in ns under ``deadline``, else `priority`."""

    task: str
    engine: str
    lane: int
    kind: str
    runtime_ns: int = 0
    deadline_ns: int = 0
    period_ns: int = 0
    priority: int = 0


def entries(plan: Plan) -> list[Entry]:
    """Return an entry for every lane of every task on an engine that Linux schedules: one that is fully preemptive.

    EDF: the budget is the WCET; the deadline counts from the activation, so it is the local deadline less the latest
    activation.  A period over the kernel's most is cut to it: the budget is renewed more often than needed.  Fixed
    priorities: SCHED_FIFO in the plan's order.
    """
    found, ranks = [], sorted({task.priority for task in plan.tasks if _here(plan, task)})
    for task in plan.tasks:
        if not _here(plan, task):
            continue
        for lane in task.lanes:
            if plan.policy == "edf":
                runtime = max(task.wcet_ns, LEAST_NS)
                longest = max(min(task.period_ns, MOST_PERIOD_NS), runtime)
                window = max(min(task.deadline_ns - task.jitter_ns, longest), runtime)
                period = max(longest, window)
                found.append(Entry(task.name, task.engine, lane, "deadline", runtime, window, period))
            else:
                priority = max(TOP - ranks.index(task.priority), 1)
                found.append(Entry(task.name, task.engine, lane, "fifo", priority=priority))
    return found


def admission(listed: Sequence[Entry]) -> dict[tuple[str, int], float]:
    """Return the share of every lane that its deadline threads reserve; the kernel refuses more than `SHARE`."""
    used: dict[tuple[str, int], float] = {}
    for entry in listed:
        if entry.kind == "deadline":
            key = (entry.engine, entry.lane)
            used[key] = used.get(key, 0.0) + entry.runtime_ns / entry.period_ns
    return used


def linux(plan: Plan, mode_id: int | None, processors: Mapping[str, Sequence[int]]) -> str:
    """Return the script; `processors`: Linux numbers of each engine's units, `mode_id`: that of nvpmodel."""
    listed = entries(plan)
    lines = [
        "#!/bin/sh",
        *(f"# {one_line(line)}" for line in _remarks(plan, listed)),
        "set -eu",
        'RUN="${RUN:-}" # RUN=echo only prints the commands',
    ]
    lines += ["", "# Linux CPU numbers of the units in use, in the order of lanes: check with `lscpu -e` before use"]
    units = _variables(listed)
    for engine in (e for e in plan.engines if e.id in units):
        numbers = [f"{n:d}" for n in processors.get(engine.id, range(engine.lanes))][: engine.lanes]
        lines.append(f'{units[engine.id]}="{" ".join(numbers)}"')
    lines += ["", 'unit() { shift "$1"; shift; echo "$1"; } # lane, numbers -> number', *_PLACE, "", "show() {"]
    lines += ['  echo "task engine lane policy runtime_ns deadline_ns period_ns priority"']
    for entry in listed:
        times = f"{entry.runtime_ns} {entry.deadline_ns} {entry.period_ns} {entry.priority}"
        row = f"{entry.task} {entry.engine} {entry.lane} {entry.kind} {times}"
        lines.append(f"  printf '%s\\n' {shlex.quote(one_line(row))}")
    lines += ["}", "", "prepare() {"]
    mode = one_line(plan.mode)
    lines.append(f"  $RUN nvpmodel -m {mode_id:d} # {mode}" if mode_id is not None else f"  : # set mode {mode}")
    lanes = dict.fromkeys((entry.engine, entry.lane) for entry in listed)
    lines += [f'  domain {units[engine]}_{lane} "$(unit {lane} ${units[engine]})"' for engine, lane in lanes]
    lines += ["}", "", "apply() { # task, process identity for each of its lanes", '  task=$1; shift; case "$task" in']
    for task in dict.fromkeys(entry.task for entry in listed):
        lines.append(f"    {shlex.quote(task)})")
        for number, entry in enumerate((e for e in listed if e.task == task), 1):
            lines.append(f'      {_call(entry, units[entry.engine])} "${{{number}}}"')
        lines[-1] += " ;;"
    lines += ['    *) echo "not a Linux thread: $task" >&2; exit 2 ;;', "  esac", "}", "", *_MAIN]
    return "\n".join(lines) + "\n"


_PLACE = [
    "domain() { # name, processor: create a separate root domain",
    "  ${RUN:+echo} write +cpuset /sys/fs/cgroup/cgroup.subtree_control",
    '  $RUN mkdir -p "/sys/fs/cgroup/$1"',
    '  ${RUN:+echo} write "$2" "/sys/fs/cgroup/$1/cpuset.cpus"',
    '  ${RUN:+echo} write root "/sys/fs/cgroup/$1/cpuset.cpus.partition"',
    "}",
    'write() { echo "$1" > "$2"; }',
    "deadline() { # domain, runtime, deadline, period, process",
    '  ${RUN:+echo} write "$5" "/sys/fs/cgroup/$1/cgroup.procs"',
    '  $RUN chrt --deadline --sched-runtime "$2" --sched-deadline "$3" --sched-period "$4" --pid 0 "$5"',
    "}",
    "fifo() { # processor, priority, process",
    '  $RUN taskset --cpu-list --pid "$1" "$3"',
    '  $RUN chrt --fifo --pid "$2" "$3"',
    "}",
]
_MAIN = [
    'case "${1:-show}" in',
    "  show) show ;;",
    "  prepare) prepare ;;",
    '  apply) shift; apply "$@" ;;',
    '  *) echo "usage: $0 [show | prepare | apply TASK PROCESS...]" >&2; exit 2 ;;',
    "esac",
]


def refused(runtime_ns: int, deadline_ns: int, period_ns: int) -> tuple[str, str] | None:
    """Return which of the times of SCHED_DEADLINE the kernel refuses, and what it expects; None if it takes them."""
    if runtime_ns < LEAST_NS:
        return "runtime", f"expected at least {LEAST_NS} ns, the kernel's least, got {runtime_ns} ns"
    if runtime_ns > deadline_ns:
        return "runtime", f"expected at most the deadline of {deadline_ns} ns, got {runtime_ns} ns (the kernel: EINVAL)"
    if deadline_ns > period_ns:
        return "deadline", f"expected at most the period of {period_ns} ns, got {deadline_ns} ns (the kernel: EINVAL)"
    if not LEAST_PERIOD_NS <= period_ns <= MOST_PERIOD_NS:
        limits = f"{LEAST_PERIOD_NS} to {MOST_PERIOD_NS} ns"
        return (
            "period",
            f"expected {limits}, the kernel's default (sched_deadline_period_min_us, _max_us), got {period_ns} ns",
        )
    return None


def _call(entry: Entry, engine: str) -> str:
    if entry.kind == "deadline":
        return f"deadline {engine}_{entry.lane} {entry.runtime_ns} {entry.deadline_ns} {entry.period_ns}"
    return f'fifo "$(unit {entry.lane} ${engine})" {entry.priority}'


def _variables(listed: Sequence[Entry]) -> dict[str, str]:
    """Return a shell variable for each engine; engines whose names differ only in punctuation get different ones."""
    found: dict[str, str] = {}
    for entry in listed:
        if entry.engine not in found:
            plain = "units_" + re.sub("[^A-Za-z0-9]", "_", entry.engine)
            found[entry.engine] = plain if plain not in found.values() else f"{plain}_{len(found)}"
    return found


def _engine(plan: Plan, task: Task) -> PlannedEngine:
    return next(engine for engine in plan.engines if engine.id == task.engine)


def _here(plan: Plan, task: Task) -> bool:
    return _engine(plan, task).preemption == "full"


def _remarks(plan: Plan, listed: Sequence[Entry]) -> list[str]:
    remarks = [
        f"{plan.pipeline} on {plan.platform} in {plan.mode}, as planned by socsched: {plan.verdict}. Read before use.",
        "show: the table; prepare: power mode and processors; apply TASK PROCESS...: one process for each lane.",
    ]
    elsewhere = [f"{task.name} on {task.engine}" for task in plan.tasks if not _here(plan, task)]
    if elsewhere:
        remarks.append(
            f"Not scheduled by Linux: {', '.join(elsewhere)}. The threads that submit them are short and not listed."
        )
    for (engine, lane), used in admission(listed).items():
        if used > SHARE:
            remarks.append(
                f"NOT ADMITTED under the kernel's default settings: {engine} lane {lane} reserves {used:.1%} of a "
                f"processor; real-time work may use {SHARE:.0%}. Write -1 to /proc/sys/kernel/sched_rt_runtime_us, or "
                "plan again."
            )
    for entry in listed:
        fault = refused(entry.runtime_ns, entry.deadline_ns, entry.period_ns) if entry.kind == "deadline" else None
        if fault:
            remarks.append(f"NOT ACCEPTED by the kernel: {fault[0]} of {entry.task}: {fault[1]}.")
    gangs = [task.name for task in plan.tasks if _here(plan, task) and len(task.lanes) > 1]
    if gangs:
        remarks.append(f"Linux does not start the lanes of a task together, as the bounds assume: {', '.join(gangs)}.")
    return remarks
