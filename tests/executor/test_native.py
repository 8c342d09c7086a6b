"""The native executor against the simulator, and as a program of its own."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import time
from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from socsched.compiler.native.compilers import GLIBC, cross_compiler
from socsched.descriptor.catalog import get_platform
from socsched.errors import UsageError
from socsched.executor.application import write_application
from socsched.executor.build import build_executor, glibc_note, newest_glibc
from socsched.executor.outcome import read_outcome
from socsched.executor.settings import JOURNAL, RunSettings, declared_terms, write_settings
from socsched.faults.model import Failure, Faults
from socsched.planning.io import to_document
from socsched.planning.plan import Plan
from socsched.planning.task import LOAD
from socsched.runtime.journal import recover
from tests.executor.random_runs import (
    MS,
    SEEDS,
    eventful_preemptive_run,
    eventful_run,
    levels_run,
    plain_run,
    preemptive_levels_run,
    preemptive_run,
)
from tests.planning.test_residency import ROOM, WEIGHTS, planned
from tests.runtime.run_plans import executed, pipeline, plan, task
from tools.verify.virtual_clock import differences_from_simulator, run_native


def start(executor: Path, settings: RunSettings, folder: Path, **changes: Any) -> subprocess.CompletedProcess[str]:
    """Run settings in real time."""
    command = [str(executor), str(write_settings(settings, folder)), "-o", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **changes)


def chain_of_two(**changes: Any) -> RunSettings:
    """Return 200 ms of a chain of two stages of 0.2 ms on two lanes, released every 10 ms."""
    made = plan(task("first", "s"), task("second", "first", lanes=(1,)), sensors={"s": 10 * MS})
    stages = {name: {"kind": "spin", "time_ns": MS // 5} for name in ("first", "second")}
    return replace(RunSettings(made, 200 * MS, stages=stages), **changes)


@pytest.mark.parametrize("seed", SEEDS)
def test_plain_runs_equal_the_simulator(executor: Path, seed: int, tmp_path: Path) -> None:
    settings = plain_run(seed)
    trace, _ = run_native(executor, settings, tmp_path)
    assert trace.jobs
    assert differences_from_simulator(settings, trace) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_eventful_runs_serve_jobs_in_order_and_account_for_every_frame(
    executor: Path, seed: int, tmp_path: Path
) -> None:
    """With overload policies, isolation, lost frames, failing and hanging jobs, and spare plans."""
    settings = eventful_run(seed)
    trace, executed = run_native(executor, settings, tmp_path)
    for source, account in executed.accounts.items():
        assert account.released == account.completed + account.dropped + account.aborted
        assert account.released == len(trace.releases[source])
    unfinished = {job.status for job in trace.jobs} - {"done", "dropped", "aborted"}
    assert not unfinished or executed.failure, "only a failure that no plan takes over leaves jobs unfinished"
    lanes: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for piece in trace.slices:
        for lane in piece.lanes:
            lanes.setdefault((piece.engine, lane), []).append((piece.start_ns, piece.end_ns))
    for pieces in lanes.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(pieces)))
    skipped = {task for task, stage in settings.policies.stages.items() if stage.policy == "skip"}
    assert {n.subject for n in trace.instants if n.text.startswith("skipped")} <= skipped
    if not settings.limp_home:
        assert not [note for note in trace.instants if "another plan takes over" in note.text]


@pytest.mark.parametrize("seed", SEEDS)
def test_preemptive_runs_equal_the_simulator(executor: Path, seed: int, tmp_path: Path) -> None:
    settings = preemptive_run(seed)
    trace, executed = run_native(executor, settings, tmp_path)
    assert trace.jobs and executed.notices == ()
    assert differences_from_simulator(settings, trace) == []


def test_loads_by_the_copy_engine_equal_the_simulator(executor: Path, tmp_path: Path) -> None:
    """Networks that take turns in memory, their weights copied while another one runs."""
    made = planned(4, 2 * WEIGHTS + ROOM)
    quiet = tuple(
        replace(one, bytes=0, segments=tuple(replace(part, bytes=0) for part in one.segments)) for one in made.tasks
    )
    settings = RunSettings(replace(made, tasks=quiet), 500 * MS)
    trace, _ = run_native(executor, settings, tmp_path)
    loads = [job for job in trace.jobs if job.task.startswith(LOAD)]
    assert {job.status for job in loads} == {"done"} and len(loads) >= 2 * 15
    assert differences_from_simulator(settings, trace) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_eventful_runs_with_preemption_account_for_every_frame(executor: Path, seed: int, tmp_path: Path) -> None:
    trace, executed = run_native(executor, eventful_preemptive_run(seed), tmp_path)
    for account in executed.accounts.values():
        assert account.released == account.completed + account.dropped + account.aborted
    ran = Counter[int]()
    for piece in trace.slices:
        ran[piece.job] += piece.end_ns - piece.start_ns
    assert all(job.exec_ns == ran[number] for number, job in enumerate(trace.jobs))


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_of_criticality_equal_the_simulator(executor: Path, seed: int, tmp_path: Path) -> None:
    settings = levels_run(seed)
    trace, _ = run_native(executor, settings, tmp_path)
    assert trace.jobs
    assert differences_from_simulator(settings, trace) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_of_criticality_with_preemption_equal_the_simulator(executor: Path, seed: int, tmp_path: Path) -> None:
    settings = preemptive_levels_run(seed)
    trace, _ = run_native(executor, settings, tmp_path)
    assert differences_from_simulator(settings, trace) == []


def test_an_overrun_in_real_time_drops_what_is_not_hard(executor: Path, tmp_path: Path) -> None:
    """Every job of `watch` runs for twice its planned time, while one of `film` waits for the same lane."""
    watch = task("watch", "s", criticality="hard", period_ns=100 * MS, wcet_ns=20 * MS, high_ns=60 * MS)
    film = task("film", "s", period_ns=100 * MS, deadline_ns=90 * MS)
    settings = RunSettings(
        plan(watch, film, sensors={"s": 100 * MS}), 500 * MS,
        stages={"watch": {"kind": "sleep", "time_ns": 40 * MS}, "film": {"kind": "sleep", "time_ns": MS}},
    )  # fmt: skip
    assert start(executor, settings, tmp_path).returncode == 0
    trace, _ = read_outcome(tmp_path)
    statuses = {name: {job.status for job in trace.jobs if job.task == name} for name in ("watch", "film")}
    assert statuses == {"watch": {"done"}, "film": {"dropped"}}
    raised = [note.time_ns % (100 * MS) for note in trace.instants if "high level of criticality begins" in note.text]
    assert len(raised) == 5 and all(at >= 20 * MS for at in raised)


def test_a_preempted_job_keeps_its_progress_and_pays_for_its_resumption(executor: Path, tmp_path: Path) -> None:
    trace, executed = run_native(executor, RunSettings(urgent_and_long(switch_ns=MS), 20 * MS), tmp_path)
    intervals = [(trace.jobs[p.job].task, p.start_ns // MS, p.end_ns // MS) for p in trace.slices]
    assert intervals == [("long", 0, 5), ("urgent", 5, 6), ("long", 6, 15), ("urgent", 15, 16), ("long", 16, 18)]
    found = [(job.task, job.exec_ns // MS, job.preemptions) for job in trace.jobs]
    assert found == [("long", 16, 2), ("urgent", 1, 0), ("urgent", 1, 0)]
    assert executed.notices == ()


def test_a_suspended_job_does_not_count_as_hanging(executor: Path, tmp_path: Path) -> None:
    made = urgent_and_long()
    trace, _ = run_native(executor, RunSettings(made, 20 * MS, hang_ns=15 * MS), tmp_path)
    assert {job.status for job in trace.jobs} == {"done"}
    times = {"urgent": (-1,)}
    trace, executed = run_native(executor, RunSettings(made, 40 * MS, hang_ns=15 * MS, times=times), tmp_path)
    assert [job.status for job in trace.jobs if job.task == "long"] == ["aborted"] * 2
    assert executed.accounts["long"].aborted == 2


def test_a_preempted_job_is_suspended_in_real_time(executor: Path, tmp_path: Path) -> None:
    made = urgent_and_long()
    stages = {"urgent": {"kind": "spin", "time_ns": MS}, "long": {"kind": "spin", "time_ns": 14 * MS}}
    lanes = sorted(os.sched_getaffinity(0))[-1:] + [-1] * 3
    settings = RunSettings(made, 60 * MS, stages=stages, processors={"cpu": lanes}, realtime="fifo")
    assert start(executor, settings, tmp_path).returncode == 0
    trace, executed = read_outcome(tmp_path)
    if any("SCHED_FIFO" in notice for notice in executed.notices):
        pytest.skip("real-time scheduling is not allowed")
    assert executed.notices == () and {job.status for job in trace.jobs} == {"done"}
    last: dict[tuple[int, ...], int] = {}
    for piece in trace.slices:
        assert piece.start_ns >= last.get(piece.lanes, 0)
        last[piece.lanes] = piece.end_ns
    long = [job for job in trace.jobs if job.task == "long"]
    urgent = [job for job in trace.jobs if job.task == "urgent"]
    within = [
        (one, other) for one in urgent for other in long
        if other.start_ns < one.start_ns and one.finish_ns < other.finish_ns
    ]  # fmt: skip
    assert within and sum(job.preemptions for job in long) >= 1
    assert all(job.exec_ns < job.finish_ns - job.start_ns for job in long if job.preemptions)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "preemption needs --realtime fifo"),
        ({"realtime": "fifo"}, "its lanes have no processors"),
        (
            {"realtime": "fifo", "stages": {"long": {"kind": "sleep"}}, "processors": {"cpu": [0] * 4}},
            "of long is bound",
        ),
    ],
)
def test_jobs_that_cannot_be_preempted_in_real_time_are_reported(
    executor: Path, changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    settings = RunSettings(urgent_and_long(), 5 * MS, **changes)
    assert start(executor, settings, tmp_path).returncode == 0
    trace, executed = read_outcome(tmp_path)
    if why not in str(executed.notices) and "SCHED_FIFO refused" in str(executed.notices):
        pytest.skip("real-time scheduling is not allowed")
    assert why in str(executed.notices)
    assert all(job.preemptions == 0 for job in trace.jobs)


def urgent_and_long(switch_ns: int = 0) -> Plan:
    """Return a plan of two timers on one lane that preempts: 1 ms every 10 ms from 5 ms on, 14 ms every 20 ms."""
    made = plan(
        task("urgent", offset_ns=5 * MS),
        task("long", period_ns=20 * MS, deadline_ns=40 * MS, cost_ns=14 * MS, segments=()),
    )
    return replace(made, engines=(replace(made.engines[0], preemption="full", switch_ns=switch_ns),))


def test_a_different_decision_is_found(executor: Path, tmp_path: Path) -> None:
    settings = plain_run(0)
    trace, _ = run_native(executor, settings, tmp_path)
    trace.jobs[0].start_ns += 1
    assert differences_from_simulator(settings, trace)


def test_a_hang_is_survived_by_a_limp_home_plan(executor: Path, tmp_path: Path) -> None:
    made = plan(task("t", "s"), sensors={"s": 10 * MS})
    spare = replace(made, tasks=(replace(made.tasks[0], lanes=(1,)),))
    settings = RunSettings(made, 200 * MS, limp_home=(spare,), times={"t": (MS, MS, -1, *[MS] * 100)})
    trace, executed = run_native(executor, settings, tmp_path)
    assert [job.status for job in trace.jobs].count("aborted") == 1
    assert executed.accounts["s"].completed == 19
    assert {piece.lanes for piece in trace.slices} == {(0,), (1,)}


def test_a_queue_may_drop_its_oldest_frame(executor: Path, tmp_path: Path) -> None:
    made = plan(task("t", "s", queue=1, overflow="oldest", cost_ns=35 * MS, segments=()), sensors={"s": 10 * MS})
    trace, _ = run_native(executor, RunSettings(made, 40 * MS), tmp_path)
    assert [job.status for job in trace.jobs] == ["done", "dropped", "dropped", "done"]


def test_frames_of_inputs_that_drift_apart_do_not_accumulate(executor: Path, tmp_path: Path) -> None:
    join = task("join", "a", "b")
    settings = RunSettings(plan(replace(join, queue=1), sensors={"a": MS, "b": 100 * MS}), 300 * MS)
    _, executed = run_native(executor, settings, tmp_path)
    assert executed.accounts["a"].dropped == 300 - executed.accounts["a"].completed


@pytest.mark.parametrize("name", ["rr", "cbs", "hhpf", "nothing-of-that-name"])
def test_orders_that_change_while_jobs_wait_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        declared_terms(name)


HOSTILE = {
    "": "1:1: not valid JSON: expected a value, got the end of the file",
    "{": "1:2: not valid JSON: expected the name of a field",
    "[" * 100: "1:66: not valid JSON: nested more than 64 levels deep",
    '{"a": 1, "a": 2}': "1:10: not valid JSON: a field that is there twice",
    '{"format": "socsched-run"}': "1:1: version: this field is missing",
    '{"format": "other"}': "1:12: format: expected one of socsched-run",
    '{"format":\n "socsched-run", "version": 1e999}': "2:29: not valid JSON: expected a finite number",
    '{"format": "\\ud800"}': "1:19: not valid JSON: half of a surrogate pair",
    '{"format": "socsched-run", "version": 2}': "1:39: version: expected a whole number from 1 to 1",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_settings_are_refused_with_their_position(executor: Path, text: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    done = subprocess.run([executor, file, "-o", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {file}:{HOSTILE[text]}")


CHANGES = {
    ("tasks", 0, "lanes"): ([7], "tasks[0].lanes[0]: expected a whole number from 0 to 3"),
    ("tasks", 0, "period_ns"): (0, "tasks[0].period_ns: expected a whole number from 1"),
    ("tasks", 0, "after"): (["nobody"], "tasks[0].after[0]: expected the name of a task or sensor"),
    ("tasks", 0, "engine"): ("gpu", "tasks[0].engine: expected one of the plan's engines"),
    ("tasks", 1, "after"): (["second"], "tasks: expected an acyclic graph"),
    ("tasks", 1, "name"): ("first", "tasks: the name first is there twice"),
    ("engines", 0, "lanes"): (10**6, "engines[0].lanes: expected a whole number from 1 to 1024"),
    ("tasks", 0, "criticality"): ("very", "tasks[0].criticality: expected one of soft, firm, hard"),
    ("tasks", 0, "width"): (1, "tasks[0].width: expected 0"),
}


@pytest.mark.parametrize("place", CHANGES)
def test_hostile_plans_are_refused_with_their_position(executor: Path, place: Any, tmp_path: Path) -> None:
    file = write_settings(chain_of_two(), tmp_path)
    made = json.loads((tmp_path / "plan.json").read_text())
    part, number, field = place
    made[part][number][field], expected = CHANGES[place]
    (tmp_path / "plan.json").write_text(json.dumps(made, indent=1))
    done = subprocess.run([executor, file, "-o", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    where, _, what = done.stderr.removeprefix(f"error: {tmp_path}/plan.json:").partition(": ")
    assert all(part.isdigit() for part in where.split(":")) and what.startswith(expected)


def test_a_run_in_real_time_accounts_for_every_frame(executor: Path, tmp_path: Path) -> None:
    done = start(executor, chain_of_two(processors={"cpu": (0, 0, 0, 0)}), tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    trace, executed = read_outcome(tmp_path)
    assert [job.status for job in trace.jobs] == ["done"] * 40
    assert executed.accounts["s"].completed == 20
    assert len(trace.counters["release_late_ns.s"]) == 20
    ended = {(job.task, job.frame): job.finish_ns for job in trace.jobs}
    for job in trace.jobs:
        before = job.frame * 10 * MS if job.task == "first" else ended["first", job.frame]
        assert before <= job.activation_ns <= job.start_ns <= job.finish_ns - MS // 5


@pytest.mark.parametrize("kind", ["fail", "hang"])
@pytest.mark.parametrize("spare", [False, True])
def test_faults_end_in_the_accounting(executor: Path, kind: str, spare: bool, tmp_path: Path) -> None:
    settings = chain_of_two(hang_ns=30 * MS, faults=Faults(failures=(Failure("cpu", 50 * MS, kind, (1,)),)))
    moved = replace(settings.plan, tasks=tuple(replace(t, lanes=(n + 2,)) for n, t in enumerate(settings.plan.tasks)))
    done = start(executor, replace(settings, limp_home=(moved,) if spare else ()), tmp_path)
    trace, executed = read_outcome(tmp_path)
    account = executed.accounts["s"]
    assert account.released == account.completed + account.dropped + account.aborted
    assert account.aborted >= 1
    fails = kind == "fail" and not spare
    assert done.returncode == (3 if fails else 0)
    assert executed.failed_stage == ("second" if fails else "")
    assert any(note.kind == "fault" for note in trace.instants)
    if spare:
        assert account.completed >= 10 and {(2,), (3,)} <= {piece.lanes for piece in trace.slices}


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 200))])
def test_a_killed_run_leaves_a_readable_journal(executor: Path, number: int, tmp_path: Path) -> None:
    settings = chain_of_two(horizon_ns=20_000 * MS)
    process = subprocess.Popen([executor, write_settings(settings, tmp_path), "-o", tmp_path])
    journal = tmp_path / JOURNAL
    while not journal.is_file() or journal.stat().st_size < 2000:
        time.sleep(0.01)
    time.sleep(number % 17 * 0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    trace = recover(journal)
    assert trace.jobs and {job.status for job in trace.jobs} == {"done"}
    released = {frame for frame, _ in enumerate(trace.releases["s"])}
    assert {job.frame for job in trace.jobs} <= released


def test_an_interrupted_run_ends_in_order(executor: Path, tmp_path: Path) -> None:
    settings = chain_of_two(horizon_ns=60_000 * MS)
    process = subprocess.Popen([executor, write_settings(settings, tmp_path), "-o", tmp_path])
    while not (tmp_path / JOURNAL).is_file() or (tmp_path / JOURNAL).stat().st_size < 2000:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    trace, executed = read_outcome(tmp_path)
    assert executed.interrupted and trace.instants[-1].text == "interrupted by the user"
    account = executed.accounts["s"]
    assert account.released == account.completed + account.dropped + account.aborted


@pytest.mark.parametrize(("function", "code"), [("probe", 0), ("greedy", 3)])
def test_nothing_is_allocated_between_a_release_and_its_first_kernel(
    executor: Path, function: str, code: int, tmp_path: Path
) -> None:
    library = tmp_path / "counting.so"
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source = Path(__file__).with_name("counting_malloc.c")
    subprocess.run([compiler, "-O1", "-fPIC", "-shared", source, "-o", library], check=True)
    call = {"kind": "call", "library": str(library), "function": function}
    settings = chain_of_two(stages={"first": call, "second": call}, awake_ns=MS // 10)
    done = start(executor, settings, tmp_path, env={**os.environ, "LD_PRELOAD": str(library)})
    assert done.returncode == code, read_outcome(tmp_path)[1].failure


@pytest.mark.parametrize(("in_flight", "alone"), [(1, False), (3, False), (3, True)])
def test_frames_are_released_as_soon_as_there_is_room(executor: Path, in_flight: int, alone: bool) -> None:
    made = chain_of_two().plan
    tasks = tuple(replace(one, cost_ns=MS // 5, segments=(), queue=1) for one in made.tasks)
    accounts: dict[str, dict[str, int]] = {}
    trace = executed(
        replace(made, tasks=tasks), pipeline(made), frames=50, accounts=accounts, in_flight=in_flight, pace="asap",
        alone=alone,
    )  # fmt: skip
    assert accounts == {"s": {"released": 50, "completed": 50, "dropped": 0, "aborted": 0}}
    starts = {job.frame: job.activation_ns for job in trace.jobs if job.task == "first"}
    ends = {job.frame: job.finish_ns for job in trace.jobs if job.task == "second"}
    for frame, start_ns in starts.items():
        assert sum(starts[other] < start_ns < ends[other] for other in starts if other != frame) < in_flight
    assert trace.duration_ns == max(ends.values()) < 50 * made.sensors[0].period_ns
    if alone:
        pieces = sorted((piece.start_ns, piece.end_ns) for piece in trace.slices)
        assert all(before[1] <= after[0] for before, after in pairwise(pieces))


@pytest.mark.parametrize(("refuses", "code"), [(False, 0), (True, 3)])
def test_a_bundle_sets_the_power_mode_and_restores_it(executor: Path, refuses: bool, code: int, tmp_path: Path) -> None:
    made = chain_of_two().plan
    bundle, tools = tmp_path / "bundle", tmp_path / "bin"
    bundle.mkdir()
    tools.mkdir()
    (bundle / "plan.json").write_text(json.dumps(to_document(made), sort_keys=True))
    board = get_platform("jetson-agx-orin-64gb")
    mode = replace(board.modes[-1], name=made.mode)
    assert write_application(
        made,
        pipeline(made),
        bundle,
        lambda _: None,
        replace(board, modes=(mode,), engines=get_platform("host").engines),
    )
    tool = f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
{"true || " if refuses else ""}[ "$1" = -q ] || echo "$2" > {tmp_path}/mode
printf "NV Power Mode: NAME\\n%s\\n" "$(cat {tmp_path}/mode)"
"""
    (tools / "nvpmodel").write_text(tool)
    (tools / "nvpmodel").chmod(0o755)
    (tmp_path / "mode").write_text("7\n")
    command = [bundle / "start.sh", "--apply-mode", "--duration", "1", "-o", str(tmp_path / "results")]
    env = {"PATH": f"{tools}:/usr/bin:/bin"}
    assert subprocess.run(command, capture_output=True, check=False, env=env).returncode == code
    assert (tmp_path / "calls").read_text().splitlines() == ["-q", f"-m {mode.id}", "-q", "-m 7"]
    assert (tmp_path / "mode").read_text() == "7\n" and (tmp_path / "results" / JOURNAL).exists() != refuses


