"""Text of scheduler events: `trace-cmd report`, tracefs's `trace` file, `perf script`, and systrace text of Perfetto.

A job of a thread lasts from its wake-up (from its first switch-in where wake-ups were not recorded) until it blocks;
between the two it may be preempted.  Interrupts on its CPU count as its time.  The idle threads and threads that never
block within the recording are left out.

A mean over what is left of jobs would be biased to short ones.  Where events were lost on a CPU, jobs that may have
been there in the meantime are left out and counted: those in progress that do not run on another CPU, and the next one
of a thread that is not seen to be woken, unless the CPU was idle before.  Forms of losses: tracefs ``CPU:1 [LOST 9
EVENTS]`` and ``CPU 1 buffer started``, trace-cmd ``CPU:1 [9 EVENTS DROPPED]``, perf ``PERF_RECORD_LOST``.  Versions:
docs/imports.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from socsched.errors import InputError
from socsched.interchange.profile_model import HINT, Recording, Section
from socsched.limits import LONGEST_NS
from socsched.text import one_line
from socsched.trace.trace import Job, Slice, Trace

MOST_THREADS = 10_000
MOST_CPUS = 4096
LONGEST_LINE = 1000
BACK_NS = 10**9
"""Furthest that an event may lie before the one above it; more is another clock, as a jump by over an hour is."""
MOST_STRETCHES = 1000
_LINE = re.compile(
    r"(?P<comm>\S.{0,60}?)[-\s]\s*(?P<pid>\d{1,9})(?:/\d{1,9})?\s+(?:\([^)]*\)\s+)?\[(?P<cpu>\d{1,9})\]\s+(?:[^\s:]+\s+)?"
    r"(?P<time>\d{1,12}\.\d{1,9}):\s+(?P<perf>sched:)?(?P<event>sched_\w+):\s*(?P<rest>.*)"
)
_LOST = (
    re.compile(r"CPU:\s*(?P<cpu>\d{1,9})\s+\[LOST\s+(?:(?P<count>\d{1,18})\s+)?EVENTS\]"),
    re.compile(r"CPU:\s*(?P<cpu>\d{1,9})\s+\[(?:(?P<count>\d{1,18})\s+)?EVENTS DROPPED\]"),
    re.compile(r"#+ CPU\s+(?P<cpu>\d{1,9}) buffer started (?P<count>)#+"),
    re.compile(r"\S.{0,100}?\[(?P<cpu>\d{1,9})\].{0,100}? PERF_RECORD_LOST\b.{0,40}?\blost\D{0,4}(?P<count>\d{1,18})"),
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
class _Job:
    """`ready_ns`, and the CPU, start and end of every piece.

    `woken`: its wake-up was recorded; `doubts`: CPUs whose lost events may have been its own.
    """

    ready_ns: int
    woken: bool = False
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    doubts: set[int] = field(default_factory=set)

    def waited(self, since: int) -> bool:
        """Return whether it was ready but not seen on a CPU at some time after `since`."""
        at = self.ready_ns
        for _, start, end in self.pieces:
            if start > max(at, since) or start == self.ready_ns > since:
                return True
            at = end
        return False


@dataclass(slots=True)
class _Thread:
    """A thread while it is followed: its job in progress, the CPU and time since which it runs, all whole jobs.

    `partial`: the job began before the recording.  `doubts`: CPUs that lost events since the thread was last known to
    be blocked, so that its next job may have begun unseen.  `discarded`: jobs left out because events were lost.
    """

    pid: int
    name: str = ""
    job: _Job | None = None
    on: tuple[int, int] | None = None
    jobs: list[_Job] = field(default_factory=list)
    cpus: set[int] = field(default_factory=set)
    partial: bool = False
    doubts: set[int] = field(default_factory=set)
    discarded: int = 0

    def gap(self, cpu: int, since: int) -> None:
        """Take note that events of a CPU were lost since a time."""
        for job in reversed(self.jobs):
            if job.pieces[-1][2] <= since:
                break
            if job.waited(since):
                job.doubts.add(cpu)
        last = self.on[0] if self.on else self.job.pieces[-1][0] if self.job and self.job.pieces else None
        if last == cpu:
            self.discarded += not self.partial
            self.job, self.on, self.partial = None, None, False
        elif self.job is not None and (self.on is None or self.on[1] > since):
            self.job.doubts.add(cpu)
        if self.job is None:
            self.doubts.add(cpu)

    def sift(self) -> None:
        """Leave out the jobs that lost events may have belonged to: those of CPUs on which the thread ran at all.

        So is a first job that was not seen to be woken, as later ones were: it may have begun before the recording.
        """
        if self.jobs and not self.jobs[0].woken and any(job.woken for job in self.jobs):
            self.discarded += bool(self.jobs[0].doubts & self.cpus)
            del self.jobs[0]
        kept = [job for job in self.jobs if not job.doubts & self.cpus]
        self.discarded += len(self.jobs) - len(kept)
        self.jobs = kept


@dataclass(slots=True)
class _Stretch:
    """What one clock saw: threads by number, events, events lost, and the time of the last event of every CPU."""

    threads: dict[int, _Thread] = field(default_factory=dict)
    events: int = 0
    lost: int = 0
    gaps: int = 0
    last_ns: int = 0
    seen_ns: dict[int, int] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)
    """CPUs that lost events and were not seen idle since."""

    def gap(self, cpu: int, count: int) -> None:
        """Take note of `count` events lost on a CPU, 0 if their number is not known."""
        self.lost, self.gaps = self.lost + count, self.gaps + 1
        self.doubted.add(cpu)
        for thread in self.threads.values():
            thread.gap(cpu, self.seen_ns.get(cpu, -1))

    def idle(self, cpu: int) -> None:
        """Take note of an idle CPU: nothing that could run was waiting for it."""
        if cpu in self.doubted:
            self.doubted.remove(cpu)
            for thread in self.threads.values():
                thread.doubts.discard(cpu)

    @property
    def discarded(self) -> int:
        return sum(thread.discarded for thread in self.threads.values())


def recording(path: Path, text: str) -> Recording:
    """Return the recording of a file: one section per thread; InputError if no thread ran a whole job."""
    stretches, perf = [_Stretch()], False
    for number, line in enumerate(text.splitlines(), 1):
        match = _match(line)
        if match is not None:
            perf = perf or bool(match["perf"])
            _event(path, number, match, stretches)
        elif len(line) <= LONGEST_LINE and ("LOST" in line or "DROPPED" in line or "buffer started" in line):
            lost = next((m for pattern in _LOST if (m := pattern.match(line.strip()))), None)
            if lost is not None:
                stretches[-1].gap(int(lost["cpu"]), int(lost["count"] or 0))
    kept = max(stretches, key=lambda stretch: stretch.events)
    for thread in kept.threads.values():
        thread.sift()
    done = sorted((t for t in kept.threads.values() if t.jobs), key=lambda t: (t.jobs[0].ready_ns, t.name))
    said = _said(stretches, kept)
    if not done:
        events = sum(stretch.events for stretch in stretches)
        raise InputError(
            f"{path}: {events} scheduler events, but no thread was seen from its start to its end"
            + (f"; {said}" if said else ""),
            "record sched_switch and sched_wakeup: trace-cmd record -e sched_switch -e sched_wakeup",
        )
    names = _names(done)
    sections = tuple(_section(name, thread) for name, thread in zip(names, done, strict=True))
    return Recording(
        str(path),
        "perf script" if perf else "ftrace",
        sections,
        max(len(t.jobs) for t in done),
        trace=_trace(list(zip(names, done, strict=True)), kept.gaps),
        lost=kept.lost,
        discarded=kept.discarded,
        notes=(f"{path.name}: {said}",) if said else (),
    )


def _said(stretches: Sequence[_Stretch], kept: _Stretch) -> str:
    said = []
    if kept.gaps:
        count = f"{kept.lost} events" if kept.lost else "an unknown number of events"
        gaps = f"{kept.gaps} gap{'s' * (kept.gaps > 1)}"
        said.append(f"{count} were lost in {gaps}: {kept.discarded} jobs across them are left out")
    if len(stretches) > 1:
        left = sum(stretch.events for stretch in stretches) - kept.events
        said.append(f"the clock jumps: the longest stretch is used, {left} events of the others are left out")
    return "; ".join(said)


def _names(threads: Sequence[_Thread]) -> list[str]:
    """Return names that differ: those of threads, with their number where several have one name."""
    counts = Counter(thread.name for thread in threads)
    names = [t.name if counts[t.name] == 1 else f"{t.name}-{t.pid}" for t in threads]
    again = Counter(names)
    return [f"{name}-{t.pid}" if again[name] > 1 else name for name, t in zip(names, threads, strict=True)]


def _event(path: Path, number: int, match: re.Match[str], stretches: list[_Stretch]) -> None:
    whole, _, part = match["time"].partition(".")
    time, cpu = int(whole) * 10**9 + int(part.ljust(9, "0")), int(match["cpu"])
    if cpu >= MOST_CPUS:
        raise InputError(f"{path}:{number}: expected a CPU below {MOST_CPUS}, got {cpu}", HINT)
    stretch = stretches[-1]
    if stretch.events and not stretch.last_ns - BACK_NS <= time <= stretch.last_ns + LONGEST_NS:
        if len(stretches) >= MOST_STRETCHES:
            raise InputError(f"{path}:{number}: the clock jumps more than {MOST_STRETCHES} times", HINT)
        stretch = _Stretch()
        stretches.append(stretch)
    stretch.events, stretch.last_ns, stretch.seen_ns[cpu] = stretch.events + 1, time, time

    def thread(name: str, pid: str) -> _Thread:
        if len(stretch.threads) >= MOST_THREADS:
            raise InputError(f"{path}:{number}: expected at most {MOST_THREADS} threads", "record fewer processes")
        entry = stretch.threads.get(int(pid))
        if entry is None:
            entry = stretch.threads[int(pid)] = _Thread(int(pid), doubts=set(stretch.doubted))
        entry.name = name.strip() or entry.name  # a thread may be renamed while it runs
        return entry

    patterns = _WAKE if match["event"] in _WAKES else _SWITCH if match["event"] == "sched_switch" else ()
    switch = next((m for pattern in patterns if (m := pattern.match(match["rest"]))), None)
    if switch is None:
        return
    if patterns is _WAKE:
        if switch[2] != "0":
            _wake(thread(switch[1], switch[2]), time)
    else:
        if switch[2] != "0":
            _stop(path, number, thread(switch[1], switch[2]), time, blocked=not _can_run(switch[3]))
        if switch[5] != "0":
            starting = thread(switch[4], switch[5])
            starting.on = (cpu, time)
            starting.cpus.add(cpu)
            if starting.job is None:
                starting.job = _Job(time, doubts=set(starting.doubts))
        if "0" in (switch[2], switch[5]):
            stretch.idle(cpu)


def _wake(thread: _Thread, time: int) -> None:
    if thread.on is None and thread.job is not None and thread.job.doubts:  # it ended where events were lost
        thread.discarded += not thread.partial
        thread.job, thread.partial = None, False
    if thread.job is None and thread.on is None and not thread.partial:
        thread.job, thread.doubts = _Job(time, woken=True), set()


def _can_run(state: str) -> bool:
    """Return whether a thread that left its CPU could go on: its state is a letter, or a number of the kernel's."""
    return state.startswith("R") or (state[:1].isdecimal() and int(state, 0) & 0xFF == 0)


