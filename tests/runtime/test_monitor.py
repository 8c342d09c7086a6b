"""Failures during a run: reported, bounded, survived."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_plans import HERE, MS, Scripted, plan, run, sleep, task, workers

from socsched.descriptor.pipeline_file import load_pipeline
from socsched.errors import DescriptorError, InputError
from socsched.faults.model import Failure, Faults, Overrun, Slowdown
from socsched.models.work import stage_work
from socsched.planning.plan import Plan
from socsched.planning.search import make_plan
from socsched.runtime import journal
from socsched.runtime.frames_file import read_frames
from socsched.runtime.journal import Journal, recover
from socsched.runtime.limp_home import lanes_lost_with, limp_home_plans, without
from socsched.runtime.monitor import Monitor, hang_limit
from socsched.runtime.options import Options
from socsched.runtime.overload import Overload, Policies, StagePolicy, load_policies
from socsched.trace.trace import Instant, Job, Slice, Trace

PERIOD = 40 * MS


def two_lanes() -> Plan:
    return plan(
        task("a", "s", period_ns=PERIOD, deadline_ns=PERIOD),
        task("b", "a", lanes=(1,), period_ns=PERIOD, deadline_ns=PERIOD),
        sensors={"s": PERIOD},
    )


def spare(made: Plan) -> Plan:
    """Return `made` with lane 3 in place of lane 1."""
    return replace(made, tasks=tuple(replace(t, lanes=(3,)) if t.lanes == (1,) else t for t in made.tasks))


@pytest.mark.parametrize("kind", ["hang", "fail"])
def test_another_plan_takes_over_from_a_lost_engine(kind: str) -> None:
    long = 5 * PERIOD
    first_of, second_of = (replace(t, period_ns=long, deadline_ns=long) for t in two_lanes().tasks)
    made = plan(first_of, second_of, sensors={"s": long})
    at = 3 * long
    backend = Scripted(lambda *_: sleep(1))
    options = Options(limp_home=(spare(made),), faults=Faults(failures=(Failure("cpu", at, kind, (1,)),)))
    accounts: dict[str, Any] = {}
    trace = run(made, backend, duration_ns=10 * long, options=options, accounts=accounts)
    (fault,) = [note for note in trace.instants if note.kind == "fault"]
    assert "another plan takes over" in fault.text
    lost = min(job.activation_ns for job in trace.jobs if job.task == "b" and job.activation_ns >= at)
    first = min(p.start_ns for p in trace.slices if p.lanes == (3,))
    # how soon, test_takeover shows on a clock that no other work can hold up
    assert lost < fault.time_ns <= first
    assert not [p for p in trace.slices if p.lanes == (1,) and p.start_ns > fault.time_ns]
    assert accounts["s"]["completed"] >= 5 and accounts["s"]["aborted"] >= 1
    assert {t.name for t in workers()} <= {"cpu[1]"}


def test_without_another_plan_the_frames_of_a_lost_engine_are_aborted_and_the_rest_goes_on() -> None:
    made = plan(task("a", "s", period_ns=PERIOD), task("b", "t", lanes=(1,), period_ns=PERIOD),
                sensors={"s": PERIOD, "t": PERIOD})  # fmt: skip
    options = Options(faults=Faults(failures=(Failure("cpu", 4 * PERIOD, "hang", (1,)),)), hang_ns=8 * PERIOD)
    accounts: dict[str, Any] = {}
    trace = run(made, Scripted(lambda *_: sleep(1)), duration_ns=25 * PERIOD, options=options, accounts=accounts)
    assert accounts["s"] == {"released": 25, "completed": 25, "dropped": 0, "aborted": 0}
    assert accounts["t"]["aborted"] >= 6 and accounts["t"]["completed"] >= 3
    assert next(note.text for note in trace.instants if note.kind == "fault").endswith("no plan can take over")


def test_a_hanging_engine_is_noticed_before_its_period_is_over_when_a_plan_can_take_over() -> None:
    quick, long = task("q", "s", period_ns=100, wcet_ns=10), task("l", "s", period_ns=100, wcet_ns=90)
    assert hang_limit(quick, True) == 87 and hang_limit(long, True) == 112
    assert hang_limit(quick, False) >= 10**10 and hang_limit(quick, True, 5) == 5


def test_overruns_late_jobs_and_growing_queues_are_reported_while_they_happen() -> None:
    slow = task("slow", "s", wcet_ns=2 * MS, deadline_ns=20 * MS, queue=50)
    calls = iter(range(10**6))
    trace = run(plan(slow, sensors={"s": 10 * MS}), Scripted(lambda *_: sleep(45 if next(calls) > 1 else 1)), frames=16)
    assert trace.counters["overruns.slow"][-1][1] >= 8
    late = [note for note in trace.instants if note.kind == "late"]
    assert late and all(note.time_ns >= next(
        job.deadline_ns for job in trace.jobs if job.frame == note.frame) for note in late)  # fmt: skip
    assert any(
        job.start_ns <= note.time_ns < job.finish_ns for note in late for job in trace.jobs if job.frame == note.frame
    ), "reported before the job ended"
    assert any(note.kind == "overload" and "its queue grew" in note.text for note in trace.instants)


def test_jobs_of_a_task_that_overrun_at_the_same_time_are_each_reported_once() -> None:
    one = task("a", "s", wcet_ns=2 * MS, deadline_ns=20 * MS)
    running: dict[int, Any] = {
        frame: SimpleNamespace(
            task=one, begun_ns=0, void=False, job=Job(task="a", frame=frame, activation_ns=0, deadline_ns=20 * MS)
        )
        for frame in (5, 6)
    }
    dispatcher: Any = SimpleNamespace(running=running, tasks={}, trace=Trace("measured", 10**9, 0))
    monitor = Monitor(
        plan(one, sensors={"s": 10 * MS}), lambda: dispatcher, nullcontext(), 0, lambda *_: None, lambda _: 10**12
    )
    for now in (3, 4, 21, 22, 23):
        monitor.look(now * MS)
    assert dispatcher.trace.counters["overruns.a"] == [(0, 0.0), (3 * MS, 1.0), (3 * MS, 2.0)]
    assert [note.frame for note in dispatcher.trace.instants] == [5, 6]
    running.clear()
    monitor.look(30 * MS)
    assert not monitor._reported, "ended jobs are forgotten"


def burdened(policy: StagePolicy, **changes: Any) -> tuple[Trace, dict[str, Any], Scripted]:
    """Run two stages of which the first overruns in every other frame so that the second would be late."""
    first = task("first", "s", period_ns=PERIOD, wcet_ns=5 * MS, deadline_ns=PERIOD)
    last = task("last", "first", lanes=(1,), period_ns=PERIOD, wcet_ns=10 * MS, deadline_ns=30 * MS, **changes)
    behind = task("behind", "last", lanes=(2,), period_ns=PERIOD, deadline_ns=10 * PERIOD)
    made = plan(first, last, behind, sensors={"s": PERIOD})
    backend = Scripted(lambda name, n: sleep((33 if n >= 2 and n % 2 else 1) if name == "first" else 1))
    accounts: dict[str, Any] = {}
    options = Options(policies=Policies({"last": policy}))
    return run(made, backend, frames=8, options=options, accounts=accounts), accounts, backend


def test_skip_drops_a_job_that_would_be_late_before_it_starts() -> None:
    trace, accounts, backend = burdened(StagePolicy("skip"))
    skipped = [note for note in trace.instants if note.kind == "drop" and "skipped" in note.text]
    assert {note.frame for note in skipped} >= {1, 3, 5, 7} and accounts["s"]["dropped"] == len(skipped)
    assert backend.calls.count("last") == 8 + 2 - len(skipped), "two frames of warming up"


def test_abort_throws_a_late_job_away_and_runs_nothing_behind_it() -> None:
    trace, accounts, _backend = burdened(StagePolicy("abort"))
    aborted = {job.frame for job in trace.jobs if job.status == "aborted"}
    assert aborted >= {1, 3, 5, 7} and accounts["s"]["aborted"] == len(aborted)
    assert {job.frame for job in trace.jobs if job.task == "behind"} == set(range(8)) - aborted


def test_degrade_runs_the_cheaper_variant_when_time_is_short() -> None:
    prepared: list[tuple[str, str]] = []

    class Variants(Scripted):
        def prepare(self, task: Any, stage: Any, setting: Any) -> Any:
            prepared.append((task.name, task.precision))
            call = super().prepare(task, stage, setting)
            return lambda values: {**call(values), "precision": task.precision}

    first = task("first", "s", period_ns=PERIOD, wcet_ns=5 * MS)
    last = task("last", "first", lanes=(1,), period_ns=PERIOD, wcet_ns=10 * MS, deadline_ns=30 * MS)
    behind = task("behind", "last", lanes=(2,), period_ns=PERIOD, deadline_ns=PERIOD)
    backend = Variants(lambda name, n: sleep((33 if n >= 2 and n % 2 else 1) if name == "first" else 1))
    seen: dict[int, str] = {}

    class Looking(Variants):
        def prepare(self, task: Any, stage: Any, setting: Any) -> Any:
            call = backend.prepare(task, stage, setting)
            if task.name != "behind":
                return call
            return lambda values: seen.setdefault(len(seen), values["last"]["precision"]) and {}

    made = plan(first, last, behind, sensors={"s": PERIOD})
    needs = {"behind": {"last"}}
    options = Options(policies=Policies({"last": StagePolicy("degrade", "int8")}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "socsched.runtime.executor.bindings", lambda pipeline: {s: dict.fromkeys(n, *n) for s, n in needs.items()}
        )
        run(made, Looking(), frames=8, options=options)
    assert ("last", "fp32") in prepared and ("last", "int8") in prepared and ("first", "int8") not in prepared
    assert [seen[n] for n in (3, 5, 7, 9)] == ["int8"] * 4, (
        "the frames whose first stage took long, after two warm ones"
    )
    assert "fp32" in seen.values()


def test_less_critical_work_is_shed_while_critical_stages_are_late_and_then_resumed() -> None:
    overload = Overload(Policies(shed_below="hard", shed_ns=100))
    hard, soft = task("h", "s", criticality="hard"), task("x", "s", criticality="soft")
    assert not overload.sheds(soft, 0)
    assert not overload.missed(soft, 10) and not overload.sheds(soft, 11), "soft misses shed nothing"
    assert overload.missed(hard, 20) and not overload.missed(hard, 30), "reported when it begins"
    assert overload.sheds(soft, 129) and not overload.sheds(hard, 129) and not overload.sheds(soft, 130)


def test_shed_frames_are_dropped_in_a_run() -> None:
    made = plan(
        task("hard", "s", period_ns=PERIOD, deadline_ns=35 * MS, criticality="hard"),
        task("soft", "t", lanes=(1,), period_ns=PERIOD, criticality="soft"), sensors={"s": PERIOD, "t": PERIOD},
    )  # fmt: skip
    backend = Scripted(lambda name, n: sleep(60 if (name, n) == ("hard", 5) else 1))
    accounts: dict[str, Any] = {}
    options = Options(policies=Policies(shed_below="hard", shed_ns=3 * PERIOD))
    trace = run(made, backend, frames=14, options=options, accounts=accounts)
    shed = [note for note in trace.instants if note.kind == "drop" and note.text.startswith("shed")]
    assert len(shed) >= 2 and {note.subject for note in shed} == {"soft"}
    assert accounts["t"]["dropped"] == len(shed) and accounts["s"]["dropped"] == 0
    assert accounts["t"]["completed"] == 14 - len(shed) >= 1


def test_slow_engines_and_overruns_take_as_much_longer_as_the_file_says() -> None:
    made = plan(task("a", "s", period_ns=20 * MS), sensors={"s": 20 * MS})
    for faults in (
        Faults(slowdowns=(Slowdown("cpu", 0, 10**12, Fraction(5)),)),
        Faults(overruns=(Overrun("a", Fraction(1), Fraction(5)),)),
    ):
        trace = run(made, Scripted(lambda *_: sleep(2)), frames=6, options=Options(faults=faults))
        assert all(job.exec_ns >= 10 * MS for job in trace.jobs)
    drawn = [
        [job.frame for job in trace.jobs if job.exec_ns > 9 * MS]
        for trace in (
            run(
                made,
                Scripted(),
                frames=30,
                seed=3,
                options=Options(faults=Faults(overruns=(Overrun("a", Fraction(3, 10), Fraction(900)),))),
            )
            for _ in range(1)
        )
    ]
    assert len(drawn[0]) < 30


def test_a_policy_file_is_read_with_all_its_findings(tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(
        "stages: {a: {policy: skip}, b: {policy: degrade, precision: int8}}\nshed: {below: hard, for: 2 s}\n"
    )
    found = load_policies(file, two_lanes())
    assert found.stages["b"].precision == "int8" and (found.shed_below, found.shed_ns) == ("hard", 2 * 10**9)
    cheaper = found.cheaper(task("b", "a"))
    assert cheaper is not None and cheaper.precision == "int8" and found.cheaper(task("a", "s")) is None
    file.write_text(
        "stages: {z: {policy: skip}, a: {policy: nap}, b: {policy: degrade}}\nshed: {below: soft}\nmore: 1\n"
    )
    with pytest.raises(DescriptorError) as caught:
        load_policies(file, two_lanes())
    assert len(caught.value.findings) == 5


def test_plans_without_the_lanes_lost_are_made_beforehand(checkout: Path) -> None:
    pipe = load_pipeline(checkout / "pipelines" / "pointpillars.yaml")
    made = make_plan(pipe, HERE, work=stage_work)
    narrow = replace(made, tasks=tuple(replace(t, lanes=t.lanes[:2]) if len(t.lanes) > 2 else t for t in made.tasks))
    found = limp_home_plans(narrow, pipe, HERE, stage_work)
    losses = {lanes_lost_with(t.engine, t.lanes) for t in narrow.tasks}
    assert len(found) >= 1
    for lost in losses:
        other = without(narrow, lost, pipe, HERE, stage_work)
        assert other is not None and {t.name for t in other.tasks} == {t.name for t in narrow.tasks}
        assert not {(t.engine, lane) for t in other.tasks for lane in t.lanes} & lost
        assert {(e.id, e.lanes) for e in other.engines} == {(e.id, e.lanes) for e in narrow.engines}
    everything = frozenset(("cpu", lane) for lane in range(4))
    assert without(made, everything, pipe, HERE, stage_work) is None


def test_a_journal_gives_back_what_was_written_and_ignores_a_torn_line(tmp_path: Path) -> None:
    trace = Trace("measured", 10**9, 7)
    file = tmp_path / "run" / "journal.jsonl"
    with Journal(file, trace):
        trace.releases["s"] = [0, 10]
        trace.jobs.append(Job(task="a", frame=0, activation_ns=1, deadline_ns=9, status="done", finish_ns=5))
        trace.jobs.append(Job(task="a", frame=1, activation_ns=11, deadline_ns=19))
        trace.slices.append(Slice("cpu", (0, 1), 0, "a", 2, 5))
        trace.counters["queue.a"] = [(0, 1.0)]
        waiting = trace.jobs[1]
        time.sleep(0.6)
        assert not trace.jobs and not trace.slices and not trace.releases["s"], "what is written is not kept"
        assert trace.counters["queue.a"] == [(0, 1.0)], "but for what the next step is compared with"
        waiting.status = "dropped"
        trace.instants.append(Instant(12, "drop", "a", 1, "full"))
        trace.counters["queue.a"].append((3, 0.0))
        trace.releases["s"].append(20)
    file.write_text(file.read_text() + '{"jobs": [[2, "a", 2')
    found = recover(file)
    assert [(j.task, j.frame, j.status) for j in found.jobs] == [("a", 0, "done"), ("a", 1, "dropped")]
    assert found.jobs == trace.jobs and trace.releases["s"] == [0, 10, 20], "in the end the trace is whole again"
    assert trace.counters["queue.a"] == [(0, 1.0), (3, 0.0)] and trace.slices == [Slice("cpu", (0, 1), 0, "a", 2, 5)]
    assert found.slices == trace.slices and found.releases == trace.releases and found.counters == trace.counters
    assert found.instants[0] == trace.instants[0] and found.seed == 7 and found.duration_ns == 20
    with pytest.raises(InputError):
        recover(tmp_path / "none")


def test_a_journal_that_cannot_be_written_any_more_loses_nothing(tmp_path: Path) -> None:
    trace = Trace("measured", 10**9, 7)
    with Journal(tmp_path / "journal.jsonl", trace) as kept:
        rows = [Slice("cpu", (0,), n, "a", n, n + 1) for n in range(100)]
        trace.jobs += [Job(task="a", frame=n, activation_ns=n, deadline_ns=n + 9, status="done") for n in range(50)]
        trace.slices += rows[:50]
        trace.counters["late"] = [(n, 1.0) for n in range(3)]
        kept._append()
        assert not trace.slices
        kept._file.close()
        kept._file = open("/dev/full", "w")  # noqa: SIM115
        trace.jobs += [
            Job(task="a", frame=n, activation_ns=n, deadline_ns=n + 9, status="done") for n in range(50, 100)
        ]
        trace.slices += rows[50:]
        trace.counters["late"] += [(n, 1.0) for n in range(3, 6)]
        kept._append()
        assert isinstance(kept.error, OSError)
        kept._file = open(os.devnull, "w")  # noqa: SIM115
    assert [job.frame for job in trace.jobs] == list(range(100)) and trace.slices == rows
    assert [time for time, _ in trace.counters["late"]] == list(range(6))


_KILLED = """
import sys
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from run_plans import MS, Scripted, plan, run, sleep, task
from socsched.runtime import session
from socsched.runtime.options import Options
import numpy as np
made = plan(task("a", "s"), task("b", "a", lanes=(1,)), sensors={"s": 10 * MS})
session.class_names = lambda pipeline: {"b": ("car",)}
found = {"boxes": np.ones((3, 7), np.float32), "scores": np.ones(3, np.float32), "labels": np.zeros(3, np.int32)}
def script(name, number):
    sleep(1)
    return found if name == "b" else {}
