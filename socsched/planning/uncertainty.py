"""Choices left open by the errors of costs: plans that are ties, and the single most informative measurement.

A cost is an interval, from its time over 1 + error to its time times that, every time in it equally likely.  Errors are
independent, except for costs of a stage that rest on the same figures: these err alike and keep their order.  The value
of a measurement is the expected gain of the plan when it may be chosen again afterwards (Howard, "Information value
theory", IEEE Trans. SSC 2(1), 1966); a measurement that may overturn the verdict comes before any that only changes the
objective.

The interval of a cost, and the cost at another time within it.

The costs on which a proof rests: how far the most uncertain stage of every chain may slow down.

Bisection on one cost (Bini, Di Natale, Buttazzo, RTS 39, 2008).  The mapping stays, and local deadlines and priorities
are set anew for each cost: they are chosen as tight as the stated costs allow, which would leave no room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from socsched.cost.cost import Cost
from socsched.descriptor.limits import Objective
from socsched.planning.assess import expected_latencies
from socsched.planning.candidate import balance, judge, utilisations
from socsched.planning.clock import FEW, NO_CLOCK, THOROUGH, Clock, count
from socsched.planning.deployment import Outline, outlined, placed
from socsched.planning.plan import Condition, Measurement, Plan, Tie, Uncertainty, Violation
from socsched.planning.workload import Unconnectable, Workload, place_name


def interval_ns(cost: Cost) -> tuple[int, int]:
    """Return the least and the greatest time of a cost (ns)."""
    return max(round(cost.time_ns / (1 + cost.error)), 1), round(cost.time_ns * (1 + cost.error))


def at_upper_end(cost: Cost) -> Cost:
    """Return a cost at the upper end of its interval, which leaves no error; the energy grows in proportion."""
    longer = rescale_cost(cost, interval_ns(cost)[1])
    energy = cost.energy_uj * longer.time_ns // max(cost.time_ns, 1)
    return replace(longer, energy_uj=energy, error=0.0)


def rescale_cost(cost: Cost, time_ns: int) -> Cost:
    """Return a cost that takes `time_ns`, with every segment in proportion."""
    factor = time_ns / max(cost.time_ns, 1)
    parts = tuple(
        replace(s, time_ns=max(round(s.time_ns * factor), 1), fixed_ns=min(s.fixed_ns, round(s.time_ns * factor)))
        for s in cost.segments
    )
    return replace(cost, segments=parts, time_ns=sum(s.time_ns for s in parts))


FEASIBLE, UNPROVED = "feasible", "not proved"
LARGEST_FACTOR = 4.0
"""Largest factor that is distinguished from larger ones."""
ACCURACY = 0.02
"""Largest error of a factor, which is never too large."""


# Deadlines are set anew for each cost: under the plan's own, which are as tight as the costs allow, every factor is 1.
def conditions(
    plan: Plan, workload: Workload, mapping: Mapping[str, Cost], clock: Clock = NO_CLOCK
) -> tuple[Condition, ...]:
    """Return the condition of every chain of a feasible plan that has an uncertain stage; () for any other plan.

    Chains whose stage was not bisected before the `clock` runs out are left out.
    """
    if plan.verdict != "feasible":
        return ()
    factors: dict[str, float] = {}
    result = []
    for chain in plan.chains:
        path = [mapping[name] for name in chain.path if name in mapping and mapping[name].error]
        if not path:
            continue
        cost = max(path, key=lambda cost: cost.time_ns * cost.error)
        if cost.stage not in factors:
            if clock.over():
                continue
            factors[cost.stage] = break_even(workload, mapping, cost)
        factor = math.floor(factors[cost.stage] * 100) / 100
        result.append(Condition(chain.name, cost.stage, factor, round(1 + cost.error, 4)))
    return tuple(result)


def break_even(workload: Workload, mapping: Mapping[str, Cost], cost: Cost) -> float:
    """Return the largest factor on a cost of a feasible mapping with which it is feasible, at most `LARGEST_FACTOR`."""

    def holds(factor: float) -> bool:
        slower = rescale_cost(cost, round(cost.time_ns * factor))
        return is_feasible(workload, {**mapping, cost.stage: slower})

    low, high = 1.0, min(1 + cost.error, LARGEST_FACTOR)
    if holds(high):  # the interval's end is the figure of interest
        if high == LARGEST_FACTOR or holds(LARGEST_FACTOR):
            return LARGEST_FACTOR
        low, high = high, LARGEST_FACTOR
    while high - low > ACCURACY * low:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def is_feasible(workload: Workload, mapping: Mapping[str, Cost]) -> bool:
    """Return whether a mapping is proved feasible, with deadlines and priorities set for its costs."""
    try:
        for thorough in (False, True):
            candidate = judge(workload, mapping, thorough)
            if not candidate.violations and all(chain.bound_ns is not None for chain in candidate.assessment.chains):
                return True
            if any(map(_whatever_the_analysis, candidate.violations)):
                count(0 if thorough else THOROUGH)  # the budget does not depend on what is left out
                return False
    except Unconnectable:
        pass
    return False


def _whatever_the_analysis(violation: Violation) -> bool:
    """Return whether a requirement is violated by the mapping itself, whatever bounds an analysis finds."""
    return violation.unit in ("ns/s", "mW", "B/s", "B", "jobs") or violation.requirement == "accuracy loss"


def upper(plan: Plan, workload: Workload, mapping: Mapping[str, Cost]) -> str | None:
    """Return the verdict on a feasible plan's mapping with all costs at their upper ends, None for any other plan."""
    if plan.verdict != "feasible":
        return None
    slower = {name: rescale_cost(cost, interval_ns(cost)[1]) for name, cost in mapping.items()}
    return FEASIBLE if is_feasible(workload, slower) else UNPROVED


