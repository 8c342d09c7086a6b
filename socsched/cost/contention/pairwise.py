"""Pairwise slowdown: one factor for every pair of engines, multiplied up over the co-runners.

The simplest model that co-run times of two engines give without knowing anybody's traffic: a segment on one engine
takes `factor` times as long while something on the other draws bandwidth.  Factors say what was measured for the
networks they were measured with; they do not follow the traffic of others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from socsched.cost.contention.base import Rival, Setting, draw, slowed_ns
from socsched.cost.cost import Segment


@dataclass(frozen=True, slots=True)
class Pairwise:
    """`factors`: (engine that suffers, engine beside it) -> slowdown, 1 where none is given; `error` of the factors."""

    factors: Mapping[tuple[str, str], float]
    error: float = 0.0

    def paces(self, running: Sequence[tuple[str, Segment]]) -> tuple[int, ...]:
        """Return what each segment takes (ns): its time times the factors of all others that draw bandwidth."""
        result = []
        for index, (engine, segment) in enumerate(running):
            beside = [other for i, (other, s) in enumerate(running) if i != index and draw(s)]
            factor = math.prod(self.factors.get((engine, other), 1.0) for other in beside)
            result.append(slowed_ns(segment, factor) if draw(segment) else segment.time_ns)
        return tuple(result)

    def worst_pace(self, engine: str, segments: Sequence[Segment], rivals: Sequence[Sequence[Rival]]) -> int:
        """Return what the segments take (ns) with the worst rival of every lane beside them, plus the error.

        Logarithms of factors add up, so a gang's can be spread over its lanes as a demand can.
        """
        factor = 1.0
        for lane in rivals:
            factor *= max((self._of(engine, rival) for rival in lane if rival.demand), default=1.0)
        beside = any(rival.demand for lane in rivals for rival in lane)
        # A hair more, because roots and products round.
        margin = (1 + self.error) * (1 + 1e-9) if beside and factor > 1 else 1.0
        return sum(slowed_ns(s, factor * margin) if draw(s) else s.time_ns for s in segments)

    def _of(self, engine: str, rival: Rival) -> float:
        return float(self.factors.get((engine, rival.engine), 1.0) ** (1 / rival.lanes))


def build(setting: Setting) -> Pairwise:
    """Return the model; parameters map who suffers (engine id or kind) to factors by who is beside it.

    UsageError for names no engine has and factors below 1.
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
    """Return the factor of a pair of (id, kind): of ids before kinds."""
    for name in victim:
        for beside in other:
            if beside in rows.get(name, {}):
                return rows[name][beside]
    return None
