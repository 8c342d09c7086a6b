"""Published policies on worked examples, in both forms of the kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from socsched.cost.cost import Segment
from socsched.errors import MachineError, UsageError
from socsched.planning.plan import Plan, Task
from socsched.sim import policies
from socsched.sim.build import load_kernel
from socsched.sim.kernel.kernel import Kernel
from socsched.sim.policies import Policy, Term
from socsched.sim.policies.terms import CoRunning, PreemptionMechanism, Tokens
from socsched.sim.results import totals
from socsched.sim.simulate import run
from socsched.trace.metrics import result
from socsched.trace.trace import Trace
from socsched_literature.policies import reef
from tests.sim.builders import engine, plan, spans, task, times

US = 1000
Simulate = Callable[..., Trace]


@pytest.fixture(params=[pytest.param("compiled", marks=pytest.mark.needs("Python headers")), "python"])
def simulate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    try:
        load_kernel(request.param)
    except MachineError as error:
        pytest.skip(str(error))

    def call(made: Plan, duration: int, policy: str | Policy) -> Trace:
        if isinstance(policy, Policy):
            monkeypatch.setitem(policies.REGISTERED, policy.name, policy)
            policy = policy.name
        trace = run(made, duration, policy=policy, implementation=request.param).trace
        assert trace is not None
        return trace

    return call


def once(name: str, cost: int = 0, **changes: object) -> Task:
    return task(name, cost, **{"period_ns": 1 << 40, "deadline_ns": 1 << 39, **changes})


def parts(name: str, *costs: int) -> tuple[Segment, ...]:
    return tuple(Segment(f"{name}.{index}", cost, 0, 0) for index, cost in enumerate(costs))


def gpu(**changes: object) -> object:
    return engine("gpu", kind="gpu", preemption="segment", **changes)


def on_gpu(name: str, *costs: int, **changes: object) -> Task:
    return once(name, segments=parts(name, *costs), engine="gpu", **changes)


def pair(at: int, *best_effort: int) -> Plan:
    """A best-effort job of several kernels, and a real-time one of 50 us that arrives at `at` (all in us)."""
    costs = [cost * US for cost in best_effort]
    urgent = on_gpu("rt", 50 * US, offset_ns=at * US, criticality="hard")
    return plan([on_gpu("be", *costs, criticality="soft"), urgent], [gpu()])


def shown(trace: Trace, unit: int = US) -> list[tuple[str, float, float]]:
    return [(name, start / unit, end / unit) for name, start, end in spans(trace)]


# -- REEF


def test_reef_kills_what_runs_and_starts_that_kernel_again(simulate: Simulate) -> None:
    """At 130 the second kernel has run for 30: it is lost, the reset takes 35, and the job repeats that kernel."""
    trace = simulate(pair(130, 100, 100, 100, 100, 100, 100), 2000 * US, "reef")
    assert shown(trace)[:6] == [
        ("be.0", 0, 100), ("be.1", 100, 130), ("switch", 130, 165), ("rt.0", 165, 215), ("be.1", 215, 315),
        ("be.2", 315, 415),
    ]  # fmt: skip


def test_reef_repeats_the_segments_in_flight_near_the_end(simulate: Simulate) -> None:
    """In the fifth of six kernels all six are launched, so that 6 - 4 = 2 is the first that may not have finished."""
    trace = simulate(pair(430, 100, 100, 100, 100, 100, 100), 2000 * US, "reef")
    assert [name for name, _, _ in shown(trace)] == [
        "be.0", "be.1", "be.2", "be.3", "be.4", "switch", "rt.0", "be.2", "be.3", "be.4", "be.5"
    ]  # fmt: skip
    two = simulate(pair(430, 100, 100, 100, 100, 100, 100), 2000 * US, "reef:cap=2")
    assert [name for name, _, _ in shown(two)][5:] == ["switch", "rt.0", "be.4", "be.5"]


def test_reef_never_goes_back_beyond_where_it_was_resumed(simulate: Simulate) -> None:
    """Killed at 430 it resumes at kernel 2 (515); killed again in kernel 4 (of 6, cap 4) it resumes at 2 once more."""
    made = pair(430, 100, 100, 100, 100, 100, 100)
    again = on_gpu("again", 50 * US, offset_ns=730 * US, criticality="firm")
    trace = simulate(plan([*made.tasks, again], made.engines), 3000 * US, "reef:cap=2")
    # resumed at 4 (515 to 615), then 5 until 715: done before 730
    assert [name for name, _, _ in shown(trace)] == [
        "be.0", "be.1", "be.2", "be.3", "be.4", "switch", "rt.0", "be.4", "be.5", "again.0"
    ]  # fmt: skip
    sooner = plan([*made.tasks, replace(again, offset_ns=650 * US)], made.engines)
    # with cap 4 it resumed at 2, at 515: at 650 it is in kernel 3, which 6 - 4 = 2 allows to lose kernel 2 as well
    names = [name for name, _, _ in shown(simulate(sooner, 3000 * US, "reef"))]
    assert names[5:12] == ["switch", "rt.0", "be.2", "be.3", "switch", "again.0", "be.2"]


def test_reef_waiting_modes(simulate: Simulate) -> None:
    waits = simulate(pair(130, 100, 100, 100, 100, 100, 100), 2000 * US, "reef:mode=wait:cap=2")
    assert shown(waits)[:4] == [("be.0", 0, 100), ("be.1", 100, 200), ("be.2", 200, 300), ("rt.0", 300, 350)]
    whole = simulate(pair(130, 100, 100, 100, 100, 100, 100), 2000 * US, "reef:mode=none")
    assert times(whole, "rt") == [(600 * US, 650 * US)]


def test_reef_s_two_rules_of_padding() -> None:
    """60 units.  A kernel of 90 workgroups is two layers on 45 units, so 15 are left; of the other, 8 ns a round at
    occupancy 2 fit twice into 20 ns: 15 * 2 * 2 workgroups."""
    host = reef.Kernel(20, 90, (5, 9, 14))
    assert reef.padding_workgroups(host, reef.Kernel(100, 400, (6, 8))) == 15 * 2 * 2
    assert reef.padding_workgroups(host, reef.Kernel(100, 40, (6, 8))) == 40
    # rule 1: at occupancy 1 only is it short enough
    assert reef.padding_workgroups(host, reef.Kernel(100, 400, (20, 30))) == 15
    assert reef.padding_workgroups(host, reef.Kernel(100, 400, (21, 30))) == 0
    # rule 2: merged, one workgroup a unit is the most, and the host needs two
    assert reef.padding_workgroups(host, reef.Kernel(100, 400, (6,))) == 0
    # full layers leave no room for padding
    assert reef.padding_workgroups(reef.Kernel(20, 120, (5, 9)), reef.Kernel(100, 400, (6, 8))) == 0


def test_padded_kernels_advance_while_the_real_time_ones_run(simulate: Simulate) -> None:
    """Every kernel of 100 us co-runs with half of be.0, which ends at 202, as rt is 1 % slower; then be.1 begins."""
    corun = CoRunning(
        lambda host, its, guest, other: (
            (101 * US, 202 * US) if host.criticality != "soft" and guest.criticality == "soft" else None
        ),
        once_per_segment=True,
    )
    rule = Policy("padded", (Term.BEST_EFFORT, Term.ACTIVATION), corun=corun)
    made = plan(
        [on_gpu("rt", 100 * US, 100 * US, criticality="hard"), on_gpu("be", 100 * US, 70 * US, criticality="soft")],
        [gpu()],
    )
    trace = simulate(made, 2000 * US, rule)
    assert times(trace, "rt") == [(0, 202 * US)]
    assert times(trace, "be") == [(0, 272 * US)]
    assert shown(trace)[-1] == ("be.1", 202, 272)


def test_one_segment_a_kernel_where_that_is_the_rule(simulate: Simulate) -> None:
    """The first guest ends after 40 of 100; with `once` the next waits for the host's next segment."""
    found = {}
    for rule in (True, False):
        corun = CoRunning(lambda host, its, guest, other: (100 * US, 40 * US), once_per_segment=rule)
        made = plan([on_gpu("a", 100 * US, 100 * US, priority=0), on_gpu("b", 40 * US, 40 * US, priority=1)], [gpu()])
        policy = Policy(f"corun-{rule}", (Term.PRIORITY, Term.NOTHING), corun=corun)
        found[rule] = times(simulate(made, 2000 * US, policy), "b")
    assert found == {True: [(0, 140 * US)], False: [(0, 80 * US)]}


