"""A network that may be cut, as part of a mapping problem: a group per unit, and the costs of changing place.

This is a relaxation like the rest of the problem, as far as parts follow each other: a unit takes its time within any
part, a change of place costs the hand-over to the very next unit and the new part's own overhead, and conversions of
tensors read later are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from socsched.cost.cost import Cost, Segment
from socsched.planning.cutting.divisible import Divisible, Place
from socsched.planning.mapping.problem import FREE, Amounts, Edge, Group, Hop, Option
from socsched.planning.workload import Workload

_PPM = 1_000_000


def unit_name(stage: str, unit: int) -> str:
    """Return the name of a unit's group."""
    return f"{stage}#{unit}"


@dataclass(frozen=True, slots=True)
class Inside:
    """The groups of a stage's units in order, and the edges between them."""

    groups: tuple[Group, ...]
    edges: tuple[Edge, ...]

    @staticmethod
    def of(workload: Workload, stage: Divisible, ways: Sequence[Cost]) -> Inside:
        """Return a stage's units; options are its places, in the order of `ways`."""
        name = stage.stage.name
        period = workload.graph.period_ns[name]
        groups = tuple(
            Group(unit_name(name, unit), tuple(_options(workload, stage, unit, period)), period_ns=period)
            for unit in range(stage.units)
        )
        edges = tuple(
            Edge(groups[unit].name, groups[unit + 1].name, _hops(workload, stage, unit, period))
            for unit in range(stage.units - 1)
        )
        return Inside(groups, edges)


def _options(workload: Workload, stage: Divisible, unit: int, period: int) -> list[Option]:
    found = []
    for number, place in enumerate(stage.places):
        time = stage.time_ns[unit][number]
        if time is None:  # no hop leads here
            found.append(Option(place.engine, (Segment("refused", 0, 0, 0),)))
            continue
        least = 0 if stage.free[unit] else max(time - 1, 0)  # a part is rounded up once, its units individually
        entry = stage.entry_ns[number] if unit == 0 else 0
        first: Amounts = ((f"resident jobs on {place.engine}", 1),) if unit == 0 else ()
        segment = Segment(unit_name(stage.stage.name, unit), least + entry, 0, 0)
        drawn = ((f"utilisation of {place.engine}", _used(workload, place, least + entry, period)), *first)
        found.append(Option(place.engine, (segment,), 1, place.precision, 0, drawn))
    return found


def _used(workload: Workload, place: Place, time: int, period: int) -> int:
    lanes = workload.lanes(place.engine)
    return time * (min(place.share, lanes) if lanes > 1 else 1) * _PPM // period


def _hops(workload: Workload, stage: Divisible, unit: int, period: int) -> tuple[tuple[Hop | None, ...], ...]:
    count = range(len(stage.places))
    return tuple(tuple(_hop(workload, stage, unit, a, b, period) for b in count) for a in count)


def _hop(workload: Workload, stage: Divisible, unit: int, source: int, sink: int, period: int) -> Hop | None:
    if stage.time_ns[unit + 1][sink] is None or stage.time_ns[unit][source] is None:
        return None
    if source == sink:
        return FREE
    change = stage.forced(unit, source, sink)
    if change is None:
        return None
    entry, place = stage.entry_ns[sink], stage.places[sink]
    drawn = (
        (f"utilisation of {place.engine}", _used(workload, place, entry, period)),
        (f"resident jobs on {place.engine}", 1),
    )
    return Hop(delay_ns=change[0] + entry, draws=drawn)
