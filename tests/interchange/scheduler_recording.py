"""Recordings of a simulated scheduler in the text forms of ftrace, trace-cmd and perf, with the jobs that it ran."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

US = 1000
MS = 1000 * US
STEP = 50 * US
CPUS = 2


@dataclass
class Thread:
    pid: int
    name: str
    period: int
    work: int
    prio: int
    pinned: int | None = None
    left: int = 0
    cpu: int | None = None
    ready: int = -1
    jobs: list[tuple[int, int, int]] = field(default_factory=list)
    """(ready, end, work) of every job."""


Event = tuple[int, int, str, Thread | None, Thread | None, bool]
"""Time, CPU, kind (wake or switch), the thread woken or that left, the one that came, whether the former blocked."""


def simulate(seed: int, until: int = 200 * MS, migrate: bool = True) -> tuple[list[Thread], list[Event]]:
    """Run periodic threads by fixed priorities on two CPUs, in steps of 50 us; every third one is pinned."""
    rng = random.Random(seed)
    threads = []
    for number in range(5):
        period = rng.choice([10, 20, 25, 50]) * MS
        work = rng.randrange(5, 30) * period // 100 // (STEP) * (STEP)
        pinned = number % CPUS if number % 3 == 0 or not migrate else None
        threads.append(Thread(900 + number, f"thread{number}", period, work, number, pinned))
    phases = {thread.pid: rng.randrange(10) * 2 * STEP for thread in threads}
    running: list[Thread | None] = [None] * CPUS
    events: list[Event] = []
    for now in range(0, until, STEP):
        blocked = set[int]()
        for cpu, thread in enumerate(running):
            if thread is not None and thread.left == 0:
                thread.jobs.append((thread.ready, now, thread.work))
                thread.ready, thread.cpu = -1, None
                blocked.add(cpu)
        for thread in threads:
            if (now - phases[thread.pid]) % thread.period == 0 and thread.ready < 0:
                thread.ready, thread.left = now, thread.work
                events.append((now, rng.randrange(CPUS), "wake", thread, None, False))
        chosen: list[Thread | None] = [None] * CPUS
        for thread in sorted((t for t in threads if t.ready >= 0), key=lambda t: t.prio):
            places = [thread.pinned] if thread.pinned is not None else [thread.cpu, *rng.sample(range(CPUS), CPUS)]
            place = next((cpu for cpu in places if cpu is not None and chosen[cpu] is None), None)
            if place is not None:
                chosen[place] = thread
        later = list[Event]()
        for cpu in range(CPUS):
            if running[cpu] is chosen[cpu] and cpu not in blocked:
                continue
            comes = chosen[cpu]
            moves = comes is not None and comes.cpu not in (None, cpu)  # it has to leave its CPU first
            events.append((now + 2 * US, cpu, "switch", running[cpu], None if moves else comes, cpu in blocked))
            if moves:
                later.append((now + 2 * US, cpu, "switch", None, comes, False))
        events += later
        for cpu, thread in enumerate(chosen):
            running[cpu] = thread
            if thread is not None:
                thread.cpu, thread.left = cpu, thread.left - STEP
    for thread in threads:
        thread.left = 0
    return threads, sorted(events, key=lambda event: event[0])


def line(event: Event, form: str) -> str:
    time, cpu, kind, first, second, blocked = event
    stamp = f"{100 + time // 10**9}.{time % 10**9 // US:06d}"
    if kind == "wake":
        assert first is not None
        who, what = ("<idle>", 0), f"comm={first.name} pid={first.pid} prio=120 target_cpu={cpu:03d}"
        name = "sched_wakeup"
        if form == "trace-cmd":
            what = f"{first.name}:{first.pid} [120] CPU:{cpu:03d}"
    else:
        old = (first.name, first.pid) if first else (f"swapper/{cpu}", 0)
        new = (second.name, second.pid) if second else (f"swapper/{cpu}", 0)
        state = "S" if blocked else "R"
        who, name = old, "sched_switch"
        what = (
            f"prev_comm={old[0]} prev_pid={old[1]} prev_prio=120 prev_state={state} ==> "
            f"next_comm={new[0]} next_pid={new[1]} next_prio=120"
        )
        if form == "trace-cmd":
            what = f"{old[0]}:{old[1]} [120] {state} ==> {new[0]}:{new[1]} [120]"
    if form == "perf":
        return f"{who[0]:>16} {who[1]:5d} [{cpu:03d}] {stamp}: sched:{name}: {what}"
    flags = "d..2. " if form == "tracefs" else ""
    return f"{who[0]:>16}-{who[1]:<7d} [{cpu:03d}] {flags}{stamp}: {name}: {what}"


def loss(form: str, cpu: int, count: int) -> str:
    if form == "trace-cmd":
        return f"CPU:{cpu} [{count} EVENTS DROPPED]"
    if form == "perf":
        return f"         swapper     0 [{cpu:03d}]   100.000000: PERF_RECORD_LOST lost {count}"
    return f"CPU:{cpu} [LOST {count} EVENTS]"


def text(events: Sequence[Event], form: str, gaps: Sequence[tuple[int, int, int]] = ()) -> tuple[str, int]:
    """Return a recording, and how many events are missing; `gaps`: (CPU, first time, last time) of lost events."""
    lines, missing = ["# tracer: nop"], 0
    pending = dict[int, int]()
    for event in events:
        time, cpu = event[0], event[1]
        if any(place == cpu and first <= time < last for place, first, last in gaps):
            pending[cpu] = pending.get(cpu, 0) + 1
            continue
        if cpu in pending:
            missing += pending[cpu]
            lines.append(loss(form, cpu, pending.pop(cpu)))
        lines.append(line(event, form))
    for cpu, count in pending.items():
        missing += count
        lines.append(loss(form, cpu, count))
    return "\n".join(lines) + "\n", missing
