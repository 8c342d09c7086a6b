"""DRAM contention: execution times of co-running segments on engines of one SoC.

Planner, analysis and simulator use the same model (`ContentionModel`).  The platform file selects it
(``dram.contention``), and the plan records the choice (`ContentionChoice`), empty for `max_min`, the default.
Third parties register ``build(Setting) -> ContentionModel`` under the entry-point group ``socsched.contention``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from socsched import plugins
from socsched.cost.cost import Segment
from socsched.descriptor.platform import ContentionChoice
from socsched.errors import UsageError


class Rival(NamedTuple):
    """A task that may co-run with a segment: its engine, largest demand (bytes/s), and number of lanes occupied.

    It is listed under each of its lanes, so a model counts `1 / lanes` of it in each.
    """

    engine: str
    demand: float
    lanes: int


class ContentionModel(Protocol):
    """Execution times of co-running segments.

    `paces`: for the (engine id, segment) pairs running now, the total time (ns) of each if exactly this set ran
    throughout; at least `segment.time_ns`.  `worst_pace`: the longest time (ns) that the `segments` of a job on
    `engine`, one after another, take with at most one of the rivals of each other lane co-running at any instant.  It
    bounds `paces`, hence the simulation; agreement with hardware depends on the parameters.

    A model whose `paces` follow from a `Law` may have a method `law` that returns it: simulations are then faster.
    """

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]: ...

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int: ...


class Law(NamedTuple):
    """What the simulator computes `paces` from.

    `limit`: bandwidth (bytes/s) shared max-min fairly, 0 for none; `draw`: the traffic (bytes/s) of a segment on an
    engine; `curves`: the numbers of an engine's `pccs.Curve` up to `peak`, no engines where shares alone count.
    """

    limit: float
    draw: Callable[[str, Segment], float]
    curves: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Setting:
    """Inputs of a model: DRAM bandwidth (bytes/s, 0 = unlimited), engine id -> kind, parameters.

    Parameters are numbers (bandwidths in bytes/s), text, or mappings of these, as the platform file gives them.
    """

    model: str
    capacity: float
    engines: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def fault(self, expected: str) -> UsageError:
        """Return the error for unusable parameters."""
        return UsageError(
            f"contention model {self.model!r}: {expected}", hint="see dram.contention of the platform file"
        )

    def number(self, name: str, default: float | None = None, group: Mapping[str, Any] | None = None) -> float:
        """Return a parameter that must be a finite number, of `group` if given; UsageError otherwise."""
        value = (self.parameters if group is None else group).get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.fault(f"expected a number for {name}, got {value!r}")
        return value

    def check(self, known: Sequence[str], group: Mapping[str, Any] | None = None) -> None:
        """Refuse unknown parameters: a misspelt one would silently keep its default."""
        unknown = [name for name in (self.parameters if group is None else group) if name not in known]
        if unknown:
            raise self.fault(f"unknown parameter {unknown[0]!r}; it has {', '.join(known)}")


def demand(segment: Segment) -> float:
    """Return the bandwidth (bytes/s) a segment draws when running alone."""
    busy_ns = max(segment.time_ns - segment.fixed_ns, 1)
    return segment.bytes * 1e9 / busy_ns


def draw(segment: Segment) -> float:
    """Return the demand (bytes/s) of a segment, 0 for one that moves nothing or takes no time."""
    return demand(segment) if segment.bytes and segment.time_ns else 0.0


def slow_down(segment: Segment, factor: float) -> int:
    """Return the time (ns, rounded up) of a segment whose part beyond `fixed_ns` is slowed by `factor`."""
    if factor <= 1:
        return segment.time_ns
    return segment.fixed_ns + math.ceil((segment.time_ns - segment.fixed_ns) * factor)


def loudest(rivals: Sequence[Sequence[Rival]]) -> list[float]:
    """Return the largest demand of each lane (bytes/s); a gang's demand is spread over its lanes."""
    return [max((rival.demand / rival.lanes for rival in lane), default=0.0) for lane in rivals]


Factory = Callable[[Setting], ContentionModel]
GROUP = "socsched.contention"
DEFAULT = "max-min"


def contention_model(choice: ContentionChoice, capacity: float, engines: Mapping[str, str]) -> ContentionModel:
    """Return the chosen model for a memory of `capacity` bytes/s and engines (id -> kind), added to those it names.

    Raises UsageError listing the known models for an unknown name, or for unusable parameters.
    """
    name = choice.model or DEFAULT
    if name not in plugins.names(GROUP):
        raise UsageError(f"unknown contention model {name!r}", hint=f"known models: {', '.join(plugins.names(GROUP))}")
    factory: Factory = plugins.load(GROUP, name)
    named = {**choice.engines, **engines}
    return factory(Setting(name, capacity, named, choice.parameters))


def fair_shares(demands: Sequence[float], capacity: float) -> list[float]:
    """Return the max-min fair share (bytes/s) of each demand under `capacity`; no share exceeds its demand."""
    shares = [0.0] * len(demands)
    left = float(capacity)
    waiting = sorted(range(len(demands)), key=lambda i: demands[i])
    for position, index in enumerate(waiting):
        shares[index] = min(demands[index], left / (len(waiting) - position))
        left -= shares[index]
    return shares


def stretch(segment: Segment, share: float) -> int:
    """Return the time (ns, rounded up) of a segment that gets `share` bytes/s of DRAM bandwidth throughout."""
    if segment.bytes == 0 or share >= demand(segment):
        return segment.time_ns
    memory_ns = -int(-segment.bytes * 1e9 // share) if share > 0 else 2**62
    return max(segment.time_ns, segment.fixed_ns + memory_ns)


def last_share(own: float, others: Sequence[float], capacity: float) -> float:
    """Return the `fair_shares` share of a demand `own` among others in rising order.

    Shares only shrink when a competitor's demand grows, so the largest demands give the least share.
    """
    left, waiting = float(capacity), len(others) + 1
    for other in others:
        if other >= own:
            break
        left -= min(other, left / waiting)
        waiting -= 1
    return min(own, left / waiting)
