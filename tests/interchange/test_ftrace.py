"""Scheduler events: lost ones cost the jobs across the gap and are counted; names, clocks and forms of text."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_samples import XAVIER

from socsched.api.interchange import import_profile, save_recording
from socsched.cli.root import run
from socsched.interchange.recording_file import read_recording as recording
from socsched.planning.io import load

# Recordings of a simulated scheduler in the text forms of ftrace, trace-cmd and perf, with the jobs that it ran.

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


FORMS = ("tracefs", "trace-cmd", "perf")


@pytest.mark.parametrize("form", FORMS)
def test_every_job_of_a_whole_recording_is_counted(form: str, tmp_path: Path) -> None:
    threads, events = simulate(3)
    (tmp_path / "t").write_text(text(events, form)[0])
    found = recording(tmp_path / "t")
    assert (found.lost, found.discarded, found.notes) == (0, 0, ())
    sections = {section.stage: section for section in found.sections}
    for thread in threads:
        jobs = [job for job in thread.jobs if job[1] < 199 * MS]
        assert len(sections[thread.name].times_ns) in (len(jobs), len(thread.jobs))
        assert set(sections[thread.name].times_ns) == {thread.work}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(FORMS),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 190), st.integers(1, 40)), min_size=1, max_size=4),
    st.booleans(),
)
def test_no_time_of_a_job_across_a_gap_is_reported(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    form: str,
    gaps: list[tuple[int, int, int]],
    migrate: bool,
) -> None:
    """Every thread takes the same time in each job, so that any other time is one of a job that lost events."""
    threads, events = simulate(seed, migrate=migrate)
    spans = [(cpu, first * MS, (first + length) * MS) for cpu, first, length in gaps]
    file = tmp_path_factory.mktemp("lost") / "t"
    content, missing = text(events, form, spans)
    file.write_text(content)
    found = recording(file)
    assert found.lost == missing and bool(found.notes) == bool(missing)
    sections = {section.stage: section for section in found.sections}
    for thread in threads:
        times = sections[thread.name].times_ns if thread.name in sections else ()
        assert set(times) <= {thread.work}
        clear = [
            job
            for job in thread.jobs
            if job[1] < 199 * MS
            and not any(first - 40 * MS <= job[1] and job[0] <= last + 40 * MS for _, first, last in spans)
        ]
        assert len(clear) <= len(times) <= len(thread.jobs)


def test_threads_on_another_cpu_keep_their_jobs(tmp_path: Path) -> None:
    threads, events = simulate(7, migrate=False)
    content, missing = text(events, "tracefs", [(1, 50 * MS, 150 * MS)])
    (tmp_path / "t").write_text(content)
    found = recording(tmp_path / "t")
    assert missing and found.discarded
    sections = {section.stage: section for section in found.sections}
    whole = [thread for thread in threads if thread.pinned == 0]
    wakes = {e[3].pid for e in events if e[2] == "wake" and e[1] == 1 and 50 * MS <= e[0] < 150 * MS and e[3]}
    for thread in whole:
        assert len(sections[thread.name].times_ns) == len(thread.jobs), "it never ran where events were lost"
    assert wakes, "some of their wake-ups were lost too"


@pytest.mark.parametrize("marker", ["CPU:0 [LOST EVENTS]", "CPU:0 [EVENTS DROPPED]", "##### CPU 0 buffer started ####"])
def test_losses_without_a_number_are_reported(marker: str, tmp_path: Path) -> None:
    _, events = simulate(1)
    lines = text(events, "tracefs")[0].splitlines()
    middle = next(place for place in range(len(lines) // 2, len(lines)) if "[000]" in lines[place])
    (tmp_path / "t").write_text("\n".join([*lines[:middle], marker, *lines[middle:]]))
    found = recording(tmp_path / "t")
    assert found.lost == 0 and "an unknown number of events were lost in 1 gap" in found.notes[0]


def test_the_count_is_in_the_profile_the_output_and_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, events = simulate(11, migrate=False)
    content, missing = text(events, "trace-cmd", [(1, 50 * MS, 60 * MS)])
    (tmp_path / "t").write_text(content)
    words = ["profile", "import", str(tmp_path / "t"), "-p", XAVIER, "--precision", "fp32"]
    assert run([*words, "-o", str(tmp_path / "p.json"), "--results", str(tmp_path / "r"), "--json"]) == 0
    out = capsys.readouterr()
    (row,) = json.loads(out.out)["recordings"]
    assert row["lost_events"] == missing and row["discarded_jobs"] > 0
    assert f"{missing} events were lost in 1 gap" in out.err
    costs = json.loads((tmp_path / "p.json").read_text())["costs"]
    assert any("jobs left out since events were lost" in cost["source"] for cost in costs)
    tasks = load(tmp_path / "r" / "plan.json").tasks
    assert all(f"{missing} events were lost" in task.source for task in tasks)


def test_lost_jobs_do_not_stretch_the_period(tmp_path: Path) -> None:
    threads, events = simulate(11, 500 * MS, migrate=False)
    (tmp_path / "t").write_text(text(events, "tracefs", [(1, 50 * MS, 110 * MS)])[0])
    found = import_profile([tmp_path / "t"], XAVIER, precision="fp32")
    save_recording(found, XAVIER, tmp_path / "r")
    periods = {thread.name: thread.period for thread in threads}
    for task in load(tmp_path / "r" / "plan.json").tasks:
        assert task.period_ns == pytest.approx(periods[task.name], rel=0.05)


def test_threads_whose_names_differ_in_signs_or_script_are_all_kept(tmp_path: Path) -> None:
    _, events = simulate(3)
    names = ["检测 节点", "识别 节点", "a b", "a-b", "a_b"]
    content = text(events, "tracefs")[0]
    for number, name in enumerate(names):
        content = content.replace(f"thread{number}", name)
    (tmp_path / "t").write_text(content, encoding="utf-8")
    found = import_profile([tmp_path / "t"], XAVIER, precision="fp32")
    costs = found.profile.costs
    assert len({cost.stage for cost in costs}) == len(costs) == 5
    for number, name in enumerate(names):
        assert sum(f"thread {name}-{900 + number}," in cost.source for cost in costs) == 1
    save_recording(found, XAVIER, tmp_path / "r")
    tasks = load(tmp_path / "r" / "plan.json").tasks
    assert len(tasks) == 5 and all(any(name in (t.name, *t.source.split("; ")) for t in tasks) for name in names)


def test_two_threads_of_one_name_have_their_numbers(tmp_path: Path) -> None:
    threads, events = simulate(3)
    content = text(events, "tracefs")[0].replace("thread0", "w").replace("thread1", "w").replace("thread2", "w-901")
    (tmp_path / "t").write_text(content)
    names = {section.stage for section in recording(tmp_path / "t").sections}
    assert len(names) == len(threads) and {"w-900"} < names


def test_clocks_that_jump_are_kept_apart(tmp_path: Path) -> None:
    threads, events = simulate(3)
    lines = text(events, "tracefs")[0].splitlines()
    lines[1] = lines[1].replace(" 100.", " 0.")
    (tmp_path / "t").write_text("\n".join(line.replace(" 100.", " 1700000100.") for line in lines))
    found = recording(tmp_path / "t")
    jobs = sum(len(thread.jobs) for thread in threads)
    assert jobs - 6 <= sum(len(section.times_ns) for section in found.sections) <= jobs
    assert "the clock jumps" in found.notes[0] and "1 events of the others" in found.notes[0]
    assert found.trace is not None and found.trace.duration_ns < 300 * MS


def test_interrupts_and_other_events_do_not_disturb(tmp_path: Path) -> None:
    _, events = simulate(3)
    lines = text(events, "tracefs")[0].splitlines()
    noise = [
        "          <idle>-0       [000] d.h1. 100.000500: irq_handler_entry: irq=77 name=eth0",
        "          <idle>-0       [000] d.h1. 100.000510: irq_handler_exit: irq=77 ret=handled",
        "          <idle>-0       [000] ..s1. 100.000520: softirq_entry: vec=3 [action=NET_RX]",
        "          <idle>-0       [000] ..s1. 100.000530: softirq_exit: vec=3 [action=NET_RX]",
        "          <...>-12      (-----) [001] d..3 100.000540: sched_migrate_task: comm=x pid=12 prio=1 orig_cpu=0",
        "          <...>-12      (-----) [001] d..3 100.000540: tracing_mark_write: B|12|LOST EVENTS",
        "            bash-11      [001] ..... 100.000550: sys_enter: NR 0 (0, 7ffd, 100)",
    ]
    (tmp_path / "plain").write_text("\n".join(lines))
    (tmp_path / "noisy").write_text("\n".join(x for line in lines for x in (line, *noise)))
    one, other = (recording(tmp_path / name) for name in ("plain", "noisy"))
    assert [s.times_ns for s in one.sections] == [s.times_ns for s in other.sections] and not other.notes


def test_a_loss_by_itself_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, events = simulate(3)
    first = text(events, "tracefs")[0].splitlines()[1]
    (tmp_path / "t").write_text(f"{first}\n{loss('tracefs', 0, 9)}\n")
    words = ["profile", "import", str(tmp_path / "t"), "-p", XAVIER, "--precision", "fp32", "-o", str(tmp_path / "p")]
    assert run(words) == 2 and "9 events were lost" in capsys.readouterr().err and not (tmp_path / "p").exists()
