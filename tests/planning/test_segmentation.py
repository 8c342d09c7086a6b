"""Segmentations of a network: shortest paths against all paths, and the neighbourhood of a segmentation."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from socsched.planning.cutting.divisible import Divisible, Leg, Legs, Place
from socsched.planning.cutting.segmentation import duration_ns, merge_neighbours, segmentations, shift_borders

PLACES = tuple(Place(name, "fp16", 1) for name in ("a", "b", "c"))


class Fake(Divisible):
    """Units whose changes of engine cost the entries of a table."""

    def change(self, cut: int, source: int, sink: int) -> tuple[int, int] | None:
        """Return a made-up cost; going from c to a is impossible."""
        return None if (source, sink) == (2, 0) else (self.least_ns[0] * (1 + cut + sink), 0)


def fake(times: list[list[int | None]], entry: list[int], change: int) -> Fake:
    """Return a stage of given unit times."""
    rows = tuple(tuple(row) for row in times)
    zeros = tuple(tuple(0 for _ in row) for row in rows)
    cuts = tuple((f"u{number}",) for number in range(len(rows) - 1))
    crossing: tuple[tuple[()], ...] = tuple(() for _ in cuts)
    none: object = None
    return Fake(
        none,
        none,
        {},
        cuts,
        crossing,
        PLACES,
        rows,
        zeros,
        tuple(entry),
        (0, 0, 0),
        (change,),
        (),
        (),
        (),
        none,  # type: ignore[arg-type]
    )


units = st.lists(st.tuples(*[st.one_of(st.none(), st.integers(1, 40))] * 2, st.integers(1, 40)), min_size=2, max_size=5)


@given(units, st.lists(st.integers(0, 20), min_size=3, max_size=3), st.integers(0, 9))
def test_the_fastest_way_is_among_those_proposed(
    times: list[tuple[int | None, int | None, int]], entry: list[int], change: int
) -> None:
    stage = fake([list(row) for row in times], entry, change)
    every = (_legs(choice) for choice in product(PLACES, repeat=stage.units))
    least = min(time for legs in every if (time := duration_ns(stage, legs)) is not None)
    found = segmentations(stage)
    assert len(set(found)) == len(found)
    known = [time for legs in found if (time := duration_ns(stage, legs)) is not None]
    assert min(known) == least
    assert all(legs[-1].end == stage.units and merge_neighbours(legs) == legs for legs in found)


@given(units, st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_neighbours_are_ways_through_all_units(
    times: list[tuple[int | None, int | None, int]], entry: list[int]
) -> None:
    stage = fake([list(row) for row in times], entry, 1)
    for legs in segmentations(stage):
        for other in shift_borders(stage, legs):
            ends = [leg.end for leg in other]
            assert ends == sorted(set(ends)) and ends[-1] == stage.units
            assert abs(len(other) - len(legs)) <= 2


def _legs(choice: tuple[Place, ...]) -> Legs:
    return merge_neighbours(tuple(Leg(number + 1, place) for number, place in enumerate(choice)))
