"""Processor-centric contention slowdown: a piecewise linear model per engine, over own and external demand.

Xu, Belviranli, Shen, Vetter, "PCCS: Processor-Centric Contention-aware Slowdown Model for Heterogeneous
System-on-Chips", MICRO 2021, doi 10.1145/3466752.3480101.  An engine whose own demand is x (GB/s alone) keeps a
relative speed RS (%) under an external demand y:

- minor region, x <= `normal`: RS falls in proportion to y, by `mrmc` % at the largest external demand `peak`;
- normal region: beyond that, RS falls by `rate` % for every GB/s that x + min(y, `cbp`) exceeds `tbwdc` (total
  bandwidth demand at which contention starts; contention balance point, above which more external demand changes
  nothing);
- intensive region, x >= `intensive`: RS falls from y = 0 on, by rate (x + cbp - tbwdc) / cbp % a GB/s, up to `cbp`.

The regions are pieced together so that RS never rises with y (the larger loss of the two lines counts), as the analysis
requires; the published pieces step up by at most `mrmc` % where the second line takes over.

Curves are fitted to the traffic that a memory controller counts.  `traffic` states how much of it an engine causes for
every byte that its jobs must move (caches fetch some data several times), at most what the memory achieves. `capacity`
is the achievable bandwidth for which the curves hold: where a mode has another, they are scaled to it, and no engine is
faster than under max-min fair shares of it: a CPU core is in the minor region however many cores run.  Lanes of one
engine then share only in that way, since a curve states what other engines do to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from socsched.cost.contention import Law, Rival, Setting, draw, fair_shares, last_share, slow_down
from socsched.cost.cost import Segment

_GB = 1e9
_SLOWEST = 5.0
"""Lowest relative speed (%): the authors' tool caps losses at 95 %, and no memory controller starves an initiator."""
_LEAST = 1e6
"""Bandwidths below this (bytes/s) were written without a unit."""
_DISPLACED = 16.0
"""Bytes of a stream that one foreign byte may displace: a row cycle (about 60 ns) for a burst of 64 bytes, 16 banks."""
_DEFAULTS = {"traffic": 1.0, "error": 0.0}
_KEPT, _DRAWS = 64, 1 << 14
"""Sets of rivals whose demands are kept, and segments whose traffic is."""
_FIELDS = ("normal", "intensive", "mrmc", "tbwdc", "cbp", "rate", "peak", *_DEFAULTS)


@dataclass(frozen=True, slots=True)
class Curve:
    """Slowdown curve of an engine: bandwidths in bytes/s, `mrmc` in %, `rate` in % per GB/s.

    `traffic`: bytes on the memory bus for every byte a job must move; `error`: relative error of the fit.
    """

    normal: float
    intensive: float
    mrmc: float
    tbwdc: float
    cbp: float
    rate: float
    peak: float
    traffic: float = 1.0
    error: float = 0.0

    def at(self, scale: float) -> Curve:
        """Return the curve of a memory with `scale` times the bandwidth."""
        return replace(
            self,
            normal=self.normal * scale,
            intensive=self.intensive * scale,
            tbwdc=self.tbwdc * scale,
            cbp=self.cbp * scale,
            peak=self.peak * scale,
            rate=self.rate / scale,
        )

    def speed(self, own: float, external: float) -> float:
        """Return the relative speed (%) at an own and an external demand (bytes/s)."""
        if external <= 0:
            return 100.0
        lost = self.mrmc * min(external / self.peak, 1.0) if self.peak else 0.0
        felt = min(external, self.cbp)
        if own >= self.intensive and self.cbp:
            lost = max(lost, self.rate * (own + self.cbp - self.tbwdc) / self.cbp * felt / _GB)
        elif own > self.normal:
            lost = max(lost, self.rate * (own + felt - self.tbwdc) / _GB)
        return max(100.0 - lost, _SLOWEST)


