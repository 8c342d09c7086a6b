"""Workers that are awake when their job arrives: no job is lost, no wait is long, other workers are not disturbed."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from run_plans import MS, Scripted, plan, run, sleep, task

from socsched.runtime import futex_queue, realtime
from socsched.runtime.frame_accounting import Ledger
from socsched.runtime.futex_queue import _Parked, _Plain, mailbox
from socsched.runtime.options import Options
from socsched.runtime.plan_instance import make_version
from socsched.runtime.prewake import Anticipation, Rehearsal
from socsched.trace.trace import Trace

needs_c = pytest.mark.skipif(futex_queue._code() is None, reason="parking.c needs a C compiler and futexes")


def test_a_mailbox_preserves_order_whatever_is_expected() -> None:
    for make in (mailbox, _Plain):
        box, found = make(), []
        owner = threading.Thread(target=lambda: [found.append(box.get()) for _ in range(3000)], daemon=True)  # noqa: B023
        owner.start()
        for number in range(3000):
            now = time.monotonic_ns()
            if number % 7 == 0:
                box.expect(now + (number % 3 - 1) * 50_000, now + (number % 5) * 100_000)
            if number % 11 == 0:
                time.sleep(number % 4 * 1e-5)
            box.put(number)
        owner.join(20)
        assert found == list(range(3000)), "none is lost, and no worker sleeps with a job in its box"


@needs_c
def test_an_owner_is_awake_only_while_something_is_expected_and_sleeps_otherwise() -> None:
    box = mailbox()
    assert isinstance(box, _Parked)
    used: list[float] = []

    def wait() -> None:
        box.get()
        used.append(time.thread_time())
        box.get()
        used.append(time.thread_time())

    owner = threading.Thread(target=wait, daemon=True)
    owner.start()
    time.sleep(0.3)
    box.put(0)
    time.sleep(0.05)
    now = time.monotonic_ns()
    box.expect(now + 50 * MS, now + 150 * MS)
    time.sleep(0.02)
    assert not box._box.awake, "the time has not come"
    limit = time.monotonic() + 5
    while not box._box.awake and time.monotonic() < limit:
        time.sleep(0.001)
    assert time.monotonic_ns() >= now + 45 * MS and box._box.awake
    while box._box.awake and time.monotonic() < limit:
        time.sleep(0.001)
    assert time.monotonic_ns() >= now + 150 * MS and not box._box.awake, "and it goes back to sleep"
    box.put(1)
    owner.join(5)
    first, second = used
    assert first < 0.1 and 0.0 < second - first < 0.16, "asleep it takes no processor time, awake no more than allowed"


def test_a_run_without_a_compiler_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futex_queue, "_code", lambda: None)
    assert isinstance(mailbox(), _Plain)
    made = plan(task("a", "s"), task("b", "a", lanes=(1,)), sensors={"s": 10 * MS})
    trace = run(made, Scripted(), frames=5, options=Options(awake_ns=MS))
    assert [job.status for job in trace.jobs] == ["done"] * 10


class _Worker:
    def __init__(self, pinned: bool = True) -> None:
        self.pinned, self.announced = pinned, []  # type: ignore[var-annotated]
        self.cpus = {7}

    def expect(self, from_ns: int, until_ns: int) -> None:
        self.announced.append((from_ns, until_ns))


def test_workers_are_woken_if_their_lanes_are_free_and_they_follow_another_lane() -> None:
    made = plan(
        task("a", "s"), task("same", "a"), task("other", "a", lanes=(1,)), task("unpinned", "a", lanes=(2,)),
        task("clock", lanes=(3,)), sensors={"s": 10 * MS},
    )  # fmt: skip
    version = make_version(made, _setting(made), Options(), _Backends(), False)
    for key in version.rules.crews():
        version.workers[key] = _Worker(pinned=key[1] != (2,))  # type: ignore[assignment]
    workers = {key[1][0]: worker for key, worker in version.workers.items()}
    expected = Anticipation(version, 300_000)
    assert expected.released("s", 10 * MS, {("cpu", 1): None}) == {7}, "the processors that are kept awake"
    assert expected.released("clock", 20 * MS, {("cpu", 3): None}) == set()
    reported = {lane: worker.announced for lane, worker in workers.items()}  # type: ignore[attr-defined]
    assert reported == {0: [(10 * MS - 150_000, 10 * MS + 300_000)], 1: [], 2: [], 3: []}, "the clock's lane is taken"
    expected.began("a", 30 * MS, ())
    assert not reported[1], "its time is unknown"
    for lasted in (3 * MS, 2 * MS, 4 * MS):
        expected.ended("a", lasted)
    expected.began("a", 30 * MS, ())
    ((start, end),) = reported[1]
    assert 32 * MS - 150_000 <= start < 32.2 * MS and end - start == 450_000, "the shortest time of late"
    assert len(reported[0]) == 1, "a worker that continues with the next stage need not be woken"


def test_a_rehearsal_leaves_no_traces() -> None:
    made = plan(task("a", "s"), task("b", "a", lanes=(1,)), task("clock", lanes=(2,)), sensors={"s": 10 * MS})
    version = make_version(made, _setting(made), Options(), _Backends(), False)
    rehearsal = Rehearsal(version, {})
    for number in range(50):
        for name in ("s", "clock"):
            rehearsal.of(name, number)
    books = rehearsal._books
    assert not (books.running or books.seats or books._ready or books._joins or books.ledger.open)
    assert books.outstanding == 0 and not any(books.waiting(name) for name in books.tasks)
    assert rehearsal._trace == Trace("rehearsed", 0, 0) and isinstance(books.ledger, Ledger)


@pytest.mark.parametrize("executor", ["event-chained", "sequential"])
def test_a_run_that_stays_awake_is_the_same_run(executor: str) -> None:
    made = plan(
        task("a", "s"), task("b", "a", lanes=(1,)), task("wide", "b", lanes=(0, 1, 2)), task("clock", lanes=(3,)),
        sensors={"s": 10 * MS},
    )  # fmt: skip
    accounts: dict[str, dict[str, int]] = {}
    script = Scripted(lambda name, number: sleep(1))
    options = Options(executor, awake_ns=2 * MS)
    trace = run(made, script, duration_ns=300 * MS, options=options, accounts=accounts)
    assert {name: account["completed"] for name, account in accounts.items()} == {"s": 30, "clock": 30}
    done: dict[str, list[int]] = {}
    for job in trace.jobs:
        done.setdefault(job.task, []).append(job.frame)
    assert {name: sorted(frames) for name, frames in done.items()} == {n: list(range(30)) for n in done} and len(
        done
    ) == 4
    assert {len(times) for times in trace.releases.values()} == {30}, "rehearsals are not in the trace"


class _Backends(dict[str, Any]):
    def get(self, sort: str, default: Any = None) -> Any:
        return Scripted()


def _setting(made: Any) -> Any:
    from run_plans import pipeline, roomy

    from socsched.runtime.backends.base import Setting

    return Setting(made, pipeline(made), roomy(), {}, None)


@needs_c
def test_the_release_thread_avoids_processors_that_are_awake_or_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, tuple[set[int], ...], list[int]]] = []
    short: list[str] = []

    def stay_off(processors: Any, allowed: Any) -> None:
        asked.append((threading.current_thread().name, tuple({*taken} for taken in processors), sorted(allowed)))

    monkeypatch.setattr(realtime, "stay_off", stay_off)
    monkeypatch.setattr(realtime, "short_turns", lambda: short.append(threading.current_thread().name) or "")
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("a single processor")
    # every frame of the slow one is under way when the quick one is released
    made = plan(task("quick", "s"), task("slow", "t", lanes=(1,)), sensors={"s": 20 * MS, "t": 20 * MS})
    made = replace(made, sensors=tuple(replace(x, offset_ns=10 * MS * (x.name == "s")) for x in made.sensors))
    run(made, Scripted(lambda name, _: sleep(15 if name == "slow" else 1)), frames=4, options=Options(awake_ns=300_000))
    assert short == ["release"], "that thread alone"
    assert asked and {name for name, _, _ in asked} == {"release"} and {tuple(x) for _, _, x in asked} == {(*usable,)}
    mine = [(wide, narrow) for _, (wide, narrow), _ in asked if narrow == {usable[0]}]
    assert mine, "the worker of the quick one is kept awake"
    assert any(wide == {usable[0], usable[1]} for wide, _ in mine), "and the other one is busy"
