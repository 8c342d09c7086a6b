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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.cost.contention.base import Rival, Setting, draw, loudest, slow_down
from socsched.cost.cost import Segment

_GB = 1e9
_SLOWEST = 5.0
"""Lowest relative speed (%): the authors' tool caps losses at 95 %, and no memory controller starves an initiator."""
_FIELDS = ("normal", "intensive", "mrmc", "tbwdc", "cbp", "rate", "peak", "error")


@dataclass(frozen=True, slots=True)
class Curve:
    """Slowdown curve of an engine: bandwidths in bytes/s, `mrmc` in %, `rate` in % per GB/s, relative `error` of the
    fit."""

    normal: float
    intensive: float
    mrmc: float
    tbwdc: float
    cbp: float
    rate: float
    peak: float
    error: float = 0.0

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
    """A curve per engine, found by the engine's id."""

    curves: Mapping[str, Curve]

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return each segment's time (ns) under the others' summed demands; a segment without traffic is not slowed."""
        demands = [draw(segment) for _, segment in running]
        result = []
        for index, (engine, segment) in enumerate(running):
            others = sum(demands[:index]) + sum(demands[index + 1 :])
            speed = self.curves[engine].speed(demands[index], others) if demands[index] else 100.0
            result.append(slow_down(segment, 100.0 / speed))
        return tuple(result)

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return the time (ns) of the segments under the largest demand of all other lanes, plus the curve's error.

        Speed never rises with the external demand, so the largest one gives the bound.
        """
        curve, external = self.curves[engine], sum(loudest(rivals))
        # A small margin, because demands are summed in a different order than in `paces`.
        external *= 1 + 1e-9
        return sum(
            slow_down(segment, 100.0 / curve.speed(draw(segment), external) * (1 + curve.error))
            if draw(segment) and external
            else segment.time_ns
            for segment in segments
        )


def build(setting: Setting) -> Pccs:
    """Return the model; parameters hold a curve per engine id or kind, or one under ``default``.

    Raises UsageError for an engine without a curve and for an incomplete or impossible curve.
    """
    groups = {name: value for name, value in setting.parameters.items() if isinstance(value, Mapping)}
    setting.check([*setting.engines, *setting.engines.values(), "default"])
    curves = {}
    for engine, kind in setting.engines.items():
        group = groups.get(engine) or groups.get(kind) or groups.get("default")
        if group is None:
            raise setting.fault(f"expected a curve for engine {engine!r}, its kind {kind!r} or default")
        curves[engine] = _curve(setting, group)
    return Pccs(curves)


def _curve(setting: Setting, group: Mapping[str, object]) -> Curve:
    setting.check(_FIELDS, group)
    values = {name: setting.number(name, 0.0 if name == "error" else None, group) for name in _FIELDS}
    if min(values.values()) < 0:
        raise setting.fault("expected no negative parameter")
    for name in ("normal", "intensive", "tbwdc", "cbp", "peak"):
        if 0 < values[name] < 1e6:
            raise setting.fault(f"expected a bandwidth with its unit for {name}, got {values[name]}")
    if values["intensive"] < values["normal"]:
        raise setting.fault("expected intensive at or above normal")
    if values["intensive"] + values["cbp"] < values["tbwdc"]:
        raise setting.fault("expected intensive + cbp at or above tbwdc, or the intensive region would gain speed")
    return Curve(**values)
