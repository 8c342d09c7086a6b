"""Pairwise slowdown: one factor for every pair of engines, multiplied over the co-runners.

The simplest model that can be fitted to co-run times of two engines without traffic data: a segment on one engine takes
`factor` times as long while the other draws bandwidth.  Factors hold for the networks they were measured with; they do
not adapt to other traffic.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.cost.contention import Rival, Setting, draw, slow_down
from socsched.cost.cost import Segment


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


def build(setting: Setting) -> Pairwise:
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
