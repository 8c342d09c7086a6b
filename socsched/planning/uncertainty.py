"""Choices left open by the errors of costs: plans that are ties, and the single most informative measurement.

A cost is an interval, its time plus or minus its relative error, every time in it equally likely.  Errors are taken as
independent, except for costs of a stage that rest on the same figures: these err alike and keep their order.  The value
of a measurement is the expected gain of the plan when it may be chosen again afterwards (Howard, "Information value
theory", IEEE Trans. SSC 2(1), 1966); a measurement that may overturn the verdict comes before any that only changes the
objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from socsched.cost.cost import Cost
from socsched.descriptor.limits import Objective
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.conditions import FEASIBLE, conditions, upper
from socsched.planning.corunning import Corunning
from socsched.planning.costs_in_doubt import interval_ns, rescale_cost
from socsched.planning.deployment import Outline, outlined, placed
from socsched.planning.evidence import Measurement, Tie, Uncertainty
from socsched.planning.expected import expected_latencies
from socsched.planning.infeasible_subset import Judge
from socsched.planning.plan import Plan
from socsched.planning.schedulability.plan_analysis import respond, unmet
from socsched.planning.schedulability.tasks import rt_tasks
from socsched.planning.sensitivity import grown, spare
from socsched.planning.verdict import balance, utilisations
from socsched.planning.workload import Unconnectable, Workload

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
    judge: Judge,
    objective: Objective,
    clock: Clock = NO_CLOCK,
) -> Uncertainty:
    """Return ties and the measurement to make first; no ties for the objective slack.

    Alternatives not evaluated before the `clock` runs out are left out.
    """
    worth, top = _worth(objective), upper(plan, workload, mapping, judge)
    # Nothing within the intervals changes a verdict that holds with all costs at their upper ends.
    wishes = [] if top == FEASIBLE else list(_verdict(plan, workload, mapping, judge, clock))
    ties: list[Tie] = []
    if worth and plan.verdict == "feasible":
        for cost, difference, error, gains in _alternatives(workload, mapping, judge, worth, clock):
            place = f"{cost.engine} {cost.precision}" + (f" x{cost.share}" if cost.share > 1 else "")
            ties.append(Tie(cost.stage, place, round(difference, 3), round(error, 3)))
            why = f"{cost.stage} may be better on {place}"
            wishes += [_Option(which, 0.0, gain, why) for which, gain in gains if gain > 0]
    best = max(wishes, key=lambda wish: (wish.flips, wish.gain), default=None)
    measure = best.measurement() if best else None
    margins = conditions(plan, workload, mapping, judge, clock)
    return Uncertainty(objective, tuple(ties), measure, margins, top)


Worth = Callable[[Outline], float]


def _worth(objective: str) -> Worth | None:
    """Return the value function of an objective (smaller is better), None if that needs a whole analysis."""

    def latency(outline: Outline) -> float:
        return float(sum(expected_latencies(outline.workload.graph, outline.tasks).values()))

    def longest(outline: Outline) -> float:
        return float(max(expected_latencies(outline.workload.graph, outline.tasks).values(), default=0))

    def energy(outline: Outline) -> float:
        return float(balance(placed(outline)).power_mw)

    def throughput(outline: Outline) -> float:
        return max(utilisations(placed(outline).tasks).values(), default=0.0)

    known: dict[str, Worth] = {"latency": latency, "longest": longest, "energy": energy, "throughput": throughput}
    return known.get(objective)


def _alternatives(
    workload: Workload, mapping: Mapping[str, Cost], judge: Judge, worth: Worth, clock: Clock
) -> Iterator[tuple[Cost, float, float, list[tuple[Cost, float]]]]:
    """Yield (other cost of a stage, difference, its error, gain of measuring either) for every feasible tie."""

    def value(name: str, cost: Cost | None) -> float | None:
        try:
            return worth(outlined(workload, {**mapping, name: cost} if cost else mapping))
        except Unconnectable:
            return None

    close: list[tuple[float, float, Cost, list[tuple[Cost, float]]]] = []
    present = value("", None)
    for name, chosen in mapping.items():
        if present is None or clock.over():
            break
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
            close.append((changed - present, (high - low + most - least) / 2, other, gains))
    close.sort(key=lambda row: abs(row[0]) / max(row[1], 1e-9))
    for difference, error, other, gains in close[:MOST]:
        if clock.over():
            break
        if not round(error, 3):
            continue  # off the path that decides the objective: measuring it cannot change the plan
        if not judge(workload, {**mapping, other.stage: other}, False).violations:
            yield other, difference, error, gains


def _expected(best: float, worst: float) -> float:
    """Return the mean of the positive part of a value spread evenly between two bounds."""
    low, high = min(best, worst), max(best, worst)
    if high <= 0:
        return 0.0
    if low >= 0 or high == low:
        return (low + high) / 2
    return high * high / (2 * (high - low))


def _verdict(
    plan: Plan, workload: Workload, mapping: Mapping[str, Cost], judge: Judge, clock: Clock
) -> Iterator[_Option]:
    """Yield the costs that can overturn the verdict within their interval, of a feasible plan the likelier ones."""
    likeliest = -1.0
    for name, cost in mapping.items():
        low, high = interval_ns(cost)
        if high <= low:
            continue
        if clock.over():
            break
        if plan.verdict == "feasible":
            factor = 1 + cost.error
            more = grown(plan, frozenset([name]), factor)
            if unmet(plan, respond(plan.policy, rt_tasks(more), None, Corunning.of(more).without_relatives).tight):
                # A bisection ends early where the factor found cannot make this cost the likeliest to flip the verdict.
                enough = factor - 2 * cost.error * likeliest
                if enough <= 1:
                    continue
                chosen = frozenset([name])
                found = spare(plan, chosen, up_to=factor, enough=enough)
                holds = found.factor if found else 1.0
                if holds >= enough:
                    continue
                if holds >= factor:
                    found = spare(plan, chosen)
                    holds = found.factor if found else 1.0
                likeliest = (factor - min(holds, factor)) / (2 * cost.error)
                share = f"{cost.error:.0%}"
                why = f"{name} may take {share} longer; deadlines are proved up to {holds - 1:.0%}"
                yield _Option(cost, likeliest, 0.0, why)
        elif any(term.split(":")[0] == name for v in plan.violations for term, _ in v.terms):
            candidate = judge(workload, {**mapping, name: rescale_cost(cost, low)}, True)
            lost = any(chain.bound_ns is None for chain in candidate.assessment.chains)
            if not candidate.violations and not lost:
                yield _Option(cost, 0.5, 0.0, f"at the lower end of the error of {name}, every requirement is met")
