"""Worked examples of GSLICE's rule, and its convergence to shares that meet objectives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched_literature.sharing.deployment import (
    SECOND,
    Demand,
    Deployment,
    ModelOutcome,
    Part,
    Served,
    mechanism,
    requests,
)
from socsched_literature.sharing.gslice import Gslice, Measured, Options, fair, measure, next_batch, next_share
from socsched_literature.sharing.profile import Profile, Sample
from socsched_literature.sharing.serving import Simulation

MS = 1_000_000
AS_WRITTEN = Options(threshold=0.1, careful=False, largest_change=1.0)


def seen(latency_ms: float, capacity: float, rate: float = 100.0, batch_ms: float = 1.0) -> Measured:
    return Measured(latency_ms * MS, batch_ms * MS, capacity, rate)


def test_shares_by_the_equations() -> None:
    """An objective of 100 ms, 100 requests a second, a share of 40 %."""
    # 5 ms and 8 requests to spare: both below 10 %, nothing changes.
    assert next_share(40, seen(95, 108), 100 * MS, AS_WRITTEN) == 40
    # 20 % too late, capacity to spare: up by the larger, 0.5.
    assert next_share(40, seen(120, 150), 100 * MS, AS_WRITTEN) == pytest.approx(60)
    # In time, a tenth too slow: up by the larger again, which is the latency's 0.3.
    assert next_share(40, seen(70, 90), 100 * MS, AS_WRITTEN) == pytest.approx(52)
    # Room in both: down by the larger, 0.5 (and twice as late afterwards) ...
    assert next_share(40, seen(80, 150), 100 * MS, AS_WRITTEN) == pytest.approx(20)
    # ... or, with care, by the scarcer 0.2 less half the threshold.
    careful = Options(threshold=0.1, largest_change=1.0, margin=0.0)
    assert next_share(40, seen(80, 150), 100 * MS, careful) == pytest.approx(40 * 0.85)
    assert next_share(40, seen(92, 150), 100 * MS, careful) == 40
    # 3 % are no time to spare where 5 % are kept: up, by what is missing and half the threshold, 0.02 + 0.1.
    assert next_share(40, seen(97, 150), 100 * MS, Options()) == pytest.approx(40 * 1.12)
    assert next_share(40, seen(120, 150), 100 * MS, careful) == pytest.approx(40 * 1.25)
    assert next_share(40, seen(200, 500), 100 * MS, Options(largest_change=0.5)) == pytest.approx(60)


def test_batches_by_the_residual_of_a_batch() -> None:
    # 2 x 20 of 100 ms: 60 % more; 2 x 60: 20 % less; 2 x 200 counts as nothing left.
    assert next_batch(10, 32, seen(0, 1, batch_ms=20), 100 * MS) == 16
    assert next_batch(10, 32, seen(0, 1, batch_ms=60), 100 * MS) == 8
    assert next_batch(10, 32, seen(0, 1, batch_ms=200), 100 * MS) == 1
    assert next_batch(30, 32, seen(0, 1, batch_ms=1), 100 * MS) == 32
    assert next_batch(1, 32, seen(0, 1, batch_ms=45), 100 * MS) == 2


def test_small_wishes_are_granted_first() -> None:
    assert fair({"a": 12, "b": 33, "c": 80}) == {"a": 15, "b": 35, "c": 50}
    assert fair({"a": 90, "b": 90}) == {"a": 50, "b": 50}
    assert fair({"a": 0.1, "b": 500}) == {"a": 5, "b": 95}


@given(st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(0, 300), min_size=1, max_size=10))
def test_granted_shares_fit(wanted: dict[str, float]) -> None:
    granted = fair(wanted)
    assert sum(granted.values()) <= 100 and all(5 <= share <= 100 and share % 5 == 0 for share in granted.values())
    for name, wish in wanted.items():
        if granted[name] < wish:
            # A network that gets less than it wants gets no less than any other that wants more than the minimum.
            assert all(granted[name] >= share - 5 or wanted[other] >= wish for other, share in granted.items()
                       if share > 5)  # fmt: skip


def test_a_window_is_measured() -> None:
    window = ModelOutcome("a", 50 * MS, arrived=10, dropped=1, batches=3, busy_ns=90 * MS)
    for ms in (10, 20, 30, 30, 30, 30, 30, 30, 40):
        window.answer(ms * MS)
    found = measure(window, SECOND, 50 * MS, Options())
    assert found == Measured(pytest.approx(55 * MS), 30 * MS, pytest.approx(100), 10.0)
    assert measure(ModelOutcome("a", 1), SECOND, 1, Options()) is None


def networks() -> list[Demand]:
    """Three networks of which one needs most of the accelerator and one hardly any."""

    def net(name: str, slo_ms: float, first: float, more: float, fill: float) -> Profile:
        samples = (Sample(1, round(first * MS), fill), Sample(32, round((first + 31 * more) * MS), fill))
        return Profile(name, round(slo_ms * MS), samples)

    return [
        Demand(net("heavy", 150, 12, 3, 0.9), 100.0),
        Demand(net("middle", 100, 8, 1, 0.6), 80.0),
        Demand(net("light", 60, 5, 0.1, 0.3), 40.0),
    ]


def converged(options: Options) -> tuple[Gslice, dict[str, float]]:
    """Return the controller after 10 minutes, and satisfaction by network with what it ended at, on other requests."""
    demands = networks()
    control = Gslice(demands, options=options)
    rates = {one.profile.name: one.rate for one in demands}
    first = control.start()
    simulation = Simulation(
        first, mechanism("green-contexts"), controller=control, period_ns=10 * SECOND, adaptive=False
    )  # fmt: skip
    simulation.run(requests(rates, 200 * SECOND, seed=1), 200 * SECOND)
    assert [one.share for one in simulation.parts] != []
    last = Deployment(
        tuple(
            Part(
                0, control.shares[one.profile.name], (Served(one.profile, control.batches[one.profile.name], one.rate),)
            )
            for one in demands
        )
    )
    done = Simulation(last, mechanism("green-contexts"), adaptive=False).run(
        requests(rates, 50 * SECOND, seed=2), 50 * SECOND
    )
    return control, {one.name: one.within / one.arrived for one in done.models}


def test_it_ends_at_shares_that_meet_objectives_from_shares_that_do_not() -> None:
    demands = networks()
    rates = {one.profile.name: one.rate for one in demands}
    begin = Simulation(Gslice(demands).start(), mechanism("green-contexts"), adaptive=False).run(
        requests(rates, 20 * SECOND, seed=2), 20 * SECOND
    )
    assert min(one.within / one.arrived for one in begin.models) < 0.6
    control, satisfied = converged(Options())
    assert min(satisfied.values()) >= 0.99
    assert control.shares["heavy"] > control.shares["middle"] >= control.shares["light"]
    # It has settled: the last five periods differ by one step of the grid at most.
    last = [shares for _, shares, _ in control.trail[-5:]]
    assert all(max(one[name] for one in last) - min(one[name] for one in last) <= 5 for name in rates)