RESERVED = 300
"""Evaluations with which the costs that may overturn the verdict are examined, even if a search took all there was."""
MOST = 12
"""Maximum number of alternatives whose requirements are checked, those closest to the plan first."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A cost that may be measured, its chance of overturning the verdict, or else its expected gain."""

    cost: Cost
    flips: float
    gain: float
    why: str

    def measurement(self) -> Measurement:
        """Return the measurement as a plan names it."""
        low, high = interval_ns(self.cost)
        return Measurement(
            stage=self.cost.stage,
            engine=self.cost.engine,
            precision=self.cost.precision,
            estimate_ns=self.cost.time_ns,
            low_ns=low,
            high_ns=high,
            verdict_flips=round(self.flips, 6),
            gain=round(self.gain, 3),
            why=self.why,
        )


def uncertainty(
    plan: Plan,
    workload: Workload,
    mapping: Mapping[str, Cost],
    objective: Objective,
    clock: Clock = NO_CLOCK,
) -> Uncertainty:
    """Return ties and the measurement to make first; no ties for the objective slack.

    Alternatives not evaluated before the `clock` runs out are left out; `RESERVED` is kept for the verdict.
    """
    worth, top = _worth(objective), upper(plan, workload, mapping)
    enough = len(mapping) > FEW or clock.left() > RESERVED
    wishes, every = _verdict(plan, workload, mapping, clock if enough else clock.next(RESERVED))
    unchanged = ("verdict",) if every and not wishes else ()
    ties: list[Tie] = []
    if worth and plan.verdict == "feasible":
        close, all_close = _alternatives(workload, mapping, worth, clock)
        for cost, difference, error, gains in close:
            place = place_name(cost)
            ties.append(Tie(cost.stage, place, round(difference, 3), round(error, 3)))
            why = f"{cost.stage} may be better on {place}"
            wishes += [_Option(which, 0.0, gain, why) for which, gain in gains if gain > 0]
        if all_close and not wishes:
            unchanged = (*unchanged, "choice")
    best = max(wishes, key=lambda wish: (wish.flips, wish.gain), default=None)
    measure = best.measurement() if best else None
    margins = conditions(plan, workload, mapping, clock)
    return Uncertainty(objective, tuple(ties), measure, margins, top, unchanged)


Worth = Callable[[Outline], float]


def _worth(objective: str) -> Worth | None:
    """Return the value function of an objective (smaller is better), None if that needs a whole analysis."""

    def expected(outline: Outline) -> Iterable[int]:
        workload = outline.workload
        return expected_latencies(workload.graph, outline.tasks, sources=workload.sources(outline.tasks)).values()

    def latency(outline: Outline) -> float:
        return float(sum(expected(outline)))

    def longest(outline: Outline) -> float:
        return float(max(expected(outline), default=0))

    def energy(outline: Outline) -> float:
        return float(balance(placed(outline)).power_mw)

    def throughput(outline: Outline) -> float:
        return max(utilisations(placed(outline).tasks).values(), default=0.0)

    known: dict[str, Worth] = {"latency": latency, "longest": longest, "energy": energy, "throughput": throughput}
    return known.get(objective)


