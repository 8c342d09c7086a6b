"""Sources of stage costs, asked in the order of their ranks: a measured profile, anchors, the roofline, installed ones.

Third parties register a `CostSource` under the entry-point group ``socsched.costs``; docs/extending.md shows one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from socsched import plugins
from socsched.cost.cost import TRANSFER_ERROR, error_of, weakest
from socsched.cost.fitted import estimate
from socsched.cost.host_functions import computable
from socsched.cost.power import dram_capacity
from socsched.cost.roofline import Estimate
from socsched.descriptor.fields import PROVENANCE
from socsched.descriptor.pipeline import Anchor, Stage
from socsched.descriptor.platform import Engine, Platform, PowerMode
from socsched.errors import UsageError
from socsched.graph.operators import StageWork

if TYPE_CHECKING:
    from socsched.cost.profile import Profile


GROUP = "socsched.costs"
PROFILE, ANCHORS, ROOFLINE = 0, 10, 20
"""Ranks of the built-in sources."""
Reference = Callable[[str], Platform | None]
"""Returns the platform of this name, None if no file describes it."""


@dataclass(frozen=True, slots=True)
class Known:
    """A known time (ns) of a stage with its provenance (`platform.PROVENANCE`), its source and its relative error.

    `exact`: taken directly, not scaled.  `foreign`: scaled from other hardware.  `slice_ns`: longest time slice of a
    stage known by its time only, 0 if it runs in one piece; slices never scale.
    """

    lower: ClassVar[bool] = False
    time_ns: int
    provenance: str
    source: str
    error: float
    exact: bool = True
    foreign: bool = False
    slice_ns: int = 0

    def __post_init__(self) -> None:
        if self.provenance not in PROVENANCE:
            expected = f"expected one of {', '.join(PROVENANCE)}"
            raise UsageError(f"a known time has the provenance {self.provenance!r}", expected)


@dataclass(slots=True)
class CostRequest:
    """A stage, or a part of a network, in one configuration whose cost is asked for.

    `share`: units of the engine used.  `work`: the stage's operators in this precision, None for a stage without
    model.  `profile`: the measurements that planning was given.  `runtime`: the program that runs
    the stage, "" for the one that plans stand for.  `chosen`: the runtime of the engine that is asked for
    (`cost.model`), "" where the engine has no choice of them.
    """

    stage: Stage
    platform: Platform
    engine: Engine
    mode: PowerMode
    precision: str
    share: int
    work: StageWork | None
    profile: Profile | None
    reference: Reference
    runtime: str = ""
    chosen: str = ""
    _roofline: Estimate | None = None

    def roofline(self) -> Estimate | None:
        """Return the estimate of the stage by the engine's fit or the roofline, None without model."""
        if self._roofline is None and self.work is not None:
            where = self.platform, self.engine, self.mode, self.share
            self._roofline = estimate(self.work, *where, self.runtime, self.chosen)
        return self._roofline


@dataclass(frozen=True, slots=True)
class CostSource:
    """A source of stage costs: a function that answers a `CostRequest`, with None where it knows nothing.

    The source with the least `rank` that knows a cost decides; a time from other hardware yields to a later answer
    with a smaller error.  `parts`: it also answers for a part of a network; the others are asked for the whole network,
    of which the part gets its share.
    """

    name: str
    rank: float
    cost: Callable[[CostRequest], Known | Estimate | None]
    parts: bool = False


def cost_sources() -> tuple[CostSource, ...]:
    """Return every source, built in or installed, in the order in which they are asked.

    Raises UsageError for an installed source before the profile, which the user chose for this plan.
    """
    loaded: list[CostSource] = [plugins.load(GROUP, name, CostSource) for name in plugins.names(GROUP)]
    found = sorted(loaded, key=lambda source: (source.rank, source.name))
    early = [source.name for source in found if source.rank <= PROFILE and source.name != "profile"]
    if early:
        raise UsageError(f"cost source {early[0]!r} precedes the measured profile", f"expected a rank above {PROFILE}")
    return tuple(found)


