"""Changes that would close the gap of a violation, least effort first; every lever is tried before it is named.

Effort: another power mode; another engine or precision the pipeline accepts; a precision it does not accept yet; a
lower rate; a later deadline.  A lever that closes one gap and opens another says so.

Levers that need no trial: the cost of a better data type, and the number of frames needed in flight.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from socsched.cost.cost import Cost
from socsched.deadline import check
from socsched.descriptor.pipeline import PER_POINT, Pipeline
from socsched.errors import CompileError, UsageError
from socsched.graph.taskgraph import TaskGraph, task_graph
from socsched.models.parts import uncut
from socsched.planning.candidate import Candidate, better_precisions, judge
from socsched.planning.clock import NO_CLOCK, Clock
from socsched.planning.feasibility.conflicts import key
from socsched.planning.plan import Violation
from socsched.planning.workload import Unconnectable, Workload, place_name, place_of
from socsched.units import format_bandwidth, format_duration, format_power

Modes = Mapping[str, tuple[str, Sequence[Violation], int]]
"""Mode name -> (verdict, violations, mean power in mW) of a quick plan in that mode."""
RATES = (1.1, 1.25, 1.5, 2.0, 3.0)
"""Factors on a period, tried in this order."""
ROOM = (1.0, 1.1, 1.25, 1.5, 2.0)
"""Factors on the demand, tried as a new deadline: local deadlines move with it."""
SHOWN = 3
"""Maximum number of levers of one kind named for a violation."""


@dataclass(frozen=True, slots=True)
class Tried:
    """A change (in words, with its rank of effort) and the requirements that stay unmet after it.

    `moved`: the stage's new cost, if the change only moves a stage.
    """

    effort: int
    text: str
    left: tuple[str, ...]
    cost: int = 0
    moved: Cost | None = None


def verify_levers(
    workload: Workload,
    mapping: Mapping[str, Cost],
    found: Sequence[Violation],
    modes: Modes,
    clock: Clock = NO_CLOCK,
) -> list[tuple[str, ...]]:
    """Return the levers of every violation in words, among those tried before the `clock` runs out."""
    tried = list(_modes(modes))
    for one in (_moves, _precisions, _rates):
        tried += itertools.takewhile(lambda _: not clock.over(), one(workload, mapping, found))
    return [tuple(_levers(violation, tried, workload, mapping, clock)) for violation in found]


def find_helpful_move(
    workload: Workload, mapping: Mapping[str, Cost], found: Sequence[Violation], clock: Clock = NO_CLOCK
) -> dict[str, Cost] | None:
    """Return the mapping after the first move of a stage that leaves no requirement unmet, None if there is none."""
    for one in itertools.takewhile(lambda _: not clock.over(), _moves(workload, mapping, found)):
        if not one.left and one.moved is not None:
            return {**mapping, one.moved.stage: one.moved}
    return None


def _levers(
    violation: Violation,
    tried: Sequence[Tried],
    workload: Workload,
    mapping: Mapping[str, Cost],
    clock: Clock,
) -> Iterator[str]:
    wanted, count = key(violation.requirement), 0
    closing = [t for t in tried if wanted not in {key(name) for name in t.left}]
    kinds = dict[int, int]()
    for one in sorted(closing, key=lambda t: (t.effort, len(t.left), t.cost)):
        if kinds.setdefault(one.effort, 0) < SHOWN:
            kinds[one.effort] += 1
            count += 1
            yield one.text + _rest(one.left)
    plain = list(more_levers(violation, workload, mapping))
    yield from plain
    later = "" if clock.over() else _deadline(violation, workload, mapping)
    if later:
        yield later
    elif not count and not plain:
        short = clock.over()
        if tried:
            more = "; no time was left for more" if short else ""
            yield f"none of the {len(tried)} single changes tried is enough{more}"
        else:
            yield "no time was left to try changes" if short else "no change to try"
    if violation.unit in ("mW", "B/s"):
        show = format_power if violation.unit == "mW" else format_bandwidth
        name, value = max(violation.terms, key=lambda term: term[1])
        yield f"largest term: {name} {show(value)}; reduce the total by {show(violation.gap)}"


def _rest(left: Sequence[str]) -> str:
    if not left:
        return ", where every requirement is met"
    others = len(left) - 1
    return f"; then unmet: {left[0]}" + (f" and {others} more" if others else "")


def _left(candidate: Candidate) -> tuple[str, ...]:
    lost = [v.requirement for v in candidate.violations]
    lost += [f"deadline of chain {c.name}" for c in candidate.assessment.chains if c.bound_ns is None]
    return tuple(dict.fromkeys(lost))


def _judged(workload: Workload, mapping: Mapping[str, Cost]) -> tuple[str, ...] | None:
    try:
        return _left(judge(workload, mapping))
    except (Unconnectable, UsageError, CompileError, KeyError):
        return None


def _modes(modes: Modes) -> Iterator[Tried]:
    for name, (_, violations, power) in modes.items():
        left = tuple(v.requirement for v in violations)
        yield Tried(0, f"mode {name} ({format_power(power)} expected)", left, power)


def _involved(found: Sequence[Violation], names: Iterable[str]) -> list[str]:
    """Return the stages named in the terms of violations, those with the largest terms first."""
    weight: dict[str, int] = {}
    for violation in found:
        check()
        for term, value in violation.terms:
            name = term.split(":")[0]
            weight[name] = max(weight.get(name, 0), value)
    return sorted((n for n in names if n in weight), key=lambda n: -weight[n])


def _moves(workload: Workload, mapping: Mapping[str, Cost], found: Sequence[Violation]) -> Iterator[Tried]:
    graph, model = workload.graph, workload.model
    for name in _involved(found, graph.order)[:6]:
        for cost in model.candidates(graph.stage(name)):
            if place_of(cost) != place_of(mapping[name]):
                left = _judged(workload, {**mapping, name: cost})
                if left is not None:
                    text = f"move {name} from {place_name(mapping[name])} to {place_name(cost)}"
                    yield Tried(1, text, left, cost.time_ns, cost)


def _precisions(workload: Workload, mapping: Mapping[str, Cost], found: Sequence[Violation]) -> Iterator[Tried]:
    """Try data types that the pipeline does not accept yet, on the longest stages involved."""
    graph, model = workload.graph, workload.model
    for name in _involved(found, graph.order)[:3]:
        stage = graph.stage(name)
        more = {p for engine in model.platform.engines for p in engine.precisions} - set(stage.precisions)
        wider = replace(stage, precisions=tuple(sorted(more)))
        if not more or not stage.modelled:
            continue
        other = model.in_mode(model.mode)
        try:
            costs = [cost for cost in other.candidates(wider) if cost.time_ns < mapping[name].time_ns]
        except (UsageError, CompileError, KeyError, ValueError):
            continue
        pipeline = _with_stage(graph.pipeline, name, precisions=(*stage.precisions, *wider.precisions))
        wide = Workload.of(task_graph(pipeline), other, workload.policy, workload.observed, workload.limits)
        for cost in sorted(costs, key=lambda cost: cost.time_ns)[:3]:
            left = _judged(wide, {**mapping, name: cost})
            if left is not None:
                saved = format_duration(mapping[name].time_ns - cost.time_ns)
                text = f"accept {cost.precision} for {name}: {place_name(cost)} saves {saved} if its accuracy allows"
                yield Tried(2, text, left, cost.time_ns)


def _with_stage(pipeline: Pipeline, name: str, **changes: object) -> Pipeline:
    stages = tuple(replace(s, **changes) if s.name == name else s for s in pipeline.stages)  # type: ignore[arg-type]
    return replace(pipeline, stages=stages)


def _rates(workload: Workload, mapping: Mapping[str, Cost], found: Sequence[Violation]) -> Iterator[Tried]:
    """Try lower rates of the sensors and timers behind the stages involved: the highest that closes a violation."""
    graph = workload.graph
    roots = dict.fromkeys(r for name in _involved(found, graph.order) for r in graph.sources.get(name, (name,)))
    for root in list(roots)[:4]:
        open_ = {key(v.requirement) for v in found}
        for factor in RATES:
            changed = _slower(graph, root, factor)
            if changed is None:
                break
            pipeline, old, new = changed
            try:
                other = workload.asking(task_graph(pipeline))
            except UsageError:
                break
            left = _judged(other, mapping)
            if left is None:
                break
            closed = open_ - {key(name) for name in left}
            if closed:
                open_ -= closed
                hertz = f"{1e9 / new:.3g} instead of {1e9 / old:.3g} Hz"
                text = f"run {root} every {format_duration(new)} instead of every {format_duration(old)} ({hertz})"
                yield Tried(3, text, left, int(factor * 1000))


def _slower(graph: TaskGraph, root: str, factor: float) -> tuple[Pipeline, int, int] | None:
    pipeline = graph.pipeline
    for sensor in pipeline.sensors:
        if sensor.name == root:
            period = _sayable(sensor.period_ns * factor)
            sensors = tuple(replace(s, period_ns=period) if s.name == root else s for s in pipeline.sensors)
            return replace(pipeline, sensors=sensors), sensor.period_ns, period
    for stage in pipeline.stages:
        if stage.name == root and stage.period_ns is not None:
            period = _sayable(stage.period_ns * factor)
            return _with_stage(pipeline, root, period_ns=period), stage.period_ns, period
    return None


def _sayable(ns: float) -> int:
    """Return a duration rounded up to four digits, so that the value tried is the value shown."""
    step: int = 10 ** max(len(str(int(ns))) - 4, 0)
    return -(-math.ceil(ns) // step) * step


def _deadline(violation: Violation, workload: Workload, mapping: Mapping[str, Cost]) -> str:
    """Return the shortest of several later deadlines that is met, "" if there is none or no deadline is violated."""
    name = violation.requirement.removeprefix("deadline of chain ")
    chains = workload.graph.pipeline.chains
    if violation.unit != "ns" or name not in {chain.name for chain in chains}:
        return ""
    for factor in ROOM:
        allowed = _sayable(violation.demand * factor)
        changed = tuple(replace(c, deadline_ns=allowed) if c.name == name else c for c in chains)
        graph = task_graph(replace(workload.graph.pipeline, chains=changed))
        left = _judged(workload.asking(graph), mapping)
        if left is not None and violation.requirement not in left:
            text = f"allow {format_duration(allowed)} instead of {format_duration(violation.bound)}"
            return text + _rest(left)
    return ""


def more_levers(violation: Violation, workload: Workload, mapping: Mapping[str, Cost]) -> Iterator[str]:
    """Yield the changes that close the gap of an accuracy budget or of a queue."""
    if violation.requirement == "accuracy loss":
        yield from _accuracy(violation, workload, mapping)
    if violation.requirement.startswith("queue of "):
        yield from _queue(violation, workload)


def _accuracy(violation: Violation, workload: Workload, mapping: Mapping[str, Cost]) -> Iterator[str]:
    """Yield, for every stage that loses accuracy, the cost of a better data type."""
    for name, cost in mapping.items():
        stage = workload.graph.stage(name)
        better = better_precisions(stage, cost, workload.model.candidates(stage))
        if better and any(uncut(name, stage.params) == term for term, _ in violation.terms):
            gained = (stage.losses.get(cost.precision, 0) - stage.losses.get(better[0].precision, 0)) / PER_POINT
            slower = format_duration(max(better[0].time_ns - cost.time_ns, 0))
            place = f"{better[0].engine} {better[0].precision}"
            yield f"run {name} on {place}: {slower} slower, {gained:g} points more accurate"
    yield f"allow {violation.demand / PER_POINT:g} points instead of {violation.bound / PER_POINT:g}"


def _queue(violation: Violation, workload: Workload) -> Iterator[str]:
    """Yield the number of frames in flight that a late stage would have to hold, if it keeps up with their rate."""
    name = violation.requirement.removeprefix("queue of ").split(" ")[0]
    producer, _, consumer = name.partition(">")
    period = workload.graph.period_ns.get(producer)
    if period:
        stage = workload.graph.stage(consumer or producer)
        frames = max(stage.queue, workload.graph.stage(producer).queue, 1) + -(-violation.gap // period)
        where = uncut(stage.name, stage.params)
        yield f"allow {frames} frames in flight there (queue: {frames} at {where}), if deadlines permit"


# Reasons why a network is not where it would take the least energy: the violations if it moves there.


def refusals(candidate: Candidate) -> Iterator[tuple[str, str]]:
    """Yield (stage, reason) for every stage with a model that another place would run with less energy."""
    deployment = candidate.deployment
    workload, mapping = deployment.workload, deployment.mapping
    for name, chosen in mapping.items():
        stage = workload.graph.stage(name)
        least = min(workload.model.candidates(stage), key=lambda cost: cost.energy_uj)
        if not stage.modelled or least.energy_uj >= chosen.energy_uj or place_of(least) == place_of(chosen):
            continue
        saving = f"{least.engine} {least.precision} would take {least.energy_uj / 1e3:.3g} mJ a frame, not "
        saving += f"{chosen.energy_uj / 1e3:.3g}"
        try:
            moved = judge(workload, {**mapping, name: least}, thorough=False)
        except Unconnectable:
            yield name, f"{saving}, but no engine converts its tensors"
            continue
        if moved.violations:
            worst = max(moved.violations, key=lambda violation: violation.gap / max(violation.bound, 1))
            yield name, f"{saving}, but then {_shortfall(worst)}"
        elif moved.balance.power_mw >= candidate.balance.power_mw:
            yield name, f"{saving}, a saving that transfers between engines use up"


def _shortfall(violation: Violation) -> str:
    if violation.unit == "ns":
        return f"{violation.requirement}: {format_duration(violation.demand)} > {format_duration(violation.bound)}"
    if violation.unit == "ns/s":
        return f"{violation.requirement}: {violation.demand / 1e7:.3g} %"
    return f"{violation.requirement}: {violation.demand} > {violation.bound} {violation.unit}"