_Close = tuple[Cost, float, float, list[tuple[Cost, float]]]
"""Another cost of a stage, the difference it makes, the error of that, and the gain of measuring either cost."""


def _alternatives(
    workload: Workload, mapping: Mapping[str, Cost], worth: Worth, clock: Clock
) -> tuple[list[_Close], bool]:
    """Return every feasible tie, and whether all alternatives were examined."""

    def value(name: str, cost: Cost | None) -> float | None:
        try:
            return worth(outlined(workload, {**mapping, name: cost} if cost else mapping))
        except Unconnectable:
            return None

    close: list[_Close] = []
    present = value("", None)
    for name, chosen in mapping.items():
        if present is None or clock.over():
            return [], False
        low, high = (value(name, rescale_cost(chosen, time)) for time in interval_ns(chosen))
        if low is None or high is None:
            continue
        for other in workload.model.candidates(workload.graph.stage(name)):
            if (other.precision, other.source, other.error) == (chosen.precision, chosen.source, chosen.error):
                continue
            fastest, slowest = interval_ns(other)
            # Most are worse even at their fastest, so nothing else is computed for them.
            least = value(name, rescale_cost(other, fastest))
            if least is None or least > high:
                continue
            most, changed = value(name, rescale_cost(other, slowest)), value(name, other)
            if most is None or changed is None or most < low:
                continue
            gains = [
                (other, _expected(present - least, present - most)),
                (chosen, _expected(high - changed, low - changed)),
            ]
            error = (high - low + most - least) / 2
            if round(error, 3):  # else off the path that decides the objective: measuring it cannot change the plan
                close.append((other, changed - present, error, gains))
    close.sort(key=lambda row: abs(row[1]) / max(row[2], 1e-9))
    found: list[_Close] = []
    for row in close[:MOST]:
        if clock.over():
            return found, False
        if not judge(workload, {**mapping, row[0].stage: row[0]}, False).violations:
            found.append(row)
    return found, len(close) <= MOST


def _expected(best: float, worst: float) -> float:
    """Return the mean of the positive part of a value spread evenly between two bounds."""
    low, high = min(best, worst), max(best, worst)
    if high <= 0:
        return 0.0
    if low >= 0 or high == low:
        return (low + high) / 2
    return high * high / (2 * (high - low))


def _verdict(plan: Plan, workload: Workload, mapping: Mapping[str, Cost], clock: Clock) -> tuple[list[_Option], bool]:
    """Return the costs that can overturn the verdict within their interval, and whether all were examined.

    Of a feasible plan these are the costs of its mapping, at either end; of another plan also those of every other
    place of one stage, at the lower end.
    """
    feasible = plan.verdict == "feasible"
    found: list[_Option] = []
    # a verdict that rests on more than analysis knows, such as the high level of criticality, is not examined
    if is_feasible(workload, mapping) != feasible:
        return found, False
    every = not any(task.high_ns for task in plan.tasks)
    period = workload.graph.period_ns
    ordered = list(mapping.items())
    if clock.left() < len(ordered) * (1 + THOROUGH):  # not all can be examined: those that may load a lane most
        ordered.sort(key=lambda item: -item[1].time_ns * item[1].error / period[item[0]])
    for name, chosen in ordered:
        for cost in [chosen] if feasible else [chosen, *workload.model.candidates(workload.graph.stage(name))]:
            low, high = interval_ns(cost)
            if high <= low or (cost == chosen and cost is not chosen):
                continue
            if clock.over():
                return found, False
            place = name if cost is chosen else f"{name} on {cost.engine} {cost.precision}"
            if feasible and not is_feasible(workload, {**mapping, name: rescale_cost(cost, high)}):
                holds, most = break_even(workload, mapping, cost), 1 + cost.error
                chance = (most - min(holds, most)) / (most - 1 / most)
                share = f"{cost.error:.0%}"
                why = f"{name} may take {share} longer; deadlines are proved up to {holds - 1:.0%}"
                found.append(_Option(cost, chance, 0.0, why))
            elif is_feasible(workload, {**mapping, name: rescale_cost(cost, low)}) != feasible:
                what = "not every requirement is proved" if feasible else "every requirement is met"
                found.append(_Option(cost, 0.5, 0.0, f"at the lower end of the error of {place}, {what}"))
    return found, every