file = Path(sys.argv[1])
options = Options(journal=file, frames=file.parent / "frames.jsonl")
run(made, Scripted(script), duration_ns=60_000 * MS, options=options)
"""


def test_a_killed_run_leaves_its_trace_up_to_the_last_second(tmp_path: Path, checkout: Path) -> None:
    file = tmp_path / "journal.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout), str(Path(__file__).parent)])}
    command = [sys.executable, "-c", _KILLED, str(file)]
    process = subprocess.Popen(command, env=environment)
    seen: Trace | None = None
    limit = time.monotonic() + 60
    while time.monotonic() < limit and (seen is None or seen.duration_ns < 1_500 * MS):
        time.sleep(0.1)
        seen = recover(file) if file.exists() and file.stat().st_size else None
    assert seen is not None and seen.duration_ns >= 1_500 * MS
    time.sleep(1.0)
    process.send_signal(signal.SIGKILL)
    process.wait()
    trace = recover(file)
    assert trace.releases["s"][0] == 0 and journal.INTERVAL_S <= 0.5, "so often is written what there is"
    assert trace.releases["s"][: len(seen.releases["s"])] == seen.releases["s"]
    assert trace.duration_ns >= seen.duration_ns and len(trace.jobs) >= len(seen.jobs)
    assert {job.task for job in trace.jobs if job.status == "done"} == {"a", "b"}
    # of all released but the last second's at most, what became of it is known
    settled = {job.frame for job in trace.jobs if job.task == "b"}
    early = [n for n, at in enumerate(trace.releases["s"]) if at < trace.duration_ns - 1000 * MS]
    assert len(settled.intersection(early)) > 0.5 * len(early)
    shown = {entry["frame"] for entry in read_frames(tmp_path / "frames.jsonl") if len(entry["detections"]) == 3}
    settled = {job.frame for job in trace.jobs if job.task == "b" and job.finish_ns < trace.duration_ns - 1000 * MS}
    assert settled and settled <= shown, "and so is what was found in them"