@dataclass(frozen=True, slots=True)
class Pccs:
    """A curve per engine, found by the engine's id; `limit`: bandwidth (bytes/s) shared max-min fairly, 0 for none."""

    curves: Mapping[str, Curve]
    limit: float = 0.0
    _known: dict[tuple[str, int], tuple[object, list[float], float, float, float, float]] = field(
        default_factory=dict, compare=False, repr=False
    )

    _draws: dict[tuple[str, int], tuple[Segment, float]] = field(default_factory=dict, compare=False, repr=False)

    def law(self) -> Law:
        """Return what a simulation computes `paces` from."""
        return Law(self.limit, self._own, {engine: astuple(curve)[:7] for engine, curve in self.curves.items()})

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns) under the others' summed demands; a segment without traffic is not slowed."""
        demands = [self._own(engine, segment) for engine, segment in running]
        total, result = sum(demands), list[int]()
        shares = fair_shares(demands, self.limit) if self.limit and total > self.limit else demands
        outside: dict[str, float] = {}
        for index, (engine, segment) in enumerate(running):
            mine = demands[index]
            if not mine or total == mine:
                result.append(segment.time_ns)
                continue
            if not self.limit:
                others = sum(other for number, other in enumerate(demands) if number != index)
            elif engine in outside:
                others = outside[engine]
            else:
                elsewhere = (other for other, (place, _) in zip(demands, running, strict=True) if place != engine)
                others = outside[engine] = sum(elsewhere)
            factor = 100.0 / self.curves[engine].speed(mine, others)
            result.append(slow_down(segment, max(factor, mine / shares[index])))
        return tuple(result)

    def _own(self, engine: str, segment: Segment) -> float:
        """Return the traffic (bytes/s) of a segment on an engine, kept: simulations meet few, millions of times."""
        key = engine, id(segment)
        if key not in self._draws:
            if len(self._draws) >= _DRAWS:
                self._draws.clear()
            self._draws[key] = segment, self._drawn(engine, draw(segment))
        return self._draws[key][1]

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments under the largest demand of all other lanes, plus the curve's error.

        Speed never rises with the external demand, so the largest one gives the bound.
        """
        others, outside, total, most, calm = self._external(engine, rivals)
        if not total:
            return sum(segment.time_ns for segment in segments)
        curve, result = self.curves[engine], 0
        for segment in segments:
            own = self._own(engine, segment)
            if not own:
                result += segment.time_ns
                continue
            factor = calm if own < curve.normal else 100.0 / curve.speed(own, outside)
            if self.limit and own + total > self.limit * (1 - 1e-9):
                factor = max(factor, own / last_share(own, others, self.limit) * (1 + 1e-9))
            result += slow_down(segment, factor * most)
        return result

    def _external(
        self, engine: str, rivals: Sequence[Sequence[Rival]]
    ) -> tuple[list[float], float, float, float, float]:
        """Return the demands of other lanes in order, their sum outside an engine, and their sum (bytes/s).

        Also by what a job takes longer at most if the curve errs, and the factor of one that draws little.  They are
        kept, as the tasks of a lane have the same rivals.
        """
        known = self._known.get((engine, id(rivals)))
        if known is not None:
            return known[1:]
        others, outside = [], 0.0
        for lane in rivals:
            drawn = max((self._drawn(rival.engine, rival.demand) / rival.lanes for rival in lane), default=0.0)
            others.append(drawn)
            if not (self.limit and all(rival.engine == engine for rival in lane)):
                outside += drawn
        # A small margin, because demands are summed in a different order than in `paces`.
        total, outside, curve = sum(others), outside * (1 + 1e-9), self.curves[engine]
        most = min(1 + curve.error, self._most_lost(total))
        result = sorted(others), outside, total, most, 100.0 / curve.speed(0.0, outside)
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[engine, id(rivals)] = rivals, *result  # they stay alive, so that no others have their identity
        return result

    def _most_lost(self, external: float) -> float:
        """Return a factor above which other traffic (bytes/s) slows no job beyond its curve, whatever the fit's error.

        A curve that is 10 % off says nothing about a job beside one that moves a kilobyte.  Where every foreign byte
        takes the memory as long as `_DISPLACED` bytes of the job, and goes first, no more time is lost.
        """
        share = _DISPLACED * external / self.limit if self.limit else 1.0
        return 1.0 / (1.0 - share) if share < 0.9 else 10.0

    def _drawn(self, engine: str, demand: float) -> float:
        """Return the traffic (bytes/s) that an engine causes for a demand of its jobs."""
        if not self.limit:
            return demand * self.curves[engine].traffic
        return min(demand * self.curves[engine].traffic, max(self.limit, demand))


def build(setting: Setting) -> Pccs:
    """Return the model; parameters hold a curve per engine id or kind, or one under ``default``.

    Raises UsageError for an engine without a curve and for an incomplete or impossible curve.
    """
    groups = {name: value for name, value in setting.parameters.items() if isinstance(value, Mapping)}
    setting.check([*setting.engines, *setting.engines.values(), "default", "capacity"])
    capacity = setting.number("capacity", 0.0)
    if capacity < 0 or 0 < capacity < _LEAST:
        raise setting.fault(f"expected a bandwidth with its unit for capacity, got {capacity}")
    scale = setting.capacity / capacity if capacity and setting.capacity else 1.0
    curves = {}
    for engine, kind in setting.engines.items():
        group = groups.get(engine) or groups.get(kind) or groups.get("default")
        if group is None:
            raise setting.fault(f"expected a curve for engine {engine!r}, its kind {kind!r} or default")
        curve = _curve(setting, group)
        curves[engine] = curve if scale == 1.0 else curve.at(scale)
    return Pccs(curves, setting.capacity if capacity else 0.0)


def _curve(setting: Setting, group: Mapping[str, object]) -> Curve:
    setting.check(_FIELDS, group)
    values = {name: setting.number(name, _DEFAULTS.get(name), group) for name in _FIELDS}
    if min(values.values()) < 0:
        raise setting.fault("expected no negative parameter")
    for name in ("normal", "intensive", "tbwdc", "cbp", "peak"):
        if 0 < values[name] < _LEAST:
            raise setting.fault(f"expected a bandwidth with its unit for {name}, got {values[name]}")
    if values["intensive"] < values["normal"]:
        raise setting.fault("expected intensive at or above normal")
    if values["intensive"] + values["cbp"] < values["tbwdc"]:
        raise setting.fault("expected intensive + cbp at or above tbwdc, or the intensive region would gain speed")
    return Curve(**values)