# The roofline as a source of costs, for every stage with a model; of host code without a known time it is a lower
# bound.


def from_roofline(request: CostRequest) -> Estimate | None:
    """Return the roofline estimate of a stage or of a part of a network."""
    found = request.roofline()
    work = request.work
    if found is not None and work is not None and work.host_code and not computable(work, request.engine):
        return replace(found, lower=True)
    return found


ROOFLINE_SOURCE = CostSource("roofline", ROOFLINE, from_roofline, parts=True)


# Anchors: known execution times of a stage, and their transfer to another mode, share or hardware.


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration to be timed: engine, mode, precision and units used of one platform.

    `most` is the number of units the stage can use (0: all); an anchor for "all units" refers to these.
    """

    platform: Platform
    engine: Engine
    mode: PowerMode
    precision: str
    units: int
    most: int = 0

    def rate(self) -> float:
        """Return units times clock (Hz), to which compute-bound time is inversely proportional."""
        return float(self.units * self.mode.engines[self.engine.id].clock_hz)


def find_anchor(
    stage: Stage, want: Configuration, roofline_ns: dict[tuple[str, int], float], reference: Reference
) -> Known | None:
    """Return the best time from the stage's anchors for a configuration, None if none applies.

    Order: same platform, engine, mode and units (used as it is); same platform and engine elsewhere (scaled); engines
    of the same kind on other described platforms (scaled by the quantity the anchor scales with); other hardware of
    that kind.  `roofline_ns` holds roofline times by (mode name, units) where known: their ratio scales between modes,
    otherwise units times clock.
    """
    usable = [anchor for anchor in stage.costs if anchor.precision == want.precision]
    names = want.engine.id, want.engine.kind
    own = [anchor for anchor in usable if anchor.platform == want.platform.name and anchor.engine in names]
    home = [anchor for anchor in own if _mode(anchor, want) is not None]
    for anchor in home:
        if _mode(anchor, want) == want.mode and _units(anchor, want, want.mode) == want.units:
            return _exact(anchor)
    if home:
        nearest = min(home, key=lambda a: (_mode(a, want) != want.mode, abs(_known_rate(a, want) - want.rate())))
        return _scaled(nearest, want, roofline_ns)
    carried: list[tuple[tuple[bool, int], Known]] = []
    other: list[Anchor] = []
    for anchor in usable:
        if anchor.platform == want.platform.name:
            continue
        there = _configuration(anchor, want, reference)
        found = _carried(anchor, there, want) if there else None
        if found:
            carried.append(((anchor.units not in (0, want.units), PROVENANCE.index(anchor.time_ns.kind)), found))
        elif anchor.engine == want.engine.kind:
            other.append(anchor)
    if carried:
        return min(carried, key=lambda pair: pair[0])[1]
    if not other:
        return None
    best = min(other, key=lambda a: (a.units not in (0, want.units), PROVENANCE.index(a.time_ns.kind)))
    return _foreign(best, want)


def _configuration(anchor: Anchor, want: Configuration, reference: Reference) -> Configuration | None:
    """Return the configuration of an anchor, None unless a described platform has that engine and mode."""
    platform = reference(anchor.platform)
    if platform is None:
        return None
    try:
        mode = platform.mode(anchor.mode)
    except KeyError:
        return None
    engine = next((e for e in platform.engines if anchor.engine in (e.id, e.kind) and mode.engines[e.id].units), None)
    if engine is None:
        return None
    online = mode.engines[engine.id].units
    most = want.most or online
    units = min(anchor.units or most, most, online)
    return Configuration(platform, engine, mode, anchor.precision, units, want.most)


def _carried(anchor: Anchor, there: Configuration, want: Configuration) -> Known | None:
    """Return an anchor's time scaled to another engine of the same kind, None without a basis for scaling."""
    if there.engine.kind != want.engine.kind:
        return None
    fast, slow = _speed(anchor.scales_with, there), _speed(anchor.scales_with, want)
    if fast is None and slow is None:  # general performance is not stated for GPUs and NPUs
        fast, slow = _speed("compute", there), _speed("compute", want)
    if not fast or not slow:
        return None
    ratio, figure = fast / slow, anchor.time_ns
    source = f"{figure.source} on {anchor.platform} in {there.mode.name}, scaled by {ratio:.3g} ({anchor.scales_with})"
    time = max(round(figure.value * ratio), 1)
    kind = weakest([figure.kind, "derived"])
    return Known(time, kind, source.strip(), error_of(figure) + 2 * TRANSFER_ERROR, False, True, anchor.slice_ns)


