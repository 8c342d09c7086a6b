"""Failover time to another plan, on the virtual clock: no thread, no sleep, the same on any machine."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from run_plans import MS, plan, task

from socsched.executor.build import require_executor
from socsched.executor.outcome import Executed
from socsched.executor.settings import RunSettings
from socsched.planning.plan import Plan
from socsched.trace.trace import Trace
from tools.verify.virtual_clock import run_native

FRAMES = 40


def two_plans(period: int, wcet: int) -> tuple[Plan, Plan]:
    made = plan(
        task("a", "s", period_ns=period, deadline_ns=period, wcet_ns=max(period // 10, 1)),
        task("b", "a", lanes=(1,), period_ns=period, deadline_ns=period, wcet_ns=wcet), sensors={"s": period},
    )  # fmt: skip
    return made, replace(made, tasks=tuple(replace(t, lanes=(3,)) if t.name == "b" else t for t in made.tasks))


def virtually(period: int, wcet: int, frames: int, times: list[int]) -> tuple[Trace, Executed]:
    """Run frames of a plan with a spare one; `times`: of the jobs of `b`, see `RunSettings`."""
    made, spare = two_plans(period, wcet)
    jobs = {"a": [max(period // 10, 1)], "b": times}
    run = RunSettings(made, frames * period, times=jobs, limp_home=(spare,))
    with tempfile.TemporaryDirectory() as folder:
        return run_native(require_executor(), run, Path(folder))


@settings(max_examples=60, deadline=None)
@given(st.integers(16, 200), st.integers(1, 90), st.integers(0, 30), st.booleans())
def test_another_plan_is_in_charge_within_two_periods_of_a_loss(ms: int, load: int, job: int, hangs: bool) -> None:
    """Whatever the period, the share of it that the stage needs, and the job with which its lanes are lost."""
    period = ms * MS
    wcet = max(period * load // 100, 2)
    trace, executed = virtually(period, wcet, FRAMES, [wcet] * job + [-1 if hangs else -wcet] + [wcet] * (FRAMES + 9))
    (note,) = [note for note in trace.instants if note.kind == "fault"]
    assert "another plan takes over" in note.text
    begun = sorted((piece.start_ns, piece.lanes) for piece in trace.slices if trace.jobs[piece.job].task == "b")
    lost = [start for start, lanes in begun if lanes == (1,)][job]
    assert note.time_ns - lost <= 2 * period
    first = next(start for start, lanes in begun if lanes == (3,))
    # its first job comes with the frame after that, which has to come through the stage before
    assert first - note.time_ns <= period + period // 10
    if 5 * wcet <= 4 * period * 7 // 8:  # jobs of ordinary length: found before the next frame is released
        assert first - lost <= 2 * period
    assert not [start for start, lanes in begun if lanes == (1,) and start > note.time_ns]
    account = executed.accounts["s"]
    assert account.released == FRAMES == account.completed + account.dropped + account.aborted
    assert account.aborted + account.dropped <= 3


def test_a_job_that_is_only_slow_is_left_alone() -> None:
    trace, executed = virtually(100 * MS, 20 * MS, 10, [80 * MS])
    assert not [note for note in trace.instants if note.kind == "fault"]
    assert trace.counters["overruns.b"][-1][1] == 10
    assert executed.accounts["s"].completed == 10
