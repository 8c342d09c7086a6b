"""What a policy written in Python is told of ready jobs is true at every instant, in both kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from builders import plan, spans, task
from hypothesis import given, settings
from hypothesis import strategies as st
from random_plans import HORIZON, faults, plans
from twins import compiled

from socsched.faults.model import Faults
from socsched.planning.plan import Plan
from socsched.sim.policies import REGISTERED, Key, Policy, ReadyJob
from socsched.sim.policies.terms import CoRunning
from socsched.sim.simulate import SimulationRun, run
from socsched.trace.trace import Slice

Seen = tuple[int, ReadyJob]
Order = Callable[[ReadyJob], tuple[int, ...]]
ORDERS: dict[str, Order] = {
    "least attained service": lambda job: (job.exec_ns,),
    "least left": lambda job: (job.remaining_ns, job.deadline_ns),
    "most left": lambda job: (-job.remaining_ns,),
    "running last": lambda job: (int(job.running), -job.start_ns),
    "latest": lambda job: (-job.activation_ns, -job.release_ns),
}
orders = st.sampled_from(sorted(ORDERS))


def _recorder(order: Order, seen: list[Seen]) -> Key:
    def key(job: ReadyJob, now_ns: int) -> tuple[int, ...]:
        seen.append((now_ns, job))
        return order(job)

    return key


@contextmanager
def known(rule: Policy) -> Iterator[None]:
    """Have a policy known by its name for a while."""
    REGISTERED[rule.name] = rule
    try:
        yield
    finally:
        del REGISTERED[rule.name]


def check(made: Plan, done: SimulationRun, seen: list[Seen], plain: bool) -> None:
    """Compare every sighting of a job with the trace; `plain`: nothing costs time but segments, as planned."""
    assert done.trace is not None
    frames = {(job.task, job.frame): (number, job) for number, job in enumerate(done.trace.jobs)}
    held: dict[int, list[Slice]] = defaultdict(list)
    for piece in done.trace.slices:
        held[piece.job].append(piece)
    for now, sight in seen:
        number, job = frames[sight.task.name, sight.frame]
        pieces = held[number]
        assert sight.task is done.lowered.plan.tasks[sight.number]
        assert (sight.activation_ns, sight.deadline_ns) == (job.activation_ns, job.deadline_ns)
        assert sight.release_ns <= sight.activation_ns <= now
        # at the very instant of a start or a stop both answers are true
        assert sight.start_ns == job.start_ns if 0 <= job.start_ns < now else sight.start_ns in (-1, job.start_ns)
        ran = sum(min(p.end_ns, now) - p.start_ns for p in pieces if p.name != "wait" and p.start_ns < now)
        assert sight.exec_ns == ran, (now, sight)
        assert any(p.start_ns < now < p.end_ns for p in pieces if p.name != "wait") <= sight.running
        assert sight.remaining_ns >= 0
        if plain:
            assert sight.running <= any(p.start_ns <= now <= p.end_ns for p in pieces)
            assert sight.exec_ns + sight.remaining_ns == sight.task.cost_ns, (now, sight)


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the fields of a policy that decide when it is asked."""
    return {
        "tick_ns": draw(st.sampled_from([0, 1, 7])),
        "preemptive": draw(st.sampled_from([True, True, False])),
        "sliced": draw(st.booleans()),
        "serves": draw(st.booleans()),
        "across": draw(st.booleans()),
    }


def told(made: Plan, harm: Faults, rule: dict[str, Any], order: str, plain: bool) -> None:
    """Check what a policy is told in both kernels, which must be the same."""
    sightings = []
    for kernel in (compiled(), "python"):
        seen: list[Seen] = []
        with known(Policy("watched", _recorder(ORDERS[order], seen), dynamic=True, **rule)):
            done = run(made, HORIZON, 1, "watched", harm, implementation=kernel)
        check(made, done, seen, plain)
        sightings.append(seen)
    assert sightings[0] == sightings[1]


@settings(max_examples=30, deadline=None)
@given(plans(rich=False), rules(), orders)
def test_work_done_and_work_left_add_up(made: Plan, rule: dict[str, Any], order: str) -> None:
    free = tuple(replace(host, switch_ns=0) for host in made.engines)
    quiet = tuple(replace(t, segments=tuple(replace(s, bytes=0) for s in t.segments), bytes=0) for t in made.tasks)
    told(replace(made, engines=free, tasks=quiet), Faults(), rule, order, plain=True)


@settings(max_examples=30, deadline=None)
@given(st.data(), plans(rich=True), rules(), orders)
def test_a_policy_is_told_what_the_trace_shows(
    data: st.DataObject, made: Plan, rule: dict[str, Any], order: str
) -> None:
    harm = replace(data.draw(faults(made, rich=True)), delays=())
    told(made, harm, rule, order, plain=False)


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_least_attained_service_preempts(kernel: str) -> None:
    """The job that has run longest yields as soon as it is ahead, at every tick."""
    made = plan([task("a", 10, period_ns=40), task("b", 10, period_ns=40, offset_ns=3)])
    with known(Policy("watched", lambda job, now_ns: (job.exec_ns,), dynamic=True, tick_ns=1)):
        trace = run(made, 40, policy="watched", implementation=compiled() if kernel == "compiled" else kernel).trace
    assert trace is not None
    assert spans(trace)[:6] == [("a", 0, 3), ("b", 3, 6), ("a", 6, 7), ("b", 7, 8), ("a", 8, 9), ("b", 9, 10)]


@pytest.mark.parametrize("kernel", ["compiled", "python"])
def test_a_co_running_job_is_shown_as_it_proceeds(kernel: str) -> None:
    """The guest's 20 ns take 40 beside the host: after n ns it has run for n, and half of that is done."""
    seen: list[Seen] = []
    pairs = CoRunning(lambda host, its, guest, other: (its.time_ns, 2 * other.time_ns))
    rule = Policy("watched", _recorder(lambda job: (job.task.priority,), seen), dynamic=True, tick_ns=5, corun=pairs)
    made = plan([task("host", 60, period_ns=100), task("guest", 20, period_ns=100, priority=1)])
    with known(rule):
        run(made, 60, policy="watched", implementation=compiled() if kernel == "compiled" else kernel)
    guest = {now: (job.exec_ns, job.remaining_ns) for now, job in seen if job.task.name == "guest" and now}
    assert {now: guest[now] for now in range(5, 40, 5)} == {now: (now, 20 - now // 2) for now in range(5, 40, 5)}