def test_a_guest_goes_on_alone_when_its_host_ends(simulate: Simulate) -> None:
    """Both twice as slow: 30 of the guest's 100 are done while a host of 30 runs; the other 70 take 70."""
    corun = CoRunning(lambda host, its, guest, other: (2 * its.time_ns, 2 * other.time_ns))
    rule = Policy("half", (Term.PRIORITY, Term.NOTHING), corun=corun)
    made = plan([on_gpu("a", 30, priority=0), on_gpu("b", 100, priority=1)], [gpu()])
    trace = simulate(made, 2000, rule)
    assert times(trace, "a") == [(0, 60)] and times(trace, "b") == [(0, 130)]


# -- PREMA


def three(*rows: tuple[str, int, int, str]) -> Plan:
    """Jobs of (name, cost, arrival, criticality) on one preemptive engine, times in us."""
    return plan([once(n, c * US, offset_ns=at * US, criticality=level, engine="npu") for n, c, at, level in rows],
                [engine("npu", kind="npu", preemption="segment")])  # fmt: skip


FREE = "save=0ns:restore=0ns:quantum=10us"


def test_prema_starts_with_the_highest_priority_then_the_shortest(simulate: Simulate) -> None:
    """Tokens 9, 9, 3 and 1: threshold 9, of the two candidates the shorter.  At 40 mid has 3 + 3 * 40/20 = 9 and is
    the shortest; at 60 low has 1 + 60/10 = 7, and long alone is a candidate."""
    made = three(("low", 10, 0, "soft"), ("long", 80, 0, "hard"), ("short", 40, 0, "hard"), ("mid", 20, 0, "firm"))
    order = [name for name, _, _ in spans(simulate(made, 1000 * US, f"np-prema:{FREE}"))]
    assert order == ["short", "mid", "long", "low"]


