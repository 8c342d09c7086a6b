"""Anchors: known execution times of a stage, and how one carries over to another mode, share or piece of hardware."""

from __future__ import annotations

from dataclasses import dataclass

from socsched.cost.figures import error_of, weakest
from socsched.descriptor.pipeline import Anchor, Stage
from socsched.descriptor.platform import PROVENANCE, Engine, Platform, PowerMode

TRANSFER_ERROR = 0.15
"""Relative error added when a time is scaled to another mode or share; twice that from other hardware (our convention).
"""


@dataclass(frozen=True, slots=True)
class Anchored:
    """A time (ns) for one configuration, taken from an anchor directly (`exact`) or scaled."""

    time_ns: int
    provenance: str
    source: str
    error: float
    exact: bool
    foreign: bool


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where a time is wanted: engine, mode, precision and units used of one platform.

    `most` units can be used by the stage at all (0: as many as there are); an anchor for "all units" stands for those.
    """

    platform: Platform
    engine: Engine
    mode: PowerMode
    precision: str
    units: int
    most: int = 0

    def rate(self) -> float:
        """Units times clock (Hz): what compute-bound time is inversely proportional to."""
        return float(self.units * self.mode.engines[self.engine.id].clock_hz)


def find_anchor(stage: Stage, want: Configuration, roofline_ns: dict[tuple[str, int], float]) -> Anchored | None:
    """Return the best time the stage's anchors give for a configuration, None when none applies.

    Order: same platform, engine, mode and units (used as it is); same platform and engine elsewhere (scaled); other
    hardware of the same engine kind (scaled).  `roofline_ns` holds roofline times by (mode name, units) where known:
    their ratio scales best, units times clock otherwise.
    """
    usable = [a for a in stage.costs if a.precision == want.precision and _same_engine(a, want)]
    home = [a for a in usable if a.platform == want.platform.name and _mode(a, want) is not None]
    for anchor in home:
        if _mode(anchor, want) == want.mode and _units(anchor, want, want.mode) == want.units:
            return _exact(anchor)
    if home:
        nearest = min(home, key=lambda a: (_mode(a, want) != want.mode, abs(_known_rate(a, want) - want.rate())))
        return _scaled(nearest, want, roofline_ns)
    foreign = [a for a in usable if a.platform != want.platform.name]
    if not foreign:
        return None
    best = min(foreign, key=lambda a: (a.units not in (0, want.units), PROVENANCE.index(a.time_ns.kind)))
    return _foreign(best, want)


def _same_engine(anchor: Anchor, want: Configuration) -> bool:
    if anchor.platform == want.platform.name:
        return anchor.engine in (want.engine.id, want.engine.kind)
    return anchor.engine == want.engine.kind


def _mode(anchor: Anchor, want: Configuration) -> PowerMode | None:
    try:
        mode = want.platform.mode(anchor.mode)
    except KeyError:
        return None
    return mode if mode.engines[want.engine.id].units > 0 else None


def _units(anchor: Anchor, want: Configuration, mode: PowerMode) -> int:
    online = mode.engines[want.engine.id].units
    return min(anchor.units or online, want.most or online, online)


def _known_rate(anchor: Anchor, want: Configuration) -> float:
    mode = _mode(anchor, want) or want.mode
    return float(_units(anchor, want, mode) * mode.engines[want.engine.id].clock_hz)


def _exact(anchor: Anchor) -> Anchored:
    figure = anchor.time_ns
    return Anchored(round(figure.value * anchor.scale), figure.kind, figure.source, error_of(figure), True, False)


def _scaled(anchor: Anchor, want: Configuration, roofline_ns: dict[tuple[str, int], float]) -> Anchored:
    mode = _mode(anchor, want) or want.mode
    here = roofline_ns.get((want.mode.name, want.units))
    there = roofline_ns.get((mode.name, _units(anchor, want, mode)))
    ratio = here / there if here and there else _known_rate(anchor, want) / want.rate()
    figure, kind = anchor.time_ns, weakest([anchor.time_ns.kind, "derived"])
    source = f"{figure.source} in {mode.name}, scaled by {ratio:.3g}"
    return Anchored(
        round(figure.value * anchor.scale * ratio), kind, source, error_of(figure) + TRANSFER_ERROR, False, False
    )


def _foreign(anchor: Anchor, want: Configuration) -> Anchored:
    """Scale a time from other hardware: it stands for this engine at its highest clock with all (or `units`) units."""
    units = min(anchor.units or want.engine.units, want.most or want.engine.units)
    ratio = units * want.engine.clock_hz.value / want.rate()
    figure, kind = anchor.time_ns, weakest([anchor.time_ns.kind, "derived" if anchor.scale != 1.0 else "assumed"])
    source = f"{figure.source} on {anchor.platform}, scaled by {anchor.scale * ratio:.3g}"
    time = round(figure.value * anchor.scale * ratio)
    return Anchored(time, kind, source, error_of(figure) + 2 * TRANSFER_ERROR, False, True)
