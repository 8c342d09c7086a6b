"""Subarrays: operation counts against published ones, worked examples of Planaria and PREMA, and their comparison."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from socsched_literature.sharing.fission import Arrival, Task, serve
from socsched_literature.sharing.networks import NETWORKS
from socsched_literature.sharing.planaria import Planaria, need
from socsched_literature.sharing.prema import Fcfs, Prema
from socsched_literature.sharing.subarrays import Layer, Npu, Table, Tiles, run_undivided, table, tiles

NPU = Npu()
SMALL = Npu(subarrays=4)


@pytest.mark.parametrize(
    ("name", "million"),
    [("resnet50", 3858), ("mobilenet_v1", 569), ("tiny_yolo", 3486), ("yolov3", 32_888), ("googlenet", 1583)],
)
def test_networks_have_their_published_work(name: str, million: int) -> None:
    """3.8e9 (He et al.), 569e6 (Howard et al.), 6.97 and 65.86 GFLOP (darknet), about 1.5e9 (Szegedy et al.)."""
    assert round(sum(one.macs for one in NETWORKS[name]()) / 1e6) == million


def test_cycles_by_hand() -> None:
    """K = 64, N = 64, M = 100: one subarray needs 2 x 2 tiles of 100 + 32 + 32; four as 2 x 2 one of 100 + 64 + 64,
    but as 2 x 1 twice over half the positions 2 tiles of 50 + 64 + 32, as 1 x 1 four times 4 of 25 + 64.
    """
    layer = Layer(64, 64, 100)
    assert tiles(layer, SMALL, 1) == Tiles(4, 164)
    assert tiles(layer, SMALL, 4) == Tiles(1, 228)
    assert run_undivided(layer, SMALL) == Tiles(1, 228)
    # Long and narrow: four subarrays one above another are one tile; side by side they would be four.
    assert tiles(Layer(64, 32, 1000), SMALL, 2) == Tiles(1, 1000 + 64 + 32)


def test_depthwise_layers_want_small_arrays() -> None:
    """9 x 1 for 64 channels: 7 lie on the diagonal of 64 x 64, 10 tiles; of 64 x 32 as well, of which there are two."""
    layer = Layer(9, 1, 1000, groups=64)
    assert tiles(layer, SMALL, 4) == Tiles(5, 1000 + 96) and run_undivided(layer, SMALL) == Tiles(10, 1000 + 128)
    assert tiles(layer, SMALL, 4).total < run_undivided(layer, SMALL).total


@given(st.integers(1, 600), st.integers(1, 600), st.integers(1, 3000), st.integers(1, 15))
def test_more_subarrays_are_never_slower_nor_is_division(k: int, n: int, m: int, count: int) -> None:
    layer = Layer(k, n, m)
    assert tiles(layer, NPU, count + 1).total <= tiles(layer, NPU, count).total
    assert tiles(layer, NPU, 16).total <= run_undivided(layer, NPU).total
    assert tiles(layer, NPU, 16).total * 16 * 32 * 32 >= layer.macs


def flat(name: str, cycles: dict[int, int], npu: Npu = SMALL) -> Table:
    """One layer of ten tiles; 0 is the undivided array."""
    rows = tuple((Tiles(10, cycles[count] // 10),) for count in range(npu.subarrays + 1))
    return Table(name, npu, rows, tuple((0,) for _ in rows))


EVEN = flat("even", {0: 1000, 1: 4000, 2: 2000, 3: 1400, 4: 1000})


def task(number: int, allowed: int, priority: int = 1, arrival: int = 0) -> Task:
    return Task(number, EVEN, priority, arrival, allowed)


def test_what_a_task_needs() -> None:
    assert [need(task(0, allowed), 0, SMALL) for allowed in (5000, 4000, 3999, 1500, 1000, 999)] == [1, 1, 2, 3, 4, 0]
    assert need(task(0, 4000), 1, SMALL) == 2
    half = task(0, 2500)
    half.part = 0.5
    assert half.remaining(1) == 2000 and need(half, 0, SMALL) == 1


def test_tasks_that_fit_get_what_they_need_and_the_rest_by_score() -> None:
    """Needs 1 and 2 of 4: one is spare.  Scores 9 / 4000 and 1 / 2000: the first gets round(0.82) = 1."""
    given_one = Planaria().assign([task(0, 4500, priority=9), task(1, 2500)], 0, SMALL)
    assert given_one == {0: (2, False), 1: (2, False)}
    assert Planaria().assign([task(0, 9000)], 0, SMALL) == {0: (4, False)}


def test_tasks_that_do_not_fit_are_ranked() -> None:
    """Needs 3, 3 and none: scores 1 / 1500 / 3 and 1 / 1400 / 3, the tighter one first, one is left for the other."""
    found = Planaria().assign([task(0, 1500), task(1, 1400), task(2, 500)], 0, SMALL)
    assert found == {0: (1, False), 1: (3, False), 2: (0, False)}
    # No task can be in time: in proportion to 1 / remaining, or all for the shortest.
    late = [task(0, 500), task(1, 400)]
    assert Planaria().assign(late, 0, SMALL) == {0: (2, False), 1: (2, False)}
    assert Planaria("shortest").assign(late, 0, SMALL) == {0: (4, False)}


@given(
    st.lists(st.tuples(st.integers(1, 6000), st.sampled_from([1, 3, 9]), st.integers(0, 9)), min_size=1, max_size=12)
)
def test_no_more_subarrays_than_there_are(drawn: list[tuple[int, int, int]]) -> None:
    tasks = []
    for i, (allowed, priority, done) in enumerate(drawn):
        tasks.append(task(i, allowed, priority))
        tasks[-1].part = done / 10
    for scheduler in (Planaria(), Planaria("shortest")):
        found = scheduler.assign(tasks, 0, SMALL)
        assert sum(count for count, _ in found.values()) <= SMALL.subarrays
        assert all(count >= 0 for count, _ in found.values())
        assert any(count for count, _ in found.values())
        needs = {one.number: need(one, 0, SMALL) for one in tasks}
        if all(needs.values()) and sum(needs.values()) <= SMALL.subarrays:
            assert all(found[number][0] >= count for number, count in needs.items())


def test_a_timeline_by_hand() -> None:
    """Alone on all four: 100 cycles a tile.  At 250 another arrives, and the tile that runs ends first, at 300.

    Of 700 cycles to do on four, the first then has 7 tiles; with slack it needs 2 (200 a tile), the second 2.
    """
    arrivals = [Arrival(0, EVEN, 1, 2400), Arrival(250, EVEN, 1, 2100)]
    first, second = serve(arrivals, Planaria(), SMALL)
    # 300 + 7 x 200; at 1700 the second has done (1700 - 300) / 200 = 7 tiles and has the rest of them on four.
    assert (first.finish, second.finish) == (1700, 2000)
    assert first.switches == 1 and second.switches == 1
    # Saved and loaded again: each change costs its task 50 cycles.
    first, second = serve(arrivals, Planaria(), SMALL, switch=50)
    assert first.finish == 1750 and second.finish > 2000


def test_prema_by_hand() -> None:
    """Tokens start at the priority: 9 beats 1 and 3, whatever their length; among equals the shorter goes first."""
    long = flat("long", {0: 3000, 1: 12_000, 2: 6000, 3: 4000, 4: 3000})
    waiting = [Task(0, EVEN, 3, 0, 9**9), Task(1, long, 9, 0, 9**9), Task(2, EVEN, 1, 0, 9**9)]
    assert Prema().assign(waiting, 0, SMALL) == {1: (4, True)}
    equal = [Task(0, long, 3, 0, 9**9), Task(1, EVEN, 3, 0, 9**9)]
    assert Prema().assign(equal, 0, SMALL) == {1: (4, True)}
    # A task of 1000 cycles that waited 2000 at priority 3 has 3 + 6 tokens and reaches the highest level.
    patient = [Task(0, long, 9, 0, 9**9), Task(1, EVEN, 3, 0, 9**9)]
    patient[0].have, patient[0].whole = 4, True
    patient[0].part = 0.1
    assert Prema().assign(patient, 2000, SMALL) == {1: (4, True)}
    assert patient[1].token == pytest.approx(9)


def test_prema_drains_what_is_nearly_done() -> None:
    """300 cycles left of 3000 against 1000 of another: 1000 / 3000 > 300 / 1000, so the running one ends first."""
    long = flat("long", {0: 3000, 1: 12_000, 2: 6000, 3: 4000, 4: 3000})
    running, urgent = Task(0, long, 1, 0, 9**9), Task(1, EVEN, 9, 0, 9**9)
    running.have, running.whole, running.part = 4, True, 0.9
    assert Prema().assign([running, urgent], 0, SMALL) == {0: (4, True)}
    running.part = 0.5
    assert Prema().assign([running, urgent], 0, SMALL) == {1: (4, True)}


def test_first_come_first_served_is_a_queue() -> None:
    arrivals = [Arrival(at, EVEN, 1, 9**9) for at in (0, 100, 5000)]
    assert [one.finish for one in serve(arrivals, Fcfs(), SMALL)] == [1000, 2000, 6000]


def test_planaria_has_more_tasks_in_time_than_prema() -> None:
    """ResNet-50, GoogLeNet and MobileNet at 1500 a second on the paper's NPU, a quarter of the objectives."""
    names = {"resnet50": 15, "googlenet": 15, "mobilenet_v1": 10}
    tables = {name: table(name, NETWORKS[name](), NPU) for name in names}
    draw, now, arrivals = random.Random(1), 0.0, []
    for _ in range(400):
        now += draw.expovariate(1500) * NPU.clock_hz
        name = draw.choice(sorted(names))
        allowed = names[name] * NPU.clock_hz // 4000
        arrivals.append(Arrival(round(now), tables[name], draw.choice((1, 3, 9)), allowed))
    share = {
        type(scheduler).__name__: sum(one.finish - one.arrival <= one.allowed for one in done) / len(done)
        for scheduler in (Planaria(), Prema(), Fcfs())
        for done in [serve(arrivals, scheduler, NPU, switch=2000)]
    }
    assert share["Planaria"] >= 0.99 > share["Prema"]