def test_the_glibc_that_an_executor_needs_is_known(executor: Path) -> None:
    assert (2, 17) <= newest_glibc(executor.read_bytes()) <= tuple(map(int, platform.libc_ver()[1].split(".")))
    assert newest_glibc(b"\0GLIBC_2.4\0GLIBC_2.17\0GLIBC_2.2.5\0") == (2, 17)
    assert "needs glibc 2.36" in glibc_note(b"\0GLIBC_2.36\0", "aarch64")
    assert glibc_note(b"\0GLIBC_2.31\0", "aarch64") == ""


@pytest.mark.slow
def test_it_is_built_for_boards(tmp_path: Path) -> None:
    compiler, emulator = cross_compiler("aarch64"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None:
        pytest.skip("no aarch64 compiler or emulator")
    built = build_executor(compiler, "aarch64")
    if find_spec("ziglang") is not None:
        assert newest_glibc(built.read_bytes()) <= GLIBC and not glibc_note(built.read_bytes(), "aarch64")
    settings = plain_run(1)
    command = [emulator, "-L", "/usr/aarch64-linux-gnu", str(built), str(write_settings(settings, tmp_path)), "-o"]
    subprocess.run([*command, str(tmp_path), "--virtual"], check=True)
    assert differences_from_simulator(settings, read_outcome(tmp_path)[0]) == []


def test_jobs_that_run_to_completion_against_the_plan_are_reported(
    executor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = plan(task("first", "s"), task("second", "first"), sensors={"s": 10 * MS})
    engine = replace(made.engines[0], preemption="restart")
    shared = replace(made, engines=(engine,))
    apart = replace(shared, tasks=(made.tasks[0], replace(made.tasks[1], lanes=(1,))))
    expected = "jobs on cpu run to completion, but the plan preempts them (restart): responses can be longer"
    for one, notices in ((made, ()), (apart, ()), (shared, (expected,))):
        found = run_native(executor, RunSettings(one, 20 * MS), tmp_path)[1].notices
        assert [text.partition(" than planned")[0] for text in found] == list(notices)
        executed(one, frames=1)
        assert capsys.readouterr().err.count(expected) == len(notices)
