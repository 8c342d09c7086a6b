"""Failover time to another plan, on a simulated clock: no thread, no sleep, the same on any machine."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_plans import MS, plan, task

from socsched.planning.plan import Plan
from socsched.runtime import executor_state as hub_module
from socsched.runtime.backends.base import Setting
from socsched.runtime.dispatch_policy import EventChained
from socsched.runtime.executor_state import Hub
from socsched.runtime.failover import Losses
from socsched.runtime.injector import InjectedFailure
from socsched.runtime.monitor import Monitor, hang_limit
from socsched.runtime.overload import Policies
from socsched.runtime.plan_instance import Version
from socsched.trace.trace import Trace


class Machine:
    """A session without threads: jobs take the times they are given, releases and sampling occur at their instants."""

    def __init__(self, plans: list[Plan], cost: Callable[[str, int], int | None]) -> None:
        self.now, self.cost = 0, cost
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.serial = 0
        self.begun: list[tuple[int, str, int, tuple[int, ...]]] = []
        self.hub = Hub(plans[0], {}, Policies(), False)
        self.versions = [self.version(made) for made in plans]
        self.losses = self.hub.losses = Losses(self.hub, self.versions)
        self.hub.put_in_charge(self.versions[0], Trace("measured", 0, 0))
        self.hub.collector = SimpleNamespace(wants=lambda *_: False)  # type: ignore[assignment]
        self.monitor = Monitor(plans[0], lambda: self.hub.dispatcher, self.hub.guard, 0, self.losses.hung,
                               lambda t: hang_limit(t, len(plans) > 1))  # fmt: skip

    def version(self, made: Plan) -> Version:
        rules = EventChained(made)
        unwatched = {t.name: frozenset[str]() for t in made.tasks}
        setting: Setting = SimpleNamespace()  # type: ignore[assignment]
        workers: Any = {key: Lane(self) for key in rules.crews()}
        return Version(made, setting, rules, unwatched, unwatched, {t.name: t.name for t in made.tasks}, workers)

    def at(self, time: int, what: Callable[[], None]) -> None:
        self.serial += 1
        heapq.heappush(self.events, (time, self.serial, what))

    def release(self, name: str, frame: int, time: int) -> None:
        def now() -> None:
            with self.hub.guard:
                self.hub.dispatcher.release(name, frame, time, time, {})
                self.hub.dispatch()

        self.at(time, now)

    def run(self, until: int) -> None:
        step = self.monitor.interval_ns
        for time in range(step, until, step):
            self.at(time, self.look)
        while self.events and self.events[0][0] < until:
            self.now, _, what = heapq.heappop(self.events)
            what()
        self.hub.write()

    def look(self) -> None:
        with self.hub.guard:
            self.monitor.look(self.now)


class Lane:
    """A worker of a `Machine`."""

    def __init__(self, machine: Machine) -> None:
        self.machine, self.dead = machine, False

    def submit(self, act: Any) -> None:
        machine, start = self.machine, self.machine.now
        act.begun_ns = start
        machine.begun.append((start, act.task.name, act.job.frame, act.task.lanes))
        cost = machine.cost(act.task.name, len(machine.begun)) if not self.dead else None
        if cost is not None:
            failed = cost < 0
            result: Any = InjectedFailure("failed") if failed else {}
            machine.at(start + abs(cost), lambda: machine.hub.done(self, act, start, machine.now, result))  # type: ignore[arg-type]


def two_plans(period: int, wcet: int) -> list[Plan]:
    made = plan(
        task("a", "s", period_ns=period, deadline_ns=period, wcet_ns=max(period // 10, 1)),
        task("b", "a", lanes=(1,), period_ns=period, deadline_ns=period, wcet_ns=wcet), sensors={"s": period},
    )  # fmt: skip
    return [made, replace(made, tasks=tuple(replace(t, lanes=(3,)) if t.name == "b" else t for t in made.tasks))]


@settings(max_examples=60, deadline=None)
@given(st.integers(16, 200), st.integers(1, 90), st.integers(2, 40), st.booleans())
def test_another_plan_is_in_charge_within_two_periods_of_a_loss(ms: int, load: int, job: int, hangs: bool) -> None:
    """Whatever the period, the share of it that the stage needs, and the job with which its lanes are lost."""
    period = ms * MS
    wcet = period * load // 100
    lost: list[int] = []

    def cost(name: str, serial: int) -> int | None:
        if name == "b" and serial >= job and not lost:
            lost.append(machine.now)
            return None if hangs else -wcet
        return (period // 10 if name == "a" else wcet) or 1

    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(two_plans(period, wcet), cost)
        patch.setattr(hub_module, "time", SimpleNamespace(monotonic_ns=lambda: machine.now))
        for frame in range(40):
            machine.release("s", frame, frame * period)
        machine.run(44 * period)
    (note,) = [note for note in machine.hub.dispatcher.trace.instants if note.kind == "fault"]
    assert "another plan takes over" in note.text
    assert note.time_ns - lost[0] <= 2 * period
    first = next(start for start, name, _, lanes in machine.begun if lanes == (3,))
    # its first job comes with the frame after that, which has to come through the stage before
    assert first - note.time_ns <= period + period // 10
    if 5 * wcet <= 4 * period * 7 // 8:  # jobs of ordinary length: found before the next frame is released
        assert first - lost[0] <= 2 * period
    assert not [start for start, _, _, lanes in machine.begun if lanes == (1,) and start > note.time_ns]
    account = machine.hub.dispatcher.ledger.document()["s"]
    assert account["released"] == 40 == account["completed"] + account["dropped"] + account["aborted"]
    assert account["aborted"] + account["dropped"] <= 3


def test_a_job_that_is_only_slow_is_left_alone() -> None:
    period = 100 * MS
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(two_plans(period, 20 * MS), lambda name, serial: 80 * MS if name == "b" else 5 * MS)
        patch.setattr(hub_module, "time", SimpleNamespace(monotonic_ns=lambda: machine.now))
        for frame in range(10):
            machine.release("s", frame, frame * period)
        machine.run(20 * period)
    trace = machine.hub.dispatcher.trace
    assert not [note for note in trace.instants if note.kind == "fault"]
    assert trace.counters["overruns.b"][-1][1] == 10
    assert machine.hub.dispatcher.ledger.document()["s"]["completed"] == 10
