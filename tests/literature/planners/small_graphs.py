"""Small lines and operator graphs for planners, independent of any platform."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from socsched.cost.cost import Cost
from socsched.descriptor.pipeline import Stage
from socsched.graph.network import Network
from socsched.planning.cutting.divisible import Place
from socsched_literature.planners.line import Line
from socsched_literature.planners.opgraph import Node, OpGraph
from socsched_literature.planners.sharing import Kernel

US = 1000


def line(
    time: Sequence[Sequence[int | None]],
    energy: Sequence[Sequence[int]] | None = None,
    change: int | Mapping[tuple[int, int, int], tuple[int, int] | None] = 0,
    entry: Sequence[tuple[int, int]] | None = None,
    name: str = "net",
) -> Line:
    """Return a line by group and place (ns, uJ); `change`: time of any change, or (border, a, b) -> (ns, uJ)."""
    places = tuple(Place(f"e{p}", "fp16", 1) for p in range(len(time[0])))

    def between(border: int, a: int, b: int) -> tuple[int, int] | None:
        return (change, 0) if isinstance(change, int) else change.get((border, a, b))

    return Line(
        name,
        places,
        tuple(range(1, len(time) + 1)),
        tuple(map(tuple, time)),
        tuple(map(tuple, energy or [[0] * len(places)] * len(time))),
        tuple((0,) * len(places) for _ in time),
        tuple(entry or [(0, 0)] * len(places)),
        between,
    )


def random_line(rng: Random, groups: int, places: int, name: str = "net") -> Line:
    """Return a line with random costs, entries and changes, some groups refused somewhere."""
    time = [
        [rng.randint(1, 20) if rng.random() < 0.85 or p == 0 else None for p in range(places)] for _ in range(groups)
    ]
    energy = [[rng.randint(1, 20) for _ in range(places)] for _ in range(groups)]
    changes = {
        (border, a, b): (rng.randint(0, 4), rng.randint(0, 4)) if rng.random() < 0.9 else None
        for border, a, b in itertools.product(range(groups), range(places), range(places))
        if a != b
    }
    entry = [(rng.randint(0, 3), rng.randint(0, 3)) for _ in range(places)]
    return line(time, energy, changes, entry, name)


def ways(which: Line) -> Iterator[tuple[int, ...]]:
    """Yield every choice of places that can run."""
    for way in itertools.product(range(len(which.places)), repeat=len(which)):
        if which.cost(way) is not None:
            yield way


def kernel(name: str, compute: int, fills: int, launch: int = 0, memory: int = 0, size: int = 0) -> Kernel:
    """Return a kernel; times in ns on all units."""
    return Kernel(name, float(compute), float(memory), launch, fills, size)


def graph(needs: Sequence[Sequence[int]], kernels: Sequence[Kernel], total: int = 4, bandwidth: float = 0.0) -> OpGraph:
    """Return a graph of one kernel a node."""
    nodes = tuple(
        Node((f"n{number}",), frozenset(before), (one,), "")
        for number, (before, one) in enumerate(zip(needs, kernels, strict=True))
    )
    cost = Cost(
        "net", "gpu", "mode", "fp16", total, sum(k.time_ns(total, total) for k in kernels), 0, 0, (), "", "", 0.0
    )
    return OpGraph(Stage("net", "net", None), Network("net", {}, (), ()), {}, nodes, cost, total, bandwidth)


def random_graph(rng: Random, nodes: int, total: int = 4) -> OpGraph:
    """Return a graph of random precedence and work."""
    needs = [[other for other in range(number) if rng.random() < 0.35] for number in range(nodes)]
    kernels = [
        kernel(f"k{number}", rng.randint(1, 50), rng.randint(1, total), rng.randint(0, 10), rng.randint(0, 20))
        for number in range(nodes)
    ]
    return graph(needs, kernels, total)
