"""Worked examples of co-running kernels, and which kernels Orion's and the paddings' rules admit."""

from __future__ import annotations

from pathlib import Path

import pytest

from socsched.errors import InputError
from socsched_literature.sharing.corun import Active, Class, Client, Kernel, Policy, View, corun
from socsched_literature.sharing.kernel_traces import read_client
from socsched_literature.sharing.orion import Exclusive, Nobody, Orion, Streams, opposite
from socsched_literature.sharing.padding import DynamicPadding, ElasticPadding, fitting

US, MS = 1000, 1_000_000


def kernel(kind: Class = "compute", us: int = 100, units: int = 40, blocks: int = 1, *rounds: int) -> Kernel:
    return Kernel("k", us * US, units, kind, blocks, tuple(one * US for one in rounds))


def view(
    urgent: Kernel | None, free: int, left_us: float = 100, running: tuple[Active, ...] = (), since: float = 0
) -> View:
    return View(60, free, urgent, left_us * US, running, since * US, 4000 * US)


def test_orion_wants_the_opposite_class_and_room() -> None:
    arithmetic, memory = kernel("compute"), kernel("memory", units=20)
    assert Orion().admit(memory, 1.0, view(arithmetic, 20)) == (20, 1.0)
    assert Orion().admit(kernel("compute", units=20), 1.0, view(arithmetic, 20)) == (0, 0.0)
    assert Orion().admit(kernel("unknown", units=20), 1.0, view(arithmetic, 20)) == (20, 1.0)
    assert Orion().admit(kernel("compute"), 1.0, view(None, 60)) == (40, 1.0)
    # 30 units are in use already: 30 + 20 of 60 are within a threshold of 1, not within one of 0.8 of them.
    busy = (Active(0, kernel("memory", units=30), 1.0, 30, 1.0),)
    assert Orion().admit(memory, 1.0, view(arithmetic, 10, running=busy)) == (10, 1.0)
    assert Orion(unit_share=0.8).admit(memory, 1.0, view(arithmetic, 10, running=busy)) == (0, 0.0)


def test_orion_waits_once_enough_is_under_way() -> None:
    """2.5 % of a request of 4 ms are 100 us."""
    memory = kernel("memory", units=20)
    busy = (Active(0, memory, 1.0, 20, 1.0),)
    assert Orion().admit(memory, 1.0, view(kernel(), 20, running=busy, since=100)) == (20, 1.0)
    assert Orion().admit(memory, 1.0, view(kernel(), 20, running=busy, since=101)) == (0, 0.0)
    assert Orion().admit(memory, 1.0, view(None, 20, running=busy, since=101)) == (0, 0.0)
    assert Orion().admit(memory, 1.0, view(kernel(), 20, since=101)) == (20, 1.0)


def test_opposite() -> None:
    assert opposite(kernel("compute"), kernel("memory")) and not opposite(kernel("memory"), kernel("memory"))


def test_padding_takes_what_ends_in_time() -> None:
    # Rounds of 30, 40, 70 us with 1, 2, 3 blocks on a unit; 90 us left: 3 blocks once, on 20 units 60 of 120 blocks.
    other = kernel("compute", 200, 60, 120, 30, 40, 70)
    assert fitting(other, 20, 90 * US) == pytest.approx(60 / 120)
    # 65 us: 2 blocks once; 35 us: 1 once; 20 us: none at all.
    assert fitting(other, 20, 65 * US) == pytest.approx(40 / 120)
    assert fitting(other, 20, 35 * US) == pytest.approx(20 / 120)
    assert fitting(other, 20, 20 * US) == 0
    # 160 us: 3 blocks twice.
    assert fitting(other, 10, 160 * US) == pytest.approx(60 / 120)
    assert DynamicPadding().admit(other, 1.0, view(kernel(), 20, 90)) == (20, pytest.approx(0.5))
    assert DynamicPadding().admit(other, 0.25, view(kernel(), 20, 90)) == (20, 0.25)