def test_prema_makes_candidates_of_those_that_waited(simulate: Simulate) -> None:
    """low has 1 + t/10 tokens: 9 at 80.  From then on it is a candidate, and shorter than what is left of long."""
    made = three(("long", 200, 0, "hard"), ("low", 10, 0, "soft"))
    trace = simulate(made, 1000 * US, f"prema:mechanism=checkpoint:{FREE}")
    assert shown(trace) == [("long", 0, 80), ("low", 80, 90), ("long", 90, 210)]
    fifo = simulate(made, 1000 * US, f"token:mechanism=checkpoint:{FREE}")
    assert [name for name, _, _ in shown(fifo)] == ["long", "low"]


def test_prema_with_tokens_above_the_threshold(simulate: Simulate) -> None:
    """With "more than" no job is a candidate at first, so the shortest begins; the threshold is reached later."""
    made = three(("long", 40, 0, "hard"), ("low", 10, 0, "soft"))
    strict = simulate(made, 1000 * US, f"np-prema:strict=yes:{FREE}")
    assert shown(strict) == [("low", 0, 10), ("long", 10, 50)]


def test_prema_drains_or_checkpoints(simulate: Simulate) -> None:
    """At 10 the candidate (30) would slow the running job (90 left of 100) by 30/100, which slows it by 90/30: it is
    preempted.  At 80 of 100, 20 left slow a job of 60 by 20/60, less than its 60/100: drained."""
    early = three(("first", 100, 0, "firm"), ("second", 30, 10, "hard"))
    late = three(("first", 100, 0, "firm"), ("second", 60, 80, "hard"))
    assert shown(simulate(early, 1000 * US, f"prema:{FREE}")) == [
        ("first", 0, 10), ("second", 10, 40), ("first", 40, 130),
    ]  # fmt: skip
    assert shown(simulate(late, 1000 * US, f"prema:{FREE}")) == [("first", 0, 100), ("second", 100, 160)]
    # the other definition compares shares of the own job: 20/100 left against 60/60, nothing to drain for
    other = simulate(late, 1000 * US, f"prema:drain=share:{FREE}")
    assert shown(other) == [("first", 0, 80), ("second", 80, 140), ("first", 140, 160)]


def test_prema_s_mechanisms_have_their_stated_costs(simulate: Simulate) -> None:
    made = three(("first", 100, 0, "firm"), ("second", 30, 10, "hard"))
    saved = simulate(made, 1000 * US, "prema:mechanism=checkpoint:save=5us:restore=3us")
    assert shown(saved) == [
        ("first", 0, 10), ("switch", 10, 15), ("second", 15, 45), ("switch", 45, 48), ("first", 48, 138),
    ]  # fmt: skip
    killed = simulate(made, 1000 * US, "prema:mechanism=kill")
    assert shown(killed) == [("first", 0, 10), ("second", 10, 40), ("first", 40, 140)]
    drained = simulate(made, 1000 * US, "prema:mechanism=drain")
    assert shown(drained) == [("first", 0, 100), ("second", 100, 130)]


