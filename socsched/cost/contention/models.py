"""Max-min fair shares of the DRAM bandwidth, and segment times under these shares.

Model: every running segment demands bandwidth; the memory controller serves demands max-min fairly up to the achievable
bandwidth (Bertsekas & Gallager, Data Networks, 1992, section 6.5.2); a segment whose share is below its demand is
stretched along the memory roof of the roofline (Williams, Waterman, Patterson, CACM 52(4) 2009).  No parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace

from socsched.cost.contention import (
    Law,
    Rival,
    Setting,
    demand,
    draw,
    fair_shares,
    last_share,
    loudest,
    slow_down,
    stretch,
)
from socsched.cost.cost import Segment


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Max-min fair sharing of `capacity` bytes/s; 0 means unlimited."""

    capacity: float

    def law(self) -> Law:
        """Return what a simulation computes `paces` from."""
        return Law(self.capacity, lambda _, segment: draw(segment), {})

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns) under its fair share."""
        if not self.capacity:
            return tuple(segment.time_ns for _, segment in running)
        demands = [draw(segment) for _, segment in running]
        shares = fair_shares(demands, self.capacity)
        return tuple(
            stretch(segment, share) if wanted else segment.time_ns
            for (_, segment), wanted, share in zip(running, demands, shares, strict=True)
        )

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments under their smallest possible shares.

        Shares only shrink when a competitor's demand grows, and spreading a gang's demand over its lanes can only
        shrink the shares of the others.
        """
        if not self.capacity:
            return sum(segment.time_ns for segment in segments)
        others = sorted(loudest(rivals))
        return sum(self._worst(segment, others) for segment in segments)

    def _worst(self, segment: Segment, others: Sequence[float]) -> int:
        if not draw(segment):
            return segment.time_ns
        return stretch(segment, last_share(demand(segment), others, self.capacity))


def max_min(setting: Setting) -> MaxMin:
    """Return the model for a memory; UsageError if parameters are given, as it has none."""
    setting.check(())
    return MaxMin(setting.capacity)


# Linear interference: the slowdown as a linear function of both sides' L2 and DRAM utilisation.
#
# Choi et al., "Serving Heterogeneous Machine Learning Models on Multi-GPU Servers with Spatio-Temporal Sharing",
# USENIX ATC 2022 (gpulet):
#
#     slowdown = constant + l2_me L2(own) + l2_you L2(others) + dram_me DRAM(own) + dram_you DRAM(others)
#
# fitted to pairs of networks on one GPU (the authors report at most 10.26 % error for 90 % of the pairs).
# Utilisations are shares of 1.  DRAM utilisation follows from a segment's demand and the memory's bandwidth; a
# segment does not know its L2 traffic, so L2 utilisation is taken as `l2_per_dram` times DRAM utilisation, at most 1.

_FIELDS = ("l2_me", "l2_you", "dram_me", "dram_you", "constant", "l2_per_dram", "error")


@dataclass(frozen=True, slots=True)
class Linear:
    """The five coefficients, the ratio of L2 to DRAM utilisation, bandwidth (bytes/s), relative error of the fit."""

    capacity: float
    l2_me: float
    l2_you: float
    dram_me: float
    dram_you: float
    constant: float
    l2_per_dram: float = 0.0
    error: float = 0.0

    def slowdown(self, l2_me: float, l2_you: float, dram_me: float, dram_you: float) -> float:
        """Return the slowdown (1 = none, never less) at utilisations 0..1, as published."""
        mine = self.l2_me * l2_me + self.dram_me * dram_me
        yours = self.l2_you * l2_you + self.dram_you * dram_you
        return max(self.constant + mine + yours, 1.0)

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns); it is slowed only if it and a co-runner draw bandwidth."""
        demands = [draw(segment) for _, segment in running]
        result = []
        for index, (_, segment) in enumerate(running):
            others = sum(demands[:index]) + sum(demands[index + 1 :])
            slowed = demands[index] and others
            result.append(slow_down(segment, self._beside(demands[index], others)) if slowed else segment.time_ns)
        return tuple(result)

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments under the worst load of the other lanes, plus the error.

        The slowdown is piecewise linear in the others' load, so it is largest at an end of the range or where L2
        utilisation reaches 1.
        """
        most = sum(loudest(rivals)) * (1 + 1e-9)
        full = self.capacity / self.l2_per_dram if self.l2_per_dram else most
        loads = (0.0, min(full, most), min(self.capacity, most), most)
        return sum(
            slow_down(segment, max(self._beside(draw(segment), load) for load in loads) * (1 + self.error))
            if draw(segment) and most
            else segment.time_ns
            for segment in segments
        )

    def _beside(self, own: float, others: float) -> float:
        mine, yours = min(own / self.capacity, 1.0), min(others / self.capacity, 1.0)
        return self.slowdown(min(mine * self.l2_per_dram, 1.0), min(yours * self.l2_per_dram, 1.0), mine, yours)


def linear(setting: Setting) -> Linear:
    """Return the model; UsageError if a coefficient is missing or the bandwidth unknown."""
    setting.check(_FIELDS)
    if not setting.capacity:
        raise setting.fault("expected a memory with a bandwidth, from which utilisations follow")
    values = {name: setting.number(name, 0.0 if name in ("l2_per_dram", "error") else None) for name in _FIELDS}
    if values["l2_per_dram"] < 0 or values["error"] < 0:
        raise setting.fault("expected l2_per_dram and error at or above 0")
    return Linear(setting.capacity, **values)


