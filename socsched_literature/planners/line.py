"""A network as a line of consecutive layer groups, and the cost of each group in every place.

The common input of AxoNN, HaX-CoNN, H2H, Herald and Jedi: times, energy and traffic by group and engine, and the cost
of a change of engine at each border.  A place is an engine with the data type in which it is fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from socsched.cost.cost import Cost, Segment
from socsched.errors import UsageError
from socsched.models.parts import cut_pipeline
from socsched.planning.cutting.divisible import SLOW, Divisible, Leg, Legs, Place
from socsched.planning.cutting.segmentation import merge_neighbours
from socsched.planning.mapping.problem import FREE, Budget, Edge, Group, Hop, Lanes, Option, Problem, Requirement
from socsched.planning.planners import Ask

Change = Callable[[int, int, int], tuple[int, int] | None]
"""(border, place before, place after) -> time (ns) and energy (uJ) of the change there, None if impossible."""


@dataclass(frozen=True, slots=True)
class Line:
    """Groups in order; `ends[g]` is the number of units before the end of group g.

    `time`, `energy`, `traffic` by group and place (ns, uJ, bytes; None if the engine cannot run the group), excluding
    the one-off cost of a job, `entry` (ns, uJ).  Border g lies after group g.
    """

    name: str
    places: tuple[Place, ...]
    ends: tuple[int, ...]
    time: tuple[tuple[int | None, ...], ...]
    energy: tuple[tuple[int, ...], ...]
    traffic: tuple[tuple[int, ...], ...]
    entry: tuple[tuple[int, int], ...]
    change: Change

    def __len__(self) -> int:
        return len(self.ends)

    def cost(self, choice: Sequence[int]) -> tuple[int, int] | None:
        """Return time (ns) and energy (uJ) of a choice of places, changes included; None if impossible."""
        time = energy = 0
        for group, place in enumerate(choice):
            step = self.time[group][place]
            if step is None:
                return None
            time, energy = time + step, energy + self.energy[group][place]
            before = choice[group - 1] if group else None
            if before == place:
                continue
            time, energy = time + self.entry[place][0], energy + self.entry[place][1]
            if before is not None:
                found = self.change(group - 1, before, place)
                if found is None:
                    return None
                time, energy = time + found[0], energy + found[1]
        return time, energy

    def legs(self, choice: Sequence[int]) -> Legs:
        """Return the cuts of a choice."""
        return merge_neighbours(
            tuple(Leg(end, self.places[place]) for end, place in zip(self.ends, choice, strict=True))
        )

    def whole(self) -> int:
        """Return the place where the whole network is fastest; UsageError if no place can run all of it."""
        able = [p for p in range(len(self.places)) if all(times[p] is not None for times in self.time)]
        if not able:
            raise UsageError(f"stage {self.name!r}: no engine can run all of the network")
        return min(able, key=lambda p: (self.entry[p][0] + sum(times[p] or 0 for times in self.time), p))


def line_of(ask: Ask, name: str, groups: int = 0, twins: bool = True) -> Line:
    """Return a stage of `Ask.networks` as a line of at most `groups` groups of units (0: one group per unit).

    The numbers of units per group differ by at most one.  Without `twins`, identical engines count once.
    """
    divided = ask.networks[name]
    count = min(groups or divided.units, divided.units)
    ends = tuple(divided.units * (number + 1) // count for number in range(count))
    costs = _costs(ask, divided, ends)
    places = _places(divided, costs, twins)
    number = {place: p for p, place in enumerate(divided.places)}
    entry = tuple((divided.entry_ns[number[p]], divided.entry_uj[number[p]]) for p in places)

    def change(border: int, before: int, after: int) -> tuple[int, int] | None:
        return divided.change(ends[border] - 1, number[places[before]], number[places[after]])

    def row(costs: Mapping[Place, Cost]) -> tuple[tuple[int | None, ...], tuple[int, ...], tuple[int, ...]]:
        found = [costs.get(place) for place in places]
        pairs = list(zip(found, entry, strict=True))
        times = tuple(max(c.time_ns - once[0], 1) if c else None for c, once in pairs)
        return (
            times,
            tuple(max(c.energy_uj - once[1], 0) if c else 0 for c, once in pairs),
            tuple(c.bytes if c else 0 for c in found),
        )

    rows = [row(each) for each in costs]
    times, energies, traffic = (tuple(column) for column in zip(*rows, strict=True))
    return Line(name, places, ends, times, energies, traffic, entry, change)


def _costs(ask: Ask, divided: Divisible, ends: Sequence[int]) -> list[dict[Place, Cost]]:
    """Return the cost of every group as a separate part, by place."""
    model, name = ask.workload.model, divided.stage.name
    if len(ends) == 1:
        return [{_place(cost): cost for cost in ask.candidates(name)}]
    anywhere = divided.places[0]
    parts = divided.parts(tuple(Leg(end, anywhere) for end in ends))
    apart = cut_pipeline(ask.pipeline, {name: parts})
    return [{_place(cost): cost for cost in model.candidates(apart.stage(part.name))} for part in parts]


def _place(cost: Cost) -> Place:
    return Place(cost.engine, cost.precision, cost.share)


def _places(divided: Divisible, costs: Sequence[Mapping[Place, Cost]], twins: bool) -> tuple[Place, ...]:
    """Return the place of every engine that is fastest over all groups, omitting far slower ones."""
    far = 1 << 50

    def total(place: Place) -> int:
        return sum(each[place].time_ns if place in each else far for each in costs)

    best: dict[str, Place] = {}
    for place in divided.places:
        if place.engine not in best or total(place) < total(best[place.engine]):
            best[place.engine] = place
    fastest = min(map(total, best.values()))
    kept, seen = list[Place](), set[tuple[int, ...]]()
    for place in best.values():
        column = tuple(each[place].time_ns if place in each else -1 for each in costs)
        if (total(place) < SLOW * fastest or len(best) < 3) and (twins or column not in seen):
            kept.append(place)
        seen.add(column)
    return tuple(kept)


def problem_of(
    lines: Iterable[Line],
    bandwidth: int = 0,
    fused: bool = True,
    transitions: int | None = None,
    objective: str = "makespan",
) -> Problem:
    """Return one frame of all lines, run concurrently, as a mapping problem; `bandwidth` (bytes/s) 0: no contention.

    `fused`: consecutive groups in one place form one job, which pays its entry once; otherwise each group pays it.
    `transitions`: maximum number of engine changes per network.
    """
    lines = tuple(lines)
    engines = tuple(dict.fromkeys(place.engine for line in lines for place in line.places))
    groups: list[Group] = []
    edges: list[Edge] = []
    budgets = []
    for line in lines:
        able = [[p for p in range(len(line.places)) if times[p] is not None] for times in line.time]
        counted = ((f"changes of {line.name}", 1),)
        for group in range(len(line)):
            options = tuple(_option(line, group, p, bandwidth, not group) for p in able[group])
            groups.append(Group(f"{line.name}:{group}", options, line.name))
            if group:
                rows = tuple(
                    tuple(_hop(line, group - 1, a, b, fused, counted) for b in able[group]) for a in able[group - 1]
                )
                edges.append(Edge(f"{line.name}:{group - 1}", f"{line.name}:{group}", rows))
        if transitions is not None:
            budgets.append(Budget(counted[0][0], transitions, "changes"))
    needs = tuple(Requirement(line.name, (f"{line.name}:{len(line) - 1}",)) for line in lines)
    lanes = tuple(map(Lanes, engines))
    return Problem(lanes, tuple(groups), tuple(edges), needs, tuple(budgets), bandwidth, (objective,))


def _option(line: Line, group: int, place: int, bandwidth: int, first: bool) -> Option:
    time = line.time[group][place]
    assert time is not None
    once, energy = line.entry[place] if first else (0, 0)
    segments = (Segment("entry", once, once, 0),) if once else ()
    moved = line.traffic[group][place] if bandwidth else 0
    where = line.places[place]
    return Option(
        where.engine,
        (*segments, Segment("run", time, 0, moved)),
        1,
        where.precision,
        line.energy[group][place] + energy,
    )


def _hop(line: Line, border: int, a: int, b: int, fused: bool, counted: tuple[tuple[str, int], ...]) -> Hop | None:
    once, energy = line.entry[b]
    if a == b:
        return FREE if fused else Hop(pickup_ns=once, energy_uj=energy)
    change = line.change(border, a, b)
    if change is None:
        return None
    return Hop(delay_ns=change[0], pickup_ns=once, energy_uj=change[1] + energy, draws=counted)


def choices_of(problem: Problem, lines: Iterable[Line], chosen: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Return by line the place of every group under a choice of a problem made by `problem_of`."""
    choices: dict[str, tuple[int, ...]] = {}
    for line in lines:
        places = []
        for group in range(len(line)):
            able = [p for p in range(len(line.places)) if line.time[group][p] is not None]
            places.append(able[chosen[problem.index[f"{line.name}:{group}"]]])
        choices[line.name] = tuple(places)
    return choices


def chosen_of(problem: Problem, lines: Iterable[Line], places: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
    """Return the choice of a problem that corresponds to places by line: the inverse of `choices_of`."""
    choice = [0] * len(problem.groups)
    for line in lines:
        for group, place in enumerate(places[line.name]):
            able = [p for p in range(len(line.places)) if line.time[group][p] is not None]
            choice[problem.index[f"{line.name}:{group}"]] = able.index(place)
    return tuple(choice)
