"""A plan for Linux: the threads of its tasks, as a script to review, as drop-ins of systemd, and for ROS 2 executors.

All exports of a plan map the same `threads`, so that they agree; formats without budgets (rclcpp, cyberrt, systemd)
refuse plans of EDF, since priorities derived from deadlines would not have the bounds that the file quotes.  Names are
escaped reversibly, never replaced, so that a file is read back as it was.

A task has a thread on each of its lanes: the first runs the callback, the others are its workers (`task/1`, `task/2`).
Documentation/scheduler/sched-deadline.rst of the kernel: runtime <= deadline <= period, 1024 ns of runtime at least,
and the sum of runtime / period at most rt_runtime / rt_period (0.95) of the processors of a root domain.  A deadline
thread may not be pinned within its root domain, so each lane becomes one (a partition of cgroup v2's cpuset).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from socsched.errors import UsageError
from socsched.planning.plan import Plan, Task
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


def linux(request: ExportRequest) -> str:
    """Return a script to review: power mode, affinity, and SCHED_DEADLINE or SCHED_FIFO parameters."""
    plan, mode_id, processors = request.plan, request.mode_id, request.processors
    listed = entries(plan)
    lines = [
        "#!/bin/sh",
        *(f"# {one_line(line)}" for line in _script_remarks(plan, listed)),
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


def _here(plan: Plan, task: Task) -> bool:
    return next(engine for engine in plan.engines if engine.id == task.engine).preemption == "full"


def _script_remarks(plan: Plan, listed: Sequence[Entry]) -> list[str]:
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


@dataclass(frozen=True, slots=True)
class Thread:
    """Scheduling of one thread: `policy` deadline (times in ns), fifo, rr (`priority`), other, batch or idle (`nice`).

    `processors`: Linux CPU numbers it may run on; none: all.  `scope`: where its name holds, such as a ROS domain.
    """

    name: str
    policy: str
    processors: tuple[int, ...] = ()
    runtime_ns: int = 0
    deadline_ns: int = 0
    period_ns: int = 0
    priority: int = 0
    nice: int = 0
    scope: str = ""

    @property
    def task(self) -> str:
        """Return the task the thread belongs to."""
        return self.name.partition("/")[0]

    @property
    def worker(self) -> bool:
        """Return whether the thread only helps the one that runs the callback."""
        return "/" in self.name


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A plan to export; `processors`: Linux CPU numbers of the lanes of each engine, `mode_id`: that of nvpmodel.

    `template`: a file of the target whose identifiers are kept; `names`: task -> identifier given by the user.
    """

    plan: Plan
    processors: Mapping[str, Sequence[int]] = field(default_factory=dict)
    mode_id: int | None = None
    template: Path | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    def cpu(self, engine: str, lane: int) -> int:
        """Return the Linux CPU number of a lane."""
        numbers = self.processors.get(engine, ())
        return numbers[lane] if lane < len(numbers) else lane


def threads(request: ExportRequest) -> list[Thread]:
    """Return the threads of all tasks that Linux schedules, those of a task in the order of its lanes."""
    found, seen = list[Thread](), dict[str, int]()
    for entry in entries(request.plan):
        number = seen[entry.task] = seen.get(entry.task, -1) + 1
        name = f"{entry.task}/{number}" if number else entry.task
        cpus = (request.cpu(entry.engine, entry.lane),)
        times = (entry.runtime_ns, entry.deadline_ns, entry.period_ns)
        found.append(Thread(name, entry.kind, cpus, *times, entry.priority))
    return found


def fixed_priorities(request: ExportRequest, target: str) -> list[Thread]:
    """Return the threads for a target without SCHED_DEADLINE; UsageError if the plan is one of EDF."""
    if request.plan.policy == "edf":
        raise UsageError(
            f"{target} has no budgets and periods, which this plan (policy edf) needs for its bounds",
            "plan with --policy fp, or export as autoware or linux, which have SCHED_DEADLINE",
        )
    return threads(request)


def spare(request: ExportRequest, listed: Sequence[Thread]) -> list[int]:
    """Return the CPU numbers of the plan's cores on which no thread of the plan runs."""
    taken = {cpu for thread in listed for cpu in thread.processors}
    cores = [engine for engine in request.plan.engines if engine.preemption == "full"]
    every = {request.cpu(engine.id, lane) for engine in cores for lane in range(engine.lanes)}
    return sorted(every - taken)


def crowded(request: ExportRequest, listed: Sequence[Thread]) -> list[int]:
    """Return the CPU numbers whose threads need more than Linux grants real-time threads by default (`SHARE`)."""
    used: dict[int, float] = {}
    tasks = {task.name: task for task in request.plan.tasks}
    for thread in listed:
        task = tasks[thread.task]
        for cpu in thread.processors:
            used[cpu] = used.get(cpu, 0.0) + task.wcet_ns / task.period_ns
    return sorted(cpu for cpu, share in used.items() if share > SHARE)


