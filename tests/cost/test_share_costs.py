"""The time of kernels on a share of an engine: against a GPU's measured ones, and laws that hold for any kernel."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched.cost import shares
from socsched.cost.cost import Cost
from socsched.cost.roofline import estimate
from socsched.descriptor.catalog import get_pipeline, get_platform
from socsched.descriptor.host_gpus import engines
from socsched.descriptor.platform import EngineMode, Figure, Link
from socsched.models.work import stage_work
from tests.descriptor.test_host_gpus import BIG

MEASURED = Path(__file__).parents[1] / "data" / "shares_h100.json"
LATENCY_NS = 5000.0
"""What a kernel of tens of microseconds takes whatever its blocks: launch, filling, draining."""


def test_pointpillars_on_shares_of_a_gpu_takes_as_long_as_measured() -> None:
    """132 SMs, their peak rate, cache and memory; only the latency was chosen on these times."""
    orin = get_platform("jetson-agx-orin-64gb")
    gpu = orin.engine("gpu")
    halves = replace(gpu.precisions["fp16"], ops_per_cycle=Figure(4096, "published"))
    gpu = replace(
        gpu, units=132, clock_hz=Figure(1.755e9, "published"), bandwidth=Figure(3e12, "published"),
        sram=Figure(50 << 20, "published"), precisions={"fp16": halves}, division=None,
    )  # fmt: skip
    state = replace(orin.mode("MAXN").engines["gpu"], units=132, clock_hz=1_755_000_000)
    work = [
        stage_work(stage, "fp16") for stage in get_pipeline("pointpillars").stages if stage.name in ("backbone", "head")
    ]
    kernels = [one for each in work for one in shares.kernels_of(each, gpu, state, 3e12)]
    kernels = [replace(one, fixed_ns=LATENCY_NS, time_ns=one.time_ns + LATENCY_NS) for one in kernels]
    on = shares.units_of(gpu, state, 3e12)
    times = json.loads(MEASURED.read_text())["ms"]["pointpillars"]["1"]
    for units in (8, 16, 32, 48, 64, 96, 120):
        predicted = sum(on.time_ns(one, units) for one in kernels) / sum(on.time_ns(one, 132) for one in kernels)
        assert predicted == pytest.approx(times[str(units)][0] / times["132"][0], rel=0.06), units


@given(
    st.floats(1, 1e6), st.floats(0, 1), st.integers(1, 5000), st.integers(0, 1 << 28), st.integers(1, 4),
    st.integers(2, 132), st.integers(0, 8),
)  # fmt: skip
def test_fewer_units_are_never_faster_nor_slower_than_one_after_the_other(
    time: float, fixed: float, blocks: int, size: int, busy: int, whole: int, held: int
) -> None:
    """Nor does a kernel take longer than if all its work were on one unit, unless its memory is what one unit draws."""
    kernel = shares.Kernel(time, time * fixed, blocks, size, busy, held=held)
    on = shares.Units(whole, 1e11, 1e12)
    times = [on.time_ns(kernel, units) for units in range(1, whole + 1)]
    assert all(fewer >= more - 1e-6 * fewer for fewer, more in itertools.pairwise(times))
    least = max(time, on.traffic_ns(kernel, whole))
    assert times[-1] >= time * (1 - 1e-9)
    assert times[0] <= kernel.fixed_ns + max(whole * least, on.traffic_ns(kernel, 1)) * (1 + 1e-9)


def total(found: shares.Slowdown) -> float:
    return found.memory + found.cache + found.launches


@given(
    st.lists(st.tuples(st.floats(2e3, 1e6), st.integers(1, 5000), st.integers(0, 1 << 26)), min_size=1, max_size=20),
    st.integers(1, 66), st.floats(0, 3e13), st.floats(1, 4),
)  # fmt: skip
def test_a_neighbour_costs_no_less_the_more_it_wants_and_nothing_where_it_wants_nothing(
    rows: list[tuple[float, int, int]], units: int, wanted: float, far: float
) -> None:
    """Nor does it take more from a job's bytes than a fair part of the memory leaves."""
    on, kernels = (
        shares.Units(132, 1e11, 4e12),
        [shares.Kernel(time, 1e3, blocks, 0, cached=size) for time, blocks, size in rows],
    )
    alone = sum(on.time_ns(one, units) for one in kernels)
    costs = [
        total(on.beside(kernels, units, shares.Neighbour(part * wanted, 132 - units, 5e7, far), alone))
        for part in (0, 0.3, 0.6, 1)
    ]
    assert costs[0] == 0
    assert all(less <= more * (1 + 1e-9) + 1e-6 for less, more in itertools.pairwise(costs))
    moved = sum(one.cached for one in kernels)
    queue = max(wanted / 4e12 + moved / 8e6 / len(kernels), 1.0)  # a job takes 2 us a kernel at least
    assert costs[-1] <= moved * 132 / (4e12 * units) * 1e9 + 1e3 * len(kernels) * far * queue
    queued = shares.Neighbour(0.0, 132 - units, 5e7, far, 700.0)
    assert on.beside(kernels, units, queued, alone).launches == pytest.approx(700.0 * len(kernels))


