"""XAuto's program against a worked example and against all schedules of small graphs."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import pytest

pytest.importorskip("ortools")

from socsched.errors import UsageError
from socsched_literature.xauto import Node, schedule


def test_the_second_best_engine_where_the_best_is_taken() -> None:
    """Both are fastest on the gpu (4 each); one takes 7 on the dla meanwhile rather than end at 8 on the gpu."""
    nodes = [
        Node("lidar", (("gpu", 4000), ("dla", 9000))), Node("camera", (("gpu", 4000), ("dla", 7000))),
        Node("fuse", (("cpu", 1000),), ("lidar", "camera")),
    ]  # fmt: skip
    found = schedule(nodes)
    assert found.engines == {"lidar": "gpu", "camera": "dla", "fuse": "cpu"}
    assert found.ends_ns == {"lidar": 4000, "camera": 7000, "fuse": 8000} and found.optimal
    assert found.priorities == {"lidar": 0, "camera": 1, "fuse": 2}


def test_priorities_are_the_order_of_ends() -> None:
    """On one engine the chain that continues elsewhere runs first: 2 + 6 there, and 5 meanwhile."""
    nodes = [
        Node("long", (("gpu", 5000),)),
        Node("first", (("gpu", 2000),)),
        Node("then", (("cpu", 6000),), ("first",)),
    ]
    found = schedule(nodes)
    assert found.makespan_ns == 8000 and found.priorities == {"first": 0, "long": 1, "then": 2}


def listed(nodes: list[Node]) -> int:
    """Return the shortest makespan (ns) over all choices of engines and all orders in which nodes are dispatched."""
    best = 1 << 60
    for choice in product(*(node.times_ns for node in nodes)):
        for order in permutations(range(len(nodes))):
            free: dict[str, int] = {}
            ends: dict[str, int] = {}
            for index in order:
                node, (engine, time) = nodes[index], choice[index]
                if not set(node.after) <= ends.keys():
                    break
                start = max([free.get(engine, 0), *(ends[name] for name in node.after)])
                ends[node.name] = free[engine] = start + time
            else:
                best = min(best, max(ends.values()))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_it_is_no_worse_than_any_schedule_without_preemption(seed: int) -> None:
    """And no better than what preemption allows: the longest path, and every engine's share of the work."""
    rng = Random(seed)
    nodes: list[Node] = []
    for number in range(5):
        engines = rng.sample(("cpu", "gpu", "dla"), rng.randint(1, 2))
        after = tuple(node.name for node in nodes if rng.random() < 0.35)
        nodes.append(Node(str(number), tuple((e, rng.randint(1, 9) * 1000) for e in engines), after))
    found = schedule(nodes)
    assert found.optimal and found.makespan_ns <= listed(nodes)
    times = {node.name: dict(node.times_ns)[found.engines[node.name]] for node in nodes}
    for engine in set(found.engines.values()):
        assert sum(times[n] for n, e in found.engines.items() if e == engine) <= found.makespan_ns
    for node in nodes:
        assert found.ends_ns[node.name] >= times[node.name] + max((found.ends_ns[n] for n in node.after), default=0)


def test_nodes_are_checked() -> None:
    with pytest.raises(UsageError, match="no implementation"):
        schedule([Node("a", ())])
    with pytest.raises(UsageError, match="follows unknown nodes: b"):
        schedule([Node("a", (("cpu", 1),), ("b",))])