def _stop(path: Path, number: int, thread: _Thread, time: int, blocked: bool) -> None:
    if thread.on is not None:
        cpu, since = thread.on
        if time < since:
            raise InputError(f"{path}:{number}: the events are not in the order of time", "sort them: trace-cmd report")
        if thread.job is not None:
            thread.job.pieces.append((cpu, since, time))
        thread.on = None
    elif thread.job is None or not thread.job.pieces:
        thread.partial = True
    if blocked:
        if thread.job is not None and thread.job.pieces and not thread.partial:
            thread.jobs.append(thread.job)
        thread.job, thread.partial, thread.doubts = None, False, set()


def _section(name: str, thread: _Thread) -> Section:
    times = tuple(sum(end - start for _, start, end in job.pieces) for job in thread.jobs)
    preempted = sum(len(job.pieces) - 1 for job in thread.jobs)
    spans = tuple((job.ready_ns, job.pieces[0][1], job.pieces[-1][2]) for job in thread.jobs)
    note = f"thread {one_line(thread.name)}-{thread.pid}, time on CPUs, {preempted} preemptions not included"
    if thread.discarded:
        note += f", {thread.discarded} jobs left out since events were lost"
    return Section(name, 0, "cpu", (), sum(times) / len(times), times, note=note, spans_ns=spans)


def _frames(thread: _Thread, gaps: int) -> Iterator[tuple[int, _Job]]:
    """Yield the jobs of a thread with their numbers; with gaps, those that the distances leave room for."""
    distances = [after.ready_ns - before.ready_ns for before, after in pairwise(thread.jobs)]
    usual = max(1, sorted(distances)[len(distances) // 2]) if gaps and distances else 0
    frame = 0
    for job, distance in zip(thread.jobs, [0, *distances], strict=True):
        frame += max(1, round(distance / usual)) if usual and distance else bool(distance or job is not thread.jobs[0])
        yield frame, job


def _trace(threads: list[tuple[str, _Thread]], gaps: int) -> Trace:
    rows = [(job.ready_ns, name, frame, job.pieces) for name, t in threads for frame, job in _frames(t, gaps)]
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
    return Trace("measured", max(piece.end_ns for piece in slices), 0, jobs, slices, [], releases)