def test_killed_jobs_start_all_over_even_after_many_segments(simulate: Simulate) -> None:
    made = plan([once("first", segments=parts("f", 20, 20, 20), criticality="firm", engine="npu"),
                 once("second", 5, offset_ns=50, criticality="hard", engine="npu")],
                [engine("npu", kind="npu", preemption="segment")])  # fmt: skip
    names = [name for name, _, _ in spans(simulate(made, 1000, "prema:mechanism=kill"))]
    assert names == ["f.0", "f.1", "f.2", "second", "f.0", "f.1", "f.2"]


def test_shortest_job_first_by_planned_cost(simulate: Simulate) -> None:
    made = three(("a", 30, 0, "firm"), ("b", 20, 1, "firm"), ("c", 10, 2, "firm"))
    assert [n for n, _, _ in spans(simulate(made, 1000 * US, "np-sjf"))] == ["a", "c", "b"]


# -- XSched


def test_levels_of_preemption(simulate: Simulate) -> None:
    """Commands of 100; the urgent one arrives at 130.  Level 1 with 3 in flight ends those launched, level 2 the
    running one, level 3 interrupts it for 32 us."""
    tasks = [on_gpu("low", *[100 * US] * 6, priority=1), on_gpu("high", 50 * US, offset_ns=130 * US, priority=0)]
    made = plan(tasks, [gpu()])
    begun = {
        "xsched-hpf:level=1:threshold=3": 400, "xsched-hpf:level=2": 200, "xsched-hpf:level=3": 130,
        "xsched-hpf": 200, "xsched-edf:level=2": 600,
    }  # fmt: skip
    found = {name: times(simulate(made, 2000 * US, name), "high")[0][0] / US for name in begun}
    assert found == begun
    assert times(simulate(made, 2000 * US, "xsched-hpf:level=3"), "high") == [(130 * US, 212 * US)]


def test_laxity_makes_a_background_job_critical(simulate: Simulate) -> None:
    """b, of lower priority, needs 20 until 100: at 70 its laxity is 10, the margin; just after it is critical."""
    made = plan([once("a", 90 * US, priority=0), once("b", 20 * US, priority=1, deadline_ns=100 * US)])
    trace = simulate(made, 1000 * US, "xsched-lax:margin=10us:tick=1us")
    assert shown(trace) == [("a", 0, 71), ("b", 71, 91), ("a", 91, 110)]


def test_weighted_shares_of_an_accelerator(simulate: Simulate) -> None:
    """Three to one: of 40 ms together, 30 and 10."""
    made = plan([once("fore", 100_000 * US, criticality="hard"), once("back", 100_000 * US, criticality="soft")])
    trace = simulate(made, 40_000 * US, "xsched-share:tick=1ms")
    ran = {n: sum(e - s for name, s, e in spans(trace) if name == n) / 1_000_000 for n in ("fore", "back")}
    assert ran["fore"] == pytest.approx(30, abs=1.01) and ran["fore"] + ran["back"] == 40
    fair = simulate(plan([once("x", 100_000 * US, priority=0), once("y", 100_000 * US, priority=0)]), 40_000 * US,
                    "xsched-fair:tick=1ms")  # fmt: skip
    assert sum(e - s for name, s, e in spans(fair) if name == "x") == 20_000 * US


def test_a_task_that_was_idle_gains_no_lead(simulate: Simulate) -> None:
    """y arrives at 20 ms and shares evenly from then on, instead of running until it has received as much as x."""
    made = plan([once("x", 100_000 * US), once("y", 100_000 * US, offset_ns=20_000 * US)])
    trace = simulate(made, 40_000 * US, "xsched-fair:tick=1ms")
    assert sum(e - s for name, s, e in spans(trace) if name == "y") == pytest.approx(10_000 * US, abs=1_001 * US)


# -- XAuto


def test_xauto_preempts_both_accelerators_at_their_cost(simulate: Simulate) -> None:
    low, high = on_gpu("low", 1000 * US, priority=1), on_gpu("high", 100 * US, offset_ns=300 * US, priority=0)
    trace = simulate(plan([low, high], [gpu()]), 3000 * US, "xauto")
    assert times(trace, "high") == [(300 * US, 675 * US)]