def remarks(request: ExportRequest, listed: Sequence[Thread]) -> list[str]:
    """Return what a reader of the export must know: verdict, bounds, and what the target does not carry."""
    plan = request.plan
    lines = [
        f"{plan.pipeline} on {plan.platform} in {plan.mode}, as planned by socsched: {plan.verdict}. Read before use.",
        f"Bounds hold for policy {plan.policy}, the CPU numbers below and the WCETs given per task:",
    ]
    for chain in plan.chains:
        bound = f"at most {chain.bound_ns} ns" if chain.bound_ns is not None else "no bound"
        lines.append(f"  chain {chain.name}: {bound}, deadline {chain.deadline_ns} ns ({chain.test or 'no test'})")
    here = {thread.task for thread in listed}
    elsewhere = [f"{task.name} on {task.engine}" for task in plan.tasks if task.name not in here]
    if elsewhere:
        lines.append(f"Not scheduled by Linux, and not listed: {', '.join(elsewhere)}.")
    gangs = [task.name for task in plan.tasks if task.name in here and len(task.lanes) > 1]
    if gangs:
        lines.append(f"Linux does not start the lanes of a task together, as the bounds assume: {', '.join(gangs)}.")
    return [one_line(line) for line in lines]


def proof(request: ExportRequest, task: str) -> str:
    """Return the comment on a task: its WCET and period, and the chains with bounds that it is part of."""
    found = next(t for t in request.plan.tasks if t.name == task)
    parts = [f"wcet {found.wcet_ns} ns, period {found.period_ns} ns"]
    for chain in request.plan.chains:
        if task in chain.path and chain.bound_ns is not None:
            parts.append(f"{chain.name} <= {chain.bound_ns} ns")
    return one_line(f"{task}: {'; '.join(parts)}")


def quoted(text: str) -> str:
    """Return text as a double-quoted scalar that YAML and JSON readers take back unchanged; ASCII only."""
    return "".join(f"\\U{ord(char):08x}" if ord(char) > 0xFFFF else json.dumps(char)[1:-1] for char in text).join('""')


DROP_IN = "50-socsched.conf"
LONGEST_UNIT = 200
"""Bytes of an escaped name; systemd allows 255 with the suffix."""


def escape(text: str) -> str:
    """Return text as part of a unit's name, as systemd-escape does: reversible, so that names stay different."""
    body = re.sub(
        rb"[^A-Za-z0-9:_.]", lambda m: b"-" if m[0] == b"/" else b"\\x%02x" % m[0][0], text.encode("utf-8", "replace")
    ).decode("ascii")
    return "\\x2e" + body[1:] if body.startswith(".") else body


def systemd(request: ExportRequest) -> dict[str, str]:
    """Return relative path -> text of a drop-in for each task's service (systemd.exec(5)), of scheduling alone.

    The service keeps its own command, and all its threads inherit the settings.  UsageError for a plan of EDF, as
    systemd has no SCHED_DEADLINE.
    """
    listed = fixed_priorities(request, "systemd")
    tasks: dict[str, list[Thread]] = {}
    for thread in listed:
        tasks.setdefault(thread.task, []).append(thread)
    found: dict[str, str] = {}
    for task, mine in tasks.items():
        name = request.names.get(task, escape(task))
        if "/" in name or "\0" in name or not name or len(name) > LONGEST_UNIT:
            raise UsageError(f"task {task}: {name[:60]!r} is no name of a service", f"give one: --map '{task}=SERVICE'")
        path = f"{name.removesuffix('.service')}.service.d/{DROP_IN}"
        if path in found:
            raise UsageError(f"two tasks have the service {name}", "give each its own: --map TASK=SERVICE")
        cpus = " ".join(str(cpu) for thread in mine for cpu in thread.processors)
        lines = [f"# {line}" for line in (*remarks(request, listed), proof(request, task))]
        lines += ["[Service]", f"CPUAffinity={cpus}", "CPUSchedulingPolicy=fifo"]
        lines += [f"CPUSchedulingPriority={mine[0].priority}", f"LimitRTPRIO={mine[0].priority}"]
        found[path] = "\n".join(lines) + "\n"
    return found


POLICY = "FIFO"


def rclcpp(request: ExportRequest) -> str:
    """Return the thread attributes that REP-2017 (ros-infrastructure/rep#385) reads from YAML.

    Keys as in its prototype parser: name, core_affinity, scheduling_policy, priority; unknown keys are refused there.
    `EventsCBGExecutor::DedicatedThreadOptions` (ros2/rclcpp#3247, a draft) is set in C++ and takes the same values.
    UsageError for a plan of EDF, since the format has no budgets.
    """
    listed = fixed_priorities(request, "rclcpp")
    lines = [f"# {line}" for line in remarks(request, listed)]
    lines += [
        "# REP-2017 (a draft): export ROS_THREAD_ATTRS_FILE=THIS_FILE. DedicatedThreadOptions of rclcpp#3247, a draft:",
        "# name, SchedulingPolicy::Fifo, priority and cpu_affinity = core_affinity of the same thread.",
    ]
    for thread in listed:
        name = request.names.get(thread.task, thread.task) + thread.name.removeprefix(thread.task)
        lines += [f"# {proof(request, thread.task)}", f"- name: {quoted(name)}", f"  scheduling_policy: {POLICY}"]
        lines += [f"  priority: {thread.priority}", f"  core_affinity: {list(thread.processors)}"]
    return "\n".join(lines) + "\n"
