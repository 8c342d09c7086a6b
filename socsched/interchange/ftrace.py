"""Text of scheduler events: `trace-cmd report`, tracefs's `trace` file, and `perf script` of sched:sched_switch.

A job of a thread lasts from its wake-up (from its first switch-in where wake-ups were not recorded) until it blocks;
between the two it may be preempted.  The idle threads and threads that never block within the recording are left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.recording import HINT, Recording, Section
from socsched.trace.trace import Job, Slice, Trace

MOST_THREADS = 10_000
MOST_CPUS = 4096
LONGEST_LINE = 1000
_LINE = re.compile(
    r"(?P<comm>\S.{0,60}?)[-\s]\s*(?P<pid>\d{1,9})\s+(?:\([^)]*\)\s+)?\[(?P<cpu>\d{1,9})\]\s+(?:[^\s:]+\s+)?"
    r"(?P<time>\d{1,9}\.\d{1,9}):\s+(?P<perf>sched:)?(?P<event>sched_\w+):\s*(?P<rest>.*)"
)
_SWITCH = (
    re.compile(
        r"prev_comm=(.*?) prev_pid=(\d{1,9}) prev_prio=\d+ prev_state=(\S+) ==> next_comm=(.*?) next_pid=(\d{1,9})"
    ),
    re.compile(r"(.*?):(\d{1,9}) \[\d+\] (\S+) ==> (.*?):(\d{1,9}) \["),
)
_WAKE = (re.compile(r"comm=(.*?) pid=(\d{1,9})"), re.compile(r"(.*?):(\d{1,9}) \["))
_WAKES = ("sched_waking", "sched_wakeup", "sched_wakeup_new")
ENGINE = "cpu"
_HEAD = 2**20


def accepts(text: str) -> bool:
    """Return whether a line at the beginning of a file is a scheduler event."""
    return any(_match(line) for line in text[:_HEAD].splitlines())


def _match(line: str) -> re.Match[str] | None:
    return _LINE.match(line.strip()) if len(line) <= LONGEST_LINE else None


@dataclass(slots=True)
class _Thread:
    name: str
    ready_ns: int = -1
    start_ns: int = -1
    on: tuple[int, int] | None = None
    """CPU and time since which it runs."""
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    jobs: list[tuple[int, list[tuple[int, int, int]]]] = field(default_factory=list)
    partial: bool = False
    """Whether the job began before the recording did."""


def recording(path: Path, text: str) -> Recording:
    """Return the recording of a file: one section per thread; InputError if no thread ran a whole job."""
    threads, perf, lines = dict[int, _Thread](), False, 0
    for number, line in enumerate(text.splitlines(), 1):
        match = _match(line)
        if match is None:
            continue
        lines, perf = lines + 1, perf or bool(match["perf"])
        _event(path, number, match, threads)
    done = sorted((t for t in threads.values() if t.jobs), key=lambda t: (t.jobs[0][0], t.name))
    if not done:
        raise InputError(
            f"{path}: {lines} scheduler events, but no thread was seen from its start to its end",
            "record sched_switch and sched_wakeup: trace-cmd record -e sched_switch -e sched_wakeup",
        )
    counts: dict[str, int] = {}
    for thread in done:
        counts[thread.name] = counts.get(thread.name, 0) + 1
    pids = {id(thread): pid for pid, thread in threads.items()}
    names = {id(t): t.name if counts[t.name] == 1 else f"{t.name}-{pids[id(t)]}" for t in done}
    sections = tuple(_section(names[id(t)], t) for t in done)
    tool = "perf script" if perf else "ftrace"
    return Recording(
        str(path), tool, sections, max(len(t.jobs) for t in done), trace=_trace([(names[id(t)], t) for t in done])
    )


def _event(path: Path, number: int, match: re.Match[str], threads: dict[int, _Thread]) -> None:
    whole, _, part = match["time"].partition(".")
    time, cpu = int(whole) * 10**9 + int(part.ljust(9, "0")), int(match["cpu"])
    if cpu >= MOST_CPUS:
        raise InputError(f"{path}:{number}: expected a CPU below {MOST_CPUS}, got {cpu}", HINT)

    def thread(name: str, pid: str) -> _Thread:
        if len(threads) >= MOST_THREADS:
            raise InputError(f"{path}:{number}: expected at most {MOST_THREADS} threads", "record fewer processes")
        found = threads.setdefault(int(pid), _Thread(name.strip()))
        found.name = name.strip() or found.name  # a thread may be renamed while it runs
        return found

    if match["event"] in _WAKES:
        found = next((m for pattern in _WAKE if (m := pattern.match(match["rest"]))), None)
        if found and found[2] != "0":
            woken = thread(found[1], found[2])
            if woken.ready_ns < 0 and woken.on is None and not woken.pieces:
                woken.ready_ns = time
    elif match["event"] == "sched_switch":
        found = next((m for pattern in _SWITCH if (m := pattern.match(match["rest"]))), None)
        if found is None:
            return
        if found[2] != "0":
            _stop(path, number, thread(found[1], found[2]), time, blocked=not found[3].startswith("R"))
        if found[5] != "0":
            starting = thread(found[4], found[5])
            starting.on = (cpu, time)
            if starting.ready_ns < 0:
                starting.ready_ns = time


def _stop(path: Path, number: int, thread: _Thread, time: int, blocked: bool) -> None:
    if thread.on is not None:
        cpu, since = thread.on
        if time < since:
            raise InputError(f"{path}:{number}: the events are not in the order of time", "sort them: trace-cmd report")
        thread.pieces.append((cpu, since, time))
        thread.on = None
    elif not thread.pieces:
        thread.partial = True
    if blocked:
        if not thread.partial:
            thread.jobs.append((thread.ready_ns, thread.pieces))
        thread.pieces, thread.ready_ns, thread.partial = [], -1, False


def _section(name: str, thread: _Thread) -> Section:
    times = tuple(sum(end - start for _, start, end in pieces) for _, pieces in thread.jobs)
    preempted = sum(len(pieces) - 1 for _, pieces in thread.jobs)
    spans = tuple((ready, pieces[0][1], pieces[-1][2]) for ready, pieces in thread.jobs)
    note = f"time on CPUs, {preempted} preemptions not included"
    return Section(name, 0, "cpu", (), sum(times) / len(times), times, note=note, spans_ns=spans)


def _trace(threads: list[tuple[str, _Thread]]) -> Trace:
    rows = [(ready, name, frame, pieces) for name, t in threads for frame, (ready, pieces) in enumerate(t.jobs)]
    rows.sort(key=lambda row: row[:3])
    zero = rows[0][0]
    jobs, slices, releases = list[Job](), list[Slice](), dict[str, list[int]]()
    for ready, name, frame, pieces in rows:
        for cpu, start, end in pieces:
            slices.append(Slice(ENGINE, (cpu,), len(jobs), name, start - zero, end - zero))
        ran = sum(end - start for _, start, end in pieces)
        moved = sum(a[0] != b[0] for a, b in pairwise(pieces))
        times = (ready - zero, -1, pieces[0][1] - zero, pieces[-1][2] - zero, ran, 0, len(pieces) - 1)
        jobs.append(Job(name, frame, *times, status="done", migrations=moved))
        releases.setdefault(name, []).append(ready - zero)
    slices.sort(key=lambda piece: piece.start_ns)
    return Trace("measured", max(piece.end_ns for piece in slices), 0, jobs, slices, [], releases, {})