# -- options and declarations


def test_options_are_checked() -> None:
    for name, problem in (
        ("prema:quantum=soon", "quantum must be a time"), ("prema:speed=1", "no option 'speed=1'"),
        ("prema:mechanism=pray", "mechanism must be one of"), ("reef:cap=two", "cap must be a whole number"),
        ("edf:x=1", "has no options"), ("xsched-hpf:level=4", "level must be from 0 to 3"),
        ("reef:profiles=/nowhere", "no kernel profiles"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=problem):
            policies.get_policy(name)
    assert policies.get_policy("prema:quantum=1ms").tick_ns == 1_000_000
    assert policies.get_policy("np-prema:quantum=1ms").preemptive is False


def test_declarations_are_checked() -> None:
    with pytest.raises(ValueError, match="'sudden' is none of"):
        PreemptionMechanism("sudden")
    bad = Policy("bad", (Term.CANDIDATE, Term.COST), dynamic=True, tokens=Tokens((3, 1)))
    for rule, problem in (
        (bad, "above 0 in rising order"),
        (replace(bad, tokens=None, weight=lambda task: 0), "weight"),
    ):
        policies.REGISTERED[rule.name] = rule
        try:
            with pytest.raises(UsageError, match=problem):
                run(three(("a", 1, 0, "hard")), 1000, policy="bad")
        finally:
            del policies.REGISTERED[rule.name]


def test_guests_take_the_energy_and_the_traffic_of_their_work(simulate: Simulate) -> None:
    """Alone 100 us each at 1 W, and 50 kB of the guest; the same when co-running, with a trace and without."""
    host = on_gpu("host", 100 * US, priority=0)
    guest = once("guest", engine="gpu", segments=(Segment("g", 100 * US, 0, 50_000),), priority=1)
    made = plan([host, guest], [gpu(dynamic_mw=1000)], base_mw=500, dram_picojoule_per_byte=10.0)
    corun = CoRunning(lambda task, its, other, other_s: (120 * US, 160 * US))
    energy = {}
    for name, rule in (
        ("apart", Policy("apart", (Term.PRIORITY, Term.NOTHING))),
        ("corun", Policy("together", (Term.PRIORITY, Term.NOTHING), corun=corun)),
    ):
        trace = simulate(made, 400 * US, rule)
        energy[name] = result(trace, made)["energy_mj"]
        untraced = run(made, 400 * US, policy=rule.name, record=False)
        assert totals(untraced).energy_mj == pytest.approx(energy[name], abs=1e-6)
    # 0.5 W for 400 us; 1 W for 200 us alone; co-running, 120 us of the host, 75 of 100 us of the guest, and 25 alone
    assert energy["apart"] == pytest.approx(0.2 + 0.2 + 0.0005, abs=1e-6)
    assert energy["corun"] == pytest.approx(0.2 + (0.120 + 0.075 + 0.025) + 0.0005, abs=1e-5)


@pytest.mark.parametrize("name", ["llf", "prema", "token", "xsched-lax:margin=2ms", "xsched-share", "xsched-fair"])
def test_looking_only_when_it_matters_is_looking_at_every_tick(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The kernel skips sampling instants at which no order can have changed; the schedule is the same."""
    from random import Random

    for seed in range(5):
        rng = Random(seed)
        lanes = rng.choice((1, 2))
        tasks = [
            task(
                f"t{number}", rng.randint(1, 12) * 700 * US, period_ns=rng.randint(8, 40) * 1000 * US, width=1,
                lanes=tuple(range(lanes)), offset_ns=rng.randrange(9000) * US, priority=number,
                criticality=rng.choice(("hard", "firm", "soft")),
            )
            for number in range(5)
        ]  # fmt: skip
        made = plan(tasks, [engine(lanes=lanes, preemption=rng.choice(("full", "segment")))])
        sparse = run(made, 150_000 * US, policy=name, implementation="python")
        with monkeypatch.context() as patched:
            patched.setattr(Kernel, "count_ticks", lambda self, u, now: 1)
            every = run(made, 150_000 * US, policy=name, implementation="python")
        assert sparse.trace == every.trace
        assert sparse.outcome.number("events") <= every.outcome.number("events")
