"""Small lines for planners, independent of any platform."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from socsched.planning.cutting.divisible import Place
from socsched_literature.planners.line import Line

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