def _speed(follows: str, where: Configuration) -> float | None:
    """Return the rate to which times are inversely proportional, None where the descriptor does not state it."""
    engine, clock = where.engine, where.mode.engines[where.engine.id].clock_hz
    if follows == "nothing":
        return 1.0
    if follows == "bandwidth":
        return float(engine.host_bandwidth(dram_capacity(where.platform, where.mode)))
    if follows == "compute":
        precision = engine.precisions.get(where.precision)
        return where.units * clock * precision.ops_per_cycle.value if precision else None
    # 7-zip on one core is the only figure measured alike on all boards: vendors' DMIPS disagree by a factor of two, and
    # capacities of device trees compare the cores of one SoC only.
    if engine.performance is None:
        return None
    return engine.performance.value * clock / engine.clock_hz.value * where.units


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


def _exact(anchor: Anchor) -> Known:
    figure = anchor.time_ns
    time = round(figure.value * anchor.scale)
    return Known(time, figure.kind, figure.source, error_of(figure), True, False, anchor.slice_ns)


def _scaled(anchor: Anchor, want: Configuration, roofline_ns: dict[tuple[str, int], float]) -> Known:
    mode = _mode(anchor, want) or want.mode
    here = roofline_ns.get((want.mode.name, want.units))
    there = roofline_ns.get((mode.name, _units(anchor, want, mode)))
    ratio = here / there if here and there else _known_rate(anchor, want) / want.rate()
    figure, kind = anchor.time_ns, weakest([anchor.time_ns.kind, "derived"])
    source = f"{figure.source} in {mode.name}, scaled by {ratio:.3g}"
    time, error = round(figure.value * anchor.scale * ratio), error_of(figure) + TRANSFER_ERROR
    return Known(time, kind, source, error, False, False, anchor.slice_ns)


def _foreign(anchor: Anchor, want: Configuration) -> Known:
    """Scale a time from other hardware, taken as this engine's at its highest clock with all (or `units`) units."""
    units = min(anchor.units or want.engine.units, want.most or want.engine.units)
    ratio = units * want.engine.clock_hz.value / want.rate()
    figure, kind = anchor.time_ns, weakest([anchor.time_ns.kind, "derived" if anchor.scale != 1.0 else "assumed"])
    source = f"{figure.source} on {anchor.platform}, scaled by {anchor.scale * ratio:.3g}"
    time = round(figure.value * anchor.scale * ratio)
    return Known(time, kind, source, error_of(figure) + 2 * TRANSFER_ERROR, False, True, anchor.slice_ns)


def from_anchors(request: CostRequest) -> Known | None:
    """Return the best time from a stage's anchors."""
    stage, engine, work = request.stage, request.engine, request.work
    if not stage.costs:
        return None
    rooflines = dict(_rooflines(request.platform, engine, work)) if work else {}
    most = 1 if work and work.host_code else stage.share
    most = most if engine.shares == "unit" else 0
    want = Configuration(request.platform, engine, request.mode, request.precision, request.share, most)
    return find_anchor(stage, want, rooflines, request.reference)


def _rooflines(platform: Platform, engine: Engine, work: StageWork) -> Iterator[tuple[tuple[str, int], float]]:
    for mode in platform.modes:
        state = mode.engines[engine.id]
        units = range(1, state.units + 1) if engine.shares == "unit" else (state.units,)
        for count in units:
            if count > 0:
                time = estimate(work, platform, engine, mode, count).time_ns
                yield (mode.name, count), float(time)


ANCHORS_SOURCE = CostSource("anchors", ANCHORS, from_anchors)