def test_elastic_shards_fill_units_and_time() -> None:
    """200 us on 40 units are 400 us on 20: a quarter is done in 100 us."""
    memory = kernel("memory", 200, 40)
    assert ElasticPadding().admit(memory, 1.0, view(kernel(), 20, 100)) == (20, pytest.approx(0.25))
    assert ElasticPadding().admit(kernel("compute", 200), 1.0, view(kernel(), 20, 100)) == (0, 0.0)
    assert ElasticPadding(any_class=True).admit(kernel("compute", 200), 1.0, view(kernel(), 20, 100))[0] == 20
    # Too little time for the smallest shard; alone no shard is longer than 100 us.
    assert ElasticPadding().admit(memory, 1.0, view(kernel(), 20, 4)) == (0, 0.0)
    assert ElasticPadding().admit(memory, 1.0, view(None, 60)) == (40, pytest.approx(0.5))


def serve(
    policy: Policy, urgent: list[Kernel], others: list[Kernel], ms: float = 1.0, rate: float = 0.0
) -> tuple[list[float], float]:
    done = corun(60, Client("rt", tuple(urgent), rate), [Client("be", tuple(others))], policy, round(ms * MS))
    return [one / US for one in done.latencies], done.done[0]


def test_alone_and_in_turn() -> None:
    latencies, other = serve(Nobody(), [kernel(), kernel()], [kernel("memory")])
    assert latencies == [200.0] * 5 and other == 0
    assert serve(Exclusive(), [kernel(), kernel()], [kernel("memory")]) == (latencies, 0)


def test_disjoint_units_and_opposite_classes_do_not_disturb() -> None:
    """40 and 20 of 60 units: arithmetic 0.8 x 2/3 + 0.2 x 1/3 < 1, memory 0.3 x 2/3 + 0.8 x 1/3 < 1."""
    latencies, other = serve(Streams(), [kernel(units=40)], [kernel("memory", 50, 20)])
    assert latencies == pytest.approx([100.0] * 10) and other == pytest.approx(20, abs=0.1)


def test_a_kernel_in_real_time_gets_only_what_is_free_until_others_end() -> None:
    """Best effort holds 60 units for 300 us when the request arrives; after that the request has all it needs."""
    urgent = [kernel("compute", 100, 60)]
    latencies, _ = serve(Streams(), urgent, [kernel("memory", 300, 60)], ms=10, rate=200.0)
    alone, _ = serve(Nobody(), urgent, [kernel("memory", 300, 60)], ms=10, rate=200.0)
    assert len(latencies) == len(alone) and max(latencies) <= max(alone) + 300
    assert sum(latencies) > sum(alone)


def test_a_reset_costs_its_time_and_the_work_killed() -> None:
    urgent, other = [kernel("compute", 100, 60)], [kernel("memory", 300, 60, 60, 300)]
    killed = corun(60, Client("rt", tuple(urgent), 300.0), [Client("be", tuple(other))], DynamicPadding(), 40 * MS)
    assert killed.kills > 3
    assert max(killed.latencies) <= 2 * 135 * US  # no more than two come together here
    assert min(killed.latencies) == pytest.approx(135 * US, abs=1)


def test_contention_by_hand() -> None:
    """Two kernels of one class on 30 units each: arithmetic asked is 0.8, no contention; on 60 + 60 it could not be."""
    latencies, _ = serve(Streams(), [kernel("memory", 100, 30)], [kernel("memory", 100, 30)])
    assert latencies == pytest.approx([100.0] * 10)


def test_published_traces(data: Path) -> None:
    client = read_client(data / "reef" / "mobilenet.json")
    assert client.alone_ns == 1260 * US and len(client.kernels) == 31
    assert all(1 <= one.units <= 60 and one.by_occupancy for one in client.kernels)
    rt = read_client(data / "reef" / "resnet18.json", 100.0)
    alone = corun(60, rt, [client], Nobody(), 1000 * MS)
    padded = corun(60, rt, [client], ElasticPadding(), 1000 * MS)
    free = corun(60, rt, [client], Streams(), 1000 * MS)
    assert len(alone.latencies) == len(padded.latencies)
    assert sum(padded.latencies) <= 1.03 * sum(alone.latencies) < sum(free.latencies)
    assert padded.rate > 300


def test_a_file_that_is_no_trace_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text('{"model": "x", "kernels": [{"kernel": "k"}]}')
    with pytest.raises(InputError, match=r"x\.json"):
        read_client(file)
