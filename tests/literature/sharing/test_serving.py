"""The serving simulation: queueing theory, worked timelines, agreement with the kernel."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from socsched.descriptor.taskset import taskset_from_mapping
from socsched.errors import UsageError
from socsched.sim.tasksets import simulate_taskset
from socsched_literature.sharing.deployment import SECOND, Deployment, Part, Request, Served, mechanism, requests
from socsched_literature.sharing.profile import LinearInterference, Profile, Sample
from socsched_literature.sharing.serving import Simulation, whole

MS = 1_000_000
FAR = 10**15


def net(
    name: str, ms: float, slo_ms: float = 1e6, fill: float = 1.0, largest: int = 1, more_ms: float = 0.0
) -> Profile:
    samples = [Sample(1, round(ms * MS), fill)]
    if largest > 1:
        samples.append(Sample(largest, round((ms + (largest - 1) * more_ms) * MS), fill))
    return Profile(name, round(slo_ms * MS), tuple(samples))


def at(*arrivals: tuple[float, str]) -> list[Request]:
    return [Request(round(ms * MS), name) for ms, name in arrivals]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
@pytest.mark.sampled(3)
def test_waiting_in_an_m_d_1_queue(load: float) -> None:
    """Pollaczek-Khinchine: rho D / (2 (1 - rho)); mean of 12 seeds within 4 standard errors and 5 %."""
    waits = []
    for seed in range(12):
        asked = requests({"net": load * 100}, 150 * SECOND, seed=seed)
        done = Simulation(Deployment((whole([(net("net", 10), 1)]),)), mechanism("mps"), drop=False).run(asked, FAR)
        waits.append(done.models[0].mean_ns / MS - 10)
    expected = load * 10 / (2 * (1 - load))
    spread = (sum((wait - fmean(waits)) ** 2 for wait in waits) / 11 / 12) ** 0.5
    assert abs(fmean(waits) - expected) < 4 * spread
    assert fmean(waits) == pytest.approx(expected, rel=0.05)


def test_two_parts_are_two_queues() -> None:
    """Round-robin over two equal parts: each sees Erlang-2 arrivals, so waiting is less than half of one part's."""
    asked = requests({"net": 120}, 100 * SECOND, seed=3)
    parts = tuple(Part(0, 50, (Served(net("net", 5, fill=1.0), 1, 60),)) for _ in range(2))
    both = Simulation(Deployment(parts), mechanism("mps"), drop=False).run(asked, FAR)
    assert both.models[0].mean_ns / MS - 10 < 0.6 * 10 / (2 * 0.4)
    assert sum(both.busy_ns.values()) == len(asked) * 10 * MS


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(5, 40), st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=4),
    st.integers(1, 3),
)
def test_the_kernel_answers_the_same(tasks: list[tuple[int, int, int]], horizon: int) -> None:
    """Periodic requests, one part, batches of one: the simulator's first-in first-out without preemption."""
    assume(sum(cost / period for period, _, cost in tasks) < 1)
    until = horizon * 200
    rows = [
        {"id": i, "period": period, "offset": offset, "wcet": cost, "deadline": period, "prio": i}
        for i, (period, offset, cost) in enumerate(tasks)
    ]
    data = {"policy": "FP", "processors": 1, "time_unit": "ms", "tasks": rows}
    found = simulate_taskset(taskset_from_mapping(data, "x"), until * MS, "np-fifo", record=True).trace
    assert found is not None
    expected = {
        (job.task, job.activation_ns): job.finish_ns - job.activation_ns for job in found.jobs if job.finish_ns >= 0
    }  # fmt: skip
    assert expected
    # The same order among those that come together: objectives that are equal, and names in the order of tasks.
    profiles = [net(str(i), cost, slo_ms=1e6) for i, (_, _, cost) in enumerate(tasks)]
    asked = sorted(
        (
            Request(at_ms * MS, str(i))
            for i, (period, offset, _) in enumerate(tasks)
            for at_ms in range(offset, until + 1, period)
        ),
        key=lambda one: (one.arrival_ns, one.model),
    )
    deployment = Deployment((whole([(one, 1.0) for one in profiles]),))
    done = Simulation(deployment, mechanism("mps"), drop=False).run(asked, until * MS)
    mine: dict[str, list[int]] = {one.name: one.latencies for one in done.models}
    for i in range(len(tasks)):
        theirs = [response for (task, _), response in sorted(expected.items()) if task == str(i)]
        assert mine[str(i)][: len(theirs)] == theirs