# Pairwise slowdown: one factor for every pair of engines, multiplied over the co-runners.
#
# The simplest model that can be fitted to co-run times of two engines without traffic data: a segment on one engine
# takes `factor` times as long while the other draws bandwidth.  Factors hold for the networks they were measured
# with; they do not adapt to other traffic.


@dataclass(frozen=True, slots=True)
class Pairwise:
    """`factors`: (slowed engine, co-running engine) -> slowdown, 1 where none is given; `error` of the factors."""

    factors: Mapping[tuple[str, str], float]
    error: float = 0.0

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns): its time alone times the factors of all co-runners that draw bandwidth."""
        result = []
        for index, (engine, segment) in enumerate(running):
            beside = [other for i, (other, s) in enumerate(running) if i != index and draw(s)]
            factor = math.prod(self.factors.get((engine, other), 1.0) for other in beside)
            result.append(slow_down(segment, factor) if draw(segment) else segment.time_ns)
        return tuple(result)

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments with the worst rival of every lane co-running, plus the error.

        Logarithms of factors add, so a gang's can be spread over its lanes like a demand.
        """
        factor = 1.0
        for lane in rivals:
            factor *= max((self._of(engine, rival) for rival in lane if rival.demand), default=1.0)
        beside = any(rival.demand for lane in rivals for rival in lane)
        # A small margin, because roots and products round.
        margin = (1 + self.error) * (1 + 1e-9) if beside and factor > 1 else 1.0
        return sum(slow_down(s, factor * margin) if draw(s) else s.time_ns for s in segments)

    def _of(self, engine: str, rival: Rival) -> float:
        return float(self.factors.get((engine, rival.engine), 1.0) ** (1 / rival.lanes))


def pairwise(setting: Setting) -> Pairwise:
    """Return the model; parameters map the slowed engine (id or kind) to factors by co-running engine.

    Raises UsageError for unknown engine names and for factors below 1.
    """
    known = [*setting.engines, *setting.engines.values()]
    setting.check([*known, "error"])
    rows = {name: value for name, value in setting.parameters.items() if name != "error"}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            raise setting.fault(f"expected factors by engine under {name}, got {row!r}")
        setting.check(known, row)
        for other in row:
            if setting.number(other, None, row) < 1:
                raise setting.fault(f"expected a factor of at least 1 for {name} beside {other}")
    factors = {
        (victim, other): float(found)
        for victim, kind in setting.engines.items()
        for other, other_kind in setting.engines.items()
        if (found := _factor(rows, (victim, kind), (other, other_kind))) is not None
    }
    error = setting.number("error", 0.0)
    if error < 0:
        raise setting.fault("expected error at or above 0")
    return Pairwise(factors, error)


def _factor(rows: Mapping[str, Mapping[str, float]], victim: tuple[str, str], other: tuple[str, str]) -> float | None:
    """Return the factor of a pair of (id, kind), preferring ids to kinds."""
    for name in victim:
        for beside in other:
            if beside in rows.get(name, {}):
                return rows[name][beside]
    return None


# Processor-centric contention slowdown: a piecewise linear model per engine, over own and external demand.
#
# Xu, Belviranli, Shen, Vetter, "PCCS: Processor-Centric Contention-aware Slowdown Model for Heterogeneous
# System-on-Chips", MICRO 2021, doi 10.1145/3466752.3480101.  An engine whose own demand is x (GB/s alone) keeps a
# relative speed RS (%) under an external demand y:
#
# - minor region, x <= `normal`: RS falls in proportion to y, by `mrmc` % at the largest external demand `peak`;
# - normal region: beyond that, RS falls by `rate` % for every GB/s that x + min(y, `cbp`) exceeds `tbwdc` (total
#   bandwidth demand at which contention starts; contention balance point, above which more external demand changes
#   nothing);
# - intensive region, x >= `intensive`: RS falls from y = 0 on, by rate (x + cbp - tbwdc) / cbp % a GB/s, up to `cbp`.
#
# The regions are pieced together so that RS never rises with y (the larger loss of the two lines counts), as the
# analysis requires; the published pieces step up by at most `mrmc` % where the second line takes over.
#
# Curves are fitted to the traffic that a memory controller counts.  `traffic` states how much of it an engine causes
# for every byte that its jobs must move (caches fetch some data several times), at most what the memory achieves.
# `capacity` is the achievable bandwidth for which the curves hold: where a mode has another, they are scaled to it,
# and no engine is faster than under max-min fair shares of it: a CPU core is in the minor region however many cores
# run.  Lanes of one engine then share only in that way, since a curve states what other engines do to it.

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
_CURVE_FIELDS = ("normal", "intensive", "mrmc", "tbwdc", "cbp", "rate", "peak", *_DEFAULTS)


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


def pccs(setting: Setting) -> Pccs:
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
    setting.check(_CURVE_FIELDS, group)
    values = {name: setting.number(name, _DEFAULTS.get(name), group) for name in _CURVE_FIELDS}
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
