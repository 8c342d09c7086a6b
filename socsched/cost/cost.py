"""The common timing model: cost of a job on an engine, used by planner, analysis, simulator and run.

A cost carries the combined provenance and uncertainty of the figures behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.limits import Bytes, Lane, Line, NoName, Ns
from socsched.descriptor.platform import Figure

UNSTATED_ERROR = {
    "measured": 0.05,
    "published": 0.10,
    "fitted": 0.20,
    "vendor model": 0.30,
    "derived": 0.30,
    "assumed": 0.50,
}
"""Relative uncertainty assumed for a figure that states none, by kind (a convention, not a measured spread)."""

TRANSFER_ERROR = 0.15
"""Relative error added when a time is scaled to another mode or share; doubled from other hardware (a convention).
"""


def weakest(kinds: Iterable[str]) -> str:
    """Return the least trusted of some provenance kinds."""
    return max(kinds, key=PROVENANCE.index)


def error_of(figure: Figure) -> float:
    """Return the relative uncertainty of a figure, the convention for its kind where none is stated."""
    return figure.error or UNSTATED_ERROR[figure.kind]


def is_within(ratio: float, error: float) -> bool:
    """Return whether a measured figure over the stated one lies in its interval, 1 / (1 + error) to 1 + error."""
    return ratio > 0 and max(ratio, 1 / ratio) <= 1 + error


CARRIES = 0.1
"""Least share of a time for a part to count towards the provenance of the whole."""


def trust(parts: Iterable[tuple[float, Sequence[Figure]]]) -> tuple[str, float]:
    """Return (provenance, relative error) of a time made of `parts`: durations, each with its source figures.

    The provenance is the weakest kind behind at least a tenth of the time, all parts that rest on it together; the
    error is that of each part (its least certain figure's) weighted by duration, as if all parts erred the same way.
    """
    # Not the worst figure anywhere: an assumed launch overhead of microseconds made every plan "assumed, ±100 %".
    held = [(duration, figures) for duration, figures in parts if duration > 0]
    total, behind = sum(duration for duration, _ in held), dict[str, float]()
    for duration, figures in held:
        for kind in {figure.kind for figure in figures}:
            behind[kind] = behind.get(kind, 0.0) + duration
    carrying = [kind for kind, duration in behind.items() if duration >= CARRIES * total]
    error = sum(duration * max(map(error_of, figures)) for duration, figures in held) / total if held else 0.0
    return weakest(["derived", *carrying]), error


def sources_of(figures: Iterable[Figure]) -> str:
    """Return the distinct sources of some figures as display text."""
    return ", ".join(dict.fromkeys(figure.source for figure in figures if figure.source))


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a job that runs on an engine without a preemption point.

    `time_ns` is the duration alone on the SoC, of which `fixed_ns` (launch) does not overlap with memory traffic;
    `bytes` are moved to or from DRAM. With co-runners, its duration follows the model of `cost.contention`, which
    planner, analysis and simulator share.

    `engine` and `lanes` are set if it runs elsewhere than its task; with `hold` the task busy-waits on its own lanes
    meanwhile, otherwise it releases them (self-suspension).
    """

    name: Line
    time_ns: Ns
    fixed_ns: Ns
    bytes: Bytes
    engine: NoName = ""
    lanes: tuple[Lane, ...] = ()
    hold: bool = False


def joined(segments: Sequence[Segment], least_ns: int) -> tuple[Segment, ...]:
    """Return segments of `least_ns` at least: each with those after it until they take that long together.

    What follows the last that does is part of it.
    """
    parts: list[Segment] = []
    for segment in segments:
        if parts and parts[-1].time_ns < least_ns:
            parts[-1] = _followed(parts[-1], segment)
        else:
            parts.append(segment)
    if len(parts) > 1 and parts[-1].time_ns < least_ns:
        parts[-2:] = [_followed(*parts[-2:])]
    return tuple(parts)


def launched_ahead(segments: Iterable[Segment], count: int) -> int:
    """Return the most (ns) that `count` segments take which run before a preemption takes effect."""
    return sum(sorted((segment.time_ns for segment in segments), reverse=True)[:count])


def _followed(first: Segment, second: Segment) -> Segment:
    time, fixed = first.time_ns + second.time_ns, first.fixed_ns + second.fixed_ns
    return replace(first, time_ns=time, fixed_ns=fixed, bytes=first.bytes + second.bytes)


@dataclass(frozen=True, slots=True)
class Shared:
    """What a job on a share of an engine takes longer (ns) than alone on all of it: on fewer units, and beside the
    neighbour `by` on others, the one that costs it most: in the engine's own memory, in its cache, in its launch queue.

    DRAM that engines share is not among these: it follows from bytes, those that the cache no longer holds included.
    """

    share_ns: Ns
    memory_ns: Ns = 0
    cache_ns: Ns = 0
    launches_ns: Ns = 0
    by: NoName = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one job of a stage (or conversion) on one engine in one mode, precision and share of its units.

    `provenance` is the weakest kind among the figures that carry the time; `source` names them; `error` is the relative
    uncertainty of `time_ns`.  `energy_uj` is the dynamic energy of the job (engine and DRAM), idle power excluded.
    `runtime`: the program that takes this time (`cost.model`), empty where there is no choice of one.  `shared`: what
    of it a share of the engine costs over all of it.
    """

    stage: str
    engine: str
    mode: str
    precision: str
    share: int
    time_ns: int
    bytes: int
    energy_uj: int
    segments: tuple[Segment, ...]
    provenance: str
    source: str
    error: float
    runtime: str = ""
    shared: Shared | None = None
