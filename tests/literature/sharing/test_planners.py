"""Planners of parts: worked examples of squishy bin packing, gpulet and MIG-Serving, bounds, and serving as planned."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from socsched.errors import UsageError
from socsched_literature.sharing import gpulet, mig_serving, nexus
from socsched_literature.sharing.deployment import SECOND, Demand, Deployment, Part, mechanism, requests
from socsched_literature.sharing.profile import (
    LinearInterference,
    Profile,
    Running,
    Sample,
    read_profiles,
)
from socsched_literature.sharing.serving import Simulation, with_guests
from tools.literature.claims.mig_serving import lower_bound, static

MS = 1_000_000
NO_SLACK = nexus.Options(slack=1.0)


def net(name: str, slo_ms: float, first_ms: float, more_ms: float, largest: int = 32, fill: float = 0.5) -> Profile:
    """L(b) = first + more (b - 1) ms on the whole accelerator."""
    last = first_ms + more_ms * (largest - 1)
    samples = (Sample(1, round(first_ms * MS), fill), Sample(largest, round(last * MS), fill))
    return Profile(name, round(slo_ms * MS), samples[: 1 + (largest > 1)])


def test_a_residue_gathers_the_largest_batch_in_time() -> None:
    # L = 9 + b ms, 100 requests a second: 8 wait 80 ms and take 17, 9 would wait 90 and take 18.
    turn = nexus.residue(net("a", 100, 10, 1), 100, 100, 1.0)
    assert turn is not None and turn.served[0].batch == 8 and turn.duty_ns == 80 * MS
    assert turn.occupancy(1.0) == pytest.approx(17 / 80)


def test_squishy_bin_packing_by_hand() -> None:
    """Saturated: a at b = 32 (2 L = 82 <= 100) with 32 / 41 ms = 780 a second; residues of a and b share a GPU."""
    a, b = net("a", 100, 10, 1), net("b", 100, 10, 1)
    made = nexus.schedule([Demand(a, 880.0), Demand(b, 50.0)], 4, NO_SLACK)
    assert made.complete and made.devices == 2
    first, second = made.parts
    assert [one.batch for one in first.served] == [32]
    assert first.served[0].rate == pytest.approx(32e9 / (41 * MS))
    # a's rest, 99.5 a second, gathers 8 in 80.4 ms and b 4 in 80: together they take 17 + 13 of 80 ms.  80 + 30 > 100,
    # but a part that never waits for a batch has everybody's turn twice in 60 ms.
    assert [(one.profile.name, one.batch) for one in second.served] == [("b", 4), ("a", 8)] or [
        (one.profile.name, one.batch) for one in second.served
    ] == [("a", 8), ("b", 4)]
    shorter = nexus.merge(
        nexus.Turn(100, 60 * MS, (nexus.Served(a, 6, 99.5),)),
        nexus.Turn(100, 80 * MS, (nexus.Served(b, 4, 50.0),)),
        NO_SLACK,
    )
    assert shorter is not None and shorter.duty_ns == 60 * MS
    assert [one.batch for one in shorter.served] == [6, 3]
    assert shorter.occupancy(1.0) == pytest.approx((15 + 12) / 60)


def test_merging_refuses_what_is_late_or_too_much() -> None:
    a, b = net("a", 50, 10, 1), net("b", 30, 10, 1)
    slow = nexus.Turn(100, 25 * MS, (nexus.Served(a, 1, 40.0),))
    # 20 of 20 ms are used, and a request that has just missed its turn waits 20 + 20 > 30, nor is 2 x 20 <= 30.
    assert nexus.merge(slow, nexus.Turn(100, 20 * MS, (nexus.Served(b, 1, 50.0),)), NO_SLACK) is None
    same = nexus.Turn(100, 100 * MS, (nexus.Served(a, 1, 10.0),))
    assert nexus.merge(slow, same, NO_SLACK) is None


def test_the_knee_by_hand() -> None:
    """Fill 0.5, one request at a time, 10 ms: L = 5 + 5 / p ms, a request 30, 20 and 15 ms of parts 20, 33.., 50 ...

    trp(20) = 33.3, trp(40) = 57.1, trp(50) = 66.7, trp(60) = 75, trp(80) = 88.9, trp(100) = 100: the steepest step
    is the first, 1.19 a percent.
    """
    one = net("a", 1000, 10, 0, largest=1)
    points = [one.saturated(size)[1] for size in (20, 40, 50, 60, 80, 100)]
    assert points == pytest.approx([33.33, 57.14, 66.67, 75, 88.89, 100], rel=1e-3)
    options = gpulet.Options(slack=1.0)
    assert gpulet.efficient_share(one, options) == 40
    assert gpulet.smallest_share(one, 60, options) == 50
    # A network that fills nothing gains nothing: the smallest part.
    assert gpulet.efficient_share(net("b", 1000, 10, 0, largest=1, fill=0.01), options) == 20


def test_gpulet_splits_a_gpu_and_fits_best() -> None:
    """a needs 40 % (57 of its 50 requests a second), b 50 %: one GPU is cut 40 / 60, and b takes all of the 60."""
    a, b = net("a", 1000, 10, 0, largest=1), net("b", 2000, 10, 0, largest=1)
    made = gpulet.schedule([Demand(a, 50.0), Demand(b, 60.0)], 2, options=gpulet.Options(slack=1.0))
    assert made.complete
    assert [(part.device, part.share, [one.profile.name for one in part.served]) for part in made.parts] == [
        (0, 60, ["b"]), (0, 40, ["a"]), (1, 100, []),
    ]  # fmt: skip


def test_gpulet_takes_several_parts_for_a_high_rate() -> None:
    """57.1 a second on a part of 40 %, the knee: 110 need two; 60 % is left of each GPU."""
    made = gpulet.schedule([Demand(net("a", 1000, 10, 0, largest=1), 110.0)], 2, options=gpulet.Options(slack=1.0))
    assert made.complete
    shares = Counter(part.share for part in made.parts if part.served)
    assert shares == {40: 1, 60: 1}
    assert sum(one.rate for part in made.parts for one in part.served) == pytest.approx(110)


def test_gpulet_keeps_away_from_a_neighbour_that_would_be_late() -> None:
    """Half of the GPU of a is free, but both would take 1.8 times as long; the second GPU is taken instead."""
    tight = Profile("a", 31 * MS, (Sample(1, 10 * MS, 0.5),))
    loose = Profile("b", 1000 * MS, (Sample(1, 10 * MS, 0.5),))
    demands = [Demand(tight, 40.0), Demand(loose, 50.0)]
    options = gpulet.Options(slack=1.0, sizes=(50, 100))
    alone = gpulet.schedule(demands, 2, options=options)
    assert {part.device for part in alone.parts if part.served} == {0}
    separate = gpulet.schedule(demands, 2, LinearInterference(0, 0, 0, 0, 1.8), options)
    assert separate.complete and {part.device for part in separate.parts if part.served} == {0, 1}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(20, 200), st.integers(1, 12), st.integers(1, 400)), min_size=1, max_size=6))
def test_what_is_planned_is_admitted_adds_up_and_is_in_time(drawn: list[tuple[int, int, int]]) -> None:
    demands = [
        Demand(net(f"n{i}", slo, first, first / 8, fill=0.4), float(rate)) for i, (slo, first, rate) in enumerate(drawn)
    ]  # fmt: skip
    neighbours = LinearInterference(0.1, 0.2, 0.1, 0.2, 1.02)
    for made in (
        nexus.schedule(demands, 3),
        gpulet.schedule(demands, 3, neighbours),
        gpulet.schedule(demands, 3, neighbours, gpulet.Options(order="falling")),
    ):
        planned = Counter[str]()
        for part in made.parts:
            for one in part.served:
                planned[one.profile.name] += one.rate  # type: ignore[assignment]
                taken = one.profile.latency(one.batch, part.share) * 1.1
                assert taken <= one.profile.slo_ns and one.rate * taken <= one.batch * 1e9 * 1.001
        for device in range(3):
            shares = tuple(part.share for part in made.parts if part.device == device)
            assert mechanism("mps").admits(shares) and len(shares) <= 2
        for one in made.unserved:
            planned[one.profile.name] += one.rate  # type: ignore[assignment]
        for demand in demands:
            assert planned[demand.profile.name] == pytest.approx(demand.rate, rel=0.02)


def test_guests_go_to_the_part_that_is_used_least() -> None:
    """a is busy 80 %, b 20 %; c found no place: it joins b, and d gets the third accelerator, which is unused."""
    a, b, c, d = (net(name, 500, 10, 0, largest=1) for name in "abcd")
    parts = (Part(0, 100, (nexus.Served(a, 1, 80.0),)), Part(1, 100, (nexus.Served(b, 1, 20.0),)))
    made = with_guests(Deployment(parts, (Demand(c, 30.0),)), 2)
    assert [[one.profile.name for one in part.served] for part in made.parts] == [["a"], ["b", "c"]]
    made = with_guests(Deployment(parts, (Demand(c, 30.0), Demand(d, 40.0))), 3)
    assert [[one.profile.name for one in part.served] for part in made.parts] == [["a"], ["b", "c"], ["d"]]
    assert made.complete


def toy() -> mig_serving.Problem:
    """Two services on an A30 (1, 2 or 4 slices): x gains little from a larger instance, y nothing from a small one."""
    x = Profile("x", 100 * MS, (Sample(1, 10 * MS, 0.1),))
    y = Profile("y", 25 * MS, (Sample(1, 10 * MS, 1.0),))
    return mig_serving.problem("a30-24gb", [Demand(x, 300 / 1.1), Demand(y, 100 / 1.1)])


def test_instances_by_hand() -> None:
    """x takes 10 (0.9 + 0.1 / p): 13 ms on a quarter, and a tenth more; y is in time on the whole GPU only."""
    given_one = toy()
    assert given_one.throughput["1g.6gb", "x"] == pytest.approx(1e9 / (13 * MS) / 1.1)
    assert given_one.throughput["4g.24gb", "x"] == pytest.approx(100 / 1.1)
    assert given_one.throughput["2g.12gb", "y"] == 0
    assert given_one.throughput["4g.24gb", "y"] == pytest.approx(100 / 1.1)
    # One GPU for y; four quarters do more than is asked of x: two GPUs, whereas whole ones would be 1 + 3.
    assert lower_bound(given_one) == 2
    assert len(mig_serving.greedy(given_one)) == 2
    assert len(static(given_one, ("4g.24gb",))) == 4
    with pytest.raises(UsageError, match="y meets"):
        static(given_one, ("1g.6gb",) * 4)


def drawn_problem(seed: int, count: int = 3, most: float = 2.0) -> mig_serving.Problem:
    draw = random.Random(seed)
    demands = []
    for i in range(count):
        first = draw.uniform(2, 10)
        one = net(f"s{i}", first * draw.uniform(4, 12), first, first * 0.1, largest=8, fill=draw.uniform(0.1, 0.95))
        demands.append(Demand(one, one.saturated(100, 1.1)[1] * draw.uniform(0.1, most)))
    return mig_serving.problem("a100-40gb", demands)


@pytest.mark.parametrize("seed", range(6))
def test_greedy_is_between_the_bound_and_whole_gpus_and_serves_what_is_asked(seed: int) -> None:
    given_one = drawn_problem(seed, 4)
    configs = mig_serving.greedy(given_one)
    assert lower_bound(given_one) <= len(configs) <= len(static(given_one, ("7g.40gb",)))
    assert mig_serving.is_complete(given_one.completed(configs))


def test_a_crumb_is_served_too() -> None:
    """What is left may be far below the rounding of scores: greedy must still end."""
    given_one = drawn_problem(1, 3)
    assert len(mig_serving.greedy(given_one, (1.0, 1 - 1e-8, 1.0))) == 1
    assert len(mig_serving.greedy(given_one, (1 - 2e-8, 1.0, 1 - 1e-8))) == 1


def test_a_deployment_on_instances_is_served_in_time() -> None:
    given_one = drawn_problem(4, 3)
    made = mig_serving.deployment(given_one, mig_serving.greedy(given_one))
    rates = {one.profile.name: one.rate for one in given_one.demands}
    asked = requests({name: 0.9 * rate for name, rate in rates.items()}, 2 * SECOND, "periodic")
    assert Simulation(made, mechanism("mig")).run(asked, 2 * SECOND).satisfaction > 0.98


def test_gpulet_serves_more_of_the_published_networks_than_time_sharing(data: Path) -> None:
    """The authors' workload `equal`, at a load that time sharing cannot hold."""
    profiles = {one.name: one for one in read_profiles(data / "gpulet" / "3080_UTIL.CSV", law="fixed")}
    rates = dict.fromkeys(("lenet", "googlenet", "resnet50", "ssd", "vgg16"), 100.0)
    demands = [Demand(profiles[name], rate) for name, rate in rates.items()]
    asked = requests(rates, 4 * SECOND)
    time, space = (
        Simulation(with_guests(made, 4), mechanism("mps")).run(asked, 4 * SECOND).satisfaction
        for made in (nexus.schedule(demands, 4), gpulet.schedule(demands, 4))
    )
    assert space > 0.99 and time < 0.9


def test_a_part_names_its_networks() -> None:
    made = gpulet.schedule([Demand(net("a", 1000, 10, 0, largest=1), 50.0)], 1, options=gpulet.Options(slack=1.0))
    assert str(made.parts[0]) == "0:60% free" and "a b1 50/s" in str(made.parts[1])
    assert str(Part(2, 100, ())) == "2:100% free"
    assert Running(net("a", 1, 1, 1), 1, 50).share == 50
