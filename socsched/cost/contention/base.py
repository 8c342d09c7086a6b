"""Interface of DRAM contention models, and their inputs: traffic of segments, engines, parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from socsched.cost.cost import Segment
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
    """

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]: ...

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int: ...


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