def test_batches_by_hand() -> None:
    """L(b) = 8 + 2 b ms.  One at 0 alone; three arrive meanwhile and are batched: 10 + 14 = 24; two are the limit."""
    one = net("a", 10, largest=8, more_ms=2)
    asked = at((0, "a"), (1, "a"), (2, "a"), (3, "a"))
    served = Deployment((Part(0, 100, (Served(one, 8, 1),)),))
    done = Simulation(served, mechanism("mps")).run(asked, FAR).models[0]
    assert [ns // MS for ns in done.latencies] == [10, 23, 22, 21] and done.batches == 2


def test_a_batch_grows_only_as_far_as_the_oldest_request_has_time() -> None:
    one = net("a", 10, slo_ms=25, largest=8, more_ms=2)
    served = Deployment((Part(0, 100, (Served(one, 1, 1),)),))
    asked = at((0, "a"), *((1, "a"),) * 6)
    done = Simulation(served, mechanism("mps")).run(asked, FAR).models[0]
    # At 10 ms, 16 ms are left of the 25: L(4) = 16 fits, L(5) does not; the last two are answered too late or dropped.
    assert [ns // MS for ns in done.latencies] == [10, 25, 25, 25, 25]
    assert (done.within, done.dropped) == (5, 2)


def test_late_answers_are_counted_as_such() -> None:
    one = net("a", 10, slo_ms=15)
    served = Deployment((Part(0, 100, (Served(one, 1, 1),)),))
    kept = Simulation(served, mechanism("mps"), drop=False).run(at((0, "a"), (1, "a"), (2, "a")), FAR)
    assert [ns // MS for ns in kept.models[0].latencies] == [10, 19, 28]
    assert (kept.within, kept.satisfaction, kept.worst, kept.end_ns) == (1, 1 / 3, 1 / 3, 30 * MS)
    assert (kept.models[0].percentile(0.5), kept.models[0].percentile(1)) == (19 * MS, 28 * MS)
    dropped = Simulation(served, mechanism("mps")).run(at((0, "a"), (1, "a"), (2, "a")), FAR)
    assert (dropped.within, dropped.models[0].dropped, dropped.end_ns) == (1, 2, 10 * MS)


def test_the_network_due_first_goes_first_in_a_shared_part() -> None:
    part = whole([(net("slow", 10, slo_ms=100), 1), (net("fast", 5, slo_ms=20), 1)])
    done = Simulation(Deployment((part,)), mechanism("mps")).run(at((0, "slow"), (1, "slow"), (2, "fast")), FAR)
    by_name = {one.name: [ns // MS for ns in one.latencies] for one in done.models}
    assert by_name == {"slow": [10, 24], "fast": [13]}


def two(share: int) -> Deployment:
    parts = tuple(Part(0, share, (Served(net(name, 10), 1, 1),)) for name in ("a", "b"))
    return Deployment(parts)


@pytest.mark.parametrize(
    ("name", "share", "a", "b"),
    [
        # Alone until 4; then each on half, where it takes twice as long: 4 + 2 x 6 = 16; b has 4 done, and 6 to go.
        ("streams", 100, 16, 18),
        # Turns of 2 ms with 0.1 ms of switching: 2.1 times as long while both are there.
        ("time-slicing", 100, 16.6, 18.3),
        ("mps", 50, 20, 20),
        ("mig", 50, 20, 20),
    ],
)
def test_the_pace_of_two_by_mechanism(name: str, share: int, a: float, b: float) -> None:
    done = Simulation(two(share), mechanism(name)).run(at((0, "a"), (4, "b")), FAR)
    found = {one.name: one.latencies[0] / MS for one in done.models}
    assert found["a"] == pytest.approx(a, abs=1e-5)
    assert found["b"] == pytest.approx({"streams": 16, "time-slicing": 16.6}.get(name, b), abs=1e-5)


def test_interference_where_bandwidth_is_shared_only() -> None:
    slower = LinearInterference(0, 0, 0, 0, 1.5)
    asked = at((0, "a"), (5, "b"))
    done = {name: Simulation(two(50), mechanism(name), slower).run(asked, FAR).models for name in ("mps", "mig")}
    found = {name: {one.name: one.latencies[0] / MS for one in models} for name, models in done.items()}
    # 5 alone, 15 left at 1.5: until 27.5; b has done 15 of its 20 then, and ends alone.
    assert found["mps"] == pytest.approx({"a": 27.5, "b": 27.5}, abs=1e-5)
    assert found["mig"] == pytest.approx({"a": 20, "b": 20}, abs=1e-5)


def test_shares_a_mechanism_does_not_have_are_refused() -> None:
    with pytest.raises(UsageError, match="mps does not admit"):
        Simulation(two(60), mechanism("mps"))
    with pytest.raises(UsageError, match="not deployed"):
        Simulation(two(50), mechanism("mps")).run(at((0, "c")), FAR)


@settings(max_examples=30)
@given(
    st.sampled_from(["streams", "time-slicing", "mps", "mig", "green-contexts"]),
    st.lists(st.tuples(st.integers(1, 20), st.integers(5, 200), st.integers(1, 8)), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 99),
)
def test_every_request_is_answered_or_dropped_once(
    name: str, drawn: list[tuple[int, int, int]], drop: bool, seed: int
) -> None:
    how = mechanism(name)
    share = 100 // len(drawn) if how.compute_isolated else 100
    nets = [net(f"n{i}", ms, slo_ms=slo, fill=0.5, largest=8, more_ms=ms / 8) for i, (ms, slo, _) in enumerate(drawn)]
    parts = tuple(Part(0, share, (Served(one, batch, 30),)) for one, (_, _, batch) in zip(nets, drawn, strict=True))
    asked = requests({one.name: 30.0 for one in nets}, SECOND, seed=seed)
    neighbours = LinearInterference(0.2, 0.1, 0.2, 0.1, 1.05)
    run = Simulation(Deployment(parts), how, neighbours, drop=drop)
    done = run.run(asked, SECOND)
    assert done.arrived == len(asked)
    for one, profile in zip(done.models, nets, strict=True):
        assert len(one.latencies) + one.dropped == one.arrived and (drop or not one.dropped)
        assert one.within <= len(one.latencies) and one.batches <= len(one.latencies)
        # No request is faster than alone on the whole accelerator.
        assert all(latency >= profile.latency(1, 100) for latency in one.latencies)
    assert all(busy <= done.end_ns for busy in done.busy_ns.values())
    assert sum(one.busy_ns for one in done.models) == sum(done.busy_ns.values())


def test_arrivals_depend_on_their_own_seed_only() -> None:
    alone = [one for one in requests({"a": 50}, SECOND, seed=1) if one.model == "a"]
    both = [one for one in requests({"a": 50, "b": 70}, SECOND, seed=1) if one.model == "a"]
    assert alone == both
    steady = requests({"a": 50}, SECOND, "periodic")
    gaps = {b.arrival_ns - a.arrival_ns for a, b in pairwise(steady)}
    assert len(steady) == 50 and max(gaps) - min(gaps) <= 1
    assert len(requests({"a": 1000}, 50 * SECOND)) == pytest.approx(50_000, rel=0.02)