def test_blocks_that_keep_a_unit_busy_are_those_of_enough_warps_or_all_it_holds() -> None:
    """One-warp blocks of a depthwise network are many at once; blocks with much shared memory are not."""
    assert shares.busy_blocks(4, 16) == shares.BUSY
    assert shares.busy_blocks(1, 32) == 8
    assert shares.busy_blocks(1, 2) == 2
    assert shares.busy_blocks(32, 2) == 1
    assert shares.busy_blocks(4, 16, shares.LOADING) == 4


def test_blocks_that_a_unit_cannot_hold_wait_for_a_round_of_their_own() -> None:
    """Three blocks of which a unit holds two take as long as four would, where one alone keeps it from nothing."""
    on = shares.Units(132, 1e11, 1e12)
    kernel = shares.Kernel(1e4, 0.0, 264, 0, busy=1.5, held=2)
    assert on.time_ns(kernel, 96) == pytest.approx(1e4 * (2 / 1.5 + 1) / (2 / 1.5))
    assert on.time_ns(kernel, 66) == pytest.approx(2e4)


def test_a_stage_without_kernels_takes_as_much_longer_as_it_has_fewer_units() -> None:
    """What is known by its time alone may use every unit."""
    orin = get_platform("jetson-agx-orin-64gb")
    gpu, state = orin.engine("gpu"), orin.mode("MAXN").engines["gpu"]
    assert shares.ratio(None, gpu, state, 4, 1e11) == 4.0


def test_a_card_with_memory_of_its_own_pays_for_fewer_units_and_for_neighbours_there() -> None:
    """Its segments count no DRAM of the board, so that its memory's contention is a part of the cost itself."""
    card = replace(
        get_platform("jetson-agx-orin-64gb").engine("gpu"),
        link=Link(Figure(2e10, "assumed"), Figure(1_000, "assumed"), keeps=True), sram=Figure(1 << 20, "assumed"),
    )  # fmt: skip
    state = get_platform("jetson-agx-orin-64gb").mode("MAXN").engines["gpu"]
    work = [
        stage_work(stage, "fp16") for stage in get_pipeline("pointpillars").stages if stage.name in ("backbone", "head")
    ]
    cost, other = (
        Cost(one.stage, "gpu", "MAXN", "fp16", 16, made.time_ns, 0, 0, made.segments, "derived", "", 0.1)
        for one in work
        for made in (estimate(one, card, state, 16, 2e11),)
    )
    neighbour = shares.neighbour_of(other, work[1], card, state, 8, 2e11)
    alone, beside = (shares.on_share(cost, work[0], card, state, 2, 2e11, some) for some in ((), (neighbour,)))
    assert alone.time_ns > 1.5 * cost.time_ns
    assert alone.shared is not None and alone.shared.share_ns == alone.time_ns - cost.time_ns
    parts = beside.shared
    assert parts is not None and parts.by == "head" and min(parts.memory_ns, parts.cache_ns, parts.launches_ns) > 0
    assert beside.time_ns == alone.time_ns + parts.memory_ns + parts.cache_ns + parts.launches_ns


@pytest.mark.parametrize("units", [8, 16, 32, 48, 64, 96, 120])
def test_a_card_on_shares_takes_as_much_longer_as_measured(units: int) -> None:
    """From its roofline alone, launches and all, where the test above has the kernels' own times."""
    (card,) = engines([BIG])
    state = EngineMode(132, round(card.clock_hz.value), card.dynamic_mw)
    times = json.loads(MEASURED.read_text())["ms"]["pointpillars"]["1"]
    whole = part = 0
    for stage in get_pipeline("pointpillars").stages:
        if stage.name not in ("backbone", "head"):
            continue
        work = stage_work(stage, "fp16")
        made = estimate(work, card, state, 132, 2e11)
        cost = Cost(stage.name, "gpu", "m", "fp16", 132, made.time_ns, 0, 0, made.segments, "derived", "", 0.1)
        whole += cost.time_ns
        part += shares.on_share(cost, work, card, state, units // 8, 2e11).time_ns
    assert part / whole == pytest.approx(times[str(units)][0] / times["132"][0], rel=0.3)
