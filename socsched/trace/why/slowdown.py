"""Attribution of a job's time on its engine: its own work, DRAM traffic of others, clocks, faults, slower lanes.

A segment that takes T ns alone takes P at its actual pace.  P - T is the delay the contention model adds for co-running
segments (shared out by their demand; without a cause if the segment alone exceeds the bandwidth), then heat, other
faults, the clock, and the slowest lane, each rounded up as in the simulator.  In dt ns the segment does T/P dt of its
work, and loses the rest to these causes in proportion.  In a run this is not measured: the shares are the model's
estimate for the co-running jobs, and the remainder is attributed to the job itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from socsched.cost.contention import ContentionModel, contention_model, draw
from socsched.cost.cost import Segment
from socsched.planning.plan import Plan
from socsched.trace.why.occupancy import Piece, Places, cuts, overlapping


class Due(NamedTuple):
    """The cause of spent time: a kind of part, the engine, and the responsible task and frame."""

    kind: str
    engine: str
    by: str = ""
    frame: int = -1


Spent = dict[Due, Fraction]
WORK = "execution"


class Paces:
    """The paces of a trace's segments; `spent` attributes the time of a stretch of one."""

    def __init__(self, places: Places, plan: Plan) -> None:
        self.places = places
        self._short = plan.dram_bandwidth > 0 or bool(plan.contention)
        self._model: ContentionModel | None = None
        self._plan = plan
        self._known: dict[tuple[tuple[str, Segment], ...], tuple[int, ...]] = {}

    def spent(self, piece: Piece, begin: int, end: int, beside: list[Piece], starts: list[int]) -> Spent:
        """Return the attribution of a slice's time from `begin` to `end`; `beside`: other jobs' slices, by start."""
        own, found = self.places.segment(piece), Spent()
        rivals = overlapping(beside, starts, begin, end) if self._short and draw(own) else []
        rivals = [rival for rival in rivals if rival.works and draw(self.places.segment(rival))]
        changes = [t for rival in rivals for t in (rival.start_ns, rival.end_ns)]
        changes += self.places.edges(piece.engine, begin, end)
        for a, b in cuts(begin, end, changes):
            here = [rival for rival in rivals if rival.start_ns <= a < rival.end_ns]
            for due, share in self._shares(piece, own, here, a).items():
                found[due] = found.get(due, Fraction(0)) + (b - a) * share
        return found

    def _shares(self, piece: Piece, own: Segment, rivals: list[Piece], at: int) -> Spent:
        alone, places, engine = own.time_ns, self.places, piece.engine
        if not alone:
            return {Due(WORK, engine): Fraction(1)}
        foreign = places.foreign(at) if self._short and draw(own) else []
        solo = max(self._beside(engine, own, [], []), alone)
        corun = max(self._beside(engine, own, rivals, foreign), solo)
        heat, fault = places.slowdown(engine, at)
        hot = _ceil(corun * heat)
        slow = _ceil(corun * heat * fault)
        clocked = _ceil(slow * places.clock(engine, at))
        pace = _ceil(clocked * Fraction(1024, places.lane_speed(piece)))
        parts = {
            Due(WORK, engine): alone,
            Due("bandwidth", engine): solo - alone,
            Due("throttling", engine): hot - corun + clocked - slow,
            Due("fault", engine): slow - hot,
            Due("lanes", engine): pace - clocked,
        }
        found = {due: Fraction(time, pace) for due, time in parts.items() if time}
        demands = [(places.who(rival.job), draw(places.segment(rival))) for rival in rivals]
        demands += [(("foreign traffic", -1), float(rate)) for _, rate in foreign]
        total = sum(Fraction(demand) for _, demand in demands)
        for (by, frame), demand in demands:
            due = Due("bandwidth", engine, by, frame)
            share = Fraction(corun - solo, pace) * Fraction(demand) / total
            if share:
                found[due] = found.get(due, Fraction(0)) + share
        return found

    def _beside(self, engine: str, own: Segment, rivals: list[Piece], foreign: list[tuple[str, int]]) -> int:
        """Return the time (ns) of a segment while exactly these run."""
        if not self._short or not draw(own):
            return own.time_ns
        places = self.places
        running = [(engine, own), *((rival.engine, places.segment(rival)) for rival in rivals)]
        running += [(name, Segment("hog", 1_000_000_000, 0, rate)) for name, rate in foreign]
        key = tuple(running)
        if key not in self._known:
            if self._model is None:
                kinds = {engine.id: engine.kind for engine in self._plan.engines}
                self._model = contention_model(self._plan.contention, self._plan.dram_bandwidth, kinds)
            self._known[key] = self._model.paces(running)
        return self._known[key][0]


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def round_to_sum(spent: Mapping[Due, Fraction]) -> dict[Due, int]:
    """Return non-negative fractions of ns as whole ns of the same sum, each less than 1 ns off; work comes first."""
    total, given, found = Fraction(0), 0, {}
    for due in sorted(spent, key=lambda due: (due.kind != WORK, due)):
        total += spent[due]
        upto = _ceil(total - Fraction(1, 2)) if due.kind == WORK else int(total)
        found[due], given = max(upto, given) - given, max(upto, given)
    return found
