"""The joint mapping decision, independent of a solver: possible placements, hand-over costs and limits.

A network is cut into groups; a group runs with one of its options (engine, precision, share).  Every frame of a group
runs with the same option.  Times are integer ns, traffic bytes, energy µJ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from socsched.cost.contention import demand, stretch
from socsched.cost.cost import Segment
from socsched.errors import UsageError

OBJECTIVES = ("makespan", "latency", "energy", "interval", "slack")
"""The objectives that `Problem.objectives` may name, each to be minimised.

makespan: end of the last job (ns); latency: weighted sum of the requirements' worst values (ns); energy: dynamic energy
of all frames (µJ); interval: busy time per frame of the busiest engine lane (ns), the shortest distance between frames
when enough of them are in flight; slack: largest share of a limit used up (1e-6).
"""
Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """An engine that runs up to `count` one-lane jobs concurrently."""

    id: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Option:
    """A way to run a group: the engine, the number of its lanes, the work, and the draw on named budgets.

    `segments`: its time alone and its traffic (`cost.contention`).
    """

    engine: str
    segments: tuple[Segment, ...]
    share: int = 1
    precision: str = ""
    energy_uj: int = 0
    draws: Amounts = ()

    @property
    def time_ns(self) -> int:
        """Return the duration alone on the SoC."""
        return sum(segment.time_ns for segment in self.segments)


def alone_ns(option: Option, bandwidth: int) -> int:
    """Return an option's time (ns) with all of a bandwidth (bytes/s, 0: unlimited) to itself."""
    if not bandwidth:
        return option.time_ns
    return sum(stretch(s, min(demand(s), bandwidth)) if s.bytes and s.time_ns else s.time_ns for s in option.segments)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that run together: `frames` jobs, released every `period_ns` from `release_ns` on.

    With `twin`, the group takes the same option (by its number) as the group of that name.
    """

    name: str
    options: tuple[Option, ...]
    network: str = ""
    release_ns: int = 0
    period_ns: int = 0
    frames: int = 1
    twin: str = ""


@dataclass(frozen=True, slots=True)
class Hop:
    """The cost of a hand-over from one option to another.

    `handoff_ns` lengthens the producer on its engine, `pickup_ns` the consumer on its engine; `engine` runs the
    conversion `segments` as a job of one lane (None: no conversion); `delay_ns` then passes without occupying an
    engine.
    """

    handoff_ns: int = 0
    pickup_ns: int = 0
    delay_ns: int = 0
    engine: str | None = None
    segments: tuple[Segment, ...] = ()
    energy_uj: int = 0
    draws: Amounts = ()

    @property
    def time_ns(self) -> int:
        """Return the duration of the conversion alone on the SoC."""
        return sum(segment.time_ns for segment in self.segments)

    @property
    def way_ns(self) -> int:
        """Return the time between producer and consumer, pick-up included."""
        return self.handoff_ns + (self.time_ns if self.segments else 0) + self.delay_ns + self.pickup_ns


FREE = Hop()


@dataclass(frozen=True, slots=True)
class Edge:
    """Group `sink` needs frame k of group `source`: `hops[i][j]` between their options, None where impossible."""

    source: str
    sink: str
    hops: tuple[tuple[Hop | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """An end-to-end latency: the worst over frames of (end - release), summed over `ends`, plus `sampling_ns`.

    `limit_ns` None: minimised only, without a limit.  `weight` counts in the objective latency.
    """

    name: str
    ends: tuple[str, ...]
    limit_ns: int | None = None
    sampling_ns: int = 0
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on the total draw of chosen options and hops (power in mW, memory in bytes, loadables, accuracy loss)."""

    name: str
    limit: int
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A joint mapping problem; all running jobs share `bandwidth` (bytes/s, 0: unlimited).

    `objectives` are minimised one after the other.  Raises UsageError for unknown names and for cycles.
    """

    engines: tuple[Lanes, ...]
    groups: tuple[Group, ...]
    edges: tuple[Edge, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    budgets: tuple[Budget, ...] = ()
    bandwidth: int = 0
    objectives: tuple[str, ...] = ("makespan",)
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    before: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    after: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        index = {group.name: i for i, group in enumerate(self.groups)}
        _check(self, index)
        before: list[list[int]] = [[] for _ in self.groups]
        after: list[list[int]] = [[] for _ in self.groups]
        for number, edge in enumerate(self.edges):
            before[index[edge.sink]].append(number)
            after[index[edge.source]].append(number)
        sorter = TopologicalSorter(
            {i: [index[self.edges[e].source] for e in numbers] for i, numbers in enumerate(before)}
        )
        try:
            order = tuple(sorter.static_order())
        except CycleError as error:
            names = " -> ".join(self.groups[i].name for i in error.args[1])
            raise UsageError(f"groups depend on each other in a cycle: {names}") from None
        for name, value in (
            ("index", index),
            ("before", tuple(map(tuple, before))),
            ("after", tuple(map(tuple, after))),
            ("order", order),
        ):
            object.__setattr__(self, name, value)

    def hop(self, number: int, choice: Sequence[int]) -> Hop | None:
        """Return the hop of edge `number` under a choice of options."""
        edge = self.edges[number]
        return edge.hops[choice[self.index[edge.source]]][choice[self.index[edge.sink]]]

    def lanes(self, engine: str) -> int:
        """Return the number of lanes of an engine."""
        return next(e.count for e in self.engines if e.id == engine)


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """A job of a schedule: frame `frame` of group `index`, or of the conversion on edge `index`."""

    frame: int
    index: int
    conversion: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """An option for every group, and the order in which jobs start.

    On each engine jobs start in this order, each as soon as its inputs are available and enough lanes are free.
    `holds` lists (job, other): the job also waits for the end of the other, to avoid the traffic of a third job.
    `earliest` lists (job, ns): a time-triggered dispatcher starts it no sooner.
    """

    choice: tuple[int, ...]
    order: tuple[JobKey, ...]
    holds: tuple[tuple[JobKey, JobKey], ...] = ()
    earliest: tuple[tuple[JobKey, int], ...] = ()


def _check(problem: Problem, index: Mapping[str, int]) -> None:
    engines = {engine.id: engine.count for engine in problem.engines}
    if len(index) != len(problem.groups) or len(engines) != len(problem.engines):
        raise UsageError("two groups or two engines of a mapping problem have the same name")
    for objective in problem.objectives:
        if objective not in OBJECTIVES:
            raise UsageError(f"unknown objective {objective!r}", f"one of {', '.join(OBJECTIVES)}")
    for group in problem.groups:
        if not group.options:
            raise UsageError(f"group {group.name!r} has no option")
        for option in group.options:
            if not 1 <= option.share <= engines.get(option.engine, 0):
                raise UsageError(f"group {group.name!r}: no {option.share} lanes on engine {option.engine!r}")
        other = problem.groups[index.get(group.twin, 0)] if group.twin else group
        if group.twin and (group.twin not in index or len(other.options) != len(group.options)):
            raise UsageError(f"group {group.name!r}: no group {group.twin!r} with as many options")
    for edge in problem.edges:
        _check_edge(problem, edge, index, engines)
    for requirement in problem.requirements:
        for name in requirement.ends:
            if name not in index:
                raise UsageError(f"requirement {requirement.name!r}: no group {name!r}")


def _check_edge(problem: Problem, edge: Edge, index: Mapping[str, int], engines: Mapping[str, int]) -> None:
    said = f"{edge.source!r} -> {edge.sink!r}"
    if edge.source not in index or edge.sink not in index:
        raise UsageError(f"no group for the edge {said}")
    source, sink = (problem.groups[index[name]] for name in (edge.source, edge.sink))
    if source.frames != sink.frames:
        raise UsageError(f"{edge.source!r} and {edge.sink!r} differ in their number of frames")
    if len(edge.hops) != len(source.options) or any(len(row) != len(sink.options) for row in edge.hops):
        raise UsageError(f"{said}: expected one hop for each pair of options")
    for hop in (hop for row in edge.hops for hop in row if hop and hop.engine):
        if hop.engine not in engines:
            raise UsageError(f"{said}: no engine {hop.engine!r} to convert on")
